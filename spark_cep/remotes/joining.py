"""A remote table beside the rows: a left join, so that no row is lost and none comes twice.

The table is made unique by key first. Whether it is broadcast or both sides are shuffled is
Spark's own rule, by size. Keys are equal where Spark's `=` says so; NULL equals nothing, so a row
without a key gets NULL, like one whose key the table has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_cep.remotes.remote import Remote, Table
from spark_cep.shipping.typing_by_spark import quoted
from spark_cep.udfs.errors import RemoteError, WorkerError

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import RowExpression

_VALUE = "__cep_value"
_ROWS = "__cep_rows"


def joined(df: DataFrame, remote: Remote, keys: Sequence[RowExpression], name: str) -> DataFrame:
    """`df` with the table's value for `keys` as column `name`, behind its own columns."""
    own = [F.col(quoted(column)) for column in df.columns]
    asked = [f"{name}_k{place}" for place in range(len(keys))]
    given = [f"{name}_t{place}" for place in range(len(keys))]
    rows = df.select(
        "*",
        *[
            (F.expr(key) if isinstance(key, str) else key).alias(column)
            for key, column in zip(keys, asked, strict=True)
        ],
    )
    table = unique(remote, given)
    equal = [F.col(one) == F.col(other) for one, other in zip(asked, given, strict=True)]
    both = rows.join(table, reduce(Column.__and__, equal), "left")
    return both.select(*own, F.col(_VALUE).alias(name))


def unique(remote: Remote, names: Sequence[str]) -> DataFrame:
    """The table's keys as columns `names`, each key once, and its value as the last column; a key
    that comes twice ends the query."""
    source = remote.source
    assert isinstance(source, Table)
    keys = [F.col(quoted(column)).alias(n) for column, n in zip(source.key, names, strict=True)]
    table = source.df.select(*keys, _value(source).alias(_VALUE))
    # What is NULL equals no key of a row.
    table = table.filter(reduce(Column.__and__, [F.col(name).isNotNull() for name in names]))
    once = table.groupBy(*names).agg(F.first(_VALUE).alias(_VALUE), F.count("*").alias(_ROWS))
    value = F.when(F.col(_ROWS) > 1, F.raise_error(F.lit(_twice(source.key))))
    return once.select(*names, value.otherwise(F.col(_VALUE)).alias(_VALUE))


def _value(source: Table) -> Column:
    if isinstance(source.value, str):
        return F.col(quoted(source.value))
    names = source.value or [name for name in source.df.columns if name not in source.key]
    return F.struct(*[F.col(quoted(name)) for name in names])


def _twice(key: Sequence[str]) -> str:
    """The error, as one that comes from a worker."""
    columns = ", ".join(key)
    hint = f"make it unique first: table.dropDuplicates({list(key)}), or group it by its key"
    error = RemoteError(f"a remote table has two rows for one {columns}", hint=hint)
    return str(WorkerError(error))
