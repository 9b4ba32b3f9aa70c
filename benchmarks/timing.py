"""Timing several ways of doing one thing against each other, and the memory they take.

Contestants take turns: one round runs each of them once. So a slow moment of the machine falls
on all of them, and their ratio holds still where their seconds do not.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Timed:
    """The seconds of each round, the last result, and the largest Python worker seen. Workers are
    used again, so a worker's size may come from a contestant that ran before."""

    seconds: tuple[float, ...]
    result: object
    peak_worker_bytes: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def take_turns(
    contestants: Mapping[str, Callable[[], object]], *, rounds: int, warmups: int = 1
) -> dict[str, Timed]:
    """Runs every contestant `rounds` times in turn, after `warmups` rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    results: dict[str, object] = {}
    peaks = dict.fromkeys(contestants, 0)
    for turn in range(warmups + rounds):
        for name, run in contestants.items():
            with worker_memory() as peak:
                started = time.perf_counter()
                results[name] = run()
                taken = time.perf_counter() - started
            if turn >= warmups:
                seconds[name].append(taken)
                peaks[name] = max(peaks[name], peak.bytes)
    return {name: Timed(tuple(seconds[name]), results[name], peaks[name]) for name in contestants}


@dataclass
class Peak:
    """The largest resident size of one Python worker that was seen."""

    bytes: int = 0
    done: threading.Event = field(default_factory=threading.Event)


@contextmanager
def worker_memory() -> Iterator[Peak]:
    """Watches the Python workers below this process while the block runs."""
    peak = Peak()
    watcher = threading.Thread(target=_watch, args=(peak,), daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        peak.done.set()
        watcher.join()


def _watch(peak: Peak) -> None:
    here = psutil.Process()
    while not peak.done.wait(SAMPLE_SECONDS):
        for process in here.children(recursive=True):
            try:
                if process.name().startswith("python"):
                    peak.bytes = max(peak.bytes, process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
