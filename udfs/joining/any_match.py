"""Skip till any match: every combination of a branch, by whatever plan.

Which matches are given in this advance is decided by which of their rows are new: the latest, the
earliest, or any of them (`Matching.given_by`). That is pushed into the candidates, case by case
(`cases.py`). Where the row that a case is about can be far fewer rows than the plan's first slot
has, as in a stream whose triggers are shorter than its window, the walk begins there instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events import NEW, OLD
from spark_cep.udfs.joining.cases import ANY, Case, Rule, by_any, by_earliest, by_latest
from spark_cep.udfs.joining.partials import Elements, Partials, Slots
from spark_cep.udfs.joining.pools import Pools, keeps_rule
from spark_cep.udfs.joining.routes import Chain, Tree
from spark_cep.udfs.joining.steps import Steps
from spark_cep.udfs.joining.walk import Walk
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.planning.shapes import chain, slots_of, with_first

if TYPE_CHECKING:
    from spark_cep.udfs.joining.steps import Body
    from spark_cep.udfs.program import BranchPlan, Shape, Slot

# Work inside a group belongs to no branch's plan.
GROUP = -1
# How many times fewer rows a slot must have for the walk to leave the plan's order.
CLEARLY_FEWER = 4
Kept = Mapping[frozenset[int], Sequence[Partials]]


class BranchMatcher:
    """One branch over the events of one advance."""

    def __init__(self, matching: Matching, number: int) -> None:
        self.matching = matching
        self.number = number
        self.branch = matching.program.branches[number]
        self.steps = Steps(self.branch, matching.program, matching.program.conditions)
        self.slots = Slots(
            {
                place: _elements(matching, slot, self.steps.bodies.get(place))
                for place, slot in enumerate(self.branch.slots)
            }
        )

    def matches(self, plan: BranchPlan, kept: Kept) -> Iterator[Found]:
        """All matches that are given now. `kept`: partial matches of groups of slots."""
        for case in self._cases():
            walk = self.walk(case, range(len(self.branch.slots)))
            assert case.slot is not None
            if not len(walk.pools.pool(case.slot).elements):
                continue
            known = {group: self._kept(sets, case) for group, sets in kept.items()}
            route = Tree() if plan.shape is None else Chain(_begun(plan.shape, walk, known), known)
            for partials in walk.run(route):
                self.matching.meter.matches(partials.earliest)
                yield self._found(partials)

    def walk(self, case: Case, target: Sequence[int], *, keeps_all: bool = False) -> Walk:
        pools = Pools(self.matching, self.slots, case)
        return Walk(self.matching, self.number, self.steps, pools, frozenset(target), keeps_all)

    def _cases(self) -> Iterator[Case]:
        if self.matching.given_by == "earliest":
            return by_earliest(sorted(self.steps.minimal))
        if self.matching.given_by == "any" and _came_late(self.matching):
            return by_any(len(self.branch.slots), self.steps.maximal)
        has_old = bool((self.matching.status == OLD).any())
        return by_latest(self.steps.maximal, has_old=has_old)

    def _kept(self, sets: Sequence[Partials], case: Case) -> Sequence[Partials]:
        """Those partial matches whose slots are as the case asks."""
        found = []
        for partials in sets:
            right = np.ones(len(partials), dtype=np.bool_)
            for slot in partials.elements:
                filled = self.slots, partials
                right &= keeps_rule(case.rule(slot), slot, filled, self.matching.status)
            found.append(partials.take(right))
        return found

    def _found(self, partials: Partials) -> Found:
        rows = {v: self.slots.rows(v, partials) for s in self.branch.slots for v in s.variables}
        return Found(rows, partials.earliest, partials.latest, self.branch.empty)


def _came_late(matching: Matching) -> bool:
    """Whether a row is new that lies before one that is not."""
    status, start = matching.status, matching.events.partition.start
    late = (status[1:] == OLD) & (status[:-1] == NEW) & (start[1:] == start[:-1])
    return bool(late.any())


def _begun(shape: Shape, walk: Walk, kept: Kept) -> Shape:
    """The plan's shape, or the same beginning with the slot that the case is about."""
    slot = walk.pools.case.slot
    first = slots_of(shape)[0]
    if slot is None or slot == first or walk.slot(slot).is_list:
        return shape
    few, many = (len(walk.pools.pool(each).elements) for each in (slot, first))
    # A plan knows which slots have few rows. What it does not know is how few of them are new.
    (variable,) = walk.slot(slot).variables
    many = min(many, int(walk.matching.events.below(variable)[-1]))
    return with_first(shape, slot, kept) if few * CLEARLY_FEWER < many else shape


# ---- what can fill a slot ----------------------------------------------------------------------


def _elements(matching: Matching, slot: Slot, body: Body | None) -> Elements:
    if body is None:
        return Elements(slot)
    branch, conditions = body
    steps = Steps(branch, matching.program, conditions)
    slots = Slots({number: Elements(inner) for number, inner in enumerate(branch.slots)})
    target = frozenset(range(len(branch.slots)))
    pools = Pools(matching, slots, Case(others=Rule(every=ANY)))
    walk = Walk(matching, GROUP, steps, pools, target, keeps_all=True)
    sets = list(walk.run(Chain(chain(range(len(branch.slots))))))
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
