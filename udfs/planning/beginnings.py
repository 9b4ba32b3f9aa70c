"""Orders of branches that begin alike, so that what they begin with is found once.

The best order of each branch by itself may begin with other slots than those of its neighbours.
`share_beginnings` gives branches the same beginning where all orders together then take less time:
the joins of the beginning count once, and those behind it in each branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.planning.combinatorics import bit_numbers
from spark_cep.udfs.planning.dynamic import EXACT_SLOTS, ChainTable
from spark_cep.udfs.planning.set_tables import join_table, levels
from spark_cep.udfs.planning.shapes import left_deep_shape, order_of

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import BranchPlan, Estimates, Slot

# All orders have to take less than this share of the time before: estimates err.
CLEAR_GAIN: Final = 0.9
# Where the orders take less in all, looking for others takes longer than they could save.
LEAST_SECONDS: Final = 5e-3
# Tables are made for each branch: about a millisecond for eight slots.
MOST_BRANCHES: Final = 32

Order = tuple[int, ...]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SharedBeginning:
    """The slots with which the orders of `branches` begin, by their number in the first one."""

    branches: tuple[int, ...]
    order: Order


def share_beginnings(
    models: Sequence[BranchModel],
    plans: Sequence[BranchPlan],
    estimates: Estimates,
    costs: OperationCosts,
    least: float = LEAST_SECONDS,
) -> Sequence[BranchPlan]:
    """The plans, with other orders where they share a beginning and take clearly less in all. Every
    advance runs these very orders: alone, another one would be cheaper. `least`: nothing is changed
    where the plans take fewer seconds."""
    if not 1 < len(models) <= MOST_BRANCHES:
        return plans
    branches = [
        _BranchOrders(number, model, plan, estimates, costs)
        for number, (model, plan) in enumerate(zip(models, plans, strict=True))
    ]
    orders = [branch.order for branch in branches]
    seconds = _total_seconds(branches, orders)
    if seconds * estimates.windows < least:
        return plans
    while True:
        found = [_begin_with(branches, orders, each) for each in _candidates(branches, orders)]
        best = min(found, key=lambda each: _total_seconds(branches, each), default=orders)
        total = _total_seconds(branches, best)
        if not total < CLEAR_GAIN * seconds:
            break
        orders, seconds = best, total
    return [
        plan
        if order is None or order == branch.order
        else replace(plan, shape=left_deep_shape(order), fixed=True)
        for plan, branch, order in zip(plans, branches, orders, strict=True)
    ]


def shared_beginnings(
    models: Sequence[BranchModel], plans: Sequence[BranchPlan]
) -> Iterator[SharedBeginning]:
    """The longest beginnings that two or more plans have in common."""
    paths: dict[tuple[object, ...], list[int]] = {}
    for number, (model, plan) in enumerate(zip(models, plans, strict=True)):
        order = None if plan.shape is None or plan.eager else order_of(plan.shape)
        keys = _path(number, model, order or ())
        for length in range(2, len(keys) + 1):
            paths.setdefault(keys[:length], []).append(number)
    for keys, numbers in paths.items():
        is_longest = not any(
            other[: len(keys)] == keys and len(other) > len(keys) and paths[other] == numbers
            for other in paths
        )
        if len(numbers) > 1 and is_longest:
            shape = plans[numbers[0]].shape
            order = () if shape is None else order_of(shape) or ()
            yield SharedBeginning(tuple(numbers), order[: len(keys)])


# ---- one branch --------------------------------------------------------------------------------


class _BranchOrders:
    """The orders that a branch can take. `is_free`: it may take another one than its plan's."""

    def __init__(
        self,
        number: int,
        model: BranchModel,
        plan: BranchPlan,
        estimates: Estimates,
        costs: OperationCosts,
    ) -> None:
        self.number, self.model = number, model
        self.times = model.estimator(estimates).times(costs)
        self.order = None if plan.shape is None or plan.eager else order_of(plan.shape)
        self.is_free = (
            self.order is not None
            and not plan.fixed
            and 1 < model.size <= EXACT_SLOTS
            and not model.bodies
        )
        self.place = {slot: number for number, slot in enumerate(model.branch.slots)}
        self._rest: Array | None = None

    def rest(self) -> Array:
        """For each set of slots, the seconds of the cheapest way from there to all slots."""
        if self._rest is None:
            table, size = join_table(self.times), self.model.size
            seconds = np.full(1 << size, np.inf)
            seconds[self.model.all] = 0.0
            for number in reversed(range(size - 1)):
                level = levels(size)[number]
                onwards = table.slot_joins(number) + seconds[level.sets][:, None]
                np.minimum.at(seconds, level.rest, onwards)
            self._rest = seconds
        return self._rest

    def complete(self, beginning: Order) -> Order:
        """The cheapest order that begins so."""
        order, rest = list(beginning), self.rest()
        bound = sum(1 << slot for slot in order)
        while bound != self.model.all:
            slot = min(
                bit_numbers(self.model.all & ~bound),
                key=lambda slot: self.times.join(bound, 1 << slot) + rest[bound | 1 << slot],
            )
            order.append(slot)
            bound |= 1 << slot
        return tuple(order)


