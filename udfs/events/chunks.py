"""Where a bucket is cut into chunks, between which its plan may change.

The whole bucket is there, so its rates are known before anything is matched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.values.arrow_values import to_single_array
from spark_cep.udfs.values.codes import key_codes

if TYPE_CHECKING:
    from spark_cep.udfs.program import Program


# An advance has a fixed cost of about 2 ms, a tenth of what this many rows take.
CHUNK_ROWS = 1 << 18
# Where rates change, a chunk may be smaller: the wrong plan costs more than an advance.
MIN_CHUNK_ROWS = 1 << 12
WINDOWS_PER_CHUNK = 16
# The profile of a bucket has the rates in so many stretches of time. A chunk ends where a rate
# differs by this factor from its average so far.
PROFILE_STRETCHES = 32
RATE_CHANGE_FACTOR = 2.0
# The profile counts about so many rows: enough to see such a change, in a millisecond.
PROFILE_ROWS = 1 << 14
# Smaller counts vary by that factor by chance.
MIN_PROFILE_EVENTS = 32

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """`horizon`: the event time up to which the chunk is complete; None: to the end of the input.
    `fresh`: independent of the chunks before. `has_changed`: its rates differ from those of the
    chunk before."""

    table: pa.Table
    horizon: int | float | None = None
    fresh: bool = False
    has_changed: bool = False


def cut_chunks(program: Program, table: pa.Table) -> Iterator[Chunk]:
    """The bucket in one chunk, or in several between which its plan may change.

    Chunks are cut by time, at the same times for all keys, where rates change enough that another
    plan may be best. The whole bucket is there, so its rates are known before anything is matched.
    Where they do not change, chunks double in size: selectivities are measured early, and a long
    bucket costs few advances. Every chunk is many windows long, because rows within a window of
    its end are matched twice. Time slices are independent, and a chunk consists of whole slices."""
    adapts = program.adaptation.kind != "off" and program.plan.kind in {"lazy-chain", "zstream"}
    is_any = program.strategy == "any" and program.consumption == "reuse"
    if not adapts or not is_any or table.num_rows < 2 * MIN_CHUNK_ROWS:
        yield Chunk(table)
    elif program.home is not None:
        yield from _cut_by_slice(program, table)
    else:
        yield from _cut_by_time(program, table)


def _cut_by_slice(program: Program, table: pa.Table) -> Iterator[Chunk]:
    slices = column_to_numpy(table.column(program.keys[-1]))
    order = np.argsort(slices, kind="stable")
    changes = np.flatnonzero(np.diff(slices[order])) + 1
    wanted = np.array(_doubling_ends(len(order)), dtype=np.int64)
    after = np.searchsorted(changes, wanted)
    cuts = np.unique(changes[after[after < len(changes)]])
    for rows in np.split(order, cuts):
        yield Chunk(table.take(pa.array(np.sort(rows))), fresh=True)


def _cut_by_time(program: Program, table: pa.Table) -> Iterator[Chunk]:
    time = _event_times(program, table)
    cuts = [] if time is None else _time_cuts(program, table, time)
    if time is None or not cuts:
        yield Chunk(table)
        return
    place = np.searchsorted([end for end, _ in cuts], time, side="left")
    changed = [False, *(is_different for _, is_different in cuts)]
    for number, has_changed in enumerate(changed):
        rows = pa.array(np.flatnonzero(place == number))
        horizon = cuts[number][0] if number < len(cuts) else None
        yield Chunk(table.take(rows), horizon, has_changed=has_changed)


def _event_times(program: Program, table: pa.Table) -> Array | None:
    """Event times. A row without one, which the engine ignores, gets the earliest."""
    column = to_single_array(table.column(program.orders[0].column))
    time = column_to_numpy(column)
    if time.dtype.kind not in "if":
        return None
    if not column.null_count and (time.dtype.kind == "i" or not np.isnan(time).any()):
        return time
    known = column.is_valid().to_numpy(zero_copy_only=False) & ~np.isnan(time)
    return np.where(known, time, time[known].min()) if known.any() else None


def _time_cuts(program: Program, table: pa.Table, time: Array) -> list[tuple[int | float, bool]]:
    """The event times at which all chunks but the last end, and whether rates change there."""
    first, span = time.min(), np.ptp(time)
    if not span > 0 or not np.isfinite(span):
        return []
    count = min(PROFILE_STRETCHES, _max_chunks_by_window(program, table, span))
    if count < 2:
        return []
    step = max(1, len(time) // PROFILE_ROWS)
    mask = column_to_numpy(table.column(program.mask))[::step]
    place = ((time[::step] - first) * (count / span)).astype(np.int64).clip(0, count - 1)
    counts = np.stack(
        [
            np.bincount(place[(mask >> v & 1) == 1], minlength=count)
            for v in range(len(program.variables))
        ]
    )
    edges = first + (span * (np.arange(1, count) / count)).astype(time.dtype)
    rows = np.bincount(place, minlength=count) * step
    return [(edges[place].item(), changed) for place, changed in _profile_cuts(counts, rows)]


def _profile_cuts(counts: Array, rows: Array) -> Iterator[tuple[int, bool]]:
    """The stretches of the profile after which a chunk ends: where the next stretch differs from
    the chunk so far, or where the chunk is large enough."""
    begun, most = 0, CHUNK_ROWS
    for place in range(len(rows) - 1):
        size = rows[begun : place + 1].sum()
        is_different = bool(size >= MIN_CHUNK_ROWS) and _rates_differ(
            counts[:, begun : place + 1].mean(axis=1), counts[:, place + 1]
        )
        if is_different or size >= most:
            yield place, is_different
            most = CHUNK_ROWS if is_different else 2 * most
            begun = place + 1


def _rates_differ(before: Array, after: Array) -> bool:
    """Whether some rate has changed by the factor."""
    enough = np.maximum(before, after) >= MIN_PROFILE_EVENTS
    if not enough.any():
        return False
    change = (after[enough] + 1.0) / (before[enough] + 1.0)
    return bool(change.max() > RATE_CHANGE_FACTOR or change.min() * RATE_CHANGE_FACTOR < 1)


def _doubling_ends(size: int) -> list[int]:
    """The ends of chunks that double in size."""
    ends, most = [CHUNK_ROWS], CHUNK_ROWS
    while ends[-1] < size:
        most *= 2
        ends.append(ends[-1] + most)
    return [end for end in ends if end < size]


def _max_chunks_by_window(program: Program, table: pa.Table, span: float) -> int:
    window = program.window
    if window is None or not window.size:
        return 1
    if window.kind == "time":
        return int(min(span // (window.size * WINDOWS_PER_CHUNK), PROFILE_STRETCHES))
    codes = key_codes([table.column(key) for key in program.keys]) if program.keys else ()
    keys = max(1, len(np.unique(codes)))
    most: int = table.num_rows // (int(window.size) * WINDOWS_PER_CHUNK * keys)
    return most
