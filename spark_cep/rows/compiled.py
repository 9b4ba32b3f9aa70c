"""A compiled row pattern and its answer, without Spark in it: the answer's columns in SQL's order,
and
how the engine gives them back.

    one row a match     partition columns, measures
    each row            the requested columns, measures (window frames)
    all rows            partition columns, order columns, measures, the input's other columns

An order column that is not a plain column of the input is not shown. One that is named twice, or
that partitions too, is shown as often, as in the standard; all other names differ, ignoring case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_cep.errors import PatternError
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.shipment import query_form
from spark_cep.udfs.canonical import row_program
from spark_cep.udfs.output import Field, RowOutput
from spark_cep.udfs.row_program import RowProgram
from spark_cep.udfs.rows.frames import bind_frame

if TYPE_CHECKING:
    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.schema import OrderBy, RowExpression
    from spark_cep.expressions.shipment import PartitionKey, Shipment
    from spark_cep.rows.spark_aggregates import SparkAggregate
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.program import Limits, Order, Window
    from spark_cep.udfs.row_program import (
        Frame,
        MatcherKind,
        RowPatternNode,
        RowsMode,
        RowVariable,
        Skip,
    )


# ---- the compiled pattern ------------------------------------------------------------------------


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
    it whole on single rows. `aggregates`: what Spark computes over lists of readings."""

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
    aggregates: tuple[SparkAggregate, ...] = ()
    longest: bool = False


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
    frame: Frame | None = None

    def program(self, matcher: MatcherKind = "walk") -> RowProgram:
        """What the engine runs."""
        compiled = self.compiled
        program = RowProgram(
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
            frame=self.frame,
            longest=compiled.longest,
        )
        return bind_frame(program)

    def form(self, program: RowProgram, lookups: Sequence[tuple[str, Sequence[str]]] = ()) -> Data:
        """What the state of a stream with this program is compared with. `lookups`: the source
        and the keys of each looked-up column of the input."""
        return query_form(row_program(program), self.shipment, lookups=lookups)


@dataclass(frozen=True)
class RowAnswer:
    """`before` and `after` the measures, and the partition `keys`: indexes of the output's columns.
    `prefix`: how the engine names these columns. `sought`: what is looked up before the measures
    are computed, by keys over the readings."""

    output: RowOutput
    before: tuple[int, ...]
    after: tuple[int, ...]
    prefix: str
    keys: tuple[int, ...]
    sought: tuple[LookupRequest, ...] = ()

    def names(self, measures: Sequence[RowMeasure]) -> list[str]:
        """The columns of the answer."""
        columns = self.output.columns
        return [
            *(columns[place].name for place in self.before),
            *(each.name for each in measures),
            *(columns[place].name for place in self.after),
        ]


def lay_out_row_answer(
    compiled: CompiledRowPattern,
    shipment: Shipment,
    shown: Sequence[tuple[str, int]],
    *,
    names: Sequence[str],
    sought: tuple[LookupRequest, ...] = (),
) -> RowAnswer:
    """Requests the payload from the shipment and lays out the engine's output. `shown`: the
    partition columns by name, each with its shipped column; `names`: the input's columns."""
    placed = bool(compiled.aggregates)
    if compiled.rows == "one":
        keys = tuple(Field(column, name) for name, column in shown)
        places = tuple(range(len(keys)))
        answer = RowAnswer(RowOutput(keys), places, (), "p", places, sought)
    elif compiled.rows == "each row":
        fields = tuple(Field(shipment.column(quote_name(name)), name) for name in names)
        hidden = [(name, column) for name, column in shown if placed and name not in names]
        payload = (*fields, *(Field(column, name) for name, column in hidden))
        known = [field.name for field in payload]
        places = tuple(known.index(name) for name, _ in shown if name in known)
        output = RowOutput(payload, placed)
        answer = RowAnswer(output, tuple(range(len(fields))), (), "r", places, sought)
    else:
        names = (*(each for each in compiled.partition if each not in names), *names)
        fields = tuple(Field(shipment.column(quote_name(name)), name) for name in names)
        ordered = [_plain_column(each.expression, names) for each in compiled.orders]
        first = [names.index(each) for each in (*compiled.partition, *filter(None, ordered))]
        rest = tuple(place for place in range(len(names)) if place not in first)
        places = tuple(first[: len(compiled.partition)])
        answer = RowAnswer(RowOutput(fields, placed), tuple(first), rest, "r", places, sought)
    _check_names(answer, compiled)
    return answer


def _plain_column(expression: RowExpression, names: Sequence[str]) -> str | None:
    """The input column that an order is, if it is one."""
    text = str(expression).removeprefix("Column<'").removesuffix("'>")
    return next((name for name in names if text in {quote_name(name), name}), None)


def _check_names(answer: RowAnswer, compiled: CompiledRowPattern) -> None:
    columns = answer.output.columns
    shown = [columns[place].name for place in (*answer.before, *answer.after)]
    taken = {name.casefold(): f"the column {name!r}" for name in shown}
    for each in compiled.measures:
        other = taken.setdefault(each.name.casefold(), "")
        if other:
            raise PatternError(
                f"the answer would have two columns called {each.name!r}: {other} and the measure",
                hint="give the measure another name",
            )
    if not taken:
        raise PatternError(
            "there is nothing to show: no measures, and no partition columns",
            hint='say what to show of a match, measures={"last": "LAST(b.price)"}, or ask for '
            'rows="all"',
        )
