"""Algorithm 3: the tree, its deciding conditions, and what its invariants promise."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.costs import TYPICAL_COSTS, OperationCosts
from spark_cep.udfs.planning.cost_model import BranchModel, plan_cost
from spark_cep.udfs.planning.invariants import first_violation, select_invariants
from spark_cep.udfs.planning.zstream import CostComparison, plan_zstream
from spark_cep.udfs.program import Estimates, Shape
from tests.planning.branches import (
    EVEN,
    compared,
    estimates,
    listed,
    model,
    models,
    statistics,
    trees,
)

ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, max_examples=150)
COSTS = st.sampled_from([EVEN, TYPICAL_COSTS, OperationCosts(1, 0, 0), OperationCosts(0, 1, 5)])


def time_of(
    branch: BranchModel, shape: Shape, known: Estimates, costs: OperationCosts = EVEN
) -> float:
    return branch.estimator(known).times(costs).shape(shape)[0]


def is_run_as_it_should_be(shape: Shape) -> bool:
    """A slot is the unit where the other side is a join."""
    if isinstance(shape, int):
        return True
    left, right = shape
    if isinstance(left, int) and not isinstance(right, int):
        return False
    return is_run_as_it_should_be(left) and is_run_as_it_should_be(right)


@ALWAYS_THE_SAME
@given(st.data(), COSTS)
def test_no_tree_over_the_slots_in_order_is_cheaper(
    data: st.DataObject, costs: OperationCosts
) -> None:
    branch = data.draw(models(largest=5))
    known = data.draw(statistics(branch))
    found = plan_zstream(branch, known, costs)
    assert is_run_as_it_should_be(found.shape)
    every = [s for s in trees(range(branch.size)) if is_run_as_it_should_be(s)]
    cheapest = min(time_of(branch, shape, known, costs) for shape in every)
    assert time_of(branch, found.shape, known, costs) == pytest.approx(cheapest)
    expected = plan_cost(branch, found.shape, known, costs)
    assert found.cost == expected


def test_two_pairs_that_match_rarely_are_joined_to_each_other() -> None:
    branch = model(4, [compared(0, 1, "="), compared(1, 2), compared(2, 3, "=")])
    known = estimates([1000, 900, 1000, 1200], 0.00001, 0.5, 0.00001)
    found = plan_zstream(branch, known, TYPICAL_COSTS)
    assert found.shape in (((1, 0), (2, 3)), ((2, 3), (1, 0)))


def test_of_two_slots_the_rarer_one_is_the_spine() -> None:
    assert plan_zstream(model(2), estimates([5, 3]), TYPICAL_COSTS).shape == (1, 0)
    assert plan_zstream(model(2), estimates([3, 5]), TYPICAL_COSTS).shape == (0, 1)


def test_of_two_joins_the_smaller_one_is_kept_as_the_unit() -> None:
    branch = model(4, [compared(0, 1, "="), compared(1, 2), compared(2, 3, "=")], frozenset())
    few, many = 0.00001, 0.0001
    for shares, spine in (((few, many), (2, 3)), ((many, few), (0, 1))):
        known = estimates([1000, 1000, 1000, 1000], shares[0], 0.5, shares[1])
        found = plan_zstream(branch, known, TYPICAL_COSTS)
        assert isinstance(found.shape, tuple)
        assert found.shape[0] == spine


def test_a_list_is_grown_where_its_neighbours_hold_it() -> None:
    branch = model(3, slots={1: listed(1)})
    found = plan_zstream(branch, estimates([3, 9, 3]), TYPICAL_COSTS)
    # Only neighbours are joined: the list is grown after one side, never by itself.
    assert found.shape in (((0, 1), 2), ((2, 1), 0))


# ---- invariants --------------------------------------------------------------------------------


@ALWAYS_THE_SAME
@given(st.data(), st.sampled_from([1, 2, 5]), COSTS)
def test_a_violated_invariant_always_means_another_tree(
    data: st.DataObject, k: int, costs: OperationCosts
) -> None:
    """Theorem 1, ties and the sides of joins included."""
    branch = data.draw(models())
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    found = plan_zstream(branch, then, costs)
    assert first_violation(select_invariants(found, k, then), then) is None
    if first_violation(select_invariants(found, k, then), now) is not None:
        assert plan_zstream(branch, now, costs).shape != found.shape


@ALWAYS_THE_SAME
@given(st.data(), COSTS)
def test_with_all_conditions_kept_the_same_tree_means_no_violation_and_back(
    data: st.DataObject, costs: OperationCosts
) -> None:
    """Theorem 2, ties and the sides of joins included."""
    branch = data.draw(models())
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    found = plan_zstream(branch, then, costs)
    has_changed = plan_zstream(branch, now, costs).shape != found.shape
    assert (first_violation(select_invariants(found, None, then), now) is not None) == has_changed


def runs(branch: BranchModel, shape: Shape) -> list[Shape]:
    """The joins of a shape, leaves first."""
    if isinstance(shape, int):
        return []
    return [*runs(branch, shape[0]), *runs(branch, shape[1]), shape]


@ALWAYS_THE_SAME
@given(st.data())
def test_all_conditions_are_those_with_every_tree_over_the_same_slots(data: st.DataObject) -> None:
    branch = data.draw(models(largest=5))
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    found = plan_zstream(branch, then, EVEN)
    kept = select_invariants(found, None, then)
    for join in runs(branch, found.shape):
        slots = sorted(int(slot) for slot in str(join) if slot.isdigit())
        every = [s for s in trees(slots) if is_run_as_it_should_be(s)]
        best = min(time_of(branch, shape, now) for shape in every)
        if time_of(branch, join, now) > best * (1 + 1e-9):
            assert first_violation(kept, now) is not None


def test_alternatives_found_too_late_are_missed_with_one_condition_and_seen_with_all() -> None:
    branch = model(4, [compared(i, i + 1) for i in range(3)])
    missed = []
    for first in range(1, 10):
        for second in range(1, 10):
            then = estimates([5, 4, 4, 5], 0.1, 0.5, 0.5)
            now = estimates([5, 4, 4, 5], 0.1, first / 10, second / 10)
            found = plan_zstream(branch, then, EVEN)
            if plan_zstream(branch, now, EVEN).shape != found.shape:
                assert first_violation(select_invariants(found, None, then), now) is not None
                missed.append(first_violation(select_invariants(found, 1, then), now) is None)
    assert any(missed)
    assert not all(missed)


def test_subtree_costs_kept_as_constants_would_call_a_sound_plan_violated() -> None:
    """The paper represents the cost of each subtree by what it was when the plan was made. When c
    becomes frequent, a (b c) is then charged for its root only, and not for the pairs of b and c:
    a reoptimization that changes nothing, which Theorem 1 excludes. No earlier invariant tells."""
    branch = model(3, [compared(1, 2)])
    then, now = estimates([1, 10, 12], 0.1), estimates([1, 10, 120], 0.1)
    found = plan_zstream(branch, then, EVEN)
    (condition,) = (c for block in found.blocks for c in block.conditions if _is_root(c))
    assert plan_zstream(branch, now, EVEN).shape == found.shape == ((0, 1), 2)
    assert first_violation(select_invariants(found, None, then), now) is None

    def with_constants(shape: Shape) -> float:
        assert isinstance(shape, tuple)
        root = branch.estimator(now).times(EVEN).join(_slots(shape[0]), _slots(shape[1]))
        return time_of(branch, shape[0], then) + time_of(branch, shape[1], then) + root

    assert with_constants(condition.chosen) >= with_constants(condition.other)


def _is_root(condition: object) -> bool:
    return isinstance(condition, CostComparison) and _slots(condition.chosen) == 0b111


def _slots(shape: Shape) -> int:
    return 1 << shape if isinstance(shape, int) else _slots(shape[0]) | _slots(shape[1])


# ---- work --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 12])
def test_every_run_of_slots_is_split_once(size: int) -> None:
    branch = model(size, [compared(i, j) for i, j in pairwise(range(size))])
    known = estimates([10 + i for i in range(size)], *[0.5] * (size - 1))
    plan_zstream(branch, known, EVEN)
    splits = size * (size * size - 1) // 6
    # A join and its mirror image, and the set of slots itself.
    assert branch.estimator(known).work <= 2 * splits + size * (size + 1)


def test_verifying_costs_less_work_than_planning() -> None:
    branch = model(8, [compared(i, j) for i, j in pairwise(range(8))])
    then = estimates([10, 13, 9, 20, 11, 30, 8, 15], *[0.5] * 7)
    found = plan_zstream(branch, then, EVEN)
    planning = branch.estimator(then).work
    kept = select_invariants(found, 1, then)
    now = Estimates(dict(then.rates), dict(then.selectivities))
    assert first_violation(kept, now) is None
    assert branch.estimator(now).work < planning / 2
