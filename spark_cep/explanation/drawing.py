"""The automaton of skip till next match and strict: the pattern itself, from top to bottom.

No plan orders these: a run takes rows as they come. So the structure of the pattern is drawn:
what follows is below, alternatives and parts in any order stand side by side, lists have a loop,
optional parts a way around. Without that structure in the facts, the variables stand in the order
of the pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from spark_cep.explanation.facts import (
    BranchFacts,
    PlanFacts,
    PlanShape,
    StepFacts,
    binds_late,
    candidate_rates,
    cost_unit,
    group_members,
    is_chain,
    left_deep_shape,
    negated_variables,
    plan_branches,
    plan_title,
    shape_leaves,
)
from spark_cep.explanation.numbers import format_amount
from spark_cep.explanation.svg import (
    GAP,
    NAME_CELLS,
    PADDING,
    TEXT_CELLS,
    Box,
    BoxStyle,
    Line,
    Point,
    Sketch,
    arrange_row,
    center_row,
    clip_text,
    make_box,
    overlay_sketches,
    place_box,
    render_svg,
    stack_sketches,
)

if TYPE_CHECKING:
    from spark_cep.explanation.svg import Markup


# --------------------------------------------------------------------------------------------------
# What the boxes of a drawn plan say: a variable with its rate, a step with its cost.
# --------------------------------------------------------------------------------------------------


# Conditions in boxes that stand side by side; the pictures would be too wide to read otherwise.
NARROW_CELLS = 22
# Conditions written out in a box; how many more there are is said.
_LISTED_CONDITIONS = 2


@dataclass(frozen=True)
class VariableBox:
    """A box about one variable; `says` stands before its name, `node` is the step it takes."""

    name: str
    says: str = ""
    look: BoxStyle = "event"
    node: StepFacts | None = None

    def box(self, facts: PlanFacts, cells: int = TEXT_CELLS) -> Box:
        names = group_members(self.name)
        own = [str(text) for name in names for text in facts["before"]["candidates"].get(name, [])]
        costs = cost_lines(self.node)
        conditions = self.node.conditions if self.node else ()
        lines = [
            f"{self.says}{clip_text(self.name, NAME_CELLS)}",
            *_rate_lines(names, facts),
            *list_conditions([*own, *conditions], cells),
            *costs,
        ]
        return make_box(lines, self.look, "\n".join([self.name, *own, *conditions, *costs]))


def join_box(node: StepFacts | None, names: Sequence[str], says: str = "") -> Box:
    """A box about the variables bound together in one step."""
    title = f"{says}{clip_text(' '.join(names), NAME_CELLS)}"
    costs = cost_lines(node)
    conditions = node.conditions if node else ()
    hint = "\n".join([" ".join(names), *conditions, *costs])
    return make_box([title, *list_conditions(conditions, NARROW_CELLS), *costs], "join", hint)


def cost_lines(node: StepFacts | None) -> list[str]:
    """What a step is expected to evaluate and to leave, as far as that is known."""
    if node is None:
        return []
    pairs = None if node.starts else node.pairs
    known = ((pairs, "pairs"), (node.partials, "matches" if node.is_last else "partial matches"))
    return [f"≈ {format_amount(value)} {what}" for value, what in known if value is not None]


def _rate_lines(names: Sequence[str], facts: PlanFacts) -> list[str]:
    found = [
        format_amount(candidate_rates(facts)[name])
        for name in names
        if name in candidate_rates(facts)
    ]
    return [f"{' and '.join(found)} in a window"] if found else []


def list_conditions(conditions: Sequence[str], cells: int = TEXT_CELLS) -> list[str]:
    """
    >>> list_conditions(["a.x = 1", "b.x = 2", "c.x = 3"])
    ['a.x = 1', 'b.x = 2', 'and 1 more']
    """
    shown = [clip_text(each, cells) for each in conditions[:_LISTED_CONDITIONS]]
    more = len(conditions) - _LISTED_CONDITIONS
    return [*shown, f"and {more} more"] if more > 0 else shown


# --------------------------------------------------------------------------------------------------
# A chain NFA: states from top to bottom, a take edge between two of them.
#
# It is the papers' figure turned by a quarter, because beside a vertical edge there is room for
# what is known about it: the variable, its rate, its conditions, the cost of the step. A loop is a
# state's store edge: events that a later edge takes wait in buffers. Ignore edges are left out, as
# the papers do.
# --------------------------------------------------------------------------------------------------


_LOOP = 16
_MIDDLE = _LOOP + 32
# Boxes of variables side by side where no order ties them.
_IN_A_ROW = 4


def draw_chain(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    assert branch.shape is not None, "a chain has an order"
    order = shape_leaves(branch.shape)
    boxes, lines, y = [], [], 0.0
    for place, name in enumerate(order):
        state = make_box([f"q{place}"], "state")
        state = place_box(state, _MIDDLE - state.width / 2, y)
        boxes.append(state)
        stored = order[place + 1 :] if facts["plan"] != "eager" else ()
        if stored:
            note = make_box([f"stores {clip_text(', '.join(stored))}"], hint=", ".join(stored))
            boxes.append(place_box(note, state.x + state.width + GAP / 2, y + 7))
            lines.append(_loop_line(state.x, y + state.height / 2))
        node = branch.node(order[: place + 1])
        edge = VariableBox(name, "take ", node=node).box(facts)
        y = state.y + state.height
        boxes.append(place_box(edge, _MIDDLE + GAP / 2, y + GAP / 4))
        below = y + edge.height + GAP / 2
        lines.append(Line(((_MIDDLE, y), (_MIDDLE, below))))
        y = below
    final = make_box(["match"], "final")
    return Sketch((*boxes, place_box(final, _MIDDLE - final.width / 2, y)), tuple(lines))


def draw_undecided(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    """Where each bucket makes the plan from its own counts: the variables, and what becomes of
    them."""
    says = "each bucket orders them by its own counts"
    return draw_variables_above(branch.variables, facts, [says, "all bound"])


def draw_variables_above(names: Sequence[str], facts: PlanFacts, steps: Sequence[str]) -> Sketch:
    """The variables in rows, and below them what happens to all of them, step by step."""
    rows: list[Sketch] = []
    for start in range(0, len(names), _IN_A_ROW):
        x, found = 0.0, []
        for name in names[start : start + _IN_A_ROW]:
            found.append(place_box(VariableBox(name, look="buffer").box(facts, NARROW_CELLS), x, 0))
            x += found[-1].width + GAP
        rows.append(Sketch(tuple(found)))
    y = 0.0
    boxes: list[Box] = []
    lines = []
    for row in rows:
        boxes += row.moved(y=y).boxes
        y += row.height + GAP / 2
    widest = max(each.x + each.width for each in boxes)
    y += GAP / 2
    for place, text in enumerate(steps):
        is_last = place == len(steps) - 1
        step = make_box([text], "final" if is_last else "join")
        boxes.append(place_box(step, max(0.0, (widest - step.width) / 2), y))
        if not is_last:
            middle = boxes[-1].x + step.width / 2
            lines.append(Line(((middle, y + step.height), (middle, y + step.height + GAP))))
        y += step.height + GAP
    return Sketch(tuple(boxes), tuple(lines))


def _loop_line(x: float, y: float) -> Line:
    left = x - _LOOP
    return Line(((x, y - 6), (left, y - 6), (left, y + 6), (x, y + 6)))


# --------------------------------------------------------------------------------------------------
# A tree of joins: variables at the leaves, each inner box what it binds, tests and costs.
#
# A hybrid is such a tree with a frame around the eager group, whose partial matches are kept in the
# state; the other leaves are buffers, and the boxes outside the frame say in which order they are
# merged once the final event is there.
#
# Each subtree is placed in a column of its own, so no two boxes can overlap.
# --------------------------------------------------------------------------------------------------


_KEPT_LABEL = "kept in the state"


@dataclass(frozen=True)
class _Subtree:
    """A subtree, and where a line from above meets it."""

    sketch: Sketch
    top: Point

    def moved(self, x: float, y: float) -> _Subtree:
        return _Subtree(self.sketch.moved(x, y), (self.top[0] + x, self.top[1] + y))


def draw_joins(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    """The branch's tree; a branch without a shape is joined eager group first."""
    shape = branch.shape or _eager_first_shape(branch)
    return _TreeDrawing(branch, facts).placed(shape).sketch


