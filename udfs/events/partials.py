"""Conditions on sets of partial matches: which row each cell of an expression is read at.

A condition is evaluated for many partials (or partial-candidate pairs) at once. Rows of plain
variables form a column; each list slot whose elements the condition ranges over ("each", "prev")
gets an axis of its own, and the condition holds for a partial when it holds all over these axes.
Members of one group share their slot's axis: they are paired by iteration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.expressions import FOLDS, Cell, Expression, RemoteCall, cells_of, variables_of
from spark_cep.udfs.values.evaluate import (
    ErrorTally,
    condition_holds,
    evaluate_expression,
    find_key_ids,
    fold_list,
)
from spark_cep.udfs.values.vectors import EventColumns, Vector

if TYPE_CHECKING:
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Condition, Slot


# --------------------------------------------------------------------------------------------------
# Partial matches as columns, and the elements that fill their slots.
#
# A set of partial matches has one integer column for each bound slot. An *element* is what fills a
# slot once: a row, or one match of a repeated group's body. A plain slot holds one element number
# a partial, a list slot a matrix: in one set all lists of a slot have the same length, because the
# chain extends lists in lockstep. So nothing here is ragged, and a set is cut with one `take`.
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partials:
    """`elements[slot]` is (n,), for a list slot (n, length); `earliest` and `latest` are the
    positions of the first and last row bound so far. Where a walk starts differently from place
    to place, the first row of the match has to lie in [floor, ceiling). `waiting` has a bit for
    each condition that was not tested yet, for want of remote data."""

    elements: Mapping[int, Positions]
    earliest: Positions
    latest: Positions
    floor: Positions | None = None
    ceiling: Positions | None = None
    waiting: Positions | None = None

    def __len__(self) -> int:
        return len(self.earliest)

    def take(self, index: Positions | Flags) -> Partials:
        return Partials(
            {slot: bound[index] for slot, bound in self.elements.items()},
            self.earliest[index],
            self.latest[index],
            None if self.floor is None else self.floor[index],
            None if self.ceiling is None else self.ceiling[index],
            None if self.waiting is None else self.waiting[index],
        )

    def still(self, waiting: Positions) -> Partials:
        """With conditions beside those that they wait for already."""
        more = waiting if self.waiting is None else self.waiting | waiting
        return replace(self, waiting=more)

    def shape(self) -> tuple[tuple[int, int], ...]:
        """The slots bound and the length of their lists; sets of one shape can be put together."""
        return tuple(
            (slot, bound.shape[1] if bound.ndim == 2 else 0)
            for slot, bound in sorted(self.elements.items())
        )


def merge_partials(sets: Iterable[Partials]) -> list[Partials]:
    """The same partial matches in as few sets as there are shapes."""
    shapes: dict[tuple[tuple[int, int], ...], list[Partials]] = {}
    for each in sets:
        if len(each):
            shapes.setdefault(each.shape(), []).append(each)
    return [_concatenate_partials(alike) for alike in shapes.values()]


def _concatenate_partials(alike: list[Partials]) -> Partials:
    if len(alike) == 1:
        return alike[0]
    return Partials(
        {s: np.concatenate([each.elements[s] for each in alike]) for s in alike[0].elements},
        np.concatenate([each.earliest for each in alike]),
        np.concatenate([each.latest for each in alike]),
    )


@dataclass(frozen=True)
class SlotElements:
    """What may fill a slot. For a slot of one variable an element's number is its row's
    position and `members` is None; a group's elements are rows of `members`, sorted by `first`.
    """

    slot: Slot
    first: Positions | None = None
    last: Positions | None = None
    members: Mapping[int, Positions] | None = None

    def first_row(self, elements: Positions) -> Positions:
        return elements if self.first is None else self.first[elements]

    def last_row(self, elements: Positions) -> Positions:
        return elements if self.last is None else self.last[elements]

    def rows(self, variable: int, elements: Positions) -> Positions:
        return elements if self.members is None else self.members[variable][elements]


class BranchSlots:
    """The elements of every slot of a branch; answers where a partial's slot begins and ends."""

    def __init__(self, elements: Mapping[int, SlotElements]) -> None:
        self.elements = elements
        self.of_variable = {
            variable: slot
            for slot, filled in elements.items()
            for variable in filled.slot.variables
        }

    def first(self, slot: int, partials: Partials) -> Positions:
        bound = partials.elements[slot]
        return self.elements[slot].first_row(bound[:, 0] if bound.ndim == 2 else bound)

    def last(self, slot: int, partials: Partials) -> Positions:
        bound = partials.elements[slot]
        return self.elements[slot].last_row(bound[:, -1] if bound.ndim == 2 else bound)

    def rows(self, variable: int, partials: Partials) -> Positions:
        """The rows bound to a variable, (n,) or (n, length)."""
        slot = self.of_variable[variable]
        return self.elements[slot].rows(variable, partials.elements[slot])

    def all_rows(self, slot: int, partials: Partials) -> list[npt.NDArray[np.int64]]:
        """The rows of a slot, one (n, length) matrix a member."""
        bound = partials.elements[slot]
        matrix = bound if bound.ndim == 2 else bound[:, np.newaxis]
        filled = self.elements[slot]
        return [filled.rows(variable, matrix) for variable in filled.slot.variables]


