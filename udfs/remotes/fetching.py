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
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.sources.clients import TransientError

if TYPE_CHECKING:
    from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
    from spark_cep.udfs.values.arrow_values import Array


@dataclass
class KeyBatch:
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
class FetchFailure:
    """Why there is no value, fit to be shown. `is_final`: trying again would not help."""

    text: str
    hint: str | None = None
    is_final: bool = False


@dataclass(frozen=True)
class FetchResult:
    """How a batch ended, at time `ended`. `answer` None: it was given up for `failure`.
    `seconds`: what the call took."""

    batch: KeyBatch
    ended: float
    seconds: float = 0.0
    answer: Mapping[Any, Any] | None = None
    failure: FetchFailure | None = None


@dataclass(frozen=True)
class SourceCall:
    """`probes`: the circuit is open, and this tries whether it may be closed."""

    number: int
    batch: KeyBatch
    began: float
    probes: bool


class CircuitBreaker:
    """Open after `failures` failed calls in a row, for `pause` seconds; then one call probes."""

    def __init__(self, patience: FetchPolicy) -> None:
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
class _BatchQueue:
    """Batches that no call has begun for: needs, what is fetched ahead, what has failed and waits
    for its time. `by_number` has them all; an entry of `ahead` that was urged is in `needs`."""

    needs: deque[KeyBatch] = field(default_factory=deque)
    ahead: deque[KeyBatch] = field(default_factory=deque)
    later: list[tuple[float, int, KeyBatch]] = field(default_factory=list)
    by_number: dict[int, KeyBatch] = field(default_factory=dict)


class FetchScheduler:
    """`arrived` gets every arrival; `random` gives numbers from 0 to 1."""

    def __init__(
        self,
        remote: RemoteSpec,
        random: Callable[[], float],
        arrived: Callable[[FetchResult], None],
    ) -> None:
        self._remote = remote
        self._patience = remote.patience
        self._random = random
        self._arrived = arrived
        self._waiting = _BatchQueue()
        self._running: dict[int, SourceCall] = {}
        self._numbers = itertools.count()
        self.circuit = CircuitBreaker(remote.patience)
        self.calls = 0
        self.keys = 0

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting.by_number

    def add(self, batch: KeyBatch) -> None:
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

    def unfinished(self) -> Iterator[KeyBatch]:
        yield from self._waiting.by_number.values()
        yield from (call.batch for call in self._running.values())

    def next(self, now: float) -> SourceCall | None:
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
        call = SourceCall(next(self._numbers), batch, now, circuit.broken)
        circuit.began()
        self._running[call.number] = call
        self.calls += 1
        self.keys += len(batch.keys)
        return call

    def answered(self, call: SourceCall, answer: Mapping[Any, Any], now: float) -> None:
        if self._running.pop(call.number, None) is not None:
            self.circuit.succeeded()
            self._arrived(FetchResult(call.batch, now, now - call.began, answer))

    def failed(self, call: SourceCall, why: FetchFailure, now: float) -> None:
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
            self.failed(call, FetchFailure(f"TimeoutError: no answer within {timeout:g} s"), now)

    def _ripen(self, now: float) -> None:
        waiting = self._waiting
        while waiting.later and waiting.later[0][0] <= now:
            _, _, batch = heapq.heappop(waiting.later)
            waiting.needs.append(batch)

    def _first(self) -> KeyBatch | None:
        waiting = self._waiting
        for queue, ahead in ((waiting.needs, False), (waiting.ahead, True)):
            while queue:
                batch = queue.popleft()
                # One that was urged or given up is still in the queue that it was in.
                if batch.ahead == ahead and batch.number in waiting.by_number:
                    return waiting.by_number.pop(batch.number)
        return None

    def _failed(self, batch: KeyBatch, why: FetchFailure, now: float) -> None:
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
        why = FetchFailure("it has failed so often in a row that it is not asked for a while")
        for batch in list(self._waiting.by_number.values()):
            if batch.ahead or self._remote.on_error == "null":
                self._give_up(batch, why, now)

    def _give_up(self, batch: KeyBatch, why: FetchFailure, now: float) -> None:
        self._waiting.by_number.pop(batch.number, None)
        keys = "1 key" if len(batch.keys) == 1 else f"{len(batch.keys)} keys"
        tries = "1 attempt" if batch.attempts == 1 else f"{batch.attempts} attempts"
        text = f"remote {self._remote.name!r} could not fetch {keys}, in {tries}: {why.text}"
        self._arrived(FetchResult(batch, now, failure=replace(why, text=text)))


