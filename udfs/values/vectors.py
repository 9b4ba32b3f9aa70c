"""Vectors, and the shipped events as typed numpy columns.

A column is converted on first use and then gathered by row position, which is all that conditions
need. Always holds: a value under a False of the mask is arbitrary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from spark_cep.udfs.expressions import Cell, Constant, Type, TypeKind
from spark_cep.udfs.values import codes
from spark_cep.udfs.values.arrow_values import (
    INT64_DIGITS,
    Array,
    is_plain,
    plain_type,
    plain_values,
    to_single_array,
    validity,
)
from spark_cep.udfs.values.codes import Vocabulary, is_text, is_words

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.remote_spec import RemoteSpec


WORD_KINDS: Final = ("string", "binary")
_INTS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_FLOATS = {32: np.float32, 64: np.float64}


@dataclass(frozen=True)
class Vector:
    """Numpy values with a validity mask; operations broadcast like numpy's.

    `valid` None: all values are valid; a value under a False is arbitrary. `nan_free`: it is known
    that no value is NaN.
    """

    values: Array
    valid: Array | None = None
    nan_free: bool = False

    def at(self, rows: Array) -> Vector:
        """The values at these indices of the first axis."""
        valid = None if self.valid is None else self.valid[rows]
        if valid is not None and valid.all():
            valid = None
        return Vector(self.values[rows], valid, self.nan_free)


def dtype_of(type_: Type) -> np.dtype[Any]:
    """The numpy type of the values of a SQL type (for strings, of their codes)."""
    if type_.kind == "int":
        return np.dtype(_INTS[type_.bits])
    if type_.kind == "float":
        return np.dtype(_FLOATS[type_.bits])
    if type_.kind in ("bool", "null"):
        return np.dtype(np.bool_)  # the type that numpy widens to any other
    if type_.kind == "decimal" and type_.precision > INT64_DIGITS:
        return np.dtype(object)
    return np.dtype(np.int64)


class RemoteValues(Protocol):
    """The values of one remote source, by the ids of their keys. `generation`: another one when ids
    have become those of other keys, which no advance sees while it runs."""

    remote: RemoteSpec
    latency: float
    generation: int

    @property
    def arrivals(self) -> int: ...
    def ids(self, keys: Sequence[pa.Array]) -> Array: ...
    def ready(self, ids: Array) -> Array: ...
    def ask(self, ids: Array, *, ahead: bool = False) -> None: ...
    def wait(self, ids: Array) -> None: ...
    def needed(self, ids: Array, counts: Array, level: int) -> None: ...
    def settle(self) -> None: ...
    def vector(
        self, ids: Array, path: tuple[str, ...], type: Type, columns: EventColumns
    ) -> Vector: ...
    def member(
        self, ids: Array, path: tuple[str, ...], values: Vector, type: Type, columns: EventColumns
    ) -> Vector: ...


class TypedExpression(Protocol):
    @property
    def expression(self) -> Expression: ...


class ColumnReader(Protocol):
    """A program: the expressions that read columns say which strings share a vocabulary."""

    @property
    def conditions(self) -> Sequence[TypedExpression]: ...


class EventColumns:
    """The shipped events of a program as typed columns, converted on first use.

    Rows are addressed by position: position i is row `permutation[i]` of the table. Strings and
    binaries are codes of a shared `Vocabulary`, except for those that a user function returned,
    which may be words that no column has and are Python objects. A column that the engine cannot
    compute with ("other") is the row positions themselves: enough for `is_null`, and a user
    function takes the values from Arrow.
    """

    def __init__(
        self, program: ColumnReader, table: pa.Table, permutation: Array | None = None
    ) -> None:
        self._program = program
        self._table = table
        self._permutation = permutation
        self._cache: dict[tuple[int, TypeKind | None], Vector] = {}
        self._pieces: dict[int, pa.Array] = {}
        self._constants: dict[Constant, Vector] = {}
        self._key_id_columns: dict[tuple[str, tuple[int, ...]], int] = {}

    def gather(self, column: int, type: Type, rows: Array) -> Vector:
        """The column's values at positions `rows`, an integer array of any shape."""
        source = self._column(column, type)
        if source.values is ROW_POSITIONS:
            valid = None if source.valid is None else source.valid[rows]
            return Vector(rows, valid)
        return source.at(rows)

    def every(self, column: int, type: Type) -> Vector:
        """The column's values at all positions."""
        source = self._column(column, type)
        if source.values is ROW_POSITIONS:
            return Vector(np.arange(self._table.num_rows), source.valid)
        return source

    def key_id_column(self, lookup: RemoteValues, keys: tuple[int, ...]) -> int:
        """The number of an added column: the ids that a remote source has for the keys in these
        columns."""
        cache_key = (lookup.remote.name, keys)
        if cache_key not in self._key_id_columns:
            number = self._key_id_columns[cache_key] = -1 - len(self._key_id_columns)
            ids = lookup.ids([self._whole(key) for key in keys])
            self._cache[number, None] = self._sorted(Vector(ids))
        return self._key_id_columns[cache_key]

    def constant(self, constant: Constant) -> Vector:
        """A constant as a 0-d vector."""
        vector = self._constants.get(constant)
        if vector is None:
            vector = self._constants[constant] = self._as_vector(constant)
        return vector

    def type_of(self, column: int) -> Type:
        """The type of a shipped column; a cell's type may be that of its fold."""
        arrow = self._table.schema.field(column).type
        if is_words(arrow):
            is_string = is_text(arrow) or column in self._strings.columns
            return Type("string" if is_string else "binary")
        return plain_type(arrow)

    def words(self, kind: TypeKind) -> Vocabulary:
        """The vocabulary of kind "string" or "binary"."""
        return self._strings if kind == "string" else self._binaries

    def as_words(self, vector: Vector, type: Type) -> Vector:
        """A vector of string (or binary) codes as Python objects instead."""
        words = self.words(type.kind)
        values = np.full(vector.values.size, "" if words.text else b"", object)
        if len(words.words):  # without any word all is NULL
            values[:] = words.decode(vector.values.ravel(), None).to_pylist()
        return Vector(values.reshape(vector.values.shape), vector.valid)

    def shipped(self, column: int, rows: Array, missing: Array | None) -> pa.Array:
        """The Arrow values at positions `rows`, NULL where `missing`."""
        if missing is not None:
            rows = np.where(missing, 0, rows)
        if self._permutation is not None:
            rows = self._permutation[rows]
        return self._whole(column).take(pa.array(rows, mask=missing))

    @cached_property
    def _strings(self) -> Vocabulary:
        return self._vocabulary("string")

    @cached_property
    def _binaries(self) -> Vocabulary:
        return self._vocabulary("binary")

    def _vocabulary(self, kind: TypeKind) -> Vocabulary:
        nodes = [n for c in self._program.conditions for n in c.expression.walk()]
        nodes = [node for node in nodes if node.type.kind == kind]
        used = {node.column for node in nodes if isinstance(node, Cell) and node.column is not None}
        columns: Mapping[int, pa.ChunkedArray] = {i: self._table.column(i) for i in sorted(used)}
        words = [n.value for n in nodes if isinstance(n, Constant) and n.value is not None]
        encodable = {i: c for i, c in columns.items() if is_words(c.type)}
        return codes.build_vocabulary(encodable, words, text=kind == "string")

    def _column(self, column: int, type_: Type) -> Vector:
        kind = type_.kind if type_.kind in WORD_KINDS else None
        vector = self._cache.get((column, kind))
        if vector is None:
            codes = None if kind is None else self.words(kind).columns.get(column)
            vector = (
                vector_from_arrow(self._whole(column), type_) if codes is None else Vector(*codes)
            )
            vector = self._cache[column, kind] = self._sorted(vector)
        return vector

    def _whole(self, column: int) -> pa.Array:
        """The column as one array, combined once."""
        if column not in self._pieces:
            self._pieces[column] = to_single_array(self._table.column(column))
        return self._pieces[column]

    def _sorted(self, vector: Vector) -> Vector:
        if self._permutation is None:
            return vector
        if vector.values is ROW_POSITIONS:
            valid = None if vector.valid is None else vector.valid[self._permutation]
            return Vector(ROW_POSITIONS, valid)
        return vector.at(self._permutation)

    def _as_vector(self, constant: Constant) -> Vector:
        type_, value = constant.type, constant.value
        values = np.zeros((), dtype_of(type_))
        if value is None:
            return Vector(values, np.zeros((), np.bool_))
        if type_.kind in WORD_KINDS:
            value = self.words(type_.kind).code(value)
        values[()] = value
        return Vector(values, nan_free=not has_nan(values))


# The values of a column that is never converted: each is the row's own position.
ROW_POSITIONS: Final = np.zeros(0, np.int64)


def vector_from_arrow(column: pa.ChunkedArray | pa.Array, type: Type) -> Vector:
    """A column's values. The Arrow type decides: `type` may be that of a fold (avg of an int)."""
    array = to_single_array(column)
    if not is_plain(array.type):
        return Vector(ROW_POSITIONS, validity(array))
    values = plain_values(array)
    return Vector(values, validity(array), nan_free=not has_nan(values))


def has_nan(values: Array) -> bool:
    """Whether any value is NaN. A maximum is NaN if any is, and costs a tenth of `isnan`."""
    return values.dtype.kind == "f" and values.size > 0 and bool(np.isnan(values.max()))
