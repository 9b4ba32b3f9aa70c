"""In which advance a match is given: as soon as no row that may still come can change it.

`horizon`: all rows with an event time up to it have come, so later ones are later than it. What
can still change a match hangs on the program, and with it the row that says when:

    any       skip-till-any without NOT, in a window of time: nothing. A match is given in the
              advance that brings the last of its rows, in whatever order they come.
    latest    a NOT between parts, or a window of events: rows before the latest one. Given when
              the horizon has passed that. Consuming looks at matches in the order of their latest
              rows, too.
    earliest  a NOT behind the last part, or around all: rows up to a window after the earliest.
    start     next and strict: rows that a run from the same start could still take. Given when
              all runs of the start have ended, or their window has.

Rows carry two flags in the state: GIVEN, the matches that they decide were given, and USED,
consumed by a match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events import AHEAD, NEW, OLD, Events, Flags, Positions

if TYPE_CHECKING:
    from spark_cep.udfs.matching import GivenBy
    from spark_cep.udfs.program import Program

Horizon = int | float | None


def given_by(program: Program) -> GivenBy:
    if program.consumption == "consume":
        return "latest"
    if program.strategy != "any":
        return "start"
    places = places_of_nots(program)
    if places & {"end", "around"}:
        return "earliest" if _is_timed(program) else "latest"
    return "any" if not places and _is_timed(program) and program.home is None else "latest"


def places_of_nots(program: Program) -> set[str]:
    """Where the pattern has NOTs, those inside repeated groups included."""
    bodies = [slot.body for branch in program.branches for slot in branch.slots if slot.body]
    return {
        negation.place
        for branch in (*program.branches, *bodies)
        for negations in (branch.negations, *branch.covered)
        for negation in negations
    }


def waits_for_horizon(program: Program) -> bool:
    """Whether rows beyond the horizon are left alone until it has passed them."""
    return given_by(program) != "any"


def status(program: Program, events: Events, given: Flags, horizon: Horizon) -> Positions:
    """Of each row: were the matches that it decides given, are they now, or later."""
    found = np.where(_decided(program, events, horizon), NEW, AHEAD)
    found[given] = OLD
    return found


def in_slice(events: Events, home: Flags, given: Flags) -> Positions:
    """The same where time was sliced: copies before a slice's own rows are old there, copies
    after them lie ahead."""
    count = np.concatenate([[0], np.cumsum(home)])
    earlier = count[:-1] - count[events.partition.start]
    own = count[events.partition.end] - count[events.partition.start]
    # A slice with copies only has no latest event of its own.
    outside = np.where((earlier == 0) & (own > 0), OLD, AHEAD)
    found = np.where(home, NEW, outside)
    found[given] = OLD
    return found


def window_has_passed(program: Program, events: Events, horizon: Horizon) -> Flags:
    """Rows whose window, from them on, is known to its end."""
    window = program.window
    if horizon is None:
        return np.ones(events.size, dtype=np.bool_)
    if window is None:
        return np.zeros(events.size, dtype=np.bool_)
    if window.kind == "events":
        return events.partition.end - events.tie.start >= window.size
    return are_beyond(events, horizon, window.size)


def needed(program: Program, events: Events, horizon: int | float) -> Flags:
    """Rows that can be in, or forbid, a match that is not given yet."""
    window = program.window
    if window is None:
        return np.ones(events.size, dtype=np.bool_)
    reach = window.size * (2 if reaches_twice(program) else 1)
    if window.kind == "events":
        return events.partition.end - events.tie.start < reach
    return ~are_beyond(events, horizon, reach)


def are_beyond(events: Events, horizon: int | float, reach: int | float) -> Flags:
    """Rows that are further than `reach` from every one that comes after the horizon. Between
    floats the distance may round to what it is to the horizon itself."""
    distance = horizon - events.time
    beyond = distance > reach if distance.dtype.kind == "f" else distance >= reach
    return np.asarray(beyond, dtype=np.bool_)


def _is_timed(program: Program) -> bool:
    return program.window is None or program.window.kind == "time"


def _decided(program: Program, events: Events, horizon: Horizon) -> Flags:
    """By the row that counts: whether its matches can be given."""
    by = given_by(program)
    if by in {"any", "start"} or (by == "latest" and not latest_waits(program)):
        return np.ones(events.size, dtype=np.bool_)
    return window_has_passed(program, events, horizon)


def latest_waits(program: Program) -> bool:
    """Whether rows behind the latest one count: consuming needs the complete answer so far."""
    return program.strategy != "any" or bool(places_of_nots(program) & {"end", "around"})


def reaches_twice(program: Program) -> bool:
    """Whether rows matter that lie a window before the window that is still open."""
    if program.consumption == "consume":
        return latest_waits(program)
    places = places_of_nots(program)
    is_open = program.strategy != "any" or bool(places & {"end", "around"})
    return is_open and bool(places & {"start", "around"})
