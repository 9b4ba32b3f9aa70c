"""The one core: events in, matches that became certain out, the rest kept in a state.

`advance` takes the events up to a horizon, the event time up to which the input is complete. A
match is given in the advance that decides the row of its latest event. A row is decided at once
under skip-till-any, unless something after it can still matter (a NOT at the end or in AND, the
other strategies): then when a whole window behind it is known. Batch is one advance without a
horizon; streams and adaptation make several. Any split gives the same matches.

The state is the events that a later match can still need, with two flags each: `given`, matches
ending there were given, and `used`, consumed by a match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.chain import match_branch
from spark_cep.udfs.consume import consumed
from spark_cep.udfs.events import AHEAD, NEW, OLD, Events, Flags, Positions, without_null_times
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.order import rarest_first
from spark_cep.udfs.runs import match_runs
from spark_cep.udfs.values.evaluate import Tally

if TYPE_CHECKING:
    from spark_cep.udfs.program import Branch, Program

GIVEN, USED = "__given", "__used"


@dataclass(frozen=True)
class State:
    """`events` None: nothing was seen yet. The columns are the program's and the two flags."""

    events: pa.Table | None = None
    horizon: int | float | None = None


@dataclass(frozen=True)
class Advance:
    """`matches` is lazy where nothing depends on it: walk it once. Positions are of `events`."""

    events: Events
    matches: Iterator[Found]
    state: State
    metrics: Metrics


def advance(
    program: Program, state: State, table: pa.Table, horizon: int | float | None = None
) -> Advance:
    """Matches that the new events decide. `horizon` None: the input has ended."""
    metrics = Metrics()
    fresh = without_null_times(program, table)
    metrics.ignored_rows = table.num_rows - fresh.num_rows
    metrics.rows = fresh.num_rows
    events, later = _known(program, _with_flags(state, fresh), horizon)
    metrics.buffered_events = events.largest_buffer()
    status = _status(program, events, horizon)
    tally = Tally(ansi=program.ansi)
    matching = Matching(program, events, status, Meter(events, program.limits, metrics), tally)
    matches = _counted(_matches(matching), metrics, tally)
    used = None
    if program.consumption == "consume":
        matches, used = _consume(matching, matches)
    return Advance(events, matches, _rest(matching, used, later, horizon), metrics)


def _matches(matching: Matching) -> Iterator[Found]:
    if not matching.events.size:
        return
    if matching.program.strategy == "any":
        for branch in matching.program.branches:
            yield from match_branch(matching, branch, slot_order(matching, branch))
    else:
        yield from match_runs(matching)


def _counted(matches: Iterator[Found], metrics: Metrics, tally: Tally) -> Iterator[Found]:
    yield from matches
    metrics.condition_errors += tally.errors


def slot_order(matching: Matching, branch: Branch) -> Sequence[int]:
    """The plan's order of this branch's slots: as given, or by this bucket's own candidates."""
    plan, slots = matching.program.plan, branch.slots
    if plan.kind == "eager":
        return range(len(slots))
    order = plan.order
    if order is None:
        lists = {v for slot in slots if slot.is_list for v in slot.variables}
        candidates = {v: float(matching.events.below(v)[-1]) for v in branch.filled()}
        order = rarest_first(candidates, [c.variables for c in matching.program.conditions], lists)
    place = {variable: at for at, variable in enumerate(order)}
    first = [min(place.get(v, len(place)) for v in slot.variables) for slot in slots]
    return sorted(range(len(slots)), key=lambda slot: first[slot])


# ---- what is known, what is decided ------------------------------------------------------------


def _with_flags(state: State, fresh: pa.Table) -> pa.Table:
    flags = pa.array(np.zeros(fresh.num_rows, dtype=np.bool_))
    fresh = fresh.append_column(GIVEN, flags).append_column(USED, flags)
    if state.events is None:
        return fresh
    return pa.concat_tables([state.events, fresh.cast(state.events.schema)])


