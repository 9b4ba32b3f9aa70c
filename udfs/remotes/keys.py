"""Keys as small integers: each different key has an id, in order of appearance.

Always holds: ids follow equality as Spark's joins and IN have it: NaN equals NaN, -0.0 equals 0.0.
A key that is NULL, or has a part that is, has the id -1. Only distinct keys cross from Arrow to
Python, as the values that a user expects: int, float, str, bytes, bool, Decimal, date, datetime
(with time zone UTC where Spark's type has one), a tuple where a key has several parts.

Why ids: whatever is known of a key can then be a numpy column, and a hit costs no Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.values.arrow_values import whole

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

NO_KEY: Final = -1
UNKNOWN: Final = -2
# NaN differs from itself, but Python finds the very object that is a key of a dict.
_NAN: Final = float("nan")


class Keys:
    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._ids: dict[Any, int] = {}
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values)

    def ids(self, parts: Sequence[pa.Array]) -> Array:
        """An id for each row of the parts; a key that is new gets one."""
        codes, keys = self._distinct(parts)
        return _spread(self.intern(keys), codes)

    def find(self, parts: Sequence[pa.Array]) -> Array:
        """As `ids`, but a key that is new is UNKNOWN."""
        codes, keys = self._distinct(parts)
        known = (self._ids.get(key, UNKNOWN) for key in keys)
        return _spread(np.fromiter(known, np.int64, len(keys)), codes)

    def intern(self, keys: Iterable[Any]) -> Array:
        """The ids of Python keys."""
        ids, values = self._ids, self.values
        keys = list(keys)
        known = list(map(ids.get, keys))
        if None not in known:
            return np.array(known, np.int64)
        found = []
        for key in keys:
            place = ids.get(key)
            if place is None:
                kept = canonical(key)
                place = ids.setdefault(kept, len(values))
                if place == len(values):
                    values.append(kept)
            found.append(place)
        return np.array(found, np.int64)

    def _distinct(self, parts: Sequence[pa.Array]) -> tuple[Array, list[Any]]:
        """A code for each row, -1 for NULL, and the keys that the codes stand for."""
        encoded = [_encoded(part, type_) for part, type_ in zip(parts, self._types, strict=True)]
        if len(encoded) == 1:
            codes, words = encoded[0]
            return codes, _python(words)
        lists = [_python(words) for _, words in encoded]
        codes, places = reduce(_crossed, encoded[1:], _alone(*encoded[0]))
        columns = [
            map(part.__getitem__, place.tolist()) for part, place in zip(lists, places, strict=True)
        ]
        return codes, list(zip(*columns, strict=True))


_Places = list["Array"]


def _alone(codes: Array, words: pa.Array) -> tuple[Array, _Places]:
    return codes, [np.arange(len(words))]


def _crossed(left: tuple[Array, _Places], right: tuple[Array, pa.Array]) -> tuple[Array, _Places]:
    """The distinct pairs of two codes. There are never more of them than rows, so that the next
    product fits into int64 too."""
    (codes, places), (others, words) = left, right
    width = max(len(words), 1)
    missing = (codes < 0) | (others < 0)
    pairs = pa.array(codes * width + others, mask=missing).dictionary_encode()
    both = pairs.dictionary.to_numpy()
    first, second = both // width, both % width
    return _indices(pairs), [*(place[first] for place in places), second]


def _encoded(part: pa.Array, type_: pa.DataType) -> tuple[Array, pa.Array]:
    if pa.types.is_dictionary(part.type):
        return _recoded(part, type_)
    array = whole(part)
    if array.type != type_:
        array = array.cast(type_)
    if pa.types.is_floating(type_):
        array = pc.add(array, pa.scalar(0.0, type_))  # -0.0 becomes 0.0
    encoded = array.dictionary_encode()
    return _indices(encoded), encoded.dictionary


def _recoded(part: pa.Array, type_: pa.DataType) -> tuple[Array, pa.Array]:
    """Of a column that came encoded, only the dictionary, which may repeat words."""
    codes, words = _encoded(part.dictionary, type_)
    indices = part.indices.cast(pa.int64())
    places = indices.fill_null(len(codes)).to_numpy()
    return np.append(codes, NO_KEY)[places], words


def _indices(encoded: pa.DictionaryArray) -> Array:
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(NO_KEY)
    return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _python(words: pa.Array) -> list[Any]:
    if not (pa.types.is_integer(words.type) or pa.types.is_floating(words.type)):
        return list(words.to_pylist())
    keys: list[Any] = words.to_numpy(zero_copy_only=False).tolist()  # a fifth of the time
    return [canonical(key) for key in keys] if pa.types.is_floating(words.type) else keys


def canonical(key: Any) -> Any:
    """The key as it is kept: all NaNs are one object, -0.0 is 0.0."""
    if isinstance(key, float):
        return key + 0.0 if key == key else _NAN  # noqa: PLR0124, only NaN differs from itself
    if isinstance(key, tuple):
        return tuple(map(canonical, key))
    return key


def _spread(ids: Array, codes: Array) -> Array:
    if not len(ids):
        return np.full(len(codes), NO_KEY)
    return np.where(codes < 0, NO_KEY, ids[codes])
