"""One row more, or one row less: what conditions read of the path, kept while a search goes on.

Compiled. Every fold is kept for each number of rows that its set has had on this path, so going
back forgets and computes nothing; only what counts distinct values has to be undone.
"""

# ruff: noqa: PLR0912 - a compiled loop pays for calls and tuples

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spark_cep.udfs.rows import opcodes as o
from spark_cep.udfs.rows.jit import jit

if TYPE_CHECKING:
    from spark_cep.udfs.rows.records import Conditions, Path


@jit
def push(path: Path, conditions: Conditions, variable: Any, row: Any) -> None:
    for which in range(path.sizes.shape[0]):
        if path.member[variable, which]:
            size = path.sizes[which]
            path.rows[which, size] = row
            path.sizes[which] = size + 1
    for fold in range(path.folds.shape[0]):
        which = path.folds[fold, 1]
        if path.member[variable, which]:
            _fold(path, conditions, fold, path.sizes[which], row)


@jit
def _fold(path: Path, conditions: Conditions, fold: Any, size: Any, row: Any) -> None:
    """The fold over `size` rows of its set, of which `row` is the last."""
    kind, column, values = path.folds[fold, 0], path.folds[fold, 2], path.folds[fold, 3]
    distinct = path.folds[fold, 4]
    count = path.counts[fold, size - 1]
    if column < 0:
        path.counts[fold, size] = count + 1
        return
    is_float = kind in (o.SUM_FLOAT, o.LEAST_FLOAT, o.MOST_FLOAT)
    if is_float:
        flag = conditions.float_flags[column, row]
        path.floats[values, size] = path.floats[values, size - 1]
    else:
        flag = conditions.int_flags[column, row]
        path.ints[values, size] = path.ints[values, size - 1]
    if distinct >= 0:
        code = path.codes[distinct, row]
        if code >= 0:
            path.seen[distinct, code] += 1
            if path.seen[distinct, code] > 1:
                flag = o.NULL
    if count < 0 or flag == o.NULL:
        path.counts[fold, size] = count
        return
    if flag != o.VALID:
        path.counts[fold, size] = -1
        return
    path.counts[fold, size] = count + 1
    if kind == o.COUNTED:
        return
    if is_float:
        value = conditions.float_columns[column, row]
        before = path.floats[values, size]
        if kind == o.SUM_FLOAT:
            path.floats[values, size] = before + value
        elif count == 0:
            path.floats[values, size] = value
        elif kind == o.LEAST_FLOAT:
            if less_float(value, before):
                path.floats[values, size] = value
        elif less_float(before, value):
            path.floats[values, size] = value
        return
    number = conditions.int_columns[column, row]
    earlier = path.ints[values, size]
    if kind == o.SUM_INT:
        # Unsigned: the compiler takes for granted that signed integers do not wrap around.
        total = np.int64(np.uint64(earlier) + np.uint64(number))
        if ((earlier ^ total) & (number ^ total)) < 0:
            path.counts[fold, size] = -1
        path.ints[values, size] = total
    elif (
        count == 0
        or (kind == o.LEAST_INT and number < earlier)
        or (kind == o.MOST_INT and number > earlier)
    ):
        path.ints[values, size] = number


@jit
def pop(path: Path, variable: Any, row: Any) -> None:
    for fold in range(path.folds.shape[0]):
        distinct = path.folds[fold, 4]
        if distinct >= 0 and path.member[variable, path.folds[fold, 1]]:
            code = path.codes[distinct, row]
            if code >= 0:
                path.seen[distinct, code] -= 1
    for which in range(path.sizes.shape[0]):
        if path.member[variable, which]:
            path.sizes[which] -= 1


@jit
def less_float(a: float, b: float) -> bool:
    """Spark's order: NaN is the largest."""
    return a < b or (b != b and a == a)  # noqa: PLR0124 - NaN


@jit
def same_float(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)  # noqa: PLR0124 - NaN


@jit
def anchored(reads: Any, read: Any, path: Path, begin: Any, row: Any) -> Any:
    """The row that a read starts from, -1 if there is none. `row` is the last of the path."""
    anchor, which, offset = reads[read, 0], reads[read, 1], reads[read, 2]
    if anchor == o.CURRENT:
        return row
    if which < 0:
        found = begin + offset if anchor == o.FIRST else row - offset
        return found if begin <= found <= row else -1
    size = path.sizes[which]
    if offset >= size:
        return -1
    return path.rows[which, offset if anchor == o.FIRST else size - 1 - offset]
