"""A compiled row pattern, and the query that it becomes: frozen data without Spark in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.expressions.query_form import query_form
from spark_cep.udfs.canonical import row_program
from spark_cep.udfs.row_program import RowProgram

if TYPE_CHECKING:
    from spark_cep.expressions.keys import PartitionKey
    from spark_cep.expressions.schema import OrderBy
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.rows.answer import RowAnswer
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.program import Limits, Order, Window
    from spark_cep.udfs.row_program import (
        MatcherKind,
        RowPatternNode,
        RowsMode,
        RowVariable,
        Skip,
    )


@dataclass(frozen=True)
class RowReading:
    """What the engine evaluates for the measures, and what Spark has to know of it.

    `source`: the shipped column whose type the value has, or a list's elements have; None: the
    type is the expression's. `label`: a number of a variable, which becomes its name.
    """

    expression: Expression
    source: int | None = None
    shape: Literal["value", "list"] = "value"
    label: bool = False


@dataclass(frozen=True)
class RowMeasure:
    """`sql` is over the readings by their names (`reading_name`); `text` is the user's."""

    name: str
    sql: str
    text: str


@dataclass(frozen=True)
class CompiledRowPattern:
    """`conditions`: for each variable its text, None if it is any row, and whether Spark computes
    it whole on single rows."""

    variables: tuple[RowVariable, ...]
    pattern: RowPatternNode
    skip: Skip
    rows: RowsMode
    window: Window | None
    partition: tuple[str, ...]
    orders: tuple[OrderBy, ...]
    readings: tuple[RowReading, ...]
    measures: tuple[RowMeasure, ...]
    conditions: tuple[tuple[str | None, bool], ...]


def reading_name(number: int) -> str:
    """What a measure calls a reading.

    >>> reading_name(2)
    '__cep_m2'
    """
    return f"__cep_m{number}"


# Lays out the answer and requests its payload from the shipment. Given are the partition columns
# by name, each with the shipped column that shows it.
RowAnswerLayout = Callable[
    [CompiledRowPattern, "Shipment", Sequence[tuple[str, int]]], "RowAnswer | None"
]


@dataclass(frozen=True)
class CompiledRowQuery:
    """A row pattern, the columns that rows carry for it, and where in them the engine finds what.
    `answer` None: nobody reads the matches as rows."""

    compiled: CompiledRowPattern
    shipment: Shipment
    keys: tuple[PartitionKey, ...]
    key_columns: tuple[int, ...]
    orders: tuple[Order, ...]
    limits: Limits
    ansi: bool
    answer: RowAnswer | None = None

    def program(self, matcher: MatcherKind = "walk") -> RowProgram:
        """What the engine runs."""
        compiled = self.compiled
        return RowProgram(
            columns=self.shipment.names(),
            keys=self.key_columns,
            orders=self.orders,
            variables=compiled.variables,
            pattern=compiled.pattern,
            measures=tuple(each.expression for each in compiled.readings),
            rows=compiled.rows,
            skip=compiled.skip,
            limits=self.limits,
            within=compiled.window,
            ansi=self.ansi,
            matcher=matcher,
        )

    def form(self, program: RowProgram, lookups: Sequence[tuple[str, Sequence[str]]] = ()) -> Data:
        """What the state of a stream with this program is compared with. `lookups`: the source
        and the keys of each looked-up column of the input."""
        return query_form(row_program(program), self.shipment, lookups=lookups)
