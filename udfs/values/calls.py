"""Calling a user's function: vectors become pandas Series, its answer a vector again.

Series look as in a pandas UDF: strings and decimals as objects, integers beside NULL as float
(as objects where float would round them), timestamps as datetime64[us], lists as numpy arrays.
NaN and None in the answer are NULL, also as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import BIGINT, Cell, Member, RemoteCall
from spark_cep.udfs.values.arrow_values import plain_values, to_single_array, validity
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression, Type, UserCall
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally
    from spark_cep.udfs.values.vectors import EventColumns


_EXACT_DOUBLE = 1 << 53
_LOW_WORD = (1 << 64) - 1
_ARROW_TYPES: dict[str, pa.DataType] = {
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


def call_function(node: UserCall, arguments: list[Vector], columns: EventColumns) -> Vector:
    shape = np.broadcast_shapes(*(vector.values.shape for vector in arguments))
    series = [
        _to_series(argument, _flatten_argument(vector, shape), columns)
        for argument, vector in zip(node.arguments, arguments, strict=True)
    ]
    array = _convert_result(node, node.function(*series), int(np.prod(shape)))
    valid = validity(array)
    if node.type.kind in ("string", "binary"):
        values = np.asarray(array.fill_null("" if node.type.kind == "string" else b""), object)
        return Vector(values.reshape(shape), _reshape_mask(valid, shape))
    values = plain_values(array).astype(dtype_of(node.type), copy=False)
    return Vector(values.reshape(shape), _reshape_mask(valid, shape))


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a SQL type that the engine can compute with."""
    if type_.kind == "int":
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bits]
    if type_.kind == "float":
        return pa.float32() if type_.bits == 32 else pa.float64()
    if type_.kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW_TYPES[type_.kind]


