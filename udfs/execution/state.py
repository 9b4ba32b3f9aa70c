"""The engine's state in a store: rows in segments that are written once, and what changes of them.

A trigger appends its rows as one segment and never writes them again; of the rows of a segment
only the flags change, a byte each, and a segment none of whose rows is needed is removed. When
most of what lies there is not needed any more, or segments have become many, all of them are
written anew as one, which costs each row a constant share over its life.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs import canonical
from spark_cep.udfs.errors import CepError
from spark_cep.udfs.events.branch_matcher import StoredPartials
from spark_cep.udfs.events.engine import GIVEN_COLUMN, USED_COLUMN, EventState
from spark_cep.udfs.execution.packing import from_blob, to_blob
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.events.table import Positions


# --------------------------------------------------------------------------------------------------
# What a bucket's state says of itself: whose it is, how far it has come, what its blobs are.
#
# A header is a few magic bytes, a version and JSON; nothing of a checkpoint is ever unpickled. It
# names the query by a fingerprint, so the state of another pattern, of other columns or of another
# number of buckets is refused in the first trigger instead of misread.
# --------------------------------------------------------------------------------------------------


_MAGIC: Final = b"SCES"
_VERSION: Final = 2
_PREFIX: Final = struct.Struct("<4sHI")  # magic, version, length of the JSON that follows
_RESTART_HINT: Final = "or start from a new checkpoint location"


@dataclass(frozen=True)
class StateIdentity:
    """Whose state it is. `program` and `schema` are fingerprints."""

    program: str
    schema: str
    buckets: int


@dataclass
class StateHeader:
    """`horizon`: the event time up to which rows have come; None: no watermark yet. `segments`:
    blobs of rows, as [number, rows, flags of all its rows or -1]. `nonce`: changes with every
    write. `number`: of the next match. The rest belongs to who keeps it."""

    identity: StateIdentity
    horizon: int | None = None
    segments: list[list[int]] = field(default_factory=list)
    next_segment: int = 0
    has_flags: bool = False
    nonce: str = ""
    number: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    groups: list[list[Any]] = field(default_factory=list)
    learnt: dict[str, Any] = field(default_factory=dict)


def make_identity(fingerprint: str, schema: pa.Schema, buckets: int) -> StateIdentity:
    return StateIdentity(fingerprint, canonical.fingerprint(canonical.schema(schema)), buckets)


def header_to_bytes(header: StateHeader) -> bytes:
    """The names in JSON are those of the format, not of the fields here."""
    body = {
        "identity": {
            "form": canonical.FORMAT,
            "program": header.identity.program,
            "schema": header.identity.schema,
            "buckets": header.identity.buckets,
        },
        "horizon": header.horizon,
        "segments": header.segments,
        "next_segment": header.next_segment,
        "has_flags": header.has_flags,
        "nonce": header.nonce,
        "number": header.number,
        "kept": header.kept,
        "groups": header.groups,
        "learnt": header.learnt,
    }
    text = json.dumps(body).encode()
    return _PREFIX.pack(_MAGIC, _VERSION, len(text)) + text


def header_from_bytes(data: bytes, mine: StateIdentity) -> StateHeader:
    """The header, if it is this query's; a CepError that says why if it is not."""
    if len(data) < _PREFIX.size:
        raise CepError(
            "the state in the checkpoint is cut short", hint=f"restore it, {_RESTART_HINT}"
        )
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC or len(data) != _PREFIX.size + length:
        raise CepError(
            "the state in the checkpoint is not spark-cep's", hint=f"use {_RESTART_HINT[3:]}"
        )
    if version != _VERSION:
        raise CepError(
            f"the state in the checkpoint has format {version}, this release reads {_VERSION}",
            hint=f"go on with the release that wrote it, {_RESTART_HINT}",
        )
    body = json.loads(data[_PREFIX.size :])
    theirs = body["identity"]
    if theirs["form"] != canonical.FORMAT:
        raise CepError(
            f"the checkpoint describes its query in form {theirs['form']}, this release in form "
            f"{canonical.FORMAT}",
            hint=f"go on with the release that wrote it, {_RESTART_HINT}",
        )
    _check_identity(StateIdentity(theirs["program"], theirs["schema"], theirs["buckets"]), mine)
    return StateHeader(
        mine,
        horizon=body["horizon"],
        segments=body["segments"],
        next_segment=body["next_segment"],
        has_flags=body["has_flags"],
        nonce=body["nonce"],
        number=body["number"],
        kept=body["kept"],
        groups=body["groups"],
        learnt=body["learnt"],
    )


