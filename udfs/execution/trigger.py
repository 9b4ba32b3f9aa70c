"""One trigger of a stream in one bucket.

    blobs -> rows that are not late -> rows that there is time for -> rows whose remote values are
    there -> advance -> answer, state

Rows up to the horizon of the bucket's last trigger are late: the watermark promised that they
would not come. Rows between that and the present watermark are not, as everywhere in Spark.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.coroutines import Coroutine, run_to_end
from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.execution.delay import (
    RowDelay,
    has_delay,
    horizon_before,
    load_delayed,
    save_delayed,
)
from spark_cep.udfs.execution.engine import make_engine, metrics_row
from spark_cep.udfs.execution.job import (
    ANSWER_BYTES,
    NO_WATERMARK,
    StreamJob,
    TriggerInput,
    pack_answer,
    read_header,
    read_rows,
)
from spark_cep.udfs.execution.state import header_to_bytes, recall_state, remember_state
from spark_cep.udfs.program import Program
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.events.table import Flags
    from spark_cep.udfs.execution.engine import Engine, EngineState
    from spark_cep.udfs.execution.state import StateStore


@dataclass(frozen=True)
class BucketMemory:
    """What a worker remembers of a bucket: its state, the rows that are delayed in front of it, and
    the engine with what it has learned."""

    engine: Engine[Any]
    state: EngineState
    delayed: pa.Table | None = None

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + (0 if self.delayed is None else self.delayed.nbytes)


def run_trigger(job: StreamJob, store: StateStore, arrived: TriggerInput) -> Iterator[bytes]:
    """The answer in blobs; its last row has the metrics. When all blobs have been taken, the state
    has been written; Spark makes it part of the checkpoint only then."""
    try:
        yield from pack_answer(_advance_bucket(job, store, arrived))
    except CepError as error:
        raise WorkerError(error) from None


def waiting_until(job: StreamJob) -> float | None:
    """When a task that begins now stops waiting for values; None: when all are there."""
    program = job.program
    if not isinstance(program, Program) or not has_delay(program):
        return None
    waits = [each.max_wait for each in program.remotes if each.max_wait is not None]
    return time.monotonic() + min(waits)


def takes_turns(job: StreamJob) -> bool:
    """Whether a bucket may wait for remote data while others go on. Not where a value is kept for
    one block only: another bucket's block would end it."""
    remotes = job.program.remotes if isinstance(job.program, Program) else ()
    return any(not each.is_local for each in remotes) and all(
        each.strategy != "blocking" for each in remotes
    )


class TaskTriggers:
    """One trigger of all buckets of a task, in two phases.

    Every bucket that has rows begins: it matches until it has to wait, so the fetches of all of
    them are on their way before the first one waits. Then each finishes; while it waits the others
    go on. Each asks for what it needs, as if it were alone.
    """

    def __init__(self, job: StreamJob) -> None:
        self._job = job
        self._begun: dict[int, _BegunTrigger] = {}
        self._until: float | None = None

    def begin(self, store: StateStore, arrived: TriggerInput) -> None:
        """Reads the state of a bucket."""
        try:
            # The task waits once, not once for each bucket.
            self._until = waiting_until(self._job) if self._until is None else self._until
            trigger = BucketTrigger(self._job, store, arrived, self._until)
        except CepError as error:
            raise WorkerError(error) from None
        coroutine = Coroutine(trigger.advance(), lambda batch: batch.nbytes, ANSWER_BYTES)
        self._begun[arrived.bucket] = _BegunTrigger(trigger, coroutine)
        coroutine.resume()

    def has_begun(self, bucket: int) -> bool:
        return bucket in self._begun

    def finish(self, bucket: int) -> Iterator[bytes]:
        """As `run_trigger`; writes the state of the bucket."""
        try:
            yield from pack_answer(self._finish(bucket))
        except CepError as error:
            raise WorkerError(error) from None

    def _finish(self, bucket: int) -> Iterator[pa.RecordBatch]:
        begun = self._begun[bucket]
        every = [each.coroutine for each in self._begun.values()]
        after = yield from run_to_end(begun.coroutine, every)
        del self._begun[bucket]
        yield begun.trigger.save(after)

    def close(self) -> None:
        """Ends the trigger: what was not requested from a source will not be. Raises CepError if a
        bucket was not finished: its rows would be missing in the checkpoint."""
        from spark_cep.udfs.remotes.lookup import end_lookups  # noqa: PLC0415

        left, self._begun = self._begun, {}
        for each in left.values():
            each.coroutine.cancel()
        end_lookups()
        if left:
            raise CepError(f"{len(left)} buckets of a trigger were begun and not finished")


