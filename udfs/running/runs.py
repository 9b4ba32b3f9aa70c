"""The run engine: skip-till-next-match and strict, all runs in lockstep.

A run starts at every row that can start and takes the next row that an open variable accepts. In
a round, all runs in the same state look at their next few candidates of each open variable at
once; those that find an accepted row take it (and split where several are accepted at the same
order key), the others look further, twice as far each time. So a round is a handful of array
operations, however many runs and keys there are.

NOTs and aggregates of lists that are still open are tested on finished matches; of finished
matches on one path only the last is given (see `finish.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.deciding import places_of_nots
from spark_cep.udfs.events import AHEAD, OLD
from spark_cep.udfs.expressions import cells
from spark_cep.udfs.joining.partials import Elements, Partials, Slots
from spark_cep.udfs.joining.reading import Candidates, Reader
from spark_cep.udfs.joining.scope import Range, blocks
from spark_cep.udfs.program import Condition, Slot, Tree
from spark_cep.udfs.running.automaton import (
    Automaton,
    State,
    Transition,
    current_or_previous,
    ordered_pairs,
)
from spark_cep.udfs.running.finish import finished
from spark_cep.udfs.running.trail import Trail, assemble

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.matching import Found, Matching

# How many candidates of a variable a run looks at first. Most runs take the first one; runs that
# do not find any look at twice as many the next time.
FIRST_LOOK = 2
FARTHEST_LOOK = 1 << 12


@dataclass(frozen=True)
class Runs:
    """Runs in one state, one entry each. `last[v]` is the row taken last as v, `before[v]` the
    one before it (-1: none). `cursor` is the first position not looked at yet."""

    tip: Positions
    earliest: Positions
    latest: Positions
    cursor: Positions
    look: Positions
    last: Positions
    before: Positions

    def __len__(self) -> int:
        return len(self.tip)

    def take(self, index: Positions | Flags) -> Runs:
        return Runs(*(getattr(self, each.name)[index] for each in fields(self)))


def _joined(parts: Sequence[Runs]) -> Runs:
    return Runs(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Runs)))


@dataclass(frozen=True)
class _Accepted:
    """Pairs of a run and a row it may take through `transition`."""

    transition: Transition
    run: Positions
    row: Positions


class Race:
    """Runs over one set of events until all have ended, or gone as far as there are rows.

    `passed`: of which rows the window is known to its end. Where a match hangs on its start, a
    start is decided when every run from it, or from a row tied with it, has ended.
    """

    def __init__(self, matching: Matching, passed: Flags) -> None:
        self.matching = matching
        self._passed = passed
        self._is_open = np.zeros(matching.events.size, dtype=np.bool_)
        if places_of_nots(matching.program) & {"end", "around"}:
            self._is_open = ~passed
        self.events = matching.events
        self.automaton = Automaton(matching.program)
        self.trail = Trail()
        self.states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._ordered = ordered_pairs(matching.program.tree)
        self._any_order = _has_all(matching.program.tree)
        self._candidates: dict[int, Positions] = {}
        self._slots = {
            slot.variables: slot for branch in matching.program.branches for slot in branch.slots
        }

    def run(self) -> None:
        waiting: dict[State, list[Runs]] = {}
        for state, runs in self._started():
            waiting.setdefault(state, []).append(runs)
        while waiting:
            state = next(iter(waiting))
            runs = _joined(waiting.pop(state))
            for reached, moved in self._round(state, runs):
                if len(moved):
                    waiting.setdefault(reached, []).append(moved)
        if self.matching.given_by == "start":
            self.matching.status[self._is_open[self.events.tie.start]] = AHEAD

    def matches(self) -> Iterator[Found]:
        """The matches that are given now; `run` has been called."""
        return finished(self.matching, self.trail, self.automaton, self.states)

    # -- starting and taking ---------------------------------------------------------------------

    def _started(self) -> Iterator[tuple[State, Runs]]:
        for transition in self.automaton.transitions(self.automaton.start):
            rows = self._rows(transition.variable)
            if self.matching.given_by == "start":
                rows = rows[self.matching.status[rows] != OLD]
            fits = self.events.fits(rows)
            rows = rows if fits is None else rows[fits]
            nobody = np.full((len(rows), len(self.matching.program.variables)), -1)
            none = np.full(len(rows), -1)
            start = Runs(none, rows, rows, rows, rows, nobody, nobody)
            yield (
                transition.target,
                self._taken(start, _Accepted(transition, np.arange(len(rows)), rows)),
            )

    def _taken(self, runs: Runs, accepted: _Accepted) -> Runs:
        """The runs after taking their rows."""
        transition, row = accepted.transition, accepted.row
        old = runs.take(accepted.run)
        state = self._number(transition.target)
        tip = self.trail.add(
            old.tip, transition.variable, row, state, accepts=transition.target.accepts
        )
        last, before = old.last.copy(), old.before.copy()
        before[:, transition.variable] = last[:, transition.variable]
        last[:, transition.variable] = row
        earliest = np.minimum(old.earliest, row)
        self.matching.meter.partials(earliest)
        tie = self.events.tie
        cursor = tie.start[row] if self._any_order else tie.end[row]
        look = np.full(len(row), FIRST_LOOK)
        return Runs(tip, earliest, np.maximum(old.latest, row), cursor, look, last, before)

    def _number(self, state: State) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
        return self._numbers[state]

    # -- one round -------------------------------------------------------------------------------

    def _round(self, state: State, runs: Runs) -> Iterator[tuple[State, Runs]]:
        transitions = self.automaton.transitions(state)
        if not transitions or not len(runs):
            return
        limit = self._limit(runs)
        reach = self._reach(transitions, runs, limit)
        accepted = [self._accepted(state, transition, runs, reach) for transition in transitions]
        chosen = self._earliest_key(accepted, len(runs))
        for pairs in chosen:
            if len(pairs.run):
                yield pairs.transition.target, self._taken(runs, pairs)
        moved = np.zeros(len(runs), dtype=np.bool_)
        for pairs in chosen:
            moved[pairs.run] = True
        stay = ~moved & (reach < limit)
        self._leave_open(runs.take(~moved & ~stay))
        # A look that ends within one large group of ties made no progress: it has to widen.
        stuck = reach <= runs.cursor
        look = np.where(stuck, runs.look * 2, np.minimum(runs.look * 2, FARTHEST_LOOK))
        yield state, replace(runs, cursor=np.maximum(reach, runs.cursor), look=look).take(stay)

    def _leave_open(self, runs: Runs) -> None:
        """Marks the starts of runs that found nothing, where a row may come that they take."""
        is_open = ~self._passed[runs.earliest]
        if self.matching.program.strategy == "strict":
            tie, partition = self.events.tie, self.events.partition
            is_open &= tie.end[runs.latest] >= partition.end[runs.latest]
        self._is_open[self.events.tie.start[runs.earliest[is_open]]] = True

    def _limit(self, runs: Runs) -> Positions:
        """Where the run cannot take rows any more: window, partition, and under strict the end
        of the next order key."""
        limit = self.events.window.end[runs.earliest]
        if self.matching.program.strategy == "strict":
            tie, partition = self.events.tie, self.events.partition
            following = tie.end[runs.latest]
            inside = following < partition.end[runs.latest]
            adjacent = np.where(inside, tie.end[np.where(inside, following, 0)], following)
            limit = np.minimum(limit, adjacent)
        return limit

    def _reach(self, transitions: Sequence[Transition], runs: Runs, limit: Positions) -> Positions:
        """How far this round looks: to where the first open variable has shown `look` candidates,
        cut to whole groups of ties."""
        reach = limit
        for transition in transitions:
            candidates = self._rows(transition.variable)
            below = self.events.below(transition.variable)
            stop = below[runs.cursor] + runs.look
            more = stop < below[np.maximum(limit, runs.cursor)]
            beyond = (
                np.where(more, candidates[np.where(more, stop, 0)], limit) if more.any() else limit
            )
            reach = np.minimum(reach, beyond)
        inside = reach < limit
        return np.where(inside, self.events.tie.start[np.where(inside, reach, 0)], limit)

    def _accepted(
        self, state: State, transition: Transition, runs: Runs, reach: Positions
    ) -> _Accepted:
        variable = transition.variable
        below, candidates = self.events.below(variable), self._rows(variable)
        ranges = Range(below[runs.cursor], below[np.maximum(reach, runs.cursor)])
        found_runs, found_rows = [], []
        for run, place in blocks(ranges, self.matching.program.block_pairs):
            self.matching.meter.pairs(len(run))
            pairs = self._in_order(transition, runs, run, candidates[place], state)
            pairs = self._tested(transition, runs, pairs)
            found_runs.append(pairs.run)
            found_rows.append(pairs.row)
        if not found_runs:
            empty = np.zeros(0, dtype=np.int64)
            return _Accepted(transition, empty, empty)
        return _Accepted(transition, np.concatenate(found_runs), np.concatenate(found_rows))

    def _in_order(
        self, transition: Transition, runs: Runs, run: Positions, row: Positions, state: State
    ) -> _Accepted:
        """Drops rows of the run's own order key that are taken, or in sequence with one taken."""
        if not self._any_order:
            return _Accepted(transition, run, row)
        tie = self.events.tie.start
        allowed = np.ones(len(run), dtype=np.bool_)
        for other in state.filled:
            taken = runs.last[run, other]
            together = (taken >= 0) & (tie[np.maximum(taken, 0)] == tie[row])
            if (other, transition.variable) in self._ordered:
                allowed &= ~together
            else:
                allowed &= taken != row
        return _Accepted(transition, run[allowed], row[allowed])

    def _earliest_key(self, accepted: Sequence[_Accepted], size: int) -> list[_Accepted]:
        """Of each run's accepted pairs those at its earliest order key."""
        tie = self.events.tie.start
        first = np.full(size, self.events.size)
        for pairs in accepted:
            np.minimum.at(first, pairs.run, tie[pairs.row])
        return [
            replace(pairs, run=pairs.run[now], row=pairs.row[now])
            for pairs in accepted
            for now in [tie[pairs.row] == first[pairs.run]]
        ]

    # -- conditions ------------------------------------------------------------------------------

    def _tested(self, transition: Transition, runs: Runs, pairs: _Accepted) -> _Accepted:
        if transition.local and len(pairs.run):
            kept = np.ones(len(pairs.run), dtype=np.bool_)
            for condition in transition.local:
                reader = self._reader(transition, condition, runs, pairs)
                kept &= reader.holds(condition)
            pairs = replace(pairs, run=pairs.run[kept], row=pairs.row[kept])
        if transition.whole and len(pairs.run):
            kept = self._hold_as_whole(transition, runs, pairs)
            pairs = replace(pairs, run=pairs.run[kept], row=pairs.row[kept])
        return pairs

    def _reader(
        self, transition: Transition, condition: Condition, runs: Runs, pairs: _Accepted
    ) -> Reader:
        variable = transition.variable
        group = self.automaton.group(variable)
        rows, previous = {variable: pairs.row}, {}
        for cell in cells(condition.expression):
            if cell.variable not in group:
                continue
            back = current_or_previous(cell, variable, group)
            held = (runs.before if back else runs.last)[pairs.run, cell.variable]
            if cell.reading == "prev":
                previous[cell.variable] = held
            elif cell.variable != variable:
                rows[cell.variable] = held
        # A member that is only read back still counts as one of the new row's own.
        rows = {**previous, **rows}
        plain = [v for v in condition.variables if v not in group]
        slots = Slots({v: Elements(Slot((v,))) for v in plain})
        partials = Partials({v: runs.last[:, v] for v in plain}, runs.earliest, runs.latest)
        return Reader(
            self.events.columns, slots, partials, self.matching.tally,
            pairs.run, Candidates(rows, previous),
        )  # fmt: skip

    def _hold_as_whole(self, transition: Transition, runs: Runs, pairs: _Accepted) -> Flags:
        """Conditions over lists: the run's rows are laid out with the new one among them, as many
        pairs at a time as their lists allow."""
        parts = []
        ends = np.cumsum(self.trail["depth"][runs.tip[pairs.run]] + 1)
        blocks_of_rows = ends // self.matching.program.block_pairs
        cuts = np.flatnonzero(np.diff(blocks_of_rows)) + 1
        for index in np.split(np.arange(len(ends)), cuts):
            part = replace(pairs, run=pairs.run[index], row=pairs.row[index])
            parts.append(self._hold_together(transition, runs, part))
        return np.concatenate(parts)

    def _hold_together(self, transition: Transition, runs: Runs, pairs: _Accepted) -> Flags:
        before = self.trail.size
        tips = self.trail.add(runs.tip[pairs.run], transition.variable, pairs.row, 0, accepts=False)
        kept = np.ones(len(tips), dtype=np.bool_)
        for condition in transition.whole:
            slots = [s for v, s in self._slots.items() if condition.variables & set(v)]
            for part in assemble(self.trail, tips, slots, only=condition.variables):
                reader = Reader(self.events.columns, part.slots, part.partials, self.matching.tally)
                kept[part.which] &= reader.holds(condition)
        self.trail.forget(before)
        return kept

    def _rows(self, variable: int) -> Positions:
        if variable not in self._candidates:
            self._candidates[variable] = np.flatnonzero(self.events.candidates(variable))
        return self._candidates[variable]


def _has_all(tree: Tree) -> bool:
    return tree.kind == "all" or any(_has_all(part) for part in tree.parts)
