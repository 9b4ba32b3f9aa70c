"""Calls in expressions: user functions, membership in arrays, values of remote sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import BIGINT, Cell, Member, RemoteCall
from spark_cep.udfs.values.arrow_values import EXACT_DOUBLE, plain_values, to_single_array, validity
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression, Type, UserCall
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally
    from spark_cep.udfs.values.vectors import EventColumns


CellSource = Callable[[Cell], Vector]
ArgumentSource = Callable[["Expression"], Vector]


# ---- user functions ------------------------------------------------------------------------------


def call_function(node: UserCall, arguments: list[Vector], columns: EventColumns) -> Vector:
    """Calls a user's function with pandas Series and reads its result as a vector.

    Series are as in a pandas UDF: strings and decimals as objects, integers with NULL as float (as
    objects where float would round them), timestamps as datetime64[us], lists as numpy arrays. NaN
    and None in the result are NULL, also as there.
    """
    shape = np.broadcast_shapes(*(vector.values.shape for vector in arguments))
    series = [
        _to_series(argument, _flatten_vector(vector, shape), columns)
        for argument, vector in zip(node.arguments, arguments, strict=True)
    ]
    array = _convert_result(node, node.function(*series), int(np.prod(shape)))
    valid = validity(array)
    if node.type.kind in ("string", "binary"):
        values = np.asarray(array.fill_null("" if node.type.kind == "string" else b""), object)
    else:
        values = plain_values(array).astype(dtype_of(node.type), copy=False)
    return _reshape_vector(Vector(values, valid), shape)


def _convert_result(node: UserCall, result: Any, length: int) -> pa.Array:
    if np.ndim(result) != 1 or len(result) != length:
        given = type(result).__name__ if np.ndim(result) != 1 else f"{len(result)} values"
        raise CepError(
            f"{node.name} returned {given} for {length} rows",
            hint="return one value for each row of the arguments, as a pandas Series or an array",
        )
    try:
        if isinstance(result, pa.Array | pa.ChunkedArray):
            return to_single_array(result).cast(arrow_type(node.type))
        if node.type.kind == "int":
            # Converted in two steps: in one, Python floats in a list would lose their fraction.
            return to_single_array(pa.array(result, from_pandas=True)).cast(arrow_type(node.type))
        return to_single_array(pa.array(result, arrow_type(node.type), from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise CepError(
            f"{node.name} returned values that are not {node.type.kind}: {error}",
            hint="declare the type that the function returns, or convert its result",
        ) from error


def _to_series(argument: Expression, vector: Vector, columns: EventColumns) -> Any:
    """The argument as a pandas Series."""
    array = vector_to_arrow(argument, vector, columns)
    if argument.type.kind == "int" and array.null_count and _would_round(vector):
        return pd.Series(array.to_pylist(), dtype=object)
    return array.to_pandas()


def _would_round(vector: Vector) -> bool:
    """Whether float64, which pandas uses for integers with NULL, would round a value."""
    values = vector.values if vector.valid is None else vector.values[vector.valid]
    return bool(values.size and max(int(values.max()), -int(values.min())) > EXACT_DOUBLE)


# ---- vectors as Arrow arrays ---------------------------------------------------------------------


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


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a SQL type that the engine can compute with."""
    if type_.kind == "int":
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bits]
    if type_.kind == "float":
        return pa.float32() if type_.bits == 32 else pa.float64()
    if type_.kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW_TYPES[type_.kind]


def vector_to_arrow(argument: Expression, vector: Vector, columns: EventColumns) -> pa.Array:
    """The one-dimensional values of an expression as an Arrow array of its type."""
    type_, values = argument.type, vector.values
    missing = None if vector.valid is None else ~vector.valid
    if type_.kind == "other":
        if not isinstance(argument, Cell) or argument.column is None:
            raise CepError(
                "a user function takes a value of this type only directly from a column",
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


def _flatten_vector(vector: Vector, shape: tuple[int, ...]) -> Vector:
    values = np.broadcast_to(vector.values, shape).ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    return Vector(values, valid, vector.nan_free)


def _reshape_vector(vector: Vector, shape: tuple[int, ...]) -> Vector:
    valid = None if vector.valid is None else vector.valid.reshape(shape)
    return Vector(vector.values.reshape(shape), valid, vector.nan_free)


# ---- membership in arrays ------------------------------------------------------------------------


def contains_by_row(columns: EventColumns, column: int, rows: Vector, values: pa.Array) -> Vector:
    """Whether the array in `column` of each row contains the value paired with it."""
    distinct, place = np.unique(rows.values, return_inverse=True)
    missing = None if rows.valid is None else ~rows.valid
    arrays = columns.shipped(column, distinct, None)
    found = contains_values(arrays, place.reshape(-1), values)
    if missing is None or not missing.any():
        return found
    valid = ~missing if found.valid is None else found.valid & ~missing
    return Vector(found.values, valid)


def contains_values(arrays: pa.Array, place: Array, values: pa.Array) -> Vector:
    """Whether `arrays[place[i]]` contains `values[i]`, with the meaning of array_contains.

    NULL where either is NULL, and where the value is missing from an array that contains NULL. Each
    array is read once, however many pairs it is in: its elements and the values get codes of one
    dictionary, and a pair is found by one search in the sorted (row, code) numbers.
    """
    lists = to_single_array(arrays)
    elements, owners = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists))
    codes, sought = _encode_together(elements, values)
    width = int(max(codes.max(initial=0), sought.max(initial=0))) + 2
    known = np.unique(owners * width + codes + 1)
    pairs = place * width + sought + 1
    at = np.minimum(np.searchsorted(known, pairs), max(len(known) - 1, 0))
    found = known[at] == pairs if len(known) else np.zeros(len(pairs), np.bool_)
    has_null = np.zeros(len(lists), np.bool_)
    has_null[owners[codes < 0]] = True
    is_null = np.asarray(lists.is_null())[place] | (sought < 0) | (has_null[place] & ~found)
    return Vector(found, ~is_null if is_null.any() else None)


