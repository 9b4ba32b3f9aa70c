"""Services that are slow, that die and come back, that say half or far too much."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_cep.errors import RemoteError
from spark_cep.remote import make_http_source, make_redis_source, make_sql_source
from spark_cep.udfs.sources.clients import TransientError
from tests.services.http_service import Asked, JsonService, Reply, running_http
from tests.services.process import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.postgres_service import Postgres
    from tests.services.redis_service import Redis

HUGE = "x" * (10 << 20)


class Within:
    """The time that a block may take, at most."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            assert time.monotonic() - self.started < self.seconds


def test_a_redis_that_answers_nothing_fails_in_passing_after_the_timeout(
    redis_server: Redis,
) -> None:
    redis_server.admin.set("a", "1")
    fetch = make_redis_source(redis_server.url, timeout=1).reading(pa.int64(), 1)
    assert fetch(["a"]) == {"a": 1}
    redis_server.service.hold()
    try:
        with Within(10), pytest.raises(TransientError, match="redis at"):
            fetch(["a"])
    finally:
        redis_server.service.release()
    assert fetch(["a"]) == {"a": 1}


def test_a_redis_that_died_and_came_back_is_used_again(redis_server: Redis) -> None:
    fetch = make_redis_source(redis_server.url).reading(pa.int64(), 1)
    assert fetch(["a"]) == {}
    redis_server.stop()
    try:
        with Within(10), pytest.raises(TransientError):
            fetch(["a"])
    finally:
        redis_server.start()
    redis_server.admin.set("a", "1")
    assert fetch(["a"]) == {"a": 1}


def test_a_service_that_is_not_there_fails_in_passing() -> None:
    where = f"127.0.0.1:{free_port()}"
    sources = [
        make_redis_source(f"redis://{where}"),
        make_sql_source(f"postgresql+psycopg://u@{where}/x", "t", key="a", value="b"),
        make_http_source(f"http://{where}/{{}}"),
    ]
    for source in sources:
        with Within(15), pytest.raises(TransientError, match=r"127\.0\.0\.1"):
            source.reading(pa.int64(), 1)(["a"])


def test_a_service_that_speaks_another_language_fails(json_service: JsonService) -> None:
    where = json_service.url.removeprefix("http://")
    sources = [
        make_redis_source(f"redis://{where}", timeout=1),
        make_sql_source(f"postgresql+psycopg://u@{where}/x", "t", key="a", value="b", timeout=1),
    ]
    for source in sources:
        with Within(10), pytest.raises((TransientError, RemoteError), match=r"127\.0\.0\.1"):
            source.reading(pa.int64(), 1)(["a"])


def test_a_postgres_that_died_and_came_back_is_used_again(postgres: Postgres) -> None:
    query = "SELECT k, 1 FROM (VALUES ('a')) t (k) WHERE k IN :keys"
    fetch = make_sql_source(postgres.url(), query=query).reading(pa.int64(), 1)
    assert fetch(["a"]) == {"a": 1}
    postgres.stop()
    try:
        with Within(15), pytest.raises(TransientError, match="sql at"):
            fetch(["a"])
    finally:
        postgres.start()
    assert fetch(["a"]) == {"a": 1}
    postgres.stop()
    postgres.start()
    # The pool's connections are dead, and nobody was told.
    assert fetch(["a"]) == {"a": 1}


def test_a_statement_that_takes_too_long_is_given_up(postgres: Postgres) -> None:
    query = "SELECT 'a', pg_sleep(20)::text WHERE 'a' IN :keys"
    fetch = make_sql_source(postgres.url(), query=query, timeout=0.3).reading(pa.string(), 1)
    with Within(15), pytest.raises(TransientError, match="statement timeout"):
        fetch(["a"])


def test_a_locked_sqlite_fails_in_passing(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("CREATE TABLE t (a TEXT, b INT)")
    writer.execute("INSERT INTO t VALUES ('a', 1)")
    fetch = make_sql_source(f"sqlite:///{path}", "t", key="a", value="b", timeout=0.2).reading(
        pa.int64(), 1
    )
    writer.execute("BEGIN EXCLUSIVE")
    with Within(15), pytest.raises(TransientError, match="locked"):
        fetch(["a"])
    writer.execute("COMMIT")
    writer.close()
    assert fetch(["a"]) == {"a": 1}


def test_a_slow_http_service_fails_in_passing_after_the_timeout(json_service: JsonService) -> None:
    def slow(asked: Asked) -> Reply:
        time.sleep(6)
        return Reply(1)

    json_service.answer = slow
    fetch = make_http_source(f"{json_service.url}/{{}}", timeout=0.2, concurrency=2).reading(
        pa.int64(), 1
    )
    with Within(5), pytest.raises(TransientError):
        fetch(["a", "b", "c", "d"])


def test_an_http_service_that_was_down_is_used_again() -> None:
    with running_http() as service:
        service.answer = lambda asked: Reply(1)
        fetch = make_http_source(f"{service.url}/{{}}").reading(pa.int64(), 1)
        assert fetch(["a"]) == {"a": 1}
    with pytest.raises(TransientError):
        fetch(["a"])


def test_values_of_ten_megabytes(
    redis_server: Redis, postgres: Postgres, json_service: JsonService
) -> None:
    redis_server.admin.set("a", HUGE)
    json_service.answer = lambda asked: Reply(HUGE)
    query = f"SELECT k, repeat('x', {len(HUGE)}) FROM (VALUES ('a')) t (k) WHERE k IN :keys"
    for source in (
        make_redis_source(redis_server.url),
        make_sql_source(postgres.url(), query=query),
        make_http_source(f"{json_service.url}/{{}}"),
    ):
        assert source.reading(pa.string(), 1)(["a"]) == {"a": HUGE}


def test_an_error_tells_of_a_value_only_what_it_is(redis_server: Redis) -> None:
    redis_server.admin.set("a", HUGE)
    found = make_redis_source(redis_server.url).reading(pa.int64(), 1)(["a"])
    assert isinstance(found["a"], RemoteError)
    assert "is not a bigint, but a text of 10485760 characters" in found["a"].message
    assert "xxx" not in found["a"].message


def test_half_the_keys_and_each_of_them_twice(
    redis_server: Redis, postgres: Postgres, json_service: JsonService
) -> None:
    keys = [str(key) for key in range(40)]
    even = {key: int(key) for key in keys if int(key) % 2 == 0}
    redis_server.admin.mset({f"k:{key}": value for key, value in even.items()})
    values = ", ".join(f"('{key}', {value})" for key, value in even.items())
    query = f"SELECT k, v FROM (VALUES {values}) t (k, v) WHERE k IN :keys"
    json_service.answer = lambda asked: (
        Reply(even[asked.key]) if asked.key in even else Reply(status=404)
    )
    for source in (
        make_redis_source(redis_server.url, "k:{}"),
        make_sql_source(postgres.url(), query=query),
        make_http_source(f"{json_service.url}/{{}}"),
    ):
        assert source.reading(pa.int64(), 1)(keys * 2) == even
