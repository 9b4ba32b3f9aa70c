"""The plan of each branch, where the driver left it to the bucket's own counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import generate, models
from spark_cep.udfs.planning.shapes import chain
from spark_cep.udfs.program import BranchPlan, Estimates

if TYPE_CHECKING:
    from spark_cep.udfs.matching import Matching


def branch_plans(matching: Matching) -> Sequence[BranchPlan]:
    """One plan for each branch; conditions of which nothing is known keep a half."""
    program = matching.program
    plan, branches = program.plan, program.branches
    if plan.branches is not None:
        return plan.branches
    if plan.kind == "eager":
        return [BranchPlan(chain(range(len(branch.slots)))) for branch in branches]
    if plan.kind == "tree":
        return [BranchPlan(None) for _ in branches]
    density = matching.events.density(matching.meter.stretch)
    windows = max(density.stretches, 1.0)
    rates = {v: count / windows for v, count in density.candidates.items()}
    made = generate(plan.kind, models(program), Estimates(rates, {}, windows), TYPICAL)
    return [BranchPlan(each.shape) for each in made]
