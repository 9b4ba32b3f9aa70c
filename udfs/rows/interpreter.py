"""Compiled: keeps what conditions read of the path, and runs the bytecode of conditions.

FALSE stands for NULL too: a condition that is not TRUE rejects the row. An ANSI error ends the
evaluation and rejects; if 64 bits cannot hold a value, Python has to evaluate the condition; and a
condition that reads beyond the last row of an open partition has to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.jit import jit

if TYPE_CHECKING:
    from spark_cep.udfs.rows.records import KernelConditions, KernelPath


_INT_LEAST: Final = np.iinfo(np.int64).min
_INT_MOST: Final = np.iinfo(np.int64).max
_BEYOND_INT64: Final = 1e19
_EXACT_DOUBLE: Final = 1 << 53


# ---- the path ----------------------------------------------------------------------------------
#
# Each fold is kept for each number of rows that its set has had on this path, so going back only
# forgets and computes nothing. Only the counts of distinct values have to be undone.


@jit
def push_row(path: KernelPath, conditions: KernelConditions, variable: Any, row: Any) -> None:
    for which in range(path.sizes.shape[0]):
        if path.member[variable, which]:
            size = path.sizes[which]
            path.rows[which, size] = row
            path.sizes[which] = size + 1
    for fold in range(path.folds.shape[0]):
        which = path.folds[fold, 1]
        if path.member[variable, which]:
            if path.folds[fold, 0] < r.SPREAD:
                _fold_row(path, conditions, fold, path.sizes[which], row)
            else:
                _fold_more(path, conditions, fold, path.sizes[which], row)


@jit
def _fold_row(
    path: KernelPath, conditions: KernelConditions, fold: Any, size: Any, row: Any
) -> None:
    """Computes the fold over the first `size` rows of its set; `row` is the last of them."""
    kind, column, values = path.folds[fold, 0], path.folds[fold, 2], path.folds[fold, 3]
    distinct = path.folds[fold, 4]
    count = path.counts[fold, size - 1]
    if column < 0:
        path.counts[fold, size] = count + 1
        return
    is_float = kind in (r.SUM_FLOAT, r.LEAST_FLOAT, r.MOST_FLOAT)
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
                flag = r.NULL
    if count < 0 or flag == r.NULL:
        path.counts[fold, size] = count
        return
    if flag != r.VALID:
        path.counts[fold, size] = -1
        return
    path.counts[fold, size] = count + 1
    if kind == r.COUNTED:
        return
    if is_float:
        value = conditions.float_columns[column, row]
        before = path.floats[values, size]
        if kind == r.SUM_FLOAT:
            path.floats[values, size] = before + value
        elif count == 0:
            path.floats[values, size] = value
        elif kind == r.LEAST_FLOAT:
            if less_float(value, before):
                path.floats[values, size] = value
        elif less_float(before, value):
            path.floats[values, size] = value
        return
    number = conditions.int_columns[column, row]
    earlier = path.ints[values, size]
    if kind == r.SUM_INT:
        # Unsigned: the compiler assumes that signed integers do not wrap around.
        total = np.int64(np.uint64(earlier) + np.uint64(number))
        if ((earlier ^ total) & (number ^ total)) < 0:
            path.counts[fold, size] = -1
        path.ints[values, size] = total
    elif (
        count == 0
        or (kind == r.LEAST_INT and number < earlier)
        or (kind == r.MOST_INT and number > earlier)
    ):
        path.ints[values, size] = number


@jit
def _fold_more(
    path: KernelPath, conditions: KernelConditions, fold: Any, size: Any, row: Any
) -> None:
    """The same for spreads, rows of extremes and bits. Apart, because with them the function above
    is too large to be inlined, which took a quarter more time."""
    kind, column, values = path.folds[fold, 0], path.folds[fold, 2], path.folds[fold, 3]
    distinct = path.folds[fold, 4]
    count = path.counts[fold, size - 1]
    path.counts[fold, size] = count
    if kind == r.SPREAD:
        path.floats[values, size] = path.floats[values, size - 1]
        path.floats[values + 1, size] = path.floats[values + 1, size - 1]
    else:
        path.ints[values, size] = path.ints[values, size - 1]
    if kind in (r.LEAST_AT_INT, r.MOST_AT_INT) or kind >= r.FIRST_AT:
        flag = conditions.int_flags[column, row]
    else:
        flag = conditions.float_flags[column, row]
    if distinct >= 0:
        code = path.codes[distinct, row]
        if code >= 0:
            path.seen[distinct, code] += 1
            if path.seen[distinct, code] > 1:
                flag = r.NULL
    if count < 0 or flag == r.NULL:
        return
    if flag != r.VALID:
        path.counts[fold, size] = -1
        return
    path.counts[fold, size] = count + 1
    _add_value(path, conditions, fold, size, row)


@jit
def _add_value(
    path: KernelPath, conditions: KernelConditions, fold: Any, size: Any, row: Any
) -> None:
    """One more value of a spread, by the operations of Spark in their order, or a row that may be
    better; of equal rows the last is."""
    kind, column, values = path.folds[fold, 0], path.folds[fold, 2], path.folds[fold, 3]
    count = path.counts[fold, size] - 1
    if kind == r.SPREAD:
        if count == 0:
            path.floats[values, size] = 0.0
            path.floats[values + 1, size] = 0.0
        delta = conditions.float_columns[column, row] - path.floats[values, size]
        step = delta / (np.float64(count) + 1.0)
        path.floats[values, size] += step
        path.floats[values + 1, size] += delta * (delta - step)
        return
    found = path.ints[values, size]
    if kind >= r.BIT_AND:
        number = conditions.int_columns[column, row]
        if count == 0:
            path.ints[values, size] = number
        elif kind == r.BIT_AND:
            path.ints[values, size] = found & number
        elif kind == r.BIT_OR:
            path.ints[values, size] = found | number
        else:
            path.ints[values, size] = found ^ number
        return
    if count == 0 or kind == r.LAST_AT:
        is_worse = False
    elif kind == r.FIRST_AT:
        is_worse = True
    elif kind == r.LEAST_AT_INT:
        is_worse = conditions.int_columns[column, row] > conditions.int_columns[column, found]
    elif kind == r.MOST_AT_INT:
        is_worse = conditions.int_columns[column, row] < conditions.int_columns[column, found]
    else:
        value = conditions.float_columns[column, row]
        before = conditions.float_columns[column, found]
        if kind == r.LEAST_AT_FLOAT:
            is_worse = less_float(before, value)
        else:
            is_worse = less_float(value, before)
    if not is_worse:
        path.ints[values, size] = row


@jit
def pop_row(path: KernelPath, variable: Any, row: Any) -> None:
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
def find_anchor_row(reads: Any, read: Any, path: KernelPath, begin: Any, row: Any) -> Any:
    """The row that a read starts from, -1 if there is none. `row` is the last row of the path."""
    anchor, which, offset = reads[read, 0], reads[read, 1], reads[read, 2]
    if anchor == r.CURRENT:
        return row
    if which < 0:
        found = begin + offset if anchor == r.FIRST else row - offset
        return found if begin <= found <= row else -1
    size = path.sizes[which]
    if offset >= size:
        return -1
    return path.rows[which, offset if anchor == r.FIRST else size - 1 - offset]


# ---- evaluation --------------------------------------------------------------------------------


@jit
def _arithmetic(operator: Any, a: Any, b: Any) -> Any:
    """+ - * in 64 bits, and whether the result wrapped around. The compiler assumes that signed
    integers do not wrap around, so it is computed on unsigned ones."""
    x, y = np.uint64(a), np.uint64(b)
    if operator == 0:
        result = np.int64(x + y)
        return result, ((a ^ result) & (b ^ result)) < 0
    if operator == 1:
        result = np.int64(x - y)
        return result, ((a ^ b) & (a ^ result)) < 0
    result = np.int64(x * y)
    about = np.float64(a) * np.float64(b)
    if abs(about) > _BEYOND_INT64:
        return result, True
    # So close to the limit, a result that wrapped around has the other sign.
    return result, (result < 0) != (about < 0) and about != 0


@jit
def _narrow(value: Any, bits: Any) -> Any:
    """The value truncated to so many bits, as two's complement."""
    if bits == 64:
        return value
    kept = value & ((np.int64(1) << bits) - 1)
    return kept - (np.int64(1) << bits) if kept >> (bits - 1) else kept


