"""Looked-up values in expressions: keys become ids, ids become vectors.

Where a key is columns of one row, the ids of all rows are known once for an advance and then
gathered like any column; other keys are computed, and their distinct ones given ids, each time.
Whoever evaluates waits for values that are not there yet; a walk that would rather not asks
first (`joining/postponed.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.expressions import BIGINT, Cell, Member, RemoteCall
from spark_cep.udfs.values.membership import member_of_rows
from spark_cep.udfs.values.user_calls import as_arrow
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally
    from spark_cep.udfs.values.vectors import Columns

Read = Callable[[Cell], Vector]
Value = Callable[["Expression"], Vector]
# Readings that give one of the list's own rows.
_OF_A_ROW = frozenset({"each", "prev", "first", "last"})


def ids_of(node: RemoteCall, read: Read, value: Value, columns: Columns, tally: Tally) -> Array:
    """The id of each element's key, -1 where it is NULL. `value` evaluates arguments."""
    lookup = tally.lookups[node.remote]
    cell = _row_of(node)
    if cell is not None:
        keys = [argument.column for argument in node.arguments if isinstance(argument, Cell)]
        column = columns.identified(lookup, tuple(key for key in keys if key is not None))
        found = read(Cell(cell.variable, column, BIGINT, cell.reading))
        return found.values if found.valid is None else np.where(found.valid, found.values, -1)
    vectors = [value(argument) for argument in node.arguments]
    shape = np.broadcast_shapes(*(vector.values.shape for vector in vectors))
    keys_ = [
        as_arrow(argument, _flat(vector, shape), columns)
        for argument, vector in zip(node.arguments, vectors, strict=True)
    ]
    return lookup.ids(keys_).reshape(shape)


def remote_value(node: RemoteCall, ids: Array, columns: Columns, tally: Tally) -> Vector:
    lookup = tally.lookups[node.remote]
    lookup.wait(ids)
    return lookup.vector(ids, node.path, node.type, columns)


def remote_member(
    node: Member, ids: Array, value: Vector, columns: Columns, tally: Tally
) -> Vector:
    """Membership in looked-up arrays; value and ids have shapes that broadcast."""
    assert isinstance(node.array, RemoteCall)
    lookup = tally.lookups[node.array.remote]
    lookup.wait(ids)
    return lookup.member(ids, node.array.path, value, node.value.type, columns)


def shipped_member(node: Member, array: Vector, value: Vector, columns: Columns) -> Vector:
    """Membership in arrays that came with the rows."""
    assert isinstance(node.array, Cell)
    if node.array.column is None:
        raise CepError("an array has to be a column of the row")
    shape = np.broadcast_shapes(array.values.shape, value.values.shape)
    values = as_arrow(node.value, _flat(value, shape), columns)
    rows = _flat(array, shape)
    return _shaped(member_of_rows(columns, node.array.column, rows, values), shape)


def _row_of(node: RemoteCall) -> Cell | None:
    """The cell that stands for the row whose columns are the key, if they are of one row."""
    cells = [argument for argument in node.arguments if isinstance(argument, Cell)]
    if len(cells) < len(node.arguments) or any(cell.column is None for cell in cells):
        return None
    rows = {(cell.variable, cell.reading) for cell in cells}
    return cells[0] if len(rows) == 1 and cells[0].reading in _OF_A_ROW else None


def _flat(vector: Vector, shape: tuple[int, ...]) -> Vector:
    values = np.broadcast_to(vector.values, shape).ravel()
    valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape).ravel()
    return Vector(values, valid, vector.nan_free)


def _shaped(vector: Vector, shape: tuple[int, ...]) -> Vector:
    valid = None if vector.valid is None else vector.valid.reshape(shape)
    return Vector(vector.values.reshape(shape), valid, vector.nan_free)
