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
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.refusals import column_refusal
from spark_cep.expressions.schema import OrderColumn
from spark_cep.spark.source import SourceFrame, read_source
from spark_cep.spark.typing import SparkTyper, error_sentence, quote_column, silence_spark

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
    if order_by is None or isinstance(order_by, str):
        return order_by
    if isinstance(order_by, Sequence):
        return [_directed(df, each) for each in order_by]
    return _directed(df, order_by)


def _directed(df: DataFrame, column: Any) -> Any:
    if isinstance(column, str):
        return column
    if isinstance(column, Column):
        return _unwrap_order(df, column)
    raise PatternError(
        f"order_by takes column names and Columns, not {type(column).__name__}",
        hint='order_by="ts", or several columns: order_by=["ts", F.col("id").desc()]',
    )


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


# --------------------------------------------------------------------------------------------------
# Columns given as partition_by, brought to names of columns of the input.
#
# A plain reference is a name already. Any other Column is added to the input under its own name, as
# `df.withColumn` would, so that everything behind this knows names only.
# --------------------------------------------------------------------------------------------------


_HINT = 'partition_by="venue", partition_by=F.col("venue") or a list of these'


def with_partition_columns(
    source: SourceFrame, partition_by: Any
) -> tuple[SourceFrame, Sequence[Any]]:
    """The input with all keys as columns, and their names."""
    given = _listed(partition_by)
    added: dict[str, Column] = {}
    names = []
    for each in given:
        if not isinstance(each, Column):
            names.append(each)
            continue
        name = _name(source, each)
        names.append(quote_name(name))
        if _is_taken(source, name, source.names()):
            if not _is_reference(source, each, name):
                raise PatternError(
                    f"partition_by: the key {each} has the name of a column of the input",
                    hint='give it another name: F.upper("k").alias("key")',
                )
        elif _is_taken(source, name, added):
            raise PatternError(
                f"partition_by has two keys called {name}", hint="give one of them another alias"
            )
        else:
            added[name] = each
    return (read_source(source.df.withColumns(added)) if added else source), names


def _listed(partition_by: Any) -> list[Any]:
    if partition_by is None:
        return []
    if isinstance(partition_by, str | Column):
        return [partition_by]
    try:
        return list(partition_by)
    except TypeError:
        raise PatternError(
            f"partition_by takes column names and Columns, not {type(partition_by).__name__}",
            hint=_HINT,
        ) from None


def _name(source: SourceFrame, column: Column) -> str:
    refused = column_refusal(column)
    if refused is not None:
        raise PatternError(f"partition_by: {refused.message}", hint=refused.hint)
    (type_,) = SparkTyper(source.df).of_row([column])
    if isinstance(type_, str):
        raise PatternError(f"partition_by: {type_}", hint=_HINT)
    found = source.df.select(column).columns
    if len(found) != 1:
        raise PatternError(f"partition_by: {column} is {len(found)} columns", hint=_HINT)
    return str(found[0])


def _is_taken(source: SourceFrame, name: str, names: Any) -> bool:
    if source.case_sensitive:
        return name in names
    return name.casefold() in {each.casefold() for each in names}


def _is_reference(source: SourceFrame, column: Column, name: str) -> bool:
    """Whether the Column is the input's own of this name."""
    own = source.df.select(quote_name(name))
    return bool(source.df.select(column).sameSemantics(own))
