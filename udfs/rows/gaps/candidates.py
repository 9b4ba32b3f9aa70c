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

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.rows.arrays import DEFAULT_STEP_LIMIT
from spark_cep.udfs.rows.table import condition_mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.events.candidates import PositionRanges
    from spark_cep.udfs.rows.gaps.pattern import Gap, GapPattern
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# --------------------------------------------------------------------------------------------------
# What may be tried: the limit of steps, as it is counted here.
#
# A step is one pair of a partial match and a candidate that was tested; the kernel's is one
# instruction at one row. Both are counted for each partition, and both end a query that runs away.
# --------------------------------------------------------------------------------------------------


class StepBudget:
    def __init__(self, table: RowTable) -> None:
        given = table.program.limits.backtracking_steps
        self._table = table
        self._allowed = DEFAULT_STEP_LIMIT if given is None else given
        self._spent = np.zeros(len(table.begins), np.int64)
        self._partition = np.repeat(np.arange(len(table.begins)), table.ends - table.begins)

    @property
    def steps(self) -> int:
        return int(self._spent.sum())

    def spend(self, starts: Array, counts: Array) -> None:
        """So many pairs were tried for matches that begin at these rows."""
        partition = self._partition[starts]
        np.add.at(self._spent, partition, counts)
        over = np.flatnonzero(self._spent[partition] > self._allowed)
        if len(over):
            raise self._exceeded(int(starts[over[0]]), int(self._spent[partition[over[0]]]))

    def _exceeded(self, start: int, reached: int) -> LimitError:
        table, allowed = self._table, self._allowed
        key = table.key_of(start)
        where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
        row = start - int(table.begin_of[start])
        return LimitError(
            f"{where} took more than {allowed:,} steps of the matcher, which are pairs of rows "
            f"here; it was trying row {row + 1:,}",
            hint="the gaps of the pattern are matched by joins, and their conditions leave too "
            'many rows to try: add WITHIN or a partition key, bound the gaps, try plan="walk", or '
            f"raise it: limits=cep.Limits(backtracking_steps={allowed * 10})",
            details={
                "key": key, "row": row, "limit": "backtracking_steps", "allowed": allowed,
                "reached": reached,
            },
        )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# Candidates in the order of preference, no more of them than it takes.
#
# Partial matches of one group (of one start) stand side by side, the preferred first; each has a
# range of candidates, gone through upwards or downwards. A group is settled by its first success,
# so groups are tried a few candidates at a time, all groups at once, and a group that has none yet
# gets some times as many the next time: what is tried in vain is within a constant factor of what
# had to be tried, and a group of n candidates takes log(n) rounds.
# --------------------------------------------------------------------------------------------------


# Candidates of a group in its first round, and by what factor they grow.
FIRST_CANDIDATES: Final = 4
CANDIDATE_GROWTH: Final = 4


class GallopingSearch:
    """`group`: ascending numbers, one a partial match."""

    def __init__(
        self, ranges: PositionRanges, group: Array, *, downwards: bool, block: int
    ) -> None:
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
        self._width = np.full(len(first), FIRST_CANDIDATES)
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
        self._width[open_] = np.minimum(self._width[open_] * CANDIDATE_GROWTH, self._block)
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


def group_starts(group: Array) -> Array:
    """Where each group begins among numbers that ascend."""
    return np.flatnonzero(np.diff(group, prepend=-1))


# --------------------------------------------------------------------------------------------------
# Partial matches with the same future are tried once.
#
# What lies ahead of a partial match depends on the last point bound, on where WITHIN ends, and on
# those earlier points that conditions ahead still read. Partial matches that agree in all this are
# alike: the preferred way on from one is that of all. And where conditions ahead read no earlier
# point, a row that failed as this point fails for every start whose WITHIN ends no later.
# --------------------------------------------------------------------------------------------------


# One of so many is tried for all, or each for itself: the first success settles its start, while
# what is tried for others has to be tried to the end.
WORTH_SHARING: Final = 2


@dataclass(frozen=True)
class PartialKeys:
    """Partial matches of one length by group, last row and where WITHIN ends for them; `bound`:
    the rows of the points before."""

    group: Array
    rows: Array
    limit: Array
    bound: Mapping[int, Array]


