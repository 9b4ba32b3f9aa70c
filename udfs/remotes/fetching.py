"""Calls of a source's function beside the matching: which batch of keys goes next, what becomes of
a call that fails, and the threads that make the calls.

`FetchScheduler` decides, without threads and without a clock. Needed keys go before prefetched
ones, and batches that wait for a call go together. A call that outlives its timeout has failed, and
its late answer is ignored. A failed batch is repeated after a pause that doubles, with jitter; a
failed prefetch is dropped, because nobody has needed it yet. After several failures in a row the
circuit is open: no call is made for a while, then a single one probes the source.

Always holds: every batch ends exactly once, with a `FetchResult` or with `cancel`, and at most
`in_flight` calls are under way at the source. A call that outlives its timeout keeps its slot until
it returns, since the source still works on it.
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

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.sources.clients import TransientError

if TYPE_CHECKING:
    from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
    from spark_cep.udfs.values.arrow_values import Array


@dataclass(eq=False)
class KeyBatch:
    """A batch of `keys`, one for each of `elements`. `ahead`: nobody needs them yet.
    `requested_at`: when. `queued_at`: since when it waits for a slot, at this attempt. `merged`:
    the batches whose keys it has, if they go in one call."""

    elements: Array
    keys: list[Any]
    ahead: bool = False
    number: int = 0
    attempts: int = 0
    requested_at: float = 0.0
    queued_at: float = 0.0
    merged: tuple[KeyBatch, ...] = ()

    def parts(self) -> tuple[KeyBatch, ...]:
        return self.merged or (self,)


@dataclass(frozen=True)
class FetchFailure:
    """Why there is no value, without secrets. `is_final`: scheduler again would not help."""

    text: str
    hint: str | None = None
    is_final: bool = False


@dataclass(frozen=True)
class FetchResult:
    """How a batch ended, at time `ended`. Without an `answer` it was given up for `failure`.
    `seconds`: how long the call took."""

    batch: KeyBatch
    ended: float
    seconds: float = 0.0
    answer: Mapping[Any, Any] | None = None
    failure: FetchFailure | None = None


@dataclass(frozen=True)
class SourceCall:
    """A running call. `probes`: the circuit is open, and this call tests the source."""

    number: int
    batch: KeyBatch
    began: float
    probes: bool


class CircuitBreaker:
    """Open after `failures` failed calls in a row, for `pause` seconds; then one call probes.

    While it is open nothing is prefetched. Needs wait for the probe, whose failure counts for them,
    too; where failures give NULL (on_error="null") they are given up at once.
    """

    def __init__(self, fetch_policy: FetchPolicy) -> None:
        self._fetch_policy = fetch_policy
        self._failures = 0
        self._probing = False
        self.until = 0.0

    @property
    def broken(self) -> bool:
        return self._failures >= self._fetch_policy.failures

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
            self.until = now + self._fetch_policy.pause


@dataclass
class _BatchQueue:
    """Batches without a call: `needs`, prefetches (`ahead`), and failed ones that wait for their
    retry (`later`). `by_number` has all of them. A prefetch that became urgent is in `needs`, and
    its entry in `ahead` is skipped."""

    needs: deque[KeyBatch] = field(default_factory=deque)
    ahead: deque[KeyBatch] = field(default_factory=deque)
    later: list[tuple[float, int, KeyBatch]] = field(default_factory=list)
    by_number: dict[int, KeyBatch] = field(default_factory=dict)


class FetchScheduler:
    """Decides what is called next. `on_result` receives every result; `random` returns numbers
    from 0 to 1."""

    def __init__(
        self,
        remote: RemoteSpec,
        random: Callable[[], float],
        on_result: Callable[[FetchResult], None],
    ) -> None:
        self._remote = remote
        self._fetch_policy = remote.fetch_policy
        self._random = random
        self._on_result = on_result
        self._waiting = _BatchQueue()
        # Calls whose answer is still expected, and the numbers of those that have not returned.
        self._running: dict[int, SourceCall] = {}
        self._slots: set[int] = set()
        self._stuck_since: float | None = None
        self._numbers = itertools.count()
        self.circuit = CircuitBreaker(remote.fetch_policy)
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
        """Makes prefetches urgent: their keys are needed now."""
        running = {
            part.number: call.batch
            for call in self._running.values()
            for part in call.batch.parts()
        }
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

    @property
    def has_free_slot(self) -> bool:
        return len(self._slots) < self._fetch_policy.in_flight

    def cancel(self) -> list[KeyBatch]:
        """Takes back the batches without a call. Nobody needs the others any more, so their calls
        are not repeated."""
        waiting, self._waiting = self._waiting, _BatchQueue()
        for call in self._running.values():
            call.batch.ahead = True
        return list(waiting.by_number.values())

    def abandon(self) -> None:
        """Expects no answers any more. Calls that have not returned keep their slots."""
        self._running.clear()
        self._stuck_since = None
        self.circuit = CircuitBreaker(self._fetch_policy)

    def next(self, now: float) -> SourceCall | None:
        """The call to make now, if there is one."""
        self._expire(now)
        self._queue_due_retries(now)
        self._expire_stuck(now)
        circuit = self.circuit
        if circuit.broken and now < circuit.until:
            self._give_up_waiting(now)
        if not self.has_free_slot or not circuit.lets_pass(now):
            return None
        batch = self._first()
        if batch is None:
            return None
        batch = self._fill(batch)
        call = SourceCall(next(self._numbers), batch, now, circuit.broken)
        circuit.began()
        self._running[call.number] = call
        self._slots.add(call.number)
        self.calls += 1
        self.keys += len(batch.keys)
        return call

    def answered(self, call: SourceCall, answer: Mapping[Any, Any], now: float) -> None:
        self._free_slot(call)
        if self._running.pop(call.number, None) is not None:
            self.circuit.succeeded()
            self._on_result(FetchResult(call.batch, now, now - call.began, answer))

    def failed(self, call: SourceCall, why: FetchFailure, now: float) -> None:
        self._free_slot(call)
        self._fail(call, why, now)

    def _free_slot(self, call: SourceCall) -> None:
        self._slots.discard(call.number)
        self._stuck_since = None

    def _fail(self, call: SourceCall, why: FetchFailure, now: float) -> None:
        if self._running.pop(call.number, None) is None:
            return
        if why.is_final and not call.batch.merged:
            call.batch.attempts += 1
            self.circuit.succeeded()  # the source is reachable
            self._give_up(call.batch, why, now)
            return
        self.circuit.failed(now)
        waiting = list(self._waiting.by_number.values()) if call.probes else []
        parts = call.batch.parts()
        for part in parts:
            part.ahead = call.batch.ahead
        # Each by itself, so that a key that fails takes no others with it.
        for batch in (*parts, *waiting):
            self._retry_or_give_up(batch, why, now)

    def wake(self, now: float) -> float | None:
        """When `next` has something to do; None: not before a batch is added or a call ends."""
        times = [call.began + self._fetch_policy.timeout for call in self._running.values()]
        waiting = self._waiting
        if self.has_free_slot or self._is_stuck:
            times += [due for due, _, batch in waiting.later[:1]]
        if self._is_stuck:
            times += [self._stuck_until(batch, now) for batch in self._queued()]
        if self.has_free_slot:
            soonest = self.circuit.lets_pass_at(now)
            if soonest is not None and (waiting.needs or waiting.ahead):
                times.append(soonest)
        return min(times, default=None)

    def _expire(self, now: float) -> None:
        timeout = self._fetch_policy.timeout
        for call in [c for c in self._running.values() if now >= c.began + timeout]:
            self._fail(call, FetchFailure(f"TimeoutError: no answer within {timeout:g} s"), now)

    def _queue_due_retries(self, now: float) -> None:
        waiting = self._waiting
        while waiting.later and waiting.later[0][0] <= now:
            _, _, batch = heapq.heappop(waiting.later)
            batch.queued_at = now
            waiting.needs.append(batch)

    # ---- a source that does not return --------------------------------------------------------
    #
    # Every slot may be held by a call past its timeout. A batch that waits for a slot then fails
    # its attempt after another timeout, as if it had been called, so that a source that hangs ends
    # the query instead of holding it up for good.

    @property
    def _is_stuck(self) -> bool:
        return not self.has_free_slot and not self._running

    def _queued(self) -> list[KeyBatch]:
        """The batches that wait for a slot, not for their retry."""
        later = {number for _, number, _ in self._waiting.later}
        return [batch for n, batch in self._waiting.by_number.items() if n not in later]

    def _stuck_until(self, batch: KeyBatch, now: float) -> float:
        since = now if self._stuck_since is None else self._stuck_since
        return max(batch.queued_at, since) + self._fetch_policy.timeout

    def _expire_stuck(self, now: float) -> None:
        if not self._is_stuck:
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = now
        calls = "1 call has" if len(self._slots) == 1 else f"{len(self._slots)} calls have"
        why = FetchFailure(f"TimeoutError: {calls} not returned, and no more may be made at once")
        for batch in [each for each in self._queued() if now >= self._stuck_until(each, now)]:
            self._drop_from_queue(batch)
            self._retry_or_give_up(batch, why, now)

    def _drop_from_queue(self, batch: KeyBatch) -> None:
        """Entries of queues are skipped unless `by_number` has their batch; a retry would bring it
        back, so it must leave its queue."""
        del self._waiting.by_number[batch.number]
        for queue in (self._waiting.needs, self._waiting.ahead):
            with suppress(ValueError):
                queue.remove(batch)

    def _first(self) -> KeyBatch | None:
        waiting = self._waiting
        for queue, ahead in ((waiting.needs, False), (waiting.ahead, True)):
            while queue:
                batch = queue.popleft()
                # A batch that became urgent or was given up is still in its old queue.
                if batch.ahead == ahead and batch.number in waiting.by_number:
                    return waiting.by_number.pop(batch.number)
        return None

    def _fill(self, batch: KeyBatch) -> KeyBatch:
        """The batch with those behind it, as far as they fit into one call. They have waited for a
        call to end, and each in a call of its own would wait for another one. Not without retries,
        where a key that fails would end the others of its call."""
        waiting, parts, size = self._waiting, [batch], len(batch.keys)
        queue = waiting.ahead if batch.ahead else waiting.needs
        while queue and not batch.attempts and self._fetch_policy.retries:
            following = queue[0]
            if following.ahead == batch.ahead and following.number in waiting.by_number:
                size += len(following.keys)
                if following.attempts or size > self._fetch_policy.batch:
                    break
                parts.append(waiting.by_number.pop(following.number))
            queue.popleft()
        if len(parts) == 1:
            return batch
        return replace(
            batch,
            elements=np.concatenate([part.elements for part in parts]),
            keys=[key for part in parts for key in part.keys],
            merged=tuple(each for part in parts for each in part.parts()),
        )

    def _retry_or_give_up(self, batch: KeyBatch, why: FetchFailure, now: float) -> None:
        batch.attempts += 1
        hopeless = self.circuit.broken and self._remote.on_error == "null"
        if batch.ahead or hopeless or batch.attempts > self._fetch_policy.retries:
            self._give_up(batch, why, now)
        elif batch.number not in self._waiting.by_number:
            self._waiting.by_number[batch.number] = batch
            pause = self._fetch_policy.backoff * 2 ** (batch.attempts - 1)
            due = now + pause * (0.5 + self._random())
            heapq.heappush(self._waiting.later, (due, batch.number, batch))

    def _give_up_waiting(self, now: float) -> None:
        why = FetchFailure("calls are paused after several failures in a row")
        for batch in list(self._waiting.by_number.values()):
            if batch.ahead or self._remote.on_error == "null":
                self._give_up(batch, why, now)

    def _give_up(self, batch: KeyBatch, why: FetchFailure, now: float) -> None:
        self._waiting.by_number.pop(batch.number, None)
        keys = "1 key" if len(batch.keys) == 1 else f"{len(batch.keys)} keys"
        tries = "1 attempt" if batch.attempts == 1 else f"{batch.attempts} attempts"
        text = f"remote {self._remote.name!r} could not fetch {keys}, in {tries}: {why.text}"
        self._on_result(FetchResult(batch, now, failure=replace(why, text=text)))


# ---- making calls --------------------------------------------------------------------------------
#
# A `Lookup` sees a `Fetcher`: batches go in, results come out. `ThreadedFetcher` calls in daemon
# threads, the only threads in a worker besides those of clients. `ImmediateFetcher` calls in the
# caller's thread, for sources that answer at once. A simulation brings its own, with its own clock.


# An idle thread waits this long for work: longer than from one block to the next. Starting a thread
# takes about 0.1 ms.
IDLE_S: Final = 2.0
_LONGEST_MESSAGE: Final = 300
_HINT: Final = (
    "fn takes a list of keys and returns a dict {key: value}, without keys that it does not know"
)


class Fetcher(Protocol):
    """Makes calls. `arrivals` counts the results; `calls` and `keys` count what was requested from
    the source. `broken`: nothing should be prefetched now."""

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
        """Makes prefetches urgent."""

    def take(self) -> list[FetchResult]:
        """The results since the last call."""

    def cancel(self) -> list[KeyBatch]:
        """Takes back the batches without a call. Calls that run are not repeated when they fail."""

    def wait(self) -> None:
        """Blocks until there is a result."""

    def close(self) -> None:
        """Ends; nobody waits for running calls."""


class ImmediateFetcher:
    """Calls in the caller's thread, with all keys at once and without retries."""

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

    def cancel(self) -> list[KeyBatch]:
        return []

    def wait(self) -> None:
        pass

    def close(self) -> None:
        self._arrived = []


