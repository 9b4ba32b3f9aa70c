"""Order-preserving integer codes for the strings (or binaries) that conditions compare.

All string columns and constants of a program share one vocabulary, so that comparing two strings
is comparing two integers. Codes follow the order of the UTF-8 bytes, which is Spark's order for
UTF8_BINARY; a collated column arrives as its collation key, which is binary already.

Why not compare Arrow strings directly: a join compares each string many times, and only
integers can be gathered and compared at numpy's speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.values.arrow_values import Array, validity, whole


@dataclass(frozen=True)
class Vocabulary:
    """`words` ascending; `columns` has the codes and the validity mask of each encoded column."""

    words: pa.Array
    text: bool
    columns: Mapping[int, tuple[Array, Array | None]]

    def code(self, word: str | bytes) -> int:
        found = pc.index(self.words, pa.scalar(as_bytes(word), self.words.type)).as_py()
        if found < 0:
            raise CepError(f"{word!r} is no constant of the program's conditions")
        return int(found)

    def decode(self, codes: Array, valid: Array | None) -> pa.Array:
        """The words of a 1-D array of codes, as Arrow strings (or binaries)."""
        indices = codes.astype(np.int64, copy=False)
        found = self.words.take(pa.array(indices, mask=None if valid is None else ~valid))
        return found.cast(pa.large_string()) if self.text else found


def build(
    columns: Mapping[int, pa.ChunkedArray], constants: Iterable[str | bytes], *, text: bool
) -> Vocabulary:
    """`columns` by their index in the program; `text`: words are strings and not binaries."""
    encoded = {index: encode(column) for index, column in columns.items()}
    parts = [pa.array([as_bytes(word) for word in constants], pa.large_binary())]
    parts += [words for _, words in encoded.values()]
    words = pc.unique(pa.concat_arrays(parts))
    words = words.take(pc.sort_indices(words))
    collated = any(not is_text(column.type) for column in columns.values())
    return Vocabulary(
        words,
        text and not collated,
        {index: _renumbered(*pair, words) for index, pair in encoded.items()},
    )


def encode(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, pa.Array]:
    """Indices (NULL where the column is) into distinct words, in order of appearance."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # whose own dictionary may repeat words
    encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        if encoded.num_chunks > 1:
            encoded = encoded.unify_dictionaries()
        encoded = encoded.chunk(0) if encoded.num_chunks == 1 else encoded.combine_chunks()
    return encoded.indices, _as_binary(encoded.dictionary)


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
    """Whether the words are strings and not binaries."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _as_binary(words: pa.Array) -> pa.Array:
    if pa.types.is_string(words.type):
        words = words.cast(pa.binary())
    return words.cast(pa.large_binary())


def _renumbered(indices: pa.Array, own: pa.Array, words: pa.Array) -> tuple[Array, Array | None]:
    valid = validity(indices)
    codes = whole(pc.index_in(own, words)).cast(pa.int64()).to_numpy()
    if len(codes) == 0:
        return np.zeros(len(indices), np.int64), valid
    return codes[pc.fill_null(indices, 0).to_numpy()], valid
