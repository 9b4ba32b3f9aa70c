"""Which elements the fetched arrays have, for `x IN remote(...)`.

Each different element is a code, and each row has its codes in ascending order, so a test is a
binary search among those of its row, made for all rows at once: some steps more where arrays are
long, and not their length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.remotes.growing import Growing
from spark_cep.udfs.remotes.keys import NO_KEY, Keys
from spark_cep.udfs.values.arrow_values import validity
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.values.arrow_values import Array


class Elements:
    """`seen`: how many chunks were taken in."""

    def __init__(self, type_: pa.DataType) -> None:
        self.seen = 0
        self._words = Keys((type_,))
        self._codes = Growing(np.int64)
        # Of each row: where its codes begin, how many they are, whether it is NULL or has a NULL.
        self._starts = Growing(np.int64)
        self._lengths = Growing(np.int64)
        self._valid = Growing(np.bool_)
        self._has_null = Growing(np.bool_)

    def append(self, chunk: pa.Array) -> None:
        valid = validity(chunk)
        valid = np.ones(len(chunk), np.bool_) if valid is None else valid
        offsets = chunk.offsets.to_numpy().astype(np.int64)
        elements = chunk.values.slice(offsets[0], offsets[-1] - offsets[0])
        rows = np.repeat(np.arange(len(chunk)), np.diff(offsets))
        codes = self._words.ids((elements,))
        self._valid.append(valid)
        self._has_null.append(np.bincount(rows[codes < 0], minlength=len(chunk)) > 0)
        known = (codes >= 0) & valid[rows]
        width = len(self._words) + 1
        pairs = np.unique(rows[known] * width + codes[known])
        lengths = np.bincount(pairs // width, minlength=len(chunk))
        self._starts.append(self._codes.size + np.cumsum(lengths) - lengths)
        self._lengths.append(lengths)
        self._codes.append(pairs % width)

    def codes(self, values: pa.Array) -> Array:
        """What `member` takes for values."""
        return self._words.find((values,))

    def member(self, rows: Array, codes: Array) -> Vector:
        """array_contains(array of the row, value)."""
        found = self._find(rows, codes)
        valid = self._valid.all[rows] & (found | ~self._has_null.all[rows]) & (codes != NO_KEY)
        return Vector(found, None if valid.all() else valid)

    def _find(self, rows: Array, codes: Array) -> Array:
        if not rows.size:
            return np.zeros(rows.shape, np.bool_)
        known = self._codes.all
        low, lengths = self._starts.all[rows], self._lengths.all[rows]
        end = low + lengths
        high = end
        for _ in range(int(lengths.max()).bit_length()):
            middle = (low + high) >> 1
            later = (known[middle] < codes) & (middle < high)
            low, high = np.where(later, middle + 1, low), np.where(later, high, middle)
        return np.asarray((low < end) & (known[low] == codes))