def _eager_first_shape(branch: BranchFacts) -> PlanShape:
    lazy = [name for name in branch.variables if name not in branch.eager]
    eager = left_deep_shape(branch.eager)
    shape = left_deep_shape([*([eager] if eager else []), *lazy])
    assert shape is not None, "a branch has variables"
    return shape


class _TreeDrawing:
    def __init__(self, branch: BranchFacts, facts: PlanFacts) -> None:
        self._branch = branch
        self._facts = facts
        self._eager = frozenset(branch.eager)
        self._is_hybrid = facts["plan"] == "hybrid"
        self._merges = 0

    def placed(self, shape: PlanShape, *, framed: bool = False) -> _Subtree:
        if self._eager and not framed and frozenset(shape_leaves(shape)) == self._eager:
            return _add_frame(self.placed(shape, framed=True))
        return self._leaf(shape) if isinstance(shape, str) else self._join(shape, framed=framed)

    def _leaf(self, name: str) -> _Subtree:
        node = self._branch.node([name])
        leaf = VariableBox(name, node=node)
        if self._is_hybrid and name not in self._eager:
            leaf = VariableBox(name, "buffer ", "buffer", node)
        placed = leaf.box(self._facts, NARROW_CELLS)
        return _Subtree(Sketch((placed,)), placed.top)

    def _join(self, shape: tuple[PlanShape, PlanShape], *, framed: bool) -> _Subtree:
        left, right = (self.placed(part, framed=framed) for part in shape)
        names = shape_leaves(shape)
        says = ""
        if self._is_hybrid and not framed:
            self._merges += 1
            says = f"merge {self._merges}: "
        node = join_box(self._branch.node(names), names, says)
        return _join_above(node, left, right)


