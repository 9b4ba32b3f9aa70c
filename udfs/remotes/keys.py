"""The keys of a remote source as small integers.

`KeyIndex` gives each distinct key an id, `PartIndex` finds the element that is fetched for a key
(EIRES' part-of relation), and `LocalTable` answers keys from a table that the driver collected.
Whatever is known of a key is then an entry of a numpy column, and a hit costs no Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.values.arrow_values import Array


_INITIAL_CAPACITY = 64


class GrowableArray:
    """A numpy column that grows at its end.

    `all` is the whole capacity, to be indexed by places and by -1; `used` is the filled part.
    There is always at least one place beyond the last, and it has the fill value, so that the
    index -1 ("no key") reads the fill value without a mask. The capacity doubles, so appending
    takes constant time per element, however small the pieces are.
    """

    def __init__(self, dtype: npt.DTypeLike, fill: Any = 0) -> None:
        self._fill = fill
        self.size = 0
        self.all: Array = np.full(_INITIAL_CAPACITY, fill, dtype)

    @property
    def used(self) -> Array:
        return self.all[: self.size]

    def grow(self, size: int) -> None:
        """Grows to `size` places; the new ones have the fill value."""
        if size >= len(self.all):
            wider = np.full(max(size + 1, 2 * len(self.all)), self._fill, self.all.dtype)
            wider[: self.size] = self.used
            self.all = wider
        self.size = max(size, self.size)

    def keep(self, places: Array) -> None:
        """Keeps the entries at these places, which become 0, 1, ..., and frees the others."""
        kept = self.all[places]
        self.all = np.full(max(len(kept) + 1, _INITIAL_CAPACITY), self._fill, self.all.dtype)
        self.size = len(kept)
        self.all[: self.size] = kept

    def append(self, values: Array) -> None:
        start = self.size
        self.grow(start + len(values))
        self.all[start : self.size] = values


def distinct_places(places: Array, size: int) -> Array:
    """The distinct places other than -1, ascending; all are below `size`."""
    places = places.ravel()
    if len(places) * 8 < size:
        distinct = np.unique(places)
        return distinct[np.searchsorted(distinct, 0) :]
    seen = np.zeros(size + 1, np.bool_)
    seen[places] = True  # -1 marks the spare place
    return np.flatnonzero(seen[:size])


NO_KEY: Final = -1
UNKNOWN_KEY: Final = -2
# What a key takes in the index, in `ElementStates` and in Python, besides its text. A million
# integers take 213 MiB, a million strings of 17 letters 238 MiB.
KEY_BYTES: Final = 225
# NaN differs from itself, but Python finds the very object that is a key of a dict.
_NAN: Final = float("nan")


class KeyIndex:
    """Distinct keys with their ids, in order of appearance.

    Ids follow equality in Spark's joins and IN: NaN equals NaN, and -0.0 equals 0.0. A key that is
    NULL, or has a NULL part, has the id -1. Only distinct keys cross from Arrow to Python, as the
    values that a user expects: int, float, str, bytes, bool, Decimal, date, datetime (in UTC where
    Spark's type has a time zone), or a tuple where a key has several parts.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._ids: dict[Any, int] = {}
        self.values: list[Any] = []
        self._text_bytes = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """About what the keys take."""
        return KEY_BYTES * len(self.values) + self._text_bytes

    def keep(self, ids: Array) -> None:
        """Keeps these keys, which get the ids 0, 1, ..., and forgets the others."""
        self.values = list(map(self.values.__getitem__, ids.tolist()))
        self._ids = {key: place for place, key in enumerate(self.values)}
        self._text_bytes = sum(map(_text_bytes, self.values))

    def ids(self, parts: Sequence[pa.Array]) -> Array:
        """The id of each row's key; new keys are added."""
        codes, keys = self._distinct(parts)
        return _spread_ids(self.intern(keys), codes)

    def find(self, parts: Sequence[pa.Array]) -> Array:
        """The id of each row's key; UNKNOWN_KEY for one that is not in the index."""
        codes, keys = self._distinct(parts)
        known = (self._ids.get(key, UNKNOWN_KEY) for key in keys)
        return _spread_ids(np.fromiter(known, np.int64, len(keys)), codes)

    def intern(self, keys: Iterable[Any]) -> Array:
        """The ids of Python keys; new keys are added."""
        ids, values = self._ids, self.values
        keys = list(keys)
        known = list(map(ids.get, keys))
        if None not in known:
            return np.array(known, np.int64)
        places = []
        for key in keys:
            place = ids.get(key)
            if place is None:
                canonical = canonical_key(key)
                place = ids.setdefault(canonical, len(values))
                if place == len(values):
                    values.append(canonical)
                    self._text_bytes += _text_bytes(canonical)
            places.append(place)
        return np.array(places, np.int64)

    def _distinct(self, parts: Sequence[pa.Array]) -> tuple[Array, list[Any]]:
        """A code for each row, -1 for NULL, and the key of each code."""
        encoded = [_encode(part, type_) for part, type_ in zip(parts, self._types, strict=True)]
        if len(encoded) == 1:
            codes, words = encoded[0]
            return codes, _to_python(words)
        lists = [_to_python(words) for _, words in encoded]
        codes, places = reduce(_cross_parts, encoded[1:], _single_part(*encoded[0]))
        columns = [
            map(part.__getitem__, place.tolist()) for part, place in zip(lists, places, strict=True)
        ]
        return codes, list(zip(*columns, strict=True))


def _text_bytes(key: Any) -> int:
    if isinstance(key, str | bytes):
        return len(key)
    return sum(map(_text_bytes, key)) if isinstance(key, tuple) else 0


_PartPlaces = list["Array"]


def _single_part(codes: Array, words: pa.Array) -> tuple[Array, _PartPlaces]:
    return codes, [np.arange(len(words))]


def _cross_parts(
    left: tuple[Array, _PartPlaces], right: tuple[Array, pa.Array]
) -> tuple[Array, _PartPlaces]:
    """The distinct pairs of two codes. There are at most as many as rows, so the product with
    the next part fits into int64, too."""
    (codes, places), (others, words) = left, right
    width = max(len(words), 1)
    missing = (codes < 0) | (others < 0)
    pairs = pa.array(codes * width + others, mask=missing).dictionary_encode()
    both = pairs.dictionary.to_numpy()
    first, second = both // width, both % width
    return _indices(pairs), [*(place[first] for place in places), second]


def _encode(part: pa.Array, type_: pa.DataType) -> tuple[Array, pa.Array]:
    if pa.types.is_dictionary(part.type):
        return _encode_dictionary(part, type_)
    array = to_single_array(part)
    if array.type != type_:
        array = array.cast(type_)
    if pa.types.is_floating(type_):
        array = pc.add(array, pa.scalar(0.0, type_))  # -0.0 becomes 0.0
    encoded = array.dictionary_encode()
    return _indices(encoded), encoded.dictionary


def _encode_dictionary(part: pa.Array, type_: pa.DataType) -> tuple[Array, pa.Array]:
    """Encodes only the dictionary of a column that is encoded already. It may repeat words."""
    codes, words = _encode(part.dictionary, type_)
    indices = part.indices.cast(pa.int64())
    places = indices.fill_null(len(codes)).to_numpy()
    return np.append(codes, NO_KEY)[places], words


def _indices(encoded: pa.DictionaryArray) -> Array:
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(NO_KEY)
    return np.asarray(indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _to_python(words: pa.Array) -> list[Any]:
    if not (pa.types.is_integer(words.type) or pa.types.is_floating(words.type)):
        return list(words.to_pylist())
    keys: list[Any] = words.to_numpy(zero_copy_only=False).tolist()  # a fifth of the time
    return [canonical_key(key) for key in keys] if pa.types.is_floating(words.type) else keys


def canonical_key(key: Any) -> Any:
    """The key in the form of the index: all NaNs are one object, and -0.0 is 0.0."""
    if isinstance(key, float):
        return key + 0.0 if key == key else _NAN  # noqa: PLR0124, only NaN differs from itself
    if isinstance(key, tuple):
        return tuple(map(canonical_key, key))
    return key


def _spread_ids(ids: Array, codes: Array) -> Array:
    if not len(ids):
        return np.full(len(codes), NO_KEY)
    return np.where(codes < 0, NO_KEY, ids[codes])


class PartIndex:
    """The element that is fetched for a key: the key's own, or the whole that contains it.

    An element is what is fetched and cached; it has a place as a key has an id. Without `part_of`
    both are the same numbers. A key whose whole is NULL is never fetched, like a NULL key.
    """

    def __init__(self, keys: KeyIndex, remote: RemoteSpec) -> None:
        self._parts = keys
        self._remote = remote
        self._wholes = KeyIndex(()) if remote.part_of is not None else keys
        self._element = GrowableArray(np.int64, NO_KEY)

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self._wholes)

    @property
    def nbytes(self) -> int:
        return self._parts.nbytes + (self._wholes.nbytes if self.has_wholes else 0)

    def keep(self, elements: Array) -> tuple[Array, Array]:
        """Forgets all other elements and their keys. Returns the new elements by the old ones, -1
        for what is forgotten, and the old ids that stay, in the order of the new ones."""
        renumbered = np.full(self.size + 1, NO_KEY)
        renumbered[elements] = np.arange(len(elements))
        ids = elements
        if self.has_wholes:
            ids = np.flatnonzero(renumbered[self.of(np.arange(len(self._parts)))] >= 0)
            self._element.keep(ids)
            self._element.used[:] = renumbered[self._element.used]
            self._wholes.keep(elements)
        self._parts.keep(ids)
        return renumbered, ids

    @property
    def has_wholes(self) -> bool:
        return self._wholes is not self._parts

    def keys(self, elements: Array) -> list[Any]:
        return list(map(self._wholes.values.__getitem__, elements.tolist()))

    def of(self, ids: Array) -> Array:
        """The elements of ids; -1 for the id -1."""
        if not self.has_wholes:
            return ids
        if self._element.size < len(self._parts):
            self._add_new()
        return self._element.all[ids]

    def intern(self, element: int, keys: list[Any]) -> Array:
        """The ids of the keys that arrived with a whole; -1 for a key of another whole."""
        self.of(np.zeros(0, np.int64))  # so that all keys so far have their elements
        ids = self._parts.intern(keys)
        fresh = ids[ids >= self._element.size]
        self._element.grow(len(self._parts))
        self._element.all[fresh] = element
        return np.where(self._element.all[ids] == element, ids, NO_KEY)

    def _add_new(self) -> None:
        keys = self._parts.values[self._element.size :]
        wholes = [self._whole(key) for key in keys]
        present = np.array([whole is not None for whole in wholes], np.bool_)
        elements = np.full(len(keys), NO_KEY)
        elements[present] = self._wholes.intern(whole for whole in wholes if whole is not None)
        self._element.append(elements)

    def _whole(self, key: Any) -> Any:
        part_of = self._remote.part_of
        assert part_of is not None
        try:
            whole = part_of(key)
            hash(whole)
        except Exception as error:
            raise RemoteError(
                f"part_of of remote {self._remote.name!r} failed for a key: {type(error).__name__}",
                hint="it takes a key and returns the key of the whole, a plain value or a tuple",
                details={"remote": self._remote.name},
            ) from None
        return whole


class LocalTable:
    """The `fetch` of a table that the driver collected: every worker has all of it.

    `table` has a column for each part of the key, then the value. Keys are equal as in `KeyIndex`.
    The table is shipped in Arrow's IPC format; each worker indexes it once, at the first lookup.
    """

    def __init__(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._bytes = sink.getvalue().to_pybytes()
        self._index: tuple[dict[Any, int], pa.ChunkedArray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_bytes": self._bytes, "_index": None}

    def __call__(self, keys: Iterable[Any]) -> dict[Any, Any]:
        places, values = self._open()
        found = {key: places[canonical_key(key)] for key in keys if canonical_key(key) in places}
        taken = values.take(pa.array(found.values(), pa.int64()))
        return dict(zip(found, taken.to_pylist(), strict=True))

    def _open(self) -> tuple[dict[Any, int], pa.ChunkedArray]:
        if self._index is None:
            with pa.ipc.open_stream(self._bytes) as reader:
                table = reader.read_all()
            places = {canonical_key(key): place for place, key in enumerate(_table_keys(table))}
            self._index = places, table.column(table.num_columns - 1)
        return self._index


def _table_keys(table: pa.Table) -> Iterator[Any]:
    parts = [table.column(place).to_pylist() for place in range(table.num_columns - 1)]
    return iter(parts[0]) if len(parts) == 1 else zip(*parts, strict=True)
