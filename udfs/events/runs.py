"""The run engine: skip till next match and strict, all runs in lockstep.

A run starts at every row that can start and takes the next row that an open variable accepts. In
a round, all runs in the same state test their next few candidates of each open variable at once;
those that find an accepted row take it (and split where several are accepted at the same order
key), the others search on, twice as far each time. So a round is a handful of array operations,
however many runs and keys there are. NOTs and folds of lists that are still open are tested on
finished matches; of finished matches on one path only the last is given.

A run decides on each row, so it waits where the remote data of a condition has not arrived. But no
run depends on another one: the others go on, and it makes its round when the data is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.automaton import (
    RunAutomaton,
    RunState,
    RunTransition,
    elements_back,
    sequence_pairs,
)
from spark_cep.udfs.events.candidates import PositionRanges, pair_blocks
from spark_cep.udfs.events.context import AdvanceContext, MatchSet, negation_places
from spark_cep.udfs.events.elements import extent
from spark_cep.udfs.events.negation import NegationChecker
from spark_cep.udfs.events.partials import (
    BranchSlots,
    CandidateRows,
    CellReader,
    Partials,
    SlotElements,
    group_equal_rows,
)
from spark_cep.udfs.events.remote_needs import ask_for, distinct_ids
from spark_cep.udfs.events.steps import compile_negation_checks
from spark_cep.udfs.events.table import AHEAD, NEW, OLD, Flags, Positions
from spark_cep.udfs.expressions import cells_of, remote_sources_of
from spark_cep.udfs.program import Condition, Slot, Tree

if TYPE_CHECKING:
    from spark_cep.udfs.events.partials import LookupKeyIds
    from spark_cep.udfs.program import Branch


# How many candidates of a variable a run tests in one round: at first, as most runs take the first
# candidate, and at most. The number doubles with each round in which the run takes no row.
FIRST_SEARCH = 2
MAX_SEARCH = 1 << 12


@dataclass(frozen=True)
class RunSet:
    """Runs in one state, one entry for each.

    `last[v]` is the row taken last as v, `before[v]` the one before it (-1: none). `cursor` is the
    first position not searched yet, `search_size` the number of candidates to test next.
    """

    tip: Positions
    earliest: Positions
    latest: Positions
    cursor: Positions
    search_size: Positions
    last: Positions
    before: Positions

    def __len__(self) -> int:
        return len(self.tip)

    def take(self, index: Positions | Flags) -> RunSet:
        return RunSet(*(getattr(self, each.name)[index] for each in fields(self)))


def _concatenate_runs(parts: Sequence[RunSet]) -> RunSet:
    return RunSet(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(RunSet)))


@dataclass
class _LateRuns:
    """The runs of a round that wait for remote data, the key ids that they wait for, and the pairs
    of the round, which are counted when it is known whose they are."""

    is_late: Flags
    awaited: LookupKeyIds = field(default_factory=list)
    tested: list[Positions] = field(default_factory=list)

    def add(self, run: Positions, late: Flags, key_ids: LookupKeyIds) -> None:
        self.is_late[run[late]] = True
        self.awaited += [(remote, distinct_ids(ids[late])) for remote, ids in key_ids]


@dataclass(frozen=True)
class _ParkedRuns:
    state: RunState
    runs: RunSet
    awaited: LookupKeyIds


@dataclass(frozen=True)
class _AcceptedPairs:
    """Pairs of a run and a row that it may take through `transition`."""

    transition: RunTransition
    run: Positions
    row: Positions


class RunEngine:
    """Runs over one set of events, until all have ended or no rows are left.

    `passed`: the rows whose window is complete. Where the start decides when a match is given, a
    start is decided when every run from it, or from a row tied with it, has ended.
    """

    def __init__(self, matching: AdvanceContext, passed: Flags) -> None:
        self.matching = matching
        self._passed = passed
        self._is_open = np.zeros(matching.events.size, dtype=np.bool_)
        if negation_places(matching.program) & {"end", "around"}:
            self._is_open = ~passed
        self.events = matching.events
        self._lookups = matching.tally.lookups
        self._postpones = any(lookup.remote.postpones for lookup in self._lookups)
        self._parked: list[_ParkedRuns] = []
        self.automaton = RunAutomaton(matching.program)
        self.forest = RunForest()
        self.states: list[RunState] = []
        self._numbers: dict[RunState, int] = {}
        self._ordered = sequence_pairs(matching.program.tree)
        self._any_order = _has_all(matching.program.tree)
        self._candidates: dict[int, Positions] = {}
        self._slots = {
            slot.variables: slot for branch in matching.program.branches for slot in branch.slots
        }

    def run(self) -> None:
        waiting: dict[RunState, list[RunSet]] = {}
        for state, runs in self._start_runs():
            waiting.setdefault(state, []).append(runs)
        while waiting or self._parked:
            if not waiting:
                for state, runs in self._arrived_runs():
                    waiting.setdefault(state, []).append(runs)
            else:
                for lookup in self._lookups:
                    lookup.settle()
            state = next(iter(waiting))
            runs = _concatenate_runs(waiting.pop(state))
            for reached, moved in self._round(state, runs):
                if len(moved):
                    waiting.setdefault(reached, []).append(moved)
        if self.matching.deciding_row == "start":
            self.matching.status[self._is_open[self.events.tie.start]] = AHEAD

    def _arrived_runs(self) -> Iterator[tuple[RunState, RunSet]]:
        """The parked runs whose data has arrived, or the first ones when it has."""
        ready = [each for each in self._parked if self._is_ready(each)]
        if not ready:
            ready = self._parked[:1]
            for remote, ids in ready[0].awaited:
                self._lookups[remote].wait(ids)
        taken = {id(each) for each in ready}
        self._parked = [each for each in self._parked if id(each) not in taken]
        return ((each.state, each.runs) for each in ready)

    def _is_ready(self, parked: _ParkedRuns) -> bool:
        return all(self._lookups[remote].ready(ids).all() for remote, ids in parked.awaited)

    def matches(self) -> Iterator[MatchSet]:
        """The matches that are given in this advance; call `run` first."""
        return select_matches(self.matching, self.forest, self.automaton, self.states)

    # ---- starting and taking rows --------------------------------------------------------------

    def _start_runs(self) -> Iterator[tuple[RunState, RunSet]]:
        for transition in self.automaton.transitions(self.automaton.start):
            rows = self._rows(transition.variable)
            if self.matching.deciding_row == "start":
                rows = rows[self.matching.status[rows] != OLD]
            fits = self.events.fits(rows)
            rows = rows if fits is None else rows[fits]
            unfilled = np.full((len(rows), len(self.matching.program.variables)), -1)
            roots = np.full(len(rows), -1)
            start = RunSet(roots, rows, rows, rows, rows, unfilled, unfilled)
            yield (
                transition.target,
                self._take_rows(start, _AcceptedPairs(transition, np.arange(len(rows)), rows)),
            )

    def _take_rows(self, runs: RunSet, accepted: _AcceptedPairs) -> RunSet:
        """The runs after they have taken their rows."""
        transition, row = accepted.transition, accepted.row
        old = runs.take(accepted.run)
        state = self._number(transition.target)
        tip = self.forest.add(
            old.tip, transition.variable, row, state, accepts=transition.target.accepts
        )
        last, before = old.last.copy(), old.before.copy()
        before[:, transition.variable] = last[:, transition.variable]
        last[:, transition.variable] = row
        earliest = np.minimum(old.earliest, row)
        self.matching.meter.count_partials(earliest)
        tie = self.events.tie
        cursor = tie.start[row] if self._any_order else tie.end[row]
        search_size = np.full(len(row), FIRST_SEARCH)
        return RunSet(tip, earliest, np.maximum(old.latest, row), cursor, search_size, last, before)

    def _number(self, state: RunState) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    # ---- one round -----------------------------------------------------------------------------

    def _round(self, state: RunState, runs: RunSet) -> Iterator[tuple[RunState, RunSet]]:
        transitions = self.automaton.transitions(state)
        if not transitions or not len(runs):
            return
        limit = self._limit(runs)
        reach = self._reach(transitions, runs, limit)
        late = _LateRuns(np.zeros(len(runs), dtype=np.bool_)) if self._postpones else None
        accepted = [
            self._accepted_pairs(state, transition, runs, reach, late) for transition in transitions
        ]
        if late is not None:
            for run in late.tested:
                counted = run[~late.is_late[run]]
                if len(counted):
                    self.matching.meter.count_pairs(runs.earliest, counted)
            if late.is_late.any():
                self._parked.append(_ParkedRuns(state, runs.take(late.is_late), late.awaited))
                on_time = [~late.is_late[pairs.run] for pairs in accepted]
                accepted = [
                    replace(pairs, run=pairs.run[each], row=pairs.row[each])
                    for pairs, each in zip(accepted, on_time, strict=True)
                ]
        chosen = self._at_earliest_key(accepted, len(runs))
        for pairs in chosen:
            if len(pairs.run):
                yield pairs.transition.target, self._take_rows(runs, pairs)
        moved = np.zeros(len(runs), dtype=np.bool_)
        for pairs in chosen:
            moved[pairs.run] = True
        if late is not None:
            moved |= late.is_late
        stay = ~moved & (reach < limit)
        self._leave_open(runs.take(~moved & ~stay))
        # A search that ends within one large group of ties made no progress: it must widen.
        stuck = reach <= runs.cursor
        search_size = np.where(
            stuck, runs.search_size * 2, np.minimum(runs.search_size * 2, MAX_SEARCH)
        )
        searched = replace(runs, cursor=np.maximum(reach, runs.cursor), search_size=search_size)
        yield state, searched.take(stay)

    def _leave_open(self, runs: RunSet) -> None:
        """Marks the starts of runs that found nothing but may still take a row to come."""
        is_open = ~self._passed[runs.earliest]
        if self.matching.program.strategy == "strict":
            tie, partition = self.events.tie, self.events.partition
            is_open &= tie.end[runs.latest] >= partition.end[runs.latest]
        self._is_open[self.events.tie.start[runs.earliest[is_open]]] = True

    def _limit(self, runs: RunSet) -> Positions:
        """The position from which on a run can take no row: the end of its window, of its
        partition, and under strict of the next order key."""
        limit = self.events.window.end[runs.earliest]
        if self.matching.program.strategy == "strict":
            tie, partition = self.events.tie, self.events.partition
            following = tie.end[runs.latest]
            inside = following < partition.end[runs.latest]
            adjacent = np.where(inside, tie.end[np.where(inside, following, 0)], following)
            limit = np.minimum(limit, adjacent)
        return limit

    def _reach(
        self, transitions: Sequence[RunTransition], runs: RunSet, limit: Positions
    ) -> Positions:
        """How far this round searches: until some open variable has had `search_size` candidates,
        cut to whole groups of ties."""
        reach = limit
        for transition in transitions:
            candidates = self._rows(transition.variable)
            below = self.events.below(transition.variable)
            stop = below[runs.cursor] + runs.search_size
            more = stop < below[np.maximum(limit, runs.cursor)]
            beyond = (
                np.where(more, candidates[np.where(more, stop, 0)], limit) if more.any() else limit
            )
            reach = np.minimum(reach, beyond)
        inside = reach < limit
        return np.where(inside, self.events.tie.start[np.where(inside, reach, 0)], limit)

    def _accepted_pairs(
        self,
        state: RunState,
        transition: RunTransition,
        runs: RunSet,
        reach: Positions,
        late: _LateRuns | None,
    ) -> _AcceptedPairs:
        variable = transition.variable
        below, candidates = self.events.below(variable), self._rows(variable)
        ranges = PositionRanges(below[runs.cursor], below[np.maximum(reach, runs.cursor)])
        found_runs, found_rows = [], []
        for run, place in pair_blocks(ranges, self.matching.program.block_pairs):
            if late is None:
                self.matching.meter.count_pairs(runs.earliest, run)
            else:
                late.tested.append(run)
            pairs = self._drop_disordered(transition, runs, run, candidates[place], state)
            pairs = self._test_pairs(transition, runs, pairs, late)
            found_runs.append(pairs.run)
            found_rows.append(pairs.row)
        if not found_runs:
            empty = np.zeros(0, dtype=np.int64)
            return _AcceptedPairs(transition, empty, empty)
        return _AcceptedPairs(transition, np.concatenate(found_runs), np.concatenate(found_rows))

    def _drop_disordered(
        self,
        transition: RunTransition,
        runs: RunSet,
        run: Positions,
        row: Positions,
        state: RunState,
    ) -> _AcceptedPairs:
        """Drops rows that the run has taken, or that tie with one it must come after."""
        if not self._any_order:
            return _AcceptedPairs(transition, run, row)
        tie = self.events.tie.start
        allowed = np.ones(len(run), dtype=np.bool_)
        for other in state.filled:
            taken = runs.last[run, other]
            together = (taken >= 0) & (tie[np.maximum(taken, 0)] == tie[row])
            ordered = (other, transition.variable) in self._ordered
            if ordered and other not in transition.beside:
                allowed &= ~together
            else:
                allowed &= taken != row
        return _AcceptedPairs(transition, run[allowed], row[allowed])

    def _at_earliest_key(
        self, accepted: Sequence[_AcceptedPairs], size: int
    ) -> list[_AcceptedPairs]:
        """Of each run's accepted pairs, those at its earliest order key."""
        tie = self.events.tie.start
        first = np.full(size, self.events.size)
        for pairs in accepted:
            np.minimum.at(first, pairs.run, tie[pairs.row])
        return [
            replace(pairs, run=pairs.run[now], row=pairs.row[now])
            for pairs in accepted
            for now in [tie[pairs.row] == first[pairs.run]]
        ]

    # ---- conditions ----------------------------------------------------------------------------

    def _test_pairs(
        self,
        transition: RunTransition,
        runs: RunSet,
        pairs: _AcceptedPairs,
        late: _LateRuns | None,
    ) -> _AcceptedPairs:
        plain = [c for c in transition.local if not remote_sources_of(c.expression)]
        if plain and len(pairs.run):
            kept = np.ones(len(pairs.run), dtype=np.bool_)
            for condition in plain:
                reader = self._reader(transition, condition, runs, pairs)
                kept &= reader.holds(condition)
            pairs = replace(pairs, run=pairs.run[kept], row=pairs.row[kept])
        # What fails a condition needs no remote data of the next.
        for condition in transition.local:
            if remote_sources_of(condition.expression) and len(pairs.run):
                pairs = self._test_remote(transition, condition, runs, pairs, late)
        if transition.whole and len(pairs.run):
            kept = self._test_lists(transition, runs, pairs)
            pairs = replace(pairs, run=pairs.run[kept], row=pairs.row[kept])
        return pairs

    def _test_remote(
        self,
        transition: RunTransition,
        condition: Condition,
        runs: RunSet,
        pairs: _AcceptedPairs,
        late: _LateRuns | None,
    ) -> _AcceptedPairs:
        reader = self._reader(transition, condition, runs, pairs)
        key_ids = reader.key_ids(condition)
        ready = ask_for(self._lookups, key_ids, len(pairs.run))
        if late is not None and not ready.all():
            postpones = any(self._lookups[remote].remote.postpones for remote, _ in key_ids)
            if postpones:
                late.add(pairs.run, ~ready, key_ids)
                on_time = np.flatnonzero(ready)
                pairs = replace(pairs, run=pairs.run[on_time], row=pairs.row[on_time])
                reader = reader.select(on_time)
        kept = reader.holds(condition) if len(pairs.run) else np.zeros(0, dtype=np.bool_)
        return replace(pairs, run=pairs.run[kept], row=pairs.row[kept])

    def _reader(
        self, transition: RunTransition, condition: Condition, runs: RunSet, pairs: _AcceptedPairs
    ) -> CellReader:
        variable = transition.variable
        group = self.automaton.group(variable)
        rows, previous = {variable: pairs.row}, {}
        for cell in cells_of(condition.expression):
            if cell.variable not in group:
                continue
            back = elements_back(cell, variable)
            held = (runs.before if back else runs.last)[pairs.run, cell.variable]
            if cell.reading == "prev":
                previous[cell.variable] = held
            elif cell.variable != variable:
                rows[cell.variable] = held
        # A member that is only read by `prev` still counts as one of the new rows.
        rows = {**previous, **rows}
        plain = [v for v in condition.variables if v not in group]
        slots = BranchSlots({v: SlotElements(Slot((v,))) for v in plain})
        partials = Partials({v: runs.last[:, v] for v in plain}, runs.earliest, runs.latest)
        return CellReader(
            self.events.columns, slots, partials, self.matching.tally,
            pairs.run, CandidateRows(rows, previous),
        )  # fmt: skip

    def _test_lists(self, transition: RunTransition, runs: RunSet, pairs: _AcceptedPairs) -> Flags:
        """Conditions over lists, tested on the run's rows with the new one among them, in blocks
        bounded by the length of the lists."""
        parts = []
        ends = np.cumsum(self.forest["depth"][runs.tip[pairs.run]] + 1)
        blocks_of_rows = ends // self.matching.program.block_pairs
        cuts = np.flatnonzero(np.diff(blocks_of_rows)) + 1
        for index in np.split(np.arange(len(ends)), cuts):
            part = replace(pairs, run=pairs.run[index], row=pairs.row[index])
            parts.append(self._test_list_block(transition, runs, part))
        return np.concatenate(parts)

    def _test_list_block(
        self, transition: RunTransition, runs: RunSet, pairs: _AcceptedPairs
    ) -> Flags:
        before = self.forest.size
        tips = self.forest.add(
            runs.tip[pairs.run], transition.variable, pairs.row, 0, accepts=False
        )
        kept = np.ones(len(tips), dtype=np.bool_)
        for condition in transition.whole:
            slots = [s for v, s in self._slots.items() if condition.variables & set(v)]
            for part in assemble_partials(self.forest, tips, slots, only=condition.variables):
                reader = CellReader(
                    self.events.columns, part.slots, part.partials, self.matching.tally
                )
                kept[part.which] &= reader.holds(condition)
        self.forest.forget(before)
        return kept

    def _rows(self, variable: int) -> Positions:
        if variable not in self._candidates:
            self._candidates[variable] = np.flatnonzero(self.events.candidates(variable))
        return self._candidates[variable]


