"""The planners' door: a kind of plan and the branches, in; a plan, its text and reasons, out.

"lazy-chain" orders greedily from the best start, "zstream" joins by dynamic programming. Both
know why each part of their plan is as it is, so both can be adapted. The other kinds leave nothing
to generate: "eager" is the order of the pattern, "tree" decides as it goes, "hybrid" is chosen in
`partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.model import BranchModel, plan_cost
from spark_cep.udfs.planning.shapes import order_of, slots_of, tree_text
from spark_cep.udfs.planning.starts import cheapest_start
from spark_cep.udfs.planning.zstream import zstream
from spark_cep.udfs.program import BranchPlan, Plan, PlanKind

if TYPE_CHECKING:
    from spark_cep.udfs.planning.blocks import Generated
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.model import Cost
    from spark_cep.udfs.program import Estimates, Program, Shape

Planner = Callable[["BranchModel", "Estimates", "Costs"], "Generated"]

PLANNERS: Final[Mapping[PlanKind, Planner]] = {"lazy-chain": cheapest_start, "zstream": zstream}
ADAPTABLE: Final = tuple(PLANNERS)


def models(program: Program) -> list[BranchModel]:
    """One model for each branch of the program."""
    return [BranchModel(b, program.conditions, program.variables) for b in program.branches]


@dataclass(frozen=True)
class Generator:
    """Makes plans of one kind for one branch, and says what any shape would cost."""

    kind: PlanKind
    planner: Planner
    model: BranchModel
    costs: Costs

    def make(self, estimates: Estimates) -> Generated:
        return self.planner(self.model, estimates, self.costs)

    def cost(self, shape: Shape, estimates: Estimates) -> Cost:
        return plan_cost(self.model, shape, estimates, self.costs)


def generators(
    kind: PlanKind, branches: Sequence[BranchModel], costs: Costs, planner: Planner | None = None
) -> list[Generator]:
    """One for each branch. `planner`: another one than is usual for the kind."""
    chosen = PLANNERS[kind] if planner is None else planner
    return [Generator(kind, chosen, model, costs) for model in branches]


def generate(
    kind: PlanKind, branches: Sequence[BranchModel], estimates: Estimates, costs: Costs
) -> list[Generated]:
    """A plan of the kind for each branch."""
    return [generator.make(estimates) for generator in generators(kind, branches, costs)]


def plan_from(kind: PlanKind, generated: Sequence[Generated]) -> Plan:
    return Plan(kind, tuple(BranchPlan(each.shape) for each in generated))


# ---- plans as text -----------------------------------------------------------------------------


def show(plan: Plan | BranchPlan | Shape, names: Sequence[str] | Sequence[Sequence[str]]) -> str:
    """A plan in a line. `names`: one for each slot; for a whole plan, such names a branch.

    >>> show(((2, 1), 0), "abc"), show(((1, 0), (2, 3)), "abcd")
    ('c→b→a', '((b a) (c d))')
    >>> show(BranchPlan(((3, (1, 2)), 0), eager=(1, 2)), "abcd")
    'b c | d→a'
    """
    if isinstance(plan, Plan):
        if plan.branches is None:
            return plan.kind
        return " or ".join(show(b, n) for b, n in zip(plan.branches, names, strict=True))
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