def _join_above(node: Box, left: _Subtree, right: _Subtree) -> _Subtree:
    """A box over the middle between two subtrees that stand side by side."""
    y = node.height + GAP
    right = right.moved(left.sketch.width + GAP, 0)
    middle = (left.top[0] + right.top[0]) / 2
    x = middle - node.width / 2
    shift = max(0.0, -x)
    placed = place_box(node, x + shift, 0)
    left, right = left.moved(shift, y), right.moved(shift, y)
    lines = tuple(Line((placed.bottom, each.top), arrow=False) for each in (left, right))
    return _Subtree(
        overlay_sketches(Sketch((placed,), lines), left.sketch, right.sketch), placed.top
    )


def _add_frame(inner: _Subtree) -> _Subtree:
    """The label is at the bottom: lines come from above."""
    inside = inner.moved(PADDING, PADDING)
    label = make_box([_KEPT_LABEL])
    y = inside.sketch.height + PADDING
    width = max(inside.sketch.width, PADDING + label.width) + PADDING
    frame = replace(make_box([], "frame"), width=width, height=y + label.height + PADDING)
    sketch = overlay_sketches(
        Sketch((frame,)), inside.sketch, Sketch((place_box(label, PADDING, y),))
    )
    return _Subtree(sketch, inside.top)


_BYPASS_WIDTH = 14


@dataclass(frozen=True)
class _AutomatonPart:
    """A part of the automaton; it is entered at (`middle`, 0) and left at (`middle`, height)."""

    sketch: Sketch
    middle: float

    @property
    def height(self) -> float:
        return self.sketch.height

    def moved(self, x: float, y: float) -> Sketch:
        return self.sketch.moved(x, y)


def draw_runs(facts: PlanFacts) -> Sketch:
    part = facts.get("parts") or {"kind": "seq", "parts": [_event_part(n) for n in facts["order"]]}
    start, end = _box_part(make_box(["start"], "state")), _box_part(make_box(["match"], "final"))
    return _stack_parts([start, _draw_part(part, facts), end]).sketch


def _event_part(name: str) -> dict[str, Any]:
    return {"kind": "event", "variable": name}


