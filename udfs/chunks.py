"""Cutting a bucket into the advances between which a plan may change.

By time, at the same rows for all keys; each chunk is many windows long, for what lies within a
window of its end is looked at twice. Where time was sliced on the way here, slices are
independent, and a chunk is some of them.
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

# An advance costs about 2 ms whatever it holds, 10 % of what this many rows take.
CHUNK_ROWS = 1 << 16
WINDOWS_IN_A_CHUNK = 16


@dataclass(frozen=True)
class Chunk:
    """`horizon`: the event time up to which it is complete; None: to the end of its input.
    `fresh`: nothing of the chunks before matters."""

    table: pa.Table
    horizon: int | float | None = None
    fresh: bool = False


def chunks(program: Program, table: pa.Table) -> Iterator[Chunk]:
    """The bucket in one piece, or in several where its plan may change and there is room."""
    adapts = program.adaptation.kind != "off" and program.plan.kind in {"lazy-chain", "zstream"}
    most = table.num_rows // CHUNK_ROWS
    if not adapts or most < 2 or program.strategy != "any" or program.consumption == "consume":
        yield Chunk(table)
    elif program.home is not None:
        yield from _by_slice(program, table, most)
    else:
        yield from _by_time(program, table, most)


def _by_slice(program: Program, table: pa.Table, most: int) -> Iterator[Chunk]:
    slices = numbers(table.column(program.keys[-1]))
    order = np.argsort(slices, kind="stable")
    changes = np.flatnonzero(np.diff(slices[order])) + 1
    cuts = np.unique(changes[np.searchsorted(changes, _even(len(order), most)) % len(changes)])
    for rows in np.split(order, cuts) if len(changes) else [order]:
        yield Chunk(table.take(pa.array(np.sort(rows))), fresh=True)


def _by_time(program: Program, table: pa.Table, most: int) -> Iterator[Chunk]:
    time = _times(program, table)
    count = 1 if time is None else min(most, _most_by_window(program, table, time))
    if count < 2 or time is None:
        yield Chunk(table)
        return
    ends = np.unique(np.partition(time, _even(len(time), count))[_even(len(time), count)])
    place = np.searchsorted(ends, time, side="left")
    for number in range(len(ends) + 1):
        rows = np.flatnonzero(place == number)
        last = number == len(ends)
        yield Chunk(table.take(pa.array(rows)), None if last else ends[number].item())


def _times(program: Program, table: pa.Table) -> npt.NDArray[Any] | None:
    """Event times; a row without one, which the engine ignores, goes with the earliest."""
    column = whole(table.column(program.orders[0].column))
    time = numbers(column)
    if time.dtype.kind not in "if":
        return None
    known = column.is_valid().to_numpy(zero_copy_only=False)
    known &= ~np.isnan(time)
    if known.all():
        return time
    return np.where(known, time, time[known].min()) if known.any() else None


def _most_by_window(program: Program, table: pa.Table, time: npt.NDArray[Any]) -> int:
    window = program.window
    if window is None or not window.size:
        return 1
    if window.kind == "time":
        return int(min(np.ptp(time) // (window.size * WINDOWS_IN_A_CHUNK), table.num_rows))
    codes = key_codes([table.column(key) for key in program.keys]) if program.keys else ()
    keys = max(1, len(np.unique(codes)))
    most: int = table.num_rows // (int(window.size) * WINDOWS_IN_A_CHUNK * keys)
    return most


def _even(size: int, pieces: int) -> npt.NDArray[np.int64]:
    return np.arange(1, pieces) * size // pieces
