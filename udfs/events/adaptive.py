"""The detection-adaptation loop over the chunks of a bucket: count, plan, match, measure.

Before each chunk its own events are counted, so rates are those of the chunk itself; selectivities
are those of earlier chunks. If they give a reason, a new plan is made. No match is lost or found
twice: every advance gives the matches that it decides, whatever the plan was before, and a new
plan finds the partial matches that it keeps from the events in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.bucket_plans import estimate_rates, plan_branches, window_rates
from spark_cep.udfs.events.case_orders import CaseOrders
from spark_cep.udfs.events.chunks import ROW_SECONDS
from spark_cep.udfs.events.engine import EventState, advance_events, keeps_partial_matches
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.events.table import NEW
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

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.events.chunks import Chunk
    from spark_cep.udfs.events.context import AdvanceContext, MatchSet
    from spark_cep.udfs.events.engine import EventAdvance
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remotes.lookup import Lookup


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
        self._orders = CaseOrders(program)

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
            self.program, state, table, horizon, planner=planner, orders=self._orders,
            lookups=self.lookups, clock=self.clock,
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
        matching.estimates = now
        shipped = self.program.plan.branches
        rows = matching.events.size
        if self._is_alone and shipped is not None and self._is_little(rows, now, shipped):
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

    def _is_little(self, rows: int, now: Estimates, plans: Sequence[BranchPlan]) -> bool:
        """Whether making a plan takes longer than a better one could save. The work of many rows
        is not judged by the selectivities of the sample, which may be wrong."""
        if rows * ROW_SECONDS > REPLANNING_SECONDS:
            return False
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
            program, costs = self.program, self.program.costs or TYPICAL_COSTS
            made = plan_generators(program.plan.kind, self._models, costs, program.planner)
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
