"""The fetched values of a source and what is known of each element.

`to_arrow` checks and converts what a source returned, `ElementStates` says which elements are
absent, in flight, failed or present, and `ValueStore` keeps the values as rows of Arrow chunks,
with typed columns and membership indexes on demand. Columns read only the chunks that are new, so
an arrival costs what arrives.

Always holds: row 0 is NULL, the value of a missing key. A row keeps its number until `drop`, which
may move the rows closer together and then returns their new numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.remotes.keys import NO_KEY, GrowableArray, KeyIndex, distinct_places
from spark_cep.udfs.values.arrow_values import is_plain, plain_type, plain_values, validity
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.values.arrow_values import Array


# ---- conversion ----------------------------------------------------------------------------------
#
# Nothing is cast silently. An integer may become a double or a decimal where that is exact, a naive
# datetime counts as UTC for a type with a time zone, and a float may be rounded to 32 bits;
# everything else must have the declared type. pyarrow alone would truncate fractions for an integer
# type and accept text for bytes, text for a list of letters, or a number for a date.


_INT: Final = (int, np.integer)
_PLAIN_TYPES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_)),
    (pa.types.is_integer, _INT),
    (pa.types.is_floating, (float, np.floating, *_INT)),
    (pa.types.is_decimal, (Decimal, *_INT)),
    (pa.types.is_string, (str,)),
    (pa.types.is_large_string, (str,)),
    (pa.types.is_binary, (bytes, bytearray, memoryview)),
    (pa.types.is_large_binary, (bytes, bytearray, memoryview)),
    (pa.types.is_timestamp, (datetime, np.datetime64)),
    (pa.types.is_date, (date,)),
    (pa.types.is_duration, (timedelta, np.timedelta64)),
    (pa.types.is_null, ()),
)
_LIST_CLASSES: Final = (list, tuple, set, frozenset, np.ndarray)


class RemoteValueError(CepError):
    """A value does not have the declared type. The message omits the value: it may be a secret."""


def to_arrow(values: list[Any], type_: pa.DataType) -> pa.Array:
    """The values as an array of the type; a RemoteValueError if one does not fit."""
    try:
        return pa.array(_convert(values, type_), type_)
    except RemoteValueError:
        raise
    except Exception as error:  # also what a value's own methods raise
        given = ", ".join(sorted({type(v).__name__ for v in values if v is not None}))
        raise RemoteValueError(f"a value of type {given} that does not fit {type_}") from error


def _convert(values: list[Any], type_: pa.DataType) -> list[Any]:
    """The values in a form that pyarrow accepts for the type."""
    if is_list(type_):
        return _convert_lists(values, type_)
    if pa.types.is_struct(type_):
        _check_classes(values, (Mapping,), type_)
        for field in type_:
            inner = [None if v is None else v.get(field.name) for v in values]
            if _needs_conversion(field.type):
                converted = _convert(inner, field.type)
                values = [
                    None if v is None else {**v, field.name: part}
                    for v, part in zip(values, converted, strict=True)
                ]
            else:
                _convert(inner, field.type)
        return values
    if pa.types.is_map(type_):
        _check_classes(values, (Mapping,), type_)
        return [None if v is None else _convert_entries(v, type_) for v in values]
    allowed = next((kinds for test, kinds in _PLAIN_TYPES if test(type_)), (object,))
    _check_classes(values, allowed, type_)
    if pa.types.is_float32(type_):
        _check_range(values, type_)
    return values


def _convert_lists(values: list[Any], type_: pa.DataType) -> list[Any]:
    _check_classes(values, _LIST_CLASSES, type_)
    if any(isinstance(v, np.ndarray) and v.ndim != 1 for v in values):
        raise RemoteValueError(f"an array with several dimensions instead of {type_}")
    if _needs_conversion(type_.value_type):
        return [None if v is None else _convert(list(v), type_.value_type) for v in values]
    _convert(list(chain.from_iterable(v for v in values if v is not None)), type_.value_type)
    return [list(v) if isinstance(v, set | frozenset) else v for v in values]


def _convert_entries(value: Mapping[Any, Any], type_: pa.DataType) -> list[tuple[Any, Any]]:
    keys = _convert(list(value.keys()), type_.key_type)
    return list(zip(keys, _convert(list(value.values()), type_.item_type), strict=True))


def is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _needs_conversion(type_: pa.DataType) -> bool:
    return is_list(type_) or pa.types.is_struct(type_) or pa.types.is_map(type_)


def _check_classes(values: Iterable[Any], allowed: tuple[type, ...], type_: pa.DataType) -> None:
    for kind in set(map(type, values)):
        if kind is type(None):
            continue
        # In Python bool is an int and datetime a date; in Spark neither is.
        excluded = (kind is bool and bool not in allowed and allowed != (object,)) or (
            issubclass(kind, datetime) and pa.types.is_date(type_)
        )
        if excluded or not issubclass(kind, allowed):
            raise RemoteValueError(f"{kind.__name__} instead of {type_}")


def _check_range(values: list[Any], type_: pa.DataType) -> None:
    largest = float(np.finfo(np.float32).max)
    if any(v is not None and math.isfinite(v) and abs(v) > largest for v in values):
        raise RemoteValueError(f"a number beyond the range of {type_}")


# ---- sizes of values -----------------------------------------------------------------------------
#
# The size of a value is its data and its offsets. The few bits of validity are left out, and no
# value counts for less than a word, because the columns about its key take that much. A value of a
# dictionary or of a run counts as if it were stored by itself. Every Arrow type has sizes, and a
# slice has the sizes of its own values.


LEAST_BYTES = 8
_OFFSET_BYTES, _LARGE_OFFSET, _VIEW = 4, 8, 16
_TYPE_CODE = 1


def value_sizes(array: pa.Array) -> Array:
    return np.maximum(_raw_sizes(array), LEAST_BYTES)


def _raw_sizes(array: pa.Array) -> Array:  # noqa: PLR0911 - one layout after another
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return _raw_sizes(array.storage)
    if types.is_null(type_):
        return np.zeros(len(array), np.int64)
    if types.is_struct(type_):
        return _total(array.flatten(), len(array))
    if types.is_list(type_) or types.is_large_list(type_) or types.is_map(type_):
        return _list_sizes(array)
    if types.is_fixed_size_list(type_):
        return _fixed_list_sizes(array)
    if _is(type_, "list_view") or _is(type_, "large_list_view"):
        return _list_view_sizes(array)
    if types.is_dictionary(type_):
        return _dictionary_sizes(array)
    if _is(type_, "run_end_encoded"):
        return _run_sizes(array)
    if types.is_union(type_):
        return _union_sizes(array)
    if _is(type_, "string_view") or _is(type_, "binary_view"):
        return _lengths(array.cast(pa.large_binary())) + _VIEW
    if types.is_string(type_) or types.is_binary(type_):
        return _lengths(array) + _OFFSET_BYTES
    if types.is_large_string(type_) or types.is_large_binary(type_):
        return _lengths(array) + _LARGE_OFFSET
    return np.full(len(array), -(-type_.bit_width // 8), np.int64)


def _is(type_: pa.DataType, kind: str) -> bool:
    """Whether a type is of a kind that old versions of pyarrow lack."""
    test = getattr(types, f"is_{kind}", None)
    return test is not None and bool(test(type_))


def _lengths(array: pa.Array) -> Array:
    lengths = pc.fill_null(pc.binary_length(array), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False)).astype(np.int64)


def _total(parts: list[pa.Array], rows: int) -> Array:
    return np.asarray(sum((_raw_sizes(part) for part in parts), np.zeros(rows, np.int64)))


def _list_sizes(array: pa.Array) -> Array:
    # The offsets are those of the slice, while `values` are all elements that it was cut from.
    is_map = types.is_map(array.type)
    elements = [array.keys, array.items] if is_map else [array.values]
    offsets = array.offsets.to_numpy().astype(np.int64)
    width = _LARGE_OFFSET if types.is_large_list(array.type) else _OFFSET_BYTES
    return _between(elements, offsets[:-1], offsets[1:]) + width


def _list_view_sizes(array: pa.Array) -> Array:
    starts, lengths = (each.to_numpy().astype(np.int64) for each in (array.offsets, array.sizes))
    width = _LARGE_OFFSET if _is(array.type, "large_list_view") else _OFFSET_BYTES
    return _between([array.values], starts, starts + lengths) + 2 * width


def _fixed_list_sizes(array: pa.FixedSizeListArray) -> Array:
    starts = (array.offset + np.arange(len(array), dtype=np.int64)) * array.type.list_size
    return _between([array.values], starts, starts + array.type.list_size)


def _between(elements: list[pa.Array], starts: Array, ends: Array) -> Array:
    """The sizes of elements[start:end] for each pair."""
    until = np.zeros(len(elements[0]) + 1, np.int64)
    np.cumsum(_total(elements, len(elements[0])), out=until[1:])
    return np.asarray(until[ends] - until[starts])


def _dictionary_sizes(array: pa.DictionaryArray) -> Array:
    index = array.indices
    of_words = np.append(_raw_sizes(array.dictionary), 0)  # NULL has no word
    places = pc.fill_null(index.cast(pa.int64()), len(array.dictionary)).to_numpy()
    return np.asarray(of_words[places] + index.type.bit_width // 8)


def _run_sizes(array: pa.Array) -> Array:
    ends = array.run_ends.to_numpy()
    runs = np.searchsorted(ends, array.offset + np.arange(len(array)), side="right")
    return np.asarray(_raw_sizes(array.values)[runs])


def _union_sizes(array: pa.UnionArray) -> Array:
    is_dense = array.type.mode == "dense"
    codes = _of_slice(array, 1, pa.int8())
    rows = _of_slice(array, 2, pa.int32()) if is_dense else np.arange(len(array))
    found = np.full(len(array), _TYPE_CODE, np.int64)
    for place, code in enumerate(array.type.type_codes):
        mine = codes == code
        found[mine] += _raw_sizes(array.field(place))[rows[mine]]
    return found + _OFFSET_BYTES if is_dense else found


def _of_slice(array: pa.UnionArray, place: int, type_: pa.DataType) -> Array:
    """A buffer of a slice: pyarrow returns type codes and offsets from the start of the array
    that the slice was cut from."""
    end = array.offset + len(array)
    values = pa.Array.from_buffers(type_, end, [None, array.buffers()[place]])
    return np.asarray(values.to_numpy())[array.offset :]


# ---- states of elements --------------------------------------------------------------------------


# In this order: a wait for what is less than FAILED goes on.
ABSENT: Final = 0
IN_FLIGHT: Final = 1
FAILED: Final = 2
PRESENT: Final = 3
# A value that is needed and was not used yet survives this many calls of `settle`, even beyond the
# capacity: otherwise a partial match that needs several values might never have all of them at
# once. More than the four batches that a lookup stage requests ahead.
SPARED_SETTLES: Final = 8


class ElementStates:
    """One column per property of an element.

    `certain`: it is needed and was not used yet. `ahead`: it was prefetched and not used yet.
    `unneeded`: it was prefetched and not needed yet. `unused`: it was requested and not used yet.
    `missed`: it counted as a miss and was not used since. `failed_null`: its value is NULL because
    fetching failed. `batch`: the number of the batch that fetches it. `last_used` is in uses,
    `spared_until` in calls of `settle`, `fetched` in seconds of the fetcher's clock.

    Always holds: the place -1, where a NULL key points, is PRESENT. `bytes` is the sum of the
    sizes of the present elements.
    """

    def __init__(self) -> None:
        self.state = GrowableArray(np.int8, PRESENT)
        self.certain = GrowableArray(np.bool_)
        self.ahead = GrowableArray(np.bool_)
        self.unneeded = GrowableArray(np.bool_)
        self.unused = GrowableArray(np.bool_)
        self.missed = GrowableArray(np.bool_)
        self.failed_null = GrowableArray(np.bool_)
        self.batch = GrowableArray(np.int64)
        self.last_used = GrowableArray(np.int64)
        self.size = GrowableArray(np.int64)
        self.fetched = GrowableArray(np.float64)
        self.spared_until = GrowableArray(np.int64)
        self.bytes = 0
        self.settles = 0
        self._uses = 0

    def grow(self, size: int) -> None:
        start = self.state.size
        if size > start:
            for column in vars(self).values():
                if isinstance(column, GrowableArray):
                    column.grow(size)
            self.state.used[start:] = ABSENT

    def keep(self, elements: Array) -> None:
        """Keeps these elements, which become 0, 1, ..., and forgets the others, all absent."""
        for column in vars(self).values():
            if isinstance(column, GrowableArray):
                column.keep(elements)

    def present(self) -> Array:
        return np.flatnonzero(self.state.used == PRESENT)

    def ask(self, elements: Array, batch: int, *, ahead: bool) -> None:
        self.state.all[elements] = IN_FLIGHT
        self.batch.all[elements] = batch
        self.ahead.all[elements] = ahead
        self.unneeded.all[elements] = ahead
        self.unused.all[elements] = True
        self.certain.all[elements] = not ahead

    def take_back(self, elements: Array) -> None:
        """Forgets that elements were requested."""
        self.state.all[elements] = ABSENT
        for column in (self.certain, self.ahead, self.unneeded, self.unused):
            column.all[elements] = False

    def arrive(self, elements: Array, sizes: Array, now: float) -> None:
        self.state.all[elements] = PRESENT
        self.size.all[elements] = sizes
        self.fetched.all[elements] = now
        self.failed_null.all[elements] = False
        # A value that has just arrived counts as used now.
        self.last_used.all[elements] = self._uses
        self.spared_until.all[elements] = self.settles + SPARED_SETTLES
        self.bytes += int(sizes.sum())

    def wait(self, elements: Array) -> None:
        """Marks elements whose values will be read now."""
        self.certain.all[elements] = True
        self.spared_until.all[elements] = self.settles + SPARED_SETTLES

    def is_spared(self, elements: Array) -> Array:
        """Flags of the elements that must not be evicted yet."""
        due = self.spared_until.all[elements] >= self.settles
        return np.asarray(due & self.certain.all[elements])

    def use(self, elements: Array) -> None:
        self._uses += 1
        self.last_used.all[elements] = self._uses
        for column in (self.certain, self.ahead, self.unneeded, self.unused, self.missed):
            column.all[elements] = False

    def drop(self, elements: Array) -> None:
        """Forgets elements that are present."""
        self.state.all[elements] = ABSENT
        self.bytes -= int(self.size.all[elements].sum())
        for column in (self.certain, self.ahead, self.unneeded, self.unused, self.missed):
            column.all[elements] = False


# ---- membership ----------------------------------------------------------------------------------


class MembershipIndex:
    """The elements of fetched arrays, for `x IN remote(...)`.

    Each distinct element has a code, and each row has its codes in ascending order. A test is a
    binary search among the codes of its row, for all rows at once: long arrays cost a few more
    steps, not their length. `chunks_read` counts the chunks that were appended.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self.chunks_read = 0
        self._words = KeyIndex((type_,))
        self._codes = GrowableArray(np.int64)
        # For each row: where its codes start, how many there are, whether it is NULL or has a NULL.
        self._starts = GrowableArray(np.int64)
        self._lengths = GrowableArray(np.int64)
        self._valid = GrowableArray(np.bool_)
        self._has_null = GrowableArray(np.bool_)

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
        """The codes of values, as `member` takes them."""
        return self._words.find((values,))

    def member(self, rows: Array, codes: Array) -> Vector:
        """`array_contains` of each row's array and a value, with SQL's NULL."""
        contains = self._find(rows, codes)
        valid = self._valid.all[rows] & (contains | ~self._has_null.all[rows]) & (codes != NO_KEY)
        return Vector(contains, None if valid.all() else valid)

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