# Remote sources with the ids of keys, a row for each partial match or pair.
LookupKeyIds = list[tuple[int, "Positions"]]


@dataclass(frozen=True)
class CandidateRows:
    """New rows under test, one a pair: for each of their variables the row, and for lists the
    row of the element before (None while the list is empty)."""

    rows: Mapping[int, Positions]
    previous: Mapping[int, Positions] | None = None


_NO_CANDIDATES = CandidateRows({})


def looks_back(condition: Condition, variables: Collection[int]) -> bool:
    """Whether it reads the element before, in the list of one of the variables."""
    return any(
        cell.reading == "prev" and cell.variable in variables
        for cell in cells_of(condition.expression)
    )


@dataclass(frozen=True)
class CellReader:
    """Reads cells for `partials`, picked by `pick` where pairs are tested."""

    columns: EventColumns
    slots: BranchSlots
    partials: Partials
    tally: ErrorTally
    pick: Positions | None = None
    candidates: CandidateRows = _NO_CANDIDATES
    # What was read of the partials, whichever pairs are picked of them.
    _cache: dict[Cell, Vector] = field(default_factory=dict)
    # Where a fold of the partials failed: it fails the conditions that read it, pair by pair.
    _failed: dict[Cell, Flags] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.partials) if self.pick is None else len(self.pick)

    def select(self, kept: Positions) -> CellReader:
        """The same pairs (or partials), fewer of them."""
        if self.pick is None:
            return CellReader(self.columns, self.slots, self.partials.take(kept), self.tally)
        previous = self.candidates.previous
        candidates = CandidateRows(
            {v: rows[kept] for v, rows in self.candidates.rows.items()},
            None if previous is None else {v: rows[kept] for v, rows in previous.items()},
        )
        return replace(self, pick=self.pick[kept], candidates=candidates)

    def holds(self, condition: Condition) -> Flags:
        """For each partial or pair: is the condition TRUE, for every element it ranges over."""
        axes = self._axes(condition.expression)
        found = condition_holds(
            condition.expression, lambda cell: self._read(cell, axes), self.columns, self.tally
        )
        looking_back = {
            self.slots.of_variable[cell.variable]
            for cell in cells_of(condition.expression)
            if cell.reading == "prev" and cell.variable not in self.candidates.rows
        }
        shape = (len(self), *(self._length(slot) for slot in axes))
        found = np.broadcast_to(found, shape)
        for slot in looking_back:
            # A conjunct with prev is not tested on the first element.
            at = 1 + axes.index(slot)
            found = np.delete(found, 0, axis=at)
        return np.asarray(found.all(axis=tuple(range(1, found.ndim)))) if axes else found

    def asked(self, condition: Condition, of: Collection[int] | None = None) -> LookupKeyIds:
        """The remote sources that a condition asks, and for each partial or pair the ids of its
        keys, as a row. `of`: only the calls whose keys these slots know."""
        found = []
        for node in condition.expression.walk():
            if isinstance(node, RemoteCall) and (of is None or self._knows(node, of)):
                axes = self._axes(node)
                read = partial(self._read, axes=axes)
                ids = find_key_ids(node, read, self.columns, self.tally)
                shape = (len(self), *(self._length(slot) for slot in axes))
                width = math.prod(shape[1:])
                found.append((node.remote, np.broadcast_to(ids, shape).reshape(-1, width)))
        return found

    def _knows(self, node: RemoteCall, slots: Collection[int]) -> bool:
        return all(self.slots.of_variable[v] in slots for v in variables_of(node))

    def values(self, expression: Expression) -> Vector:
        """An expression over plain variables, one value a partial (or pair)."""
        vector = evaluate_expression(
            expression, lambda cell: self._read(cell, ()), self.columns, self.tally
        )
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
            for cell in cells_of(expression)
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
            return _align_axes(self._candidate(cell), None, len(axes))
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
        return _align_axes(found, axes.index(slot) if listed else None, len(axes))

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
            return fold_list(Vector(rows), cell.reading, cell.type, self.tally)
        values = self.columns.gather(cell.column, cell.type, rows)
        before = self.tally.take_failed()
        folded = fold_list(values, cell.reading, cell.type, self.tally)
        failed = self.tally.take_failed()
        if failed:
            self._failed[cell] = np.logical_or.reduce(failed)
        for each in before:
            self.tally.note(each)
        return folded


def _align_axes(vector: Vector, axis: int | None, axes: int) -> Vector:
    """(n,) to (n, 1, ...), (n, k) to (n, ..., k, ...)."""
    if axes == 0:
        return vector
    tail = [1] * axes
    if axis is not None:
        tail[axis] = vector.values.shape[1]
    shape = (vector.values.shape[0], *tail)
    valid = None if vector.valid is None else vector.valid.reshape(shape)
    return Vector(vector.values.reshape(shape), valid)
