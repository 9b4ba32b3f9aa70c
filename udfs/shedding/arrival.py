"""When a trigger's rows came and how many there are of all buckets: told beside each blob.

A bucket sees its own rows only. The task that packs rows notes when it began and how many it had
for all buckets, so a bucket can tell its part of the trigger's rows, and how much of the time is
over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_NOTE: Final = b"spark_cep_arrival"


@dataclass(frozen=True)
class Arrival:
    """`began`: when the first task of the trigger began to pack, in seconds since 1970. `rows`: of
    the trigger, all buckets together."""

    began: float
    rows: int


def noting(began: float) -> Callable[[pa.Table], pa.Table]:
    """For the pieces of a task that began then: each with what the task knows."""

    def noted(piece: pa.Table) -> pa.Table:
        note = json.dumps([began, piece.num_rows]).encode()
        return piece.replace_schema_metadata({_NOTE: note})

    return noted


def arrival_of(blobs: Sequence[bytes]) -> Arrival | None:
    """What the tasks noted; None if nothing came."""
    notes = [note for blob in blobs if (note := _note(blob)) is not None]
    if not notes:
        return None
    return Arrival(min(began for began, _ in notes), sum(rows for _, rows in notes))


def _note(blob: bytes) -> tuple[float, int] | None:
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        metadata: Mapping[bytes, bytes] = reader.schema.metadata or {}
    if _NOTE not in metadata:
        return None
    began, rows = json.loads(metadata[_NOTE])
    return float(began), int(rows)