class ThreadedFetcher:
    """Calls in daemon threads.

    A thread that takes a call first starts a successor, which waits for the next call, for a retry
    that is due or for a timeout. So there is always a thread that notices them, also while the
    engine is busy. Threads start with the first batch and end when idle. They do not survive a
    fork, so a forked process starts again and repeats the calls that were running.
    """

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
        self._scheduler = FetchScheduler(self._remote, self._jitter, self._arrive)
        self._arrived: deque[FetchResult] = deque()
        self._idle_threads = 0
        self._closed = False

    @property
    def calls(self) -> int:
        return self._scheduler.calls

    @property
    def keys(self) -> int:
        return self._scheduler.keys

    @property
    def broken(self) -> bool:
        return self._scheduler.circuit.broken

    def start(self, batches: list[KeyBatch]) -> None:
        self._restart_after_fork()
        with self._changed:
            for batch in batches:
                self._scheduler.add(batch)
            self._start_follower()
            self._changed.notify_all()

    def urge(self, numbers: Iterable[int]) -> None:
        self._restart_after_fork()
        with self._changed:
            self._scheduler.urge(numbers)
            self._changed.notify_all()

    def take(self) -> list[FetchResult]:
        self._restart_after_fork()
        # Without the lock: a thread that holds it may have to wait for this one to release the GIL.
        arrived = []
        while self._arrived:
            arrived.append(self._arrived.popleft())
        return arrived

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._arrived))

    def cancel(self) -> list[KeyBatch]:
        self._restart_after_fork()
        with self._changed:
            return self._scheduler.cancel()

    def reset(self, remote: RemoteSpec) -> None:
        """Forgets all batches. The calls that have not returned still count as under way."""
        self._restart_after_fork()
        with self._changed:
            self._scheduler.cancel()
            self._scheduler.abandon()
            self._arrived.clear()
            self._remote = remote

    def close(self) -> None:
        self._restart_after_fork()
        with self._changed:
            self._scheduler.cancel()
            self._closed = True
            self._changed.notify_all()

    def _arrive(self, arrival: FetchResult) -> None:
        """Called with the lock held."""
        self._arrived.append(arrival)
        self.arrivals += 1
        self._changed.notify_all()

    def _restart_after_fork(self) -> None:
        if self._process == os.getpid():
            return
        unfinished, arrived = list(self._scheduler.unfinished()), self._arrived
        calls, keys = self.calls, self.keys
        self._begin()
        self._arrived = arrived
        self._scheduler.calls, self._scheduler.keys = calls, keys
        if unfinished:
            self.start(unfinished)

    def _start_follower(self) -> None:
        """Makes sure that a thread waits for the next call. Called with the lock held."""
        if not self._idle_threads:
            name = f"spark-cep remote {self._remote.name}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
            self._idle_threads += 1

    def _run(self) -> None:
        scheduler, changed = self._scheduler, self._changed
        while True:
            with changed:
                call = self._next_call(scheduler, changed)
                self._idle_threads -= 1
                if call is None:
                    return
                # If no thread can be started, this one continues alone after its call.
                with suppress(RuntimeError):
                    self._start_follower()
            answer = call_source(self._remote, call.batch.keys)
            with changed:
                handle_answer(scheduler, call, answer, self.now())
                changed.notify_all()
                if self._idle_threads:
                    return  # its successor continues
                self._idle_threads += 1

    def _next_call(
        self, scheduler: FetchScheduler, changed: threading.Condition
    ) -> SourceCall | None:
        """The next call; None after a while without work."""
        while not self._closed:
            now = self.now()
            call = scheduler.next(now)
            if call is not None:
                return call
            wake = scheduler.wake(now)
            if wake is not None:
                changed.wait(max(wake - now, 0.0))
            elif not changed.wait(IDLE_S) and scheduler.is_idle:
                return None
        return None


