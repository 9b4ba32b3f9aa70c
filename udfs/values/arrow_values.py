"""One Arrow column as numpy values and a validity mask.

Always holds: nothing is rounded and nothing passes through pandas, where int64 with NULL would
become float. Values are the Arrow buffers themselves where the layouts agree, so values under a
NULL are arbitrary and must not be read. Decimals become unscaled integers: int64 up to 18 digits,
Python ints in an object array above. Dates are days, timestamps and durations microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.expressions import Type, TypeKind

Array = npt.NDArray[Any]

_FIXED_TYPES: tuple[tuple[Callable[[pa.DataType], bool], TypeKind], ...] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_date, "date"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_time, "int"),
    (pa.types.is_null, "null"),
)

# Decimals of up to this many digits fit into int64.
INT64_DIGITS = 18
# Integers up to this are exact as doubles.
EXACT_DOUBLE = 1 << 53


def is_plain(type_: pa.DataType) -> bool:
    """Whether `plain_values` can convert the type: fixed width and no children."""
    return plain_type(type_).kind != "other"


def plain_type(type_: pa.DataType) -> Type:
    """The SQL type of a plain Arrow type, "other" for any other.

    A time of day is an integer, and so is the representation of year-month intervals.
    """
    if pa.types.is_decimal(type_):
        return Type("decimal", precision=type_.precision, scale=type_.scale)
    if pa.types.is_timestamp(type_):
        return Type("timestamp" if type_.tz else "timestamp_ntz")
    if pa.types.is_signed_integer(type_):
        return Type("int", type_.bit_width)
    if type_ in (pa.float32(), pa.float64()):
        return Type("float", type_.bit_width)
    return next((Type(kind) for test, kind in _FIXED_TYPES if test(type_)), Type("other"))


def to_single_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array, decoded if it is a dictionary; no copy if it is one chunk."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(
            column, pa.ChunkedArray
        ):  # older pyarrow keeps chunks that overflow one array
            column = pa.concat_arrays(column.chunks)
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    return column


def validity(array: pa.Array) -> Array | None:
    """True where there is a value; None if there is no NULL."""
    if array.null_count == 0:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def plain_values(array: pa.Array) -> Array:
    """The values of an array whose type `is_plain`; arbitrary under NULL."""
    type_ = array.type
    if pa.types.is_null(type_):
        return np.zeros(len(array), np.bool_)
    if pa.types.is_boolean(type_):
        return _buffer_values(array.cast(pa.uint8()), np.uint8).view(np.bool_)
    if pa.types.is_decimal(type_):
        low, high = decimal_words(array)
        return low if type_.precision <= INT64_DIGITS else unscaled_integers(low, high)
    if pa.types.is_signed_integer(type_) or pa.types.is_floating(type_):
        return _buffer_values(array, np.dtype(type_.to_pandas_dtype()))
    return _time_values(array)


def _time_values(array: pa.Array) -> Array:
    type_ = array.type
    if pa.types.is_timestamp(type_):
        array = array.cast(pa.timestamp("us", type_.tz))
    elif pa.types.is_duration(type_):
        array = array.cast(pa.duration("us"))
    elif pa.types.is_date(type_):
        array = array.cast(pa.date32())
    narrow = array.type.bit_width == 32  # date32 and time32
    return (
        _buffer_values(array, np.int32).astype(np.int64)
        if narrow
        else _buffer_values(array, np.int64)
    )


def decimal_words(array: pa.Array) -> tuple[Array, Array]:
    """The low and the high 64 bits of a decimal's unscaled value, both as int64."""
    words = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    start, stop = 2 * words.offset, 2 * (words.offset + len(words))
    both = np.frombuffer(words.buffers()[1] or b"", np.int64)[start:stop]
    return both[::2], both[1::2]


def unscaled_integers(low: Array, high: Array) -> Array:
    """Python ints from the two words of a decimal."""
    if (high == low >> 63).all():
        return low.astype(object)
    whole_numbers: Array = high.astype(object) * (1 << 64) + low.view(np.uint64).astype(object)
    return whole_numbers


def _buffer_values(array: pa.Array, dtype: npt.DTypeLike) -> Array:
    start = array.offset
    return np.frombuffer(array.buffers()[1] or b"", dtype)[start : start + len(array)]
