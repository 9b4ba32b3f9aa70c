"""Tasks of a long benchmark, in one process or several, and how far they are."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int = 1
) -> Iterator[tuple[int, Result]]:
    """The result of each task with its number, as it is done. With `jobs` processes both have to
    be such that they can be pickled. What is done, and about how long the rest takes, goes to the
    error output.

    >>> sorted(run_tasks(abs, [-3, 2]))
    [(0, 3), (1, 2)]
    """
    began = time.monotonic()
    for done, (number, result) in enumerate(_run(function, tasks, jobs), 1):
        yield number, result
        gone = time.monotonic() - began
        left = gone / done * (len(tasks) - done)
        said = f"{done} of {len(tasks)}, {_minutes(gone)} gone, about {_minutes(left)} left"
        print(said, file=sys.stderr, flush=True)


def _run(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[int, Result]]:
    if jobs == 1:
        yield from enumerate(map(function, tasks))
        return
    # Arrow's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(function, task): number for number, task in enumerate(tasks)}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _minutes(seconds: float) -> str:
    """
    >>> _minutes(125.4)
    '2:05'
    """
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"
