"""What is kept of remote data in a worker: the policies a user may ask for, with their sizes.

A policy decides how often something is fetched again, never the answer. `cache="auto"` leaves the
choice to `remotes/choice.py`, which knows how the pattern selects its rows.
"""

from __future__ import annotations

import re
from typing import Any

from spark_cep.adapt import is_number
from spark_cep.errors import PatternError
from spark_cep.udfs.remote_spec import Caching

__all__ = ["cost_based", "lru"]

_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?)(i?)(b?)\s*", re.I)


def lru(size: str | int = "64 MB") -> Caching:
    """What was not asked for longest makes room.

    >>> lru("1 MB").capacity
    1048576
    """
    return Caching("lru", capacity=_bytes(size))


def cost_based(
    size: str | int = "64 MB", *, fetch_weight: float = 0.7, cache_weight: float = 0.5
) -> Caching:
    """What the partial matches need least for its size makes room.

    The weights are shares of what is needed now, against what will be: `fetch_weight` where it is
    decided what to fetch ahead, `cache_weight` where what to keep.
    """
    return Caching(
        "cost",
        _bytes(size),
        _share("fetch_weight", fetch_weight),
        _share("cache_weight", cache_weight),
    )


def caching(value: object) -> Caching | None:
    """What `cache=` takes; None for "auto"."""
    if isinstance(value, Caching):
        return value
    if value == "auto":
        return None
    raise PatternError(
        f"{value!r} is no cache",
        hint='cache is "auto", cep.cache.lru("64 MB") or cep.cache.cost_based("64 MB")',
    )


def _bytes(size: object) -> int:
    found = 0
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    elif isinstance(size, str):
        parts = _SIZE.fullmatch(size)
        found = int(float(parts[1]) * 2 ** _UNITS[parts[2].lower()]) if parts else 0
    if found <= 0:
        raise PatternError(
            f"{size!r} is no size of a cache",
            hint='write a size above 0, "64 MB", "512 KB" or "1 GB", or a number of bytes',
        )
    return found


def _share(name: str, value: Any) -> float:
    if is_number(value) and 0 <= float(value) <= 1:
        return float(value)
    raise PatternError(
        f"{name} is {value!r}", hint="a weight is a share: 0.7 is 70 % for what is needed now"
    )
