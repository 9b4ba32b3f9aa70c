"""After the engine: the answer from what the workers give back.

The rows of the workers hold a struct for each variable (`v0`, `v1`, ...), or what the measures of
a row pattern read. Here they get back their original types and the names that the user's
expressions know, so that conditions and measures over them are Spark's own to evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.rows.compiled import RowReading, reading_name
from spark_cep.spark import carriers
from spark_cep.spark.lookups import METRICS_COLUMN, MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.typing import data_type_of, quote_column

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
        named = _add_lookups(found, answer, _name_columns(answer, variables, raw), after)
    else:
        named = found.counted(found.df).select(*_name_columns(answer, variables, raw))
        for condition in after:
            named = named.filter(F.expr(condition))
    named = _drop_hidden_fields(named, answer, variables)
    if answer.shape == "rows":
        return _explode_events(named, answer, variables)
    if answer.shape == "measures":
        measures = [F.expr(each.sql).alias(each.name) for each in answer.measures]
        return named.select(*_partition_columns(answer, _variable_names(variables)), *measures)
    positive = [F.col(quote_column(each.name)) for each in variables if not each.negated]
    bounds = [F.col(name) for name in ("match_start", "match_end")]
    return named.select(*_partition_columns(answer, _variable_names(variables)), *positive, *bounds)


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
    found: MatchFrame, answer: AnswerShape, named: Sequence[Column], after: Sequence[str]
) -> DataFrame:
    """The matches with what measures look up. The rows of counts pass through the lookups, which
    add their own; where a variable has the name of their column, they are taken out before."""
    spelled = found.df.select(*named).columns
    if METRICS_COLUMN in {name.casefold() for name in spelled}:
        rows = found.counted(found.df).select(*named)
        for condition in after:
            rows = rows.filter(F.expr(condition))
        return add_lookups(rows, answer.sought, found.sources)
    rows = found.df.select(*named, F.col(METRICS_COLUMN))
    for condition in after:
        rows = rows.filter(
            F.when(F.col(METRICS_COLUMN).isNull(), F.expr(condition)).otherwise(True)
        )
    return add_lookups(
        rows, answer.sought, found.sources, MetricsSink(found.counted, of_engine=True)
    )


def _name_columns(
    answer: AnswerShape, variables: Sequence[Variable], raw: T.StructType
) -> list[Column]:
    """Everything that an expression may name. A variable's name hides all others, a partition
    column's those of the bounds."""
    output = answer.output
    columns = [F.col("match_number").alias("__cep_number")] if output.numbered else []
    columns += [
        _decode_struct(each, variables, raw).alias(variables[each.variable].name)
        for each in output.structs
    ]
    taken = _variable_names(variables)
    for place, field in enumerate(output.partition):
        original = raw.fields[field.column].dataType
        value = carriers.decode(F.col(f"p{place}"), original)
        columns.append(
            value.alias(_hidden_column(place) if field.name.casefold() in taken else field.name)
        )
    taken |= {field.name.casefold() for field in output.partition}
    for own, name in (("first", "match_start"), ("last", "match_end")):
        if output.bounds and name not in taken:
            columns.append(F.col(own).alias(name))
    return columns


def _variable_names(variables: Sequence[Variable]) -> set[str]:
    return {each.name.casefold() for each in variables if not each.negated}


def _hidden_column(place: int) -> str:
    return f"__cep_p{place}"


def _partition_columns(answer: AnswerShape, taken: set[str]) -> list[Column]:
    return [
        F.col(_hidden_column(place)).alias(name)
        if name.casefold() in taken
        else F.col(quote_column(name))
        for place, name in enumerate(answer.partition)
    ]


def _decode_struct(each: Struct, variables: Sequence[Variable], raw: T.StructType) -> Column:
    if each.flat:
        fields = zip(each.names(), each.fields, strict=True)
        return F.struct(
            *[
                carriers.decode(F.col(name), raw.fields[field.column].dataType).alias(field.name)
                for name, field in fields
            ]
        )
    original: T.DataType = struct_type(each.fields, raw)
    if variables[each.variable].is_list:
        original = T.ArrayType(original, False)
    return carriers.decode(F.col(f"v{each.variable}"), original)


def _event_rows(
    matches: DataFrame, answer: AnswerShape, variables: Sequence[Variable], raw: T.StructType
) -> DataFrame:
    """One row for each matched event, as the engine gives them."""
    names = F.array(*[F.lit(each.name) for each in variables])
    fields = [
        carriers.decode(F.col(f"f{place}"), raw.fields[field.column].dataType).alias(field.name)
        for place, field in enumerate(answer.output.row)
    ]
    variable = F.element_at(names, F.col("variable") + F.lit(1)).alias("variable")
    return matches.select(F.col("match_number").alias("match_id"), variable, *fields)


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
    first = [T.StructField("first_row", T.LongType())] if compiled.rows == "one" else []
    return T.StructType([*payload, *readings, *first, T.StructField("metrics", T.StringType())])


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
    payload = [
        carriers.decode(F.col(f"{answer.prefix}{place}"), raw.fields[field.column].dataType)
        for place, field in enumerate(answer.output.columns)
    ]
    readings = [
        _decode_reading(F.col(f"m{place}"), each, names, raw).alias(reading_name(place))
        for place, each in enumerate(compiled.readings)
    ]
    kept = [each.alias(f"__cep_{place}") for place, each in enumerate(payload)]
    if answer.sought:
        # The rows of counts pass through the lookups, which add their own.
        decoded = add_lookups(
            found.df.select(*kept, *readings, F.col(METRICS_COLUMN)),
            answer.sought,
            found.sources,
            MetricsSink(found.counted, of_engine=True),
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


def _decode_reading(
    value: Column, reading: RowReading, names: Sequence[str], raw: T.StructType
) -> Column:
    if not reading.label:
        return carriers.decode(value, _carried_type(reading, raw))
    spelled = F.array(*[F.lit(name) for name in names])

    def name_of(number: Column) -> Column:
        # Not element_at: of an array without NULLs it takes a NULL place for the last (Spark 4.3).
        return F.get(spelled, number)

    return F.transform(value, name_of) if reading.shape == "list" else name_of(value)
