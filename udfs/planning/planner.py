"""Planning: a kind of plan and the branches of a program in, plans and their costs out.

A plan of the kind "lazy-chain" is an order, one of the kind "zstream" a tree of joins. The planner
"dp" makes the cheapest of either; the others are algorithms of the papers. All but "local-search"
give the deciding conditions of their plan, so it can be adapted by invariants. For the other kinds
nothing is generated here: "eager" is the order of the pattern, "tree" orders each window while it
matches, and "hybrid" is chosen in `apam`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.apam import apam_partitions
from spark_cep.udfs.planning.cost_model import BranchModel, PlanCost, plan_cost, plan_steps
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
# The cost of one kept partial match in each trigger, whether it is extended or not.
KEEPING_SECONDS: Final = 2e-7


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

    def cost(self, shape: Shape, estimates: Estimates) -> PlanCost:
        return plan_cost(self.model, shape, estimates, self.costs)


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
    return Plan(kind, tuple(BranchPlan(each.shape) for each in generated))


# ---- the cost of tree NFAs and of streams ------------------------------------------------------


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
        fixed += plan_cost(model, chain, here, costs).time
        own += plan_cost(model, cheapest_chain(model, here, costs), here, costs).time
    return min(1.0, max(LEAST_SHARE, own / fixed)) if fixed > 0 else 1.0


@dataclass(frozen=True)
class StreamPlanOption:
    """`seconds` per trigger; `held`: partial matches in the state. `plan.eager` is empty if no
    partial matches are kept."""

    plan: BranchPlan
    seconds: float
    held: float


def stream_plan_options(
    model: BranchModel, estimates: Estimates, costs: OperationCosts, share: float
) -> list[StreamPlanOption]:
    """What each partition of the matching order costs a stream that keeps partial matches from one
    trigger to the next; the first partition keeps none. `share`: of a window, in one trigger.

    APAM's partitions say which slots to evaluate when their events arrive, and what an event then
    costs on average. A stream adds the cost of the state: every trigger reads what is kept, reduces
    it to what is still open, and writes it. So keeping pays where the joins that final events would
    repeat are expensive and leave few partial matches, and where a window spans many triggers.
    """
    estimator = model.estimator(estimates)
    events = sum(
        estimates.rates.get(variable, 0.0)
        for slot in model.branch.slots
        for variable in slot.variables
    )
    options = []
    for partition in apam_partitions(model, estimates, costs):
        if len(partition.eager) == 1:
            continue  # single rows are in the state anyway
        held = sum(estimator.cardinality(bits) for bits in _prefixes(partition.eager))
        seconds = share * events * partition.service + KEEPING_SECONDS * held
        options.append(
            StreamPlanOption(partition.plan, estimates.windows * seconds, estimates.windows * held)
        )
    return options


def _prefixes(eager: Sequence[int]) -> list[int]:
    """The sets of slots whose partial matches are kept: every prefix of two slots or more.

    >>> _prefixes((0, 2, 3))
    [5, 13]
    """
    bits, prefixes = 0, []
    for place, slot in enumerate(eager):
        bits |= 1 << slot
        if place:
            prefixes.append(bits)
    return prefixes


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
