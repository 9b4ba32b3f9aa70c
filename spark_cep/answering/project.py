"""After the engine: conditions that only Spark can test, measures, names, original types.

The engine's rows have a struct for each variable (`v0`, `v1`, ...). Here they get the names that
the user's expressions know, so those expressions are Spark's own to evaluate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.answering.answer import Answer, struct_type
from spark_cep.remotes.outside import Sources, looked_up
from spark_cep.remotes.stage import METRICS, Counts
from spark_cep.shipping import carriers
from spark_cep.shipping.typing_by_spark import quoted

if TYPE_CHECKING:
    from spark_cep.udfs.output import Struct
    from spark_cep.udfs.program import Variable


@dataclass(frozen=True)
class Found:
    """What the engine gave, closing rows with its counts among it. `counted`: takes these out.
    `sources`: what measures look up."""

    df: DataFrame
    counted: Callable[[DataFrame], DataFrame]
    sources: Sources


def projected(
    found: Found,
    answer: Answer,
    variables: Sequence[Variable],
    raw: T.StructType,
    after: Sequence[str],
) -> DataFrame:
    """The answer from the engine's matches; `raw` has the shipped columns' own types."""
    if answer.output.rows == "all":
        return _rows(found.counted(found.df), answer, variables, raw)
    if answer.sought:
        named = _looked_up(found, answer, _named(answer, variables, raw), after)
    else:
        named = found.counted(found.df).select(*_named(answer, variables, raw))
        for condition in after:
            named = named.filter(F.expr(condition))
    named = _shown(named, answer, variables)
    if answer.shape == "rows":
        return _exploded(named, answer, variables)
    if answer.shape == "measures":
        measures = [F.expr(each.sql).alias(each.name) for each in answer.measures]
        return named.select(*_partition(answer, _taken(variables)), *measures)
    positive = [F.col(quoted(each.name)) for each in variables if not each.negated]
    bounds = [F.col(name) for name in ("match_start", "match_end")]
    return named.select(*_partition(answer, _taken(variables)), *positive, *bounds)


def _shown(named: DataFrame, answer: Answer, variables: Sequence[Variable]) -> DataFrame:
    """Without the fields that only conditions read."""
    for number in sorted({number for number, _ in answer.hidden}):
        name = variables[number].name
        fields = [quoted(field) for variable, field in answer.hidden if variable == number]
        named = named.withColumn(name, F.col(quoted(name)).dropFields(*fields))
    return named


def _looked_up(
    found: Found, answer: Answer, named: Sequence[Column], after: Sequence[str]
) -> DataFrame:
    """The matches with what measures look up. The closing rows pass the lookups, which add their
    own counts to them; where a variable has the counts' name, they go before."""
    spelled = found.df.select(*named).columns
    if METRICS in {name.casefold() for name in spelled}:
        rows = found.counted(found.df).select(*named)
        for condition in after:
            rows = rows.filter(F.expr(condition))
        return looked_up(rows, answer.sought, found.sources)
    rows = found.df.select(*named, F.col(METRICS))
    for condition in after:
        rows = rows.filter(F.when(F.col(METRICS).isNull(), F.expr(condition)).otherwise(True))
    return looked_up(rows, answer.sought, found.sources, Counts(found.counted, of_engine=True))


def _named(answer: Answer, variables: Sequence[Variable], raw: T.StructType) -> list[Column]:
    """Everything that an expression may name. A variable's name hides all others, a partition
    column's those of the bounds."""
    output = answer.output
    columns = [F.col("match_number").alias("__cep_number")] if output.numbered else []
    columns += [
        _struct(each, variables, raw).alias(variables[each.variable].name)
        for each in output.structs
    ]
    taken = _taken(variables)
    for place, field in enumerate(output.partition):
        original = raw.fields[field.column].dataType
        value = carriers.decode(F.col(f"p{place}"), original)
        columns.append(
            value.alias(_hidden(place) if field.name.casefold() in taken else field.name)
        )
    taken |= {field.name.casefold() for field in output.partition}
    for own, name in (("first", "match_start"), ("last", "match_end")):
        if output.bounds and name not in taken:
            columns.append(F.col(own).alias(name))
    return columns


def _taken(variables: Sequence[Variable]) -> set[str]:
    return {each.name.casefold() for each in variables if not each.negated}


def _hidden(place: int) -> str:
    return f"__cep_p{place}"


def _partition(answer: Answer, taken: set[str]) -> list[Column]:
    return [
        F.col(_hidden(place)).alias(name) if name.casefold() in taken else F.col(quoted(name))
        for place, name in enumerate(answer.partition)
    ]


def _struct(each: Struct, variables: Sequence[Variable], raw: T.StructType) -> Column:
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


def _rows(
    matches: DataFrame, answer: Answer, variables: Sequence[Variable], raw: T.StructType
) -> DataFrame:
    """One row for each matched event, as the engine gives them."""
    names = F.array(*[F.lit(each.name) for each in variables])
    fields = [
        carriers.decode(F.col(f"f{place}"), raw.fields[field.column].dataType).alias(field.name)
        for place, field in enumerate(answer.output.row)
    ]
    variable = F.element_at(names, F.col("variable") + F.lit(1)).alias("variable")
    return matches.select(F.col("match_number").alias("match_id"), variable, *fields)


def _exploded(named: DataFrame, answer: Answer, variables: Sequence[Variable]) -> DataFrame:
    """One row for each matched event, from the structs that Spark's conditions needed."""

    def labelled(name: str, row: Column) -> Column:
        return F.struct(F.lit(name).alias("variable"), row.alias("row"))

    lists = []
    for each in variables:
        if each.negated:
            continue
        value, name = F.col(quoted(each.name)), each.name
        if each.is_list:
            lists.append(F.transform(value, partial(labelled, name)))
        else:
            lists.append(F.when(value.isNotNull(), F.array(labelled(name, value))))
    # An unfilled variable is NULL; concat would make everything NULL.
    events = F.flatten(F.filter(F.array(*lists), lambda each: each.isNotNull()))
    rows = named.select(F.col("__cep_number").alias("match_id"), F.explode(events).alias("event"))
    fields = [F.col("event.row").getField(name).alias(name) for name in answer.names]
    return rows.select("match_id", F.col("event.variable").alias("variable"), *fields)
