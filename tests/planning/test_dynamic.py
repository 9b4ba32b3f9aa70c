"""The exact dynamic programs: against every order and every tree, their invariants, their time."""

from __future__ import annotations

from itertools import pairwise, permutations
from statistics import median
from time import process_time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.costs import TYPICAL_COSTS, OperationCosts
from spark_cep.udfs.planning.cost_model import plan_cost
from spark_cep.udfs.planning.dynamic import (
    cheapest_chain,
    cheapest_tree,
    plan_cheapest_chain,
    plan_cheapest_tree,
)
from spark_cep.udfs.planning.greedy import plan_lazy_chain
from spark_cep.udfs.planning.invariants import first_violation, select_invariants
from spark_cep.udfs.planning.set_tables import join_table, levels, set_model
from spark_cep.udfs.planning.shapes import left_deep_shape, order_of, slots_of
from spark_cep.udfs.planning.zstream import plan_zstream
from spark_cep.udfs.program import Negation
from tests.planning.branches import (
    EVEN,
    compared,
    estimates,
    listed,
    model,
    models,
    sequence,
    statistics,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import Estimates, Shape

ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, max_examples=150)
COSTS = st.sampled_from([EVEN, TYPICAL_COSTS, OperationCosts(1, 0, 0), OperationCosts(0, 1, 5)])


def every_tree(slots: Sequence[int]) -> Iterator[Shape]:
    """Every binary tree over any of the slots, every join both ways round."""
    if len(slots) == 1:
        yield slots[0]
    for taken in range(1, (1 << len(slots)) - 1):
        left = [slot for place, slot in enumerate(slots) if taken >> place & 1]
        right = [slot for place, slot in enumerate(slots) if not taken >> place & 1]
        for one in every_tree(left):
            yield from ((one, other) for other in every_tree(right))


def seconds(branch: BranchModel, shape: Shape, known: Estimates, costs: OperationCosts) -> float:
    return branch.estimator(known).times(costs).shape(shape)[0]


# ---- against everything ------------------------------------------------------------------------


@ALWAYS_THE_SAME
@given(st.data(), COSTS)
def test_no_order_is_cheaper(data: st.DataObject, costs: OperationCosts) -> None:
    branch = data.draw(models(largest=6))
    known = data.draw(statistics(branch))
    every = [left_deep_shape(order) for order in permutations(range(branch.size))]
    found = cheapest_chain(branch, known, costs)
    assert order_of(found) is not None
    assert seconds(branch, found, known, costs) == min(
        seconds(branch, shape, known, costs) for shape in every
    )
    assert plan_cheapest_chain(branch, known, costs).shape == found


@ALWAYS_THE_SAME
@given(st.data(), COSTS)
def test_no_order_with_the_same_start_is_cheaper(
    data: st.DataObject, costs: OperationCosts
) -> None:
    branch = data.draw(models(largest=5))
    known = data.draw(statistics(branch))
    for first in range(branch.size):
        orders = [o for o in permutations(range(branch.size)) if o[0] == first]
        found = cheapest_chain(branch, known, costs, first=first)
        assert slots_of(found)[0] == first
        assert seconds(branch, found, known, costs) == min(
            seconds(branch, left_deep_shape(order), known, costs) for order in orders
        )


@ALWAYS_THE_SAME
@given(st.data(), COSTS)
def test_no_tree_is_cheaper(data: st.DataObject, costs: OperationCosts) -> None:
    branch = data.draw(models(largest=4))
    known = data.draw(statistics(branch))
    found = cheapest_tree(branch, known, costs)
    assert sorted(slots_of(found)) == list(range(branch.size))
    assert seconds(branch, found, known, costs) == min(
        seconds(branch, shape, known, costs) for shape in every_tree(range(branch.size))
    )
    generated = plan_cheapest_tree(branch, known, costs)
    assert generated.shape == found
    assert generated.cost == plan_cost(branch, found, known, costs)


@settings(derandomize=True, deadline=None, max_examples=8)
@given(st.data())
def test_no_tree_over_five_slots_is_cheaper(data: st.DataObject) -> None:
    branch = data.draw(models(largest=5).filter(lambda each: each.size == 5))
    known = data.draw(statistics(branch))
    found = cheapest_tree(branch, known, TYPICAL_COSTS)
    assert seconds(branch, found, known, TYPICAL_COSTS) == min(
        seconds(branch, shape, known, TYPICAL_COSTS) for shape in every_tree(range(5))
    )


@ALWAYS_THE_SAME
@given(st.data(), COSTS)
def test_the_tables_have_the_numbers_of_the_estimator(
    data: st.DataObject, costs: OperationCosts
) -> None:
    """To the last bit: comparisons that decided a plan are verified with the estimator."""
    branch = data.draw(models(largest=5))
    known = data.draw(statistics(branch))
    times = branch.estimator(known).times(costs)
    table = join_table(times)
    for slots in range(1, branch.all + 1):
        assert table.cardinalities[slots] == times.estimator.cardinality(slots)
        assert set_model(branch).extensions[slots] == branch.order.count(slots)
    for number, level in enumerate(levels(branch.size)):
        splits, slot_joins = table.split_joins(number), table.slot_joins(number)
        for row in range(len(level.sets)):
            for left, right, found in zip(
                level.left[row], level.right[row], splits[row], strict=True
            ):
                assert found == times.join(int(left), int(right)), (left, right)
            for rest, last, found in zip(
                level.rest[row], level.last[row], slot_joins[row], strict=True
            ):
                assert found == times.join(int(rest), 1 << int(last)), (rest, last)


