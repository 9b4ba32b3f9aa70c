"""Remote.redis against a real server."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_cep.errors import PatternError, RemoteError
from spark_cep.remote import make_redis_source

if TYPE_CHECKING:
    from spark_cep.udfs.sources.redis_source import RedisSource
    from tests.services.redis_service import Redis


def source(server: Redis, value: pa.DataType, parts: int = 1, **options: Any) -> RedisSource:
    return make_redis_source(server.url, **options).reading(value, parts)


def failure(value: object) -> RemoteError:
    """The failure of one key, which stands in place of its value."""
    assert isinstance(value, RemoteError)
    return value


def test_texts_become_values_of_the_type_and_missing_keys_are_left_out(
    redis_server: Redis,
) -> None:
    redis_server.admin.mset({"limit:a": "1.5", "limit:b": "7"})
    fetch = source(redis_server, pa.float64(), key="limit:{}")
    assert fetch(["a", "b", "c"]) == {"a": 1.5, "b": 7.0}


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.int32(), "-7", -7),
        (pa.string(), "Zürich", "Zürich"),
        (pa.string(), "", ""),
        (pa.binary(), b"\xff\x00", b"\xff\x00"),
        (pa.bool_(), "true", True),
        (pa.decimal128(6, 2), "1234.5", Decimal("1234.50")),
        (pa.timestamp("us", "UTC"), "2024-01-31T10:00:00+02:00",
         datetime(2024, 1, 31, 8, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_each_type_is_read_from_its_text(
    redis_server: Redis, type_: pa.DataType, text: str | bytes, value: object
) -> None:
    redis_server.admin.set("k", text)
    found = source(redis_server, type_)(["k"])
    assert found == {"k": value}
    pa.array([found["k"]], type_)


def test_composite_keys_are_tuples_in_and_out(redis_server: Redis) -> None:
    redis_server.admin.set("eu:7", "1")
    fetch = source(redis_server, pa.int64(), 2, key="{0}:{1}")
    assert fetch([("eu", 7), ("us", 7)]) == {("eu", 7): 1}


def test_fields_of_one_hash(redis_server: Redis) -> None:
    redis_server.admin.hset("limits", mapping={"a": "1", "b": "2"})
    fetch = source(redis_server, pa.int64(), hash="limits")
    assert fetch(["b", "c", "a"]) == {"a": 1, "b": 2}


def test_a_hash_a_key_is_a_struct(redis_server: Redis) -> None:
    redis_server.admin.hset("org:a", mapping={"max": "9.5", "region": "eu", "other": "x"})
    redis_server.admin.hset("org:b", mapping={"region": "us"})
    type_ = pa.struct([("max", pa.float64()), ("region", pa.string())])
    fetch = source(redis_server, type_, key="org:{}")
    assert fetch(["a", "b", "c"]) == {
        "a": {"max": 9.5, "region": "eu"},
        "b": {"max": None, "region": "us"},
    }


def test_sets_and_lists_are_arrays(redis_server: Redis) -> None:
    redis_server.admin.sadd("places:u", "home", "work")
    redis_server.admin.rpush("path:u", "3", "1", "3")
    places = source(redis_server, pa.list_(pa.string()), key="places:{}")
    assert places(["u", "v"]) == {"u": ["home", "work"]}
    path = source(redis_server, pa.list_(pa.int64()), key="path:{}", kind="list")
    assert path(["u", "v"]) == {"u": [3, 1, 3]}


def test_json_texts_hold_any_type(redis_server: Redis) -> None:
    redis_server.admin.set("a", '{"max": 1.10, "tags": ["x", null]}')
    redis_server.admin.set("b", "null")
    type_ = pa.struct([("max", pa.decimal128(5, 2)), ("tags", pa.list_(pa.string()))])
    fetch = source(redis_server, type_, kind="json")
    assert fetch(["a", "b"]) == {"a": {"max": Decimal("1.10"), "tags": ["x", None]}}


@pytest.mark.parametrize(
    ("text", "type_"),
    [("abc", pa.float64()), ("1.5", pa.int64()), ("300", pa.int8()), ("1_0", pa.float64()),
     ("", pa.int64()), (b"\xff", pa.string())],
)  # fmt: skip
def test_garbage_is_an_error_that_names_key_and_type(
    redis_server: Redis, text: str | bytes, type_: pa.DataType
) -> None:
    redis_server.admin.set("limit:a", text)
    redis_server.admin.set("limit:b", "1")
    found = source(redis_server, type_, key="limit:{}")(["a", "b"])
    assert "the value of 'limit:a' is not " in failure(found["a"]).message
    assert not isinstance(found["b"], RemoteError)


def test_a_key_of_another_kind_is_an_error_and_not_a_missing_value(redis_server: Redis) -> None:
    redis_server.admin.sadd("a", "x")
    redis_server.admin.set("b", "x")
    found = source(redis_server, pa.string())(["b", "a", "c"])
    assert found["b"] == "x"
    assert "'a' is read as a string, and it is a set" in failure(found["a"]).message
    found = source(redis_server, pa.list_(pa.string()))(["a", "b"])
    assert found["a"] == ["x"]
    assert "'b' is read as a set" in failure(found["b"]).message


def test_the_same_key_twice_is_answered_once(redis_server: Redis) -> None:
    redis_server.admin.set("a", "1")
    assert source(redis_server, pa.int64())(["a", "a", "b", "b"]) == {"a": 1}


def test_keys_that_look_the_same_to_redis_each_get_their_value(redis_server: Redis) -> None:
    redis_server.admin.set("a:b:c", "1")
    fetch = source(redis_server, pa.int64(), 2, key="{0}:{1}")
    assert fetch([("a:b", "c"), ("a", "b:c")]) == {("a:b", "c"): 1, ("a", "b:c"): 1}


def test_no_keys_ask_nothing() -> None:
    assert make_redis_source("redis://127.0.0.1:1/0").reading(pa.int64(), 1)([]) == {}


def test_threads_share_one_client(redis_server: Redis) -> None:
    redis_server.admin.mset({str(key): str(key) for key in range(200)})
    fetch = pickle.loads(pickle.dumps(source(redis_server, pa.int64())))
    with ThreadPoolExecutor(4) as threads:
        batches = [[str(key) for key in range(at, at + 10)] for at in range(0, 200, 10)]
        found = list(threads.map(fetch, batches))
    assert all(answer == {key: int(key) for key in batch}
               for answer, batch in zip(found, batches, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "http://x"}, "cannot read the URL http://x"),
        ({"url": ""}, "url must be text or a function"),
        ({"key": "limit"}, "no placeholder"),
        ({"kind": "zset"}, "kind is 'zset'"),
        ({"hash": "limits", "kind": "set"}, "hold strings"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
        ({"password": 3}, "password must be text or a function"),
        ({"url": "redis://:one@x", "password": "other"}, "there are two passwords: in redis://x"),
    ],
)
def test_what_is_written_wrongly_is_said_on_the_driver(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PatternError, match=message):
        make_redis_source(**({"url": "redis://x"} | options))


@pytest.mark.parametrize(
    ("options", "type_", "parts", "message"),
    [
        ({"key": "{}"}, pa.int64(), 2, "number the placeholders"),
        ({"key": "{0}"}, pa.int64(), 2, "placeholders for 1 key parts"),
        ({"key": "{0}:{1}"}, pa.int64(), 1, "placeholders for 2 key parts"),
        ({"kind": "string"}, pa.list_(pa.int64()), 1, 'kind="string"'),
        ({"kind": "hash"}, pa.int64(), 1, 'kind="hash"'),
        ({}, pa.duration("us"), 1, "cannot return values of type duration"),
    ],
)
def test_what_does_not_fit_the_pattern_is_said_on_the_driver(
    options: dict[str, Any], type_: pa.DataType, parts: int, message: str
) -> None:
    with pytest.raises(PatternError) as found:
        make_redis_source("redis://x", **options).reading(type_, parts)
    assert message in str(found.value)
