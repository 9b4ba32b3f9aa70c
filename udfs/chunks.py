"""Cutting a bucket into the advances between which a plan may change.

By time, at the same times for all keys, where rates change enough that another plan may be best:
the whole bucket is there, so that is seen before anything is matched. Where they hold still,
chunks double in size: what conditions keep is learnt early, and a long bucket costs few advances.
Every chunk is many windows long, for what lies within a window of its end is looked at twice.
Where time was sliced on the way here, slices are independent, and a chunk is some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_cep.udfs.events import numbers
from spark_cep.udfs.values.arrow_values import whole
from spark_cep.udfs.values.codes import key_codes

if TYPE_CHECKING:
    from spark_cep.udfs.program import Program

# An advance costs about 2 ms whatever it holds, a tenth of what this many rows take.
CHUNK_ROWS = 1 << 18
# Where rates change, a chunk may be smaller: the wrong plan costs more than an advance.
LEAST_ROWS = 1 << 12
WINDOWS_IN_A_CHUNK = 16
# The profile of a bucket: rates in so many stretches of time, and by what factor one has to leave
# the average so far for a chunk to end there.
PROFILE = 32
CHANGED = 2.0
# Every so many rows are counted: enough for a change by that factor, in a millisecond.
PROFILED_ROWS = 1 << 14
# Counts below this vary by as much by chance.
ENOUGH_EVENTS = 32

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Chunk:
    """`horizon`: the event time up to which it is complete; None: to the end of its input.
    `fresh`: nothing of the chunks before matters. `has_changed`: its rates are not those of the
    chunk before."""

    table: pa.Table
    horizon: int | float | None = None
    fresh: bool = False
    has_changed: bool = False


def chunks(program: Program, table: pa.Table) -> Iterator[Chunk]:
    """The bucket in one piece, or in several where its plan may change and there is room."""
    adapts = program.adaptation.kind != "off" and program.plan.kind in {"lazy-chain", "zstream"}
    is_any = program.strategy == "any" and program.consumption == "reuse"
    if not adapts or not is_any or table.num_rows < 2 * LEAST_ROWS:
        yield Chunk(table)
    elif program.home is not None:
        yield from _by_slice(program, table)
    else:
        yield from _by_time(program, table)


def _by_slice(program: Program, table: pa.Table) -> Iterator[Chunk]:
    slices = numbers(table.column(program.keys[-1]))
    order = np.argsort(slices, kind="stable")
    changes = np.flatnonzero(np.diff(slices[order])) + 1
    wanted = np.array(_doubling(len(order)), dtype=np.int64)
    after = np.searchsorted(changes, wanted)
    cuts = np.unique(changes[after[after < len(changes)]])
    for rows in np.split(order, cuts):
        yield Chunk(table.take(pa.array(np.sort(rows))), fresh=True)


def _by_time(program: Program, table: pa.Table) -> Iterator[Chunk]:
    time = _times(program, table)
    cuts = [] if time is None else _cuts_of(program, table, time)
    if time is None or not cuts:
        yield Chunk(table)
        return
    place = np.searchsorted([end for end, _ in cuts], time, side="left")
    changed = [False, *(is_different for _, is_different in cuts)]
    for number, has_changed in enumerate(changed):
        rows = pa.array(np.flatnonzero(place == number))
        horizon = cuts[number][0] if number < len(cuts) else None
        yield Chunk(table.take(rows), horizon, has_changed=has_changed)


def _times(program: Program, table: pa.Table) -> Array | None:
    """Event times; a row without one, which the engine ignores, goes with the earliest."""
    column = whole(table.column(program.orders[0].column))
    time = numbers(column)
    if time.dtype.kind not in "if":
        return None
    if not column.null_count and (time.dtype.kind == "i" or not np.isnan(time).any()):
        return time
    known = column.is_valid().to_numpy(zero_copy_only=False) & ~np.isnan(time)
    return np.where(known, time, time[known].min()) if known.any() else None


# ---- where to cut ------------------------------------------------------------------------------


def _cuts_of(program: Program, table: pa.Table, time: Array) -> list[tuple[int | float, bool]]:
    """The event times at which chunks end, without the last, and whether rates change there."""
    first, span = time.min(), np.ptp(time)
    if not span > 0 or not np.isfinite(span):
        return []
    count = min(PROFILE, _most_by_window(program, table, span))
    if count < 2:
        return []
    step = max(1, len(time) // PROFILED_ROWS)
    mask = numbers(table.column(program.mask))[::step]
    place = ((time[::step] - first) * (count / span)).astype(np.int64).clip(0, count - 1)
    counts = np.stack(
        [
            np.bincount(place[(mask >> v & 1) == 1], minlength=count)
            for v in range(len(program.variables))
        ]
    )
    edges = first + (span * (np.arange(1, count) / count)).astype(time.dtype)
    rows = np.bincount(place, minlength=count) * step
    return [(edges[place].item(), changed) for place, changed in _cuts(counts, rows)]


def _cuts(counts: Array, rows: Array) -> Iterator[tuple[int, bool]]:
    """The places of the profile after which a chunk ends: where the next one differs from what
    the chunk has so far, or where the chunk is large enough."""
    begun, most = 0, CHUNK_ROWS
    for place in range(len(rows) - 1):
        size = rows[begun : place + 1].sum()
        is_different = bool(size >= LEAST_ROWS) and _differ(
            counts[:, begun : place + 1].mean(axis=1), counts[:, place + 1]
        )
        if is_different or size >= most:
            yield place, is_different
            most = CHUNK_ROWS if is_different else 2 * most
            begun = place + 1


def _differ(before: Array, after: Array) -> bool:
    """Whether some rate has changed against the others."""
    enough = np.maximum(before, after) >= ENOUGH_EVENTS
    if not enough.any():
        return False
    change = (after[enough] + 1.0) / (before[enough] + 1.0)
    return bool(change.max() > CHANGED or change.min() * CHANGED < 1)


def _doubling(size: int) -> list[int]:
    """Where chunks end that double in size."""
    ends, most = [CHUNK_ROWS], CHUNK_ROWS
    while ends[-1] < size:
        most *= 2
        ends.append(ends[-1] + most)
    return [end for end in ends if end < size]


def _most_by_window(program: Program, table: pa.Table, span: float) -> int:
    window = program.window
    if window is None or not window.size:
        return 1
    if window.kind == "time":
        return int(min(span // (window.size * WINDOWS_IN_A_CHUNK), PROFILE))
    codes = key_codes([table.column(key) for key in program.keys]) if program.keys else ()
    keys = max(1, len(np.unique(codes)))
    most: int = table.num_rows // (int(window.size) * WINDOWS_IN_A_CHUNK * keys)
    return most
