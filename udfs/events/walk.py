"""Walks a branch: sets of partial matches are extended until all its slots are bound.

All partial matches of a task are extended at once: scope, index and blocks give pairs, conditions
keep some of them, and these are the partials of the next task. Tasks are walked depth first, block
by block, so only a few blocks are held at any time, however many matches there are. The route
(`routes.py`) says which slot comes next. Lists grow by one element a round; the partials of each
round are complete lists for the next slot and shorter ones for the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spark_cep.udfs.events.candidates import PositionRanges, find_scope, narrow_ranges, pair_blocks
from spark_cep.udfs.events.negation import NegationChecker
from spark_cep.udfs.events.partials import (
    BranchSlots,
    CandidateRows,
    CellReader,
    Partials,
    looks_back,
)
from spark_cep.udfs.events.postponed import PostponedTasks
from spark_cep.udfs.expressions import remote_sources_of
from spark_cep.udfs.program import PartialState

if TYPE_CHECKING:
    from spark_cep.udfs.events.candidates import SlotCandidates
    from spark_cep.udfs.events.context import AdvanceContext, PartialObserver
    from spark_cep.udfs.events.steps import BranchSteps, Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Condition, Slot


# Longer lists are in one state with those of this length.
LONGEST_LENGTH = 3


@dataclass(frozen=True)
class WalkTask:
    """Partials in which the slots of `bound` are filled.

    `growing`: the step of a list that has begun in them and is not in `bound` yet.
    """

    partials: Partials
    bound: frozenset[int]
    growing: Step | None = None


@dataclass(frozen=True)
class StepCandidates:
    """The candidates of each partial for one step: a range of `elements` for each."""

    reader: CellReader
    elements: Positions
    ranges: PositionRanges

    def take(self, index: Positions, partials: Partials) -> StepCandidates:
        ranges = PositionRanges(self.ranges.low[index], self.ranges.high[index])
        return StepCandidates(replace(self.reader, partials=partials, _cache={}, _failed={}),
                    self.elements, ranges)  # fmt: skip

    def counts(self) -> Positions:
        counts: Positions = np.maximum(self.ranges.high - self.ranges.low, 0)
        return counts


@dataclass(frozen=True)
class TestedPairs:
    """Pairs of a partial and an element. `reader`: of the pairs, where they were tested."""

    reader: CellReader
    pick: Positions
    elements: Positions

    def take(self, places: Positions) -> TestedPairs:
        return replace(self, pick=self.pick[places], elements=self.elements[places])


class WalkRoute(Protocol):
    """Which rows a walk starts from, and which slot each task binds next."""

    def starts(self, walk: BranchWalk) -> Iterator[WalkTask]: ...

    def next_tasks(self, walk: BranchWalk, task: WalkTask) -> Iterator[WalkTask]:
        """Binds one more slot, or one more join, in a task's partials."""
        ...

    def steps(self, walk: BranchWalk, task: WalkTask) -> Sequence[Step]:
        """The steps that `next_tasks` may take from a task."""
        ...


