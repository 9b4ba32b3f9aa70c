"""Secrets are read where they are needed, and stay there."""

from __future__ import annotations

import logging
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_cep.errors import PatternError, RemoteError
from spark_cep.remote import make_http_source, make_redis_source, make_sql_source
from spark_cep.udfs.sources.clients import TransientError
from spark_cep.udfs.sources.secrets import hide_secrets, scrub_secrets
from tests.services.http_service import Reply
from tests.services.postgres_service import OWNER, PASSWORD, Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.services.http_service import JsonService

from tests.services.redis_service import Redis, running_redis

SECRET = "hunter2/@ \"x'%"


@pytest.fixture(scope="module")
def locked_redis() -> Iterator[Redis]:
    with running_redis(SECRET) as server:
        server.admin.set("a", "1")
        yield server


def texts_of(error: BaseException) -> str:
    """All that could be read of an error anywhere, pickled and in its chain included."""
    chain, current = [], error
    while current is not None:
        back = pickle.loads(pickle.dumps(current))
        chain += [str(current), repr(current), str(back), repr(pickle.dumps(current))]
        current = current.__cause__ or current.__context__
    return "\n".join(chain)


def assert_hidden(text: str, secret: str = SECRET) -> None:
    from urllib.parse import quote

    for form in (secret, quote(secret, safe=""), repr(secret)[1:-1]):
        assert form not in text


