"""NOT as an anti-join: which partial matches no row of the negated variable blocks.

A check runs as soon as the parts around the NOT and the variables of its conditions are bound.
Without conditions it counts candidates in the forbidden range; with conditions it expands the range
in blocks, like a step, and tests whether any row meets them all. A match's own rows never block it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.candidates import CandidateIndex, PositionRanges, pair_blocks
from spark_cep.udfs.events.partials import CandidateRows, CellReader, looks_back

if TYPE_CHECKING:
    from spark_cep.udfs.events.metrics import Meter
    from spark_cep.udfs.events.partials import BranchSlots, Partials, SlotElements
    from spark_cep.udfs.events.steps import NegationCheck
    from spark_cep.udfs.events.table import Events, Flags, Positions
    from spark_cep.udfs.program import Negation
    from spark_cep.udfs.values.tally import ErrorTally


@dataclass(frozen=True)
class _GroupIteration:
    """For a NOT in a repeated group: the rows of the iteration's members and of the iteration
    before, and which entries are first iterations."""

    rows: Mapping[int, Positions]
    previous: Mapping[int, Positions]
    first: Flags


@dataclass(frozen=True)
class _NegationScope:
    """What one check reads: for each partial the forbidden range and the match's own rows."""

    partials: Partials
    rows: PositionRanges
    own: list[Positions]
    iteration: _GroupIteration | None = None

    def candidates(
        self, check: NegationCheck, partial: Positions, rows: Positions
    ) -> CandidateRows:
        negated = {check.negation.variable: rows}
        if self.iteration is None:
            return CandidateRows(negated)
        return CandidateRows(
            {**negated, **{v: mine[partial] for v, mine in self.iteration.rows.items()}},
            {v: mine[partial] for v, mine in self.iteration.previous.items()},
        )


@dataclass
class NegationChecker:
    """Runs the negation checks of one branch over one set of events."""

    events: Events
    slots: BranchSlots
    meter: Meter
    tally: ErrorTally
    block: int

    def __post_init__(self) -> None:
        self._indexes: dict[int, CandidateIndex] = {}

    def allow(self, check: NegationCheck, partials: Partials) -> Flags:
        """True for each partial that no row of the negated variable blocks."""
        if check.group is not None:
            return self._allow_in_group(check, check.group, partials)
        scope = _NegationScope(
            partials,
            self._forbidden_range(check.negation, partials),
            self._own_rows(check, partials),
        )
        return self._is_free(check, scope)

    # ---- the forbidden range -------------------------------------------------------------------

    def _forbidden_range(self, negation: Negation, partials: Partials) -> PositionRanges:
        window, tie = self.events.window, self.events.tie
        low = window.start[partials.latest]
        high = window.end[partials.earliest]
        if negation.after:
            latest = [self.slots.last(slot, partials) for slot in negation.after]
            low = tie.end[np.maximum.reduce(latest)]
        if negation.before:
            earliest = [self.slots.first(slot, partials) for slot in negation.before]
            high = tie.start[np.minimum.reduce(earliest)]
        return PositionRanges(low, np.maximum(low, high))

    def _own_rows(self, check: NegationCheck, partials: Partials) -> list[Positions]:
        """Columns of the match's own rows that may lie in the forbidden range."""
        return [
            column
            for slot in check.inside
            for rows in self.slots.all_rows(slot, partials)
            for column in rows.T
        ]

    def _allow_in_group(self, check: NegationCheck, group: int, partials: Partials) -> Flags:
        """The check within each iteration of a repeated group, one entry for each iteration."""
        elements = partials.elements[group]
        length = elements.shape[1]
        each = partials.take(np.repeat(np.arange(len(partials)), length))
        filled = self.slots.elements[group]
        before = np.concatenate([elements[:, :1], elements[:, :-1]], axis=1).ravel()
        variables = filled.slot.variables
        rows = {v: filled.rows(v, elements.ravel()) for v in variables}
        first = np.tile(np.arange(length) == 0, len(partials))
        iteration = _GroupIteration(rows, {v: filled.rows(v, before) for v in variables}, first)
        scope = self._between_members(check.negation, filled, rows)
        free = self._is_free(
            check, _NegationScope(each, scope, self._own_rows(check, each), iteration)
        )
        return np.asarray(free.reshape(-1, length).all(axis=1))

    def _between_members(
        self, negation: Negation, filled: SlotElements, rows: Mapping[int, Positions]
    ) -> PositionRanges:
        body, tie = filled.slot.body, self.events.tie
        assert body is not None
        after = [rows[v] for slot in negation.after for v in body.slots[slot].variables]
        before = [rows[v] for slot in negation.before for v in body.slots[slot].variables]
        low = tie.end[np.maximum.reduce(after)]
        return PositionRanges(low, np.maximum(low, tie.start[np.minimum.reduce(before)]))

    # ---- blocking rows -------------------------------------------------------------------------

    def _is_free(self, check: NegationCheck, scope: _NegationScope) -> Flags:
        variable, rows = check.negation.variable, scope.rows
        below = self.events.below(variable)
        if not check.tests and not check.equalities:
            count = below[rows.high] - below[rows.low]
            candidate = self.events.candidates(variable)
            for mine in scope.own:
                count = count - (candidate[mine] & (mine >= rows.low) & (mine < rows.high))
            return np.asarray(count == 0)
        reader = CellReader(self.events.columns, self.slots, scope.partials, self.tally)
        candidates = np.flatnonzero(self.events.candidates(variable))
        if check.equalities:
            index = self._index(check, candidates)
            ranges = index.find(rows, [reader.values(e.bound) for e in check.equalities])
            candidates = index.elements
        else:
            ranges = PositionRanges(below[rows.low], below[rows.high])
        blocked = np.zeros(len(scope.partials), dtype=np.bool_)
        for partial, place in pair_blocks(ranges, self.block):
            self.meter.count_pairs(scope.partials.earliest, partial)
            blocks = self._blocking_pairs(check, scope, reader, partial, candidates[place])
            blocked[partial[blocks]] = True
        return ~blocked

    def _index(self, check: NegationCheck, candidates: Positions) -> CandidateIndex:
        # A check lives as long as the steps it belongs to, so its id is not reused.
        if id(check) not in self._indexes:
            keys = [(equality.cell, candidates) for equality in check.equalities]
            self._indexes[id(check)] = CandidateIndex(
                candidates, candidates, keys, self.events.columns, self.events.size
            )
        return self._indexes[id(check)]

    def _blocking_pairs(
        self,
        check: NegationCheck,
        scope: _NegationScope,
        reader: CellReader,
        partial: Positions,
        rows: Positions,
    ) -> Flags:
        blocks = np.ones(len(rows), dtype=np.bool_)
        for mine in scope.own:
            blocks &= mine[partial] != rows
        pairs = replace(reader, pick=partial, candidates=scope.candidates(check, partial, rows))
        for condition in check.tests:
            holds = pairs.holds(condition)
            if scope.iteration is not None and looks_back(condition, scope.iteration.rows):
                # `prev` is not tested in a first iteration.
                holds = holds | scope.iteration.first[partial]
            blocks &= holds
        return blocks
