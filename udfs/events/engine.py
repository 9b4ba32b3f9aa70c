"""The incremental core of event patterns: events in, certain matches out, the rest in a state.

`advance_events` takes new events and a horizon, the event time up to which the input is complete,
and gives the matches that are certain by then (`udfs/events/context.py` says when that is). Any
split gives the same matches, and so does any order of arrival, as long as no row comes at or
before a horizon that has passed.

The state holds the events that a later match can still need, in the order of arrival, with two
flags each. A plan with an eager group keeps the group's partial matches beside them. Another plan
finds its own partial matches again from the events, so a plan may change between advances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import PatternError
from spark_cep.udfs.events.branch_matcher import (
    BranchMatcher,
    GroupPrefixes,
    StoredPartials,
    extend_prefixes,
    prefixes_from_rows,
    prefixes_to_rows,
)
from spark_cep.udfs.events.bucket_plans import plan_branches
from spark_cep.udfs.events.case_orders import CaseOrders
from spark_cep.udfs.events.context import (
    AdvanceContext,
    MatchSet,
    deciding_row,
    needed_rows,
    negation_places,
    row_status,
    slice_status,
    waits_for_horizon,
    window_has_passed,
)
from spark_cep.udfs.events.deadline import Deadline, DeadlinePassed
from spark_cep.udfs.events.dropping import PartialDropper
from spark_cep.udfs.events.metrics import Meter, Metrics
from spark_cep.udfs.events.occurrences import OccurrenceFinder
from spark_cep.udfs.events.remote_needs import prefetch_candidates
from spark_cep.udfs.events.runs import RunEngine
from spark_cep.udfs.events.sharing import run_together
from spark_cep.udfs.events.table import (
    AHEAD,
    NEW,
    Events,
    Flags,
    column_to_numpy,
    count_candidates,
    drop_null_times,
)
from spark_cep.udfs.events.waiting import (
    ExhaustibleMatches,
    WaitingMatcher,
    WaitingMatches,
    can_keep_matches,
)
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.values.evaluate import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import PartialObserver
    from spark_cep.udfs.events.sharing import BranchRun
    from spark_cep.udfs.events.table import Positions
    from spark_cep.udfs.program import BranchPlan, Program
    from spark_cep.udfs.task_clock import TaskClock
    from spark_cep.udfs.values.vectors import RemoteValues


# ---- consumption -------------------------------------------------------------------------------


def consume_matches(
    matching: AdvanceContext, matches: Sequence[MatchSet], used: Flags
) -> list[MatchSet]:
    """The matches that consume their events; marks their rows in `used`.

    Matches are ranked by latest event, earliest event, then the order keys in pattern order. A
    match is taken if no match taken before it has one of its events."""
    _refuse_ties(matching)
    matches = [found for found in matches if len(found)]
    if not matches:
        return []
    ends = np.cumsum([len(found) for found in matches])
    rows, offsets = _concatenate_rows(matches)
    taken = np.zeros(int(ends[-1]), dtype=np.bool_)
    _take_in_order(_rank_matches(matching, matches), (rows, offsets), used, taken)
    return [
        found.take(np.flatnonzero(taken[end - len(found) : end]))
        for found, end in zip(matches, ends, strict=True)
        if taken[end - len(found) : end].any()
    ]


def _refuse_ties(matching: AdvanceContext) -> None:
    events = matching.events
    candidate = np.zeros(events.size + 1, dtype=np.int64)
    mask = np.zeros(events.size, dtype=np.bool_)
    for variable in range(len(matching.program.variables)):
        mask |= events.candidates(variable)
    np.cumsum(mask, out=candidate[1:])
    tied = np.flatnonzero(candidate[events.tie.end] - candidate[events.tie.start] > 1)
    if len(tied):
        key = events.key_of(int(tied[0]))
        raise PatternError(
            f'consumption "consume" needs a strict order, but partition key {key!r} has rows with '
            f"equal order keys at {events.start_of(int(tied[0]))}",
            hint="add columns to order_by that make the order unique",
            details={"key": key},
        )


def _rank_matches(matching: AdvanceContext, matches: Sequence[MatchSet]) -> Positions:
    """Match numbers in rank order. Positions follow the order keys and without ties are equivalent
    to them; unfilled variables rank first, lists by their elements from the left."""
    width = {
        variable: max(_column_count(found, variable) for found in matches)
        for variable in range(len(matching.program.variables))
    }
    keys = [
        np.concatenate([_pad_column(found, variable, place) for found in matches])
        for variable in range(len(matching.program.variables))
        for place in range(width[variable])
    ]
    earliest = np.concatenate([found.earliest for found in matches])
    latest = np.concatenate([found.latest for found in matches])
    return np.lexsort([*reversed(keys), earliest, latest])


def _column_count(found: MatchSet, variable: int) -> int:
    rows = found.rows.get(variable)
    if rows is None:
        return 0
    return 1 if rows.ndim == 1 else rows.shape[1]


def _pad_column(found: MatchSet, variable: int, place: int) -> Positions:
    if place >= _column_count(found, variable):
        return np.full(len(found), -1, dtype=np.int64)
    rows = found.rows[variable]
    return rows if rows.ndim == 1 else rows[:, place]


def _concatenate_rows(matches: Sequence[MatchSet]) -> tuple[Positions, Positions]:
    """All rows of all matches, and where those of each match begin."""
    parts = [
        np.concatenate([r.reshape(len(found), -1) for r in found.rows.values()], axis=1)
        for found in matches
    ]
    lengths = np.concatenate([np.full(len(p), p.shape[1], dtype=np.int64) for p in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return np.concatenate([part.ravel() for part in parts]), offsets


# Each match that is taken rules out most of the matches that follow: those of a chunk are dropped
# at once, and few remain to be tried one by one. 600,000 matches of three rows take about as long
# as ranking them; chunks of 500 to 8,000 differ by less than a half.
_TAKEN_AT_ONCE = 2_000


def _take_in_order(
    ranked: Positions, rows_of_matches: tuple[Positions, Positions], used: Flags, taken: Flags
) -> None:
    """Sets `taken` for each match, in this order, whose rows are all unused then, and uses them.

    A loop over Python's numbers: compiling it would need numba on workers of event patterns."""
    rows, offsets = rows_of_matches
    for start in range(0, len(ranked), _TAKEN_AT_ONCE):
        chunk = ranked[start : start + _TAKEN_AT_ONCE]
        lengths = offsets[chunk + 1] - offsets[chunk]
        ends = np.cumsum(lengths)
        of_chunk = rows[np.arange(ends[-1]) + np.repeat(offsets[chunk + 1] - ends, lengths)]
        is_free = ~np.logical_or.reduceat(used[of_chunk], ends - lengths)
        numbers = of_chunk[np.repeat(is_free, lengths)].tolist()
        busy: set[int] = set()
        begin = 0
        for match, length in zip(chunk[is_free].tolist(), lengths[is_free].tolist(), strict=True):
            needed = numbers[begin : begin + length]
            begin += length
            if busy.isdisjoint(needed):
                busy.update(needed)
                taken[match] = True
        used[list(busy)] = True


