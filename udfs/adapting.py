"""The detection-adaptation loop over the chunks of a bucket: look, plan, match, learn.

Before each chunk its own events are counted, so rates are those of what comes; selectivities are
those of what was matched before. If they give a reason, the plan is made anew. No match is lost
or found twice: a match is given in the advance that decides its latest row, and every advance
finds all matches that end in it, whatever the plan was before; what a plan keeps beside the
events is found anew from them when the plan changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING

from spark_cep.udfs.engine import State, advance
from spark_cep.udfs.metrics import Metrics
from spark_cep.udfs.ordering import branch_plans
from spark_cep.udfs.planning.adaptation import Adapter
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import ADAPTABLE, generators, models, show
from spark_cep.udfs.planning.model import plan_cost
from spark_cep.udfs.planning.observed import Observed
from spark_cep.udfs.planning.tree import tree_cost
from spark_cep.udfs.program import BranchPlan, Estimates, Plan
from spark_cep.udfs.rates import estimates_now, places

if TYPE_CHECKING:
    from spark_cep.udfs.chunks import Chunk
    from spark_cep.udfs.engine import Advance
    from spark_cep.udfs.matching import Found, Matching
    from spark_cep.udfs.program import Program

# The share of the chain's time that a tree NFA has to stay below.
CLEARLY = 0.8
# Windows looked at to see whether one plan is good everywhere: one for each of so many seconds
# that the chunk is expected to take.
SECONDS_A_PLACE = 5e-3
LEAST_PLACES = 3
# What making a plan anew takes.
LITTLE_SECONDS = 1e-3
PLACES = 8


class Adaptive:
    """Runs a program over chunks; `metrics` are complete when all matches have been taken."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.metrics = Metrics()
        self._adapts = program.adaptation.kind != "off" and program.plan.kind in ADAPTABLE
        self._observed = Observed(program.estimates or Estimates({}))
        self._adapter: Adapter | None = None
        self._plan = program.plan
        self._has_changed = self._is_alone = False
        self._models = models(program) if self._adapts else []

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Advance, Found]]:
        """The matches of all chunks, each with the advance that has its events."""
        state = State()
        for chunk in chunks:
            started = perf_counter_ns()
            self._has_changed = chunk.has_changed
            known = State() if chunk.fresh else state
            self._is_alone = chunk.horizon is None and known.events is None and not chunk.fresh
            planner = self._planned if self._adapts else branch_plans
            step = advance(self.program, known, chunk.table, chunk.horizon, planner=planner)
            state = step.state
            for found in step.matches:
                self.metrics.matching_us += (perf_counter_ns() - started) // 1000
                yield step, found
                started = perf_counter_ns()
            self.metrics.matching_us += (perf_counter_ns() - started) // 1000
            self.metrics.add(step.metrics)
            if self._adapts:
                self._observed.add({}, 0, step.metrics.conditions)

    def _planned(self, matching: Matching) -> Sequence[BranchPlan]:
        """The plan for the events of one advance."""
        started = perf_counter()
        self.metrics.plan_checks += 1
        now = estimates_now(matching, self._observed.estimates().selectivities)
        shipped = self.program.plan.branches
        if self._is_alone and shipped is not None and self._is_little(now, shipped):
            return shipped
        plan, because = self._adapted(now, self._has_changed)
        if self.program.adaptation.to_tree and self._is_scattered(matching, now):
            plan, because = Plan("tree"), "what is rare changes from window to window"
        if plan != self._plan:
            self.metrics.swaps.append(self._told(plan, because, matching))
            self._plan = plan
        self.metrics.planning_us += round((perf_counter() - started) * 1e6)
        return plan.branches or [BranchPlan(None) for _ in self.program.branches]

    def _is_little(self, now: Estimates, plans: Sequence[BranchPlan]) -> bool:
        """Whether making a plan takes longer than a better one could save."""
        costs = self.program.costs or TYPICAL
        shapes = zip(self._models, plans, strict=True)
        seconds = sum(
            plan_cost(model, plan.shape, now, costs).time
            for model, plan in shapes
            if plan.shape is not None
        )
        return seconds < LITTLE_SECONDS

    def _is_scattered(self, matching: Matching, now: Estimates) -> bool:
        """Whether windows had better each have their own plan. Looking at one takes as long as
        making a plan, so it is done where that is a small part of the work."""
        assert self._adapter is not None
        one = self._adapter.cost(now)
        count = min(PLACES, int(one.time / SECONDS_A_PLACE))
        if count < LEAST_PLACES:
            return False
        plans = self._adapter.plan.branches or ()
        chains = [plan.shape for plan in plans if plan.shape is not None]
        costs = self.program.costs or TYPICAL
        here = replace(now, places=places(matching, count))
        return tree_cost(self._models, chains, here, costs).time < CLEARLY * one.time

    def _adapted(self, now: Estimates, has_changed: bool) -> tuple[Plan, str]:
        if self._adapter is None:
            costs = self.program.costs or TYPICAL
            made = generators(self.program.plan.kind, self._models, costs)
            first = self.program.estimates or now
            self._adapter = Adapter(self.program.adaptation, made, first)
            if self.program.plan.branches is None:
                self._plan = self._adapter.plan
        because = "a rate has changed" if has_changed else None
        swap = self._adapter.after(now, because)
        because = "what is rare is so everywhere again" if swap is None else swap.because
        return self._adapter.plan, because

    def _told(self, plan: Plan, because: str, matching: Matching) -> dict[str, str]:
        names = [model.names for model in self._models]
        return {
            "from": show(self._plan, names),
            "to": show(plan, names),
            "because": because,
            "event_time": str(matching.events.start_of(0)),
        }
