"""The preferred match of each start: the points are joined in the order of preference.

The candidates of a point come in the order that its gap prefers, so the first complete match of a
start is the preferred one, and the other candidates of the start need not be tried. All starts are
searched at once, with the scopes, indexes and tests of the join engine.
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


_PARTITION, _POSITION, _MASK = "partition", "position", "mask"


# ---- the search --------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrderedPartials:
    """Partial matches, those of one start adjacent and the preferred one first. `group`: the number
    of the start. `ranges`: where later points may lie."""

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


# Groups with a match, each once, and the rows of the match, a line for each point.
GroupMatches = tuple["Array", "Array"]


class PreferredMatcher:
    """Finds the preferred match of each start.

    The search is lazy: as soon as a point is bound, it looks ahead to all later points with
    conditions that the bound points decide, the last point first. A partial match for which one of
    them has no row is dropped before any point in between is tried, and the row that is found
    bounds where the points before it may lie.
    """

    def __init__(
        self, gap_pattern: GapPattern, table: RowTable, tally: ErrorTally, budget: StepBudget
    ) -> None:
        self.distances = PointDistances(gap_pattern, table, tally)
        self._budget = budget
        self._last = len(gap_pattern.points) - 1
        bits = point_masks(gap_pattern, table, tally)
        can_end = self.distances.can_end()
        if can_end is not None:
            bits &= ~np.where(can_end, np.int64(0), np.int64(1 << self._last))
        self._walk = build_walk(gap_pattern, table, bits, tally)
        self._memory = GapMemo(gap_pattern, table.size)
        no_groups = np.zeros(0, np.int64)
        self._no_matches: GroupMatches = no_groups, np.zeros((self._last + 1, 0), np.int64)
        self._block = self._walk.matching.program.block_pairs
        before = [None, *gap_pattern.gaps[:-1]]
        self._downwards = [gap is None or gap.greedy for gap in before]

    def starts(self) -> Array:
        """The rows at which a match may begin, in order."""
        return self._walk.pools.pool(0).elements

    def matches(self, starts: Array) -> Array:
        """The preferred matches that begin at these rows, in order: a line of rows for each
        point."""
        partials = Partials({0: starts}, starts, starts)
        front = OrderedPartials(partials, np.arange(len(starts)), self.distances.starts(starts))
        group, rows = _concatenate([self._no_matches, *self._matches(0, front)])
        return np.asarray(rows[:, np.argsort(group)])

    def _matches(self, bound: int, front: OrderedPartials) -> Iterator[GroupMatches]:
        """The matches of the groups of the front that have one. Points up to `bound` are bound."""
        front = self._prune(bound, front)
        if not len(front):
            return
        place = bound + 1
        step = self._step(bound, place)
        candidates = self._candidates(step, front)
        gallop = self._gallop(candidates, front.group, place)
        for kept, rows in self._rounds(gallop, candidates, step, front):
            if not len(kept):
                continue
            if place == self._last:
                won = self._complete(front, kept, rows)
                gallop.settle(won[0])
                yield won
                continue
            for won in self._bind(place, front.take(kept), rows):
                gallop.settle(won[0])
                yield won

    def _bind(self, place: int, front: OrderedPartials, rows: Array) -> Iterator[GroupMatches]:
        """The matches of the groups of the front once the point `place` is bound to these rows."""
        tried = self._keys(front, rows)
        untried = self._memory.open(place, tried)
        if untried is not None:
            front, rows = front.take(untried), rows[untried]
            tried = self._keys(front, rows)
        if not len(rows):
            return
        alike = self._memory.alike(place, tried)
        if alike is not None:
            yield self._share(place, front, rows, alike)
            return
        found = [self._no_matches]
        for won in self._matches(place, self._bound(front, rows, place)):
            found.append(won)
            yield won
        groups, matches = _concatenate(found)
        self._memory.keep(place, tried, (groups, matches[place]))

    def _share(
        self, place: int, front: OrderedPartials, rows: Array, alike: tuple[Array, Array]
    ) -> GroupMatches:
        """Searches the continuation of one partial match of each kind, and gives it to all that are
        alike."""
        first, kind = alike
        some, last = replace(front.take(first), group=np.arange(len(first))), rows[first]
        groups, matches = _concatenate(
            [self._no_matches, *self._matches(place, self._bound(some, last, place))]
        )
        self._memory.keep(place, self._keys(some, last), (groups, matches[place]))
        match_of = np.full(len(first), -1, np.int64)
        match_of[groups] = np.arange(len(groups))
        kept = np.flatnonzero(match_of[kind] >= 0)
        best = kept[group_starts(front.group[kept])]
        complete = matches[:, match_of[kind[best]]]
        for point in range(place):
            complete[point] = front.partials.elements[point][best]
        return front.group[best], complete

    def _keys(self, front: OrderedPartials, rows: Array) -> PartialKeys:
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

    def _prune(self, bound: int, front: OrderedPartials) -> OrderedPartials:
        """Drops the partial matches for which a later point has no row, as far as the bound points
        decide that."""
        front = front.take(np.flatnonzero(front.ranges.possible(bound)))
        for place in range(self._last, bound + 1, -1):
            step = self._step(bound, place)
            if len(front) and (bound == 0 or step.tests or step.equalities):
                front = self._look_ahead(bound, place, step, front)
        return front

    def _look_ahead(
        self, bound: int, place: int, step: Step, front: OrderedPartials
    ) -> OrderedPartials:
        """Finds the preferred row that a later point may have, and narrows its range to it: after a
        greedy gap the latest row, else the earliest. Drops partial matches without such a row."""
        candidates = self._candidates(step, front)
        # Every partial match is a group of its own: each needs a row.
        gallop = self._gallop(candidates, np.arange(len(front)), place)
        seen = np.full(len(front), -1, np.int64)
        for kept, rows in self._rounds(gallop, candidates, step, front):
            best = group_starts(kept)
            seen[kept[best]] = rows[best]
            gallop.settle(kept[best])
        has_row = np.flatnonzero(seen >= 0)
        front, seen = front.take(has_row), seen[has_row]
        if self._downwards[place]:
            front.ranges.high[place] = seen + 1
        else:
            front.ranges.low[place] = seen
        self.distances.tighten(bound, front.ranges)
        return front.take(np.flatnonzero(front.ranges.possible(bound)))

    # ---- candidates of one point ---------------------------------------------------------------

    def _step(self, bound: int, place: int) -> Step:
        return self._walk.steps.step(frozenset(range(bound + 1)), frozenset({place}))

    def _candidates(self, step: Step, front: OrderedPartials) -> StepCandidates:
        reader = self._walk.reader(front.partials)
        return self._walk.find_candidates(step, front.partials, reader, front.rows(step.slot))

    def _gallop(self, candidates: StepCandidates, group: Array, place: int) -> GallopingSearch:
        return GallopingSearch(
            candidates.ranges, group, downwards=self._downwards[place], block=self._block
        )

    def _rounds(
        self,
        gallop: GallopingSearch,
        candidates: StepCandidates,
        step: Step,
        front: OrderedPartials,
    ) -> Iterator[tuple[Array, Array]]:
        """Tests the candidates round by round: the partial matches that are extended, and the rows
        that extend them. What is settled between two rounds is not tried in the next."""
        while (tries := gallop.round()) is not None:
            partial, candidate, first, counts = tries
            self._budget.spend(front.partials.earliest[first], counts)
            tested, _ = self._walk.test_pairs(
                step, front.partials, candidates.reader, partial, candidates.elements[candidate]
            )
            yield tested.pick, tested.elements


def _concatenate(parts: Sequence[GroupMatches]) -> GroupMatches:
    return (
        np.concatenate([groups for groups, _ in parts]),
        np.concatenate([rows for _, rows in parts], axis=1),
    )


# ---- points as an event pattern ----------------------------------------------------------------


def build_walk(
    gap_pattern: GapPattern, table: RowTable, possible: Array, tally: ErrorTally
) -> BranchWalk:
    """A walk of the join engine over the rows of a bucket. `possible`: for each row, a bit for each
    point that it may be.

    Each point is a variable of a SEQ whose order key is the position of the row, so no two rows are
    tied. Conditions over several points are the conditions of the program; those on one row are in
    `possible` already. Distances, gaps and WITHIN are ranges of positions (`PointDistances`) and
    not conditions.
    """
    program = _point_program(gap_pattern, ansi=tally.ansi)
    events = Events(program, _point_events(gap_pattern, table, possible))
    status = np.full(events.size, NEW)
    context = AdvanceContext(
        program, events, status, Meter(events, program.limits, Metrics()), tally
    )
    return BranchMatcher(context, 0).walk(AdvanceCase(), range(len(gap_pattern.points)))


def point_masks(gap_pattern: GapPattern, table: RowTable, tally: ErrorTally) -> Array:
    """For each row, the points whose own conditions it meets, as bits."""
    bits = np.zeros(table.size, np.int64)
    for place, point in enumerate(gap_pattern.points):
        bit = np.int64(1 << place)
        if point.own_condition is None:
            bits |= bit
        else:
            bits |= np.where(condition_mask(point.own_condition, table, tally), bit, np.int64(0))
    return bits


def _point_program(gap_pattern: GapPattern, *, ansi: bool) -> Program:
    points = range(len(gap_pattern.points))
    sources = tuple(f"source {place}" for place in range(len(gap_pattern.sources)))
    conditions = tuple(
        Condition(each.expression, "", each.points) for each in gap_pattern.join_conjuncts
    )
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
        # The search itself counts and bounds its steps.
        limits=Limits(None, None),
        ansi=ansi,
    )


def _point_events(gap_pattern: GapPattern, table: RowTable, possible: Array) -> pa.Table:
    sizes = table.ends - table.begins
    columns = {
        _PARTITION: pa.array(np.repeat(np.arange(len(sizes)), sizes)),
        _POSITION: pa.array(np.arange(table.size)),
        _MASK: pa.array(possible),
    }
    for place, source in enumerate(gap_pattern.sources):
        columns[f"source {place}"] = _column_values(source, table)
    return pa.table(columns)


def _column_values(source: ShiftedColumn, table: RowTable) -> pa.Array:
    """The values in the order of positions, NULL where there is no row at that shift."""
    outside = ~table.inside(source.shift)
    if source.column is None:
        return pa.array(np.ones(table.size, np.bool_), mask=outside)
    column = to_single_array(table.shipped.column(source.column))
    if source.shift == 0:
        return column if table.permutation is None else column.take(pa.array(table.permutation))
    at = np.where(outside, 0, np.arange(table.size) + source.shift)
    return column.take(pa.array(table.rows(at), mask=outside))
