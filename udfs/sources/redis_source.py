"""Values in Redis: strings, JSON, hashes, sets and lists, a batch of keys in one round trip.

Always holds: a batch gives the same values as single keys would. A key that holds another kind of
value is an error, never a missing one; MGET returns nil for both, so EXISTS goes with it. Nothing
is retried here: the fetch policy of the remote decides that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import uuid4

import pyarrow as pa

from spark_cep.udfs.errors import CepError, PatternError, RemoteError
from spark_cep.udfs.sources import clients, secrets
from spark_cep.udfs.sources.clients import (
    ClientError,
    TransientError,
    attempt,
    require_library,
    show_key,
)
from spark_cep.udfs.sources.decoding import Decoder, DecodingError, from_json, is_list, make_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spark_cep.udfs.sources.secrets import Secret


RedisKind = Literal["auto", "string", "json", "hash", "set", "list"]

_URL = re.compile(r"(rediss?|unix)://")
# The beginnings of error replies that may be over at the next try.
_TRANSIENT_ANSWERS = ("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "OOM", "READONLY")


@dataclass(frozen=True, repr=False)
class RedisSource:
    """A batch function over Redis. `key` is the template of a Redis key or, if `hash` names one
    hash that holds all values, of a field."""

    url: Secret
    key: str = "{}"
    kind: RedisKind = "auto"
    hash: str | None = None
    password: Secret | None = None
    timeout: float = 10.0
    value: pa.DataType | None = None
    identity: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        require_library("redis", "redis", "Remote.redis")
        secrets.check_secret(self.url, "url")
        if isinstance(self.url, str) and "${" not in self.url and not _URL.match(self.url):
            raise PatternError(
                f"Remote.redis cannot read the URL {secrets.hide_secrets(self.url)}",
                hint="write redis://host:6379/0, rediss://... for TLS or unix:///path",
            )
        if self.password is not None:
            secrets.check_password(self.password, self.url)
        if self.kind not in get_args(RedisKind):
            raise PatternError(
                f"kind is {self.kind!r}",
                hint="use one of " + ", ".join(get_args(RedisKind)),
            )
        if self.hash is not None and self.kind not in ("auto", "string", "json"):
            raise PatternError(
                f"the fields of the hash {self.hash!r} hold strings, not values of kind "
                f"{self.kind!r}",
                hint='use kind="string" or kind="json", or leave hash out for one hash per key',
            )
        if not clients.has_placeholders(self.key):
            raise PatternError(
                f"the key {self.key!r} has no placeholder for the key of remote(...)",
                hint='write key="limit:{}", or key="{0}:{1}" for two parts',
            )

    def __repr__(self) -> str:
        where = f"hash {self.hash}, field {self.key}" if self.hash else f"key {self.key}"
        return f"redis at {secrets.hide_secrets(self.url)}, {where}"

    def scrub(self, text: str) -> str:
        """The text without the secrets of this source."""
        given = [*secrets.secrets_in_url(self.url), *([self.password] if self.password else [])]
        return secrets.scrub_secrets(text, given)

    def reading(self, value: pa.DataType, parts: int) -> RedisSource:
        """The source for values of this type and keys with `parts` parts."""
        clients.check_placeholders(self.key, parts, "the key")
        make_decoder(value)
        kind = (
            _choose_kind(value, in_hash=self.hash is not None) if self.kind == "auto" else self.kind
        )
        _check_kind(kind, value)
        return replace(self, kind=kind, value=value)

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """The values of the keys that Redis has."""
        return attempt(lambda: self._values(keys), self._failure, "redis")

    def _values(self, keys: list[Any]) -> dict[Any, Any]:
        if self.value is None:
            raise RemoteError(f"{self} was called before it knows the type of its values")
        if not keys:
            return {}
        names = [clients.fill_template(self.key, key) for key in keys]
        with clients.use_client(self.identity, self._connect, _close_client) as client:
            found = _READERS[self.kind](self, client, names)
        return dict(_decode_rows(self, self.value, list(zip(keys, names, found, strict=True))))

    def _connect(self) -> Any:
        import redis  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415

        given: dict[str, Any] = {}
        if self.password is not None:
            given["password"] = secrets.read_secret(self.password, "password")
        return redis.Redis.from_url(
            secrets.read_secret(self.url, "url", quoted=True),
            socket_timeout=self.timeout,
            socket_connect_timeout=self.timeout,
            retry=Retry(NoBackoff(), 0),
            **given,
        )

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, CepError):
            return error
        from redis import exceptions  # noqa: PLC0415

        shown = f"{self}: {type(error).__name__}"
        text = f"{self}: {self.scrub(str(error)) or type(error).__name__}"
        if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
            clients.forget_client(self.identity)
            hint = "pass password=..., or write user and password in the URL; see the server's ACL"
            return ClientError(text, shown, hint)
        if isinstance(error, exceptions.NoPermissionError):
            return ClientError(text, shown, "the user must be allowed to read these keys")
        if isinstance(error, exceptions.ResponseError):
            passing = str(error).startswith(_TRANSIENT_ANSWERS)
            return TransientError(text, shown) if passing else ClientError(text, shown)
        if isinstance(error, (exceptions.RedisError, OSError)):
            return TransientError(text, shown)
        return ClientError(f"{shown}: {self.scrub(str(error))}", shown)


def _close_client(client: Any) -> None:
    client.close()


RedisRows = list[Any]


def _read_texts(source: RedisSource, client: Any, names: list[str]) -> RedisRows:
    if source.hash is not None:
        return list(client.hmget(source.hash, names))
    pipeline = client.pipeline(transaction=False)
    pipeline.mget(names)
    pipeline.exists(*names)
    texts, existing = pipeline.execute()
    without = [name for name, text in zip(names, texts, strict=True) if text is None]
    if not without or existing <= len(names) - len(without):
        return list(texts)
    refused = _find_other_kinds(source, client, without)
    return [refused.get(name, text) for name, text in zip(names, texts, strict=True)]


def _find_other_kinds(source: RedisSource, client: Any, names: list[str]) -> dict[str, RemoteError]:
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.type(name)
    # A key that was set meanwhile is a string now, and counts as missing.
    return {
        name: _wrong_kind(source, name, f"it is a {kind.decode()}")
        for name, kind in zip(names, pipeline.execute(), strict=True)
        if kind not in (b"none", b"string")
    }


def _read_hashes(source: RedisSource, client: Any, names: list[str]) -> RedisRows:
    value = source.value
    assert value is not None
    if pa.types.is_map(value):
        return [found or None for found in _run_for_each(source, client, names, "hgetall")]
    fields = [value.field(i).name for i in range(value.num_fields)]
    rows = _run_for_each(source, client, names, "hmget", fields)
    # Redis answers the same for a hash without any of these fields and for no hash.
    return [
        row
        if isinstance(row, RemoteError)
        else _present_fields(dict(zip(fields, row, strict=True)))
        for row in rows
    ]


def _present_fields(row: dict[str, Any]) -> dict[str, Any] | None:
    return None if all(one is None for one in row.values()) else row


def _read_sets(source: RedisSource, client: Any, names: list[str]) -> RedisRows:
    # Sorted, because Redis returns members in any order, and equal sets should be equal arrays.
    found = _run_for_each(source, client, names, "smembers")
    return [one if isinstance(one, RemoteError) else sorted(one) or None for one in found]


def _read_lists(source: RedisSource, client: Any, names: list[str]) -> RedisRows:
    return [found or None for found in _run_for_each(source, client, names, "lrange", 0, -1)]


def _run_for_each(
    source: RedisSource, client: Any, names: list[str], command: str, *rest: Any
) -> RedisRows:
    pipeline = client.pipeline(transaction=False)
    for name in names:
        getattr(pipeline, command)(name, *rest)
    answers = pipeline.execute(raise_on_error=False)
    return [_check_answer(source, name, found) for name, found in zip(names, answers, strict=True)]


def _check_answer(source: RedisSource, name: str, answer: Any) -> Any:
    if isinstance(answer, Exception) and "WRONGTYPE" in str(answer):
        return _wrong_kind(source, name, "it is not one")
    if isinstance(answer, Exception):
        raise answer
    return answer


_READERS: dict[str, Callable[[RedisSource, Any, list[str]], RedisRows]] = {
    "string": _read_texts,
    "json": _read_texts,
    "hash": _read_hashes,
    "set": _read_sets,
    "list": _read_lists,
}


def _decode_rows(
    source: RedisSource, value: pa.DataType, rows: list[tuple[Any, str, Any]]
) -> Iterator[tuple[Any, Any]]:
    decode: Decoder = make_decoder(value)
    for key, name, found in rows:
        one = found
        if not isinstance(found, RemoteError) and found is not None:
            try:
                one = decode(from_json(found) if source.kind == "json" else _name_fields(found))
            except DecodingError as error:
                one = RemoteError(source.scrub(f"{source}: the value of {show_key(name)} {error}"))
        if one is not None:
            yield key, one


def _name_fields(found: Any) -> Any:
    """A hash with its field names as text; Redis returns bytes."""
    if not isinstance(found, dict):
        return found
    return {
        name.decode("utf-8", "replace") if isinstance(name, bytes) else name: one
        for name, one in found.items()
    }


def _wrong_kind(source: RedisSource, name: str, what: str) -> RemoteError:
    return RemoteError(
        f"{source}: {show_key(name)} is read as a {source.kind}, and {what}",
        hint='declare what the keys hold: kind="string", "json", "hash", "set" or "list"',
    )


def _choose_kind(value: pa.DataType, *, in_hash: bool) -> RedisKind:
    nested = is_list(value) or pa.types.is_nested(value)
    if not nested:
        return "string"
    if in_hash:
        return "json"
    return "set" if is_list(value) else "hash"


def _check_kind(kind: str, value: pa.DataType) -> None:
    is_hash = pa.types.is_struct(value) or pa.types.is_map(value)
    fits = {
        "hash": is_hash,
        "set": is_list(value),
        "list": is_list(value),
        "string": not is_hash and not is_list(value),
    }
    if not fits.get(kind, True):
        raise PatternError(
            f'values of type {value} cannot be read from Redis with kind="{kind}"',
            hint='use kind="hash" for structs, "set" or "list" for arrays, or "json" for any type',
        )