def _encode_together(elements: pa.Array, values: pa.Array) -> tuple[Array, Array]:
    """Both as codes of one dictionary, NULL as -1. NaN equals NaN, 0.0 equals -0.0."""
    if pa.types.is_floating(elements.type) or pa.types.is_floating(values.type):
        elements, values = pc.add(elements, 0.0), pc.add(values, 0.0)
    together = pa.concat_arrays([elements, values.cast(elements.type)])
    codes = together.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    codes = codes.astype(np.int64)
    return codes[: len(elements)], codes[len(elements) :]


# ---- remote values -------------------------------------------------------------------------------


# Readings that give a single row of the list.
_ROW_READINGS = frozenset({"each", "prev", "first", "last"})


def identify_keys(
    node: RemoteCall,
    read: CellSource,
    value: ArgumentSource,
    columns: EventColumns,
    tally: ErrorTally,
) -> Array:
    """The id of each element's key, -1 where the key is NULL. `value` evaluates arguments.

    Where the key is columns of one row, the ids of all rows are computed once for an advance and
    then gathered like a column. Other keys are computed each time, and their distinct ones get ids.
    """
    lookup = tally.lookups[node.remote]
    cell = _key_cell(node)
    if cell is not None:
        keys = [argument.column for argument in node.arguments if isinstance(argument, Cell)]
        column = columns.key_id_column(lookup, tuple(key for key in keys if key is not None))
        found = read(Cell(cell.variable, column, BIGINT, cell.reading))
        return found.values if found.valid is None else np.where(found.valid, found.values, -1)
    vectors = [value(argument) for argument in node.arguments]
    shape = np.broadcast_shapes(*(vector.values.shape for vector in vectors))
    key_arrays = [
        vector_to_arrow(argument, _flatten_vector(vector, shape), columns)
        for argument, vector in zip(node.arguments, vectors, strict=True)
    ]
    return lookup.ids(key_arrays).reshape(shape)


def _key_cell(node: RemoteCall) -> Cell | None:
    """A cell of the row whose columns make up the key, if they are all of one row."""
    cells = [argument for argument in node.arguments if isinstance(argument, Cell)]
    if len(cells) < len(node.arguments) or any(cell.column is None for cell in cells):
        return None
    rows = {(cell.variable, cell.reading) for cell in cells}
    return cells[0] if len(rows) == 1 and cells[0].reading in _ROW_READINGS else None


def read_remote_value(
    node: RemoteCall, ids: Array, columns: EventColumns, tally: ErrorTally
) -> Vector:
    """The looked-up values. Waits for those that have not arrived; a walk fetches them before."""
    lookup = tally.lookups[node.remote]
    lookup.wait(ids)
    return lookup.vector(ids, node.path, node.type, columns)


def check_remote_member(
    node: Member, ids: Array, value: Vector, columns: EventColumns, tally: ErrorTally
) -> Vector:
    """Membership in looked-up arrays; the shapes of value and ids broadcast."""
    assert isinstance(node.array, RemoteCall)
    lookup = tally.lookups[node.array.remote]
    lookup.wait(ids)
    return lookup.member(ids, node.array.path, value, node.value.type, columns)


def check_column_member(
    node: Member, array: Vector, value: Vector, columns: EventColumns
) -> Vector:
    """Membership in arrays of a shipped column."""
    assert isinstance(node.array, Cell)
    if node.array.column is None:
        raise CepError("the array of a membership test must be a column of the row")
    shape = np.broadcast_shapes(array.values.shape, value.values.shape)
    values = vector_to_arrow(node.value, _flatten_vector(value, shape), columns)
    rows = _flatten_vector(array, shape)
    return _reshape_vector(contains_by_row(columns, node.array.column, rows, values), shape)