@dataclass(frozen=True)
class _BegunTrigger:
    trigger: BucketTrigger
    coroutine: Coroutine[pa.RecordBatch, Any]


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
    trigger = BucketTrigger(job, store, arrived, waiting_until(job))
    after = yield from trigger.advance()
    yield trigger.save(after)


class BucketTrigger:
    """One trigger of one bucket. It reads the state when it is made and writes it in `save`; in
    between, `advance` uses no store."""

    def __init__(
        self, job: StreamJob, store: StateStore, arrived: TriggerInput, until: float | None
    ) -> None:
        """`until`: when it stops waiting for values; None: when all are there."""
        self._job, self._store, self._arrived = job, store, arrived
        self._header = header = read_header(job, store)
        rows, self._late = _drop_late_rows(job, read_rows(job, arrived), header.horizon)
        self._shedding = None
        if job.shed is not None:
            from spark_cep.udfs.execution.shedding import shed_rows  # noqa: PLC0415

            self._shedding = shed_rows(job, arrived, rows)
            rows = self._shedding.rows
        memory = recall_state(job.token, arrived.bucket, header.nonce, BucketMemory)
        if memory is None:
            # A trigger that is to end in time does the work of its own rows.
            is_bounded = job.shed is not None and job.shed.latency is not None
            engine = make_engine(
                job.program, job.output, arrived.bucket, joins_on_arrival=is_bounded
            )
            memory = BucketMemory(engine, engine.load(store, header), load_delayed(store, header))
        self._engine: Engine[Any] = memory.engine
        self._before: EngineState = memory.state
        self._rows = rows if memory.delayed is None else pa.concat_tables([memory.delayed, rows])
        self._delayed: pa.Table | None = None
        self._count, self._until = 0, until
        self._engine.open_remotes(arrived.scope, arrived.number)
        # Spark's watermark never goes back, but a restarted query may begin without one.
        self._horizon = max(
            arrived.horizon, NO_WATERMARK if header.horizon is None else header.horizon
        )

    def advance(self) -> Generator[pa.RecordBatch, None, EngineState]:
        engine, shedding = self._engine, self._shedding
        engine.set_deadline(None if shedding is None else shedding.deadline)
        engine.set_dropping(None if shedding is None else shedding.rule)
        rows, horizon = self._rows, self._horizon
        if self._until is not None:
            flags = self._delay_rows(self._until)
            if flags is None:
                # Of no rows at all, for the columns of an answer.
                self._delayed, self._count = rows, 0
                yield from engine.advance(engine.empty_state(), rows.slice(0, 0), horizon)
                return self._before
            self._delayed, rows = rows.filter(pa.array(flags)), rows.filter(pa.array(~flags))
            horizon = horizon_before(horizon, self._delayed, self._job.program.orders[0].column)
        self._count = rows.num_rows
        after: EngineState = yield from engine.advance(self._before, rows, horizon)
        return after

    def _delay_rows(self, until: float) -> Flags | None:
        program, arrived = self._job.program, self._arrived
        assert isinstance(program, Program)
        from spark_cep.udfs.remotes.lookup import get_lookups  # noqa: PLC0415 - few jobs need it

        lookups = get_lookups(program.remotes, arrived.scope, arrived.number)
        kept: pa.Table | None = getattr(self._before, "events", None)
        return RowDelay(program, lookups, until).split(kept, self._rows)

    def save(self, after: EngineState) -> pa.RecordBatch:
        """Writes the state `after` the advance; returns the row of metrics."""
        job, header, engine, before = self._job, self._header, self._engine, self._before
        after = engine.save(self._store, header, before, after)
        save_delayed(self._store, header, self._delayed)
        header.horizon, header.nonce = self._horizon, secrets.token_hex(8)
        memory = BucketMemory(engine, after, self._delayed)
        remember_state(job.token, self._arrived.bucket, header.nonce, memory)
        metrics, shedding = engine.take_metrics(), self._shedding
        if shedding is not None:
            shedding.finish(metrics["joined_rows"], after)
        # The header comes last: it says what the blobs are.
        self._store.put_header(header_to_bytes(header))
        expired = before.size + self._count - metrics["ignored_rows"] - after.size
        return metrics_row(
            engine.answer_schema(),
            {
                **metrics,
                "late_rows": self._late,
                "expired_rows": expired,
                "delayed_rows": header.delayed,
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
