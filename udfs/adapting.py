"""The detection-adaptation loop over the chunks of a bucket: look, plan, match, learn.

Before each chunk its own events are counted, so rates are those of what comes; selectivities are
those of what was matched before. If they give a reason, the plan is made anew. No match is lost
or found twice: a match is given in the advance that decides its latest row, and every advance
finds all matches that end in it, whatever the plan was before; what a plan keeps beside the
events is found anew from them when the plan changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.engine import State, advance, keeps_partial_matches
from spark_cep.udfs.events import NEW
from spark_cep.udfs.metrics import Metrics
from spark_cep.udfs.ordering import branch_plans
from spark_cep.udfs.planning.adaptation import Adapter
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import ADAPTABLE, generators, models, show
from spark_cep.udfs.planning.keeping import Way, ways
from spark_cep.udfs.planning.model import plan_cost
from spark_cep.udfs.planning.observed import Observed
from spark_cep.udfs.planning.tree import tree_cost
from spark_cep.udfs.program import BranchPlan, Estimates, Plan
from spark_cep.udfs.rates import estimates_now, places

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.chunks import Chunk
    from spark_cep.udfs.engine import Advance
    from spark_cep.udfs.matching import Found, Matching
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remotes.lookup import Lookup

# The share of the chain's time that a tree NFA has to stay below.
CLEARLY = 0.8
# Windows looked at to see whether one plan is good everywhere: one for each of so many seconds
# that the chunk is expected to take.
SECONDS_A_PLACE = 5e-3
LEAST_PLACES = 3
# What making a plan anew takes.
LITTLE_SECONDS = 1e-3
PLACES = 8
# What is kept is thought over again when a statistic has changed by this factor.
CHANGED = 1.25
# Where a trigger brings more of a window than this, its rows are most of what there is to match.
MOST_NEW = 0.25


class Adaptive:
    """Runs a program over chunks; `metrics` are complete when all matches have been taken.
    `lookups`: of the program's remote sources, in their order."""

    def __init__(self, program: Program, lookups: tuple[Lookup, ...] = ()) -> None:
        self.program = program
        self.lookups = lookups
        self.metrics = Metrics()
        self._adapts = program.adaptation.kind != "off" and program.plan.kind in ADAPTABLE
        self._observed = Observed(program.estimates or Estimates({}))
        self._adapter: Adapter | None = None
        self._plan = program.plan
        self._has_changed = self._is_alone = False
        self._looked: Estimates | None = None
        self._models = models(program) if self._adapts else []

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Advance, Found]]:
        """The matches of all chunks, each with the advance that has its events."""
        state = State()
        for chunk in chunks:
            self._has_changed = chunk.has_changed
            known = State() if chunk.fresh else state
            self._is_alone = chunk.horizon is None and known.events is None and not chunk.fresh
            step = self.step(known, chunk.table, chunk.horizon)
            state = step.state
            for found in self.matches(step):
                yield step, found

    def step(self, state: State, table: pa.Table, horizon: int | float | None) -> Advance:
        """One advance with the plan for its events."""
        started = perf_counter_ns()
        planner = self._planned if self._adapts else branch_plans
        step = advance(self.program, state, table, horizon, planner=planner, lookups=self.lookups)
        self.metrics.matching_us += (perf_counter_ns() - started) // 1000
        return step

    def matches(self, step: Advance) -> Iterator[Found]:
        """Its matches; when all were taken, they have been learnt from."""
        started = perf_counter_ns()
        for found in step.matches:
            self.metrics.matching_us += (perf_counter_ns() - started) // 1000
            yield found
            started = perf_counter_ns()
        self.metrics.matching_us += (perf_counter_ns() - started) // 1000
        self.metrics.add(step.metrics)
        looked = {lookup.remote.name: lookup.metrics.take() for lookup in self.lookups}
        self.metrics.add(Metrics(remotes=looked))
        if self._adapts:
            self._observed.add({}, 0, step.metrics.conditions)

    def selectivities(self) -> Mapping[int, float]:
        """What conditions were seen to keep."""
        return self._observed.estimates().selectivities

    def _planned(self, matching: Matching) -> Sequence[BranchPlan]:
        """The plan for the events of one advance."""
        started = perf_counter()
        self.metrics.plan_checks += 1
        now = estimates_now(matching, self._observed.estimates().selectivities)
        shipped = self.program.plan.branches
        if self._is_alone and shipped is not None and self._is_little(now, shipped):
            return shipped
        plan, because = self._adapted(now, self._has_changed)
        # Where a trigger is a small part of a window, walks begin at what is new whatever the plan.
        is_short = self.program.adaptation.to_hybrid and _is_short(matching)
        if self.program.adaptation.to_tree and not is_short and self._is_scattered(matching, now):
            plan, because = Plan("tree"), "what is rare changes from window to window"
        if is_short:
            plan, because = self._kept(matching, now, (plan, because))
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

    def _kept(self, matching: Matching, now: Estimates, lazy: tuple[Plan, str]) -> tuple[Plan, str]:
        """The plan that keeps partial matches between triggers, where that clearly pays. Finding
        a group anew takes as long as many triggers, so what is kept stays until another way is
        clearly better."""
        if not keeps_partial_matches(matching):
            return lazy
        if self._looked is not None and not _differ(self._looked, now):
            return (self._plan, "") if self._plan.kind == "hybrid" else lazy
        self._looked = now
        costs = self.program.costs or TYPICAL
        share = float(np.mean(matching.status == NEW))
        found = [ways(model, now, costs, share) for model in self._models]
        without = sum(each[0].seconds for each in found)
        in_force = self._in_force(found)
        best = [min(each, key=lambda way: way.seconds) for each in found]
        seconds = sum(way.seconds for way in best)
        if in_force is not None and min(seconds, without) >= CLEARLY * in_force:
            return self._plan, ""
        if without < LITTLE_SECONDS or seconds > CLEARLY * without:
            return lazy
        held = sum(way.held for way in best)
        because = (
            f"keeping about {held:,.0f} partial matches is expected to take {seconds * 1e3:.1f} "
            f"ms a trigger, finding them anew {without * 1e3:.1f} ms"
        )
        return Plan("hybrid", tuple(way.plan for way in best)), because

    def _in_force(self, found: Sequence[Sequence[Way]]) -> float | None:
        """What the groups that are kept now are expected to take; None if there are none."""
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


def _is_short(matching: Matching) -> bool:
    """Whether this advance brings a small part of what there is to match."""
    return bool(matching.events.size and np.mean(matching.status == NEW) <= MOST_NEW)


def _differ(before: Estimates, now: Estimates) -> bool:
    for old, new in ((before.rates, now.rates), (before.selectivities, now.selectivities)):
        if old.keys() != new.keys():
            return True
        for key, value in new.items():
            least, most = sorted((old[key], value))
            if most > CHANGED * least:
                return True
    return False
