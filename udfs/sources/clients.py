"""What the ready-made sources share: how they fail, how keys become text, and one client, with its
connection pool, for each source in a worker process.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

from spark_cep.udfs.errors import PatternError, RemoteError

# ---- failures ------------------------------------------------------------------------------------
#
# A RemoteError is final and is not retried. A TransientError may be over at the next try, and the
# retries, pauses and limits of the remote apply to it. Messages are scrubbed of secrets, and both
# are raised outside of the `except` that caught the library's error: the library's message, which
# may quote a password, is then not even in a chained exception. A message that quotes the library
# goes with one that does not, `shown`, which is all that a user sees without `show_errors`.
#
# What is wrong with one key only is not raised: the RemoteError is the value of that key. Which
# keys share a batch depends on the strategy, and must not decide whether a query fails.


Result = TypeVar("Result")

_LONGEST_KEY = 60


class TransientError(Exception):
    """A failure that the next try may not have."""

    def __init__(self, message: str, shown: str | None = None) -> None:
        super().__init__(message)
        self.shown = message if shown is None else shown


class ClientError(RemoteError):
    """A final failure that quotes the client."""

    def __init__(self, message: str, shown: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.shown = shown


def attempt(
    fetch: Callable[[], Result], describe: Callable[[Exception], Exception], extra: str
) -> Result:
    """The result of `fetch`. If it fails, raises what `describe` makes of the error."""
    failure: Exception
    try:
        return fetch()
    except ImportError as error:
        failure = RemoteError(
            f"a library is missing in a worker: {error.name or type(error).__name__}",
            hint=f"pip install 'spark-cep[{extra}]' on the workers' machines too",
        )
    except Exception as error:
        failure = describe(error)
    raise failure


def require_library(module: str, extra: str, what: str) -> None:
    """Refuses a source, on the driver, if its library is not installed there."""
    if importlib.util.find_spec(module) is None:
        raise PatternError(
            f"{what} needs the library {module}, which is not installed",
            hint=f"pip install 'spark-cep[{extra}]', on the workers' machines too",
        )


def show_key(key: object) -> str:
    """The beginning of a key, for an error. Values are not shown: they may be private."""
    text = repr(key)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}... ({len(text)} long)"


# ---- templates -----------------------------------------------------------------------------------
#
# Keys go into templates such as `limit:{}` or `{0}/{1}`. Only `{}` and numbers are placeholders, so
# that other braces, as in the hash tags of Redis, stay as they are. Each part of the key has a
# placeholder: otherwise two keys could become one text.


_PLACEHOLDER = re.compile(r"\{(\d*)\}")


def has_placeholders(template: str) -> bool:
    return _PLACEHOLDER.search(template) is not None


def check_placeholders(template: str, parts: int, what: str) -> None:
    """Refuses a template that does not have a placeholder for each part of the key."""
    named = [found or "0" for found in _PLACEHOLDER.findall(template)]
    if "" in _PLACEHOLDER.findall(template) and (parts > 1 or set(named) != {"0"}):
        raise PatternError(
            f"{what} {template!r} has the placeholder {{}}, and the key has {parts} parts",
            hint="number the placeholders: " + ":".join(f"{{{part}}}" for part in range(parts)),
        )
    if {int(name) for name in named} != set(range(parts)):
        raise PatternError(
            f"{what} {template!r} has placeholders for {len(set(named))} key parts, and "
            f"remote(...) is called with {parts}",
            hint="write a placeholder for each part: "
            + ":".join(f"{{{part}}}" for part in range(parts)),
        )


def fill_template(template: str, key: Any, quoting: Callable[[str], str] = str) -> str:
    """The template with the parts of a key in place of the placeholders.

    >>> fill_template("{0}:{1}", ("eu", 7)), fill_template("user:{}", "a b")
    ('eu:7', 'user:a b')
    """
    parts = key if isinstance(key, tuple) else (key,)
    return _PLACEHOLDER.sub(
        lambda found: quoting(format_key_part(parts[int(found.group(1) or 0)])), template
    )


def format_key_part(part: Any) -> str:
    """A part of a key as text: true, 7, 2024-01-31, 2024-01-31T10:00:00."""
    if isinstance(part, bool):
        return "true" if part else "false"
    if isinstance(part, bytes):
        return part.decode("utf-8", "surrogateescape")
    return part.isoformat() if isinstance(part, date) else str(part)


# ---- clients -----------------------------------------------------------------------------------
#
# A client is made at the first fetch, in the process that fetches, so that no connection is ever
# pickled or crosses a fork. The copies of a source, one in each task, are recognized by their
# identity, because sources made of functions are not equal after pickling. Clients are made under
# one lock and used by several threads at once. No client is closed while a thread uses it.

# Beyond this number the least recently used clients are closed: their queries are over.
_MOST_CLIENTS = 16


@dataclass
class _OpenClient:
    client: Any
    close: Callable[[Any], None]
    users: int = 0
    is_kept: bool = True

    def close_if_unused(self) -> None:
        if not self.is_kept and self.users == 0:
            self.close(self.client)


_open_clients: OrderedDict[tuple[int, str], _OpenClient] = OrderedDict()
_lock = threading.Lock()


@contextmanager
def use_client(
    identity: str, make: Callable[[], Any], close: Callable[[Any], None]
) -> Iterator[Any]:
    """The client of this process for a source, which is made at the first use."""
    key = (os.getpid(), identity)
    with _lock:
        if key not in _open_clients:
            _open_clients[key] = _OpenClient(make(), close)
        one = _open_clients[key]
        one.users += 1
        _open_clients.move_to_end(key)
        while len(_open_clients) > _MOST_CLIENTS:
            _drop_client(next(iter(_open_clients)))
    try:
        yield one.client
    finally:
        with _lock:
            one.users -= 1
            one.close_if_unused()


def forget_client(identity: str) -> None:
    """Drops a client whose secret was refused, so that the next fetch makes a new one."""
    with _lock:
        _drop_client((os.getpid(), identity))


def forget_all_clients() -> None:
    """Closes all clients: idle ones now, the others when they are no longer used."""
    with _lock:
        for key in list(_open_clients):
            _drop_client(key)


def _drop_client(key: tuple[int, str]) -> None:
    one = _open_clients.pop(key, None)
    # A client that was inherited by a fork is the parent's to close.
    if one is not None and key[0] == os.getpid():
        one.is_kept = False
        one.close_if_unused()
