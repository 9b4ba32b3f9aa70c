"""A plan as a picture: one drawing for each branch of the pattern, one below the other.

Only the facts of explain are read, so a plan can be drawn without Spark, from a log for example.
`sketch_plan` places boxes and lines; `svg` writes them down. No two boxes with text overlap, and
no line runs through one.
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
    negated_groups,
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


# Conditions in boxes side by side are clipped to this; the picture would become too wide.
_NARROW_CELLS = 22
# Conditions written out in a box; the others are counted.
_LISTED_CONDITIONS = 2
# An OR of many parts has a branch for each; the branches after these are a line of text each.
_DRAWN_BRANCHES = 6


def draw_plan(facts: PlanFacts) -> Markup:
    """The plan as SVG."""
    return render_svg(sketch_plan(facts), f"the plan {plan_title(facts)} of {facts['pattern']}")


def sketch_plan(facts: PlanFacts) -> Sketch:
    """The plan as boxes and lines."""
    if not binds_late(facts):
        return _draw_pattern(facts)
    return stack_sketches(list(_plan_sections(facts)))


def _plan_sections(facts: PlanFacts) -> Iterator[Sketch]:
    branches = plan_branches(facts)
    for number, branch in enumerate(branches[:_DRAWN_BRANCHES], start=1):
        picture = _draw_branch(branch, facts)
        heading = f"branch {number} of {len(branches)}"
        yield _add_heading(heading, picture) if len(branches) > 1 else picture
    for number, branch in enumerate(branches[_DRAWN_BRANCHES:], start=_DRAWN_BRANCHES + 1):
        names = " ".join(branch.variables)
        yield Sketch((make_box([f"branch {number}: {clip_text(names)}"], hint=names),))
    if cost_unit(facts) and any(branch.nodes for branch in branches):
        yield Sketch((make_box([f"pairs and matches are for{cost_unit(facts)}"]),))
    groups = negated_groups(facts)
    grouped = {name for group in groups for name in group["variables"]}
    negated = [
        _variable_box(name, facts, prefix="NOT ", style="not", cells=_NARROW_CELLS)
        for name in negated_variables(facts)
        if name not in grouped
    ]
    negated += [_part_box(group, facts) for group in groups]
    if negated:
        heading = "tested as soon as the variables around it are bound"
        yield _add_heading(heading, Sketch(arrange_row(negated)))


def _draw_branch(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    kind = facts["plan"]
    if kind == "tree":
        return _draw_tree(branch, facts)
    if kind == "hybrid":
        return _draw_joins(branch, facts)
    if branch.shape is None:
        return _draw_undecided(branch, facts)
    draws_chain = is_chain(branch.shape) and kind != "zstream"
    return _draw_chain(branch, facts) if draws_chain else _draw_joins(branch, facts)


def _add_heading(heading: str, picture: Sketch) -> Sketch:
    return stack_sketches([Sketch((make_box([heading]),)), picture], gap=GAP / 3)


# ---- boxes -------------------------------------------------------------------------------------


def _variable_box(  # noqa: PLR0913 - what differs between drawings, by name
    name: str,
    facts: PlanFacts,
    *,
    prefix: str = "",
    style: BoxStyle = "event",
    step: StepFacts | None = None,
    cells: int = TEXT_CELLS,
) -> Box:
    """A box about one variable, or about a repeated group: its rate, its conditions and the cost of
    the step that binds it."""
    names = group_members(name)
    own = [str(text) for each in names for text in facts["before"]["candidates"].get(each, [])]
    conditions = [*own, *(step.conditions if step else ())]
    costs = _cost_lines(step)
    lines = [
        f"{prefix}{clip_text(name, NAME_CELLS)}",
        *_rate_lines(names, facts),
        *_condition_lines(conditions, cells),
        *costs,
    ]
    return make_box(lines, style, "\n".join([name, *conditions, *costs]))


def _join_box(step: StepFacts | None, names: Sequence[str], prefix: str = "") -> Box:
    """A box about the variables that are bound together after a step."""
    title = f"{prefix}{clip_text(' '.join(names), NAME_CELLS)}"
    costs = _cost_lines(step)
    conditions = step.conditions if step else ()
    hint = "\n".join([" ".join(names), *conditions, *costs])
    return make_box([title, *_condition_lines(conditions, _NARROW_CELLS), *costs], "join", hint)


def _cost_lines(step: StepFacts | None) -> list[str]:
    """The pairs that a step is expected to test and the matches that it leaves, if known."""
    if step is None:
        return []
    pairs = None if step.starts else step.pairs
    known = ((pairs, "pairs"), (step.partials, "matches" if step.is_last else "partial matches"))
    return [f"≈ {format_amount(value)} {what}" for value, what in known if value is not None]


def _rate_lines(names: Sequence[str], facts: PlanFacts) -> list[str]:
    rates = candidate_rates(facts)
    known = [format_amount(rates[name]) for name in names if name in rates]
    return [f"{' and '.join(known)} in a window"] if known else []


def _condition_lines(conditions: Sequence[str], cells: int = TEXT_CELLS) -> list[str]:
    """
    >>> _condition_lines(["a.x = 1", "b.x = 2", "c.x = 3"])
    ['a.x = 1', 'b.x = 2', 'and 1 more']
    """
    shown = [clip_text(each, cells) for each in conditions[:_LISTED_CONDITIONS]]
    more = len(conditions) - _LISTED_CONDITIONS
    return [*shown, f"and {more} more"] if more > 0 else shown


# ---- a chain -----------------------------------------------------------------------------------

_LOOP = 16
_MIDDLE = _LOOP + 32


def _draw_chain(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    """A chain NFA: states from top to bottom, a take edge between two of them.

    The papers draw it from left to right; beside a vertical edge there is space for the variable,
    its rate, its conditions and the cost of the step. The loop at a state is its store edge: it
    buffers the events that later edges take. Ignore edges are left out, as in the papers.
    """
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
        step = branch.node(order[: place + 1])
        edge = _variable_box(name, facts, prefix="take ", step=step)
        y = state.y + state.height
        boxes.append(place_box(edge, _MIDDLE + GAP / 2, y + GAP / 4))
        below = y + edge.height + GAP / 2
        lines.append(Line(((_MIDDLE, y), (_MIDDLE, below))))
        y = below
    final = make_box(["match"], "final")
    return Sketch((*boxes, place_box(final, _MIDDLE - final.width / 2, y)), tuple(lines))


def _loop_line(x: float, y: float) -> Line:
    left = x - _LOOP
    return Line(((x, y - 6), (left, y - 6), (left, y + 6), (x, y + 6)))


# ---- an order that is not decided --------------------------------------------------------------

_VARIABLES_PER_ROW = 4


def _draw_undecided(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    """The variables, where each bucket orders them by its own counts."""
    rule = "each bucket orders them by its own counts"
    return _draw_variables(branch.variables, facts, [rule, "all bound"])


def _draw_variables(names: Sequence[str], facts: PlanFacts, steps: Sequence[str]) -> Sketch:
    """The variables in rows, and below them the steps that bind them, each a line of text."""
    boxes: list[Box] = []
    lines = []
    y = 0.0
    for start in range(0, len(names), _VARIABLES_PER_ROW):
        row = arrange_row(
            [
                _variable_box(name, facts, style="buffer", cells=_NARROW_CELLS)
                for name in names[start : start + _VARIABLES_PER_ROW]
            ],
            y,
        )
        boxes += row
        y += max(box.height for box in row) + GAP / 2
    widest = max(box.x + box.width for box in boxes)
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


# ---- a tree of joins ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subtree:
    """A drawn subtree; `top` is the point at which the line from its parent ends."""

    sketch: Sketch
    top: Point

    def move(self, x: float, y: float) -> _Subtree:
        return _Subtree(self.sketch.move(x, y), (self.top[0] + x, self.top[1] + y))


def _draw_joins(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    """A tree of joins: variables at the leaves; a box above joins two of them.

    In a hybrid plan a frame surrounds the eager group, whose partial matches are kept in the
    state; the other leaves are buffers, and the boxes outside the frame are numbered in the order
    in which they are merged once the final event is there.
    """
    shape = branch.shape or _eager_first_shape(branch)
    return _JoinTree(branch, facts).draw(shape).sketch


def _eager_first_shape(branch: BranchFacts) -> PlanShape:
    lazy = [name for name in branch.variables if name not in branch.eager]
    eager = left_deep_shape(branch.eager)
    shape = left_deep_shape([*([eager] if eager else []), *lazy])
    assert shape is not None, "a branch has variables"
    return shape


class _JoinTree:
    """Draws a tree of joins. Each subtree has a column of its own, so no two boxes overlap."""

    def __init__(self, branch: BranchFacts, facts: PlanFacts) -> None:
        self._branch = branch
        self._facts = facts
        self._eager = frozenset(branch.eager)
        self._is_hybrid = facts["plan"] == "hybrid"
        self._merges = 0

    def draw(self, shape: PlanShape, *, framed: bool = False) -> _Subtree:
        if self._eager and not framed and frozenset(shape_leaves(shape)) == self._eager:
            return _add_frame(self.draw(shape, framed=True))
        return self._leaf(shape) if isinstance(shape, str) else self._join(shape, framed=framed)

    def _leaf(self, name: str) -> _Subtree:
        is_buffer = self._is_hybrid and name not in self._eager
        box = _variable_box(
            name,
            self._facts,
            prefix="buffer " if is_buffer else "",
            style="buffer" if is_buffer else "event",
            step=self._branch.node([name]),
            cells=_NARROW_CELLS,
        )
        return _Subtree(Sketch((box,)), box.top)

    def _join(self, shape: tuple[PlanShape, PlanShape], *, framed: bool) -> _Subtree:
        left, right = (self.draw(part, framed=framed) for part in shape)
        names = shape_leaves(shape)
        prefix = ""
        if self._is_hybrid and not framed:
            self._merges += 1
            prefix = f"merge {self._merges}: "
        return _join_above(_join_box(self._branch.node(names), names, prefix), left, right)


def _join_above(join: Box, left: _Subtree, right: _Subtree) -> _Subtree:
    """Two subtrees side by side, and the box that joins them above the middle."""
    y = join.height + GAP
    right = right.move(left.sketch.width + GAP, 0)
    x = (left.top[0] + right.top[0]) / 2 - join.width / 2
    shift = max(0.0, -x)
    join = place_box(join, x + shift, 0)
    left, right = left.move(shift, y), right.move(shift, y)
    lines = tuple(Line((join.bottom, each.top), arrow=False) for each in (left, right))
    return _Subtree(overlay_sketches(Sketch((join,), lines), left.sketch, right.sketch), join.top)


def _add_frame(inner: _Subtree) -> _Subtree:
    """A frame with its label at the bottom, because lines come from above."""
    inside = inner.move(PADDING, PADDING)
    label = make_box(["kept in the state"])
    y = inside.sketch.height + PADDING
    width = max(inside.sketch.width, PADDING + label.width) + PADDING
    frame = replace(make_box([], "frame"), width=width, height=y + label.height + PADDING)
    sketch = overlay_sketches(
        Sketch((frame,)), inside.sketch, Sketch((place_box(label, PADDING, y),))
    )
    return _Subtree(sketch, inside.top)


# ---- a tree NFA --------------------------------------------------------------------------------

_DRAWN_VARIABLES = 4
_RULE = "next: the variable with the fewest events in its own scope"


def _draw_tree(branch: BranchFacts, facts: PlanFacts) -> Sketch:
    """A tree NFA: every partial match chooses its own next variable.

    The papers draw a state for each order of each set of variables. Here the orders of a set share
    a state, in a layer for each size. There are still 2^n of them, so for more variables the rule
    is written instead.
    """
    if len(branch.variables) > _DRAWN_VARIABLES:
        start = "start: each window-long block, with the rarest variable in it"
        return _draw_variables(branch.variables, facts, [start, _RULE, "all bound"])
    layers = [_tree_layer(branch, size, facts) for size in range(len(branch.variables) + 1)]
    width = max(layer[-1].x + layer[-1].width for layer in layers)
    placed: list[tuple[Box, ...]] = []
    y = 0.0
    for layer in layers:
        placed.append(tuple(place_box(box, box.x, y) for box in center_row(layer, width)))
        y += max(box.height for box in layer) + 2 * GAP
    lines = [
        Line((above.bottom, below.top))
        for size, layer in enumerate(placed[:-1])
        for above, before in zip(layer, _variable_sets(branch, size), strict=True)
        for below, after in zip(placed[size + 1], _variable_sets(branch, size + 1), strict=True)
        if set(before) < set(after)
    ]
    rule = place_box(make_box([_RULE]), 0, y - GAP)
    return Sketch((*(box for layer in placed for box in layer), rule), tuple(lines))


def _variable_sets(branch: BranchFacts, size: int) -> list[tuple[str, ...]]:
    return list(combinations(branch.variables, size))


def _tree_layer(branch: BranchFacts, size: int, facts: PlanFacts) -> tuple[Box, ...]:
    """The states in which `size` variables are bound."""
    if size == 0:
        return (make_box(["start"], "state"),)
    boxes = []
    for names in _variable_sets(branch, size):
        step = branch.node(names)
        is_single = len(names) == 1
        boxes.append(
            _variable_box(names[0], facts, step=step, cells=_NARROW_CELLS)
            if is_single
            else _join_box(step, names)
        )
    return arrange_row(boxes)


# ---- the pattern itself ------------------------------------------------------------------------

_BYPASS_WIDTH = 14


@dataclass(frozen=True)
class _AutomatonPart:
    """A part of the automaton, entered at (`middle`, 0) and left at (`middle`, height)."""

    sketch: Sketch
    middle: float

    @property
    def height(self) -> float:
        return self.sketch.height

    def move(self, x: float, y: float) -> Sketch:
        return self.sketch.move(x, y)


def _draw_pattern(facts: PlanFacts) -> Sketch:
    """The automaton of skip till next match, strict and row patterns, from top to bottom.

    No plan orders these: runs take rows as they come. So the structure of the pattern is drawn:
    alternatives and parts in any order are side by side, lists have a loop, optional parts a
    bypass. Facts without a structure give the variables in the order of the pattern.
    """
    variables = [{"kind": "event", "variable": name} for name in facts["order"]]
    part = facts.get("parts") or {"kind": "seq", "parts": variables}
    start, end = _box_part(make_box(["start"], "state")), _box_part(make_box(["match"], "final"))
    return _stack_parts([start, _draw_part(part, facts), end]).sketch


def _draw_part(part: Mapping[str, Any], facts: PlanFacts) -> _AutomatonPart:
    kind = part["kind"]
    if kind in {"event", "not", "mark"}:
        return _box_part(_part_box(part, facts))
    parts = [_draw_part(each, facts) for each in part["parts"]]
    if kind == "seq":
        return _stack_parts(parts)
    if kind in {"all", "any"}:
        return _fork_parts(parts, "all, in any order" if kind == "all" else "one of")
    if kind == "repeat":
        low, high = part["low"], part["high"]
        times = f"{low} or more times" if high is None else f"{low} to {high} times"
        return _add_bypass(parts[0], times, is_loop=True)
    return _add_bypass(parts[0], "or nothing", is_loop=False)


def _part_box(part: Mapping[str, Any], facts: PlanFacts) -> Box:
    """The box of a part that has no parts itself."""
    if part["kind"] == "mark":
        return make_box([part["text"]], "state")
    is_negated = part["kind"] == "not"
    if "text" in part:
        lines = [f"NOT {part['text']}", *(_condition_line(v, facts) for v in part["variables"])]
        return make_box([clip_text(line) for line in lines], "not", hint="\n".join(lines))
    return _variable_box(
        part["variable"],
        facts,
        prefix="NOT " if is_negated else "take ",
        style="not" if is_negated else "event",
        cells=_NARROW_CELLS,
    )


def _condition_line(variable: str, facts: PlanFacts) -> str:
    conditions = facts["before"]["candidates"].get(variable)
    return f"{variable} where {' AND '.join(conditions)}" if conditions else f"{variable} any row"


def _box_part(box: Box) -> _AutomatonPart:
    return _AutomatonPart(Sketch((box,)), box.width / 2)


def _stack_parts(parts: Sequence[_AutomatonPart]) -> _AutomatonPart:
    """One after another, an arrow between two."""
    middle = max(part.middle for part in parts)
    sketches, lines, y = [], [], 0.0
    for place, part in enumerate(parts):
        if place:
            lines.append(Line(((middle, y), (middle, y + GAP))))
            y += GAP
        sketches.append(part.move(middle - part.middle, y))
        y += part.height
    return _AutomatonPart(overlay_sketches(*sketches, Sketch(lines=tuple(lines))), middle)


def _fork_parts(parts: Sequence[_AutomatonPart], label: str) -> _AutomatonPart:
    """A fork, the parts side by side, and the point at which they meet again."""
    fork = make_box([label], "join")
    inside = sum(part.sketch.width for part in parts) + GAP * (len(parts) - 1)
    width = max(inside, fork.width)
    middle, x = width / 2, (width - inside) / 2
    tallest = max(part.height for part in parts)
    top, bottom = fork.height + GAP, fork.height + 2 * GAP + tallest
    sketches = [Sketch((place_box(fork, middle - fork.width / 2, 0),))]
    lines = []
    for part in parts:
        sketches.append(part.move(x, top))
        entry = x + part.middle
        lines.append(Line(((middle, fork.height), (entry, top))))
        way = ((entry, top + part.height), (entry, top + tallest), (middle, bottom))
        lines.append(Line(way, arrow=False))
        x += part.sketch.width + GAP
    return _AutomatonPart(overlay_sketches(*sketches, Sketch(lines=tuple(lines))), middle)


def _add_bypass(part: _AutomatonPart, label: str, *, is_loop: bool) -> _AutomatonPart:
    """A dashed line on the right of a part: past it, or with `is_loop` back to its start."""
    inner = part.move(0, GAP)
    height = part.height + 2 * GAP
    right = part.sketch.width + _BYPASS_WIDTH
    ends = [(part.middle, GAP / 2), (part.middle, height - GAP / 2)]
    if is_loop:
        ends.reverse()
    bypass = Line((ends[0], (right, ends[0][1]), (right, ends[1][1]), ends[1]), dashed=True)
    through = (
        Line(((part.middle, 0), (part.middle, GAP))),
        Line(((part.middle, height - GAP), (part.middle, height)), arrow=False),
    )
    note = make_box([label])
    note = place_box(note, right + 5, (height - note.height) / 2)
    return _AutomatonPart(overlay_sketches(inner, Sketch((note,), (bypass, *through))), part.middle)
