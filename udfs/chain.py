"""The order-based engine (eager and lazy chain NFA) for skip-till-any-match.

A branch's slots are bound in the plan's order. All partial matches of a step are extended at
once: scope, equality index and blocks give pairs, conditions keep some of them, survivors are the
next step's partials. Steps are walked depth first, block by block, so what is held at any time is
a few blocks, however many matches there are. Lists grow by one element a round; each round's
partials are finished lists for the next step and, at the same time, shorter ones for the next
round.

"The latest event is new" is pushed into the candidates: only the maximal slots can hold the
latest event, so the work splits into disjoint cases, one for each maximal slot, in which that
slot ends in a new row and the maximal slots before it do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events import AHEAD, NEW, OLD, Positions
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.negation import Negations
from spark_cep.udfs.partials import Elements, Partials, Slots
from spark_cep.udfs.reading import Candidates, Reader, looks_back
from spark_cep.udfs.scope import IndexedPool, Pool, Range, blocks, grows, narrowed, pool, scope
from spark_cep.udfs.steps import Step, Steps, compile_steps

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.program import Branch, Condition, Slot
    from spark_cep.udfs.values.vectors import Vector


def match_branch(matching: Matching, branch: Branch, order: Sequence[int]) -> Iterator[Found]:
    """All matches of the branch whose latest row is new, as sets."""
    steps = compile_steps(branch, order, matching.program, matching.program.conditions)
    slots = Slots(
        {
            number: _elements(matching, slot, steps.bodies.get(number))
            for number, slot in enumerate(branch.slots)
        }
    )
    maximal = [
        slot
        for slot in range(len(branch.slots))
        if not any((slot, other) in branch.precedes for other in range(len(branch.slots)))
    ]
    for turn, slot in enumerate(maximal):
        ends = {**dict.fromkeys(maximal[:turn], OLD), slot: NEW}
        if turn and not (matching.status == OLD).any():
            return
        for partials in _Chain(matching, steps, slots, ends).run():
            matching.meter.matches(partials.earliest)
            yield _found(branch, slots, partials)


def _found(branch: Branch, slots: Slots, partials: Partials) -> Found:
    rows = {v: slots.rows(v, partials) for slot in branch.slots for v in slot.variables}
    return Found(rows, partials.earliest, partials.latest, branch.empty)


# ---- what can fill a slot ----------------------------------------------------------------------


def _elements(
    matching: Matching, slot: Slot, body: tuple[Branch, tuple[Condition, ...]] | None
) -> Elements:
    if body is None:
        return Elements(slot)
    branch, conditions = body
    order = range(len(branch.slots))
    steps = compile_steps(branch, order, matching.program, conditions)
    slots = Slots({number: Elements(inner) for number, inner in enumerate(branch.slots)})
    sets = list(_Chain(matching, steps, slots, {}, keeps_all=True).run())
    members = {
        v: np.concatenate([s.elements[i] for s in sets]) if sets else np.zeros(0, dtype=np.int64)
        for i, inner in enumerate(branch.slots)
        for v in inner.variables
    }
    first, last = members[slot.variables[0]], members[slot.variables[-1]]
    by_first = np.argsort(first, kind="stable")
    return Elements(
        slot, first[by_first], last[by_first], {v: rows[by_first] for v, rows in members.items()}
    )


# ---- the chain ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """Partials whose first `depth` steps are bound; `growing`: the list of step `depth` has
    begun in them."""

    depth: int
    partials: Partials
    growing: bool = False


@dataclass
class _Chain:
    """One walk. `ends`: maximal slots whose last row has to be NEW, or OLD. `keeps_all`: what it
    finds is kept as elements of a list, so it counts as partial matches to the last step."""

    matching: Matching
    steps: Steps
    slots: Slots
    ends: Mapping[int, int]
    keeps_all: bool = False
    _pools: dict[int, Pool] = field(default_factory=dict)
    _indexes: dict[int, IndexedPool] = field(default_factory=dict)
    _growing: dict[tuple[int, Cell], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._block = self.matching.program.block_pairs
        self._negations = Negations(
            self.matching.events, self.slots,
            self.matching.meter, self.matching.tally, self._block,
        )  # fmt: skip

    def run(self) -> Iterator[Partials]:
        pending = [iter((_Task(0, self._nothing()),))]
        while pending:
            task = next(pending[-1], None)
            if task is None:
                pending.pop()
            elif task.depth == len(self.steps.steps):
                yield from self._uncovered(task.partials)
            else:
                pending.append(self._extend(task))

    def _nothing(self) -> Partials:
        empty = np.zeros(0, dtype=np.int64)
        return Partials({}, empty, empty)

    def _extend(self, task: _Task) -> Iterator[_Task]:
        step = self.steps.steps[task.depth]
        slot = self.steps.branch.slots[step.slot]
        if not slot.is_list:
            for partials in self._bind(step, task.partials):
                yield from self._complete(task.depth, step, partials)
            return
        length = 0
        if task.growing:
            length = task.partials.elements[step.slot].shape[1]
            if length >= slot.low:
                yield from self._complete(task.depth, step, task.partials)
        if slot.high is None or length < slot.high:
            for partials in self._bind(step, task.partials):
                yield _Task(task.depth, partials, growing=True)

    def _complete(self, depth: int, step: Step, partials: Partials) -> Iterator[_Task]:
        """The slot is filled: what could not be decided on the way is decided now."""
        if step.slot in self.ends and partials.elements[step.slot].ndim == 2:
            last = self.matching.status[self.slots.last(step.slot, partials)]
            partials = partials.take(last == self.ends[step.slot])
        for condition in step.on_complete:
            if len(partials):
                reader = self._reader(partials)
                partials = partials.take(reader.holds(condition))
        for check in step.negations:
            if len(partials):
                partials = partials.take(self._negations.allow(check, partials))
        if len(partials):
            yield _Task(depth + 1, partials)

    def _uncovered(self, partials: Partials) -> Iterator[Partials]:
        for checks in self.steps.covered:
            if len(partials):
                held = np.ones(len(partials), dtype=np.bool_)
                for check in checks:
                    held &= self._negations.allow(check, partials)
                partials = partials.take(~held)
        if len(partials):
            yield partials

    def _reader(self, partials: Partials) -> Reader:
        return Reader(self.matching.events.columns, self.slots, partials, self.matching.tally)

    # -- binding one more element ----------------------------------------------------------------

    def _bind(self, step: Step, partials: Partials) -> Iterator[Partials]:
        if not partials.elements:
            yield from self._start(step)
            return
        reader = self._reader(partials)
        rows = scope(step, self.matching.events, self.slots, partials)
        elements, ranges = self._candidates(step, rows, reader)
        for bound in step.bounds:
            if self._grows(step.slot, bound.cell):
                column = self._values(bound.cell, elements).values
                ranges = narrowed(ranges, bound, column, reader)
        # Every level of a growing list waits with a block of its own, as wide as the list is long.
        width = 1 + sum(e.shape[1] for e in partials.elements.values() if e.ndim > 1)
        for pick, place in blocks(ranges, max(1, self._block // width)):
            self.matching.meter.pairs(len(pick))
            kept, chosen = self._tested(step, partials, reader, pick, elements[place])
            if len(kept):
                yield self._extended(step, partials, kept, chosen)

    def _start(self, step: Step) -> Iterator[Partials]:
        elements = self._pool(step.slot).elements
        filled = self.slots.elements[step.slot]
        first, last = filled.first_row(elements), filled.last_row(elements)
        fits = self.matching.events.fits(first)
        if fits is not None:
            elements, first, last = elements[fits], first[fits], last[fits]
        is_list = self.steps.branch.slots[step.slot].is_list
        bound = elements[:, np.newaxis] if is_list else elements
        partials = Partials({step.slot: bound}, first, last)
        alone = self._reader(partials)
        for condition in step.tests:
            partials_hold = alone.holds(condition)
            partials = partials.take(partials_hold)
            alone = self._reader(partials)
        self._count(step, partials)
        if len(partials):
            yield partials

    def _candidates(self, step: Step, rows: Range, reader: Reader) -> tuple[Positions, Range]:
        plain = self._pool(step.slot)
        if not step.equalities:
            return plain.elements, plain.find(rows)
        if step.slot not in self._indexes:
            self._indexes[step.slot] = IndexedPool(
                plain.elements, plain.elements, [e.cell for e in step.equalities],
                self.matching.events.columns, self.matching.events.size,
            )  # fmt: skip
        index = self._indexes[step.slot]
        bound = [reader.values(equality.bound) for equality in step.equalities]
        return index.elements, index.find(rows, bound)

    def _grows(self, slot: int, cell: Cell) -> bool:
        if (slot, cell) not in self._growing:
            elements = self._pool(slot).elements
            values = self._values(cell, elements)
            self._growing[slot, cell] = grows(values, elements, self.matching.events)
        return self._growing[slot, cell]

    def _values(self, cell: Cell, rows: Positions) -> Vector:
        assert cell.column is not None
        return self.matching.events.columns.gather(cell.column, cell.type, rows)

    def _tested(
        self, step: Step, partials: Partials, reader: Reader, pick: Positions, elements: Positions
    ) -> tuple[Positions, Positions]:
        """The pairs that survive the step's conditions."""
        kept = self._possible(step, partials, pick, elements)
        if kept is not None:
            pick, elements = pick[kept], elements[kept]
        if not step.tests:
            return pick, elements
        pairs = self._pair_reader(step, partials, reader, pick, elements)
        growing = step.slot in partials.elements
        variables = self.steps.branch.slots[step.slot].variables
        for condition in step.tests:
            if not growing and looks_back(condition, variables):
                continue
            survivors = np.flatnonzero(pairs.holds(condition))
            if len(survivors) < len(elements):
                pick, elements = pick[survivors], elements[survivors]
                pairs = pairs.select(survivors)
        return pick, elements

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
        self, step: Step, partials: Partials, pick: Positions, elements: Positions
    ) -> Partials:
        filled = self.slots.elements[step.slot]
        base = partials.take(pick)
        bound = elements
        if self.steps.branch.slots[step.slot].is_list:
            bound = elements[:, np.newaxis]
            if step.slot in base.elements:
                bound = np.concatenate([base.elements[step.slot], bound], axis=1)
        extended = Partials(
            {**base.elements, step.slot: bound},
            np.minimum(base.earliest, filled.first_row(elements)),
            np.maximum(base.latest, filled.last_row(elements)),
        )
        self._count(step, extended)
        return extended

    def _count(self, step: Step, partials: Partials) -> None:
        final = self.steps.steps[-1] is step
        if self.keeps_all or not final or self.steps.branch.slots[step.slot].is_list:
            self.matching.meter.partials(partials.earliest)

    def _pool(self, slot: int) -> Pool:
        """The slot's candidates that may take part in this advance."""
        if slot not in self._pools:
            matching, filled = self.matching, self.slots.elements[slot]
            if filled.members is None:
                allowed = matching.events.candidates(filled.slot.variables[0])
                elements = np.flatnonzero(allowed)
            else:
                assert filled.first is not None
                elements = np.arange(len(filled.first))
            status = matching.status[filled.last_row(elements)]
            kept = status != AHEAD
            if slot in self.ends and not filled.slot.is_list:
                kept = status == self.ends[slot]
            elif self.ends.get(slot) == OLD:
                kept = status == OLD
            elements = elements[kept]
            self._pools[slot] = pool(elements, filled.first_row(elements), matching.events.size)
        return self._pools[slot]
