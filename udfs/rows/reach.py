"""How far a program looks: behind a row, before a search, and whether a search can look for ever.

All from the program alone: how many rows must be known before something is certain, and how many
must be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_cep.udfs.rows.leaves import leaves
from spark_cep.udfs.rows.program import Aggregate, MatchNumber, Read

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.program import Node, RowProgram


def ahead(expression: Expression) -> int:
    """How many rows behind the one it starts from an expression looks at most."""
    return max([0, *(read.shift for read in _reads(expression))])


def ahead_of_measures(program: RowProgram) -> int:
    """How many rows behind a match its measures look at most."""
    return max([0, *map(ahead, program.measures)])


def back(program: RowProgram) -> int:
    """How many rows before the one where a search begins are read at most."""
    return max([0, *(-read.shift for each in _expressions(program) for read in _reads(each))])


def counts_matches(program: RowProgram) -> bool:
    return any(
        isinstance(leaf, MatchNumber) for each in _expressions(program) for leaf in _leaves(each)
    )


def stays(program: RowProgram) -> bool:
    """Whether a partition leaves something behind also where none of its rows is undecided: rows
    that are read before a search, the number of its last match, that it has begun."""
    return bool(back(program)) or counts_matches(program) or has_anchor(program.pattern, "start")


def has_anchor(node: Node, kind: str) -> bool:
    """`kind`: "start" or "end"."""
    return node.kind == kind or any(has_anchor(part, kind) for part in node.parts)


def unbounded(program: RowProgram) -> str | None:
    """Why a search can stay undecided for ever while rows come; None if it cannot.

    A pattern without repetitions is decided a few rows after its first; WITHIN decides any, except
    that `$` is known to hold only when no row comes any more.
    """
    if has_anchor(program.pattern, "end"):
        return "$ stands for the end of a partition, which a stream does not have"
    if program.within is not None:
        return None
    repeated = _endless(program.pattern)
    if repeated is None:
        return None
    names = sorted({program.variables[each].name for each in _variables(repeated)})
    return f"the repetition of {', '.join(names)} has no upper bound, and there is no WITHIN"


def _endless(node: Node) -> Node | None:
    if node.kind == "repeat" and node.high is None and any(True for _ in _variables(node)):
        return node
    if node.kind == "repeat" and node.high == 0:
        return None
    return next((found for part in node.parts if (found := _endless(part)) is not None), None)


def _variables(node: Node) -> Iterator[int]:
    if node.kind == "variable":
        yield node.variable
    for part in node.parts:
        yield from _variables(part)


def _expressions(program: RowProgram) -> Iterator[Expression]:
    yield from (each.define for each in program.variables if each.define is not None)
    yield from program.measures


def _leaves(expression: Expression) -> Iterator[Expression]:
    for leaf in leaves(expression):
        yield leaf
        if isinstance(leaf, Aggregate) and leaf.argument is not None:
            yield from leaves(leaf.argument)


def _reads(expression: Expression) -> Iterator[Read]:
    return (leaf for leaf in _leaves(expression) if isinstance(leaf, Read))
