"""Conditions on a row and its neighbours alone: one column of booleans for the whole bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.rows.leaves import with_cells
from spark_cep.udfs.rows.program import Read
from spark_cep.udfs.values.evaluate import evaluate
from spark_cep.udfs.values.evaluate import holds as holds_
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell, Expression
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally


def holds(condition: Expression, table: Table, tally: Tally) -> Array:
    """For each row: is the condition TRUE of it."""
    read: list[Expression] = []
    expression = with_cells(condition, read)
    found = holds_(expression, lambda cell: _read(cell, read, table), table.columns, tally)
    return np.broadcast_to(found, (table.size,))


def values(expression: Expression, table: Table, tally: Tally) -> tuple[Vector, Array | None]:
    """The expression at each row, and where it failed."""
    read: list[Expression] = []
    cells = with_cells(expression, read)
    vector = evaluate(cells, lambda cell: _read(cell, read, table), table.columns, tally)
    failed = None
    for each in tally.take_failed():
        failed = each if failed is None else failed | each
    shape = (table.size,)
    return (
        Vector(
            np.broadcast_to(vector.values, shape),
            None if vector.valid is None else np.broadcast_to(vector.valid, shape),
        ),
        None if failed is None else np.broadcast_to(failed, shape),
    )


def _read(cell: Cell, read: list[Expression], table: Table) -> Vector:
    leaf = read[cell.variable]
    assert isinstance(leaf, Read)
    if leaf.column is None:
        return Vector(np.ones(table.size, np.bool_), table.inside(leaf.shift))
    return table.shifted(leaf.column, leaf.type, leaf.shift)
