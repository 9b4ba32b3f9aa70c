"""One trigger of a row pattern in one bucket.

    blobs -> state of the store -> advance -> answer, state to the store

The state is what is undecided, and is written anew where a trigger changed it: a partition whose
searches are decided leaves a few rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_cep.udfs.rows.advance import RowAdvance, UpTo
from spark_cep.udfs.rows.carried import RowState
from spark_cep.udfs.rows.output import RowOutput
from spark_cep.udfs.rows.program import RowProgram
from spark_cep.udfs.streaming.header import to_bytes
from spark_cep.udfs.streaming.job import Arrived, Job, header_of, rows_of, too_many_rows
from spark_cep.udfs.streaming.remembered import recall, remember

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.streaming.store import Store

_STATE = 0


def row_batches(job: Job, store: Store, arrived: Arrived) -> Iterator[pa.RecordBatch]:
    program, output = job.program, job.output
    assert isinstance(program, RowProgram)
    assert isinstance(output, RowOutput)
    header = header_of(job, store)
    state = recall(job.token, arrived.bucket, header.nonce, RowState)
    if state is None:
        state = RowState()
        if header.horizon is not None:
            state = RowState.from_bytes(store.read(_STATE), program)
            # Where a trigger changed nothing but the horizon, only the header was written.
            state = replace(state, horizon=header.horizon)
    came = rows_of(job, arrived)
    advancing = RowAdvance(program, output, state, came, UpTo(arrived.horizon))
    yield from advancing.batches()
    after = advancing.state
    _check_rows(program, after)
    if header.horizon is None or not _are_same(state, after):
        store.write(_STATE, after.to_bytes(program))
    before = arrived.horizon if header.horizon is None else header.horizon
    header.horizon, header.nonce = max(before, arrived.horizon), secrets.token_hex(8)
    remember(job.token, arrived.bucket, header.nonce, after)
    store.put_header(to_bytes(header))


def _are_same(before: RowState, after: RowState) -> bool:
    """Whether the same is undecided, of the same rows."""
    if before.rows is None or after.rows is None:
        return before.rows is after.rows
    return bool(before.partitions.equals(after.partitions) and before.rows.equals(after.rows))


def _check_rows(program: RowProgram, state: RowState) -> None:
    """A stream without WITHIN keeps what its user allowed."""
    allowed = program.limits.rows
    sizes = state.partitions.column("size").to_numpy()
    if allowed is None or not len(sizes) or sizes.max() <= allowed:
        return
    assert state.rows is not None
    most = int(sizes.argmax())
    row = int(sizes[:most].sum())
    key = [state.rows.column(column)[row].as_py() for column in program.keys]
    raise too_many_rows(allowed, int(sizes[most]), key)
