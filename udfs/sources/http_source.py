"""Values from an HTTP service that answers in JSON: a GET per key or a POST per batch, on httpx.

Always holds: the parts of a key are quoted, so no key can lead to another path or host. Redirects
are not followed, since headers with secrets would go along. Nothing is read beyond the size limit
or the time. The body of an error is not shown, because services repeat in it what they were sent.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote
from uuid import uuid4

from spark_cep.udfs.errors import CepError, PatternError, RemoteError
from spark_cep.udfs.sources import clients, secrets
from spark_cep.udfs.sources.clients import (
    ClientError,
    TransientError,
    attempt,
    require_library,
    show_key,
)
from spark_cep.udfs.sources.decoding import DecodingError, from_json, make_decoder, outline

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from spark_cep.udfs.sources.secrets import Secret


# ---- answers -------------------------------------------------------------------------------------


_TOO_MANY = 429
_TIMED_OUT = 408
_MISSING = (404, 410)
# Not logged in, wrong method, wrong proxy.
_FATAL_FOR_ALL_KEYS = (401, 405, 407)
HttpBody = bytes | RemoteError | None


class BusyError(Exception):
    """The service may answer later. `after`: the seconds that it named. `too_often`: it limits the
    rate of requests. `shown`: the text without that of the client's exception."""

    def __init__(
        self,
        text: str,
        after: float | None = None,
        *,
        too_often: bool = False,
        shown: str | None = None,
    ) -> None:
        super().__init__(text)
        self.shown = text if shown is None else shown
        self.after = after
        self.too_often = too_often


@dataclass(frozen=True)
class CallBounds:
    """The bounds of one call. `until`: its deadline on the monotonic clock."""

    until: float
    max_bytes: int

    def left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise BusyError("no answer in time")
        return left


def read_body(response: Any, bounds: CallBounds) -> HttpBody:
    """The body of a streamed answer; None if there is no value. An error of this key only is
    returned, an error that any key would have is raised."""
    status = response.status_code
    if status in _MISSING:
        return None
    if status in (_TOO_MANY, _TIMED_OUT) or status >= 500:
        after = _retry_after(response.headers.get("Retry-After"))
        text = f"status {status} {response.reason_phrase}"
        raise BusyError(text, after, too_often=status == _TOO_MANY)
    if status in _FATAL_FOR_ALL_KEYS or 300 <= status < 400:
        raise _status_error(status, response)
    if status >= 400:
        return _status_error(status, response)
    if status == 204:
        return None
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > bounds.max_bytes:
            return RemoteError(
                f"an answer is larger than {bounds.max_bytes} bytes",
                hint="raise max_bytes, or better, request less",
            )
        bounds.left()
    return b"".join(parts)


def _status_error(status: int, response: Any) -> RemoteError:
    if status < 400:
        return RemoteError(
            f"status {status}: a redirect, which is not followed",
            hint="write the URL that it leads to",
        )
    hint = "pass the headers that the service requires" if status in (401, 403) else None
    return RemoteError(f"status {status} {response.reason_phrase}", hint=hint)


