"""Walks a branch: sets of partial matches are extended until all its slots are bound.

All partial matches of a task are extended at once: scope, index and blocks give pairs, conditions
keep some of them, and these are the partials of the next task. Tasks are walked depth first, block
by block, so only a few blocks are held at any time, however many matches there are. The route
(`routes.py`) says which slot comes next. Lists grow by one element a round; the partials of each
round are complete lists for the next slot and shorter ones for the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.candidates import PositionRanges, find_scope, narrow_ranges, pair_blocks
from spark_cep.udfs.events.negation import NegationChecker
from spark_cep.udfs.events.partials import (
    BranchSlots,
    CandidateRows,
    CellReader,
    Partials,
    looks_back,
)
from spark_cep.udfs.events.remote_needs import RemoteNeeds, distinct_ids
from spark_cep.udfs.expressions import remote_sources_of
from spark_cep.udfs.program import PartialState

if TYPE_CHECKING:
    from spark_cep.udfs.events.candidates import SlotCandidates
    from spark_cep.udfs.events.context import AdvanceContext, PartialObserver
    from spark_cep.udfs.events.partials import LookupKeyIds
    from spark_cep.udfs.events.steps import BranchSteps, Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Condition, Slot


# Longer lists are in one state with those of this length.
LONGEST_LENGTH = 3


@dataclass(frozen=True)
class WalkTask:
    """Partials in which the slots of `bound` are filled.

    `growing`: the step of a list that has begun in them and is not in `bound` yet.
    `skips_waiting`: the task goes on before the remote data it waits for has arrived.
    """

    partials: Partials
    bound: frozenset[int]
    growing: Step | None = None
    skips_waiting: bool = False


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

    def run(self, route: WalkRoute, starts: Iterable[WalkTask] | None = None) -> Iterator[Partials]:
        """Complete partials, depth first; where there is a deadline, those found by then.
        `starts`: to go on from there."""
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
        resolved = self._postponed.resolve(task, route)
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
        held, bits = self._test(condition, self.reader(partials))
        return (partials if bits is None else partials.wait_for(bits)).take(held)

    def _test(self, condition: Condition, reader: CellReader) -> tuple[Flags, Positions | None]:
        """Which partials (or pairs) go on; where some were not tested, also the condition's bit
        for these and 0 for the others."""
        meter = self.matching.meter
        if self._postponed is None or not remote_sources_of(condition.expression):
            held = reader.holds(condition)
            meter.count_results(condition, held)
            return held, None
        held, untested = self._postponed.test(condition, reader)
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
            kept, chosen, bits = self.test_pairs(
                step, partials, candidates.reader, pick, elements[place]
            )
            self.matching.meter.count_join(node, len(pick), len(kept))
            self._trace(step, partials, (pick, elements[place]), (kept, chosen))
            if not has_prefetched:
                assert self._postponed is not None
                self._postponed.prefetch_block(step, candidates, len(pick))
                has_prefetched = True
            if len(kept):
                extended = self._extend_partials(step, partials, kept, chosen, task.bound)
                extended = extended if bits is None else extended.wait_for(bits)
                if at is not None:
                    extended = self._observe(at, task.bound | step.unit, extended)
                if len(extended):
                    yield extended

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
    ) -> tuple[Positions, Positions, Positions | None]:
        """The pairs that meet the step's conditions, with bits of those not tested yet."""
        kept = self._possible_pairs(step, partials, pick, elements)
        if kept is not None:
            pick, elements = pick[kept], elements[kept]
        if not step.tests:
            return pick, elements, None
        waiting = None
        pairs = self._pair_reader(step, partials, reader, pick, elements)
        growing = step.slot in partials.elements
        variables = self.slot(step.slot).variables
        for condition in step.tests:
            if not len(elements):
                break
            if not growing and looks_back(condition, variables):
                continue
            held, bits = self._test(condition, pairs)
            if bits is not None:
                waiting = bits if waiting is None else waiting | bits
            survivors = np.flatnonzero(held)
            if len(survivors) < len(elements):
                pick, elements = pick[survivors], elements[survivors]
                pairs = pairs.select(survivors)
                waiting = None if waiting is None else waiting[survivors]
        return pick, elements, waiting

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
        partials: Partials,
        pick: Positions,
        elements: Positions,
        bound_before: frozenset[int],
    ) -> Partials:
        filled = self.slots.elements[step.slot]
        base = partials.take(pick)
        bound = elements
        if self.slot(step.slot).is_list:
            bound = elements[:, np.newaxis]
            if step.slot in base.elements:
                bound = np.concatenate([base.elements[step.slot], bound], axis=1)
        extended = replace(
            base,
            elements={**base.elements, step.slot: bound},
            earliest=np.minimum(base.earliest, filled.first_row(elements)),
            latest=np.maximum(base.latest, filled.last_row(elements)),
        )
        self._count(step, extended, bound_before)
        return extended

    def _count(self, step: Step, partials: Partials, bound: frozenset[int]) -> None:
        final = bound | step.unit == self.target
        if self.keeps_all or not final or self.slot(step.slot).is_list:
            self.matching.meter.count_partials(partials.earliest)


