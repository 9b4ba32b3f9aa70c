"""What is counted of one remote source.

`calls` of the user's function, `keys` asked for in them. `hits` and `misses`: keys that were
needed, once for each evaluation, and were there or not. `prefetched` keys, and how many of them
were used: the accuracy. `waited_s`: matching stood still for so long; `hidden_s`: so much of the
time that fetches took, matching went on. `failures`: keys given up. `unasked`: keys in answers
that nobody asked for. `bytes`: the most that was kept after a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

_PEAKS: Final = frozenset({"bytes"})


@dataclass
class LookupMetrics:
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
        """What was counted since the last time."""
        taken = LookupMetrics(**vars(self))
        vars(self).update(vars(LookupMetrics()))
        return taken

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, counted: Mapping[str, Any]) -> LookupMetrics:
        """What is missing was not counted."""
        return cls(**{f.name: counted[f.name] for f in fields(cls) if f.name in counted})
