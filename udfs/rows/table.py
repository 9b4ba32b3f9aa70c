"""The rows of a bucket: sorted by key and order, each addressed by its position.

Rows whose order keys are equal keep the order in which they arrived. Partitions are runs of
positions. Only columns that something reads are brought into this order; the payload is taken
once, from the shipped table, for the rows of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events.table import (
    column_to_numpy,
    combine_codes,
    drop_null_times,
    time_window_ends,
)
from spark_cep.udfs.row_program import Aggregate, RowRead
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.leaves import leaves_of, replace_with_cells
from spark_cep.udfs.values.codes import key_codes, sort_codes
from spark_cep.udfs.values.evaluate import condition_holds as holds_
from spark_cep.udfs.values.evaluate import evaluate_expression
from spark_cep.udfs.values.vectors import EventColumns, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_cep.udfs.expressions import Cell, Expression, Type
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


Positions = npt.NDArray[np.int64]
# Up to so many rows away, the rows without such a neighbour are found one distance at a time.
_FEW_ROWS: Final = 16


@dataclass(frozen=True)
class _TextCondition:
    expression: Expression


@dataclass(frozen=True)
class TextExpressions:
    """The expressions whose words share one vocabulary."""

    conditions: tuple[_TextCondition, ...]

    @classmethod
    def of(cls, expressions: Sequence[Expression]) -> TextExpressions:
        leaves_ = [leaf for each in expressions for leaf in leaves_of(each)]
        arguments = [leaf.argument for leaf in leaves_ if isinstance(leaf, Aggregate)]
        every = [*expressions, *(each for each in arguments if each is not None)]
        return cls(tuple(_TextCondition(replace_with_cells(each, [])) for each in every))


class RowTable:
    """`ignored`: rows that WITHIN leaves out, for they have no time. `dropped`: rows of each
    partition that came before those of the table, in an advance of several."""

    def __init__(self, program: RowProgram, table: pa.Table) -> None:
        rows = table.num_rows
        if program.within is not None:
            table = drop_null_times(program, table)
        self.program = program
        self.shipped = table
        self.size: int = table.num_rows
        self.ignored = rows - self.size
        keys = [key_codes([table.column(i) for i in program.keys])] if program.keys else []
        orders = [sort_codes(table.column(order.column), order) for order in program.orders]
        self.permutation = _sort_permutation([*keys, *orders], self.size)
        starts = np.zeros(self.size, np.bool_)
        starts[:1] = True
        if keys:
            ordered = keys[0] if self.permutation is None else keys[0][self.permutation]
            np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
        self.begins: Positions = np.flatnonzero(starts)
        self.ends: Positions = np.append(self.begins[1:], self.size)[: len(self.begins)]
        self.dropped: Positions = np.zeros(len(self.begins), np.int64)
        defines = [variable.define for variable in program.variables]
        texts = TextExpressions.of([define for define in defines if define is not None])
        self.columns = EventColumns(texts, table, self.permutation)

    @cached_property
    def begin_of(self) -> Positions:
        return np.repeat(self.begins, self.ends - self.begins)

    @cached_property
    def end_of(self) -> Positions:
        return np.repeat(self.ends, self.ends - self.begins)

    def rows(self, positions: Positions) -> Positions:
        """Rows of the shipped table."""
        return positions if self.permutation is None else self.permutation[positions]

    def places(self, positions: Positions) -> Positions:
        """Their places in their partitions, from 0."""
        of = np.searchsorted(self.begins, positions, "right") - 1
        return np.asarray(positions - self.begins[of] + self.dropped[of])

    def key_of(self, position: int) -> list[object]:
        """The partition key's values at a row, for messages."""
        row = int(self.rows(np.array([position]))[0])
        return [self.shipped.column(i)[row].as_py() for i in self.program.keys]

    def limits(self) -> Positions | None:
        """For each row the first one that WITHIN puts too late for a match that begins there."""
        if self.program.within is None:
            return None
        time = column_to_numpy(self.shipped.column(self.program.orders[0].column))
        if self.permutation is not None:
            time = time[self.permutation]
        return time_window_ends(time, self.begin_of, self.end_of, self.program.within.size)

    def passed(self, horizon: int | float | None) -> Array:
        """For each row whether no row that comes after `horizon` can be within a match that begins
        there. Such a row is later; a difference of floats may come out the same."""
        if horizon is None or self.program.within is None:
            return np.zeros(self.size, np.bool_)
        order, size = self.program.orders[0], self.program.within.size
        time = column_to_numpy(self.shipped.column(order.column))
        if self.permutation is not None:
            time = time[self.permutation]
        if order.type.kind == "float":
            return np.asarray(horizon - time > size)
        latest = int(horizon) - int(size)
        if time.dtype != object and latest < np.iinfo(np.int64).min:
            return np.zeros(self.size, np.bool_)
        return np.asarray(time <= latest, np.bool_)

    def shifted(self, column: int, type_: Type, shift: int) -> Vector:
        """The column so many rows further on in the partition, NULL beyond its ends."""
        vector = self.columns.every(column, type_)
        if shift == 0:
            return vector
        values, valid = _shift_values(vector.values, shift), self.inside(shift)
        if vector.valid is not None:
            valid &= _shift_values(vector.valid, shift)
        return Vector(values, valid, vector.nan_free)

    def inside(self, shift: int) -> Array:
        """Whether there is a row so many further on."""
        if abs(shift) > _FEW_ROWS:
            at = np.arange(self.size) + shift
            return np.asarray((at >= self.begin_of) & (at < self.end_of))
        inside = np.ones(self.size, np.bool_)
        for step in range(abs(shift)):
            at = self.begins + step if shift < 0 else self.ends - 1 - step
            inside[at[(at >= self.begins) & (at < self.ends)]] = False
        return inside