def _draw_part(part: Mapping[str, Any], facts: PlanFacts) -> _AutomatonPart:
    kind = part["kind"]
    if kind == "event":
        return _box_part(VariableBox(part["variable"], "take ").box(facts, NARROW_CELLS))
    if kind == "not":
        return _box_part(VariableBox(part["variable"], "NOT ", "not").box(facts, NARROW_CELLS))
    if kind == "mark":
        return _box_part(make_box([part["text"]], "state"))
    pieces = [_draw_part(each, facts) for each in part["parts"]]
    if kind == "seq":
        return _stack_parts(pieces)
    if kind in {"all", "any"}:
        return _fork_parts(pieces, "all, in any order" if kind == "all" else "one of")
    return _loop_part(pieces[0], part) if kind == "repeat" else _skip_part(pieces[0])


def _box_part(placed: Box) -> _AutomatonPart:
    return _AutomatonPart(Sketch((placed,)), placed.width / 2)


def _stack_parts(pieces: Sequence[_AutomatonPart]) -> _AutomatonPart:
    """One after another, an arrow between two."""
    middle = max(each.middle for each in pieces)
    sketches, lines, y = [], [], 0.0
    for place, each in enumerate(pieces):
        if place:
            lines.append(Line(((middle, y), (middle, y + GAP))))
            y += GAP
        sketches.append(each.moved(middle - each.middle, y))
        y += each.height
    return _AutomatonPart(overlay_sketches(*sketches, Sketch(lines=tuple(lines))), middle)


def _fork_parts(pieces: Sequence[_AutomatonPart], says: str) -> _AutomatonPart:
    """A fork, the pieces side by side, and where they meet again."""
    fork = make_box([says], "join")
    inside = sum(each.sketch.width for each in pieces) + GAP * (len(pieces) - 1)
    width = max(inside, fork.width)
    middle, x = width / 2, (width - inside) / 2
    tallest = max(each.height for each in pieces)
    top, bottom = fork.height + GAP, fork.height + 2 * GAP + tallest
    sketches = [Sketch((place_box(fork, middle - fork.width / 2, 0),))]
    lines = []
    for each in pieces:
        sketches.append(each.moved(x, top))
        entry = x + each.middle
        leaving = (entry, top + each.height)
        lines.append(Line(((middle, fork.height), (entry, top))))
        lines.append(Line((leaving, (entry, top + tallest), (middle, bottom)), arrow=False))
        lines.append(
            Line(
                ((entry, top + each.height), (entry, top + tallest), (middle, bottom)), arrow=False
            )
        )
        x += each.sketch.width + GAP
    return _AutomatonPart(overlay_sketches(*sketches, Sketch(lines=tuple(lines))), middle)


def _loop_part(piece: _AutomatonPart, part: Mapping[str, Any]) -> _AutomatonPart:
    """Back from the end to the start, on the right, with how often."""
    low, high = part["low"], part["high"]
    often = f"{low} or more times" if high is None else f"{low} to {high} times"
    return _add_bypass(piece, often, is_back=True)


def _skip_part(piece: _AutomatonPart) -> _AutomatonPart:
    return _add_bypass(piece, "or nothing", is_back=False)


def _add_bypass(piece: _AutomatonPart, says: str, *, is_back: bool) -> _AutomatonPart:
    inner = piece.moved(0, GAP)
    height = piece.height + 2 * GAP
    right = piece.sketch.width + _BYPASS_WIDTH
    ends = [(piece.middle, GAP / 2), (piece.middle, height - GAP / 2)]
    if is_back:
        ends.reverse()
    way = Line((ends[0], (right, ends[0][1]), (right, ends[1][1]), ends[1]), dashed=True)
    through = (
        Line(((piece.middle, 0), (piece.middle, GAP))),
        Line(((piece.middle, height - GAP), (piece.middle, height)), arrow=False),
    )
    label = make_box([says])
    placed = place_box(label, right + 5, (height - label.height) / 2)
    return _AutomatonPart(overlay_sketches(inner, Sketch((placed,), (way, *through))), piece.middle)


# --------------------------------------------------------------------------------------------------
# A tree NFA: every partial match chooses its own next variable.
#
# The papers draw a state for each order of each set of variables. Here the states that bind the
# same set are one, in a layer for each size, and still there are 2^n of them; so more than
# `_DRAWN_VARIABLES` are summed up.
# --------------------------------------------------------------------------------------------------


_DRAWN_VARIABLES = 4
_RULE = "next: the variable with the fewest events in its own scope"


