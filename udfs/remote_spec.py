"""What the driver ships of a remote source, and what workers count of it.

Always holds: the strategy is decided (never "auto") and changes time, not the answer. `fetch`, and
whatever secrets it holds, are in no repr.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import pyarrow as pa


# Keys are plain values, or tuples where `remote(...)` has several keys.
FetchFunction = Callable[[list[Any]], Mapping[Any, Any]]

FetchStrategy = Literal["blocking", "cached", "post", "prefetch", "lazy", "hybrid"]


@dataclass(frozen=True)
class Caching:
    """A cache policy. `capacity` is in bytes. The weights are omega of EIRES, Equation 5, the
    current against the expected need: `fetch_weight` for what to prefetch, `cache_weight` for what
    to keep."""

    policy: Literal["lru", "cost"] = "lru"
    capacity: int = 64 << 20
    fetch_weight: float = 0.7
    cache_weight: float = 0.5


@dataclass(frozen=True)
class FetchPolicy:
    """How calls are made and repeated. Times are in seconds. One call requests up to `batch` keys,
    and at most `in_flight` calls run at a time. After `failures` failed calls in a row no call is
    made for `pause` seconds (an open circuit)."""

    timeout: float = 10.0
    retries: int = 3
    backoff: float = 0.1
    batch: int = 1000
    in_flight: int = 4
    failures: int = 8
    pause: float = 5.0


@dataclass(frozen=True)
class RemoteSpec:
    """One source of a query. `keys` and `value` are Arrow types. `part_of`: from a key to the key
    of the whole that is fetched for it; `fetch` then takes keys of wholes and returns for each a
    mapping of its parts. `ttl`: the seconds after which a value is fetched again in the next
    trigger. `token`: one per call of match_pattern, so that no two queries share a cache.
    `is_local`: `fetch` answers at once, so nothing is prefetched or postponed. `prefetch_budget`:
    how many keys may be requested for each one that is needed. `max_wait`: the seconds that a
    trigger of a stream waits for values. `show_errors`: failures quote exceptions."""

    name: str
    fetch: FetchFunction = field(repr=False, compare=False)
    keys: tuple[pa.DataType, ...]
    value: pa.DataType
    strategy: FetchStrategy = "cached"
    caching: Caching = Caching()
    fetch_policy: FetchPolicy = FetchPolicy()
    on_error: Literal["fail", "null"] = "fail"
    ttl: float | None = None
    part_of: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)
    token: str = field(default="", compare=False)
    is_local: bool = False
    prefetch_budget: float = 1.3
    max_wait: float | None = None
    show_errors: bool = False

    @property
    def prefetches(self) -> bool:
        return self.strategy in ("prefetch", "hybrid") and not self.is_local

    @property
    def postpones(self) -> bool:
        return self.strategy in ("lazy", "hybrid") and not self.is_local


# ---- metrics -------------------------------------------------------------------------------------


_PEAKS: Final = frozenset({"bytes"})


@dataclass
class LookupMetrics:
    """`calls` of the source's function and the `keys` requested in them, retries too. `used`: the
    fetched keys whose value was read; `wasted`: the requested ones whose was not. `hits` and
    `misses`: needed keys that were present or not, once per evaluation. `prefetched` keys, and how
    many of them were used. `waited_s`: how long matching waited; `hidden_s`: for how long it
    continued while a value was fetched that it read later. `failures`: keys given up. `unasked`:
    keys in answers that were not requested. `bytes`: the most that was kept after a block."""

    calls: int = 0
    keys: int = 0
    used: int = 0
    hits: int = 0
    misses: int = 0
    prefetched: int = 0
    prefetched_used: int = 0
    waited_s: float = 0.0
    hidden_s: float = 0.0
    retries: int = 0
    failures: int = 0
    unasked: int = 0
    evicted: int = 0
    bytes: int = 0

    def add(self, other: LookupMetrics) -> None:
        for name, theirs in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, max(mine, theirs) if name in _PEAKS else mine + theirs)

    def take(self) -> LookupMetrics:
        """The counts since the last call."""
        taken = LookupMetrics(**vars(self))
        vars(self).update(vars(LookupMetrics()))
        return taken

    @property
    def wasted(self) -> int:
        # A value may be read in a later trigger than the one that fetched it.
        return max(self.keys - self.used, 0)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "wasted": self.wasted}

    @classmethod
    def from_dict(cls, counted: Mapping[str, Any]) -> LookupMetrics:
        """The counts of a dictionary; a missing one is 0."""
        return cls(**{f.name: counted[f.name] for f in fields(cls) if f.name in counted})
