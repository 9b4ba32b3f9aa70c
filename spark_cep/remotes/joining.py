"""A remote table beside the rows: a left join, so that no row is lost and none comes twice.

The table is made unique by key first. Whether it is broadcast or both sides are shuffled is
Spark's own rule, by size. Keys are equal where Spark's `=` says so, in the type in which it
compares: '1' and '01' are two strings and one number. NULL equals nothing, so a row without a key
gets NULL, like one whose key the table has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import zip_longest
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.compiling.types import common
from spark_cep.remotes.remote import Remote, Table
from spark_cep.shipping.source import is_on
from spark_cep.shipping.typing_by_spark import data_type_of, quoted, type_of
from spark_cep.udfs.errors import RemoteError, WorkerError

if TYPE_CHECKING:
    from spark_cep.compiling.remote_calls import Sought
    from spark_cep.udfs.expressions import Type

_VALUE = "__cep_value"
_ROWS = "__cep_rows"
_ANSI = "spark.sql.ansi.enabled"


def joined(df: DataFrame, remote: Remote, sought: Sought) -> DataFrame:
    """`df` with what the table has for the keys behind its own columns."""
    own = [F.col(quoted(column)) for column in df.columns]
    asked = [f"{sought.column}_k{place}" for place in range(len(sought.keys))]
    given = [f"{sought.column}_t{place}" for place in range(len(sought.keys))]
    keys = zip(sought.keys, asked, strict=True)
    rows = df.select("*", *[F.expr(key).alias(column) for key, column in keys])
    table = unique(remote, sought.remote, given, _compared(rows.select(*asked), remote))
    equal = [F.col(one) == F.col(other) for one, other in zip(asked, given, strict=True)]
    both = rows.join(table, reduce(Column.__and__, equal), "left")
    return both.select(*own, F.col(_VALUE).alias(sought.column))


def _compared(asked: DataFrame, remote: Remote) -> list[T.DataType | None]:
    """The types in which Spark compares the key's parts; None where it is the table's own."""
    source = remote.source
    assert isinstance(source, Table)
    schema, found = source.df.schema, list[T.DataType | None]()
    for field, column in zip(asked.schema, source.key, strict=True):
        key, own = type_of(field.dataType), type_of(schema[column].dataType)
        both = own if key == own else _common(key, own, ansi=is_on(asked, _ANSI, "true"))
        found.append(None if both is None or both == own else data_type_of(both))
    return found


def _common(key: Type, own: Type, *, ansi: bool) -> Type | None:
    """Without ANSI a string is cast to whatever it is compared with."""
    both = common(key, own, ansi=ansi)
    return key if both is None and own.kind == "string" and not ansi else both


def unique(
    remote: Remote,
    called: str,
    names: Sequence[str],
    types: Sequence[T.DataType | None] = (),
) -> DataFrame:
    """The table's keys as columns `names`, each key once, and its value as the last column; a key
    that comes twice ends the query. `types`: what the parts of the key are cast to before."""
    source = remote.source
    assert isinstance(source, Table)
    keys = [F.col(quoted(column)) for column in source.key]
    keys = [k if t is None else k.cast(t) for k, t in zip_longest(keys, types)]
    own = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    table = source.df.select(*own, _value(source).alias(_VALUE))
    # What is NULL equals no key of a row.
    table = table.filter(reduce(Column.__and__, [F.col(name).isNotNull() for name in names]))
    once = table.groupBy(*names).agg(F.first(_VALUE).alias(_VALUE), F.count("*").alias(_ROWS))
    value = F.when(F.col(_ROWS) > 1, F.raise_error(F.lit(_twice(called, source, types))))
    return once.select(*names, value.otherwise(F.col(_VALUE)).alias(_VALUE))


def _value(source: Table) -> Column:
    if isinstance(source.value, str):
        return F.col(quoted(source.value))
    names = source.value or [name for name in source.df.columns if name not in source.key]
    return F.struct(*[F.col(quoted(name)) for name in names])


def _twice(called: str, source: Table, types: Sequence[T.DataType | None]) -> str:
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
