"""Joining two sets of partial matches: the inner nodes of a ZStream tree, and APAM's merge.

The left side is walked block by block as ever; the right side, the unit, was found before and is
looked up by the rows of one of its slots, the anchor, and by equal values. What the anchor's range
cannot say (other slots' order, the window over both, rows taken twice) is tested on the pairs;
conditions are tested on the joined partial matches, where every variable reads as usual, lists
and what is computed over them too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.joining.scope import IndexedPool, Pool, blocks, scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.joining.partials import Partials
    from spark_cep.udfs.joining.steps import Step
    from spark_cep.udfs.joining.walk import Task, Walk

_Key = tuple[int, tuple["Cell", ...]]


@dataclass
class Unit:
    """Partial matches to be looked up, all of one shape; indexes are made when first needed."""

    partials: Partials
    _pools: dict[int, tuple[Partials, Pool]] = field(default_factory=dict)
    _indexes: dict[_Key, tuple[Partials, IndexedPool]] = field(default_factory=dict)

    def by_position(self, walk: Walk, slot: int) -> tuple[Partials, Pool]:
        """In the order of the first row of `slot`."""
        if slot not in self._pools:
            first = walk.slots.first(slot, self.partials)
            order = np.argsort(first, kind="stable")
            rows = Pool(np.arange(len(order)), first[order], walk.matching.events.size)
            self._pools[slot] = self.partials.take(order), rows
        return self._pools[slot]

    def by_values(self, walk: Walk, step: Step) -> tuple[Partials, IndexedPool]:
        """The same, by the values that the step's equalities ask for."""
        key = step.slot, tuple(equality.cell for equality in step.equalities)
        if key not in self._indexes:
            ordered, _ = self.by_position(walk, step.slot)
            keys = [(cell, walk.slots.rows(cell.variable, ordered)) for cell in key[1]]
            first = walk.slots.first(step.slot, ordered)
            events = walk.matching.events
            index = IndexedPool(np.arange(len(ordered)), first, keys, events.columns, events.size)
            self._indexes[key] = ordered, index
        return self._indexes[key]


def join(walk: Walk, task: Task, step: Step, units: Sequence[Unit]) -> Iterator[Task]:
    """The task's partials with the partial matches of the units, the step's slots bound."""
    for unit in units:
        for partials in _joined(walk, task, step, unit):
            yield from walk.complete(task.bound, step, partials)


def _joined(walk: Walk, task: Task, step: Step, unit: Unit) -> Iterator[Partials]:
    matching, partials = walk.matching, task.partials
    meter, reader = matching.meter, walk.reader(partials)
    rows = scope(step, matching.events, walk.slots, partials)
    right, plain = unit.by_position(walk, step.slot)
    ranges, places = plain.find(rows), plain.elements
    if step.equalities:
        right, index = unit.by_values(walk, step)
        places = index.elements
        found = index.find(rows, [reader.values(e.bound) for e in step.equalities])
        sizes = [int(np.maximum(r.high - r.low, 0).sum()) for r in (ranges, found)]
        meter.tested([e.condition for e in step.equalities], *sizes)
        ranges = found
    node = walk.branch, task.bound | step.unit
    for pick, place in blocks(ranges, matching.program.block_pairs):
        chosen = places[place]
        possible = _possible(walk, step, (partials, right), (pick, chosen))
        meter.pairs(len(pick))
        if meter.trace is not None:
            meter.trace.add(np.maximum(partials.latest[pick], right.latest[chosen]), None)
        joined = _together(partials.take(pick[possible]), right.take(chosen[possible]))
        joined = _tested(walk, step, joined)
        meter.node(node, len(place), len(joined))
        if meter.trace is not None:
            meter.trace.add(None, joined.latest)
        if walk.keeps_all or task.bound | step.unit != walk.target:
            meter.partials(joined.earliest)
        if len(joined):
            yield joined


def _possible(
    walk: Walk,
    step: Step,
    sides: tuple[Partials, Partials],
    pairs: tuple[Positions, Positions],
) -> Flags:
    """Pairs in one window, in order, without a row that is on both sides."""
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
        for taken in _columns(walk, mine, left):
            for new in _columns(walk, theirs, right):
                possible &= taken[pick] != new[chosen]
    return possible


def _columns(walk: Walk, slot: int, partials: Partials) -> list[Positions]:
    return [column for rows in walk.slots.all_rows(slot, partials) for column in rows.T]


def _together(left: Partials, right: Partials) -> Partials:
    return replace(
        left,
        elements={**left.elements, **right.elements},
        earliest=np.minimum(left.earliest, right.earliest),
        latest=np.maximum(left.latest, right.latest),
    )


def _tested(walk: Walk, step: Step, joined: Partials) -> Partials:
    for condition in step.tests:
        if not len(joined):
            break
        joined = walk.held(condition, joined)
    return joined
