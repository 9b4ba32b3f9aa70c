"""What events say of themselves before they are matched: how many, how close, and where.

All of it is exact and counted from the candidate masks, so a plan can be made for the
very events that are to be matched next, not only for those that were matched before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.planning.planner import branch_models, generate_plans
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, Estimates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.events.context import AdvanceContext


def estimate_rates(matching: AdvanceContext, selectivities: Mapping[int, float]) -> Estimates:
    """The rates of these events beside selectivities known from elsewhere."""
    density = matching.events.density(matching.meter.stretch)
    windows = max(density.stretches, 1.0)
    rates = {v: count / windows for v, count in density.candidates.items()}
    return Estimates(rates, selectivities, windows)


def window_rates(matching: AdvanceContext, count: int) -> tuple[Mapping[int, float], ...]:
    """The rates of so many windows: those around evenly spread events, so that crowded windows,
    where the work is, come more often."""
    events, stretch = matching.events, matching.meter.stretch
    spread = np.unique(np.linspace(0, events.size - 1, count).astype(np.int64)) if count else ()
    found = []
    for position in spread:
        low, high = np.searchsorted(stretch, [stretch[position], stretch[position] + 1])
        found.append({v: float(n) for v, n in events.count(int(low), int(high)).items()})
    return tuple(found)


# --------------------------------------------------------------------------------------------------
# The plan of each branch, where the driver left it to the bucket's own counts.
# --------------------------------------------------------------------------------------------------


def plan_branches(matching: AdvanceContext) -> Sequence[BranchPlan]:
    """One plan for each branch; conditions of which nothing is known keep a half."""
    program = matching.program
    plan, branches = program.plan, program.branches
    if plan.branches is not None:
        return plan.branches
    if plan.kind == "eager":
        return [BranchPlan(left_deep_shape(range(len(branch.slots)))) for branch in branches]
    if plan.kind == "tree":
        return [BranchPlan(None) for _ in branches]
    made = generate_plans(
        plan.kind, branch_models(program), estimate_rates(matching, {}), TYPICAL_COSTS
    )
    return [BranchPlan(each.shape) for each in made]
