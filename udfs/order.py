"""An order for the lazy chain when all that is known is how many candidates variables have.

Fewest candidates first, as in the lazy chain NFA. A variable that shares conditions with what is
bound already counts for less, because they will thin out its pairs: with A:B:C = 20:20:1 and
a < b < c, c comes first and then b, which c limits, not a. Lists come last: n candidates of a
list are up to 2^n partial matches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# What share of pairs a condition is taken to keep while nothing is known of it.
UNKNOWN_SELECTIVITY = 0.5


def rarest_first(
    candidates: Mapping[int, float],
    conditions: Iterable[Collection[int]],
    lists: Collection[int] = (),
) -> tuple[int, ...]:
    """The variables of `candidates` in the order to bind them; ties in pattern order.

    >>> rarest_first({0: 20, 1: 20, 2: 1}, [{0, 1}, {1, 2}])
    (2, 1, 0)
    >>> rarest_first({0: 5, 1: 1, 2: 7}, [], lists={1})
    (0, 2, 1)
    """
    tested = [frozenset(variables) for variables in conditions]
    order: list[int] = []
    left = set(candidates)
    while left:
        bound = set(order)

        def rank(variable: int, bound: set[int] = bound) -> tuple[bool, float, int]:
            ready = sum(
                variable in c and bool(c & bound) and c <= bound | {variable} for c in tested
            )
            cost = candidates[variable] * UNKNOWN_SELECTIVITY**ready
            return variable in lists, cost, variable

        chosen = min(left, key=rank)
        order.append(chosen)
        left.discard(chosen)
    return tuple(order)