def _has_all(tree: Tree) -> bool:
    return tree.kind == "all" or any(_has_all(part) for part in tree.parts)


# ---- from finished runs to reported matches ------------------------------------------------------


def select_matches(
    matching: AdvanceContext, forest: RunForest, automaton: RunAutomaton, states: Sequence[RunState]
) -> Iterator[MatchSet]:
    """The matches to report: those whose deciding row, the latest or the first, is new.

    Every node at which the pattern was complete is a candidate. It is a match if its NOTs and the
    conditions on lists that were still open hold. Of matches that are prefixes of one another only
    the longest is reported.
    """
    checker = _MatchChecker(matching, forest, automaton, states)
    nodes = _longest_matches(forest, checker)
    shapes: dict[tuple[tuple[int, int], ...], list[MatchSet]] = {}
    for state in range(len(states)):
        mine = nodes[forest["state"][nodes] == state]
        branches = checker.branches(states[state])
        if not len(mine) or not branches:
            continue
        for part in assemble_partials(forest, mine, branches[0].slots):
            partials = part.partials
            counts = partials.earliest if matching.deciding_row == "start" else partials.latest
            new = matching.status[counts] == NEW
            found = _make_match_set(branches[0], part, new)
            if len(found):
                shapes.setdefault(_match_shape(found), []).append(found)
    for alike in shapes.values():
        found = _drop_duplicates(alike)
        matching.meter.count_matches(found.earliest)
        yield found


