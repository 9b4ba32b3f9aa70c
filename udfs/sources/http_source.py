"""Values from a service that answers in JSON: one GET a key, or one POST a batch, on httpx.

Always holds: the parts of a key are quoted, so no key can lead to another path or host; the body
of an error is not shown, since services repeat there what they were sent.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote
from uuid import uuid4

from spark_cep.udfs.errors import CepError, PatternError, RemoteError
from spark_cep.udfs.sources import clients, secrets, templates
from spark_cep.udfs.sources.decoding import MisfitError, decoder
from spark_cep.udfs.sources.failing import PassingFailure, attempt, need_library, shown
from spark_cep.udfs.sources.http_answer import Bounds, BusyError, at_path, by_key
from spark_cep.udfs.sources.http_client import Client, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from spark_cep.udfs.sources.secrets import Secret

Method = Literal["GET", "POST"]


@dataclass(frozen=True)
class Answer:
    """Where the values stand: `path` in the answer; in a batch's, `key` names the fields of the
    key in an array of objects, and `value` is the path of the value in each."""

    path: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class HttpSource:
    """A batch function over an HTTP service. `body`: the field of the POST's body that holds the
    keys; None: the body is the array of keys."""

    url: str
    method: Method = "GET"
    answer: Answer = Answer()
    body: str | None = "keys"
    headers: tuple[tuple[str, Secret], ...] = ()
    concurrency: int = 8
    max_bytes: int = 16 << 20
    timeout: float = 10.0
    value: pa.DataType | None = None
    identity: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        need_library("httpx", "http", "Remote.http")
        shown_url = secrets.without_secrets(self.url) if isinstance(self.url, str) else "url"
        if not isinstance(self.url, str) or not re.match(r"https?://|\$\{", self.url):
            raise PatternError(
                f"Remote.http does not know the URL {shown_url}", hint="write https://host/..."
            )
        for name, header in self.headers:
            secrets.check_secret(header, f"header {name}")
        self._check_method(shown_url)
        if self.concurrency < 1 or self.max_bytes < 1:
            raise PatternError("Remote.http: concurrency and max_bytes are at least 1")

    def _check_method(self, url: str) -> None:
        if self.method not in ("GET", "POST"):
            raise PatternError(f"Remote.http knows GET and POST, not {self.method!r}")
        places = templates.has_places(self.url)
        if self.method == "GET" and not places:
            raise PatternError(
                f"the URL {url} has no place for the key",
                hint="https://host/limits/{}, or method='POST' to send a batch of keys",
            )
        if self.method == "POST" and places:
            raise PatternError(
                f"the URL {url} has a place for a key, and a POST sends many",
                hint="leave the place out, or method='GET'",
            )
        if self.method == "GET" and (self.answer.key or self.answer.value):
            raise PatternError(
                "Remote.http: key= and value= are for the answer to a batch, method='POST'",
                hint="path= leads to the value in the answer to a GET",
            )

    def __repr__(self) -> str:
        return f"http {self.method} {secrets.without_secrets(self.url)}"

    def scrub(self, text: str) -> str:
        """The text without this source's secrets."""
        given = list(secrets.of_url(self.url))
        for name, header in self.headers:
            given.extend(secrets.of_header(name, header))
        return secrets.scrub(text, given)

    def reading(self, value: pa.DataType, parts: int) -> HttpSource:
        """The source for values of this type and keys of so many parts."""
        if self.method == "GET":
            templates.check_places(self.url, parts, "the URL")
        elif len(self.answer.key) != parts and (self.answer.key or parts > 1):
            raise PatternError(
                f"{self}: key= names {len(self.answer.key)} fields of the answer, and remote(...) "
                f"is called with {parts} keys",
                hint='key=["org", "city"]: the fields of the answer that hold the key',
            )
        decoder(value)
        return replace(self, value=value)

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """The values of the keys that the service has."""
        return attempt(lambda: self._values(keys), self._failure, "http")

    def _named(self, message: str) -> str:
        return message if message.startswith(repr(self)) else f"{self}: {message}"

    def _values(self, keys: list[Any]) -> dict[Any, Any]:
        if self.value is None:
            raise RemoteError("called before it was told the type of its values")
        if not keys:
            return {}
        bounds = Bounds(time.monotonic() + self.timeout, self.max_bytes)
        ask = self._got if self.method == "GET" else self._posted
        with clients.using(self.identity, self._connect, Client.close) as client:
            return dict(self._decoded(self.value, ask(client, keys, bounds)))

    def _connect(self) -> Client:
        headers = {name: secrets.read(text, f"header {name}") for name, text in self.headers}
        return connect(headers, self.concurrency, self.scrub)

    def _url(self) -> str:
        return secrets.read(self.url, "url", quoted=True)

    def _got(self, client: Client, keys: list[Any], bounds: Bounds) -> Iterator[tuple[Any, Any]]:
        template = self._url()
        urls = [templates.filled(template, key, _quoted) for key in keys]
        answers = client.get_all(urls, bounds)
        for key, url in zip(keys, urls, strict=True):
            answer = answers[url]
            if isinstance(answer, RemoteError):
                yield key, self._error(answer.message, answer.hint)
            elif answer is not None:
                yield key, self._read(answer, lambda found: at_path(found, self.answer.path))

    def _posted(self, client: Client, keys: list[Any], bounds: Bounds) -> Iterator[tuple[Any, Any]]:
        names = [_texts(key) for key in keys]
        sent = [list(key) if isinstance(key, tuple) else key for key in map(_sendable, keys)]
        body = sent if self.body is None else {self.body: sent}
        answer = client.post(self._url(), body, bounds)
        if isinstance(answer, RemoteError):
            raise answer
        if answer is None:
            raise RemoteError("the service does not know this URL", hint="is it the right one?")
        value_of = self._read(answer, self._by_key)
        if isinstance(value_of, RemoteError):
            raise value_of
        for key, name in zip(keys, names, strict=True):
            yield key, self._read(name, value_of)

    def _by_key(self, answer: Any) -> Callable[[Any], Any]:
        return by_key(at_path(answer, self.answer.path), self.answer.key, self.answer.value)

    def _read(self, answer: Any, read: Callable[[Any], Any]) -> Any:
        """What `read` finds, or why it finds nothing."""
        try:
            return read(answer)
        except MisfitError as error:
            return self._error(f"the answer {error}", "path= leads to the value")

    def _error(self, problem: str, hint: str | None) -> RemoteError:
        return RemoteError(self.scrub(self._named(problem)), hint=hint)

    def _decoded(
        self, value: pa.DataType, found: Iterator[tuple[Any, Any]]
    ) -> Iterator[tuple[Any, Any]]:
        decode = decoder(value)
        for key, one in found:
            decoded = one
            if not isinstance(one, RemoteError):
                try:
                    decoded = decode(one)
                except MisfitError as error:
                    decoded = self._error(f"the value of {shown(key)} {error}", None)
            if decoded is not None:
                yield key, decoded

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, CepError):
            return self._error(error.message, error.hint)
        if isinstance(error, (BusyError, OSError)):
            return PassingFailure(self.scrub(f"{self}: {error}"))
        return RemoteError(self.scrub(f"{self}: {type(error).__name__}: {error}"))


def _quoted(text: str) -> str:
    """A part of a key as one step of a path: `..` would be taken as the step above."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(text) <= {"."} else quoted


def _texts(key: Any) -> Any:
    return tuple(map(templates.text_of, key)) if isinstance(key, tuple) else templates.text_of(key)


def _sendable(key: Any) -> Any:
    """A key as JSON has it: numbers stay numbers."""
    if isinstance(key, tuple):
        return tuple(map(_sendable, key))
    return key if isinstance(key, (str, int, float)) else templates.text_of(key)
