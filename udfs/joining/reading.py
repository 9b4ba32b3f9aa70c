"""Conditions on sets of partial matches: which row each cell of an expression is read at.

A condition is evaluated for many partials (or partial-candidate pairs) at once. Rows of plain
variables form a column; each list slot whose elements the condition ranges over ("each", "prev")
gets an axis of its own, and the condition holds for a partial when it holds all over these axes.
Members of one group share their slot's axis: they are paired by iteration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.expressions import (
    FOLDS,
    Cell,
    Expression,
    RemoteCall,
    cells,
    variables,
)
from spark_cep.udfs.values.evaluate import Tally, evaluate, fold, holds, ids_in
from spark_cep.udfs.values.vectors import Columns, Vector

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.joining.partials import Partials, Slots
    from spark_cep.udfs.program import Condition


# Remote sources with the ids of keys, a row for each partial match or pair.
Asked = list[tuple[int, "Positions"]]


@dataclass(frozen=True)
class Candidates:
    """New rows under test, one a pair: for each of their variables the row, and for lists the
    row of the element before (None while the list is empty)."""

    rows: Mapping[int, Positions]
    previous: Mapping[int, Positions] | None = None


_NOBODY = Candidates({})


def looks_back(condition: Condition, variables: Collection[int]) -> bool:
    """Whether it reads the element before, in the list of one of the variables."""
    return any(
        cell.reading == "prev" and cell.variable in variables
        for cell in cells(condition.expression)
    )


@dataclass(frozen=True)
class Reader:
    """Reads cells for `partials`, picked by `pick` where pairs are tested."""

    columns: Columns
    slots: Slots
    partials: Partials
    tally: Tally
    pick: Positions | None = None
    candidates: Candidates = _NOBODY
    # What was read of the partials, whichever pairs are picked of them.
    _cache: dict[Cell, Vector] = field(default_factory=dict)
    # Where a fold of the partials failed: it fails the conditions that read it, pair by pair.
    _failed: dict[Cell, Flags] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.partials) if self.pick is None else len(self.pick)

    def select(self, kept: Positions) -> Reader:
        """The same pairs (or partials), fewer of them."""
        if self.pick is None:
            return Reader(self.columns, self.slots, self.partials.take(kept), self.tally)
        previous = self.candidates.previous
        candidates = Candidates(
            {v: rows[kept] for v, rows in self.candidates.rows.items()},
            None if previous is None else {v: rows[kept] for v, rows in previous.items()},
        )
        return replace(self, pick=self.pick[kept], candidates=candidates)

    def holds(self, condition: Condition) -> Flags:
        """For each partial or pair: is the condition TRUE, for every element it ranges over."""
        axes = self._axes(condition.expression)
        found = holds(
            condition.expression, lambda cell: self._read(cell, axes), self.columns, self.tally
        )
        looking_back = {
            self.slots.of_variable[cell.variable]
            for cell in cells(condition.expression)
            if cell.reading == "prev" and cell.variable not in self.candidates.rows
        }
        shape = (len(self), *(self._length(slot) for slot in axes))
        found = np.broadcast_to(found, shape)
        for slot in looking_back:
            # A conjunct with prev is not tested on the first element.
            at = 1 + axes.index(slot)
            found = np.delete(found, 0, axis=at)
        return np.asarray(found.all(axis=tuple(range(1, found.ndim)))) if axes else found

    def asked(self, condition: Condition, of: Collection[int] | None = None) -> Asked:
        """The remote sources that a condition asks, and for each partial or pair the ids of its
        keys, as a row. `of`: only the calls whose keys these slots know."""
        found = []
        for node in condition.expression.walk():
            if isinstance(node, RemoteCall) and (of is None or self._knows(node, of)):
                axes = self._axes(node)
                read = partial(self._read, axes=axes)
                ids = ids_in(node, read, self.columns, self.tally)
                shape = (len(self), *(self._length(slot) for slot in axes))
                width = math.prod(shape[1:])
                found.append((node.remote, np.broadcast_to(ids, shape).reshape(-1, width)))
        return found

    def _knows(self, node: RemoteCall, slots: Collection[int]) -> bool:
        return all(self.slots.of_variable[v] in slots for v in variables(node))

    def values(self, expression: Expression) -> Vector:
        """An expression over plain variables, one value a partial (or pair)."""
        vector = evaluate(expression, lambda cell: self._read(cell, ()), self.columns, self.tally)
        size = len(self)
        valid = None if vector.valid is None else np.broadcast_to(vector.valid, (size,))
        for failed in self.tally.take_failed():
            valid = ~failed if valid is None else valid & ~failed
        if valid is not None:
            valid = np.broadcast_to(valid, (size,))
        return Vector(np.broadcast_to(vector.values, (size,)), valid)

    def _axes(self, expression: Expression) -> tuple[int, ...]:
        found = {
            self.slots.of_variable[cell.variable]
            for cell in cells(expression)
            if cell.reading not in FOLDS
            and cell.variable not in self.candidates.rows
            and self._is_list(cell.variable)
        }
        return tuple(sorted(found))

    def _is_list(self, variable: int) -> bool:
        return self.partials.elements[self.slots.of_variable[variable]].ndim == 2

    def _length(self, slot: int) -> int:
        return int(self.partials.elements[slot].shape[1])

    def _read(self, cell: Cell, axes: Sequence[int]) -> Vector:
        if cell.variable in self.candidates.rows and cell.reading not in FOLDS:
            return _shaped(self._candidate(cell), None, len(axes))
        found = self._cache.get(cell)
        if found is None:
            found = self._bound(cell)
            self._cache[cell] = found
        if cell in self._failed:
            self.tally.note(self._per_pair(self._failed[cell], len(axes)))
        if self.pick is not None:
            found = found.at(self.pick)
        slot = self.slots.of_variable[cell.variable]
        listed = found.values.ndim == 2
        return _shaped(found, axes.index(slot) if listed else None, len(axes))

    def _per_pair(self, failed: Flags, axes: int) -> Flags:
        failed = failed if self.pick is None else failed[self.pick]
        return failed.reshape(-1, *[1] * axes)

    def _candidate(self, cell: Cell) -> Vector:
        if cell.reading == "prev":
            assert self.candidates.previous is not None
            rows = self.candidates.previous[cell.variable]
        else:
            rows = self.candidates.rows[cell.variable]
        assert cell.column is not None
        return self.columns.gather(cell.column, cell.type, rows)

    def _bound(self, cell: Cell) -> Vector:
        rows = self.slots.rows(cell.variable, self.partials)
        if cell.reading == "prev":
            rows = np.concatenate([rows[:, :1], rows[:, :-1]], axis=1)
        if cell.reading not in FOLDS:
            assert cell.column is not None
            return self.columns.gather(cell.column, cell.type, rows)
        if cell.column is None:
            return fold(Vector(rows), cell.reading, cell.type, self.tally)
        values = self.columns.gather(cell.column, cell.type, rows)
        before = self.tally.take_failed()
        folded = fold(values, cell.reading, cell.type, self.tally)
        failed = self.tally.take_failed()
        if failed:
            self._failed[cell] = np.logical_or.reduce(failed)
        for each in before:
            self.tally.note(each)
        return folded


def _shaped(vector: Vector, axis: int | None, axes: int) -> Vector:
    """(n,) to (n, 1, ...), (n, k) to (n, ..., k, ...)."""
    if axes == 0:
        return vector
    tail = [1] * axes
    if axis is not None:
        tail[axis] = vector.values.shape[1]
    shape = (vector.values.shape[0], *tail)
    valid = None if vector.valid is None else vector.valid.reshape(shape)
    return Vector(vector.values.reshape(shape), valid)
