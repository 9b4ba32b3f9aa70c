"""Iterative improvement: an order is changed as long as a change makes it cheaper.

The local search of the literature on join orders, applied to patterns: it begins with the order of
Algorithm 2, and its moves exchange two slots or rotate three. It builds no plan step by step, so
there are no comparisons that led to it, and its plans have no invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.cost_model import plan_cost
from spark_cep.udfs.planning.greedy import plan_greedy_order
from spark_cep.udfs.planning.invariants import GeneratedPlan
from spark_cep.udfs.planning.shapes import left_deep_shape, slots_of

if TYPE_CHECKING:
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.planning.cost_model import BranchModel, TimeEstimator
    from spark_cep.udfs.program import Estimates

Order = tuple[int, ...]


def plan_local_search(
    model: BranchModel, estimates: Estimates, costs: OperationCosts
) -> GeneratedPlan:
    """The local minimum that is reached from the order of Algorithm 2, as a left-deep shape."""
    times = model.estimator(estimates).times(costs)
    start = slots_of(plan_greedy_order(model, estimates, costs).shape)
    shape = left_deep_shape(improve_order(times, start, neighbours))
    return GeneratedPlan(shape, (), plan_cost(model, shape, estimates, costs))


def improve_order(
    times: TimeEstimator, order: Order, moves: Callable[[Order], Iterator[Order]], kept: int = 0
) -> Order:
    """The order after the best move of each round, until no move makes it cheaper. The first
    `kept` slots stay where they are."""
    seconds, head = times.plan(left_deep_shape(order)), order[:kept]
    while True:
        found = [
            (times.plan(left_deep_shape((*head, *moved))), (*head, *moved))
            for moved in moves(order[kept:])
        ]
        best = min(found, default=(seconds, order))
        if not best[0] < seconds:
            return order
        seconds, order = best


def neighbours(order: Order) -> Iterator[Order]:
    """The orders that one move makes.

    >>> ["".join(each) for each in neighbours(("a", "b", "c"))]
    ['bac', 'cba', 'acb', 'bca', 'cab']
    """
    yield from exchanged(order)
    yield from rotated(order)


def exchanged(order: Order) -> Iterator[Order]:
    """Two slots exchanged."""
    for i, j in combinations(range(len(order)), 2):
        moved = list(order)
        moved[i], moved[j] = order[j], order[i]
        yield tuple(moved)


def rotated(order: Order) -> Iterator[Order]:
    """Three slots rotated, either way."""
    for i, j, k in combinations(range(len(order)), 3):
        for a, b, c in ((j, k, i), (k, i, j)):
            moved = list(order)
            moved[i], moved[j], moved[k] = order[a], order[b], order[c]
            yield tuple(moved)
