"""A source on a virtual clock: calls take set times, nothing waits, every run is the same."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_cep.udfs.remote_spec import RemoteSpec
from spark_cep.udfs.remotes.fetching import (
    FetchResult,
    FetchScheduler,
    KeyBatch,
    SourceCall,
    call_source,
    handle_answer,
)
from spark_cep.udfs.remotes.lookup import Lookup

if TYPE_CHECKING:
    import numpy as np

Answer = Callable[[list[Any]], Mapping[Any, Any]]


class Source:
    """A user's function that remembers its calls. `delays`: how long each call takes, then
    `delay`; `answers`: what each call does instead of the table, then the table."""

    def __init__(self, table: Mapping[Any, Any] | None = None, delay: float = 0.05) -> None:
        self.table = table
        self.delay = delay
        self.delays: list[float] = []
        self.answers: list[Answer] = []
        self.calls: list[list[Any]] = []

    def __call__(self, keys: list[Any]) -> Mapping[Any, Any]:
        self.calls.append(keys)
        if self.answers:
            return self.answers.pop(0)(keys)
        if self.table is None:
            return {key: key * 10 for key in keys}
        return {key: self.table[key] for key in keys if key in self.table}

    @property
    def asked_for(self) -> list[Any]:
        return [key for call in self.calls for key in call]


def failing(message: str = "down") -> Answer:
    def fail(keys: list[Any]) -> Mapping[Any, Any]:
        raise ConnectionError(message)

    return fail


class Simulated:
    """`Fetching` over `FetchScheduler`, by events in virtual time."""

    def __init__(self, remote: RemoteSpec, source: Source) -> None:
        self.time = 0.0
        self.most_running = 0
        self.arrivals = 0
        self._remote = remote
        self._source = source
        self._arrived: list[FetchResult] = []
        self._events: list[tuple[float, int, SourceCall]] = []
        self._running: set[int] = set()
        self.trying = FetchScheduler(remote, lambda: 0.5, self._arrive)

    @property
    def calls(self) -> int:
        return self.trying.calls

    @property
    def keys(self) -> int:
        return self.trying.keys

    @property
    def broken(self) -> bool:
        return self.trying.circuit.broken

    def now(self) -> float:
        return self.time

    def start(self, batches: list[KeyBatch]) -> None:
        for batch in batches:
            self.trying.add(batch)
        self._go()

    def urge(self, numbers: Iterable[int]) -> None:
        self.trying.urge(numbers)

    def take(self) -> list[FetchResult]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def wait(self) -> None:
        while not self._arrived:
            times = [event[0] for event in self._events[:1]]
            wake = self.trying.wake(self.time)
            times += [] if wake is None else [wake]
            assert times, "waits for nothing"
            self.advance(max(min(times) - self.time, 0.0))

    def cancel(self) -> list[KeyBatch]:
        return self.trying.cancel()

    def close(self) -> None:
        self.trying.cancel()

    def advance(self, seconds: float) -> None:
        """Time passes: what ends meanwhile arrives."""
        until = self.time + seconds
        while True:
            wake = self.trying.wake(self.time)
            times = [event[0] for event in self._events[:1]] + ([] if wake is None else [wake])
            soonest = min(times, default=until)
            if soonest > until:
                break
            self.time = max(self.time, soonest)
            before = (len(self._events), self.arrivals, self.calls)
            self._end_calls()
            self._go()
            if soonest == until and before == (len(self._events), self.arrivals, self.calls):
                break
        self.time = until

    def _end_calls(self) -> None:
        while self._events and self._events[0][0] <= self.time:
            _, _, call = heapq.heappop(self._events)
            handle_answer(self.trying, call, call_source(self._remote, call.batch.keys), self.time)

    def _go(self) -> None:
        while (call := self.trying.next(self.time)) is not None:
            delays = self._source.delays
            delay = delays.pop(0) if delays else self._source.delay
            heapq.heappush(self._events, (self.time + delay, call.number, call))
            self.most_running = max(self.most_running, len(self.trying._slots))

    def _arrive(self, arrival: FetchResult) -> None:
        self._arrived.append(arrival)
        self.arrivals += 1


def looked_up(source: Source, **options: Any) -> tuple[Lookup, Simulated]:
    """A lookup of integers on a virtual clock."""
    settings: dict[str, Any] = {"keys": (pa.int64(),), "value": pa.int64(), **options}
    remote = RemoteSpec("limits", source, **settings)
    simulated = Simulated(remote, source)
    return Lookup(remote, simulated), simulated


def ids_of(lookup: Lookup, *keys: int | None) -> np.ndarray[Any, Any]:
    return lookup.ids([pa.array(keys, pa.int64())])
