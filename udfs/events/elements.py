"""The elements of groups: every match of a group's body among the events of an advance.

An element of a repeated group is one iteration, that of a negated group an occurrence. Both are
found by a walk over the group's own branch, with the conditions that its variables alone decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.candidates import ANY_STATUS, AdvanceCase, SlotCandidates, StatusRule
from spark_cep.udfs.events.partials import NO_ROW, BranchSlots, SlotElements
from spark_cep.udfs.events.routes import ChainRoute
from spark_cep.udfs.events.steps import BranchSteps
from spark_cep.udfs.events.walk import BranchWalk
from spark_cep.udfs.planning.shapes import left_deep_shape

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.steps import GroupBody
    from spark_cep.udfs.events.table import Positions
    from spark_cep.udfs.program import Slot


# The branch number of work inside a group, which belongs to no branch's plan.
GROUP_BRANCH = -1
Members = dict[int, "Positions"]


def walk_group(matching: AdvanceContext, body: GroupBody) -> Iterator[Members]:
    """The matches of a group's body, block by block: for each variable its rows."""
    branch, conditions = body
    steps = BranchSteps(branch, matching.program, conditions)
    slots = BranchSlots({number: SlotElements(inner) for number, inner in enumerate(branch.slots)})
    target = frozenset(range(len(branch.slots)))
    pools = SlotCandidates(matching, slots, AdvanceCase(others=StatusRule(every=ANY_STATUS)))
    walk = BranchWalk(matching, GROUP_BRANCH, steps, pools, target, keeps_all=True)
    for partials in walk.run(ChainRoute(left_deep_shape(range(len(branch.slots))))):
        yield {
            v: partials.elements[place]
            for place, inner in enumerate(branch.slots)
            for v in inner.variables
        }


def find_elements(
    matching: AdvanceContext, slot: Slot, bodies: Sequence[GroupBody] | None
) -> SlotElements:
    """What may fill a slot once: rows, or the iterations of a repeated group. An iteration of a
    repeated OR is a match of one of its parts and has no row for the variables of the others."""
    if bodies is None:
        return SlotElements(slot)
    parts = []
    for body in bodies:
        variables = tuple(v for inner in body[0].slots for v in inner.variables)
        parts.append(concatenate_members(list(walk_group(matching, body)), variables))
    extents = [extent(members) for members in parts]
    first, last = (np.concatenate(ends) for ends in zip(*extents, strict=True))
    by_first = np.argsort(first, kind="stable")
    members = {}
    for variable in slot.variables:
        rows = [
            part.get(variable, np.full(len(ends[0]), NO_ROW))
            for part, ends in zip(parts, extents, strict=True)
        ]
        members[variable] = np.concatenate(rows)[by_first]
    return SlotElements(slot, first[by_first], last[by_first], members)


def concatenate_members(blocks: list[Members], variables: tuple[int, ...]) -> Members:
    none = np.zeros(0, dtype=np.int64)
    return {v: np.concatenate([none, *(each[v] for each in blocks)]) for v in variables}


def extent(members: Members) -> tuple[Positions, Positions]:
    """The first and the last row of each element."""
    rows = list(members.values())
    return np.minimum.reduce(rows), np.maximum.reduce(rows)
