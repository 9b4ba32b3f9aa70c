"""Lookups in Spark: types of keys and values, tables joined to rows, the lookup stage, and the
sources that the engine uses while it matches.

A table is joined, or collected for the workers if its key is made of several variables. Everything
else is fetched, in the engine or by a stage of its own before or after it. Keys that may fail are
computed only on rows that meet the variable's other conditions, as far as these look nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.errors import PatternError
from spark_cep.expressions.lookups import (
    EngineRemote,
    LookupColumn,
    Lookups,
    RemoteSchema,
    TypeTree,
    key_type,
)
from spark_cep.expressions.remote_calls import LookupRequest
from spark_cep.expressions.types import common_type
from spark_cep.remote import Remote, RemoteFunction, RemoteTable
from spark_cep.remotes.sources import (
    RemoteChoice,
    choose_for_table,
    choose_outside,
    choose_strategy,
    make_remote_spec,
    new_token,
)
from spark_cep.spark import carriers
from spark_cep.spark.entry import make_stage_entry
from spark_cep.spark.prepare import candidate_mask
from spark_cep.spark.selection import as_column, quote_column
from spark_cep.spark.source import is_setting_on
from spark_cep.spark.typing import data_type_of, error_sentence, type_of
from spark_cep.spark.versions import arrow_type, collect_arrow, silence_spark
from spark_cep.udfs.errors import RemoteError, WorkerError
from spark_cep.udfs.remote_spec import RemoteSpec
from spark_cep.udfs.remotes.keys import LocalTable
from spark_cep.udfs.remotes.stage import LookupStage, StageColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.expressions.schema import RowExpression
    from spark_cep.spark.source import SourceFrame
    from spark_cep.spark.typing import SparkTyper
    from spark_cep.udfs.expressions import Type


# ---- types ---------------------------------------------------------------------------------------
#
# Spark reads DDL, in the session of the DataFrame that a source meets: an analysis without a job,
# which Connect sessions can do as well.


def value_type(remote: Remote, name: str, session: SparkSession) -> T.DataType:
    """The type of the values of a source."""
    source = remote.source
    if isinstance(source, RemoteTable):
        schema = source.df.schema
        if isinstance(source.value, str):
            return schema[source.value].dataType
        names = source.value or tuple(n for n in schema.names if n not in source.key)
        return T.StructType([T.StructField(n, schema[n].dataType) for n in names])
    one_row = session.sql("SELECT * FROM VALUES (1) AS t(`__cep_one`)")
    with silence_spark():
        try:
            found = one_row.select(F.lit(None).cast(source.value_type).alias("v")).schema
        except PySparkException as problem:
            raise PatternError(
                f"value_type of the remote {name!r}, {source.value_type!r}, is not a type of Spark "
                f"SQL: {error_sentence(problem)}",
                hint='write "double", "array<string>" or "struct<max: double, region: string>"',
            ) from None
    return found.fields[0].dataType


def table_key_types(remote: Remote) -> tuple[T.DataType, ...] | None:
    """The types of a table's key columns; None for a function, which takes any key."""
    source = remote.source
    if not isinstance(source, RemoteTable):
        return None
    schema = source.df.schema
    return tuple(schema[name].dataType for name in source.key)


def shape_of(data_type: T.DataType) -> TypeTree:
    """The type as the compiler sees it, with its fields and elements.

    >>> shape_of(T.ArrayType(T.StringType())).element.type.kind
    'string'
    """
    fields: tuple[tuple[str, TypeTree], ...] = ()
    if isinstance(data_type, T.StructType):
        fields = tuple((field.name, shape_of(field.dataType)) for field in data_type)
    is_array = isinstance(data_type, T.ArrayType)
    element = shape_of(data_type.elementType) if is_array else None  # type: ignore[attr-defined]
    return TypeTree(type_of(data_type), data_type.simpleString(), fields, element)


def arrow_type_of(data_type: T.DataType) -> pa.DataType:
    return arrow_type(data_type)