def handle_answer(
    scheduler: FetchScheduler,
    call: SourceCall,
    answer: Mapping[Any, Any] | FetchFailure,
    now: float,
) -> None:
    if isinstance(answer, FetchFailure):
        scheduler.failed(call, answer, now)
    else:
        scheduler.answered(call, answer, now)


def call_source(remote: RemoteSpec, keys: list[Any]) -> Mapping[Any, Any] | FetchFailure:
    """One call of the source's function: its answer, or why there is none. Errors of this library,
    which ready-made sources raise, are final."""
    try:
        answer: object = remote.fetch(list(keys))
        if isinstance(answer, Mapping):
            return dict(answer)
    except CepError as error:
        hint = error.hint if shows_errors(remote) else None
        return FetchFailure(_describe_error(remote, error), hint, is_final=True)
    except BaseException as error:  # it must end as a RemoteError, whatever it is
        return FetchFailure(_describe_error(remote, error))
    return FetchFailure(
        f"it returned {type(answer).__name__}, not a dict from keys to values", _HINT
    )


def _describe_error(remote: RemoteSpec, error: BaseException) -> str:
    """What may be shown of an exception: its type, since its text may quote an address with its
    password, or a value. The errors that ready-made sources make of their client's exceptions
    have texts of this library. With `show_errors` the text too, without the source's secrets."""
    kind = type(error).__name__
    if not shows_errors(remote):
        return kind
    is_own = isinstance(error, CepError | TransientError)
    if not (is_own or remote.show_errors):
        return kind
    try:
        message = error.message if isinstance(error, CepError) else str(error)
        if not remote.show_errors:
            message = str(getattr(error, "shown", message))
        scrub = getattr(remote.fetch, "scrub", None)
        message = str(scrub(message)) if scrub is not None else message
    except Exception:  # a message that cannot be read is left out
        return kind
    message = " ".join(message.split())
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE] + "..."
    if not message:
        return kind
    return message if is_own else f"{kind}: {message}"


def shows_errors(remote: RemoteSpec) -> bool:
    """Whether the texts of the library's errors may be shown where the source raises or returns
    them. A function of the user may put anything into one; the ready-made sources do not."""
    is_ready_made = remote.is_local or getattr(remote.fetch, "scrub", None) is not None
    return is_ready_made or remote.show_errors
