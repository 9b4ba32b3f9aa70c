"""How much work an event of each variable makes: DARLING's Z(T), Eqs. 5 to 10, for any plan.

A plan is a binary tree of joins; a chain is the one that leans to the left. PM(N), the partial
matches that node N holds at a time (Eq. 10), comes from `Figures.cardinality`, which knows the
order, the window, lists and negations besides. That counts what is made while one window passes: of
k slots k times what lies in a window, for each of the k rows may be the earliest of a partial match
that begins in it. A new event of type T adds to every node on its path to the root

    PM(N, T) = SEL(N) * PM(son on the path, T) * PM(other son)                        (Eqs. 8, 9)

and since PM(leaf, T) is SEL(leaf) and PM(leaf) is R * w * SEL(leaf), that is PM(N) / (R * w): each
event of T has its equal part of the node's partial matches. A new partial match of N is tried with
those of its peer, the other son of its parent, by the parent's conditions (Eqs. 5, 6), made and
removed again (Eq. 7).

A list counts with the number of lists that its rows make. The paper counts 2^R of them, which is
all subsets; `Figures` counts those that the quantifier and the conditions on elements leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.extensions import members
from spark_cep.udfs.planning.generate import generate
from spark_cep.udfs.planning.model import shape_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.figures import Figures
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import Estimates, Plan, Shape

_CAP = 1e100


def loads(
    models: Sequence[BranchModel], plan: Plan, estimates: Estimates, costs: Costs
) -> dict[int, float]:
    """Seconds that one row of each positive variable makes, over all branches. Where a plan has
    no shape (a tree NFA), that of the best chain stands for it."""
    chains: Sequence[Shape | None] | None = None
    found: dict[int, float] = {}
    for number, model in enumerate(models):
        shape = plan.branches[number].shape if plan.branches is not None else None
        if shape is None:
            if chains is None:
                chains = [each.shape for each in generate("lazy-chain", models, estimates, costs)]
            shape = chains[number]
        assert shape is not None
        for slot, seconds in slot_loads(model.given(estimates), shape, costs).items():
            for variable in model.branch.slots[slot].variables:
                found[variable] = min(found.get(variable, 0.0) + seconds, _CAP)
    return found


def slot_loads(figures: Figures, shape: Shape, costs: Costs) -> dict[int, float]:
    """Z(T) of each slot of one branch."""
    nodes = tuple(_nodes(figures, shape, peer=0, parent_conditions=0))
    return {
        slot: min(
            sum(_of_node(figures, node, slot, costs) for node in nodes if node[0] >> slot & 1), _CAP
        )
        for slot in members(shape_slots(shape))
    }


# A node: its slots, those of its peer, and how many conditions its parent tests.
_Node = tuple[int, int, int]


def _nodes(figures: Figures, shape: Shape, *, peer: int, parent_conditions: int) -> Iterator[_Node]:
    own = shape_slots(shape)
    yield own, peer, parent_conditions
    if isinstance(shape, int):
        return
    left, right = shape_slots(shape[0]), shape_slots(shape[1])
    # Order and window are tested, too.
    here = 1 + sum(bool(a.slots & left and a.slots & right) for a in figures.model.within(own))
    yield from _nodes(figures, shape[0], peer=right, parent_conditions=here)
    yield from _nodes(figures, shape[1], peer=left, parent_conditions=here)


def _of_node(figures: Figures, node: _Node, slot: int, costs: Costs) -> float:
    own, peer, conditions = node
    rate = figures.rate(slot)
    if rate <= 0:
        return 0.0
    made = min(_held(figures, own) / rate, _CAP)
    peers = min(_held(figures, peer), _CAP) if peer else 0.0
    # T_RC is making a partial match and T_BI putting it where it is found and removed from.
    return min(made * (conditions * costs.pair * peers + costs.result + costs.insert), _CAP)


def _held(figures: Figures, slots: int) -> float:
    """PM(N). With nothing but lists, the first element is what lies in the window."""
    plain = slots & ~figures.model.lists
    return figures.cardinality(slots) / max(plain.bit_count(), 1)
