"""From the trail of all runs to the matches that are reported.

Every node at which the pattern was complete is a candidate. It is a match if its NOTs and the
conditions on lists that were still open hold; of matches that are prefixes of one another only
the longest is reported. So candidates are decided from the tips upwards: one is looked at when
all that extend it have failed, and dropped as soon as one of them is a match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events import NEW, Flags, Positions
from spark_cep.udfs.joining.negation import Negations
from spark_cep.udfs.joining.reading import Reader
from spark_cep.udfs.joining.steps import negation_checks
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.running.trail import Assembled, Trail, assemble

if TYPE_CHECKING:
    from spark_cep.udfs.joining.partials import Partials
    from spark_cep.udfs.program import Branch
    from spark_cep.udfs.running.automaton import Automaton, State


def finished(
    matching: Matching, trail: Trail, automaton: Automaton, states: Sequence[State]
) -> Iterator[Found]:
    """The reported matches whose latest row is new, or their start, as sets."""
    judge = _Judge(matching, trail, automaton, states)
    nodes = _longest(trail, judge)
    shapes: dict[tuple[tuple[int, int], ...], list[Found]] = {}
    for state in range(len(states)):
        mine = nodes[trail["state"][nodes] == state]
        branches = judge.branches(states[state])
        if not len(mine) or not branches:
            continue
        for part in assemble(trail, mine, branches[0].slots):
            partials = part.partials
            counts = partials.earliest if matching.given_by == "start" else partials.latest
            new = matching.status[counts] == NEW
            found = _found(branches[0], part, new)
            if len(found):
                shapes.setdefault(_shape(found), []).append(found)
    for alike in shapes.values():
        found = _distinct(alike)
        matching.meter.matches(found.earliest)
        yield found


def _found(branch: Branch, part: Assembled, kept: Flags) -> Found:
    partials = part.partials.take(kept)
    rows = {v: part.slots.rows(v, partials) for slot in branch.slots for v in slot.variables}
    return Found(rows, partials.earliest, partials.latest, branch.empty)


def _shape(found: Found) -> tuple[tuple[int, int], ...]:
    return tuple((v, r.shape[1] if r.ndim > 1 else 0) for v, r in sorted(found.rows.items()))


def _distinct(alike: Sequence[Found]) -> Found:
    """One set of all; tied rows of an AND can lead several runs to the same assignment."""
    rows = {v: np.concatenate([found.rows[v] for found in alike]) for v in alike[0].rows}
    earliest = np.concatenate([found.earliest for found in alike])
    latest = np.concatenate([found.latest for found in alike])
    matrix = np.concatenate([r.reshape(len(earliest), -1) for r in rows.values()], axis=1)
    _, first = np.unique(matrix, axis=0, return_index=True)
    return Found(rows, earliest, latest, alike[0].empty).take(np.sort(first))


# ---- the longest of prefixes -------------------------------------------------------------------


def _longest(trail: Trail, judge: _Judge) -> Positions:
    """Accepted nodes that are matches and have no match below them."""
    nodes = np.flatnonzero(trail["accepted"][: trail.size] == np.arange(trail.size))
    above = trail.accepted_above(nodes)
    place = np.full(trail.size + 1, -1)
    place[nodes] = np.arange(len(nodes))
    parent = np.where(above >= 0, place[above], -1)
    undecided = np.bincount(parent[parent >= 0], minlength=len(nodes))
    surpassed = np.zeros(len(nodes), dtype=np.bool_)
    reported = []
    ready = np.flatnonzero(undecided == 0)
    while len(ready):
        candidates = ready[~surpassed[ready]]
        valid = candidates[judge.valid(nodes[candidates])]
        reported.append(valid)
        surpassed[valid] = True
        up = parent[ready]
        has = up >= 0
        surpassed[up[has & surpassed[ready]]] = True
        np.subtract.at(undecided, up[has], 1)
        ready = np.unique(up[has])
        ready = ready[undecided[ready] == 0]
    return nodes[np.concatenate(reported)] if reported else nodes[:0]


class _Judge:
    """Whether an accepted node is a match."""

    def __init__(
        self, matching: Matching, trail: Trail, automaton: Automaton, states: Sequence[State]
    ) -> None:
        self._matching = matching
        self._trail = trail
        self._automaton = automaton
        self._states = states
        self._by_filled: dict[frozenset[int], list[Branch]] = {}
        for branch in matching.program.branches:
            self._by_filled.setdefault(branch.filled(), []).append(branch)

    def branches(self, state: State) -> list[Branch]:
        return self._by_filled.get(state.filled, [])

    def valid(self, nodes: Positions) -> Flags:
        valid = np.ones(len(nodes), dtype=np.bool_)
        state_of = self._trail["state"][nodes]
        for number, state in enumerate(self._states):
            mine = np.flatnonzero(state_of == number)
            branches = self.branches(state)
            if not len(mine) or not self._needs_a_look(state, branches):
                continue
            for part in assemble(self._trail, nodes[mine], branches[0].slots):
                valid[mine[part.which]] = self._holds(state, branches, part)
        return valid

    def _needs_a_look(self, state: State, branches: Sequence[Branch]) -> bool:
        return bool(self._automaton.unfinished(state)) or any(
            branch.negations or any(slot.body and slot.body.negations for slot in branch.slots)
            for branch in branches
        )

    def _holds(self, state: State, branches: Sequence[Branch], part: Assembled) -> Flags:
        partials = part.partials
        holds = np.ones(len(partials), dtype=np.bool_)
        reader = Reader(self._matching.events.columns, part.slots, partials, self._matching.tally)
        for condition in self._automaton.unfinished(state):
            holds &= reader.holds(condition)
        free = np.zeros(len(partials), dtype=np.bool_)
        # Branches that fill the same variables differ in their NOTs: one of them has to hold.
        for branch in branches:
            free |= self._free(branch, part, partials)
        return holds & free

    def _free(self, branch: Branch, part: Assembled, partials: Partials) -> Flags:
        matching = self._matching
        negations = Negations(
            matching.events, part.slots, matching.meter, matching.tally,
            matching.program.block_pairs,
        )  # fmt: skip
        free = np.ones(len(partials), dtype=np.bool_)
        for check in negation_checks(branch, matching.program):
            free &= negations.allow(check, partials)
        return free
