"""Routes of a walk, one for each kind of plan: where it starts and which slot comes next.

A chain binds the units of its shape in order, joins of a ZStream tree included; a tree NFA lets
each partial match choose its next slot. `BranchWalk` does everything that they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events.candidates import (
    CandidateIndex,
    CandidatePool,
    PositionRanges,
    find_scope,
    pair_blocks,
)
from spark_cep.udfs.events.partials import Partials, merge_partials
from spark_cep.udfs.events.walk import WalkTask
from spark_cep.udfs.planning.shapes import slots_of

if TYPE_CHECKING:
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.events.walk import BranchWalk, StepCandidates
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.program import Shape


NO_SLOTS: frozenset[int] = frozenset()
# Size of the first group of starts, and the factor by which the following groups grow.
FIRST_GROUP = 16
GROUP_GROWTH = 8
# Each candidate doubles the number of lists; slots with more than this come last.
MAX_LIST_CANDIDATES = 60


def chain_units(shape: Shape) -> tuple[Shape, ...]:
    """The units that a chain binds in turn: the first slot, then each right side.

    >>> chain_units(((2, 1), (0, 3)))
    (2, 1, (0, 3))
    """
    return (shape,) if isinstance(shape, int) else (*chain_units(shape[0]), shape[1])


@dataclass
class ChainRoute:
    """Binds the units of its shape in order; a unit that is a join is found by an inner walk.

    `kept`: partial matches of groups of slots that are known already. Where the shape begins with
    such a group, the walk starts from them instead of from rows.
    """

    shape: Shape
    kept: Mapping[frozenset[int], Sequence[Partials]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bound = NO_SLOTS
        self._next: dict[frozenset[int], Shape] = {}
        for unit in chain_units(self.shape):
            self._next[bound] = unit
            bound |= frozenset(slots_of(unit))
        self._first_group = max(
            (b for b in (*self._next, bound) if b in self.kept), key=len, default=NO_SLOTS
        )
        self._units: dict[frozenset[int], list[JoinUnit]] = {}

    def starts(self, walk: BranchWalk) -> Iterator[WalkTask]:
        if self._first_group:
            for partials in self.kept[self._first_group]:
                yield WalkTask(partials, self._first_group)
            return
        first = slots_of(self.shape)[0]
        step = walk.steps.step(NO_SLOTS, frozenset({first}))
        yield from walk.start(step, walk.pools.pool(first).elements)

    def next_tasks(self, walk: BranchWalk, task: WalkTask) -> Iterator[WalkTask]:
        shape = self._next[task.bound]
        unit = frozenset(slots_of(shape))
        step = walk.steps.step(task.bound, unit)
        if isinstance(shape, int):
            return walk.extend(task, step)
        if unit not in self._units:
            self._units[unit] = [JoinUnit(each) for each in self._unit_partials(walk, shape, unit)]
        return join_units(walk, task, step, self._units[unit])

    def steps(self, walk: BranchWalk, task: WalkTask) -> Sequence[Step]:
        unit = frozenset(slots_of(self._next[task.bound]))
        return (walk.steps.step(task.bound, unit),)

    def _unit_partials(
        self, walk: BranchWalk, shape: Shape, unit: frozenset[int]
    ) -> Sequence[Partials]:
        if unit in self.kept:
            return self.kept[unit]
        inner = replace(walk, target=unit, keeps_all=True)
        return merge_partials(inner.run(ChainRoute(shape, self.kept)))


class TreeRoute:
    """A tree NFA: each partial match goes on with the slot that has the fewest candidates.

    Candidates are counted in the partial match's own scope and weighed by the selectivities
    observed so far. A partial match is dropped at once if some slot has too few of them. A step is
    compiled when the first partial match needs it.
    """

    def starts(self, walk: BranchWalk) -> Iterator[WalkTask]:
        for starts in choose_starts(walk):
            step = walk.steps.step(NO_SLOTS, frozenset({starts.slot}))
            yield from walk.start(step, starts.elements, starts.regions)

    def next_tasks(self, walk: BranchWalk, task: WalkTask) -> Iterator[WalkTask]:
        if len(task.bound) > 1 or len(task.partials) <= FIRST_GROUP:
            yield from self._extend_each(walk, task)
            return
        # All starts of a walk may come in one task: the first few show the selectivities.
        begin, count = 0, FIRST_GROUP
        while begin < len(task.partials):
            some = np.arange(begin, min(begin + count, len(task.partials)))
            yield from self._extend_each(walk, replace(task, partials=task.partials.take(some)))
            begin, count = begin + count, count * GROUP_GROWTH

    def steps(self, walk: BranchWalk, task: WalkTask) -> Sequence[Step]:
        left = sorted(walk.target - task.bound)
        return [walk.steps.step(task.bound, frozenset({slot})) for slot in left]

    def _extend_each(self, walk: BranchWalk, task: WalkTask) -> Iterator[WalkTask]:
        steps = self.steps(walk, task)
        if len(steps) == 1:
            yield from walk.extend(task, steps[0])
            return
        reader = walk.reader(task.partials)
        options = [walk.find_candidates(step, task.partials, reader) for step in steps]
        weights = np.stack(
            [
                _weigh_candidates(walk, step, candidates)
                for step, candidates in zip(steps, options, strict=True)
            ]
        )
        # Ties go to the slot that is rarest for all partials together, so that sets stay large.
        order = np.argsort(weights.sum(axis=1), kind="stable")
        chosen = order[np.argmin(weights[order], axis=0)]
        possible = _extendable(walk, steps, options)
        for place, (step, candidates) in enumerate(zip(steps, options, strict=True)):
            mine = np.flatnonzero((chosen == place) & possible)
            if len(mine):
                partials = task.partials.take(mine)
                yield from walk.extend(
                    replace(task, partials=partials), step, candidates.take(mine, partials)
                )


def _weigh_candidates(
    walk: BranchWalk, step: Step, candidates: StepCandidates
) -> npt.NDArray[np.float64]:
    counts = candidates.counts().astype(np.float64)
    for condition in step.tests:
        counts *= walk.matching.meter.observed_selectivity(condition)
    if walk.slot(step.slot).is_list:
        return np.exp2(np.minimum(counts, MAX_LIST_CANDIDATES))
    return counts


def _extendable(
    walk: BranchWalk, steps: Sequence[Step], options: Sequence[StepCandidates]
) -> Flags:
    """Partials for which every slot has enough candidates."""
    needed = [max(1, walk.slot(step.slot).low) for step in steps]
    enough = [candidates.counts() >= low for candidates, low in zip(options, needed, strict=True)]
    possible: Flags = np.logical_and.reduce(enough)
    return possible


# ---- joins of two sets of partial matches --------------------------------------------------------


_IndexKey = tuple[int, tuple["Cell", ...]]


@dataclass
class JoinUnit:
    """The right side of a join: partial matches of one shape, indexed when first needed."""

    partials: Partials
    _pools: dict[int, tuple[Partials, CandidatePool]] = field(default_factory=dict)
    _indexes: dict[_IndexKey, tuple[Partials, CandidateIndex]] = field(default_factory=dict)

    def by_position(self, walk: BranchWalk, slot: int) -> tuple[Partials, CandidatePool]:
        """The partial matches sorted by the first row of `slot`, and a pool over them."""
        if slot not in self._pools:
            first = walk.slots.first(slot, self.partials)
            order = np.argsort(first, kind="stable")
            rows = CandidatePool(np.arange(len(order)), first[order], walk.matching.events.size)
            self._pools[slot] = self.partials.take(order), rows
        return self._pools[slot]

    def by_values(self, walk: BranchWalk, step: Step) -> tuple[Partials, CandidateIndex]:
        """The same, indexed by the values of the step's equalities."""
        key = step.slot, tuple(equality.cell for equality in step.equalities)
        if key not in self._indexes:
            ordered, _ = self.by_position(walk, step.slot)
            keys = [(cell, walk.slots.rows(cell.variable, ordered)) for cell in key[1]]
            first = walk.slots.first(step.slot, ordered)
            events = walk.matching.events
            index = CandidateIndex(
                np.arange(len(ordered)), first, keys, events.columns, events.size
            )
            self._indexes[key] = ordered, index
        return self._indexes[key]


