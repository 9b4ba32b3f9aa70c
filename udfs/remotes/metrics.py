"""The counts of one remote source in a worker. Their names are metrics of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

_PEAKS: Final = frozenset({"bytes"})


@dataclass
class LookupMetrics:
    """`calls` of the source's function and the `keys` requested in them. `hits` and `misses`:
    needed keys that were present or not, once per evaluation. `prefetched` keys, and how many of
    them were used. `waited_s`: how long matching waited; `hidden_s`: the part of the latency of
    fetches during which matching continued. `failures`: keys given up. `unasked`: keys in answers
    that were not requested. `bytes`: the most that was kept after a block."""

    calls: int = 0
    keys: int = 0
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

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, counted: Mapping[str, Any]) -> LookupMetrics:
        """The counts of a dictionary; a missing one is 0."""
        return cls(**{f.name: counted[f.name] for f in fields(cls) if f.name in counted})
