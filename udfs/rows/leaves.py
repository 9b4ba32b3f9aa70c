"""The leaves of row pattern expressions: what conditions and measures read of rows and of the path.

Here leaves are found and replaced, conditions are split into conjuncts, and the reach of a whole
program is computed: how many rows before and after a row it reads, and whether a search can stay
undecided without a bound. All of it follows from the program alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from spark_cep.udfs.expressions import BOOL, Call, Cell, Constant, UserCall
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.row_program import RowPatternNode, RowProgram


LEAVES = (RowRead, Aggregate, Classifier, MatchNumber)


def leaves_of(expression: Expression) -> Iterator[Expression]:
    return (node for node in expression.walk() if isinstance(node, LEAVES))


def is_physical(expression: Expression) -> bool:
    """Whether the value depends only on the row under test and its neighbours."""
    return all(
        isinstance(leaf, RowRead) and leaf.anchor == "current" for leaf in leaves_of(expression)
    )


def replace_with_cells(expression: Expression, read: list[Expression]) -> Expression:
    """The expression with a `Cell` in place of each leaf. `read` collects the leaves, each once.

    The evaluator of values knows one kind of leaf, the cell of a variable. Here the "variable" of
    a cell is the index of the leaf in `read`, so the same evaluator serves row patterns: asked for
    cell n, the caller supplies the values of leaf n.
    """
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
    """A DEFINE condition in which every leaf that denotes the row under test reads that row.

    While a row is tested as A, it is the last row of A, so `PREV(A.x)` does not need the path.
    """
    if isinstance(expression, RowRead | Classifier):
        return _resolve_leaf(expression, variable)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(resolve_tested_row(each, variable) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression


def _resolve_leaf(leaf: RowRead | Classifier, variable: int) -> Expression:
    is_included = leaf.variables is None or variable in leaf.variables
    if leaf.anchor == "last" and leaf.offset == 0 and is_included:
        leaf = replace(leaf, anchor="current", variables=None)
    if not isinstance(leaf, Classifier):
        return leaf
    if leaf.anchor == "current" and leaf.shift == 0:
        return Constant(variable, leaf.type)
    if leaf.anchor == "current" and leaf.shift < 0:
        # A row before it in the match: the rows of a match are contiguous.
        return replace(leaf, anchor="last", offset=-leaf.shift, shift=0)
    return leaf


def split_conjuncts(expression: Expression) -> Iterator[Expression]:
    """The operands of nested ANDs, from left to right."""
    if isinstance(expression, Call) and expression.name == "and":
        for argument in expression.arguments:
            yield from split_conjuncts(argument)
    else:
        yield expression


def conjunction(conjuncts: Sequence[Expression]) -> Expression | None:
    """The AND of the conjuncts; None if there are none."""
    return reduce(lambda a, b: Call("and", (a, b), BOOL), conjuncts) if conjuncts else None


# ---- how far a program reads -------------------------------------------------------------------


def rows_ahead(expression: Expression) -> int:
    """The largest number of rows that an expression reads ahead of the row it starts from."""
    return max([0, *(read.shift for read in _row_reads(expression))])


def rows_ahead_of_measures(program: RowProgram) -> int:
    """The largest number of rows that measures read ahead of the last row of a match."""
    return max([0, *map(rows_ahead, program.measures)])


def rows_back(program: RowProgram) -> int:
    """The largest number of rows that are read before the first row of a search."""
    return max([0, *(-read.shift for each in _expressions(program) for read in _row_reads(each))])


def rows_ahead_of_program(program: RowProgram) -> int:
    """The largest number of rows that are read behind the last row of a match."""
    return max([0, *(read.shift for each in _expressions(program) for read in _row_reads(each))])


def longest_match(node: RowPatternNode) -> int | None:
    """The most rows of a match; None: there is no bound."""
    if node.kind == "variable":
        return 1
    lengths = [longest_match(part) for part in node.parts]
    if node.kind == "repeat":
        if node.high == 0 or lengths[0] == 0:
            return 0
        return None if node.high is None or lengths[0] is None else node.high * lengths[0]
    if None in lengths:
        return None
    known = [each for each in lengths if each is not None]
    return max(known, default=0) if node.kind == "alternate" else sum(known)


def reads_match_number(program: RowProgram) -> bool:
    return any(
        isinstance(leaf, MatchNumber)
        for each in _expressions(program)
        for leaf in _all_leaves(each)
    )


def keeps_partitions(program: RowProgram) -> bool:
    """Whether a stream has to remember partitions that have no undecided row: because later
    searches read rows before their first one, because matches are numbered, or because ^ needs to
    know that the partition has begun."""
    return (
        bool(rows_back(program))
        or reads_match_number(program)
        or has_anchor(program.pattern, "start")
    )


def has_anchor(node: RowPatternNode, kind: str) -> bool:
    """`kind`: "start" or "end"."""
    return node.kind == kind or any(has_anchor(part, kind) for part in node.parts)


def unbounded_reason(program: RowProgram) -> str | None:
    """Why a search can stay undecided for as long as rows arrive; None if it cannot.

    A search for a pattern without unbounded repetitions is decided after a bounded number of rows,
    and WITHIN decides any search, with one exception: `$` can only be decided when no more rows
    arrive.
    """
    if has_anchor(program.pattern, "end"):
        return "$ matches the end of a partition, which a stream does not have"
    if program.within is not None:
        return None
    repeat = _unbounded_repeat(program.pattern)
    if repeat is None:
        return None
    names = sorted({program.variables[each].name for each in _variables(repeat)})
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
