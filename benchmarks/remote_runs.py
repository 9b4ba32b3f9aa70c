"""One run of a query over a stream with one strategy, in the library's own engine, and what came of
it.

Events come in triggers, as on a stream of Spark: the engine takes those of a trigger together, when
the last of them is there and the trigger before is done. A match's latency counts from when the
events of its trigger are there; so what it waited for its trigger to fill up, which no strategy
changes, is left out, and what queued up is in.

Always holds: all strategies find the same matches, else the run that differs raises; only then
do their latencies mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.programs import Prepared, cut, prepare
from benchmarks.remote_clock import TimedLookup, VirtualClock, VirtualFetcher
from benchmarks.remote_streams import GAP, KEYS, Query, answer
from spark_cep.remotes.sources import choose_strategy
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.events.remote_needs import RemoteNeeds, prefetch_candidates
from spark_cep.udfs.program import Plan
from spark_cep.udfs.remote_spec import Caching, FetchPolicy, RemoteSpec

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import MatchSet
    from spark_cep.udfs.program import Condition, Program

Strategy = Literal["blocking", "cached", "post", "prefetch", "lazy", "hybrid"]
Policy = Literal["lru", "cost"]
STRATEGIES: tuple[Strategy, ...] = ("blocking", "cached", "post", "prefetch", "lazy", "hybrid")
# As the paper calls them.
NAMES: Mapping[str, str] = {
    "blocking": "BL1", "cached": "BL2", "post": "BL3",
    "prefetch": "PFetch", "lazy": "LzEval", "hybrid": "Hybrid",
}  # fmt: skip
UNCACHED = ("blocking", "post")
PERCENTILES = (5, 25, 50, 75, 95)
MICRO = (10e-6, 100e-6)
MILLI = (1e-3, 10e-3)
# Of the published runs: five threads fetch, each one element at a time.
FETCH_THREADS = 5
ELEMENT_BYTES = 8
# The first part of a stream is for warming up: caches and estimates begin empty.
WARM = 0.2


@dataclass(frozen=True)
class Setting:
    """How a run is done. `delays` of fetches, shortest and longest; `gap`: mean time between
    arrivals, 0 for all at once. `trigger`: its events. `capacity` in elements. `noise`: the share
    of estimates that name a wrong element. `ahead`: how many classes before its need an element is
    fetched, where that is not left to the library."""

    strategy: Strategy
    policy: Policy = "lru"
    greedy: bool = False
    delays: tuple[float, float] = MICRO
    gap: float = GAP
    trigger: int = 1_000
    capacity: int = 2_000
    fetch_weight: float = 0.7
    cache_weight: float = 0.5
    noise: float = 0.0
    ahead: int | None = None
    seed: int = 0

    @property
    def runs_as(self) -> Strategy:
        """What the library makes of the strategy: not all can be used with each selection."""
        selection = "any" if self.greedy else "next"
        return choose_strategy(self.strategy, None, selection, "reuse").strategy


@dataclass(frozen=True)
class Result:
    """`latency` in seconds, by percentile. `service_s`: what an event took, waiting for remote
    data included; `busy`: the share of time in which the engine worked or waited. `found`: a number
    that other matches would not give. `cpu_s`: of the process, not virtual."""

    matches: int
    latency: Mapping[int, float]
    service_s: float
    busy: float
    counts: Mapping[str, float]
    found: int
    cpu_s: float = field(default=0.0, compare=False)

    @property
    def median(self) -> float:
        return self.latency[50]

    @property
    def throughput(self) -> float:
        return 1 / self.service_s


def run(query: Query, dataset: str, setting: Setting, events: int) -> Result:
    prepared = _prepared(query, dataset, setting.greedy, events)
    with _chosen_classes(setting.ahead):
        return Run(query, prepared, setting, events).result()


@lru_cache(maxsize=2)
def _prepared(query: Query, dataset: str, greedy: bool, events: int) -> Prepared:
    def fetch(keys: list[int]) -> dict[int, float]:
        return {key: answer(key, query.modulus) for key in keys}

    remote = RemoteSpec("values", fetch, (pa.int64(),), pa.float64())
    return prepare(
        query.within(greedy=greedy),
        query.rows(dataset, events),
        partition_by=query.partition_by,
        remotes={"values": remote},
    )


class Run:
    """A stream of triggers through the engine of one bucket."""

    def __init__(self, query: Query, prepared: Prepared, setting: Setting, events: int) -> None:
        self._setting, self._events = setting, events
        self._pieces = cut(prepared, setting.trigger)
        # The last event of each trigger. Some events may be nothing to the query, and are not rows.
        self._ends = np.array([events - 1 if h is None else h for _, h in self._pieces], np.int64)
        self._clock = VirtualClock()
        self._program = self._planned(prepared.program)
        (remote,) = self._program.remotes
        fetcher = VirtualFetcher(remote, self._clock, self._delay)
        self.lookup = TimedLookup(remote, fetcher, setting.noise, 2 * KEYS)
        random = np.random.default_rng(setting.seed + 1)
        # The same for a key in every run, so that strategies differ by what they do alone.
        self._delays = random.uniform(*setting.delays, 2 * KEYS)
        gaps = random.exponential(setting.gap, events) if setting.gap else np.zeros(events)
        self._arrivals = np.cumsum(gaps)
        self._found: list[tuple[np.ndarray, float]] = []
        self._digest = 0

    def _planned(self, program: Program) -> Program:
        setting, (remote,) = self._setting, program.remotes
        caching = Caching(
            setting.policy, setting.capacity * ELEMENT_BYTES, setting.fetch_weight,
            setting.cache_weight,
        )  # fmt: skip
        remote = replace(
            remote,
            strategy=setting.runs_as,
            caching=caching,
            fetch_policy=FetchPolicy(timeout=1e9, batch=1, in_flight=FETCH_THREADS),
        )
        # In the order of the pattern, as the paper's automaton.
        return replace(program, remotes=(remote,), plan=Plan("eager"))

    def _delay(self, keys: Sequence[int]) -> float:
        return float(max(self._delays[key] for key in keys))

    def result(self) -> Result:
        began = time.process_time()
        engine = AdaptiveEngine(self._program, (self.lookup,))
        state, took = EventState(), 0.0
        with self._clock.timing():
            for place, (table, horizon) in enumerate(self._pieces):
                self._clock.reach(self._arrivals[self._ends[place]])
                begun = self._clock.now
                if place:
                    self.lookup.trigger()
                state = self._trigger(engine, state, table, horizon)
                took += self._clock.now - begun
        return self._result(engine, took, time.process_time() - began)

    def _trigger(
        self, engine: AdaptiveEngine, state: EventState, table: pa.Table, horizon: Any
    ) -> EventState:
        """As a worker does: matches, the next state, what is fetched until the next trigger."""
        step = engine.step(state, table, horizon)
        times = step.events.table.column(self._program.orders[0].column).to_numpy()
        for found in engine.matches(step):
            self._note(found, times[step.events.permutation])
        state = step.state
        if state.events is not None:
            prefetch_candidates(self._program, state.events, (self.lookup,))
        # Of what is fetched between triggers, only calls that have begun go on.
        self.lookup.end()
        return state

    def _note(self, found: MatchSet, event: np.ndarray) -> None:
        last = event[found.latest]
        self._found.append((last, self._clock.now))
        rows = {variable: event[places] for variable, places in found.rows.items()}
        self._digest = (self._digest + digest(rows, len(last))) % (1 << 64)

    def _result(self, engine: AdaptiveEngine, took: float, cpu_s: float) -> Result:
        last = np.concatenate([each[0] for each in self._found] or [np.zeros(0, np.int64)])
        ends = self._ends[np.searchsorted(self._ends, last)]
        sizes = [len(each) for each, _ in self._found]
        detected = np.repeat([at for _, at in self._found], sizes)
        late = last >= WARM * self._events
        latencies = (detected - self._arrivals[ends])[late] if len(last) else np.zeros(0)
        values = np.percentile(latencies, PERCENTILES) if len(latencies) else np.zeros(5)
        counted = engine.metrics.to_dict()
        counts = {**counted["remotes"]["values"], "pairs": counted["pairs"],
                  "partials": counted["partial_matches"]}  # fmt: skip
        return Result(
            matches=len(last),
            latency=dict(zip(PERCENTILES, values.tolist(), strict=True)),
            service_s=took / self._events,
            busy=took / self._clock.now,
            counts=counts,
            found=self._digest,
            cpu_s=cpu_s,
        )


def digest(rows: Mapping[int, np.ndarray], size: int) -> int:
    """A sum over matches of a number that depends on all of their events and variables. `rows`: by
    variable, -1 or nothing where it is not bound."""
    mixed = np.zeros(size, np.uint64)
    for variable in sorted(rows):
        if (rows[variable] < 0).any():
            raise NotImplementedError("a variable that is bound in some matches only")
        one = (rows[variable].astype(np.uint64) + np.uint64(1)) * np.uint64(2 * variable + 1)
        mixed = (mixed ^ one) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


@contextmanager
def _chosen_classes(ahead: int | None) -> Iterator[None]:
    """Fetches ahead so many classes before the last one, and at no other class."""
    real = RemoteNeeds.prefetchable

    def chosen(needs: RemoteNeeds, bound: frozenset[int]) -> list[Condition]:
        return real(needs, bound) if len(bound) == 8 - (ahead or 0) else []

    is_chosen = ahead is not None
    with mock.patch.object(RemoteNeeds, "prefetchable", chosen) if is_chosen else nullcontext():
        yield


def compare(
    query: Query, dataset: str, settings: Iterable[Setting], events: int
) -> dict[Setting, Result]:
    """The runs of settings that ask for the same matches. What the library runs in the same way is
    run once."""
    results: dict[Setting, Result] = {}
    known: dict[Setting, Result] = {}
    for setting in settings:
        as_run = replace(setting, strategy=setting.runs_as)
        if as_run not in known:
            known[as_run] = run(query, dataset, as_run, events)
        result = known[as_run]
        first = next(iter(results.values()), result)
        if (result.found, result.matches) != (first.found, first.matches):
            raise AssertionError(
                f"{query.name} on {dataset}: {setting} finds {result.matches} matches, "
                f"{next(iter(results))} finds {first.matches}"
            )
        results[setting] = result
    return results


def contestants(base: Setting) -> list[Setting]:
    """All strategies, each with both policies where it has a cache."""
    found = [replace(base, strategy=each, policy="lru") for each in UNCACHED]
    cached = [each for each in STRATEGIES if each not in UNCACHED]
    return found + [
        replace(base, strategy=strategy, policy=policy)
        for policy in ("cost", "lru")
        for strategy in cached
    ]
