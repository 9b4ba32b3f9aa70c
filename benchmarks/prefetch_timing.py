"""When to fetch ahead what a class of partial matches will need: EIRES Algorithm 3.

Either when a partial match of an earlier class appears (lookahead), the latest one that holds the
key and has not led to misses; or, where there is none, so long after the class itself appears
that the value comes when the next event is expected (estimated arrival).

Pure but for the history, which forgets its misses some time after the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# So many misses are evidence that a class comes too late, and so long they are remembered.
MISS_THRESHOLD: Final = 3
MEMORY_S: Final = 10.0


class MissHistory:
    """Misses of values that were fetched ahead at one class and needed at another."""

    def __init__(self, threshold: int = MISS_THRESHOLD, memory_s: float = MEMORY_S) -> None:
        self._threshold = threshold
        self._memory_s = memory_s
        self._misses: dict[tuple[int, int], tuple[int, float]] = {}

    def missed(self, at: int, needed_by: int, now: float, count: int = 1) -> None:
        """A value asked for at class `at` was not here when class `needed_by` needed it."""
        self._misses[at, needed_by] = (self._count(at, needed_by, now) + count, now)

    def suits(self, at: int, needed_by: int, now: float) -> bool:
        return self._count(at, needed_by, now) < self._threshold

    def _count(self, at: int, needed_by: int, now: float) -> int:
        count, last = self._misses.get((at, needed_by), (0, now))
        return 0 if now - last >= self._memory_s else count


@dataclass(frozen=True)
class PrefetchTiming:
    """Fetch ahead `offset_s` seconds after a partial match of class `level` has appeared."""

    level: int
    offset_s: float = 0.0


def choose_lookahead(
    needed_by: int, holders: Iterable[int], history: MissHistory, now: float
) -> PrefetchTiming | None:
    """The latest class before `needed_by`, of those that hold the key, that suits."""
    earlier = sorted((level for level in holders if level < needed_by), reverse=True)
    found = (level for level in earlier if history.suits(level, needed_by, now))
    return next((PrefetchTiming(level) for level in found), None)


def estimate_arrival(level: int, rate: float, latency: float) -> PrefetchTiming:
    """`rate`: events per second that would extend a partial match of the class, but for what is
    fetched. A value that takes longer than the next event is fetched at once."""
    if rate <= 0:
        return PrefetchTiming(level, float("inf"))
    return PrefetchTiming(level, max(1 / rate - latency, 0.0))
