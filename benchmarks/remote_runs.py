"""One run of a query over a stream with one strategy, and what came of it.

Always holds: all strategies find the same matches, else the run that differs raises; only then
do their latencies mean anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.remote_automaton import Automaton
from benchmarks.remote_decisions import Decisions
from benchmarks.remote_engine import Engine, take_turns
from benchmarks.remote_source import Setting, Source, Strategy
from benchmarks.remote_streams import KEYS, Dataset, Query, stream

STRATEGIES: tuple[Strategy, ...] = ("blocking", "cached", "post", "prefetch", "lazy", "hybrid")
# As the paper calls them.
NAMES: Mapping[str, str] = {
    "blocking": "BL1", "cached": "BL2", "post": "BL3",
    "prefetch": "PFetch", "lazy": "LzEval", "hybrid": "Hybrid",
}  # fmt: skip
UNCACHED = ("blocking", "post")
PERCENTILES = (5, 25, 50, 75, 95)
# The first part of a stream is for warming up: caches and estimates begin empty.
WARM = 0.2


@dataclass(frozen=True)
class Result:
    """`latency` in seconds, by percentile. `service_s`: what an event took, waiting for remote
    data included; `busy`: the share of time in which the engine worked or waited."""

    matches: int
    latency: Mapping[int, float]
    service_s: float
    busy: float
    counts: Mapping[str, float]
    found: frozenset[tuple[int, ...]] = field(repr=False)

    @property
    def median(self) -> float:
        return self.latency[50]

    @property
    def throughput(self) -> float:
        return 1 / self.service_s


def run(query: Query, dataset: Dataset, setting: Setting, events: int) -> Result:
    rows = stream(dataset, events, setting.seed)
    window = query.windows[dataset, setting.greedy]
    source = Source(setting, Decisions(setting, 2 * KEYS, window), events)
    engines = [
        Engine(Automaton(chain, rows, window), source, number)
        for number, chain in enumerate(query.chains)
    ]
    source.listeners = [engine.arrived for engine in engines]
    took = take_turns(engines, source, rows.kind)
    return _result(engines, source, took)


def _result(engines: Sequence[Engine], source: Source, took: np.ndarray) -> Result:
    last = np.array([each[-1] for engine in engines for each in engine.matches.events], np.int64)
    detected = np.array([at for engine in engines for at in engine.matches.detected])
    late = last >= WARM * len(took)
    latencies = (detected - source.arrivals[last])[late]
    found = [
        (number, *events)
        for number, engine in enumerate(engines)
        for events in engine.matches.events
    ]
    if len(set(found)) != len(found):
        raise AssertionError("a match was found twice")
    counted: dict[str, float] = {"evicted": source.decisions.evicted}
    for part in (source.traffic, *(engine.counts for engine in engines)):
        for name, value in vars(part).items():
            counted[name] = counted.get(name, 0) + value
    values = np.percentile(latencies, PERCENTILES) if len(latencies) else np.zeros(5)
    return Result(
        matches=len(found),
        latency=dict(zip(PERCENTILES, values.tolist(), strict=True)),
        service_s=float(took.mean()),
        busy=float(took.sum() / source.now),
        counts=counted,
        found=frozenset(found),
    )


def compare(
    query: Query, dataset: Dataset, settings: Iterable[Setting], events: int
) -> dict[Setting, Result]:
    """The runs of settings that ask for the same matches."""
    results: dict[Setting, Result] = {}
    for setting in settings:
        result = run(query, dataset, setting, events)
        first = next(iter(results.values()), result)
        if result.found != first.found:
            raise AssertionError(
                f"{query.name} on {dataset}: {setting} finds {result.matches} matches, "
                f"{next(iter(results))} finds {first.matches}"
            )
        results[setting] = replace(result, found=first.found)
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
