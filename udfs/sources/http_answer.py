"""What an HTTP service said: which value a JSON answer has, and what a status means.

Always holds: nothing is read beyond the size limit or the time; a redirect is not followed, since
headers with secrets would go along; a path that ends in a field that is not there is a missing
value, one that breaks off before is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from spark_cep.udfs.errors import RemoteError
from spark_cep.udfs.sources.decoding import MisfitError, outline
from spark_cep.udfs.sources.failing import shown

_TOO_MANY = 429
_TIMED_OUT = 408
_MISSING = (404, 410)
# Not logged in, not this method, not this proxy.
_OF_ANY_KEY = (401, 405, 407)
Body = bytes | RemoteError | None


class BusyError(Exception):
    """The service may answer later; `after` in seconds if it said when, `too_often`: it is asked
    more than it likes."""

    def __init__(self, text: str, after: float | None = None, *, too_often: bool = False) -> None:
        super().__init__(text)
        self.after = after
        self.too_often = too_often


@dataclass(frozen=True)
class Bounds:
    """`until`: the moment of the monotonic clock when the time is over."""

    until: float
    max_bytes: int

    def left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise BusyError("the time is over")
        return left


def body_of(response: Any, bounds: Bounds) -> Body:
    """The body of a streamed answer, None where it says that there is nothing. What is wrong with
    this key only is given, what would be wrong with any is raised."""
    status = response.status_code
    if status in _MISSING:
        return None
    if status in (_TOO_MANY, _TIMED_OUT) or status >= 500:
        after = _retry_after(response.headers.get("Retry-After"))
        text = f"status {status} {response.reason_phrase}"
        raise BusyError(text, after, too_often=status == _TOO_MANY)
    if status in _OF_ANY_KEY or 300 <= status < 400:
        raise _refused(status, response)
    if status >= 400:
        return _refused(status, response)
    if status == 204:
        return None
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > bounds.max_bytes:
            return RemoteError(
                f"an answer is larger than {bounds.max_bytes} bytes",
                hint="max_bytes=... takes larger ones; a path into a smaller one is better",
            )
        bounds.left()
    return b"".join(parts)


def _refused(status: int, response: Any) -> RemoteError:
    if status < 400:
        return RemoteError(
            f"status {status}: the answer is elsewhere, and redirects are not followed",
            hint="write the URL to which it leads",
        )
    hint = "give the headers that the service wants" if status in (401, 403) else None
    return RemoteError(f"status {status} {response.reason_phrase}", hint=hint)


def _retry_after(text: str | None) -> float | None:
    """Seconds from now; both forms of the header."""
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


def at_path(answer: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path of fields and places.

    >>> at_path({"data": [{"max": 7}]}, ("data", "0", "max"))
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
            raise MisfitError(f"has no {'.'.join(path[: depth + 1])} in {outline(answer)}")
    return answer


def by_key(answer: Any, key: tuple[str, ...], value: tuple[str, ...]) -> Callable[[Any], Any]:
    """The values of a batch's answer: an object from key to value, or where `key` names their
    fields an array of objects."""
    if not key:
        if not isinstance(answer, Mapping):
            raise MisfitError(f"is no object from keys to values, but {outline(answer)}")
        return lambda text: at_path(answer.get(text), value)
    if not isinstance(answer, list):
        raise MisfitError(f"is no array of objects, but {outline(answer)}")
    found: dict[Any, Any] = {}
    for one in answer:
        parts = tuple(str(at_path(one, (name,))) for name in key)
        if parts in found:
            raise MisfitError(f"has the key {shown(parts if len(key) > 1 else parts[0])} twice")
        found[parts] = at_path(one, value)
    return lambda text: found.get(text if isinstance(text, tuple) else (text,))
