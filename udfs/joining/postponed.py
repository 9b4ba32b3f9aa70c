"""Conditions on remote data: asked for ahead, and put off while what they need is under way.

A walk goes on with other partial matches while some wait for data: these are parked, and come back
when it is there. That costs no additional partial match, as all events of an advance are known
before it begins; in an engine that takes events one by one (EIRES, LzEval) it would. Only when
everything waits may partial matches go on untested, where that is expected to pay; what they have
not been tested for is noted in `Partials.waiting`, a bit for each condition, and tested before
they are given.

Under "post" the bit is set and nothing is asked until matches are complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.expressions import remotes
from spark_cep.udfs.joining.partials import Partials
from spark_cep.udfs.joining.remote_needs import Needs, distinct
from spark_cep.udfs.planning.costs import TYPICAL

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.joining.reading import Asked, Reader
    from spark_cep.udfs.joining.steps import Step
    from spark_cep.udfs.joining.walk import Look, Route, Task, Walk
    from spark_cep.udfs.program import Condition

# More partial matches than this do not wait at once.
MOST_PARKED = 1 << 20
# Complete matches are tested so many at a time.
MATCHES_AT_ONCE = 1 << 17
# Pairs that a partial match becomes part of, where nothing is known yet.
UNKNOWN_PAIRS = 8.0
# A candidate's key is fetched ahead if so many of its pairs are expected to ask for it.
LIKELY = 0.5


@dataclass(frozen=True)
class Parked:
    """A task that waits, and the ids that it waits for, by remote source. `may_go_on`: the next
    step can be taken without them."""

    task: Task
    asked: tuple[tuple[int, Positions], ...]
    may_go_on: bool


class Postponed:
    """What one walk has put off."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._needs = Needs(walk.matching.program, walk.slots)
        self._lookups = walk.matching.tally.lookups
        self._costs = walk.matching.program.costs or TYPICAL
        self._parked: deque[Parked] = deque()
        self._complete: list[Task] = []
        self._waiting = self._undecided = 0
        self._seen = 0

    # -- testing ---------------------------------------------------------------------------------

    def held(self, condition: Condition, reader: Reader) -> tuple[Flags, Flags | None]:
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

    def foresee(self, step: Step, look: Look, done: int) -> None:
        """Fetches ahead what the blocks of pairs behind the first, `done`, are likely to ask for.
        By then it is known what the tests before it keep."""
        conditions = self._needs.of_slot(step, step.slot)
        if not conditions or int(look.counts().sum()) <= done:
            return
        pairs = _pairs_of_candidates(look)
        for condition in conditions:
            share = 1.0
            for other in step.tests[: step.tests.index(condition)]:
                share *= self._walk.matching.meter.kept_share(other)
            likely = look.elements[np.flatnonzero(pairs * share >= LIKELY)]
            if len(likely):
                first = self._walk.slots.elements[step.slot].first_row(likely)
                bound = likely[:, np.newaxis] if self._walk.slot(step.slot).is_list else likely
                reader = self._walk.reader(Partials({step.slot: bound}, first, first))
                self._ask(reader.asked(condition, {step.slot}), ahead=True)

    # -- going on --------------------------------------------------------------------------------

    def settled(self, task: Task, route: Route) -> Task | None:
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

    def arrived(self) -> Iterator[Task] | None:
        """Tasks that need wait no longer, if there are any."""
        if self._undecided > MATCHES_AT_ONCE:
            return self._at_last()
        if self._waiting > MOST_PARKED:
            return self.again()
        seen = sum(lookup.arrivals for lookup in self._lookups)
        if seen == self._seen or not self._parked:
            return None
        self._seen = seen
        ready = [each for each in self._parked if self._is_ready(each)]
        gone = {id(each) for each in ready}
        self._parked = deque(each for each in self._parked if id(each) not in gone)
        return self._released(ready) if ready else None

    def again(self) -> Iterator[Task] | None:
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

    def _released(self, parked: Sequence[Parked]) -> Iterator[Task]:
        self._waiting -= sum(len(each.task.partials) for each in parked)
        return iter([each.task for each in parked])

    def _at_last(self) -> Iterator[Task]:
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

    def _given(self, task: Task) -> Task | None:
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

    def _tested(self, task: Task, *, waits: bool = False) -> Task:
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

    def _alive(self, task: Task, steps: Sequence[Step]) -> Task:
        """Without partials that no row can follow, so that nothing is fetched for them. Only where
        something would be, and where looking takes no remote data itself."""
        asks = self._needs.wanted(steps, task.bound).tests or self._needs.ahead(task.bound)
        if task.growing is not None or len(steps) > 1 or not asks:
            return task
        (step,) = steps
        if len(step.unit) > 1 or any(remotes(e.condition.expression) for e in step.equalities):
            return task
        look = self._walk.look(step, task.partials, self._walk.reader(task.partials))
        return replace(task, partials=task.partials.take(look.counts() > 0))

    def _ready_to_go_on(self, task: Task, steps: Sequence[Step]) -> Task | None:
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

    def _park(self, task: Task, conditions: Sequence[Condition], may_go_on: bool) -> None:
        partials = task.partials
        reader = self._walk.reader(partials)
        asked = [each for c in conditions for each in reader.asked(c, task.bound)]
        for condition in self._needs.untested(partials):
            if not self._needs.is_at_end(condition):
                which = self._needs.which(partials, condition)
                asked += self._walk.reader(partials.take(which)).asked(condition)
        self._ask(asked)
        needed = tuple((remote, distinct(ids)) for remote, ids in asked)
        self._parked.append(Parked(task, needed, may_go_on))
        self._waiting += len(partials)

    def _is_ready(self, parked: Parked) -> bool:
        return all(self._lookups[remote].ready(ids).all() for remote, ids in parked.asked)

    def _pays(self, parked: Parked) -> bool:
        """Whether to go on untested: Algorithm 4's comparison, what is hidden against the work on
        partial matches that will fail, both in the time that this engine takes for its sets."""
        if not parked.may_go_on:
            return False
        latency = max(self._lookups[remote].latency for remote, _ in parked.asked)
        work = len(parked.task.partials) * UNKNOWN_PAIRS * (self._costs.pair + self._costs.result)
        kept = 1.0
        for condition in self._needs.untested(parked.task.partials):
            kept *= self._walk.matching.meter.kept_share(condition)
        return min(work, latency) > work * (1 - kept)

    # -- lookups ---------------------------------------------------------------------------------

    def _ask(self, asked: Asked, *, ahead: bool = False) -> None:
        for remote, ids in asked:
            lookup = self._lookups[remote]
            if lookup.remote.prefetches or lookup.remote.caching.policy == "cost":
                counts = np.bincount(ids.ravel() + 1)
                known = np.flatnonzero(counts[1:])
                lookup.needed(known, counts[1:][known], self._walk.branch)
            lookup.ask(ids, ahead=ahead)

    def _ready(self, asked: Asked, size: int) -> Flags:
        ready = np.ones(size, dtype=np.bool_)
        for remote, ids in asked:
            ready &= self._lookups[remote].ready(ids).all(axis=1)
        return ready


def _pairs_of_candidates(look: Look) -> Positions:
    """In how many pairs each candidate of a step is."""
    counts = np.zeros(len(look.elements) + 1, dtype=np.int64)
    some = look.ranges.low < look.ranges.high
    np.add.at(counts, look.ranges.low[some], 1)
    np.subtract.at(counts, look.ranges.high[some], 1)
    return np.cumsum(counts[:-1])
