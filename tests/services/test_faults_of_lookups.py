"""What a query notices of services that fail: the lookups of a worker over real services."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.errors import RemoteError
from spark_cep.remote import make_http_source, make_redis_source, make_sql_source
from spark_cep.udfs.remote_spec import Caching, FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes.lookup import Lookup
from tests.services.http_service import Asked, JsonService, Reply

if TYPE_CHECKING:
    from tests.services.postgres_service import Postgres
    from tests.services.redis_service import Redis

STRATEGIES = ["blocking", "cached", "post", "prefetch", "lazy", "hybrid"]
PATIENT = FetchPolicy(timeout=1.0, retries=8, backoff=0.05, failures=100, batch=7)
HASTY = FetchPolicy(timeout=2.0, retries=1, backoff=0.01, batch=7)


@contextmanager
def lookup(fetch: Any, value: pa.DataType = pa.int64(), **options: Any) -> Iterator[Lookup]:  # noqa: B008
    remote = RemoteSpec(
        "limits", fetch.reading(value, 1), (pa.string(),), value,
        **({"fetch_policy": PATIENT} | options),
    )  # fmt: skip
    made = Lookup(remote)
    try:
        yield made
    finally:
        made.close()


def values(made: Lookup, keys: list[str | None]) -> list[Any]:
    ids = made.ids([pa.array(keys, pa.string())])
    made.wait(ids)
    found = made.arrow(ids).to_pylist()
    made.settle()
    return list(found)


def later(seconds: float, *steps: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        time.sleep(seconds)
        for step in steps:
            step()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def filled(server: Redis, count: int = 50) -> list[str]:
    keys = [str(key) for key in range(count)]
    server.admin.mset({key: key for key in keys})
    return keys


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_redis_that_dies_and_comes_back_in_mid_query_costs_time_only(
    redis_server: Redis, strategy: Any
) -> None:
    keys = filled(redis_server)
    with lookup(make_redis_source(redis_server.url, timeout=0.5), strategy=strategy) as made:
        assert values(made, keys[:10]) == list(range(10))
        redis_server.stop()
        back = later(0.4, redis_server.start)
        try:
            assert values(made, [*keys[10:], None, keys[0]]) == [*range(10, 50), None, 0]
        finally:
            back.join()


def test_a_redis_that_is_held_still_for_a_while_costs_time_only(redis_server: Redis) -> None:
    keys = filled(redis_server)
    with lookup(make_redis_source(redis_server.url, timeout=0.3)) as made:
        assert values(made, keys[:5]) == list(range(5))
        redis_server.service.hold()
        back = later(0.8, redis_server.service.release)
        try:
            assert values(made, keys[5:]) == list(range(5, 50))
        finally:
            back.join()


def test_a_postgres_that_dies_and_comes_back_in_mid_query_costs_time_only(
    postgres: Postgres,
) -> None:
    query = "SELECT k, length(k) FROM (VALUES ('a'), ('bb')) t (k) WHERE k IN :keys"
    with lookup(make_sql_source(postgres.url(), query=query, timeout=3)) as made:
        assert values(made, ["a", "c"]) == [1, None]
        postgres.stop()
        back = later(0.3, postgres.start)
        try:
            assert values(made, ["bb"]) == [2]
        finally:
            back.join()


def test_a_postgres_that_is_held_still_does_not_hold_the_query(postgres: Postgres) -> None:
    query = "SELECT k, length(k) FROM (VALUES ('a'), ('bb')) t (k) WHERE k IN :keys"
    with lookup(make_sql_source(postgres.url(), query=query), fetch_policy=HASTY) as made:
        assert values(made, ["a"]) == [1]
        postgres.service.hold()
        try:
            started = time.monotonic()
            with pytest.raises(RemoteError, match="no answer within"):
                values(made, ["bb"])
            assert time.monotonic() - started < 20
        finally:
            postgres.service.release()
        assert values(made, ["bb"]) == [2]


@pytest.mark.parametrize("on_error", ["fail", "null"])
def test_a_service_that_stays_away_ends_the_query_or_is_null(
    redis_server: Redis, on_error: Any
) -> None:
    keys = filled(redis_server, 10)
    source = make_redis_source(redis_server.url, timeout=0.3)
    with lookup(source, fetch_policy=HASTY, on_error=on_error) as made:
        assert values(made, keys[:3]) == [0, 1, 2]
        redis_server.stop()
        try:
            if on_error == "null":
                assert values(made, keys) == [0, 1, 2, *[None] * 7]
            else:
                with pytest.raises(RemoteError, match=r"remote 'limits' .*redis at redis://127"):
                    values(made, keys)
        finally:
            redis_server.start()


def test_garbage_for_one_key_is_the_failure_of_that_key_only(redis_server: Redis) -> None:
    keys = filled(redis_server, 5)
    redis_server.admin.set("3", "three")
    with lookup(make_redis_source(redis_server.url), strategy="hybrid") as made:
        made.ask(made.ids([pa.array(keys)]))
        assert values(made, ["0", "1", "2", "4"]) == [0, 1, 2, 4]
        with pytest.raises(RemoteError, match="the value of '3' is not a bigint") as found:
            values(made, keys)
        assert "three" not in str(found.value)
    with lookup(make_redis_source(redis_server.url), on_error="null") as made:
        assert values(made, keys) == [0, 1, 2, None, 4]


def test_a_wrong_password_is_tried_once_and_not_shown(postgres: Postgres) -> None:
    source = make_sql_source(postgres.url(password="hunter2"), "t", key="a", value="b")
    with lookup(source, show_errors=True) as made:
        with pytest.raises(RemoteError, match="password authentication failed") as found:
            values(made, ["a"])
        assert made.metrics.calls == 1
    text = str(found.value) + repr(found.value.details)
    assert "hunter2" not in text
    assert "pass password=" in text


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("capacity", [0, 1 << 10, 64 << 20])
def test_half_the_keys_in_any_order_are_the_same_in_each_strategy(
    redis_server: Redis, strategy: Any, capacity: int
) -> None:
    redis_server.admin.mset({str(key): key for key in range(0, 60, 2)})
    keys = [str(key) for key in np.random.default_rng(1).integers(0, 60, 300)]
    expected = [int(key) if int(key) % 2 == 0 else None for key in keys]
    caching = Caching(capacity=capacity)
    with lookup(make_redis_source(redis_server.url), strategy=strategy, caching=caching) as made:
        found = [one for at in range(0, 300, 20) for one in values(made, keys[at : at + 20])]
    assert found == expected


def test_huge_values_pass_through_a_small_cache(redis_server: Redis) -> None:
    texts = {str(key): str(key) * (10 << 20) for key in range(3)}
    redis_server.admin.mset(texts)
    caching = Caching(capacity=1 << 20)
    with lookup(make_redis_source(redis_server.url), pa.string(), caching=caching) as made:
        for _ in range(2):
            for key, text in texts.items():
                assert values(made, [key]) == [text]
        assert made.metrics.evicted >= 5


def test_a_service_that_fails_now_and_then_answers_in_the_end(json_service: JsonService) -> None:
    rng = np.random.default_rng(7)

    def answer(asked: Asked) -> Reply:
        luck = rng.random()
        if luck < 0.1:
            return Reply(status=503)
        if luck < 0.2:
            return Reply(b"{", headers={"Content-Length": "9"})
        if luck < 0.3:
            return Reply(b"<html>")
        return Reply(int(asked.key)) if int(asked.key) % 3 else Reply(status=404)

    json_service.answer = answer
    source = make_http_source(f"{json_service.url}/{{}}", timeout=2)
    with lookup(source) as made:
        keys = [str(key) for key in range(60)]
        assert values(made, keys) == [key if key % 3 else None for key in range(60)]
