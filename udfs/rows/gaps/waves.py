"""AFTER MATCH SKIP: which of the preferred matches are taken.

What a start prefers depends on no other match, so matches are found for many starts at once and
then gone through in order. Where matches skip over starts, much of that would be in vain: each
partition gives a few starts to a wave, more of them as long as few are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.rows.failures import skips_in_place, skips_nowhere

if TYPE_CHECKING:
    from spark_cep.udfs.errors import CepError
    from spark_cep.udfs.rows.gaps.preferred import Preferred
    from spark_cep.udfs.rows.gaps.recognize import Gapped
    from spark_cep.udfs.rows.program import Skip
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array

# Starts of all partitions in one wave: what is held of them is a few times as much.
MOST_STARTS: Final = 1 << 14
FIRST_STARTS: Final = 4
GROWTH: Final = 4


@dataclass(frozen=True)
class Matches:
    """`rows`: a line for each point. `ends`: behind the last row of each match."""

    rows: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> Array:
        return np.asarray(self.rows[0])

    def take(self, index: Array) -> Matches:
        return Matches(self.rows[:, index], self.ends[index])


def taken(gapped: Gapped, table: Table, preferred: Preferred) -> Matches:
    """All matches of the bucket, in order."""
    waves = _Waves(gapped, table, preferred)
    found = [np.zeros((len(gapped.points) + 1, 0), np.int64)]
    while (wave := waves.next()) is not None:
        found.append(np.concatenate([wave.rows, wave.ends[np.newaxis]]))
    every = np.concatenate(found, axis=1)
    every = every[:, np.argsort(every[0], kind="stable")]
    return Matches(every[:-1], every[-1])


class _Waves:
    """`_cursor`, `_stop`: by partition, the starts that are left, in those before `_behind`.
    `_failure`: a skip that went wrong there."""

    def __init__(self, gapped: Gapped, table: Table, preferred: Preferred) -> None:
        self._gapped, self._table, self._preferred = gapped, table, preferred
        self._skip = table.program.skip
        self._starts = preferred.starts()
        self._cursor = np.searchsorted(self._starts, table.begins)
        self._stop = np.searchsorted(self._starts, table.ends)
        self._failure: CepError | None = None
        self._behind = len(table.begins)
        first = MOST_STARTS if self._skip.kind == "next row" else FIRST_STARTS
        self._width = np.full(len(table.begins), first)

    def next(self) -> Matches | None:
        """The matches that are taken of the next starts; None: there are no more."""
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
        found, targets = self._gone_through(Matches(rows, ends))
        self._cursor[open_] = before + counts
        if self._skip.kind != "next row":
            self._move(found.starts, targets, open_, counts)
        return found

    def _gone_through(self, found: Matches) -> tuple[Matches, Array]:
        """Those that no other one skips, and where each of them skips to."""
        kind = self._skip.kind
        if kind == "next row":
            return found, found.starts + 1
        targets = (
            found.ends if kind == "past last row" else _rows_of(self._skip, self._gapped, found)
        )
        chosen = _chain(np.searchsorted(found.starts, targets))
        found, targets = found.take(chosen), targets[chosen]
        wrong = np.flatnonzero(targets <= found.starts)
        if len(wrong):
            found, targets = self._fails(found, targets, int(wrong[0]))
        return found, targets

    def _fails(self, found: Matches, targets: Array, at: int) -> tuple[Matches, Array]:
        """Partitions before this one may fail too, and then it is they that are named."""
        begin = int(found.starts[at])
        self._failure = (skips_nowhere if targets[at] < 0 else skips_in_place)(self._table, begin)
        self._behind = int(np.searchsorted(self._table.begins, begin, "right")) - 1
        return found.take(np.arange(at)), targets[:at]

    def _move(self, starts: Array, targets: Array, open_: Array, counts: Array) -> None:
        """Skips the starts that lie before where the last match of a partition goes on."""
        partition = np.searchsorted(self._table.begins, starts, "right") - 1
        skipped = np.searchsorted(self._starts, targets) - np.searchsorted(self._starts, starts) - 1
        in_vain = np.zeros(len(self._cursor), np.int64)
        np.add.at(in_vain, partition, skipped)
        np.maximum.at(self._cursor, partition, np.searchsorted(self._starts, targets))
        grows = 2 * in_vain[open_] < counts
        width = self._width[open_]
        width = np.where(grows, width * GROWTH, np.maximum(width // GROWTH, FIRST_STARTS))
        self._width[open_] = np.minimum(width, MOST_STARTS)


def _chain(following: Array) -> Array:
    """From the first match to the one that it skips to, and so on. A match that skips to itself
    or back is the last."""
    chosen, at, after = [], 0, following.tolist()
    while at < len(after):
        chosen.append(at)
        if after[at] <= at:
            break
        at = after[at]
    return np.array(chosen, np.int64)


def _rows_of(skip: Skip, gapped: Gapped, found: Matches) -> Array:
    """The first or last row of the variables that are skipped to, -1 where there is none."""
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
