"""A lookup as the engine sees it: strategies, the cache, garbage, wholes, metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.expressions import BIGINT, DOUBLE, Type
from spark_cep.udfs.remote_spec import Caching, FetchPolicy, LookupMetrics, RemoteSpec
from spark_cep.udfs.remotes import lookup as lookup_room
from spark_cep.udfs.remotes.lookup import Lookup
from spark_cep.udfs.remotes.store import SPARED_SETTLES
from spark_cep.udfs.values.vectors import EventColumns, Vector
from tests.remotes.simulated import Simulated, Source, ids_of, looked_up

NO_COLUMNS = cast("EventColumns", None)
EIGHT_BYTES = 8


def evaluate(lookup: Lookup, *keys: int | None) -> list[Any]:
    """A block: wait, read, settle."""
    ids = ids_of(lookup, *keys)
    lookup.wait(ids)
    found = lookup.arrow(ids).to_pylist()
    lookup.settle()
    return cast("list[Any]", found)


def caching(elements: int, policy: Any = "lru") -> Caching:
    return Caching(policy, elements * EIGHT_BYTES)


@pytest.mark.parametrize(
    ("strategy", "again", "ahead"),
    [
        ("blocking", True, False),
        ("cached", False, False),
        ("post", False, False),
        ("prefetch", False, True),
        ("lazy", False, False),
        ("hybrid", False, True),
    ],
)
def test_a_strategy_changes_what_is_fetched_and_never_the_values(
    strategy: str, again: bool, ahead: bool
) -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy=strategy)
    assert evaluate(lookup, 1, 2, None) == [10, 20, None]
    assert evaluate(lookup, 2, 1) == [20, 10]
    assert source.asked_for == ([1, 2, 2, 1] if again else [1, 2]) or sorted(source.asked_for) == [
        1,
        1,
        2,
        2,
    ]
    assert (len(source.asked_for) == 4) == again
    lookup.ask(ids_of(lookup, 3), ahead=True)
    clock.advance(1)
    assert (3 in source.asked_for) == ahead
    assert evaluate(lookup, 3) == [30]


def test_null_keys_are_ready_at_once_and_never_fetched() -> None:
    source = Source()
    lookup, _ = looked_up(source)
    ids = ids_of(lookup, None, None)
    assert lookup.ready(ids).all()
    assert evaluate(lookup, None) == [None]
    assert lookup.vector(ids, (), BIGINT, NO_COLUMNS).valid is not None
    assert source.calls == []


def test_a_key_that_is_left_out_is_null_and_known_to_be() -> None:
    source = Source({1: 10})
    lookup, _ = looked_up(source)
    assert evaluate(lookup, 1, 2) == [10, None]
    assert evaluate(lookup, 2) == [None]
    assert source.asked_for == [1, 2]


def test_keys_that_nobody_asked_for_are_counted_and_not_kept() -> None:
    source = Source()
    source.answers = [lambda keys: {1: 10, 7: 70, "x": "y"}]
    lookup, _ = looked_up(source)
    assert evaluate(lookup, 1) == [10]
    assert lookup.metrics.unasked == 2
    assert evaluate(lookup, 7) == [70]
    assert source.asked_for == [1, 7]


def test_reading_what_is_not_ready_is_an_error_and_never_null() -> None:
    lookup, _ = looked_up(Source())
    with pytest.raises(RuntimeError, match="before it is ready"):
        lookup.vector(ids_of(lookup, 1), (), BIGINT, NO_COLUMNS)


def test_garbage_ends_the_query_naming_remote_key_and_type() -> None:
    source = Source({1: 10, 2: "s3cret", 3: 30})
    lookup, _ = looked_up(source)
    with pytest.raises(
        RemoteError, match=r"'limits' returned for key 2 str instead of int64"
    ) as it:
        lookup.wait(ids_of(lookup, 1, 2, 3))
    assert "s3cret" not in str(it.value)
    assert evaluate(lookup, 1, 3) == [10, 30]


def test_a_value_that_is_an_error_fails_its_key_in_its_own_words() -> None:
    class ReadyMade(Source):
        def scrub(self, text: str) -> str:
            return text

    error = RemoteError("two rows for one key", hint="make them unique")
    lookup, _ = looked_up(ReadyMade({1: 10, 2: error}))
    with pytest.raises(RemoteError, match=r"^remote .limits.: two rows") as caught:
        lookup.wait(ids_of(lookup, 1, 2))
    assert caught.value.hint == "make them unique"
    assert evaluate(lookup, 1) == [10]
    lookup, _ = looked_up(Source({1: 10, 2: error}))
    with pytest.raises(RemoteError, match="for key 2 RemoteError instead of int64"):
        lookup.wait(ids_of(lookup, 1, 2))


def test_ids_that_nobody_has_asked_for_are_not_ready() -> None:
    lookup, _ = looked_up(Source())
    assert not lookup.ready(ids_of(lookup, *range(1000))).any()


def test_garbage_is_null_where_failures_are() -> None:
    source = Source({1: 10, 2: "garbage", 3: 2**70})
    lookup, _ = looked_up(source, on_error="null")
    assert evaluate(lookup, 1, 2, 3) == [10, None, None]
    assert lookup.metrics.failures == 2


def test_nan_and_negative_zero_are_found_in_answers() -> None:
    source = Source()
    source.answers = [lambda keys: {float("nan"): 1, -0.0: 2}]
    lookup, _ = looked_up(source, keys=(pa.float64(),))
    ids = lookup.ids([pa.array([float("nan"), 0.0, -0.0])])
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [1, 2, 2]


def test_composite_keys_reach_the_source_as_tuples() -> None:
    source = Source({(1, "a"): 5})
    lookup, _ = looked_up(source, keys=(pa.int64(), pa.string()))
    ids = lookup.ids([pa.array([1, 1, None]), pa.array(["a", "b", "a"])])
    lookup.wait(ids)
    assert source.calls == [[(1, "a"), (1, "b")]]
    assert lookup.arrow(ids).to_pylist() == [5, None, None]


def test_the_engine_gets_typed_vectors_and_membership() -> None:
    value = pa.struct([("max", pa.float64()), ("tags", pa.list_(pa.string()))])
    source = Source({1: {"max": 2, "tags": ["a", None]}, 2: {"max": None, "tags": ["b"]}})
    lookup, _ = looked_up(source, value=value)
    ids = ids_of(lookup, 1, 2, 3, None)
    lookup.wait(ids)
    numbers = lookup.vector(ids, ("max",), DOUBLE, NO_COLUMNS)
    assert numbers.values.dtype == np.float64
    assert numbers.valid is not None
    assert numbers.valid.tolist() == [True, False, False, False]
    whole = lookup.vector(ids, (), Type("other"), NO_COLUMNS)
    assert whole.valid is not None
    assert whole.valid.tolist() == [True, True, False, False]
    words = Vector(np.array(["b", "b", "b", "b"], object))
    found = lookup.member(ids, ("tags",), words, Type("string"), NO_COLUMNS)
    assert found.valid is not None
    assert [bool(f) if v else None for f, v in zip(found.values, found.valid, strict=True)] == [
        None, True, None, None,
    ]  # fmt: skip


def test_membership_broadcasts_a_constant() -> None:
    lookup, _ = looked_up(Source({1: [1, 2], 2: [3]}), value=pa.list_(pa.int64()))
    ids = ids_of(lookup, 1, 2)
    lookup.wait(ids)
    found = lookup.member(ids, (), Vector(np.array(3)), BIGINT, NO_COLUMNS)
    assert found.values.tolist() == [False, True]
    pairs = lookup.member(ids[:, None], (), Vector(np.array([[1, 3, 4]])), BIGINT, NO_COLUMNS)
    assert pairs.values.tolist() == [[True, False, False], [False, True, False]]


def test_the_cache_is_brought_to_its_capacity_between_blocks_only() -> None:
    source = Source()
    lookup, _ = looked_up(source, caching=caching(2))
    ids = ids_of(lookup, 1, 2, 3, 4)
    lookup.wait(ids)
    lookup.ask(ids_of(lookup, 5))
    assert lookup.arrow(ids).to_pylist() == [10, 20, 30, 40]
    lookup.settle()
    assert lookup.ready(ids).sum() == 2
    assert lookup.metrics.evicted == 2
    assert lookup.metrics.bytes == 2 * EIGHT_BYTES
    assert evaluate(lookup, 1, 2, 3, 4) == [10, 20, 30, 40]


def test_lru_keeps_what_was_read_last() -> None:
    source = Source()
    lookup, _ = looked_up(source, caching=caching(2))
    for keys in ([1], [2], [1], [3]):
        evaluate(lookup, *keys)
    assert lookup.ready(ids_of(lookup, 1, 2, 3)).tolist() == [True, False, True]


def test_cost_keeps_what_many_partial_matches_need() -> None:
    source = Source()
    lookup, _ = looked_up(source, caching=caching(1, "cost"))
    ids = ids_of(lookup, 1, 2)
    lookup.needed(ids, np.array([5, 1]), 0)
    evaluate(lookup, 1, 2)
    assert lookup.ready(ids).tolist() == [True, False]


def test_cost_keeps_what_nobody_has_used_yet_but_needs() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="lazy", caching=caching(1, "cost"))
    lookup.needed(ids_of(lookup, 1), np.array([100]), 0)
    evaluate(lookup, 1)
    lookup.ask(ids_of(lookup, 2))
    clock.advance(1)
    lookup.settle()
    assert lookup.ready(ids_of(lookup, 1, 2)).tolist() == [False, True]


@pytest.mark.parametrize("policy", ["lru", "cost"])
def test_what_was_waited_for_outlives_some_blocks_until_it_is_read(policy: str) -> None:
    lookup, _ = looked_up(Source(), strategy="lazy", caching=caching(0, policy))
    first, both = ids_of(lookup, 1), ids_of(lookup, 1, 2)
    lookup.wait(first)
    for _ in range(3):
        lookup.settle()
    lookup.wait(both)
    lookup.settle()
    assert lookup.arrow(both).to_pylist() == [10, 20]
    lookup.settle()
    assert not lookup.ready(both).any()
    lookup.wait(first)
    for _ in range(SPARED_SETTLES + 1):
        lookup.settle()
    assert not lookup.ready(first).any()


@pytest.mark.parametrize("policy", ["lru", "cost"])
def test_a_value_larger_than_the_cache_is_used_and_then_not_kept(policy: str) -> None:
    source = Source({1: "x" * 10_000, 2: "y"})
    lookup, _ = looked_up(source, value=pa.string(), caching=Caching(cast("Any", policy), 100))
    assert evaluate(lookup, 1, 2) == ["x" * 10_000, "y"]
    assert lookup.ready(ids_of(lookup, 1, 2)).tolist() == [False, True]
    assert evaluate(lookup, 1) == ["x" * 10_000]


def test_in_a_full_cache_only_what_is_worth_more_is_fetched_ahead() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="prefetch", caching=caching(2, "cost"))
    kept, wanted = ids_of(lookup, 1, 2), ids_of(lookup, 3, 4)
    lookup.needed(kept, np.array([9, 5]), 0)
    lookup.ask(wanted[:0], ahead=True)
    lookup.wait(kept)
    lookup.arrow(kept)
    lookup.needed(wanted, np.array([5, 6]), 0)
    lookup.ask(wanted, ahead=True)
    clock.advance(1)
    assert source.asked_for == [1, 2, 4]


def test_with_room_left_everything_is_fetched_ahead() -> None:
    source = Source()
    lookup, clock = looked_up(source, strategy="prefetch")
    lookup.needed(ids_of(lookup, 1), np.array([9]), 0)
    evaluate(lookup, 1)
    lookup.ask(ids_of(lookup, 2, 3), ahead=True)
    clock.advance(1)
    assert lookup.ready(ids_of(lookup, 2, 3)).all()


def test_values_live_as_long_as_they_may_and_then_are_fetched_between_triggers() -> None:
    source = Source()
    lookup, clock = looked_up(source, ttl=10.0)
    evaluate(lookup, 1)
    clock.advance(8)
    evaluate(lookup, 2)
    clock.advance(5)
    lookup.settle()
    assert lookup.ready(ids_of(lookup, 1)).all()
    lookup.trigger()
    assert lookup.ready(ids_of(lookup, 1, 2)).tolist() == [False, True]


def test_without_a_time_to_live_values_stay_over_triggers() -> None:
    lookup, clock = looked_up(Source())
    evaluate(lookup, 1)
    clock.advance(1e6)
    lookup.trigger()
    assert lookup.ready(ids_of(lookup, 1)).all()


def test_keys_are_forgotten_when_a_stream_has_brought_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup_room, "LEAST_KEY_BYTES", 3)
    lookup, _ = looked_up(Source(), caching=caching(0))
    evaluate(lookup, 1, 2, 3, 4)
    lookup.trigger()
    assert not lookup.ready(ids_of(lookup, 4)).any()
    assert evaluate(lookup, 4, 1) == [40, 10]


def whole_of(key: int) -> int | None:
    return None if key < 0 else key // 10


def wholes(keys: list[int]) -> dict[int, Any]:
    return {key: {key * 10 + n: (key * 10 + n) * 100 for n in range(3)} for key in keys if key < 5}


def test_a_whole_serves_all_its_parts_also_those_asked_for_later() -> None:
    source = Source()
    source.answers = [wholes] * 9
    lookup, _ = looked_up(source, part_of=whole_of)
    assert evaluate(lookup, 10, 21) == [1000, 2100]
    assert evaluate(lookup, 12, 11, 19, None, -1) == [1200, 1100, None, None, None]
    assert evaluate(lookup, 55) == [None]
    assert source.calls == [[1, 2], [5]]


def test_a_whole_is_kept_or_evicted_as_one_and_its_needs_add_up() -> None:
    source = Source()
    source.answers = [wholes] * 9
    lookup, _ = looked_up(source, part_of=whole_of, caching=caching(3, "cost"))
    ids = ids_of(lookup, 10, 11, 12, 20)
    lookup.needed(ids, np.array([2, 2, 2, 5]), 0)
    evaluate(lookup, 10, 11, 12, 20)
    assert lookup.ready(ids).tolist() == [True, True, True, False]
    assert evaluate(lookup, 20, 22, 10) == [2000, 2200, 1000]


def test_garbage_in_a_whole_fails_the_whole() -> None:
    source = Source({1: {10: "x"}, 2: 7, 3: None})
    lookup, _ = looked_up(source, part_of=whole_of, on_error="null")
    assert evaluate(lookup, 10, 20, 30) == [None, None, None]
    assert lookup.metrics.failures == 2
    strict, _ = looked_up(source, part_of=whole_of)
    with pytest.raises(RemoteError, match="for key 10 str instead of int64"):
        strict.wait(ids_of(strict, 10))
    with pytest.raises(RemoteError, match="for key 2 int instead of a dict"):
        strict.wait(ids_of(strict, 20))


def test_a_part_that_comes_by_less_than_its_full_key_is_no_part() -> None:
    source = Source({1: {10: 100}})
    keys = (pa.int64(), pa.int64())
    lookup, _ = looked_up(source, keys=keys, part_of=lambda key: key[0])
    ids = lookup.ids([pa.array([1]), pa.array([10])])
    with pytest.raises(
        RemoteError, match="for key 1 a part whose key is not a tuple of 2"
    ) as caught:
        lookup.wait(ids)
    assert caught.value.hint == "return parts by their full keys, as part_of takes them"
    source.table = {1: {(1, 10): 100}}
    lookup.wait(ids)
    assert lookup.arrow(ids).to_pylist() == [100]


def test_a_part_of_that_fails_is_told_without_its_text() -> None:
    def broken(key: int) -> int:
        raise ValueError("s3cret")

    lookup, _ = looked_up(Source(), part_of=broken)
    with pytest.raises(RemoteError, match="part_of of remote 'limits' failed") as caught:
        lookup.wait(ids_of(lookup, 1))
    assert "s3cret" not in str(caught.value)


def test_hits_misses_and_the_accuracy_of_prefetching_are_counted() -> None:
    lookup, clock = looked_up(Source(), strategy="hybrid")
    lookup.ask(ids_of(lookup, 1, 2, 3), ahead=True)
    clock.advance(1)
    evaluate(lookup, 1, 1, 2)
    evaluate(lookup, 1, 4)
    metrics = lookup.metrics
    assert (metrics.prefetched, metrics.prefetched_used) == (3, 2)
    assert (metrics.hits, metrics.misses) == (3, 1)


def test_time_is_hidden_where_matching_went_on_and_waited_where_not() -> None:
    lookup, clock = looked_up(Source(delay=0.05))
    lookup.ask(ids_of(lookup, 1))
    clock.advance(0.03)
    evaluate(lookup, 1)
    assert lookup.metrics.hidden_s == pytest.approx(0.03)
    assert lookup.metrics.waited_s == pytest.approx(0.02)
    lookup.ask(ids_of(lookup, 2))
    clock.advance(10)
    evaluate(lookup, 2)
    assert lookup.metrics.hidden_s == pytest.approx(0.03 + 0.05)
    assert lookup.metrics.waited_s == pytest.approx(0.02)
    assert lookup.latency == pytest.approx(0.05)


def test_the_latency_follows_what_is_measured() -> None:
    source = Source(delay=0.1)
    lookup, _ = looked_up(source)
    evaluate(lookup, 1)
    source.delay = 0.2
    evaluate(lookup, 2)
    assert lookup.latency == pytest.approx(0.12)


def test_metrics_add_up_and_survive_json() -> None:
    metrics = LookupMetrics(calls=1, waited_s=0.5, bytes=10)
    metrics.add(LookupMetrics(calls=2, waited_s=0.25, bytes=7))
    assert LookupMetrics.from_dict(metrics.to_dict()) == metrics
    assert (metrics.calls, metrics.waited_s, metrics.bytes) == (3, 0.75, 10)
    assert LookupMetrics.from_dict({"hits": 3, "unknown": 1}).hits == 3
    assert metrics.take().calls == 3
    assert metrics == LookupMetrics()


def test_a_local_source_answers_in_the_call_without_threads() -> None:
    source = Source({1: 10})
    remote = RemoteSpec(
        "table", source, (pa.int64(),), pa.int64(), is_local=True, strategy="hybrid"
    )
    lookup = Lookup(remote)
    assert not remote.prefetches
    ids = ids_of(lookup, 1, 2)
    lookup.ask(ids)
    assert lookup.ready(ids).all()
    assert evaluate(lookup, 1, 2) == [10, None]
    assert lookup.latency == pytest.approx(0.0, abs=0.05)
    broken = Lookup(replace(remote, fetch=wholes_that_fail))
    with pytest.raises(RemoteError, match="remote 'table' failed: KeyError"):
        broken.wait(ids_of(broken, 1))


def wholes_that_fail(keys: list[Any]) -> dict[Any, Any]:
    raise KeyError(keys[0])


def test_small_values_and_many_blocks_stay_within_the_capacity() -> None:
    source = Source(delay=0.001)
    lookup, clock = looked_up(
        source, caching=caching(10), fetch_policy=FetchPolicy(batch=7), strategy="lazy"
    )
    generator = np.random.default_rng(1)
    for _ in range(60):
        keys = generator.integers(0, 50, 20).tolist()
        assert evaluate(lookup, *keys) == [key * 10 for key in keys]
        assert lookup._states.bytes <= 10 * EIGHT_BYTES
        assert lookup._values.store.rows <= 50
    assert isinstance(lookup._fetcher, Simulated)
    assert clock.trying.is_idle
