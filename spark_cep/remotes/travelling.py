"""Whether a function can travel to the workers, and what in it cannot.

It is pickled as Spark pickles it, before any job: what fails here would else fail in the first
action, with a message about pickling that names no variable.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle


def hindrance(fn: object) -> str | None:
    """What keeps it from travelling, as a sentence's end; None if nothing does.

    >>> import threading
    >>> lock = threading.Lock()
    >>> hindrance(lambda keys: lock.acquire())
    'lock (a lock) cannot be pickled'
    """
    if _travels(fn):
        return None
    for name, value in _held(fn):
        if not _travels(value):
            return f"{name} (a {type(value).__name__}) cannot be pickled"
    return f"{getattr(fn, '__name__', type(fn).__name__)} cannot be pickled"


def _travels(value: object) -> bool:
    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception:  # whatever a __reduce__ raises
        return False
    return True


def _held(fn: Any) -> Iterator[tuple[str, Any]]:
    """What a function reads from outside, and what an object has in it."""
    if inspect.isfunction(fn):
        read = inspect.getclosurevars(fn)
        yield from read.nonlocals.items()
        yield from read.globals.items()
        yield from zip(inspect.signature(fn).parameters, fn.__defaults__ or (), strict=False)
    elif inspect.ismethod(fn):
        yield from _held(fn.__self__)
    else:
        yield from vars(fn).items() if hasattr(fn, "__dict__") else ()
