"""The occurrences of negated groups: what `no(seq("x", "y"))` forbids.

A match is blocked if an occurrence lies wholly in the forbidden range. Of occurrences that agree in
everything that a check reads, only the one that ends first can matter: whichever range holds
another of them holds that one too. So a check that reads nothing of the match keeps one occurrence
for each first row, and `ending` decides it without a single pair.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.elements import concatenate_members, extent, walk_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.elements import Members
    from spark_cep.udfs.events.steps import NegationCheck
    from spark_cep.udfs.events.table import Positions
    from spark_cep.udfs.program import Branch


# Occurrences that were found are reduced whenever there are so many more of them.
REDUCED_BLOCK = 1 << 18
# A group without conditions is followed in each order that its rows may have, up to so many.
MAX_ORDERS = 24


@dataclass(frozen=True)
class Occurrences:
    """Occurrences sorted by their first row. `ending[p]` is the earliest last row of those that
    begin at position p or later; the number of rows if there are none."""

    first: Positions
    last: Positions
    members: Mapping[int, Positions]
    ending: Positions


class OccurrenceFinder:
    """The occurrences of the negated groups of one advance, found when a check first needs them.

    The context has the finder. It is referred to weakly, because a cycle would keep all rows of the
    advance in memory until Python collects it."""

    def __init__(self, matching: AdvanceContext) -> None:
        self._context = weakref.ref(matching)
        self._found: dict[tuple[Branch, frozenset[int] | None], Occurrences] = {}

    @property
    def _matching(self) -> AdvanceContext:
        matching = self._context()
        assert matching is not None
        return matching

    def find(self, check: NegationCheck, *, keeps_all: bool) -> Occurrences:
        """`keeps_all`: those too that end later than another, which a match may share rows with."""
        assert check.occurrence is not None
        group, _ = check.occurrence
        reads = None if keeps_all else check.negated_reads
        key = group, reads
        if key not in self._found:
            self._found[key] = self._find(check, reads)
        return self._found[key]

    def _find(self, check: NegationCheck, reads: frozenset[int] | None) -> Occurrences:
        assert check.occurrence is not None
        group, conditions = check.occurrence
        variables = tuple(v for slot in group.slots for v in slot.variables)
        orders = [] if conditions or reads is None else list(_linear_orders(group))
        if orders and _is_decided_by_first(group, orders, reads):
            members = self._follow_orders(group, orders)
        else:
            members = self._walk(check, variables, reads)
        return self._sort(members)

    def _sort(self, members: Members) -> Occurrences:
        size = self._matching.events.size
        first, last = extent(members)
        order = np.argsort(first, kind="stable")
        ending = np.full(size + 1, size, dtype=np.int64)
        np.minimum.at(ending, first, last)
        ending = np.minimum.accumulate(ending[::-1])[::-1]
        sorted_members = {v: rows[order] for v, rows in members.items()}
        return Occurrences(first[order], last[order], sorted_members, ending)

    def _walk(
        self, check: NegationCheck, variables: tuple[int, ...], reads: frozenset[int] | None
    ) -> Members:
        assert check.occurrence is not None
        blocks: list[Members] = []
        waiting = 0
        for block in walk_group(self._matching, check.occurrence):
            blocks.append(block)
            waiting += len(block[variables[0]])
            if reads is not None and waiting > REDUCED_BLOCK:
                blocks = [_keep_earliest(concatenate_members(blocks, variables), reads)]
                waiting = 0
        # Nothing is blocked by occurrences that were not found.
        self._matching.meter.check_deadline()
        members = concatenate_members(blocks, variables)
        return members if reads is None else _keep_earliest(members, reads)

    # ---- groups without conditions -------------------------------------------------------------

    def _follow_orders(self, group: Branch, orders: Sequence[tuple[int, ...]]) -> Members:
        """For each first row the occurrence that ends first, in each order of its rows.

        From the first row on, each slot takes its next candidate. By induction no occurrence with
        the same first row and order has any of its rows earlier.
        """
        events = self._matching.events
        variables = tuple(v for slot in group.slots for v in slot.variables)
        blocks = []
        for order in orders:
            rows: dict[int, Positions] = {}
            for number, slot in enumerate(order):
                candidates = np.flatnonzero(events.candidates(variables[slot]))
                if not number:
                    rows[slot] = candidates
                    continue
                least = [events.tie.end[rows[s]] for s in rows if (s, slot) in group.precedes]
                least.append(rows[order[number - 1]] + 1)
                earliest: Positions = np.maximum.reduce(least)
                place = np.searchsorted(candidates, earliest)
                found = place < len(candidates)
                rows = {s: each[found] for s, each in rows.items()}
                rows[slot] = candidates[place[found]]
            fits = rows[order[-1]] < events.window.end[rows[order[0]]]
            blocks.append({variables[s]: each[fits] for s, each in rows.items()})
        return concatenate_members(blocks, variables)


def _keep_earliest(members: Members, reads: frozenset[int]) -> Members:
    """Of occurrences with the same first row and the same rows of `reads`, the one that ends
    first."""
    first, last = extent(members)
    if not len(first):
        return members
    keys = [first, *(members[v] for v in sorted(reads))]
    order = np.lexsort([last, *reversed(keys)])
    changes = np.zeros(len(order), dtype=np.bool_)
    changes[0] = True
    for key in keys:
        ordered = key[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    kept = order[changes]
    return {v: rows[kept] for v, rows in members.items()}


def _is_decided_by_first(
    group: Branch, orders: Sequence[tuple[int, ...]], reads: frozenset[int] | None
) -> bool:
    """Whether the first row decides all that a check reads, so that one occurrence for each first
    row will do."""
    if not reads:
        return True
    (first,) = group.slots[orders[0][0]].variables
    return len(orders) == 1 and reads == {first}


def _linear_orders(group: Branch) -> Iterator[tuple[int, ...]]:
    """All orders of the group's slots that respect its partial order; none if they are too many."""
    found: list[tuple[int, ...]] = [()]
    for _ in group.slots:
        found = [
            (*order, slot)
            for order in found
            for slot in range(len(group.slots))
            if slot not in order and all(s in order for s, later in group.precedes if later == slot)
        ]
        if len(found) > MAX_ORDERS:
            return iter(())
    return iter(found)
