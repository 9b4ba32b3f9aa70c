"""Which batch of keys is asked for next, and what becomes of one that fails: no threads, no clock.

`fetching.py` makes the calls; here is decided. Needs go before what is fetched ahead. A call that
outlives its timeout has failed, and what it answers later is not heard. What failed is tried
again after a pause that doubles, with jitter; what was fetched ahead is not, but dropped: nobody
has needed it yet.

After several failures in a row the circuit is open: no call is made for a while, then one to
probe. Meanwhile nothing is fetched ahead; needs wait for the probe, whose failure counts for them
too, but where failures give NULL (on_error="null") they are given up at once.

Always holds: every batch ends exactly once, as an `Arrival`; at most `in_flight` calls are waited
for at once.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_cep.udfs.remotes.spec import Patience, Remote
    from spark_cep.udfs.values.arrow_values import Array


@dataclass
class Batch:
    """`keys` of `elements`, one each. `ahead`: nobody needs them yet. `asked`: when, and how long
    the asker had stood still by then."""

    elements: Array
    keys: list[Any]
    ahead: bool = False
    number: int = 0
    attempts: int = 0
    asked: float = 0.0
    stood: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why there is no value, fit to be shown. `is_final`: trying again would not help."""

    text: str
    hint: str | None = None
    is_final: bool = False


@dataclass(frozen=True)
class Arrival:
    """How a batch ended, at time `ended`. `answer` None: it was given up for `failure`.
    `seconds`: what the call took."""

    batch: Batch
    ended: float
    seconds: float = 0.0
    answer: Mapping[Any, Any] | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Call:
    """`probes`: the circuit is open, and this tries whether it may be closed."""

    number: int
    batch: Batch
    began: float
    probes: bool


