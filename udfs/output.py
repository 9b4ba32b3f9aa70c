"""What the worker hands back to Spark: the columns of its record batches, in order.

`Output` is decided on the driver and shipped beside the Program; `udfs/answer.py` builds the
batches and `spark_cep/answer.py` declares the same columns to Spark as types.

Always holds: every column is nullable; a value is copied from a shipped column and keeps its
Arrow type; no struct is without fields (Arrow and Spark disagree about empty structs).

rows "one", one row a match:
    match_number  int64                   unique in the answer: (partition << 33) + n
    v<i>          struct, or list<struct>  one for each `structs`, i = variable id; NULL: unfilled,
                                          [] : matched as the empty list
    first, last   as order column 0       event time of the match's earliest and latest event
    p0, p1, ...   as `partition`          taken from the match's earliest event
    metrics       struct<int64...>        NULL in a match

rows "all", one row a matched event:
    match_number, variable int32 (variable id), f0, f1, ... as `row`, metrics

Each Spark partition ends with one row that has only `metrics`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as Choice

# The fields of `metrics`, as `udfs/metrics.py` counts them.
METRICS = (
    "rows",  # shipped to the engine, slice copies included
    "pairs",  # partial match x candidate row, evaluated
    "partial_matches",  # survivors of a step
    "peak_partial_matches",  # alive at once
    "buffered_events",  # rows of one partition that could be something
    "matches",
    "condition_errors",  # conditions that an ANSI error made NULL
    "ignored_rows",  # their event time is NULL or NaN
)
PEAKS = frozenset({"peak_partial_matches", "buffered_events"})  # the largest counts, not the sum


@dataclass(frozen=True)
class Field:
    """Column `column` of the shipped events (an index into Program.columns), called `name`."""

    column: int
    name: str


@dataclass(frozen=True)
class Struct:
    """The row of `variable` as a struct of `fields`; an array of them where it is a list."""

    variable: int
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Output:
    """`order` is the shipped event time, an index into Program.columns."""

    rows: Choice["one", "all"]
    order: int
    structs: tuple[Struct, ...] = ()
    row: tuple[Field, ...] = ()
    partition: tuple[Field, ...] = ()

    def names(self) -> tuple[str, ...]:
        """The columns of a record batch.

        >>> Output("one", 1, (Struct(0, (Field(1, "ts"),)),), (), (Field(0, "key"),)).names()
        ('match_number', 'v0', 'first', 'last', 'p0', 'metrics')
        """
        if self.rows == "all":
            fields = tuple(f"f{place}" for place in range(len(self.row)))
            return ("match_number", "variable", *fields, "metrics")
        structs = tuple(f"v{struct.variable}" for struct in self.structs)
        partition = tuple(f"p{place}" for place in range(len(self.partition)))
        return ("match_number", *structs, "first", "last", *partition, "metrics")
