"""Rates and plans from the counts of a bucket's own events.

Everything is counted exactly, from the candidate masks, so a plan can be made for the very events
that are matched next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.planning.apam import plan_hybrid
from spark_cep.udfs.planning.planner import branch_models, generate_plans
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, Estimates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.events.context import AdvanceContext


def plan_branches(matching: AdvanceContext) -> Sequence[BranchPlan]:
    """The plan of each branch, made here where the driver left it to the bucket.

    Conditions without an estimate are taken to keep a half.
    """
    program = matching.program
    plan, branches = program.plan, program.branches
    if plan.branches is not None:
        return plan.branches
    if plan.kind == "eager":
        orders = [left_deep_shape(range(len(branch.slots))) for branch in branches]
        return [BranchPlan(order, fixed=True) for order in orders]
    if plan.kind == "tree":
        return [BranchPlan(None) for _ in branches]
    models, estimates = branch_models(program), estimate_rates(matching, {})
    if plan.kind == "hybrid":
        return [plan_hybrid(model, estimates, TYPICAL_COSTS) for model in models]
    plans = generate_plans(plan.kind, models, estimates, TYPICAL_COSTS, program.planner)
    return [BranchPlan(each.shape) for each in plans]


def estimate_rates(matching: AdvanceContext, selectivities: Mapping[int, float]) -> Estimates:
    """Estimates with the rates of these events and selectivities known from elsewhere."""
    density = matching.events.density(matching.meter.stretch)
    windows = max(density.stretches, 1.0)
    rates = {v: count / windows for v, count in density.candidates.items()}
    return Estimates(rates, selectivities, windows)


def window_rates(matching: AdvanceContext, count: int) -> tuple[Mapping[int, float], ...]:
    """The rates of `count` windows around evenly spread events, so that crowded windows, where the
    work is, come more often."""
    events, stretch = matching.events, matching.meter.stretch
    spread = np.unique(np.linspace(0, events.size - 1, count).astype(np.int64)) if count else ()
    rates = []
    for position in spread:
        low, high = np.searchsorted(stretch, [stretch[position], stretch[position] + 1])
        rates.append({v: float(n) for v, n in events.count(int(low), int(high)).items()})
    return tuple(rates)
