"""The fetched values, as rows of Arrow arrays, and typed columns of them where one is asked for.

A batch that arrives becomes a chunk of rows. Columns (the scalars at a path, the arrays at one)
take in only the chunks that they have not seen, so an arrival costs what arrives.

Always holds: row 0 is NULL, which is what a missing key has. A row number stays what it is until
`drop`, which may put the rows closer together and then gives the new numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cep.udfs.remotes.conversion import to_arrow
from spark_cep.udfs.remotes.elements import Elements
from spark_cep.udfs.remotes.growing import Growing, distinct
from spark_cep.udfs.remotes.sizes import sizes
from spark_cep.udfs.values.arrow_values import is_plain, plain, plain_type, validity
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.values.arrow_values import Array

NULL_ROW: Final = 0
_WORDS: Final = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
)  # fmt: skip
Path = tuple[str, ...]


class Store:
    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self._clear(pa.nulls(1, type_))

    def _clear(self, rows: pa.Array) -> None:
        self._chunks = [rows]
        self._scalars: dict[Path, _Scalars] = {}
        self._elements: dict[Path, Elements] = {}
        self.sizes = Growing(np.int64)
        self.sizes.append(sizes(rows))

    @property
    def rows(self) -> int:
        return self.sizes.size

    def put(self, values: list[Any]) -> Array:
        """Takes values in and gives their rows; Garbage if one is not of the type."""
        chunk = to_arrow(values, self.type)
        start = self.rows
        self._chunks.append(chunk)
        self.sizes.append(sizes(chunk))
        rows = np.arange(start, self.rows)
        if chunk.null_count:
            rows[~chunk.is_valid().to_numpy(zero_copy_only=False)] = NULL_ROW
        return rows

    def drop(self, used: Array) -> Array | None:
        """Frees what is in no row of `used`, if that is worth it: then the new number of each old
        row is returned."""
        kept = distinct(np.append(used, NULL_ROW), self.rows)
        if 2 * len(kept) > self.rows and 2 * self.sizes.all[kept].sum() > self.sizes.used.sum():
            return None
        renumbered = np.zeros(self.rows, np.int64)
        renumbered[kept] = np.arange(len(kept))
        self._clear(self.take(kept))
        return renumbered

    def take(self, rows: Array) -> pa.Array:
        """The values of rows as an array of the source's type."""
        if len(self._chunks) > 1:
            columns: list[tuple[Path, _Scalars | Elements]] = []
            columns += [*self._scalars.items(), *self._elements.items()]
            for path, column in columns:
                self._see(column, path)
            self._chunks = [pa.concat_arrays(self._chunks)]
            for _, column in columns:
                column.seen = 1
        return self._chunks[0].take(pa.array(rows))

    def vector(self, rows: Array, path: Path, type_: Type) -> Vector:
        """The scalars at a path; of what the engine does not compute with, only whether it is
        there."""
        column = self._scalars.get(path)
        if column is None:
            column = self._scalars[path] = _Scalars(_type_at(self.type, path))
        self._see(column, path)
        return column.vector(rows, type_)

    def elements(self, path: Path) -> Elements:
        """The arrays at a path."""
        column = self._elements.get(path)
        if column is None:
            column = self._elements[path] = Elements(_type_at(self.type, path).value_type)
        self._see(column, path)
        return column

    def _see(self, column: _Scalars | Elements, path: Path) -> None:
        """Gives a column the chunks that it has not seen."""
        for chunk in self._chunks[column.seen :]:
            column.append(pc.struct_field(chunk, list(path)) if path else chunk)
        column.seen = len(self._chunks)


class _Scalars:
    """One value for each row."""

    def __init__(self, type_: pa.DataType) -> None:
        self.seen = 0
        self._is_words = _is_words(type_)
        known = is_plain(type_)
        self._plain = known
        dtype = object if self._is_words else dtype_of(plain_type(type_)) if known else np.bool_
        self._values = Growing(dtype, _nothing(type_) if self._is_words else 0)
        self._valid = Growing(np.bool_)

    def append(self, chunk: pa.Array) -> None:
        valid = validity(chunk)
        self._valid.append(np.ones(len(chunk), np.bool_) if valid is None else valid)
        if self._is_words:
            filled = chunk.fill_null(_nothing(chunk.type))
            self._values.append(np.asarray(filled.to_numpy(zero_copy_only=False), object))
        elif self._plain:
            self._values.append(plain(chunk))

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


def _is_words(type_: pa.DataType) -> bool:
    return any(test(type_) for test in _WORDS)


def _nothing(type_: pa.DataType) -> str | bytes:
    return "" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else b""


def _type_at(type_: pa.DataType, path: Path) -> pa.DataType:
    for name in path:
        type_ = type_.field(name).type
    return type_
