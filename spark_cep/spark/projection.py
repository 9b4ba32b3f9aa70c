"""After the engine: the answer from what the workers give back.

The rows of the workers hold a struct for each variable (`v0`, `v1`, ...), or what the measures of
a row pattern read. Here they get back their original types and the names that the user's
expressions know, so that conditions and measures over them are Spark's own to evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.rows.compiled import RowReading, reading_name
from spark_cep.spark import carriers
from spark_cep.spark.aggregates import aggregate_lists, place_columns
from spark_cep.spark.lookups import METRICS_COLUMN, MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.selection import Expression, make_struct, quote_column, select_named
from spark_cep.spark.typing import data_type_of

if TYPE_CHECKING:
    from spark_cep.events.answer import AnswerShape
    from spark_cep.rows.compiled import CompiledRowPattern, RowAnswer
    from spark_cep.udfs.output import EventOutput, Field, Struct
    from spark_cep.udfs.program import Variable


@dataclass(frozen=True)
class MatchFrame:
    """The rows of the workers. Each bucket ends with a row of counts, which `counted` takes out.
    `sources`: what measures look up."""

    df: DataFrame
    counted: Callable[[DataFrame], DataFrame]
    sources: RemoteSources


# ---- event patterns ----------------------------------------------------------------------------


def event_schema(
    output: EventOutput, variables: Sequence[Variable], shipped: T.StructType
) -> T.StructType:
    """The schema of the workers' rows; `shipped` has the types as they travel."""
    columns = shipped.fields
    types: dict[str, T.DataType] = {"match_number": T.LongType(), "variable": T.IntegerType()}
    for each in output.structs:
        if each.flat:
            for name, field in zip(each.names(), each.fields, strict=True):
                types[name] = columns[field.column].dataType
            continue
        struct = struct_type(each.fields, shipped)
        is_list = variables[each.variable].is_list
        types[f"v{each.variable}"] = T.ArrayType(struct, False) if is_list else struct
    for place, field in enumerate(output.row):
        types[f"f{place}"] = columns[field.column].dataType
    for place, field in enumerate(output.partition):
        types[f"p{place}"] = columns[field.column].dataType
    types["first"] = types["last"] = columns[output.order].dataType
    types["metrics"] = T.StringType()
    return T.StructType([T.StructField(name, types[name]) for name in output.names()])


def struct_type(fields: Sequence[Field], columns: T.StructType) -> T.StructType:
    """A variable's struct, with the types and the nullability of `columns`."""
    chosen = [(field.name, columns.fields[field.column]) for field in fields]
    return T.StructType([T.StructField(name, c.dataType, c.nullable) for name, c in chosen])


def project_matches(
    found: MatchFrame,
    answer: AnswerShape,
    variables: Sequence[Variable],
    raw: T.StructType,
    after: Sequence[str],
) -> DataFrame:
    """The answer from the engine's matches; `raw` has the shipped columns' own types."""
    if answer.output.rows == "all":
        return _event_rows(found.counted(found.df), answer, variables, raw)
    if answer.sought:
        named = _add_lookups(found, answer, name_columns(answer, variables, raw), after)
    else:
        named = select_named(found.counted(found.df), name_columns(answer, variables, raw))
        for condition in after:
            named = named.filter(condition)
    named = _drop_hidden_fields(named, answer, variables)
    if answer.shape == "rows":
        return _explode_events(named, answer, variables)
    if answer.shape == "measures":
        measures = [(each.sql, each.name) for each in answer.measures]
        return select_named(named, [*partition_columns(answer, variables), *measures])
    positive = [each.name for each in variables if not each.negated]
    shown = [(quote_column(name), name) for name in (*positive, "match_start", "match_end")]
    return select_named(named, [*partition_columns(answer, variables), *shown])


def _drop_hidden_fields(
    named: DataFrame, answer: AnswerShape, variables: Sequence[Variable]
) -> DataFrame:
    """Without the fields that only conditions read."""
    for number in sorted({number for number, _ in answer.hidden}):
        name = variables[number].name
        fields = [quote_column(field) for variable, field in answer.hidden if variable == number]
        named = named.withColumn(name, F.col(quote_column(name)).dropFields(*fields))
    return named