# --------------------------------------------------------------------------------------------------
# Calls of a source's function, beside the matching: the only threads of the workers' room.
#
# A `Lookup` sees a `Fetching`: batches go in, arrivals come out. `Threads` makes the calls in
# daemon threads, `AtOnce` in the caller's, for sources that answer without waiting. A simulation
# can bring one of its own, with a clock of its own.
#
# Threads follow one another: whoever takes a call leaves a successor that waits for the next one,
# for a retry that is due, or for a timeout; so there is always one to notice, also while the
# matching is busy. They begin with the first batch and end when idle, and in a forked process
# they begin anew: threads do not survive a fork, so what was under way is asked again there.
# --------------------------------------------------------------------------------------------------


# Longer than between two blocks; starting a thread costs about 0.1 ms.
IDLE_S: Final = 2.0
_LONGEST_MESSAGE: Final = 300
_HINT: Final = (
    "fn takes a list of keys and gives a dict, {key: value}, without keys it does not know"
)


class Fetcher(Protocol):
    """`arrivals` grows by each; `calls` and `keys` count what was asked of the source. `broken`:
    nothing should be fetched ahead now."""

    @property
    def arrivals(self) -> int: ...
    @property
    def calls(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def broken(self) -> bool: ...

    def now(self) -> float: ...
    def start(self, batches: list[KeyBatch]) -> None: ...
    def urge(self, numbers: Iterable[int]) -> None:
        """Needed now, though asked for ahead."""

    def take(self) -> list[FetchResult]:
        """What has arrived since the last time."""

    def wait(self) -> None:
        """Until there is something to take."""

    def close(self) -> None:
        """Nobody waits any longer for what is under way."""


class ImmediateFetcher:
    """Calls in the caller's thread, all keys in one, no second try."""

    broken = False

    def __init__(self, remote: RemoteSpec, now: Callable[[], float] = time.monotonic) -> None:
        self._remote = remote
        self._arrived: list[FetchResult] = []
        self.now = now
        self.arrivals = self.calls = self.keys = 0

    def start(self, batches: list[KeyBatch]) -> None:
        for batch in batches:
            began = self.now()
            answer = call_source(self._remote, batch.keys)
            ended = self.now()
            if isinstance(answer, FetchFailure):
                text = f"remote {self._remote.name!r} failed: {answer.text}"
                arrival = FetchResult(batch, ended, failure=replace(answer, text=text))
            else:
                arrival = FetchResult(batch, ended, ended - began, answer)
            self._arrived.append(arrival)
            self.calls, self.keys = self.calls + 1, self.keys + len(batch.keys)
            self.arrivals += 1

    def urge(self, numbers: Iterable[int]) -> None:
        pass

    def take(self) -> list[FetchResult]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def wait(self) -> None:
        pass

    def close(self) -> None:
        self._arrived = []


class ThreadedFetcher:
    def __init__(
        self,
        remote: RemoteSpec,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._remote = remote
        self._jitter = jitter
        self.now = now
        self.arrivals = 0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._trying = FetchScheduler(self._remote, self._jitter, self._arrive)
        self._arrived: deque[FetchResult] = deque()
        self._followers = 0
        self._closed = False

    @property
    def calls(self) -> int:
        return self._trying.calls

    @property
    def keys(self) -> int:
        return self._trying.keys

    @property
    def broken(self) -> bool:
        return self._trying.circuit.broken

    def start(self, batches: list[KeyBatch]) -> None:
        self._survive_fork()
        with self._changed:
            for batch in batches:
                self._trying.add(batch)
            self._follow()
            self._changed.notify_all()

    def urge(self, numbers: Iterable[int]) -> None:
        self._survive_fork()
        with self._changed:
            self._trying.urge(numbers)
            self._changed.notify_all()

    def take(self) -> list[FetchResult]:
        self._survive_fork()
        # Without the lock: a thread that holds it may not run until this one lets go of the GIL.
        arrived = []
        while self._arrived:
            arrived.append(self._arrived.popleft())
        return arrived

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._arrived))

    def close(self) -> None:
        self._survive_fork()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _arrive(self, arrival: FetchResult) -> None:
        """Called with the lock held."""
        self._arrived.append(arrival)
        self.arrivals += 1
        self._changed.notify_all()

    def _survive_fork(self) -> None:
        if self._process == os.getpid():
            return
        unfinished, arrived = list(self._trying.unfinished()), self._arrived
        calls, keys = self.calls, self.keys
        self._begin()
        self._arrived = arrived
        self._trying.calls, self._trying.keys = calls, keys
        if unfinished:
            self.start(unfinished)

    def _follow(self) -> None:
        """Sees to it that a thread waits for the next call. Called with the lock held."""
        if not self._followers:
            name = f"spark-cep remote {self._remote.name}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
            self._followers += 1

    def _run(self) -> None:
        trying, changed = self._trying, self._changed
        while True:
            with changed:
                call = self._next_call(trying, changed)
                self._followers -= 1
                if call is None:
                    return
                # Where no thread can be had, this one goes on alone after its call.
                with suppress(RuntimeError):
                    self._follow()
            answer = call_source(self._remote, call.batch.keys)
            with changed:
                handle_answer(trying, call, answer, self.now())
                changed.notify_all()
                if self._followers:
                    return  # its successor goes on
                self._followers += 1

    def _next_call(self, trying: FetchScheduler, changed: threading.Condition) -> SourceCall | None:
        """The next call; None where there has been nothing to do for a while."""
        while not self._closed:
            now = self.now()
            call = trying.next(now)
            if call is not None:
                return call
            wake = trying.wake(now)
            if wake is not None:
                changed.wait(max(wake - now, 0.0))
            elif not changed.wait(IDLE_S) and trying.is_idle:
                return None
        return None