def _make_match_set(branch: Branch, part: TipPartials, kept: Flags) -> MatchSet:
    partials = part.partials.take(kept)
    rows = {v: part.slots.rows(v, partials) for slot in branch.slots for v in slot.variables}
    return MatchSet(rows, partials.earliest, partials.latest, branch.empty)


def _match_shape(found: MatchSet) -> tuple[tuple[int, int], ...]:
    return tuple((v, r.shape[1] if r.ndim > 1 else 0) for v, r in sorted(found.rows.items()))


def _drop_duplicates(alike: Sequence[MatchSet]) -> MatchSet:
    """One set of all; tied rows of an AND can lead several runs to the same match."""
    rows = {v: np.concatenate([found.rows[v] for found in alike]) for v in alike[0].rows}
    earliest = np.concatenate([found.earliest for found in alike])
    latest = np.concatenate([found.latest for found in alike])
    matrix = np.concatenate([r.reshape(len(earliest), -1) for r in rows.values()], axis=1)
    _, first = np.unique(matrix, axis=0, return_index=True)
    return MatchSet(rows, earliest, latest, alike[0].empty).take(np.sort(first))


def _longest_matches(forest: RunForest, checker: _MatchChecker) -> Positions:
    """Accepted nodes that are matches and have no match below them.

    Decided from the tips upwards: a node is checked when all nodes that extend it have failed, and
    dropped as soon as one of them is a match.
    """
    nodes = np.flatnonzero(forest["accepted"][: forest.size] == np.arange(forest.size))
    above = forest.accepted_above(nodes)
    place = np.full(forest.size + 1, -1)
    place[nodes] = np.arange(len(nodes))
    parent = np.where(above >= 0, place[above], -1)
    undecided = np.bincount(parent[parent >= 0], minlength=len(nodes))
    surpassed = np.zeros(len(nodes), dtype=np.bool_)
    reported = []
    ready = np.flatnonzero(undecided == 0)
    while len(ready):
        candidates = ready[~surpassed[ready]]
        valid = candidates[checker.valid(nodes[candidates])]
        reported.append(valid)
        surpassed[valid] = True
        up = parent[ready]
        has = up >= 0
        surpassed[up[has & surpassed[ready]]] = True
        np.subtract.at(undecided, up[has], 1)
        ready = np.unique(up[has])
        ready = ready[undecided[ready] == 0]
    return nodes[np.concatenate(reported)] if reported else nodes[:0]


