"""A tree NFA: every partial match chooses its own next variable.

The papers draw a state for each order of each set of variables. Here the states that bind the same
set are one, in a layer for each size, and still there are 2^n of them; so more than
`_DRAWN_VARIABLES` are summed up.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from spark_cep.explaining.drawn_chain import variables_above
from spark_cep.explaining.labels import NARROW_CELLS, Variable, join
from spark_cep.explaining.sketch import GAP, Box, Line, Sketch, at, box, centred, row_of

if TYPE_CHECKING:
    from spark_cep.explaining.planned import Branch, Facts

_DRAWN_VARIABLES = 4
_RULE = "next: the variable with the fewest events in its own scope"


def tree(branch: Branch, facts: Facts) -> Sketch:
    if len(branch.variables) > _DRAWN_VARIABLES:
        start = "start: each window-long block, with the rarest variable in it"
        return variables_above(branch.variables, facts, [start, _RULE, "all bound"])
    layers = [_layer(branch, size, facts) for size in range(len(branch.variables) + 1)]
    width = max(each[-1].x + each[-1].width for each in layers)
    placed: list[tuple[Box, ...]] = []
    y = 0.0
    for layer in layers:
        placed.append(tuple(at(each, each.x, y) for each in centred(layer, width)))
        y += max(each.height for each in layer) + 2 * GAP
    lines = [
        Line((above.bottom, below.top))
        for size, layer in enumerate(placed[:-1])
        for above, had in zip(layer, _sets(branch, size), strict=True)
        for below, has in zip(placed[size + 1], _sets(branch, size + 1), strict=True)
        if set(had) < set(has)
    ]
    rule = at(box([_RULE]), 0, y - GAP)
    return Sketch((*(each for layer in placed for each in layer), rule), tuple(lines))


def _sets(branch: Branch, size: int) -> list[tuple[str, ...]]:
    return list(combinations(branch.variables, size))


def _layer(branch: Branch, size: int, facts: Facts) -> tuple[Box, ...]:
    """The states that have bound so many variables."""
    if size == 0:
        return (box(["start"], "state"),)
    boxes = []
    for names in _sets(branch, size):
        node = branch.node(names)
        single = Variable(names[0], node=node).box(facts, NARROW_CELLS)
        boxes.append(single if len(names) == 1 else join(node, names))
    return row_of(boxes)
