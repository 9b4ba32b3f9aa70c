"""The utility of a row: by which score rows are kept or dropped.

A row that may be several variables is worth the sum over them, and as one variable a product of
numbers from tables: the expected matches that it is in (`worth.py`), or the probability that it
passes its conditions (DARLING, Equation 11). The *score* puts the utility into one of `LEVELS`
levels, the paper's utility arrays, and adds a tie-breaker between 0 and 1, so that rows of one
level are dropped at random, and the same rows in every run.

Always holds: the SQL expression of the driver (`spark_cep/spark/shedding.py`) computes the same
score.
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
    from spark_cep.udfs.shedding.learning import Way
    from spark_cep.udfs.shedding.partial_matches import PartialStatistics
    from spark_cep.udfs.shedding.passing import BinnedRows, PassTable


SheddingPolicy = Literal[
    "utility", "keys", "darling", "random", "frequency",
    "espice", "hspice", "pspice", "random-partials",
]  # fmt: skip

# The paper's xi, the number of utility arrays of a buffer. The utilities of a long pattern are
# products of many shares, and most are close to 0. So levels are even in the fourth root of the
# utility: a millionth of the best one is still distinct from a tenth of that.
LEVELS: Final = 1000

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Role:
    """What a row is worth as one variable: the product of its shares in the tables, times `scale`.
    Variables of several OR branches have a role in each."""

    variable: int
    tables: tuple[PassTable, ...] = ()
    scale: float = 1.0

    @property
    def best(self) -> float:
        """The largest utility of a row."""
        found = self.scale
        for table in self.tables:
            found *= float(table.shares.max())
        return found

    def of_rows(self, rows: pa.Table | BinnedRows) -> Numbers:
        """The utility of each row in this role."""
        utility = np.full(rows.num_rows, self.scale)
        for table in self.tables:
            utility *= table.passes(rows)
        return utility


@dataclass(frozen=True)
class Utilities:
    """The utility function. `sheddable`: the
    positive variables, as a bit mask; `needed`: those of a NOT. `top`: from this utility on, rows
    have the highest level."""

    roles: tuple[Role, ...]
    sheddable: int
    needed: int
    top: float

    @cached_property
    def is_even(self) -> bool:
        """Whether all rows are worth the same."""
        return not self.tables and len({role.scale for role in self.roles}) <= 1

    @cached_property
    def tables(self) -> list[PassTable]:
        return [table for role in self.roles for table in role.tables]

    def of_rows(self, mask: npt.NDArray[np.int64], rows: pa.Table | BinnedRows) -> Numbers:
        """The utility of each row, over the variables that its mask allows."""
        utility = np.zeros(rows.num_rows)
        for role in self.roles:
            here = np.flatnonzero(mask >> role.variable & 1)
            if len(here) == rows.num_rows:
                utility += role.of_rows(rows)
            elif len(here):
                utility[here] += role.of_rows(rows.take(here))
        return utility

    def levels(
        self, mask: npt.NDArray[np.int64], rows: pa.Table | BinnedRows
    ) -> npt.NDArray[np.int64]:
        """The level of each row, 0 to LEVELS - 1; 0 where all rows are worth the same."""
        if self.is_even:
            return np.zeros(rows.num_rows, dtype=np.int64)
        relative = np.minimum(self.of_rows(mask, rows) / self.top, 1.0)
        return np.minimum((np.sqrt(np.sqrt(relative)) * LEVELS).astype(np.int64), LEVELS - 1)

    def may_be_shed(self, mask: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Flags of the rows that are candidates of a variable, and of none that a NOT needs."""
        return np.asarray((mask != 0) & (mask & self.needed == 0))


def utilities_of(tables: Sequence[PassTable], sheddable: int, needed: int) -> Utilities:
    """The utilities of these tables, with one role for each variable."""
    by_variable: dict[int, tuple[PassTable, ...]] = {}
    for table in tables:
        by_variable[table.variable] = (*by_variable.get(table.variable, ()), table)
    positive = [v for v in range(sheddable.bit_length()) if sheddable >> v & 1]
    roles = tuple(Role(v, by_variable.get(v, ())) for v in positive)
    top = max((role.best for role in roles), default=1.0) or 1.0
    return Utilities(roles, sheddable, needed, top)


