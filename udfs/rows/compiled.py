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
from spark_cep.udfs.rows.bytecode import Bytecode, Unknown
from spark_cep.udfs.rows.flatten import Code, flatten
from spark_cep.udfs.rows.leaves import conjuncts, is_physical, leaves, under_test
from spark_cep.udfs.rows.needs import ANYTHING, Need
from spark_cep.udfs.rows.program import Read
from spark_cep.udfs.rows.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.program import RowProgram

NOTHING: Final = -1
PYTHON: Final = -2


@dataclass(frozen=True)
class Tested:
    """A variable's condition. `start`: where the bytecode of `path` begins."""

    physical: Expression | None
    path: Expression | None
    start: int
    needs: frozenset[Need]


@dataclass(frozen=True)
class Compiled:
    program: RowProgram
    code: Code
    conditions: tuple[Tested, ...]
    state: State
    bytecode: Bytecode


def compiled(program: RowProgram) -> Compiled:
    """Raises PatternError where the program cannot be run."""
    if program.within is not None and program.within.kind != "time":
        raise PatternError(
            "a row pattern's WITHIN cannot count events",
            hint="give a length of time, or bound the repetitions in the pattern: b{1,10}",
        )
    state, bytecode = State(program), Bytecode()
    conditions = tuple(
        _tested(variable.define, number, state, bytecode)
        for number, variable in enumerate(program.variables)
    )
    return Compiled(program, flatten(program.pattern), conditions, state, bytecode)


def refusal(program: RowProgram) -> str | None:
    """Why the program cannot be run, for the driver to say before any job; None if it can."""
    try:
        compiled(program)
    except CepError as error:
        return str(error)
    return None


def _tested(define: Expression | None, variable: int, state: State, bytecode: Bytecode) -> Tested:
    if define is None:
        return Tested(None, None, NOTHING, frozenset())
    parts = list(conjuncts(under_test(define, variable)))
    physical = _all([part for part in parts if is_physical(part)])
    path = _all([part for part in parts if not is_physical(part)])
    if path is None:
        return Tested(physical, None, NOTHING, frozenset())
    try:
        start = bytecode.compiled(path, state)
    except Unknown:
        return Tested(physical, path, PYTHON, frozenset([ANYTHING]))
    found = [leaf for leaf in leaves(path) if not _is_current(leaf)]
    return Tested(physical, path, start, frozenset(map(state.needs, found)))


def _is_current(leaf: Expression) -> bool:
    return isinstance(leaf, Read) and leaf.anchor == "current"


def _all(parts: Sequence[Expression]) -> Expression | None:
    return reduce(lambda a, b: Call("and", (a, b), BOOL), parts) if parts else None
