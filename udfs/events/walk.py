"""Walking a branch: sets of partial matches are extended until all its slots are bound.

All partial matches of a task are extended at once: scope, index and blocks give pairs, conditions
keep some of them, survivors are the next task's partials. Tasks are walked depth first, block by
block, so what is held at any time is a few blocks, however many matches there are. Which slot
comes next is the route's business (`routes.py`): one order for all in a chain, each partial's own
choice in a tree NFA, a join found before in a ZStream tree.

Lists grow by one element a round; each round's partials are finished lists for the next slot and,
at the same time, shorter ones for the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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

if TYPE_CHECKING:
    from spark_cep.udfs.events.candidates import SlotCandidates
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.partials import LookupKeyIds
    from spark_cep.udfs.events.steps import BranchSteps, Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Condition, Slot


# --------------------------------------------------------------------------------------------------
# Conditions on remote data: asked for ahead, and put off while what they need is under way.
#
# A walk goes on with other partial matches while some wait for data: these are parked, and come
# back when it is there. That costs no additional partial match, as all events of an advance are
# known before it begins; in an engine that takes events one by one (EIRES, LzEval) it would. Only
# when everything waits may partial matches go on untested, where that is expected to pay; what
# they have not been tested for is noted in `Partials.waiting`, a bit for each condition, and
# tested before they are given.
#
# Under "post" the bit is set and nothing is asked until matches are complete.
# --------------------------------------------------------------------------------------------------


# More partial matches than this do not wait at once.
MAX_PARKED_PARTIALS = 1 << 20
# Complete matches are tested so many at a time.
MATCH_BLOCK = 1 << 17
# Pairs that a partial match becomes part of, where nothing is known yet.
DEFAULT_PAIRS = 8.0
# A candidate's key is fetched ahead if so many of its pairs are expected to ask for it.
PREFETCH_THRESHOLD = 0.5


@dataclass(frozen=True)
class ParkedTask:
    """A task that waits, and the ids that it waits for, by remote source. `may_go_on`: the next
    step can be taken without them."""

    task: WalkTask
    asked: tuple[tuple[int, Positions], ...]
    may_go_on: bool


class PostponedTasks:
    """What one walk has put off."""

    def __init__(self, walk: BranchWalk) -> None:
        self._walk = walk
        self._needs = RemoteNeeds(walk.matching.program, walk.slots)
        self._lookups = walk.matching.tally.lookups
        self._costs = walk.matching.program.costs or TYPICAL_COSTS
        self._parked: deque[ParkedTask] = deque()
        self._complete: list[WalkTask] = []
        self._waiting = self._undecided = 0
        self._seen = 0

    # -- testing ---------------------------------------------------------------------------------

    def held(self, condition: Condition, reader: CellReader) -> tuple[Flags, Flags | None]:
        """Which partials (or pairs) may go on, and which of them were not tested."""
        needs = self._needs
        if needs.is_put_off(condition) and needs.is_at_end(condition):
            every = np.ones(len(reader), dtype=np.bool_)
            return every, every
        asked = list(reader.asked(condition))
        self._ask(asked)
        if not needs.is_put_off(condition):
            return reader.holds(condition), None
        ready = self._ready(asked, len(reader))
        if ready.all():
            return reader.holds(condition), None
        held = ~ready
        some = np.flatnonzero(ready)
        if len(some):
            held[some] = reader.select(some).holds(condition)
        return held, ~ready

    def bit(self, condition: Condition) -> int:
        return self._needs.bit(condition)

    def foresee(self, step: Step, look: StepCandidates, done: int) -> None:
        """Fetches ahead what the blocks of pairs behind the first, `done`, are likely to ask for.
        By then it is known what the tests before it keep."""
        conditions = self._needs.of_slot(step, step.slot)
        if not conditions or int(look.counts().sum()) <= done:
            return
        pairs = _pairs_per_candidate(look)
        for condition in conditions:
            share = 1.0
            for other in step.tests[: step.tests.index(condition)]:
                share *= self._walk.matching.meter.kept_share(other)
            likely = look.elements[np.flatnonzero(pairs * share >= PREFETCH_THRESHOLD)]
            if len(likely):
                first = self._walk.slots.elements[step.slot].first_row(likely)
                bound = likely[:, np.newaxis] if self._walk.slot(step.slot).is_list else likely
                reader = self._walk.reader(Partials({step.slot: bound}, first, first))
                self._ask(reader.asked(condition, {step.slot}), ahead=True)

    # -- going on --------------------------------------------------------------------------------

    def settled(self, task: WalkTask, route: WalkRoute) -> WalkTask | None:
        """What of a task can go on now; the rest is put off."""
        for lookup in self._lookups:
            lookup.settle()
        task = self._tested(task)
        if not len(task.partials):
            return None
        if task.bound == self._walk.target and task.growing is None:
            return self._given(task)
        if task.hurried:
            return replace(task, hurried=False)
        steps = (task.growing,) if task.growing is not None else route.steps(self._walk, task)
        task = self._alive(task, steps)
        if task.growing is None:
            for condition in self._needs.ahead(task.bound):
                reader = self._walk.reader(task.partials)
                self._ask(reader.asked(condition, task.bound), ahead=True)
        return self._ready_to_go_on(task, steps)

    def arrived(self) -> Iterator[WalkTask] | None:
        """Tasks that need wait no longer, if there are any."""
        if self._undecided > MATCH_BLOCK:
            return self._at_last()
        if self._waiting > MAX_PARKED_PARTIALS:
            return self.again()
        seen = sum(lookup.arrivals for lookup in self._lookups)
        if seen == self._seen or not self._parked:
            return None
        self._seen = seen
        ready = [each for each in self._parked if self._is_ready(each)]
        gone = {id(each) for each in ready}
        self._parked = deque(each for each in self._parked if id(each) not in gone)
        return self._released(ready) if ready else None

    def again(self) -> Iterator[WalkTask] | None:
        """What is next where nothing else is left to do; None if nothing was put off."""
        if not self._parked:
            return self._at_last() if self._complete else None
        for number, each in enumerate(self._parked):
            is_ready = self._is_ready(each)
            if is_ready or self._pays(each):
                del self._parked[number]
                task = replace(each.task, hurried=not is_ready)
                return self._released([replace(each, task=task)])
        first = self._parked.popleft()
        for remote, ids in first.asked:
            self._lookups[remote].wait(ids)
        return self._released([first])

    def _released(self, parked: Sequence[ParkedTask]) -> Iterator[WalkTask]:
        self._waiting -= sum(len(each.task.partials) for each in parked)
        return iter([each.task for each in parked])

    def _at_last(self) -> Iterator[WalkTask]:
        """Complete matches, tested for what they were not; all their data is asked for at once."""
        tasks, self._complete, self._undecided = self._complete, [], 0
        for task in tasks:
            for condition in self._needs.untested(task.partials):
                which = self._needs.which(task.partials, condition)
                self._ask(self._walk.reader(task.partials.take(which)).asked(condition))
        for task in tasks:
            tested = self._tested(task, waits=True)
            if len(tested.partials):
                yield tested

    def _given(self, task: WalkTask) -> WalkTask | None:
        """The matches of a complete task that have met all conditions."""
        waiting = task.partials.waiting
        if waiting is None:
            return task
        undecided = waiting != 0
        if undecided.any():
            self._complete.append(replace(task, partials=task.partials.take(undecided)))
            self._undecided += int(np.count_nonzero(undecided))
        decided = task.partials.take(~undecided)
        return replace(task, partials=decided) if len(decided) else None

    def _tested(self, task: WalkTask, *, waits: bool = False) -> WalkTask:
        """Without the partials that turn out not to meet what they had not been tested for.
        `waits`: nothing is left undecided."""
        needs, partials = self._needs, task.partials
        for condition in needs.untested(partials):
            if needs.is_at_end(condition) and not waits:
                continue
            which = needs.which(partials, condition)
            reader = self._walk.reader(partials.take(which))
            if not waits:
                ready = np.flatnonzero(self._ready(reader.asked(condition), len(reader)))
                which, reader = which[ready], reader.select(ready)
            if len(which):
                held = reader.holds(condition)
                self._walk.matching.meter.held(condition, held)
                partials = needs.met(partials, condition, which, held)
        return replace(task, partials=partials)

    # -- parking ---------------------------------------------------------------------------------

    def _alive(self, task: WalkTask, steps: Sequence[Step]) -> WalkTask:
        """Without partials that no row can follow, so that nothing is fetched for them. Only where
        something would be, and where looking takes no remote data itself."""
        asks = self._needs.wanted(steps, task.bound).tests or self._needs.ahead(task.bound)
        if task.growing is not None or len(steps) > 1 or not asks:
            return task
        (step,) = steps
        if len(step.unit) > 1 or any(
            remote_sources_of(e.condition.expression) for e in step.equalities
        ):
            return task
        look = self._walk.look(step, task.partials, self._walk.reader(task.partials))
        return replace(task, partials=task.partials.take(look.counts() > 0))

    def _ready_to_go_on(self, task: WalkTask, steps: Sequence[Step]) -> WalkTask | None:
        """The part of a task whose next step has what it needs; the rest waits."""
        partials, needs = task.partials, self._needs
        if not len(partials):
            return None
        wanted = needs.wanted(steps, task.bound)
        undecided = np.zeros(len(partials), dtype=np.bool_)
        if partials.waiting is not None:
            undecided |= (partials.waiting & ~needs.bits_at_end) != 0
        reader = self._walk.reader(partials)
        for condition in wanted.every():
            undecided |= ~self._ready(reader.asked(condition, task.bound), len(partials))
        if not undecided.any():
            return task
        may_go_on = not wanted.equalities and not any(
            self._walk.slot(slot).is_list for step in steps for slot in step.unit
        )
        self._park(replace(task, partials=partials.take(undecided)), wanted.every(), may_go_on)
        decided = partials.take(~undecided)
        return replace(task, partials=decided) if len(decided) else None

    def _park(self, task: WalkTask, conditions: Sequence[Condition], may_go_on: bool) -> None:
        partials = task.partials
        reader = self._walk.reader(partials)
        asked = [each for c in conditions for each in reader.asked(c, task.bound)]
        for condition in self._needs.untested(partials):
            if not self._needs.is_at_end(condition):
                which = self._needs.which(partials, condition)
                asked += self._walk.reader(partials.take(which)).asked(condition)
        self._ask(asked)
        needed = tuple((remote, distinct_ids(ids)) for remote, ids in asked)
        self._parked.append(ParkedTask(task, needed, may_go_on))
        self._waiting += len(partials)

    def _is_ready(self, parked: ParkedTask) -> bool:
        return all(self._lookups[remote].ready(ids).all() for remote, ids in parked.asked)

    def _pays(self, parked: ParkedTask) -> bool:
        """Whether to go on untested: Algorithm 4's comparison, what is hidden against the work on
        partial matches that will fail, both in the time that this engine takes for its sets."""
        if not parked.may_go_on:
            return False
        latency = max(self._lookups[remote].latency for remote, _ in parked.asked)
        work = len(parked.task.partials) * DEFAULT_PAIRS * (self._costs.pair + self._costs.result)
        kept = 1.0
        for condition in self._needs.untested(parked.task.partials):
            kept *= self._walk.matching.meter.kept_share(condition)
        return min(work, latency) > work * (1 - kept)

    # -- lookups ---------------------------------------------------------------------------------

    def _ask(self, asked: LookupKeyIds, *, ahead: bool = False) -> None:
        for remote, ids in asked:
            lookup = self._lookups[remote]
            if lookup.remote.prefetches or lookup.remote.caching.policy == "cost":
                counts = np.bincount(ids.ravel() + 1)
                known = np.flatnonzero(counts[1:])
                lookup.needed(known, counts[1:][known], self._walk.branch)
            lookup.ask(ids, ahead=ahead)

    def _ready(self, asked: LookupKeyIds, size: int) -> Flags:
        ready = np.ones(size, dtype=np.bool_)
        for remote, ids in asked:
            ready &= self._lookups[remote].ready(ids).all(axis=1)
        return ready


def _pairs_per_candidate(look: StepCandidates) -> Positions:
    """In how many pairs each candidate of a step is."""
    counts = np.zeros(len(look.elements) + 1, dtype=np.int64)
    some = look.ranges.low < look.ranges.high
    np.add.at(counts, look.ranges.low[some], 1)
    np.subtract.at(counts, look.ranges.high[some], 1)
    return np.cumsum(counts[:-1])


@dataclass(frozen=True)
class WalkTask:
    """Partials in which the slots of `bound` are filled. `growing`: the step of a list that has
    begun in them and is not among `bound` yet. `hurried`: goes on without what it waits for."""

    partials: Partials
    bound: frozenset[int]
    growing: Step | None = None
    hurried: bool = False


@dataclass(frozen=True)
class StepCandidates:
    """Where each partial's candidates for one step are: `ranges` of `elements`."""

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
    """Where to start, and where to go from what is bound."""

    def starts(self, walk: BranchWalk) -> Iterator[WalkTask]: ...

    def onward(self, walk: BranchWalk, task: WalkTask) -> Iterator[WalkTask]:
        """The tasks that come of binding one more slot, or one more join, in a task's partials."""
        ...

    def steps(self, walk: BranchWalk, task: WalkTask) -> Sequence[Step]:
        """The steps that `onward` may take."""
        ...