class _MatchChecker:
    """Decides whether accepted nodes are matches."""

    def __init__(
        self,
        matching: AdvanceContext,
        forest: RunForest,
        automaton: RunAutomaton,
        states: Sequence[RunState],
    ) -> None:
        self._matching = matching
        self._forest = forest
        self._automaton = automaton
        self._states = states
        self._by_filled: dict[frozenset[int], list[Branch]] = {}
        for branch in matching.program.branches:
            self._by_filled.setdefault(branch.filled(), []).append(branch)

    def branches(self, state: RunState) -> list[Branch]:
        return self._by_filled.get(state.filled, [])

    def valid(self, nodes: Positions) -> Flags:
        valid = np.ones(len(nodes), dtype=np.bool_)
        state_of = self._forest["state"][nodes]
        for number, state in enumerate(self._states):
            mine = np.flatnonzero(state_of == number)
            branches = self.branches(state)
            if not len(mine) or not self._needs_check(state, branches):
                continue
            for part in assemble_partials(self._forest, nodes[mine], branches[0].slots):
                valid[mine[part.which]] = self._holds(state, branches, part)
        return valid

    def _needs_check(self, state: RunState, branches: Sequence[Branch]) -> bool:
        return bool(self._automaton.unfinished(state)) or any(
            branch.negations or any(body.negations for slot in branch.slots for body in slot.bodies)
            for branch in branches
        )

    def _holds(self, state: RunState, branches: Sequence[Branch], part: TipPartials) -> Flags:
        partials = part.partials
        holds = np.ones(len(partials), dtype=np.bool_)
        reader = CellReader(
            self._matching.events.columns, part.slots, partials, self._matching.tally
        )
        for condition in self._automaton.unfinished(state):
            holds &= reader.holds(condition)
        free = np.zeros(len(partials), dtype=np.bool_)
        # Branches that fill the same variables differ in their NOTs: those of one must hold.
        for branch in branches:
            free |= self._meets_negations(branch, part, partials)
        return holds & free

    def _meets_negations(self, branch: Branch, part: TipPartials, partials: Partials) -> Flags:
        negations = NegationChecker(self._matching, part.slots)
        free = np.ones(len(partials), dtype=np.bool_)
        for check in compile_negation_checks(branch, self._matching.program):
            free &= negations.allow(check, partials)
        return free