def join_units(
    walk: BranchWalk, task: WalkTask, step: Step, units: Sequence[JoinUnit]
) -> Iterator[WalkTask]:
    """Joins the task's partials with the partial matches of the units.

    This is an inner node of a ZStream tree and APAM's merge. The left side comes block by block;
    the right side was found before and is looked up by the rows of one of its slots, the anchor,
    and by equal values. What the anchor's range cannot express (the order of other slots, the
    window over both sides, rows taken twice) is tested on the pairs. Conditions are tested on the
    joined partial matches, where every variable can be read as usual, lists and folds included.
    """
    for unit in units:
        for partials in _join_unit(walk, task, step, unit):
            yield from _go_on(walk, task, step, partials)


def _go_on(walk: BranchWalk, task: WalkTask, step: Step, joined: Partials) -> Iterator[WalkTask]:
    walk.matching.meter.count_join((walk.branch, task.bound | step.unit), 0, len(joined))
    if walk.matching.meter.trace is not None:
        walk.matching.meter.trace.add(None, joined.latest)
    if walk.keeps_all or task.bound | step.unit != walk.target:
        walk.count_partials(joined)
    if len(joined):
        yield from walk.complete(task.bound, step, joined)


def _join_unit(walk: BranchWalk, task: WalkTask, step: Step, unit: JoinUnit) -> Iterator[Partials]:
    matching, partials = walk.matching, task.partials
    meter, reader = matching.meter, walk.reader(partials)
    rows = find_scope(step, matching.events, walk.slots, partials)
    right, plain = unit.by_position(walk, step.slot)
    ranges, places = plain.find(rows), plain.elements
    if step.equalities:
        right, index = unit.by_values(walk, step)
        places = index.elements
        equal = index.find(rows, [reader.values(e.bound) for e in step.equalities])
        sizes = [int(np.maximum(r.high - r.low, 0).sum()) for r in (ranges, equal)]
        meter.count_tests([e.condition for e in step.equalities], *sizes)
        ranges = equal
    node = walk.branch, task.bound | step.unit
    for pick, place in pair_blocks(ranges, meter.block_pairs()):
        chosen = places[place]
        possible = _possible_pairs(walk, step, (partials, right), (pick, chosen))
        meter.count_pairs(partials.earliest, pick)
        if meter.trace is not None:
            meter.trace.add(np.maximum(partials.latest[pick], right.latest[chosen]), None)
        joined = _merge_sides(partials.take(pick[possible]), right.take(chosen[possible]))
        joined = _apply_tests(walk, step, joined)
        meter.count_join(node, len(place), 0)
        yield walk.keep_decided(joined, partial(_go_on, walk, task, step))


