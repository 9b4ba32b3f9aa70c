"""How much a lookup may fetch ahead of time, and how much time that has hidden.

Always holds: the keys fetched ahead and not needed so far are at most (budget - 1) times the needed
ones, a small start, and one for each key that was fetched ahead in time. So where fetching ahead
hides nothing, the source is asked for no more than `prefetch_budget` times what is needed; where
it does, the fetches that hide the next latencies are not held back. Waited and hidden time
together never exceed the time that has passed.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

# Keys that may be fetched ahead before any key was needed: enough to see whether they are.
PREFETCH_START: Final = 8


@dataclass
class PrefetchBudget:
    """`needed`: the fetched keys that were needed; `unneeded`: those that were fetched ahead and
    not needed so far; `timely`: those whose value was there when it was needed."""

    factor: float
    needed: int = 0
    unneeded: int = 0
    timely: int = 0

    def grant(self, wanted: int) -> int:
        """How many of the wanted keys may be fetched ahead now. A few of many would cost a call
        for little, so then it is none."""
        if self.factor <= 1:
            return 0
        allowed = (self.factor - 1) * self.needed + PREFETCH_START + self.timely - self.unneeded
        return min(wanted, int(allowed)) if allowed >= min(wanted, PREFETCH_START) else 0


# Spans apart from each other; beyond that the oldest two become one, so hidden time counts less.
_MOST_SPANS: Final = 1024


class CoveredTime:
    """A set of times as spans in order, none of which touches another.

    >>> covered = CoveredTime()
    >>> covered.add(1.0, 3.0), covered.add(2.0, 5.0), covered.add(0.0, 6.0), covered.add(1.0, 2.0)
    (2.0, 2.0, 2.0, 0.0)
    """

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def add(self, start: float, end: float) -> float:
        """Adds a span; returns how much of it was not covered before."""
        if end <= start:
            return 0.0
        starts, ends = self._starts, self._ends
        low = bisect.bisect_left(ends, start)
        high = bisect.bisect_right(starts, end)
        within = sum(
            min(end, ends[place]) - max(start, starts[place]) for place in range(low, high)
        )
        if low < high:
            start_of_all, end_of_all = min(start, starts[low]), max(end, ends[high - 1])
        else:
            start_of_all, end_of_all = start, end
        starts[low:high], ends[low:high] = [start_of_all], [end_of_all]
        if len(starts) > _MOST_SPANS:
            del starts[1], ends[0]
        return end - start - within
