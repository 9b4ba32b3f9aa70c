"""Keys and order columns, as the engine compares them.

Partition keys are canonical: equal values exactly where GROUP BY says that keys are equal. NaN
has one form and -0.0 is 0.0 already after `+ 0.0` and a test for NaN; strings under a collation
are replaced by the smallest string that is equal to them; structs and arrays are done part by
part; a map becomes its entries in the order of their keys, which can be hashed.

Hashes (`xxhash64`) and values compared as bytes then agree with GROUP BY. For collations nothing
in SQL computes a canonical form of one value (tried: hashes of equal keys differ), so the
smallest equal string is found with a window function, which costs a shuffle.

Order columns are compared as bytes too, and nothing in SQL gives a string that sorts as a
collation does, so collated ones are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.errors import PatternError
from spark_cep.expressions.schema import OrderColumn
from spark_cep.spark.typing import error_sentence, quote_column, silence_spark

if TYPE_CHECKING:
    from spark_cep.expressions.schema import OrderBy


@dataclass(frozen=True)
class CanonicalKey:
    """A key over the input's columns. `plain`: it is canonical as it is. `shows`: the canonical
    value is what GROUP BY would show, so the answer may give it; otherwise the answer needs the
    original value of some row. `hashable`: Spark's xxhash64 takes the column itself."""

    column: Column
    canonical: Column
    plain: bool
    shows: bool
    hashable: bool


def canonical_key(column: Column, data_type: T.DataType) -> CanonicalKey:
    """The canonical form of `column`, which has `data_type`."""
    if not _has_many_forms(data_type):
        return CanonicalKey(column, column, plain=True, shows=True, hashable=True)
    canonical, has_map = _canonical_column(column, data_type), _contains_type(data_type, T.MapType)
    if is_collated(data_type):
        smallest = F.min(canonical).over(Window.partitionBy(column))
        return CanonicalKey(column, smallest, plain=False, shows=False, hashable=not has_map)
    return CanonicalKey(column, canonical, plain=False, shows=not has_map, hashable=not has_map)


def check_groupable(df: DataFrame, names: Sequence[str]) -> None:
    """Keys are compared as GROUP BY compares them; refuses what it refuses."""
    if not names:
        return
    with silence_spark():
        try:
            _ = df.groupBy(*[F.col(quote_column(name)) for name in names]).count().schema
        except PySparkException as problem:
            raise PatternError(
                f"the rows cannot be partitioned by {', '.join(names)}: {error_sentence(problem)}",
                hint="partition_by takes columns that GROUP BY takes; cast it or pick a part of it",
            ) from None


def resolve_order(df: DataFrame, order_by: Any) -> Any:
    """What the user gave as `order_by`, with `F.col("x").desc()` as column and direction."""
    if isinstance(order_by, Column):
        return _unwrap_order(df, order_by)
    if isinstance(order_by, Sequence) and not isinstance(order_by, str):
        return [resolve_order(df, each) if isinstance(each, Column) else each for each in order_by]
    return order_by


def check_ordered_by_bytes(df: DataFrame, orders: Sequence[OrderBy]) -> None:
    """Refuses collated strings, also inside structs and arrays."""
    expressions = [each.expression for each in orders]
    columns = [F.expr(each) if isinstance(each, str) else each for each in expressions]
    schema = df.select(*[each.alias(f"o{n}") for n, each in enumerate(columns)]).schema
    for expression, field in zip(expressions, schema, strict=True):
        if is_collated(field.dataType):
            raise PatternError(
                f"order_by: {expression} has a collation, and rows are ordered by the bytes of "
                "their strings",
                hint='say which order is meant: order_by=["ts", "lower(CAST(name AS STRING))"], or '
                "CAST(name AS STRING) for the order of the bytes",
            )


def _canonical_column(column: Column, data_type: T.DataType) -> Column:
    if not _has_many_forms(data_type):
        return column
    if isinstance(data_type, T.FloatType | T.DoubleType):
        zero, nan = F.lit(0.0).cast(data_type), F.lit(float("nan")).cast(data_type)
        return F.when(F.isnan(column), nan).when(column == zero, zero).otherwise(column)
    if isinstance(data_type, T.StringType):
        return column.cast("string")
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        return F.transform(column, lambda each: _canonical_column(each, element))
    if isinstance(data_type, T.MapType):
        return _map_entries(column, data_type)
    assert isinstance(data_type, T.StructType)
    fields = [
        _canonical_column(column.getField(field.name), field.dataType).alias(field.name)
        for field in data_type
    ]
    return F.when(column.isNotNull(), F.struct(*fields))


def _map_entries(column: Column, data_type: T.MapType) -> Column:
    def entry(key: Column) -> Column:
        value = F.element_at(column, key)
        return F.struct(
            _canonical_column(key, data_type.keyType).alias("key"),
            _canonical_column(value, data_type.valueType).alias("value"),
        )

    return F.transform(F.array_sort(F.map_keys(column)), entry)


def _has_many_forms(data_type: T.DataType) -> bool:
    """Whether equal values of the type may have different forms."""
    return _contains_type(data_type, T.FloatType, T.DoubleType, T.MapType) or is_collated(data_type)


def is_collated(data_type: T.DataType) -> bool:
    """Whether a string of the type, at any depth, is compared other than by its bytes."""
    return any(
        isinstance(each, T.StringType)
        and getattr(each, "collation", "UTF8_BINARY") != "UTF8_BINARY"
        for each in _inner_types(data_type)
    )


def _contains_type(data_type: T.DataType, *kinds: type[T.DataType]) -> bool:
    return any(isinstance(each, kinds) for each in _inner_types(data_type))


def _inner_types(data_type: T.DataType) -> list[T.DataType]:
    """The type and all types inside it."""
    if isinstance(data_type, T.ArrayType):
        inside = [data_type.elementType]
    elif isinstance(data_type, T.MapType):
        inside = [data_type.keyType, data_type.valueType]
    elif isinstance(data_type, T.StructType):
        inside = [field.dataType for field in data_type]
    else:
        inside = []
    return [data_type, *(part for each in inside for part in _inner_types(each))]


def _unwrap_order(df: DataFrame, column: Column) -> Column | OrderColumn:
    """Spark has no door to a sort order's parts; classic and Connect keep them differently."""
    untyped: Any = column
    if "_jc" in vars(column):
        node = untyped._jc.node()
        if node.getClass().getSimpleName() != "SortOrder":
            return column
        jvm: Any = getattr(df.sparkSession, "_jvm")  # noqa: B009 - classic only
        child = type(untyped)(jvm.org.apache.spark.sql.Column(node.child()))
        descending = "Descending" in str(node.sortDirection())
        return OrderColumn(child, descending, "NullsFirst" in str(node.nullOrdering()))
    order = untyped._expr
    if type(order).__name__ != "SortOrder":
        return column
    return OrderColumn(type(untyped)(order._child), not order._ascending, order._nullsFirst)


def resolve_keys(df: DataFrame, texts: Sequence[str]) -> tuple[CanonicalKey, ...]:
    """Each text as a key."""
    if not texts:
        return ()
    types = df.select(*[F.expr(text).alias(f"k{n}") for n, text in enumerate(texts)]).schema
    return tuple(
        canonical_key(F.expr(text), field.dataType)
        for text, field in zip(texts, types, strict=True)
    )
