"""The function that Spark runs on each bucket.

It is pickled by value and finds the engine by import, so executors need this package installed.
Imports stand inside the functions: the driver needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.output import Output
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.rows.output import RowOutput
    from spark_cep.udfs.rows.program import RowProgram

Entry = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def entry(program: Program, output: Output, answered: pa.Schema, name: str) -> Entry:
    """`name` is what Spark shows in its plans and its UI. `answered` is the schema of the answer:
    an empty bucket has no batch to take types from, and still reports that it was looked at."""

    def match_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.worker import run  # noqa: PLC0415

        found = run(program, output, batches, _partition(), _scope(program))
        yield from _or_nothing(found, answered)

    match_bucket.__name__ = match_bucket.__qualname__ = name
    return match_bucket


def row_entry(program: RowProgram, output: RowOutput, answered: pa.Schema, name: str) -> Entry:
    """The same for a row pattern."""

    def match_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_cep.udfs.rows.worker import run  # noqa: PLC0415

        yield from _or_nothing(run(program, output, batches, _partition()), answered)

    match_bucket.__name__ = match_bucket.__qualname__ = name
    return match_bucket


def _partition() -> int:
    """The number of the bucket."""
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _scope(program: Program) -> str:
    """Within which values of remote sources count as constant."""
    if not program.remotes:
        return ""
    from spark_cep.remotes.stage_entry import scope  # noqa: PLC0415

    return scope().name


def _or_nothing(found: Iterator[pa.RecordBatch], answered: pa.Schema) -> Iterator[pa.RecordBatch]:
    is_empty = True
    for batch in found:
        is_empty = False
        yield batch
    if is_empty:
        yield nothing(answered)


def nothing(answered: pa.Schema) -> pa.RecordBatch:
    """The metrics of an empty bucket: one row, which counts nothing."""
    import pyarrow as pa  # noqa: PLC0415

    *columns, metrics = answered
    arrays = [pa.nulls(1, column.type) for column in columns]
    counts = pa.array(["{}"], type=metrics.type)
    return pa.RecordBatch.from_arrays([*arrays, counts], names=answered.names)
