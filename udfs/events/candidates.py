"""The candidates of a step: which rows (or elements) each partial match is tried with.

The scope of a step is a range of positions, narrowed by order, window and bounds; a
`CandidatePool` turns it into a range of candidates, a `CandidateIndex` into a range of those with
equal values. `pair_blocks` then lists all pairs, a bounded number at a time. `AdvanceCase` says
which rows have to be new in this advance, `SlotCandidates` applies that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.events.table import AHEAD, NEW, OLD, Events, Positions, bisect_ranges
from spark_cep.udfs.values.tally import ErrorTally
from spark_cep.udfs.values.vectors import has_nan

if TYPE_CHECKING:
    from spark_cep.udfs.comparisons import CellBound, CellEquality
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.partials import BranchSlots, CellReader, Partials
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.table import Flags
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import EventColumns, Vector
# Cost of the search for one range, relative to one row of a pool's table.
POOL_SEARCH_COST = 16


@dataclass(frozen=True)
class PositionRanges:
    """Rows (or candidates) [low, high), one range for each partial; empty where low >= high."""

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
        """The candidates whose first row is in each range."""
        high = np.maximum(rows.low, rows.high)
        if self._below is None and len(high) * POOL_SEARCH_COST < self._size:
            return PositionRanges(
                np.searchsorted(self._first, rows.low), np.searchsorted(self._first, high)
            )
        if self._below is None:
            # How many begin before each position: costly to build, then one access a range.
            self._below = np.zeros(self._size + 1, dtype=np.int64)
            np.cumsum(np.bincount(self._first, minlength=self._size), out=self._below[1:])
        return PositionRanges(self._below[rows.low], self._below[high])


class CandidateIndex:
    """A pool whose candidates are found by equal values first, then by position.

    Sorted by (values, position), so a range holds only candidates with equal values: the
    equalities are never tested pair by pair.
    """

    def __init__(
        self,
        elements: Positions,
        first: Positions,
        keys: Sequence[tuple[Cell, Positions]],
        columns: EventColumns,
        size: int,
    ) -> None:
        """`keys`: the cells of the equalities, each with the rows at which it is read."""
        # For each cell its distinct values, and the distinct codes of the cells up to it. Codes
        # are made dense after each cell: a product of all dictionaries could exceed int64.
        self._levels: list[tuple[Array, Positions]] = []
        self._stride = size + 1
        code, valid = np.zeros(len(first), dtype=np.int64), np.ones(len(first), dtype=np.bool_)
        for cell, rows in keys:
            assert cell.column is not None
            vector = columns.gather(cell.column, cell.type, rows)
            values = _normalize_values(vector)
            dictionary, place = np.unique(values, return_inverse=True)
            codes, code = np.unique(code * len(dictionary) + place, return_inverse=True)
            self._levels.append((dictionary, codes))
            if vector.valid is not None:
                valid &= vector.valid
        kept = np.flatnonzero(valid)
        order = kept[np.argsort(code[kept], kind="stable")]
        self.elements = elements[order]
        self._sorted = code[order] * self._stride + first[order]

    def find(self, rows: PositionRanges, bound: Sequence[Vector]) -> PositionRanges:
        """`bound`: for each equality the value that a partial's candidates must have."""
        code = np.zeros(len(rows.low), dtype=np.int64)
        matches = rows.low < rows.high
        for (dictionary, codes), vector in zip(self._levels, bound, strict=True):
            place, found = _find_places(dictionary, _normalize_values(vector))
            code, together = _find_places(codes, code * len(dictionary) + place)
            matches &= found & together
            if vector.valid is not None:
                matches &= vector.valid
        start = code * self._stride
        low = np.searchsorted(self._sorted, start + rows.low)
        high = np.searchsorted(self._sorted, start + rows.high)
        return PositionRanges(low, np.where(matches, high, low))


def _normalize_values(vector: Vector) -> Array:
    """Values that are equal exactly when they are in Spark: -0.0 becomes 0.0."""
    return vector.values + 0.0 if vector.values.dtype.kind == "f" else vector.values


