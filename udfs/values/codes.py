"""Columns as integer codes: for sorting, for grouping by key, and for comparing words.

Always holds: two codes are equal exactly when Spark's ORDER BY or GROUP BY treats the values as
equal: NaN equals NaN, -0.0 equals 0.0, NULL equals NULL. Only sort codes and word codes follow an
order. Arrow's and pandas' own sort and group are not used: neither has Spark's order of NaN and
NULL, and the engine needs neighbours, ties and windows of the sorted rows, which take numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.values.arrow_values import (
    INT64_DIGITS,
    Array,
    decimal_words,
    is_plain,
    plain_values,
    to_single_array,
    validity,
)

if TYPE_CHECKING:
    from spark_cep.udfs.program import Order


_INT64 = np.iinfo(np.int64)
# Key codes stay below this multiple of the row count (or this number), so they can index arrays.
_DENSE_FACTOR = 4
_MIN_DENSE_SIZE = 1024


def sort_codes(column: pa.ChunkedArray | pa.Array, order: Order) -> Array:
    """Codes whose ascending order is Spark's order of the column.

    These are the values themselves, not copied, for integers (or floats without NaN) in ascending
    order without NULL.
    """
    values, valid = _order_values(column)
    if order.descending:
        # ~x is -x - 1: it reverses the order and cannot overflow.
        values = -values if values.dtype.kind == "f" else ~values
    return values if valid is None else _insert_null(values, valid, first=order.nulls_first)


def key_codes(columns: Sequence[pa.ChunkedArray | pa.Array]) -> Array:
    """int64 codes that are equal exactly when all columns are, not negative and not far above the
    number of rows."""
    codes, _ = _column_key(columns[0])
    for column in columns[1:]:
        other, other_size = _column_key(column)
        # Each size is at most a few times the number of rows: their product fits.
        codes, _ = _compact_codes(codes * other_size + other)
    return codes


def _column_key(column: pa.ChunkedArray | pa.Array) -> tuple[Array, int]:
    """Codes 0 <= code < size and the size; NULL has the last code."""
    if is_words(column.type):
        indices, words = encode_words(column)
        codes = pc.fill_null(indices, len(words)).to_numpy()
        return codes.astype(np.int64), len(words) + 1
    values, valid = _order_values(column)
    if values.dtype.kind == "f":
        values = order_floats(values)
    if valid is None:
        return _compact_codes(values.astype(np.int64, copy=False))
    present, size = _compact_codes(values[valid].astype(np.int64, copy=False))
    codes = np.full(len(values), size, np.int64)
    codes[valid] = present
    return codes, size + 1


def _compact_codes(values: Array) -> tuple[Array, int]:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    size = high - low + 1
    if size <= max(_DENSE_FACTOR * len(values), _MIN_DENSE_SIZE):
        return (values - low if low else values), size
    codes, distinct = pd.factorize(values, sort=True)
    return codes.astype(np.int64, copy=False), len(distinct)


def _order_values(column: pa.ChunkedArray | pa.Array) -> tuple[Array, Array | None]:
    """Values in Spark's order, and a mask of those that are not NULL.

    Floats only where there is neither NaN nor NULL, integers otherwise.
    """
    if is_words(column.type):
        return _word_ranks(column)
    array = to_single_array(column)
    valid = validity(array)
    if not is_plain(array.type):
        return _nested_ranks(array), valid
    if pa.types.is_decimal(array.type) and array.type.precision > INT64_DIGITS:
        return _decimal_ranks(array), valid
    values = plain_values(array)
    if values.dtype.kind == "b":
        return values.view(np.int8), valid
    if values.dtype.kind == "f" and not (valid is None and not np.isnan(values).any()):
        return order_floats(values), valid
    return values, valid


def order_floats(values: Array) -> Array:
    """int64 in Spark's order of floats: the bits, reversed for negative numbers."""
    canonical = values.astype(np.float64) + 0.0
    canonical[np.isnan(canonical)] = np.nan
    bits = canonical.view(np.int64)
    return np.asarray(bits ^ ((bits >> 63) & _INT64.max))


def _insert_null(values: Array, valid: Array, *, first: bool) -> Array:
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
    indices, words = encode_words(column)
    ranks = np.empty(len(words) + 1, np.int64)
    ranks[pc.sort_indices(words).to_numpy()] = np.arange(len(words))
    return ranks[pc.fill_null(indices, len(words)).to_numpy()], validity(indices)


def _decimal_ranks(array: pa.Array) -> Array:
    low, high = decimal_words(array)
    if (high == low >> 63).all():
        return low
    return _dense_ranks([high, low.view(np.uint64)])