def _possible_pairs(
    walk: BranchWalk,
    step: Step,
    sides: tuple[Partials, Partials],
    pairs: tuple[Positions, Positions],
) -> Flags:
    """Pairs that fit into one window, are in order, and have no row on both sides."""
    (left, right), (pick, chosen) = sides, pairs
    events, slots = walk.matching.events, walk.slots
    earliest = np.minimum(left.earliest[pick], right.earliest[chosen])
    latest = np.maximum(left.latest[pick], right.latest[chosen])
    possible: Flags = latest < events.window.end[earliest]
    for earlier, later in step.orders:
        if later in step.unit:
            last, first = slots.last(earlier, left)[pick], slots.first(later, right)[chosen]
        else:
            last, first = slots.last(earlier, right)[chosen], slots.first(later, left)[pick]
        possible &= events.tie.end[last] <= first
    for mine, theirs in step.apart:
        for taken in _row_columns(walk, mine, left):
            for new in _row_columns(walk, theirs, right):
                possible &= taken[pick] != new[chosen]
    return possible


def _row_columns(walk: BranchWalk, slot: int, partials: Partials) -> list[Positions]:
    return [column for rows in walk.slots.all_rows(slot, partials) for column in rows.T]


def _merge_sides(left: Partials, right: Partials) -> Partials:
    return replace(
        left,
        elements={**left.elements, **right.elements},
        earliest=np.minimum(left.earliest, right.earliest),
        latest=np.maximum(left.latest, right.latest),
    )


def _apply_tests(walk: BranchWalk, step: Step, joined: Partials) -> Partials:
    for condition in step.tests:
        if not len(joined):
            break
        joined = walk.keep_held(condition, joined)
    return joined


