"""The detection-adaptation loop over the chunks of a bucket: count, plan, match, measure.

Before each chunk its own events are counted, so rates are those of the chunk itself; selectivities
are those of earlier chunks. If they give a reason, a new plan is made. No match is lost or found
twice: every advance gives the matches that it decides, whatever the plan was before, and a new
plan finds the partial matches that it keeps from the events in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.bucket_plans import estimate_rates, plan_branches, window_rates
from spark_cep.udfs.events.case_orders import CaseOrders
from spark_cep.udfs.events.chunks import ROW_SECONDS
from spark_cep.udfs.events.engine import EventState, advance_events, keeps_partial_matches
from spark_cep.udfs.events.load import LoadMeter
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.events.selectivities import BucketSelectivities
from spark_cep.udfs.events.table import NEW
from spark_cep.udfs.events.waiting import WaitingChoice
from spark_cep.udfs.planning.adaptation import Adapter, estimates_differ
from spark_cep.udfs.planning.cost_model import plan_cost, plan_seconds
from spark_cep.udfs.planning.invariants import GeneratedPlan
from spark_cep.udfs.planning.planner import (
    ADAPTABLE,
    branch_models,
    format_plan,
    plan_generators,
    tree_cost,
)
from spark_cep.udfs.planning.streams import StreamPlanGenerator
from spark_cep.udfs.program import BranchPlan, Estimates, Plan
from spark_cep.udfs.task_clock import TaskClock, running_seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.events.chunks import Chunk
    from spark_cep.udfs.events.context import AdvanceContext, MatchSet
    from spark_cep.udfs.events.deadline import Deadline
    from spark_cep.udfs.events.engine import EventAdvance
    from spark_cep.udfs.program import PlanKind, Program
    from spark_cep.udfs.remotes.lookup import Lookup


# Another kind of plan has to be expected to take less than this share of the time. Finding a group
# of partial matches again takes as long as many triggers.
CLEAR_GAIN = 0.8
# Windows sampled to see whether one plan is good everywhere: one for each of so many seconds that
# the chunk is expected to take.
SECONDS_PER_WINDOW = 10e-3
MIN_SAMPLE_WINDOWS = 3
MAX_SAMPLE_WINDOWS = 8
# What making a new plan takes.
REPLANNING_SECONDS = 1e-3
# Where more than this share of the rows to match is new, as when a stream catches up, nothing that
# is kept would save much. A trigger that brings a whole window has a half.
MAX_NEW_SHARE = 0.6


class AdaptiveEngine:
    """Runs a program in advances and chooses its plan before each. `metrics` are complete when all
    matches have been taken. `lookups`: of the program's remote sources, in their order. `clock`: of
    the task that is running. `joins_on_arrival`: rows are to be joined in the advance that brings
    them, whatever it costs to keep the matches that are not certain yet. `deadline`: when it stops
    matching."""

    def __init__(
        self,
        program: Program,
        lookups: tuple[Lookup, ...] = (),
        *,
        joins_on_arrival: bool = False,
    ) -> None:
        self.program = program
        self.lookups = lookups
        self.clock = TaskClock(program.limits.seconds)
        self.deadline: Deadline | None = None
        self.metrics = Metrics()
        self._is_hybrid = program.plan.kind == "hybrid" and program.adaptation.to_hybrid
        adapts = program.adaptation.kind != "off" and program.plan.kind in ADAPTABLE
        self._adapts = adapts or self._is_hybrid
        self._selectivities = BucketSelectivities(program, program.estimates or Estimates({}))
        self._load = LoadMeter()
        self._adapter: Adapter | None = None
        self._group_adapter: Adapter | None = None
        # The estimates under which plans were looked at in a short trigger.
        self._examined: Estimates | None = None
        self._plan = program.plan
        self._kept_groups: Mapping[int, tuple[int, ...]] = {}
        self._has_changed = self._is_alone = False
        self._models = branch_models(program) if self._adapts else []
        self._orders = CaseOrders(program)
        self._waiting = WaitingChoice(program, is_wanted=joins_on_arrival)

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[EventAdvance, MatchSet]]:
        """The matches of all chunks, each with the advance whose events it has."""
        state = EventState()
        for chunk in chunks:
            if self.deadline is not None and self.deadline.has_passed():
                self.deadline.count_skipped(round(chunk.table.num_rows * self._start_share()))
                continue
            self._has_changed = chunk.has_changed
            known = EventState() if chunk.fresh else state
            self._is_alone = chunk.horizon is None and known.events is None and not chunk.fresh
            step = self.step(known, chunk.table, chunk.horizon)
            state = step.state
            for found in self.matches(step):
                yield step, found

    def _start_share(self) -> float:
        """Of the rows so far, those with which matching began."""
        assert self.deadline is not None
        return self.deadline.begun / self.metrics.rows if self.metrics.rows else 1.0

    def step(self, state: EventState, table: pa.Table, horizon: int | float | None) -> EventAdvance:
        """One advance with the plan for its events."""
        started = running_seconds()
        self._kept_groups = dict(state.groups)
        planner = self._planned if self._adapts else plan_branches
        step = advance_events(
            self.program, state, table, horizon, planner=planner, orders=self._orders,
            lookups=self.lookups, clock=self.clock, deadline=self.deadline,
            most_waiting=self._waiting.limit(
                self._load.estimate(), is_kept=state.waiting is not None
            ),
        )  # fmt: skip
        self.metrics.matching_us += _microseconds_since(started)
        return step

    def matches(self, step: EventAdvance) -> Iterator[MatchSet]:
        """The matches of an advance; its selectivities are learned when all were taken."""
        before = self.metrics.matching_us
        started = running_seconds()
        for found in step.matches:
            self.metrics.matching_us += _microseconds_since(started)
            yield found
            started = running_seconds()
        self.metrics.matching_us += _microseconds_since(started)
        self.metrics.add(step.metrics)
        overflows = step.waiting is not None and step.waiting.has_overflowed
        self._waiting.add(step.metrics.rows, step.metrics.pairs, overflows=overflows)
        lookups = {lookup.remote.name: lookup.metrics.take() for lookup in self.lookups}
        self.metrics.add(Metrics(remotes=lookups))
        if self._adapts:
            self._selectivities.add_advance(step.metrics, self._plan)
            self._load.end((self.metrics.matching_us - before) / 1e6)

    def learnt(self) -> dict[str, Any]:
        """What is known of the bucket, as plain data for its state."""
        return {**self._selectivities.to_json(), "load": self._load.to_json()}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Goes on with what `learnt` gave in an earlier trigger."""
        self._selectivities.restore(learnt)
        self._load.restore(learnt.get("load", {}))

    def _planned(self, matching: AdvanceContext) -> Sequence[BranchPlan]:
        """The plan for the events of one advance."""
        started = perf_counter()
        self.metrics.plan_checks += 1
        rates = estimate_rates(matching, {})
        now = self._selectivities.estimates(rates)
        shipped = self.program.plan.branches
        rows = matching.events.size
        if self._is_alone and shipped is not None and self._is_little(rows, now, shipped):
            return shipped
        if self._adapter is None:
            self._adapter = self._make_adapter(now)
        share = float(np.mean(matching.status == NEW)) if rows else 1.0
        adapter, arriving = self._adapter, share * rows * ROW_SECONDS
        if self._selectivities.look(
            matching, lambda: adapter.seconds_of_plan(now) * share + arriving
        ):
            now = self._selectivities.estimates(rates)
        matching.estimates = now
        # Where a trigger is a small part of a window, matching begins at the new rows anyway.
        is_stream = self.program.adaptation.to_hybrid
        is_short = share <= MAX_NEW_SHARE and is_stream
        if is_stream:
            self._load.begin(matching, started)
            now = replace(now, load=self._load.estimate())
        chooses = is_short or (is_stream and self._is_hybrid) or self._plan.kind == "hybrid"
        if chooses and not self._has_news(now):
            self.metrics.planning_us += round((perf_counter() - started) * 1e6)
            return self._plan.branches or [BranchPlan(None) for _ in self.program.branches]
        plan, because = self._adapted(now)
        if self.program.adaptation.to_tree and not is_short and self._is_scattered(matching, now):
            plan, because = Plan("tree"), "the rarest variable changes from window to window"
        if chooses:
            plan, because = self._with_groups(matching, now, (plan, because))
        if plan != self._plan:
            self.metrics.swaps.append(self._swap(plan, because, matching))
            self._plan = plan
        self.metrics.planning_us += round((perf_counter() - started) * 1e6)
        return plan.branches or [BranchPlan(None) for _ in self.program.branches]

    def _has_news(self, now: Estimates) -> bool:
        """Whether statistics have changed since plans were looked at. A trigger takes a few
        milliseconds, and looking at all groups one or more."""
        is_lazy = self.program.adaptation.kind == "invariants"
        if is_lazy and self._examined is not None and not estimates_differ(self._examined, now):
            return False
        self._examined = now
        return True

    def _is_little(self, rows: int, now: Estimates, plans: Sequence[BranchPlan]) -> bool:
        """Whether making a plan takes longer than a better one could save. The work of many rows
        is not judged by the selectivities of the sample, which may be wrong."""
        if rows * ROW_SECONDS > REPLANNING_SECONDS:
            return False
        costs = self.program.costs or TYPICAL_COSTS
        shapes = zip(self._models, plans, strict=True)
        seconds = sum(
            plan_seconds(model, plan.shape, now, costs)
            for model, plan in shapes
            if plan.shape is not None
        )
        return seconds < REPLANNING_SECONDS

    def _is_scattered(self, matching: AdvanceContext, now: Estimates) -> bool:
        """Whether each window should have its own plan. Examining a window takes as long as making
        a plan, so it is done only where that is a small part of the work."""
        assert self._adapter is not None
        seconds = self._adapter.seconds_of_plan(now)
        count = min(MAX_SAMPLE_WINDOWS, int(seconds / SECONDS_PER_WINDOW))
        if count < MIN_SAMPLE_WINDOWS:
            return False
        plans = self._adapter.plan.branches or ()
        chains = [plan.shape for plan in plans if plan.shape is not None]
        costs = self.program.costs or TYPICAL_COSTS
        here = replace(now, places=window_rates(matching, count))
        return tree_cost(self._models, chains, here, costs).time < CLEAR_GAIN * seconds

    def _make_adapter(self, now: Estimates) -> Adapter:
        costs = self.program.costs or TYPICAL_COSTS
        kind: PlanKind = "lazy-chain" if self._is_hybrid else self.program.plan.kind
        made = plan_generators(kind, self._models, costs, self.program.planner)
        shipped = self.program.plan.branches
        if shipped is None or self._is_hybrid:
            adapter = Adapter(self.program.adaptation, made, now)
            self._plan = adapter.plan if shipped is None else self._plan
            return adapter
        # The driver's plan is compared with that of these rows, instead of being made once more.
        begin = [
            GeneratedPlan(plan.shape, (), plan_cost(model, plan.shape, now, costs))
            for model, plan in zip(self._models, shipped, strict=True)
            if plan.shape is not None
        ]
        return Adapter(
            self.program.adaptation, made, now, begin, first="the bucket's own rows favor it"
        )

    def _adapted(self, now: Estimates) -> tuple[Plan, str]:
        assert self._adapter is not None
        swap = self._adapter.after(now, "a rate has changed" if self._has_changed else None)
        because = (
            "the rarest variable is the same in all windows again" if swap is None else swap.because
        )
        return self._adapter.plan, because

    def _with_groups(
        self, matching: AdvanceContext, now: Estimates, lazy: tuple[Plan, str]
    ) -> tuple[Plan, str]:
        """The plan that keeps partial matches between triggers, where that clearly pays."""
        # Under conditions of which nothing is known, every plan but the right one looks expensive.
        if not keeps_partial_matches(matching) or not self._selectivities.is_known:
            return lazy
        if self._group_adapter is None:
            self._group_adapter = self._make_group_adapter(now)
        adapter = self._group_adapter
        adapter.after(now)
        if adapter.plan == self._plan:
            return self._plan, ""
        if any(plan.eager for plan in adapter.plan.branches or ()):
            return adapter.plan, self._describe_groups(adapter, now, adapter.plan)
        if self._plan.kind == "hybrid":
            return lazy[0], self._describe_groups(adapter, now, self._plan)
        return lazy

    def _make_group_adapter(self, now: Estimates) -> Adapter:
        """Begins with the groups that are in the state, or with none. Where plans are not made
        anew, the first choice stays. A group is compared with every other one: there are few, and
        they are looked at only where a statistic has changed."""
        costs = self.program.costs or TYPICAL_COSTS
        adaptation = replace(self.program.adaptation, k=None)
        # A hybrid plan was asked for, whatever there is to save.
        negligible = 0.0 if self._is_hybrid else REPLANNING_SECONDS
        made = [
            StreamPlanGenerator(model, costs, self.program.optimize, negligible)
            for model in self._models
        ]
        begin = None
        if adaptation.kind != "off":
            begin = [
                generator.keep(now, self._kept_groups.get(number, ()))
                for number, generator in enumerate(made)
            ]
        return Adapter(adaptation, made, now, begin, least_gain=1 - CLEAR_GAIN)

    def _describe_groups(self, adapter: Adapter, now: Estimates, plan: Plan) -> str:
        """Why the groups of a plan are kept from now on, or not any more."""
        groups = [each.eager for each in plan.branches or ()]
        options = [
            (generator.options(now).option(group), generator.options(now).option(()))
            for generator, group in zip(adapter.generators, groups, strict=True)
            if isinstance(generator, StreamPlanGenerator)
        ]
        held = sum(kept.held for kept, _ in options)
        seconds, anew = (sum(each.seconds for each in way) for way in zip(*options, strict=True))
        return (
            f"keeping about {held:,.0f} partial matches is expected to take {seconds * 1e3:.1f} "
            f"ms a trigger, finding them anew {anew * 1e3:.1f} ms"
        )

    def _swap(self, plan: Plan, because: str, matching: AdvanceContext) -> dict[str, str]:
        names = [model.names for model in self._models]
        return {
            "from": format_plan(self._plan, names),
            "to": format_plan(plan, names),
            "because": because,
            "event_time": str(matching.events.start_of(0)),
        }


def _microseconds_since(started: float) -> int:
    return int((running_seconds() - started) * 1e6)
