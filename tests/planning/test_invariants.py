"""Which deciding conditions are kept, and by how much they must be missed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.planning.greedy import plan_greedy_order
from spark_cep.udfs.planning.invariants import (
    CLEAR_GAIN,
    LARGEST_DISTANCE,
    LOW_GAIN,
    SMALLEST_DISTANCE,
    InvariantDistance,
    average_difference,
    first_violation,
    select_invariants,
)
from tests.planning.branches import EVEN, estimates, model

THREE = model(3)
THEN = estimates([100, 15, 10])


def texts(k: int | None) -> list[str]:
    return [
        each.text("abc")
        for each in select_invariants(plan_greedy_order(THREE, THEN, EVEN), k, THEN)
    ]


def test_the_tightest_conditions_of_each_block_are_kept_in_the_order_of_the_plan() -> None:
    assert texts(1) == ["rate(c) < rate(b)", "rate(b) < rate(a)"]
    assert texts(2) == ["rate(c) < rate(b)", "rate(c) < rate(a)", "rate(b) < rate(a)"]
    assert sorted(texts(None)) == sorted(texts(2))


def test_the_first_violation_in_the_order_of_the_plan_is_the_one_reported() -> None:
    kept = select_invariants(plan_greedy_order(THREE, THEN, EVEN), 1, THEN)
    both = estimates([5, 8, 10])
    found = first_violation(kept, both)
    assert found is not None
    assert found.text("abc") == "rate(c) < rate(b)"


@pytest.mark.parametrize(
    ("distance", "rate", "is_violated"),
    [(0.0, 14.9, False), (0.0, 15.1, True), (0.2, 17.9, False), (0.2, 18.1, True)],
)
def test_a_condition_must_be_missed_by_the_distance(
    distance: float, rate: float, is_violated: bool
) -> None:
    kept = select_invariants(plan_greedy_order(THREE, THEN, EVEN), 1, THEN)
    assert (first_violation(kept, estimates([100, 15, rate]), distance) is not None) == is_violated


def test_a_tie_is_no_violation_where_the_planner_would_choose_the_same_again() -> None:
    kept = select_invariants(
        plan_greedy_order(model(2), estimates([1, 2]), EVEN), 1, estimates([1, 2])
    )
    assert first_violation(kept, estimates([2, 2])) is None
    kept = select_invariants(
        plan_greedy_order(model(2), estimates([2, 1]), EVEN), 1, estimates([2, 1])
    )
    assert first_violation(kept, estimates([2, 2])) is not None


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=3, max_size=3), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_larger_distance_never_finds_more(rates: list[float], one: float, other: float) -> None:
    kept = select_invariants(plan_greedy_order(THREE, THEN, EVEN), None, THEN)
    smaller, larger = sorted((one, other))
    if first_violation(kept, estimates(rates), smaller) is None:
        assert first_violation(kept, estimates(rates), larger) is None


# ---- the distance ------------------------------------------------------------------------------


def test_the_average_difference_is_that_of_all_deciding_conditions() -> None:
    near = estimates([120, 110, 100])
    found = plan_greedy_order(THREE, near, EVEN)
    # c < a, c < b, b < a: by 20, 10 and 9.09 percent of the smaller side.
    assert average_difference([found], near) == pytest.approx((0.2 + 0.1 + 1 / 11) / 3)


def test_the_average_is_bounded_and_leaves_out_what_has_no_ratio() -> None:
    assert average_difference([plan_greedy_order(THREE, THEN, EVEN)], THEN) == LARGEST_DISTANCE
    absent = estimates([1.1, 1.0, 0.0])
    # Nothing arrives for c: only b < a has a relative difference.
    assert average_difference([plan_greedy_order(THREE, absent, EVEN)], absent) == pytest.approx(
        0.1
    )
    assert (
        average_difference([plan_greedy_order(model(1), estimates([1]), EVEN)], estimates([1])) == 0
    )


def test_a_given_distance_stays_and_auto_follows_each_plan() -> None:
    near, nearer = estimates([120, 110, 100]), estimates([105, 105, 100])
    given_, auto = InvariantDistance(0.0), InvariantDistance("auto")
    for distance in (given_, auto):
        distance.record_plan([plan_greedy_order(THREE, near, EVEN)], near, None)
    first = auto.value
    for distance in (given_, auto):
        distance.record_plan([plan_greedy_order(THREE, nearer, EVEN)], nearer, 0.3)
    assert given_.value == 0.0
    assert (
        auto.value == average_difference([plan_greedy_order(THREE, nearer, EVEN)], nearer) < first
    )


def test_meta_begins_with_auto_and_follows_the_gains() -> None:
    near = estimates([120, 110, 100])
    found = [plan_greedy_order(THREE, near, EVEN)]
    meta = InvariantDistance("meta")
    meta.record_plan(found, near, None)
    start = meta.value
    assert start == average_difference(found, near)
    meta.record_plan(found, near, LOW_GAIN / 2)
    assert meta.value == 2 * start
    meta.record_plan(found, near, CLEAR_GAIN + 0.1)
    assert meta.value == start
    meta.record_plan(found, near, (LOW_GAIN + CLEAR_GAIN) / 2)
    assert meta.value == start


@pytest.mark.parametrize(("gain", "end"), [(-1.0, LARGEST_DISTANCE), (0.9, SMALLEST_DISTANCE)])
def test_meta_stays_within_bounds(gain: float, end: float) -> None:
    even = estimates([100, 100, 100])
    meta = InvariantDistance("meta")
    for known in [None] + 20 * [gain]:
        meta.record_plan([plan_greedy_order(THREE, even, EVEN)], even, known)
    assert meta.value == end
