"""The detection-adaptation loop over the chunks of a bucket: count, plan, match, measure.

Before each chunk its own events are counted, so rates are those of the chunk itself; selectivities
are those of earlier chunks. If they give a reason, a new plan is made. No match is lost or found
twice: every advance gives the matches that it decides, whatever the plan was before, and a new
plan finds the partial matches that it keeps from the events in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.bucket_plans import estimate_rates, plan_branches, window_rates
from spark_cep.udfs.events.engine import EventState, advance_events, keeps_partial_matches
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.events.table import NEW, column_to_numpy
from spark_cep.udfs.planning.adaptation import Adapter, SlidingStatistics
from spark_cep.udfs.planning.cost_model import plan_cost
from spark_cep.udfs.planning.planner import (
    ADAPTABLE,
    StreamPlanOption,
    branch_models,
    format_plan,
    plan_generators,
    stream_plan_options,
    tree_cost,
)
from spark_cep.udfs.program import BranchPlan, Estimates, Plan
from spark_cep.udfs.task_clock import TaskClock
from spark_cep.udfs.values.arrow_values import to_single_array
from spark_cep.udfs.values.codes import key_codes

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext, MatchSet
    from spark_cep.udfs.events.engine import EventAdvance
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remotes.lookup import Lookup


# ---- cutting a bucket into chunks --------------------------------------------------------------


# An advance has a fixed cost of about 2 ms, a tenth of what this many rows take.
CHUNK_ROWS = 1 << 18
# Where rates change, a chunk may be smaller: the wrong plan costs more than an advance.
MIN_CHUNK_ROWS = 1 << 12
WINDOWS_PER_CHUNK = 16
# The profile of a bucket has the rates in so many stretches of time. A chunk ends where a rate
# differs by this factor from its average so far.
PROFILE_STRETCHES = 32
RATE_CHANGE_FACTOR = 2.0
# The profile counts about so many rows: enough to see such a change, in a millisecond.
PROFILE_ROWS = 1 << 14
# Smaller counts vary by that factor by chance.
MIN_PROFILE_EVENTS = 32

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """`horizon`: the event time up to which the chunk is complete; None: to the end of the input.
    `fresh`: independent of the chunks before. `has_changed`: its rates differ from those of the
    chunk before."""

    table: pa.Table
    horizon: int | float | None = None
    fresh: bool = False
    has_changed: bool = False


def cut_chunks(program: Program, table: pa.Table) -> Iterator[Chunk]:
    """The bucket in one chunk, or in several between which its plan may change.

    Chunks are cut by time, at the same times for all keys, where rates change enough that another
    plan may be best. The whole bucket is there, so its rates are known before anything is matched.
    Where they do not change, chunks double in size: selectivities are measured early, and a long
    bucket costs few advances. Every chunk is many windows long, because rows within a window of
    its end are matched twice. Time slices are independent, and a chunk consists of whole slices."""
    adapts = program.adaptation.kind != "off" and program.plan.kind in {"lazy-chain", "zstream"}
    is_any = program.strategy == "any" and program.consumption == "reuse"
    if not adapts or not is_any or table.num_rows < 2 * MIN_CHUNK_ROWS:
        yield Chunk(table)
    elif program.home is not None:
        yield from _cut_by_slice(program, table)
    else:
        yield from _cut_by_time(program, table)


def _cut_by_slice(program: Program, table: pa.Table) -> Iterator[Chunk]:
    slices = column_to_numpy(table.column(program.keys[-1]))
    order = np.argsort(slices, kind="stable")
    changes = np.flatnonzero(np.diff(slices[order])) + 1
    wanted = np.array(_doubling_ends(len(order)), dtype=np.int64)
    after = np.searchsorted(changes, wanted)
    cuts = np.unique(changes[after[after < len(changes)]])
    for rows in np.split(order, cuts):
        yield Chunk(table.take(pa.array(np.sort(rows))), fresh=True)


def _cut_by_time(program: Program, table: pa.Table) -> Iterator[Chunk]:
    time = _event_times(program, table)
    cuts = [] if time is None else _time_cuts(program, table, time)
    if time is None or not cuts:
        yield Chunk(table)
        return
    place = np.searchsorted([end for end, _ in cuts], time, side="left")
    changed = [False, *(is_different for _, is_different in cuts)]
    for number, has_changed in enumerate(changed):
        rows = pa.array(np.flatnonzero(place == number))
        horizon = cuts[number][0] if number < len(cuts) else None
        yield Chunk(table.take(rows), horizon, has_changed=has_changed)


def _event_times(program: Program, table: pa.Table) -> Array | None:
    """Event times. A row without one, which the engine ignores, gets the earliest."""
    column = to_single_array(table.column(program.orders[0].column))
    time = column_to_numpy(column)
    if time.dtype.kind not in "if":
        return None
    if not column.null_count and (time.dtype.kind == "i" or not np.isnan(time).any()):
        return time
    known = column.is_valid().to_numpy(zero_copy_only=False) & ~np.isnan(time)
    return np.where(known, time, time[known].min()) if known.any() else None


def _time_cuts(program: Program, table: pa.Table, time: Array) -> list[tuple[int | float, bool]]:
    """The event times at which all chunks but the last end, and whether rates change there."""
    first, span = time.min(), np.ptp(time)
    if not span > 0 or not np.isfinite(span):
        return []
    count = min(PROFILE_STRETCHES, _max_chunks_by_window(program, table, span))
    if count < 2:
        return []
    step = max(1, len(time) // PROFILE_ROWS)
    mask = column_to_numpy(table.column(program.mask))[::step]
    place = ((time[::step] - first) * (count / span)).astype(np.int64).clip(0, count - 1)
    counts = np.stack(
        [
            np.bincount(place[(mask >> v & 1) == 1], minlength=count)
            for v in range(len(program.variables))
        ]
    )
    edges = first + (span * (np.arange(1, count) / count)).astype(time.dtype)
    rows = np.bincount(place, minlength=count) * step
    return [(edges[place].item(), changed) for place, changed in _profile_cuts(counts, rows)]


def _profile_cuts(counts: Array, rows: Array) -> Iterator[tuple[int, bool]]:
    """The stretches of the profile after which a chunk ends: where the next stretch differs from
    the chunk so far, or where the chunk is large enough."""
    begun, most = 0, CHUNK_ROWS
    for place in range(len(rows) - 1):
        size = rows[begun : place + 1].sum()
        is_different = bool(size >= MIN_CHUNK_ROWS) and _rates_differ(
            counts[:, begun : place + 1].mean(axis=1), counts[:, place + 1]
        )
        if is_different or size >= most:
            yield place, is_different
            most = CHUNK_ROWS if is_different else 2 * most
            begun = place + 1


def _rates_differ(before: Array, after: Array) -> bool:
    """Whether some rate has changed by the factor."""
    enough = np.maximum(before, after) >= MIN_PROFILE_EVENTS
    if not enough.any():
        return False
    change = (after[enough] + 1.0) / (before[enough] + 1.0)
    return bool(change.max() > RATE_CHANGE_FACTOR or change.min() * RATE_CHANGE_FACTOR < 1)


def _doubling_ends(size: int) -> list[int]:
    """The ends of chunks that double in size."""
    ends, most = [CHUNK_ROWS], CHUNK_ROWS
    while ends[-1] < size:
        most *= 2
        ends.append(ends[-1] + most)
    return [end for end in ends if end < size]


def _max_chunks_by_window(program: Program, table: pa.Table, span: float) -> int:
    window = program.window
    if window is None or not window.size:
        return 1
    if window.kind == "time":
        return int(min(span // (window.size * WINDOWS_PER_CHUNK), PROFILE_STRETCHES))
    codes = key_codes([table.column(key) for key in program.keys]) if program.keys else ()
    keys = max(1, len(np.unique(codes)))
    most: int = table.num_rows // (int(window.size) * WINDOWS_PER_CHUNK * keys)
    return most


# ---- the loop ----------------------------------------------------------------------------------


# Another kind of plan has to be expected to take less than this share of the time.
CLEAR_GAIN = 0.8
# Windows sampled to see whether one plan is good everywhere: one for each of so many seconds that
# the chunk is expected to take.
SECONDS_PER_WINDOW = 5e-3
MIN_SAMPLE_WINDOWS = 3
MAX_SAMPLE_WINDOWS = 8
# What making a new plan takes.
REPLANNING_SECONDS = 1e-3
# The choice of kept partial matches is repeated when a statistic has changed by this factor.
STATISTIC_CHANGE_FACTOR = 1.25
# Where a trigger brings more of a window than this, most of the rows to match are new.
MAX_NEW_SHARE = 0.25


class AdaptiveEngine:
    """Runs a program in advances and chooses its plan before each. `metrics` are complete when all
    matches have been taken. `lookups`: of the program's remote sources, in their order. `clock`: of
    the task that is running."""

    def __init__(self, program: Program, lookups: tuple[Lookup, ...] = ()) -> None:
        self.program = program
        self.lookups = lookups
        self.clock = TaskClock(program.limits.seconds)
        self.metrics = Metrics()
        self._adapts = program.adaptation.kind != "off" and program.plan.kind in ADAPTABLE
        self._observed = SlidingStatistics(program.estimates or Estimates({}))
        self._adapter: Adapter | None = None
        self._plan = program.plan
        self._has_changed = self._is_alone = False
        self._examined: Estimates | None = None
        self._models = branch_models(program) if self._adapts else []

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[EventAdvance, MatchSet]]:
        """The matches of all chunks, each with the advance whose events it has."""
        state = EventState()
        for chunk in chunks:
            self._has_changed = chunk.has_changed
            known = EventState() if chunk.fresh else state
            self._is_alone = chunk.horizon is None and known.events is None and not chunk.fresh
            step = self.step(known, chunk.table, chunk.horizon)
            state = step.state
            for found in self.matches(step):
                yield step, found

    def step(self, state: EventState, table: pa.Table, horizon: int | float | None) -> EventAdvance:
        """One advance with the plan for its events."""
        started = perf_counter_ns()
        planner = self._planned if self._adapts else plan_branches
        step = advance_events(
            self.program, state, table, horizon, planner=planner, lookups=self.lookups,
            clock=self.clock,
        )  # fmt: skip
        self.metrics.matching_us += (perf_counter_ns() - started) // 1000
        return step

    def matches(self, step: EventAdvance) -> Iterator[MatchSet]:
        """The matches of an advance; its selectivities are learned when all were taken."""
        started = perf_counter_ns()
        for found in step.matches:
            self.metrics.matching_us += (perf_counter_ns() - started) // 1000
            yield found
            started = perf_counter_ns()
        self.metrics.matching_us += (perf_counter_ns() - started) // 1000
        self.metrics.add(step.metrics)
        lookups = {lookup.remote.name: lookup.metrics.take() for lookup in self.lookups}
        self.metrics.add(Metrics(remotes=lookups))
        if self._adapts:
            self._observed.add({}, 0, step.metrics.conditions)

    def selectivities(self) -> Mapping[int, float]:
        """The measured selectivities, by place in `Program.conditions`."""
        return self._observed.estimates().selectivities

    def _planned(self, matching: AdvanceContext) -> Sequence[BranchPlan]:
        """The plan for the events of one advance."""
        started = perf_counter()
        self.metrics.plan_checks += 1
        now = estimate_rates(matching, self._observed.estimates().selectivities)
        shipped = self.program.plan.branches
        if self._is_alone and shipped is not None and self._is_little(now, shipped):
            return shipped
        plan, because = self._adapted(now, self._has_changed)
        # Where a trigger is a small part of a window, matching begins at the new rows anyway.
        is_short = self.program.adaptation.to_hybrid and _is_short_advance(matching)
        if self.program.adaptation.to_tree and not is_short and self._is_scattered(matching, now):
            plan, because = Plan("tree"), "the rarest variable changes from window to window"
        if is_short:
            plan, because = self._kept(matching, now, (plan, because))
        if plan != self._plan:
            self.metrics.swaps.append(self._swap(plan, because, matching))
            self._plan = plan
        self.metrics.planning_us += round((perf_counter() - started) * 1e6)
        return plan.branches or [BranchPlan(None) for _ in self.program.branches]

    def _is_little(self, now: Estimates, plans: Sequence[BranchPlan]) -> bool:
        """Whether making a plan takes longer than a better one could save."""
        costs = self.program.costs or TYPICAL_COSTS
        shapes = zip(self._models, plans, strict=True)
        seconds = sum(
            plan_cost(model, plan.shape, now, costs).time
            for model, plan in shapes
            if plan.shape is not None
        )
        return seconds < REPLANNING_SECONDS

    def _is_scattered(self, matching: AdvanceContext, now: Estimates) -> bool:
        """Whether each window should have its own plan. Examining a window takes as long as making
        a plan, so it is done only where that is a small part of the work."""
        assert self._adapter is not None
        one = self._adapter.cost(now)
        count = min(MAX_SAMPLE_WINDOWS, int(one.time / SECONDS_PER_WINDOW))
        if count < MIN_SAMPLE_WINDOWS:
            return False
        plans = self._adapter.plan.branches or ()
        chains = [plan.shape for plan in plans if plan.shape is not None]
        costs = self.program.costs or TYPICAL_COSTS
        here = replace(now, places=window_rates(matching, count))
        return tree_cost(self._models, chains, here, costs).time < CLEAR_GAIN * one.time

    def _kept(
        self, matching: AdvanceContext, now: Estimates, lazy: tuple[Plan, str]
    ) -> tuple[Plan, str]:
        """The plan that keeps partial matches between triggers, where that clearly pays. Finding
        a group again takes as long as many triggers, so a group is kept until another option is
        clearly better."""
        if not keeps_partial_matches(matching):
            return lazy
        if self._examined is not None and not _estimates_differ(self._examined, now):
            return (self._plan, "") if self._plan.kind == "hybrid" else lazy
        self._examined = now
        costs = self.program.costs or TYPICAL_COSTS
        share = float(np.mean(matching.status == NEW))
        found = [stream_plan_options(model, now, costs, share) for model in self._models]
        without = sum(each[0].seconds for each in found)
        present = self._present_seconds(found)
        best = [min(each, key=lambda way: way.seconds) for each in found]
        seconds = sum(way.seconds for way in best)
        if present is not None and min(seconds, without) >= CLEAR_GAIN * present:
            return self._plan, ""
        if without < REPLANNING_SECONDS or seconds > CLEAR_GAIN * without:
            return lazy
        held = sum(way.held for way in best)
        because = (
            f"keeping about {held:,.0f} partial matches is expected to take {seconds * 1e3:.1f} "
            f"ms a trigger, finding them anew {without * 1e3:.1f} ms"
        )
        return Plan("hybrid", tuple(way.plan for way in best)), because

    def _present_seconds(self, found: Sequence[Sequence[StreamPlanOption]]) -> float | None:
        """The expected time with the groups that are kept now; None if there are none."""
        if self._plan.kind != "hybrid" or self._plan.branches is None:
            return None
        seconds = 0.0
        for each, plan in zip(found, self._plan.branches, strict=True):
            same = [way.seconds for way in each if way.plan.eager == plan.eager]
            if not same:
                return None
            seconds += same[0]
        return seconds

    def _adapted(self, now: Estimates, has_changed: bool) -> tuple[Plan, str]:
        if self._adapter is None:
            costs = self.program.costs or TYPICAL_COSTS
            made = plan_generators(self.program.plan.kind, self._models, costs)
            first = self.program.estimates or now
            self._adapter = Adapter(self.program.adaptation, made, first)
            if self.program.plan.branches is None:
                self._plan = self._adapter.plan
        because = "a rate has changed" if has_changed else None
        swap = self._adapter.after(now, because)
        because = (
            "the rarest variable is the same in all windows again" if swap is None else swap.because
        )
        return self._adapter.plan, because

    def _swap(self, plan: Plan, because: str, matching: AdvanceContext) -> dict[str, str]:
        names = [model.names for model in self._models]
        return {
            "from": format_plan(self._plan, names),
            "to": format_plan(plan, names),
            "because": because,
            "event_time": str(matching.events.start_of(0)),
        }


def _is_short_advance(matching: AdvanceContext) -> bool:
    """Whether this advance brings a small part of what there is to match."""
    return bool(matching.events.size and np.mean(matching.status == NEW) <= MAX_NEW_SHARE)


def _estimates_differ(before: Estimates, now: Estimates) -> bool:
    for old, new in ((before.rates, now.rates), (before.selectivities, now.selectivities)):
        if old.keys() != new.keys():
            return True
        for key, value in new.items():
            least, most = sorted((old[key], value))
            if most > STATISTIC_CHANGE_FACTOR * least:
                return True
    return False
