"""Rows travel to the stateful operator as Arrow IPC blobs, one for each bucket and task, and the
answer travels back the same way.

Spark hands rows to a stateful Python operator through pandas, which cannot represent many types
exactly, and sorts them by key first. A blob passes unchanged, and there are few in a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

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
