"""The scope of a step: which candidates each partial has to be tried with.

A scope is a range of positions, narrowed by the order, the window and bounds on time; a `Pool`
turns it into a range of its candidates. With equalities the pool is sorted by (values, position),
so that only candidates with equal values are in the range: the equality is never tested pair by
pair. `blocks` then walks all pairs of a set of partials, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events.table import AHEAD, NEW, OLD, Events, Positions, bisect_ranges
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.comparisons import CellBound, CellEquality
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.partials import BranchSlots, CellReader, Partials
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.table import Flags
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.values.vectors import EventColumns, Vector


# --------------------------------------------------------------------------------------------------
# The disjoint cases that one advance's matches fall into, by which of their rows are new.
#
# A match is given in one advance, and what decides in which is the status of its rows: that of its
# latest row, of its earliest, or that it has a new one at all. "Some slot is new" is no condition
# on one slot; split by the first slot for which it holds, it is. So each case says of every slot
# what its rows have to be, and the walk looks only at candidates that can be it.
#
# Rules are sets of statuses, as bits: `1 << NEW | 1 << OLD`.
# --------------------------------------------------------------------------------------------------


ANY_STATUS: Final = 1 << OLD | 1 << NEW | 1 << AHEAD
KNOWN_STATUS: Final = 1 << OLD | 1 << NEW
IS_OLD: Final = 1 << OLD
IS_NEW: Final = 1 << NEW
IS_AHEAD: Final = 1 << AHEAD


@dataclass(frozen=True)
class StatusRule:
    """What the rows of a slot may be: every one of them, the first, the last, and at least one."""

    every: int = KNOWN_STATUS
    first: int = ANY_STATUS
    last: int = ANY_STATUS
    some: int = ANY_STATUS

    @property
    def of_one_row(self) -> int:
        return self.every & self.first & self.last & self.some

    @property
    def looks_inside(self) -> bool:
        return self.some != ANY_STATUS or self.every != ANY_STATUS

    @property
    def looks_at_lists(self) -> bool:
        """Whether it asks more than `every`, which single elements have shown."""
        return (self.first, self.last, self.some) != (ANY_STATUS, ANY_STATUS, ANY_STATUS)


@dataclass(frozen=True)
class AdvanceCase:
    """`slot`: the one whose rows are the reason for this case, so usually the fewest."""

    rules: Mapping[int, StatusRule] = field(default_factory=dict)
    others: StatusRule = field(default_factory=StatusRule)
    slot: int | None = None

    def rule(self, slot: int) -> StatusRule:
        return self.rules.get(slot, self.others)


def cases_by_latest(maximal: Sequence[int], *, has_old: bool) -> Iterator[AdvanceCase]:
    """The latest row is new: some slot that may hold it ends in a new row."""
    for turn, slot in enumerate(maximal):
        if turn and not has_old:
            return
        before = dict.fromkeys(maximal[:turn], StatusRule(every=IS_OLD))
        yield AdvanceCase({**before, slot: StatusRule(last=IS_NEW)}, slot=slot)


def cases_by_any(slots: int, maximal: Sequence[int]) -> Iterator[AdvanceCase]:
    """Some row is new, wherever it lies: the latest or, where rows came late, one before."""
    for turn, slot in enumerate(maximal):
        before = dict.fromkeys(maximal[:turn], StatusRule(last=IS_OLD))
        yield AdvanceCase({**before, slot: StatusRule(last=IS_NEW)}, slot=slot)
    ends_old = dict.fromkeys(maximal, StatusRule(last=IS_OLD))
    for slot in range(slots):
        rules = {**ends_old, **dict.fromkeys(range(slot), StatusRule(every=IS_OLD))}
        last = IS_OLD if slot in maximal else ANY_STATUS
        yield AdvanceCase({**rules, slot: StatusRule(last=last, some=IS_NEW)}, slot=slot)


def cases_by_earliest(minimal: Sequence[int]) -> Iterator[AdvanceCase]:
    """The earliest row is new, and the others are that or lie ahead."""
    later = IS_NEW | IS_AHEAD
    for turn, slot in enumerate(minimal):
        before = dict.fromkeys(minimal[:turn], StatusRule(every=IS_AHEAD))
        rules = {**before, slot: StatusRule(every=later, first=IS_NEW)}
        yield AdvanceCase(rules, StatusRule(every=later), slot=slot)


# What a search for a range takes, compared with a row of the table of a pool.
POOL_SEARCH_COST = 16


@dataclass(frozen=True)
class PositionRanges:
    """Rows (or candidates) [low, high), one range a partial; empty where low >= high."""

    low: Positions
    high: Positions


class CandidatePool:
    """Candidates in the order of their first row."""

    def __init__(self, elements: Positions, first: Positions, size: int) -> None:
        """`first` is ascending: the first row of each element, among `size` positions."""
        self.elements = elements
        self._first = first
        self._size = size
        self._below: Positions | None = None

    def find(self, rows: PositionRanges) -> PositionRanges:
        """The candidates that begin in each range of rows."""
        high = np.maximum(rows.low, rows.high)
        if self._below is None and len(high) * POOL_SEARCH_COST < self._size:
            return PositionRanges(
                np.searchsorted(self._first, rows.low), np.searchsorted(self._first, high)
            )
        if self._below is None:
            # How many begin before each position: dear to make, and then one look a range.
            self._below = np.zeros(self._size + 1, dtype=np.int64)
            np.cumsum(np.bincount(self._first, minlength=self._size), out=self._below[1:])
        return PositionRanges(self._below[rows.low], self._below[high])


class CandidateIndex:
    """A pool whose candidates are found by equal values first, then by position."""

    def __init__(
        self,
        elements: Positions,
        first: Positions,
        keys: Sequence[tuple[Cell, Positions]],
        columns: EventColumns,
        size: int,
    ) -> None:
        # `keys`: what is equal, and the row of each element at which it is read.
        # For each cell its distinct values, and the distinct codes of the cells up to it. Codes
        # are made dense after each cell: a product of all dictionaries could pass int64.
        self._levels: list[tuple[npt.NDArray[Any], Positions]] = []
        self._stride = size + 1
        code, known = np.zeros(len(first), dtype=np.int64), np.ones(len(first), dtype=np.bool_)
        for cell, rows in keys:
            assert cell.column is not None
            vector = columns.gather(cell.column, cell.type, rows)
            values = _normalize_values(vector)
            dictionary, place = np.unique(values, return_inverse=True)
            codes, code = np.unique(code * len(dictionary) + place, return_inverse=True)
            self._levels.append((dictionary, codes))
            if vector.valid is not None:
                known &= vector.valid
        kept = np.flatnonzero(known)
        order = kept[np.argsort(code[kept], kind="stable")]
        self.elements = elements[order]
        self._sorted = code[order] * self._stride + first[order]

    def find(self, rows: PositionRanges, bound: Sequence[Vector]) -> PositionRanges:
        """`bound`: for each equality the value that a partial's candidates must have."""
        code = np.zeros(len(rows.low), dtype=np.int64)
        known = rows.low < rows.high
        for (dictionary, codes), vector in zip(self._levels, bound, strict=True):
            place, found = _find_places(dictionary, _normalize_values(vector))
            code, together = _find_places(codes, code * len(dictionary) + place)
            known &= found & together
            if vector.valid is not None:
                known &= vector.valid
        start = code * self._stride
        low = np.searchsorted(self._sorted, start + rows.low)
        high = np.searchsorted(self._sorted, start + rows.high)
        return PositionRanges(low, np.where(known, high, low))


