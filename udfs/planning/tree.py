"""What a tree NFA is expected to cost: the work of one plan for all windows, less what every
window saves that has its own best plan, and for each partial match a look into every open scope
instead of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.model import Cost, plan_cost, plan_nodes
from spark_cep.udfs.planning.starts import cheapest_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Estimates, Shape

# Seconds to find one partial match's candidates of one slot: two searches in a sorted index.
LOOK: Final = 60e-9
# A few windows without any work do not say that there is none.
LEAST_SHARE: Final = 0.1


def tree_cost(
    models: Sequence[BranchModel], chains: Sequence[Shape], estimates: Estimates, costs: Costs
) -> Cost:
    """`chains`: the best chain of each branch. How much a window's own plan saves is seen at
    `estimates.places`; without any, nothing is."""
    total = Cost(0.0, 0.0, 0.0)
    for model, chain in zip(models, chains, strict=True):
        cost = plan_cost(model, chain, estimates, costs)
        looks = sum(
            node.partials * max(model.size - len(node.slots) - 1, 0)
            for node in plan_nodes(model, chain, estimates)
        )
        share = _share(model, chain, estimates, costs)
        time = (cost.time + LOOK * looks) * share
        total = total + Cost(cost.pairs * share, cost.partials * share, time)
    return total


def _share(model: BranchModel, chain: Shape, estimates: Estimates, costs: Costs) -> float:
    fixed = own = 0.0
    for rates in estimates.places:
        here = replace(estimates, rates=rates)
        fixed += plan_cost(model, chain, here, costs).time
        own += cheapest_start(model, here, costs).cost.time
    return min(1.0, max(LEAST_SHARE, own / fixed)) if fixed > 0 else 1.0
