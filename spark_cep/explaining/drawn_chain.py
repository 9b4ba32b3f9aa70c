"""A chain NFA: states from top to bottom, a take edge between two of them.

It is the papers' figure turned by a quarter, because beside a vertical edge there is room for
what is known about it: the variable, its rate, its conditions, the cost of the step. A loop is a
state's store edge: events that a later edge takes wait in buffers. Ignore edges are left out, as
the papers do.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_cep.explaining.labels import NARROW_CELLS, Variable
from spark_cep.explaining.planned import Branch, Facts, leaves
from spark_cep.explaining.sketch import GAP, Box, Line, Sketch, at, box, clipped

_LOOP = 16
_MIDDLE = _LOOP + 32
# Boxes of variables side by side where no order ties them.
_IN_A_ROW = 4


def chain(branch: Branch, facts: Facts) -> Sketch:
    assert branch.shape is not None, "a chain has an order"
    order = leaves(branch.shape)
    boxes, lines, y = [], [], 0.0
    for place, name in enumerate(order):
        state = box([f"q{place}"], "state")
        state = at(state, _MIDDLE - state.width / 2, y)
        boxes.append(state)
        stored = order[place + 1 :] if facts["plan"] != "eager" else ()
        if stored:
            note = box([f"stores {clipped(', '.join(stored))}"], hint=", ".join(stored))
            boxes.append(at(note, state.x + state.width + GAP / 2, y + 7))
            lines.append(_loop(state.x, y + state.height / 2))
        node = branch.node(order[: place + 1])
        edge = Variable(name, "take ", node=node).box(facts)
        y = state.y + state.height
        boxes.append(at(edge, _MIDDLE + GAP / 2, y + GAP / 4))
        below = y + edge.height + GAP / 2
        lines.append(Line(((_MIDDLE, y), (_MIDDLE, below))))
        y = below
    final = box(["match"], "final")
    return Sketch((*boxes, at(final, _MIDDLE - final.width / 2, y)), tuple(lines))


def undecided(branch: Branch, facts: Facts) -> Sketch:
    """Where each bucket makes the plan from its own counts: the variables, and what becomes of
    them."""
    says = "each bucket orders them by its own counts"
    return variables_above(branch.variables, facts, [says, "all bound"])


def variables_above(names: Sequence[str], facts: Facts, steps: Sequence[str]) -> Sketch:
    """The variables in rows, and below them what happens to all of them, step by step."""
    rows: list[Sketch] = []
    for start in range(0, len(names), _IN_A_ROW):
        x, found = 0.0, []
        for name in names[start : start + _IN_A_ROW]:
            found.append(at(Variable(name, look="buffer").box(facts, NARROW_CELLS), x, 0))
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
        step = box([text], "final" if is_last else "join")
        boxes.append(at(step, max(0.0, (widest - step.width) / 2), y))
        if not is_last:
            middle = boxes[-1].x + step.width / 2
            lines.append(Line(((middle, y + step.height), (middle, y + step.height + GAP))))
        y += step.height + GAP
    return Sketch(tuple(boxes), tuple(lines))


def _loop(x: float, y: float) -> Line:
    left = x - _LOOP
    return Line(((x, y - 6), (left, y - 6), (left, y + 6), (x, y + 6)))
