"""Skip till any match: every combination of one branch, by any plan.

Which of its rows are new decides whether a match is given in an advance. That is pushed into the
candidates, case by case (`AdvanceCase`), and each case may run an order of its own
(`case_orders.py`). Partial matches of eager groups are found as events come and kept in the state,
where rows have the numbers of its table; here they are positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.candidates import (
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
from spark_cep.udfs.events.elements import find_elements
from spark_cep.udfs.events.partials import (
    NO_ROW,
    BranchSlots,
    Partials,
    group_equal_rows,
    merge_partials,
)
from spark_cep.udfs.events.routes import ChainRoute
from spark_cep.udfs.events.sharing import BranchRun
from spark_cep.udfs.events.steps import BranchSteps
from spark_cep.udfs.events.table import NEW, OLD
from spark_cep.udfs.events.walk import BranchWalk
from spark_cep.udfs.planning.shapes import left_deep_shape

if TYPE_CHECKING:
    from spark_cep.udfs.events.case_orders import CaseOrders
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Branch, BranchPlan


PartialsByGroup = Mapping[frozenset[int], Sequence[Partials]]


class BranchMatcher:
    """Finds the matches of one branch among the events of one advance."""

    def __init__(self, matching: AdvanceContext, number: int, branch: Branch | None = None) -> None:
        self.matching = matching
        self.number = number
        self.branch = matching.program.branches[number] if branch is None else branch
        self.steps = BranchSteps(self.branch, matching.program, matching.program.conditions)
        self.slots = BranchSlots(
            {
                place: find_elements(matching, slot, self.steps.bodies.get(place))
                for place, slot in enumerate(self.branch.slots)
            }
        )

    def runs(
        self, plan: BranchPlan, kept: PartialsByGroup, orders: CaseOrders
    ) -> Iterator[BranchRun]:
        """What gives the matches of this advance, case by case. `kept`: known partial matches of
        groups of slots."""
        is_alone = bool((self.matching.status == NEW).all())
        for case in self._cases(is_alone=is_alone):
            walk = self.walk(case, range(len(self.branch.slots)))
            assert case.slot is not None
            if not len(walk.pools.pool(case.slot).elements):
                continue
            shape = orders.shape(self.number, plan, walk.pools, kept)
            new = None if is_alone else case.slot
            yield BranchRun(self, case, walk, shape, kept, orders, new)

    def walk(
        self, case: AdvanceCase, target: Sequence[int], *, keeps_all: bool = False
    ) -> BranchWalk:
        pools = SlotCandidates(self.matching, self.slots, case)
        return BranchWalk(
            self.matching,
            self.number,
            self.steps,
            pools,
            frozenset(target),
            keeps_all,
            self.matching.observer,
        )

    def _cases(self, *, is_alone: bool) -> Iterator[AdvanceCase]:
        if is_alone:
            # Every row meets the rules of the first case, and none those of the others.
            return iter([AdvanceCase(slot=self.steps.maximal[0])])
        if self.matching.deciding_row == "earliest":
            return cases_by_earliest(sorted(self.steps.minimal))
        if self.matching.deciding_row == "any" and _has_late_rows(self.matching):
            return cases_by_any(len(self.branch.slots), self.steps.maximal)
        has_old = bool((self.matching.status == OLD).any())
        return cases_by_latest(self.steps.maximal, has_old=has_old)

    def filter_kept(self, kept: PartialsByGroup, case: AdvanceCase) -> PartialsByGroup:
        """The partial matches whose slots meet the rules of the case."""
        return {group: self._filter_sets(sets, case) for group, sets in kept.items()}

    def _filter_sets(self, sets: Sequence[Partials], case: AdvanceCase) -> Sequence[Partials]:
        kept = []
        for partials in sets:
            fits = np.ones(len(partials), dtype=np.bool_)
            for slot in partials.elements:
                filled = self.slots, partials
                fits &= meets_rule(case.rule(slot), slot, filled, self.matching.status)
            kept.append(partials.take(fits))
        return kept

    def finish(self, partials: Partials) -> Iterator[MatchSet]:
        """The matches of complete partial matches."""
        self.matching.meter.count_matches(partials.earliest)
        if self.matching.observer is not None:
            self.matching.observer.finished(partials)
        yield from self.match_sets(partials)

    def match_sets(self, partials: Partials) -> Iterator[MatchSet]:
        """Sets in which all lists of a variable have one length: in a repeated OR, that is the
        number of iterations that chose its alternative, which may be none."""
        rows = {v: self.slots.rows(v, partials) for s in self.branch.slots for v in s.variables}
        loops = [slot for slot in self.branch.slots if slot.has_alternatives]
        if not loops:
            yield MatchSet(rows, partials.earliest, partials.latest, self.branch.empty)
            return
        chosen = tuple(v for slot in loops for v in slot.variables)
        lengths = np.stack([np.count_nonzero(rows[v] != NO_ROW, axis=1) for v in chosen], axis=1)
        for which in group_equal_rows(lengths):
            taken = {v: bound[which] for v, bound in rows.items()}
            for v in chosen:
                taken[v] = taken[v][taken[v] != NO_ROW].reshape(len(which), -1)
            empty = frozenset(v for v in chosen if not taken[v].shape[1])
            yield MatchSet(
                {v: bound for v, bound in taken.items() if v not in empty},
                partials.earliest[which],
                partials.latest[which],
                self.branch.empty | empty,
            )


def _has_late_rows(matching: AdvanceContext) -> bool:
    """Whether a new row lies before an old one."""
    status, start = matching.status, matching.events.partition.start
    late = (status[1:] == OLD) & (status[:-1] == NEW) & (start[1:] == start[:-1])
    return bool(late.any())


# ---- partial matches of eager groups -------------------------------------------------------------


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
    """Partial matches of every prefix of a branch's eager group, by length.

    APAM evaluates some slots as events come and defers the others to the final event. The group is
    evaluated in the order of the pattern and every prefix is kept, so a new event is joined once
    with what its predecessors have already become: the new partial matches of a prefix are the new
    ones of the prefix before with all candidates, and its old ones with the new candidates.

    `old`: the prefixes known before this advance; None to find all of them from the events.
    """
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
    """Extends partial matches by the last slot of the prefix; `rule`: for the rows of that slot."""
    case = AdvanceCase() if rule is None else AdvanceCase({prefix[-1]: rule})
    walk = matcher.walk(case, prefix, keeps_all=True)
    before = frozenset(prefix[:-1])
    return walk.run(ChainRoute(left_deep_shape(prefix), {before: sets}))


def prefixes_to_rows(
    branch: int, group: Sequence[int], prefixes: GroupPrefixes, kept: Flags, place: Positions
) -> Iterator[StoredPartials]:
    """Partial matches that a later match can still need, for the state. `kept`: the positions
    that stay, `place`: their row numbers in the state's table."""
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
    """The prefixes of one group from the state; `position`: of each row of the state's table."""
    prefixes: GroupPrefixes = {}
    for each in stored:
        if each.branch == branch and each.group == tuple(group[: len(each.group)]):
            partials = partials_from_rows(each, position)
            prefixes.setdefault(len(each.group), []).append(partials)
    return prefixes


def partials_from_rows(stored: StoredPartials, position: Positions) -> Partials:
    """`position`: of each row of the state's table."""
    elements = {slot: position[rows] for slot, rows in stored.rows.items()}
    every = [e if e.ndim == 2 else e[:, np.newaxis] for e in elements.values()]
    flat = np.concatenate(every, axis=1)
    return Partials(elements, flat.min(axis=1), flat.max(axis=1))