def _known(
    program: Program, table: pa.Table, horizon: int | float | None
) -> tuple[Events, pa.Table | None]:
    """The events up to the horizon, and those beyond it, which have to wait."""
    if horizon is None:
        return Events(program, table), None
    every = Events(program, table)
    waiting = every.time > horizon
    if not waiting.any():
        return every, None
    rows = np.sort(every.rows(np.flatnonzero(~waiting)))
    later = np.sort(every.rows(np.flatnonzero(waiting)))
    return Events(program, table.take(pa.array(rows))), table.take(pa.array(later))


def _status(program: Program, events: Events, horizon: int | float | None) -> Positions:
    decided = _decided(program, events, horizon)
    status = np.where(decided, NEW, AHEAD)
    if program.home is not None:
        status = _in_slice(events, _flag(events, program.columns[program.home]))
    status[_flag(events, GIVEN)] = OLD
    return status


def _flag(events: Events, name: str) -> Flags:
    column = events.table.column(name).to_numpy()
    flags: Flags = column.astype(np.bool_)[events.permutation]
    return flags


def _in_slice(events: Events, home: Flags) -> Positions:
    """Copies before a slice's own rows are old there, copies after them lie ahead."""
    count = np.concatenate([[0], np.cumsum(home)])
    earlier = count[:-1] - count[events.partition.start]
    own = count[events.partition.end] - count[events.partition.start]
    # A slice with copies only has no latest event of its own.
    outside = np.where((earlier == 0) & (own > 0), OLD, AHEAD)
    return np.where(home, NEW, outside)


def _waits(program: Program) -> bool:
    """Whether rows after a match's latest event can still change it."""
    return program.strategy != "any" or any(
        negation.place in {"end", "around"}
        for branch in program.branches
        for negations in (branch.negations, *branch.covered)
        for negation in negations
    )


def _decided(program: Program, events: Events, horizon: int | float | None) -> Flags:
    if horizon is None or not _waits(program):
        return np.ones(events.size, dtype=np.bool_)
    window = program.window
    if window is None:
        return np.zeros(events.size, dtype=np.bool_)
    if window.kind == "events":
        return events.partition.end - events.tie.start >= window.size
    decided: Flags = np.asarray(horizon - events.time >= window.size, dtype=np.bool_)
    return decided


def _rest(
    matching: Matching, used: Flags | None, later: pa.Table | None, horizon: int | float | None
) -> State:
    if horizon is None:
        return State(None, None)
    program, events, status = matching.program, matching.events, matching.status
    kept = np.flatnonzero(_needed(program, events, horizon))
    rows = pa.array(events.rows(kept))
    table = events.table.take(rows)
    given = pa.array(status[kept] != AHEAD)
    table = table.set_column(table.schema.get_field_index(GIVEN), GIVEN, given)
    if used is not None:
        table = table.set_column(table.schema.get_field_index(USED), USED, pa.array(used[kept]))
    if later is not None:
        table = pa.concat_tables([table, later])
    return State(table, horizon)


def _needed(program: Program, events: Events, horizon: int | float) -> Flags:
    """Events that can be in, or forbid, a match whose latest event is not decided yet."""
    window = program.window
    if window is None:
        return np.ones(events.size, dtype=np.bool_)
    reach = window.size * (2 if _waits(program) else 1)
    if window.kind == "events":
        return events.partition.end - events.tie.start < reach
    needed: Flags = np.asarray(horizon - events.time < reach, dtype=np.bool_)
    return needed


# ---- consumption -------------------------------------------------------------------------------


def _consume(matching: Matching, matches: Iterator[Found]) -> tuple[Iterator[Found], Flags]:
    used = _flag(matching.events, USED)
    before = matching.meter.metrics.matches
    taken = consumed(matching, list(matches), used)
    matching.meter.metrics.matches = before + sum(len(found) for found in taken)
    return iter(taken), used
