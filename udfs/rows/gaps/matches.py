"""The search by joins: the matches of a pattern with gaps, as `rows/search.py` gives them.

    join the points, the preferred first -> AFTER MATCH SKIP -> blocks

The match that a start prefers depends on no other match, so matches are found for many starts at
once and then selected in order. What is held is one line of rows for each selected match, and a
few blocks of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.rows import search
from spark_cep.udfs.rows.gaps.candidates import StepBudget
from spark_cep.udfs.rows.gaps.preferred import PreferredMatcher
from spark_cep.udfs.rows.search import (
    MatchBlock,
    SearchCounts,
    endless_skip_error,
    missing_skip_row_error,
)

if TYPE_CHECKING:
    from spark_cep.udfs.errors import CepError
    from spark_cep.udfs.row_program import Skip
    from spark_cep.udfs.rows.gaps.pattern import GapPattern
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.task_clock import TaskClock
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# Starts of all partitions in one wave; memory is a small multiple of it.
MOST_STARTS: Final = 1 << 14
FIRST_STARTS: Final = 4
START_GROWTH: Final = 4


@dataclass(frozen=True)
class GapMatches:
    """`rows`: a line for each point. `ends`: the row behind the last of each match."""

    rows: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> Array:
        return np.asarray(self.rows[0])

    def take(self, index: Array) -> GapMatches:
        return GapMatches(self.rows[:, index], self.ends[index])


def select_matches(gapped: GapPattern, table: RowTable, preferred: PreferredMatcher) -> GapMatches:
    """All matches of the bucket after AFTER MATCH SKIP, in order."""
    waves = _StartWaves(gapped, table, preferred)
    found = [np.zeros((len(gapped.points) + 1, 0), np.int64)]
    while (wave := waves.next()) is not None:
        found.append(np.concatenate([wave.rows, wave.ends[np.newaxis]]))
    every = np.concatenate(found, axis=1)
    every = every[:, np.argsort(every[0], kind="stable")]
    return GapMatches(every[:-1], every[-1])


class _StartWaves:
    """Where matches skip over starts, matching these is in vain. So each partition gives a few
    starts to a wave, and more of them as long as few are skipped.

    `_cursor`, `_stop`: the starts left in each partition. `_failure`: an impossible skip in
    partition `_behind`; only the partitions before it go on."""

    def __init__(self, gapped: GapPattern, table: RowTable, preferred: PreferredMatcher) -> None:
        self._gapped, self._table, self._preferred = gapped, table, preferred
        self._skip = table.program.skip
        self._starts = preferred.starts()
        self._cursor = np.searchsorted(self._starts, table.begins)
        self._stop = np.searchsorted(self._starts, table.ends)
        self._failure: CepError | None = None
        self._behind = len(table.begins)
        first = MOST_STARTS if self._skip.kind == "next row" else FIRST_STARTS
        self._width = np.full(len(table.begins), first)

    def next(self) -> GapMatches | None:
        """The matches of the next starts that no other match skips. None: no start is left."""
        open_ = np.flatnonzero(self._cursor[: self._behind] < self._stop[: self._behind])
        if not len(open_) and self._failure is not None:
            raise self._failure
        if not len(open_):
            return None
        counts = np.minimum(self._width[open_], self._stop[open_] - self._cursor[open_])
        total = np.cumsum(counts)
        served = max(1, int(np.searchsorted(total, MOST_STARTS, "right")))
        open_, counts, total = open_[:served], counts[:served], total[:served]
        before = self._cursor[open_]
        index = np.repeat(before - (total - counts), counts) + np.arange(total[-1])
        rows = self._preferred.matches(self._starts[index])
        ends = self._preferred.distances.ends(rows[0], rows[-1])
        found, targets = self._select(GapMatches(rows, ends))
        self._cursor[open_] = before + counts
        if self._skip.kind != "next row":
            self._move(found.starts, targets, open_, counts)
        return found

    def _select(self, found: GapMatches) -> tuple[GapMatches, Array]:
        """The matches that no other one skips, and the row to which each of them skips."""
        kind = self._skip.kind
        if kind == "next row":
            return found, found.starts + 1
        targets = (
            found.ends if kind == "past last row" else _skip_rows(self._skip, self._gapped, found)
        )
        chosen = _skip_chain(np.searchsorted(found.starts, targets))
        found, targets = found.take(chosen), targets[chosen]
        wrong = np.flatnonzero(targets <= found.starts)
        if len(wrong):
            found, targets = self._stop_at(found, targets, int(wrong[0]))
        return found, targets

    def _stop_at(self, found: GapMatches, targets: Array, at: int) -> tuple[GapMatches, Array]:
        """Keeps the failure for later: a partition before this one may fail too, and the error
        names the first."""
        begin = int(found.starts[at])
        self._failure = (missing_skip_row_error if targets[at] < 0 else endless_skip_error)(
            self._table, begin
        )
        self._behind = int(np.searchsorted(self._table.begins, begin, "right")) - 1
        return found.take(np.arange(at)), targets[:at]

    def _move(self, starts: Array, targets: Array, open_: Array, counts: Array) -> None:
        """Drops the starts that the last match of each partition skips."""
        partition = np.searchsorted(self._table.begins, starts, "right") - 1
        skipped = np.searchsorted(self._starts, targets) - np.searchsorted(self._starts, starts) - 1
        in_vain = np.zeros(len(self._cursor), np.int64)
        np.add.at(in_vain, partition, skipped)
        np.maximum.at(self._cursor, partition, np.searchsorted(self._starts, targets))
        grows = 2 * in_vain[open_] < counts
        width = self._width[open_]
        width = np.where(
            grows, width * START_GROWTH, np.maximum(width // START_GROWTH, FIRST_STARTS)
        )
        self._width[open_] = np.minimum(width, MOST_STARTS)


def _skip_chain(following: Array) -> Array:
    """The first match, the one that it skips to, and so on. A match that skips to itself or back
    is the last."""
    chosen, at, after = [], 0, following.tolist()
    while at < len(after):
        chosen.append(at)
        if after[at] <= at:
            break
        at = after[at]
    return np.array(chosen, np.int64)


def _skip_rows(skip: Skip, gapped: GapPattern, found: GapMatches) -> Array:
    """The first or last row of the variables in SKIP TO, -1 where there is none."""
    target = np.full(len(found), -1, np.int64)
    places = range(len(gapped.points))
    for place in places if skip.kind == "last" else reversed(places):
        point, gap, row = gapped.points[place], gapped.gaps[place], found.rows[place]
        after = found.ends if place + 1 == len(places) else found.rows[place + 1]
        tried = [(point.variable, row, row + 1)]
        if gap is not None:
            tried.append((gap.variable, row + 1, after))
        for variable, low, high in tried if skip.kind == "last" else reversed(tried):
            if variable in skip.variables:
                wanted = high - 1 if skip.kind == "last" else low
                target = np.where(low < high, wanted, target)
    return target


# ---- matches as blocks for the answer ----------------------------------------------------------


UNMATCHED_NUMBER = -1


def match_blocks(gapped: GapPattern, table: RowTable, matches: GapMatches) -> Iterator[MatchBlock]:
    """All matches, and the unmatched rows if they are shown, in the order of rows."""
    which, start = np.arange(len(matches)), matches.starts
    if table.program.rows == "all with unmatched":
        alone = uncovered_rows(table.size, matches)
        start = np.concatenate([start, alone])
        order = np.argsort(start, kind="stable")
        which = np.concatenate([which, np.full(len(alone), UNMATCHED_NUMBER)])[order]
        start = start[order]
    number = _match_numbers(table, matches)
    length = np.zeros(len(which), np.int64)
    length[which >= 0] = matches.ends - matches.starts
    size = np.cumsum(np.maximum(length, 1))
    at = 0
    while at < len(which):
        before = size[at - 1] if at else 0
        most = int(np.searchsorted(size, before + search.BLOCK_ROWS, "right"))
        part = slice(at, max(at + 1, most))
        mine = which[part]
        yield MatchBlock(
            start[part],
            length[part],
            np.where(mine >= 0, number[mine], UNMATCHED_NUMBER) if len(number) else mine,
            _match_labels(gapped, matches.take(mine[mine >= 0])),
            np.concatenate([[0], np.cumsum(length[part])]),
        )
        at = part.stop


def uncovered_rows(size: int, matches: GapMatches) -> Array:
    """Rows in no match. All of them were tried and failed: only a row inside a match is skipped."""
    change = np.bincount(matches.starts, minlength=size + 1)
    change -= np.bincount(matches.ends, minlength=size + 1)
    return np.flatnonzero(np.cumsum(change[:size]) == 0)


def _match_numbers(table: RowTable, matches: GapMatches) -> Array:
    """Matches are numbered in their partition."""
    first = np.searchsorted(matches.starts, table.begins)
    partition = np.searchsorted(table.begins, matches.starts, "right") - 1
    return np.asarray(np.arange(len(matches)) - first[partition] + 1)


def _match_labels(gapped: GapPattern, matches: GapMatches) -> Array:
    """The labels of the rows of matches, one after the other: a point, then its gap."""
    labels, lengths = [], []
    following = [*matches.rows[1:], matches.ends]
    for point, gap, row, after in zip(
        gapped.points, gapped.gaps, matches.rows, following, strict=True
    ):
        labels.append(point.label)
        lengths.append(np.ones(len(row), np.int64))
        if gap is not None:
            labels.append(gap.label)
            lengths.append(after - row - 1)
    every = np.stack(lengths, axis=1).ravel()
    return np.repeat(np.tile(np.array(labels, np.int32), len(matches)), every)


class GapSearch:
    """Matches the points of a pattern by joins. Needs the whole input: no partition is open."""

    def __init__(
        self,
        gapped: GapPattern,
        table: RowTable,
        tally: ErrorTally,
        clock: TaskClock | None = None,
    ) -> None:
        self.table = table
        self._clock = clock
        self.counts = SearchCounts()
        self._gapped = gapped
        self._tally = tally

    @property
    def ignored(self) -> int:
        return int(self.table.ignored)

    def blocks(self) -> Iterator[MatchBlock]:
        table, gapped, counts = self.table, self._gapped, self.counts
        if not table.size:
            return
        budget = StepBudget(table, self._clock)
        matches = select_matches(
            gapped, table, PreferredMatcher(gapped, table, self._tally, budget)
        )
        counts.matches, counts.steps = len(matches), budget.steps
        if table.program.rows == "all with unmatched":
            counts.unmatched_rows = len(uncovered_rows(table.size, matches))
        yield from match_blocks(gapped, table, matches)
