"""What the library decides about remote elements, asked event by event.

The functions are those of `udfs/remotes`: utility (Eqs. 3 to 7), what a cache keeps, when to fetch
ahead (Alg. 3) and how long to postpone (Alg. 4). Here are the columns that they are asked about,
and what asking costs. An element is its key; all have one size.

The library's engine counts the needs of a block, and its future is one step. Here, event by event,
the urgent utility counts partial matches that live (Eq. 3) and the future is as long as the window
of the query (k' - k in Eq. 6), which is WINDOW steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.postponement import GrowthRates, useful_postponements
from benchmarks.prefetch_timing import MissHistory, choose_lookahead, estimate_arrival
from spark_cep.udfs.remote_spec import Caching
from spark_cep.udfs.remotes.cache import (
    UTILITY_WINDOW,
    CachedElements,
    FetchUtility,
    choose_kept,
    is_worth_fetching,
    overall_utility,
    urgent_utility,
)

if TYPE_CHECKING:
    from benchmarks.remote_source import Setting

# Seconds for an element, measured with arrays of 10,000 on one core of an AMD EPYC and fixed, so
# that figures are repeatable: asking whether it is here; noting that it is needed; its utility;
# choosing what is kept, by use and by utility.
ASK = 2e-9
NOTE = 2e-9
WORTH = 29e-9
ORDER = {"lru": 49e-9, "cost": 102e-9}
# A decision whether to go on: a few products.
THINK = 50e-9
# Choosing what is kept costs by what there is, so when it is due a sixteenth more goes.
_SPARE = 16
# What one more partial match costs, for Alg. 4: it is made, and tested with some later events.
PARTIAL = 100e-9
# A new observation's share of the average delay.
_SMOOTHING = 0.1
# Classes of one sequence are numbered from a multiple of this.
CLASSES = 16


@dataclass
class Flow:
    """Of one class: how often events could extend its partial matches, and for how long how many
    there were."""

    extensions: float = 0.0
    exposure: float = 0.0
    since: float = 0.0

    @property
    def rate(self) -> float:
        """Extensions of a partial match in a second."""
        return self.extensions / self.exposure if self.exposure else 0.0


class Decisions:
    """`keys`: how many elements there are; `window`: of the query, in events."""

    def __init__(self, setting: Setting, keys: int, window: int) -> None:
        self.setting = setting
        self.keys = keys
        self.evicted = 0
        self.watches = setting.policy == "cost" or setting.strategy in ("prefetch", "hybrid")
        self.latency = sum(setting.delays) / 2
        self._caching = Caching(
            policy=setting.policy, capacity=setting.capacity - setting.capacity // _SPARE
        )
        self._is_here = np.zeros(keys, np.bool_)
        self._certain = np.zeros(keys, np.bool_)
        self._last_used = np.zeros(keys)
        self._live = np.zeros(keys)
        self._tick = 0
        self._count = 0
        self._utility = FetchUtility()
        self._step_events = max(window // UTILITY_WINDOW, 1)
        self._events = 0
        self._history = MissHistory(memory_s=window * (setting.gap or setting.delays[1]))
        self._asked: dict[int, int] = {}
        self._flows: dict[int, Flow] = {}
        self._holders: dict[int, range] = {}
        self._later: dict[int, tuple[int, ...]] = {}

    # ---- what is here --------------------------------------------------------------------------

    def has(self, key: int) -> bool:
        return bool(self._is_here[key])

    def put(self, key: int, *, ahead: bool) -> None:
        """What was asked for because it is needed will be used for certain."""
        self._tick += 1
        self._count += not self._is_here[key]
        self._is_here[key] = True
        self._certain[key] = not ahead
        self._last_used[key] = self._tick

    def here(self, keys: np.ndarray) -> tuple[np.ndarray, float]:
        """Flags, and the seconds that looking takes. Below 0 is no key and never here."""
        found = self._is_here[keys] & (keys >= 0)
        self.use(keys[found])
        return found, ASK * len(keys)

    def use(self, keys: np.ndarray) -> None:
        self._tick += 1
        self._last_used[keys] = self._tick
        self._certain[keys] = False

    def settle(self) -> float:
        """Between events: brings the cache to its capacity, and time forward. Seconds taken."""
        self._events += 1
        if self._events % self._step_events == 0:
            self._later = {}
            if self.watches:
                self._utility.step()
        if self._count <= self.setting.capacity:
            return 0.0
        places = np.flatnonzero(self._is_here)
        by_cost = self.setting.policy == "cost"
        utility = self._worth(places, self.setting.cache_weight) if by_cost else places
        held = CachedElements(
            np.ones(len(places), np.int64),
            self._last_used[places],
            self._certain[places],
            utility,
        )
        gone = places[~choose_kept(held, self._caching)]
        self._is_here[gone] = False
        self._count -= len(gone)
        self.evicted += len(gone)
        return (ORDER[self.setting.policy] + WORTH * by_cost) * len(places)

    # ---- utility -------------------------------------------------------------------------------

    def needed(self, keys: np.ndarray, level: int, change: int) -> float:
        """Partial matches of a class come (1), go (-1), or need them but once (0)."""
        np.add.at(self._live, keys, change)
        np.maximum(self._live, 0, out=self._live)
        if change >= 0 and len(keys):
            self._utility.needed(keys, np.ones(len(keys)), level)
        return NOTE * len(keys)

    def _worth(self, keys: np.ndarray, weight: float) -> np.ndarray:
        future = UTILITY_WINDOW * self._utility.of(keys, 0.0, self.latency)
        return overall_utility(weight, urgent_utility(self.latency, self._live[keys]), future)

    def worth(self, keys: np.ndarray) -> tuple[np.ndarray, float]:
        """Those worth fetching ahead (Eq. 7), and the seconds of finding out. Where there is room
        all are."""
        if self._count < self.setting.capacity:
            return keys, 0.0
        weight = self.setting.fetch_weight
        cached = self._worth(np.flatnonzero(self._is_here), weight)
        return keys[is_worth_fetching(self._worth(keys, weight), cached)], WORTH * len(keys)

    # ---- when to fetch ahead -------------------------------------------------------------------

    def note_delay(self, seconds: float) -> None:
        self.latency += _SMOOTHING * (seconds - self.latency)

    def offset(self, level: int, needed_by: int, holders: range, now: float) -> float | None:
        """Seconds after a partial match of class `level` has come, or None if this is not the
        class at which to fetch."""
        timing = choose_lookahead(needed_by, holders, self._history, now)
        if timing is None:
            timing = estimate_arrival(needed_by, self.flow(needed_by).rate, self.latency)
        return timing.offset_s if timing.level == level else None

    def asked_ahead(self, key: int, level: int) -> None:
        self._asked[key] = level

    def missed(self, keys: np.ndarray, level: int, now: float) -> None:
        """Class `level` needed what is not here."""
        for key in keys.tolist():
            at = self._asked.pop(key, None)
            if at is not None:
                self._history.missed(at, level, now)

    # ---- how long to postpone ------------------------------------------------------------------

    def flow(self, level: int) -> Flow:
        return self._flows.setdefault(level, Flow())

    def seen(self, level: int, size: int, extensions: int, now: float) -> None:
        """A class of `size` partial matches, of which an event could extend so many."""
        flow = self.flow(level)
        flow.extensions += extensions
        flow.exposure += size * (now - flow.since)
        flow.since = now

    def goes_on(self, level: int, target: int, last: int) -> bool:
        """Whether a condition of class `level` is better postponed beyond class `target`;
        complete matches are class `last`."""
        later = self._later.get(level)
        if later is None:
            later = self._later[level] = self._succ(level, last)
        return target in later

    def _succ(self, level: int, last: int) -> tuple[int, ...]:
        base = level - level % CLASSES
        flows = [self.flow(base + bound) for bound in range(last % CLASSES + 1)]
        counts = tuple(flow.exposure / flow.since if flow.since else 0.0 for flow in flows)
        # An event that makes a partial match of a class extends one of the class before.
        rates = (0.0, *(flow.rate for flow in flows[:-1]))
        found = useful_postponements(
            level - base, self.latency, GrowthRates(counts, rates, PARTIAL)
        )
        return tuple(base + later for later in found)
