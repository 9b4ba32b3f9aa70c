"""The values of a bucket in the form that the kernel takes.

Every array has one type, whatever the program, so that one compiled kernel serves all programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.expressions import Constant
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.bounds import can_be_bounded
from spark_cep.udfs.rows.instructions import END_BIT, OVERFLOW_BIT
from spark_cep.udfs.rows.leaves import rows_ahead, rows_ahead_of_measures, split_conjuncts
from spark_cep.udfs.rows.records import (
    PAST_LAST,
    KernelConditions,
    KernelInstructions,
    KernelMemo,
    KernelPath,
    KernelRows,
)
from spark_cep.udfs.rows.table import condition_mask, expression_values
from spark_cep.udfs.values.arrow_values import to_single_array, validity
from spark_cep.udfs.values.codes import key_codes
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.bytecode import ValueColumn
    from spark_cep.udfs.rows.compiled import KernelProgram
    from spark_cep.udfs.rows.table import PartitionEnds, RowTable
    from spark_cep.udfs.values.arrow_values import Array


# The memory for the marks of a bucket. Rows so far ahead of a search that their marks do not fit
# have none, which only costs time.
MOST_MARK_WORDS: Final = 1 << 24
MERGED_PLACES: Final = 1 << 20
# Equal paths are merged once a partition has taken so many steps per row that was passed: most
# patterns take 2 to 5, and comparing paths costs more than a step.
MERGE_AFTER: Final = 16
# Searches get bounds once a partition has taken so many steps, 1 ms, and equal paths are merged.
BOUND_AFTER: Final = 1 << 16
# The steps that a partition may take if no limit is set: about a minute of work.
DEFAULT_STEP_LIMIT: Final = 4_000_000_000
# What a row costs beyond one step, in steps: testing a condition, each instruction of its bytecode,
# each set and each fold that is kept. With these a step takes 8 to 17 ns, whatever it tests.
CONDITION_CHARGE: Final = 4.0
OPERATION_CHARGE: Final = 0.4
SET_CHARGE: Final = 1.0
FOLD_CHARGE: Final = 0.6
_SKIPS: Final = ("past last row", "next row", "first", "last")
_LEAST_INT64: Final = -(1 << 63)
_EMPTY_ENTRY: Final = (1 << 64) - 1


# ---- instructions and memo ---------------------------------------------------------------------


def kernel_instructions(kernel_program: KernelProgram) -> KernelInstructions:
    program, code, memo = kernel_program.program, kernel_program.code, kernel_program.memo
    steps = program.limits.backtracking_steps
    settings = (
        code.entry,
        PAST_LAST + _SKIPS.index(program.skip.kind),
        int(program.rows == "all with unmatched"),
        rows_ahead_of_measures(program),
        DEFAULT_STEP_LIMIT if steps is None else steps,
        memo.words,
        MERGE_AFTER,
        BOUND_AFTER if can_be_bounded(kernel_program) else np.iinfo(np.int64).max,
        int(program.longest),
    )
    return KernelInstructions(
        code.op, code.first, code.second, code.label, kernel_program.first, memo.places,
        np.array(settings, np.int64),
    )  # fmt: skip


def kernel_memo(kernel_program: KernelProgram, table: RowTable) -> KernelMemo:
    """An empty memo for the rows of `table`."""
    layout = kernel_program.memo
    words, has_lists = layout.words, len(layout.bounds) > 1
    rows = min(table.size + len(table.begins), MOST_MARK_WORDS // words) if words else 0
    return KernelMemo(
        np.zeros(rows * words, np.uint64),
        layout.bounds,
        layout.keys,
        np.full(2 * MERGED_PLACES, _EMPTY_ENTRY, np.uint64)
        if has_lists
        else np.zeros(2, np.uint64),
    )


# ---- rows --------------------------------------------------------------------------------------


def kernel_rows(
    kernel_program: KernelProgram, table: RowTable, tally: ErrorTally, ends: PartitionEnds
) -> KernelRows:
    conditions = kernel_program.conditions
    overflows = len(conditions) > OVERFLOW_BIT
    may = np.full(table.size, END_BIT >> 1 if overflows else 0, np.uint64)
    more = np.ones((max(len(conditions) - OVERFLOW_BIT, 0), table.size), np.bool_)
    reach = np.zeros(len(conditions), np.int64)
    always = 0
    for variable, condition in enumerate(conditions):
        bit = 1 << variable
        if condition.physical is None:
            always |= bit if variable < OVERFLOW_BIT else 0
            continue
        holds = condition_mask(condition.physical, table, tally)
        reach[variable] = rows_ahead(condition.physical)
        if ends.any_open and reach[variable]:
            holds = _may_hold(condition.physical, holds, table, ends)
        if variable < OVERFLOW_BIT:
            may |= np.where(holds, np.uint64(bit), np.uint64(0))
        else:
            more[variable - OVERFLOW_BIT] = holds
    if always:
        may |= np.uint64(always)
    skip_to = np.zeros(len(conditions), np.bool_)
    skip_to[list(kernel_program.program.skip.variables)] = True
    return KernelRows(
        table.begins, table.ends, ends.parts, reach, may, more, _limits(table, ends), skip_to,
    )  # fmt: skip


def _may_hold(condition: Expression, holds: Array, table: RowTable, ends: PartitionEnds) -> Array:
    """Where the condition reads rows beyond an open end, it may hold, unless a conjunct that reads
    no such row is not TRUE."""
    may = np.ones(table.size, np.bool_)
    for conjunct in split_conjuncts(condition):
        # Errors were counted when the whole condition was evaluated.
        found = condition_mask(conjunct, table, ErrorTally(ansi=table.program.ansi))
        may &= found | ends.beyond_end(table, rows_ahead(conjunct))
    return np.where(ends.beyond_end(table, rows_ahead(condition)), may, holds)


def _limits(table: RowTable, ends: PartitionEnds) -> Array:
    limits = table.limits()
    if limits is None:
        return np.zeros(0, np.int64)
    limits = limits.astype(np.int64)
    if ends.any_open:
        may_grow = ends.open_rows(table) & ~table.closed_windows(ends.horizon)
        limits += (limits == table.end_of) & may_grow
    return limits


# ---- conditions --------------------------------------------------------------------------------


def kernel_conditions(
    kernel_program: KernelProgram, table: RowTable, ends: PartitionEnds
) -> KernelConditions:
    bytecode, state = kernel_program.bytecode, kernel_program.state
    ints, int_flags = _value_planes(state.ints, table, np.dtype(np.int64), ends)
    floats, float_flags = _value_planes(state.floats, table, np.dtype(np.float64), ends)
    return KernelConditions(
        np.array([condition.start for condition in kernel_program.conditions], np.int64),
        _charges(kernel_program),
        np.array(bytecode.code, np.int64).reshape(-1, 3),
        np.array([_constant(each, table) for each in bytecode.ints], np.int64),
        np.array(bytecode.floats, np.float64),
        np.array(state.reads, np.int64).reshape(-1, 5),
        ints, int_flags, floats, float_flags,
        np.zeros(bytecode.stack + 1, np.int64),
        np.zeros(bytecode.stack + 1, np.float64),
        np.zeros(bytecode.stack + 1, np.uint8),
    )  # fmt: skip


def _charges(kernel_program: KernelProgram) -> Array:
    """The steps that a row of each variable costs beyond one."""
    state, charges = kernel_program.state, []
    for variable, condition in enumerate(kernel_program.conditions):
        sets = sum(variable in each for each in state.sets)
        folds = sum(variable in state.sets[fold.which] for fold in state.folds)
        charge = SET_CHARGE * sets + FOLD_CHARGE * folds
        if condition.path is not None:
            charge += CONDITION_CHARGE + OPERATION_CHARGE * condition.length
        charges.append(round(charge))
    return np.array(charges, np.int64)


def _constant(value: int | Constant, table: RowTable) -> int:
    if isinstance(value, Constant):
        return int(table.columns.constant(value).values)
    return value


def _value_planes(
    columns: list[ValueColumn], table: RowTable, dtype: np.dtype[Any], ends: PartitionEnds
) -> tuple[Array, Array]:
    """The values of the columns and their flags, a line for each column."""
    values = np.zeros((len(columns), table.size), dtype)
    flags = np.zeros((len(columns), table.size), np.uint8)
    for place, column in enumerate(columns):
        failed = None
        if column.expression is not None:
            tally = ErrorTally(ansi=table.program.ansi)
            vector, failed = expression_values(column.expression, table, tally)
        else:
            assert column.column is not None
            vector = table.columns.every(column.column, column.type)
        if vector.valid is not None:
            flags[place][~vector.valid] = r.NULL
        if vector.values.dtype == object:
            values[place] = _fit_int64(vector.values, flags[place])
        elif column.type.kind != "other":  # of that only the flags are read
            values[place] = vector.values
        if failed is not None:
            flags[place][failed] = r.FAILED
        if column.expression is not None and ends.any_open:
            flags[place][ends.beyond_end(table, rows_ahead(column.expression))] = r.UNKNOWN
    return values, flags


def _fit_int64(values: Array, flags: Array) -> Array:
    """Wide decimals as 64-bit integers; those that do not fit are flagged."""
    fits = np.asarray((values >= _LEAST_INT64) & (values < -_LEAST_INT64), np.bool_)
    flags[~fits & (flags == r.VALID)] = r.UNFIT
    return np.where(fits, values, 0).astype(np.int64)


# ---- the path ----------------------------------------------------------------------------------


def kernel_path(kernel_program: KernelProgram, table: RowTable) -> KernelPath:
    state = kernel_program.state
    variables = range(len(kernel_program.conditions))
    member = np.array([[v in each for each in state.sets] for v in variables], np.bool_)
    longest = int((table.ends - table.begins).max(initial=0)) + 1
    folds = [(f.kind, f.which, f.column, f.values, f.distinct) for f in state.folds]
    floats = sum(fold.lines for fold in state.folds if fold.is_float)
    ints = sum(fold.lines for fold in state.folds if not fold.is_float)
    codes = [_distinct_codes(table, column) for column in state.distinct]
    most = max((int(each.max(initial=0)) for each in codes), default=0) + 1
    return KernelPath(
        member.reshape(len(variables), len(state.sets)),
        np.zeros((len(state.sets), longest), np.int32),
        np.zeros(len(state.sets), np.int64),
        np.array(folds, np.int64).reshape(-1, 5),
        np.zeros((ints, longest if ints else 1), np.int64),
        np.zeros((floats, longest if floats else 1), np.float64),
        np.zeros((len(folds), longest if folds else 1), np.int64),
        np.array(codes, np.int64).reshape(len(codes), table.size if codes else 0),
        np.zeros((len(codes), most), np.int32),
    )


def _distinct_codes(table: RowTable, column: int) -> Array:
    """A number for each value of a column, -1 for NULL."""
    shipped = table.shipped.column(column)
    codes = key_codes([shipped]).astype(np.int64)
    valid = validity(to_single_array(shipped))
    if valid is not None:
        codes = np.where(valid, codes, -1)
    return codes if table.permutation is None else codes[table.permutation]
