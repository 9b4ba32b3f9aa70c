"""What a pattern's conditions look up, put in its place: beside the rows, or into the program.

Keys that may fail are computed only where they are asked for: on rows that meet the variable's
other conditions on one row, as far as these look nothing up themselves.
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
from pyspark.sql.pandas.types import to_arrow_type

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
from spark_cep.spark.source import is_setting_on
from spark_cep.spark.typing import (
    data_type_of,
    error_sentence,
    quote_column,
    silence_spark,
    type_of,
)
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


# --------------------------------------------------------------------------------------------------
# The types of keys and values, as Spark has them and as the compiler and the workers know them.
#
# DDL is Spark's to read, so it is read when a remote source meets a DataFrame, by its session: an
# analysis without a job, which Connect sessions do as well.
# --------------------------------------------------------------------------------------------------


def value_type(remote: Remote, name: str, session: SparkSession) -> T.DataType:
    """What a lookup gives."""
    source = remote.source
    if isinstance(source, RemoteTable):
        schema = source.df.schema
        if isinstance(source.value, str):
            return schema[source.value].dataType
        names = source.value or tuple(n for n in schema.names if n not in source.key)
        return T.StructType([T.StructField(n, schema[n].dataType) for n in names])
    asked = session.sql("SELECT * FROM VALUES (1) AS t(`__cep_one`)")
    with silence_spark():
        try:
            found = asked.select(F.lit(None).cast(source.value_type).alias("v")).schema
        except PySparkException as problem:
            raise PatternError(
                f"value_type of the remote {name!r}, {source.value_type!r}, is no type of Spark "
                f"SQL: {error_sentence(problem)}",
                hint='write "double", "array<string>" or "struct<max: double, region: string>"',
            ) from None
    return found.fields[0].dataType


def table_key_types(remote: Remote) -> tuple[T.DataType, ...] | None:
    """The types of a table's key columns; None where anything may be a key."""
    source = remote.source
    if not isinstance(source, RemoteTable):
        return None
    schema = source.df.schema
    return tuple(schema[name].dataType for name in source.key)


def shape_of(data_type: T.DataType) -> TypeTree:
    """The type as the compiler looks into it.

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
    return to_arrow_type(data_type, timezone="UTC")


# --------------------------------------------------------------------------------------------------
# One step of a query that looks values up: the rows as they are, and a column for each value.
#
#     df -> keys as columns -> mapInArrow: ask for the next batches, hand on this one -> df + values
#
# For what the engine does not look up itself: measures on matches, row patterns, conditions that
# only Spark computes. Keys and values are columns, so all of Spark may stand around them.
#
# Always holds: a row goes out as it came in, bit for bit, and in its place; a key that is NULL is
# not asked for; every key is asked for once a batch, however many rows have it.
#
# What was counted goes with the rows, so it arrives from batches, streams and Connect sessions
# alike, which accumulators would not. Behind the engine it joins the engine's own counts in the
# closing rows; before it, it stands beside the last row of each partition.
# --------------------------------------------------------------------------------------------------


METRICS_COLUMN = "metrics"


@dataclass(frozen=True)
class FetchedColumn:
    """The value that `remote` has for `keys`, SQL or Columns over the rows, as column `name`."""

    remote: RemoteSpec
    keys: tuple[str | Column, ...]
    name: str
    type: T.DataType


@dataclass(frozen=True)
class MetricsSink:
    """Where counts go. `take` is given the rows with a text column `metrics`, and hands on what
    the query goes on with. `of_engine`: the column is there already, with the engine's counts in
    closing rows, which `take` removes."""

    take: Callable[[DataFrame], DataFrame]
    of_engine: bool = False


def add_lookup_stage(
    df: DataFrame, wanted: Sequence[FetchedColumn], counts: MetricsSink | None = None
) -> DataFrame:
    """`df` with the values behind its own columns; without the engine's counts if it has them."""
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
    told = [] if of_engine else [T.StructField(METRICS_COLUMN, T.StringType())]
    schema = T.StructType([*sent.schema.fields[: len(fields)], *values, *told])
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
    """The rows as they travel, keys behind them."""
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
    """A closing row has no keys, and computing one might fail there."""
    column = F.expr(key) if isinstance(key, str) else key
    return F.when(F.col(METRICS_COLUMN).isNull(), column) if of_engine else column


