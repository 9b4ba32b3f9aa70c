"""The answer of a row pattern: its columns in SQL's order, and how Spark gets them.

    one row a match     partition columns, measures
    all rows            partition columns, order columns, measures, the input's other columns

An order column that is no plain column of the input has no place among them. One that is named
twice, or partitions too, stands there as often, as the standard has it; all other names differ,
ignoring case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.compiling.rows.compiled import Reading, reading_name
from spark_cep.errors import PatternError
from spark_cep.remotes.outside import looked_up
from spark_cep.remotes.stage import METRICS, Counts
from spark_cep.shipping import carriers
from spark_cep.shipping.typing_by_spark import data_type_of, quoted
from spark_cep.udfs.output import Field
from spark_cep.udfs.rows.output import RowOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.answering.project import Found
    from spark_cep.compiling.remote_calls import Sought
    from spark_cep.compiling.rows.compiled import CompiledRows, RowMeasure
    from spark_cep.shipping.shipment import Shipment


@dataclass(frozen=True)
class RowAnswer:
    """`before` and `after` the measures: places among the output's columns. `sought`: what is
    looked up before the measures are computed, by keys over the readings."""

    output: RowOutput
    before: tuple[int, ...]
    after: tuple[int, ...]
    prefix: str
    sought: tuple[Sought, ...] = ()

    def names(self, measures: Sequence[RowMeasure]) -> list[str]:
        """The columns of the answer."""
        columns = self.output.columns
        return [
            *(columns[place].name for place in self.before),
            *(each.name for each in measures),
            *(columns[place].name for place in self.after),
        ]


@dataclass(frozen=True)
class RowInputs:
    """What there is: the input's column names, the partition columns by name and shipped index,
    and the remote data that measures read."""

    names: tuple[str, ...]
    partition: tuple[tuple[str, int], ...]
    sought: tuple[Sought, ...] = ()


def row_answer_of(compiled: CompiledRows, given: RowInputs, shipment: Shipment) -> RowAnswer:
    """Asks the shipment for what the answer shows."""
    if compiled.rows == "one":
        keys = tuple(Field(column, name) for name, column in given.partition)
        answer = RowAnswer(RowOutput(keys), tuple(range(len(keys))), (), "p")
    else:
        answer = _all_rows(compiled, given, shipment)
    _check_names(answer, compiled)
    return replace(answer, sought=given.sought)


def _all_rows(compiled: CompiledRows, given: RowInputs, shipment: Shipment) -> RowAnswer:
    names = given.names
    fields = tuple(Field(shipment.column(quoted(name)), name) for name in names)
    ordered = [_plain(each.expression, names) for each in compiled.orders]
    first = [names.index(each) for each in (*compiled.partition, *filter(None, ordered))]
    rest = tuple(place for place in range(len(names)) if place not in first)
    return RowAnswer(RowOutput(fields), tuple(first), rest, "r")


def _plain(expression: str | Column, names: Sequence[str]) -> str | None:
    """The input column that an order is, if it is one."""
    text = str(expression).removeprefix("Column<'").removesuffix("'>")
    return next((name for name in names if text in {quoted(name), name}), None)


def _check_names(answer: RowAnswer, compiled: CompiledRows) -> None:
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


# ---- Spark's side ------------------------------------------------------------------------------


def row_schema(answer: RowAnswer, compiled: CompiledRows, shipped: T.StructType) -> T.StructType:
    """The engine's output for Spark; `shipped` has the types as they travel."""
    payload = [
        T.StructField(f"{answer.prefix}{place}", shipped.fields[field.column].dataType)
        for place, field in enumerate(answer.output.columns)
    ]
    readings = [
        T.StructField(f"m{place}", _carried(each, shipped))
        for place, each in enumerate(compiled.readings)
    ]
    first = [T.StructField("first_row", T.LongType())] if compiled.rows == "one" else []
    return T.StructType([*payload, *readings, *first, T.StructField("metrics", T.StringType())])


def _carried(reading: Reading, shipped: T.StructType) -> T.DataType:
    """The type that a reading comes with; `shipped` has types as they travel, or their own."""
    if reading.source is not None:
        type_ = shipped.fields[reading.source].dataType
    else:
        type_ = data_type_of(reading.expression.type)
    return T.ArrayType(type_) if reading.shape == "list" else type_


def row_projected(
    found: Found, answer: RowAnswer, compiled: CompiledRows, raw: T.StructType
) -> DataFrame:
    """The answer from the matcher's rows; `raw` has the shipped columns' own types."""
    names = [each.name for each in compiled.variables]
    payload = [
        carriers.decode(F.col(f"{answer.prefix}{place}"), raw.fields[field.column].dataType)
        for place, field in enumerate(answer.output.columns)
    ]
    readings = [
        _read(F.col(f"m{place}"), each, names, raw).alias(reading_name(place))
        for place, each in enumerate(compiled.readings)
    ]
    kept = [each.alias(f"__cep_{place}") for place, each in enumerate(payload)]
    if answer.sought:
        # Closing rows pass the lookups, which add their own counts to them.
        decoded = looked_up(
            found.df.select(*kept, *readings, F.col(METRICS)),
            answer.sought,
            found.sources,
            Counts(found.counted, of_engine=True),
        )
    else:
        decoded = found.counted(found.df).select(*kept, *readings)

    def shown(place: int) -> Column:
        return F.col(f"__cep_{place}").alias(answer.output.columns[place].name)

    return decoded.select(
        *map(shown, answer.before),
        *[F.expr(each.sql).alias(each.name) for each in compiled.measures],
        *map(shown, answer.after),
    )


def _read(value: Column, reading: Reading, names: Sequence[str], raw: T.StructType) -> Column:
    if not reading.label:
        return carriers.decode(value, _carried(reading, raw))
    spelled = F.array(*[F.lit(name) for name in names])

    def name_of(number: Column) -> Column:
        # Not element_at: of an array without NULLs it takes a NULL place for the last (Spark 4.3).
        return F.get(spelled, number)

    return F.transform(value, name_of) if reading.shape == "list" else name_of(value)
