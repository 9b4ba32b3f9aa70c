"""Skip till any match: every combination of a branch, by whatever plan.

"The latest event is new" is pushed into the candidates: only the maximal slots can hold the
latest event, so the work splits into disjoint cases, one for each maximal slot, in which that
slot ends in a new row and the maximal slots before it do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events import NEW, OLD
from spark_cep.udfs.joining.partials import Elements, Partials, Slots
from spark_cep.udfs.joining.pools import Pools
from spark_cep.udfs.joining.routes import Chain, Tree
from spark_cep.udfs.joining.steps import Steps
from spark_cep.udfs.joining.walk import Walk
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.planning.shapes import chain

if TYPE_CHECKING:
    from spark_cep.udfs.joining.steps import Body
    from spark_cep.udfs.program import BranchPlan, Slot

# Work inside a group belongs to no branch's plan.
GROUP = -1
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
        """All matches whose latest row is new. `kept`: partial matches of groups of slots."""
        for turn, slot in enumerate(self.steps.maximal):
            ends = {**dict.fromkeys(self.steps.maximal[:turn], OLD), slot: NEW}
            if turn and not (self.matching.status == OLD).any():
                return
            ended = {group: self._ended(sets, ends) for group, sets in kept.items()}
            walk = self.walk(ends, range(len(self.branch.slots)))
            route = Tree() if plan.shape is None else Chain(plan.shape, ended)
            for partials in walk.run(route):
                self.matching.meter.matches(partials.earliest)
                yield self._found(partials)

    def walk(
        self, ends: Mapping[int, int], target: Sequence[int], *, keeps_all: bool = False
    ) -> Walk:
        pools = Pools(self.matching, self.slots, ends)
        return Walk(self.matching, self.number, self.steps, pools, frozenset(target), keeps_all)

    def _ended(self, sets: Sequence[Partials], ends: Mapping[int, int]) -> Sequence[Partials]:
        """Those partial matches whose slots end as the case asks."""
        found = []
        for partials in sets:
            right = np.ones(len(partials), dtype=np.bool_)
            for slot in partials.elements:
                if slot in ends:
                    last = self.slots.last(slot, partials)
                    right &= self.matching.status[last] == ends[slot]
            found.append(partials.take(right))
        return found

    def _found(self, partials: Partials) -> Found:
        rows = {v: self.slots.rows(v, partials) for s in self.branch.slots for v in s.variables}
        return Found(rows, partials.earliest, partials.latest, self.branch.empty)


# ---- what can fill a slot ----------------------------------------------------------------------


def _elements(matching: Matching, slot: Slot, body: Body | None) -> Elements:
    if body is None:
        return Elements(slot)
    branch, conditions = body
    steps = Steps(branch, matching.program, conditions)
    slots = Slots({number: Elements(inner) for number, inner in enumerate(branch.slots)})
    target = frozenset(range(len(branch.slots)))
    walk = Walk(matching, GROUP, steps, Pools(matching, slots, {}), target, keeps_all=True)
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
