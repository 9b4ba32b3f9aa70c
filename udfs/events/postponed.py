"""Remote data in a walk: which partial matches wait for it, and what is fetched before its need.

A condition whose data has not arrived is postponed: the partial matches, or pairs of one and an
element, that have met every other condition are parked, and the walk goes on with others. When the
data has arrived they are tested and go on as if they had come just then. So all strategies make the
same partial matches and end at the same limits. In an engine that takes
events one by one (EIRES, LzEval) postponing makes partial matches that may fail; here all events of
an advance are known before it begins, and others can be found meanwhile.

While a source has enough to do, no more is asked of it. Meanwhile pairs that no row can follow are
left out, so that a slow source is asked for less.

Always holds: a task that goes on has met every condition that was tested before, except those that
the strategy "post" tests on complete matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
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
    from spark_cep.udfs.values.vectors import RemoteValues


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
# A source has enough to do with so many keys for each that it can take at once: one call follows
# another, and what is asked next can still be chosen.
QUEUE_PER_CALL: Final = 2
# More is asked for when this share of it has arrived.
LEAST_ROOM: Final = 0.5
# Looking ahead at a parked pair takes about so many seconds (80 to 250 ns), and is expected to
# leave out this share of the keys at first (15 to 30 % in benchmarks/remote_delays.py).
LOOK_AHEAD_S: Final = 2e-7
LEFT_OUT: Final = 0.25


GoOn = Callable[["Positions"], "Iterator[WalkTask]"]
# The partials that pairs at some places make, with flags of those that a row may follow.
LookAhead = Callable[["Positions"], "tuple[Partials, Flags] | None"]


@dataclass(frozen=True)
class ParkedSet:
    """Partial matches or pairs that wait for remote data, as indices of what they were found in.

    `waiting` has the bits of the conditions that each was not tested for. `go_on` takes up those at
    some of the places `index`. `awaited`: the key ids that they wait for, by source; `is_asked`:
    all of them were asked for. `look_ahead`: what to leave out before more is asked for.
    """

    reader: CellReader
    waiting: Positions
    index: Positions
    go_on: GoOn
    awaited: LookupKeyIds = field(default_factory=list)
    is_asked: bool = True
    look_ahead: LookAhead | None = None

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
        # Sets for which not all was asked yet.
        self._unasked: deque[ParkedSet] = deque()
        self._is_held_back = False
        # By source, what was asked because it is needed, or ahead, and is not there.
        self._needed = [_Outstanding(lookup) for lookup in self._lookups]
        self._ahead = [_Outstanding(lookup) for lookup in self._lookups]
        self._is_idle = False
        # What looking ahead has left out so far.
        self._keys_looked = self._keys_left_out = 0
        self._complete: list[WalkTask] = []
        self._parked_size = self._complete_size = 0
        self._seen_arrivals = 0
        self._awaited: LookupKeyIds = []
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
        if needs.is_at_end(condition) and not self._walk.matching.meter.is_near_limit:
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
        ready = self._ask(condition, key_ids, len(reader))
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

    def park(
        self,
        reader: CellReader,
        waiting: Positions,
        go_on: GoOn,
        look_ahead: LookAhead | None = None,
    ) -> Positions | None:
        """Parks those with open conditions that are tested on the way. The places of the others;
        None: all of them. `reader`: of what `waiting` is about."""
        is_open = (waiting & self._needs.bits_on_the_way) != 0
        if not is_open.any():
            self._take_awaited()
            return None
        late = np.flatnonzero(is_open)
        parked = ParkedSet(reader.select(late), waiting[late], late, go_on, look_ahead=look_ahead)
        awaited, is_asked = self._take_awaited()
        self._add(parked, awaited, is_asked=is_asked)
        return np.flatnonzero(~is_open)

    def bits_at_end(self, waiting: Positions) -> Positions | None:
        """The bits that are left for complete matches."""
        left = waiting & self._needs.bits_at_end
        return left if left.any() else None

    def _add(self, parked: ParkedSet, awaited: LookupKeyIds, *, is_asked: bool) -> None:
        parked = replace(parked, awaited=awaited, is_asked=is_asked)
        if is_asked:
            self._parked.append(parked)
        else:
            # More is asked for the first set until it has all, so what is left of it comes first.
            (self._unasked.append if parked.look_ahead else self._unasked.appendleft)(parked)
        self._parked_size += len(parked)

    def _take_awaited(self) -> tuple[LookupKeyIds, bool]:
        """The key ids that tests lacked since the last call, and whether all were asked for."""
        awaited, self._awaited = _merge(self._awaited), []
        is_asked, self._is_held_back = not self._is_held_back, False
        return awaited, is_asked

    def _await(self, key_ids: LookupKeyIds, late: Flags) -> None:
        self._awaited += [(remote, distinct_ids(ids[late])) for remote, ids in key_ids]

    # ---- resolving tasks -----------------------------------------------------------------------

    def resolve(
        self, task: WalkTask, route: WalkRoute, pending: list[Iterator[WalkTask]]
    ) -> WalkTask | None:
        """The part of the task that can go on now. Others are parked, or come next."""
        for lookup in self._lookups:
            lookup.settle()
        if self._walk.matching.meter.is_near_limit and task.partials.waiting is not None:
            task = replace(task, partials=self._test_at_end(task.partials))
            if not len(task.partials):
                return None
        if task.bound == self._walk.target and task.growing is None:
            return self._take_decided(task)
        if task.growing is not None:
            return task
        steps = route.steps(self._walk, task)
        conditions = self._needs.prefetchable(task.bound)
        if conditions and self._has_room(LEAST_ROOM):
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
        if arrivals == self._seen_arrivals or not self._parked_size:
            return None
        self._seen_arrivals = arrivals
        if self._unasked and self._has_room(LEAST_ROOM):
            return self._ask_more()
        if not self._parked:
            return None
        # Data comes about in the order in which it was asked for.
        return self._take_up(self._parked.popleft()) if self._is_ready(self._parked[0]) else None

    def next_parked(self) -> Iterator[WalkTask] | None:
        """The next tasks when nothing else is left to do; None if nothing is parked."""
        if self._unasked and self._has_room(LEAST_ROOM):
            return self._ask_more()
        if not self._parked_size:
            return self._finish_complete() if self._complete else None
        ready = [each for each in self._parked if self._is_ready(each)]
        if ready:
            taken = {id(each) for each in ready}
            self._parked = deque(each for each in self._parked if id(each) not in taken)
            return chain.from_iterable(map(self._take_up, ready))
        if not self._parked:
            for remote, ids in self._unasked[0].awaited:
                mine = np.intersect1d(ids, self._needed[remote].ids(), assume_unique=True)
                self._lookups[remote].wait(mine[: (len(mine) + 1) // 2])
            self._is_idle = True
            return self._ask_more()
        first = self._parked.popleft()
        for remote, ids in first.awaited:
            lookup = self._lookups[remote]
            lacking = ids[~lookup.ready(ids)]
            if len(first) >= LEAST_PART:
                lacking = lacking[: max(lookup.remote.fetch_policy.batch, len(lacking) // 2)]
            lookup.wait(lacking)
        return self._take_up(first)

    def _take_up(self, parked: ParkedSet, lacked: int = 0) -> Iterator[WalkTask]:
        """`lacked`: so many keys, before looking ahead."""
        self._parked_size -= len(parked)
        left, waiting = self._decide(parked)
        self._is_idle = False
        awaited, is_asked = self._take_awaited()
        if lacked:
            self._keys_looked += lacked
            self._keys_left_out += lacked - sum(len(ids) for _, ids in awaited)
        is_open = (waiting & self._needs.bits_on_the_way) != 0
        if is_open.any():
            late = left[is_open]
            rest = replace(parked.take(late), waiting=waiting[is_open])
            self._add(rest, awaited, is_asked=is_asked)
            left = left[~is_open]
        if len(left):
            yield from parked.go_on(parked.index[left])

    def _decide(self, parked: ParkedSet) -> tuple[Positions, Positions]:
        """Tests what can be tested now: the places of those that have not failed, and the bits of
        the conditions that are still open for each."""
        waiting, meter = parked.waiting.copy(), self._walk.matching.meter
        alive, is_free = np.ones((2, len(parked)), dtype=np.bool_)
        arrived = parked.is_asked and self._is_ready(parked)
        for condition in self._needs.of_bits(waiting):
            bit = self._needs.bit(condition)
            which = np.flatnonzero(alive & is_free & ((waiting & bit) != 0))
            if not len(which):
                continue
            reader = parked.reader if len(which) == len(parked) else parked.reader.select(which)
            # The first one is what all of them were parked for.
            if not (arrived and len(which) == len(parked)):
                key_ids = reader.key_ids(condition)
                ready = self._ask(condition, key_ids, len(which))
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
            ready &= self._ask(None, key_ids, len(partials))
            awaited += key_ids
        if ready.all():
            return task
        late = np.flatnonzero(~ready)
        awaited = [(remote, distinct_ids(ids[late])) for remote, ids in awaited]
        waiting = np.zeros(len(late), dtype=np.int64)

        def go_on(places: Positions) -> Iterator[WalkTask]:
            yield replace(task, partials=partials.take(places))

        self._add(ParkedSet(reader.select(late), waiting, late, go_on), awaited, is_asked=True)
        now = np.flatnonzero(ready)
        return replace(task, partials=partials.take(now)) if len(now) else None

    # ---- limits --------------------------------------------------------------------------------

    def count_partials(self, partials: Partials) -> None:
        """Counts partial matches of which some are tested at the end only. These are charged when
        they have met their conditions."""
        assert partials.waiting is not None
        meter = self._walk.matching.meter
        is_open = partials.waiting != 0
        meter.count_partials(partials.earliest[~is_open])
        late = partials.take(is_open)
        meter.metrics.partial_matches += len(late)
        self._charge_later(late)

    def _charge_later(self, late: Partials) -> None:
        meter = self._walk.matching.meter
        meter.charge_later(late.earliest, lambda: self._test_at_end(late).earliest)

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
                self._ask(None, reader.key_ids(condition), len(which))
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
        partials = task.partials
        size = self._groups.get(task.bound, FIRST_GROUP)
        if self._knows_needs(task, conditions):
            size = len(partials)
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
                    self._ask_ahead(remote, distinct)
                history.offer(state, distinct)
        return task

    def _knows_needs(self, task: WalkTask, conditions: Sequence[Condition]) -> bool:
        """Whether it is known for all conditions how many keys of this state are needed."""
        return all(
            need_history(self._lookups[remote]).share(
                (self._walk.branch, task.bound, condition.text)
            )
            is not None
            for condition in conditions
            for remote in remote_sources_of(condition.expression)
        )

    def prefetch_block(self, step: Step, candidates: StepCandidates, done: int) -> None:
        """Fetches ahead what the pairs after the first `done`, one block, are likely to read.

        The first block has shown how selective the tests are that come before.
        """
        conditions = self._needs.slot_prefetches(step, step.slot)
        if (
            not (conditions and self._has_room(LEAST_ROOM))
            or int(candidates.counts().sum()) <= done
        ):
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
                    self._ask_ahead(remote, distinct_ids(ids))

    # ---- lookups -------------------------------------------------------------------------------

    def _ask(self, condition: Condition | None, key_ids: LookupKeyIds, size: int) -> Flags:
        """Asks for what is needed now, if the condition cannot wait; otherwise for as much as the
        source has room for. Whose data is there."""
        if condition is None or not self._needs.is_postponed(condition):
            return ask_for(self._lookups, key_ids, size, self._walk.branch)
        asked = []
        for remote, ids in key_ids:
            lookup = self._lookups[remote]
            is_there = lookup.ready(ids)
            if is_there.all():
                asked.append((remote, ids))
                continue
            lacking, requested = distinct_ids(ids[~is_there]), self._needed[remote].ids()
            new = np.setdiff1d(lacking, requested, assume_unique=True)
            room = self._room(remote, len(new), len(requested))
            if not self._pays_to_look_ahead([(remote, new)], size):
                room = len(new)
            if room < len(new):
                self._is_held_back = True
                if lookup.remote.prefetches:
                    need_history(lookup).need(new[room:])
                ids = ids[~np.isin(ids, new[room:]).any(axis=1)]  # noqa: PLW2901
            self._needed[remote].add(new[:room])
            asked.append((remote, ids))
        ready = np.ones(size, dtype=np.bool_)
        for (remote, ids), (_, every) in zip(asked, key_ids, strict=True):
            ask_for(self._lookups, [(remote, ids)], len(ids), self._walk.branch)
            ready &= self._lookups[remote].ready(every).all(axis=1)
        return ready

    def _capacity(self, remote: int) -> int:
        fetch_policy = self._lookups[remote].remote.fetch_policy
        return QUEUE_PER_CALL * fetch_policy.in_flight * fetch_policy.batch

    def _room(self, remote: int, keys: int, requested: int) -> int:
        """How many more of so many keys may be asked for: all of them, or whole calls. One call at
        least when nothing else is left to do."""
        batch = self._lookups[remote].remote.fetch_policy.batch
        room = max(self._capacity(remote) - requested, batch if self._is_idle else 0)
        return keys if keys <= room else room // batch * batch

    def _has_room(self, share: float) -> bool:
        """Whether every source could take this share of what it can take at all."""
        return all(
            len(requested.ids()) <= (1 - share) * self._capacity(remote)
            for remote, requested in enumerate(self._needed)
        )

    def _ask_more(self) -> Iterator[WalkTask]:
        """Asks for more of what the first set lacks, without what no row can follow."""
        parked = self._unasked.popleft()
        if parked.look_ahead is None or not self._pays_to_look_ahead(parked.awaited, len(parked)):
            return self._ask_rest(replace(parked, look_ahead=None))
        if not self._walk.matching.meter.is_near_limit:
            found = parked.look_ahead(parked.index)
            size = len(parked)
            if found is not None:
                partials, is_alive = found
                dead = np.flatnonzero(~is_alive)
                if len(dead):
                    late = replace(partials.take(dead), waiting=None)
                    self._charge_later(late.wait_for(parked.waiting[dead]))
                parked = parked.take(np.flatnonzero(is_alive))
            self._parked_size -= size - len(parked)
        lacked = sum(len(ids) for _, ids in parked.awaited)
        return self._take_up(replace(parked, look_ahead=None), lacked)

    def _pays_to_look_ahead(self, key_ids: LookupKeyIds, pairs: int) -> bool:
        """Whether the time of the source for keys that are left out is longer than the time that
        it takes to find them."""
        saved = 0.0
        for remote, ids in key_ids:
            lookup = self._lookups[remote]
            lacking = int(np.count_nonzero(~lookup.ready(ids)))
            fetch_policy = lookup.remote.fetch_policy
            saved += lacking * lookup.latency / (fetch_policy.in_flight * fetch_policy.batch)
        share = self._keys_left_out / self._keys_looked if self._keys_looked else LEFT_OUT
        return share * saved > LOOK_AHEAD_S * pairs

    def _ask_ahead(self, remote: int, ids: Positions) -> None:
        """Asks for keys that are not needed yet, as far as the source has room for them."""
        lookup = self._lookups[remote]
        needed, ahead = self._needed[remote].ids(), self._ahead[remote].ids()
        new = np.setdiff1d(ids[~lookup.ready(ids)], np.union1d(needed, ahead), assume_unique=True)
        new = new[: self._room(remote, len(new), len(needed) + len(ahead))]
        if len(new):
            self._ahead[remote].add(new)
            lookup.ask(new, ahead=True)

    def _ask_rest(self, parked: ParkedSet) -> Iterator[WalkTask]:
        """Asks for as much of what the set lacks as its sources have room for."""
        is_asked = True
        for remote, ids in parked.awaited:
            lacking, requested = ids[~self._lookups[remote].ready(ids)], self._needed[remote].ids()
            new = np.setdiff1d(lacking, requested, assume_unique=True)
            room = self._room(remote, len(new), len(requested))
            self._needed[remote].add(new[:room])
            ask_for(self._lookups, [(remote, new[:room, np.newaxis])], len(new[:room]))
            is_asked = is_asked and room >= len(new)
        self._is_idle = False
        self._parked_size -= len(parked)
        self._add(parked, parked.awaited, is_asked=is_asked)
        return iter(())


class _Outstanding:
    """Key ids that a source was asked for and that are not there yet."""

    def __init__(self, lookup: RemoteValues) -> None:
        self._lookup = lookup
        self._ids: Positions = np.zeros(0, dtype=np.int64)
        self._arrivals = -1

    def ids(self) -> Positions:
        arrivals = self._lookup.arrivals
        if len(self._ids) and arrivals != self._arrivals:
            self._ids = self._ids[~self._lookup.ready(self._ids)]
        self._arrivals = arrivals
        return self._ids

    def add(self, ids: Positions) -> None:
        self._ids = np.concatenate([self._ids, ids])


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
