"""What the worker hands back to Spark: the columns of its record batches, in order.

The driver decides on an output and ships it beside the program; `udfs/events/answer.py` and
`udfs/rows/answer.py` build the batches, and `spark_cep/spark/projection.py` declares the same
columns to Spark as types.

Always holds: every column is nullable; a value is copied from a shipped column and keeps its
Arrow type; no struct is without fields (Arrow and Spark disagree about empty structs). Every
column costs Spark a copy of every row, a nested one the most, so a variable that every match
fills comes as plain columns, and columns that nobody reads do not come.

Event patterns
--------------
rows "one", one row for each match:
    match_number  int64                   if `numbered`; unique in the answer: (partition << 33) + n
    v<i>          struct, or list<struct>  one for each of `structs`, i = variable id; NULL:
                                          unfilled, []: matched as the empty list
    v<i>_<n>      as field n              instead, where the struct is `flat`
    first, last   as order column 0       if `bounds`: event time of the earliest and latest event
    p0, p1, ...   as `partition`          taken from the match's earliest event
    metrics       string                  NULL in a match, else a bucket's counts as JSON

rows "all", one row for each matched event:
    match_number, variable int32 (variable id), f0, f1, ... as `row`, metrics

Row patterns
------------
rows "one", one row for each match:
    p0, p1, ...   as `columns`            partition keys, taken from the match's first row
    m0, m1, ...                           one for each measure
    first_row     int64                   the first row's place in its partition, from 0
    metrics       string                  as above

rows "all ...", one row for each row:
    r0, r1, ...   as `columns`            of the row itself
    m0, m1, ...
    first_row     int64                   if `placed`: as above, of the row's match
    row           int64                   if `placed`: the row's own place
    metrics

Metrics
-------
Each bucket ends with one row that has only `metrics`. It is text, because the counts differ
between plans, and there is one row of them for millions of matches. Its keys:

    the names below      a number each
    conditions           {condition: [combinations tested, kept]}, by place in Program.conditions
    candidates           {variable id: rows that may match it}
    nodes                {"branch:slots": [pairs, partial matches]}, slots sorted, with commas
    orders               {order: pairs}, what ran, with the slot that had new rows
    swaps                [{"from", "to", "because", "event_time"}], a change of plan each
    remotes              {name: as udfs/remote_spec.py}, also of lookups behind the engine
    shed                 {variable: [rows that may match it kept, dropped]}, with shedding
    shed_recall          {"": [expected share of the matches left, times rows; rows]}, "unknown"
                         with the rows of buckets for which it is not known
    cut, left, starts    with a deadline; latency_us, bound_us on a stream with one

A missing key means that nothing was counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram


# The numbers in `metrics`, as `udfs/events/metrics.py` counts them: the work of matching ...
ENGINE_METRICS = (
    "rows",  # shipped to the engine, slice copies included
    "pairs",  # partial match x candidate row, evaluated
    "partial_matches",  # pairs that passed
    "peak_partial_matches",  # held at once
    "buffered_events",  # rows of one partition that may match some variable
    "matches",
    "condition_errors",  # conditions that an ANSI error made NULL
    "ignored_rows",  # their event time is NULL or NaN
)
# ... planning ...
PLANNING_METRICS = (
    "plan_checks",  # of whether the plan is still the best
    "planning_us",  # spent on these checks and on making plans
    "matching_us",  # spent on everything else in the engine
    "longest_task_us",  # spent in the engine by the bucket that took longest
    "slow_tasks",  # buckets with a key and window that took a minute or more
    "stretches",  # windows of keys; rates are counted for each
)
# ... and the state of a stream.
STREAM_METRICS = (
    "late_rows",  # dropped: not after the watermark of an earlier trigger
    "expired_rows",  # no longer needed
    "state_rows",  # needed for matches to come
    "stored_rows",  # in the state store, needed or not
    "state_bytes",  # of the rows needed
    "kept_partial_matches",
    "waiting_matches",  # found, and not certain yet
    "delayed_rows",  # their remote values have not come in time
)
# ... and of rows that did not fit into a worker's memory; there only if there are some. Rows that
# are written twice count twice.
SPILL_METRICS: Final = (
    "parts",  # in which the rows were matched
    "spilled_rows",
    "spilled_bytes",  # written to the worker's local disk
)
# ... and of matching with a deadline; there only if there was one.
DEADLINE_METRICS: Final = (
    "cut",  # buckets whose matching was stopped
    "left",  # rows and kept partial matches with which it began, not followed to their end
    "starts",  # all of these
)
# ... and where partial matches are dropped (`udfs/events/dropping.py`); there only if they may be.
DROPPING_METRICS: Final = (
    "dropped_pairs",  # rows that were not offered to a partial match
    "dropped_partials",  # partial matches that were not followed
)
# On a stream with a bound, of each bucket.
LATENCY_METRICS: Final = (
    "latency_us",  # from the beginning of the trigger until the bucket was done
    "bound_us",
)
PEAK_METRICS = frozenset(
    {"peak_partial_matches", "buffered_events", "longest_task_us", *LATENCY_METRICS}
)  # the largest counts, not the sum


# ... and of one partition in ranges; there only if it was matched so.
RANGE_METRICS: Final = ("border_rows",)  # between the ranges, matched by one task

# What a range of a partition gives beside its answer: the task that a row goes to, and rows of a
# border, as Arrow IPC; NULL in an answer.
TASK: Final = "task"
BORDER: Final = "border"


@dataclass(frozen=True)
class Field:
    """Column `column` of the shipped events (an index into Program.columns), called `name`."""

    column: int
    name: str


@dataclass(frozen=True)
class Struct:
    """The row of `variable` as a struct of `fields`, or an array of them where it is a list.
    `flat`: every match fills it with one row, so its fields travel as columns."""

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


# Those of row patterns.
ROW_METRICS: Final = (
    "rows",  # shipped to the engine
    "partitions",
    "matches",  # empty ones included
    "empty_matches",
    "unmatched_rows",  # shown as such
    "steps",  # instructions tried
    "memo_hits",  # searches cut short because they had failed before
    "asked",  # conditions that Python tested row by row
    "condition_errors",  # conditions that an ANSI error made NULL
    "ignored_rows",  # their event time is NULL or NaN, and there is a WITHIN
    "matching_us",
    "longest_task_us",  # as above
    "slow_tasks",  # buckets with a partition that took a minute or more
)


@dataclass(frozen=True)
class RowOutput:
    """The shipped columns that come back: partition keys, or the whole row. `placed`: each row of a
    match tells its place and that of the match."""

    columns: tuple[Field, ...] = ()
    placed: bool = False

    def names(self, program: RowProgram) -> tuple[str, ...]:
        measures = tuple(f"m{place}" for place in range(len(program.measures)))
        if program.rows == "one":
            keys = tuple(f"p{place}" for place in range(len(self.columns)))
            return (*keys, *measures, "first_row", "metrics")
        rows = tuple(f"r{place}" for place in range(len(self.columns)))
        return (*rows, *measures, *(("first_row", "row") if self.placed else ()), "metrics")
