"""The one core: events in, matches that became certain out, the rest kept in a state.

`advance` takes the events up to a horizon, the event time up to which the input is complete. A
match is given in the advance that decides the row of its latest event. A row is decided at once
under skip-till-any, unless something after it can still matter (a NOT at the end or in AND, the
other strategies): then when a whole window behind it is known. Batch is one advance without a
horizon; streams and adaptation make several. Any split gives the same matches.

The state is the events that a later match can still need, with two flags each: `given`, matches
ending there were given, and `used`, consumed by a match. A plan with an eager group keeps the
group's partial matches beside them; a plan that does not know them finds its own anew from the
events, so a plan may change from one advance to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.consume import consumed
from spark_cep.udfs.events import (
    AHEAD,
    NEW,
    OLD,
    Events,
    Flags,
    Positions,
    counted,
    numbers,
    without_null_times,
)
from spark_cep.udfs.joining.any_match import BranchMatcher
from spark_cep.udfs.joining.kept import KeptRows, Prefixes, from_rows, grown, to_rows
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.ordering import branch_plans
from spark_cep.udfs.running.runs import match_runs
from spark_cep.udfs.values.evaluate import Tally

if TYPE_CHECKING:
    from spark_cep.udfs.program import BranchPlan, Program

GIVEN, USED = "__given", "__used"
Planner = Callable[[Matching], "Sequence[BranchPlan]"]


@dataclass(frozen=True)
class State:
    """`events` None: nothing was seen yet. The columns are the program's and the two flags.
    `groups`: the eager groups, by branch, whose partial matches are in `kept`."""

    events: pa.Table | None = None
    horizon: int | float | None = None
    groups: tuple[tuple[int, tuple[int, ...]], ...] = ()
    kept: tuple[KeptRows, ...] = ()


@dataclass(frozen=True)
class Advance:
    """`matches` is lazy where nothing depends on it: walk it once; the metrics are complete
    then. Positions are of `events`."""

    events: Events
    matches: Iterator[Found]
    state: State
    metrics: Metrics
    meter: Meter


def advance(
    program: Program,
    state: State,
    table: pa.Table,
    horizon: int | float | None = None,
    *,
    planner: Planner = branch_plans,
) -> Advance:
    """Matches that the new events decide. `horizon` None: the input has ended. `planner` makes
    the plan once the events are known."""
    metrics = Metrics()
    fresh = without_null_times(program, table)
    metrics.ignored_rows = table.num_rows - fresh.num_rows
    metrics.rows = fresh.num_rows
    events, later = _known(program, _with_flags(state, fresh), horizon)
    metrics.buffered_events = events.largest_buffer()
    status = _status(program, events, horizon)
    tally = Tally(ansi=program.ansi)
    matching = Matching(program, events, status, Meter(events, program.limits, metrics), tally)
    metrics.candidates = counted(program, numbers(fresh.column(program.mask)))
    metrics.stretches = matching.meter.stretches
    eager = _Eager(matching, planner, state, horizon)
    matches = _counted(_matches(eager), matching.meter, tally)
    used = None
    if program.consumption == "consume":
        matches, used = _consume(matching, matches)
    rest = _rest(eager, used, later, horizon)
    return Advance(events, matches, rest, metrics, matching.meter)


class _Eager:
    """The branches of one advance, their plans, and the partial matches of their eager groups:
    these are found before any match is asked for, as events come."""

    def __init__(
        self,
        matching: Matching,
        planner: Planner,
        state: State,
        horizon: int | float | None,
    ) -> None:
        self.matching = matching
        self.plans: Sequence[BranchPlan] = ()
        self.matchers: list[BranchMatcher] = []
        self.prefixes: dict[int, Prefixes] = {}
        if matching.program.strategy != "any" or not matching.events.size:
            return
        self.plans = planner(matching)
        self.matchers = [
            BranchMatcher(matching, number) for number in range(len(matching.program.branches))
        ]
        # Where nothing comes after, a group is a join like any other.
        if horizon is None and not state.groups:
            return
        position = np.argsort(matching.events.permutation)
        for number, plan in enumerate(self.plans):
            if self._is_kept(number, plan):
                known = (number, plan.eager) in state.groups
                old = from_rows(state.kept, number, plan.eager, position) if known else None
                self.prefixes[number] = grown(self.matchers[number], plan.eager, old)

    def _is_kept(self, number: int, plan: BranchPlan) -> bool:
        """Iterations of a repeated group are numbered anew in every advance."""
        slots = self.matching.program.branches[number].slots
        return len(plan.eager) > 1 and all(slots[slot].body is None for slot in plan.eager)

    def matches(self) -> Iterator[Found]:
        for number, (matcher, plan) in enumerate(zip(self.matchers, self.plans, strict=True)):
            prefixes = self.prefixes.get(number, {})
            whole = {frozenset(plan.eager): prefixes[len(plan.eager)]} if prefixes else {}
            yield from matcher.matches(plan, whole)

    def kept(self, needed: Flags) -> tuple[KeptRows, ...]:
        place = np.cumsum(needed) - 1
        return tuple(
            rows
            for number, prefixes in self.prefixes.items()
            for rows in to_rows(number, self.plans[number].eager, prefixes, needed, place)
        )

    def groups(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return tuple((number, self.plans[number].eager) for number in self.prefixes)


def _matches(eager: _Eager) -> Iterator[Found]:
    if eager.matching.program.strategy == "any":
        yield from eager.matches()
    elif eager.matching.events.size:
        yield from match_runs(eager.matching)


def _counted(matches: Iterator[Found], meter: Meter, tally: Tally) -> Iterator[Found]:
    yield from matches
    meter.close()
    meter.metrics.condition_errors += tally.errors


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
    return _are_beyond(events, horizon, window.size)


def _rest(
    eager: _Eager, used: Flags | None, later: pa.Table | None, horizon: int | float | None
) -> State:
    if horizon is None:
        return State(None, None)
    matching = eager.matching
    program, events, status = matching.program, matching.events, matching.status
    needed = _needed(program, events, horizon)
    kept = np.flatnonzero(needed)
    rows = pa.array(events.rows(kept))
    table = events.table.take(rows)
    given = pa.array(status[kept] != AHEAD)
    table = table.set_column(table.schema.get_field_index(GIVEN), GIVEN, given)
    if used is not None:
        table = table.set_column(table.schema.get_field_index(USED), USED, pa.array(used[kept]))
    if later is not None:
        table = pa.concat_tables([table, later])
    return State(table, horizon, eager.groups(), eager.kept(needed))


def _needed(program: Program, events: Events, horizon: int | float) -> Flags:
    """Events that can be in, or forbid, a match whose latest event is not decided yet."""
    window = program.window
    if window is None:
        return np.ones(events.size, dtype=np.bool_)
    reach = window.size * (2 if _waits(program) else 1)
    if window.kind == "events":
        return events.partition.end - events.tie.start < reach
    return ~_are_beyond(events, horizon, reach)


def _are_beyond(events: Events, horizon: int | float, reach: int | float) -> Flags:
    """Events that are further than `reach` from every one that comes after the horizon. Between
    floats the distance may round to what it is to the horizon itself."""
    distance = horizon - events.time
    beyond = distance > reach if distance.dtype.kind == "f" else distance >= reach
    return np.asarray(beyond, dtype=np.bool_)


# ---- consumption -------------------------------------------------------------------------------


def _consume(matching: Matching, matches: Iterator[Found]) -> tuple[Iterator[Found], Flags]:
    used = _flag(matching.events, USED)
    before = matching.meter.metrics.matches
    taken = consumed(matching, list(matches), used)
    matching.meter.metrics.matches = before + sum(len(found) for found in taken)
    return iter(taken), used
