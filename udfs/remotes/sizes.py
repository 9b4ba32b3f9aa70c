"""How many bytes each value of an Arrow array takes: its data and its offsets.

The few bits of validity are left out, and no value counts as less than a word: what is known of a
key takes that anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.remotes.conversion import is_list

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

LEAST = 8
_OFFSET = 4


def sizes(array: pa.Array) -> Array:
    return np.maximum(_sizes(array), LEAST)


def _sizes(array: pa.Array) -> Array:
    type_ = array.type
    if pa.types.is_struct(type_):
        parts = [_sizes(part) for part in array.flatten()]
        return np.sum(parts, axis=0) if parts else np.zeros(len(array), np.int64)
    if is_list(type_) or pa.types.is_map(type_):
        return _list_sizes(array)
    try:
        width = type_.bit_width
    except ValueError:
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False)).astype(np.int64) + _OFFSET
    return np.full(len(array), -(-width // 8), np.int64)


def _list_sizes(array: pa.Array) -> Array:
    offsets = array.offsets.to_numpy().astype(np.int64)
    elements = array.values if not pa.types.is_map(array.type) else _entries(array)
    ends = np.zeros(len(elements) + 1, np.int64)
    np.cumsum(_sizes(elements), out=ends[1:])
    return np.asarray(ends[offsets[1:]] - ends[offsets[:-1]] + _OFFSET)


def _entries(array: pa.MapArray) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
