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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spark_cep.udfs.expressions import remotes
from spark_cep.udfs.joining.negation import Negations
from spark_cep.udfs.joining.partials import Partials, Slots
from spark_cep.udfs.joining.postponed import Postponed
from spark_cep.udfs.joining.reading import Candidates, Reader, looks_back
from spark_cep.udfs.joining.scope import Range, blocks, narrowed, scope

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.joining.pools import Pools
    from spark_cep.udfs.joining.steps import Step, Steps
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.program import Condition, Slot


@dataclass(frozen=True)
class Task:
    """Partials in which the slots of `bound` are filled. `growing`: the step of a list that has
    begun in them and is not among `bound` yet. `hurried`: goes on without what it waits for."""

    partials: Partials
    bound: frozenset[int]
    growing: Step | None = None
    hurried: bool = False


@dataclass(frozen=True)
class Look:
    """Where each partial's candidates for one step are: `ranges` of `elements`."""

    reader: Reader
    elements: Positions
    ranges: Range

    def take(self, index: Positions, partials: Partials) -> Look:
        ranges = Range(self.ranges.low[index], self.ranges.high[index])
        return Look(replace(self.reader, partials=partials, _cache={}, _failed={}),
                    self.elements, ranges)  # fmt: skip

    def counts(self) -> Positions:
        counts: Positions = np.maximum(self.ranges.high - self.ranges.low, 0)
        return counts


class Route(Protocol):
    """Where to start, and where to go from what is bound."""

    def starts(self, walk: Walk) -> Iterator[Task]: ...

    def onward(self, walk: Walk, task: Task) -> Iterator[Task]:
        """The tasks that come of binding one more slot, or one more join, in a task's partials."""
        ...

    def steps(self, walk: Walk, task: Task) -> Sequence[Step]:
        """The steps that `onward` may take."""
        ...


@dataclass
class Walk:
    """One walk over a branch, up to all slots of `target`. `keeps_all`: what it finds is held
    as part of something larger, so it counts as partial matches to the last step."""

    matching: Matching
    branch: int
    steps: Steps
    pools: Pools
    target: frozenset[int]
    keeps_all: bool = False

    def __post_init__(self) -> None:
        self._block = self.matching.program.block_pairs
        self.slots: Slots = self.pools.slots
        self._negations = Negations(
            self.matching.events, self.slots,
            self.matching.meter, self.matching.tally, self._block,
        )  # fmt: skip
        self._postponed = Postponed(self) if self.matching.tally.lookups else None

    def run(self, route: Route) -> Iterator[Partials]:
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

    def _settled(self, task: Task, route: Route, pending: list[Iterator[Task]]) -> Task | None:
        """What of the task can go on now. What no longer has to wait comes next."""
        assert self._postponed is not None
        settled = self._postponed.settled(task, route)
        again = self._postponed.arrived()
        if again is not None:
            pending.append(again)
        return settled

    def _resume(self, pending: list[Iterator[Task]]) -> bool:
        again = None if self._postponed is None else self._postponed.again()
        if again is not None:
            pending.append(again)
        return again is not None

    def slot(self, number: int) -> Slot:
        return self.steps.branch.slots[number]

    def reader(self, partials: Partials) -> Reader:
        return Reader(self.matching.events.columns, self.slots, partials, self.matching.tally)

    # -- one more slot ---------------------------------------------------------------------------

    def start(self, step: Step, elements: Positions, places: Range | None = None) -> Iterator[Task]:
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

    def extend(self, task: Task, step: Step, look: Look | None = None) -> Iterator[Task]:
        """The task's partials with the step's slot."""
        for partials in self._bind(task, step, look):
            yield from self._bound(task.bound, step, partials)

    def _bound(self, bound: frozenset[int], step: Step, partials: Partials) -> Iterator[Task]:
        if self.slot(step.slot).is_list:
            yield Task(partials, bound, step)
        else:
            yield from self.complete(bound, step, partials)

    def _grow(self, task: Task, step: Step) -> Iterator[Task]:
        slot = self.slot(step.slot)
        length = task.partials.elements[step.slot].shape[1]
        if length >= slot.low:
            yield from self.complete(task.bound, step, task.partials)
        if slot.high is None or length < slot.high:
            for partials in self._bind(task, step, None):
                yield Task(partials, task.bound, step)

    def complete(self, bound: frozenset[int], step: Step, partials: Partials) -> Iterator[Task]:
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
            yield Task(partials, total)

    def held(self, condition: Condition, partials: Partials) -> Partials:
        """The partials that meet a condition, or have to wait for what it reads."""
        held, bits = self._held(condition, self.reader(partials))
        return (partials if bits is None else partials.still(bits)).take(held)

    def _held(self, condition: Condition, reader: Reader) -> tuple[Flags, Positions | None]:
        """Which partials (or pairs) go on, and, where some were not tested, the condition's bit
        for these."""
        meter = self.matching.meter
        if self._postponed is None or not remotes(condition.expression):
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
        self, step: Step, partials: Partials, reader: Reader, rows: Range | None = None
    ) -> Look:
        """The candidates of each partial; what index and bounds leave out was tested by them.
        `rows`: where they have to lie, if that is known better than from order and window."""
        meter, pools = self.matching.meter, self.pools
        if rows is None:
            rows = scope(step, self.matching.events, self.slots, partials)
        if partials.ceiling is not None and self.steps.minimal == step.unit:
            begun = step.slot in partials.elements
            rows = rows if begun else Range(rows.low, np.minimum(rows.high, partials.ceiling))
        plain = pools.pool(step.slot)
        ranges = plain.find(rows)
        elements = plain.elements
        if step.equalities:
            before = ranges
            index = pools.index(step.slot, step.equalities)
            elements = index.elements
            ranges = index.find(rows, [reader.values(e.bound) for e in step.equalities])
            meter.tested([e.condition for e in step.equalities], _size(before), _size(ranges))
        for bound in step.bounds:
            if pools.grows(step.slot, bound.cell):
                before = ranges
                values = pools.values(bound.cell, elements).values
                ranges = narrowed(ranges, bound, values, reader)
                meter.tested((bound.condition,), _size(before) - _size(ranges), 0)
        return Look(reader, elements, ranges)

    def _bind(self, task: Task, step: Step, look: Look | None) -> Iterator[Partials]:
        partials = task.partials
        if look is None:
            look = self.look(step, partials, self.reader(partials))
        elements = look.elements
        node = self.branch, task.bound | step.unit
        # Every level of a growing list waits with a block of its own, as wide as the list is long.
        width = 1 + sum(e.shape[1] for e in partials.elements.values() if e.ndim > 1)
        foreseen = self._postponed is None
        for pick, place in blocks(look.ranges, max(1, self._block // width)):
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
        self, step: Step, partials: Partials, reader: Reader, pick: Positions, elements: Positions
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
        self, step: Step, partials: Partials, reader: Reader, pick: Positions, elements: Positions
    ) -> Reader:
        filled = self.slots.elements[step.slot]
        variables = filled.slot.variables
        rows = {v: filled.rows(v, elements) for v in variables}
        previous = None
        if step.slot in partials.elements:
            before = partials.elements[step.slot][:, -1][pick]
            previous = {v: filled.rows(v, before) for v in variables}
        return replace(reader, pick=pick, candidates=Candidates(rows, previous))

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


def _size(ranges: Range) -> int:
    return int(np.maximum(ranges.high - ranges.low, 0).sum())
