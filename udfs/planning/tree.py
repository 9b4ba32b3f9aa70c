"""What a tree NFA is expected to cost: a chain's work, less what starting by each window's own
counts saves, and for each partial match a look into every open scope instead of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.model import Cost, plan_cost, plan_nodes
from spark_cep.udfs.planning.shapes import slots_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Estimates, Shape

# Seconds to find one partial match's candidates of one slot: two searches in a sorted index.
LOOK: Final = 60e-9


def begins_with(model: BranchModel, chain: Shape) -> frozenset[int]:
    """The variables of the first two slots that a chain binds."""
    return frozenset(model.branch.slots[slot].variables[0] for slot in slots_of(chain)[:2])


def tree_cost(
    models: Sequence[BranchModel], chains: Sequence[Shape], estimates: Estimates, costs: Costs
) -> Cost:
    """`chains`: the best chain of each branch."""
    total = Cost(0.0, 0.0, 0.0)
    for model, chain in zip(models, chains, strict=True):
        cost = plan_cost(model, chain, estimates, costs)
        looks = sum(
            node.partials * max(model.size - len(node.slots) - 1, 0)
            for node in plan_nodes(model, chain, estimates)
        )
        share = min(1.0, estimates.scatter.get(begins_with(model, chain), 1.0))
        time = (cost.time + LOOK * looks) * share
        total = total + Cost(cost.pairs * share, cost.partials * share, time)
    return total
