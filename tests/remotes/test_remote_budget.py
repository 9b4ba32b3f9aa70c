"""How much is fetched ahead in vain, and what is counted of keys and times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.remote_spec import FetchPolicy
from spark_cep.udfs.remotes.budget import PREFETCH_START, CoveredTime
from tests.remotes.simulated import Source, ids_of, looked_up

SLOW = FetchPolicy(batch=100, in_flight=4)


def read(lookup: Any, *keys: int) -> None:
    ids = ids_of(lookup, *keys)
    lookup.wait(ids)
    lookup.arrow(ids)
    lookup.settle()


@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0])
def test_a_flood_of_keys_that_nobody_needs_stays_within_the_budget(factor: float) -> None:
    source = Source(delay=0.05)
    lookup, clock = looked_up(source, strategy="hybrid", fetch_policy=SLOW, prefetch_budget=factor)
    for block in range(50):
        lookup.ask(ids_of(lookup, *range(1000 * block, 1000 * block + 400)), ahead=True)
        read(lookup, -1 - block)
        clock.advance(0.001)
        needed = block + 1
        start = PREFETCH_START if factor > 1 else 0
        assert len(source.asked_for) <= factor * needed + start
    assert lookup.metrics.wasted == len(source.asked_for) - 50
    assert lookup.metrics.hidden_s == 0


def test_where_fetching_ahead_is_in_time_it_is_not_held_back() -> None:
    source = Source(delay=0.05)
    lookup, clock = looked_up(source, strategy="prefetch", fetch_policy=SLOW)
    for block in range(30):
        read(lookup, *range(64 * block, 64 * block + 64))
        lookup.ask(ids_of(lookup, *range(64 * block + 64, 64 * block + 128)), ahead=True)
        clock.advance(0.06)
    # After some blocks each finds all of its values.
    assert lookup.metrics.prefetched_used > 24 * 64
    assert lookup.metrics.waited_s <= 6 * 0.05
    assert len(source.asked_for) == len(set(source.asked_for))


def test_a_few_of_many_keys_are_not_worth_a_call() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="prefetch", fetch_policy=SLOW)
    lookup.ask(ids_of(lookup, *range(8)), ahead=True)
    for key in range(100, 120):
        read(lookup, key)  # each allows 0.3 keys more
        lookup.ask(ids_of(lookup, *range(200, 300)), ahead=True)
        clock.advance(1)
    assert len(source.calls) == 1 + 20
    lookup.ask(ids_of(lookup, 300), ahead=True)
    clock.advance(1)
    assert source.calls[-1] == [300]


def test_what_is_most_useful_is_fetched_ahead_first() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="prefetch", fetch_policy=SLOW)
    ids = ids_of(lookup, *range(20))
    lookup.needed(ids, np.arange(20), 0)
    lookup.ask(ids, ahead=True)
    clock.advance(1)
    assert sorted(source.asked_for) == list(range(20 - PREFETCH_START, 20))


def test_keys_are_counted_at_the_source_as_used_or_wasted() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="hybrid", fetch_policy=SLOW)
    lookup.ask(ids_of(lookup, 1, 2, 3, 4), ahead=True)
    lookup.ask(ids_of(lookup, 5, 6))
    clock.advance(1)
    read(lookup, 1, 5)
    read(lookup, 1, 5)
    counted = lookup.metrics.to_dict()
    assert (counted["calls"], counted["keys"]) == (2, 6)
    assert (counted["used"], counted["wasted"]) == (2, 4)


def test_hidden_and_waited_time_are_no_more_than_the_time_that_passed() -> None:
    source = Source(delay=0.05)
    policy = FetchPolicy(batch=1, in_flight=100)
    lookup, clock = looked_up(source, strategy="lazy", fetch_policy=policy)
    ids = ids_of(lookup, *range(100))
    lookup.ask(ids)
    clock.advance(0.02)
    read(lookup, *range(100))
    assert lookup.metrics.hidden_s == pytest.approx(0.02)
    assert lookup.metrics.waited_s == pytest.approx(0.03)
    assert lookup.metrics.hidden_s + lookup.metrics.waited_s <= clock.time + 1e-9


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30)


@given(SPANS)
def test_covered_time_is_that_of_the_union(spans: list[tuple[int, int]]) -> None:
    covered, seen = CoveredTime(), set()
    for start, end in spans:
        ticks = set(range(start, end))
        assert covered.add(float(start), float(end)) == len(ticks - seen)
        seen |= ticks


def test_many_spans_apart_are_kept_in_little_and_never_counted_twice() -> None:
    covered = CoveredTime()
    total = sum(covered.add(2.0 * n, 2.0 * n + 1) for n in range(5000))
    assert total == 5000
    assert len(covered._starts) <= 1024
    assert covered.add(0.0, 10_000.0) <= 5000