# ---- one advance -------------------------------------------------------------------------------


# Flags of a row in the state: matches that it decides were given; a match consumed it.
GIVEN_COLUMN, USED_COLUMN = "__given", "__used"
BranchPlanner = Callable[[AdvanceContext], "Sequence[BranchPlan]"]


@dataclass(frozen=True)
class EventState:
    """`events` None: no rows were seen yet. The columns are the program's and the two flags.
    `groups`: the eager groups, by branch, whose partial matches are in `kept`. `waiting`: the
    matches that are not certain yet, of all rows; None where they are found when they are."""

    events: pa.Table | None = None
    horizon: int | float | None = None
    groups: tuple[tuple[int, tuple[int, ...]], ...] = ()
    kept: tuple[StoredPartials, ...] = ()
    waiting: tuple[StoredPartials, ...] | None = None

    @property
    def size(self) -> int:
        return 0 if self.events is None else self.events.num_rows

    @property
    def nbytes(self) -> int:
        stored = (*self.kept, *(self.waiting or ()))
        beside = sum(rows.nbytes for each in stored for rows in each.rows.values())
        return beside + (0 if self.events is None else int(self.events.nbytes))

    def owed_rows(self) -> int:
        """The rows whose matches a later advance has to search."""
        if self.events is None or self.waiting is not None:
            return 0
        given = self.events.column(GIVEN_COLUMN).to_numpy()
        return int(np.count_nonzero(~given.astype(np.bool_)))


