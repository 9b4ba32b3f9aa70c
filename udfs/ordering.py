"""The plan of each branch, where the driver left it to the bucket's own counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import generate, models
from spark_cep.udfs.planning.shapes import chain
from spark_cep.udfs.program import BranchPlan
from spark_cep.udfs.rates import estimates_now

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
    made = generate(plan.kind, models(program), estimates_now(matching, {}), TYPICAL)
    return [BranchPlan(each.shape) for each in made]