def _normalize_values(vector: Vector) -> npt.NDArray[Any]:
    """Values that are equal exactly when Spark says so: -0.0 becomes 0.0."""
    return vector.values + 0.0 if vector.values.dtype.kind == "f" else vector.values


def _find_places(
    dictionary: npt.NDArray[Any], values: npt.NDArray[Any]
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Where each value stands in the sorted dictionary, and whether it is there at all."""
    if not len(dictionary):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(dictionary, values), len(dictionary) - 1)
    there = dictionary[place] == values
    if dictionary.dtype.kind == "f":
        there |= np.isnan(dictionary[place]) & np.isnan(values)
    return place, there


def find_scope(
    step: Step, events: Events, slots: BranchSlots, partials: Partials
) -> PositionRanges:
    """The rows that may fill the step's slot: window, order, and for a list what is in it."""
    tie = events.tie
    after = [tie.end[slots.last(slot, partials)] for slot in step.after]
    before = [tie.start[slots.first(slot, partials)] for slot in step.before]
    if step.slot in partials.elements:
        after.append(tie.end[slots.last(step.slot, partials)])
    # What comes after a bound row is in the window of the latest one as it is, and likewise
    # before; the window's edge only matters on an open side.
    low = np.maximum.reduce(after) if after else events.window.start[partials.latest]
    high = np.minimum.reduce(before) if before else events.window.end[partials.earliest]
    if partials.floor is not None:
        low = np.maximum(low, partials.floor)
    return PositionRanges(low, high)


def values_grow(values: Vector, first: Positions, events: Events) -> bool:
    """Whether the values of candidates never fall within a partition, and all are known."""
    if values.valid is not None or values.values.dtype == object:
        return False
    # NaN is above all numbers in SQL, which no comparison of numpy says. One that stands alone
    # falls nowhere.
    if values.values.dtype.kind == "f" and np.isnan(values.values[:1]).any():
        return False
    partition = events.partition.start[first]
    # A column that does not follow time shows it early.
    for stop in (1 << 10, len(first)):
        mine, at = values.values[:stop], partition[:stop]
        if not ((mine[1:] >= mine[:-1]) | (at[1:] != at[:-1])).all():
            return False
    return True


def narrow_ranges(
    ranges: PositionRanges, bound: CellBound, values: npt.NDArray[Any], reader: CellReader
) -> PositionRanges:
    """Cuts ranges of candidates to those that can meet the bound. `values`: of the candidates,
    growing within each range."""
    low, high = ranges.low, np.maximum(ranges.low, ranges.high)
    # A bound that overflows says nothing; the condition itself is tested and counted later.
    limit = replace(
        reader, tally=ErrorTally(ansi=reader.tally.ansi, lookups=reader.tally.lookups)
    ).values(bound.bound)
    known = limit.valid
    if limit.values.dtype.kind == "f":
        number = ~np.isnan(limit.values)
        known = number if known is None else number & known
    beyond = bound.comparison in {">", "<="}
    cut = bisect_ranges(
        low,
        high,
        (lambda at, i: values[at] > limit.values[i])
        if beyond
        else (lambda at, i: values[at] >= limit.values[i]),
    )
    if bound.comparison in {">", ">="}:
        return PositionRanges(cut if known is None else np.where(known, cut, low), high)
    return PositionRanges(low, cut if known is None else np.where(known, cut, high))


def pair_blocks(ranges: PositionRanges, size: int) -> Iterator[tuple[Positions, Positions]]:
    """All pairs (partial, candidate index), at most `size` at a time, in order."""
    counts = np.maximum(ranges.high - ranges.low, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    # Candidate index minus pair number is constant within a partial.
    shift = ranges.low - (ends - counts)
    for start in range(0, total, size):
        stop = min(start + size, total)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        here = np.minimum(ends[first : last + 1], stop) - np.maximum(
            ends[first : last + 1] - counts[first : last + 1], start
        )
        partial = np.repeat(np.arange(first, last + 1), here)
        yield partial, np.arange(start, stop) + shift[partial]


# --------------------------------------------------------------------------------------------------
# What may fill a slot in this advance, and how it is looked up.
#
# One `Pools` serves all walks of one case (`cases.py`): which of its rows have to be old or new is
# pushed into the candidates. Pools and indexes are made when a step first needs them.
# --------------------------------------------------------------------------------------------------


@dataclass
class SlotCandidates:
    """Candidates of every slot of a branch, by position and by equal values."""

    matching: AdvanceContext
    slots: BranchSlots
    case: AdvanceCase
    _pools: dict[int, CandidatePool] = field(default_factory=dict)
    _indexes: dict[tuple[int, tuple[Cell, ...]], CandidateIndex] = field(default_factory=dict)
    _growing: dict[tuple[int, Cell], bool] = field(default_factory=dict)

    def pool(self, slot: int) -> CandidatePool:
        """The slot's candidates that may take part in this advance."""
        if slot not in self._pools:
            matching, filled = self.matching, self.slots.elements[slot]
            if filled.members is None:
                allowed = matching.events.candidates(filled.slot.variables[0])
                elements = np.flatnonzero(allowed)
            else:
                assert filled.first is not None
                elements = np.arange(len(filled.first))
            elements = elements[self._allowed(slot, elements)]
            self._pools[slot] = CandidatePool(
                elements, filled.first_row(elements), matching.events.size
            )
        return self._pools[slot]

    def index(self, slot: int, equalities: Sequence[CellEquality]) -> CandidateIndex:
        """The same candidates by the values that the equalities ask for."""
        key = slot, tuple(equality.cell for equality in equalities)
        if key not in self._indexes:
            elements, events = self.pool(slot).elements, self.matching.events
            rows = self.slots.elements[slot].first_row(elements)
            self._indexes[key] = CandidateIndex(
                elements, rows, [(cell, rows) for cell in key[1]], events.columns, events.size
            )
        return self._indexes[key]

    def grows(self, slot: int, cell: Cell) -> bool:
        """Whether the cell's values never fall with time, over the slot's candidates."""
        if (slot, cell) not in self._growing:
            elements = self.pool(slot).elements
            values = self.values(cell, elements)
            self._growing[slot, cell] = values_grow(values, elements, self.matching.events)
        return self._growing[slot, cell]

    def values(self, cell: Cell, rows: Positions) -> Vector:
        assert cell.column is not None
        return self.matching.events.columns.gather(cell.column, cell.type, rows)

    def rightly_filled(self, slot: int, partials: Partials) -> Flags | None:
        """For complete lists: which ones have rows of the status asked for; None for all."""
        rule = self.case.rule(slot)
        if not rule.looks_at_lists:
            return None
        return meets_rule(rule, slot, (self.slots, partials), self.matching.status)

    def _allowed(self, slot: int, elements: Positions) -> Flags:
        """What is known of a single element already; a plain slot has just one."""
        status, filled = self.matching.status, self.slots.elements[slot]
        rule = self.case.rule(slot)
        if filled.members is None:
            allowed = rule.every if filled.slot.is_list else rule.of_one_row
            return np.asarray(allowed >> status[elements] & 1, dtype=np.bool_)
        kept = np.ones(len(elements), dtype=np.bool_)
        for variable in filled.members:
            kept &= (rule.every >> status[filled.rows(variable, elements)] & 1).astype(np.bool_)
        return kept


def meets_rule(
    rule: StatusRule, slot: int, filled: tuple[BranchSlots, Partials], status: Positions
) -> Flags:
    """Of which partial matches the slot's rows are as the rule asks."""
    slots, partials = filled
    kept = np.asarray(rule.first >> status[slots.first(slot, partials)] & 1, dtype=np.bool_)
    kept &= (rule.last >> status[slots.last(slot, partials)] & 1).astype(np.bool_)
    if rule.looks_inside:
        has = np.zeros(len(partials), dtype=np.bool_)
        for rows in slots.all_rows(slot, partials):
            kept &= (rule.every >> status[rows] & 1).all(axis=1)
            has |= (rule.some >> status[rows] & 1).any(axis=1)
        kept &= has
    return kept
