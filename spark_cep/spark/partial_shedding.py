"""Shedding of partial matches: the plan whose order gives their states, and what is learnt of them.

    rows with their mask -> a sample of whole stretches -> a plan that binds one slot after another
                         -> utilities of its states -> a rule, which is shipped with the program

All rows are shuffled and matched. The plan is fixed, because a partial match of one order is none
of another: with plans that each bucket makes for itself, the answer would depend on the buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

from spark_cep.planner.choice import choose_plan
from spark_cep.plans import PlanRequest
from spark_cep.spark import prepare
from spark_cep.spark.shedding import (
    ROW_OVERHEAD_SECONDS,
    choose_share,
    sample_with_size,
)
from spark_cep.spark.shedding_sample import plain_key_types
from spark_cep.spark.source import count_cores, shuffle_partitions
from spark_cep.udfs.costs import TYPICAL_COSTS, measure_costs
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.program import BranchPlan, Limits, Plan
from spark_cep.udfs.shedding.learning import estimate_seconds, estimate_work
from spark_cep.udfs.shedding.partial_matches import PartialStatistics, learn_partials
from spark_cep.udfs.shedding.utility import StreamSheddingSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from spark_cep.events.compiled import CompiledEventQuery
    from spark_cep.planner.choice import PlanChoice, PlanFacts
    from spark_cep.shed import Shed
    from spark_cep.spark.shedding import CandidateCount
    from spark_cep.spark.source import SourceFrame
    from spark_cep.udfs.program import DroppingRule, Estimates, Program
    from spark_cep.udfs.shedding.learning import RowSample
    from spark_cep.udfs.shedding.matches import Recall
    from spark_cep.udfs.shedding.partial_matches import PartialModel

# The limits of counting the matches of a sample.
_MOST_MATCHES = 5_000_000
_MOST_SECONDS = 10.0


@dataclass(frozen=True)
class PartialSheddingPlan:
    """How partial matches are shed. `choice`: the plan that runs. In a batch, `share` of the pairs
    stay, by `model`; on a stream the workers shed, as `in_front` says. `program`, `sample`: what
    was learnt from, with the plan. `rows`: how many there are, where they were counted."""

    asked: Shed
    choice: PlanChoice
    program: Program
    share: float = 1.0
    reason: str = ""
    model: PartialModel | None = None
    sample: pa.Table | None = None
    rows: int = 0
    in_front: StreamSheddingSpec | None = None

    @property
    def rule(self) -> DroppingRule | None:
        """What the engine drops in a batch."""
        if self.model is None or self.share >= 1:
            return None
        return self.model.rule(self.share, self.asked.seed)

    def recall(self) -> Recall:
        assert self.model is not None
        return self.model.recall(self.share)

    def measure_recall(self) -> tuple[int, int] | None:
        """The number of matches in the sample, and of those that the rule leaves; None if there are
        too many to count."""
        assert self.sample is not None
        limits = Limits(partial_matches=_MOST_MATCHES, matches=_MOST_MATCHES)
        plain = replace(self.program, limits=limits)
        every = _count_matches(plain, self.sample)
        kept = _count_matches(replace(plain, dropping=self.rule), self.sample)
        return None if every is None or kept is None else (every, kept)


def _count_matches(program: Program, rows: pa.Table) -> int | None:
    step = advance_events(program, EventState(), rows, None)
    until = monotonic() + _MOST_SECONDS
    try:
        for _ in step.matches:
            if monotonic() > until:
                return None
    except LimitError:
        return None
    return step.metrics.matches


@dataclass(frozen=True)
class PartialQuery:
    """What is asked: `program` is still without a plan, and `facts` is what is known for one,
    without estimates."""

    source: SourceFrame
    shipping: CompiledEventQuery
    program: Program
    shed: Shed
    facts: PlanFacts

    def draw(self, masked: DataFrame, shed: Shed) -> tuple[RowSample, CandidateCount]:
        rows = prepare.filter_candidates(masked, self.shipping.compiled)
        return sample_with_size(self.source, rows, self.shipping, self.program, shed)

    def estimates(self, sampled: RowSample) -> Estimates | None:
        return sampled.estimates(estimate_from_table(self.program, sampled.table))


def plan_partial_shedding(
    query: PartialQuery, masked: DataFrame, past: DataFrame | None
) -> PartialSheddingPlan:
    """`masked`: the rows with their candidate mask; `past`: those of a stream's history."""
    if not query.source.is_streaming:
        return _plan_batch(query, masked)
    shed, partials, estimates = query.shed, None, None
    if past is not None:
        # The share is of each trigger, so nobody needs to know how many rows there were.
        whole = replace(shed, keep=1.0, latency=None, rows_per_second=None)
        sampled, _ = query.draw(past, whole)
        estimates = query.estimates(sampled)
        choice, program = _fix_plan(query, estimates)
        seconds = estimate_seconds(program, estimates, measure_costs())
        model = learn_partials(program, sampled.table, shed.policy)
        count = max(sampled.table.num_rows * sampled.row_weight, 1.0)
        partials = PartialStatistics(model, seconds / count)
    else:
        choice, program = _fix_plan(query, None)
    session = query.source.df.sparkSession
    in_front = StreamSheddingSpec(
        shed.keep,
        shed.latency_seconds(),
        shed.rows_per_second,
        shed.policy,
        shed.safety,
        shed.seed,
        min(count_cores(session), shuffle_partitions(session)),
        plain_key_types(query.shipping, masked),
        partials=partials,
    )
    return PartialSheddingPlan(shed, choice, program, in_front=in_front)