def draw_tree(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    if len(branch.variables) > _DRAWN_VARIABLES:
        start = "start: each window-long block, with the rarest variable in it"
        return draw_variables_above(branch.variables, facts, [start, _RULE, "all bound"])
    layers = [_draw_layer(branch, size, facts) for size in range(len(branch.variables) + 1)]
    width = max(each[-1].x + each[-1].width for each in layers)
    placed: list[tuple[Box, ...]] = []
    y = 0.0
    for layer in layers:
        placed.append(tuple(place_box(each, each.x, y) for each in center_row(layer, width)))
        y += max(each.height for each in layer) + 2 * GAP
    lines = [
        Line((above.bottom, below.top))
        for size, layer in enumerate(placed[:-1])
        for above, had in zip(layer, _variable_sets(branch, size), strict=True)
        for below, has in zip(placed[size + 1], _variable_sets(branch, size + 1), strict=True)
        if set(had) < set(has)
    ]
    rule = place_box(make_box([_RULE]), 0, y - GAP)
    return Sketch((*(each for layer in placed for each in layer), rule), tuple(lines))


def _variable_sets(branch: BranchFacts, size: int) -> list[tuple[str, ...]]:
    return list(combinations(branch.variables, size))


def _draw_layer(branch: BranchFacts, size: int, facts: PlanFacts) -> tuple[Box, ...]:
    """The states that have bound so many variables."""
    if size == 0:
        return (make_box(["start"], "state"),)
    boxes = []
    for names in _variable_sets(branch, size):
        node = branch.node(names)
        single = VariableBox(names[0], node=node).box(facts, NARROW_CELLS)
        boxes.append(single if len(names) == 1 else join_box(node, names))
    return arrange_row(boxes)


# --------------------------------------------------------------------------------------------------
# The plan as a picture: one drawing for each branch, one below the other.
#
# Only the facts of explain are read, so a plan can be drawn wherever they are: without Spark, from
# a log. Data first: `plan_sketch` places boxes and lines, `svg` writes them down.
# --------------------------------------------------------------------------------------------------


# An OR of many parts has a branch for each; from here on a branch is one line of text.
_DRAWN_BRANCHES = 6


def draw_plan(facts: PlanFacts) -> Markup:
    """The plan as SVG."""
    return render_svg(sketch_plan(facts), f"the plan {plan_title(facts)} of {facts['pattern']}")


def sketch_plan(facts: PlanFacts) -> Sketch:
    if not binds_late(facts):
        return draw_runs(facts)
    return stack_sketches(list(_sketch_parts(facts)))


def _sketch_parts(facts: PlanFacts) -> Iterator[Sketch]:
    every = plan_branches(facts)
    for place, each in enumerate(every[:_DRAWN_BRANCHES]):
        picture = _sketch_branch(each, facts)
        heading = f"branch {place + 1} of {len(every)}"
        yield _add_heading(heading, picture) if len(every) > 1 else picture
    rest = every[_DRAWN_BRANCHES:]
    for place, each in enumerate(rest, _DRAWN_BRANCHES + 1):
        names = " ".join(each.variables)
        yield Sketch((make_box([f"branch {place}: {clip_text(names)}"], hint=names),))
    boxes, x = [], 0.0
    for name in negated_variables(facts):
        boxes.append(place_box(VariableBox(name, "NOT ", "not").box(facts, NARROW_CELLS), x, 0))
        x += boxes[-1].width + GAP
    if cost_unit(facts) and any(each.nodes for each in every):
        yield Sketch((make_box([f"pairs and matches are for{cost_unit(facts)}"]),))
    if boxes:
        yield _add_heading(
            "tested as soon as the variables around it are bound", Sketch(tuple(boxes))
        )


def _sketch_branch(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    kind = facts["plan"]
    if kind == "tree":
        return draw_tree(branch, facts)
    if kind == "hybrid":
        return draw_joins(branch, facts)
    if branch.shape is None:
        return draw_undecided(branch, facts)
    draws_chain = is_chain(branch.shape) and kind != "zstream"
    return draw_chain(branch, facts) if draws_chain else draw_joins(branch, facts)


def _add_heading(heading: str, picture: Sketch) -> Sketch:
    return stack_sketches([Sketch((make_box([heading]),)), picture], gap=GAP / 3)