def _check_identity(theirs: StateIdentity, mine: StateIdentity) -> None:
    if theirs.buckets != mine.buckets:
        raise CepError(
            f"the checkpoint was made with {theirs.buckets} bucket{'s' * (theirs.buckets != 1)}, "
            f"this query has {mine.buckets}",
            hint=f"set spark.cep.buckets to {theirs.buckets} before the query is built, "
            f"{_RESTART_HINT}",
        )
    if theirs.program != mine.program and theirs.schema != mine.schema:
        raise CepError(
            "the checkpoint was made with another pattern or with other columns",
            hint=f"go on with those, {_RESTART_HINT}: its open matches mean nothing here",
        )
    if theirs.program != mine.program:
        raise CepError(
            "the checkpoint was made with another pattern, or other order or partition columns",
            hint=f"go on with that pattern, {_RESTART_HINT}: its open matches mean nothing here",
        )
    if theirs.schema != mine.schema:
        raise CepError(
            "the checkpoint was made with other columns, or columns of other types",
            hint=f"restore the columns that the query read, {_RESTART_HINT}",
        )


# --------------------------------------------------------------------------------------------------
# What a bucket keeps between triggers, as the state store sees it: a header and numbered blobs.
#
# The header says what the blobs are; it is read first, and refused if it is another query's. The
# store writes what changed and nothing else.
# --------------------------------------------------------------------------------------------------


class StateStore(Protocol):
    def header(self) -> bytes | None: ...

    def put_header(self, header: bytes) -> None: ...

    def read(self, number: int) -> bytes: ...

    def write(self, number: int, blob: bytes) -> None: ...

    def remove(self, number: int) -> None: ...


@dataclass
class InMemoryStore:
    """A store for tests and for measuring."""

    kept: bytes | None = None
    blobs: dict[int, bytes] = field(default_factory=dict)
    reads: int = 0

    def header(self) -> bytes | None:
        return self.kept

    def put_header(self, header: bytes) -> None:
        self.kept = header

    def read(self, number: int) -> bytes:
        self.reads += 1
        return self.blobs[number]

    def write(self, number: int, blob: bytes) -> None:
        self.blobs[number] = blob

    def remove(self, number: int) -> None:
        del self.blobs[number]


# --------------------------------------------------------------------------------------------------
# What a worker process still has in memory of a bucket, so that the store need not be read.
#
# The store is the truth. What is remembered counts only if the header in the store carries the very
# nonce that it was remembered with: another worker, a task that was tried again or a restart of the
# query have written another one.
# --------------------------------------------------------------------------------------------------


# Buckets come and go between workers; what was not asked for the longest is forgotten first.
MOST_BYTES: Final = 256 << 20


class SizedState(Protocol):
    @property
    def nbytes(self) -> int: ...


_T = TypeVar("_T")
_StateKey = tuple[str, int]
_states: OrderedDict[_StateKey, tuple[str, SizedState]] = OrderedDict()


def recall_state(token: str, bucket: int, nonce: str, kind: type[_T]) -> _T | None:
    found = _states.pop((token, bucket), None)
    if found is None or found[0] != nonce:
        return None
    assert isinstance(found[1], kind)
    return found[1]


def remember_state(token: str, bucket: int, nonce: str, what: SizedState) -> None:
    for key in [key for key in _states if key[0] != token]:
        # A worker may serve several queries at once; those that have ended leave nothing behind
        # for long, since all share the room.
        if _total_bytes() < MOST_BYTES // 2:
            break
        del _states[key]
    _states[token, bucket] = nonce, what
    while len(_states) > 1 and _total_bytes() > MOST_BYTES:
        _states.popitem(last=False)


def _total_bytes() -> int:
    return sum(each.nbytes for _, each in _states.values())


def forget_states() -> None:
    """Everything, as in a new worker."""
    _states.clear()


# A row's segment and its place there, as one number.
ROW_COLUMN: Final = "__row"
_PLACE_BITS: Final = 32
# Blobs that are no segment.
_FLAGS_BLOB: Final = -1
_PARTIALS_BLOB: Final = -2
_IS_GIVEN: Final = 1
_IS_USED: Final = 2
_IS_GONE: Final = 4
_MOST_SEGMENTS: Final = 64
_LITTLE_WASTE: Final = 1 << 12

FlagBytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class StoredRows:
    """What is stored of a state: the number of rows, needed or not, and of blobs."""

    stored: int
    segments: int


def assign_places(table: pa.Table, header: StateHeader) -> pa.Table:
    """New rows with the place that they will have in the store."""
    places = np.arange(table.num_rows, dtype=np.int64) | header.next_segment << _PLACE_BITS
    return table.append_column(ROW_COLUMN, pa.array(places))


def load_state(store: StateStore, header: StateHeader) -> EventState:
    parts = [part for part in _read_segments(store, header) if part.num_rows]
    events = pa.concat_tables(parts) if parts else None
    groups = tuple((branch, tuple(group)) for branch, group in header.groups)
    kept = tuple(_read_partials(store, header)) if header.kept else ()
    return EventState(events, header.horizon, groups, kept)


def save_state(store: StateStore, header: StateHeader, state: EventState) -> EventState:
    """Writes what changed since `load_state`, all but the header; gives the state as `load_state`
    would."""
    state = _sort_by_place(state)
    rows = np.zeros(0, np.int64) if state.events is None else _column(state.events, ROW_COLUMN)
    segment = rows >> _PLACE_BITS
    if _is_wasteful(header, segment):
        state, segment = _rewrite_segments(store, header, state)
    elif state.events is not None and len(segment) and segment[-1] == header.next_segment:
        state = _append_segment(store, header, state, segment == header.next_segment)
    _write_flags(store, header, state)
    _write_partials(store, header, state)
    header.groups = [[branch, list(group)] for branch, group in state.groups]
    header.nonce = secrets.token_hex(8)
    return state


def count_stored_rows(header: StateHeader) -> StoredRows:
    return StoredRows(sum(rows for _, rows, _ in header.segments), len(header.segments))


# ---- reading -----------------------------------------------------------------------------------


def _read_segments(store: StateStore, header: StateHeader) -> Iterator[pa.Table]:
    blob = store.read(_FLAGS_BLOB) if header.has_flags else b""
    at = 0
    for number, count, flag in header.segments:
        flags: FlagBytes
        if flag < 0:
            flags = np.frombuffer(blob, np.uint8, count, at)
            at += count
        else:
            flags = np.full(count, flag, np.uint8)
        places = np.arange(count, dtype=np.int64) | number << _PLACE_BITS
        yield _apply_flags(from_blob(store.read(number)), places, flags)


def _apply_flags(table: pa.Table, places: Positions, flags: FlagBytes) -> pa.Table:
    table = table.append_column(ROW_COLUMN, pa.array(places))
    table = table.append_column(GIVEN_COLUMN, pa.array((flags & _IS_GIVEN).astype(np.bool_)))
    table = table.append_column(USED_COLUMN, pa.array((flags & _IS_USED).astype(np.bool_)))
    gone = (flags & _IS_GONE).astype(np.bool_)
    return table.filter(pa.array(~gone)) if gone.any() else table


def _read_partials(store: StateStore, header: StateHeader) -> Iterator[StoredPartials]:
    """Partial matches: one blob, each set's columns one after the other."""
    numbers = np.frombuffer(store.read(_PARTIALS_BLOB), np.int32)
    at = 0
    for each in header.kept:
        rows: dict[int, Positions] = {}
        for slot in each["group"]:
            length = each["lengths"].get(str(slot))
            size = each["rows"] * (length or 1)
            found = numbers[at : at + size].astype(np.int64)
            rows[slot] = found if length is None else found.reshape(each["rows"], length)
            at += size
        yield StoredPartials(each["branch"], tuple(each["group"]), rows)


# ---- writing -----------------------------------------------------------------------------------


def _sort_by_place(state: EventState) -> EventState:
    """The rows as a load would find them: by place."""
    if state.events is None:
        return state
    places = _column(state.events, ROW_COLUMN)
    if (places[1:] > places[:-1]).all():
        return state
    order = np.argsort(places, kind="stable")
    rank = np.argsort(order)
    kept = tuple(
        StoredPartials(
            each.branch, each.group, {slot: rank[rows] for slot, rows in each.rows.items()}
        )
        for each in state.kept
    )
    return EventState(state.events.take(pa.array(order)), state.horizon, state.groups, kept)


