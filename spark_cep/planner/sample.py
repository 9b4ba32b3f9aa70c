"""A sample of the input's first rows: rates of variables and selectivities of conditions.

The first rows are taken before any filter, so even a pattern without matches reads no more rows.
Over files and tables Spark stops there; after a sort or an aggregate it may have to compute the
whole input. The sample affects the speed of a query, never its answer. `statistics=` with rates, a
plan with an order, or `spark.cep.sample` set to "off" avoid it.
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
# Enough to distinguish rates of 1 in 1,000, at 0.08 s (20,000 rows as Python objects: 0.2 s).
SAMPLE_ROWS = 10_000
# In a smaller sample a key may appear hot by chance.
ENOUGH_ROWS = 1_000


@dataclass(frozen=True)
class Sample:
    """`complete`: the input has no other rows. `largest_key`: the rows of the most frequent key.
    `estimates` None: no row is a candidate."""

    rows: int
    complete: bool
    largest_key: int
    estimates: Estimates | None

    def source(self) -> str:
        rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        return f"the input's {rows}" if self.complete else f"the input's first {rows}"

    def has_hot_key(self, cores: int) -> bool:
        """Whether one key has so many rows that its bucket would delay the others."""
        if self.complete or self.rows < ENOUGH_ROWS:
            return False
        return self.largest_key * 2 * cores > self.rows


@dataclass(frozen=True)
class NoSample:
    """No sample; `reason` is empty if none was needed."""

    reason: str = ""


def is_sampling_on(setting: str) -> bool:
    """Whether the setting allows samples; raises PlanError if it is invalid."""
    if setting not in {"", "on", "off"}:
        raise PlanError(f"{SAMPLE_CONF} is {setting!r}", hint='set it to "on" or "off"')
    return setting != "off"


def needed_columns(program: Program) -> tuple[int, ...]:
    """The shipped columns that statistics need."""
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
    # Arithmetic errors in a sample affect only the speed of the query.
    with np.errstate(all="ignore"):
        estimates = estimate_from_table(program, whole)
    partition = Events(program, whole).partition
    largest = int((partition.end - partition.start).max()) if whole.num_rows else 0
    return Sample(
        table.num_rows, table.num_rows < SAMPLE_ROWS, largest, _scale_to_million(estimates, table)
    )


def with_all_columns(program: Program, table: pa.Table) -> pa.Table:
    """The table with NULLs for the columns that were not sampled, which are not read."""
    columns = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows)
        for name in program.columns
    ]
    return pa.table(dict(zip(program.columns, columns, strict=True)))


def _scale_to_million(estimates: Estimates | None, table: pa.Table) -> Estimates | None:
    """Estimates for a million rows, unless the sample is the whole input."""
    if estimates is None or table.num_rows < SAMPLE_ROWS:
        return estimates
    return replace(estimates, windows=estimates.windows * 1_000_000 / table.num_rows)