# ---- where a tree NFA starts ---------------------------------------------------------------------


# The counts of a stretch and its neighbours must differ by this factor, and by this number, before
# another slot is chosen to start from: a border costs about the starting rows of one window again.
RARITY_FACTOR = 2.0
RARITY_COUNT = 8.0


@dataclass(frozen=True)
class RegionStarts:
    """Rows (or elements) of `slot` to start from, and for each the range in which its match must
    begin; `regions` None: anywhere."""

    slot: int
    elements: Positions
    regions: PositionRanges | None


def choose_starts(walk: BranchWalk) -> Iterator[RegionStarts]:
    """The starts of a tree NFA; every match is found from exactly one of them.

    The empty partial match has no scope of its own, so each stretch of a key's time chooses the
    slot to start from by its own counts. A match belongs to the region that holds its first row,
    so no match is in two regions: the starting rows of a region are those that can be in a match
    that begins there, and its partial matches carry the region's bounds. Rows near a border are
    started from twice. Therefore neighbouring stretches with the same choice are one region, and
    another slot is only chosen where it is clearly rarer.
    """
    slots = sorted(walk.target)
    counts = np.stack([_stretch_counts(walk, slot) for slot in slots])
    overall = np.argsort(counts.sum(axis=1), kind="stable")
    stretch = walk.matching.meter.stretch
    first = np.flatnonzero(np.diff(stretch, prepend=-1))
    partition = walk.matching.events.partition.start[first]
    choice = _choose_slots(counts[overall], partition)
    for rank, number in enumerate(overall):
        mine = choice == rank
        if mine.all():
            yield RegionStarts(slots[number], walk.pools.pool(slots[number]).elements, None)
        elif mine.any():
            yield _starts_of_region(
                walk, slots[number], _merge_stretches(mine, first, partition, len(stretch))
            )


def _stretch_counts(walk: BranchWalk, slot: int) -> npt.NDArray[np.float64]:
    elements = walk.pools.pool(slot).elements
    rows = walk.slots.elements[slot].first_row(elements)
    meter = walk.matching.meter
    counts = np.bincount(meter.stretch[rows], minlength=meter.stretches).astype(np.float64)
    return np.exp2(np.minimum(counts, MAX_LIST_CANDIDATES)) if walk.slot(slot).is_list else counts


def _choose_slots(counts: npt.NDArray[np.float64], partition: Positions) -> Positions:
    """For each stretch the overall rarest slot that no other is clearly rarer than there."""
    around = counts.copy()
    together = partition[1:] == partition[:-1]
    around[:, 1:] += np.where(together, counts[:, :-1], 0)
    around[:, :-1] += np.where(together, counts[:, 1:], 0)
    rare_enough = around <= RARITY_FACTOR * around.min(axis=0) + RARITY_COUNT
    chosen: Positions = np.argmax(rare_enough, axis=0)
    return chosen


def _merge_stretches(
    mine: Flags, first: Positions, partition: Positions, size: int
) -> PositionRanges:
    """Positions of the runs of stretches in one partition that made the same choice."""
    begins = mine.copy()
    begins[1:] &= ~mine[:-1] | (partition[1:] != partition[:-1])
    ends = mine.copy()
    ends[:-1] &= ~mine[1:] | (partition[1:] != partition[:-1])
    stop = np.append(first[1:], size)
    return PositionRanges(first[begins], stop[ends])


def _starts_of_region(walk: BranchWalk, slot: int, region: PositionRanges) -> RegionStarts:
    pool, window = walk.pools.pool(slot), walk.matching.events.window
    reach = window.end[region.high - 1]
    if walk.steps.minimal == {slot}:
        reach = region.high
    blocks = list(pair_blocks(pool.find(PositionRanges(region.low, reach)), 1 << 20))
    number = np.concatenate([n for n, _ in blocks]) if blocks else np.zeros(0, dtype=np.int64)
    place = np.concatenate([p for _, p in blocks]) if blocks else np.zeros(0, dtype=np.int64)
    regions = PositionRanges(region.low[number], region.high[number])
    return RegionStarts(slot, pool.elements[place], regions)
