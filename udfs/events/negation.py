"""NOT as an anti-join: which partial matches no row of the negated variable blocks.

A check runs as soon as the parts around the NOT and the variables of its conditions are bound.
Without conditions it counts candidates in the forbidden range; with conditions it expands the range
in blocks, like a step, and tests whether any row meets them all. For a NOT of a group the
occurrences of the group take the place of rows. A match's own rows never block it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.candidates import CandidateIndex, PositionRanges, pair_blocks
from spark_cep.udfs.events.partials import CandidateRows, CellReader, looks_back

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.partials import BranchSlots, Partials, SlotElements
    from spark_cep.udfs.events.steps import NegationCheck
    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.program import Negation


@dataclass(frozen=True)
class _GroupIteration:
    """For a NOT in a repeated group: the rows of the iteration's members and of the iteration
    before, and which entries are first iterations."""

    rows: Mapping[int, Positions]
    previous: Mapping[int, Positions]
    first: Flags

    def take(self, index: Positions) -> _GroupIteration:
        return _GroupIteration(
            {v: rows[index] for v, rows in self.rows.items()},
            {v: rows[index] for v, rows in self.previous.items()},
            self.first[index],
        )


@dataclass(frozen=True)
class _NegationScope:
    """What one check reads: for each partial the forbidden range and the match's own rows."""

    partials: Partials
    rows: PositionRanges
    own: list[Positions]
    iteration: _GroupIteration | None = None

    def take(self, index: Positions) -> _NegationScope:
        return _NegationScope(
            self.partials.take(index),
            PositionRanges(self.rows.low[index], self.rows.high[index]),
            [mine[index] for mine in self.own],
            None if self.iteration is None else self.iteration.take(index),
        )

    def candidates(self, partial: Positions, negated: Mapping[int, Positions]) -> CandidateRows:
        """`negated`: for each negated variable the row of each pair."""
        if self.iteration is None:
            return CandidateRows(negated)
        return CandidateRows(
            {**negated, **{v: mine[partial] for v, mine in self.iteration.rows.items()}},
            {v: mine[partial] for v, mine in self.iteration.previous.items()},
        )


