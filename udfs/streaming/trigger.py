"""One trigger of one bucket, whatever the pattern: what comes in, and what goes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.program import Program
from spark_cep.udfs.streaming.header import to_bytes
from spark_cep.udfs.streaming.job import header_of
from spark_cep.udfs.streaming.packing import answer_blobs

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.streaming.job import Arrived, Job
    from spark_cep.udfs.streaming.store import Store


def run_trigger(job: Job, store: Store, arrived: Arrived) -> Iterator[bytes]:
    """The answer in blobs, the last row of which has the metrics. The state has been written when
    all of them were taken; Spark makes it the checkpoint's only then."""
    try:
        yield from answer_blobs(_batches(job, store, arrived))
    except CepError as error:
        raise WorkerError(error) from None


def check(job: Job, store: Store) -> None:
    """Whether the checkpoint is this query's; a new one becomes it."""
    try:
        header = header_of(job, store)
    except CepError as error:
        raise WorkerError(error) from None
    if store.header() is None:
        store.put_header(to_bytes(header))


def _batches(job: Job, store: Store, arrived: Arrived) -> Iterator[pa.RecordBatch]:
    # Each kind needs libraries that the other does not.
    if isinstance(job.program, Program):
        from spark_cep.udfs.streaming.event_trigger import event_batches  # noqa: PLC0415

        return event_batches(job, store, arrived)
    from spark_cep.udfs.streaming.row_trigger import row_batches  # noqa: PLC0415

    return row_batches(job, store, arrived)
