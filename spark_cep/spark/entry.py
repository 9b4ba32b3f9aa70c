"""The function that Spark runs on each bucket.

It is pickled by value and finds the engine by import, so executors need this package installed.
Imports stand inside the functions: the driver needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.remotes.stage import LookupStage
    from spark_cep.udfs.row_program import RowProgram


WorkerFunction = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def event_entry(
    program: Program, output: EventOutput, answered: pa.Schema, name: str
) -> WorkerFunction:
    """`name` is what Spark shows in its plans and its UI. `answered` is the schema of the answer:
    an empty bucket has no batch to take types from, and still reports that it was looked at."""

    def match_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.worker import run_events  # noqa: PLC0415

        found = run_events(program, output, batches, _bucket_number(), _remote_scope(program))
        yield from _or_empty_bucket(found, answered)

    match_bucket.__name__ = match_bucket.__qualname__ = name
    return match_bucket


def row_entry(
    program: RowProgram, output: RowOutput, answered: pa.Schema, name: str
) -> WorkerFunction:
    """The same for a row pattern."""

    def match_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.row_worker import run_rows  # noqa: PLC0415

        yield from _or_empty_bucket(run_rows(program, output, batches, _bucket_number()), answered)

    match_bucket.__name__ = match_bucket.__qualname__ = name
    return match_bucket


def _bucket_number() -> int:
    """The number of the bucket."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _remote_scope(program: Program) -> str:
    """Within which values of remote sources count as constant."""
    if not program.remotes:
        return ""

    return task_scope().name


def _or_empty_bucket(
    found: Iterator[pa.RecordBatch], answered: pa.Schema
) -> Iterator[pa.RecordBatch]:
    is_empty = True
    for batch in found:
        is_empty = False
        yield batch
    if is_empty:
        yield empty_bucket(answered)


def empty_bucket(answered: pa.Schema) -> pa.RecordBatch:
    """The metrics of an empty bucket: one row, which counts nothing."""
    import pyarrow as pa  # noqa: PLC0415

    *columns, metrics = answered
    arrays = [pa.nulls(1, column.type) for column in columns]
    counts = pa.array(["{}"], type=metrics.type)
    return pa.RecordBatch.from_arrays([*arrays, counts], names=answered.names)


# --------------------------------------------------------------------------------------------------
# The function that Spark runs where values are looked up outside the engine, and for whom.
#
# It is pickled by value and finds the rest by import, so imports stand inside, as in
# `shipping/worker_entry.py`. What is cached lives as long as its scope: a stage of a batch query,
# so that two actions share nothing; a streaming query over all its triggers.
# --------------------------------------------------------------------------------------------------


# Under these names Spark tells tasks whose they are.
_QUERY_PROPERTY, _TRIGGER_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskScope:
    """Whose values a task looks up. `trigger`: the number of a stream's trigger, None in a
    batch."""

    name: str
    trigger: str | None = None


def make_stage_entry(
    asking: LookupStage,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Looks up for one partition."""

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.remotes.lookup import get_lookups  # noqa: PLC0415
        from spark_cep.udfs.remotes.stage import look_up_batches  # noqa: PLC0415

        task = task_scope()
        known = get_lookups(asking.remotes(), task.name, task.trigger)
        yield from look_up_batches(asking, batches, known)

    names = ", ".join(each.name for each in asking.remotes())
    look_up.__name__ = look_up.__qualname__ = f"look_up[{names}]"
    return look_up


def task_scope() -> TaskScope:
    """The scope of the task that this runs in."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    if context is None:
        return TaskScope("driver")
    query = context.getLocalProperty(_QUERY_PROPERTY)
    if query is None:
        return TaskScope(f"stage {context.stageId()}")
    return TaskScope(f"query {query}", context.getLocalProperty(_TRIGGER_PROPERTY))
