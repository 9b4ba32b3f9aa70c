"""What is kept of remote data in a worker: the policies a user may ask for, with their sizes.

A policy decides how often something is fetched again, never the answer. `cache="auto"` leaves the
choice to `remotes/choice.py`, which knows how the pattern selects its rows.
"""

from __future__ import annotations

from typing import Any

from spark_cep.adapt import is_number
from spark_cep.errors import PatternError
from spark_cep.expressions.byte_sizes import byte_size
from spark_cep.udfs.remote_spec import Caching

__all__ = ["cost_based", "lru"]


def lru(size: str | int = "64 MB") -> Caching:
    """What was not asked for longest makes room.

    `size` is text with a unit, or a number of bytes. As in Spark's settings units are powers of
    1024, in any spelling: "64 MB", "64 MiB", "64m".

    >>> lru("1 MB").capacity
    1048576
    """
    return Caching("lru", capacity=_bytes(size))


def cost_based(
    size: str | int = "64 MB", *, fetch_weight: float = 0.7, cache_weight: float = 0.5
) -> Caching:
    """What the partial matches need least for its size makes room. `size` as in `lru`.

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
    found = byte_size(size) if isinstance(size, str) else size
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        return found
    raise PatternError(
        f"{size!r} is no size of a cache",
        hint='write a size above 0 with its unit, "64 MB", "512 KB" or "1 GB" (MB and MiB are '
        "both 1024 * 1024 bytes, as in Spark), or a number of bytes",
    )


def _share(name: str, value: Any) -> float:
    if is_number(value) and 0 <= float(value) <= 1:
        return float(value)
    raise PatternError(
        f"{name} is {value!r}", hint="a weight is a share: 0.7 is 70 % for what is needed now"
    )
