"""One client, connection pool included, for each source of a worker process.

A client is made at the first fetch, in the process that fetches: nothing that is connected is
ever pickled or crosses a fork. Copies of a source, one in each task, know each other by their
identity, since those made of functions are not equal after pickling. Made under one lock; the
clients themselves are used by several threads at once. Always holds: no client is closed while a
thread uses it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Beyond so many, those not used for longest are closed: their queries are over.
_KEPT = 16


@dataclass
class _Open:
    client: Any
    close: Callable[[Any], None]
    users: int = 0
    is_kept: bool = True

    def close_if_unused(self) -> None:
        if not self.is_kept and self.users == 0:
            self.close(self.client)


_open: OrderedDict[tuple[int, str], _Open] = OrderedDict()
_lock = threading.Lock()


@contextmanager
def using(identity: str, make: Callable[[], Any], close: Callable[[Any], None]) -> Iterator[Any]:
    """The client of this process for a source, made if there is none."""
    key = (os.getpid(), identity)
    with _lock:
        if key not in _open:
            _open[key] = _Open(make(), close)
        one = _open[key]
        one.users += 1
        _open.move_to_end(key)
        while len(_open) > _KEPT:
            _drop(next(iter(_open)))
    try:
        yield one.client
    finally:
        with _lock:
            one.users -= 1
            one.close_if_unused()


def forget(identity: str) -> None:
    """The next fetch makes a new client: the secret with which this one was made is not taken."""
    with _lock:
        _drop((os.getpid(), identity))


def forget_all() -> None:
    """Closes what is not in use now, and the rest when it is no more."""
    with _lock:
        for key in list(_open):
            _drop(key)


def _drop(key: tuple[int, str]) -> None:
    one = _open.pop(key, None)
    # What a fork brought along is its parent's to close.
    if one is not None and key[0] == os.getpid():
        one.is_kept = False
        one.close_if_unused()
