"""The answer's shape: which columns the engine gives back, and as which Spark types.

Three shapes. "structs" is the default: one struct for each positive variable. "measures" has the
user's expressions instead, so only the columns that they read are shipped. "rows" is one row for
each matched event; the engine gives it directly, unless Spark has conditions left to test, which
need the structs.

Always holds: the names of an answer's columns are different, ignoring case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.errors import PatternError
from spark_cep.rows.compiled import RowReading, reading_name
from spark_cep.spark import carriers
from spark_cep.spark.lookups import METRICS_COLUMN, MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.typing import data_type_of, quote_column
from spark_cep.udfs.output import EventOutput, Field, RowOutput, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from spark_cep.expressions.remote_calls import LookupRequest
    from spark_cep.expressions.shipment import Shipment
    from spark_cep.rows.compiled import CompiledRowPattern, RowMeasure
    from spark_cep.udfs.program import Variable


AnswerKind = Literal["structs", "measures", "rows"]

# A variable of which no column is needed still has to say whether it is filled.
PRESENT_FIELD = "__cep_present"


@dataclass(frozen=True)
class AnswerMeasure:
    """A measure. `sql` is over the variables' structs, `text` is what the user wrote."""

    name: str
    sql: str
    text: str


@dataclass(frozen=True)
class AnswerShape:
    """`names` are the input's columns, `partition` the names of the partition columns. `sought`:
    what is looked up for matches before the measures are computed. `hidden`: variables' fields
    that Spark's conditions read and no answer shows."""

    shape: AnswerKind
    output: EventOutput
    names: tuple[str, ...]
    partition: tuple[str, ...]
    measures: tuple[AnswerMeasure, ...] = ()
    sought: tuple[LookupRequest, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class AnswerRequest:
    """What the answer is to hold. `reads`: the input columns that measures and Spark's
    conditions read of each variable id; None: all columns of all variables. `after`: those
    conditions. `sought`: remote data that the measures read. `hidden`: what conditions read of
    variables besides the input's columns."""

    shape: AnswerKind
    measures: tuple[AnswerMeasure, ...]
    reads: Mapping[int, Iterable[str]] | None
    after: tuple[str, ...] = ()
    sought: tuple[LookupRequest, ...] = ()
    hidden: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class AnswerInputs:
    """What there is: the input's column names, the partition columns by name and shipped index,
    the shipped event time, and the variables that every match fills."""

    names: tuple[str, ...]
    partition: tuple[tuple[str, int], ...]
    order: int
    always: frozenset[int]


def build_answer_shape(
    wanted: AnswerRequest, variables: Sequence[Variable], given: AnswerInputs, shipment: Shipment
) -> AnswerShape:
    """Asks the shipment for the payload and lays out the engine's output."""
    names, order = given.names, given.order
    keys = tuple(Field(column, name) for name, column in given.partition)
    shown = tuple(name for name, _ in given.partition)
    everything: tuple[Field, ...] = ()
    if wanted.reads is None:
        everything = tuple(Field(shipment.column(quote_column(name)), name) for name in names)
    if wanted.shape == "rows" and not wanted.after:
        output = EventOutput("all", order, row=everything)
        return AnswerShape("rows", output, names, shown)
    structs = tuple(
        Struct(
            number,
            (*everything, *_hidden_fields(wanted, number, shipment))
            or _fields_read(wanted, number, shipment, order),
            flat=not each.is_list and number in given.always,
        )
        for number, each in enumerate(variables)
        if not each.negated and _mentions(wanted, each.name)
    )
    output = EventOutput(
        "one",
        order,
        structs=structs,
        partition=keys,
        bounds=_mentions(wanted, "match_start") or _mentions(wanted, "match_end"),
        numbered=wanted.shape == "rows",
    )
    hidden = wanted.hidden if everything else ()
    return AnswerShape(wanted.shape, output, names, shown, wanted.measures, wanted.sought, hidden)


def _hidden_fields(wanted: AnswerRequest, number: int, shipment: Shipment) -> Iterator[Field]:
    """Where all columns are shown; among those that are read they are like any other."""
    if wanted.reads is None:
        for variable, name in wanted.hidden:
            if variable == number:
                yield Field(shipment.column(quote_column(name)), name)


def _fields_read(
    wanted: AnswerRequest, number: int, shipment: Shipment, order: int
) -> tuple[Field, ...]:
    names = sorted(set((wanted.reads or {}).get(number, ())))
    fields = tuple(Field(shipment.column(quote_column(name)), name) for name in names)
    return fields or (Field(order, PRESENT_FIELD),)


def _mentions(wanted: AnswerRequest, name: str) -> bool:
    """Whether the name may stand in what Spark evaluates; all do in the default answer."""
    if wanted.shape != "measures":
        return True
    keys = [key for each in wanted.sought for key in each.keys]
    texts = [*(each.sql for each in wanted.measures), *wanted.after, *keys]
    return any(name.casefold() in text.casefold() for text in texts)


def check_names(
    wanted: AnswerRequest,
    variables: Sequence[Variable],
    names: Sequence[str],
    partition: Sequence[str],
) -> None:
    """Refuses an answer with two columns of one name."""
    if wanted.shape == "rows":
        _check_rows(names)
        return
    taken = {name.casefold(): f"the partition column {name!r}" for name in partition}
    if wanted.shape == "measures":
        shown = [(each.name, f"the measure {each.name!r}") for each in wanted.measures]
        hint = "give the measure another name"
    else:
        shown = [
            (each.name, f"the variable {each.name!r}") for each in variables if not each.negated
        ]
        shown += [("match_start", "the column match_start"), ("match_end", "the column match_end")]
        hint = (
            "give the variable another name, rename the column, or say with measures= what to show"
        )
    for name, what in shown:
        other = taken.setdefault(name.casefold(), what)
        if other is not what:
            raise PatternError(
                f"the answer would have two columns called {name!r}: {other} and {what}", hint=hint
            )


def _check_rows(names: Sequence[str]) -> None:
    for name in names:
        if name.casefold() in {"match_id", "variable"}:
            raise PatternError(
                f'rows="all" adds a column {name.casefold()!r}, and the input has one already',
                hint=f'rename the input\'s: df.withColumnRenamed("{name}", "input_{name}")',
            )


def worker_schema(
    output: EventOutput, variables: Sequence[Variable], shipped: T.StructType
) -> T.StructType:
    """The engine's output for Spark; `shipped` has the types as they travel."""
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


# --------------------------------------------------------------------------------------------------
# After the engine: conditions that only Spark can test, measures, names, original types.
#
# The engine's rows have a struct for each variable (`v0`, `v1`, ...). Here they get the names that
# the user's expressions know, so those expressions are Spark's own to evaluate.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchFrame:
    """What the engine gave, closing rows with its counts among it. `counted`: takes these out.
    `sources`: what measures look up."""

    df: DataFrame
    counted: Callable[[DataFrame], DataFrame]
    sources: RemoteSources


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
    """The matches with what measures look up. The closing rows pass the lookups, which add their
    own counts to them; where a variable has the counts' name, they go before."""
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


# --------------------------------------------------------------------------------------------------
# The answer of a row pattern: its columns in SQL's order, and how Spark gets them.
#
#     one row a match     partition columns, measures
#     all rows            partition columns, order columns, measures, the input's other columns
#
# An order column that is no plain column of the input has no place among them. One that is named
# twice, or partitions too, stands there as often, as the standard has it; all other names differ,
# ignoring case.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowAnswer:
    """`before` and `after` the measures: places among the output's columns. `sought`: what is
    looked up before the measures are computed, by keys over the readings."""

    output: RowOutput
    before: tuple[int, ...]
    after: tuple[int, ...]
    prefix: str
    sought: tuple[LookupRequest, ...] = ()

    def names(self, measures: Sequence[RowMeasure]) -> list[str]:
        """The columns of the answer."""
        columns = self.output.columns
        return [
            *(columns[place].name for place in self.before),
            *(each.name for each in measures),
            *(columns[place].name for place in self.after),
        ]


@dataclass(frozen=True)
class RowAnswerInputs:
    """What there is: the input's column names, the partition columns by name and shipped index,
    and the remote data that measures read."""

    names: tuple[str, ...]
    partition: tuple[tuple[str, int], ...]
    sought: tuple[LookupRequest, ...] = ()


def build_row_answer(
    compiled: CompiledRowPattern, given: RowAnswerInputs, shipment: Shipment
) -> RowAnswer:
    """Asks the shipment for what the answer shows."""
    if compiled.rows == "one":
        keys = tuple(Field(column, name) for name, column in given.partition)
        answer = RowAnswer(RowOutput(keys), tuple(range(len(keys))), (), "p")
    else:
        answer = _all_rows(compiled, given, shipment)
    _check_row_names(answer, compiled)
    return replace(answer, sought=given.sought)


def _all_rows(
    compiled: CompiledRowPattern, given: RowAnswerInputs, shipment: Shipment
) -> RowAnswer:
    names = given.names
    fields = tuple(Field(shipment.column(quote_column(name)), name) for name in names)
    ordered = [_plain_column(each.expression, names) for each in compiled.orders]
    first = [names.index(each) for each in (*compiled.partition, *filter(None, ordered))]
    rest = tuple(place for place in range(len(names)) if place not in first)
    return RowAnswer(RowOutput(fields), tuple(first), rest, "r")


def _plain_column(expression: str | Column, names: Sequence[str]) -> str | None:
    """The input column that an order is, if it is one."""
    text = str(expression).removeprefix("Column<'").removesuffix("'>")
    return next((name for name in names if text in {quote_column(name), name}), None)


def _check_row_names(answer: RowAnswer, compiled: CompiledRowPattern) -> None:
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


def row_schema(
    answer: RowAnswer, compiled: CompiledRowPattern, shipped: T.StructType
) -> T.StructType:
    """The engine's output for Spark; `shipped` has the types as they travel."""
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
        # Closing rows pass the lookups, which add their own counts to them.
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
