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
import pyarrow as pa

from spark_cep.udfs.events.branch_matcher import BranchMatcher
from spark_cep.udfs.events.candidates import AdvanceCase, PositionRanges
from spark_cep.udfs.events.context import AdvanceContext
from spark_cep.udfs.events.metrics import Meter, Metrics
from spark_cep.udfs.events.partials import Partials
from spark_cep.udfs.events.table import NEW, Events
from spark_cep.udfs.expressions import BIGINT
from spark_cep.udfs.program import (
    Branch,
    BranchPlan,
    Condition,
    Limits,
    Order,
    Plan,
    Program,
    Slot,
    Tree,
    Variable,
)
from spark_cep.udfs.rows.gaps.candidates import (
    GallopingSearch,
    GapMemo,
    PartialKeys,
    PointDistances,
    PointRanges,
    group_starts,
)
from spark_cep.udfs.rows.table import condition_mask
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.events.steps import Step
    from spark_cep.udfs.events.walk import BranchWalk, StepCandidates
    from spark_cep.udfs.rows.gaps.candidates import StepBudget
    from spark_cep.udfs.rows.gaps.pattern import GapPattern, ShiftedColumn
    from spark_cep.udfs.rows.table import RowTable
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# --------------------------------------------------------------------------------------------------
# The points of a pattern as an event pattern over positions, for the join engine.
#
# Each point is a variable of a SEQ whose order key is the row's position, so no two rows are tied.
# Conditions over several points are the program's conditions; what concerns one row is in the
# candidate mask already. Distances, gaps and WITHIN are ranges of positions (`distances.py`) and
# no conditions at all.
# --------------------------------------------------------------------------------------------------


_PARTITION, _POSITION, _MASK = "partition", "position", "mask"


def build_walk(
    gapped: GapPattern, table: RowTable, possible: Array, tally: ErrorTally
) -> BranchWalk:
    """A walk of the join engine over the rows of a bucket. `point_masks`: a bit for each point that
    a row may be."""
    program = _point_program(gapped, ansi=tally.ansi)
    events = Events(program, _point_events(gapped, table, possible))
    status = np.full(events.size, NEW)
    matching = AdvanceContext(
        program, events, status, Meter(events, program.limits, Metrics()), tally
    )
    return BranchMatcher(matching, 0).walk(AdvanceCase(), range(len(gapped.points)))


def point_masks(gapped: GapPattern, table: RowTable, tally: ErrorTally) -> Array:
    """For each row the points whose own conditions it meets, as bits."""
    bits = np.zeros(table.size, np.int64)
    for place, point in enumerate(gapped.points):
        bit = np.int64(1 << place)
        if point.alone is None:
            bits |= bit
        else:
            bits |= np.where(condition_mask(point.alone, table, tally), bit, np.int64(0))
    return bits


def _point_program(gapped: GapPattern, *, ansi: bool) -> Program:
    points = range(len(gapped.points))
    sources = tuple(f"source {place}" for place in range(len(gapped.sources)))
    conditions = tuple(Condition(each.expression, "", each.points) for each in gapped.crossing)
    in_order = frozenset((a, b) for a in points for b in points if a < b)
    branch = Branch(tuple(Slot((place,)) for place in points), in_order)
    return Program(
        columns=(_PARTITION, _POSITION, _MASK, *sources),
        keys=(0,),
        orders=(Order(1, BIGINT),),
        mask=2,
        variables=tuple(Variable(str(place)) for place in points),
        conditions=conditions,
        tree=Tree("seq", parts=tuple(Tree("event", place) for place in points)),
        branches=(branch,),
        plan=Plan("tree", (BranchPlan(None),)),
        # What is tried is counted and bounded by the search itself.
        limits=Limits(None, None),
        ansi=ansi,
    )


def _point_events(gapped: GapPattern, table: RowTable, possible: Array) -> pa.Table:
    sizes = table.ends - table.begins
    columns = {
        _PARTITION: pa.array(np.repeat(np.arange(len(sizes)), sizes)),
        _POSITION: pa.array(np.arange(table.size)),
        _MASK: pa.array(possible),
    }
    for place, source in enumerate(gapped.sources):
        columns[f"source {place}"] = _column_values(source, table)
    return pa.table(columns)


def _column_values(source: ShiftedColumn, table: RowTable) -> pa.Array:
    """The values in the order of positions, NULL where there is no such row."""
    outside = ~table.inside(source.shift)
    if source.column is None:
        return pa.array(np.ones(table.size, np.bool_), mask=outside)
    column = to_single_array(table.shipped.column(source.column))
    if source.shift == 0:
        return column if table.permutation is None else column.take(pa.array(table.permutation))
    at = np.where(outside, 0, np.arange(table.size) + source.shift)
    return column.take(pa.array(table.rows(at), mask=outside))


