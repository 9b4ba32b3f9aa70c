"""SAME[x]: which pairs of variables are compared, so that all events of a match have one x.

A conjunct that names an unfilled variable is not tested. So a variable that every match fills is
compared with each other one; where none is sure to be there, all pairs are, because a chain
through a variable of another OR branch would hold nothing together. A list that stands beside no
plain variable also has each element compared with the one before it. NULL is the same as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.sql.sase_tree import Variable


def equal_pairs(variables: Sequence[Variable]) -> Iterator[tuple[Variable, Variable]]:
    """Pairs to be equal; a variable with itself: each element and the one before it."""
    anchor = next((v for v in variables if v.always and not v.negated and not v.is_list), None)
    if anchor is not None:
        yield from ((anchor, other) for other in variables if other is not anchor)
        return
    for variable in variables:
        if variable.is_list and not variable.negated:
            yield variable, variable
    for one, other in combinations(variables, 2):
        if not (one.negated and other.negated) and not one.excludes(other):
            yield one, other
