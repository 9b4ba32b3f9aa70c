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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.errors import PlanError
from spark_cep.planning.buckets import is_of_spark
from spark_cep.udfs.events import Events, without_null_times
from spark_cep.udfs.expressions import cells
from spark_cep.udfs.sampling import estimates_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql import DataFrame

    from spark_cep.udfs.program import Estimates, Program

SAMPLE = "spark.cep.sample"
# Enough to tell counts of 1 in 1,000 apart, and a small part of what any job costs: 0.08 s where
# 20,000 rows collected as Python objects took 0.2 s.
ROWS = 10_000
# A key with fewer sampled rows than this may look hot by chance.
ENOUGH_ROWS = 1_000
_ATTRIBUTE = "_spark_cep_samples"


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


def is_wanted(setting: str) -> bool:
    """Whether the session allows samples."""
    if setting not in {"", "on", "off"}:
        raise PlanError(f"{SAMPLE} is {setting!r}", hint='it takes "on" or "off"')
    return setting != "off"


def needed(program: Program) -> tuple[int, ...]:
    """The shipped columns that statistics are made from."""
    read = {
        cell.column
        for condition in program.conditions
        for cell in cells(condition.expression)
        if cell.column is not None
    }
    orders = {order.column for order in program.orders}
    return tuple(sorted({program.mask, *program.keys, *orders, *read}))


def look(
    df: DataFrame, key: Hashable | None, rows: Callable[[], DataFrame], program: Program
) -> Sample | NoSample:
    """A sample, if Spark can compute those rows. Where it cannot, the error is one of the query's
    action, if that meets the row at all, and is none of the call's, which is lazy.

    `rows()` are the needed columns of the input's first rows. `key` says what they are made of:
    a sample is kept with `df` under it; None: it cannot be told.
    """
    kept: dict[Any, Sample] = df.__dict__.setdefault(_ATTRIBUTE, {})
    if key is not None and key in kept:
        return kept[key]
    try:
        table = rows().toArrow()
    except Exception as problem:
        if not is_of_spark(problem):
            raise
        return NoSample(f"no sample, for Spark failed on it ({type(problem).__name__})")
    sample = _sample(program, table)
    if key is not None:
        kept[key] = sample
    return sample


def _sample(program: Program, table: pa.Table) -> Sample:
    whole = without_null_times(program, with_all_columns(program, table))
    # A lost condition changes speed only, and the sample is not the place to fail for it.
    with np.errstate(all="ignore"):
        estimates = estimates_of(program, whole)
    partition = Events(program, whole).partition
    largest = int((partition.end - partition.start).max()) if whole.num_rows else 0
    return Sample(table.num_rows, table.num_rows < ROWS, largest, _per_million(estimates, table))


def with_all_columns(program: Program, table: pa.Table) -> pa.Table:
    """`table` has the needed columns only; the others are not looked at."""
    columns = [
        table.column(name) if name in table.column_names else pa.nulls(table.num_rows)
        for name in program.columns
    ]
    return pa.table(dict(zip(program.columns, columns, strict=True)))


def _per_million(estimates: Estimates | None, table: pa.Table) -> Estimates | None:
    """Costs are given for all rows where they are known, else for a million."""
    if estimates is None or table.num_rows < ROWS:
        return estimates
    return replace(estimates, windows=estimates.windows * 1_000_000 / table.num_rows)
