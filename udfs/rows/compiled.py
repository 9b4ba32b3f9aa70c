"""A row pattern compiled for the kernel: all that needs no rows, done once on the driver.

    split each DEFINE -> bytecode -> pattern as instructions -> what failures to remember

Each DEFINE is split at its ANDs: what depends on the row and its neighbours alone becomes a
column of booleans for the whole bucket; the rest is tested along the path, as bytecode, or in
Python where there is no bytecode for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from spark_cep.udfs.errors import PatternError
from spark_cep.udfs.row_program import RowRead
from spark_cep.udfs.rows.bytecode import Bytecode, ConditionReads, UnsupportedExpression
from spark_cep.udfs.rows.instructions import (
    ANYTHING,
    InstructionList,
    PathNeed,
    first_variables,
    flatten_pattern,
    memo_keys,
    merge_points,
    path_needs,
)
from spark_cep.udfs.rows.leaves import (
    conjunction,
    is_physical,
    leaves_of,
    resolve_tested_row,
    split_conjuncts,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowProgram


NO_BYTECODE: Final = -1
PYTHON_CONDITION: Final = -2


@dataclass(frozen=True)
class CompiledDefine:
    """A variable's condition. `start`: where the bytecode of `path` begins; `length`: of it."""

    physical: Expression | None
    path: Expression | None
    start: int
    needs: frozenset[PathNeed]
    length: int = 0


@dataclass(frozen=True)
class CompiledDefines:
    """The conditions of all variables, by number, what they read, and their bytecode."""

    conditions: tuple[CompiledDefine, ...]
    state: ConditionReads
    bytecode: Bytecode


@dataclass(frozen=True)
class MemoLayout:
    """Which failures the kernel remembers. `places`: for each instruction the place of its mark,
    -1 for none, or -2 - n where failures are told apart by list n of `keys`. `words`: of marks,
    for each row. `bounds`: where each list begins in `keys`."""

    places: npt.NDArray[np.int32]
    words: int
    bounds: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]


@dataclass(frozen=True)
class KernelProgram:
    """`first`: for each instruction the variables that a row may be next, as bits."""

    program: RowProgram
    code: InstructionList
    first: npt.NDArray[np.uint64]
    conditions: tuple[CompiledDefine, ...]
    state: ConditionReads
    bytecode: Bytecode
    memo: MemoLayout


def compile_kernel_program(program: RowProgram) -> KernelProgram:
    """Raises PatternError where the kernel cannot run the program."""
    if program.within is not None and program.within.kind != "time":
        raise PatternError(
            "a row pattern's WITHIN cannot count events",
            hint="give a length of time, or bound the repetitions in the pattern: b{1,10}",
        )
    defines = compile_defines(program)
    code = flatten_pattern(program.pattern)
    return KernelProgram(
        program,
        code,
        first_variables(code),
        defines.conditions,
        defines.state,
        defines.bytecode,
        _lay_out_memo(program, code, defines),
    )


def compile_defines(program: RowProgram) -> CompiledDefines:
    state, bytecode = ConditionReads(program), Bytecode()
    conditions = tuple(
        _compile_define(variable.define, number, state, bytecode)
        for number, variable in enumerate(program.variables)
    )
    return CompiledDefines(conditions, state, bytecode)


def _lay_out_memo(
    program: RowProgram, code: InstructionList, defines: CompiledDefines
) -> MemoLayout:
    needs = [define.needs for define in defines.conditions]
    needed = path_needs(code, needs, defines.state.sets)
    places = np.full(len(code.op), -1, np.int32)
    lists: dict[frozenset[PathNeed], int] = {}
    bounds: list[int] = [0]
    keys: list[tuple[int, ...]] = []
    marks = 0
    for here in np.flatnonzero(merge_points(code)).tolist():
        if not needed[here]:
            places[here] = marks
            marks += 1
            continue
        if needed[here] not in lists:
            is_bounded = program.within is not None or (
                program.frame is not None and program.frame.is_bounded
            )
            found = memo_keys(needed[here], defines.state.path_reads, is_bounded)
            if found is None:
                continue
            lists[needed[here]] = len(bounds) - 1
            keys += found
            bounds.append(len(keys))
        places[here] = -2 - lists[needed[here]]
    return MemoLayout(
        places,
        -(-marks // 64),
        np.array(bounds, np.int64),
        np.array(keys, np.int64).reshape(-1, 8),
    )


def _compile_define(
    define: Expression | None, variable: int, state: ConditionReads, bytecode: Bytecode
) -> CompiledDefine:
    if define is None:
        return CompiledDefine(None, None, NO_BYTECODE, frozenset())
    parts = list(split_conjuncts(resolve_tested_row(define, variable)))
    physical = conjunction([part for part in parts if is_physical(part)])
    path = conjunction([part for part in parts if not is_physical(part)])
    if path is None:
        return CompiledDefine(physical, None, NO_BYTECODE, frozenset())
    try:
        start = bytecode.compile_condition(path, state)
    except UnsupportedExpression:
        return CompiledDefine(physical, path, PYTHON_CONDITION, frozenset([ANYTHING]))
    found = [leaf for leaf in leaves_of(path) if not _is_current(leaf)]
    needs = frozenset(map(state.needs, found))
    return CompiledDefine(physical, path, start, needs, len(bytecode.code) - start)


def _is_current(leaf: Expression) -> bool:
    return isinstance(leaf, RowRead) and leaf.anchor == "current"
