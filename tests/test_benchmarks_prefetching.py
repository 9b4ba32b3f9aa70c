"""When to fetch ahead and how long to postpone, on cases by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from benchmarks.postponement import (
    GrowthRates,
    development_time,
    extra_cost,
    hidden_latency,
    useful_postponements,
)
from benchmarks.prefetch_timing import (
    MissHistory,
    PrefetchTiming,
    choose_lookahead,
    estimate_arrival,
)


def test_the_latest_class_that_holds_the_key_is_the_lookahead() -> None:
    assert choose_lookahead(4, [0, 2, 4], MissHistory(), 0.0) == PrefetchTiming(2)


def test_a_class_that_led_to_misses_is_passed_over_for_an_earlier_one() -> None:
    history = MissHistory(threshold=2)
    history.missed(2, 4, now=1.0)
    assert choose_lookahead(4, [0, 2], history, 1.0) == PrefetchTiming(2)
    history.missed(2, 4, now=1.5)
    assert choose_lookahead(4, [0, 2], history, 2.0) == PrefetchTiming(0)
    assert choose_lookahead(3, [0, 2], history, 2.0) == PrefetchTiming(2)  # misses of another class


def test_misses_are_forgotten_some_time_after_the_last() -> None:
    history = MissHistory(threshold=1, memory_s=5.0)
    history.missed(1, 2, now=0.0)
    assert choose_lookahead(2, [1], history, 4.9) is None
    assert choose_lookahead(2, [1], history, 5.0) == PrefetchTiming(1)
    history.missed(1, 2, now=5.0)
    history.missed(1, 2, now=9.0)
    assert not history.suits(1, 2, 13.9)


def test_without_an_earlier_holder_there_is_no_lookahead() -> None:
    assert choose_lookahead(2, [2, 3], MissHistory(), 0.0) is None


@pytest.mark.parametrize(
    ("rate", "latency", "offset"), [(1 / 0.3, 0.05, 0.25), (100.0, 0.05, 0.0), (0.0, 0.05, inf)]
)
def test_estimated_arrival_is_the_next_event_less_the_latency(
    rate: float, latency: float, offset: float
) -> None:
    assert estimate_arrival(3, rate, latency) == PrefetchTiming(3, pytest.approx(offset))


# Classes 0 to 3. From class 0: to 1 at 10 per second, to 2 at 10, to 3 at 20.
GROWTH = GrowthRates(counts=(100.0, 50.0, 4.0, 1.0), rates=(5.0, 10.0, 10.0, 20.0), seconds=0.001)


def test_classes_develop_in_the_time_of_a_compound_process() -> None:
    assert development_time(0, 1, GROWTH.rates) == pytest.approx(0.1)
    assert development_time(0, 2, GROWTH.rates) == pytest.approx(0.05)
    assert development_time(0, 3, GROWTH.rates) == pytest.approx(0.025)
    assert development_time(0, 1, (1.0, 0.0)) == inf


def test_equation_8_counts_the_classes_between() -> None:
    assert extra_cost(0, 1, GROWTH) == pytest.approx(0.001)
    assert extra_cost(0, 2, GROWTH) == pytest.approx(0.001 * (50 * 10 * 0.05))
    assert extra_cost(0, 3, GROWTH) == pytest.approx(0.001 * (50 * 10 * 0.025) * (4 * 20 * 0.025))


def test_postponing_pays_where_it_hides_more_than_it_costs() -> None:
    # Hidden: min(0.1, 0.02), min(0.05, 0.02), min(0.025, 0.02); extra: 0.001, 0.025, 0.025.
    assert hidden_latency(0, 3, 0.02, GROWTH) == pytest.approx(0.02)
    assert useful_postponements(0, 0.02, GROWTH) == (1,)
    # Hidden: 0.1, 0.05 and 0.025; a partial match costs half of it now.
    assert useful_postponements(0, 0.2, replace(GROWTH, seconds=0.0005)) == (1, 2, 3)
    assert useful_postponements(0, 0.0, GROWTH) == ()
    assert useful_postponements(3, 1.0, GROWTH) == ()


def test_a_class_without_partial_matches_costs_nothing_to_pass() -> None:
    growth = GrowthRates((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0)
    assert useful_postponements(0, 0.01, growth) == (2,)
    assert extra_cost(0, 2, growth) == 0.0


def test_decisions_are_kept_by_millisecond() -> None:
    growth = GrowthRates((100.0, 50.0), (5.0, 10.0), 0.0105)
    assert growth.later(0, 0.0101) == growth.later(0, 0.0109) == (1,)
    assert growth.later(0, 0.0099) == ()