def _total_pairs(ranges: PositionRanges) -> int:
    return int(np.maximum(ranges.high - ranges.low, 0).sum())


# ---- remote data: park, prefetch, postpone -------------------------------------------------------


# No more partial matches than this are parked at once.
MAX_PARKED_PARTIALS = 1 << 20
# Complete matches are tested in blocks of this size.
MATCH_BLOCK = 1 << 17
# Expected number of pairs per partial match while nothing is known.
DEFAULT_PAIRS = 8.0
# A candidate's key is fetched ahead if at least this many pairs are expected to read it.
PREFETCH_THRESHOLD = 0.5


@dataclass(frozen=True)
class ParkedTask:
    """A task that waits for remote data, and the key ids that it waits for, by source.

    `can_skip`: the next step can be taken before the data has arrived.
    """

    task: WalkTask
    key_ids: tuple[tuple[int, Positions], ...]
    can_skip: bool


class PostponedTasks:
    """The tasks of one walk that wait for remote data.

    The walk goes on with other partial matches while some are parked, and takes them up again
    when their data has arrived. This costs no additional partial match, because all events of an
    advance are known before it begins; in an engine that takes events one by one (EIRES, LzEval)
    it would. Only when everything waits may partial matches go on untested, and only where that
    is expected to pay. `Partials.waiting` then has a bit for each condition that they were not
    tested for, and these are tested before a match is given.

    Under the strategy "post" the bit is set and nothing is fetched until matches are complete.
    """

    def __init__(self, walk: BranchWalk) -> None:
        self._walk = walk
        self._needs = RemoteNeeds(walk.matching.program, walk.slots)
        self._lookups = walk.matching.tally.lookups
        self._costs = walk.matching.program.costs or TYPICAL_COSTS
        self._parked: deque[ParkedTask] = deque()
        self._complete: list[WalkTask] = []
        self._parked_partials = self._complete_partials = 0
        self._seen_arrivals = 0

    @property
    def size(self) -> int:
        """The partial matches that wait."""
        return self._parked_partials + self._complete_partials

    # ---- tests ---------------------------------------------------------------------------------

    def test(self, condition: Condition, reader: CellReader) -> tuple[Flags, Flags | None]:
        """Which partials (or pairs) may go on, and which of them were not tested."""
        needs = self._needs
        if needs.is_postponed(condition) and needs.is_at_end(condition):
            every = np.ones(len(reader), dtype=np.bool_)
            return every, every
        key_ids = list(reader.key_ids(condition))
        self._fetch(key_ids)
        if not needs.is_postponed(condition):
            return reader.holds(condition), None
        ready = self._ready(key_ids, len(reader))
        if ready.all():
            return reader.holds(condition), None
        held = ~ready
        some = np.flatnonzero(ready)
        if len(some):
            held[some] = reader.select(some).holds(condition)
        return held, ~ready

    def bit(self, condition: Condition) -> int:
        return self._needs.bit(condition)

    def prefetch_block(self, step: Step, candidates: StepCandidates, done: int) -> None:
        """Fetches ahead what the pairs after the first `done`, one block, are likely to read.

        The first block has shown how selective the tests are that come before.
        """
        conditions = self._needs.slot_prefetches(step, step.slot)
        if not conditions or int(candidates.counts().sum()) <= done:
            return
        pairs = _pairs_per_candidate(candidates)
        for condition in conditions:
            share = 1.0
            for other in step.tests[: step.tests.index(condition)]:
                share *= self._walk.matching.meter.observed_selectivity(other)
            likely = candidates.elements[np.flatnonzero(pairs * share >= PREFETCH_THRESHOLD)]
            if len(likely):
                first = self._walk.slots.elements[step.slot].first_row(likely)
                bound = likely[:, np.newaxis] if self._walk.slot(step.slot).is_list else likely
                reader = self._walk.reader(Partials({step.slot: bound}, first, first))
                self._fetch(reader.key_ids(condition, {step.slot}), ahead=True)

    # ---- resolving tasks -----------------------------------------------------------------------

    def resolve(self, task: WalkTask, route: WalkRoute) -> WalkTask | None:
        """The part of a task that can go on now; the rest is parked."""
        for lookup in self._lookups:
            lookup.settle()
        task = self._test_waiting(task)
        if not len(task.partials):
            return None
        if task.bound == self._walk.target and task.growing is None:
            return self._take_decided(task)
        if task.skips_waiting:
            return replace(task, skips_waiting=False)
        steps = (task.growing,) if task.growing is not None else route.steps(self._walk, task)
        task = self._drop_dead_ends(task, steps)
        if task.growing is None:
            for condition in self._needs.prefetchable(task.bound):
                reader = self._walk.reader(task.partials)
                self._fetch(reader.key_ids(condition, task.bound), ahead=True)
        return self._split_ready(task, steps)

    def arrived_tasks(self) -> Iterator[WalkTask] | None:
        """Tasks whose data has arrived, if there are any."""
        if self._complete_partials > MATCH_BLOCK:
            return self._finish_complete()
        if self._parked_partials > MAX_PARKED_PARTIALS:
            return self.next_parked()
        arrivals = sum(lookup.arrivals for lookup in self._lookups)
        if arrivals == self._seen_arrivals or not self._parked:
            return None
        self._seen_arrivals = arrivals
        ready = [each for each in self._parked if self._is_ready(each)]
        released = {id(each) for each in ready}
        self._parked = deque(each for each in self._parked if id(each) not in released)
        return self._release(ready) if ready else None

    def next_parked(self) -> Iterator[WalkTask] | None:
        """The next tasks when nothing else is left to do; None if nothing is parked."""
        if not self._parked:
            return self._finish_complete() if self._complete else None
        for number, each in enumerate(self._parked):
            is_ready = self._is_ready(each)
            if is_ready or self._pays(each):
                del self._parked[number]
                task = replace(each.task, skips_waiting=not is_ready)
                return self._release([replace(each, task=task)])
        first = self._parked.popleft()
        for remote, ids in first.key_ids:
            self._lookups[remote].wait(ids)
        return self._release([first])

    def _release(self, parked: Sequence[ParkedTask]) -> Iterator[WalkTask]:
        self._parked_partials -= sum(len(each.task.partials) for each in parked)
        return iter([each.task for each in parked])

    def _finish_complete(self) -> Iterator[WalkTask]:
        """Complete matches that meet the conditions still open, all their data fetched at once."""
        tasks, self._complete, self._complete_partials = self._complete, [], 0
        for task in tasks:
            for condition in self._needs.untested(task.partials):
                which = self._needs.waiting_for(task.partials, condition)
                self._fetch(self._walk.reader(task.partials.take(which)).key_ids(condition))
        for task in tasks:
            tested = self._test_waiting(task, waits=True)
            if len(tested.partials):
                yield tested

    def _take_decided(self, task: WalkTask) -> WalkTask | None:
        """The matches of a complete task that met all conditions; others are kept for later."""
        waiting = task.partials.waiting
        if waiting is None:
            return task
        undecided = waiting != 0
        if undecided.any():
            self._complete.append(replace(task, partials=task.partials.take(undecided)))
            self._complete_partials += int(np.count_nonzero(undecided))
        decided = task.partials.take(~undecided)
        return replace(task, partials=decided) if len(decided) else None

    def _test_waiting(self, task: WalkTask, *, waits: bool = False) -> WalkTask:
        """The task without partials that fail a condition whose data has arrived meanwhile.

        `waits`: wait for the data, so that every condition is decided.
        """
        needs, partials = self._needs, task.partials
        for condition in needs.untested(partials):
            if needs.is_at_end(condition) and not waits:
                continue
            which = needs.waiting_for(partials, condition)
            reader = self._walk.reader(partials.take(which))
            if not waits:
                ready = np.flatnonzero(self._ready(reader.key_ids(condition), len(reader)))
                which, reader = which[ready], reader.select(ready)
            if len(which):
                held = reader.holds(condition)
                self._walk.matching.meter.count_results(condition, held)
                partials = needs.drop_failed(partials, condition, which, held)
        return replace(task, partials=partials)

    # ---- parking -------------------------------------------------------------------------------

    def _drop_dead_ends(self, task: WalkTask, steps: Sequence[Step]) -> WalkTask:
        """The task without partials that no row can follow, so that nothing is fetched for them.

        Only where something would be fetched, and where finding candidates needs no remote data.
        """
        fetches = self._needs.remote_reads(steps, task.bound).tests or self._needs.prefetchable(
            task.bound
        )
        if task.growing is not None or len(steps) > 1 or not fetches:
            return task
        (step,) = steps
        if len(step.unit) > 1 or any(
            remote_sources_of(e.condition.expression) for e in step.equalities
        ):
            return task
        candidates = self._walk.find_candidates(
            step, task.partials, self._walk.reader(task.partials)
        )
        return replace(task, partials=task.partials.take(candidates.counts() > 0))

    def _split_ready(self, task: WalkTask, steps: Sequence[Step]) -> WalkTask | None:
        """The part of a task whose next step has the data it reads; the rest is parked."""
        partials, needs = task.partials, self._needs
        if not len(partials):
            return None
        reads = needs.remote_reads(steps, task.bound)
        undecided = np.zeros(len(partials), dtype=np.bool_)
        if partials.waiting is not None:
            undecided |= (partials.waiting & ~needs.bits_at_end) != 0
        reader = self._walk.reader(partials)
        for condition in reads.conditions():
            undecided |= ~self._ready(reader.key_ids(condition, task.bound), len(partials))
        if not undecided.any():
            return task
        can_skip = not reads.equalities and not any(
            self._walk.slot(slot).is_list for step in steps for slot in step.unit
        )
        self._park(replace(task, partials=partials.take(undecided)), reads.conditions(), can_skip)
        decided = partials.take(~undecided)
        return replace(task, partials=decided) if len(decided) else None

    def _park(self, task: WalkTask, conditions: Sequence[Condition], can_skip: bool) -> None:
        partials = task.partials
        reader = self._walk.reader(partials)
        key_ids = [each for c in conditions for each in reader.key_ids(c, task.bound)]
        for condition in self._needs.untested(partials):
            if not self._needs.is_at_end(condition):
                which = self._needs.waiting_for(partials, condition)
                key_ids += self._walk.reader(partials.take(which)).key_ids(condition)
        self._fetch(key_ids)
        distinct = tuple((remote, distinct_ids(ids)) for remote, ids in key_ids)
        self._parked.append(ParkedTask(task, distinct, can_skip))
        self._parked_partials += len(partials)

    def _is_ready(self, parked: ParkedTask) -> bool:
        return all(self._lookups[remote].ready(ids).all() for remote, ids in parked.key_ids)

    def _pays(self, parked: ParkedTask) -> bool:
        """Whether to go on untested: the comparison of EIRES, Algorithm 4.

        It weighs the latency that is hidden against the work on partial matches that will fail,
        both in the time that this engine takes for its sets.
        """
        if not parked.can_skip:
            return False
        latency = max(self._lookups[remote].latency for remote, _ in parked.key_ids)
        work = len(parked.task.partials) * DEFAULT_PAIRS * (self._costs.pair + self._costs.result)
        kept = 1.0
        for condition in self._needs.untested(parked.task.partials):
            kept *= self._walk.matching.meter.observed_selectivity(condition)
        return min(work, latency) > work * (1 - kept)

    # ---- lookups -------------------------------------------------------------------------------

    def _fetch(self, key_ids: LookupKeyIds, *, ahead: bool = False) -> None:
        for remote, ids in key_ids:
            lookup = self._lookups[remote]
            if lookup.remote.prefetches or lookup.remote.caching.policy == "cost":
                counts = np.bincount(ids.ravel() + 1)
                present = np.flatnonzero(counts[1:])
                lookup.needed(present, counts[1:][present], self._walk.branch)
            lookup.ask(ids, ahead=ahead)

    def _ready(self, key_ids: LookupKeyIds, size: int) -> Flags:
        ready = np.ones(size, dtype=np.bool_)
        for remote, ids in key_ids:
            ready &= self._lookups[remote].ready(ids).all(axis=1)
        return ready


def _pairs_per_candidate(candidates: StepCandidates) -> Positions:
    """The number of pairs that each candidate of a step is part of."""
    counts = np.zeros(len(candidates.elements) + 1, dtype=np.int64)
    some = candidates.ranges.low < candidates.ranges.high
    np.add.at(counts, candidates.ranges.low[some], 1)
    np.subtract.at(counts, candidates.ranges.high[some], 1)
    return np.cumsum(counts[:-1])