def _find_places(dictionary: Array, values: Array) -> tuple[Positions, Flags]:
    """The place of each value in the sorted dictionary, and whether it is there."""
    if not len(dictionary):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(dictionary, values), len(dictionary) - 1)
    there = dictionary[place] == values
    if dictionary.dtype.kind == "f":
        there |= np.isnan(dictionary[place]) & np.isnan(values)
    return place, there


# ---- scopes --------------------------------------------------------------------------------------


def find_scope(
    step: Step, events: Events, slots: BranchSlots, partials: Partials
) -> PositionRanges:
    """The rows that may fill the step's slot, by window, order and the list so far."""
    tie = events.tie
    after = [tie.end[slots.last(slot, partials)] for slot in step.after]
    before = [tie.start[slots.first(slot, partials)] for slot in step.before]
    if step.slot in partials.elements:
        after.append(tie.end[slots.last(step.slot, partials)])
    # A row after a bound one lies after the window's start anyway, and likewise before one: the
    # edge of the window only matters on a side without a bound row.
    low = np.maximum.reduce(after) if after else events.window.start[partials.latest]
    high = np.minimum.reduce(before) if before else events.window.end[partials.earliest]
    if partials.floor is not None:
        low = np.maximum(low, partials.floor)
    return PositionRanges(low, high)


def values_grow(values: Vector, first: Positions, events: Events) -> bool:
    """Whether the candidates' values never decrease within a partition and none is NULL."""
    if values.valid is not None or values.values.dtype == object:
        return False
    # SQL orders NaN above all numbers, numpy does not: a bisection would pass over it. The
    # comparisons below miss a NaN that is the only candidate of its partition.
    if not values.nan_free and has_nan(values.values):
        return False
    partition = events.partition.start[first]
    # A column that does not grow with time usually shows it in the first rows.
    for stop in (1 << 10, len(first)):
        mine, at = values.values[:stop], partition[:stop]
        if not ((mine[1:] >= mine[:-1]) | (at[1:] != at[:-1])).all():
            return False
    return True


def narrow_ranges(
    ranges: PositionRanges, bound: CellBound, values: Array, reader: CellReader
) -> PositionRanges:
    """Narrows ranges of candidates to those that can meet the bound.

    `values` of the candidates, ascending within each range.
    """
    low, high = ranges.low, np.maximum(ranges.low, ranges.high)
    # A bound that overflows narrows nothing; the condition itself is tested and counted later.
    limit = replace(
        reader, tally=ErrorTally(ansi=reader.tally.ansi, lookups=reader.tally.lookups)
    ).values(bound.bound)
    valid = limit.valid
    if limit.values.dtype.kind == "f":
        is_number = ~np.isnan(limit.values)
        valid = is_number if valid is None else is_number & valid
    beyond = bound.comparison in {">", "<="}
    cut = bisect_ranges(
        low,
        high,
        (lambda at, i: values[at] > limit.values[i])
        if beyond
        else (lambda at, i: values[at] >= limit.values[i]),
    )
    if bound.comparison in {">", ">="}:
        return PositionRanges(cut if valid is None else np.where(valid, cut, low), high)
    return PositionRanges(low, cut if valid is None else np.where(valid, cut, high))


