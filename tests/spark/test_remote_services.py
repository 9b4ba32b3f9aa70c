"""Ready sources from end to end: real services, real workers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

import spark_cep as cep
from spark_cep import event, seq
from tests.services.http_service import Asked, JsonService, Reply
from tests.services.postgres_service import PASSWORD, Postgres
from tests.services.process import free_port
from tests.services.redis_service import Redis, running_redis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a"), event("b")).within(10)
TIMES = {"a": "a.ts", "b": "b.ts"}
LIMITS = {"o1": 25.0, "o2": 10.0}
PLACES = {"u1": ["paris", "rome"], "u2": ["rome"]}
RATES = {("o1", "paris"): 1.0, ("o1", "rome"): 3.0, ("o2", "rome"): 1.0}
Source = Callable[[str], cep.Remote]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """SELECT * FROM VALUES
        (1, 'u1', 'o1', 'paris', 20.0D), (2, 'u1', 'o1', 'rome', 30.0D),
        (4, 'u1', 'o1', 'oslo', 40.0D), (5, 'u2', 'o2', 'rome',  20.0D),
        (6, 'u2', NULL, 'paris', 20.0D), (7, 'u3', 'o1', 'rome',  90.0D)
        AS t(ts, user, org, loc, vol)"""
    )


@pytest.fixture
def in_redis(redis_server: Redis) -> Source:
    admin = redis_server.admin
    for (org, loc), rate in RATES.items():
        admin.set(f"rate:{org}:{loc}", rate)
    for org, most in LIMITS.items():
        admin.hset(f"limit:{org}", mapping={"max": most, "region": "eu"})
    for user, places in PLACES.items():
        admin.sadd(f"places:{user}", *places)
    keys = {"rates": "rate:{0}:{1}", "limits": "limit:{}", "places": "places:{}"}
    return lambda what: cep.Remote.redis(redis_server.url, keys[what], value_type=TYPES[what])


def tables(execute: Callable[[str], Any]) -> None:
    execute("DROP TABLE IF EXISTS rates")
    execute("DROP TABLE IF EXISTS limits")
    execute("DROP TABLE IF EXISTS places")
    execute("CREATE TABLE rates (org VARCHAR(9), loc VARCHAR(9), rate NUMERIC(4, 1))")
    execute("CREATE TABLE limits (org VARCHAR(9), max NUMERIC(8, 2), region VARCHAR(9))")
    execute("CREATE TABLE places (usr VARCHAR(9), place VARCHAR(9))")
    for (org, loc), rate in RATES.items():
        execute(f"INSERT INTO rates VALUES ('{org}', '{loc}', {rate})")
    for org, most in LIMITS.items():
        execute(f"INSERT INTO limits VALUES ('{org}', {most}, 'eu')")
    for user, places in PLACES.items():
        for place in places:
            execute(f"INSERT INTO places VALUES ('{user}', '{place}')")


def of_database(url: str, **options: Any) -> Source:
    columns: dict[str, dict[str, Any]] = {
        "rates": {"key": ["org", "loc"], "value": "rate"},
        "limits": {"key": "org"},
        "places": {"key": "usr", "value": "place", "many": True},
    }
    return lambda what: cep.Remote.sql(
        url, what, **columns[what], value_type=TYPES[what], **options
    )


@pytest.fixture
def in_postgres(postgres: Postgres) -> Source:
    tables(postgres.execute)
    return of_database(postgres.url(password=None), password=lambda: PASSWORD)


@pytest.fixture
def in_sqlite(tmp_path: Path) -> Source:
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    tables(connection.execute)
    connection.close()
    return of_database(f"sqlite:///{tmp_path}/t.db")


@pytest.fixture
def over_http(json_service: JsonService) -> Source:
    def answer(asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        what, key = unquote(parts.path).strip("/").split("/")
        if what == "rates":
            found: Any = RATES.get((key, parse_qs(parts.query)["loc"][0]))
        elif what == "limits":
            found = {"max": LIMITS[key], "region": "eu"} if key in LIMITS else None
        else:
            found = PLACES.get(key)
        return Reply(status=404) if found is None else Reply({"found": found})

    json_service.answer = answer
    url = json_service.url
    urls = {"rates": "/rates/{0}?loc={1}", "limits": "/limits/{}", "places": "/places/{}"}
    return lambda what: cep.Remote.http(url + urls[what], path="found", value_type=TYPES[what])


TYPES = {
    "rates": "double",
    "limits": "struct<max: double, region: string>",
    "places": "array<string>",
}


@pytest.mark.parametrize("where", ["in_redis", "in_postgres", "in_sqlite", "over_http"])
def test_each_ready_source_gives_the_expected_matches(
    rows: DataFrame, where: str, request: pytest.FixtureRequest
) -> None:
    source: Source = request.getfixturevalue(where)
    remotes = {what: source(what) for what in TYPES}
    over = PAIR.where("b.vol > remote('limits', a.org).max AND a.user = b.user")
    assert found(rows, over, remotes) == [(1, 2), (1, 4), (2, 4), (5, 6)]
    away = PAIR.where("b.loc NOT IN remote('places', a.user) AND a.org = b.org")
    assert found(rows, away, remotes) == [(1, 4), (2, 4)]
    rated = PAIR.where("b.vol > 25 * remote('rates', a.org, b.loc) AND a.org = b.org")
    assert found(rows, rated, remotes) == [(1, 7), (2, 7), (4, 7)]
    shown = found(rows, over, remotes, {"b": "b.ts", "max": "remote('limits', b.org).max"})
    assert shown == [(2, 25.0), (4, 25.0), (4, 25.0), (6, None)]


def found(
    rows: DataFrame, pattern: Any, remotes: dict[str, cep.Remote], measures: Any = None
) -> list[tuple[Any, ...]]:
    used = {name: one for name, one in remotes.items() if name in str(measures) + repr(pattern)}
    answer = rows.match_pattern(
        pattern, order_by="ts", remotes=used or remotes, measures=measures or TIMES
    )
    return sorted((tuple(row) for row in answer.collect()), key=str)


SECRET = "hunter2-of-the-test"


@pytest.fixture
def locked() -> Iterator[Redis]:
    with running_redis(SECRET) as server:
        server.admin.set("limit:o1", "25")
        yield server


def limited(rows: DataFrame, remote: cep.Remote) -> DataFrame:
    pattern = PAIR.where("b.vol > remote('limits', a.org)")
    return rows.match_pattern(pattern, order_by="ts", remotes={"limits": remote}, measures=TIMES)


def test_a_service_that_is_down_ends_the_query_and_nothing_is_half_written(
    rows: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"redis://reader:{SECRET}@127.0.0.1:{free_port()}/0"
    down = cep.Remote.redis(url, "limit:{}", value_type="double", retries=1, timeout=5)
    answer = limited(rows, down)
    with pytest.raises(Exception, match="RemoteError") as caught:
        answer.write.parquet(str(tmp_path / "out"))
    error = cep.error_of(caught.value)
    assert isinstance(error, cep.RemoteError)
    assert "remote 'limits'" in error.message
    assert "redis at redis://127.0.0.1" in error.message
    cep.explain(answer)
    answer.explain(True)
    assert SECRET not in str(caught.value) + capsys.readouterr().out
    assert not list((tmp_path / "out").rglob("*.parquet"))
    assert not list((tmp_path / "out").rglob("_SUCCESS"))


def test_a_service_that_is_down_is_null_if_asked(rows: DataFrame) -> None:
    url = f"http://127.0.0.1:{free_port()}/{{}}"
    down = cep.Remote.http(url, value_type="double", retries=0, on_error="null")
    assert limited(rows, down).collect() == []


def test_a_password_that_is_refused_is_said_and_not_shown(
    rows: DataFrame, locked: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    right = cep.Remote.redis(locked.url, "limit:{}", value_type="double", password=lambda: SECRET)
    answer = limited(rows, right)
    expected = [(1, 2), (1, 4), (1, 7), (2, 4), (2, 7), (4, 7)]
    assert sorted(tuple(row) for row in answer.collect()) == expected
    cep.explain(answer)
    answer.explain(True)
    assert SECRET not in capsys.readouterr().out + repr(right)
    wrong = f"{SECRET}-but-wrong"
    refused = cep.Remote.redis(locked.url, "limit:{}", value_type="double", password=wrong)
    with pytest.raises(Exception, match="RemoteError") as caught:
        limited(rows, refused).collect()
    error = cep.error_of(caught.value)
    assert error is not None
    assert "AuthenticationError" in error.message
    assert "pass password=" in str(error.hint)
    assert SECRET not in str(caught.value)


def test_a_source_that_does_not_fit_the_pattern_is_refused_before_any_job(rows: DataFrame) -> None:
    remote = cep.Remote.redis("redis://127.0.0.1", "limit:{0}:{1}", value_type="double")
    with pytest.raises(cep.PatternError, match="placeholders for 2 key parts"):
        limited(rows, remote)
