"""Texts with places for keys: `limit:{}`, `{0}/{1}`.

Only `{}` and numbers are places, so that other braces, as in the hash tags of Redis, stay as they
are. Always holds: each part of the key has a place, so no two parts' keys are confused by a part
that was forgotten.
"""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING, Any

from spark_cep.udfs.errors import PatternError

if TYPE_CHECKING:
    from collections.abc import Callable

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


def filled(template: str, key: Any, quoting: Callable[[str], str] = str) -> str:
    """The template with the parts of a key in their places.

    >>> filled("{0}:{1}", ("eu", 7)), filled("user:{}", "a b")
    ('eu:7', 'user:a b')
    """
    parts = key if isinstance(key, tuple) else (key,)
    return _PLACE.sub(lambda found: quoting(text_of(parts[int(found.group(1) or 0)])), template)


def text_of(part: Any) -> str:
    """A part of a key as text: true, 7, 2024-01-31, 2024-01-31T10:00:00."""
    if isinstance(part, bool):
        return "true" if part else "false"
    if isinstance(part, bytes):
        return part.decode("utf-8", "surrogateescape")
    return part.isoformat() if isinstance(part, date) else str(part)
