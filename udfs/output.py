"""What the worker hands back to Spark: the columns of its record batches, in order.

`Output` is decided on the driver and shipped beside the Program; `udfs/events/answer.py` builds the
batches and `spark_cep/spark/projection.py` declares the same columns to Spark as types.

Always holds: every column is nullable; a value is copied from a shipped column and keeps its
Arrow type; no struct is without fields (Arrow and Spark disagree about empty structs). Every
column costs Spark a copy of every row, and a nested one costs it most, so a variable that every
match fills comes as plain columns, and what nobody reads does not come.

rows "one", one row a match:
    match_number  int64                   if `numbered`; unique in the answer: (partition << 33) + n
    v<i>          struct, or list<struct>  one for each of `structs`, i = variable id; NULL:
                                          unfilled, []: matched as the empty list
    v<i>_<n>      as field n              instead, where the struct is `flat`
    first, last   as order column 0       if `bounds`: event time of the earliest and latest event
    p0, p1, ...   as `partition`          taken from the match's earliest event
    metrics       string                  NULL in a match, else a bucket's counts as JSON

rows "all", one row a matched event:
    match_number, variable int32 (variable id), f0, f1, ... as `row`, metrics

Each Spark partition ends with one row that has only `metrics`: text, because what is counted grows
and differs between plans, and there is one row of it for millions of matches. Its keys:

    as METRICS, TOTALS   a number each
    conditions           {condition: [combinations tested, kept]}, by place in Program.conditions
    candidates           {variable id: rows that may be it}
    nodes                {"branch:slots": [pairs, partial matches]}, slots sorted, with commas
    swaps                [{"from", "to", "because", "event_time"}], a change of plan each
    remotes              {name: as udfs/remotes/metrics.py}, also of lookups behind the engine
    shed                 {variable: [rows that may be it kept, dropped]}, where rows may be shed
    shed_recall          {"": [expected share of the matches left, times rows; rows]}

A key that is missing counts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram


# The numbers in `metrics`, as `udfs/events/metrics.py` counts them: what the work was ...
ENGINE_METRICS = (
    "rows",  # shipped to the engine, slice copies included
    "pairs",  # partial match x candidate row, evaluated
    "partial_matches",  # survivors of a step
    "peak_partial_matches",  # alive at once
    "buffered_events",  # rows of one partition that could be something
    "matches",
    "condition_errors",  # conditions that an ANSI error made NULL
    "ignored_rows",  # their event time is NULL or NaN
)
# ... and what the plan cost and was for.
PLANNING_METRICS = (
    "plan_checks",  # between advances, whether the plan is still right
    "planning_us",  # spent on that, and on making plans
    "matching_us",  # spent on everything else in the engine
    "stretches",  # windows of keys: what the counts are per
)
# ... and what a trigger of a stream adds.
STREAM_METRICS = (
    "late_rows",  # came behind the watermark of an earlier trigger, and were dropped
    "expired_rows",  # not needed any more
    "state_rows",  # needed for matches to come
    "stored_rows",  # those in the state store, also if nobody needs them any more
    "state_bytes",  # of the rows needed
    "kept_partial_matches",
)
PEAK_METRICS = frozenset(
    {"peak_partial_matches", "buffered_events"}
)  # the largest counts, not the sum


@dataclass(frozen=True)
class Field:
    """Column `column` of the shipped events (an index into Program.columns), called `name`."""

    column: int
    name: str


@dataclass(frozen=True)
class Struct:
    """The row of `variable` as a struct of `fields`; an array of them where it is a list. `flat`:
    every match fills it with one row, so its fields can travel as columns."""

    variable: int
    fields: tuple[Field, ...]
    flat: bool = False

    def names(self) -> tuple[str, ...]:
        if self.flat:
            return tuple(f"v{self.variable}_{place}" for place in range(len(self.fields)))
        return (f"v{self.variable}",)


@dataclass(frozen=True)
class EventOutput:
    """`order` is the shipped event time, an index into Program.columns."""

    rows: Literal["one", "all"]
    order: int
    structs: tuple[Struct, ...] = ()
    row: tuple[Field, ...] = ()
    partition: tuple[Field, ...] = ()
    bounds: bool = True
    numbered: bool = True

    def names(self) -> tuple[str, ...]:
        """The columns of a record batch.

        >>> EventOutput("one", 1, (Struct(0, (Field(1, "ts"),)),), (), (Field(0, "key"),)).names()
        ('match_number', 'v0', 'first', 'last', 'p0', 'metrics')
        """
        if self.rows == "all":
            fields = tuple(f"f{place}" for place in range(len(self.row)))
            return ("match_number", "variable", *fields, "metrics")
        number = ("match_number",) if self.numbered else ()
        structs = tuple(name for struct in self.structs for name in struct.names())
        bounds = ("first", "last") if self.bounds else ()
        partition = tuple(f"p{place}" for place in range(len(self.partition)))
        return (*number, *structs, *bounds, *partition, "metrics")


# --------------------------------------------------------------------------------------------------
# What the worker hands back for a row pattern: the columns of its record batches, in order.
#
# rows "one", one row a match:
#     p0, p1, ...  as `columns`          partition keys, taken from the match's first row
#     m0, m1, ...  one a measure
#     first_row    int64                 the first row's place in its partition, from 0
#     metrics      string                NULL in a match, else a bucket's counts as JSON
#
# rows "all ...", one row a row:
#     r0, r1, ...  as `columns`          of the row itself
#     m0, m1, ...
#     metrics
#
# Always holds: a value is copied from a shipped column and keeps its Arrow type; every column is
# nullable. Each Spark partition ends with one row that has only `metrics`; a missing key counts
# nothing. Its keys are METRICS.
# --------------------------------------------------------------------------------------------------


ROW_METRICS: Final = (
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
