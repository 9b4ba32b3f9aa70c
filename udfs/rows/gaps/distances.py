"""Where the points of a match may lie, as far as that is a matter of positions.

For each partial match and each later point a range of positions [low, high): from the distances
that gaps allow, from the rows that their conditions let through, and from WITHIN. What is learned
of one point moves the ranges of the others: a point comes so much after the one before it, and so
much before the one after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.rows import physical

if TYPE_CHECKING:
    from spark_cep.udfs.rows.gaps.recognize import Gap, Gapped
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally

_FAR: Final = 1 << 62


@dataclass(frozen=True)
class Ranges:
    """`low[j]`, `high[j]`: where point j may be, one entry a partial match."""

    low: Array
    high: Array

    def take(self, index: Array) -> Ranges:
        return Ranges(self.low[:, index], self.high[:, index])

    def possible(self, after: int) -> Array:
        """Partial matches for which each later point has somewhere to be."""
        return np.asarray((self.low[after + 1 :] < self.high[after + 1 :]).all(axis=0))


class Distances:
    """`least[k]`, `most[k]`: from point k to the next; for the last, the rows behind it."""

    def __init__(self, gapped: Gapped, table: Table, tally: Tally) -> None:
        self._gaps = gapped.gaps
        self.count = len(gapped.points)
        self.least = [1 + (gap.low if gap else 0) for gap in gapped.gaps]
        self.most = [_most(gap) for gap in gapped.gaps]
        self.least[-1] -= 1
        self.most[-1] -= 1
        # What a match has behind each of its points at least.
        self._behind = [sum(self.least[place:]) for place in range(self.count)]
        limits = table.limits()
        self._limit = table.end_of if limits is None else limits
        self._fails = [_fails(gap, table, tally) for gap in gapped.gaps]

    def limit(self, starts: Array) -> Array:
        """Behind the last row that a match may have which begins there."""
        return np.asarray(self._limit[starts])

    def starts(self, rows: Array) -> Ranges:
        """Of matches that begin at these rows. Those that have no room have an empty range."""
        low = np.zeros((self.count, len(rows)), np.int64)
        limit = self._limit[rows]
        high = np.stack([limit - behind for behind in self._behind])
        low[0], high[0] = rows, np.minimum(high[0], rows + 1)
        return self.bound(0, rows, Ranges(low, high))

    def bound(self, place: int, rows: Array, ranges: Ranges) -> Ranges:
        """The ranges once a point is bound to these rows."""
        low, high = ranges.low.copy(), ranges.high.copy()
        if place + 1 < self.count:
            low[place + 1] = np.maximum(low[place + 1], rows + self.least[place])
            reach = self._reach(place, rows)
            high[place + 1] = np.minimum(high[place + 1], reach)
        return self.moved(place, Ranges(low, high))

    def moved(self, after: int, ranges: Ranges) -> Ranges:
        """The ranges of the points behind `after`, each as far as its neighbours let it be.
        Changes them in place."""
        low, high = ranges.low, ranges.high
        for place in range(after + 1, self.count - 1):
            np.maximum(low[place + 1], low[place] + self.least[place], out=low[place + 1])
            furthest = high[place] + self.most[place]
            np.minimum(high[place + 1], furthest, out=high[place + 1])
        for place in range(self.count - 2, after, -1):
            np.minimum(high[place], high[place + 1] - self.least[place], out=high[place])
            np.maximum(low[place], low[place + 1] - self.most[place], out=low[place])
        return ranges

    def _reach(self, place: int, rows: Array) -> Array:
        """Behind the last row that the next point may be, and no condition but the gap's."""
        reach = rows + self.most[place] + 1
        fails = self._fails[place]
        return reach if fails is None else np.asarray(np.minimum(reach, fails[rows + 1] + 1))

    def can_end(self) -> Array | None:
        """Rows behind which the last gap has the rows that it needs; None for all of them.
        Where the partition or WITHIN ends is in the ranges already."""
        fails, least = self._fails[-1], self.least[-1]
        if fails is None or not least:
            return None
        rows = np.arange(len(fails) - 1)
        return np.asarray(fails[1:] - rows - 1 >= least)

    def ends(self, starts: Array, last: Array) -> Array:
        """Behind the last row of each match."""
        gap = self._gaps[-1]
        if gap is None:
            return np.asarray(last + 1)
        if not gap.greedy:
            return np.asarray(last + 1 + gap.low)
        ends = np.minimum(self._limit[starts], last + 1 + self.most[-1])
        fails = self._fails[-1]
        return np.asarray(ends if fails is None else np.minimum(ends, fails[last + 1]))


def _most(gap: Gap | None) -> int:
    if gap is None:
        return 1
    return _FAR if gap.high is None else min(1 + gap.high, _FAR)


def _fails(gap: Gap | None, table: Table, tally: Tally) -> Array | None:
    """For each row (and behind the last) the first from there on that cannot be in the gap."""
    if gap is None or gap.condition is None:
        return None
    fails = np.full(table.size + 1, table.size, np.int64)
    holds = physical.holds(gap.condition, table, tally)
    fails[:-1] = np.where(holds, table.size, np.arange(table.size))
    return np.asarray(np.minimum.accumulate(fails[::-1])[::-1])
