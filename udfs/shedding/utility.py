"""What a row is worth: the chance that it passes all conditions of what it may be (Eq. 11).

A row that may be several variables is worth as much as in the best of them. The *score* puts the
worth into one of `LEVELS` levels, the paper's utility arrays, and adds a number of the row's own
between 0 and 1, so that rows of one level are dropped at random, and the same rows every time.

Always holds: the driver's column (`spark_cep/spark/shedding.py`) computes the same score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events.table import column_to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.shedding.passing import PassTable


SheddingPolicy = Literal["utility", "random", "frequency"]

# The paper's xi: utility arrays of one buffer. Worths of a long pattern are products of many
# shares, and most lie close to 0. So levels are even in the fourth root of the worth: a millionth
# of the best one is still told from a tenth of that.
LEVELS: Final = 1000

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Utilities:
    """`tables` of each variable; a variable without any is worth 1 in every row. `sheddable`: the
    positive variables, as a bit mask; `needed`: those that a NOT looks for."""

    tables: Mapping[int, tuple[PassTable, ...]]
    sheddable: int
    needed: int

    @cached_property
    def top(self) -> float:
        """The most that any row can be worth."""
        tops = [self.best(v) for v in range(self.sheddable.bit_length()) if self.sheddable >> v & 1]
        return max(tops, default=1.0) or 1.0

    def best(self, variable: int) -> float:
        """The most that a row of the variable can be worth."""
        found = 1.0
        for table in self.tables.get(variable, ()):
            found *= float(table.shares.max())
        return found

    def of_variable(self, variable: int, rows: pa.Table) -> Numbers:
        """What each row is worth as this variable."""
        worth = np.ones(rows.num_rows)
        for table in self.tables.get(variable, ()):
            worth *= table.passes(rows)
        return worth

    def of_rows(self, mask: npt.NDArray[np.int64], rows: pa.Table) -> Numbers:
        """What each row is worth in the best of the variables that its mask allows."""
        worth = np.zeros(rows.num_rows)
        for variable in range(self.sheddable.bit_length()):
            if self.sheddable >> variable & 1:
                here = np.flatnonzero(mask >> variable & 1)
                if len(here) == rows.num_rows:
                    np.maximum(worth, self.of_variable(variable, rows), out=worth)
                elif len(here):
                    one = self.of_variable(variable, rows.take(here))
                    worth[here] = np.maximum(worth[here], one)
        return worth

    def levels(self, mask: npt.NDArray[np.int64], rows: pa.Table) -> npt.NDArray[np.int64]:
        """The level of each row, 0 to LEVELS - 1; 0 where nothing tells rows apart."""
        return self.levels_of(self.of_rows(mask, rows))

    def levels_of(self, worth: Numbers) -> npt.NDArray[np.int64]:
        """The levels of rows that are worth so much."""
        if not self.tables:
            return np.zeros(len(worth), dtype=np.int64)
        relative = np.minimum(worth / self.top, 1.0)
        return np.minimum((np.sqrt(np.sqrt(relative)) * LEVELS).astype(np.int64), LEVELS - 1)

    def may_be_shed(self, mask: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Rows that may be something, and nothing that a NOT could need."""
        return np.asarray((mask != 0) & (mask & self.needed == 0))


def utilities_of(tables: Sequence[PassTable], sheddable: int, needed: int) -> Utilities:
    by_variable: dict[int, tuple[PassTable, ...]] = {}
    for table in tables:
        by_variable[table.variable] = (*by_variable.get(table.variable, ()), table)
    return Utilities(by_variable, sheddable, needed)


# --------------------------------------------------------------------------------------------------
# Whether rows still have the values that utilities were learnt from.
#
# The bins of each table were filled in some proportion then. When a few rows of now fill them in
# clearly another one, utilities are not to be trusted. It takes a look at a thousand rows, 0.1 ms.
# --------------------------------------------------------------------------------------------------


# So many rows are looked at, and with fewer than a tenth of them nothing is said.
DRIFT_ROWS: Final = 1000
# The share of the rows that would have to lie in other bins, beyond what chance alone makes.
DRIFT_DISTANCE: Final = 0.2

BinCounts = npt.NDArray[np.float64]


class DriftDetector:
    """Compares with the rows that `utilities` were learnt from, which filled their bins so."""

    def __init__(self, utilities: Utilities, then: Sequence[BinCounts], mask: int) -> None:
        self._mask = mask
        self._tables = tables_in(utilities)
        self._then = then

    def has_drifted(self, rows: pa.Table) -> bool:
        """Whether any table's bins are filled differently by these rows."""
        some = rows if rows.num_rows <= DRIFT_ROWS else _sample_evenly(rows)
        return any(
            _distance(then, _count_table_bins(table, some, self._mask)) > DRIFT_DISTANCE
            for table, then in zip(self._tables, self._then, strict=True)
        )


def count_bins(utilities: Utilities, rows: pa.Table, mask: int) -> tuple[BinCounts, ...]:
    """How rows fill the bins of each table. `mask`: the column of their masks."""
    return tuple(_count_table_bins(table, rows, mask) for table in tables_in(utilities))


def tables_in(utilities: Utilities) -> list[PassTable]:
    return [table for found in utilities.tables.values() for table in found]


def _count_table_bins(table: PassTable, rows: pa.Table, mask: int) -> BinCounts:
    """How many rows of the table's variable are in each bin."""
    masks = column_to_numpy(rows.column(mask)).astype(np.int64)
    here = rows.filter((masks >> table.variable & 1).astype(np.bool_))
    bins = [feature.bins(here.column(feature.column)) for feature in table.features]
    sizes = tuple(feature.size for feature in table.features)
    at = np.ravel_multi_index(tuple(bins), sizes)
    return np.bincount(at, minlength=int(np.prod(sizes))).astype(np.float64)


def _sample_evenly(rows: pa.Table) -> pa.Table:
    return rows.take(np.linspace(0, rows.num_rows - 1, DRIFT_ROWS).astype(np.int64))


def _distance(then: npt.NDArray[np.float64], now: npt.NDArray[np.float64]) -> float:
    """Half the sum of the differences of the shares; 0 where there is too little to compare."""
    if then.sum() < DRIFT_ROWS / 10 or now.sum() < DRIFT_ROWS / 10:
        return 0.0
    shares = then / then.sum()
    found = np.abs(shares - now / now.sum()).sum() / 2
    # The mean distance of two samples of one distribution.
    chance = 0.4 * np.sqrt(shares * (1 / then.sum() + 1 / now.sum())).sum()
    return float(found - chance)


# --------------------------------------------------------------------------------------------------
# What the driver ships of shedding for a stream's workers.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SheddingStatistics:
    """What rows said: what they are worth, the work that each variable's make, the share of the
    matches that is left by tenths of the rows that stay, what matching takes, seconds a row, and
    how many rows filled which bins of the tables. `depth`: the power of the share of the matches
    with which matching gets less."""

    utilities: Utilities
    loads: Mapping[int, float]
    curve: tuple[float, ...]
    work: float
    filled: tuple[BinCounts, ...]
    depth: float = 1.0


@dataclass(frozen=True)
class StreamSheddingSpec:
    """One of `keep` (a share), `latency` (seconds) and `rows_per_second`. `parallel`: buckets that
    are worked on at the same time. `keys`: the types of the program's keys, if they may be looked
    at."""

    keep: float | None
    latency: float | None
    rows_per_second: float | None
    policy: SheddingPolicy
    safety: float
    seed: int
    parallel: int
    keys: tuple[Type, ...] = ()
    known: SheddingStatistics | None = None
