"""The rows of a bucket: sorted by key and order, each addressed by its position.

Rows whose order keys are equal keep the order in which they arrived. Partitions are runs of
positions. Only columns that something reads are brought into this order; the payload is taken
once, from the shipped table, for the rows of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events import combined_codes, numbers, time_ends, without_null_times
from spark_cep.udfs.rows.leaves import leaves, with_cells
from spark_cep.udfs.rows.program import Aggregate
from spark_cep.udfs.values.codes import key_codes, sort_codes
from spark_cep.udfs.values.vectors import Columns, Vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_cep.udfs.expressions import Expression, Type
    from spark_cep.udfs.rows.program import RowProgram
    from spark_cep.udfs.values.arrow_values import Array

Positions = npt.NDArray[np.int64]
# Up to so many rows away, the rows without such a neighbour are found one distance at a time.
_FEW_ROWS: Final = 16


@dataclass(frozen=True)
class _Condition:
    expression: Expression


@dataclass(frozen=True)
class Texts:
    """The expressions whose words share one vocabulary."""

    conditions: tuple[_Condition, ...]

    @classmethod
    def of(cls, expressions: Sequence[Expression]) -> Texts:
        leaves_ = [leaf for each in expressions for leaf in leaves(each)]
        arguments = [leaf.argument for leaf in leaves_ if isinstance(leaf, Aggregate)]
        every = [*expressions, *(each for each in arguments if each is not None)]
        return cls(tuple(_Condition(with_cells(each, [])) for each in every))


class Table:
    """`ignored`: rows that WITHIN leaves out, for they have no time. `dropped`: rows of each
    partition that came before those of the table, in an advance of several."""

    def __init__(self, program: RowProgram, table: pa.Table) -> None:
        rows = table.num_rows
        if program.within is not None:
            table = without_null_times(program, table)
        self.program = program
        self.shipped = table
        self.size: int = table.num_rows
        self.ignored = rows - self.size
        keys = [key_codes([table.column(i) for i in program.keys])] if program.keys else []
        orders = [sort_codes(table.column(order.column), order) for order in program.orders]
        self.permutation = _sorted([*keys, *orders], self.size)
        starts = np.zeros(self.size, np.bool_)
        starts[:1] = True
        if keys:
            ordered = keys[0] if self.permutation is None else keys[0][self.permutation]
            np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
        self.begins: Positions = np.flatnonzero(starts)
        self.ends: Positions = np.append(self.begins[1:], self.size)[: len(self.begins)]
        self.dropped: Positions = np.zeros(len(self.begins), np.int64)
        defines = [variable.define for variable in program.variables]
        texts = Texts.of([define for define in defines if define is not None])
        self.columns = Columns(texts, table, self.permutation)

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
        time = numbers(self.shipped.column(self.program.orders[0].column))
        if self.permutation is not None:
            time = time[self.permutation]
        return time_ends(time, self.begin_of, self.end_of, self.program.within.size)

    def passed(self, horizon: int | float | None) -> Array:
        """For each row whether no row that comes after `horizon` can be within a match that begins
        there. Such a row is later; a difference of floats may come out the same."""
        if horizon is None or self.program.within is None:
            return np.zeros(self.size, np.bool_)
        order, size = self.program.orders[0], self.program.within.size
        time = numbers(self.shipped.column(order.column))
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
        values, valid = _moved(vector.values, shift), self.inside(shift)
        if vector.valid is not None:
            valid &= _moved(vector.valid, shift)
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


def _moved(values: Array, shift: int) -> Array:
    """The values so many places further on; what stands where there is none is arbitrary."""
    moved = values.copy()
    if 0 < abs(shift) < len(values):
        if shift < 0:
            moved[-shift:] = values[:shift]
        else:
            moved[:-shift] = values[shift:]
    return moved


def _sorted(codes: list[Array], size: int) -> Positions | None:
    """The permutation that sorts; None if the rows are sorted already."""
    if not codes:
        return None
    combined = combined_codes(codes)
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
