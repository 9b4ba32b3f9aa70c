"""Remote.http against a server in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from spark_cep.errors import PatternError, RemoteError
from spark_cep.remote import make_http_source
from spark_cep.udfs.sources.clients import TransientError
from tests.services.http_service import Asked, JsonService, Reply

if TYPE_CHECKING:
    from spark_cep.udfs.sources.http_source import HttpSource

LIMITS = {"a": 1.5, "b": 7, "null": None}


def source(service: JsonService, value: pa.DataType, **options: Any) -> HttpSource:
    return make_http_source(f"{service.url}/limits/{{}}", **options).reading(value, 1)


def by_key(values: dict[str, Any]) -> Callable[[Asked], Reply]:
    """404 for keys that are not there."""

    def answer(asked: Asked) -> Reply:
        key = unquote(asked.key)
        return Reply({"data": [{"max": values[key]}]}) if key in values else Reply(status=404)

    return answer


def test_a_get_a_key_and_a_path_into_the_answer(json_service: JsonService) -> None:
    json_service.answer = by_key(LIMITS)
    fetch = source(json_service, pa.float64(), path="data.0.max")
    assert fetch(["a", "b", "c", "null", "a"]) == {"a": 1.5, "b": 7.0}
    assert len(json_service.asked) == 4


def test_keys_cannot_lead_elsewhere(json_service: JsonService) -> None:
    keys = ["a/b", "..", "../x", "a?x=1", "ö ü", "#", "%2e", "a@b:c"]
    json_service.answer = by_key(dict.fromkeys(keys, 1))
    fetch = source(json_service, pa.int64(), path="data.0.max")
    assert fetch(keys) == dict.fromkeys(keys, 1)
    assert all(asked.path.startswith("/limits/") for asked in json_service.asked)


def test_composite_keys_have_places_of_their_own(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply(asked.path)
    fetch = make_http_source(f"{json_service.url}/{{1}}?org={{0}}").reading(pa.string(), 2)
    assert fetch([("a&b", 7)]) == {("a&b", 7): "/7?org=a%26b"}


def test_gets_run_at_once_as_many_as_allowed(json_service: JsonService) -> None:
    def slow(asked: Asked) -> Reply:
        time.sleep(0.2)
        return Reply(1)

    json_service.answer = slow
    keys = [str(key) for key in range(24)]
    started = time.monotonic()
    assert len(source(json_service, pa.int64(), concurrency=6)(keys)) == 24
    assert time.monotonic() - started < 24 * 0.2
    assert 1 < json_service.most <= 6


def test_a_post_sends_the_batch_and_takes_an_object(json_service: JsonService) -> None:
    def answer(asked: Asked) -> Reply:
        keys = json.loads(asked.body)["keys"]
        return Reply({"found": {str(key): {"max": key} for key in keys if key != 3}})

    json_service.answer = answer
    fetch = make_http_source(json_service.url, method="POST", path="found", value="max").reading(
        pa.int64(), 1
    )
    assert fetch([1, 2, 3]) == {1: 1, 2: 2}
    assert len(json_service.asked) == 1


def test_a_post_takes_an_array_of_objects_in_any_order(json_service: JsonService) -> None:
    def answer(asked: Asked) -> Reply:
        keys = json.loads(asked.body)
        return Reply([{"org": a, "city": b, "max": 1.10} for a, b in reversed(keys)])

    json_service.answer = answer
    fetch = make_http_source(
        json_service.url, method="POST", body=None, key=["org", "city"], value="max"
    )
    bound = fetch.reading(pa.decimal128(4, 2), 2)
    keys = [("a", 1), ("b", 2)]
    assert bound(keys) == dict.fromkeys(keys, Decimal("1.10"))


def test_structs_and_arrays(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply({"max": 3, "tags": ["x"], "more": 1})
    type_ = pa.struct([("max", pa.float64()), ("tags", pa.list_(pa.string())), ("no", pa.bool_())])
    found = source(json_service, type_)(["a"])
    assert found == {"a": {"max": 3.0, "tags": ["x"], "no": None}}


@pytest.mark.parametrize(
    ("path", "is_error"),
    [("data.0.min", False), ("data.5.max", False), ("dat.0.max", True), ("data.0.max.x", True)],
)
def test_a_path_may_miss_its_last_field_only(
    json_service: JsonService, path: str, is_error: bool
) -> None:
    json_service.answer = by_key(LIMITS)
    fetch = source(json_service, pa.float64(), path=path)
    found = fetch(["a"])
    assert set(found) == ({"a"} if is_error else set())
    if is_error:
        assert "the answer has no" in found["a"].message


def failing_first(times: int, reply: Reply) -> Callable[[Asked], Reply]:
    """Answers 1 for each key after it failed so often."""
    failed: dict[str, int] = {}

    def answer(asked: Asked) -> Reply:
        failed[asked.key] = failed.get(asked.key, 0) + 1
        return reply if failed[asked.key] <= times else Reply(1)

    return answer


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited_for(json_service: JsonService, form: str) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=2)
    after = "1" if form == "seconds" else format_datetime(moment, usegmt=True)
    json_service.answer = failing_first(1, Reply(status=429, headers={"Retry-After": after}))
    started = time.monotonic()
    assert source(json_service, pa.int64())(["a", "b"]) == {"a": 1, "b": 1}
    assert time.monotonic() - started > 0.5
    assert len(json_service.asked) == 4


def test_a_retry_after_beyond_the_timeout_fails_at_once(json_service: JsonService) -> None:
    json_service.answer = failing_first(1, Reply(status=503, headers={"Retry-After": "60"}))
    started = time.monotonic()
    with pytest.raises(TransientError, match="status 503"):
        source(json_service, pa.int64(), timeout=1)(["a"])
    assert time.monotonic() - started < 20


def test_a_post_is_asked_again_only_after_the_pause_it_names(json_service: JsonService) -> None:
    fetch = make_http_source(json_service.url, method="POST").reading(pa.int64(), 1)
    json_service.answer = failing_first(1, Reply(status=503))
    with pytest.raises(TransientError):
        fetch(["a"])

    def later(asked: Asked) -> Reply:
        is_first = len(json_service.asked) == 2
        return Reply(status=429, headers={"Retry-After": "0"}) if is_first else Reply({"a": 1})

    json_service.answer = later
    assert fetch(["a"]) == {"a": 1}


def test_keys_that_fail_in_passing_are_asked_again_while_others_answer(
    json_service: JsonService,
) -> None:
    always = by_key({str(key): key for key in range(50)})
    flaky = failing_first(1, Reply(status=500))

    def answer(asked: Asked) -> Reply:
        reply = flaky(asked) if asked.key.endswith("7") else Reply(1)
        return reply if reply.status != 200 else always(asked)

    json_service.answer = answer
    fetch = source(json_service, pa.int64(), path="data.0.max")
    assert len(fetch([str(key) for key in range(50)])) == 50
    assert len(json_service.asked) == 55


def test_a_key_that_keeps_failing_fails_alone(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply(1) if asked.key == "a" else Reply(status=500)
    found = source(json_service, pa.int64())(["a", "b"])
    assert found["a"] == 1
    assert "status 500 Internal Server Error, requested 4 times" in found["b"].message
    assert 5 <= len(json_service.asked) <= 6


def test_a_service_that_is_asked_too_often_is_left_to_the_retries(
    json_service: JsonService,
) -> None:
    json_service.answer = lambda asked: Reply(1) if asked.key == "a" else Reply(status=429)
    with pytest.raises(TransientError, match="status 429"):
        source(json_service, pa.int64())(["a", "b"])


def test_a_service_that_only_fails_is_left_to_the_retries(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply(status=500)
    with pytest.raises(TransientError, match="status 500"):
        source(json_service, pa.int64())(["a", "b"])
    assert len(json_service.asked) == 2


@pytest.mark.parametrize("status", [401, 405, 302])
def test_a_service_that_refuses_any_key_is_final(json_service: JsonService, status: int) -> None:
    json_service.answer = lambda asked: Reply(
        {"you sent": "s3cr3t"}, status, {"Location": f"{json_service.url}/other"}
    )
    with pytest.raises(RemoteError, match=f"status {status}") as found:
        source(json_service, pa.int64(), headers={"X-Token": "s3cr3t"})(["a"])
    assert "s3cr3t" not in str(found.value)
    assert len(json_service.asked) == 1


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_service_that_refuses_a_key_fails_that_key(
    json_service: JsonService, status: int
) -> None:
    json_service.answer = lambda asked: Reply(1) if asked.key == "a" else Reply("no", status)
    found = source(json_service, pa.int64())(["a", "b"])
    assert found["a"] == 1
    assert f"status {status}" in found["b"].message
    post = make_http_source(json_service.url, method="POST").reading(pa.int64(), 1)
    with pytest.raises(RemoteError, match=f"status {status}"):
        post(["b"])


def test_what_is_no_json_may_pass(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply(b"<html>Bad gateway</html>")
    with pytest.raises(TransientError, match="is not JSON"):
        source(json_service, pa.int64())(["a"])


def test_a_value_of_another_type_fails_its_key(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply({"max": "much"})
    found = source(json_service, pa.float64(), path="max")(["a"])
    assert "the value of 'a' is not a number, but a text of 4" in found["a"].message


def test_an_answer_that_is_too_large_fails_its_key(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply("x" * 100_000)
    assert len(source(json_service, pa.string(), max_bytes=100_002)(["a"])["a"]) == 100_000
    found = source(json_service, pa.string(), max_bytes=100_000)(["a"])
    assert "larger than 100000 bytes" in found["a"].message


def test_an_answer_that_breaks_off_may_pass(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply(b'{"max"', headers={"Content-Length": "100"})
    with pytest.raises(TransientError):
        source(json_service, pa.int64(), path="max")(["a"])


def test_headers_are_sent(json_service: JsonService) -> None:
    json_service.answer = lambda asked: Reply(asked.headers["Authorization"])
    fetch = source(json_service, pa.string(), headers={"Authorization": lambda: "Bearer abc"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CEP_TEST_TOKEN", "xyz")
        other = source(
            json_service, pa.string(), headers={"Authorization": "Bearer ${CEP_TEST_TOKEN}"}
        )
        assert other(["a"]) == {"a": "Bearer xyz"}
    assert fetch(["a"]) == {"a": "Bearer abc"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://x/{}"}, "cannot read the URL"),
        ({"url": 3}, "cannot read the URL"),
        ({"url": "http://x/"}, "no placeholder for the key"),
        ({"method": "PUT"}, "method is 'PUT'"),
        ({"method": "POST"}, "a POST sends many"),
        ({"key": "org"}, "answer to a batch"),
        ({"headers": {"X": 3}}, "header X must be text or a function"),
        ({"concurrency": 0}, "at least 1"),
        ({"path": 3}, "path must be text"),
    ],
)
def test_what_is_written_wrongly_is_said_on_the_driver(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PatternError, match=message):
        make_http_source(**({"url": "http://x/{}"} | options))


def test_keys_of_the_answer_must_be_as_many_as_those_of_the_pattern() -> None:
    with pytest.raises(PatternError, match="names 0 fields"):
        make_http_source("http://x", method="POST").reading(pa.int64(), 2)
    with pytest.raises(PatternError, match="placeholders for 1"):
        make_http_source("http://x/{0}").reading(pa.int64(), 2)