# ---- values ------------------------------------------------------------------------------------

NULL_ROW: Final = 0
_STRING_TESTS: Final = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
)  # fmt: skip
FieldPath = tuple[str, ...]


class ValueStore:
    """The values as rows of Arrow chunks, one chunk for each batch that arrived."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self._clear(pa.nulls(1, type_))

    def _clear(self, rows: pa.Array) -> None:
        self._chunks = [rows]
        self._scalars: dict[FieldPath, _ScalarColumn] = {}
        self._elements: dict[FieldPath, MembershipIndex] = {}
        self.sizes = GrowableArray(np.int64)
        self.sizes.append(value_sizes(rows))

    @property
    def rows(self) -> int:
        return self.sizes.size

    def put(self, values: list[Any]) -> Array:
        """Adds values and returns their rows; a RemoteValueError if one does not fit the type."""
        chunk = to_arrow(values, self.type)
        start = self.rows
        self._chunks.append(chunk)
        self.sizes.append(value_sizes(chunk))
        rows = np.arange(start, self.rows)
        if chunk.null_count:
            rows[~chunk.is_valid().to_numpy(zero_copy_only=False)] = NULL_ROW
        return rows

    def drop(self, used: Array) -> Array | None:
        """Frees the rows that are not in `used`, if that saves half of them or of their bytes, and
        then returns the new number of each old row."""
        kept = distinct_places(np.append(used, NULL_ROW), self.rows)
        if 2 * len(kept) > self.rows and 2 * self.sizes.all[kept].sum() > self.sizes.used.sum():
            return None
        renumbered = np.zeros(self.rows, np.int64)
        renumbered[kept] = np.arange(len(kept))
        self._clear(self.take(kept))
        return renumbered

    def take(self, rows: Array) -> pa.Array:
        """The values of rows, as an array of the source's type."""
        if len(self._chunks) > 1:
            columns: list[tuple[FieldPath, _ScalarColumn | MembershipIndex]] = []
            columns += [*self._scalars.items(), *self._elements.items()]
            for path, column in columns:
                self._append_new_chunks(column, path)
            self._chunks = [pa.concat_arrays(self._chunks)]
            for _, column in columns:
                column.chunks_read = 1
        return self._chunks[0].take(pa.array(rows))

    def vector(self, rows: Array, path: FieldPath, type_: Type) -> Vector:
        """The scalars at a path. Of types that the engine cannot compute with, only whether they
        are NULL."""
        column = self._scalars.get(path)
        if column is None:
            column = self._scalars[path] = _ScalarColumn(_type_at(self.type, path))
        self._append_new_chunks(column, path)
        return column.vector(rows, type_)

    def elements(self, path: FieldPath) -> MembershipIndex:
        """The arrays at a path."""
        column = self._elements.get(path)
        if column is None:
            column = self._elements[path] = MembershipIndex(_type_at(self.type, path).value_type)
        self._append_new_chunks(column, path)
        return column

    def _append_new_chunks(self, column: _ScalarColumn | MembershipIndex, path: FieldPath) -> None:
        """Appends the chunks that a column has not read yet."""
        for chunk in self._chunks[column.chunks_read :]:
            column.append(pc.struct_field(chunk, list(path)) if path else chunk)
        column.chunks_read = len(self._chunks)


