"""One trigger of an event pattern in one bucket: late rows dropped, the rest matched.

    blobs -> rows that are not late -> state of the store -> advance -> answer, state to the store

Rows up to the horizon of the bucket's last trigger are late: they were promised not to come. Rows
between that and the present watermark are not, as everywhere in Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs.adapting import Adaptive
from spark_cep.udfs.answer import Answer
from spark_cep.udfs.events import numbers
from spark_cep.udfs.joining.foreseen import ask_ahead
from spark_cep.udfs.metrics import Metrics
from spark_cep.udfs.output import Output
from spark_cep.udfs.program import Estimates, Program
from spark_cep.udfs.streaming.header import to_bytes
from spark_cep.udfs.streaming.job import (
    NO_WATERMARK,
    Arrived,
    Job,
    header_of,
    rows_of,
    too_many_rows,
)
from spark_cep.udfs.streaming.remembered import recall, remember
from spark_cep.udfs.streaming.segments import fresh_rows, load, save, stored
from spark_cep.udfs.values.arrow_values import whole
from spark_cep.udfs.worker import NUMBERS_SHIFT

if TYPE_CHECKING:
    from spark_cep.udfs.engine import State
    from spark_cep.udfs.events import Events
    from spark_cep.udfs.remotes.lookup import Lookup
    from spark_cep.udfs.shedding.in_front import InFront
    from spark_cep.udfs.streaming.header import Header
    from spark_cep.udfs.streaming.store import Store


@dataclass(frozen=True)
class _Remembered:
    state: State
    matching: Adaptive

    @property
    def nbytes(self) -> int:
        return 0 if self.state.events is None else int(self.state.events.nbytes)


def event_batches(job: Job, store: Store, arrived: Arrived) -> Iterator[pa.RecordBatch]:
    assert isinstance(job.program, Program)
    assert isinstance(job.output, Output)
    header = header_of(job, store)
    came = rows_of(job, arrived)
    fresh, late = _in_time(job.program, came, header.horizon)
    shed = _shed(job, arrived, fresh)
    if shed is not None:
        fresh = shed.rows
    horizon = max(arrived.horizon, NO_WATERMARK if header.horizon is None else header.horizon)
    known = recall(job.token, arrived.bucket, header.nonce, _Remembered)
    if known is None:
        known = _Remembered(load(store, header), _adaptive(job.program, header))
    matching = known.matching
    matching.lookups = _lookups(job.program, arrived)
    before = 0 if known.state.events is None else known.state.events.num_rows
    step = matching.step(known.state, fresh_rows(fresh, header), horizon)
    _check_rows(job.program, step.events)
    first = header.number or arrived.bucket << NUMBERS_SHIFT
    answer = Answer(step.events, job.output, first)
    for found in matching.matches(step):
        yield from answer.batches(found)
    header.number, header.horizon = answer.next_number, horizon
    header.learnt = {str(place): share for place, share in matching.selectivities().items()}
    state = save(store, header, step.state)
    if state.events is not None:
        # Until the next trigger comes there is time.
        ask_ahead(job.program, state.events, matching.lookups)
    metrics, matching.metrics = matching.metrics, Metrics()
    remember(job.token, arrived.bucket, header.nonce, replace(known, state=state))
    if shed is not None:
        shed.ended()
    # The header is last: it says what the blobs are.
    data = to_bytes(header)
    store.put_header(data)
    kept = 0 if state.events is None else state.events.num_rows
    yield answer.metrics(
        metrics,
        {
            "late_rows": late,
            "expired_rows": before + fresh.num_rows - kept - metrics.ignored_rows,
            "state_rows": kept,
            "stored_rows": stored(header).stored,
            "state_bytes": len(data) + (0 if state.events is None else state.events.nbytes),
            "kept_partial_matches": sum(each["rows"] for each in header.kept),
            **({} if shed is None else shed.told()),
        },
    )


def _shed(job: Job, arrived: Arrived, fresh: pa.Table) -> InFront | None:
    """Of the new rows those that there is time for."""
    if job.shed is None:
        return None
    from spark_cep.udfs.shedding.in_front import in_front  # noqa: PLC0415 - few queries shed

    return in_front(job, arrived, fresh)


def _lookups(program: Program, arrived: Arrived) -> tuple[Lookup, ...]:
    if not program.remotes:
        return ()
    from spark_cep.udfs.remotes.known import lookups  # noqa: PLC0415 - few queries need it

    return lookups(program.remotes, arrived.scope, arrived.number)


def _check_rows(program: Program, events: Events) -> None:
    """A stream without a window keeps what its user allowed."""
    if program.limits.rows is None or not events.size:
        return
    held = events.partition.end - events.partition.start
    most = int(held.argmax())
    if held[most] > program.limits.rows:
        raise too_many_rows(program.limits.rows, int(held[most]), events.key_of(most))


def _in_time(program: Program, came: pa.Table, horizon: int | None) -> tuple[pa.Table, int]:
    """The rows that are not late, and how many are. A row without a time is neither."""
    if horizon is None or horizon == NO_WATERMARK or not came.num_rows:
        return came, 0
    column = whole(came.column(program.orders[0].column))
    late = numbers(column) <= horizon
    if column.null_count:
        late &= column.is_valid().to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(late))
    return (came.filter(pa.array(~late)) if count else came), count


def _adaptive(program: Program, header: Header) -> Adaptive:
    learnt = {int(place): share for place, share in header.learnt.items()}
    if not learnt:
        return Adaptive(program)
    before = program.estimates or Estimates({})
    known: dict[int, Any] = {**before.selectivities, **learnt}
    return Adaptive(replace(program, estimates=replace(before, selectivities=known)))
