"""Skip till any match: every combination of a branch, by whatever plan.

Which matches are given in this advance is decided by which of their rows are new: the latest, the
earliest, or any of them (`Matching.given_by`). That is pushed into the candidates, case by case
(`cases.py`). Where the row that a case is about can be far fewer rows than the plan's first slot
has, as in a stream whose triggers are shorter than its window, the walk begins there instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.candidates import (
    ANY_STATUS,
    IS_NEW,
    IS_OLD,
    AdvanceCase,
    SlotCandidates,
    StatusRule,
    cases_by_any,
    cases_by_earliest,
    cases_by_latest,
    meets_rule,
)
from spark_cep.udfs.events.context import AdvanceContext, MatchSet
from spark_cep.udfs.events.partials import BranchSlots, Partials, SlotElements, merge_partials
from spark_cep.udfs.events.routes import ChainRoute, TreeRoute
from spark_cep.udfs.events.steps import BranchSteps
from spark_cep.udfs.events.table import NEW, OLD
from spark_cep.udfs.events.walk import BranchWalk
from spark_cep.udfs.planning.shapes import left_deep_shape, slots_of, with_first

if TYPE_CHECKING:
    from spark_cep.udfs.events.steps import GroupBody
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import BranchPlan, Shape, Slot


# Work inside a group belongs to no branch's plan.
GROUP_BRANCH = -1
# How many times fewer rows a slot must have for the walk to leave the plan's order.
REORDER_FACTOR = 4
PartialsByGroup = Mapping[frozenset[int], Sequence[Partials]]


class BranchMatcher:
    """One branch over the events of one advance."""

    def __init__(self, matching: AdvanceContext, number: int) -> None:
        self.matching = matching
        self.number = number
        self.branch = matching.program.branches[number]
        self.steps = BranchSteps(self.branch, matching.program, matching.program.conditions)
        self.slots = BranchSlots(
            {
                place: _find_elements(matching, slot, self.steps.bodies.get(place))
                for place, slot in enumerate(self.branch.slots)
            }
        )

    def matches(self, plan: BranchPlan, kept: PartialsByGroup) -> Iterator[MatchSet]:
        """All matches that are given now. `kept`: partial matches of groups of slots."""
        for case in self._cases():
            walk = self.walk(case, range(len(self.branch.slots)))
            assert case.slot is not None
            if not len(walk.pools.pool(case.slot).elements):
                continue
            known = {group: self._kept(sets, case) for group, sets in kept.items()}
            route = (
                TreeRoute()
                if plan.shape is None
                else ChainRoute(_begin_with_case(plan.shape, walk, known), known)
            )
            for partials in walk.run(route):
                self.matching.meter.matches(partials.earliest)
                yield self._found(partials)

    def walk(
        self, case: AdvanceCase, target: Sequence[int], *, keeps_all: bool = False
    ) -> BranchWalk:
        pools = SlotCandidates(self.matching, self.slots, case)
        return BranchWalk(
            self.matching, self.number, self.steps, pools, frozenset(target), keeps_all
        )

    def _cases(self) -> Iterator[AdvanceCase]:
        if self.matching.given_by == "earliest":
            return cases_by_earliest(sorted(self.steps.minimal))
        if self.matching.given_by == "any" and _has_late_rows(self.matching):
            return cases_by_any(len(self.branch.slots), self.steps.maximal)
        has_old = bool((self.matching.status == OLD).any())
        return cases_by_latest(self.steps.maximal, has_old=has_old)

    def _kept(self, sets: Sequence[Partials], case: AdvanceCase) -> Sequence[Partials]:
        """Those partial matches whose slots are as the case asks."""
        found = []
        for partials in sets:
            right = np.ones(len(partials), dtype=np.bool_)
            for slot in partials.elements:
                filled = self.slots, partials
                right &= meets_rule(case.rule(slot), slot, filled, self.matching.status)
            found.append(partials.take(right))
        return found

    def _found(self, partials: Partials) -> MatchSet:
        rows = {v: self.slots.rows(v, partials) for s in self.branch.slots for v in s.variables}
        return MatchSet(rows, partials.earliest, partials.latest, self.branch.empty)


def _has_late_rows(matching: AdvanceContext) -> bool:
    """Whether a row is new that lies before one that is not."""
    status, start = matching.status, matching.events.partition.start
    late = (status[1:] == OLD) & (status[:-1] == NEW) & (start[1:] == start[:-1])
    return bool(late.any())


def _begin_with_case(shape: Shape, walk: BranchWalk, kept: PartialsByGroup) -> Shape:
    """The plan's shape, or the same beginning with the slot that the case is about."""
    slot = walk.pools.case.slot
    first = slots_of(shape)[0]
    if slot is None or slot == first or walk.slot(slot).is_list:
        return shape
    few, many = (len(walk.pools.pool(each).elements) for each in (slot, first))
    # A plan knows which slots have few rows. What it does not know is how few of them are new.
    (variable,) = walk.slot(slot).variables
    many = min(many, int(walk.matching.events.below(variable)[-1]))
    return with_first(shape, slot, kept) if few * REORDER_FACTOR < many else shape


# ---- what can fill a slot ----------------------------------------------------------------------


