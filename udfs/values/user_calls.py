"""Calling a user's function: vectors become pandas Series, its answer a vector again.

Series look as in a pandas UDF: strings and decimals as objects, integers beside NULL as float
(as objects where float would round them), timestamps as datetime64[us], lists as numpy arrays.
NaN and None in the answer are NULL, also as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import Cell
from spark_cep.udfs.values.arrow_values import plain, validity, whole
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression, Type, UserCall
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import Columns

_EXACT_DOUBLE = 1 << 53
_LOW_WORD = (1 << 64) - 1
_SIMPLE: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval": pa.duration("us"),
    "bool": pa.bool_(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
    "months": pa.int64(),
    "null": pa.null(),
}


def call(node: UserCall, arguments: list[Vector], columns: Columns) -> Vector:
    shape = np.broadcast_shapes(*(vector.values.shape for vector in arguments))
    series = [
        _series(argument, _flat(vector, shape), columns)
        for argument, vector in zip(node.arguments, arguments, strict=True)
    ]
    array = _answer(node, node.function(*series), int(np.prod(shape)))
    valid = validity(array)
    if node.type.kind in ("string", "binary"):
        values = np.asarray(array.fill_null("" if node.type.kind == "string" else b""), object)
        return Vector(values.reshape(shape), _reshaped(valid, shape))
    values = plain(array).astype(dtype_of(node.type), copy=False)
    return Vector(values.reshape(shape), _reshaped(valid, shape))


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a SQL type that the engine can compute with."""
    if type_.kind == "int":
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bits]
    if type_.kind == "float":
        return pa.float32() if type_.bits == 32 else pa.float64()
    if type_.kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    return _SIMPLE[type_.kind]


def _answer(node: UserCall, answer: Any, length: int) -> pa.Array:
    if np.ndim(answer) != 1 or len(answer) != length:
        given = type(answer).__name__ if np.ndim(answer) != 1 else f"{len(answer)} values"
        raise CepError(
            f"{node.name} gave {given} for {length} rows",
            hint="return one value for each row of the arguments, as a pandas Series or an array",
        )
    try:
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            return whole(answer).cast(arrow_type(node.type))
        if node.type.kind == "int":
            # Converted in two steps: in one, Python floats in a list would lose their fraction.
            return whole(pa.array(answer, from_pandas=True)).cast(arrow_type(node.type))
        return whole(pa.array(answer, arrow_type(node.type), from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CepError(
            f"{node.name} gave values that are not {node.type.kind}: {error}",
            hint="declare the type that the function returns, or convert its result",
        ) from error


def _flat(vector: Vector, shape: tuple[int, ...]) -> Vector:
    values = np.broadcast_to(vector.values, shape).ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    return Vector(values, valid, vector.nan_free)


def _reshaped(valid: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if valid is None else valid.reshape(shape)


def _series(argument: Expression, vector: Vector, columns: Columns) -> Any:
    """The argument as a pandas Series."""
    array = as_arrow(argument, vector, columns)
    if argument.type.kind == "int" and array.null_count and _rounds(vector):
        return pd.Series(array.to_pylist(), dtype=object)
    return array.to_pandas()


def as_arrow(argument: Expression, vector: Vector, columns: Columns) -> pa.Array:
    """The values of an expression, one-dimensional, as an Arrow array of its type."""
    type_, values = argument.type, vector.values
    missing = None if vector.valid is None else ~vector.valid
    if type_.kind == "other":
        if not isinstance(argument, Cell) or argument.column is None:
            raise CepError(
                "a user function takes a value of this type only straight from a column",
                hint="compute it on one variable, where Spark does, or inside the function",
            )
        return columns.shipped(argument.column, values, missing)
    if type_.kind in ("string", "binary"):
        if values.dtype == object:
            return pa.array(values, arrow_type(type_), mask=missing)
        return columns.words(type_.kind).decode(values, vector.valid)
    if type_.kind == "decimal":
        return _decimals(values, missing, type_)
    if type_.kind == "null":
        return pa.nulls(len(values))
    if type_.kind == "date":
        values = values.astype(np.int32)
    return pa.array(values, mask=missing).cast(arrow_type(type_))


def _decimals(values: Array, missing: Array | None, type_: Type) -> pa.Array:
    """Arrow decimals from unscaled integers, written as their two 64-bit words."""
    words = np.empty((len(values), 2), np.int64)
    if values.dtype == object:
        words[:, 0] = (values & _LOW_WORD).astype(np.uint64).view(np.int64)
        words[:, 1] = (values >> 64).astype(np.int64)
    else:
        words[:, 0], words[:, 1] = values, values >> 63
    array = pa.Array.from_buffers(
        arrow_type(type_), len(values), [None, pa.py_buffer(words.tobytes())]
    )
    if missing is None:
        return array
    return pc.if_else(pa.array(missing), pa.scalar(None, array.type), array)


def _rounds(vector: Vector) -> bool:
    """Whether float64, which pandas takes for integers beside NULL, would round one."""
    values = vector.values if vector.valid is None else vector.values[vector.valid]
    return bool(values.size and max(int(values.max()), -int(values.min())) > _EXACT_DOUBLE)
