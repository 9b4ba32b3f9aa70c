"""The remote source on the virtual clock: what is under way, what is here, what is decided.

Fetches run beside the engine, as many at once as are asked for; the delay of an element is the
same in every run, so that strategies differ by what they do alone. What to keep, what to fetch
ahead and when, and how long to go on without an answer is decided by the library's own modules
(`udfs/remotes`); `remote_decisions.py` holds them.

Always holds: what arrives is taken in between events, or while the engine waits, and the cache
is brought to its capacity between events only, so what a test uses is not evicted before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from benchmarks.remote_decisions import THINK, Decisions

if TYPE_CHECKING:
    from benchmarks.remote_engine import Counts

Strategy = Literal["blocking", "cached", "post", "prefetch", "lazy", "hybrid"]
Policy = Literal["lru", "cost"]
MICRO = (10e-6, 100e-6)
MILLI = (1e-3, 50e-3)
# Mean time between events, in the same proportion to the delays.
MICRO_GAP = 100e-6
MILLI_GAP = 46e-3


@dataclass(frozen=True)
class Setting:
    """How a run is done. `delays`: shortest and longest; `gap`: mean time between arrivals, 0 for
    all at once. `capacity` in elements. `noise`: the share of announced needs that name a wrong
    element. `ahead`, `further`: how many classes before fetching ahead is done, and for how many a
    condition is postponed, where that is not left to the library."""

    strategy: Strategy
    policy: Policy = "lru"
    greedy: bool = False
    delays: tuple[float, float] = MICRO
    gap: float = MICRO_GAP
    capacity: int = 200
    fetch_weight: float = 0.7
    cache_weight: float = 0.5
    noise: float = 0.0
    ahead: int | None = None
    further: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Wanted:
    """By which class an element is announced, by which it is needed, and the classes before that
    one which hold its key."""

    level: int
    needed_by: int
    holders: range


@dataclass
class Traffic:
    """Of one run: elements fetched, found here, and of the fetched ahead how many were used."""

    fetches: int = 0
    hits: int = 0
    misses: int = 0
    ahead: int = 0
    ahead_used: int = 0


class Source:
    def __init__(self, setting: Setting, decisions: Decisions, events: int) -> None:
        self.setting = setting
        self.decisions = decisions
        self.traffic = Traffic()
        self.now = 0.0
        self.listeners: list[Callable[[int, float], None]] = []
        random = np.random.default_rng(setting.seed + 1)
        low, high = setting.delays
        self._delays = low + (high - low) * random.random(decisions.keys)
        self.arrivals = np.cumsum(random.exponential(1, events)) * setting.gap
        self._noise = np.random.default_rng(setting.seed + 2)
        self._under_way: dict[int, float] = {}
        self._ahead: set[int] = set()
        self._arrivals: list[tuple[float, int, bool]] = []
        self._due: list[tuple[float, int, int]] = []

    # ---- the clock -----------------------------------------------------------------------------

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def begin(self, event: int) -> None:
        """The engine is free, or waits for the event."""
        free, start = self.now, max(self.now, self.arrivals[event])
        self._take_in(start, free)
        self.now = max(self.now, start)
        while self._due and self._due[0][0] <= self.now:
            _, key, level = heapq.heappop(self._due)
            self._fetch_ahead(np.array([key]), level)

    def end(self) -> None:
        self.spend(self.decisions.settle())

    def finish(self) -> None:
        """What is still under way arrives."""
        self._take_in(np.inf, self.now)

    def _take_in(self, until: float, free: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= until:
            at, key, ahead = heapq.heappop(self._arrivals)
            del self._under_way[key]
            self.decisions.put(key, ahead=ahead)
            for arrived in self.listeners:
                arrived(key, max(at, free))

    # ---- fetching ------------------------------------------------------------------------------

    def _start(self, key: int, ahead: bool) -> float:
        delay = float(self._delays[key])
        self.decisions.note_delay(delay)
        self.traffic.fetches += 1
        arrival = self.now + delay
        self._under_way[key] = arrival
        heapq.heappush(self._arrivals, (arrival, key, ahead))
        return arrival

    def fetch_each(self, keys: np.ndarray, counts: Counts) -> np.ndarray:
        """Without a cache, one after the other: when each was here."""
        return self.fetch_together(keys[:, None], counts)

    def fetch_together(self, keys: np.ndarray, counts: Counts) -> np.ndarray:
        """Without a cache, all keys of a row at once, one row after the other. Below 0 is none."""
        delays = np.where(keys >= 0, self._delays[keys], 0.0)
        times: np.ndarray = self.now + np.cumsum(delays.max(axis=1, initial=0.0))
        if len(times):
            self.traffic.fetches += int((keys >= 0).sum())
            self._note_wait(times[-1] - self.now, counts)
            self.now = float(times[-1])
        return times

    def have_each(self, keys: np.ndarray, step: int, counts: Counts) -> np.ndarray:
        """With a cache, one after the other."""
        here = self.here(keys, step)
        times = np.full(len(keys), self.now)
        for place in np.flatnonzero(~here).tolist():
            self.wait(keys[place : place + 1], counts)
            times[place:] = self.now
        return times

    def wait(self, keys: np.ndarray, counts: Counts) -> None:
        """Until all are here."""
        if not len(keys):
            return
        self.ask(keys)
        latest = max((self._under_way.get(key, 0.0) for key in keys.tolist()), default=0.0)
        if latest > self.now:
            self._note_wait(latest - self.now, counts)
        # Matches aside that this completes are detected when it comes, not when all is here.
        self._take_in(max(latest, self.now), self.now)
        self.now = max(latest, self.now)
        self.decisions.use(keys)

    def ask(self, keys: np.ndarray) -> None:
        for key in np.unique(keys).tolist():
            if key not in self._under_way and not self.decisions.has(key):
                self._start(key, ahead=False)

    @staticmethod
    def _note_wait(seconds: float, counts: Counts) -> None:
        counts.waits += 1
        counts.waited_s += seconds

    # ---- what is here --------------------------------------------------------------------------

    def here(self, keys: np.ndarray, level: int) -> np.ndarray:
        """Of elements that a class needs now."""
        found, cost = self.decisions.here(keys)
        self.spend(cost)
        self.decisions.missed(keys[~found], level, self.now)
        self.traffic.hits += int(found.sum())
        self.traffic.misses += int((~found).sum())
        self._used(keys)
        return found

    def here_owed(self, keys: np.ndarray) -> np.ndarray:
        """Of elements that were missing before; below 0 is none."""
        found, cost = self.decisions.here(keys.ravel())
        self.spend(cost)
        return found.reshape(keys.shape)

    def _used(self, keys: np.ndarray) -> None:
        for key in keys.tolist():
            if key in self._ahead:
                self._ahead.discard(key)
                self.traffic.ahead_used += 1

    # ---- decisions -----------------------------------------------------------------------------

    def goes_on(self, level: int, target: int, last: int) -> bool:
        if self.setting.further is not None:
            return target <= level + self.setting.further
        self.spend(THINK)
        return self.decisions.goes_on(level, target, last)

    def needed(self, keys: np.ndarray, wanted: Wanted, change: int) -> None:
        """Partial matches begin (1) or cease (-1) to need these elements, or need them but now
        (0)."""
        if not self.decisions.watches:
            return
        if self.setting.noise and change > 0:
            wrong = self._noise.random(len(keys)) < self.setting.noise
            keys = np.where(wrong, self._noise.integers(0, self.decisions.keys, len(keys)), keys)
        self.spend(self.decisions.needed(keys, wanted.level, change))
        if change > 0 and self.setting.strategy in ("prefetch", "hybrid"):
            self._plan(np.unique(keys), wanted)

    def _plan(self, keys: np.ndarray, wanted: Wanted) -> None:
        """Fetches ahead now, later, or not for this class."""
        if self.setting.ahead is not None:
            chosen = wanted.needed_by - self.setting.ahead
            offset = 0.0 if wanted.level == max(chosen, wanted.holders.start) else None
        else:
            offset = self.decisions.offset(wanted.level, wanted.needed_by, wanted.holders, self.now)
        if offset == 0:
            self._fetch_ahead(keys, wanted.level)
        elif offset is not None:
            for key in keys.tolist():
                heapq.heappush(self._due, (self.now + offset, key, wanted.level))

    def _fetch_ahead(self, keys: np.ndarray, level: int) -> None:
        keys, cost = self.decisions.worth(keys)
        self.spend(cost)
        for key in keys.tolist():
            self.decisions.asked_ahead(key, level)
            if key not in self._under_way and not self.decisions.has(key):
                self.traffic.ahead += 1
                self._ahead.add(key)
                self._start(key, ahead=True)