def _dense_ranks(columns: Sequence[Array]) -> Array:
    """Ranks of rows by several columns, the first column first."""
    order = np.lexsort(list(reversed(columns)))
    changed = np.zeros(len(order), np.int64)
    for column in columns:
        ordered = column[order]
        changed[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(changed)
    return ranks


def _nested_ranks(array: pa.Array) -> Array:
    """Ranks of structs, field by field, and of lists, element by element; a prefix comes first, and
    so does NULL inside."""
    type_ = array.type
    if pa.types.is_struct(type_):
        fields = [_value_ranks(field) for field in array.flatten()]
        return _dense_ranks(fields) if fields else np.zeros(len(array), np.int64)
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
    elements = _value_ranks(array.flatten()).tolist()
    ends = np.cumsum(pc.fill_null(pc.list_value_length(array), 0).to_numpy()).tolist()
    lists = [tuple(elements[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
    rank = {elements: number for number, elements in enumerate(sorted(set(lists)))}
    return np.array([rank[each] for each in lists], np.int64)


def _value_ranks(array: pa.Array) -> Array:
    values, valid = _order_values(array)
    if values.dtype.kind == "f":
        values = order_floats(values)
    return values if valid is None else _insert_null(values, valid, first=True)


# ---- words ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vocabulary:
    """The words of a program's columns and constants in ascending order, one code for each.

    All string columns and constants of a program share one vocabulary, so comparing two strings is
    comparing two integers; only these can be gathered and compared at numpy's speed. Codes follow
    the order of the UTF-8 bytes, which is Spark's order for UTF8_BINARY; a collated column arrives
    as its collation key, which is binary. `columns`: codes and validity mask of each column.
    """

    words: pa.Array
    text: bool
    columns: Mapping[int, tuple[Array, Array | None]]

    def code(self, word: str | bytes) -> int:
        code = pc.index(self.words, pa.scalar(as_bytes(word), self.words.type)).as_py()
        if code < 0:
            raise CepError(f"{word!r} is not a constant of the program's conditions")
        return int(code)

    def decode(self, codes: Array, valid: Array | None) -> pa.Array:
        """The words of a 1-D array of codes, as Arrow strings (or binaries)."""
        indices = codes.astype(np.int64, copy=False)
        words = self.words.take(pa.array(indices, mask=None if valid is None else ~valid))
        return words.cast(pa.large_string()) if self.text else words


def build_vocabulary(
    columns: Mapping[int, pa.ChunkedArray], constants: Iterable[str | bytes], *, text: bool
) -> Vocabulary:
    """`columns` by their index in the program; `text`: the words are strings, not binaries."""
    encoded = {index: encode_words(column) for index, column in columns.items()}
    parts = [pa.array([as_bytes(word) for word in constants], pa.large_binary())]
    parts += [words for _, words in encoded.values()]
    words = pc.unique(pa.concat_arrays(parts))
    words = words.take(pc.sort_indices(words))
    collated = any(not is_text(column.type) for column in columns.values())
    return Vocabulary(
        words,
        text and not collated,
        {index: _renumber_codes(*pair, words) for index, pair in encoded.items()},
    )


def encode_words(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, pa.Array]:
    """Indices (NULL where the column is) into distinct words, in order of appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # its dictionary may repeat words
    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        if encoded.num_chunks > 1:
            encoded = encoded.unify_dictionaries()
        encoded = encoded.chunk(0) if encoded.num_chunks == 1 else encoded.combine_chunks()
    return encoded.indices, _words_to_binary(encoded.dictionary)


def as_bytes(word: str | bytes) -> bytes:
    return word.encode() if isinstance(word, str) else bytes(word)


def is_words(type_: pa.DataType) -> bool:
    """Whether a column of this Arrow type can be encoded."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(
        is_text(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def is_text(type_: pa.DataType) -> bool:
    """Whether the words are strings, not binaries."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _words_to_binary(words: pa.Array) -> pa.Array:
    if pa.types.is_string(words.type):
        words = words.cast(pa.binary())
    return words.cast(pa.large_binary())


def _renumber_codes(
    indices: pa.Array, own: pa.Array, words: pa.Array
) -> tuple[Array, Array | None]:
    valid = validity(indices)
    codes = to_single_array(pc.index_in(own, words)).cast(pa.int64()).to_numpy()
    if len(codes) == 0:
        return np.zeros(len(indices), np.int64), valid
    return codes[pc.fill_null(indices, 0).to_numpy()], valid


# ---- hashes --------------------------------------------------------------------------------------


Hashes = npt.NDArray[np.uint64]

_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def hash_values(column: pa.ChunkedArray | pa.Array) -> Hashes:
    """A hash of each value, the same in every process; for columns of few values, or short ones."""
    values = to_single_array(column).dictionary_encode()
    known = [repr(each) for each in values.dictionary.to_pylist()]
    hashes = pd.util.hash_array(np.array([*known, "NULL"], dtype=object))
    places = values.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    found: Hashes = hashes[places]
    return found


def mix_hashes(numbers: Hashes) -> Hashes:
    """Other numbers, one for one, of which every bit depends on every bit (splitmix64)."""
    for shift, factor in zip((30, 27), _MIX, strict=True):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * factor
    return numbers ^ (numbers >> np.uint64(31))
