"""The state of an event pattern in a store: rows in segments, written once, and their flags.

A trigger appends its rows as one segment and never writes them again; of the rows of a segment
only the flags change, a byte each, and a segment without a needed row is removed. When most of
the stored rows are not needed any more, or there are many segments, all are rewritten as one.
Each row is then rewritten a constant number of times on average.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events.branch_matcher import StoredPartials
from spark_cep.udfs.events.engine import GIVEN_COLUMN, USED_COLUMN, EventState
from spark_cep.udfs.execution.job import from_blob, to_blob
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    from spark_cep.udfs.events.table import Positions
    from spark_cep.udfs.execution.state import StateHeader, StateStore


# A row's segment and its place there, as one number.
ROW_COLUMN: Final = "__row"
_PLACE_BITS: Final = 32
# The numbers of the other blobs; segments count from 0.
_FLAGS_BLOB: Final = -1
_PARTIALS_BLOB: Final = -2
_IS_GIVEN: Final = 1
_IS_USED: Final = 2
_IS_GONE: Final = 4
_MOST_SEGMENTS: Final = 64
_LITTLE_WASTE: Final = 1 << 12

FlagBytes = npt.NDArray[np.uint8]


def assign_places(table: pa.Table, segment: int) -> pa.Table:
    """New rows with the place that they will have in the store."""
    places = np.arange(table.num_rows, dtype=np.int64) | segment << _PLACE_BITS
    return table.append_column(ROW_COLUMN, pa.array(places))


def load_state(store: StateStore, header: StateHeader) -> EventState:
    parts = [part for part in _read_segments(store, header) if part.num_rows]
    events = pa.concat_tables(parts) if parts else None
    groups = tuple((branch, tuple(group)) for branch, group in header.groups)
    waiting = header.waiting or []
    stored = tuple(_read_partials(store, header)) if header.kept or waiting else ()
    kept, waited = stored[: len(header.kept)], stored[len(header.kept) :]
    return EventState(
        events, header.horizon, groups, kept, None if header.waiting is None else waited
    )


def save_state(store: StateStore, header: StateHeader, state: EventState) -> EventState:
    """Writes what changed since `load_state`, all but the header; returns the state as
    `load_state` would."""
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
    return state


def count_stored_rows(header: StateHeader) -> int:
    """Rows in segments, needed or not."""
    return sum(rows for _, rows, _ in header.segments)


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
    """All partial matches, and then the matches that wait, are one blob: the columns of one set
    after those of another."""
    numbers = np.frombuffer(store.read(_PARTIALS_BLOB), np.int32)
    at = 0
    for each in (*header.kept, *(header.waiting or ())):
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
    """The rows in the order in which a load finds them."""
    if state.events is None:
        return state
    places = _column(state.events, ROW_COLUMN)
    if (places[1:] > places[:-1]).all():
        return state
    order = np.argsort(places, kind="stable")
    rank = np.argsort(order)

    def ranked(stored: Iterable[StoredPartials]) -> tuple[StoredPartials, ...]:
        return tuple(
            StoredPartials(
                each.branch, each.group, {slot: rank[rows] for slot, rows in each.rows.items()}
            )
            for each in stored
        )

    return replace(
        state,
        events=state.events.take(pa.array(order)),
        kept=ranked(state.kept),
        waiting=None if state.waiting is None else ranked(state.waiting),
    )


def _is_wasteful(header: StateHeader, segment: Positions) -> bool:
    """`segment`: that of each needed row."""
    needed = int(np.count_nonzero(segment < header.next_segment))
    waste = count_stored_rows(header) - needed
    return waste > needed + _LITTLE_WASTE or len(header.segments) > _MOST_SEGMENTS


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
    """Writes the rows in `new`, which are the last ones, as a segment."""
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
    return replace(state, events=events.set_column(at, ROW_COLUMN, pa.array(places)))


def _write_flags(store: StateStore, header: StateHeader, state: EventState) -> None:
    """Writes the flags of all stored rows, and removes segments without a needed row."""
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
    had = bool(header.kept or header.waiting)
    header.kept = [_describe_partials(each) for each in state.kept]
    waiting = state.waiting or ()
    header.waiting = None
    if state.waiting is not None:
        header.waiting = [_describe_partials(each) for each in waiting]
    stored = (*state.kept, *waiting)
    if stored:
        parts = [each.rows[s].astype(np.int32).ravel() for each in stored for s in each.group]
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
