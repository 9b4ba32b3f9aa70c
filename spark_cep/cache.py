"""`cep.cache`: what a worker process keeps of a remote source, for the `cache` of `cep.Remote`.

A policy decides how often a value is fetched again, never the answer. `cache="auto"` leaves the
choice to `spark_cep/remotes/sources.py`, which knows how the pattern selects its rows.
"""

from __future__ import annotations

from spark_cep.adapt import is_number
from spark_cep.errors import PatternError
from spark_cep.expressions.byte_sizes import byte_size
from spark_cep.udfs.remote_spec import Caching

__all__ = ["cost_based", "lru"]


def lru(size: str | int = "64 MB") -> Caching:
    """A cache that evicts the least recently used values.

    Args:
        size: how much each worker process keeps of the source: text with a unit, or a number of
            bytes. As in Spark's settings, units are powers of 1024 in any spelling: "64 MB",
            "64 MiB", "64m".

    Returns:
        The value for `cache=` of `cep.Remote.fetch` and its siblings.

    Raises:
        PatternError: if `size` is not a size above 0.

    Example:
        >>> lru("1 MB").capacity
        1048576
    """
    return Caching("lru", capacity=_check_bytes(size))


def cost_based(
    size: str | int = "64 MB", *, fetch_weight: float = 0.7, cache_weight: float = 0.5
) -> Caching:
    """A cache that evicts the values with the least utility for their size.

    The utility of a value is how many partial matches need it now and how many are expected to
    need it, weighted by the latency of the source (EIRES, Equations 3 to 5).

    Args:
        size: as in `lru`.
        fetch_weight: the weight of the current need against the expected need, from 0 to 1, when
            keys to prefetch are chosen.
        cache_weight: the same when values to keep are chosen.

    Returns:
        The value for `cache=` of `cep.Remote.fetch` and its siblings.

    Raises:
        PatternError: if `size` is not a size above 0, or a weight is not between 0 and 1.

    Example:
        >>> cost_based("1 MB", cache_weight=0.8).cache_weight
        0.8
    """
    return Caching(
        "cost",
        _check_bytes(size),
        _check_weight("fetch_weight", fetch_weight),
        _check_weight("cache_weight", cache_weight),
    )


def check_cache(value: object) -> Caching | None:
    """The value of `cache=`; None for "auto"."""
    if isinstance(value, Caching):
        return value
    if value == "auto":
        return None
    raise PatternError(
        f"{value!r} is not a cache",
        hint='use "auto", cep.cache.lru("64 MB") or cep.cache.cost_based("64 MB")',
    )


def _check_bytes(size: object) -> int:
    number = byte_size(size) if isinstance(size, str) else size
    if isinstance(number, int) and not isinstance(number, bool) and number > 0:
        return number
    raise PatternError(
        f"{size!r} is not a cache size",
        hint='write a size above 0 with its unit, "64 MB", "512 KB" or "1 GB" (MB and MiB are '
        "both 1024 * 1024 bytes, as in Spark), or a number of bytes",
    )


def _check_weight(name: str, value: float) -> float:
    if is_number(value) and 0 <= float(value) <= 1:
        return float(value)
    raise PatternError(
        f"{name} is {value!r}",
        hint=f"a weight is a number from 0 to 1: {name}=0.7 gives the current need 70 %",
    )