@dataclass(frozen=True)
class EventAdvance:
    """`matches` is lazy, unless they are consumed. Iterate over it once; the metrics are complete
    then. Where matches wait, asking for the state finds all of them. Positions are of `events`.
    `waiting`: the matches that are not certain yet, where they are kept."""

    events: Events
    matches: Iterator[MatchSet]
    find_state: Callable[[], EventState]
    metrics: Metrics
    meter: Meter
    waiting: WaitingMatches | None = None

    @cached_property
    def state(self) -> EventState:
        return self.find_state()


def advance_events(  # noqa: PLR0913 - the engine's inputs
    program: Program,
    state: EventState,
    table: pa.Table,
    horizon: int | float | None = None,
    *,
    planner: BranchPlanner = plan_branches,
    orders: CaseOrders | None = None,
    lookups: tuple[RemoteValues, ...] = (),
    clock: TaskClock | None = None,
    most_waiting: int | None = None,
    deadline: Deadline | None = None,
    observer: PartialObserver | None = None,
) -> EventAdvance:
    """Matches that become certain with the new events. `horizon` None: the input has ended.
    `planner` makes the plan once the events are known, and `orders` what each case of it runs; it
    remembers that from one advance to the next. `lookups`: of the program's remote sources, in
    their order. `clock`: of the task; None: it begins with this advance. `most_waiting`: matches
    are joined as their rows arrive where that is possible, and so many may wait in the state.
    `deadline`: when matching stops. Rows whose matches were not found by then are old ones in the
    next state, as if they had been found; it is for programs that `can_be_cut`, as is a rule for
    dropping. `observer`: of partial matches; None: the one that applies the program's rule."""
    assert (deadline is None and program.dropping is None) or can_be_cut(program)
    metrics = Metrics()
    fresh = drop_null_times(program, table)
    metrics.ignored_rows = table.num_rows - fresh.num_rows
    metrics.rows = fresh.num_rows
    keeps_matches = most_waiting is not None and horizon is not None and can_keep_matches(program)
    if keeps_matches != (state.waiting is not None):
        # These groups have other rows: all that have come, or those up to the horizon.
        state = replace(state, groups=(), kept=(), waiting=None)
    table = _add_flags(state, fresh)
    known = (
        _HorizonSplit(Events(program, table))
        if keeps_matches
        else _split_at_horizon(program, table, horizon)
    )
    events = known.events
    metrics.buffered_events = events.largest_buffer()
    tally = ErrorTally(ansi=program.ansi, lookups=lookups)
    meter = Meter(events, program.limits, metrics, clock)
    meter.deadline = deadline
    waiting = None
    if keeps_matches:
        assert most_waiting is not None
        assert horizon is not None
        joined = 0 if state.waiting is None else state.size
        given = _read_flag(events, GIVEN_COLUMN)
        waiting = WaitingMatches(events, given, joined, horizon, most_waiting)
    rows = _advance_status(program, events, horizon) if waiting is None else waiting.status
    by = deciding_row(program) if waiting is None else "any"
    matching = AdvanceContext(program, events, rows, meter, tally, by)
    matching.occurrences = OccurrenceFinder(matching)
    matching.observer = observer
    if observer is None and program.dropping is not None:
        matching.observer = PartialDropper(program.dropping, events, metrics)
    metrics.candidates = count_candidates(program, column_to_numpy(fresh.column(program.mask)))
    metrics.stretches = matching.meter.stretches
    metrics.joined_rows = int(np.count_nonzero(rows == NEW))
    cases = CaseOrders(program) if orders is None else orders
    eager = _EagerGroups(matching, (planner, cases), state, (horizon, known), waiting)
    matches = _count_matches(_find_matches(eager, horizon), matching.meter, tally)
    if waiting is not None:
        found = ExhaustibleMatches(matches)
        after = partial(_state_with_matches, eager, waiting, found, horizon)
        return EventAdvance(events, found, after, metrics, matching.meter, waiting)
    used = None
    if program.consumption == "consume":
        matches, used = _consume_in_order(matching, matches)
    rest = _remaining_state(eager, used, known.later, horizon)
    return EventAdvance(events, matches, lambda: rest, metrics, matching.meter)


