"""A virtual clock for the library's own engine: what it does takes set times, calls take theirs.

The engine, its lookups and the scheduler of calls are those that workers run. Only three things
differ: time is a number; the meter and the lookup, while they count, spend what the work counted
takes; and calls end when the number says so, without threads. So figures are the same on every
machine and in every run.

Always holds: calls end, and the next ones begin, at their own times, also while the engine works.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events import engine
from spark_cep.udfs.events.metrics import Meter
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
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.program import Condition
    from spark_cep.udfs.remote_spec import RemoteSpec
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.vectors import EventColumns, Vector

# Seconds, measured on one core of an AMD EPYC and fixed: an advance without work; a step over a set
# of partial matches or a condition on one, whatever its size; a pair that is laid out and tested,
# a partial match; a call of a lookup, or to test a condition, and an id or a test in it; an element
# when the cache chooses what it keeps.
ADVANCE = 0.9e-3
STEP = 120e-6
PAIR = 6e-9
PARTIAL = 39e-9
TEST = 6e-9
CALL = 15e-6
ID = 3e-9
KEEP = {"lru": 15e-9, "cost": 46e-9}


class VirtualClock:
    """`now`: in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def reach(self, time: float) -> None:
        self.now = max(self.now, time)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Within, advances of the engine take their time on this clock."""

        def timed(*arguments: Any, **named: Any) -> TimedMeter:
            self.spend(ADVANCE)
            return TimedMeter(self, *arguments, **named)

        with mock.patch.object(engine, "Meter", timed):
            yield


class TimedMeter(Meter):
    """What it counts is time that has passed."""

    def __init__(self, time: VirtualClock, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._time = time
        self._made = 0

    def count_pairs(self, earliest: Array, pick: Array) -> None:
        self._time.spend(STEP + PAIR * len(pick))
        super().count_pairs(earliest, pick)

    def count_partials(self, earliest: Array) -> None:
        super().count_partials(earliest)
        self._spend_made(STEP if len(earliest) else 0.0)

    def charge_later(self, earliest: Array, find: Callable[[], Array]) -> None:
        super().charge_later(earliest, find)
        self._spend_made(STEP if len(earliest) else 0.0)

    def count_results(self, condition: Condition, held: Array) -> None:
        self._spend_made(CALL + TEST * len(held))
        super().count_results(condition, held)

    def close(self) -> None:
        self._spend_made(0.0)
        super().close()

    def _spend_made(self, more: float) -> None:
        """The time of the partial matches since the last call, and more."""
        made, self._made = self.metrics.partial_matches - self._made, self.metrics.partial_matches
        self._time.spend(PARTIAL * made + more)


class TimedLookup(Lookup):
    """A lookup on the virtual clock. `noise`: the share of keys fetched ahead, and of announced
    needs, that are some other key of `others` instead, as if the partial match were another."""

    def __init__(
        self, remote: RemoteSpec, fetcher: VirtualFetcher, noise: float = 0.0, others: int = 0
    ) -> None:
        super().__init__(remote, fetcher)
        self._time = fetcher.clock
        self._noise, self._others = noise, others
        self._random = np.random.default_rng(2)

    def _spend(self, ids: Array) -> None:
        self._time.spend(CALL + ID * ids.size)

    def _wrong(self, ids: Array) -> Array:
        if not self._noise or not ids.size:
            return ids
        wrong = self._random.random(ids.shape) < self._noise
        keys = self._random.integers(0, self._others, int(wrong.sum()))
        changed = ids.copy()
        changed[wrong] = self.ids([pa.array(keys, pa.int64())])
        return changed

    def ready(self, ids: Array) -> Array:
        self._spend(ids)
        return super().ready(ids)

    def ask(self, ids: Array, *, ahead: bool = False) -> None:
        self._spend(ids)
        super().ask(self._wrong(ids) if ahead else ids, ahead=ahead)

    def needed(self, ids: Array, counts: Array, level: int) -> None:
        self._spend(ids)
        super().needed(self._wrong(ids), counts, level)

    def vector(
        self, ids: Array, path: tuple[str, ...], type: Type, columns: EventColumns
    ) -> Vector:
        self._spend(ids)
        return super().vector(ids, path, type, columns)

    def settle(self) -> None:
        if self._states.bytes > self.remote.caching.capacity:
            self._time.spend(CALL + KEEP[self.remote.caching.policy] * len(self._states.present()))
        super().settle()


class VirtualFetcher:
    """Calls on the virtual clock, as many at once as the source's policy allows. `delay`: of a call
    for these keys."""

    def __init__(
        self, remote: RemoteSpec, clock: VirtualClock, delay: Callable[[Sequence[Any]], float]
    ) -> None:
        self.clock = clock
        self.arrivals = 0
        self._remote = remote
        self._delay = delay
        self._arrived: list[FetchResult] = []
        self._running: list[tuple[float, int, SourceCall]] = []
        self._scheduler = FetchScheduler(remote, lambda: 0.5, self._arrive)

    @property
    def calls(self) -> int:
        return self._scheduler.calls

    @property
    def keys(self) -> int:
        return self._scheduler.keys

    @property
    def broken(self) -> bool:
        return self._scheduler.circuit.broken

    def now(self) -> float:
        return self.clock.now

    def start(self, batches: list[KeyBatch]) -> None:
        self._end_calls()
        for batch in batches:
            self._scheduler.add(batch)
        self._begin_calls(self.clock.now)

    def urge(self, numbers: Iterable[int]) -> None:
        self._scheduler.urge(numbers)

    def take(self) -> list[FetchResult]:
        self._end_calls()
        arrived, self._arrived = self._arrived, []
        return arrived

    def wait(self) -> None:
        self._end_calls()
        while not self._arrived:
            self.clock.reach(self._running[0][0])
            self._end_calls()

    def cancel(self) -> list[KeyBatch]:
        return self._scheduler.cancel()

    def close(self) -> None:
        self._scheduler.cancel()

    def _end_calls(self) -> None:
        while self._running and self._running[0][0] <= self.clock.now:
            ended, _, call = heapq.heappop(self._running)
            handle_answer(self._scheduler, call, call_source(self._remote, call.batch.keys), ended)
            self._begin_calls(ended)

    def _begin_calls(self, at: float) -> None:
        while (call := self._scheduler.next(at)) is not None:
            ends = at + self._delay(call.batch.keys)
            heapq.heappush(self._running, (ends, call.number, call))

    def _arrive(self, arrival: FetchResult) -> None:
        self._arrived.append(arrival)
        self.arrivals += 1
