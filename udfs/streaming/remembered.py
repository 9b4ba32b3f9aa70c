"""What a worker process still has in memory of a bucket, so that the store need not be read.

The store is the truth. What is remembered counts only if the header in the store carries the very
nonce that it was remembered with: another worker, a task that was tried again or a restart of the
query have written another one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol, TypeVar

# Buckets come and go between workers; what was not asked for the longest is forgotten first.
MOST_BYTES: Final = 256 << 20


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


_T = TypeVar("_T")
_Key = tuple[str, int]
_known: OrderedDict[_Key, tuple[str, Sized]] = OrderedDict()


def recall(token: str, bucket: int, nonce: str, kind: type[_T]) -> _T | None:
    found = _known.pop((token, bucket), None)
    if found is None or found[0] != nonce:
        return None
    assert isinstance(found[1], kind)
    return found[1]


def remember(token: str, bucket: int, nonce: str, what: Sized) -> None:
    for key in [key for key in _known if key[0] != token]:
        # A worker may serve several queries at once; those that have ended leave nothing behind
        # for long, since all share the room.
        if _size() < MOST_BYTES // 2:
            break
        del _known[key]
    _known[token, bucket] = nonce, what
    while len(_known) > 1 and _size() > MOST_BYTES:
        _known.popitem(last=False)


def _size() -> int:
    return sum(each.nbytes for _, each in _known.values())


def forget() -> None:
    """Everything, as in a new worker."""
    _known.clear()
