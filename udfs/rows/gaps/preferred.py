"""The preferred match of each start: the points are joined in the order of preference.

A point's candidates come in the order that its gap prefers, so of one start the first complete
match is the preferred one, and the rest of its candidates need no look. All starts are tried at
once, set by set, with the join engine's scopes, indexes and tests.

The engine is lazy here too: as soon as a point is bound, all later points whose conditions are
decided by what is bound are looked for, the last first. A partial match for which one of them has
no row is dropped before anything between is tried, and the row that is found bounds where the
points before it may lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.joining.partials import Partials
from spark_cep.udfs.joining.scope import Range
from spark_cep.udfs.rows.gaps.distances import Distances, Ranges
from spark_cep.udfs.rows.gaps.gallop import Gallop, firsts
from spark_cep.udfs.rows.gaps.joining import possible, walk_over
from spark_cep.udfs.rows.gaps.memory import Memory, Tried

if TYPE_CHECKING:
    from spark_cep.udfs.joining.steps import Step
    from spark_cep.udfs.joining.walk import Look
    from spark_cep.udfs.rows.gaps.budget import Budget
    from spark_cep.udfs.rows.gaps.recognize import Gapped
    from spark_cep.udfs.rows.table import Table
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Tally


@dataclass(frozen=True)
class Front:
    """Partial matches, those of one start side by side, the preferred first. `group`: the
    number of their start. `ranges`: where later points may lie."""

    partials: Partials
    group: Array
    ranges: Ranges

    def __len__(self) -> int:
        return len(self.group)

    def take(self, index: Array) -> Front:
        return Front(self.partials.take(index), self.group[index], self.ranges.take(index))

    def rows(self, place: int) -> Range:
        return Range(self.ranges.low[place], self.ranges.high[place])


# Groups that have a match, each once, and its rows, a line for each point.
Won = tuple["Array", "Array"]


def _together(found: Sequence[Won]) -> Won:
    return (
        np.concatenate([groups for groups, _ in found]),
        np.concatenate([rows for _, rows in found], axis=1),
    )


class Preferred:
    def __init__(self, gapped: Gapped, table: Table, tally: Tally, budget: Budget) -> None:
        self.distances = Distances(gapped, table, tally)
        self._budget = budget
        self._last = len(gapped.points) - 1
        bits = possible(gapped, table, tally)
        can_end = self.distances.can_end()
        if can_end is not None:
            bits &= ~np.where(can_end, np.int64(0), np.int64(1 << self._last))
        self._walk = walk_over(gapped, table, bits, tally)
        self._memory = Memory(gapped, table.size)
        nobody = np.zeros(0, np.int64)
        self._nothing: Won = nobody, np.zeros((self._last + 1, 0), np.int64)
        self._block = self._walk.matching.program.block_pairs
        before = [None, *gapped.gaps[:-1]]
        self._downwards = [gap is None or gap.greedy for gap in before]

    def starts(self) -> Array:
        """Rows at which a match may begin, in order."""
        return self._walk.pools.pool(0).elements

    def matches(self, starts: Array) -> Array:
        """The preferred matches that begin at these rows, in order: a line of rows for each
        point."""
        partials = Partials({0: starts}, starts, starts)
        front = Front(partials, np.arange(len(starts)), self.distances.starts(starts))
        group, rows = _together([self._nothing, *self._settled(0, front)])
        return np.asarray(rows[:, np.argsort(group)])

    def _settled(self, bound: int, front: Front) -> Iterator[Won]:
        """The groups of the front that have a match. Points up to `bound` are bound."""
        front = self._narrowed(bound, front)
        if not len(front):
            return
        place = bound + 1
        step = self._step(bound, place)
        look = self._look(step, front)
        gallop = self._gallop(look, front.group, place)
        while (now := gallop.round()) is not None:
            partial, candidate, tried, counts = now
            self._budget.spend(front.partials.earliest[tried], counts)
            elements = look.elements[candidate]
            kept, rows, _ = self._walk.tested(step, front.partials, look.reader, partial, elements)
            if not len(kept):
                continue
            if place == self._last:
                won = self._complete(front, kept, rows)
                gallop.settle(won[0])
                yield won
                continue
            for won in self._onward(place, front.take(kept), rows):
                gallop.settle(won[0])
                yield won

    def _onward(self, place: int, front: Front, rows: Array) -> Iterator[Won]:
        """The same with one more point bound."""
        tried = self._tried(front, rows)
        worth = self._memory.open(place, tried)
        if worth is not None:
            front, rows = front.take(worth), rows[worth]
            tried = self._tried(front, rows)
        if not len(rows):
            return
        alike = self._memory.alike(place, tried)
        if alike is not None:
            yield self._for_all(place, front, rows, alike)
            return
        found = [self._nothing]
        for won in self._settled(place, self._bound(front, rows, place)):
            found.append(won)
            yield won
        groups, matches = _together(found)
        self._memory.keep(place, tried, (groups, matches[place]))

    def _for_all(self, place: int, front: Front, rows: Array, alike: tuple[Array, Array]) -> Won:
        """Finds the way on for one of each kind, and gives it to all that are alike."""
        first, like = alike
        some, last = replace(front.take(first), group=np.arange(len(first))), rows[first]
        groups, matches = _together(
            [self._nothing, *self._settled(place, self._bound(some, last, place))]
        )
        self._memory.keep(place, self._tried(some, last), (groups, matches[place]))
        way = np.full(len(first), -1, np.int64)
        way[groups] = np.arange(len(groups))
        kept = np.flatnonzero(way[like] >= 0)
        best = kept[firsts(front.group[kept])]
        onward = matches[:, way[like[best]]]
        for point in range(place):
            onward[point] = front.partials.elements[point][best]
        return front.group[best], onward

    def _tried(self, front: Front, rows: Array) -> Tried:
        limit = self.distances.limit(front.partials.earliest)
        return Tried(front.group, rows, limit, front.partials.elements)

    def _complete(self, front: Front, kept: Array, rows: Array) -> Won:
        best = firsts(front.group[kept])
        of = kept[best]
        bound = [front.partials.elements[place][of] for place in range(self._last)]
        return front.group[of], np.stack([*bound, rows[best]])

    def _bound(self, front: Front, rows: Array, place: int) -> Front:
        bound = {**front.partials.elements, place: rows}
        partials = Partials(bound, front.partials.earliest, rows)
        return Front(partials, front.group, self.distances.bound(place, rows, front.ranges))

    # ---- looking ahead -------------------------------------------------------------------------

    def _narrowed(self, bound: int, front: Front) -> Front:
        """Without the partial matches that a later point has no row for, as far as that can be
        seen of what is bound."""
        front = front.take(np.flatnonzero(front.ranges.possible(bound)))
        for place in range(self._last, bound + 1, -1):
            step = self._step(bound, place)
            if len(front) and (bound == 0 or step.tests or step.equalities):
                front = self._seen(bound, place, step, front)
        return front

    def _seen(self, bound: int, place: int, step: Step, front: Front) -> Front:
        """With the most wanted row that a later point may have: where a gap is greedy the latest,
        behind which there is none, else the earliest."""
        look = self._look(step, front)
        every = np.arange(len(front))
        gallop = self._gallop(look, every, place)
        seen = np.full(len(front), -1, np.int64)
        while (now := gallop.round()) is not None:
            partial, candidate, tried, counts = now
            self._budget.spend(front.partials.earliest[tried], counts)
            elements = look.elements[candidate]
            kept, rows, _ = self._walk.tested(step, front.partials, look.reader, partial, elements)
            best = firsts(kept)
            seen[kept[best]] = rows[best]
            gallop.settle(kept[best])
        there = np.flatnonzero(seen >= 0)
        front, seen = front.take(there), seen[there]
        if self._downwards[place]:
            front.ranges.high[place] = seen + 1
        else:
            front.ranges.low[place] = seen
        self.distances.moved(bound, front.ranges)
        return front.take(np.flatnonzero(front.ranges.possible(bound)))

    def _step(self, bound: int, place: int) -> Step:
        return self._walk.steps.step(frozenset(range(bound + 1)), frozenset({place}))

    def _look(self, step: Step, front: Front) -> Look:
        reader = self._walk.reader(front.partials)
        return self._walk.look(step, front.partials, reader, front.rows(step.slot))

    def _gallop(self, look: Look, group: Array, place: int) -> Gallop:
        return Gallop(look.ranges, group, downwards=self._downwards[place], block=self._block)
