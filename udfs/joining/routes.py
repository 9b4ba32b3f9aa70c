"""Where a walk starts and where it goes on: the plans, as far as they differ.

A chain binds the units of its shape one after the other; a unit that is a join is found first, by
a walk of its own. A tree NFA lets each partial match go on with the slot that has the fewest
events in its own scope, weighed by what its conditions were seen to let through, and drops it at
once where some slot has none. Both start from rows; a chain whose shape begins with a group that
is kept in the state starts from that group's partial matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.joining.joins import Unit, join
from spark_cep.udfs.joining.partials import Partials, together
from spark_cep.udfs.joining.regions import regions
from spark_cep.udfs.joining.walk import Task
from spark_cep.udfs.planning.shapes import slots_of

if TYPE_CHECKING:
    from spark_cep.udfs.joining.steps import Step
    from spark_cep.udfs.joining.walk import Look, Walk
    from spark_cep.udfs.program import Shape

NOTHING: frozenset[int] = frozenset()
# The first of a walk's starts, and by what factor the following groups of them grow.
FIRST_PARTIALS = 16
GROWTH = 8
# Lists double with each candidate; beyond this they are simply last.
MOST_LIST_CANDIDATES = 60


def units(shape: Shape) -> tuple[Shape, ...]:
    """What a chain binds one after the other: the first slot, then each right side.

    >>> units(((2, 1), (0, 3)))
    (2, 1, (0, 3))
    """
    return (shape,) if isinstance(shape, int) else (*units(shape[0]), shape[1])


@dataclass
class Chain:
    """`kept`: partial matches of groups of slots that need not be found again."""

    shape: Shape
    kept: Mapping[frozenset[int], Sequence[Partials]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bound = NOTHING
        self._next: dict[frozenset[int], Shape] = {}
        for unit in units(self.shape):
            self._next[bound] = unit
            bound |= frozenset(slots_of(unit))
        self._begins = max(
            (b for b in (*self._next, bound) if b in self.kept), key=len, default=NOTHING
        )
        self._units: dict[frozenset[int], list[Unit]] = {}

    def starts(self, walk: Walk) -> Iterator[Task]:
        if self._begins:
            for partials in self.kept[self._begins]:
                yield Task(partials, self._begins)
            return
        first = slots_of(self.shape)[0]
        step = walk.steps.step(NOTHING, frozenset({first}))
        yield from walk.start(step, walk.pools.pool(first).elements)

    def onward(self, walk: Walk, task: Task) -> Iterator[Task]:
        shape = self._next[task.bound]
        unit = frozenset(slots_of(shape))
        step = walk.steps.step(task.bound, unit)
        if isinstance(shape, int):
            return walk.extend(task, step)
        if unit not in self._units:
            self._units[unit] = [Unit(each) for each in self._found(walk, shape, unit)]
        return join(walk, task, step, self._units[unit])

    def steps(self, walk: Walk, task: Task) -> Sequence[Step]:
        unit = frozenset(slots_of(self._next[task.bound]))
        return (walk.steps.step(task.bound, unit),)

    def _found(self, walk: Walk, shape: Shape, unit: frozenset[int]) -> Sequence[Partials]:
        if unit in self.kept:
            return self.kept[unit]
        inner = replace(walk, target=unit, keeps_all=True)
        return together(inner.run(Chain(shape, self.kept)))


class Tree:
    """Each partial's own order. A step is compiled when the first partial needs it."""

    def starts(self, walk: Walk) -> Iterator[Task]:
        for starts in regions(walk):
            step = walk.steps.step(NOTHING, frozenset({starts.slot}))
            yield from walk.start(step, starts.elements, starts.places)

    def onward(self, walk: Walk, task: Task) -> Iterator[Task]:
        if len(task.bound) > 1 or len(task.partials) <= FIRST_PARTIALS:
            yield from self._routed(walk, task)
            return
        # All starts of a walk may come in one task: the first few show what conditions keep.
        begin, count = 0, FIRST_PARTIALS
        while begin < len(task.partials):
            some = np.arange(begin, min(begin + count, len(task.partials)))
            yield from self._routed(walk, replace(task, partials=task.partials.take(some)))
            begin, count = begin + count, count * GROWTH

    def steps(self, walk: Walk, task: Task) -> Sequence[Step]:
        left = sorted(walk.target - task.bound)
        return [walk.steps.step(task.bound, frozenset({slot})) for slot in left]

    def _routed(self, walk: Walk, task: Task) -> Iterator[Task]:
        steps = self.steps(walk, task)
        if len(steps) == 1:
            yield from walk.extend(task, steps[0])
            return
        reader = walk.reader(task.partials)
        looks = [walk.look(step, task.partials, reader) for step in steps]
        weights = np.stack(
            [_weights(walk, step, look) for step, look in zip(steps, looks, strict=True)]
        )
        # Ties go to the slot that is rarer for all of them together, so that sets stay large.
        order = np.argsort(weights.sum(axis=1), kind="stable")
        chosen = order[np.argmin(weights[order], axis=0)]
        possible = _possible(walk, steps, looks)
        for place, (step, look) in enumerate(zip(steps, looks, strict=True)):
            mine = np.flatnonzero((chosen == place) & possible)
            if len(mine):
                partials = task.partials.take(mine)
                yield from walk.extend(
                    replace(task, partials=partials), step, look.take(mine, partials)
                )


def _weights(walk: Walk, step: Step, look: Look) -> npt.NDArray[np.float64]:
    counts = look.counts().astype(np.float64)
    for condition in step.tests:
        counts *= walk.matching.meter.kept_share(condition)
    if walk.slot(step.slot).is_list:
        return np.exp2(np.minimum(counts, MOST_LIST_CANDIDATES))
    return counts


def _possible(walk: Walk, steps: Sequence[Step], looks: Sequence[Look]) -> npt.NDArray[np.bool_]:
    """Partials for which every slot has the events that it needs."""
    needed = [max(1, walk.slot(step.slot).low) for step in steps]
    enough = [look.counts() >= low for look, low in zip(looks, needed, strict=True)]
    possible: npt.NDArray[np.bool_] = np.logical_and.reduce(enough)
    return possible
