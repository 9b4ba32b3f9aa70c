"""Remote data in a walk: which partial matches wait for it, and what is fetched before its need.

A condition whose data has not arrived is postponed: the partial matches, or pairs of one and an
element, that have met every other condition are parked, and the walk goes on with others. When the
data has arrived they are tested and go on as if they had come just then. So all strategies make the
same partial matches, ask for the same keys, and end at the same limits. In an engine that takes
events one by one (EIRES, LzEval) postponing makes partial matches that may fail; here all events of
an advance are known before it begins, and others can be found meanwhile.

Always holds: a task that goes on has met every condition that was tested before, except those that
the strategy "post" tests on complete matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.events.partials import Partials
from spark_cep.udfs.events.remote_needs import (
    RemoteNeeds,
    ask_for,
    distinct_ids,
    need_history,
)
from spark_cep.udfs.expressions import remote_sources_of

if TYPE_CHECKING:
    from spark_cep.udfs.events.partials import CellReader, LookupKeyIds
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.events.walk import BranchWalk, StepCandidates, WalkRoute, WalkTask
    from spark_cep.udfs.program import Condition


# No more than this are parked at once: 30 MB of indices.
MOST_PARKED: Final = 1 << 20
# A parked set of this size or more is taken up in parts, as its data arrives.
LEAST_PART: Final = 1 << 12
# Complete matches are tested in blocks of this size.
MATCH_BLOCK: Final = 1 << 17
# So many partial matches of a state go first and show how many of their kind need what could be
# fetched for the others. Each group costs about 0.1 ms for every step of the walk.
FIRST_GROUP: Final = 1 << 9
GROUP_GROWTH: Final = 8


GoOn = Callable[["Positions"], "Iterator[WalkTask]"]


@dataclass(frozen=True)
class ParkedSet:
    """Partial matches or pairs that wait for remote data, as indices of what they were found in.

    `waiting` has the bits of the conditions that each was not tested for. `go_on` takes up those at
    some of the places `index`. `awaited`: the key ids that they wait for, by source.
    """

    reader: CellReader
    waiting: Positions
    index: Positions
    go_on: GoOn
    awaited: LookupKeyIds = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.index)

    def take(self, places: Positions) -> ParkedSet:
        return replace(
            self,
            reader=self.reader.select(places),
            waiting=self.waiting[places],
            index=self.index[places],
        )


class PostponedTasks:
    """What waits in one walk. Under the strategy "post" nothing is fetched until matches are
    complete; `Partials.waiting` has a bit for each condition that they were not tested for."""

    def __init__(self, walk: BranchWalk) -> None:
        self._walk = walk
        self._needs = RemoteNeeds(walk.matching.program, walk.slots)
        self._lookups = walk.matching.tally.lookups
        self._parked: deque[ParkedSet] = deque()
        self._complete: list[WalkTask] = []
        self._parked_size = self._complete_size = 0
        self._seen_arrivals = 0
        self._awaited: LookupKeyIds = []
        # Partial matches under "post", which count when they have met their conditions.
        self._untested: list[Partials] = []
        self._untested_size = 0
        self._tests_at_once = False
        self._groups: dict[frozenset[int], int] = {}

    @property
    def size(self) -> int:
        """How many wait."""
        return self._parked_size + self._complete_size

    # ---- tests ---------------------------------------------------------------------------------

    def test(
        self, condition: Condition, reader: CellReader, waiting: Positions | None
    ) -> tuple[Flags, Flags | None]:
        """Which partials (or pairs) may go on, and which of them were not tested.

        `waiting`: the bits of conditions before this one. Where these are open, nothing is asked
        for: those that fail them need nothing.
        """
        needs = self._needs
        if needs.is_at_end(condition) and not self._tests_at_once:
            every = np.ones(len(reader), dtype=np.bool_)
            return every, every
        open_before = None if waiting is None else (waiting & needs.bits_on_the_way) != 0
        if open_before is not None and needs.has_bit(condition) and open_before.any():
            held, untested = open_before.copy(), open_before
            free = np.flatnonzero(~open_before)
            if len(free):
                held[free], late = self._test_free(condition, reader.select(free))
                if late is not None:
                    untested = untested.copy()
                    untested[free] = late
            return held, untested
        return self._test_free(condition, reader)

    def _test_free(self, condition: Condition, reader: CellReader) -> tuple[Flags, Flags | None]:
        key_ids = reader.key_ids(condition)
        ready = self._ask(key_ids, len(reader))
        if ready.all() or not self._needs.is_postponed(condition):
            return reader.holds(condition), None
        late = ~ready
        self._await(key_ids, late)
        held = late.copy()
        some = np.flatnonzero(ready)
        if len(some):
            held[some] = reader.select(some).holds(condition)
        return held, late

    def bit(self, condition: Condition) -> int:
        return self._needs.bit(condition)

    # ---- parking -------------------------------------------------------------------------------

    def park(self, reader: CellReader, waiting: Positions, go_on: GoOn) -> Positions | None:
        """Parks those with open conditions that are tested on the way. The places of the others;
        None: all of them. `reader`: of what `waiting` is about."""
        is_open = (waiting & self._needs.bits_on_the_way) != 0
        awaited, self._awaited = self._awaited, []
        if not is_open.any():
            return None
        late = np.flatnonzero(is_open)
        self._add(ParkedSet(reader.select(late), waiting[late], late, go_on, _merge(awaited)))
        return np.flatnonzero(~is_open)

    def bits_at_end(self, waiting: Positions) -> Positions | None:
        """The bits that are left for complete matches."""
        left = waiting & self._needs.bits_at_end
        return left if left.any() else None

    def _add(self, parked: ParkedSet) -> None:
        self._parked.append(parked)
        self._parked_size += len(parked)

    def _await(self, key_ids: LookupKeyIds, late: Flags) -> None:
        self._awaited += [(remote, distinct_ids(ids[late])) for remote, ids in key_ids]

    # ---- resolving tasks -----------------------------------------------------------------------

    def resolve(
        self, task: WalkTask, route: WalkRoute, pending: list[Iterator[WalkTask]]
    ) -> WalkTask | None:
        """The part of the task that can go on now. Others are parked, or come next."""
        for lookup in self._lookups:
            lookup.settle()
        if self._tests_at_once and task.partials.waiting is not None:
            task = replace(task, partials=self._test_at_end(task.partials))
            if not len(task.partials):
                return None
        if task.bound == self._walk.target and task.growing is None:
            return self._take_decided(task)
        if task.growing is not None:
            return task
        steps = route.steps(self._walk, task)
        conditions = self._needs.prefetchable(task.bound)
        if conditions:
            task = self._drop_dead_ends(task, steps)
            task = self._prefetch_group(task, conditions, pending)
        equalities = self._needs.known_equalities(steps, task.bound)
        return self._wait_for_equalities(task, equalities) if equalities else task

    def arrived_tasks(self) -> Iterator[WalkTask] | None:
        """Tasks whose data has arrived, if there are any."""
        if self._complete_size > MATCH_BLOCK:
            return self._finish_complete()
        if self._parked_size > MOST_PARKED:
            return self.next_parked()
        arrivals = sum(lookup.arrivals for lookup in self._lookups)
        if arrivals == self._seen_arrivals or not self._parked:
            return None
        self._seen_arrivals = arrivals
        # Data comes about in the order in which it was asked for.
        return self._take_up(self._parked.popleft()) if self._is_ready(self._parked[0]) else None

    def next_parked(self) -> Iterator[WalkTask] | None:
        """The next tasks when nothing else is left to do; None if nothing is parked."""
        if not self._parked:
            return self._finish_complete() if self._complete else None
        for number, each in enumerate(self._parked):
            if self._is_ready(each):
                del self._parked[number]
                return self._take_up(each)
        first = self._parked.popleft()
        for remote, ids in first.awaited:
            lookup = self._lookups[remote]
            lacking = ids[~lookup.ready(ids)]
            if len(first) >= LEAST_PART:
                lacking = lacking[: max(lookup.remote.fetch_policy.batch, len(lacking) // 2)]
            lookup.wait(lacking)
        return self._take_up(first)

    def _take_up(self, parked: ParkedSet) -> Iterator[WalkTask]:
        self._parked_size -= len(parked)
        left, waiting = self._decide(parked)
        awaited, self._awaited = self._awaited, []
        is_open = (waiting & self._needs.bits_on_the_way) != 0
        if is_open.any():
            late = left[is_open]
            rest = replace(parked.take(late), waiting=waiting[is_open], awaited=_merge(awaited))
            self._add(rest)
            left = left[~is_open]
        if len(left):
            yield from parked.go_on(parked.index[left])

    def _decide(self, parked: ParkedSet) -> tuple[Positions, Positions]:
        """Tests what can be tested now: the places of those that have not failed, and the bits of
        the conditions that are still open for each."""
        waiting, meter = parked.waiting.copy(), self._walk.matching.meter
        alive, is_free = np.ones((2, len(parked)), dtype=np.bool_)
        arrived = self._is_ready(parked)
        for condition in self._needs.of_bits(waiting):
            bit = self._needs.bit(condition)
            which = np.flatnonzero(alive & is_free & ((waiting & bit) != 0))
            if not len(which):
                continue
            reader = parked.reader if len(which) == len(parked) else parked.reader.select(which)
            # The first one is what all of them were parked for.
            if not (arrived and len(which) == len(parked)):
                key_ids = reader.key_ids(condition)
                ready = self._ask(key_ids, len(which))
                if not ready.all() and self._needs.is_postponed(condition):
                    self._await(key_ids, ~ready)
                    is_free[which[~ready]] = False
                    which, reader = which[ready], reader.select(np.flatnonzero(ready))
            arrived = False
            held = reader.holds(condition)
            meter.count_results(condition, held)
            waiting[which] &= ~bit
            alive[which[~held]] = False
        left = np.flatnonzero(alive)
        return left, waiting[left]

    def _is_ready(self, parked: ParkedSet) -> bool:
        return all(self._lookups[remote].ready(ids).all() for remote, ids in parked.awaited)

    def _wait_for_equalities(
        self, task: WalkTask, conditions: Sequence[Condition]
    ) -> WalkTask | None:
        """The part of a task whose next rows can be looked up; what waits for a key is parked."""
        partials = task.partials
        reader = replace(self._walk.reader(partials), pick=np.arange(len(partials)))
        ready = np.ones(len(partials), dtype=np.bool_)
        awaited: LookupKeyIds = []
        for condition in conditions:
            key_ids = reader.key_ids(condition, task.bound)
            ready &= self._ask(key_ids, len(partials))
            awaited += key_ids
        if ready.all():
            return task
        late = np.flatnonzero(~ready)
        awaited = [(remote, distinct_ids(ids[late])) for remote, ids in awaited]
        waiting = np.zeros(len(late), dtype=np.int64)

        def go_on(places: Positions) -> Iterator[WalkTask]:
            yield replace(task, partials=partials.take(places))

        self._add(ParkedSet(reader.select(late), waiting, late, go_on, awaited))
        now = np.flatnonzero(ready)
        return replace(task, partials=partials.take(now)) if len(now) else None

    # ---- limits --------------------------------------------------------------------------------

    def count_untested(self, partials: Partials) -> None:
        """Counts partial matches of which some are tested at the end only. These are charged when
        they have met their conditions, so that limits end every strategy alike: where they might
        pass a limit they are tested now, and from then on conditions are tested at once."""
        assert partials.waiting is not None
        meter = self._walk.matching.meter
        is_open = partials.waiting != 0
        meter.count_partials(partials.earliest[~is_open])
        late = partials.take(is_open)
        self._untested.append(late)
        self._untested_size += len(late)
        if meter.count_untested(late.earliest) or self._untested_size > MOST_PARKED:
            self._tests_at_once = True
            meter.forget_untested()
            untested, self._untested, self._untested_size = self._untested, [], 0
            for each in untested:
                meter.charge_partials(self._test_at_end(each).earliest)

    # ---- complete matches ----------------------------------------------------------------------

    def _take_decided(self, task: WalkTask) -> WalkTask | None:
        """The matches of a complete task that met all conditions; others are kept for later."""
        waiting = task.partials.waiting
        if waiting is None:
            return task
        undecided = waiting != 0
        if undecided.any():
            self._complete.append(replace(task, partials=task.partials.take(undecided)))
            self._complete_size += int(np.count_nonzero(undecided))
        decided = task.partials.take(~undecided)
        return replace(task, partials=decided) if len(decided) else None

    def _finish_complete(self) -> Iterator[WalkTask]:
        """Complete matches that meet the conditions still open, all their data fetched at once."""
        tasks, self._complete, self._complete_size = self._complete, [], 0
        for task in tasks:
            assert task.partials.waiting is not None
            for condition in self._needs.of_bits(task.partials.waiting):
                which = np.flatnonzero(task.partials.waiting & self._needs.bit(condition))
                reader = self._walk.reader(task.partials.take(which))
                self._ask(reader.key_ids(condition), len(which))
        for task in tasks:
            partials = self._test_at_end(task.partials)
            if len(partials):
                yield replace(task, partials=partials)

    def _test_at_end(self, partials: Partials) -> Partials:
        assert partials.waiting is not None
        waiting = partials.waiting
        partials = replace(partials, waiting=None)
        alive = np.arange(len(partials))
        for condition in self._needs.of_bits(waiting):
            which = np.flatnonzero(waiting[alive] & self._needs.bit(condition))
            if len(which):
                held = self._walk.reader(partials.take(alive[which])).holds(condition)
                self._walk.matching.meter.count_results(condition, held)
                alive = np.delete(alive, which[~held])
        return partials.take(alive)

    # ---- fetching ahead ------------------------------------------------------------------------

    def _drop_dead_ends(self, task: WalkTask, steps: Sequence[Step]) -> WalkTask:
        """The task without partials that no row can follow, so that nothing is fetched for them.

        Only where finding candidates needs no remote data.
        """
        if len(steps) > 1:
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

    def _prefetch_group(
        self, task: WalkTask, conditions: Sequence[Condition], pending: list[Iterator[WalkTask]]
    ) -> WalkTask:
        """Fetches ahead what the partials are likely to need, as far as others of their state have
        shown it. The first group of the task; the others come after it."""
        size = self._groups.get(task.bound, FIRST_GROUP)
        partials = task.partials
        if len(partials) > size:
            self._groups[task.bound] = size * GROUP_GROWTH
            pending.append(iter([replace(task, partials=partials.take(slice(size, None)))]))
            task = replace(task, partials=partials.take(slice(0, size)))
        reader = self._walk.reader(task.partials)
        for condition in conditions:
            state = self._walk.branch, task.bound, condition.text
            for remote, ids in reader.key_ids(condition, task.bound):
                lookup = self._lookups[remote]
                history, distinct = need_history(lookup), distinct_ids(ids)
                if history.is_worth(state):
                    lookup.ask(distinct, ahead=True)
                history.offer(state, distinct)
        return task

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
            # That one of the pairs at least meets what is tested before.
            chance = -np.expm1(-share * pairs)
            sources = remote_sources_of(condition.expression)
            least = min(need_history(self._lookups[r]).least_share for r in sources)
            likely = candidates.elements[np.flatnonzero(chance >= least)]
            if len(likely):
                first = self._walk.slots.elements[step.slot].first_row(likely)
                bound = likely[:, np.newaxis] if self._walk.slot(step.slot).is_list else likely
                reader = self._walk.reader(Partials({step.slot: bound}, first, first))
                for remote, ids in reader.key_ids(condition, {step.slot}):
                    self._lookups[remote].ask(ids, ahead=True)

    # ---- lookups -------------------------------------------------------------------------------

    def _ask(self, key_ids: LookupKeyIds, size: int) -> Flags:
        """Asks for what is needed now: whose data is there."""
        return ask_for(self._lookups, key_ids, size, self._walk.branch)


def _merge(key_ids: LookupKeyIds) -> LookupKeyIds:
    """The distinct ids of each source."""
    merged: dict[int, list[Positions]] = {}
    for remote, ids in key_ids:
        merged.setdefault(remote, []).append(ids)
    return [
        (remote, parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts)))
        for remote, parts in merged.items()
    ]


def _pairs_per_candidate(candidates: StepCandidates) -> Positions:
    """The number of pairs that each candidate of a step is part of."""
    counts = np.zeros(len(candidates.elements) + 1, dtype=np.int64)
    some = candidates.ranges.low < candidates.ranges.high
    np.add.at(counts, candidates.ranges.low[some], 1)
    np.subtract.at(counts, candidates.ranges.high[some], 1)
    return np.cumsum(counts[:-1])