def _retry_after(text: str | None) -> float | None:
    """The seconds of a Retry-After header, which has a number or a date."""
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def value_at_path(answer: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of fields and positions. A missing last field is a missing value; a path
    that breaks off earlier is an error.

    >>> value_at_path({"data": [{"max": 7}]}, ("data", "0", "max"))
    7
    """
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(answer, list) and step.isdigit():
            answer = answer[int(step)] if int(step) < len(answer) else None
        elif isinstance(answer, Mapping) and (step in answer or last):
            answer = answer.get(step)
        elif answer is None:
            return None
        else:
            raise DecodingError(f"has no {'.'.join(path[: depth + 1])} in {outline(answer)}")
    return answer


def values_by_key(
    answer: Any, key: tuple[str, ...], value: tuple[str, ...]
) -> Callable[[Any], Any]:
    """The values in the answer to a batch, by key: from an object of keys and values or, if `key`
    names the fields of the key, from an array of objects."""
    if not key:
        if not isinstance(answer, Mapping):
            raise DecodingError(f"is not an object from keys to values, but {outline(answer)}")
        return lambda text: value_at_path(answer.get(text), value)
    if not isinstance(answer, list):
        raise DecodingError(f"is not an array of objects, but {outline(answer)}")
    found: dict[Any, Any] = {}
    for one in answer:
        parts = tuple(str(value_at_path(one, (name,))) for name in key)
        if parts in found:
            raise DecodingError(
                f"has the key {show_key(parts if len(key) > 1 else parts[0])} twice"
            )
        found[parts] = value_at_path(one, value)
    return lambda text: found.get(text if isinstance(text, tuple) else (text,))


# ---- requests ------------------------------------------------------------------------------------
#
# A batch of GETs goes in rounds. What failed in passing is requested again while time is left:
# after the pause that the service named, at once if the round brought any answer, else after
# `_PAUSES_S`. If no key at all is answered, or the service limits the rate, the call fails, and the
# retries of the remote decide. If other keys are answered, a key that keeps failing has failed by
# itself. So one bad key in a hundred costs some requests, not the batch.


# The loggers that write URLs and headers, which may contain secrets.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy")
# Pauses after rounds without any answer, while the service has answered other keys.
_PAUSES_S = (0.05, 0.2, 0.8)


@dataclass
class _RequestRounds:
    """`answers` by URL: parsed JSON, None if there is no value, or the error of this URL."""

    waiting: list[str]
    answers: dict[str, Any] = field(default_factory=dict)
    idle: int = 0

    def finish_round(self, busy: dict[str, BusyError], bounds: CallBounds) -> None:
        """Pauses before the next round, or gives up the rest."""
        progress = len(busy) < len(self.waiting)
        self.waiting = list(busy)
        if not busy:
            return
        first = next(iter(busy.values()))
        named = [error.after for error in busy.values() if error.after is not None]
        if named:
            _pause(max(named), first, bounds)
        elif not self.answers or any(error.too_often for error in busy.values()):
            raise first
        elif not progress and self.idle == len(_PAUSES_S):
            tries = f", requested {self.idle + 1} times or more"
            self.answers |= {url: RemoteError(f"{why.shown}{tries}") for url, why in busy.items()}
            self.waiting = []
        elif not progress:
            _pause(_PAUSES_S[self.idle], first, bounds)
            self.idle += 1


@dataclass(frozen=True)
class HttpClient:
    """The client of one service in a worker, with a bounded pool of threads."""

    http: Any
    threads: ThreadPoolExecutor
    scrubbing: logging.Filter

    def close(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self.scrubbing)
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.http.close()

    def get_all(self, urls: list[str], bounds: CallBounds) -> dict[str, Any]:
        """The answers of the URLs."""
        rounds = _RequestRounds(list(dict.fromkeys(urls)))
        while rounds.waiting:
            rounds.finish_round(self._round(rounds, bounds), bounds)
        return rounds.answers

    def _round(self, rounds: _RequestRounds, bounds: CallBounds) -> dict[str, BusyError]:
        """Requests what is waiting. Stores the answers and returns what may succeed later."""
        futures = [(url, self.threads.submit(self.get, url, bounds)) for url in rounds.waiting]
        busy = {}
        try:
            for url, answer in futures:
                try:
                    rounds.answers[url] = answer.result()
                except BusyError as error:
                    busy[url] = error
        finally:
            # An error that every key has ends the batch; the other requests are not needed.
            for _, answer in futures:
                answer.cancel()
        return busy

    def get(self, url: str, bounds: CallBounds) -> Any:
        return self._request("GET", url, bounds)

    def post(self, url: str, body: Any, bounds: CallBounds) -> Any:
        """The answer to one POST, repeated if the service names a time."""
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        while True:
            try:
                return self._request("POST", url, bounds, content=content, headers=headers)
            except BusyError as error:
                busy = error
            if busy.after is None:
                raise busy
            _pause(busy.after, busy, bounds)

    def _request(self, method: str, url: str, bounds: CallBounds, **sent: Any) -> Any:
        """Raises a BusyError for what may be over later, and other errors for what may not."""
        import httpx  # noqa: PLC0415

        wrong = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
        try:
            with self.http.stream(method, url, timeout=bounds.left(), **sent) as response:
                body = read_body(response, bounds)
            return from_json(body) if isinstance(body, bytes) else body
        except DecodingError as error:
            # It may be the error page of a proxy, and gone at the next try.
            problem = shown = f"the answer {error}"
        except wrong:
            raise
        except (httpx.TransportError, httpx.StreamError) as error:
            shown = type(error).__name__
            problem = str(error) or shown
        raise BusyError(problem, shown=shown)


def make_http_client(
    headers: dict[str, str], concurrency: int, scrub: Callable[[str], str]
) -> HttpClient:
    """A client with a pool of its own. Nothing is connected yet."""
    import httpx  # noqa: PLC0415

    scrubbing = _SecretFilter(scrub)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(scrubbing)
    http = httpx.Client(
        headers={"Accept": "application/json", **headers},
        follow_redirects=False,
        limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
    )
    threads = ThreadPoolExecutor(concurrency, thread_name_prefix="remote-http")
    return HttpClient(http, threads, scrubbing)


class _SecretFilter(logging.Filter):
    """Scrubs log messages: httpx logs each URL, which may contain a token."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        super().__init__()
        self._scrub = scrub

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._scrub(record.getMessage()), None
        return True


def _pause(seconds: float, busy: BusyError, bounds: CallBounds) -> None:
    """Waits before the next request, or raises the failure if that would be too late."""
    if time.monotonic() + seconds >= bounds.until:
        raise busy
    time.sleep(seconds)


# ---- the source --------------------------------------------------------------------------------

HttpMethod = Literal["GET", "POST"]


@dataclass(frozen=True)
class JsonPaths:
    """Where the values are: `path` in the answer. In the answer to a batch, `key` names the fields
    of the key in an array of objects, and `value` is the path of the value in each."""

    path: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class HttpSource:
    """A batch function over an HTTP service. `body`: the field of a POST that holds the array of
    keys; None sends the array alone."""

    url: str
    method: HttpMethod = "GET"
    answer: JsonPaths = JsonPaths()
    body: str | None = "keys"
    headers: tuple[tuple[str, Secret], ...] = ()
    concurrency: int = 8
    max_bytes: int = 16 << 20
    timeout: float = 10.0
    value: pa.DataType | None = None
    identity: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        require_library("httpx", "http", "Remote.http")
        shown_url = secrets.hide_secrets(self.url) if isinstance(self.url, str) else "url"
        if not isinstance(self.url, str) or not re.match(r"https?://|\$\{", self.url):
            raise PatternError(
                f"Remote.http cannot read the URL {shown_url}", hint="write https://host/..."
            )
        for name, header in self.headers:
            secrets.check_secret(header, f"header {name}")
        self._check_method(shown_url)
        if self.concurrency < 1 or self.max_bytes < 1:
            raise PatternError("Remote.http: concurrency and max_bytes must be at least 1")

    def _check_method(self, url: str) -> None:
        if self.method not in ("GET", "POST"):
            raise PatternError(f"method is {self.method!r}", hint='use "GET" or "POST"')
        places = clients.has_placeholders(self.url)
        if self.method == "GET" and not places:
            raise PatternError(
                f"the URL {url} has no placeholder for the key",
                hint="write https://host/limits/{}, or use method='POST' to send a batch of keys",
            )
        if self.method == "POST" and places:
            raise PatternError(
                f"the URL {url} has a placeholder for a key, and a POST sends many keys",
                hint="leave the placeholder out, or use method='GET'",
            )
        if self.method == "GET" and (self.answer.key or self.answer.value):
            raise PatternError(
                "Remote.http: key= and value= are for the answer to a batch, method='POST'",
                hint="path= leads to the value in the answer to a GET",
            )

    def __repr__(self) -> str:
        return f"http {self.method} {secrets.hide_secrets(self.url)}"

    def scrub(self, text: str) -> str:
        """The text without the secrets of this source."""
        given = list(secrets.secrets_in_url(self.url))
        for name, header in self.headers:
            given.extend(secrets.secrets_in_header(name, header))
        return secrets.scrub_secrets(text, given)

    def reading(self, value: pa.DataType, parts: int) -> HttpSource:
        """The source for values of this type and keys with `parts` parts."""
        if self.method == "GET":
            clients.check_placeholders(self.url, parts, "the URL")
        elif len(self.answer.key) != parts and (self.answer.key or parts > 1):
            raise PatternError(
                f"{self}: key= names {len(self.answer.key)} fields of the answer, and remote(...) "
                f"is called with {parts} keys",
                hint='key=["org", "city"]: the fields of the answer that hold the key',
            )
        make_decoder(value)
        return replace(self, value=value)

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """The values of the keys that the service has."""
        return attempt(lambda: self._values(keys), self._failure, "http")

    def _named(self, message: str) -> str:
        return message if message.startswith(repr(self)) else f"{self}: {message}"

    def _values(self, keys: list[Any]) -> dict[Any, Any]:
        if self.value is None:
            raise RemoteError("called before it knows the type of its values")
        if not keys:
            return {}
        bounds = CallBounds(time.monotonic() + self.timeout, self.max_bytes)
        request = self._get_values if self.method == "GET" else self._post_values
        with clients.use_client(self.identity, self._connect, HttpClient.close) as client:
            return dict(self._decoded(self.value, request(client, keys, bounds)))

    def _connect(self) -> HttpClient:
        headers = {name: secrets.read_secret(text, f"header {name}") for name, text in self.headers}
        return make_http_client(headers, self.concurrency, self.scrub)

    def _url(self) -> str:
        return secrets.read_secret(self.url, "url", quoted=True)

    def _get_values(
        self, client: HttpClient, keys: list[Any], bounds: CallBounds
    ) -> Iterator[tuple[Any, Any]]:
        template = self._url()
        urls = [clients.fill_template(template, key, _quote_key_part) for key in keys]
        answers = client.get_all(urls, bounds)
        for key, url in zip(keys, urls, strict=True):
            answer = answers[url]
            if isinstance(answer, RemoteError):
                yield key, self._error(answer.message, answer.hint)
            elif answer is not None:
                yield key, self._read(answer, lambda found: value_at_path(found, self.answer.path))

    def _post_values(
        self, client: HttpClient, keys: list[Any], bounds: CallBounds
    ) -> Iterator[tuple[Any, Any]]:
        names = [_key_texts(key) for key in keys]
        sent = [list(key) if isinstance(key, tuple) else key for key in map(_to_json_key, keys)]
        body = sent if self.body is None else {self.body: sent}
        answer = client.post(self._url(), body, bounds)
        if isinstance(answer, RemoteError):
            raise answer
        if answer is None:
            raise RemoteError("the service has nothing at this URL", hint="check the URL")
        value_of = self._read(answer, self._by_key)
        if isinstance(value_of, RemoteError):
            raise value_of
        for key, name in zip(keys, names, strict=True):
            yield key, self._read(name, value_of)

    def _by_key(self, answer: Any) -> Callable[[Any], Any]:
        return values_by_key(
            value_at_path(answer, self.answer.path), self.answer.key, self.answer.value
        )

    def _read(self, answer: Any, read: Callable[[Any], Any]) -> Any:
        """The result of `read`, or the error of an answer that it cannot read."""
        try:
            return read(answer)
        except DecodingError as error:
            return self._error(f"the answer {error}", "check path=, which leads to the value")

    def _error(self, problem: str, hint: str | None) -> RemoteError:
        return RemoteError(self.scrub(self._named(problem)), hint=hint)

    def _decoded(
        self, value: pa.DataType, found: Iterator[tuple[Any, Any]]
    ) -> Iterator[tuple[Any, Any]]:
        decode = make_decoder(value)
        for key, one in found:
            decoded = one
            if not isinstance(one, RemoteError):
                try:
                    decoded = decode(one)
                except DecodingError as error:
                    decoded = self._error(f"the value of {show_key(key)} {error}", None)
            if decoded is not None:
                yield key, decoded

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, CepError):
            return self._error(error.message, error.hint)
        if isinstance(error, BusyError):
            return TransientError(
                self.scrub(f"{self}: {error}"), self.scrub(f"{self}: {error.shown}")
            )
        shown = self.scrub(f"{self}: {type(error).__name__}")
        if isinstance(error, OSError):
            return TransientError(self.scrub(f"{self}: {error}"), shown)
        return ClientError(self.scrub(f"{self}: {type(error).__name__}: {error}"), shown)


def _quote_key_part(text: str) -> str:
    """A part of a key as one step of a path: a bare `..` would lead one step up."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(text) <= {"."} else quoted


def _key_texts(key: Any) -> Any:
    return (
        tuple(map(clients.format_key_part, key))
        if isinstance(key, tuple)
        else clients.format_key_part(key)
    )


def _to_json_key(key: Any) -> Any:
    """A key as JSON: numbers stay numbers."""
    if isinstance(key, tuple):
        return tuple(map(_to_json_key, key))
    return key if isinstance(key, (str, int, float)) else clients.format_key_part(key)
