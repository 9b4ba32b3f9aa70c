"""Partial matches with the same future are tried once.

What lies ahead of a partial match depends on the last point bound, on where WITHIN ends, and on
those earlier points that conditions ahead still read. Partial matches that agree in all this are
alike: the preferred way on from one is that of all. And where conditions ahead read no earlier
point, a row that failed as this point fails for every start whose WITHIN ends no later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.rows.gaps.gallop import firsts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.rows.gaps.recognize import Gapped
    from spark_cep.udfs.values.arrow_values import Array

# One of so many is tried for all, or each for itself: the first success settles its start, while
# what is tried for others has to be tried to the end.
WORTH: Final = 2


@dataclass(frozen=True)
class Tried:
    """Partial matches of one length by group, last row and where WITHIN ends for them; `bound`:
    the rows of the points before."""

    group: Array
    rows: Array
    limit: Array
    bound: Mapping[int, Array]


class Memory:
    """`_failed[place][row]`: no match goes on from a row bound to that point if WITHIN ends
    there or earlier."""

    def __init__(self, gapped: Gapped, size: int) -> None:
        places = range(1, len(gapped.points) - 1)
        self._read = {place: read_ahead(gapped, place) for place in places}
        self._failed = {p: np.zeros(size, np.int64) for p in places if not self._read[p]}
        self._size = size

    def open(self, place: int, tried: Tried) -> Array | None:
        """Those that are worth a look; None: all of them."""
        if place not in self._failed:
            return None
        return np.flatnonzero(self._failed[place][tried.rows] < tried.limit)

    def alike(self, place: int, tried: Tried) -> tuple[Array, Array] | None:
        """One of each kind, and for each partial match which of these it is like; None where few
        are alike."""
        read = self._read[place]
        if len(read) == place:
            return None
        keys = tried.rows * (self._size + 1) + tried.limit
        for point in sorted(read):
            _, keys = np.unique(keys, return_inverse=True)
            keys = keys * self._size + tried.bound[point]
        _, first, like = np.unique(keys, return_index=True, return_inverse=True)
        return (first, like) if len(first) * WORTH <= len(keys) else None

    def keep(self, place: int, tried: Tried, won: tuple[Array, Array]) -> None:
        """Of the partial matches tried those failed that stand before their group's winner, all
        where it has none. `won`: groups, and the winners' rows."""
        if place not in self._failed:
            return
        group, rows = tried.group, tried.rows
        winner = np.full(int(group[-1]) + 1, -1, np.int64)
        winner[won[0]] = won[1]
        is_winner = np.flatnonzero(rows == winner[group])
        stands = np.full(len(winner), len(group), np.int64)
        first = is_winner[firsts(group[is_winner])]
        stands[group[first]] = first
        failed = np.flatnonzero(np.arange(len(group)) < stands[group])
        np.maximum.at(self._failed[place], rows[failed], tried.limit[failed])


def read_ahead(gapped: Gapped, place: int) -> frozenset[int]:
    """The points before `place` that conditions on points behind it read."""
    return frozenset(
        point
        for each in gapped.crossing
        if max(each.points) > place
        for point in each.points
        if point < place
    )