class GapMemo:
    """`_failed[place][row]`: no match goes on from a row bound to that point if WITHIN ends
    there or earlier."""

    def __init__(self, gapped: GapPattern, size: int) -> None:
        places = range(1, len(gapped.points) - 1)
        self._read = {place: points_read_ahead(gapped, place) for place in places}
        self._failed = {p: np.zeros(size, np.int64) for p in places if not self._read[p]}
        self._size = size

    def open(self, place: int, tried: PartialKeys) -> Array | None:
        """Those that are worth a look; None: all of them."""
        if place not in self._failed:
            return None
        return np.flatnonzero(self._failed[place][tried.rows] < tried.limit)

    def alike(self, place: int, tried: PartialKeys) -> tuple[Array, Array] | None:
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
        return (first, like) if len(first) * WORTH_SHARING <= len(keys) else None

    def keep(self, place: int, tried: PartialKeys, won: tuple[Array, Array]) -> None:
        """Of the partial matches tried those failed that stand before their group's winner, all
        where it has none. `won`: groups, and the winners' rows."""
        if place not in self._failed:
            return
        group, rows = tried.group, tried.rows
        winner = np.full(int(group[-1]) + 1, -1, np.int64)
        winner[won[0]] = won[1]
        is_winner = np.flatnonzero(rows == winner[group])
        stands = np.full(len(winner), len(group), np.int64)
        first = is_winner[group_starts(group[is_winner])]
        stands[group[first]] = first
        failed = np.flatnonzero(np.arange(len(group)) < stands[group])
        np.maximum.at(self._failed[place], rows[failed], tried.limit[failed])


def points_read_ahead(gapped: GapPattern, place: int) -> frozenset[int]:
    """The points before `place` that conditions on points behind it read."""
    return frozenset(
        point
        for each in gapped.crossing
        if max(each.points) > place
        for point in each.points
        if point < place
    )


_FAR: Final = 1 << 62


@dataclass(frozen=True)
class PointRanges:
    """`low[j]`, `high[j]`: where point j may be, one entry a partial match."""

    low: Array
    high: Array

    def take(self, index: Array) -> PointRanges:
        return PointRanges(self.low[:, index], self.high[:, index])

    def possible(self, after: int) -> Array:
        """Partial matches for which each later point has somewhere to be."""
        return np.asarray((self.low[after + 1 :] < self.high[after + 1 :]).all(axis=0))


class PointDistances:
    """`least[k]`, `most[k]`: from point k to the next; for the last, the rows behind it."""

    def __init__(self, gapped: GapPattern, table: RowTable, tally: ErrorTally) -> None:
        self._gaps = gapped.gaps
        self.count = len(gapped.points)
        self.least = [1 + (gap.low if gap else 0) for gap in gapped.gaps]
        self.most = [_most_distance(gap) for gap in gapped.gaps]
        self.least[-1] -= 1
        self.most[-1] -= 1
        # What a match has behind each of its points at least.
        self._behind = [sum(self.least[place:]) for place in range(self.count)]
        limits = table.limits()
        self._limit = table.end_of if limits is None else limits
        self._fails = [_next_failures(gap, table, tally) for gap in gapped.gaps]

    def limit(self, starts: Array) -> Array:
        """Behind the last row that a match may have which begins there."""
        return np.asarray(self._limit[starts])

    def starts(self, rows: Array) -> PointRanges:
        """Of matches that begin at these rows. Those that have no room have an empty range."""
        low = np.zeros((self.count, len(rows)), np.int64)
        limit = self._limit[rows]
        high = np.stack([limit - behind for behind in self._behind])
        low[0], high[0] = rows, np.minimum(high[0], rows + 1)
        return self.bound(0, rows, PointRanges(low, high))

    def bound(self, place: int, rows: Array, ranges: PointRanges) -> PointRanges:
        """The ranges once a point is bound to these rows."""
        low, high = ranges.low.copy(), ranges.high.copy()
        if place + 1 < self.count:
            low[place + 1] = np.maximum(low[place + 1], rows + self.least[place])
            reach = self._reach(place, rows)
            high[place + 1] = np.minimum(high[place + 1], reach)
        return self.moved(place, PointRanges(low, high))

    def moved(self, after: int, ranges: PointRanges) -> PointRanges:
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


def _most_distance(gap: Gap | None) -> int:
    if gap is None:
        return 1
    return _FAR if gap.high is None else min(1 + gap.high, _FAR)


def _next_failures(gap: Gap | None, table: RowTable, tally: ErrorTally) -> Array | None:
    """For each row (and behind the last) the first from there on that cannot be in the gap."""
    if gap is None or gap.condition is None:
        return None
    fails = np.full(table.size + 1, table.size, np.int64)
    holds = condition_mask(gap.condition, table, tally)
    fails[:-1] = np.where(holds, table.size, np.arange(table.size))
    return np.asarray(np.minimum.accumulate(fails[::-1])[::-1])