@dataclass
class BranchWalk:
    """One walk over a branch, until all slots of `target` are bound.

    `keeps_all`: the results become part of larger partial matches, so they count as partial
    matches even at the last step. `observer`: sees the partial matches. A walk that looks for what
    a NOT forbids has none, so nothing that forbids a match is dropped.
    """

    matching: AdvanceContext
    branch: int
    steps: BranchSteps
    pools: SlotCandidates
    target: frozenset[int]
    keeps_all: bool = False
    observer: PartialObserver | None = None

    def __post_init__(self) -> None:
        self.slots: BranchSlots = self.pools.slots
        self._negations = NegationChecker(self.matching, self.slots)
        self._postponed = PostponedTasks(self) if self.matching.tally.lookups else None
        self._route: WalkRoute | None = None

    def run(self, route: WalkRoute, starts: Iterable[WalkTask] | None = None) -> Iterator[Partials]:
        """Complete partials, depth first; where there is a deadline, those found by then.
        `starts`: to go on from there."""
        self._route = route
        begin = route.starts(self) if starts is None else iter(starts)
        deadline = self.matching.meter.deadline
        if deadline is None:
            return self._run(route, begin)
        return deadline.walk(begin, partial(self._run, route), self._count_parked)

    def _run(self, route: WalkRoute, starts: Iterator[WalkTask]) -> Iterator[Partials]:
        """The stack holds one iterator for each slot bound on the way."""
        pending = [starts]
        while pending or self._resume(pending):
            task = next(pending[-1], None)
            if task is None:
                pending.pop()
                continue
            if self._postponed is not None:
                task = self._resolve(task, route, pending)
            if task is None:
                continue
            if task.bound == self.target and task.growing is None:
                yield task.partials
            elif task.growing is not None:
                pending.append(self._grow(task, task.growing))
            else:
                pending.append(route.next_tasks(self, task))

    def _count_parked(self) -> int:
        return 0 if self._postponed is None else self._postponed.size

    def _resolve(
        self, task: WalkTask, route: WalkRoute, pending: list[Iterator[WalkTask]]
    ) -> WalkTask | None:
        """The part of the task that can go on now; tasks whose data has arrived come next."""
        assert self._postponed is not None
        resolved = self._postponed.resolve(task, route, pending)
        arrived = self._postponed.arrived_tasks()
        if arrived is not None:
            pending.append(arrived)
        return resolved

    def _resume(self, pending: list[Iterator[WalkTask]]) -> bool:
        parked = None if self._postponed is None else self._postponed.next_parked()
        if parked is not None:
            pending.append(parked)
        return parked is not None

    def slot(self, number: int) -> Slot:
        return self.steps.branch.slots[number]

    def reader(self, partials: Partials) -> CellReader:
        return CellReader(self.matching.events.columns, self.slots, partials, self.matching.tally)

    # ---- binding one more slot -----------------------------------------------------------------

    def start(
        self, step: Step, elements: Positions, regions: PositionRanges | None = None
    ) -> Iterator[WalkTask]:
        """Partials of one row, or of one element of a list.

        `regions`: for each of them the range in which the first row of its match must lie.
        """
        filled = self.slots.elements[step.slot]
        first, last = filled.first_row(elements), filled.last_row(elements)
        is_list = self.slot(step.slot).is_list
        bound = elements[:, np.newaxis] if is_list else elements
        floor, ceiling = (None, None) if regions is None else (regions.low, regions.high)
        partials = Partials({step.slot: bound}, first, last, floor, ceiling)
        fits = self.matching.events.fits(first)
        if fits is not None:
            partials = partials.take(fits)
        for condition in step.tests:
            if looks_back(condition, self.slot(step.slot).variables):
                continue
            partials = self.keep_held(condition, partials)
        partials = self.keep_decided(partials, partial(self._started, step))
        yield from self._started(step, partials)

    def _started(self, step: Step, partials: Partials) -> Iterator[WalkTask]:
        self._count(step, partials, frozenset())
        if self.observer is not None:
            at = self._state(frozenset(), step)
            is_whole = len(self.steps.branch.slots) == 1
            partials = self.observer.extended(at, partials, is_whole=is_whole)
        if len(partials):
            yield from self._bound_tasks(frozenset(), step, partials)

    def extend(
        self, task: WalkTask, step: Step, candidates: StepCandidates | None = None
    ) -> Iterator[WalkTask]:
        """Extends the task's partials by the step's slot."""
        for partials in self._bind_slot(task, step, candidates):
            yield from self._bound_tasks(task.bound, step, partials)

    def _bound_tasks(
        self, bound: frozenset[int], step: Step, partials: Partials
    ) -> Iterator[WalkTask]:
        if self.slot(step.slot).is_list:
            yield WalkTask(partials, bound, step)
        else:
            yield from self.complete(bound, step, partials)

    def _grow(self, task: WalkTask, step: Step) -> Iterator[WalkTask]:
        slot = self.slot(step.slot)
        length = task.partials.elements[step.slot].shape[1]
        if length >= slot.low:
            yield from self.complete(task.bound, step, task.partials)
        if slot.high is None or length < slot.high:
            for partials in self._bind_slot(task, step, None):
                yield WalkTask(partials, task.bound, step)

    def complete(self, bound: frozenset[int], step: Step, partials: Partials) -> Iterator[WalkTask]:
        """Runs the tests of a step that need its unit complete: list rules, folds, NOTs."""
        if partials.elements[step.slot].ndim == 2 and len(step.unit) == 1:
            fits = self.pools.meets_list_rule(step.slot, partials)
            if fits is not None:
                partials = partials.take(fits)
        for condition in step.on_complete:
            if len(partials):
                partials = self.keep_held(condition, partials)
        partials = self.keep_decided(partials, partial(self._completed, bound, step))
        yield from self._completed(bound, step, partials)

    def _completed(
        self, bound: frozenset[int], step: Step, partials: Partials
    ) -> Iterator[WalkTask]:
        for check in step.negations:
            if len(partials):
                partials = partials.take(self._negations.allow(check, partials))
        total = bound | step.unit
        if len(total) == len(self.steps.branch.slots):
            partials = self._drop_covered(partials)
        if len(partials):
            yield WalkTask(partials, total)

    def keep_held(self, condition: Condition, partials: Partials) -> Partials:
        """The partials that meet a condition, or wait for the remote data that it reads."""
        held, bits = self._test(condition, self.reader(partials), partials.waiting)
        return (partials if bits is None else partials.wait_for(bits)).take(held)

    def keep_decided(
        self, partials: Partials, go_on: Callable[[Partials], Iterator[WalkTask]]
    ) -> Partials:
        """The partials that wait for no remote data; the others go on when it has arrived."""
        waiting = partials.waiting
        if self._postponed is None or waiting is None:
            return partials
        postponed = self._postponed

        def take(places: Positions) -> Partials:
            return replace(partials.take(places), waiting=postponed.bits_at_end(waiting[places]))

        reader = replace(self.reader(partials), pick=np.arange(len(partials)))
        decided = postponed.park(reader, waiting, lambda places: go_on(take(places)))
        return partials if decided is None else take(decided)

    def _test(
        self, condition: Condition, reader: CellReader, waiting: Positions | None
    ) -> tuple[Flags, Positions | None]:
        """Which partials (or pairs) go on; where some were not tested, also the condition's bit
        for these and 0 for the others. `waiting`: the bits of conditions before it."""
        meter = self.matching.meter
        if self._postponed is None or not remote_sources_of(condition.expression):
            held = reader.holds(condition)
            meter.count_results(condition, held)
            return held, None
        held, untested = self._postponed.test(condition, reader, waiting)
        if untested is None:
            meter.count_results(condition, held)
            return held, None
        late, kept = int(np.count_nonzero(untested)), int(np.count_nonzero(held))
        meter.count_tests((condition,), len(held) - late, kept - late)
        return held, np.where(untested, self._postponed.bit(condition), 0)

    def _drop_covered(self, partials: Partials) -> Partials:
        if partials.ceiling is not None:
            partials = partials.take(partials.earliest < partials.ceiling)
        return self._negations.drop_covered(self.steps.covered, partials)

    # ---- pairs of a partial and a candidate ----------------------------------------------------

    def find_candidates(
        self, step: Step, partials: Partials, reader: CellReader, rows: PositionRanges | None = None
    ) -> StepCandidates:
        """The candidates of each partial. What an index or a bound leaves out counts as tested.

        `rows`: the ranges to search, where the caller knows narrower ones than order and window.
        """
        meter, pools = self.matching.meter, self.pools
        if rows is None:
            rows = find_scope(step, self.matching.events, self.slots, partials)
        if partials.ceiling is not None and self.steps.minimal == step.unit:
            has_begun = step.slot in partials.elements
            if not has_begun:
                rows = PositionRanges(rows.low, np.minimum(rows.high, partials.ceiling))
        plain = pools.pool(step.slot)
        ranges = plain.find(rows)
        elements = plain.elements
        if step.equalities:
            before = ranges
            index = pools.index(step.slot, step.equalities)
            elements = index.elements
            ranges = index.find(rows, [reader.values(e.bound) for e in step.equalities])
            meter.count_tests(
                [e.condition for e in step.equalities], _total_pairs(before), _total_pairs(ranges)
            )
        for bound in step.bounds:
            if pools.grows(step.slot, bound.cell):
                before = ranges
                values = pools.values(bound.cell, elements).values
                ranges = narrow_ranges(ranges, bound, values, reader)
                meter.count_tests(
                    (bound.condition,), _total_pairs(before) - _total_pairs(ranges), 0
                )
        return StepCandidates(reader, elements, ranges)

    def _bind_slot(
        self, task: WalkTask, step: Step, candidates: StepCandidates | None
    ) -> Iterator[Partials]:
        partials = task.partials
        if candidates is None:
            candidates = self.find_candidates(step, partials, self.reader(partials))
        elements = candidates.elements
        at = None if self.observer is None else self._state(task.bound, step, partials)
        node = self.branch, task.bound | step.unit
        # Each level of a growing list holds one block, as wide as the list is long: smaller blocks
        # keep the sum bounded.
        width = 1 + sum(e.shape[1] for e in partials.elements.values() if e.ndim > 1)
        has_prefetched = self._postponed is None
        for pick, place in pair_blocks(candidates.ranges, self.matching.meter.block_pairs(width)):
            if at is not None:
                pick, place = self._offer(at, partials, (pick, place), elements)  # noqa: PLW2901
                if not len(pick):
                    continue
            self.matching.meter.count_pairs(partials.earliest, pick)
            pairs, waiting = self.test_pairs(
                step, partials, candidates.reader, pick, elements[place]
            )
            if waiting is not None:
                pairs, waiting = self._park_pairs(task, step, pairs, waiting)
            self.matching.meter.count_join(node, len(pick), len(pairs.pick))
            self._trace(step, partials, (pick, elements[place]), (pairs.pick, pairs.elements))
            if not has_prefetched:
                assert self._postponed is not None
                self._postponed.prefetch_block(step, candidates, len(pick))
                has_prefetched = True
            extended = self._bind_pairs(task, step, pairs, waiting)
            if len(extended):
                yield extended

    def _park_pairs(
        self, task: WalkTask, step: Step, pairs: TestedPairs, waiting: Positions
    ) -> tuple[TestedPairs, Positions | None]:
        """The pairs that wait for no remote data; the others go on when it has arrived."""
        assert self._postponed is not None
        postponed = self._postponed
        node = self.branch, task.bound | step.unit

        def go_on(places: Positions) -> Iterator[WalkTask]:
            late = pairs.take(places)
            self.matching.meter.count_join(node, 0, len(places))
            self._trace(step, task.partials, (places[:0], places[:0]), (late.pick, late.elements))
            bits = postponed.bits_at_end(waiting[places])
            extended = self._bind_pairs(task, step, late, bits)
            if len(extended):
                yield from self._bound_tasks(task.bound, step, extended)

        look_ahead = partial(self._look_ahead, task, step, pairs)
        decided = postponed.park(pairs.reader, waiting, go_on, look_ahead)
        if decided is None:
            return pairs, waiting
        return pairs.take(decided), postponed.bits_at_end(waiting[decided])

    def _look_ahead(
        self, task: WalkTask, step: Step, pairs: TestedPairs, places: Positions
    ) -> tuple[Partials, Flags] | None:
        """The partials that pairs make, and which of them have a pair in the next step that meets
        its conditions on rows. None: not known without more work."""
        bound = task.bound | step.unit
        is_simple = not self.slot(step.slot).is_list and len(step.unit) == 1
        if not is_simple or bound == self.target or self.observer or self.matching.meter.deadline:
            return None
        late = pairs.take(places)
        partials = self._make_partials(step, task, late)
        assert self._route is not None
        steps = self._route.steps(self, WalkTask(partials, bound))
        if len(steps) != 1 or len(steps[0].unit) > 1 or self.slot(steps[0].slot).is_list:
            return None
        (following,) = steps
        if any(remote_sources_of(e.condition.expression) for e in following.equalities):
            return None
        reader = self.reader(partials)
        with self.matching.tally.uncounted():
            candidates = self.find_candidates(following, partials, reader)
            is_alive = np.zeros(len(partials), dtype=np.bool_)
            blocks = pair_blocks(candidates.ranges, self.matching.meter.block_pairs())
            for pick, place in blocks:
                elements = candidates.elements[place]
                is_alive[self._meet_row_tests(following, reader, pick, elements)] = True
        return partials, is_alive

    def _meet_row_tests(
        self, step: Step, reader: CellReader, pick: Positions, elements: Positions
    ) -> Positions:
        """The partials of the pairs that meet the step's conditions without remote data."""
        kept = self._possible_pairs(step, reader.partials, pick, elements)
        if kept is not None:
            pick, elements = pick[kept], elements[kept]
        tests = [c for c in step.tests if not remote_sources_of(c.expression)]
        if not tests:
            return pick
        pairs = self._pair_reader(step, reader.partials, reader, pick, elements)
        for condition in tests:
            if looks_back(condition, self.slot(step.slot).variables):
                continue
            survivors = np.flatnonzero(pairs.holds(condition))
            if len(survivors) < len(pick):
                pick, pairs = pick[survivors], pairs.select(survivors)
        return pick

    def _bind_pairs(
        self, task: WalkTask, step: Step, pairs: TestedPairs, waiting: Positions | None
    ) -> Partials:
        """The partials that pairs make. `waiting`: bits of conditions for complete matches."""
        if not len(pairs.pick):
            return task.partials.take(pairs.pick)
        extended = self._extend_partials(step, task, pairs, waiting)
        if self.observer is not None:
            at = self._state(task.bound, step, task.partials)
            extended = self._observe(at, task.bound | step.unit, extended)
        return extended

    # ---- observed partial matches --------------------------------------------------------------

    def _state(
        self, bound: frozenset[int], step: Step, partials: Partials | None = None
    ) -> PartialState:
        """Where partial matches stand that a row of the step's slot is offered to."""
        growing = None if partials is None else partials.elements.get(step.slot)
        length = 0 if growing is None else min(growing.shape[1], LONGEST_LENGTH)
        return PartialState(self.branch, bound, step.slot, length)

    def _offer(
        self,
        at: PartialState,
        partials: Partials,
        pairs: tuple[Positions, Positions],
        elements: Positions,
    ) -> tuple[Positions, Positions]:
        """The pairs that are to be tested."""
        assert self.observer is not None
        pick, place = pairs
        tested = self.observer.offered(at, partials, pick, elements[place])
        if tested is None:
            return pairs
        if not tested.any():
            self.matching.meter.check_deadline()
        return pick[tested], place[tested]

    def _observe(self, at: PartialState, bound: frozenset[int], partials: Partials) -> Partials:
        """The partial matches that go on."""
        assert self.observer is not None
        is_whole = len(bound) == len(self.steps.branch.slots)
        return self.observer.extended(at, partials, is_whole=is_whole)

    def _trace(
        self,
        step: Step,
        partials: Partials,
        tried: tuple[Positions, Positions],
        kept: tuple[Positions, Positions],
    ) -> None:
        trace = self.matching.meter.trace
        if trace is not None:
            last_row = self.slots.elements[step.slot].last_row
            latest = [np.maximum(partials.latest[p], last_row(e)) for p, e in (tried, kept)]
            trace.add(*latest)

    def test_pairs(
        self,
        step: Step,
        partials: Partials,
        reader: CellReader,
        pick: Positions,
        elements: Positions,
    ) -> tuple[TestedPairs, Positions | None]:
        """The pairs that meet the step's conditions, with bits of those not tested yet."""
        kept = self._possible_pairs(step, partials, pick, elements)
        if kept is not None:
            pick, elements = pick[kept], elements[kept]
        if not step.tests:
            return TestedPairs(reader, pick, elements), None
        waiting = None
        pairs = self._pair_reader(step, partials, reader, pick, elements)
        growing = step.slot in partials.elements
        variables = self.slot(step.slot).variables
        for condition in step.tests:
            if not len(elements):
                break
            if not growing and looks_back(condition, variables):
                continue
            held, bits = self._test(condition, pairs, waiting)
            if bits is not None:
                waiting = bits if waiting is None else waiting | bits
            survivors = np.flatnonzero(held)
            if len(survivors) < len(elements):
                pick, elements = pick[survivors], elements[survivors]
                pairs = pairs.select(survivors)
                waiting = None if waiting is None else waiting[survivors]
        return TestedPairs(pairs, pick, elements), waiting

    def _possible_pairs(
        self, step: Step, partials: Partials, pick: Positions, elements: Positions
    ) -> Positions | None:
        """Pairs in which no row is taken twice and a group's last row is in scope too.

        None where that always holds.
        """
        filled = self.slots.elements[step.slot]
        if not step.unordered and filled.members is None:
            return None
        possible = np.ones(len(pick), dtype=np.bool_)
        new_rows = filled.all_rows(elements)
        for slot in step.unordered:
            for rows in self.slots.all_rows(slot, partials):
                for column in rows.T:
                    taken = column[pick]
                    for new in new_rows:
                        possible &= taken != new
        if filled.members is not None:
            events, last = self.matching.events, filled.last_row(elements)
            possible &= last < events.window.end[partials.earliest[pick]]
            for slot in step.before:
                first = self.slots.first(slot, partials)
                possible &= last < events.tie.start[first[pick]]
        return np.flatnonzero(possible)

    def _pair_reader(
        self,
        step: Step,
        partials: Partials,
        reader: CellReader,
        pick: Positions,
        elements: Positions,
    ) -> CellReader:
        filled = self.slots.elements[step.slot]
        variables = filled.slot.variables
        rows = {v: filled.rows(v, elements) for v in variables}
        previous = None
        if step.slot in partials.elements:
            previous = {
                v: filled.last_rows(v, partials.elements[step.slot])[pick] for v in variables
            }
        return replace(reader, pick=pick, candidates=CandidateRows(rows, previous))

    def _extend_partials(
        self,
        step: Step,
        task: WalkTask,
        pairs: TestedPairs,
        waiting: Positions | None,
    ) -> Partials:
        extended = self._make_partials(step, task, pairs)
        extended = extended if waiting is None else extended.wait_for(waiting)
        self._count(step, extended, task.bound)
        return extended

    def _make_partials(self, step: Step, task: WalkTask, pairs: TestedPairs) -> Partials:
        filled, elements = self.slots.elements[step.slot], pairs.elements
        base = task.partials.take(pairs.pick)
        bound = elements
        if self.slot(step.slot).is_list:
            bound = elements[:, np.newaxis]
            if step.slot in base.elements:
                bound = np.concatenate([base.elements[step.slot], bound], axis=1)
        return replace(
            base,
            elements={**base.elements, step.slot: bound},
            earliest=np.minimum(base.earliest, filled.first_row(elements)),
            latest=np.maximum(base.latest, filled.last_row(elements)),
        )

    def _count(self, step: Step, partials: Partials, bound: frozenset[int]) -> None:
        final = bound | step.unit == self.target
        if self.keeps_all or not final or self.slot(step.slot).is_list:
            self.count_partials(partials)

    def count_partials(self, partials: Partials) -> None:
        """Counts new partial matches; those that wait for a test, when they have met it."""
        if self._postponed is None or partials.waiting is None:
            self.matching.meter.count_partials(partials.earliest)
        else:
            self._postponed.count_partials(partials)


def _total_pairs(ranges: PositionRanges) -> int:
    return int(np.maximum(ranges.high - ranges.low, 0).sum())
