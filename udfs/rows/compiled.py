"""A row program made ready for the kernel, as far as that needs no rows.

    flatten -> split each DEFINE -> bytecode -> needs

Each DEFINE is split at its ANDs: what depends on the row and its neighbours alone becomes a
column of booleans for the whole bucket; the rest is tested along the path, as bytecode, or in
Python where there is no bytecode for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.errors import CepError, PatternError
from spark_cep.udfs.expressions import BOOL, Call
from spark_cep.udfs.row_program import RowRead
from spark_cep.udfs.rows.bytecode import Bytecode, ConditionReads, UnsupportedExpression
from spark_cep.udfs.rows.instructions import ANYTHING, InstructionList, PathNeed, flatten_pattern
from spark_cep.udfs.rows.leaves import is_physical, leaves_of, resolve_tested_row, split_conjuncts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowProgram


NO_BYTECODE: Final = -1
PYTHON_CONDITION: Final = -2


@dataclass(frozen=True)
class CompiledDefine:
    """A variable's condition. `start`: where the bytecode of `path` begins."""

    physical: Expression | None
    path: Expression | None
    start: int
    needs: frozenset[PathNeed]


@dataclass(frozen=True)
class KernelProgram:
    program: RowProgram
    code: InstructionList
    conditions: tuple[CompiledDefine, ...]
    state: ConditionReads
    bytecode: Bytecode


def compile_kernel_program(program: RowProgram) -> KernelProgram:
    """Raises PatternError where the program cannot be run."""
    if program.within is not None and program.within.kind != "time":
        raise PatternError(
            "a row pattern's WITHIN cannot count events",
            hint="give a length of time, or bound the repetitions in the pattern: b{1,10}",
        )
    state, bytecode = ConditionReads(program), Bytecode()
    conditions = tuple(
        _compile_define(variable.define, number, state, bytecode)
        for number, variable in enumerate(program.variables)
    )
    return KernelProgram(program, flatten_pattern(program.pattern), conditions, state, bytecode)


def refusal_reason(program: RowProgram) -> str | None:
    """Why the program cannot be run, for the driver to say before any job; None if it can."""
    try:
        compile_kernel_program(program)
    except CepError as error:
        return str(error)
    return None


def _compile_define(
    define: Expression | None, variable: int, state: ConditionReads, bytecode: Bytecode
) -> CompiledDefine:
    if define is None:
        return CompiledDefine(None, None, NO_BYTECODE, frozenset())
    parts = list(split_conjuncts(resolve_tested_row(define, variable)))
    physical = _conjunction([part for part in parts if is_physical(part)])
    path = _conjunction([part for part in parts if not is_physical(part)])
    if path is None:
        return CompiledDefine(physical, None, NO_BYTECODE, frozenset())
    try:
        start = bytecode.compiled(path, state)
    except UnsupportedExpression:
        return CompiledDefine(physical, path, PYTHON_CONDITION, frozenset([ANYTHING]))
    found = [leaf for leaf in leaves_of(path) if not _is_current(leaf)]
    return CompiledDefine(physical, path, start, frozenset(map(state.needs, found)))


def _is_current(leaf: Expression) -> bool:
    return isinstance(leaf, RowRead) and leaf.anchor == "current"


def _conjunction(parts: Sequence[Expression]) -> Expression | None:
    return reduce(lambda a, b: Call("and", (a, b), BOOL), parts) if parts else None
