"""Types that cannot cross to Python and back, and what they travel as.

Found by trying every type of Spark 4.3 through `mapInArrow`: year-month and calendar intervals
are refused, and a struct with two fields of one name. All others pass unchanged, also variants,
collated strings, times, geometries, user-defined types and the years 1 and 9999.

    year-month interval      months as int (the engine compares and subtracts them as numbers)
    calendar interval        its text, which Spark reads back exactly
    struct with equal names  the same struct with fields f0, f1, ...

Always holds: `decode(encode(x))` is x, NULLs included, at any depth of structs, arrays and maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_cep.spark.versions import is_calendar_interval

if TYPE_CHECKING:
    from spark_cep.spark.selection import Expression

_ColumnConversion = Callable[[Column, T.DataType], Column]


def carrier_type(data_type: T.DataType) -> T.DataType:
    """The type that values of `data_type` travel as; the same object if they pass unchanged."""
    found = data_type
    if isinstance(data_type, T.YearMonthIntervalType):
        found = T.IntegerType()
    elif is_calendar_interval(data_type):
        found = T.StringType()
    elif isinstance(data_type, T.ArrayType):
        found = T.ArrayType(carrier_type(data_type.elementType), data_type.containsNull)
    elif isinstance(data_type, T.MapType):
        key, value = carrier_type(data_type.keyType), carrier_type(data_type.valueType)
        found = T.MapType(key, value, data_type.valueContainsNull)
    elif isinstance(data_type, T.StructType):
        found = _carrier_struct(data_type)
    return data_type if found == data_type else found


def needs_no_carrier(data_type: T.DataType) -> bool:
    """Whether the type needs no carrier."""
    return carrier_type(data_type) is data_type


def encode(column: Column, data_type: T.DataType) -> Column:
    """`column`, of `data_type`, as `carrier_type(data_type)`."""
    if needs_no_carrier(data_type):
        return column
    if isinstance(data_type, T.YearMonthIntervalType):
        return column.cast("interval month").cast("int")
    if is_calendar_interval(data_type):
        return column.cast("string")
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        return F.transform(column, lambda each: encode(each, element))
    if isinstance(data_type, T.MapType):
        return _convert_map(column, data_type, encode)
    assert isinstance(data_type, T.StructType)
    # By position, because two fields may have one name.
    apart = column.cast(_positional_struct(data_type))
    fields = [
        encode(apart.getField(f"f{place}"), field.dataType).alias(name)
        for place, (field, name) in enumerate(
            zip(data_type, _carrier_names(data_type), strict=True)
        )
    ]
    return F.when(column.isNotNull(), F.struct(*fields))


def decode(column: Column, data_type: T.DataType) -> Column:
    """`column`, of `carrier_type(data_type)`, as `data_type` again."""
    if needs_no_carrier(data_type):
        return column
    if isinstance(data_type, T.YearMonthIntervalType):
        return F.make_ym_interval(F.lit(0), column).cast(data_type)
    if is_calendar_interval(data_type):
        return column.cast("interval")
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        return F.transform(column, lambda each: decode(each, element))
    if isinstance(data_type, T.MapType):
        return _convert_map(column, data_type, decode)
    assert isinstance(data_type, T.StructType)
    fields = [
        decode(column.getField(name), field.dataType).alias(field.name)
        for field, name in zip(data_type, _carrier_names(data_type), strict=True)
    ]
    return F.when(column.isNotNull(), F.struct(*fields))


def decode_column(name: str, data_type: T.DataType) -> Expression:
    """`decode` of the column of this name."""
    return name if needs_no_carrier(data_type) else decode(F.col(name), data_type)


def _carrier_struct(data_type: T.StructType) -> T.StructType:
    return T.StructType(
        [
            T.StructField(name, carrier_type(field.dataType), field.nullable, field.metadata)
            for field, name in zip(data_type, _carrier_names(data_type), strict=True)
        ]
    )


def _carrier_names(data_type: T.StructType) -> list[str]:
    """The field names that it travels with. Spark reads a field by a name of any case."""
    if len({name.casefold() for name in data_type.names}) == len(data_type.names):
        return list(data_type.names)
    return [f"f{place}" for place in range(len(data_type.names))]


def _positional_struct(data_type: T.StructType) -> T.StructType:
    return T.StructType(
        [
            T.StructField(f"f{place}", field.dataType, field.nullable, field.metadata)
            for place, field in enumerate(data_type)
        ]
    )


def _convert_map(column: Column, data_type: T.MapType, turn: _ColumnConversion) -> Column:
    key, value = data_type.keyType, data_type.valueType
    keys = F.transform(F.map_keys(column), lambda each: turn(each, key))
    return F.map_from_arrays(
        keys, F.transform(F.map_values(column), lambda each: turn(each, value))
    )