def _find_elements(matching: AdvanceContext, slot: Slot, body: GroupBody | None) -> SlotElements:
    if body is None:
        return SlotElements(slot)
    branch, conditions = body
    steps = BranchSteps(branch, matching.program, conditions)
    slots = BranchSlots({number: SlotElements(inner) for number, inner in enumerate(branch.slots)})
    target = frozenset(range(len(branch.slots)))
    pools = SlotCandidates(matching, slots, AdvanceCase(others=StatusRule(every=ANY_STATUS)))
    walk = BranchWalk(matching, GROUP_BRANCH, steps, pools, target, keeps_all=True)
    sets = list(walk.run(ChainRoute(left_deep_shape(range(len(branch.slots))))))
    members = {
        v: np.concatenate([s.elements[i] for s in sets]) if sets else np.zeros(0, dtype=np.int64)
        for i, inner in enumerate(branch.slots)
        for v in inner.variables
    }
    first, last = members[slot.variables[0]], members[slot.variables[-1]]
    by_first = np.argsort(first, kind="stable")
    return SlotElements(
        slot, first[by_first], last[by_first], {v: rows[by_first] for v, rows in members.items()}
    )


# --------------------------------------------------------------------------------------------------
# Eager groups: partial matches that are found as events come and kept in the state.
#
# APAM evaluates some slots at once and defers the others to the final event. The group is evaluated
# in the order of the pattern and every prefix of it is kept, so an event that arrives is joined
# with what its predecessors have already become, once: new partial matches are the new ones of
# the prefix before with all candidates, and its old ones with the new candidates.
#
# In the state rows are numbered as its table numbers them; here they are positions.
# --------------------------------------------------------------------------------------------------


GroupPrefixes = dict[int, list[Partials]]


@dataclass(frozen=True)
class StoredPartials:
    """Partial matches of a prefix of a branch's eager group, as row numbers of the state's
    table: (n,) for a slot, (n, length) for a list."""

    branch: int
    group: tuple[int, ...]
    rows: Mapping[int, Positions]


def extend_prefixes(
    matcher: BranchMatcher, group: Sequence[int], old: GroupPrefixes | None
) -> GroupPrefixes:
    """Partial matches of every prefix of the group, by its length. `old`: those known before
    this advance; None where there are none to go on from, so that all are found anew."""
    prefixes: GroupPrefixes = {}
    known = _find_first(matcher, group[0], StatusRule(every=IS_OLD))
    new = _find_first(matcher, group[0], StatusRule(some=IS_NEW))
    prefixes[1] = merge_partials([*known, *new])
    for length in range(2, len(group) + 1):
        prefix = tuple(group[:length])
        if old is None:
            prefixes[length] = merge_partials(_extend_prefix(matcher, prefix, prefixes[length - 1]))
            continue
        fresh = merge_partials(_extend_prefix(matcher, prefix, new))
        fresh += merge_partials(_extend_prefix(matcher, prefix, known, StatusRule(some=IS_NEW)))
        known, new = old.get(length, []), fresh
        prefixes[length] = merge_partials([*known, *fresh])
    return prefixes


def _find_first(matcher: BranchMatcher, slot: int, rule: StatusRule) -> list[Partials]:
    walk = matcher.walk(AdvanceCase({slot: rule}), (slot,), keeps_all=False)
    return merge_partials(walk.run(ChainRoute(slot)))


def _extend_prefix(
    matcher: BranchMatcher,
    prefix: tuple[int, ...],
    sets: Sequence[Partials],
    rule: StatusRule | None = None,
) -> Iterator[Partials]:
    """The partial matches with one more slot; `rule`: what its rows have to be."""
    case = AdvanceCase() if rule is None else AdvanceCase({prefix[-1]: rule})
    walk = matcher.walk(case, prefix, keeps_all=True)
    before = frozenset(prefix[:-1])
    return walk.run(ChainRoute(left_deep_shape(prefix), {before: sets}))


# ---- to the state and back ---------------------------------------------------------------------


def prefixes_to_rows(
    branch: int, group: Sequence[int], prefixes: GroupPrefixes, kept: Flags, place: Positions
) -> Iterator[StoredPartials]:
    """Partial matches that a later match can still need: `kept` says which positions stay,
    `place` what number they have then."""
    for length, sets in prefixes.items():
        if length == 1:
            continue
        for partials in sets:
            alive = partials.take(kept[partials.earliest])
            if len(alive):
                rows = {slot: place[bound] for slot, bound in alive.elements.items()}
                yield StoredPartials(branch, tuple(group[:length]), rows)


def prefixes_from_rows(
    stored: Sequence[StoredPartials], branch: int, group: Sequence[int], position: Positions
) -> GroupPrefixes:
    """The prefixes of one group; `position` says where each row of the table lies now."""
    prefixes: GroupPrefixes = {}
    for each in stored:
        if each.branch == branch and each.group == tuple(group[: len(each.group)]):
            elements = {slot: position[rows] for slot, rows in each.rows.items()}
            every = [e if e.ndim == 2 else e[:, np.newaxis] for e in elements.values()]
            flat = np.concatenate(every, axis=1)
            partials = Partials(elements, flat.min(axis=1), flat.max(axis=1))
            prefixes.setdefault(len(each.group), []).append(partials)
    return prefixes
