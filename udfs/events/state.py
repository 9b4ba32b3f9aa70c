"""The state of an event pattern as bytes: a versioned header, then Arrow IPC. Nothing is ever
unpickled.

The header names the program by a fingerprint, so the state of another pattern, or of the same
columns in another order, is refused instead of misread.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from spark_cep.udfs import canonical
from spark_cep.udfs.errors import CepError
from spark_cep.udfs.events.branch_matcher import StoredPartials
from spark_cep.udfs.events.engine import EventState

if TYPE_CHECKING:
    from spark_cep.udfs.events.table import Positions
    from spark_cep.udfs.program import Program


_MAGIC = b"SCEP"
_VERSION = 3
_PREFIX = struct.Struct("<4sHI")  # magic, version, length of the JSON header


def fingerprint_program(program: Program) -> str:
    """Equal for programs that mean the same and ship as many columns (`udfs/canonical.py`)."""
    return canonical.fingerprint(canonical.event_program(program))


def state_to_bytes(state: EventState, program: Program) -> bytes:
    header = json.dumps(
        {
            "program": fingerprint_program(program),
            "horizon": state.horizon,
            "has_events": state.events is not None,
            "groups": state.groups,
            "kept": [
                {
                    "branch": each.branch,
                    "group": each.group,
                    "lengths": _list_lengths(each),
                }
                for each in state.kept
            ],
        }
    ).encode()
    sink = pa.BufferOutputStream()
    sink.write(_PREFIX.pack(_MAGIC, _VERSION, len(header)))
    sink.write(header)
    if state.events is not None:
        with pa.ipc.new_stream(sink, state.events.schema) as writer:
            writer.write_table(state.events)
    for each in state.kept:
        table = _flatten_rows(each)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def state_from_bytes(data: bytes, program: Program) -> EventState:
    """Raises CepError if the state is another program's, or of another format."""
    if len(data) < _PREFIX.size:
        raise CepError("the stored state is cut short", hint="start from a new checkpoint")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise CepError("these bytes are no state of spark-cep", hint="start from a new checkpoint")
    if version != _VERSION:
        raise CepError(
            f"the stored state has format {version}, this release reads format {_VERSION}",
            hint="continue with the release that wrote it, or start from a new checkpoint",
        )
    header = json.loads(data[_PREFIX.size : _PREFIX.size + length])
    if header["program"] != fingerprint_program(program):
        raise CepError(
            "the stored state belongs to another pattern or to other columns",
            hint="restore the pattern that wrote it, or start from a new checkpoint",
        )
    source = pa.BufferReader(pa.py_buffer(data)[_PREFIX.size + length :])
    events = _read_table(source) if header["has_events"] else None
    kept = tuple(_unflatten_rows(each, _read_table(source)) for each in header["kept"])
    groups = tuple((branch, tuple(group)) for branch, group in header["groups"])
    return EventState(events, header["horizon"], groups, kept)


def _read_table(source: pa.BufferReader) -> pa.Table:
    with pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def _list_lengths(kept: StoredPartials) -> dict[str, int]:
    return {str(slot): rows.shape[1] for slot, rows in kept.rows.items() if rows.ndim > 1}


def _flatten_rows(kept: StoredPartials) -> pa.Table:
    """A column for each slot; for a list, one for each of its elements."""
    columns = [
        (f"{slot}.{place}", column)
        for slot, rows in kept.rows.items()
        for place, column in enumerate((rows if rows.ndim > 1 else rows[:, np.newaxis]).T)
    ]
    return pa.table({name: pa.array(column) for name, column in columns})


def _unflatten_rows(header: Mapping[str, Any], table: pa.Table) -> StoredPartials:
    rows: dict[int, Positions] = {}
    for slot in header["group"]:
        length = header["lengths"].get(str(slot))
        columns = [table.column(f"{slot}.{place}").to_numpy() for place in range(length or 1)]
        rows[slot] = columns[0] if length is None else np.stack(columns, axis=1)
    return StoredPartials(header["branch"], tuple(header["group"]), rows)
