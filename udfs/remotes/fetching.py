"""Calls of a source's function, beside the matching: the only threads of the workers' room.

A `Lookup` sees a `Fetching`: batches go in, arrivals come out. `Threads` makes the calls in daemon
threads, `AtOnce` in the caller's, for sources that answer without waiting. A simulation can bring
one of its own, with a clock of its own.

Threads follow one another: whoever takes a call leaves a successor that waits for the next one,
for a retry that is due, or for a timeout; so there is always one to notice, also while the matching
is busy. They begin with the first batch and end when idle, and in a forked process they begin
anew: threads do not survive a fork, so what was under way is asked again there.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.remotes.trying import Arrival, Batch, Call, Failure, Trying
from spark_cep.udfs.sources.failing import PassingFailure

if TYPE_CHECKING:
    from spark_cep.udfs.remotes.spec import Remote

# Longer than between two blocks; starting a thread costs about 0.1 ms.
IDLE_S: Final = 2.0
_LONGEST_TEXT: Final = 300
_HINT: Final = (
    "fn takes a list of keys and gives a dict, {key: value}, without keys it does not know"
)


class Fetching(Protocol):
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
    def start(self, batches: list[Batch]) -> None: ...
    def urge(self, numbers: Iterable[int]) -> None:
        """Needed now, though asked for ahead."""

    def take(self) -> list[Arrival]:
        """What has arrived since the last time."""

    def wait(self) -> None:
        """Until there is something to take."""

    def close(self) -> None:
        """Nobody waits any longer for what is under way."""


class AtOnce:
    """Calls in the caller's thread, all keys in one, no second try."""

    broken = False

    def __init__(self, remote: Remote, now: Callable[[], float] = time.monotonic) -> None:
        self._remote = remote
        self._arrived: list[Arrival] = []
        self.now = now
        self.arrivals = self.calls = self.keys = 0

    def start(self, batches: list[Batch]) -> None:
        for batch in batches:
            began = self.now()
            answer = asked(self._remote, batch.keys)
            ended = self.now()
            if isinstance(answer, Failure):
                text = f"remote {self._remote.name!r} failed: {answer.text}"
                arrival = Arrival(batch, ended, failure=replace(answer, text=text))
            else:
                arrival = Arrival(batch, ended, ended - began, answer)
            self._arrived.append(arrival)
            self.calls, self.keys = self.calls + 1, self.keys + len(batch.keys)
            self.arrivals += 1

    def urge(self, numbers: Iterable[int]) -> None:
        pass

    def take(self) -> list[Arrival]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def wait(self) -> None:
        pass

    def close(self) -> None:
        self._arrived = []


class Threads:
    def __init__(
        self,
        remote: Remote,
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
        self._trying = Trying(self._remote, self._jitter, self._arrive)
        self._arrived: deque[Arrival] = deque()
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

    def start(self, batches: list[Batch]) -> None:
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

    def take(self) -> list[Arrival]:
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

    def _arrive(self, arrival: Arrival) -> None:
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
            answer = asked(self._remote, call.batch.keys)
            with changed:
                hear(trying, call, answer, self.now())
                changed.notify_all()
                if self._followers:
                    return  # its successor goes on
                self._followers += 1

    def _next_call(self, trying: Trying, changed: threading.Condition) -> Call | None:
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


def hear(trying: Trying, call: Call, answer: Mapping[Any, Any] | Failure, now: float) -> None:
    if isinstance(answer, Failure):
        trying.failed(call, answer, now)
    else:
        trying.answered(call, answer, now)


def asked(remote: Remote, keys: list[Any]) -> Mapping[Any, Any] | Failure:
    """One call of the source's function: its answer, or why there is none. An error of this
    library, which ready sources raise, is final."""
    try:
        answer: object = remote.fetch(list(keys))
        if isinstance(answer, Mapping):
            return dict(answer)
    except CepError as error:
        return Failure(_told(remote, error), error.hint, is_final=True)
    except BaseException as error:  # whatever it is must end as a RemoteError
        return Failure(_told(remote, error))
    return Failure(f"it gave {type(answer).__name__}, not a dict from keys to values", _HINT)


def _told(remote: Remote, error: BaseException) -> str:
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
    if len(message) > _LONGEST_TEXT:
        message = message[:_LONGEST_TEXT] + "..."
    if not message:
        return kind
    return message if isinstance(error, CepError | PassingFailure) else f"{kind}: {message}"
