"""What the worker hands back for a row pattern: the columns of its record batches, in order.

rows "one", one row a match:
    p0, p1, ...  as `columns`          partition keys, taken from the match's first row
    m0, m1, ...  one a measure
    first_row    int64                 the first row's place in its partition, from 0
    metrics      string                NULL in a match, else a bucket's counts as JSON

rows "all ...", one row a row:
    r0, r1, ...  as `columns`          of the row itself
    m0, m1, ...
    metrics

Always holds: a value is copied from a shipped column and keeps its Arrow type; every column is
nullable. Each Spark partition ends with one row that has only `metrics`; a missing key counts
nothing. Its keys are METRICS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_cep.udfs.output import Field
    from spark_cep.udfs.rows.program import RowProgram

METRICS: Final = (
    "rows",  # shipped to the engine
    "partitions",
    "matches",  # empty ones included
    "empty_matches",
    "unmatched_rows",  # shown as such
    "steps",  # instructions tried
    "memo_hits",  # ways not gone because they had failed before
    "asked",  # conditions that Python tested row by row
    "condition_errors",  # conditions that an ANSI error made NULL
    "ignored_rows",  # their event time is NULL or NaN, and there is a WITHIN
    "matching_us",
)


@dataclass(frozen=True)
class RowOutput:
    """The shipped columns that come back: partition keys, or the whole row."""

    columns: tuple[Field, ...] = ()

    def names(self, program: RowProgram) -> tuple[str, ...]:
        measures = tuple(f"m{place}" for place in range(len(program.measures)))
        if program.rows == "one":
            keys = tuple(f"p{place}" for place in range(len(self.columns)))
            return (*keys, *measures, "first_row", "metrics")
        return (*(f"r{place}" for place in range(len(self.columns))), *measures, "metrics")
