"""Blocks of rows: one key in one stretch of time, kept or dropped as a whole by a hash.

A match has one key and lies within a window. So a share of the blocks keeps the same share of the
matches, whatever the pattern, but for the few that lie across the border of two stretches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.values.codes import hash_values, key_codes, mix_hashes

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.program import Program

# The lengths of a stretch in windows, of which the first is taken that makes enough blocks. A match
# is half a window long or so: with 32 windows, one or two in a hundred lie across a border.
STRETCHES: Final = (32, 16, 8, 4)
ENOUGH_BLOCKS: Final = 30

_STEP: Final = 0x9E3779B97F4A7C15


def stretches_of(program: Program, table: pa.Table, windows: int) -> npt.NDArray[Any]:
    """The stretch of each row, `windows` windows long."""
    assert program.window is not None
    times = column_to_numpy(table.column(program.orders[0].column))
    return np.asarray(times // (windows * (program.window.size or 1)))


def block_codes(program: Program, table: pa.Table, windows: int) -> npt.NDArray[np.int64]:
    """A number for the block of each row, from 0 on."""
    stretches = stretches_of(program, table, windows)
    columns = [table.column(key) for key in _keys(program)]
    keys = key_codes(columns) if columns else np.zeros(table.num_rows, dtype=np.int64)
    if not table.num_rows:
        return np.zeros(0, dtype=np.int64)
    _, stretch = np.unique(stretches, return_inverse=True)
    _, codes = np.unique(keys * (int(stretch.max()) + 1) + stretch, return_inverse=True)
    return codes.astype(np.int64)


def block_hashes(
    program: Program, table: pa.Table, seed: int, windows: int = STRETCHES[0]
) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for the block of each row, `windows` long; the same in every process."""
    stretches = stretches_of(program, table, windows)
    whole = stretches if stretches.dtype.kind == "i" else stretches.astype(np.float64)
    found = mix_hashes(whole.view(np.uint64) + np.uint64((seed + 1) * _STEP % 2**64))
    for key in _keys(program):
        found = mix_hashes(found * np.uint64(31) + hash_values(table.column(key)))
    return (found >> np.uint64(11)).astype(np.float64) * 2.0**-53


# Worth depends on keys only if the rows to learn from have most of them: all others look alike.
MOST_UNSEEN: Final = 0.1


def has_most_keys(
    program: Program, table: pa.Table, stretches: npt.NDArray[Any] | None = None
) -> bool:
    """Whether most rows of the input are of keys that these rows have. Of a key that is not here
    there are expected to be as many rows as of the keys that are here in one stretch only (Good and
    Turing). `stretches`: a number for the stretch of a key that each row is in."""
    columns = [table.column(key) for key in _keys(program)]
    if not columns or not table.num_rows:
        return True
    if stretches is None:
        stretches = block_codes(program, table, STRETCHES[0])
    _, first, rows = np.unique(stretches, return_index=True, return_counts=True)
    key = key_codes(columns)[first]
    return float(rows[np.bincount(key)[key] == 1].sum() / rows.sum()) <= MOST_UNSEEN


def choose_stretch(blocks: Callable[[int], float]) -> int:
    """The length of stretches in windows, by how many blocks each would make."""
    return next((each for each in STRETCHES if blocks(each) >= ENOUGH_BLOCKS), STRETCHES[-1])


def cut_blocks(hashes: npt.NDArray[np.float64], share: float) -> float:
    """The number below which the hashes of those blocks are that have about this share of the rows.
    `hashes`: of each row's block. Of few blocks, the same share may have fewer rows or more."""
    if not 0 < share < 1 or not len(hashes):
        return share
    each, rows = np.unique(hashes, return_counts=True)
    below = np.concatenate([[0], np.cumsum(rows)]) / len(hashes)
    place = int(np.abs(below - share).argmin())
    return float(each[place]) if place < len(each) else 1.0


def _keys(program: Program) -> tuple[int, ...]:
    """The keys without the time slice."""
    return program.keys if program.home is None else program.keys[:-1]