# ---- the lookup stage ----------------------------------------------------------------------------
#
# df -> keys as columns -> mapInArrow: request the next batches, pass on this one -> df + values
#
# The stage serves what the engine does not look up: measures on matches, row patterns, and
# conditions that only Spark can evaluate. Keys and values are columns, so any Spark function may
# use them.
#
# A row leaves as it came, bit for bit, and in its place. A NULL key is not requested, and a key
# once per batch, however many rows have it.
#
# The counts travel with the rows, so they arrive from batches, streams and Connect sessions alike,
# which accumulators would not. After the engine they join its own counts in the closing rows;
# before it they are beside the last row of each partition.


METRICS_COLUMN = "metrics"


@dataclass(frozen=True)
class FetchedColumn:
    """The value of `remote` for `keys` (SQL or Columns over the rows) as the column `name`."""

    remote: RemoteSpec
    keys: tuple[str | Column, ...]
    name: str
    type: T.DataType


@dataclass(frozen=True)
class MetricsSink:
    """Where counts go. `take` receives the rows with a text column `metrics` and returns the rows
    with which the query continues. `of_engine`: the column exists already, with the counts of the
    engine in closing rows, which `take` removes."""

    take: Callable[[DataFrame], DataFrame]
    of_engine: bool = False


def add_lookup_stage(
    df: DataFrame, wanted: Sequence[FetchedColumn], counts: MetricsSink | None = None
) -> DataFrame:
    """`df` with the values behind its columns, and without the counts of the engine."""
    of_engine = counts is not None and counts.of_engine
    if not wanted:
        return counts.take(df).drop(METRICS_COLUMN) if counts is not None and of_engine else df
    fields = df.schema.fields
    inside = [f"p{place}" for place in range(len(fields))]
    if of_engine:
        inside[df.columns.index(METRICS_COLUMN)] = METRICS_COLUMN
    sent = _stage_input(df, inside, wanted, of_engine=of_engine)
    values = [
        T.StructField(f"v{place}", carriers.carrier_type(w.type)) for place, w in enumerate(wanted)
    ]
    metrics = [] if of_engine else [T.StructField(METRICS_COLUMN, T.StringType())]
    schema = T.StructType([*sent.schema.fields[: len(fields)], *values, *metrics])
    found = sent.mapInArrow(
        make_stage_entry(_make_stage(wanted, schema, of_engine=of_engine)), schema
    )
    if counts is not None:
        found = counts.take(found)
    own = [
        carriers.decode(F.col(name), field.dataType).alias(field.name)
        for field, name in zip(fields, inside, strict=True)
        if name != METRICS_COLUMN
    ]
    added = [
        carriers.decode(F.col(f"v{place}"), each.type).alias(each.name)
        for place, each in enumerate(wanted)
    ]
    return found.select(*own, *added)


def _stage_input(
    df: DataFrame, inside: Sequence[str], wanted: Sequence[FetchedColumn], *, of_engine: bool
) -> DataFrame:
    """The rows as they are sent, with the keys behind them."""
    fields = zip(df.schema.fields, inside, strict=True)
    payload = [
        carriers.encode(F.col(quote_column(field.name)), field.dataType).alias(name)
        for field, name in fields
    ]
    keys = [
        _stage_key(key, of_engine=of_engine).alias(f"k{place}_{part}")
        for place, each in enumerate(wanted)
        for part, key in enumerate(each.keys)
    ]
    return df.select(*payload, *keys)


def _stage_key(key: str | Column, *, of_engine: bool) -> Column:
    """A key, but not in a closing row: it has none, and computing one might fail."""
    column = F.expr(key) if isinstance(key, str) else key
    return F.when(F.col(METRICS_COLUMN).isNull(), column) if of_engine else column