def pair_blocks(
    ranges: PositionRanges, size: int | Callable[[], int]
) -> Iterator[tuple[Positions, Positions]]:
    """All pairs (partial, candidate index) in order, in blocks of at most `size`, which may change
    from one block to the next."""
    counts = np.maximum(ranges.high - ranges.low, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    # Candidate index minus pair number is constant within a partial.
    shift = ranges.low - (ends - counts)
    stop = 0
    while stop < total:
        start = stop
        stop = min(start + (size if isinstance(size, int) else size()), total)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        here = np.minimum(ends[first : last + 1], stop) - np.maximum(
            ends[first : last + 1] - counts[first : last + 1], start
        )
        partial = np.repeat(np.arange(first, last + 1), here)
        yield partial, np.arange(start, stop) + shift[partial]


# ---- which rows are new: the cases of an advance -------------------------------------------------


ANY_STATUS: Final = 1 << OLD | 1 << NEW | 1 << AHEAD
KNOWN_STATUS: Final = 1 << OLD | 1 << NEW
IS_OLD: Final = 1 << OLD
IS_NEW: Final = 1 << NEW
IS_AHEAD: Final = 1 << AHEAD


@dataclass(frozen=True)
class StatusRule:
    """The statuses that the rows of a slot may have, as sets of bits (`1 << NEW | 1 << OLD`).

    `every` holds for all rows, `first` and `last` for those at the ends, `some` for at least one.
    """

    every: int = KNOWN_STATUS
    first: int = ANY_STATUS
    last: int = ANY_STATUS
    some: int = ANY_STATUS

    @property
    def single_row(self) -> int:
        return self.every & self.first & self.last & self.some

    @property
    def checks_all_rows(self) -> bool:
        return self.some != ANY_STATUS or self.every != ANY_STATUS

    @property
    def checks_lists(self) -> bool:
        """Whether it restricts more than `every`, which is tested on single elements."""
        return (self.first, self.last, self.some) != (ANY_STATUS, ANY_STATUS, ANY_STATUS)


@dataclass(frozen=True)
class AdvanceCase:
    """One of the disjoint cases into which the matches of an advance fall.

    A match is given in the advance that its deciding row belongs to: its latest row, its earliest,
    or any new one. "Some slot has a new row" is no rule for a single slot, but split by the first
    slot for which it holds, it is. So each case has a rule for every slot, and the walk only takes
    candidates that meet it. `slot` is the one whose new rows make the case, usually the rarest.
    """

    rules: Mapping[int, StatusRule] = field(default_factory=dict)
    others: StatusRule = field(default_factory=StatusRule)
    slot: int | None = None

    def rule(self, slot: int) -> StatusRule:
        return self.rules.get(slot, self.others)


def cases_by_latest(maximal: Sequence[int], *, has_old: bool) -> Iterator[AdvanceCase]:
    """Cases for a new latest row: one of the slots that may hold it ends in a new row."""
    for turn, slot in enumerate(maximal):
        if turn and not has_old:
            return
        before = dict.fromkeys(maximal[:turn], StatusRule(every=IS_OLD))
        yield AdvanceCase({**before, slot: StatusRule(last=IS_NEW)}, slot=slot)


def cases_by_any(slots: int, maximal: Sequence[int]) -> Iterator[AdvanceCase]:
    """Cases for any new row: the latest or, where rows came late, one before it."""
    for turn, slot in enumerate(maximal):
        before = dict.fromkeys(maximal[:turn], StatusRule(last=IS_OLD))
        yield AdvanceCase({**before, slot: StatusRule(last=IS_NEW)}, slot=slot)
    ends_old = dict.fromkeys(maximal, StatusRule(last=IS_OLD))
    for slot in range(slots):
        rules = {**ends_old, **dict.fromkeys(range(slot), StatusRule(every=IS_OLD))}
        last = IS_OLD if slot in maximal else ANY_STATUS
        yield AdvanceCase({**rules, slot: StatusRule(last=last, some=IS_NEW)}, slot=slot)


def cases_by_earliest(minimal: Sequence[int]) -> Iterator[AdvanceCase]:
    """Cases for a new earliest row: the other rows are new or ahead."""
    later = IS_NEW | IS_AHEAD
    for turn, slot in enumerate(minimal):
        before = dict.fromkeys(minimal[:turn], StatusRule(every=IS_AHEAD))
        rules = {**before, slot: StatusRule(every=later, first=IS_NEW)}
        yield AdvanceCase(rules, StatusRule(every=later), slot=slot)


# ---- the candidates of one case ------------------------------------------------------------------


@dataclass
class SlotCandidates:
    """The candidates of every slot of a branch in one case, by position and by equal values.

    What the case requires of a slot's rows is applied to the candidates here. Pools and indexes
    are built when a step first needs them.
    """

    matching: AdvanceContext
    slots: BranchSlots
    case: AdvanceCase
    _pools: dict[int, CandidatePool] = field(default_factory=dict)
    _indexes: dict[tuple[int, tuple[Cell, ...]], CandidateIndex] = field(default_factory=dict)
    _growing: dict[tuple[int, Cell], bool] = field(default_factory=dict)

    def pool(self, slot: int) -> CandidatePool:
        """The slot's candidates that meet the case's rule."""
        if slot not in self._pools:
            matching, filled = self.matching, self.slots.elements[slot]
            if filled.members is None:
                elements = matching.events.candidate_rows(filled.slot.variables[0])
            else:
                assert filled.first is not None
                elements = np.arange(len(filled.first))
            if not self._allows_all(slot):
                elements = elements[self._allowed(slot, elements)]
            self._pools[slot] = CandidatePool(
                elements, filled.first_row(elements), matching.events.size
            )
        return self._pools[slot]

    def index(self, slot: int, equalities: Sequence[CellEquality]) -> CandidateIndex:
        """The same candidates, indexed by the cells of the equalities."""
        key = slot, tuple(equality.cell for equality in equalities)
        if key not in self._indexes:
            elements, events = self.pool(slot).elements, self.matching.events
            rows = self.slots.elements[slot].first_row(elements)
            self._indexes[key] = CandidateIndex(
                elements, rows, [(cell, rows) for cell in key[1]], events.columns, events.size
            )
        return self._indexes[key]

    def grows(self, slot: int, cell: Cell) -> bool:
        """Whether the cell's values never decrease with time, over the slot's candidates."""
        if (slot, cell) not in self._growing:
            elements = self.pool(slot).elements
            values = self.values(cell, elements)
            self._growing[slot, cell] = values_grow(values, elements, self.matching.events)
        return self._growing[slot, cell]

    def values(self, cell: Cell, rows: Positions) -> Vector:
        assert cell.column is not None
        return self.matching.events.columns.gather(cell.column, cell.type, rows)

    def meets_list_rule(self, slot: int, partials: Partials) -> Flags | None:
        """Which complete lists meet the case's rule; None for all."""
        rule = self.case.rule(slot)
        if not rule.checks_lists:
            return None
        return meets_rule(rule, slot, (self.slots, partials), self.matching.status)

    def _allows_all(self, slot: int) -> bool:
        """Whether every row may meet the rule, whichever it is."""
        rule, filled = self.case.rule(slot), self.slots.elements[slot]
        is_single = filled.members is None and not filled.slot.is_list
        allowed = rule.single_row if is_single else rule.every
        return not self._statuses & ~allowed

    @cached_property
    def _statuses(self) -> int:
        """The statuses that rows may have, as a set of bits."""
        status = self.matching.status
        if not len(status):
            return 0
        low, high = int(status.min()), int(status.max())
        return 1 << low if low == high else ANY_STATUS

    def _allowed(self, slot: int, elements: Positions) -> Flags:
        """Whether an element may meet the rule; in a plain slot, which has one, whether it does."""
        status, filled = self.matching.status, self.slots.elements[slot]
        rule = self.case.rule(slot)
        if filled.members is None:
            allowed = rule.every if filled.slot.is_list else rule.single_row
            return np.asarray(allowed >> status[elements] & 1, dtype=np.bool_)
        kept = np.ones(len(elements), dtype=np.bool_)
        for rows in filled.all_rows(elements):
            kept &= (rule.every >> status[rows] & 1).astype(np.bool_)
        return kept


def meets_rule(
    rule: StatusRule, slot: int, filled: tuple[BranchSlots, Partials], status: Positions
) -> Flags:
    """The partial matches in which the slot's rows meet the rule."""
    slots, partials = filled
    kept = np.asarray(rule.first >> status[slots.first(slot, partials)] & 1, dtype=np.bool_)
    kept &= (rule.last >> status[slots.last(slot, partials)] & 1).astype(np.bool_)
    if rule.checks_all_rows:
        has = np.zeros(len(partials), dtype=np.bool_)
        for rows in slots.all_rows(slot, partials):
            kept &= (rule.every >> status[rows] & 1).all(axis=1)
            has |= (rule.some >> status[rows] & 1).any(axis=1)
        kept &= has
    return kept