class Circuit:
    """Open after `failures` failed calls in a row, for `pause` seconds; then one call probes."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._failures = 0
        self._probing = False
        self.until = 0.0

    @property
    def broken(self) -> bool:
        return self._failures >= self._patience.failures

    def lets_pass(self, now: float) -> bool:
        soonest = self.lets_pass_at(now)
        return soonest is not None and soonest <= now

    def lets_pass_at(self, now: float) -> float | None:
        """When the next call may be made; None: when the probe has ended."""
        if not self.broken:
            return now
        return None if self._probing else max(now, self.until)

    def began(self) -> None:
        self._probing = self.broken

    def succeeded(self) -> None:
        self._failures, self._probing = 0, False

    def failed(self, now: float) -> None:
        self._failures += 1
        self._probing = False
        if self.broken:
            self.until = now + self._patience.pause


@dataclass
class _Waiting:
    """Batches that no call has begun for: needs, what is fetched ahead, what has failed and waits
    for its time. `by_number` has them all; an entry of `ahead` that was urged is in `needs`."""

    needs: deque[Batch] = field(default_factory=deque)
    ahead: deque[Batch] = field(default_factory=deque)
    later: list[tuple[float, int, Batch]] = field(default_factory=list)
    by_number: dict[int, Batch] = field(default_factory=dict)


class Trying:
    """`arrived` gets every arrival; `random` gives numbers from 0 to 1."""

    def __init__(
        self, remote: Remote, random: Callable[[], float], arrived: Callable[[Arrival], None]
    ) -> None:
        self._remote = remote
        self._patience = remote.patience
        self._random = random
        self._arrived = arrived
        self._waiting = _Waiting()
        self._running: dict[int, Call] = {}
        self._numbers = itertools.count()
        self.circuit = Circuit(remote.patience)
        self.calls = 0
        self.keys = 0

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting.by_number

    def add(self, batch: Batch) -> None:
        waiting = self._waiting
        waiting.by_number[batch.number] = batch
        (waiting.ahead if batch.ahead else waiting.needs).append(batch)

    def urge(self, numbers: Iterable[int]) -> None:
        """Somebody needs now what these batches fetch ahead."""
        running = {call.batch.number: call.batch for call in self._running.values()}
        for number in numbers:
            waiting = self._waiting.by_number.get(number)
            batch = waiting or running.get(number)
            if batch is not None and batch.ahead:
                batch.ahead = False
                if waiting is not None:
                    self._waiting.needs.append(batch)

    def unfinished(self) -> Iterator[Batch]:
        yield from self._waiting.by_number.values()
        yield from (call.batch for call in self._running.values())

    def next(self, now: float) -> Call | None:
        """The call to make now, if there is one."""
        self._expire(now)
        self._ripen(now)
        circuit = self.circuit
        if circuit.broken and now < circuit.until:
            self._give_up_waiting(now)
        if len(self._running) >= self._patience.in_flight or not circuit.lets_pass(now):
            return None
        batch = self._first()
        if batch is None:
            return None
        call = Call(next(self._numbers), batch, now, circuit.broken)
        circuit.began()
        self._running[call.number] = call
        self.calls += 1
        self.keys += len(batch.keys)
        return call

    def answered(self, call: Call, answer: Mapping[Any, Any], now: float) -> None:
        if self._running.pop(call.number, None) is not None:
            self.circuit.succeeded()
            self._arrived(Arrival(call.batch, now, now - call.began, answer))

    def failed(self, call: Call, why: Failure, now: float) -> None:
        if self._running.pop(call.number, None) is None:
            return
        if why.is_final:
            call.batch.attempts += 1
            self.circuit.succeeded()  # the source is there
            self._give_up(call.batch, why, now)
            return
        self.circuit.failed(now)
        waiting = list(self._waiting.by_number.values()) if call.probes else []
        for batch in (call.batch, *waiting):
            self._failed(batch, why, now)

    def wake(self, now: float) -> float | None:
        """When `next` has something to do; None: when something is added or ends."""
        times = [call.began + self._patience.timeout for call in self._running.values()]
        if len(self._running) < self._patience.in_flight:
            waiting = self._waiting
            times += [due for due, _, batch in waiting.later[:1]]
            soonest = self.circuit.lets_pass_at(now)
            if soonest is not None and (waiting.needs or waiting.ahead):
                times.append(soonest)
        return min(times, default=None)

    def _expire(self, now: float) -> None:
        timeout = self._patience.timeout
        for call in [c for c in self._running.values() if now >= c.began + timeout]:
            self.failed(call, Failure(f"TimeoutError: no answer within {timeout:g} s"), now)

    def _ripen(self, now: float) -> None:
        waiting = self._waiting
        while waiting.later and waiting.later[0][0] <= now:
            _, _, batch = heapq.heappop(waiting.later)
            waiting.needs.append(batch)

    def _first(self) -> Batch | None:
        waiting = self._waiting
        for queue, ahead in ((waiting.needs, False), (waiting.ahead, True)):
            while queue:
                batch = queue.popleft()
                # One that was urged or given up is still in the queue that it was in.
                if batch.ahead == ahead and batch.number in waiting.by_number:
                    return waiting.by_number.pop(batch.number)
        return None

    def _failed(self, batch: Batch, why: Failure, now: float) -> None:
        batch.attempts += 1
        hopeless = self.circuit.broken and self._remote.on_error == "null"
        if batch.ahead or hopeless or batch.attempts > self._patience.retries:
            self._give_up(batch, why, now)
        elif batch.number not in self._waiting.by_number:
            self._waiting.by_number[batch.number] = batch
            pause = self._patience.backoff * 2 ** (batch.attempts - 1)
            due = now + pause * (0.5 + self._random())
            heapq.heappush(self._waiting.later, (due, batch.number, batch))

    def _give_up_waiting(self, now: float) -> None:
        why = Failure("it has failed so often in a row that it is not asked for a while")
        for batch in list(self._waiting.by_number.values()):
            if batch.ahead or self._remote.on_error == "null":
                self._give_up(batch, why, now)

    def _give_up(self, batch: Batch, why: Failure, now: float) -> None:
        self._waiting.by_number.pop(batch.number, None)
        keys = "1 key" if len(batch.keys) == 1 else f"{len(batch.keys)} keys"
        tries = "1 attempt" if batch.attempts == 1 else f"{batch.attempts} attempts"
        text = f"remote {self._remote.name!r} could not fetch {keys}, in {tries}: {why.text}"
        self._arrived(Arrival(batch, now, failure=replace(why, text=text)))