def can_be_cut(program: Program) -> bool:
    """Whether a match that is not found leaves the others as they are. Otherwise another one could
    take its events, or its place."""
    return program.strategy == "any" and program.consumption == "reuse"


# Of the time that is left, for the partial matches of eager groups. They are found before any
# match, so a deadline that they took up would leave no match in any trigger.
KEEPING_SHARE = 0.5


class _EagerGroups:
    """The branches of one advance, their plans, and the partial matches of their eager groups,
    which are found before any match."""

    def __init__(
        self,
        matching: AdvanceContext,
        planning: tuple[BranchPlanner, CaseOrders],
        state: EventState,
        upto: tuple[int | float | None, _HorizonSplit],
        waiting: WaitingMatches | None = None,
    ) -> None:
        (planner, self.orders), (horizon, rows) = planning, upto
        self.matching = matching
        self.plans: Sequence[BranchPlan] = ()
        self.matchers: Sequence[BranchMatcher] = []
        self.prefixes: dict[int, GroupPrefixes] = {}
        self._waited = state.waiting or (), rows
        if matching.program.strategy != "any" or not matching.events.size:
            return
        self.plans = planner(matching)
        if matching.observer is None:
            self.plans = self.orders.shared(self.plans, matching)
        numbers = range(len(matching.program.branches))
        self.matchers = (
            [BranchMatcher(matching, number) for number in numbers]
            if waiting is None
            else [WaitingMatcher(matching, number, waiting) for number in numbers]
        )
        # In the only advance an eager group is a join like any other.
        if (horizon is None and not state.groups) or not keeps_partial_matches(matching):
            return
        # Groups that were cut stay in the state with what was found: the others are lost as matches
        # are, and the next trigger goes on from there instead of beginning anew, to be cut again.
        deadline = matching.meter.deadline
        if deadline is not None:
            matching.meter.deadline = deadline.part(KEEPING_SHARE)
        for number, plan in enumerate(self.plans):
            if self._is_kept(number, plan):
                known = (number, plan.eager) in state.groups
                old = None
                if known:
                    old = prefixes_from_rows(state.kept, number, plan.eager, rows.positions())
                ran = self.orders.describe(number, left_deep_shape(plan.eager))
                with matching.meter.count_order(f"{ran}, to keep"):
                    self.prefixes[number] = extend_prefixes(self.matchers[number], plan.eager, old)
        matching.meter.deadline = deadline

    def _is_kept(self, number: int, plan: BranchPlan) -> bool:
        """Not with a repeated group: every advance numbers its iterations again."""
        slots = self.matching.program.branches[number].slots
        return len(plan.eager) > 1 and not any(slots[slot].is_group for slot in plan.eager)

    def matches(self) -> Iterator[MatchSet]:
        runs: list[BranchRun] = []
        for number, (matcher, plan) in enumerate(zip(self.matchers, self.plans, strict=True)):
            prefixes = self.prefixes.get(number, {})
            whole = {frozenset(plan.eager): prefixes[len(plan.eager)]} if prefixes else {}
            if isinstance(matcher, WaitingMatcher):
                matcher.starts_from_kept = bool(prefixes)
            runs += matcher.runs(plan, whole, self.orders)
        # What is dropped depends on the branch.
        alone = self.matching.observer is not None
        found = chain.from_iterable(r.matches() for r in runs) if alone else run_together(runs)
        return chain(self._waited_matches(), found)

    def _waited_matches(self) -> Iterator[MatchSet]:
        stored, rows = self._waited
        if not stored:
            return
        position = rows.positions()
        waited = [m for m in self.matchers if isinstance(m, WaitingMatcher)]
        # Those that go on waiting do so whether or not there is time for the others.
        certain = [matcher.take_certain(stored, position) for matcher in waited]
        for matcher, sets in zip(waited, certain, strict=True):
            yield from matcher.finish_kept(sets)

    def kept(self, stay: Flags, place: Positions) -> tuple[StoredPartials, ...]:
        """`stay`: which positions stay in the state; `place`: their rows in it."""
        return tuple(
            rows
            for number, prefixes in self.prefixes.items()
            for rows in prefixes_to_rows(number, self.plans[number].eager, prefixes, stay, place)
        )

    def groups(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return tuple((number, self.plans[number].eager) for number in self.prefixes)


def keeps_partial_matches(matching: AdvanceContext) -> bool:
    """Whether the partial matches of eager groups are kept. Not where the earliest row decides a
    match: the status of the rows then does not say which partial matches are new."""
    return matching.program.strategy == "any" and matching.deciding_row != "earliest"


def _find_matches(eager: _EagerGroups, horizon: int | float | None) -> Iterator[MatchSet]:
    matching = eager.matching
    if matching.program.strategy == "any":
        return eager.matches()
    if not matching.events.size:
        return iter(())
    prefetch_candidates(matching.program, matching.events.table, matching.tally.lookups)
    # Only when all runs have ended is it known which starts are decided.
    race = RunEngine(matching, window_has_passed(matching.program, matching.events, horizon))
    race.run()
    return race.matches()


def _count_matches(
    matches: Iterator[MatchSet], meter: Meter, tally: ErrorTally
) -> Iterator[MatchSet]:
    try:
        yield from matches
    except DeadlinePassed:
        # Outside of walks: while complete matches were tested.
        assert meter.deadline is not None
        meter.deadline.count_skipped(0)
    meter.close()
    meter.metrics.condition_errors += tally.errors


# ---- events and their status -------------------------------------------------------------------


def _add_flags(state: EventState, fresh: pa.Table) -> pa.Table:
    flags = pa.array(np.zeros(fresh.num_rows, dtype=np.bool_))
    fresh = fresh.append_column(GIVEN_COLUMN, flags).append_column(USED_COLUMN, flags)
    if state.events is None:
        return fresh
    return pa.concat_tables([state.events, fresh.cast(state.events.schema)])


@dataclass(frozen=True)
class _HorizonSplit:
    """The events up to the horizon, and those behind it, which have to wait. `rows`: which of all
    rows the events are; None: all of them."""

    events: Events
    later: pa.Table | None = None
    rows: Positions | None = None

    def positions(self) -> Positions:
        """The position of each row; -1 for those that wait."""
        found: Positions = np.argsort(self.events.permutation)
        if self.rows is None or self.later is None:
            return found
        every = np.full(self.events.size + self.later.num_rows, -1)
        every[self.rows] = found
        return every


def _split_at_horizon(
    program: Program, table: pa.Table, horizon: int | float | None
) -> _HorizonSplit:
    if horizon is None or not waits_for_horizon(program):
        return _HorizonSplit(Events(program, table))
    every = Events(program, table)
    waiting = every.time > horizon
    if not waiting.any():
        return _HorizonSplit(every)
    rows = np.sort(every.rows(np.flatnonzero(~waiting)))
    later = np.sort(every.rows(np.flatnonzero(waiting)))
    return _HorizonSplit(
        Events(program, table.take(pa.array(rows))), table.take(pa.array(later)), rows
    )


def _advance_status(program: Program, events: Events, horizon: int | float | None) -> Positions:
    given = _read_flag(events, GIVEN_COLUMN)
    if program.home is not None:
        return slice_status(events, _read_flag(events, program.columns[program.home]), given)
    return row_status(program, events, given, horizon)


def _read_flag(events: Events, name: str) -> Flags:
    column = events.table.column(name).to_numpy()
    flags: Flags = column.astype(np.bool_)[events.permutation]
    return flags


# ---- the next state ----------------------------------------------------------------------------


def _state_with_matches(
    eager: _EagerGroups,
    waiting: WaitingMatches,
    found: ExhaustibleMatches,
    horizon: int | float | None,
) -> EventState:
    found.exhaust()
    return _remaining_state(eager, None, None, horizon, waiting)


def _remaining_state(
    eager: _EagerGroups,
    used: Flags | None,
    later: pa.Table | None,
    horizon: int | float | None,
    waiting: WaitingMatches | None = None,
) -> EventState:
    if horizon is None:
        return EventState(None, None)
    matching = eager.matching
    events = matching.events
    stay = _rows_to_keep(matching, horizon)
    # In the order of the table, so that rows that came together stay together.
    row_stays = np.zeros(events.size, dtype=np.bool_)
    row_stays[events.permutation] = stay
    rows = np.flatnonzero(row_stays)
    place = (np.cumsum(row_stays) - 1)[events.permutation]
    given = np.zeros(events.size, dtype=np.bool_)
    given[events.permutation] = matching.status != AHEAD if waiting is None else waiting.certain
    table = _set_flag(events.table.take(pa.array(rows)), GIVEN_COLUMN, given[rows])
    if used is not None:
        of_row = np.zeros(events.size, dtype=np.bool_)
        of_row[events.permutation] = used
        table = _set_flag(table, USED_COLUMN, of_row[rows])
    if later is not None:
        table = pa.concat_tables([table, later])
    matches = None if waiting is None else waiting.to_rows(place)
    if waiting is not None and matches is None:
        # The groups have rows beyond the horizon, which the next advance has not joined.
        return EventState(table, horizon)
    return EventState(table, horizon, eager.groups(), eager.kept(stay, place), matches)


def _set_flag(table: pa.Table, name: str, flags: Flags) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(flags))