def _add_lookups(
    found: MatchFrame,
    answer: AnswerShape,
    named: Sequence[tuple[Expression, str]],
    after: Sequence[str],
) -> DataFrame:
    """The matches with what measures look up. The rows of counts pass through the lookups, which
    add their own; where a variable has the name of their column, they are taken out before."""
    if METRICS_COLUMN in {name.casefold() for _, name in named}:
        rows = select_named(found.counted(found.df), named)
        for condition in after:
            rows = rows.filter(F.expr(condition))
        return add_lookups(rows, answer.sought, found.sources)
    rows = select_named(found.df, [*named, (METRICS_COLUMN, METRICS_COLUMN)])
    for condition in after:
        rows = rows.filter(
            F.when(F.col(METRICS_COLUMN).isNull(), F.expr(condition)).otherwise(True)
        )
    return add_lookups(
        rows, answer.sought, found.sources, MetricsSink(found.counted, of_engine=True)
    )


def name_columns(
    answer: AnswerShape, variables: Sequence[Variable], raw: T.StructType
) -> list[tuple[Expression, str]]:
    """Everything that an expression may name. A variable's name hides all others, a partition
    column's those of the bounds."""
    output = answer.output
    columns: list[tuple[Expression, str]] = []
    if output.numbered:
        columns.append(("match_number", "__cep_number"))
    columns += [
        (_decode_struct(each, variables, raw), variables[each.variable].name)
        for each in output.structs
    ]
    taken = _variable_names(variables)
    for place, field in enumerate(output.partition):
        value = carriers.decode_column(f"p{place}", raw.fields[field.column].dataType)
        name = _hidden_column(place) if field.name.casefold() in taken else field.name
        columns.append((value, name))
    taken |= {field.name.casefold() for field in output.partition}
    for own, name in (("first", "match_start"), ("last", "match_end")):
        if output.bounds and name not in taken:
            columns.append((own, name))
    return columns


def _variable_names(variables: Sequence[Variable]) -> set[str]:
    return {each.name.casefold() for each in variables if not each.negated}


def _hidden_column(place: int) -> str:
    return f"__cep_p{place}"


def partition_columns(
    answer: AnswerShape, variables: Sequence[Variable]
) -> list[tuple[Expression, str]]:
    """The partition columns under the names that an answer shows."""
    taken = _variable_names(variables)
    return [
        (_hidden_column(place) if name.casefold() in taken else quote_column(name), name)
        for place, name in enumerate(answer.partition)
    ]


def _decode_struct(each: Struct, variables: Sequence[Variable], raw: T.StructType) -> Expression:
    if each.flat:
        values = [
            (carriers.decode_column(name, raw.fields[field.column].dataType), field.name)
            for name, field in zip(each.names(), each.fields, strict=True)
        ]
        return make_struct(values)
    original: T.DataType = struct_type(each.fields, raw)
    if variables[each.variable].is_list:
        original = T.ArrayType(original, False)
    return carriers.decode_column(f"v{each.variable}", original)


def _event_rows(
    matches: DataFrame, answer: AnswerShape, variables: Sequence[Variable], raw: T.StructType
) -> DataFrame:
    """One row for each matched event, as the engine gives them."""
    names = F.array(*[F.lit(each.name) for each in variables])
    fields = [
        (carriers.decode_column(f"f{place}", raw.fields[field.column].dataType), field.name)
        for place, field in enumerate(answer.output.row)
    ]
    variable = F.element_at(names, F.col("variable") + F.lit(1))
    return select_named(matches, [("match_number", "match_id"), (variable, "variable"), *fields])


