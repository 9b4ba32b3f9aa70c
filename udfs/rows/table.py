"""The rows of a bucket, sorted by key and order, and how far the searches of each partition are.

A row is addressed by its position in that order; rows with equal order keys keep the order in which
they arrived, and a partition is a run of positions. Only columns that something reads are brought
into this order; the payload is taken once, from the shipped table, for the rows of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.events.table import (
    column_to_numpy,
    combine_codes,
    drop_null_times,
    time_window_ends,
)
from spark_cep.udfs.expressions import BIGINT
from spark_cep.udfs.row_program import Aggregate, RowRead
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.folds import is_folded
from spark_cep.udfs.rows.leaves import leaves_of, replace_with_cells
from spark_cep.udfs.values.codes import key_codes, sort_codes
from spark_cep.udfs.values.evaluate import condition_holds, evaluate_expression
from spark_cep.udfs.values.vectors import EventColumns, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.expressions import Cell, Expression, Type
    from spark_cep.udfs.row_program import RowProgram
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


Positions = npt.NDArray[np.int64]
# Up to this distance, the rows without such a neighbour are found one distance at a time.
_FEW_ROWS: Final = 16
_POSITIONS: Final = "__cep_position"


# ---- the table ---------------------------------------------------------------------------------


class RowTable:
    """`ignored`: rows that WITHIN leaves out because they have no time. `dropped`: for each
    partition, the rows before those of the table that earlier advances have dropped."""

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
        texts = TextExpressions.of([*filter(None, defines), *filter(is_folded, program.measures)])
        if program.frame is not None:
            table = self.shipped = _with_positions(table, self.permutation)
        self.columns = EventColumns(texts, table, self.permutation)

    @cached_property
    def begin_of(self) -> Positions:
        return np.repeat(self.begins, self.ends - self.begins)

    @cached_property
    def end_of(self) -> Positions:
        return np.repeat(self.ends, self.ends - self.begins)

    def rows(self, positions: Positions) -> Positions:
        """The rows of the shipped table at these positions."""
        return positions if self.permutation is None else self.permutation[positions]

    def places(self, positions: Positions) -> Positions:
        """The places of the rows in their partitions, from 0."""
        partition = np.searchsorted(self.begins, positions, "right") - 1
        return np.asarray(positions - self.begins[partition] + self.dropped[partition])

    def key_of(self, position: int) -> list[object]:
        """The values of the partition key at a row, for messages."""
        row = int(self.rows(np.array([position]))[0])
        return [self.shipped.column(i)[row].as_py() for i in self.program.keys]

    def describe_partition(self, position: int) -> str:
        """The partition of a row, for messages."""
        key = self.key_of(position)
        return f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"

    def limits(self) -> Positions | None:
        """For each row, the first row that WITHIN or the frame excludes from a match that begins
        there."""
        if self.program.frame is not None:
            return self.frame_ends
        if self.program.within is None:
            return None
        time = column_to_numpy(self.shipped.column(self.program.orders[0].column))
        if self.permutation is not None:
            time = time[self.permutation]
        return time_window_ends(time, self.begin_of, self.end_of, self.program.within.size)

    @cached_property
    def frame_ends(self) -> Positions | None:
        """For each row, the first row after its window frame; None: frames end with their
        partition."""
        frame = self.program.frame
        if frame is None or not frame.is_bounded:
            return None
        following: Array | int | None = frame.following
        if frame.bound is not None:
            found = self.columns.every(frame.bound, BIGINT)
            known = True if found.valid is None else found.valid
            wrong = ~(known & (found.values >= 0))
            if wrong.any():
                raise _frame_bound_error(self, int(np.flatnonzero(wrong)[0]))
            following = np.minimum(found.values, self.size)
        assert following is not None
        found_ends: Positions = np.minimum(np.arange(self.size) + following + 1, self.end_of)
        return found_ends

    def closed_windows(self, horizon: int | float | None) -> Array:
        """For each row, whether WITHIN excludes every row after `horizon` from a match that begins
        there. Rows after the horizon are later than it, but a difference of floats may round to the
        same value."""
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
        """The column, `shift` rows ahead in the partition; NULL beyond its ends."""
        vector = self.columns.every(column, type_)
        if shift == 0:
            return vector
        values, valid = _shift_values(vector.values, shift), self.inside(shift)
        if vector.valid is not None:
            valid &= _shift_values(vector.valid, shift)
        return Vector(values, valid, vector.nan_free)

    def inside(self, shift: int) -> Array:
        """For each row, whether its partition has a row `shift` rows ahead."""
        if abs(shift) > _FEW_ROWS:
            at = np.arange(self.size) + shift
            return np.asarray((at >= self.begin_of) & (at < self.end_of))
        inside = np.ones(self.size, np.bool_)
        for step in range(abs(shift)):
            at = self.begins + step if shift < 0 else self.ends - 1 - step
            inside[at[(at >= self.begins) & (at < self.ends)]] = False
        return inside


def _with_positions(table: pa.Table, permutation: Positions | None) -> pa.Table:
    """The table with the position of each row as its last column."""
    positions = np.arange(table.num_rows)
    if permutation is not None:
        positions[permutation] = np.arange(table.num_rows)
    return table.append_column(_POSITIONS, pa.array(positions))


def _frame_bound_error(table: RowTable, position: int) -> CepError:
    row = int(table.places(np.array([position]))[0])
    return CepError(
        f"{table.describe_partition(position)}: the end of the window frame of row {row + 1} is "
        "NULL or negative",
        hint="the number before FOLLOWING is at least 0: coalesce(greatest(n, 0), 0) FOLLOWING",
        details={"key": table.key_of(position), "row": row},
    )


@dataclass(frozen=True)
class _TextCondition:
    expression: Expression


@dataclass(frozen=True)
class TextExpressions:
    """The expressions whose strings are coded by one vocabulary."""

    conditions: tuple[_TextCondition, ...]

    @classmethod
    def of(cls, expressions: Sequence[Expression]) -> TextExpressions:
        leaves = [leaf for each in expressions for leaf in leaves_of(each)]
        arguments = [leaf.argument for leaf in leaves if isinstance(leaf, Aggregate)]
        every = [*expressions, *(each for each in arguments if each is not None)]
        return cls(tuple(_TextCondition(replace_with_cells(each, [])) for each in every))


def _shift_values(values: Array, shift: int) -> Array:
    """The values `shift` places ahead; where there is no such place, the value is arbitrary."""
    shifted = values.copy()
    if 0 < abs(shift) < len(values):
        if shift < 0:
            shifted[-shift:] = values[:shift]
        else:
            shifted[:-shift] = values[shift:]
    return shifted


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
    # The unstable sort is several times faster, and there are usually few equal codes.
    order = np.argsort(combined)
    ordered = combined[order]
    same = np.zeros(size + 1, np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=same[1:-1])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        run = np.cumsum(~same[tied])
        order[tied] = order[tied][np.lexsort([order[tied], run])]
    return order


# ---- conditions on a row and its neighbours ----------------------------------------------------


def condition_mask(condition: Expression, table: RowTable, tally: ErrorTally) -> Array:
    """For each row, whether the condition is TRUE."""
    read: list[Expression] = []
    expression = replace_with_cells(condition, read)
    holds = condition_holds(
        expression, lambda cell: _read_cell(cell, read, table), table.columns, tally
    )
    return np.broadcast_to(holds, (table.size,))


def expression_values(
    expression: Expression, table: RowTable, tally: ErrorTally
) -> tuple[Vector, Array | None]:
    """The value of the expression at each row, and the rows where it failed."""
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


# ---- the searches of each partition ------------------------------------------------------------


@dataclass(frozen=True)
class SearchProgress:
    """How far the searches of each partition are: at its first row in a batch, where the last
    advance left them in a stream. Everything before `begin` is decided and in the answer, and
    nothing of the rest is.

    One entry for each partition; positions are those of the table. `begin`: the first row of the
    next search. `covered`: the position after the last row of any match. `number`: of the last
    match. `dropped`: rows of the partition before its first row in the table. `is_open`: rows may
    still arrive.
    """

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
    """Which partitions of a table are complete, and which are open: rows may still arrive.

    `parts` is what the kernel reads and writes. `horizon`: all rows up to this time have arrived.
    """

    def __init__(self, progress: SearchProgress, horizon: int | float | None = None) -> None:
        self.horizon = horizon
        self._before = progress
        self._is_open = progress.is_open
        self.any_open = bool(progress.is_open.any())
        self.parts = np.zeros((len(progress.begin), r.PART_SIZE), np.int64)
        self.parts[:, r.NEXT] = progress.begin
        self.parts[:, r.NEXT_COVERED] = progress.covered
        self.parts[:, r.NEXT_NUMBER] = progress.number
        self.parts[:, r.HAS_FIRST] = progress.dropped == 0
        self.parts[:, r.IS_OPEN] = progress.is_open

    def progress(self) -> SearchProgress:
        """The progress as the kernel left it."""
        return replace(
            self._before,
            begin=self.parts[:, r.NEXT],
            covered=self.parts[:, r.NEXT_COVERED],
            number=self.parts[:, r.NEXT_NUMBER],
        )

    def open_rows(self, table: RowTable) -> Array:
        """The rows of partitions that are open."""
        return np.repeat(self._is_open, table.ends - table.begins)

    def beyond_end(self, table: RowTable, reach: int) -> Array:
        """The rows of open partitions from which `reach` rows ahead is beyond the last known
        row."""
        return ~table.inside(max(reach, 0)) & self.open_rows(table)