def _rows_to_keep(matching: AdvanceContext, horizon: int | float) -> Flags:
    program, events = matching.program, matching.events
    stay = needed_rows(program, events, horizon)
    if matching.deciding_row == "start" and not negation_places(program) & {"start", "around"}:
        stay &= _rows_from_open_starts(matching)
    return stay


def _rows_from_open_starts(matching: AdvanceContext) -> Flags:
    """The rows of each partition from its first start on that has a run which has not ended."""
    partition = matching.events.partition.start
    waiting = np.flatnonzero(matching.status == AHEAD)
    begins, first = np.unique(partition[waiting], return_index=True)
    if not len(begins):
        return np.zeros(len(partition), dtype=np.bool_)
    place = np.minimum(np.searchsorted(begins, partition), len(begins) - 1)
    from_here = waiting[first][place]
    rows = np.arange(len(partition))
    return np.asarray((begins[place] == partition) & (rows >= from_here), dtype=np.bool_)


def _consume_in_order(
    matching: AdvanceContext, matches: Iterator[MatchSet]
) -> tuple[Iterator[MatchSet], Flags]:
    used = _read_flag(matching.events, USED_COLUMN)
    before = matching.meter.metrics.matches
    taken = consume_matches(matching, list(matches), used)
    matching.meter.metrics.matches = before + sum(len(found) for found in taken)
    return iter(taken), used