def _make_stage(
    wanted: Sequence[FetchedColumn], schema: T.StructType, *, of_engine: bool
) -> LookupStage:
    names = tuple(schema.names)
    counts = names.index(METRICS_COLUMN) if of_engine else None
    place = len(names) - len(wanted) - (not of_engine)
    columns = []
    for each in wanted:
        type_ = arrow_type(carriers.carrier_type(each.type))
        columns.append(StageColumn(each.remote, tuple(range(place, place + len(each.keys))), type_))
        place += len(each.keys)
    return LookupStage(tuple(columns), names, counts)


# ---- joins ---------------------------------------------------------------------------------------
#
# A table is joined from the left, so no row is lost, and it is made unique by key first, so none is
# doubled. Spark decides by size whether it is broadcast or both sides are shuffled. Keys are equal
# if Spark's `=` says so, in the type in which it compares: '1' and '01' are two strings and one
# number. NULL equals nothing, so a row without a key gets NULL, like one whose key is not in the
# table.


_VALUE = "__cep_value"
_ROWS = "__cep_rows"
_ANSI = "spark.sql.ansi.enabled"


def join_table(df: DataFrame, remote: Remote, sought: LookupRequest) -> DataFrame:
    """`df` with the value of the table behind its columns."""
    own = [F.col(quote_column(column)) for column in df.columns]
    of_rows = [f"{sought.column}_k{place}" for place in range(len(sought.keys))]
    of_table = [f"{sought.column}_t{place}" for place in range(len(sought.keys))]
    keys = zip(sought.keys, of_rows, strict=True)
    rows = df.select("*", *[F.expr(key).alias(column) for key, column in keys])
    table = make_unique(
        remote, sought.remote, of_table, _comparison_types(rows.select(*of_rows), remote)
    )
    equal = [F.col(one) == F.col(other) for one, other in zip(of_rows, of_table, strict=True)]
    both = rows.join(table, reduce(Column.__and__, equal), "left")
    return both.select(*own, F.col(_VALUE).alias(sought.column))


def _comparison_types(keys: DataFrame, remote: Remote) -> list[T.DataType | None]:
    """The types in which Spark compares the parts of the key; None for the type of the table."""
    source = remote.source
    assert isinstance(source, RemoteTable)
    schema, found = source.df.schema, list[T.DataType | None]()
    for part, column in zip(keys.schema, source.key, strict=True):
        key, own = type_of(part.dataType), type_of(schema[column].dataType)
        both = own if key == own else _common_type(key, own, ansi=is_setting_on(keys, _ANSI))
        found.append(None if both is None or both == own else data_type_of(both))
    return found


def _common_type(key: Type, own: Type, *, ansi: bool) -> Type | None:
    """The type of a comparison. Without ANSI, a string is cast to the type of the other side."""
    both = common_type(key, own, ansi=ansi)
    return key if both is None and own.kind == "string" and not ansi else both


def make_unique(
    remote: Remote,
    called: str,
    names: Sequence[str],
    types: Sequence[T.DataType | None] = (),
) -> DataFrame:
    """The keys of the table as columns `names`, each key once, and its value as the last column. A
    second row of a key ends the query. `types`: what the parts of the key are cast to first."""
    source = remote.source
    assert isinstance(source, RemoteTable)
    keys = [F.col(quote_column(column)) for column in source.key]
    keys = [k if t is None else k.cast(t) for k, t in zip_longest(keys, types)]
    own = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    table = source.df.select(*own, _value_column(source).alias(_VALUE))
    # A NULL key equals no key of a row.
    table = table.filter(reduce(Column.__and__, [F.col(name).isNotNull() for name in names]))
    once = table.groupBy(*names).agg(F.first(_VALUE).alias(_VALUE), F.count("*").alias(_ROWS))
    value = F.when(
        F.col(_ROWS) > 1, F.raise_error(F.lit(_duplicate_key_error(called, source, types)))
    )
    return once.select(*names, value.otherwise(F.col(_VALUE)).alias(_VALUE))


def _value_column(source: RemoteTable) -> Column:
    if isinstance(source.value, str):
        return F.col(quote_column(source.value))
    names = source.value or [name for name in source.df.columns if name not in source.key]
    return F.struct(*[F.col(quote_column(name)) for name in names])