@jit
def evaluate_condition(
    conditions: KernelConditions,
    path: KernelPath,
    labels: Any,
    base: Any,
    at: Any,
    begin: Any,
    row: Any,
    edges: Any,
    number: Any,
) -> Any:
    """Whether the condition whose bytecode begins at `at` is TRUE for `row`, the last of the path.
    `edges`: the first row of the partition, the position after its last row, and whether it is
    open."""
    code = conditions.code
    ints, floats, flags = conditions.stack_int, conditions.stack_float, conditions.stack_flag
    top = -1
    while True:
        op, a, b = code[at, 0], code[at, 1], code[at, 2]
        at += 1
        if op == r.OP_END:
            return r.TRUE if flags[top] == r.VALID and ints[top] != 0 else r.FALSE
        if op <= r.OP_LABEL:
            top += 1
            flags[top] = r.VALID
            if op == r.OP_INT:
                ints[top] = conditions.ints[a]
            elif op == r.OP_FLOAT:
                floats[top] = conditions.floats[a]
            elif op == r.OP_NULL:
                flags[top] = r.NULL
            else:
                found = find_anchor_row(conditions.reads, a, path, begin, row)
                if found >= 0:
                    found += conditions.reads[a, 3]
                    if found >= edges[1] and edges[2] and op != r.OP_LABEL:
                        return r.NEEDS_LATER_ROW
                    if found < edges[0] or found >= edges[1]:
                        found = -1
                column = conditions.reads[a, 4]
                if found < 0:
                    flags[top] = r.NULL
                elif op == r.OP_READ_INT:
                    ints[top] = conditions.int_columns[column, found]
                    flags[top] = conditions.int_flags[column, found]
                elif op == r.OP_READ_FLOAT:
                    floats[top] = conditions.float_columns[column, found]
                    flags[top] = conditions.float_flags[column, found]
                elif op == r.OP_EXISTS:
                    ints[top] = 1
                elif found < begin or found > row:
                    flags[top] = r.NULL
                else:
                    ints[top] = labels[base + found - begin] >> 1
        elif op == r.OP_MATCH_NUMBER:
            top += 1
            flags[top] = r.VALID
            ints[top] = number
        elif op <= r.OP_MEAN_INT:
            top += 1
            flags[top] = r.VALID
            values = path.folds[a, 3]
            size = path.sizes[path.folds[a, 1]]
            count = path.counts[a, size]
            if count < 0:
                return r.NEEDS_PYTHON
            if op == r.OP_COUNT:
                ints[top] = count
            elif count == 0:
                flags[top] = r.NULL
            elif op == r.OP_FOLD_INT:
                ints[top] = path.ints[values, size]
            elif op == r.OP_FOLD_FLOAT:
                floats[top] = path.floats[values, size]
            elif op == r.OP_MEAN_FLOAT:
                floats[top] = path.floats[values, size] / count
            else:
                total, wrapped = _arithmetic(2, path.ints[values, size], b)
                if wrapped or abs(total) >= _INT_MOST // 4:
                    return r.NEEDS_PYTHON
                half = (2 * abs(total) + count) // (2 * count)
                ints[top] = -half if total < 0 else half
        elif op == r.OP_AND_SKIP:
            if flags[top] == r.VALID and ints[top] == 0:
                at = a
        elif op == r.OP_OR_SKIP:
            if flags[top] == r.VALID and ints[top] != 0:
                at = a
        elif op in (r.OP_AND, r.OP_OR):
            top -= 1
            decides = 0 if op == r.OP_AND else 1
            if flags[top + 1] == r.VALID and ints[top + 1] == decides:
                ints[top] = decides
                flags[top] = r.VALID
            elif flags[top] == r.VALID and ints[top] != decides:
                ints[top] = 1 - decides
                flags[top] = flags[top + 1]
        elif op == r.OP_NOT:
            ints[top] = 1 - ints[top]
        elif op == r.OP_JUMP:
            at = a
        elif op == r.OP_JUMP_UNLESS:
            if not (flags[top] == r.VALID and ints[top] != 0):
                at = a
            top -= 1
        elif op == r.OP_JUMP_IF_VALUE:
            if flags[top] == r.VALID:
                at = a
            else:
                top -= 1
        elif op == r.OP_IS_NULL:
            ints[top] = 1 if flags[top] == r.NULL else 0
            flags[top] = r.VALID
        elif op == r.OP_IS_NAN:
            value = floats[top]
            is_nan = flags[top] == r.VALID and value != value  # noqa: PLR0124
            ints[top] = 1 if is_nan else 0
            flags[top] = r.VALID
        elif op <= r.OP_SAME_FLOAT:
            top -= 1
            has_null = flags[top] == r.NULL or flags[top + 1] == r.NULL
            if op in (r.OP_SAME_INT, r.OP_SAME_FLOAT):
                if has_null:
                    same = flags[top] == flags[top + 1]
                elif op == r.OP_SAME_INT:
                    same = ints[top] == ints[top + 1]
                else:
                    same = same_float(floats[top], floats[top + 1])
                ints[top] = 1 if same else 0
                flags[top] = r.VALID
            elif has_null:
                flags[top] = r.NULL
            else:
                if op == r.OP_COMPARE_INT:
                    less = ints[top] < ints[top + 1]
                    same = ints[top] == ints[top + 1]
                else:
                    less = less_float(floats[top], floats[top + 1])
                    same = same_float(floats[top], floats[top + 1])
                if a == 0:
                    truth = same
                elif a == 1:
                    truth = not same
                elif a == 2:
                    truth = less
                elif a == 3:
                    truth = less or same
                elif a == 4:
                    truth = not (less or same)
                else:
                    truth = not less
                ints[top] = 1 if truth else 0
        elif op <= r.OP_DIVIDE_INT:
            top -= 1
            if flags[top] == r.NULL or flags[top + 1] == r.NULL:
                flags[top] = r.NULL
            elif op == r.OP_ARITHMETIC_FLOAT:
                x, y = floats[top], floats[top + 1]
                if a == 0:
                    floats[top] = x + y
                elif a == 1:
                    floats[top] = x - y
                elif a == 2:
                    floats[top] = x * y
                elif y == 0:
                    if b:
                        return r.ERROR
                    flags[top] = r.NULL
                elif a == 3:
                    floats[top] = x / y
                else:
                    floats[top] = np.fmod(x, y)
            elif op == r.OP_DIVIDE_INT:
                m, n = ints[top], ints[top + 1]
                if n == 0:
                    if b:
                        return r.ERROR
                    flags[top] = r.NULL
                elif n == -1:
                    if a == 5 and m == _INT_LEAST and b:
                        return r.ERROR
                    ints[top] = -m if a == 5 else 0
                else:
                    quotient = m // n  # floored; SQL truncates towards zero
                    if quotient * n != m and (m < 0) != (n < 0):
                        quotient += 1
                    ints[top] = quotient if a == 5 else m - quotient * n
            else:
                value, wrapped = _arithmetic(a, ints[top], ints[top + 1])
                if op == r.OP_ARITHMETIC_WIDE:
                    if wrapped:
                        return r.NEEDS_PYTHON
                    ints[top] = value
                else:
                    small = _narrow(value, abs(b))
                    if (wrapped or small != value) and b > 0:
                        return r.ERROR
                    ints[top] = small
        elif op == r.OP_NEGATE_INT:
            value = ints[top]
            if a == 0 or value < 0:
                small = _narrow(-value, abs(b)) if b else -value
                if b > 0 and (small != -value or value == _INT_LEAST) and flags[top] == r.VALID:
                    return r.ERROR
                ints[top] = small
        elif op == r.OP_NEGATE_FLOAT:
            floats[top] = abs(floats[top]) if a else -floats[top]
        elif op == r.OP_INT_TO_FLOAT:
            floats[top] = float(ints[top])
        elif op == r.OP_ROUND:
            floats[top] = np.float64(np.float32(floats[top]))
        elif op == r.OP_SCALE:
            if flags[top] == r.VALID:
                value, wrapped = _arithmetic(2, ints[top], a)
                if wrapped:
                    return r.NEEDS_PYTHON
                ints[top] = value
        elif op == r.OP_DIGITS:
            if flags[top] == r.VALID and (ints[top] >= a or ints[top] <= -a):
                if b:
                    return r.ERROR
                flags[top] = r.NULL
        elif op >= r.OP_SPREAD:
            top += 1
            flags[top] = r.VALID
            values = path.folds[a, 3]
            size = path.sizes[path.folds[a, 1]]
            count = path.counts[a, size]
            if count < 0:
                return r.NEEDS_PYTHON
            if op == r.OP_SPREAD:
                divisor = count - (b & r.SAMPLE)
                if divisor <= 0:
                    flags[top] = r.NULL
                else:
                    spread = path.floats[values + 1, size] / np.float64(divisor)
                    floats[top] = np.sqrt(spread) if b & r.ROOT else spread
            elif count == 0:
                flags[top] = r.NULL
            elif op == r.OP_AT_INT:
                ints[top] = conditions.int_columns[b, path.ints[values, size]]
                flags[top] = conditions.int_flags[b, path.ints[values, size]]
            else:
                floats[top] = conditions.float_columns[b, path.ints[values, size]]
                flags[top] = conditions.float_flags[b, path.ints[values, size]]
        elif op == r.OP_DECIMAL_TO_FLOAT:
            if flags[top] == r.VALID:
                if abs(ints[top]) > _EXACT_DOUBLE or ints[top] == _INT_LEAST:
                    return r.NEEDS_PYTHON
                floats[top] = float(ints[top]) / float(a)
        else:
            top -= 1
            if flags[top + 1] == r.VALID:
                if op == r.OP_EXTREME_INT:
                    smaller = ints[top + 1] < ints[top]
                    larger = ints[top + 1] > ints[top]
                else:
                    smaller = less_float(floats[top + 1], floats[top])
                    larger = less_float(floats[top], floats[top + 1])
                if flags[top] == r.NULL or (larger if a else smaller):
                    ints[top] = ints[top + 1]
                    floats[top] = floats[top + 1]
                    flags[top] = r.VALID
        if top >= 0 and flags[top] >= r.UNFIT:
            if flags[top] == r.UNKNOWN:
                return r.NEEDS_LATER_ROW
            return r.NEEDS_PYTHON if flags[top] == r.UNFIT else r.ERROR
