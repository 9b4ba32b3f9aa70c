"""What the engines of one advance share, and in which advance a match is given.

`horizon`: all rows with an event time up to it have come, so later ones are later than it. A match
is given as soon as no row that may still come can change it; `deciding_row` says what that depends
on. Rows carry two flags in the state: GIVEN, the matches that they decide were given, and USED,
consumed by a match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from spark_cep.udfs.events.table import AHEAD, NEW, OLD, Events, Flags, Positions

if TYPE_CHECKING:
    from spark_cep.udfs.events.metrics import Meter
    from spark_cep.udfs.events.occurrences import Occurrences
    from spark_cep.udfs.events.partials import Partials
    from spark_cep.udfs.events.steps import NegationCheck
    from spark_cep.udfs.program import Estimates, PartialState, Program
    from spark_cep.udfs.values.tally import ErrorTally


# Which row of a match decides in which advance it is given.
DecidingRow = Literal["any", "latest", "earliest", "start"]
Horizon = int | float | None


class OccurrenceSource(Protocol):
    """Where negation checks get the occurrences of negated groups from."""

    def find(self, check: NegationCheck, *, keeps_all: bool) -> Occurrences: ...


class PartialObserver(Protocol):
    """Sees the partial matches of a branch as they are found, and may drop some."""

    def offered(
        self, at: PartialState, partials: Partials, pick: Positions, elements: Positions
    ) -> Flags | None:
        """Which pairs of a partial match and an element are tested; None: all of them."""

    def extended(self, at: PartialState, partials: Partials, *, is_whole: bool) -> Partials:
        """Those that go on. `is_whole`: all slots of the branch are filled."""

    def finished(self, partials: Partials) -> None:
        """These are matches."""


@dataclass
class AdvanceContext:
    """What all branches of one advance share.

    `status` has OLD, NEW or AHEAD for each row; `deciding_row` says whose status counts in a match.
    `estimates`: what the planner took for these events; None: nothing was estimated yet.
    `occurrences`: of negated groups, where the program has any. `observer`: of partial matches.
    """

    program: Program
    events: Events
    status: Positions
    meter: Meter
    tally: ErrorTally
    deciding_row: DecidingRow = "latest"
    estimates: Estimates | None = None
    occurrences: OccurrenceSource | None = None
    observer: PartialObserver | None = None


@dataclass(frozen=True)
class MatchSet:
    """Matches as row positions: (n,) for a variable, (n, length) for a list.

    Variables that are not in `rows` are unfilled; those in `empty` are bound to the empty list.
    """

    rows: Mapping[int, Positions]
    earliest: Positions
    latest: Positions
    empty: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.earliest)

    def take(self, index: Positions | Flags) -> MatchSet:
        return MatchSet(
            {variable: rows[index] for variable, rows in self.rows.items()},
            self.earliest[index],
            self.latest[index],
            self.empty,
        )


# ---- in which advance a match is given -----------------------------------------------------------


def deciding_row(program: Program) -> DecidingRow:
    """The row of a match that decides in which advance it is given.

    A match is given as soon as no row that may still come can change it. What can still change it
    depends on the program:

    any       skip till any match without NOT, in a window of time: nothing. A match is given in
              the advance that brings the last of its rows, in whatever order they come.
    latest    a NOT between parts, or a window of events: rows before the latest one. Given when
              the horizon has passed that row. Consuming, which takes matches in the order of
              their latest rows, needs the same.
    earliest  a NOT after the last part, or around all: rows up to a window after the earliest.
    start     next and strict: rows that a run from the same start could still take. Given when
              all runs of the start have ended, or their window has.
    """
    if program.consumption == "consume":
        return "latest"
    if program.strategy != "any":
        return "start"
    places = negation_places(program)
    if places & {"end", "around"}:
        return "earliest" if _is_timed(program) else "latest"
    return "any" if not places and _is_timed(program) and program.home is None else "latest"


def negation_places(program: Program) -> set[str]:
    """The places of the pattern's NOTs, those inside repeated groups included."""
    bodies = [body for branch in program.branches for slot in branch.slots for body in slot.bodies]
    return {
        negation.place
        for branch in (*program.branches, *bodies)
        for negations in (branch.negations, *branch.covered)
        for negation in negations
    }