def _explode_events(
    named: DataFrame, answer: AnswerShape, variables: Sequence[Variable]
) -> DataFrame:
    """One row for each matched event, from the structs that Spark's conditions needed."""

    def labelled(name: str, row: Column) -> Column:
        return F.struct(F.lit(name).alias("variable"), row.alias("row"))

    lists = []
    for each in variables:
        if each.negated:
            continue
        value, name = F.col(quote_column(each.name)), each.name
        if each.is_list:
            lists.append(F.transform(value, partial(labelled, name)))
        else:
            lists.append(F.when(value.isNotNull(), F.array(labelled(name, value))))
    # An unfilled variable is NULL; concat would make everything NULL.
    events = F.flatten(F.filter(F.array(*lists), lambda each: each.isNotNull()))
    rows = named.select(F.col("__cep_number").alias("match_id"), F.explode(events).alias("event"))
    fields = [F.col("event.row").getField(name).alias(name) for name in answer.names]
    return rows.select("match_id", F.col("event.variable").alias("variable"), *fields)


# ---- row patterns ------------------------------------------------------------------------------


def row_schema(
    answer: RowAnswer, compiled: CompiledRowPattern, shipped: T.StructType
) -> T.StructType:
    """The schema of the workers' rows; `shipped` has the types as they travel."""
    payload = [
        T.StructField(f"{answer.prefix}{place}", shipped.fields[field.column].dataType)
        for place, field in enumerate(answer.output.columns)
    ]
    readings = [
        T.StructField(f"m{place}", _carried_type(each, shipped))
        for place, each in enumerate(compiled.readings)
    ]
    names = ["first_row"] if compiled.rows == "one" else []
    if answer.output.placed:
        names = ["first_row", "row"]
    places = [T.StructField(name, T.LongType()) for name in names]
    return T.StructType([*payload, *readings, *places, T.StructField("metrics", T.StringType())])


def _carried_type(reading: RowReading, shipped: T.StructType) -> T.DataType:
    """The type that a reading comes with; `shipped` has types as they travel, or their own."""
    if reading.source is not None:
        type_ = shipped.fields[reading.source].dataType
    else:
        type_ = data_type_of(reading.expression.type)
    return T.ArrayType(type_) if reading.shape == "list" else type_


def project_rows(
    found: MatchFrame, answer: RowAnswer, compiled: CompiledRowPattern, raw: T.StructType
) -> DataFrame:
    """The answer from the matcher's rows; `raw` has the shipped columns' own types."""
    names = [each.name for each in compiled.variables]
    columns = answer.output.columns
    decoded_items: list[tuple[Expression, str]] = [
        (
            carriers.decode_column(f"{answer.prefix}{place}", raw.fields[field.column].dataType),
            f"__cep_{place}",
        )
        for place, field in enumerate(columns)
    ]
    decoded_items += [
        (_decode_reading(f"m{place}", each, names, raw), reading_name(place))
        for place, each in enumerate(compiled.readings)
    ]
    decoded_items += place_columns(compiled)
    if answer.sought:
        # The rows of counts pass through the lookups, which add their own.
        decoded = add_lookups(
            select_named(found.df, [*decoded_items, (METRICS_COLUMN, METRICS_COLUMN)]),
            answer.sought,
            found.sources,
            MetricsSink(found.counted, of_engine=True),
        )
    else:
        decoded = select_named(found.counted(found.df), decoded_items)

    if compiled.aggregates:
        decoded = aggregate_lists(decoded, compiled, answer)

    def shown(places: Iterable[int]) -> list[tuple[Expression, str]]:
        return [(f"__cep_{place}", columns[place].name) for place in places]

    measures = [(each.sql, each.name) for each in compiled.measures]
    return select_named(decoded, [*shown(answer.before), *measures, *shown(answer.after)])


def _decode_reading(
    column: str, reading: RowReading, names: Sequence[str], raw: T.StructType
) -> Expression:
    if not reading.label:
        return carriers.decode_column(column, _carried_type(reading, raw))
    value, spelled = F.col(column), F.array(*[F.lit(name) for name in names])

    def name_of(number: Column) -> Column:
        # Not element_at: of an array without NULLs it takes a NULL place for the last (Spark 4.3).
        return F.get(spelled, number)

    return F.transform(value, name_of) if reading.shape == "list" else name_of(value)
