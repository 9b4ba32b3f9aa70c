"""The planners' door: a kind of plan and the branches, in; a plan, its text and reasons, out.

"lazy-chain" orders greedily from the best start, "zstream" joins by dynamic programming. Both
know why each part of their plan is as it is, so both can be adapted. The other kinds leave nothing
to generate: "eager" is the order of the pattern, "tree" decides as it goes, "hybrid" is chosen in
`partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.apam import apam_partitions
from spark_cep.udfs.planning.cost_model import BranchModel, PlanCost, plan_cost, plan_steps
from spark_cep.udfs.planning.greedy import plan_lazy_chain
from spark_cep.udfs.planning.shapes import order_of, slots_of, tree_text
from spark_cep.udfs.planning.zstream import plan_zstream
from spark_cep.udfs.program import BranchPlan, Plan, PlanKind

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.invariants import GeneratedPlan
    from spark_cep.udfs.program import Estimates, Program, Shape


# --------------------------------------------------------------------------------------------------
# What a tree NFA is expected to cost: the work of one plan for all windows, less what every
# window saves that has its own best plan, and for each partial match a look into every open scope
# instead of one.
# --------------------------------------------------------------------------------------------------


# Seconds to find one partial match's candidates of one slot: two searches in a sorted index.
CANDIDATE_SEARCH_SECONDS: Final = 60e-9
# A few windows without any work do not say that there is none.
LEAST_SHARE: Final = 0.1


def tree_cost(
    models: Sequence[BranchModel],
    chains: Sequence[Shape],
    estimates: Estimates,
    costs: OperationCosts,
) -> PlanCost:
    """`chains`: the best chain of each branch. How much a window's own plan saves is seen at
    `estimates.places`; without any, nothing is."""
    total = PlanCost(0.0, 0.0, 0.0)
    for model, chain in zip(models, chains, strict=True):
        cost = plan_cost(model, chain, estimates, costs)
        looks = sum(
            node.partials * max(model.size - len(node.slots) - 1, 0)
            for node in plan_steps(model, chain, estimates)
        )
        share = _adaptive_share(model, chain, estimates, costs)
        time = (cost.time + CANDIDATE_SEARCH_SECONDS * looks) * share
        total = total + PlanCost(cost.pairs * share, cost.partials * share, time)
    return total


def _adaptive_share(
    model: BranchModel, chain: Shape, estimates: Estimates, costs: OperationCosts
) -> float:
    fixed = own = 0.0
    for rates in estimates.places:
        here = replace(estimates, rates=rates)
        fixed += plan_cost(model, chain, here, costs).time
        own += plan_lazy_chain(model, here, costs).cost.time
    return min(1.0, max(LEAST_SHARE, own / fixed)) if fixed > 0 else 1.0


# --------------------------------------------------------------------------------------------------
# Whether a stream keeps partial matches from one trigger to the next, and which.
#
# APAM's partitions say which slots to evaluate as their events arrive, and what an event then costs
# on average (`partition.py`). A stream adds what they leave out: what is kept lies in a state that
# every trigger reads, cuts down to what is still open, and writes. So keeping pays where joins that
# the final events would repeat are dear and leave little, and where a window is many triggers long.
# --------------------------------------------------------------------------------------------------


# What one kept partial match takes in each trigger, whether anything comes of it or not.
KEEPING_SECONDS: Final = 2e-7


@dataclass(frozen=True)
class StreamPlanOption:
    """`seconds` a trigger; `held`: partial matches in the state. `plan.eager` is empty where
    nothing is kept."""

    plan: BranchPlan
    seconds: float
    held: float


def stream_plan_options(
    model: BranchModel, estimates: Estimates, costs: OperationCosts, share: float
) -> list[StreamPlanOption]:
    """Every partition of the matching order; the first keeps nothing. `share`: how much of a
    window comes in a trigger."""
    figures = model.given(estimates)
    events = sum(
        estimates.rates.get(variable, 0.0)
        for slot in model.branch.slots
        for variable in slot.variables
    )
    found = []
    for partition in apam_partitions(model, estimates, costs):
        if len(partition.eager) == 1:
            continue  # rows lie in the state anyway
        held = sum(figures.cardinality(bits) for bits in _prefixes(partition.eager))
        seconds = share * events * partition.service + KEEPING_SECONDS * held
        found.append(
            StreamPlanOption(partition.plan, estimates.windows * seconds, estimates.windows * held)
        )
    return found


def _prefixes(eager: Sequence[int]) -> list[int]:
    """The sets of slots that are kept: every beginning of the group, of two slots or more.

    >>> _prefixes((0, 2, 3))
    [5, 13]
    """
    bits, found = 0, []
    for place, slot in enumerate(eager):
        bits |= 1 << slot
        if place:
            found.append(bits)
    return found


PlanFunction = Callable[["BranchModel", "Estimates", "OperationCosts"], "GeneratedPlan"]

PLANNERS: Final[Mapping[PlanKind, PlanFunction]] = {
    "lazy-chain": plan_lazy_chain,
    "zstream": plan_zstream,
}
ADAPTABLE: Final = tuple(PLANNERS)


def branch_models(program: Program) -> list[BranchModel]:
    """One model for each branch of the program."""
    return [BranchModel(b, program.conditions, program.variables) for b in program.branches]


@dataclass(frozen=True)
class PlanGenerator:
    """Makes plans of one kind for one branch, and says what any shape would cost."""

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
    planner: PlanFunction | None = None,
) -> list[PlanGenerator]:
    """One for each branch. `planner`: another one than is usual for the kind."""
    chosen = PLANNERS[kind] if planner is None else planner
    return [PlanGenerator(kind, chosen, model, costs) for model in branches]


def generate_plans(
    kind: PlanKind, branches: Sequence[BranchModel], estimates: Estimates, costs: OperationCosts
) -> list[GeneratedPlan]:
    """A plan of the kind for each branch."""
    return [generator.make(estimates) for generator in plan_generators(kind, branches, costs)]


def assemble_plan(kind: PlanKind, generated: Sequence[GeneratedPlan]) -> Plan:
    return Plan(kind, tuple(BranchPlan(each.shape) for each in generated))


# ---- plans as text -----------------------------------------------------------------------------


def format_plan(
    plan: Plan | BranchPlan | Shape, names: Sequence[str] | Sequence[Sequence[str]]
) -> str:
    """A plan in a line. `names`: one for each slot; for a whole plan, such names a branch.

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