# ---- the rows of runs ----------------------------------------------------------------------------


class RunForest:
    """The rows that runs have taken: a run or a match is a node and its ancestors.

    Under skip till next match a list can hold hundreds of rows and runs split, so a run is only
    the node of the row it took last. Nodes are numbered in order of creation, so a parent's number
    is below its children's. `accepted[node]` is the nearest node at or above it at which the
    pattern was complete, or -1.
    """

    def __init__(self) -> None:
        self.size = 0
        self._fields: dict[str, Positions] = {
            name: np.zeros(1024, dtype=np.int64)
            for name in ("parent", "variable", "row", "state", "accepted", "depth")
        }

    def add(
        self, parent: Positions, variable: int, row: Positions, state: int, *, accepts: bool
    ) -> Positions:
        """Adds nodes below `parent` (-1: a run begins)."""
        nodes = np.arange(self.size, self.size + len(row))
        self._reserve(self.size + len(row))
        above = np.where(parent >= 0, self["accepted"][parent], -1)
        self._fields["parent"][nodes] = parent
        self._fields["variable"][nodes] = variable
        self._fields["row"][nodes] = row
        self._fields["state"][nodes] = state
        self._fields["accepted"][nodes] = nodes if accepts else above
        self._fields["depth"][nodes] = 1 + np.where(parent >= 0, self["depth"][parent], 0)
        self.size += len(row)
        return nodes

    def __getitem__(self, name: str) -> Positions:
        return self._fields[name]

    def forget(self, size: int) -> None:
        """Drops the nodes added since the forest had this size."""
        self.size = size

    def accepted_above(self, nodes: Positions) -> Positions:
        """The nearest accepted node strictly above each node, or -1."""
        parent = self["parent"][nodes]
        return np.where(parent >= 0, self["accepted"][parent], -1)

    def _reserve(self, size: int) -> None:
        for name, values in self._fields.items():
            if size > len(values):
                grown = np.zeros(max(size, 2 * len(values)), dtype=np.int64)
                grown[: self.size] = values[: self.size]
                self._fields[name] = grown

    def rows(self, tips: Positions) -> tuple[Positions, Positions, Positions]:
        """All rows at and above each tip: (tip, variable, row), earliest first."""
        owners, nodes = [], []
        owner, node = np.arange(len(tips)), tips
        while len(node):
            owners.append(owner)
            nodes.append(node)
            node = self["parent"][node]
            going = node >= 0
            owner, node = owner[going], node[going]
        if not nodes:
            return tips, tips, tips
        owner = np.concatenate(owners[::-1])
        node = np.concatenate(nodes[::-1])
        return owner, self["variable"][node], self["row"][node]