@pytest.mark.parametrize(
    "given",
    ["literal", "environment", "function"],
)
def test_redis_takes_its_password_in_each_way(
    locked_redis: Redis, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEP_TEST_PASSWORD", SECRET)
    password: Any = {
        "literal": SECRET,
        "environment": "${CEP_TEST_PASSWORD}",
        "function": lambda: SECRET,
    }[given]
    assert make_redis_source(locked_redis.url, password=password).reading(pa.int64(), 1)(["a"]) == {
        "a": 1
    }


def test_a_variable_in_a_url_is_quoted_there(
    locked_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEP_TEST_PASSWORD", SECRET)
    url = locked_redis.url.replace("://", "://:${CEP_TEST_PASSWORD}@")
    assert make_redis_source(url).reading(pa.int64(), 1)(["a"]) == {"a": 1}
    monkeypatch.setenv("CEP_TEST_URL", locked_redis.url)
    whole = make_redis_source("${CEP_TEST_URL}", password=SECRET)
    assert whole.reading(pa.int64(), 1)(["a"]) == {"a": 1}
    assert repr(whole) == "redis at ${CEP_TEST_URL}, key {}"


@pytest.mark.parametrize("password", [None, "wrong " + SECRET])
def test_a_password_that_redis_refuses_is_final_and_not_shown(
    locked_redis: Redis, password: str | None
) -> None:
    fetch = make_redis_source(locked_redis.url, password=password).reading(pa.int64(), 1)
    with pytest.raises(RemoteError, match="redis at redis://127") as found:
        fetch(["a"])
    assert "pass password=" in str(found.value)
    assert_hidden(texts_of(found.value), "wrong")
    assert_hidden(texts_of(found.value))


def test_a_password_that_changed_is_read_anew(locked_redis: Redis) -> None:
    given = ["wrong"]
    fetch = make_redis_source(locked_redis.url, password=lambda: given[0]).reading(pa.int64(), 1)
    with pytest.raises(RemoteError):
        fetch(["a"])
    given[0] = SECRET
    assert fetch(["a"]) == {"a": 1}


@pytest.mark.parametrize("user", [OWNER, "nobody"])
def test_a_login_that_postgres_refuses_is_final_and_not_shown(
    postgres: Postgres, user: str
) -> None:
    fetch = make_sql_source(postgres.url(user, SECRET), "t", key="a", value="b").reading(
        pa.int64(), 1
    )
    with pytest.raises(RemoteError, match=r"sql at postgresql\+psycopg://127.0.0.1") as found:
        fetch([1])
    assert "pass password=" in str(found.value)
    assert user in str(found.value)
    assert_hidden(texts_of(found.value))


def test_postgres_takes_the_password_apart_from_the_url(postgres: Postgres) -> None:
    url = postgres.url(password=None)
    query = "SELECT k, 1 FROM (VALUES ('a')) t (k) WHERE k IN :keys"
    fetch = make_sql_source(url, query=query, password=lambda: PASSWORD).reading(pa.int64(), 1)
    assert fetch(["a"]) == {"a": 1}


@pytest.mark.parametrize(
    ("library", "extra", "make"),
    [
        ("redis", "redis", lambda: make_redis_source("redis://x")),
        (
            "sqlalchemy",
            "sql",
            lambda: make_sql_source("postgresql+psycopg://x/y", "t", key="a", value="b"),
        ),
        ("httpx", "http", lambda: make_http_source("http://x/{}")),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    library: str, extra: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = make().reading(pa.int64(), 1)
    loaded = [name for name in sys.modules if name.partition(".")[0] == library]
    for name in [library, *loaded]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RemoteError, match="a library is missing in a worker") as found:
        fetch(["a"])
    assert f"pip install 'spark-cep[{extra}]'" in str(found.value)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PatternError, match=f"needs the library {library}") as refused:
        make()
    assert f"pip install 'spark-cep[{extra}]'" in str(refused.value)


def test_a_variable_that_a_worker_lacks_is_named() -> None:
    fetch = make_redis_source("redis://x", password="${CEP_TEST_NOT_SET}").reading(pa.int64(), 1)
    with pytest.raises(RemoteError, match="CEP_TEST_NOT_SET") as found:
        fetch(["a"])
    assert "spark.executorEnv.CEP_TEST_NOT_SET" in str(found.value)


def test_a_function_that_fails_shows_nothing_of_its_error() -> None:
    def failing() -> str:
        raise ValueError(SECRET)

    fetch = make_redis_source("redis://x", password=failing).reading(pa.int64(), 1)
    with pytest.raises(RemoteError, match="failed with ValueError") as found:
        fetch(["a"])
    assert_hidden(texts_of(found.value))


MADE: list[Callable[[], Any]] = [
    lambda: make_redis_source(f"redis://user:{SECRET}@127.0.0.1:1/0"),
    lambda: make_redis_source("redis://127.0.0.1:1/0", password=SECRET),
    lambda: make_sql_source(
        "postgresql+psycopg://u@127.0.0.1:1/x", "t", key="a", value="b", password=SECRET
    ),
    lambda: make_http_source(f"http://127.0.0.1:1/{{}}?token={SECRET}"),
    lambda: make_http_source(
        "http://127.0.0.1:1/{}", headers={"Authorization": f"Bearer {SECRET}"}
    ),
    lambda: make_http_source(f"http://user:{SECRET}@127.0.0.1:1/{{}}"),
    lambda: make_http_source("http://hunter2@127.0.0.1:1/{}", headers={"Authorization": SECRET}),
]


@pytest.mark.parametrize("make", MADE)
def test_neither_repr_nor_failure_shows_a_secret(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    source = make().reading(pa.int64(), 1)
    assert_hidden(repr(source) + str(source))
    with pytest.raises((RemoteError, TransientError)) as found:
        source(["a"])
    assert_hidden(texts_of(found.value))
    assert_hidden(caplog.text)
    assert_hidden(source.scrub(f"a text with {SECRET} in it"))


def test_a_token_in_a_url_is_not_logged(
    json_service: JsonService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CEP_TEST_TOKEN", SECRET)
    json_service.answer = lambda asked: Reply(1)
    fetch = make_http_source(f"{json_service.url}/{{}}?t=${{CEP_TEST_TOKEN}}").reading(
        pa.int64(), 1
    )
    assert fetch(["a"]) == {"a": 1}
    assert "HTTP Request" in caplog.text
    assert_hidden(caplog.text)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:p@host:1/0", "redis://host:1/0"),
        ("redis://:p/s@host:1", "redis://host:1"),
        ("redis://:p@ss@host:1", "redis://host:1"),
        ("redis://u:p?s@host", "redis://host"),
        ("https://host/a?x=1&token=t", "https://host/a"),
        ("https://host/a?x=@1&token=t", "https://1"),
        ("secret", "a URL"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert hide_secrets(url) == shown


def test_longer_secrets_go_before_those_inside_them() -> None:
    assert scrub_secrets("abcdef abc", ["abc", "abcdef"]) == "*** ***"