def latest_row_waits(program: Program) -> bool:
    """Whether a match that its latest row decides also depends on rows after it.

    Consuming needs the complete answer up to that row.
    """
    return program.strategy != "any" or bool(negation_places(program) & {"end", "around"})


def waits_for_horizon(program: Program) -> bool:
    """Whether rows beyond the horizon are left out until it has passed them."""
    return deciding_row(program) != "any"


def needs_two_windows(program: Program) -> bool:
    """Whether rows count that lie one window before the window that is still open."""
    if program.consumption == "consume":
        return latest_row_waits(program)
    places = negation_places(program)
    is_open = program.strategy != "any" or bool(places & {"end", "around"})
    return is_open and bool(places & {"start", "around"})


def _is_timed(program: Program) -> bool:
    return program.window is None or program.window.kind == "time"


# ---- the status of rows --------------------------------------------------------------------------


def row_status(program: Program, events: Events, given: Flags, horizon: Horizon) -> Positions:
    """The status of each row: whether the matches that it decides were given (`given`), are given
    in this advance, or later."""
    status = np.where(_decided_rows(program, events, horizon), NEW, AHEAD)
    status[given] = OLD
    return status


def arrival_status(program: Program, joined: Flags, given: Flags) -> Positions:
    """The status of each row where matches are found as their rows arrive: NEW until it was
    `joined`. `given`: rows whose matches were given, if they are the deciding row. Where that is
    the earliest, they are in no match that is still to be found."""
    status = np.where(joined, OLD, NEW)
    status[given] = AHEAD if deciding_row(program) == "earliest" else OLD
    return status


def slice_status(events: Events, home: Flags, given: Flags) -> Positions:
    """The status of each row where time is sliced: copies before a slice's own rows are OLD,
    copies after them AHEAD."""
    count = np.concatenate([[0], np.cumsum(home)])
    earlier = count[:-1] - count[events.partition.start]
    own = count[events.partition.end] - count[events.partition.start]
    # A slice with copies only has no latest event of its own.
    outside = np.where((earlier == 0) & (own > 0), OLD, AHEAD)
    status = np.where(home, NEW, outside)
    status[given] = OLD
    return status


def certain_rows(program: Program, events: Events, horizon: Horizon) -> Flags:
    """Rows whose matches are certain, if they are the deciding row: of all rows that have come, not
    of those up to the horizon only."""
    certain = _decided_rows(program, events, horizon)
    return certain if horizon is None else certain & ~(events.time > horizon)


def _decided_rows(program: Program, events: Events, horizon: Horizon) -> Flags:
    """Rows whose matches can be given, if they are the deciding row."""
    by = deciding_row(program)
    if by in {"any", "start"} or (by == "latest" and not latest_row_waits(program)):
        return np.ones(events.size, dtype=np.bool_)
    return window_has_passed(program, events, horizon)


def window_has_passed(program: Program, events: Events, horizon: Horizon) -> Flags:
    """Rows whose window, from them on, is complete."""
    window = program.window
    if horizon is None:
        return np.ones(events.size, dtype=np.bool_)
    if window is None:
        return np.zeros(events.size, dtype=np.bool_)
    if window.kind == "events":
        return events.partition.end - events.tie.start >= window.size
    return are_beyond(events, horizon, window.size)


def needed_rows(program: Program, events: Events, horizon: int | float) -> Flags:
    """Rows that can be in a match that is not given yet, or forbid one."""
    window = program.window
    if window is None:
        return np.ones(events.size, dtype=np.bool_)
    reach = window.size * (2 if needs_two_windows(program) else 1)
    if window.kind == "events":
        return events.partition.end - events.tie.start < reach
    return ~are_beyond(events, horizon, reach)


def are_beyond(events: Events, horizon: int | float, reach: int | float) -> Flags:
    """Rows that are more than `reach` before every row that comes after the horizon.

    Those come after the horizon itself, so a distance of `reach` to the horizon is enough; but
    between floats it may round to the same number, so there it must be larger.
    """
    distance = horizon - events.time
    beyond = distance > reach if distance.dtype.kind == "f" else distance >= reach
    return np.asarray(beyond, dtype=np.bool_)