@dataclass(frozen=True)
class TipPartials:
    """Partials over `slots` of the tips of one shape; `which`: their places among all tips."""

    which: Positions
    partials: Partials
    slots: BranchSlots


def assemble_partials(
    forest: RunForest, tips: Positions, slots: Sequence[Slot], only: frozenset[int] | None = None
) -> Iterator[TipPartials]:
    """The rows of tips as partials, one set for each combination of list lengths.

    All tips fill the same variables, those of `slots`. `only`: rows of these variables alone. An
    iteration of a group counts when all of its requested variables have their row.
    """
    owner, variable, row = forest.rows(tips)
    earliest, latest = _row_extent(owner, row, len(tips))
    bound = {v for slot in slots for v in slot.variables if only is None or v in only}
    columns, lengths = {}, np.zeros((len(tips), max(bound, default=0) + 1), dtype=np.int64)
    for v in bound:
        mine = np.flatnonzero(variable == v)
        mine = mine[np.argsort(owner[mine], kind="stable")]
        columns[v] = (owner[mine], row[mine])
        lengths[:, v] = np.bincount(owner[mine], minlength=len(tips))
    for which in group_equal_rows(lengths):
        elements, bindings = {}, {}
        for number, slot in enumerate(slots):
            taken = {
                v: _row_matrix(columns[v], which, len(tips)) for v in slot.variables if v in bound
            }
            elements[number], bindings[number] = _fill_slot(slot, taken)
        partials = Partials(bindings, earliest[which], latest[which])
        yield TipPartials(which, partials, BranchSlots(elements))