@dataclass
class NegationChecker:
    """Runs the negation checks of one branch over one set of events."""

    matching: AdvanceContext
    slots: BranchSlots

    def __post_init__(self) -> None:
        self.events = self.matching.events
        self.meter, self.tally = self.matching.meter, self.matching.tally
        self._indexes: dict[tuple[int, bool], CandidateIndex] = {}

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

    def drop_covered(
        self, covered: Sequence[Sequence[NegationCheck]], partials: Partials
    ) -> Partials:
        """The partials without those for which all checks of one of the tuples hold."""
        for checks in covered:
            if len(partials):
                held = np.ones(len(partials), dtype=np.bool_)
                for check in checks:
                    held &= self.allow(check, partials)
                partials = partials.take(~held)
        return partials

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
        # Members of the same iteration without order to the NOT may lie inside too.
        own = [*self._own_rows(check, each), *rows.values()]
        free = self._is_free(check, _NegationScope(each, scope, own, iteration))
        return np.asarray(free.reshape(-1, length).all(axis=1))

    def _between_members(
        self, negation: Negation, filled: SlotElements, rows: Mapping[int, Positions]
    ) -> PositionRanges:
        # NOTs are in groups without alternatives only.
        (body,), tie = filled.slot.bodies, self.events.tie
        after = [rows[v] for slot in negation.after for v in body.slots[slot].variables]
        before = [rows[v] for slot in negation.before for v in body.slots[slot].variables]
        low = tie.end[np.maximum.reduce(after)]
        return PositionRanges(low, np.maximum(low, tie.start[np.minimum.reduce(before)]))

    # ---- blocking rows -------------------------------------------------------------------------

    def _is_free(self, check: NegationCheck, scope: _NegationScope) -> Flags:
        if check.negation.group is not None:
            return self._is_free_of_group(check, scope)
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
            index = self._index(check, candidates, {variable: candidates})
            ranges = index.find(rows, [reader.values(e.bound) for e in check.equalities])
            candidates = candidates[index.elements]
        else:
            ranges = PositionRanges(below[rows.low], below[rows.high])
        blocked = np.zeros(len(scope.partials), dtype=np.bool_)
        for partial, place in pair_blocks(ranges, self.meter.block_pairs()):
            self.meter.count_pairs(scope.partials.earliest, partial)
            negated = {variable: candidates[place]}
            blocks = self._blocking_pairs(check, scope, reader, partial, negated)
            blocked[partial[blocks]] = True
        return ~blocked

    def _is_free_of_group(self, check: NegationCheck, scope: _NegationScope) -> Flags:
        """The check of a negated group: an occurrence blocks if it begins and ends in range.

        Rows of the match are in no occurrence that blocks. Where none of them may be in any, all
        occurrences count, so those that end first will do.
        """
        shares = np.zeros(len(scope.partials), dtype=np.bool_)
        for mine in scope.own:
            for variable in check.negation.variables:
                shares |= self.events.candidates(variable)[mine]
        free = np.ones(len(scope.partials), dtype=np.bool_)
        apart, sharing = np.flatnonzero(~shares), np.flatnonzero(shares)
        if len(apart):
            free[apart] = self._is_free_of_occurrences(check, replace(scope.take(apart), own=[]))
        if len(sharing):
            free[sharing] = self._is_free_of_occurrences(check, scope.take(sharing))
        return free

    def _is_free_of_occurrences(self, check: NegationCheck, scope: _NegationScope) -> Flags:
        assert self.matching.occurrences is not None
        found = self.matching.occurrences.find(check, keeps_all=bool(scope.own))
        rows = scope.rows
        possible = np.asarray(found.ending[rows.low] < rows.high)
        if not (check.tests or check.equalities or scope.own):
            return ~possible
        rows = PositionRanges(rows.low, np.where(possible, rows.high, rows.low))
        reader = CellReader(self.events.columns, self.slots, scope.partials, self.tally)
        elements = np.arange(len(found.first))
        if check.equalities:
            index = self._index(check, found.first, found.members, keeps_all=bool(scope.own))
            ranges = index.find(rows, [reader.values(e.bound) for e in check.equalities])
            elements = index.elements
        else:
            ranges = PositionRanges(
                np.searchsorted(found.first, rows.low), np.searchsorted(found.first, rows.high)
            )
        blocked = np.zeros(len(scope.partials), dtype=np.bool_)
        for pick, place in pair_blocks(ranges, self.meter.block_pairs()):
            self.meter.count_pairs(scope.partials.earliest, pick)
            chosen = elements[place]
            inside = found.last[chosen] < rows.high[pick]
            partial = pick[inside]
            negated = {v: each[chosen[inside]] for v, each in found.members.items()}
            blocks = self._blocking_pairs(check, scope, reader, partial, negated)
            blocked[partial[blocks]] = True
        return ~blocked

    def _index(
        self,
        check: NegationCheck,
        first: Positions,
        members: Mapping[int, Positions],
        *,
        keeps_all: bool = False,
    ) -> CandidateIndex:
        """The candidates by the values of the equalities; its elements are their places."""
        # A check lives as long as the steps it belongs to, so its id is not reused.
        number = id(check), keeps_all
        if number not in self._indexes:
            keys = [(e.cell, members[e.cell.variable]) for e in check.equalities]
            self._indexes[number] = CandidateIndex(
                np.arange(len(first)), first, keys, self.events.columns, self.events.size
            )
        return self._indexes[number]

    def _blocking_pairs(
        self,
        check: NegationCheck,
        scope: _NegationScope,
        reader: CellReader,
        partial: Positions,
        negated: Mapping[int, Positions],
    ) -> Flags:
        blocks = np.ones(len(partial), dtype=np.bool_)
        for mine in scope.own:
            for rows in negated.values():
                blocks &= mine[partial] != rows
        pairs = replace(reader, pick=partial, candidates=scope.candidates(partial, negated))
        for condition in check.tests:
            holds = pairs.holds(condition)
            if scope.iteration is not None and looks_back(condition, scope.iteration.rows):
                # `prev` is not tested in a first iteration.
                holds = holds | scope.iteration.first[partial]
            blocks &= holds
        return blocks
