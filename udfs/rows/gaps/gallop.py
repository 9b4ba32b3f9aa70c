"""Candidates in the order of preference, no more of them than it takes.

Partial matches of one group (of one start) stand side by side, the preferred first; each has a
range of candidates, gone through upwards or downwards. A group is settled by its first success,
so groups are tried a few candidates at a time, all groups at once, and a group that has none yet
gets some times as many the next time: what is tried in vain is within a constant factor of what
had to be tried, and a group of n candidates takes log(n) rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from spark_cep.udfs.joining.scope import Range
    from spark_cep.udfs.values.arrow_values import Array

# Candidates of a group in its first round, and by what factor they grow.
FIRST: Final = 4
GROWTH: Final = 4


class Gallop:
    """`group`: ascending numbers, one a partial match."""

    def __init__(self, ranges: Range, group: Array, *, downwards: bool, block: int) -> None:
        counts = np.maximum(ranges.high - ranges.low, 0)
        self._ends = np.cumsum(counts)
        self._before = self._ends - counts
        self._low, self._high = ranges.low, ranges.low + counts
        self._downwards, self._block = downwards, block
        first = np.flatnonzero(np.diff(group, prepend=-1))
        last = np.append(first[1:], len(group))[: len(first)] - 1
        self._numbers = group[first]
        self._first, self._alone = first, len(first) == len(group)
        self._cursor, self._stop = self._before[first], self._ends[last].copy()
        self._width = np.full(len(first), FIRST)
        self._open = np.flatnonzero(self._cursor < self._stop)

    def round(self) -> tuple[Array, Array, Array, Array] | None:
        """Partial matches and candidates to be tried now, in order; then one partial match of
        each group that is tried and how many candidates it has. None: all is settled."""
        open_ = self._open[self._cursor[self._open] < self._stop[self._open]]
        self._open = open_
        if not len(open_):
            return None
        taken = np.minimum(self._width[open_], self._stop[open_] - self._cursor[open_])
        total = np.cumsum(taken)
        if total[-1] > self._block:
            served = max(1, int(np.searchsorted(total, self._block, "right")))
            open_, taken, total = open_[:served], taken[:served], total[:served]
        cursor = self._cursor[open_]
        self._cursor[open_] = cursor + taken
        self._width[open_] = np.minimum(self._width[open_] * GROWTH, self._block)
        number = np.repeat(cursor - (total - taken), taken) + np.arange(total[-1])
        if self._alone:
            partial = np.repeat(open_, taken)
        else:
            partial = np.searchsorted(self._ends, number, "right")
        offset = number - self._before[partial]
        if self._downwards:
            return partial, self._high[partial] - 1 - offset, self._first[open_], taken
        return partial, self._low[partial] + offset, self._first[open_], taken

    def settle(self, groups: Array) -> None:
        """These need no more."""
        at = np.searchsorted(self._numbers, groups)
        self._stop[at] = self._cursor[at]


def firsts(group: Array) -> Array:
    """Where each group begins among numbers that ascend."""
    return np.flatnonzero(np.diff(group, prepend=-1))