def _duplicate_key_error(
    called: str, source: RemoteTable, types: Sequence[T.DataType | None]
) -> str:
    """The error in the form of errors from workers."""
    own = source.df.schema
    cast = [
        t.simpleString().upper()
        for column, t in zip(source.key, types, strict=False)
        if t is not None and type_of(t).kind != type_of(own[column].dataType).kind
    ]
    compared = f", compared as {' and '.join(cast)}" if cast else ""
    hint = f"make it unique first: table.dropDuplicates({list(source.key)}), or group it by its key"
    if cast:
        hint = "cast the column of the table or the key, then make the table unique"
    columns = ", ".join(source.key)
    error = RemoteError(
        f"the remote table {called!r} has two rows for one {columns}{compared}", hint=hint
    )
    return str(WorkerError(error))


# ---- collected tables ----------------------------------------------------------------------------
#
# If the key is made of rows of several variables, no input row has it and there is nothing to join,
# so the workers get all of the table. It is collected when match_pattern is called, and does not
# change afterwards.


# The limit of a collected table, as JSON. Spark broadcasts up to 10 MB by itself; the driver and
# each worker can hold this much.
MOST_BYTES = 100 << 20


def collect_table(
    remote: Remote,
    name: str,
    keys: Sequence[DataType],
    types: tuple[Sequence[pa.DataType], pa.DataType],
) -> LocalTable:
    """The table with its keys cast to `keys`. `types`: of keys and value in the workers."""
    names = [f"k{place}" for place in range(len(keys))]
    table = make_unique(remote, name, names, keys)
    table = table.withColumnRenamed(table.columns[-1], "value")
    size = table.select(F.sum(F.octet_length(F.to_json(F.struct("*"))))).collect()[0][0] or 0
    if size > MOST_BYTES:
        raise PatternError(
            f"the remote table {name!r} is too large to send to every worker: "
            f"{size >> 20:,} MB, and the limit is {MOST_BYTES >> 20} MB",
            hint="its key is made of several variables, so it cannot be joined to the input; look "
            "it up by one variable's columns, or fetch values with cep.Remote.fetch or .sql",
        )
    schema = pa.schema([*zip(names, types[0], strict=True), ("value", types[1])])
    return LocalTable(collect_arrow(table).cast(schema))


# ---- lookups outside the engine ------------------------------------------------------------------


@dataclass(frozen=True)
class RemoteSources:
    """The remote sources of one call of match_pattern, by name."""

    remotes: Mapping[str, Remote]
    session: SparkSession
    token: str = field(default_factory=new_token)

    def types(self) -> dict[str, str]:
        """The types of the values, as DDL."""
        return {name: ddl_of(self.type(name)) for name in self.remotes}

    def type(self, name: str) -> T.DataType:
        return value_type(self.remotes[name], name, self.session)


