"""One trigger of an event pattern in one bucket: late rows dropped, the rest matched.

    blobs -> rows that are not late -> state of the store -> advance -> answer, state to the store

Rows up to the horizon of the bucket's last trigger are late: they were promised not to come. Rows
between that and the present watermark are not, as everywhere in Spark.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.errors import CepError, WorkerError
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.answer import EventAnswer
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.events.remote_needs import prefetch_candidates
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.execution.job import (
    NO_WATERMARK,
    StreamJob,
    TriggerInput,
    read_header,
    read_rows,
    too_many_rows_error,
)
from spark_cep.udfs.execution.packing import pack_answer
from spark_cep.udfs.execution.state import (
    assign_places,
    count_stored_rows,
    header_to_bytes,
    load_state,
    recall_state,
    remember_state,
    save_state,
)
from spark_cep.udfs.execution.worker import MATCH_NUMBER_SHIFT
from spark_cep.udfs.output import EventOutput, RowOutput
from spark_cep.udfs.program import Estimates, Program
from spark_cep.udfs.row_program import RowProgram
from spark_cep.udfs.rows.advance import InputHorizon, RowAdvance, RowState
from spark_cep.udfs.shedding.pace import read_arrival
from spark_cep.udfs.shedding.shedder import get_shedder
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.events.engine import EventState
    from spark_cep.udfs.events.table import Events
    from spark_cep.udfs.execution.state import StateHeader, StateStore
    from spark_cep.udfs.remotes.lookup import Lookup
    from spark_cep.udfs.shedding.shedder import Admission, BucketTurn, Shedder


# --------------------------------------------------------------------------------------------------
# A bucket's turn in a trigger, from its new rows to what is told of those that were dropped.
# --------------------------------------------------------------------------------------------------


@dataclass
class TriggerShedding:
    """`rows`: those that the engine gets."""

    shedder: Shedder
    turn: BucketTurn
    admitted: Admission
    shedding_seconds: float
    _began: float

    @property
    def rows(self) -> pa.Table:
        return self.admitted.rows

    def ended(self) -> None:
        """The engine is done with them, and the state is written."""
        seconds = perf_counter() - self._began
        self.shedder.took(self.turn, self.admitted, seconds)
        began = perf_counter()
        self.shedder.learn_if_there_is_room(self.turn, seconds)
        self.shedding_seconds += perf_counter() - began

    def told(self) -> dict[str, Any]:
        """As metrics of the bucket (`udfs/output.py`)."""
        came, recall = self.admitted.came, self.admitted.recall
        return {
            "shed": self.admitted.shed,
            "shed_recall": {"": [came * recall, came]} if came else {},
            "shedding_us": round(self.shedding_seconds * 1e6),
        }


def shed_trigger(job: StreamJob, arrived: TriggerInput, fresh: pa.Table) -> TriggerShedding:
    """`fresh`: the bucket's new rows that are not late."""
    assert job.shed is not None
    assert isinstance(job.program, Program)
    began = perf_counter()
    shedder = get_shedder(job.token, job.shed, job.program)
    arrival = read_arrival(arrived.blobs)
    turn = shedder.turn(arrived.bucket, arrived.number, arrival, fresh.num_rows)
    admitted = shedder.admit(turn, fresh)
    now = perf_counter()
    return TriggerShedding(shedder, turn, admitted, now - began, now)


@dataclass(frozen=True)
class _BucketMemory:
    state: EventState
    matching: AdaptiveEngine

    @property
    def nbytes(self) -> int:
        return 0 if self.state.events is None else int(self.state.events.nbytes)


def run_event_trigger(
    job: StreamJob, store: StateStore, arrived: TriggerInput
) -> Iterator[pa.RecordBatch]:
    assert isinstance(job.program, Program)
    assert isinstance(job.output, EventOutput)
    header = read_header(job, store)
    came = read_rows(job, arrived)
    fresh, late = _drop_late_rows(job.program, came, header.horizon)
    shed = _shed_rows(job, arrived, fresh)
    if shed is not None:
        fresh = shed.rows
    horizon = max(arrived.horizon, NO_WATERMARK if header.horizon is None else header.horizon)
    known = recall_state(job.token, arrived.bucket, header.nonce, _BucketMemory)
    if known is None:
        known = _BucketMemory(load_state(store, header), _make_adaptive(job.program, header))
    matching = known.matching
    matching.lookups = _get_lookups(job.program, arrived)
    before = 0 if known.state.events is None else known.state.events.num_rows
    step = matching.step(known.state, assign_places(fresh, header), horizon)
    _check_event_rows(job.program, step.events)
    first = header.number or arrived.bucket << MATCH_NUMBER_SHIFT
    answer = EventAnswer(step.events, job.output, first)
    for found in matching.matches(step):
        yield from answer.batches(found)
    header.number, header.horizon = answer.next_number, horizon
    header.learnt = {str(place): share for place, share in matching.selectivities().items()}
    state = save_state(store, header, step.state)
    if state.events is not None:
        # Until the next trigger comes there is time.
        prefetch_candidates(job.program, state.events, matching.lookups)
    metrics, matching.metrics = matching.metrics, Metrics()
    remember_state(job.token, arrived.bucket, header.nonce, replace(known, state=state))
    if shed is not None:
        shed.ended()
    # The header is last: it says what the blobs are.
    data = header_to_bytes(header)
    store.put_header(data)
    kept = 0 if state.events is None else state.events.num_rows
    yield answer.metrics(
        metrics,
        {
            "late_rows": late,
            "expired_rows": before + fresh.num_rows - kept - metrics.ignored_rows,
            "state_rows": kept,
            "stored_rows": count_stored_rows(header).stored,
            "state_bytes": len(data) + (0 if state.events is None else state.events.nbytes),
            "kept_partial_matches": sum(each["rows"] for each in header.kept),
            **({} if shed is None else shed.told()),
        },
    )