def _convert_result(node: UserCall, answer: Any, length: int) -> pa.Array:
    if np.ndim(answer) != 1 or len(answer) != length:
        given = type(answer).__name__ if np.ndim(answer) != 1 else f"{len(answer)} values"
        raise CepError(
            f"{node.name} gave {given} for {length} rows",
            hint="return one value for each row of the arguments, as a pandas Series or an array",
        )
    try:
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            return to_single_array(answer).cast(arrow_type(node.type))
        if node.type.kind == "int":
            # Converted in two steps: in one, Python floats in a list would lose their fraction.
            return to_single_array(pa.array(answer, from_pandas=True)).cast(arrow_type(node.type))
        return to_single_array(pa.array(answer, arrow_type(node.type), from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CepError(
            f"{node.name} gave values that are not {node.type.kind}: {error}",
            hint="declare the type that the function returns, or convert its result",
        ) from error


def _flatten_argument(vector: Vector, shape: tuple[int, ...]) -> Vector:
    values = np.broadcast_to(vector.values, shape).ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    return Vector(values, valid, vector.nan_free)


def _reshape_mask(valid: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if valid is None else valid.reshape(shape)


def _to_series(argument: Expression, vector: Vector, columns: EventColumns) -> Any:
    """The argument as a pandas Series."""
    array = vector_to_arrow(argument, vector, columns)
    if argument.type.kind == "int" and array.null_count and _would_round(vector):
        return pd.Series(array.to_pylist(), dtype=object)
    return array.to_pandas()


def vector_to_arrow(argument: Expression, vector: Vector, columns: EventColumns) -> pa.Array:
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
        return _to_decimals(values, missing, type_)
    if type_.kind == "null":
        return pa.nulls(len(values))
    if type_.kind == "date":
        values = values.astype(np.int32)
    return pa.array(values, mask=missing).cast(arrow_type(type_))


def _to_decimals(values: Array, missing: Array | None, type_: Type) -> pa.Array:
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


def _would_round(vector: Vector) -> bool:
    """Whether float64, which pandas takes for integers beside NULL, would round one."""
    values = vector.values if vector.valid is None else vector.values[vector.valid]
    return bool(values.size and max(int(values.max()), -int(values.min())) > _EXACT_DOUBLE)


# --------------------------------------------------------------------------------------------------
# Whether arrays of rows contain a value, as array_contains says it, for many rows at once.
#
# Each array is opened once however often its row is asked for: its elements and the values get
# codes of one dictionary, and a pair is found by one search in the sorted (row, code) numbers.
# --------------------------------------------------------------------------------------------------


def contains_by_row(columns: EventColumns, column: int, rows: Vector, values: pa.Array) -> Vector:
    """For each pair of a row, whose `column` has an array, and a value. `rows` are positions."""
    distinct, place = np.unique(rows.values, return_inverse=True)
    missing = None if rows.valid is None else ~rows.valid
    arrays = columns.shipped(column, distinct, None)
    found = contains_values(arrays, place.reshape(-1), values)
    if missing is None or not missing.any():
        return found
    valid = ~missing if found.valid is None else found.valid & ~missing
    return Vector(found.values, valid)


def contains_values(arrays: pa.Array, place: Array, values: pa.Array) -> Vector:
    """Whether `arrays[place[i]]` contains `values[i]`: NULL where either is NULL, and where the
    value is not found beside a NULL."""
    lists = to_single_array(arrays)
    elements, owners = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists))
    codes, wanted = _encode_together(elements, values)
    width = int(max(codes.max(initial=0), wanted.max(initial=0))) + 2
    known = np.unique(owners * width + codes + 1)
    asked = place * width + wanted + 1
    at = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
    found = known[at] == asked if len(known) else np.zeros(len(asked), np.bool_)
    has_null = np.zeros(len(lists), np.bool_)
    has_null[owners[codes < 0]] = True
    is_null = np.asarray(lists.is_null())[place] | (wanted < 0) | (has_null[place] & ~found)
    return Vector(found, ~is_null if is_null.any() else None)


def _encode_together(elements: pa.Array, values: pa.Array) -> tuple[Array, Array]:
    """Both as codes of one dictionary, NULL as -1. NaN equals NaN, 0.0 equals -0.0."""
    if pa.types.is_floating(elements.type) or pa.types.is_floating(values.type):
        elements, values = pc.add(elements, 0.0), pc.add(values, 0.0)
    together = pa.concat_arrays([elements, values.cast(elements.type)])
    codes = together.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    codes = codes.astype(np.int64)
    return codes[: len(elements)], codes[len(elements) :]


# --------------------------------------------------------------------------------------------------
# Looked-up values in expressions: keys become ids, ids become vectors.
#
# Where a key is columns of one row, the ids of all rows are known once for an advance and then
# gathered like any column; other keys are computed, and their distinct ones given ids, each time.
# Whoever evaluates waits for values that are not there yet; a walk that would rather not asks
# first (`joining/postponed.py`).
# --------------------------------------------------------------------------------------------------


CellSource = Callable[[Cell], Vector]
ArgumentSource = Callable[["Expression"], Vector]
# Readings that give one of the list's own rows.
_ROW_READINGS = frozenset({"each", "prev", "first", "last"})


def identify_keys(
    node: RemoteCall,
    read: CellSource,
    value: ArgumentSource,
    columns: EventColumns,
    tally: ErrorTally,
) -> Array:
    """The id of each element's key, -1 where it is NULL. `value` evaluates arguments."""
    lookup = tally.lookups[node.remote]
    cell = _key_cell(node)
    if cell is not None:
        keys = [argument.column for argument in node.arguments if isinstance(argument, Cell)]
        column = columns.identified(lookup, tuple(key for key in keys if key is not None))
        found = read(Cell(cell.variable, column, BIGINT, cell.reading))
        return found.values if found.valid is None else np.where(found.valid, found.values, -1)
    vectors = [value(argument) for argument in node.arguments]
    shape = np.broadcast_shapes(*(vector.values.shape for vector in vectors))
    keys_ = [
        vector_to_arrow(argument, _flatten_keys(vector, shape), columns)
        for argument, vector in zip(node.arguments, vectors, strict=True)
    ]
    return lookup.ids(keys_).reshape(shape)


def read_remote_value(
    node: RemoteCall, ids: Array, columns: EventColumns, tally: ErrorTally
) -> Vector:
    lookup = tally.lookups[node.remote]
    lookup.wait(ids)
    return lookup.vector(ids, node.path, node.type, columns)


def check_remote_member(
    node: Member, ids: Array, value: Vector, columns: EventColumns, tally: ErrorTally
) -> Vector:
    """Membership in looked-up arrays; value and ids have shapes that broadcast."""
    assert isinstance(node.array, RemoteCall)
    lookup = tally.lookups[node.array.remote]
    lookup.wait(ids)
    return lookup.member(ids, node.array.path, value, node.value.type, columns)


def check_column_member(
    node: Member, array: Vector, value: Vector, columns: EventColumns
) -> Vector:
    """Membership in arrays that came with the rows."""
    assert isinstance(node.array, Cell)
    if node.array.column is None:
        raise CepError("an array has to be a column of the row")
    shape = np.broadcast_shapes(array.values.shape, value.values.shape)
    values = vector_to_arrow(node.value, _flatten_keys(value, shape), columns)
    rows = _flatten_keys(array, shape)
    return _reshape_vector(contains_by_row(columns, node.array.column, rows, values), shape)


def _key_cell(node: RemoteCall) -> Cell | None:
    """The cell that stands for the row whose columns are the key, if they are of one row."""
    cells = [argument for argument in node.arguments if isinstance(argument, Cell)]
    if len(cells) < len(node.arguments) or any(cell.column is None for cell in cells):
        return None
    rows = {(cell.variable, cell.reading) for cell in cells}
    return cells[0] if len(rows) == 1 and cells[0].reading in _ROW_READINGS else None


def _flatten_keys(vector: Vector, shape: tuple[int, ...]) -> Vector:
    values = np.broadcast_to(vector.values, shape).ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    return Vector(values, valid, vector.nan_free)


def _reshape_vector(vector: Vector, shape: tuple[int, ...]) -> Vector:
    valid = None if vector.valid is None else vector.valid.reshape(shape)
    return Vector(vector.values.reshape(shape), valid, vector.nan_free)
