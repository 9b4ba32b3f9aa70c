"""A streaming query as its workers know it, and how rows and answers travel to them: as Arrow IPC
blobs, one for each bucket and task.

Spark hands rows to a stateful Python operator through pandas, which cannot represent many types
exactly, and sorts them by key first. A blob passes unchanged, and there are few in a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.execution.state import StateHeader, StateIdentity, header_from_bytes

if TYPE_CHECKING:
    from spark_cep.udfs.execution.row_engine import CompiledRowProgram
    from spark_cep.udfs.execution.state import StateStore
    from spark_cep.udfs.output import EventOutput, RowOutput
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.shedding.utility import StreamSheddingSpec


# Rows of a task that are packed at once, which bounds its memory.
PIECE_ROWS: Final = 1 << 20
# Batches of an answer are put into one blob up to about this size.
ANSWER_BYTES: Final = 1 << 24
PACKED_SCHEMA: Final = pa.schema([("bucket", pa.int32()), ("blob", pa.binary())])


# No row's bucket. Every task sends it an empty blob, so that every trigger checks whose checkpoint
# this is, also where its rows go to buckets that were never used.
GUARD_BUCKET: Final = -1


def add_guard(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(
        {"bucket": [GUARD_BUCKET], "blob": [b""]}, schema=PACKED_SCHEMA
    )
    yield from pieces


def pack_rows(
    batches: Iterable[pa.RecordBatch],
    annotate: Callable[[pa.Table], pa.Table] = lambda table: table,
) -> Iterator[pa.RecordBatch]:
    """Packs all columns but the last, which is the row's bucket. `annotate` adds metadata to a
    piece for its buckets to read."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= PIECE_ROWS:
            yield _pack_piece(annotate(pa.Table.from_batches(waiting)))
            waiting, rows = [], 0
    if waiting:
        yield _pack_piece(annotate(pa.Table.from_batches(waiting)))


def to_blob(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_blob(blob: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_all()


def pack_answer(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The batches of an answer in blobs of bounded size."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= ANSWER_BYTES:
            yield to_blob(pa.Table.from_batches(waiting))
            waiting, size = [], 0
    if waiting:
        yield to_blob(pa.Table.from_batches(waiting))


def unpack_answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches in the column `blob`."""
    for batch in batches:
        for blob in batch.column("blob"):
            yield from from_blob(blob.as_buffer()).to_batches()


def _pack_piece(table: pa.Table) -> pa.RecordBatch:
    bucket = table.column(table.num_columns - 1).to_numpy()
    order = np.argsort(bucket, kind="stable")
    content = table.select(range(table.num_columns - 1)).take(pa.array(order))
    sorted_bucket = bucket[order]
    starts = np.flatnonzero(np.diff(sorted_bucket, prepend=-1))
    ends = np.append(starts[1:], len(order))
    blobs = [
        to_blob(content.slice(start, end - start).combine_chunks())
        for start, end in zip(starts, ends, strict=True)
    ]
    numbers = pa.array(sorted_bucket[starts], pa.int32())
    return pa.RecordBatch.from_arrays([numbers, pa.array(blobs, pa.binary())], schema=PACKED_SCHEMA)


# ---- the job and its triggers --------------------------------------------------------------------


# Before the first watermark no row is late. Far enough from the ends of int64 that the difference
# to any of Spark's times does not overflow.
NO_WATERMARK: Final = -(1 << 62)
MICROSECONDS_PER_MS: Final = 1000


@dataclass(frozen=True)
class StreamJob:
    """`identity`: what the state in a checkpoint is compared with. `token`: the same for all
    triggers of one run of the query, different in every run. `shed`: what may be dropped in
    front of the engine."""

    program: Program | CompiledRowProgram
    output: EventOutput | RowOutput
    schema: pa.Schema
    identity: StateIdentity
    token: str
    shed: StreamSheddingSpec | None = None


@dataclass(frozen=True)
class TriggerInput:
    """What a trigger brings to a bucket. `horizon`: the event time up to which all rows have come
    with this trigger. `scope`, `number`: the query and the trigger within which remote values are
    shared."""

    bucket: int
    blobs: tuple[bytes, ...]
    horizon: int
    scope: str = ""
    number: str | None = None


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as they are stored, every field nullable. A NULL struct has NULL in all its
    fields, also in those that Spark declares as not nullable, and Arrow casts no NULL to such a
    type."""
    return pa.schema([_nullable_field(field) for field in schema])


def _nullable_field(field: pa.Field) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([_nullable_field(part) for part in type_])
    elif pa.types.is_map(type_):
        key = pa.field("key", _nullable_field(type_.key_field).type, nullable=False)
        type_ = pa.map_(key, _nullable_field(type_.item_field))
    elif pa.types.is_list(type_):
        type_ = pa.list_(_nullable_field(type_.value_field))
    return pa.field(field.name, type_, metadata=field.metadata)


def horizon_of(watermark: int) -> int:
    """Spark's watermark as an event time; it is in milliseconds, and 0 before the first."""
    return watermark * MICROSECONDS_PER_MS if watermark > 0 else NO_WATERMARK


def read_header(job: StreamJob, store: StateStore) -> StateHeader:
    """Raises CepError if the state is another query's."""
    data = store.header()
    return StateHeader(job.identity) if data is None else header_from_bytes(data, job.identity)


def read_rows(job: StreamJob, arrived: TriggerInput) -> pa.Table:
    if not arrived.blobs:
        return job.schema.empty_table()
    # Timestamps arrive labelled with the session's time zone, and are stored without it.
    return pa.concat_tables([from_blob(blob) for blob in arrived.blobs]).cast(job.schema)
