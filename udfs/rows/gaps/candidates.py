"""The candidates of points: where they may lie, in which order they are tried, and how many.

Ranges of positions follow from gaps, row conditions and WITHIN (`PointDistances`). Candidates are
tried a few at a time in the order of preference (`GallopingSearch`), partial matches with the same
future only once (`GapMemo`), and all of it within a limit of steps (`StepBudget`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.rows.arrays import DEFAULT_STEP_LIMIT
from spark_cep.udfs.rows.search import report_search
from spark_cep.udfs.rows.table import condition_mask
from spark_cep.udfs.task_clock import TaskClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.events.candidates import PositionRanges
    from spark_cep.udfs.rows.gaps.pattern import Gap, GapPattern
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# Candidates of a group in its first round, and the factor by which they grow.
FIRST_CANDIDATES: Final = 4
CANDIDATE_GROWTH: Final = 4
# Partial matches that are alike share one search if there are at least so many of each kind. The
# first success settles a start, while what is searched for others has to be searched to the end.
WORTH_SHARING: Final = 2
_FAR: Final = 1 << 62


# ---- positions ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PointRanges:
    """For each partial match and each later point, the positions [low, high) where the point may
    lie. `low[j]` and `high[j]` have one entry for each partial match."""

    low: Array
    high: Array

    def take(self, index: Array) -> PointRanges:
        return PointRanges(self.low[:, index], self.high[:, index])

    def possible(self, after: int) -> Array:
        """Whether every point after this one has a position, for each partial match."""
        return np.asarray((self.low[after + 1 :] < self.high[after + 1 :]).all(axis=0))


class PointDistances:
    """The distances between points that gaps, the conditions of their rows, and WITHIN allow.

    `least[k]` and `most[k]` are the distances from point k to the next one; those of the last point
    are the number of rows after it. Each point bounds the points before and after it, so a range
    that gets narrower makes others narrower.
    """

    def __init__(self, gap_pattern: GapPattern, table: RowTable, tally: ErrorTally) -> None:
        self._gaps = gap_pattern.gaps
        self.count = len(gap_pattern.points)
        self.least = [1 + (gap.low if gap else 0) for gap in gap_pattern.gaps]
        self.most = [_most_distance(gap) for gap in gap_pattern.gaps]
        self.least[-1] -= 1
        self.most[-1] -= 1
        # The rows that a match has at least from each of its points on.
        self._remaining = [sum(self.least[place:]) for place in range(self.count)]
        limits = table.limits()
        self._limit = table.end_of if limits is None else limits
        self._failures = [_next_failures(gap, table, tally) for gap in gap_pattern.gaps]

    def limit(self, starts: Array) -> Array:
        """The position after the last row that a match from each of these rows may have."""
        return np.asarray(self._limit[starts])

    def starts(self, rows: Array) -> PointRanges:
        """The ranges of matches that begin at these rows; some range is empty if there is no
        match."""
        low = np.zeros((self.count, len(rows)), np.int64)
        limit = self._limit[rows]
        high = np.stack([limit - remaining for remaining in self._remaining])
        low[0], high[0] = rows, np.minimum(high[0], rows + 1)
        return self.bound(0, rows, PointRanges(low, high))

    def bound(self, place: int, rows: Array, ranges: PointRanges) -> PointRanges:
        """The ranges once a point is bound to these rows."""
        low, high = ranges.low.copy(), ranges.high.copy()
        if place + 1 < self.count:
            low[place + 1] = np.maximum(low[place + 1], rows + self.least[place])
            reach = self._reach(place, rows)
            high[place + 1] = np.minimum(high[place + 1], reach)
        return self.tighten(place, PointRanges(low, high))

    def tighten(self, after: int, ranges: PointRanges) -> PointRanges:
        """Narrows the ranges of the points after `after`, in place, as their neighbours require."""
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
        """The position after the last one that the gap allows for the next point."""
        reach = rows + self.most[place] + 1
        failures = self._failures[place]
        return reach if failures is None else np.asarray(np.minimum(reach, failures[rows + 1] + 1))

    def can_end(self) -> Array | None:
        """The rows after which the last gap has the rows that it needs; None for all of them. The
        end of the partition and WITHIN are in the ranges already."""
        failures, least = self._failures[-1], self.least[-1]
        if failures is None or not least:
            return None
        rows = np.arange(len(failures) - 1)
        return np.asarray(failures[1:] - rows - 1 >= least)

    def ends(self, starts: Array, last: Array) -> Array:
        """The position after the last row of each match."""
        gap = self._gaps[-1]
        if gap is None:
            return np.asarray(last + 1)
        if not gap.greedy:
            return np.asarray(last + 1 + gap.low)
        ends = np.minimum(self._limit[starts], last + 1 + self.most[-1])
        failures = self._failures[-1]
        return np.asarray(ends if failures is None else np.minimum(ends, failures[last + 1]))


def _most_distance(gap: Gap | None) -> int:
    if gap is None:
        return 1
    return _FAR if gap.high is None else min(1 + gap.high, _FAR)


def _next_failures(gap: Gap | None, table: RowTable, tally: ErrorTally) -> Array | None:
    """For each row, and for the end, the first row from there on that cannot be in the gap."""
    if gap is None or gap.condition is None:
        return None
    failures = np.full(table.size + 1, table.size, np.int64)
    holds = condition_mask(gap.condition, table, tally)
    failures[:-1] = np.where(holds, table.size, np.arange(table.size))
    return np.asarray(np.minimum.accumulate(failures[::-1])[::-1])


# ---- the order of candidates -------------------------------------------------------------------


class GallopingSearch:
    """Candidates in the order of preference, no more of them than necessary.

    The partial matches of one group (of one start) are adjacent, the preferred one first; each has
    a range of candidates, tried upwards or downwards. The first success settles a group, so groups
    are tried a few candidates at a time, all groups at once, and a group without success gets a
    multiple of them in the next round. The candidates tried in vain are thus within a constant
    factor of those that had to be tried, and a group of n candidates takes log(n) rounds.

    `group`: one number for each partial match, ascending.
    """

    def __init__(
        self, ranges: PositionRanges, group: Array, *, downwards: bool, block: int
    ) -> None:
        counts = np.maximum(ranges.high - ranges.low, 0)
        self._ends = np.cumsum(counts)
        self._before = self._ends - counts
        self._low, self._high = ranges.low, ranges.low + counts
        self._downwards, self._block = downwards, block
        first = group_starts(group)
        last = np.append(first[1:], len(group))[: len(first)] - 1
        self._numbers = group[first]
        self._first, self._has_single_groups = first, len(first) == len(group)
        self._cursor, self._stop = self._before[first], self._ends[last].copy()
        self._width = np.full(len(first), FIRST_CANDIDATES)
        self._open = np.flatnonzero(self._cursor < self._stop)

    def round(self) -> tuple[Array, Array, Array, Array] | None:
        """The partial matches and candidates to try now, in order; then one partial match of each
        group that is tried, and its number of candidates. None: every group is settled or has no
        more candidates."""
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
        if self._has_single_groups:
            partial = np.repeat(open_, taken)
        else:
            partial = np.searchsorted(self._ends, number, "right")
        offset = number - self._before[partial]
        if self._downwards:
            return partial, self._high[partial] - 1 - offset, self._first[open_], taken
        return partial, self._low[partial] + offset, self._first[open_], taken

    def settle(self, groups: Array) -> None:
        """These groups need no more candidates."""
        at = np.searchsorted(self._numbers, groups)
        self._stop[at] = self._cursor[at]


def group_starts(group: Array) -> Array:
    """Where each group begins in ascending group numbers."""
    return np.flatnonzero(np.diff(group, prepend=-1))


# ---- partial matches with the same future ------------------------------------------------------


@dataclass(frozen=True)
class PartialKeys:
    """Partial matches of one length: their groups, their last rows, and where WITHIN ends for them.
    `bound`: the rows of the points before the last."""

    group: Array
    rows: Array
    limit: Array
    bound: Mapping[int, Array]


class GapMemo:
    """Which partial matches failed or are alike, so that each future is searched once.

    The future of a partial match depends on the last point bound, on where WITHIN ends, and on
    those earlier points that later conditions still read. Partial matches that agree in all of this
    are alike: the preferred continuation of one is that of all. And where later conditions read no
    earlier point, a row that failed as this point fails for every start whose WITHIN ends no later:
    `_failed[place][row]` says that no match continues from the row, bound to that point, if WITHIN
    ends there or earlier.
    """

    def __init__(self, gap_pattern: GapPattern, size: int) -> None:
        places = range(1, len(gap_pattern.points) - 1)
        self._read = {place: points_read_ahead(gap_pattern, place) for place in places}
        self._failed = {p: np.zeros(size, np.int64) for p in places if not self._read[p]}
        self._size = size

    def open(self, place: int, tried: PartialKeys) -> Array | None:
        """The partial matches that are not known to fail; None: all of them."""
        if place not in self._failed:
            return None
        return np.flatnonzero(self._failed[place][tried.rows] < tried.limit)

    def alike(self, place: int, tried: PartialKeys) -> tuple[Array, Array] | None:
        """One partial match of each kind, and for each partial match the index of its kind; None if
        few are alike."""
        read = self._read[place]
        if len(read) == place:
            return None
        keys = tried.rows * (self._size + 1) + tried.limit
        for point in sorted(read):
            _, keys = np.unique(keys, return_inverse=True)
            keys = keys * self._size + tried.bound[point]
        _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
        return (first, kind) if len(first) * WORTH_SHARING <= len(keys) else None

    def keep(self, place: int, tried: PartialKeys, won: tuple[Array, Array]) -> None:
        """Records the partial matches that failed: those before the winner of their group, or all
        of a group without a winner. `won`: groups, and the rows of their winners."""
        if place not in self._failed:
            return
        group, rows = tried.group, tried.rows
        winner = np.full(int(group[-1]) + 1, -1, np.int64)
        winner[won[0]] = won[1]
        is_winner = np.flatnonzero(rows == winner[group])
        winner_place = np.full(len(winner), len(group), np.int64)
        first = is_winner[group_starts(group[is_winner])]
        winner_place[group[first]] = first
        failed = np.flatnonzero(np.arange(len(group)) < winner_place[group])
        np.maximum.at(self._failed[place], rows[failed], tried.limit[failed])


def points_read_ahead(gap_pattern: GapPattern, place: int) -> frozenset[int]:
    """The points before `place` that are read by conditions on points after it."""
    return frozenset(
        point
        for each in gap_pattern.join_conjuncts
        if max(each.points) > place
        for point in each.points
        if point < place
    )


# ---- the limit of steps ------------------------------------------------------------------------


class StepBudget:
    """Counts steps against the limit of each partition.

    A step is one pair of a partial match and a candidate that was tested. For the kernel, a step is
    one instruction at one row; either way, the limit ends a query that runs away.
    """

    def __init__(self, table: RowTable, clock: TaskClock | None = None) -> None:
        limits = table.program.limits
        limit = limits.backtracking_steps
        self._clock = TaskClock(limits.seconds) if clock is None else clock
        self._seconds = np.zeros(len(table.begins))
        self._table = table
        self._allowed = DEFAULT_STEP_LIMIT if limit is None else limit
        self._spent = np.zeros(len(table.begins), np.int64)
        self._partition = np.repeat(np.arange(len(table.begins)), table.ends - table.begins)

    @property
    def steps(self) -> int:
        return int(self._spent.sum())

    def spend(self, starts: Array, counts: Array) -> None:
        """Counts the pairs that were tested for matches from each of these rows."""
        partition = self._partition[starts]
        np.add.at(self._spent, partition, counts)
        over = np.flatnonzero(self._spent[partition] > self._allowed)
        if len(over):
            raise self._limit_error(int(starts[over[0]]), int(self._spent[partition[over[0]]]))
        if self._clock.is_due():
            self._look_at_clock(starts, counts)

    def _look_at_clock(self, starts: Array, counts: Array) -> None:
        """Divides the time since the last look among the partitions at hand."""
        shares = counts * (self._clock.tick() / counts.sum())
        np.add.at(self._seconds, self._partition[starts], shares)
        longest = int(self._seconds.argmax())
        at = int(starts[np.argmax(self._partition[starts] == longest)])
        begin = at if self._partition[at] == longest else int(self._table.begins[longest])
        self._clock.report(
            float(self._seconds[longest]),
            lambda: report_search(self._table, begin, int(self._spent[longest])),
        )

    def _limit_error(self, start: int, reached: int) -> LimitError:
        table, allowed = self._table, self._allowed
        row = start - int(table.begin_of[start])
        return LimitError(
            f"{table.describe_partition(start)} took more than {allowed:,} steps of the matcher, "
            f"which are pairs of rows here; the match being searched began at row {row + 1:,}",
            hint="the gaps of this pattern are matched by joins, and its conditions leave too many "
            "pairs to test: add WITHIN or a partition key, bound the gaps, use "
            'plan="walk", or raise the limit: '
            f"limits=cep.Limits(backtracking_steps={allowed * 10})",
            details={
                "key": table.key_of(start), "row": row, "limit": "backtracking_steps",
                "allowed": allowed, "reached": reached,
            },
        )  # fmt: skip