def _shift_values(values: Array, shift: int) -> Array:
    """The values so many places further on; what stands where there is none is arbitrary."""
    moved = values.copy()
    if 0 < abs(shift) < len(values):
        if shift < 0:
            moved[-shift:] = values[:shift]
        else:
            moved[:-shift] = values[shift:]
    return moved


def _sort_permutation(codes: list[Array], size: int) -> Positions | None:
    """The permutation that sorts; None if the rows are sorted already."""
    if not codes:
        return None
    combined = combine_codes(codes)
    if combined is None:
        order: Positions = np.lexsort(codes[::-1])
        return order
    if (combined[1:] >= combined[:-1]).all():
        return None
    # The unstable sort is several times faster, and equal codes are few as a rule.
    order = np.argsort(combined)
    ordered = combined[order]
    same = np.zeros(size + 1, np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=same[1:-1])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        run = np.cumsum(~same[tied])
        order[tied] = order[tied][np.lexsort([order[tied], run])]
    return order


# --------------------------------------------------------------------------------------------------
# Conditions on a row and its neighbours alone: one column of booleans for the whole bucket.
# --------------------------------------------------------------------------------------------------


def condition_mask(condition: Expression, table: RowTable, tally: ErrorTally) -> Array:
    """For each row: is the condition TRUE of it."""
    read: list[Expression] = []
    expression = replace_with_cells(condition, read)
    found = holds_(expression, lambda cell: _read_cell(cell, read, table), table.columns, tally)
    return np.broadcast_to(found, (table.size,))


def expression_values(
    expression: Expression, table: RowTable, tally: ErrorTally
) -> tuple[Vector, Array | None]:
    """The expression at each row, and where it failed."""
    read: list[Expression] = []
    cells = replace_with_cells(expression, read)
    vector = evaluate_expression(
        cells, lambda cell: _read_cell(cell, read, table), table.columns, tally
    )
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


def _read_cell(cell: Cell, read: list[Expression], table: RowTable) -> Vector:
    leaf = read[cell.variable]
    assert isinstance(leaf, RowRead)
    if leaf.column is None:
        return Vector(np.ones(table.size, np.bool_), table.inside(leaf.shift))
    return table.shifted(leaf.column, leaf.type, leaf.shift)


# --------------------------------------------------------------------------------------------------
# Where the searches of each partition of a table stand: before its first row in a batch, and
# where they were left in an advance of several.
#
# Always holds: what lies before `begin` is decided and shown, and nothing of the rest is.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchProgress:
    """One entry for each partition; positions are the table's. `begin`: the next search's first
    row. `covered`: the row behind all that a match has. `number`: of the last match. `dropped`:
    rows of the partition before the table's first. `is_open`: rows may still come."""

    begin: Array
    covered: Array
    number: Array
    dropped: Array
    is_open: Array

    @classmethod
    def at_start(cls, table: RowTable, *, is_open: bool = False) -> SearchProgress:
        begins = table.begins
        return cls(
            begins.copy(),
            begins.copy(),
            np.zeros(len(begins), np.int64),
            np.zeros(len(begins), np.int64),
            np.full(len(begins), is_open),
        )


class PartitionEnds:
    """Which partitions of a table end, and which only have no more rows yet. `parts`: what the
    kernel reads and writes. `horizon`: rows at this time and before it have come, all of them."""

    def __init__(self, standing: SearchProgress, horizon: int | float | None = None) -> None:
        self.horizon = horizon
        self._before = standing
        self._is_open = standing.is_open
        self.any_open = bool(standing.is_open.any())
        self.parts = np.zeros((len(standing.begin), r.PART_SIZE), np.int64)
        self.parts[:, r.NEXT] = standing.begin
        self.parts[:, r.NEXT_COVERED] = standing.covered
        self.parts[:, r.NEXT_NUMBER] = standing.number
        self.parts[:, r.HAS_FIRST] = standing.dropped == 0
        self.parts[:, r.IS_OPEN] = standing.is_open

    def standing(self) -> SearchProgress:
        """As the kernel left it."""
        return replace(
            self._before,
            begin=self.parts[:, r.NEXT],
            covered=self.parts[:, r.NEXT_COVERED],
            number=self.parts[:, r.NEXT_NUMBER],
        )

    def open_rows(self, table: RowTable) -> Array:
        """The rows of partitions that are open."""
        return np.repeat(self._is_open, table.ends - table.begins)

    def behind(self, table: RowTable, reach: int) -> Array:
        """The rows from which so many rows further on is behind an open end."""
        return ~table.inside(max(reach, 0)) & self.open_rows(table)
