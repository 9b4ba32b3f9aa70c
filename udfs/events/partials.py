"""Partial matches as columns, and the conditions on them.

`Partials` is a set of partial matches with one integer column for each bound slot; `BranchSlots`
says which rows these are; `CellReader` evaluates a condition for all of them, or for pairs of a
partial match and a candidate, at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

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


@dataclass(frozen=True)
class Partials:
    """A set of partial matches as columns, one entry for each.

    An *element* is what fills a slot once: a row, or one match of a repeated group's body.
    `elements[slot]` is (n,), for a list slot (n, length): in one set all lists of a slot have the
    same length, because a walk extends lists in lockstep. So nothing is ragged, and a set is cut
    with one `take`.

    `earliest` and `latest` are the positions of the first and last row bound so far. The first row
    of the match must lie in [floor, ceiling). `waiting` has a bit for each condition that was not
    tested yet because its remote data has not arrived. `number`: of each of them, where an observer
    counts them.
    """

    elements: Mapping[int, Positions]
    earliest: Positions
    latest: Positions
    floor: Positions | None = None
    ceiling: Positions | None = None
    waiting: Positions | None = None
    number: Positions | None = None

    def __len__(self) -> int:
        return len(self.earliest)

    def take(self, index: Positions | Flags | slice) -> Partials:
        return Partials(
            {slot: bound[index] for slot, bound in self.elements.items()},
            self.earliest[index],
            self.latest[index],
            None if self.floor is None else self.floor[index],
            None if self.ceiling is None else self.ceiling[index],
            None if self.waiting is None else self.waiting[index],
            None if self.number is None else self.number[index],
        )

    def wait_for(self, waiting: Positions) -> Partials:
        """The same partials, waiting for the conditions of these bits too."""
        more = waiting if self.waiting is None else self.waiting | waiting
        return replace(self, waiting=more)

    def shape(self) -> tuple[tuple[int, int], ...]:
        """The bound slots and the length of their lists; sets of one shape can be concatenated."""
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


# Stands where an iteration of a repeated OR has taken another alternative.
NO_ROW: Final = -1


@dataclass(frozen=True)
class SlotElements:
    """The elements that may fill a slot.

    For a slot of one variable an element's number is its row's position and `members` is None; a
    group's elements are rows of `members`, sorted by `first`. Those of a repeated OR have rows for
    the variables of one alternative, and NO_ROW for the others.
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

    def last_rows(self, variable: int, lists: Positions) -> Positions:
        """The last row of a variable in each list of elements; NO_ROW if it has none."""
        if not self.slot.has_alternatives:
            return self.rows(variable, lists[:, -1])
        rows = self.rows(variable, lists)
        # Rows ascend along a list, and NO_ROW is below all of them.
        return np.asarray(rows.max(axis=1))

    def all_rows(self, elements: Positions) -> list[Positions]:
        """The rows of elements, some of them repeatedly: for each variable, where an element has
        none for it, the element's first row."""
        rows = [self.rows(variable, elements) for variable in self.slot.variables]
        if not self.slot.has_alternatives:
            return rows
        first = self.first_row(elements)
        return [np.where(each == NO_ROW, first, each) for each in rows]


class BranchSlots:
    """The elements of every slot of a branch, and the rows that partials bind to them."""

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

    def all_rows(self, slot: int, partials: Partials) -> list[Positions]:
        """The rows of a slot, one (n, length) matrix for each of its variables."""
        bound = partials.elements[slot]
        matrix = bound if bound.ndim == 2 else bound[:, np.newaxis]
        return self.elements[slot].all_rows(matrix)


def group_equal_rows(lengths: Positions) -> Iterator[Positions]:
    """The places of equal rows, one array for each distinct row."""
    if not len(lengths):
        return
    _, shape = np.unique(lengths, axis=0, return_inverse=True)
    order = np.argsort(shape, kind="stable")
    cuts = np.flatnonzero(np.diff(shape[order])) + 1
    yield from np.split(order, cuts)


# Remote sources, each with the ids of keys: one row for each partial match or pair.
LookupKeyIds = list[tuple[int, "Positions"]]


@dataclass(frozen=True)
class CandidateRows:
    """New rows under test, one for each pair: for each of their variables the row, and for lists
    the row of the element before (None while the list is empty)."""

    rows: Mapping[int, Positions]
    previous: Mapping[int, Positions] | None = None


_NO_CANDIDATES = CandidateRows({})


