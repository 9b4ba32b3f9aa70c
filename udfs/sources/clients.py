"""One client, connection pool included, for each source of a worker process.

A client is made at the first fetch, in the process that fetches: nothing that is connected is
ever pickled or crosses a fork. Copies of a source, one in each task, know each other by their
identity, since those made of functions are not equal after pickling. Made under one lock; the
clients themselves are used by several threads at once. Always holds: no client is closed while a
thread uses it.
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

# --------------------------------------------------------------------------------------------------
# How ready sources fail: for good, in passing, or because a library is missing.
#
# Always holds: a `RemoteError` is final and is not tried again; a `PassingFailure` may be over at
# the next try, so the retries, the pause and the limit of the remote are for it. Texts are
# scrubbed, and both are raised outside of the `except` that saw the library's error: its text,
# which may quote a password, is then not even in a chained exception.
#
# What is wrong with one key only is not raised: the `RemoteError` is the value of that key. Which
# keys share a batch depends on the strategy, and must not decide whether a query fails.
# --------------------------------------------------------------------------------------------------


Result = TypeVar("Result")

_LONGEST_KEY = 60


class TransientError(Exception):
    """A fetch failed, and the next try may not."""


def attempt(
    ask: Callable[[], Result], told: Callable[[Exception], Exception], extra: str
) -> Result:
    """What `ask` gives, else the failure that `told` makes of its error."""
    failure: Exception
    try:
        return ask()
    except ImportError as error:
        failure = RemoteError(
            f"a worker lacks a library: {error}",
            hint=f"pip install 'spark-cep[{extra}]' on the workers' machines too",
        )
    except Exception as error:
        failure = told(error)
    raise failure


def require_library(module: str, extra: str, what: str) -> None:
    """Refuses what needs a library that is not installed here, on the driver."""
    if importlib.util.find_spec(module) is None:
        raise PatternError(
            f"{what} needs the library {module}, which is not installed",
            hint=f"pip install 'spark-cep[{extra}]', on the workers' machines too",
        )


def show_key(key: object) -> str:
    """A key in an error: what it begins with. Values are not shown: they may be private."""
    text = repr(key)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}... ({len(text)} long)"


# --------------------------------------------------------------------------------------------------
# Texts with places for keys: `limit:{}`, `{0}/{1}`.
#
# Only `{}` and numbers are places, so that other braces, as in the hash tags of Redis, stay as they
# are. Always holds: each part of the key has a place, so no two parts' keys are confused by a part
# that was forgotten.
# --------------------------------------------------------------------------------------------------


_PLACE = re.compile(r"\{(\d*)\}")


def has_places(template: str) -> bool:
    return _PLACE.search(template) is not None


def check_places(template: str, parts: int, what: str) -> None:
    """Each of the key's parts must have a place, and each place a part."""
    named = [found or "0" for found in _PLACE.findall(template)]
    if "" in _PLACE.findall(template) and (parts > 1 or set(named) != {"0"}):
        raise PatternError(
            f"{what} {template!r} has the place {{}}, and the key has {parts} parts",
            hint="number the places: " + ":".join(f"{{{part}}}" for part in range(parts)),
        )
    if {int(name) for name in named} != set(range(parts)):
        raise PatternError(
            f"{what} {template!r} has places for {len(set(named))} key parts, and remote(...) is "
            f"called with {parts}",
            hint="write a place for each: " + ":".join(f"{{{part}}}" for part in range(parts)),
        )


def fill_template(template: str, key: Any, quoting: Callable[[str], str] = str) -> str:
    """The template with the parts of a key in their places.

    >>> fill_template("{0}:{1}", ("eu", 7)), fill_template("user:{}", "a b")
    ('eu:7', 'user:a b')
    """
    parts = key if isinstance(key, tuple) else (key,)
    return _PLACE.sub(
        lambda found: quoting(format_key_part(parts[int(found.group(1) or 0)])), template
    )


def format_key_part(part: Any) -> str:
    """A part of a key as text: true, 7, 2024-01-31, 2024-01-31T10:00:00."""
    if isinstance(part, bool):
        return "true" if part else "false"
    if isinstance(part, bytes):
        return part.decode("utf-8", "surrogateescape")
    return part.isoformat() if isinstance(part, date) else str(part)


# Beyond so many, those not used for longest are closed: their queries are over.
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
    """The client of this process for a source, made if there is none."""
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
    """The next fetch makes a new client: the secret with which this one was made is not taken."""
    with _lock:
        _drop_client((os.getpid(), identity))


def forget_all_clients() -> None:
    """Closes what is not in use now, and the rest when it is no more."""
    with _lock:
        for key in list(_open_clients):
            _drop_client(key)


def _drop_client(key: tuple[int, str]) -> None:
    one = _open_clients.pop(key, None)
    # What a fork brought along is its parent's to close.
    if one is not None and key[0] == os.getpid():
        one.is_kept = False
        one.close_if_unused()