def _is_wasteful(header: StateHeader, segment: Positions) -> bool:
    lying = sum(rows for _, rows, _ in header.segments)
    alive = int(np.count_nonzero(segment < header.next_segment))
    return lying - alive > alive + _LITTLE_WASTE or len(header.segments) > _MOST_SEGMENTS


def _rewrite_segments(
    store: StateStore, header: StateHeader, state: EventState
) -> tuple[EventState, Positions]:
    for number, _, _ in header.segments:
        store.remove(number)
    header.segments = []
    if state.events is None or not state.events.num_rows:
        return state, np.zeros(0, np.int64)
    everything = np.ones(state.events.num_rows, np.bool_)
    state = _append_segment(store, header, state, everything)
    assert state.events is not None
    return state, _column(state.events, ROW_COLUMN) >> _PLACE_BITS


def _append_segment(
    store: StateStore, header: StateHeader, state: EventState, new: npt.NDArray[np.bool_]
) -> EventState:
    """The rows in `new`, the last ones, become a segment."""
    assert state.events is not None
    events, number, count = state.events, header.next_segment, int(new.sum())
    rows = events.slice(events.num_rows - count).drop_columns(
        [ROW_COLUMN, GIVEN_COLUMN, USED_COLUMN]
    )
    store.write(number, to_blob(rows.combine_chunks()))
    header.segments.append([number, count, -1])
    header.next_segment += 1
    places = _column(events, ROW_COLUMN).copy()
    places[-count:] = np.arange(count) | number << _PLACE_BITS
    at = events.schema.get_field_index(ROW_COLUMN)
    return EventState(
        events.set_column(at, ROW_COLUMN, pa.array(places)), state.horizon, state.groups, state.kept
    )


def _write_flags(store: StateStore, header: StateHeader, state: EventState) -> None:
    """Flags of every row that lies in the store; removes segments that nobody needs."""
    places = np.zeros(0, np.int64) if state.events is None else _column(state.events, ROW_COLUMN)
    flags = np.zeros(0, np.uint8) if state.events is None else _row_flags(state.events)
    numbers = [number for number, _, _ in header.segments]
    begins = np.searchsorted(places, np.array([n << _PLACE_BITS for n in [*numbers, 1 << 30]]))
    segments, blob = [], []
    for at, (number, count, _) in enumerate(header.segments):
        mine = slice(begins[at], begins[at + 1])
        of_rows = np.full(count, _IS_GONE, np.uint8)
        of_rows[places[mine] & (1 << _PLACE_BITS) - 1] = flags[mine]
        if (of_rows == _IS_GONE).all():
            store.remove(number)
        elif (of_rows == of_rows[0]).all():
            segments.append([number, count, int(of_rows[0])])
        else:
            segments.append([number, count, -1])
            blob.append(of_rows)
    header.segments = segments
    if blob:
        store.write(_FLAGS_BLOB, np.concatenate(blob).tobytes())
    elif header.has_flags:
        store.remove(_FLAGS_BLOB)
    header.has_flags = bool(blob)


def _row_flags(events: pa.Table) -> FlagBytes:
    given = _column(events, GIVEN_COLUMN).astype(np.uint8) * _IS_GIVEN
    return given | _column(events, USED_COLUMN).astype(np.uint8) * _IS_USED


def _write_partials(store: StateStore, header: StateHeader, state: EventState) -> None:
    had = bool(header.kept)
    header.kept = [_describe_partials(each) for each in state.kept]
    if state.kept:
        parts = [each.rows[s].astype(np.int32).ravel() for each in state.kept for s in each.group]
        store.write(_PARTIALS_BLOB, np.concatenate(parts).tobytes())
    elif had:
        store.remove(_PARTIALS_BLOB)


def _describe_partials(kept: StoredPartials) -> dict[str, Any]:
    first = kept.rows[kept.group[0]]
    return {
        "branch": kept.branch,
        "group": list(kept.group),
        "rows": len(first),
        "lengths": _list_lengths(kept.rows),
    }


def _list_lengths(rows: Mapping[int, Positions]) -> dict[str, int]:
    return {str(slot): each.shape[1] for slot, each in rows.items() if each.ndim > 1}


def _column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = to_single_array(table.column(name)).to_numpy(zero_copy_only=False)
    return found