def add_lookups(
    df: DataFrame,
    sought: Sequence[LookupRequest],
    sources: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    """`df` with a column for each value. `counts`: as in `add_lookup_stage`."""
    fetched = [each for each in sought if not sources.remotes[each.remote].is_table]
    # Before the joins, which may move the closing row of a partition.
    found = add_lookup_stage(df, _lookup_columns(df, fetched, sources), counts)
    for each in sought:
        remote = sources.remotes[each.remote]
        if remote.is_table:
            found = join_table(found, remote, each)
    return found


def _lookup_columns(
    df: DataFrame, sought: Sequence[LookupRequest], sources: RemoteSources
) -> list[FetchedColumn]:
    found = []
    for name in dict.fromkeys(each.remote for each in sought):
        own = [each for each in sought if each.remote == name]
        source, value = sources.remotes[name].source, sources.type(name)
        assert isinstance(source, RemoteFunction)
        columns, types = _key_columns(df, name, [each.keys for each in own])
        keys = [arrow_type(each) for each in types]
        given = arrow_type(carriers.carrier_type(value))
        how = choose_outside(source.strategy, source.caching)
        remote = make_remote_spec(sources.remotes[name], name, (keys, given), how, sources.token)
        found += [
            FetchedColumn(remote, tuple(key), each.column, value)
            for each, key in zip(own, columns, strict=True)
        ]
    return found


def _key_columns(
    df: DataFrame, name: str, calls: Sequence[tuple[str, ...]]
) -> tuple[list[list[Column]], list[T.DataType]]:
    """The keys of all calls of a source, and the types of their parts. Each part has one type, so
    that equal keys are one key wherever they come from."""
    if len({len(keys) for keys in calls}) > 1:
        raise PatternError(
            f"remote('{name}', ...) is called with {min(map(len, calls))} keys and with "
            f"{max(map(len, calls))}",
            hint="write all parts of the key in every call",
        )
    types = [
        _key_part_type(df, name, [keys[place] for keys in calls]) for place in range(len(calls[0]))
    ]
    columns = [
        [F.expr(key).cast(type_) for key, type_ in zip(keys, types, strict=True)] for keys in calls
    ]
    return columns, types


def _key_part_type(df: DataFrame, name: str, parts: Sequence[str]) -> T.DataType:
    both = F.coalesce(*map(F.expr, parts)) if len(parts) > 1 else F.expr(parts[0])
    own_parts = [F.expr(part).alias(f"k{place}") for place, part in enumerate(parts)]
    own, *each = (field.dataType for field in df.select(both.alias("k"), *own_parts).schema)
    kinds = {type_of(one).kind: one.simpleString().upper() for one in each}
    if "string" in kinds and len(kinds.keys() - {"null"}) > 1:
        # Spark would cast the strings, and that may fail.
        raise PatternError(
            f"the keys of the remote {name!r} are of types {' and '.join(kinds.values())}",
            hint="cast the key in one of them",
        )
    found = key_type(type_of(own))
    if found is None:
        raise PatternError(
            f"a key of the remote {name!r} is of type {own.simpleString()}",
            hint="a key is made of plain values: use one row of a list, first(b.org), or the "
            "fields of a struct as several keys",
        )
    wide = {"int": T.LongType(), "float": T.DoubleType()}
    return wide.get(found.kind, own)


def ddl_of(type_: T.DataType) -> str:
    """A type in Spark's DDL, with quoted field names.

    >>> ddl_of(T.StructType([T.StructField("at most", T.ArrayType(T.LongType()))]))
    'struct<`at most`:array<bigint>>'
    """
    if isinstance(type_, T.StructType):
        fields = (f"{quote_column(each.name)}:{ddl_of(each.dataType)}" for each in type_)
        return f"struct<{','.join(fields)}>"
    if isinstance(type_, T.ArrayType):
        return f"array<{ddl_of(type_.elementType)}>"
    if isinstance(type_, T.MapType):
        return f"map<{ddl_of(type_.keyType)},{ddl_of(type_.valueType)}>"
    return type_.simpleString()


_GUARD_PREFIX = "__cep_may_"


def lookups_of(sources: RemoteSources, source: SourceFrame, typer: SparkTyper) -> Lookups:
    """The sources as the compiler sees them. The typer learns of the columns that it creates."""
    known = {}
    for name, remote in sources.remotes.items():
        keys = None
        if (types := table_key_types(remote)) is not None:
            columns = remote.source.key  # type: ignore[union-attr]
            keys = tuple((c, shape_of(t)) for c, t in zip(columns, types, strict=True))
        known[name] = RemoteSchema(name, shape_of(sources.type(name)), keys)

    def add_to_typer(made: LookupColumn) -> None:
        typer.add(made.name, ddl_of(sources.type(made.remote.name)))

    prefix = Lookups().prefix
    while any(name.casefold().startswith(prefix) for name in source.names()):
        prefix = f"_{prefix}"
    return Lookups(known, add_to_typer, prefix, case_sensitive=source.case_sensitive)


def add_values(
    df: DataFrame,
    compiled: CompiledPattern,
    sources: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    """The rows with a column for each value that is looked up before matching. `counts` receives
    the counts of fetches."""
    if not compiled.lookups:
        return df
    guarded = sorted({each.variable for each in compiled.lookups if each.variable is not None})
    if guarded:
        names = {each.name for each in compiled.lookups}
        may = [
            _guard_column(compiled.masks[v], names).alias(f"{_GUARD_PREFIX}{v}") for v in guarded
        ]
        df = df.select("*", *may)
    before = replace(sources, token=f"{sources.token}-before")
    found = add_lookups(df, [_make_sought(each) for each in compiled.lookups], before, counts)
    return found.drop(*[f"{_GUARD_PREFIX}{variable}" for variable in guarded])


def needs_fetch(compiled: CompiledPattern) -> bool:
    """Whether anything is fetched before matching."""
    return any(not each.remote.is_table for each in compiled.lookups)


def _guard_column(conditions: Sequence[RowExpression], columns: set[str]) -> Column:
    """Whether a row meets the conditions that read none of the columns."""
    own = [
        each
        for each in conditions
        if not (isinstance(each, str) and any(name in each for name in columns))
    ]
    return as_column(candidate_mask([own])) == F.lit(1) if own else F.lit(True)


def _make_sought(each: LookupColumn) -> LookupRequest:
    tests = (
        [*each.guards]
        if each.variable is None
        else [f"{_GUARD_PREFIX}{each.variable}", *each.guards]
    )
    keys = each.keys
    if tests:
        keys = tuple(_guard_key(tests, key) for key in keys)
    return LookupRequest(each.remote.name, keys, each.name)


def _guard_key(tests: Sequence[str], key: str) -> str:
    """The key under its tests, nested so that a later test only runs if the earlier ones hold."""
    for test in reversed(tests):
        key = f"CASE WHEN {test} THEN {key} END"
    return key


# ---- lookups in the engine ----------------------------------------------------------------------


@dataclass(frozen=True)
class EngineLookup:
    """A source that the engine uses, with the choice of its strategy."""

    remote: RemoteSpec
    how: RemoteChoice


def engine_remotes(compiled: CompiledPattern, sources: RemoteSources) -> tuple[EngineLookup, ...]:
    """The sources of the program, in order. Tables among them are collected now."""
    return tuple(_engine_remote(each, compiled, sources) for each in compiled.remotes)


def choose_for_engine(
    known: RemoteSchema, compiled: CompiledPattern, sources: RemoteSources
) -> RemoteChoice:
    """The strategy and cache of a source in the engine."""
    source = sources.remotes[known.name].source
    if not isinstance(source, RemoteFunction):
        return choose_for_table()
    return choose_strategy(source.strategy, source.caching, compiled.strategy, compiled.consumption)


def _engine_remote(
    each: EngineRemote, compiled: CompiledPattern, sources: RemoteSources
) -> EngineLookup:
    name = each.remote.name
    given, how = sources.remotes[name], choose_for_engine(each.remote, compiled, sources)
    # Measures may use keys of other types and another strategy, so they have their own token.
    token = f"{sources.token}-engine"
    types = [data_type_of(key) for key in each.keys]
    try:
        arrow = [arrow_type_of(type_) for type_ in types], arrow_type_of(sources.type(name))
    except PySparkException:
        raise PatternError(
            f"Arrow has no type for the values of the remote {name!r}: "
            f"{each.remote.value.sql.upper()}",
            hint="use a plain type, or a struct or an array of plain types",
        ) from None
    if isinstance(given.source, RemoteFunction):
        return EngineLookup(make_remote_spec(given, name, arrow, how, token), how)
    remote = RemoteSpec(
        name, collect_table(given, name, types, arrow), tuple(arrow[0]), arrow[1], how.strategy,
        how.caching, token=token, is_local=True,
    )  # fmt: skip
    return EngineLookup(remote, how)
