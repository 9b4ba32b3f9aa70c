"""Rows travel to a bucket's state as Arrow IPC blobs, one for each bucket and task, and its answer
travels back the same way.

Spark hands rows to a stateful Python operator through pandas, which has no exact form for many
types, and sorts them by key first. A blob passes as it is, a few of them a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

# A task's rows are packed in pieces of at most so many, which bounds what it holds.
PIECE_ROWS: Final = 1 << 20
# Batches of an answer go together up to about this size.
ANSWER_BYTES: Final = 1 << 24
PACKED_SCHEMA: Final = pa.schema([("bucket", pa.int32()), ("blob", pa.binary())])


# No row's bucket. Every task sends it a word, so that every trigger sees whose checkpoint this is,
# also where its rows go to buckets that were never used.
GUARD_BUCKET: Final = -1


def add_guard(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(
        {"bucket": [GUARD_BUCKET], "blob": [b""]}, schema=PACKED_SCHEMA
    )
    yield from pieces


def pack_rows(
    batches: Iterable[pa.RecordBatch], noted: Callable[[pa.Table], pa.Table] = lambda table: table
) -> Iterator[pa.RecordBatch]:
    """The last column says which bucket a row belongs to; the others are what is packed. `noted`:
    a piece with what its buckets shall know of it."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= PIECE_ROWS:
            yield _pack_piece(noted(pa.Table.from_batches(waiting)))
            waiting, rows = [], 0
    if waiting:
        yield _pack_piece(noted(pa.Table.from_batches(waiting)))


def to_blob(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_blob(blob: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_all()


def pack_answer(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """An answer's batches in blobs of bounded size."""
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
    """The batches of the answers in the column `blob`."""
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