@dataclass
class BranchWalk:
    """One walk over a branch, up to all slots of `target`. `keeps_all`: what it finds is held
    as part of something larger, so it counts as partial matches to the last step."""

    matching: AdvanceContext
    branch: int
    steps: BranchSteps
    pools: SlotCandidates
    target: frozenset[int]
    keeps_all: bool = False

    def __post_init__(self) -> None:
        self._block = self.matching.program.block_pairs
        self.slots: BranchSlots = self.pools.slots
        self._negations = NegationChecker(
            self.matching.events, self.slots,
            self.matching.meter, self.matching.tally, self._block,
        )  # fmt: skip
        self._postponed = PostponedTasks(self) if self.matching.tally.lookups else None

    def run(self, route: WalkRoute) -> Iterator[Partials]:
        """Depth first; the pending stack holds one iterator for each slot on the way."""
        pending = [route.starts(self)]
        while pending or self._resume(pending):
            task = next(pending[-1], None)
            if task is None:
                pending.pop()
                continue
            if self._postponed is not None:
                task = self._settled(task, route, pending)
            if task is None:
                continue
            if task.bound == self.target and task.growing is None:
                yield task.partials
            elif task.growing is not None:
                pending.append(self._grow(task, task.growing))
            else:
                pending.append(route.onward(self, task))

    def _settled(
        self, task: WalkTask, route: WalkRoute, pending: list[Iterator[WalkTask]]
    ) -> WalkTask | None:
        """What of the task can go on now. What no longer has to wait comes next."""
        assert self._postponed is not None
        settled = self._postponed.settled(task, route)
        again = self._postponed.arrived()
        if again is not None:
            pending.append(again)
        return settled

    def _resume(self, pending: list[Iterator[WalkTask]]) -> bool:
        again = None if self._postponed is None else self._postponed.again()
        if again is not None:
            pending.append(again)
        return again is not None

    def slot(self, number: int) -> Slot:
        return self.steps.branch.slots[number]

    def reader(self, partials: Partials) -> CellReader:
        return CellReader(self.matching.events.columns, self.slots, partials, self.matching.tally)

    # -- one more slot ---------------------------------------------------------------------------

    def start(
        self, step: Step, elements: Positions, places: PositionRanges | None = None
    ) -> Iterator[WalkTask]:
        """Partials of one row (or one element of a list). `places`: for each of them where the
        first row of its match has to lie."""
        filled = self.slots.elements[step.slot]
        first, last = filled.first_row(elements), filled.last_row(elements)
        is_list = self.slot(step.slot).is_list
        bound = elements[:, np.newaxis] if is_list else elements
        floor, ceiling = (None, None) if places is None else (places.low, places.high)
        partials = Partials({step.slot: bound}, first, last, floor, ceiling)
        fits = self.matching.events.fits(first)
        if fits is not None:
            partials = partials.take(fits)
        for condition in step.tests:
            if looks_back(condition, self.slot(step.slot).variables):
                continue
            partials = self.held(condition, partials)
        self._count(step, partials, frozenset())
        if len(partials):
            yield from self._bound(frozenset(), step, partials)

    def extend(
        self, task: WalkTask, step: Step, look: StepCandidates | None = None
    ) -> Iterator[WalkTask]:
        """The task's partials with the step's slot."""
        for partials in self._bind(task, step, look):
            yield from self._bound(task.bound, step, partials)

    def _bound(self, bound: frozenset[int], step: Step, partials: Partials) -> Iterator[WalkTask]:
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
            for partials in self._bind(task, step, None):
                yield WalkTask(partials, task.bound, step)

    def complete(self, bound: frozenset[int], step: Step, partials: Partials) -> Iterator[WalkTask]:
        """The unit is filled: what could not be decided on the way is decided now."""
        if partials.elements[step.slot].ndim == 2 and len(step.unit) == 1:
            right = self.pools.rightly_filled(step.slot, partials)
            if right is not None:
                partials = partials.take(right)
        for condition in step.on_complete:
            if len(partials):
                partials = self.held(condition, partials)
        for check in step.negations:
            if len(partials):
                partials = partials.take(self._negations.allow(check, partials))
        total = bound | step.unit
        if len(total) == len(self.steps.branch.slots):
            partials = self._uncovered(partials)
        if len(partials):
            yield WalkTask(partials, total)

    def held(self, condition: Condition, partials: Partials) -> Partials:
        """The partials that meet a condition, or have to wait for what it reads."""
        held, bits = self._held(condition, self.reader(partials))
        return (partials if bits is None else partials.still(bits)).take(held)

    def _held(self, condition: Condition, reader: CellReader) -> tuple[Flags, Positions | None]:
        """Which partials (or pairs) go on, and, where some were not tested, the condition's bit
        for these."""
        meter = self.matching.meter
        if self._postponed is None or not remote_sources_of(condition.expression):
            held = reader.holds(condition)
            meter.held(condition, held)
            return held, None
        held, untested = self._postponed.held(condition, reader)
        if untested is None:
            meter.held(condition, held)
            return held, None
        late, kept = int(np.count_nonzero(untested)), int(np.count_nonzero(held))
        meter.tested((condition,), len(held) - late, kept - late)
        return held, np.where(untested, self._postponed.bit(condition), 0)

    def _uncovered(self, partials: Partials) -> Partials:
        if partials.ceiling is not None:
            partials = partials.take(partials.earliest < partials.ceiling)
        for checks in self.steps.covered:
            if len(partials):
                held = np.ones(len(partials), dtype=np.bool_)
                for check in checks:
                    held &= self._negations.allow(check, partials)
                partials = partials.take(~held)
        return partials

    # -- pairs -----------------------------------------------------------------------------------

    def look(
        self, step: Step, partials: Partials, reader: CellReader, rows: PositionRanges | None = None
    ) -> StepCandidates:
        """The candidates of each partial; what index and bounds leave out was tested by them.
        `rows`: where they have to lie, if that is known better than from order and window."""
        meter, pools = self.matching.meter, self.pools
        if rows is None:
            rows = find_scope(step, self.matching.events, self.slots, partials)
        if partials.ceiling is not None and self.steps.minimal == step.unit:
            begun = step.slot in partials.elements
            rows = (
                rows if begun else PositionRanges(rows.low, np.minimum(rows.high, partials.ceiling))
            )
        plain = pools.pool(step.slot)
        ranges = plain.find(rows)
        elements = plain.elements
        if step.equalities:
            before = ranges
            index = pools.index(step.slot, step.equalities)
            elements = index.elements
            ranges = index.find(rows, [reader.values(e.bound) for e in step.equalities])
            meter.tested(
                [e.condition for e in step.equalities], _count_pairs(before), _count_pairs(ranges)
            )
        for bound in step.bounds:
            if pools.grows(step.slot, bound.cell):
                before = ranges
                values = pools.values(bound.cell, elements).values
                ranges = narrow_ranges(ranges, bound, values, reader)
                meter.tested((bound.condition,), _count_pairs(before) - _count_pairs(ranges), 0)
        return StepCandidates(reader, elements, ranges)

    def _bind(self, task: WalkTask, step: Step, look: StepCandidates | None) -> Iterator[Partials]:
        partials = task.partials
        if look is None:
            look = self.look(step, partials, self.reader(partials))
        elements = look.elements
        node = self.branch, task.bound | step.unit
        # Every level of a growing list waits with a block of its own, as wide as the list is long.
        width = 1 + sum(e.shape[1] for e in partials.elements.values() if e.ndim > 1)
        foreseen = self._postponed is None
        for pick, place in pair_blocks(look.ranges, max(1, self._block // width)):
            self.matching.meter.pairs(len(pick))
            kept, chosen, bits = self.tested(step, partials, look.reader, pick, elements[place])
            self.matching.meter.node(node, len(pick), len(kept))
            self._trace(step, partials, (pick, elements[place]), (kept, chosen))
            if not foreseen:
                assert self._postponed is not None
                self._postponed.foresee(step, look, len(pick))
                foreseen = True
            if len(kept):
                extended = self._extended(step, partials, kept, chosen, task.bound)
                yield extended if bits is None else extended.still(bits)

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

    def tested(
        self,
        step: Step,
        partials: Partials,
        reader: CellReader,
        pick: Positions,
        elements: Positions,
    ) -> tuple[Positions, Positions, Positions | None]:
        """The pairs that survive the step's conditions, and which of these they were not tested
        for."""
        kept = self._possible(step, partials, pick, elements)
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
            held, bits = self._held(condition, pairs)
            if bits is not None:
                waiting = bits if waiting is None else waiting | bits
            survivors = np.flatnonzero(held)
            if len(survivors) < len(elements):
                pick, elements = pick[survivors], elements[survivors]
                pairs = pairs.select(survivors)
                waiting = None if waiting is None else waiting[survivors]
        return pick, elements, waiting

    def _possible(
        self, step: Step, partials: Partials, pick: Positions, elements: Positions
    ) -> Positions | None:
        """Pairs in which no row is taken twice and a group's last row is in scope too; None
        where that is certain without a look."""
        filled = self.slots.elements[step.slot]
        if not step.unordered and filled.members is None:
            return None
        possible = np.ones(len(pick), dtype=np.bool_)
        new_rows = [filled.rows(v, elements) for v in filled.slot.variables]
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
            before = partials.elements[step.slot][:, -1][pick]
            previous = {v: filled.rows(v, before) for v in variables}
        return replace(reader, pick=pick, candidates=CandidateRows(rows, previous))

    def _extended(
        self,
        step: Step,
        partials: Partials,
        pick: Positions,
        elements: Positions,
        known: frozenset[int],
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
        self._count(step, extended, known)
        return extended

    def _count(self, step: Step, partials: Partials, bound: frozenset[int]) -> None:
        final = bound | step.unit == self.target
        if self.keeps_all or not final or self.slot(step.slot).is_list:
            self.matching.meter.partials(partials.earliest)


def _count_pairs(ranges: PositionRanges) -> int:
    return int(np.maximum(ranges.high - ranges.low, 0).sum())
