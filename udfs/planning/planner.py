"""Planning: a kind of plan and the branches of a program in, plans and their costs out.

A plan of the kind "lazy-chain" is an order, one of the kind "zstream" a tree of joins. The planner
"dp" makes the cheapest of either; the others are algorithms of the papers. All but "local-search"
give the deciding conditions of their plan, so it can be adapted by invariants. For the other kinds
nothing is generated here: "eager" is the order of the pattern, "tree" orders each window while it
matches, and "hybrid" is chosen in `streams` and `apam`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.cost_model import (
    BranchModel,
    PlanCost,
    plan_cost,
    plan_seconds,
    plan_steps,
)
from spark_cep.udfs.planning.dynamic import (
    cheapest_chain,
    plan_cheapest_chain,
    plan_cheapest_tree,
)
from spark_cep.udfs.planning.greedy import plan_greedy_order
from spark_cep.udfs.planning.local_search import plan_local_search
from spark_cep.udfs.planning.shapes import order_of, slots_of, tree_text
from spark_cep.udfs.planning.zstream import plan_zstream
from spark_cep.udfs.program import BranchPlan, Plan, PlanKind, PlannerName

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.invariants import GeneratedPlan
    from spark_cep.udfs.program import Estimates, Program, Shape


# Seconds to find one partial match's candidates of one slot: two searches in a sorted index.
CANDIDATE_SEARCH_SECONDS: Final = 60e-9
# A few windows without any work do not show that no window has any.
LEAST_SHARE: Final = 0.1


# ---- plans -------------------------------------------------------------------------------------


PlanFunction = Callable[["BranchModel", "Estimates", "OperationCosts"], "GeneratedPlan"]

# What each planner makes for each kind of plan.
PLANNERS: Final[Mapping[PlannerName, Mapping[PlanKind, PlanFunction]]] = {
    "dp": {"lazy-chain": plan_cheapest_chain, "zstream": plan_cheapest_tree},
    "greedy": {"lazy-chain": plan_greedy_order},
    "zstream": {"zstream": plan_zstream},
    "local-search": {"lazy-chain": plan_local_search},
}
ADAPTABLE: Final = tuple(PLANNERS["dp"])


def branch_models(program: Program) -> list[BranchModel]:
    """One model for each branch of the program."""
    return [BranchModel(b, program.conditions, program.variables) for b in program.branches]


@dataclass(frozen=True)
class PlanGenerator:
    """Makes plans of one kind for one branch, and computes the cost of any shape."""

    kind: PlanKind
    planner: PlanFunction
    model: BranchModel
    costs: OperationCosts

    def make(self, estimates: Estimates) -> GeneratedPlan:
        return self.planner(self.model, estimates, self.costs)

    def cost(self, generated: GeneratedPlan, estimates: Estimates) -> PlanCost:
        """What a plan that was made before costs under these estimates."""
        return plan_cost(self.model, generated.shape, estimates, self.costs)

    def seconds(self, generated: GeneratedPlan, estimates: Estimates) -> float:
        return plan_seconds(self.model, generated.shape, estimates, self.costs)

    @property
    def is_linear(self) -> bool:
        return self.model.is_linear


def plan_generators(
    kind: PlanKind,
    branches: Sequence[BranchModel],
    costs: OperationCosts,
    planner: PlannerName = "dp",
) -> list[PlanGenerator]:
    """One generator for each branch."""
    chosen = PLANNERS[planner][kind]
    return [PlanGenerator(kind, chosen, model, costs) for model in branches]


def generate_plans(
    kind: PlanKind,
    branches: Sequence[BranchModel],
    estimates: Estimates,
    costs: OperationCosts,
    planner: PlannerName = "dp",
) -> list[GeneratedPlan]:
    """A plan of the kind for each branch."""
    return [each.make(estimates) for each in plan_generators(kind, branches, costs, planner)]


def assemble_plan(kind: PlanKind, generated: Sequence[GeneratedPlan]) -> Plan:
    return Plan(kind, tuple(BranchPlan(each.shape, each.eager) for each in generated))


# ---- the cost of tree NFAs ---------------------------------------------------------------------


def tree_cost(
    models: Sequence[BranchModel],
    chains: Sequence[Shape],
    estimates: Estimates,
    costs: OperationCosts,
) -> PlanCost:
    """The expected cost of a tree NFA, where every window has its own best order.

    It is the cost of one chain for all windows (`chains`: the best chain of each branch), reduced
    by what the windows save with their own orders, as measured at `estimates.places`; plus, for
    each partial match, a search for candidates of every slot still open instead of one.
    """
    total = PlanCost(0.0, 0.0, 0.0)
    for model, chain in zip(models, chains, strict=True):
        cost = plan_cost(model, chain, estimates, costs)
        searches = sum(
            step.partials * max(model.size - len(step.slots) - 1, 0)
            for step in plan_steps(model, chain, estimates)
        )
        share = _adaptive_share(model, chain, estimates, costs)
        time = (cost.time + CANDIDATE_SEARCH_SECONDS * searches) * share
        total = total + PlanCost(cost.pairs * share, cost.partials * share, time)
    return total


def _adaptive_share(
    model: BranchModel, chain: Shape, estimates: Estimates, costs: OperationCosts
) -> float:
    fixed = own = 0.0
    for rates in estimates.places:
        here = replace(estimates, rates=rates)
        fixed += plan_seconds(model, chain, here, costs)
        own += plan_seconds(model, cheapest_chain(model, here, costs), here, costs)
    return min(1.0, max(LEAST_SHARE, own / fixed)) if fixed > 0 else 1.0


# ---- plans as text -----------------------------------------------------------------------------


def format_plan(
    plan: Plan | BranchPlan | Shape, names: Sequence[str] | Sequence[Sequence[str]]
) -> str:
    """A plan in one line. `names`: one for each slot; for a whole plan, such names per branch.

    >>> format_plan(((2, 1), 0), "abc"), format_plan(((1, 0), (2, 3)), "abcd")
    ('c→b→a', '((b a) (c d))')
    >>> format_plan(BranchPlan(((3, (1, 2)), 0), eager=(1, 2)), "abcd")
    'b c | d→a'
    """
    if isinstance(plan, Plan):
        if plan.branches is None:
            return plan.kind
        return " or ".join(format_plan(b, n) for b, n in zip(plan.branches, names, strict=True))
    if not isinstance(plan, BranchPlan):
        plan = BranchPlan(plan)
    named = [str(name) for name in names]
    if plan.shape is None:
        return f"{{{', '.join(named)}}}"
    order = order_of(plan.shape)
    if plan.eager and len(plan.eager) < len(named):
        lazy = [named[slot] for slot in slots_of(plan.shape) if slot not in plan.eager]
        return f"{' '.join(named[slot] for slot in plan.eager)} | {'→'.join(lazy)}"
    if order is None:
        return tree_text(plan.shape, named)
    return "→".join(named[slot] for slot in order)