def _plan_batch(query: PartialQuery, masked: DataFrame) -> PartialSheddingPlan:
    shed = query.shed
    sampled, size = query.draw(masked, shed)
    estimates = query.estimates(sampled)
    choice, program = _fix_plan(query, estimates)
    model = learn_partials(program, sampled.table, shed.policy)
    if shed.keep is not None:
        share, reason = shed.keep, "of the pairs of a partial match and a row"
    else:
        cores = count_cores(query.source.df.sparkSession)
        seconds = _expected_seconds(program, estimates, sampled, size, cores)
        share, reason = choose_share(shed, size, seconds)
    return PartialSheddingPlan(
        shed, choice, program, share, reason, model, sampled.table, size.rows
    )


def _expected_seconds(
    program: Program,
    estimates: Estimates | None,
    sampled: RowSample,
    size: CandidateCount,
    cores: int,
) -> Callable[[float], float]:
    """The expected time of the query if a share of the pairs stays: all rows are moved."""
    times = size.rows / max(sampled.table.num_rows * sampled.row_weight, 1.0)
    work = times * estimate_work(program, estimates, measure_costs())
    return lambda share: (share * work + size.rows * ROW_OVERHEAD_SECONDS) / cores


def _fix_plan(query: PartialQuery, estimates: Estimates | None) -> tuple[PlanChoice, Program]:
    """A plan in which every branch binds its slots in one order, wherever it runs: the cheapest by
    the estimates of the sample and costs of a typical machine, or the order of the pattern."""
    facts = query.facts
    if facts.plan_request.is_open:
        request = replace(facts.plan_request, kind="lazy-chain")
        request = PlanRequest("eager") if estimates is None else request
        facts = replace(facts, plan_request=request)
    facts = replace(facts, estimates=estimates, costs=TYPICAL_COSTS)
    if estimates is not None:
        facts = replace(facts, source="the sample", unit="in all")
    choice = choose_plan(facts)
    assert choice.plan.branches is not None
    fixed = tuple(BranchPlan(each.shape, fixed=True) for each in choice.plan.branches)
    plan = Plan(choice.plan.kind, fixed)
    reason = f"{choice.reason}; one order, for the states of partial matches"
    choice = replace(choice, plan=plan, adapts=False, reason=reason)
    return choice, replace(query.program, plan=plan)
