"""Exact dynamic programs over sets of slots: the cheapest order and the cheapest join tree.

The best plan for a set of slots consists of best plans for its parts, because the numbers of the
cost model depend on sets and not on the order in which they were bound. `cheapest_chain` joins one
slot at a time, `cheapest_tree` any two sets, neighbours or not. Up to `EXACT_SLOTS` slots no plan
costs less under the cost model. Beyond, the greedy orders from every start are improved by
exchanging slots, and trees are those over neighbours in the best order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.planning.cost_model import CardinalityEstimator, plan_cost, shape_slot_set
from spark_cep.udfs.planning.greedy import complete_order
from spark_cep.udfs.planning.invariants import GeneratedPlan, PlanBlock
from spark_cep.udfs.planning.local_search import exchanged, improve_order
from spark_cep.udfs.planning.set_tables import JoinTable, join_table, levels
from spark_cep.udfs.planning.shapes import left_deep_shape, order_of
from spark_cep.udfs.planning.zstream import CostComparison

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.cost_model import BranchModel, TimeEstimator
    from spark_cep.udfs.program import Estimates, Shape

Array = npt.NDArray[Any]

# The tables have 2^n sets and 3^n splits.
EXACT_SLOTS: Final = 10
# Deciding conditions of a join: those with the cheapest other splits of the same set.
RUNNERS_UP: Final = 8
# Of equal plans the one is taken that is cheaper if what was never seen is rare.
RARE_SELECTIVITY: Final = 1e-3


# ---- plans -------------------------------------------------------------------------------------


def cheapest_chain(
    model: BranchModel, estimates: Estimates, costs: OperationCosts, first: int | None = None
) -> Shape:
    """The cheapest order of all slots, or of those orders that begin with `first`, as a left-deep
    shape."""
    times = model.estimator(estimates).times(costs)
    if model.size > EXACT_SLOTS:
        return left_deep_shape(_improved_order(times, first))
    return left_deep_shape(ChainTable(times, first).order(model.all))


def cheapest_tree(model: BranchModel, estimates: Estimates, costs: OperationCosts) -> Shape:
    """The cheapest binary tree of joins over any slots."""
    times = model.estimator(estimates).times(costs)
    if model.size > EXACT_SLOTS:
        return _neighbour_tree(times, _improved_order(times, None))
    return _TreeTable(times).shape(model.all)


def plan_cheapest_chain(
    model: BranchModel, estimates: Estimates, costs: OperationCosts
) -> GeneratedPlan:
    """The cheapest order. A block is a prefix of it; its deciding conditions compare the prefix
    with the cheapest order of the same slots that ends with each other slot."""
    if model.size > EXACT_SLOTS:
        return _plan_from_order(model, estimates, costs)
    table = ChainTable(model.estimator(estimates).times(costs), None)
    order = table.order(model.all)
    blocks = tuple(_prefix_block(model, costs, table, order[:k]) for k in range(2, len(order) + 1))
    shape = left_deep_shape(order)
    return GeneratedPlan(shape, blocks, plan_cost(model, shape, estimates, costs))


def plan_cheapest_tree(
    model: BranchModel, estimates: Estimates, costs: OperationCosts
) -> GeneratedPlan:
    """The cheapest tree. A block is one of its joins, from the leaves to the root; its deciding
    conditions compare the tree below with the cheapest trees over the same slots whose last join
    is another one."""
    if model.size > EXACT_SLOTS:
        return _plan_from_order(model, estimates, costs, is_tree=True)
    table = _TreeTable(model.estimator(estimates).times(costs))
    shape = table.shape(model.all)
    blocks = tuple(_join_blocks(model, costs, table, shape))
    return GeneratedPlan(shape, blocks, plan_cost(model, shape, estimates, costs))


# ---- the programs ------------------------------------------------------------------------------


class ChainTable:
    """For each set of slots, the seconds of its cheapest order and the slot that comes last.

    With `first`, only orders that begin with this slot.
    """

    def __init__(self, times: TimeEstimator, first: int | None) -> None:
        self.size = times.estimator.model.size
        self.seconds = self._singles(first)
        self._last: dict[int, int] = {}
        ties = _tie_breaker(times)
        rare = None if ties is None else self._singles(first)
        table, other = join_table(times), None if ties is None else join_table(ties)
        for number, level in enumerate(levels(self.size)):
            totals = self.seconds[level.rest] + table.slot_joins(number)
            seconds = None
            if rare is not None and other is not None:
                seconds = rare[level.rest] + other.slot_joins(number)
            chosen, rows = _cheapest(totals, seconds), np.arange(len(level.sets))
            self.seconds[level.sets] = totals[rows, chosen]
            if rare is not None and seconds is not None:
                rare[level.sets] = seconds[rows, chosen]
            found = zip(level.sets.tolist(), level.last[rows, chosen].tolist(), strict=True)
            self._last.update(found)

    def _singles(self, first: int | None) -> Array:
        seconds = np.full(1 << self.size, np.inf)
        for slot in range(self.size):
            if first is None or slot == first:
                seconds[1 << slot] = 0.0
        return seconds

    def order(self, slots: int) -> tuple[int, ...]:
        """The cheapest order of a set of slots."""
        order: list[int] = []
        while slots.bit_count() > 1:
            order.append(self._last[slots])
            slots &= ~(1 << order[-1])
        return (slots.bit_length() - 1, *reversed(order))


class _TreeTable:
    """For each set of slots, the seconds of its cheapest tree and the two parts that are joined
    last."""

    def __init__(self, times: TimeEstimator) -> None:
        size = times.estimator.model.size
        self.seconds = np.zeros(1 << size)
        self._parts: dict[int, tuple[int, int]] = {}
        self._totals: list[Array] = []
        ties = _tie_breaker(times)
        rare = np.zeros(1 << size)
        table, other = join_table(times), None if ties is None else join_table(ties)
        for number, level in enumerate(levels(size)):
            totals = _split_totals(self.seconds, table, number)
            seconds = None if other is None else _split_totals(rare, other, number)
            chosen, rows = _cheapest(totals, seconds), np.arange(len(level.sets))
            self.seconds[level.sets] = totals[rows, chosen]
            if seconds is not None:
                rare[level.sets] = seconds[rows, chosen]
            left = level.left[rows, chosen].tolist()
            right = level.right[rows, chosen].tolist()
            parts = zip(left, right, strict=True)
            self._parts.update(zip(level.sets.tolist(), parts, strict=True))
            self._totals.append(totals)
        self._size = size

    def shape(self, slots: int) -> Shape:
        """The cheapest tree over a set of slots."""
        if slots.bit_count() == 1:
            return slots.bit_length() - 1
        left, right = self._parts[slots]
        return self.shape(left), self.shape(right)

    def other_trees(self, slots: int) -> Iterator[Shape]:
        """The cheapest trees with other last joins, cheapest first."""
        number = slots.bit_count() - 2
        level = levels(self._size)[number]
        row = int(np.searchsorted(level.sets, slots))
        found = 0
        for column in np.argsort(self._totals[number][row], kind="stable").tolist():
            parts = int(level.left[row, column]), int(level.right[row, column])
            if parts != self._parts[slots] and found < RUNNERS_UP:
                found += 1
                yield self.shape(parts[0]), self.shape(parts[1])


def _split_totals(seconds: Array, table: JoinTable, number: int) -> Array:
    level = levels(len(seconds).bit_length() - 1)[number]
    totals: Array = (seconds[level.left] + seconds[level.right]) + table.split_joins(number)
    return totals


def _cheapest(totals: Array, ties: Array | None) -> Array:
    """The column of the smallest number in each row; of equal ones that with the smallest in
    `ties`, then the first."""
    if ties is not None:
        least = totals.min(axis=1, keepdims=True)
        totals = np.where(totals == least, ties, np.inf)
    chosen: Array = totals.argmin(axis=1)
    return chosen


def _tie_breaker(times: TimeEstimator) -> TimeEstimator | None:
    """The times if what was never seen is rare and not absent; None if all was seen.

    With a rate of zero all plans that begin there cost nothing, and the rest of the order would be
    arbitrary. A rare variable has no row in many samples.
    """
    estimates, model = times.estimator.estimates, times.estimator.model
    rare = 0.5 / max(estimates.windows, 1.0)
    rates = {v: rate or rare for v, rate in estimates.rates.items()}
    selectivities = {i: share or RARE_SELECTIVITY for i, share in estimates.selectivities.items()}
    if rates == estimates.rates and selectivities == estimates.selectivities:
        return None
    seen = replace(estimates, rates=rates, selectivities=selectivities)
    return CardinalityEstimator(model, seen).times(times.costs)


# ---- building blocks ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OrderComparison(CostComparison):
    """Over the same slots, the order `chosen` takes less time than `other`."""

    def terms(self, names: Sequence[str]) -> tuple[str, str]:
        return self._term(self.chosen, names), self._term(self.other, names)

    def _term(self, shape: Shape, names: Sequence[str]) -> str:
        return f"cost({'→'.join(names[slot] for slot in order_of(shape) or ())})"


def _prefix_block(
    model: BranchModel, costs: OperationCosts, table: ChainTable, prefix: tuple[int, ...]
) -> PlanBlock:
    chosen, slots = left_deep_shape(prefix), shape_slot_set(left_deep_shape(prefix))
    others = (
        left_deep_shape((*table.order(slots & ~(1 << last)), last))
        for last in sorted(prefix)
        if last != prefix[-1]
    )
    # A tie is no reason to plan again: either plan is the cheapest.
    return PlanBlock(
        tuple(OrderComparison(model, costs, chosen, other, wins_ties=True) for other in others)
    )


def _join_blocks(
    model: BranchModel, costs: OperationCosts, table: _TreeTable, shape: Shape
) -> Iterator[PlanBlock]:
    if isinstance(shape, int):
        return
    yield from _join_blocks(model, costs, table, shape[0])
    yield from _join_blocks(model, costs, table, shape[1])
    others = table.other_trees(shape_slot_set(shape))
    yield PlanBlock(
        tuple(CostComparison(model, costs, shape, other, wins_ties=True) for other in others)
    )


# ---- more slots than the tables hold -----------------------------------------------------------


def _improved_order(times: TimeEstimator, first: int | None) -> tuple[int, ...]:
    """The best greedy order of all starts, improved by exchanging two slots at a time."""
    size = times.estimator.model.size
    starts = range(size) if first is None else [first]
    orders = [complete_order(times.estimator, start) for start in starts]
    best = min(orders, key=lambda order: times.plan(left_deep_shape(order)))
    return improve_order(times, best, exchanged, kept=0 if first is None else 1)


def _neighbour_tree(times: TimeEstimator, order: tuple[int, ...]) -> Shape:
    """The cheapest tree over neighbours in this order of the slots."""
    best: dict[tuple[int, int], tuple[float, int, Shape]] = {
        (place, place + 1): (0.0, 1 << slot, slot) for place, slot in enumerate(order)
    }
    for length in range(2, len(order) + 1):
        for start in range(len(order) - length + 1):
            stop = start + length
            best[start, stop] = min(
                (
                    ((one[0] + two[0]) + times.join(one[1], two[1]), one[1] | two[1],
                     (one[2], two[2]))
                    for middle in range(start + 1, stop)
                    for one, two in _both_ways(best[start, middle], best[middle, stop])
                ),
                key=lambda found: found[0],
            )  # fmt: skip
    return best[0, len(order)][2]


def _both_ways(one: Any, two: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (one, two), (two, one)


def _plan_from_order(
    model: BranchModel, estimates: Estimates, costs: OperationCosts, *, is_tree: bool = False
) -> GeneratedPlan:
    """The plan of a long pattern: one block, whose deciding conditions compare it with the greedy
    orders from every start."""
    times = model.estimator(estimates).times(costs)
    order = _improved_order(times, None)
    shape = _neighbour_tree(times, order) if is_tree else left_deep_shape(order)
    starts = [left_deep_shape(complete_order(times.estimator, s)) for s in range(model.size)]
    others = [other for other in starts if other != shape]
    conditions = tuple(CostComparison(model, costs, shape, o, wins_ties=True) for o in others)
    return GeneratedPlan(shape, (PlanBlock(conditions),), plan_cost(model, shape, estimates, costs))
