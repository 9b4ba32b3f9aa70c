"""The functions that Spark runs on each partition in the workers.

They are pickled by value and find the engine by import, so executors need this package installed.
Imports stand inside the functions: the driver needs none of them.

What is looked up lives as long as its scope: a stage of a batch query, so that two actions share
nothing; a streaming query over all its triggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.udfs.program import Program

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.execution.shedding import StageBound
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.remotes.stage import LookupStage
    from spark_cep.udfs.row_program import RowProgram


WorkerFunction = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

# The matches of two functions are numbered apart; a stage has fewer partitions than this.
_PART_SHIFT = 28

# Spark sets these properties of the tasks of a streaming query.
_QUERY_PROPERTY, _TRIGGER_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


def worker_program(program: Program | RowProgram) -> Program | CompiledRowProgram:
    """The program as it is shipped: row patterns are compiled here, once for all buckets."""
    if isinstance(program, Program):
        return program

    from spark_cep.udfs.execution.row_engine import compile_row_program  # noqa: PLC0415

    return compile_row_program(program)


def bucket_entry(  # noqa: PLR0913 - what is shipped to the workers
    program: Program | CompiledRowProgram,
    output: EventOutput | RowOutput,
    schema: pa.Schema,
    title: str,
    *,
    part: int = 0,
    memory: int | None = None,
    bound: StageBound | None = None,
) -> WorkerFunction:
    """Matches the rows of one bucket. `schema`: of the answer. `title`: what Spark shows in its
    plans and its UI. `part`: tells functions of one answer apart. `memory`: what a worker may take
    before it spills rows; None: by its limits. `bound`: how long all buckets may match.

    A bucket reports that it begins and that it has ended, so that the driver can tell an action
    that read the whole answer from one that stopped early."""

    def match_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.worker import run  # noqa: PLC0415

        stage, partition = _stage_and_partition()
        bucket = partition + (part << _PART_SHIFT)
        timed = None if bound is None else replace(bound, stage=_stage_attempt())
        answer = run(
            program, output, batches, bucket, task_scope().name, memory=memory, bound=timed
        )
        return _with_reports(answer, schema, [stage, part, partition])

    match_bucket.__name__ = match_bucket.__qualname__ = title
    return match_bucket


def range_entry(
    program: CompiledRowProgram, output: RowOutput, ranges: int, title: str, memory: int | None
) -> WorkerFunction:
    """Matches one of the ranges of a partition. What it gives goes on to `border_entry`, which
    reports for both: it begins when all ranges are done."""

    def match_one_range(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.ranges import match_range  # noqa: PLC0415

        _, number = _stage_and_partition()
        return match_range(program, output, batches, number, ranges, memory=memory)

    match_one_range.__name__ = match_one_range.__qualname__ = title
    return match_one_range


def border_entry(
    program: CompiledRowProgram,
    output: RowOutput,
    schema: pa.Schema,
    title: str,
    memory: int | None,
) -> WorkerFunction:
    """Matches the borders between ranges, and passes on what the ranges gave."""

    def match_the_borders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.execution.ranges import match_borders  # noqa: PLC0415

        stage, partition = _stage_and_partition()
        answer = match_borders(program, output, batches, memory=memory)
        return _with_reports(answer, schema, [stage, 0, partition])

    match_the_borders.__name__ = match_the_borders.__qualname__ = title
    return match_the_borders


def _with_reports(
    answer: Iterator[pa.RecordBatch], schema: pa.Schema, task: list[int]
) -> Iterator[pa.RecordBatch]:
    """A bucket's answer between reports that it begins and that it has ended."""
    from spark_cep.udfs.execution.engine import metrics_row  # noqa: PLC0415

    # Spark 3.5 takes batches of one schema only, and theirs may say more of what is never NULL.
    own = None
    for batch in answer:
        if own is None:
            own = batch.schema
            yield metrics_row(own, {"begun": task})
        yield batch
    if own is None:
        yield metrics_row(schema, {"begun": task})
    yield metrics_row(own or schema, {"ended": task})


def make_stage_entry(stage: LookupStage) -> WorkerFunction:
    """Looks up the values for one partition, outside the engine."""

    def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.remotes.lookup import get_lookups  # noqa: PLC0415
        from spark_cep.udfs.remotes.stage import look_up_batches  # noqa: PLC0415

        scope = task_scope()
        lookups = get_lookups(stage.remotes(), scope.name, scope.trigger)
        yield from look_up_batches(stage, batches, lookups)

    names = ", ".join(each.name for each in stage.remotes())
    look_up.__name__ = look_up.__qualname__ = f"look_up[{names}]"
    return look_up


@dataclass(frozen=True)
class TaskScope:
    """Within which looked-up values are shared. `trigger`: the number of a stream's trigger, None
    in a batch."""

    name: str
    trigger: str | None = None


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


def _stage_attempt() -> str:
    """The stage, and how often Spark has tried this task: one that is tried again begins anew."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return "" if context is None else f"{context.stageId()}.{context.attemptNumber()}"


def _stage_and_partition() -> tuple[int, int]:
    """Each bucket is one Spark partition."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return (0, 0) if context is None else (context.stageId(), context.partitionId())
