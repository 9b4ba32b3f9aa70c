"""One trigger of a stream in one bucket.

    blobs -> rows that are not late -> rows that there is time for -> advance -> answer, state

Rows up to the horizon of the bucket's last trigger are late: the watermark promised that they
would not come. Rows between that and the present watermark are not, as everywhere in Spark.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.execution.engine import make_engine, metrics_row
from spark_cep.udfs.execution.job import (
    NO_WATERMARK,
    StreamJob,
    TriggerInput,
    pack_answer,
    read_header,
    read_rows,
)
from spark_cep.udfs.execution.state import header_to_bytes, recall_state, remember_state
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.execution.engine import Engine, EngineState
    from spark_cep.udfs.execution.state import StateStore


@dataclass(frozen=True)
class BucketMemory:
    """What a worker remembers of a bucket: its state, and the engine with what it has learned."""

    engine: Engine[Any]
    state: EngineState

    @property
    def nbytes(self) -> int:
        return self.state.nbytes


def run_trigger(job: StreamJob, store: StateStore, arrived: TriggerInput) -> Iterator[bytes]:
    """The answer in blobs; its last row has the metrics. When all blobs have been taken, the state
    has been written; Spark makes it part of the checkpoint only then."""
    try:
        yield from pack_answer(_advance_bucket(job, store, arrived))
    except CepError as error:
        raise WorkerError(error) from None


def check_checkpoint(job: StreamJob, store: StateStore) -> None:
    """Refuses the checkpoint of another query; a new checkpoint becomes this query's."""
    try:
        header = read_header(job, store)
    except CepError as error:
        raise WorkerError(error) from None
    if store.header() is None:
        store.put_header(header_to_bytes(header))


def _advance_bucket(
    job: StreamJob, store: StateStore, arrived: TriggerInput
) -> Iterator[pa.RecordBatch]:
    header = read_header(job, store)
    rows, late = _drop_late_rows(job, read_rows(job, arrived), header.horizon)
    shedding = None
    if job.shed is not None:
        from spark_cep.udfs.execution.shedding import shed_rows  # noqa: PLC0415

        shedding = shed_rows(job, arrived, rows)
        rows = shedding.rows
    count = rows.num_rows
    memory = recall_state(job.token, arrived.bucket, header.nonce, BucketMemory)
    if memory is None:
        # A trigger that is to end in time does the work of its own rows.
        is_bounded = job.shed is not None and job.shed.latency is not None
        engine = make_engine(job.program, job.output, arrived.bucket, joins_on_arrival=is_bounded)
        memory = BucketMemory(engine, engine.load(store, header))
    engine, before = memory.engine, memory.state
    engine.open_remotes(arrived.scope, arrived.number)
    engine.set_deadline(None if shedding is None else shedding.deadline)
    engine.set_dropping(None if shedding is None else shedding.rule)
    # Spark's watermark never goes back, but a restarted query may begin without one.
    horizon = max(arrived.horizon, NO_WATERMARK if header.horizon is None else header.horizon)
    after = yield from engine.advance(before, rows, horizon)
    after = engine.save(store, header, before, after)
    header.horizon, header.nonce = horizon, secrets.token_hex(8)
    remember_state(job.token, arrived.bucket, header.nonce, BucketMemory(engine, after))
    metrics = engine.take_metrics()
    if shedding is not None:
        shedding.finish(metrics["joined_rows"], after)
    # The header comes last: it says what the blobs are.
    store.put_header(header_to_bytes(header))
    expired = before.size + count - metrics["ignored_rows"] - after.size
    yield metrics_row(
        engine.answer_schema(),
        {
            **metrics,
            "late_rows": late,
            "expired_rows": expired,
            **engine.state_metrics(header, after),
            **({} if shedding is None else shedding.metrics()),
        },
    )


def _drop_late_rows(job: StreamJob, rows: pa.Table, horizon: int | None) -> tuple[pa.Table, int]:
    """The rows that are not late, and how many are. A row without a time is not."""
    if horizon is None or horizon == NO_WATERMARK or not rows.num_rows:
        return rows, 0
    column = to_single_array(rows.column(job.program.orders[0].column))
    late = column_to_numpy(column) <= horizon
    if column.null_count:
        late &= column.is_valid().to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(late))
    return (rows.filter(pa.array(~late)) if count else rows), count
