"""Statistics of the latest advances."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.planning.adaptation import ENOUGH_TESTS, SlidingStatistics
from spark_cep.udfs.program import Estimates

KNOWN = Estimates({0: 5.0, 1: 7.0}, {0: 0.3, 1: 0.4}, windows=12, places=({0: 1.0},))
MANY = ENOUGH_TESTS


def test_before_anything_is_seen_what_was_known_is_given() -> None:
    assert SlidingStatistics(KNOWN).estimates() == KNOWN


def test_rates_are_candidates_per_window() -> None:
    observed = SlidingStatistics(KNOWN)
    observed.add({0: 30, 1: 10}, 4, {})
    observed.add({0: 10, 2: 3}, 1, {})
    assert observed.estimates().rates == {0: 8.0, 1: 2.0, 2: 0.6}


def test_what_was_hardly_tested_stays_as_it_was_known() -> None:
    observed = SlidingStatistics(KNOWN)
    observed.add({}, 1, {0: (MANY - 1, 0), 1: (MANY, 10)})
    assert observed.estimates().selectivities == {0: 0.3, 1: pytest.approx(10 / MANY)}


def test_few_tests_add_up_to_enough_within_the_window() -> None:
    observed = SlidingStatistics(KNOWN)
    for _ in range(2):
        observed.add({}, 1, {0: (MANY // 2, MANY // 10)})
    assert observed.estimates().selectivities[0] == pytest.approx(0.2)


def test_a_condition_that_kept_nothing_is_not_thought_impossible() -> None:
    observed = SlidingStatistics(KNOWN)
    observed.add({}, 1, {0: (10 * MANY, 0)})
    assert 0 < observed.estimates().selectivities[0] < 1 / (10 * MANY)


def test_what_was_learnt_stays_when_the_advances_that_showed_it_are_forgotten() -> None:
    observed = SlidingStatistics(KNOWN, advances=2)
    observed.add({0: 100}, 1, {0: (MANY, MANY)})
    for _ in range(3):
        observed.add({0: 10}, 1, {})
    assert observed.estimates().rates[0] == 10
    assert observed.estimates().selectivities[0] == 1.0


@settings(derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 3), st.integers(0, 1000)),
            st.integers(1, 20),
            st.dictionaries(
                st.integers(0, 2),
                st.integers(MANY, 10 * MANY).flatmap(
                    lambda n: st.tuples(st.just(n), st.integers(1, n))
                ),
            ),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_the_window_holds_what_its_advances_sum_to(
    advances: list[tuple[dict[int, int], int, dict[int, tuple[int, int]]]], window: int
) -> None:
    observed = SlidingStatistics(Estimates({}), window)
    for advance in advances:
        observed.add(*advance)
    latest = advances[-window:]
    stretches = sum(each[1] for each in latest)
    found = observed.estimates()
    for variable in range(4):
        total = sum(each[0].get(variable, 0) for each in latest)
        assert found.rates.get(variable, 0.0) == pytest.approx(total / stretches)
    for index in advances[-1][2]:
        tested, kept = (sum(each[2].get(index, (0, 0))[i] for each in latest) for i in (0, 1))
        assert found.selectivities[index] == pytest.approx(kept / tested)


def test_memory_is_that_of_the_window() -> None:
    observed = SlidingStatistics(KNOWN, advances=3)
    for _ in range(50):
        observed.add({0: 1}, 1, {0: (1, 1)})
    assert len(observed._latest) == 3