class _ScalarColumn:
    """The values at a path, one for each row. Nested values have only their validity."""

    def __init__(self, type_: pa.DataType) -> None:
        self.chunks_read = 0
        self._is_words = _is_string(type_)
        known = is_plain(type_)
        self._plain = known
        dtype = object if self._is_words else dtype_of(plain_type(type_)) if known else np.bool_
        self._values = GrowableArray(dtype, _empty_value(type_) if self._is_words else 0)
        self._valid = GrowableArray(np.bool_)

    def append(self, chunk: pa.Array) -> None:
        valid = validity(chunk)
        self._valid.append(np.ones(len(chunk), np.bool_) if valid is None else valid)
        if self._is_words:
            filled = chunk.fill_null(_empty_value(chunk.type))
            self._values.append(np.asarray(filled.to_numpy(zero_copy_only=False), object))
        elif self._plain:
            self._values.append(plain_values(chunk))

    def vector(self, rows: Array, type_: Type) -> Vector:
        valid: Array | None = self._valid.all[rows]
        assert valid is not None
        if valid.all():
            valid = None
        if not (self._plain or self._is_words):
            return Vector(np.zeros(rows.shape, np.int64), valid)
        values = self._values.all[rows]
        return Vector(
            values if self._is_words else values.astype(dtype_of(type_), copy=False), valid
        )


def _is_string(type_: pa.DataType) -> bool:
    return any(test(type_) for test in _STRING_TESTS)


def _empty_value(type_: pa.DataType) -> str | bytes:
    return "" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else b""


def _type_at(type_: pa.DataType, path: FieldPath) -> pa.DataType:
    for name in path:
        type_ = type_.field(name).type
    return type_
