"""The clock of one task: how long it has been matching, and what follows when that is long.

An engine asks between two blocks of work whether the clock `is_due`, a few times a second, and then
says where the time went. After a minute in one place (a partition key and a window) a warning goes
to the log of the worker; where the user set `Limits(seconds=)`, the task ends with a LimitError.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final, TypeVar

from spark_cep.udfs.errors import LimitError

# Spark writes it to the stderr of the executor.
LOGGER: Final = logging.getLogger("spark_cep")
# Few keys and windows take longer than this where a pattern is well bounded. The next warning of a
# task comes after twice the time.
WARNING_SECONDS: Final = 60.0
# Looking where the time went takes up to 0.5 ms, so this often it is 0.2 % of the time.
TICK_SECONDS: Final = 0.25

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


_thread = threading.local()


def running_seconds() -> float:
    """A clock that leaves out the time in which this thread let others run."""
    skipped: float = getattr(_thread, "skipped", 0.0)
    return perf_counter() - skipped


def skip_seconds(seconds: float) -> None:
    """So much of the time of this thread was another one's."""
    _thread.skipped = getattr(_thread, "skipped", 0.0) + seconds


@dataclass(frozen=True)
class WorkReport:
    """What a task spends its time on. `pattern`: its variables. `place`: the key and the window, or
    the row. `counts`: what explains the time. `hint`: how to make it less. `details`: the same for
    programs."""

    pattern: str
    place: str
    counts: str
    hint: str
    details: Mapping[str, object] = field(default_factory=dict)


class TaskClock:
    """Counts the seconds that a task has spent matching: one bucket of a batch, or one bucket in
    one trigger of a stream. It stands still while Spark takes a batch of the answer.

    `limit`: the seconds after which the task ends; None: never. `stopped`: it begins to count with
    the first `running`.
    """

    def __init__(
        self,
        limit: float | None = None,
        now: Callable[[], float] = running_seconds,
        *,
        stopped: bool = False,
    ) -> None:
        self._limit = limit
        self._now = now
        self._origin = now()
        self._stopped_at: float | None = self._origin if stopped else None
        self._ticked = 0.0
        self._due = self._next_tick()
        self._warning_at = WARNING_SECONDS
        self.warnings = 0

    @property
    def seconds(self) -> float:
        now = self._now() if self._stopped_at is None else self._stopped_at
        return now - self._origin

    def running(self, work: Generator[_Item, None, _Result]) -> Generator[_Item, None, _Result]:
        """What `work` yields and returns. The time until the next item is wanted does not count."""
        while True:
            self._start()
            try:
                item = next(work)
            except StopIteration as end:
                result: _Result = end.value
                return result
            finally:
                self._stopped_at = self._now()
            yield item

    def is_due(self) -> bool:
        """Whether it is time to `tick` and to `report`."""
        return self._now() - self._origin >= self._due

    def tick(self) -> float:
        """The seconds since the last tick."""
        before, self._ticked = self._ticked, self.seconds
        self._due = self._next_tick()
        return self._ticked - before

    def report(self, longest: float, describe: Callable[[], WorkReport]) -> None:
        """Warns, or ends the task. `longest`: the seconds spent at the place that took longest,
        which `describe` describes."""
        if self._limit is not None and self._ticked >= self._limit:
            raise self._limit_error(self._limit, longest, describe())
        if longest >= self._warning_at:
            while self._warning_at <= longest:
                self._warning_at *= 2
            self.warnings += 1
            work = describe()
            LOGGER.warning(
                "matching %s has taken %s seconds so far, %s of them on %s: %s; %s, or set "
                "limits=cep.Limits(seconds=...) to end such a task",
                work.pattern, f"{self._ticked:,.0f}", f"{longest:,.0f}", work.place, work.counts,
                work.hint,
            )  # fmt: skip

    def _limit_error(self, limit: float, longest: float, work: WorkReport) -> LimitError:
        more = f"{limit * 10:.15g}"
        return LimitError(
            f"a task has spent {self._ticked:,.1f} seconds matching {work.pattern}; the limit is "
            f"{limit:,g}. It spent {longest:,.1f} of them on {work.place}: {work.counts}",
            hint=f"{work.hint}, or raise the limit: limits=cep.Limits(seconds={more}), in SQL "
            f"/*+ seconds({more}) */ after the clause",
            details={
                **work.details, "limit": "seconds", "allowed": limit,
                "reached": round(self._ticked, 3), "longest_seconds": round(longest, 3),
            },
        )  # fmt: skip

    def _start(self) -> None:
        if self._stopped_at is not None:
            self._origin += self._now() - self._stopped_at
            self._stopped_at = None

    def _next_tick(self) -> float:
        due = self._ticked + TICK_SECONDS
        is_near = self._limit is not None and self._ticked < self._limit < due
        return self._limit if is_near and self._limit is not None else due