def _row_extent(owner: Positions, row: Positions, tips: int) -> tuple[Positions, Positions]:
    earliest = np.full(tips, np.iinfo(np.int64).max)
    latest = np.full(tips, -1)
    np.minimum.at(earliest, owner, row)
    np.maximum.at(latest, owner, row)
    return earliest, latest


def _row_matrix(column: tuple[Positions, Positions], which: Positions, tips: int) -> Positions:
    """(tips, length): the rows of one variable, earliest first."""
    owner, row = column
    chosen = np.zeros(tips, dtype=np.bool_)
    chosen[which] = True
    # `which` ascends and so do the owners: the rows come out tip by tip.
    return row[chosen[owner]].reshape(len(which), -1)


def _fill_slot(slot: Slot, taken: Mapping[int, Positions]) -> tuple[SlotElements, Positions]:
    if not slot.is_group:
        rows = taken[slot.variables[0]]
        return SlotElements(slot), rows if slot.is_list else rows[:, 0]
    # A run may be in the middle of an iteration, which is no element yet.
    length = min(rows.shape[1] for rows in taken.values())
    members = {v: rows[:, :length].ravel() for v, rows in taken.items()}
    first, last = extent(members)
    count = len(next(iter(taken.values())))
    return SlotElements(slot, first, last, members), np.arange(count * length).reshape(
        count, length
    )
