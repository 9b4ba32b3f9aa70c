"""Lookups outside the engine: on input rows before it, on matches behind it.

A table is joined, everything else is fetched by a stage of its own (`stage.py`). Both add the
value as a column, whose name the compiled texts already have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from spark_cep.compiling.lookups import key_type
from spark_cep.errors import PatternError
from spark_cep.remotes.choice import outside
from spark_cep.remotes.joining import joined
from spark_cep.remotes.remote import Fetched, Remote
from spark_cep.remotes.spec import new_token, shipped
from spark_cep.remotes.stage import Counts, Wanted, with_looked_up
from spark_cep.remotes.value_types import value_type
from spark_cep.shipping import carriers
from spark_cep.shipping.typing_by_spark import quoted, type_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_cep.compiling.remote_calls import Sought


@dataclass(frozen=True)
class Sources:
    """The remote sources of one call of match_pattern, by name."""

    remotes: Mapping[str, Remote]
    session: SparkSession
    token: str = field(default_factory=new_token)

    def types(self) -> dict[str, str]:
        """What each gives, as DDL."""
        return {name: ddl(self.type(name)) for name in self.remotes}

    def type(self, name: str) -> T.DataType:
        return value_type(self.remotes[name], name, self.session)


def looked_up(
    df: DataFrame,
    sought: Sequence[Sought],
    sources: Sources,
    counts: Counts | None = None,
) -> DataFrame:
    """`df` with a column for each value. `counts`: as in `stage.with_looked_up`."""
    fetched = [each for each in sought if not sources.remotes[each.remote].is_table]
    # Before the joins, which need not keep a partition's closing row where it is.
    found = with_looked_up(df, _wanted(df, fetched, sources), counts)
    for each in sought:
        remote = sources.remotes[each.remote]
        if remote.is_table:
            found = joined(found, remote, each)
    return found


def _wanted(df: DataFrame, sought: Sequence[Sought], sources: Sources) -> list[Wanted]:
    found = []
    for name in dict.fromkeys(each.remote for each in sought):
        own = [each for each in sought if each.remote == name]
        source, value = sources.remotes[name].source, sources.type(name)
        assert isinstance(source, Fetched)
        columns, types = _keys(df, name, [each.keys for each in own])
        keys = [to_arrow_type(each, timezone="UTC") for each in types]
        given = to_arrow_type(carriers.carried(value), timezone="UTC")
        how = outside(source.strategy, source.caching)
        remote = shipped(sources.remotes[name], name, (keys, given), how, sources.token)
        found += [
            Wanted(remote, tuple(key), each.column, value)
            for each, key in zip(own, columns, strict=True)
        ]
    return found


def _keys(
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
    types = [_type(df, name, [keys[place] for keys in calls]) for place in range(len(calls[0]))]
    columns = [
        [F.expr(key).cast(type_) for key, type_ in zip(keys, types, strict=True)] for keys in calls
    ]
    return columns, types


def _type(df: DataFrame, name: str, parts: Sequence[str]) -> T.DataType:
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


def ddl(type_: T.DataType) -> str:
    """A type as Spark SQL, whatever its fields are called.

    >>> ddl(T.StructType([T.StructField("at most", T.ArrayType(T.LongType()))]))
    'struct<`at most`:array<bigint>>'
    """
    if isinstance(type_, T.StructType):
        fields = (f"{quoted(each.name)}:{ddl(each.dataType)}" for each in type_)
        return f"struct<{','.join(fields)}>"
    if isinstance(type_, T.ArrayType):
        return f"array<{ddl(type_.elementType)}>"
    if isinstance(type_, T.MapType):
        return f"map<{ddl(type_.keyType)},{ddl(type_.valueType)}>"
    return type_.simpleString()
