"""A look at the first rows of the input: which variables are rare, what conditions keep.

The input's first rows are taken before any filter, so even a pattern that nothing meets asks for
no more than these. Over files and tables Spark then reads no more; behind a sort or an aggregate
it may have to read all of the input to have them. They decide how fast the answer comes, never
what it is. A user who knows better gives `statistics=` with rates or a plan with its order, and
no sample is taken; `spark.cep.sample` set to "off" does without.

The rows come as the engine would get them, the payload left out, and are kept with the DataFrame:
the same pattern asked again reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.errors import PlanError
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.events.table import Events, drop_null_times
from spark_cep.udfs.expressions import cells_of

if TYPE_CHECKING:
    from spark_cep.udfs.program import Estimates, Program


SAMPLE_CONF = "spark.cep.sample"
# Enough to tell counts of 1 in 1,000 apart, and a small part of what any job costs: 0.08 s where
# 20,000 rows collected as Python objects took 0.2 s.
SAMPLE_ROWS = 10_000
# A key with fewer sampled rows than this may look hot by chance.
ENOUGH_ROWS = 1_000


@dataclass(frozen=True)
class Sample:
    """`complete`: the input has no more rows. `largest_key`: rows of the most frequent key.
    `estimates` None: no row of it is a candidate."""

    rows: int
    complete: bool
    largest_key: int
    estimates: Estimates | None

    def source(self) -> str:
        rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        return f"the input's {rows}" if self.complete else f"the input's first {rows}"

    def has_hot_key(self, cores: int) -> bool:
        """Whether one key holds so many rows that its bucket would keep the others waiting."""
        if self.complete or self.rows < ENOUGH_ROWS:
            return False
        return self.largest_key * 2 * cores > self.rows


@dataclass(frozen=True)
class NoSample:
    """Why there is none: `reason` is empty where nothing hangs on it."""

    reason: str = ""


def is_sampling_on(setting: str) -> bool:
    """Whether the session allows samples."""
    if setting not in {"", "on", "off"}:
        raise PlanError(f"{SAMPLE_CONF} is {setting!r}", hint='it takes "on" or "off"')
    return setting != "off"


def needed_columns(program: Program) -> tuple[int, ...]:
    """The shipped columns that statistics are made from."""
    read = {
        cell.column
        for condition in program.conditions
        for cell in cells_of(condition.expression)
        if cell.column is not None
    }
    orders = {order.column for order in program.orders}
    return tuple(sorted({program.mask, *program.keys, *orders, *read}))


def _summarize(program: Program, table: pa.Table) -> Sample:
    whole = drop_null_times(program, with_all_columns(program, table))
    # A lost condition changes speed only, and the sample is not the place to fail for it.
    with np.errstate(all="ignore"):
        estimates = estimate_from_table(program, whole)
    partition = Events(program, whole).partition
    largest = int((partition.end - partition.start).max()) if whole.num_rows else 0
    return Sample(
        table.num_rows, table.num_rows < SAMPLE_ROWS, largest, _scale_to_million(estimates, table)
    )


def with_all_columns(program: Program, table: pa.Table) -> pa.Table:
    """`table` has the needed columns only; the others are not looked at."""
    columns = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows)
        for name in program.columns
    ]
    return pa.table(dict(zip(program.columns, columns, strict=True)))


def _scale_to_million(estimates: Estimates | None, table: pa.Table) -> Estimates | None:
    """Costs are given for all rows where they are known, else for a million."""
    if estimates is None or table.num_rows < SAMPLE_ROWS:
        return estimates
    return replace(estimates, windows=estimates.windows * 1_000_000 / table.num_rows)
