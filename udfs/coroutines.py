"""Work of one task in turns: where one piece would wait for remote data, another goes on.

A `Coroutine` runs a generator in a thread of its own, but only inside `resume`, so of all
coroutines and the thread that resumes them one runs at a time, and nothing they share needs a lock.
A generator alone could not be suspended deep inside the engine, where values are read.

Always holds: a coroutine that has begun is resumed until it is done, or cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from spark_cep.udfs.task_clock import running_seconds, skip_seconds

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Between two looks at several sources: short beside any call, and a thousand looks cost 0.1 s.
POLL_SECONDS: Final = 1e-3


class Source(Protocol):
    """What a coroutine waits for."""

    def wait_for_result(self, seconds: float | None = None) -> None:
        """Blocks until there is a result, or for so many seconds."""


@dataclass(frozen=True)
class Wait:
    """`is_over`: whether to go on; until then `source` has results to come."""

    source: Source
    is_over: Callable[[], bool]


class Cancelled(BaseException):
    """Raised inside a coroutine that will not be resumed, so that it ends."""


_current = threading.local()


def pass_turn(wait: Wait) -> bool:
    """Lets other coroutines run until a wait is over. False: the caller is in none, and has to wait
    itself."""
    running: Coroutine[object, object] | None = getattr(_current, "coroutine", None)
    if running is None:
        return False
    running.suspend(wait)
    return True


class Coroutine(Generic[_Item, _Result]):
    """`most`: how much it may give before somebody takes it, in the unit of `size`."""

    def __init__(
        self,
        work: Generator[_Item, None, _Result],
        size: Callable[[_Item], int] = lambda _: 1,
        most: int = 1,
    ) -> None:
        self._work = work
        self._size, self._most = size, most
        self._items: list[_Item] = []
        self._given = 0
        self._result: list[_Result] = []
        self._error: BaseException | None = None
        self._wait: Wait | None = None
        self._is_cancelled = False
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self.is_done = False

    # ---- for the thread that resumes it --------------------------------------------------------

    @property
    def wait(self) -> Wait | None:
        """What it waits for."""
        return self._wait

    def can_go_on(self) -> bool:
        if self.is_done or self._given >= self._most:
            return False
        return self._wait is None or self._wait.is_over()

    def resume(self) -> None:
        """Runs until it waits, has given as much as it may, or is done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spark-cep turn", daemon=True)
            self._thread.start()
        self._mine.release()
        self._theirs.acquire()

    def take(self) -> list[_Item]:
        taken, self._items, self._given = self._items, [], 0
        return taken

    def result(self) -> _Result:
        """What the work returned, when it is done; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    def cancel(self) -> None:
        """Ends it, whatever it waits for."""
        if self.is_done:
            return
        self._is_cancelled = True
        if self._thread is None:
            self.is_done = True
            self._work.close()
        else:
            self.resume()

    # ---- in its own thread ---------------------------------------------------------------------

    def suspend(self, wait: Wait | None) -> None:
        self._wait = wait
        began = time.perf_counter()
        blocked = blocked_seconds()
        self._theirs.release()
        self._mine.acquire()
        self._wait = None
        # The time in which all coroutines wait belongs to each of them.
        skip_seconds(time.perf_counter() - began - (blocked_seconds() - blocked))
        if self._is_cancelled:
            raise Cancelled

    def _run(self) -> None:
        self._mine.acquire()
        _current.coroutine = self
        try:
            if self._is_cancelled:
                raise Cancelled
            self._result.append(self._drain())
        except BaseException as error:  # raised again where the result is taken
            self._error = error
        finally:
            self._work.close()
            self.is_done = True
            self._theirs.release()

    def _drain(self) -> _Result:
        while True:
            try:
                item = next(self._work)
            except StopIteration as end:
                result: _Result = end.value
                return result
            self._items.append(item)
            self._given += self._size(item)
            if self._given >= self._most:
                self.suspend(None)


# ---- several of them -----------------------------------------------------------------------------


_blocked = [0.0]


def blocked_seconds() -> float:
    """How long all coroutines of this process have waited at the same time."""
    return _blocked[0]


def run_to_end(
    one: Coroutine[_Item, _Result], others: Sequence[Coroutine[_Item, _Result]]
) -> Generator[_Item, None, _Result]:
    """What `one` gives and returns. While it waits the others go on."""
    every = [one, *(each for each in others if each is not one)]
    while True:
        yield from one.take()
        if one.is_done:
            return one.result()
        if not _resume_ready(every):
            _block([each.wait for each in every if not each.is_done])


def _resume_ready(every: Sequence[Coroutine[_Item, _Result]]) -> bool:
    """Gives a turn to each that can go on; False: none can."""
    has_run = False
    for each in every:
        if each.can_go_on():
            each.resume()
            has_run = True
    return has_run


def _block(waits: Sequence[Wait | None]) -> None:
    sources = {id(wait.source): wait.source for wait in waits if wait is not None}
    began = running_seconds()
    one = next(iter(sources.values()))
    one.wait_for_result(None if len(sources) == 1 else POLL_SECONDS)
    _blocked[0] += running_seconds() - began