def _path(number: int, model: BranchModel, order: Order) -> tuple[object, ...]:
    """What each slot of an order does, in words that hold in all branches: the slot, its place
    among the earlier ones, and the NOTs that are decided there."""
    keys: list[object] = []
    bound, slots = 0, model.branch.slots
    for slot in order:
        now = bound | 1 << slot
        earlier = frozenset(
            slots[one].variables
            for one, other in model.branch.precedes
            if other == slot and bound >> one & 1
        )
        later = frozenset(
            slots[other].variables
            for one, other in model.branch.precedes
            if one == slot and bound >> other & 1
        )
        negations = frozenset(
            (each.variable, frozenset(slots[s].variables for s in bit_numbers(each.needs)))
            for each in model.negation_models
            if not each.needs & ~now and each.needs & ~bound
        )
        ends = model.branch.covered if now == model.all else ()
        alone = number if slots[slot].is_group or ends else None
        keys.append((slots[slot], earlier, later, negations, alone))
        bound = now
    return tuple(keys)


# ---- all branches ------------------------------------------------------------------------------


def _total_seconds(branches: Sequence[_BranchOrders], orders: Sequence[Order | None]) -> float:
    """The time of all orders, common beginnings once."""
    total = 0.0
    seen: set[tuple[object, ...]] = set()
    for branch, order in zip(branches, orders, strict=True):
        keys = _path(branch.number, branch.model, order or ())
        bound = 0
        for length, slot in enumerate(order or (), 1):
            if bound and keys[:length] not in seen:
                total += branch.times.join(bound, 1 << slot)
            seen.add(keys[:length])
            bound |= 1 << slot
    return total


def _candidates(
    branches: Sequence[_BranchOrders], orders: Sequence[Order | None]
) -> Iterable[tuple[Slot, ...]]:
    """Beginnings to try: those of the orders, and for each two branches the best one."""
    found: list[tuple[Slot, ...]] = []
    for branch, order in zip(branches, orders, strict=True):
        slots = branch.model.branch.slots
        found += (
            tuple(slots[slot] for slot in (order or ())[:length])
            for length in range(2, len(order or ()) + 1)
        )
    free = [branch for branch in branches if branch.is_free]
    for place, one in enumerate(free):
        for two in free[place + 1 :]:
            best = _best_of_two(one, two)
            if best is not None:
                found.append(tuple(one.model.branch.slots[slot] for slot in best))
    return dict.fromkeys(found)


def _best_of_two(one: _BranchOrders, two: _BranchOrders) -> Order | None:
    """The beginning with which two branches together take least."""
    common = [(number, two.place[slot]) for slot, number in one.place.items() if slot in two.place]
    if len(common) < 2:
        return None
    parts = np.arange(1, 1 << len(common))
    mine, theirs = np.zeros_like(parts), np.zeros_like(parts)
    for bit, (here, there) in enumerate(common):
        mine |= (parts >> bit & 1) << here
        theirs |= (parts >> bit & 1) << there
    table = ChainTable(one.times, None)
    seconds = table.seconds[mine] + one.rest()[mine] + two.rest()[theirs]
    seconds[(parts & parts - 1) == 0] = np.inf
    best: Order = table.order(int(mine[int(seconds.argmin())]))
    return best


def _begin_with(
    branches: Sequence[_BranchOrders],
    orders: Sequence[Order | None],
    beginning: tuple[Slot, ...],
) -> list[Order | None]:
    """The orders if each branch begins so that takes less with the beginning already found."""
    found: list[Order | None] = []
    for branch, order in zip(branches, orders, strict=True):
        if order is None or not branch.is_free or not all(s in branch.place for s in beginning):
            found.append(order)
            continue
        slots = tuple(branch.place[slot] for slot in beginning)
        rest = branch.rest()[sum(1 << slot for slot in slots)]
        own = branch.times.plan(left_deep_shape(order))
        found.append(branch.complete(slots) if rest < own else order)
    return found
