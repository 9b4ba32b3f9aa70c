"""Columns as numbers: for sorting and for grouping by key.

Always holds: two codes are equal exactly when Spark's ORDER BY or GROUP BY calls the values equal:
NaN equals NaN, -0.0 equals 0.0, NULL equals NULL. Only sort codes say anything about order.

Why not Arrow's or pandas' own sort and group: neither has Spark's order of NaN and NULL, and the
engine asks for neighbours, ties and windows of the sorted rows, which are questions to numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.values.arrow_values import (
    INT64_DIGITS,
    Array,
    decimal_words,
    is_plain,
    plain,
    validity,
    whole,
)
from spark_cep.udfs.values.vocabulary import encode, is_words

if TYPE_CHECKING:
    from spark_cep.udfs.program import Order

_INT64 = np.iinfo(np.int64)
# Key codes are below this multiple of the row count (or this number), so that they can index.
_DENSE = 4
_DENSE_LEAST = 1024


def sort_codes(column: pa.ChunkedArray | pa.Array, order: Order) -> Array:
    """Codes whose ascending order is Spark's order of the column; the values themselves, not
    copied, where they are integers (or floats without NaN) in ascending order without NULL."""
    values, valid = _ordered(column)
    if order.descending:
        # ~x is -x - 1: it reverses the order and cannot overflow.
        values = -values if values.dtype.kind == "f" else ~values
    return values if valid is None else _with_null(values, valid, first=order.nulls_first)


def key_codes(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Array:
    """int64 codes, equal exactly when all columns are; not negative and not far above the
    number of rows."""
    codes, _ = _key(columns[0])
    for column in columns[1:]:
        other, other_size = _key(column)
        # Each size is at most a few times the number of rows: their product fits.
        codes, _ = _compact(codes * other_size + other)
    return codes


def _ordered(column: pa.ChunkedArray | pa.Array) -> tuple[Array, Array | None]:
    """Values in Spark's order and where they are not NULL. Floats only where all are numbers
    without NULL among them, integers otherwise."""
    if is_words(column.type):
        return _word_ranks(column)
    array = whole(column)
    valid = validity(array)
    if not is_plain(array.type):
        return _nested_ranks(array), valid
    if pa.types.is_decimal(array.type) and array.type.precision > INT64_DIGITS:
        return _decimal_ranks(array), valid
    values = plain(array)
    if values.dtype.kind == "b":
        return values.view(np.int8), valid
    if values.dtype.kind == "f" and not (valid is None and not np.isnan(values).any()):
        return _float_order(values), valid
    return values, valid


def _float_order(values: Array) -> Array:
    """int64 that order as Spark orders floats: the bits, those of negative numbers reversed."""
    canonical = values.astype(np.float64) + 0.0
    canonical[np.isnan(canonical)] = np.nan
    bits = canonical.view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & _INT64.max))


def _with_null(values: Array, valid: Array, *, first: bool) -> Array:
    present = values[valid].astype(np.int64)
    if not present.size:
        return np.zeros(len(values), np.int64)
    null = int(present.min()) - 1 if first else int(present.max()) + 1
    if not _INT64.min <= null <= _INT64.max:
        distinct, present = np.unique(present, return_inverse=True)
        null = -1 if first else len(distinct)
    codes = np.full(len(values), null, np.int64)
    codes[valid] = present
    return codes


def _word_ranks(column: pa.ChunkedArray | pa.Array) -> tuple[Array, Array | None]:
    indices, words = encode(column)
    ranks = np.empty(len(words) + 1, np.int64)
    ranks[pc.sort_indices(words).to_numpy()] = np.arange(len(words))
    return ranks[pc.fill_null(indices, len(words)).to_numpy()], validity(indices)


def _decimal_ranks(array: pa.Array) -> Array:
    low, high = decimal_words(array)
    if (high == low >> 63).all():
        return low
    return _dense([high, low.view(np.uint64)])


def _dense(columns: Sequence[Array]) -> Array:
    """Ranks of rows by several columns, the first one first."""
    order = np.lexsort(list(reversed(columns)))
    changed = np.zeros(len(order), np.int64)
    for column in columns:
        ordered = column[order]
        changed[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(changed)
    return ranks


def _nested_ranks(array: pa.Array) -> Array:
    """Structs field by field, lists element by element, the shorter first; NULL within first."""
    type_ = array.type
    if pa.types.is_struct(type_):
        fields = [_ranks(field) for field in array.flatten()]
        return _dense(fields) if fields else np.zeros(len(array), np.int64)
    if not (
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or pa.types.is_map(type_)
    ):
        raise CepError(
            f"values of type {type_} can be neither ordered nor grouped",
            hint="cast the column, or take a field of it",
        )
    elements = _ranks(array.flatten()).tolist()
    ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy()).tolist()
    lists = [tuple(elements[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    rank = {elements: number for number, elements in enumerate(sorted(set(lists)))}
    return np.array([rank[each] for each in lists], np.int64)


def _ranks(array: pa.Array) -> Array:
    values, valid = _ordered(array)
    if values.dtype.kind == "f":
        values = _float_order(values)
    return values if valid is None else _with_null(values, valid, first=True)


def _key(column: pa.ChunkedArray | pa.Array) -> tuple[Array, int]:
    """Codes 0 <= code < size, NULL the last one."""
    if is_words(column.type):
        indices, words = encode(column)
        codes = pc.fill_null(indices, len(words)).to_numpy()
        return codes.astype(np.int64), len(words) + 1
    values, valid = _ordered(column)
    if values.dtype.kind == "f":
        values = _float_order(values)
    if valid is None:
        return _compact(values.astype(np.int64, copy=False))
    present, size = _compact(values[valid].astype(np.int64, copy=False))
    codes = np.full(len(values), size, np.int64)
    codes[valid] = present
    return codes, size + 1


def _compact(values: Array) -> tuple[Array, int]:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    size = high - low + 1
    if size <= max(_DENSE * len(values), _DENSE_LEAST):
        return (values - low if low else values), size
    codes, distinct = pd.factorize(values, sort=True)
    return codes.astype(np.int64, copy=False), len(distinct)
