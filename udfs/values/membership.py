"""Whether arrays of rows contain a value, as array_contains says it, for many rows at once.

Each array is opened once however often its row is asked for: its elements and the values get
codes of one dictionary, and a pair is found by one search in the sorted (row, code) numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.values.arrow_values import whole
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import Columns


def member_of_rows(columns: Columns, column: int, rows: Vector, values: pa.Array) -> Vector:
    """For each pair of a row, whose `column` has an array, and a value. `rows` are positions."""
    distinct, place = np.unique(rows.values, return_inverse=True)
    missing = None if rows.valid is None else ~rows.valid
    arrays = columns.shipped(column, distinct, None)
    found = member(arrays, place.reshape(-1), values)
    if missing is None or not missing.any():
        return found
    valid = ~missing if found.valid is None else found.valid & ~missing
    return Vector(found.values, valid)


def member(arrays: pa.Array, place: Array, values: pa.Array) -> Vector:
    """Whether `arrays[place[i]]` contains `values[i]`: NULL where either is NULL, and where the
    value is not found beside a NULL."""
    lists = whole(arrays)
    elements, owners = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists))
    codes, wanted = _codes(elements, values)
    width = int(max(codes.max(initial=0), wanted.max(initial=0))) + 2
    known = np.unique(owners * width + codes + 1)
    asked = place * width + wanted + 1
    at = np.minimum(np.searchsorted(known, asked), max(len(known) - 1, 0))
    found = known[at] == asked if len(known) else np.zeros(len(asked), np.bool_)
    has_null = np.zeros(len(lists), np.bool_)
    has_null[owners[codes < 0]] = True
    is_null = np.asarray(lists.is_null())[place] | (wanted < 0) | (has_null[place] & ~found)
    return Vector(found, ~is_null if is_null.any() else None)


def _codes(elements: pa.Array, values: pa.Array) -> tuple[Array, Array]:
    """Both as codes of one dictionary, NULL as -1. NaN equals NaN, 0.0 equals -0.0."""
    if pa.types.is_floating(elements.type) or pa.types.is_floating(values.type):
        elements, values = pc.add(elements, 0.0), pc.add(values, 0.0)
    together = pa.concat_arrays([elements, values.cast(elements.type)])
    codes = together.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    codes = codes.astype(np.int64)
    return codes[: len(elements)], codes[len(elements) :]
