"""How far a program looks: behind a row, before a search, and whether a search can look for ever.

All from the program alone: how many rows must be known before something is certain, and how many
must be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_cep.udfs.expressions import Call, Cell, Constant, UserCall
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowPatternNode, RowProgram


# --------------------------------------------------------------------------------------------------
# What conditions and measures read, told apart from what they compute of it.
#
# The engine's evaluator knows one kind of leaf, a `Cell` of a variable. Here the reads of a row
# pattern become cells whose "variable" is the read's place in a list, so that the same evaluator
# serves both: it asks for cell n and gets what read n gives.
# --------------------------------------------------------------------------------------------------


LEAVES = (RowRead, Aggregate, Classifier, MatchNumber)


def leaves_of(expression: Expression) -> Iterator[Expression]:
    return (node for node in expression.walk() if isinstance(node, LEAVES))


def is_physical(expression: Expression) -> bool:
    """Whether the value depends on the row under test and its neighbours alone."""
    return all(
        isinstance(leaf, RowRead) and leaf.anchor == "current" for leaf in leaves_of(expression)
    )


def replace_with_cells(expression: Expression, read: list[Expression]) -> Expression:
    """The expression over cells; `read` gets the leaves, each once."""
    if isinstance(expression, LEAVES):
        if expression not in read:
            read.append(expression)
        column = getattr(expression, "column", None)
        return Cell(read.index(expression), column, expression.type)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(replace_with_cells(each, read) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression


def resolve_tested_row(expression: Expression, variable: int) -> Expression:
    """A DEFINE as it is tested: what names the row under test in another way reads that row.

    The last row of A while A is being tested is the row under test, so `PREV(A.x)` needs no path.
    """
    if isinstance(expression, RowRead | Classifier):
        return _resolve_leaf(expression, variable)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(resolve_tested_row(each, variable) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression


def _resolve_leaf(leaf: RowRead | Classifier, variable: int) -> Expression:
    names_it = leaf.variables is None or variable in leaf.variables
    if leaf.anchor == "last" and leaf.offset == 0 and names_it:
        leaf = replace(leaf, anchor="current", variables=None)
    if not isinstance(leaf, Classifier):
        return leaf
    if leaf.anchor == "current" and leaf.shift == 0:
        return Constant(variable, leaf.type)
    if leaf.anchor == "current" and leaf.shift < 0:
        # The row so many before it: within the match, its rows lie side by side.
        return replace(leaf, anchor="last", offset=-leaf.shift, shift=0)
    return leaf


def split_conjuncts(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Call) and expression.name == "and":
        for argument in expression.arguments:
            yield from split_conjuncts(argument)
    else:
        yield expression


def rows_ahead(expression: Expression) -> int:
    """How many rows behind the one it starts from an expression looks at most."""
    return max([0, *(read.shift for read in _row_reads(expression))])


def rows_ahead_of_measures(program: RowProgram) -> int:
    """How many rows behind a match its measures look at most."""
    return max([0, *map(rows_ahead, program.measures)])


def rows_back(program: RowProgram) -> int:
    """How many rows before the one where a search begins are read at most."""
    return max([0, *(-read.shift for each in _expressions(program) for read in _row_reads(each))])


def reads_match_number(program: RowProgram) -> bool:
    return any(
        isinstance(leaf, MatchNumber)
        for each in _expressions(program)
        for leaf in _all_leaves(each)
    )


def keeps_partitions(program: RowProgram) -> bool:
    """Whether a partition leaves something behind also where none of its rows is undecided: rows
    that are read before a search, the number of its last match, that it has begun."""
    return (
        bool(rows_back(program))
        or reads_match_number(program)
        or has_anchor(program.pattern, "start")
    )


def has_anchor(node: RowPatternNode, kind: str) -> bool:
    """`kind`: "start" or "end"."""
    return node.kind == kind or any(has_anchor(part, kind) for part in node.parts)


def unbounded_reason(program: RowProgram) -> str | None:
    """Why a search can stay undecided for ever while rows come; None if it cannot.

    A pattern without repetitions is decided a few rows after its first; WITHIN decides any, except
    that `$` is known to hold only when no row comes any more.
    """
    if has_anchor(program.pattern, "end"):
        return "$ stands for the end of a partition, which a stream does not have"
    if program.within is not None:
        return None
    repeated = _unbounded_repeat(program.pattern)
    if repeated is None:
        return None
    names = sorted({program.variables[each].name for each in _variables(repeated)})
    return f"the repetition of {', '.join(names)} has no upper bound, and there is no WITHIN"


def _unbounded_repeat(node: RowPatternNode) -> RowPatternNode | None:
    if node.kind == "repeat" and node.high is None and any(True for _ in _variables(node)):
        return node
    if node.kind == "repeat" and node.high == 0:
        return None
    return next(
        (found for part in node.parts if (found := _unbounded_repeat(part)) is not None), None
    )


def _variables(node: RowPatternNode) -> Iterator[int]:
    if node.kind == "variable":
        yield node.variable
    for part in node.parts:
        yield from _variables(part)


def _expressions(program: RowProgram) -> Iterator[Expression]:
    yield from (each.define for each in program.variables if each.define is not None)
    yield from program.measures


def _all_leaves(expression: Expression) -> Iterator[Expression]:
    for leaf in leaves_of(expression):
        yield leaf
        if isinstance(leaf, Aggregate) and leaf.argument is not None:
            yield from leaves_of(leaf.argument)


def _row_reads(expression: Expression) -> Iterator[RowRead]:
    return (leaf for leaf in _all_leaves(expression) if isinstance(leaf, RowRead))