# ---- drift ---------------------------------------------------------------------------------------


# How many rows are compared, which takes 0.1 ms. With fewer than a tenth of them there is no
# answer.
DRIFT_ROWS: Final = 1000
# The share of the rows that must be in other bins, beyond what chance alone causes.
DRIFT_DISTANCE: Final = 0.2

BinCounts = npt.NDArray[np.float64]


class DriftDetector:
    """Detects that rows no longer have the values that `utilities` were learnt from, by how they
    fill the bins of each table. `then`: how the rows of that time filled them."""

    def __init__(self, utilities: Utilities, then: Sequence[BinCounts], mask: int) -> None:
        self._mask = mask
        self._tables = utilities.tables
        self._then = then

    def has_drifted(self, rows: pa.Table) -> bool:
        """Whether these rows fill the bins of any table in clearly different proportions."""
        some = rows if rows.num_rows <= DRIFT_ROWS else _sample_evenly(rows)
        return any(
            _distance(then, _count_table_bins(table, some, self._mask)) > DRIFT_DISTANCE
            for table, then in zip(self._tables, self._then, strict=True)
        )


def count_bins(utilities: Utilities, rows: pa.Table, mask: int) -> tuple[BinCounts, ...]:
    """How rows fill the bins of each table. `mask`: the place of the mask column."""
    return tuple(_count_table_bins(table, rows, mask) for table in utilities.tables)


def _count_table_bins(table: PassTable, rows: pa.Table, mask: int) -> BinCounts:
    """The number of rows of the table's variable in each bin."""
    masks = column_to_numpy(rows.column(mask)).astype(np.int64)
    here = rows.filter((masks >> table.variable & 1).astype(np.bool_))
    bins = [feature.bins(here.column(feature.column)) for feature in table.features]
    sizes = tuple(feature.size for feature in table.features)
    at = np.ravel_multi_index(tuple(bins), sizes)
    return np.bincount(at, minlength=int(np.prod(sizes))).astype(np.float64)


def _sample_evenly(rows: pa.Table) -> pa.Table:
    return rows.take(np.linspace(0, rows.num_rows - 1, DRIFT_ROWS).astype(np.int64))


def _distance(then: npt.NDArray[np.float64], now: npt.NDArray[np.float64]) -> float:
    """The total variation distance of the shares, less its mean by chance; 0 with too few rows."""
    if then.sum() < DRIFT_ROWS / 10 or now.sum() < DRIFT_ROWS / 10:
        return 0.0
    shares = then / then.sum()
    found = np.abs(shares - now / now.sum()).sum() / 2
    # The mean distance of two samples from one distribution.
    chance = 0.4 * np.sqrt(shares * (1 / then.sum() + 1 / now.sum())).sum()
    return float(found - chance)


# ---- what the driver ships -----------------------------------------------------------------------


@dataclass(frozen=True)
class SheddingStatistics:
    """What was learnt from rows: the ways to shed, the loads of variables (Z), `work`, the seconds
    of matching per row, and `filled`, the rows in the bins of each table."""

    ways: tuple[Way, ...]
    loads: Mapping[int, float]
    work: float
    filled: tuple[BinCounts, ...]

    @property
    def utilities(self) -> Utilities:
        """Those of most tables, which show a drift."""
        return max((way.utilities for way in self.ways), key=lambda each: len(each.tables))


@dataclass(frozen=True)
class StreamSheddingSpec:
    """How a stream sheds: one of `keep` (a share), `latency` (seconds) and `rows_per_second`.
    `parallel`: how many buckets run at the same time. `keys`: the types of the program's keys, if
    utilities may depend on them. `known`, or `partials` where partial matches are dropped: what a
    history showed."""

    keep: float | None
    latency: float | None
    rows_per_second: float | None
    policy: SheddingPolicy
    safety: float
    seed: int
    parallel: int
    keys: tuple[Type, ...] = ()
    known: SheddingStatistics | None = None
    partials: PartialStatistics | None = None
