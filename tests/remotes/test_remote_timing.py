"""When to fetch ahead and how long to postpone, on cases by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from spark_cep.udfs.remotes.postponing import Growth, develops_in, extra, hidden, succ
from spark_cep.udfs.remotes.timing import History, Timing, estimated_arrival, lookahead


def test_the_latest_class_that_holds_the_key_is_the_lookahead() -> None:
    assert lookahead(4, [0, 2, 4], History(), 0.0) == Timing(2)


def test_a_class_that_led_to_misses_is_passed_over_for_an_earlier_one() -> None:
    history = History(threshold=2)
    history.missed(2, 4, now=1.0)
    assert lookahead(4, [0, 2], history, 1.0) == Timing(2)
    history.missed(2, 4, now=1.5)
    assert lookahead(4, [0, 2], history, 2.0) == Timing(0)
    assert lookahead(3, [0, 2], history, 2.0) == Timing(2)  # misses of another class


def test_misses_are_forgotten_some_time_after_the_last() -> None:
    history = History(threshold=1, memory_s=5.0)
    history.missed(1, 2, now=0.0)
    assert lookahead(2, [1], history, 4.9) is None
    assert lookahead(2, [1], history, 5.0) == Timing(1)
    history.missed(1, 2, now=5.0)
    history.missed(1, 2, now=9.0)
    assert not history.suits(1, 2, 13.9)


def test_without_an_earlier_holder_there_is_no_lookahead() -> None:
    assert lookahead(2, [2, 3], History(), 0.0) is None


@pytest.mark.parametrize(
    ("rate", "latency", "offset"), [(1 / 0.3, 0.05, 0.25), (100.0, 0.05, 0.0), (0.0, 0.05, inf)]
)
def test_estimated_arrival_is_the_next_event_less_the_latency(
    rate: float, latency: float, offset: float
) -> None:
    assert estimated_arrival(3, rate, latency) == Timing(3, pytest.approx(offset))


# Classes 0 to 3. From class 0: to 1 at 10 per second, to 2 at 10, to 3 at 20.
GROWTH = Growth(counts=(100.0, 50.0, 4.0, 1.0), rates=(5.0, 10.0, 10.0, 20.0), seconds=0.001)


def test_classes_develop_in_the_time_of_a_compound_process() -> None:
    assert develops_in(0, 1, GROWTH.rates) == pytest.approx(0.1)
    assert develops_in(0, 2, GROWTH.rates) == pytest.approx(0.05)
    assert develops_in(0, 3, GROWTH.rates) == pytest.approx(0.025)
    assert develops_in(0, 1, (1.0, 0.0)) == inf


def test_equation_8_counts_the_classes_between() -> None:
    assert extra(0, 1, GROWTH) == pytest.approx(0.001)
    assert extra(0, 2, GROWTH) == pytest.approx(0.001 * (50 * 10 * 0.05))
    assert extra(0, 3, GROWTH) == pytest.approx(0.001 * (50 * 10 * 0.025) * (4 * 20 * 0.025))


def test_postponing_pays_where_it_hides_more_than_it_costs() -> None:
    # Hidden: min(0.1, 0.02), min(0.05, 0.02), min(0.025, 0.02); extra: 0.001, 0.025, 0.025.
    assert hidden(0, 3, 0.02, GROWTH) == pytest.approx(0.02)
    assert succ(0, 0.02, GROWTH) == (1,)
    # Hidden: 0.1, 0.05 and 0.025; a partial match costs half of it now.
    assert succ(0, 0.2, replace(GROWTH, seconds=0.0005)) == (1, 2, 3)
    assert succ(0, 0.0, GROWTH) == ()
    assert succ(3, 1.0, GROWTH) == ()


def test_a_class_without_partial_matches_costs_nothing_to_pass() -> None:
    growth = Growth((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0)
    assert succ(0, 0.01, growth) == (2,)
    assert extra(0, 2, growth) == 0.0


def test_decisions_are_kept_by_millisecond() -> None:
    growth = Growth((100.0, 50.0), (5.0, 10.0), 0.0105)
    assert growth.later(0, 0.0101) == growth.later(0, 0.0109) == (1,)
    assert growth.later(0, 0.0099) == ()
