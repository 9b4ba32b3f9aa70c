"""Where a search has been: marks by instruction and row, and what tells two paths apart.

Compiled. Paths that agree in all that is read ahead have the same future; they are compared by 64
bits mixed of those values, beside instruction and row themselves.
"""

# ruff: noqa: PLR0912, PLR0913, PLR0917 - a compiled loop pays for calls and tuples

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.rows import opcodes as o
from spark_cep.udfs.rows.jit import jit
from spark_cep.udfs.rows.walking import anchored

if TYPE_CHECKING:
    from spark_cep.udfs.rows.records import Conditions, Memory, Path


@jit
def forget(memory: Memory, words: Any, low: Any, high: Any) -> None:
    """The marks of rows [low, high)."""
    room = memory.marks.shape[0] // words
    if high - low >= room:
        memory.marks[:] = 0
        return
    for row in range(low, high):
        place = (row % room) * words
        for word in range(place, place + words):
            memory.marks[word] = 0


@jit
def mixed(state: Any, value: Any) -> Any:
    """Another 64 bits folded in; each input bit reaches every bit."""
    state = (state ^ value) * np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(29)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    return state ^ (state >> np.uint64(32))


@jit
def fingerprint(
    memory: Memory, which: Any, conditions: Conditions, path: Path, labels: Any, base: Any,
    begin: Any, row: Any, edges: Any, numbers: Any,
    epoch: Any,
) -> Any:  # fmt: skip
    """All that is read ahead of a path whose last row is the one before `row`; 0 if that cannot be
    told from 64 bits a value. Two such paths may look alike here and differ for Python."""
    state = mixed(np.uint64(which + 1), np.uint64(epoch))
    for key in range(memory.keys[which], memory.keys[which + 1]):
        kind, read = memory.key[key, 0], memory.key[key, 1]
        if kind == o.KEY_MATCH_NUMBER:
            state = mixed(state, np.uint64(numbers[0]))
        elif kind == o.KEY_LIMIT:
            state = mixed(state, np.uint64(numbers[1]))
        elif kind == o.KEY_FOLD:
            size = path.sizes[path.folds[read, 1]]
            if path.counts[read, size] < 0:
                return np.uint64(0)
            state = mixed(state, np.uint64(path.counts[read, size]))
            fold = path.folds[read, 0]
            if fold in (o.SUM_FLOAT, o.LEAST_FLOAT, o.MOST_FLOAT):
                state = mixed(state, path.floats.view(np.uint64)[path.folds[read, 3], size])
            elif fold != o.COUNTED:
                state = mixed(state, np.uint64(path.ints[path.folds[read, 3], size]))
        else:
            found = anchored(memory.key[:, 2:], key, path, begin, row - 1)
            if found < 0:
                # How many there are decides which row becomes the n-th.
                which_set = memory.key[key, 3]
                size = row - begin if which_set < 0 else path.sizes[which_set]
                state = mixed(state, np.uint64(0xABCD))
                if kind in (o.KEY_FIRST, o.KEY_FIRST_LABEL):
                    state = mixed(state, np.uint64(size))
            elif kind in (o.KEY_LAST_LABEL, o.KEY_FIRST_LABEL):
                state = mixed(state, np.uint64(labels[base + found - begin] >> 1))
            else:
                found += memory.key[key, 5]
                column = memory.key[key, 6]
                if found < edges[0] or found >= edges[1]:
                    state = mixed(state, np.uint64(0xDCBA))
                elif memory.key[key, 7]:
                    state = mixed(state, np.uint64(conditions.float_flags[column, found]))
                    state = mixed(state, conditions.float_columns.view(np.uint64)[column, found])
                else:
                    if conditions.int_flags[column, found] == o.UNFIT:
                        return np.uint64(0)
                    state = mixed(state, np.uint64(conditions.int_flags[column, found]))
                    state = mixed(state, np.uint64(conditions.int_columns[column, found]))
    return state
