"""What a cache keeps, and what elements are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.remote_spec import Caching
from spark_cep.udfs.remotes.cache import (
    CachedElements,
    FetchUtility,
    choose_kept,
    fill_knapsack,
    future_utility,
    is_worth_fetching,
    overall_utility,
    urgent_utility,
)


def held(sizes: Any, used: Any, certain: Any = None, utility: Any = None) -> CachedElements:
    sizes = np.array(sizes, np.int64)
    nothing = np.zeros(len(sizes))
    return CachedElements(
        sizes,
        np.array(used, np.int64),
        nothing.astype(bool) if certain is None else np.array(certain, np.bool_),
        nothing if utility is None else np.array(utility, np.float64),
    )


def stays(held: CachedElements, capacity: int, policy: Any = "lru") -> list[int]:
    return np.flatnonzero(choose_kept(held, Caching(policy, capacity))).tolist()


def test_all_stays_while_there_is_room() -> None:
    assert stays(held([10, 10], [1, 2]), 20) == [0, 1]


def test_lru_evicts_what_was_not_used_for_the_longest_time() -> None:
    assert stays(held([10, 10, 10], [3, 1, 2]), 20) == [0, 2]


@pytest.mark.parametrize("policy", ["lru", "cost"])
def test_an_element_larger_than_the_capacity_is_not_kept(policy: str) -> None:
    assert stays(held([10, 100, 10], [1, 9, 2], utility=[1, 1000, 1]), 20, policy) == [0, 2]


@pytest.mark.parametrize("policy", ["lru", "cost"])
def test_a_capacity_of_nothing_keeps_nothing(policy: str) -> None:
    assert stays(held([8, 8], [1, 2]), 0, policy) == []


def test_what_is_needed_for_certain_stays_before_what_is_worth_more() -> None:
    both = held([10, 10], [1, 2], certain=[True, False], utility=[1, 50])
    assert stays(both, 10, "cost") == [0]


def test_utility_counts_by_size() -> None:
    assert stays(held([20, 5, 5], [0, 0, 0], utility=[30, 10, 10]), 20, "cost") == [1, 2]


def test_what_does_not_fit_is_passed_over_for_what_does() -> None:
    assert stays(held([6, 7, 4], [0, 0, 0], utility=[60, 69, 1]), 10, "cost") == [0, 2]


def reference_lru(sizes: list[int], used: list[int], capacity: int) -> list[int]:
    inside = [i for i in range(len(sizes)) if sizes[i] <= capacity]
    while sum(sizes[i] for i in inside) > capacity:
        inside.remove(min(inside, key=lambda i: (used[i], -i)))
    return sorted(inside)


def reference_knapsack(sizes: list[int], order: list[int], capacity: int) -> list[int]:
    inside = []
    for i in order:
        if sizes[i] <= capacity:
            inside.append(i)
            capacity -= sizes[i]
    return sorted(inside)


elements = st.lists(
    st.tuples(st.integers(8, 60), st.integers(0, 5), st.booleans(), st.integers(0, 9))
)


@settings(deadline=None)
@given(elements, st.integers(0, 200))
def test_both_policies_agree_with_a_slow_reference(rows: list[Any], capacity: int) -> None:
    sizes, used, certain, utility = ([r[i] for r in rows] for i in range(4))
    columns = held(sizes, used, certain, utility)
    if sum(sizes) <= capacity:
        assert stays(columns, capacity) == list(range(len(rows)))
        return
    assert stays(columns, capacity) == reference_lru(sizes, used, capacity)
    order = sorted(
        range(len(rows)), key=lambda i: (not certain[i], -utility[i] / sizes[i], -used[i], i)
    )
    found = stays(columns, capacity, "cost")
    assert sum(sizes[i] for i in found) <= capacity
    if len(rows) <= 16:  # as many passes as `fill` makes at most
        assert found == reference_knapsack(sizes, order, capacity)


def test_packing_stops_after_a_bounded_number_of_looks() -> None:
    sizes = np.array([1, 100] * 40)
    flags = fill_knapsack(np.arange(80), sizes, 120)
    assert sizes[flags].sum() <= 120


def test_equations_3_to_7_on_numbers_by_hand() -> None:
    assert urgent_utility(0.05, np.array([4.0, 0.0])).tolist() == [0.2, 0.0]
    # Two classes with 10 and 4 partial matches, two elements.
    relevance = np.array([[0.5, 0.5], [0.25, 0.0]])
    assert future_utility(np.array([10.0, 4.0]), relevance).tolist() == [6.0, 5.0]
    assert future_utility(np.array([10.0, 4.0]), relevance, 3).tolist() == [18.0, 15.0]
    assert overall_utility(0.75, np.array([4.0]), np.array([8.0])).tolist() == [5.0]
    assert is_worth_fetching(np.array([3.0, 2.0, 1.0]), np.array([2.0, 9.0])).tolist() == [
        True, False, False,
    ]  # fmt: skip
    assert is_worth_fetching(np.array([0.0]), np.array([])).tolist() == [True]


def test_algorithm_2_by_hand() -> None:
    utility = FetchUtility(window=2)
    a, b = np.array([0, 1]), np.array([1])
    utility.needed(a, np.array([3, 1]), level=1)
    utility.step()
    utility.needed(b, np.array([2]), level=2)
    # Now: 0 and 2. Class 1 has on average 4/2 = 2, of which 3/4 and 1/4; class 2 has 2/2 = 1.
    assert utility.sizes() == {1: 2.0, 2: 1.0}
    assert utility.of(a, 1.0, 1.0).tolist() == [0.0, 2.0]
    assert utility.of(a, 0.0, 1.0).tolist() == [1.5, 0.5 + 1.0]
    assert utility.of(a, 0.5, 2.0).tolist() == [1.5, 3.5]
    utility.step()  # the first step leaves the window
    assert utility.of(a, 0.0, 1.0).tolist() == [0.0, 1.0]
    utility.step()
    assert utility.of(a, 0.5, 1.0).tolist() == [0.0, 0.0]


def test_needs_of_one_element_add_up_in_a_step() -> None:
    utility = FetchUtility()
    utility.needed(np.array([7, 7, 2]), np.array([1, 2, 5]), level=0)
    utility.needed(np.array([7]), np.array([4]), level=3)
    assert utility.of(np.array([2, 7, 900]), 1.0, 1.0).tolist() == [5.0, 7.0, 0.0]


steps = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), st.integers(0, 2)), max_size=5),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(steps)
def test_the_sliding_window_agrees_with_sums_over_its_steps(history: list[list[Any]]) -> None:
    utility = FetchUtility(window=3)
    for place, needs in enumerate(history):
        if place:
            utility.step()
        for element, count, level in needs:
            utility.needed(np.array([element]), np.array([count]), level)
    window = history[-3:]
    for element in range(5):
        future = sum(c for needs in window for e, c, _ in needs if e == element) / len(window)
        now = sum(c for e, c, _ in history[-1] if e == element)
        found = utility.of(np.array([element]), 0.25, 1.0)
        assert found[0] == pytest.approx(0.25 * now + 0.75 * future)