@dataclass(frozen=True)
class CellReader:
    """Evaluates conditions for many partials at once, or for pairs: `pick` is the partial of each.

    Rows of plain variables form a column. Each list slot whose elements a condition ranges over
    ("each", "prev") gets an axis of its own, and the condition holds for a partial when it holds
    all over these axes. Members of a group share their slot's axis: they are paired by iteration.
    """

    columns: EventColumns
    slots: BranchSlots
    partials: Partials
    tally: ErrorTally
    pick: Positions | None = None
    candidates: CandidateRows = _NO_CANDIDATES
    # Values read for all partials, whichever pairs are picked.
    _cache: dict[Cell, Vector] = field(default_factory=dict)
    # Where a fold failed for a partial: conditions that read it fail for all its pairs.
    _failed: dict[Cell, Flags] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.partials) if self.pick is None else len(self.pick)

    def select(self, kept: Positions) -> CellReader:
        """A reader of some of the pairs (or partials)."""
        if self.pick is None:
            return CellReader(self.columns, self.slots, self.partials.take(kept), self.tally)
        previous = self.candidates.previous
        candidates = CandidateRows(
            {v: rows[kept] for v, rows in self.candidates.rows.items()},
            None if previous is None else {v: rows[kept] for v, rows in previous.items()},
        )
        return replace(self, pick=self.pick[kept], candidates=candidates)

    def holds(self, condition: Condition) -> Flags:
        """For each partial or pair: is the condition TRUE for all elements it ranges over?"""
        for variable in condition.variables:
            slot = self.slots.of_variable.get(variable)
            if slot is not None and self.slots.elements[slot].slot.has_alternatives:
                held = self._holds_where_chosen(condition, slot, variable)
                if held is not None:
                    return held
        return self._holds(condition)

    def _holds_where_chosen(self, condition: Condition, slot: int, variable: int) -> Flags | None:
        """The same for a condition that names a variable of a repeated OR: it concerns the list of
        the iterations that chose its alternative. None where all of them did."""
        held = np.ones(len(self), dtype=np.bool_)
        candidates = self.candidates.rows.get(variable)
        if candidates is not None:
            is_tested = candidates != NO_ROW
            if looks_back(condition, self.slots.elements[slot].slot.variables):
                assert self.candidates.previous is not None
                is_tested &= self.candidates.previous[variable] != NO_ROW
            if is_tested.all():
                return None
            tested = np.flatnonzero(is_tested)
            held[tested] = self.select(tested).holds(condition)
            return held
        elements = self.partials.elements[slot]
        elements = elements if self.pick is None else elements[self.pick]
        is_chosen = self.slots.elements[slot].rows(variable, elements) != NO_ROW
        if is_chosen.all():
            return None
        for which in group_equal_rows(np.count_nonzero(is_chosen, axis=1)[:, np.newaxis]):
            chosen = elements[which][is_chosen[which]].reshape(len(which), -1)
            # A variable without rows is not tested.
            if chosen.shape[1]:
                held[which] = self._with_list(which, slot, chosen).holds(condition)
        return held

    def _with_list(self, kept: Positions, slot: int, elements: Positions) -> CellReader:
        """A reader of some of the pairs (or partials) with other elements in a list."""
        reader = self.select(kept)
        partials = reader.partials if reader.pick is None else reader.partials.take(reader.pick)
        partials = replace(partials, elements={**partials.elements, slot: elements})
        pick = None if reader.pick is None else np.arange(len(kept))
        return CellReader(self.columns, self.slots, partials, self.tally, pick, reader.candidates)

    def _holds(self, condition: Condition) -> Flags:
        axes = self._axes(condition.expression)
        found = condition_holds(
            condition.expression, lambda cell: self._read(cell, axes), self.columns, self.tally
        )
        list_slots = {
            self.slots.of_variable[cell.variable]
            for cell in cells_of(condition.expression)
            if cell.reading == "prev" and cell.variable not in self.candidates.rows
        }
        shape = (len(self), *(self._length(slot) for slot in axes))
        found = np.broadcast_to(found, shape)
        for slot in list_slots:
            # A conjunct with prev is not tested on the first element.
            at = 1 + axes.index(slot)
            found = np.delete(found, 0, axis=at)
        return np.asarray(found.all(axis=tuple(range(1, found.ndim)))) if axes else found

    def key_ids(self, condition: Condition, of: Collection[int] | None = None) -> LookupKeyIds:
        """The remote sources that a condition reads, with the key ids of each partial or pair.

        `of`: only calls whose keys depend on these slots alone.
        """
        key_ids = []
        for node in condition.expression.walk():
            if isinstance(node, RemoteCall) and (of is None or self._depends_on(node, of)):
                axes = self._axes(node)
                read = partial(self._read, axes=axes)
                ids = find_key_ids(node, read, self.columns, self.tally)
                shape = (len(self), *(self._length(slot) for slot in axes))
                width = math.prod(shape[1:])
                key_ids.append((node.remote, np.broadcast_to(ids, shape).reshape(-1, width)))
        return key_ids

    def _depends_on(self, node: RemoteCall, slots: Collection[int]) -> bool:
        return all(self.slots.of_variable[v] in slots for v in variables_of(node))

    def values(self, expression: Expression) -> Vector:
        """An expression over plain variables, one value for each partial (or pair)."""
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
            return _align_axes(self._read_candidate(cell), None, len(axes))
        vector = self._cache.get(cell)
        if vector is None:
            vector = self._read_bound(cell)
            self._cache[cell] = vector
        if cell in self._failed:
            self.tally.note(self._per_pair(self._failed[cell], len(axes)))
        if self.pick is not None:
            vector = vector.at(self.pick)
        slot = self.slots.of_variable[cell.variable]
        is_list = vector.values.ndim == 2
        return _align_axes(vector, axes.index(slot) if is_list else None, len(axes))

    def _per_pair(self, failed: Flags, axes: int) -> Flags:
        failed = failed if self.pick is None else failed[self.pick]
        return failed.reshape(-1, *[1] * axes)

    def _read_candidate(self, cell: Cell) -> Vector:
        if cell.reading == "prev":
            assert self.candidates.previous is not None
            rows = self.candidates.previous[cell.variable]
        else:
            rows = self.candidates.rows[cell.variable]
        assert cell.column is not None
        return self.columns.gather(cell.column, cell.type, rows)

    def _read_bound(self, cell: Cell) -> Vector:
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


def looks_back(condition: Condition, variables: Collection[int]) -> bool:
    """Whether the condition reads `prev` of one of the variables."""
    return any(
        cell.reading == "prev" and cell.variable in variables
        for cell in cells_of(condition.expression)
    )


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
