"""The one core: events in, matches that became certain out, the rest kept in a state.

`advance` takes new events and a horizon, the event time up to which the input is complete, and
gives the matches that are certain by then (`deciding.py` says when that is). Batch is one advance
without a horizon; streams and adaptation make several. Any split gives the same matches, and so
does any order of arrival, as long as no row comes that a horizon has passed.

The state is the events that a later match can still need, in the order in which they came, with
two flags each. A plan with an eager group keeps the group's partial matches beside them; a plan
that does not know them finds its own anew from the events, so a plan may change from one advance
to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.consume import consumed
from spark_cep.udfs.deciding import (
    given_by,
    in_slice,
    needed,
    places_of_nots,
    status,
    waits_for_horizon,
    window_has_passed,
)
from spark_cep.udfs.events import AHEAD, Events, Flags, counted, numbers, without_null_times
from spark_cep.udfs.joining.any_match import BranchMatcher
from spark_cep.udfs.joining.foreseen import ask_ahead
from spark_cep.udfs.joining.kept import KeptRows, Prefixes, from_rows, grown, to_rows
from spark_cep.udfs.matching import Found, Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.ordering import branch_plans
from spark_cep.udfs.running.runs import Race
from spark_cep.udfs.values.evaluate import Tally

if TYPE_CHECKING:
    from spark_cep.udfs.events import Positions
    from spark_cep.udfs.program import BranchPlan, Program
    from spark_cep.udfs.values.vectors import RemoteValues

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


def advance(  # noqa: PLR0913 - the engine's inputs
    program: Program,
    state: State,
    table: pa.Table,
    horizon: int | float | None = None,
    *,
    planner: Planner = branch_plans,
    lookups: tuple[RemoteValues, ...] = (),
) -> Advance:
    """Matches that the new events decide. `horizon` None: the input has ended. `planner` makes
    the plan once the events are known. `lookups`: for the program's remote sources, in their
    order."""
    metrics = Metrics()
    fresh = without_null_times(program, table)
    metrics.ignored_rows = table.num_rows - fresh.num_rows
    metrics.rows = fresh.num_rows
    known = _known(program, _with_flags(state, fresh), horizon)
    events = known.events
    metrics.buffered_events = events.largest_buffer()
    tally = Tally(ansi=program.ansi, lookups=lookups)
    meter = Meter(events, program.limits, metrics)
    rows = _status(program, events, horizon)
    matching = Matching(program, events, rows, meter, tally, given_by(program))
    metrics.candidates = counted(program, numbers(fresh.column(program.mask)))
    metrics.stretches = matching.meter.stretches
    eager = _Eager(matching, planner, state, (horizon, known))
    matches = _counted(_matches(eager, horizon), matching.meter, tally)
    used = None
    if program.consumption == "consume":
        matches, used = _consume(matching, matches)
    rest = _rest(eager, used, known.later, horizon)
    return Advance(events, matches, rest, metrics, matching.meter)


class _Eager:
    """The branches of one advance, their plans, and the partial matches of their eager groups:
    these are found before any match is asked for, as events come."""

    def __init__(
        self,
        matching: Matching,
        planner: Planner,
        state: State,
        upto: tuple[int | float | None, _Known],
    ) -> None:
        horizon, rows = upto
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
        if (horizon is None and not state.groups) or not keeps_partial_matches(matching):
            return
        for number, plan in enumerate(self.plans):
            if self._is_kept(number, plan):
                known = (number, plan.eager) in state.groups
                old = None
                if known:
                    old = from_rows(state.kept, number, plan.eager, rows.positions())
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

    def kept(self, stay: Flags, place: Positions) -> tuple[KeptRows, ...]:
        """`stay`: which positions stay in the state; `place`: their rows there."""
        return tuple(
            rows
            for number, prefixes in self.prefixes.items()
            for rows in to_rows(number, self.plans[number].eager, prefixes, stay, place)
        )

    def groups(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return tuple((number, self.plans[number].eager) for number in self.prefixes)


def keeps_partial_matches(matching: Matching) -> bool:
    """Whether a plan's eager groups are kept. Not where a match hangs on its earliest row: which
    partial matches are new is then not known from the status of their rows."""
    return matching.program.strategy == "any" and matching.given_by != "earliest"


def _matches(eager: _Eager, horizon: int | float | None) -> Iterator[Found]:
    matching = eager.matching
    if matching.program.strategy == "any":
        return eager.matches()
    if not matching.events.size:
        return iter(())
    ask_ahead(matching.program, matching.events.table, matching.tally.lookups)
    # Which starts are decided is known when all runs have gone as far as they can.
    race = Race(matching, window_has_passed(matching.program, matching.events, horizon))
    race.run()
    return race.matches()


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


@dataclass(frozen=True)
class _Known:
    """The events up to the horizon, and those beyond it, which have to wait. `rows`: which of all
    rows the events are; None: all of them."""

    events: Events
    later: pa.Table | None = None
    rows: Positions | None = None

    def positions(self) -> Positions:
        """Where each of all rows lies now; those that wait lie nowhere."""
        found: Positions = np.argsort(self.events.permutation)
        if self.rows is None or self.later is None:
            return found
        every = np.full(self.events.size + self.later.num_rows, -1)
        every[self.rows] = found
        return every


def _known(program: Program, table: pa.Table, horizon: int | float | None) -> _Known:
    if horizon is None or not waits_for_horizon(program):
        return _Known(Events(program, table))
    every = Events(program, table)
    waiting = every.time > horizon
    if not waiting.any():
        return _Known(every)
    rows = np.sort(every.rows(np.flatnonzero(~waiting)))
    later = np.sort(every.rows(np.flatnonzero(waiting)))
    return _Known(Events(program, table.take(pa.array(rows))), table.take(pa.array(later)), rows)


def _status(program: Program, events: Events, horizon: int | float | None) -> Positions:
    given = _flag(events, GIVEN)
    if program.home is not None:
        return in_slice(events, _flag(events, program.columns[program.home]), given)
    return status(program, events, given, horizon)


def _flag(events: Events, name: str) -> Flags:
    column = events.table.column(name).to_numpy()
    flags: Flags = column.astype(np.bool_)[events.permutation]
    return flags


# ---- what is kept ------------------------------------------------------------------------------


def _rest(
    eager: _Eager, used: Flags | None, later: pa.Table | None, horizon: int | float | None
) -> State:
    if horizon is None:
        return State(None, None)
    matching = eager.matching
    events = matching.events
    stay = _needed(matching, horizon)
    # In the order of the table, so that rows of one arrival stay together.
    row_stays = np.zeros(events.size, dtype=np.bool_)
    row_stays[events.permutation] = stay
    rows = np.flatnonzero(row_stays)
    place = (np.cumsum(row_stays) - 1)[events.permutation]
    given = np.zeros(events.size, dtype=np.bool_)
    given[events.permutation] = matching.status != AHEAD
    table = _flagged(events.table.take(pa.array(rows)), GIVEN, given[rows])
    if used is not None:
        of_row = np.zeros(events.size, dtype=np.bool_)
        of_row[events.permutation] = used
        table = _flagged(table, USED, of_row[rows])
    if later is not None:
        table = pa.concat_tables([table, later])
    return State(table, horizon, eager.groups(), eager.kept(stay, place))


def _flagged(table: pa.Table, name: str, flags: Flags) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(flags))


def _needed(matching: Matching, horizon: int | float) -> Flags:
    program, events = matching.program, matching.events
    stay = needed(program, events, horizon)
    if matching.given_by == "start" and not places_of_nots(program) & {"start", "around"}:
        stay &= _from_first_open_start(matching)
    return stay


def _from_first_open_start(matching: Matching) -> Flags:
    """Rows of each partition from the first start on whose runs have not all ended."""
    partition = matching.events.partition.start
    waiting = np.flatnonzero(matching.status == AHEAD)
    begins, first = np.unique(partition[waiting], return_index=True)
    if not len(begins):
        return np.zeros(len(partition), dtype=np.bool_)
    place = np.minimum(np.searchsorted(begins, partition), len(begins) - 1)
    from_here = waiting[first][place]
    rows = np.arange(len(partition))
    return np.asarray((begins[place] == partition) & (rows >= from_here), dtype=np.bool_)


# ---- consumption -------------------------------------------------------------------------------


def _consume(matching: Matching, matches: Iterator[Found]) -> tuple[Iterator[Found], Flags]:
    used = _flag(matching.events, USED)
    before = matching.meter.metrics.matches
    taken = consumed(matching, list(matches), used)
    matching.meter.metrics.matches = before + sum(len(found) for found in taken)
    return iter(taken), used