def test_two_pairs_that_are_not_neighbours_are_joined_first() -> None:
    """SEQ(a, b, c, d) with a = c and b = d: no tree over neighbours joins them."""
    branch = model(4, [compared(0, 2, "="), compared(1, 3, "=")])
    known = estimates([1000] * 4, 0.0003, 0.0003)
    found = cheapest_tree(branch, known, TYPICAL_COSTS)
    assert isinstance(found, tuple)
    assert {frozenset(slots_of(part)) for part in found} == {frozenset({0, 2}), frozenset({1, 3})}
    neighbours = plan_zstream(branch, known, TYPICAL_COSTS).shape
    assert seconds(branch, found, known, TYPICAL_COSTS) < 0.8 * seconds(
        branch, neighbours, known, TYPICAL_COSTS
    )


def test_equal_slots_stay_in_the_order_of_the_pattern() -> None:
    assert cheapest_chain(model(4), estimates([0] * 4), EVEN) == left_deep_shape(range(4))
    assert cheapest_tree(model(4), estimates([0] * 4), EVEN) == left_deep_shape(range(4))


def test_the_order_after_a_slot_that_was_never_seen_is_that_of_a_rare_one() -> None:
    branch = model(3, [compared(1, 2)])
    assert cheapest_chain(branch, estimates([20, 20, 0], 0.5), EVEN) == ((2, 1), 0)
    assert cheapest_tree(branch, estimates([20, 20, 0], 0.5), EVEN) == ((2, 1), 0)


def test_patterns_of_more_slots_are_planned_too() -> None:
    size = 12
    branch = model(size, [compared(i, i + 1, "=") for i in range(0, size, 2)])
    known = estimates([100 + 7 * (i % 5) for i in range(size)], *[0.001] * 6)
    greedy = plan_lazy_chain(branch, known, TYPICAL_COSTS).cost.time
    chain = plan_cheapest_chain(branch, known, TYPICAL_COSTS)
    tree = plan_cheapest_tree(branch, known, TYPICAL_COSTS)
    assert tree.cost.time < chain.cost.time <= greedy
    assert cheapest_tree(branch, known, TYPICAL_COSTS) == tree.shape
    assert cheapest_chain(branch, known, TYPICAL_COSTS) == chain.shape
    assert slots_of(cheapest_chain(branch, known, TYPICAL_COSTS, first=5))[0] == 5
    for made in (chain, tree):
        assert sorted(slots_of(made.shape)) == list(range(size))
        assert first_violation(select_invariants(made, None, known), known) is None


# ---- invariants --------------------------------------------------------------------------------


@ALWAYS_THE_SAME
@given(st.data(), st.sampled_from([1, 2, None]), COSTS, st.booleans())
def test_a_violated_invariant_always_means_a_cheaper_plan(
    data: st.DataObject, k: int | None, costs: OperationCosts, is_tree: bool
) -> None:
    """Theorems 1 and 2: what comes instead is different and cheaper."""
    planner = plan_cheapest_tree if is_tree else plan_cheapest_chain
    branch = data.draw(models(largest=5))
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    found = planner(branch, then, costs)
    assert first_violation(select_invariants(found, k, then), then) is None
    violation = first_violation(select_invariants(found, k, then), now)
    if violation is not None:
        again = planner(branch, now, costs)
        assert again.shape != found.shape
        assert again.cost.time < plan_cost(branch, found.shape, now, costs).time


def test_the_conditions_of_an_order_name_orders_and_those_of_a_tree_trees() -> None:
    branch, known = model(3), estimates([100, 15, 10])
    chain = select_invariants(plan_cheapest_chain(branch, known, EVEN), 1, known)
    assert [each.text("abc") for each in chain] == [
        "cost(c→b) < cost(b→c)", "cost(c→b→a) < cost(c→a→b)",
    ]  # fmt: skip
    tree = select_invariants(plan_cheapest_tree(branch, known, EVEN), 1, known)
    assert [each.text("abc") for each in tree] == [
        "cost(c b) < cost(b c)", "cost((c b) a) < cost((c a) b)",
    ]  # fmt: skip


# ---- time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "milliseconds"), [(8, 60), (10, 150)])
@pytest.mark.parametrize("kind", ["plain", "conjunction", "list", "negation"])
def test_both_programs_together_are_quick(size: int, milliseconds: float, kind: str) -> None:
    """With a margin of two, for a machine that does other work too."""
    order = frozenset[tuple[int, int]]() if kind == "conjunction" else sequence(size)
    slots = {3: listed(3, 1, 5)} if kind == "list" else {}
    negations = [Negation(size, "between", after=(0,), before=(2,))] if kind == "negation" else []
    taken = []
    for attempt in range(5):
        conditions = [compared(i, j, "=" if i % 2 else "<") for i, j in pairwise(range(size))]
        branch = model(size, conditions, order, slots=slots, negations=negations)
        known = estimates([10 + 3 * i + attempt for i in range(size)], *[0.3] * (size - 1))
        started = process_time()
        cheapest_chain(branch, known, TYPICAL_COSTS)
        cheapest_tree(branch, known, TYPICAL_COSTS)
        taken.append(process_time() - started)
    assert median(taken) * 1e3 < 2 * milliseconds
