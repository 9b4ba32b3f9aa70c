"""Keys and order columns, as the engine compares them.

Partition keys travel in a canonical form: equal values exactly where GROUP BY says that keys are
equal. All NaNs become one NaN and -0.0 becomes 0.0; structs and arrays are brought to that form
part by part; a map becomes its entries in the order of their keys, which can be hashed. Hashes
(`xxhash64`) and values compared as bytes then agree with GROUP BY.

No SQL function gives a canonical form of a string under a collation (hashes of equal keys
differ), so such a key becomes the smallest string that is equal to it, by a window function that
costs a shuffle. Nothing in SQL gives a string that sorts as a collation does either, so order
columns with a collation are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.errors import PatternError
from spark_cep.expressions.names import quote_name
from spark_cep.expressions.refusals import column_refusal
from spark_cep.expressions.schema import OrderColumn
from spark_cep.expressions.shipment import PartitionKey
from spark_cep.spark.selection import quote_column, select_named
from spark_cep.spark.source import SourceFrame, read_source
from spark_cep.spark.typing import SparkTyper, error_sentence
from spark_cep.spark.versions import silence_spark, split_order
from spark_cep.udfs.canonical import spark_column

if TYPE_CHECKING:
    from spark_cep.expressions.schema import OrderBy


def resolve_keys(
    df: DataFrame, partition: Sequence[str], inferred: Sequence[str] = ()
) -> tuple[PartitionKey, ...]:
    """The keys for partition columns of `df` and for further expressions over its columns."""
    check_groupable(df, partition)
    texts = [*map(quote_column, partition), *inferred]
    if not texts:
        return ()
    known = {quote_column(field.name): field.dataType for field in df.schema}
    types = [known[text] for text in texts if text in known]
    if len(types) < len(texts):
        named = [(text, f"k{n}") for n, text in enumerate(texts)]
        types = [field.dataType for field in select_named(df, named).schema]
    return tuple(_canonical_key(text, type_) for text, type_ in zip(texts, types, strict=True))


def _canonical_key(text: str, data_type: T.DataType) -> PartitionKey:
    if not _has_many_forms(data_type):
        return PartitionKey(text)
    column = F.expr(text)
    canonical = _canonical_column(column, data_type)
    if is_collated(data_type):
        smallest = F.min(canonical).over(Window.partitionBy(column))
        return PartitionKey(smallest, plain=False, shows=False)
    has_map = _contains_type(data_type, T.MapType)
    return PartitionKey(canonical, plain=False, shows=not has_map)


# Types that need no question to Spark.
_GROUPABLE = (
    T.NumericType, T.StringType, T.BooleanType, T.BinaryType,
    T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip


def check_groupable(df: DataFrame, names: Sequence[str]) -> None:
    """Refuses what GROUP BY refuses: keys are compared as it compares them."""
    known = {field.name: field.dataType for field in df.schema}
    if all(isinstance(known.get(name), _GROUPABLE) for name in names):
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
    # A string of another kind than "string" has a collation; others may contain one.
    expressions = [each.expression for each in orders if each.type.kind == "other"]
    if not expressions:
        return
    schema = select_named(df, [(each, f"o{n}") for n, each in enumerate(expressions)]).schema
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
    order = split_order(df.sparkSession, column)
    return column if order is None else OrderColumn(*order)


# ---- Columns given as partition_by -------------------------------------------------------------

_HINT = 'partition_by="venue", partition_by=F.col("venue") or a list of these'


def with_partition_columns(
    source: SourceFrame, partition_by: Any
) -> tuple[SourceFrame, Sequence[Any]]:
    """The input with all keys as columns, and their names.

    A Column that is a plain reference is a name already. Any other Column is added to the input
    under its own name, as `df.withColumn` would do it, so that all that follows knows names only.
    """
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
    if not added:
        return source, names
    computed = {name: spark_column(str(each)) for name, each in added.items()}
    extended = read_source(source.df.withColumns(added))
    return replace(extended, computed={**source.computed, **computed}), names


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