def handle_answer(
    trying: FetchScheduler, call: SourceCall, answer: Mapping[Any, Any] | FetchFailure, now: float
) -> None:
    if isinstance(answer, FetchFailure):
        trying.failed(call, answer, now)
    else:
        trying.answered(call, answer, now)


def call_source(remote: RemoteSpec, keys: list[Any]) -> Mapping[Any, Any] | FetchFailure:
    """One call of the source's function: its answer, or why there is none. An error of this
    library, which ready sources raise, is final."""
    try:
        answer: object = remote.fetch(list(keys))
        if isinstance(answer, Mapping):
            return dict(answer)
    except CepError as error:
        return FetchFailure(_describe_error(remote, error), error.hint, is_final=True)
    except BaseException as error:  # whatever it is must end as a RemoteError
        return FetchFailure(_describe_error(remote, error))
    return FetchFailure(f"it gave {type(answer).__name__}, not a dict from keys to values", _HINT)


def _describe_error(remote: RemoteSpec, error: BaseException) -> str:
    """The exception's type and message, without what the source knows to be secret. The words of
    ready sources are enough by themselves."""
    kind = type(error).__name__
    try:
        message = error.message if isinstance(error, CepError) else str(error)
        scrub = getattr(remote.fetch, "scrub", None)
        message = str(scrub(message)) if scrub is not None else message
    except Exception:  # a message that cannot be read is not shown
        return kind
    message = " ".join(message.split())
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "..."
    if not message:
        return kind
    return message if isinstance(error, CepError | TransientError) else f"{kind}: {message}"