def _make_stage(
    wanted: Sequence[FetchedColumn], schema: T.StructType, *, of_engine: bool
) -> LookupStage:
    names = tuple(schema.names)
    counts = names.index(METRICS_COLUMN) if of_engine else None
    place = len(names) - len(wanted) - (not of_engine)
    asked = []
    for each in wanted:
        type_ = to_arrow_type(carriers.carrier_type(each.type), timezone="UTC")
        asked.append(StageColumn(each.remote, tuple(range(place, place + len(each.keys))), type_))
        place += len(each.keys)
    return LookupStage(tuple(asked), names, counts)


# --------------------------------------------------------------------------------------------------
# A remote table beside the rows: a left join, so that no row is lost and none comes twice.
#
# The table is made unique by key first. Whether it is broadcast or both sides are shuffled is
# Spark's own rule, by size. Keys are equal where Spark's `=` says so, in the type in which it
# compares: '1' and '01' are two strings and one number. NULL equals nothing, so a row without a key
# gets NULL, like one whose key the table has not.
# --------------------------------------------------------------------------------------------------


_VALUE = "__cep_value"
_ROWS = "__cep_rows"
_ANSI = "spark.sql.ansi.enabled"


def join_table(df: DataFrame, remote: Remote, sought: LookupRequest) -> DataFrame:
    """`df` with what the table has for the keys behind its own columns."""
    own = [F.col(quote_column(column)) for column in df.columns]
    asked = [f"{sought.column}_k{place}" for place in range(len(sought.keys))]
    given = [f"{sought.column}_t{place}" for place in range(len(sought.keys))]
    keys = zip(sought.keys, asked, strict=True)
    rows = df.select("*", *[F.expr(key).alias(column) for key, column in keys])
    table = make_unique(
        remote, sought.remote, given, _comparison_types(rows.select(*asked), remote)
    )
    equal = [F.col(one) == F.col(other) for one, other in zip(asked, given, strict=True)]
    both = rows.join(table, reduce(Column.__and__, equal), "left")
    return both.select(*own, F.col(_VALUE).alias(sought.column))


def _comparison_types(asked: DataFrame, remote: Remote) -> list[T.DataType | None]:
    """The types in which Spark compares the key's parts; None where it is the table's own."""
    source = remote.source
    assert isinstance(source, RemoteTable)
    schema, found = source.df.schema, list[T.DataType | None]()
    for part, column in zip(asked.schema, source.key, strict=True):
        key, own = type_of(part.dataType), type_of(schema[column].dataType)
        both = (
            own if key == own else _common_type(key, own, ansi=is_setting_on(asked, _ANSI, "true"))
        )
        found.append(None if both is None or both == own else data_type_of(both))
    return found


def _common_type(key: Type, own: Type, *, ansi: bool) -> Type | None:
    """Without ANSI a string is cast to whatever it is compared with."""
    both = common_type(key, own, ansi=ansi)
    return key if both is None and own.kind == "string" and not ansi else both


def make_unique(
    remote: Remote,
    called: str,
    names: Sequence[str],
    types: Sequence[T.DataType | None] = (),
) -> DataFrame:
    """The table's keys as columns `names`, each key once, and its value as the last column; a key
    that comes twice ends the query. `types`: what the parts of the key are cast to before."""
    source = remote.source
    assert isinstance(source, RemoteTable)
    keys = [F.col(quote_column(column)) for column in source.key]
    keys = [k if t is None else k.cast(t) for k, t in zip_longest(keys, types)]
    own = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    table = source.df.select(*own, _value_column(source).alias(_VALUE))
    # What is NULL equals no key of a row.
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
    """The error, as one that comes from a worker."""
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


