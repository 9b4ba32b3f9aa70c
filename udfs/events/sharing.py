"""Beginnings that several branches have in common are walked once.

An OR or an optional part makes a branch for each alternative, and often all of them begin with the
same slots: in SEQ(a, b, any_of(c, d)) both join a with b. Here the walks of all branches are one
tree: partial matches of a common beginning go on in each branch, block by block, so that no more of
them are held than in a walk of a single branch.

A beginning is common as far as its compiled steps are the same: slots, order, conditions, NOTs, and
the rules of the case. Partial matches of these slots are then the same in each branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from spark_cep.udfs.events.routes import ChainRoute, TreeRoute, chain_units
from spark_cep.udfs.events.walk import WalkTask
from spark_cep.udfs.planning.shapes import left_deep_shape, slots_of

if TYPE_CHECKING:
    from spark_cep.udfs.events.branch_matcher import BranchMatcher, PartialsByGroup
    from spark_cep.udfs.events.candidates import AdvanceCase
    from spark_cep.udfs.events.case_orders import CaseOrders
    from spark_cep.udfs.events.context import MatchSet
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.steps import NegationCheck, Step
    from spark_cep.udfs.events.walk import BranchWalk
    from spark_cep.udfs.program import Shape


# What binding a unit does, by variables instead of slot numbers. Units with equal keys make the
# same partial matches of the same ones.
UnitKey = tuple[object, ...]
# Sharing the rows from which walks start saves nothing: only joins count.
LEAST_UNITS = 2


@dataclass
class BranchRun:
    """One case of one branch, and the shape that it runs; None for a tree NFA.

    `kept`: the partial matches of eager groups that are known. `order_slot`: the slot whose new
    rows make the case, where not all rows are new.
    """

    matcher: BranchMatcher
    case: AdvanceCase
    walk: BranchWalk
    shape: Shape | None
    kept: PartialsByGroup
    orders: CaseOrders
    order_slot: int | None

    @cached_property
    def units(self) -> tuple[Shape, ...]:
        return () if self.shape is None else chain_units(self.shape)

    @cached_property
    def keys(self) -> tuple[UnitKey, ...]:
        """The keys of the units as far as other branches may have the same. Not where the walk
        begins with what is kept, and not where partial matches wait for remote data: each walk
        decides by itself which conditions they pass untested."""
        if self.kept or self.walk.matching.tally.lookups:
            return ()
        keys: list[UnitKey] = []
        bound: frozenset[int] = frozenset()
        for unit in self.units:
            key = self._unit_key(bound, unit)
            bound |= frozenset(slots_of(unit))
            is_whole = len(bound) == len(self.matcher.branch.slots)
            if key is None or (is_whole and self.matcher.branch.covered):
                break
            keys.append(key)
        return tuple(keys)

    @cached_property
    def route(self) -> ChainRoute | TreeRoute:
        if self.shape is None:
            return TreeRoute()
        return ChainRoute(self.shape, self.matcher.filter_kept(self.kept, self.case))

    def matches(self, begun: Beginning | None = None) -> Iterator[MatchSet]:
        """The matches of the case; with `begun`, those that go on from these partial matches."""
        for partials in self._complete(begun):
            yield from self.matcher.finish(partials)

    def _complete(self, begun: Beginning | None) -> Iterator[Partials]:
        if begun is not None and begun.units == len(self.units):
            return iter([begun.task(self).partials])
        starts = None if begun is None else [begun.task(self)]
        known = self.kept if begun is None else [begun.slots(self)]
        ran = self.orders.describe(self.matcher.number, self.shape, self.order_slot, known)
        return self._count(ran, self.walk.run(self.route, starts))

    def extend(self, begun: Beginning | None, units: int) -> Iterator[Beginning]:
        """The partial matches of the first units, which other runs share."""
        starts = None if begun is None else [begun.task(self)]
        shape = left_deep_shape(self.units[:units])
        target = frozenset(slots_of(shape))
        slot = self.order_slot if self.order_slot in target else None
        known = () if begun is None else [begun.slots(self)]
        ran = self.orders.describe(self.matcher.number, shape, slot, known)
        walk = replace(self.walk, target=target, keeps_all=True)
        for partials in self._count(f"{ran}, shared", walk.run(self.route, starts)):
            yield Beginning(self, units, partials)

    def _count(self, order: str, found: Iterable[Partials]) -> Iterator[Partials]:
        """Counts the pairs of a walk, without those of the walks that go on in between."""
        walk = iter(found)
        while True:
            with self.walk.matching.meter.count_order(order):
                partials = next(walk, None)
            if partials is None:
                return
            yield partials

    # ---- what a unit does ----------------------------------------------------------------------

    def _unit_key(self, bound: frozenset[int], unit: Shape) -> UnitKey | None:
        """None where the elements are numbered in each branch by themselves: in repeated groups."""
        branch, members = self.matcher.branch, slots_of(unit)
        slots = [branch.slots[slot] for slot in members]
        if any(slot.is_group for slot in slots):
            return None
        inner: list[UnitKey | None] = []
        if not isinstance(unit, int):
            inside: frozenset[int] = frozenset()
            for each in chain_units(unit):
                inner.append(self._unit_key(inside, each))
                inside |= frozenset(slots_of(each))
        step = self.matcher.steps.step(bound, frozenset(members))
        rules = [self.case.rule(slot) for slot in members]
        return tuple(slots), tuple(rules), tuple(inner), self._step_key(step)

    def _step_key(self, step: Step) -> UnitKey:
        name, names = self._variables, self._variables_of
        return (
            name(step.slot),
            *(names(slots) for slots in (step.after, step.before, step.unordered)),
            (step.equalities, step.bounds, step.tests, step.on_complete),
            tuple(self._negation_key(check) for check in step.negations),
            frozenset((name(one), name(two)) for one, two in step.orders),
            frozenset((name(one), name(two)) for one, two in step.apart),
        )

    def _negation_key(self, check: NegationCheck) -> UnitKey:
        negation = check.negation
        return (
            (negation.variable, negation.place, negation.group),
            *(self._variables_of(each) for each in (negation.after, negation.before, check.inside)),
            (check.tests, check.equalities, check.occurrence),
        )

    def _variables(self, slot: int) -> tuple[int, ...]:
        return self.matcher.branch.slots[slot].variables

    def _variables_of(self, slots: Iterable[int]) -> frozenset[tuple[int, ...]]:
        return frozenset(self._variables(slot) for slot in slots)


@dataclass(frozen=True)
class Beginning:
    """Partial matches of the first units of a run."""

    run: BranchRun
    units: int
    partials: Partials

    def slots(self, run: BranchRun) -> frozenset[int]:
        """The slots of another run that begins alike."""
        return frozenset(slot for unit in run.units[: self.units] for slot in slots_of(unit))

    def task(self, run: BranchRun) -> WalkTask:
        """The partial matches as the walk of another run has them."""
        partials = self.partials
        if run.matcher is not self.run.matcher:
            mine = self.run.matcher.branch.slots
            place = {slot.variables: n for n, slot in enumerate(run.matcher.branch.slots)}
            elements = {place[mine[s].variables]: rows for s, rows in partials.elements.items()}
            partials = replace(partials, elements=elements)
        return WalkTask(partials, self.slots(run))


def run_together(runs: Sequence[BranchRun], begun: Beginning | None = None) -> Iterator[MatchSet]:
    """The matches of all runs, which have `begun` in common."""
    depth = 0 if begun is None else begun.units
    for alike in groups_alike(runs, depth):
        if len(alike) == 1:
            yield from alike[0].matches(begun)
            continue
        for longer in alike[0].extend(begun, _common_units(alike)):
            yield from run_together(alike, longer)


def groups_alike(runs: Sequence[BranchRun], depth: int) -> list[list[BranchRun]]:
    """The runs that go on alike after their first `depth` units."""
    if len(runs) == 1:
        return [list(runs)]
    groups: list[list[BranchRun]] = []
    upto = max(depth + 1, LEAST_UNITS)
    for run in runs:
        own = run.keys[depth:upto]
        alike = (g for g in groups if depth + len(own) == upto and g[0].keys[depth:upto] == own)
        found = next(alike, None)
        if found is None:
            groups.append([run])
        else:
            found.append(run)
    return groups


def _common_units(runs: Sequence[BranchRun]) -> int:
    first, *others = (run.keys for run in runs)
    count = 0
    while all(len(keys) > count for keys in (first, *others)) and all(
        keys[count] == first[count] for keys in others
    ):
        count += 1
    return count