def _shed_rows(job: StreamJob, arrived: TriggerInput, fresh: pa.Table) -> TriggerShedding | None:
    """Of the new rows those that there is time for."""
    if job.shed is None:
        return None

    return shed_trigger(job, arrived, fresh)


def _get_lookups(program: Program, arrived: TriggerInput) -> tuple[Lookup, ...]:
    if not program.remotes:
        return ()
    from spark_cep.udfs.remotes.lookup import get_lookups  # noqa: PLC0415 - few queries need it

    return get_lookups(program.remotes, arrived.scope, arrived.number)


def _check_event_rows(program: Program, events: Events) -> None:
    """A stream without a window keeps what its user allowed."""
    if program.limits.rows is None or not events.size:
        return
    held = events.partition.end - events.partition.start
    most = int(held.argmax())
    if held[most] > program.limits.rows:
        raise too_many_rows_error(program.limits.rows, int(held[most]), events.key_of(most))


def _drop_late_rows(program: Program, came: pa.Table, horizon: int | None) -> tuple[pa.Table, int]:
    """The rows that are not late, and how many are. A row without a time is neither."""
    if horizon is None or horizon == NO_WATERMARK or not came.num_rows:
        return came, 0
    column = to_single_array(came.column(program.orders[0].column))
    late = column_to_numpy(column) <= horizon
    if column.null_count:
        late &= column.is_valid().to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(late))
    return (came.filter(pa.array(~late)) if count else came), count


def _make_adaptive(program: Program, header: StateHeader) -> AdaptiveEngine:
    learnt = {int(place): share for place, share in header.learnt.items()}
    if not learnt:
        return AdaptiveEngine(program)
    before = program.estimates or Estimates({})
    known: dict[int, Any] = {**before.selectivities, **learnt}
    return AdaptiveEngine(replace(program, estimates=replace(before, selectivities=known)))


# --------------------------------------------------------------------------------------------------
# One trigger of a row pattern in one bucket.
#
#     blobs -> state of the store -> advance -> answer, state to the store
#
# The state is what is undecided, and is written anew where a trigger changed it: a partition whose
# searches are decided leaves a few rows.
# --------------------------------------------------------------------------------------------------


_STATE_BLOB = 0


def run_row_trigger(
    job: StreamJob, store: StateStore, arrived: TriggerInput
) -> Iterator[pa.RecordBatch]:
    program, output = job.program, job.output
    assert isinstance(program, RowProgram)
    assert isinstance(output, RowOutput)
    header = read_header(job, store)
    state = recall_state(job.token, arrived.bucket, header.nonce, RowState)
    if state is None:
        state = RowState()
        if header.horizon is not None:
            state = RowState.from_bytes(store.read(_STATE_BLOB), program)
            # Where a trigger changed nothing but the horizon, only the header was written.
            state = replace(state, horizon=header.horizon)
    came = read_rows(job, arrived)
    advancing = RowAdvance(program, output, state, came, InputHorizon(arrived.horizon))
    yield from advancing.batches()
    after = advancing.state
    _check_pending_rows(program, after)
    if header.horizon is None or not _is_same_state(state, after):
        store.write(_STATE_BLOB, after.to_bytes(program))
    before = arrived.horizon if header.horizon is None else header.horizon
    header.horizon, header.nonce = max(before, arrived.horizon), secrets.token_hex(8)
    remember_state(job.token, arrived.bucket, header.nonce, after)
    store.put_header(header_to_bytes(header))


def _is_same_state(before: RowState, after: RowState) -> bool:
    """Whether the same is undecided, of the same rows."""
    if before.rows is None or after.rows is None:
        return before.rows is after.rows
    return bool(before.partitions.equals(after.partitions) and before.rows.equals(after.rows))


def _check_pending_rows(program: RowProgram, state: RowState) -> None:
    """A stream without WITHIN keeps what its user allowed."""
    allowed = program.limits.rows
    sizes = state.partitions.column("size").to_numpy()
    if allowed is None or not len(sizes) or sizes.max() <= allowed:
        return
    assert state.rows is not None
    most = int(sizes.argmax())
    row = int(sizes[:most].sum())
    key = [state.rows.column(column)[row].as_py() for column in program.keys]
    raise too_many_rows_error(allowed, int(sizes[most]), key)


# --------------------------------------------------------------------------------------------------
# One trigger of one bucket, whatever the pattern: what comes in, and what goes out.
# --------------------------------------------------------------------------------------------------


def run_trigger(job: StreamJob, store: StateStore, arrived: TriggerInput) -> Iterator[bytes]:
    """The answer in blobs, the last row of which has the metrics. The state has been written when
    all of them were taken; Spark makes it the checkpoint's only then."""
    try:
        yield from pack_answer(_trigger_batches(job, store, arrived))
    except CepError as error:
        raise WorkerError(error) from None


def check_checkpoint(job: StreamJob, store: StateStore) -> None:
    """Whether the checkpoint is this query's; a new one becomes it."""
    try:
        header = read_header(job, store)
    except CepError as error:
        raise WorkerError(error) from None
    if store.header() is None:
        store.put_header(header_to_bytes(header))


def _trigger_batches(
    job: StreamJob, store: StateStore, arrived: TriggerInput
) -> Iterator[pa.RecordBatch]:
    # Each kind needs libraries that the other does not.
    if isinstance(job.program, Program):
        return run_event_trigger(job, store, arrived)

    return run_row_trigger(job, store, arrived)
