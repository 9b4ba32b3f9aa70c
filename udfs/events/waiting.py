"""Matches that wait for the watermark: joined when their rows arrive, tested again when certain.

A NOT is certain when no row can come any more where it forbids one. If matches were first looked
for then, the work of a trigger's rows would fall into the later trigger whose watermark passes
them. So the rows of a trigger are joined at once, as in a pattern without NOT, and the matches that
are not certain are kept in the state; when they are, only the NOTs are tested.

A match is given in the same advance either way, and the flags of the rows are the same, so each
advance may choose. Where more matches wait than the limit allows, none is kept, and the next
advance finds them from the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.branch_matcher import BranchMatcher, StoredPartials, partials_from_rows
from spark_cep.udfs.events.context import (
    arrival_status,
    certain_rows,
    deciding_row,
    negation_places,
    waits_for_horizon,
)
from spark_cep.udfs.events.deadline import DeadlinePassed
from spark_cep.udfs.events.negation import NegationChecker
from spark_cep.udfs.events.partials import merge_partials
from spark_cep.udfs.events.steps import BranchSteps
from spark_cep.udfs.events.walk import WalkTask
from spark_cep.udfs.planning.streams import KEEPING_SECONDS, PREFIX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.events.context import AdvanceContext, MatchSet
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.table import Events, Flags, Positions
    from spark_cep.udfs.program import Program, StreamLoad


# No more matches wait in the state of a bucket: with three variables 12 MB, written in each trigger
# in about 0.2 s.
MOST_WAITING: Final = 1 << 20


def can_keep_matches(program: Program) -> bool:
    """Whether matches may wait in the state.

    The positive part has to be certain when its rows are there: not in a window of events, in which
    late rows count, and not where matches depend on each other. Repeated groups number their
    iterations in each advance anew, and remote data is fetched for the matches of one trigger.
    """
    return (
        program.strategy == "any"
        and program.consumption == "reuse"
        and program.home is None
        and not program.remotes
        and (program.window is None or program.window.kind == "time")
        and bool(negation_places(program))
        and waits_for_horizon(program)
        and not any(slot.is_group for branch in program.branches for slot in branch.slots)
    )


class WaitingMatches:
    """The matches of one advance that are not certain yet. `status`: of the rows, `certain`: those
    whose matches are, if they are the deciding row. `has_overflowed`: more of them were found than
    `limit`, and none is kept."""

    def __init__(
        self,
        events: Events,
        given: Flags,
        joined: int,
        horizon: int | float,
        limit: int,
    ) -> None:
        """`given`: the flags of the rows. `joined`: how many rows of the table, the first ones,
        were joined before."""
        program = events.program
        self.certain = certain_rows(program, events, horizon)
        self.status = arrival_status(program, events.permutation < joined, given)
        self.has_overflowed = False
        self._by_earliest = deciding_row(program) == "earliest"
        self._limit = limit
        self._count = 0
        self._sets: dict[int, list[Partials]] = {}

    def is_certain(self, partials: Partials) -> Flags:
        return self.certain[partials.earliest if self._by_earliest else partials.latest]

    def add(self, branch: int, partials: Partials) -> None:
        self._count += len(partials)
        if self._count > self._limit:
            self.has_overflowed = True
            self._sets.clear()
        elif len(partials):
            self._sets.setdefault(branch, []).append(partials)

    def to_rows(self, place: Positions) -> tuple[StoredPartials, ...] | None:
        """For the state: `place` is the row of each position in its table. None where no matches
        are kept."""
        if self.has_overflowed:
            return None
        return tuple(
            StoredPartials(
                branch,
                tuple(sorted(partials.elements)),
                {slot: place[bound] for slot, bound in partials.elements.items()},
            )
            for branch, sets in self._sets.items()
            for partials in merge_partials(sets)
        )


class WaitingMatcher(BranchMatcher):
    """Joins the positive part of one branch, and decides which matches are certain.

    NOTs are tested on the way too: a row that blocks a match now blocks it for ever. What is
    covered by another branch is the other way round, and tested on certain matches only.
    """

    def __init__(self, matching: AdvanceContext, number: int, waiting: WaitingMatches) -> None:
        branch = matching.program.branches[number]
        super().__init__(matching, number, replace(branch, covered=()))
        # Partial matches that were kept were tested when fewer rows were known.
        self.starts_from_kept = False
        self._waiting = waiting
        self._whole = BranchSteps(branch, matching.program, matching.program.conditions)
        self._checker = NegationChecker(matching, self.slots)

    def finish(self, partials: Partials) -> Iterator[MatchSet]:
        certain = self._keep_uncertain(partials)
        try:
            certain = self._drop_blocked(certain, is_tested=not self.starts_from_kept)
        except DeadlinePassed:
            deadline = self.matching.meter.deadline
            assert deadline is not None
            deadline.count_skipped(0)
            return
        if len(certain):
            yield from super().finish(certain)

    def take_certain(self, stored: Sequence[StoredPartials], position: Positions) -> list[Partials]:
        """Of the matches that have waited in the state, those that are certain now; the others go
        on waiting. `position`: of each row of its table."""
        waited = (partials_from_rows(e, position) for e in stored if e.branch == self.number)
        return merge_partials(map(self._keep_uncertain, waited))

    def finish_kept(self, certain: Sequence[Partials]) -> Iterator[MatchSet]:
        """The matches among those that `take_certain` gave."""
        tasks = (WalkTask(partials, frozenset(partials.elements)) for partials in certain)
        deadline = self.matching.meter.deadline
        found = (
            self._test(tasks)
            if deadline is None
            else deadline.walk(tasks, self._test, count_parked=lambda: 0)
        )
        for partials in found:
            yield from super().finish(partials)

    def _test(self, tasks: Iterator[WalkTask]) -> Iterator[Partials]:
        for task in tasks:
            tested = self._drop_blocked(task.partials, is_tested=False)
            if len(tested):
                yield tested

    def _keep_uncertain(self, partials: Partials) -> Partials:
        """The certain ones."""
        is_certain = self._waiting.is_certain(partials)
        self._waiting.add(self.number, partials.take(~is_certain))
        return partials.take(is_certain)

    def _drop_blocked(self, certain: Partials, *, is_tested: bool) -> Partials:
        """`is_tested`: no NOT is violated by any row known."""
        for check in () if is_tested else self._whole.negations:
            if len(certain):
                certain = certain.take(self._checker.allow(check, certain))
        return self._checker.drop_covered(self._whole.covered, certain)


class ExhaustibleMatches(Iterator["MatchSet"]):
    """Matches whose search can be finished before they are taken."""

    def __init__(self, found: Iterator[MatchSet]) -> None:
        self._found = found
        self._ready: deque[MatchSet] = deque()

    def __next__(self) -> MatchSet:
        return self._ready.popleft() if self._ready else next(self._found)

    def exhaust(self) -> None:
        self._ready.extend(self._found)


# ---- where keeping pays --------------------------------------------------------------------------


# Keeping may take this share of the time in which matches are found.
KEEPING_SHARE: Final = 0.25
# Less work does not matter, whichever trigger does it.
LITTLE_SECONDS: Final = 1e-3
# The weight of the latest trigger in the averages.
LATEST_WEIGHT: Final = 0.3
# After an overflow so many advances find matches from the rows, and each time twice as many.
PAUSE_ADVANCES: Final = 16
MOST_PAUSE: Final = 1024


def may_keep_by_cost(program: Program) -> bool:
    """Whether a stream's plan may keep matches to make latency small. The sum of the work does not
    become less."""
    return program.adaptation.to_hybrid and program.optimize != "throughput"


class WaitingChoice:
    """How many matches a bucket may keep waiting. `is_wanted`: up to the most, whatever it costs;
    otherwise up to a share of the work that it moves to the triggers that bring the rows."""

    def __init__(self, program: Program, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        is_allowed = is_wanted or may_keep_by_cost(program)
        self._is_possible = is_allowed and can_keep_matches(program)
        self._must_be_idle = program.optimize == "balanced"
        self._costs = program.costs or TYPICAL_COSTS
        self._pairs: float | None = None
        self._since = 0
        self._pause, self._next_pause = 0, PAUSE_ADVANCES

    def limit(self, load: StreamLoad, *, is_kept: bool) -> int | None:
        """The most matches that may wait after the next advance; None to keep none. `is_kept`:
        matches wait in the state now."""
        if not self._is_possible or self._is_pausing():
            return None
        if self._is_wanted:
            return MOST_WAITING
        if self._must_be_idle and not load.is_idle:
            return None
        if self._pairs is None:
            return MOST_WAITING if is_kept else None
        return _affordable_matches(self._pairs * self._costs.pair)

    def _is_pausing(self) -> bool:
        self._pause = max(self._pause - 1, -1)
        return self._pause >= 0

    def add(self, rows: int, pairs: int, *, overflows: bool) -> None:
        """An advance with so many new rows has tested so many pairs. Those without new rows count
        for the rows of the last one that had some."""
        if overflows:
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, MOST_PAUSE)
        if rows:
            if self._pairs is not None:
                self._pairs += LATEST_WEIGHT * (self._since - self._pairs)
            elif self._since:
                self._pairs = float(self._since)
            self._since = 0
        self._since += pairs


def _affordable_matches(seconds: float) -> int | None:
    """How many matches may wait where a trigger's matches are found in so many seconds."""
    if seconds < LITTLE_SECONDS:
        return None
    most = int((KEEPING_SHARE * seconds - PREFIX_SECONDS) / KEEPING_SECONDS)
    return min(most, MOST_WAITING) if most > 0 else None
