"""Counts the jobs and tasks that Spark runs, whatever starts them: `count_jobs`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext

_DEADLINE_SECONDS = 20


@dataclass(frozen=True)
class Job:
    """`tasks`: those that were started. `planned`: those of all its stages, also of stages that
    were skipped or cancelled. `group`: the job group, None if it has none."""

    number: int
    tasks: int
    planned: int
    status: str
    group: str | None


@dataclass
class JobCount:
    """The jobs of a block of code, known when the block has ended."""

    jobs: list[Job] = field(default_factory=list)

    @property
    def tasks(self) -> int:
        return sum(job.tasks for job in self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@contextmanager
def count_jobs() -> Iterator[JobCount]:
    """Counts the jobs that start within the block, in all threads and job groups of the running
    SparkContext; that of a local Connect server is one too. Jobs that still run at the end are
    waited for.

        with count_jobs() as ran:
            df.collect()
        assert (len(ran), ran.tasks) == (1, 2)
    """
    context: Any = SparkContext._active_spark_context
    assert context is not None, "no SparkContext runs in this process"
    scala = context._jsc.sc()
    before = {job.number for job in _read_jobs(scala)}
    count = JobCount()
    try:
        yield count
    finally:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            count.jobs = [job for job in _read_jobs(scala) if job.number not in before]
            if all(job.status != "RUNNING" for job in count.jobs) or time.monotonic() > deadline:
                break
            time.sleep(0.01)


def _read_jobs(scala: Any) -> list[Job]:
    # Events reach the store late; the bus is empty when all of them have.
    scala.listenerBus().waitUntilEmpty()
    found = scala.statusStore().jobsList(None)
    return [_read_job(found.apply(place)) for place in range(found.size())]


def _read_job(data: Any) -> Job:
    started = (
        data.numActiveTasks() + data.numCompletedTasks() + data.numFailedTasks()
        + data.numKilledTasks()
    )  # fmt: skip
    group = data.jobGroup()
    return Job(
        data.jobId(),
        started,
        data.numTasks(),
        str(data.status()),
        str(group.get()) if group.isDefined() else None,
    )