# --------------------------------------------------------------------------------------------------
# A remote table as a whole, for calls whose key is made of several variables' rows.
#
# No row of the input has such a key, so there is nothing to join; the workers get all of the table.
# It is collected when match_pattern is called and stays as it was then.
# --------------------------------------------------------------------------------------------------


# As JSON. Spark broadcasts up to 10 MB of its own; a worker holds this much easily, and a driver.
MOST_BYTES = 100 << 20


def collect_table(
    remote: Remote,
    name: str,
    keys: Sequence[DataType],
    types: tuple[Sequence[pa.DataType], pa.DataType],
) -> LocalTable:
    """The table with its keys cast to `keys`; `types`: those of keys and value in the workers."""
    names = [f"k{place}" for place in range(len(keys))]
    table = make_unique(remote, name, names, keys)
    table = table.withColumnRenamed(table.columns[-1], "value")
    size = table.select(F.sum(F.octet_length(F.to_json(F.struct("*"))))).collect()[0][0] or 0
    if size > MOST_BYTES:
        raise PatternError(
            f"the remote table {name!r} is too large for every worker to have it: "
            f"{size >> 20:,} MB, and {MOST_BYTES >> 20} MB is the most",
            hint="its key is made of several variables, so it cannot be joined to the input; look "
            "it up by one variable's columns, or fetch values with cep.Remote.fetch or .sql",
        )
    schema = pa.schema([*zip(names, types[0], strict=True), ("value", types[1])])
    return LocalTable(table.toArrow().cast(schema))


# --------------------------------------------------------------------------------------------------
# Lookups outside the engine: on input rows before it, on matches behind it.
#
# A table is joined, everything else is fetched by a stage of its own (`stage.py`). Both add the
# value as a column, whose name the compiled texts already have.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RemoteSources:
    """The remote sources of one call of match_pattern, by name."""

    remotes: Mapping[str, Remote]
    session: SparkSession
    token: str = field(default_factory=new_token)

    def types(self) -> dict[str, str]:
        """What each gives, as DDL."""
        return {name: ddl_of(self.type(name)) for name in self.remotes}

    def type(self, name: str) -> T.DataType:
        return value_type(self.remotes[name], name, self.session)