@dataclass(frozen=True)
class OrderedPartials:
    """Partial matches, those of one start side by side, the preferred first. `group`: the
    number of their start. `ranges`: where later points may lie."""

    partials: Partials
    group: Array
    ranges: PointRanges

    def __len__(self) -> int:
        return len(self.group)

    def take(self, index: Array) -> OrderedPartials:
        return OrderedPartials(
            self.partials.take(index), self.group[index], self.ranges.take(index)
        )

    def rows(self, place: int) -> PositionRanges:
        return PositionRanges(self.ranges.low[place], self.ranges.high[place])


# Groups that have a match, each once, and its rows, a line for each point.
GroupMatches = tuple["Array", "Array"]


def _concatenate(found: Sequence[GroupMatches]) -> GroupMatches:
    return (
        np.concatenate([groups for groups, _ in found]),
        np.concatenate([rows for _, rows in found], axis=1),
    )


class PreferredMatcher:
    def __init__(
        self, gapped: GapPattern, table: RowTable, tally: ErrorTally, budget: StepBudget
    ) -> None:
        self.distances = PointDistances(gapped, table, tally)
        self._budget = budget
        self._last = len(gapped.points) - 1
        bits = point_masks(gapped, table, tally)
        can_end = self.distances.can_end()
        if can_end is not None:
            bits &= ~np.where(can_end, np.int64(0), np.int64(1 << self._last))
        self._walk = build_walk(gapped, table, bits, tally)
        self._memory = GapMemo(gapped, table.size)
        nobody = np.zeros(0, np.int64)
        self._nothing: GroupMatches = nobody, np.zeros((self._last + 1, 0), np.int64)
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
        front = OrderedPartials(partials, np.arange(len(starts)), self.distances.starts(starts))
        group, rows = _concatenate([self._nothing, *self._settled(0, front)])
        return np.asarray(rows[:, np.argsort(group)])

    def _settled(self, bound: int, front: OrderedPartials) -> Iterator[GroupMatches]:
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
            kept, rows, _ = self._walk.test_pairs(
                step, front.partials, look.reader, partial, elements
            )
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

    def _onward(self, place: int, front: OrderedPartials, rows: Array) -> Iterator[GroupMatches]:
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
        groups, matches = _concatenate(found)
        self._memory.keep(place, tried, (groups, matches[place]))

    def _for_all(
        self, place: int, front: OrderedPartials, rows: Array, alike: tuple[Array, Array]
    ) -> GroupMatches:
        """Finds the way on for one of each kind, and gives it to all that are alike."""
        first, like = alike
        some, last = replace(front.take(first), group=np.arange(len(first))), rows[first]
        groups, matches = _concatenate(
            [self._nothing, *self._settled(place, self._bound(some, last, place))]
        )
        self._memory.keep(place, self._tried(some, last), (groups, matches[place]))
        way = np.full(len(first), -1, np.int64)
        way[groups] = np.arange(len(groups))
        kept = np.flatnonzero(way[like] >= 0)
        best = kept[group_starts(front.group[kept])]
        onward = matches[:, way[like[best]]]
        for point in range(place):
            onward[point] = front.partials.elements[point][best]
        return front.group[best], onward

    def _tried(self, front: OrderedPartials, rows: Array) -> PartialKeys:
        limit = self.distances.limit(front.partials.earliest)
        return PartialKeys(front.group, rows, limit, front.partials.elements)

    def _complete(self, front: OrderedPartials, kept: Array, rows: Array) -> GroupMatches:
        best = group_starts(front.group[kept])
        of = kept[best]
        bound = [front.partials.elements[place][of] for place in range(self._last)]
        return front.group[of], np.stack([*bound, rows[best]])

    def _bound(self, front: OrderedPartials, rows: Array, place: int) -> OrderedPartials:
        bound = {**front.partials.elements, place: rows}
        partials = Partials(bound, front.partials.earliest, rows)
        return OrderedPartials(
            partials, front.group, self.distances.bound(place, rows, front.ranges)
        )

    # ---- looking ahead -------------------------------------------------------------------------

    def _narrowed(self, bound: int, front: OrderedPartials) -> OrderedPartials:
        """Without the partial matches that a later point has no row for, as far as that can be
        seen of what is bound."""
        front = front.take(np.flatnonzero(front.ranges.possible(bound)))
        for place in range(self._last, bound + 1, -1):
            step = self._step(bound, place)
            if len(front) and (bound == 0 or step.tests or step.equalities):
                front = self._seen(bound, place, step, front)
        return front

    def _seen(self, bound: int, place: int, step: Step, front: OrderedPartials) -> OrderedPartials:
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
            kept, rows, _ = self._walk.test_pairs(
                step, front.partials, look.reader, partial, elements
            )
            best = group_starts(kept)
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

    def _look(self, step: Step, front: OrderedPartials) -> StepCandidates:
        reader = self._walk.reader(front.partials)
        return self._walk.find_candidates(step, front.partials, reader, front.rows(step.slot))

    def _gallop(self, look: StepCandidates, group: Array, place: int) -> GallopingSearch:
        return GallopingSearch(
            look.ranges, group, downwards=self._downwards[place], block=self._block
        )
