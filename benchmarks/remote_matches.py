"""Complete matches of the engine on a virtual clock, and those that wait for a remote element.

Always holds: a match that waits is told of each of its elements once, when it comes; it is found
when the last one has come and none was bad. The engine does not stand still for it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.remote_automaton import NOTHING

if TYPE_CHECKING:
    import numpy as np


@dataclass
class Matches:
    """The events of each match, the last one's place in the stream, and when it was detected."""

    events: list[tuple[int, ...]] = field(default_factory=list)
    detected: list[float] = field(default_factory=list)

    def add(self, events: np.ndarray, times: np.ndarray) -> None:
        self.events += map(tuple, events.tolist())
        self.detected += times.tolist()


class Aside:
    """Complete matches that wait for remote elements, by element."""

    def __init__(self) -> None:
        self._of: dict[int, list[int]] = defaultdict(list)
        self._left: list[int] = []
        self._events: list[tuple[int, ...]] = []

    def add(self, events: np.ndarray, owed: np.ndarray) -> None:
        for row, keys in zip(events.tolist(), owed.tolist(), strict=True):
            missing = [each for each in keys if each != NOTHING]
            for each in missing:
                self._of[each >> 1].append(len(self._left) << 1 | each & 1)
            self._left.append(len(missing))
            self._events.append(tuple(row))

    def arrived(self, key: int) -> list[tuple[int, ...]]:
        """Those of which it was the last element, and none was bad."""
        found = []
        for coded in self._of.pop(key, ()):
            place = coded >> 1
            self._left[place] = -1 if coded & 1 else self._left[place] - 1
            if self._left[place] == 0:
                found.append(self._events[place])
        return found