def add_lookups(
    df: DataFrame,
    sought: Sequence[LookupRequest],
    sources: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    """`df` with a column for each value. `counts`: as in `stage.with_looked_up`."""
    fetched = [each for each in sought if not sources.remotes[each.remote].is_table]
    # Before the joins, which need not keep a partition's closing row where it is.
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
        keys = [to_arrow_type(each, timezone="UTC") for each in types]
        given = to_arrow_type(carriers.carrier_type(value), timezone="UTC")
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
    """The keys of all calls of a source, each part of one type, so that equal keys are one key
    wherever they come from; and these types."""
    if len({len(keys) for keys in calls}) > 1:
        raise PatternError(
            f"remote('{name}', ...) is called with {min(map(len, calls))} keys and with "
            f"{max(map(len, calls))}",
            hint="a source has one kind of key; give it all parts everywhere",
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
    asked = [F.expr(part).alias(f"k{place}") for place, part in enumerate(parts)]
    own, *each = (field.dataType for field in df.select(both.alias("k"), *asked).schema)
    kinds = {type_of(one).kind: one.simpleString().upper() for one in each}
    if "string" in kinds and len(kinds.keys() - {"null"}) > 1:
        # Spark would cast the strings, which may fail.
        raise PatternError(
            f"{name!r} is asked with {' and '.join(kinds.values())} in different places",
            hint="cast the key in one of them",
        )
    found = key_type(type_of(own))
    if found is None:
        raise PatternError(
            f"a key of the remote {name!r} is of type {own.simpleString()}",
            hint="a key is made of plain values; of a list take one row, first(b.org), of a struct "
            "its fields as several keys",
        )
    wide = {"int": T.LongType(), "float": T.DoubleType()}
    return wide.get(found.kind, own)


def ddl_of(type_: T.DataType) -> str:
    """A type as Spark SQL, whatever its fields are called.

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
    """The sources as the compiler knows them; columns that it makes are told to the typer."""
    known = {}
    for name, remote in sources.remotes.items():
        keys = None
        if (types := table_key_types(remote)) is not None:
            columns = remote.source.key  # type: ignore[union-attr]
            keys = tuple((c, shape_of(t)) for c, t in zip(columns, types, strict=True))
        known[name] = RemoteSchema(name, shape_of(sources.type(name)), keys)

    def told(made: LookupColumn) -> None:
        typer.add(made.name, ddl_of(sources.type(made.remote.name)))

    prefix = Lookups().prefix
    while any(name.casefold().startswith(prefix) for name in source.names()):
        prefix = f"_{prefix}"
    return Lookups(known, told, prefix, case_sensitive=source.case_sensitive)


def add_values(
    df: DataFrame,
    compiled: CompiledPattern,
    sources: RemoteSources,
    counts: MetricsSink | None = None,
) -> DataFrame:
    """The rows with a column for each value that is looked up before matching. What was counted
    of fetches goes by `counts`."""
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
    """Whether a row meets all conditions that read none of the columns."""
    own = [
        each
        for each in conditions
        if not (isinstance(each, str) and any(name in each for name in columns))
    ]
    return candidate_mask([own]) == F.lit(1) if own else F.lit(True)


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
    """Nested, so that a later test is not tried where an earlier one fails."""
    for test in reversed(tests):
        key = f"CASE WHEN {test} THEN {key} END"
    return key


# ---- what the engine asks ----------------------------------------------------------------------


@dataclass(frozen=True)
class EngineLookup:
    """A source that the engine asks, and why as it does."""

    remote: RemoteSpec
    how: RemoteChoice


def engine_remotes(compiled: CompiledPattern, sources: RemoteSources) -> tuple[EngineLookup, ...]:
    """The sources of the program, by their place. Tables among them are collected now."""
    return tuple(_engine_remote(each, compiled, sources) for each in compiled.remotes)


def choose_for_engine(
    known: RemoteSchema, compiled: CompiledPattern, sources: RemoteSources
) -> RemoteChoice:
    """How the engine asks a source."""
    source = sources.remotes[known.name].source
    if not isinstance(source, RemoteFunction):
        return choose_for_table()
    return choose_strategy(source.strategy, source.caching, compiled.strategy, compiled.consumption)


def _engine_remote(
    each: EngineRemote, compiled: CompiledPattern, sources: RemoteSources
) -> EngineLookup:
    name = each.remote.name
    given, how = sources.remotes[name], choose_for_engine(each.remote, compiled, sources)
    # What measures look up may have keys of other types, and another strategy.
    token = f"{sources.token}-engine"
    types = [data_type_of(key) for key in each.keys]
    try:
        arrow = [arrow_type_of(type_) for type_ in types], arrow_type_of(sources.type(name))
    except PySparkException:
        raise PatternError(
            f"the remote {name!r} gives {each.remote.value.sql.upper()}, which cannot travel",
            hint="give a plain type, or a struct or an array of plain types",
        ) from None
    if isinstance(given.source, RemoteFunction):
        return EngineLookup(make_remote_spec(given, name, arrow, how, token), how)
    remote = RemoteSpec(
        name, collect_table(given, name, types, arrow), tuple(arrow[0]), arrow[1], how.strategy,
        how.caching, token=token, is_local=True,
    )  # fmt: skip
    return EngineLookup(remote, how)
