"""What conditions and measures read, told apart from what they compute of it.

The engine's evaluator knows one kind of leaf, a `Cell` of a variable. Here the reads of a row
pattern become cells whose "variable" is the read's place in a list, so that the same evaluator
serves both: it asks for cell n and gets what read n gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_cep.udfs.expressions import Call, Cell, Constant, UserCall
from spark_cep.udfs.rows.program import Aggregate, Classifier, MatchNumber, Read

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression

LEAVES = (Read, Aggregate, Classifier, MatchNumber)


def leaves(expression: Expression) -> Iterator[Expression]:
    return (node for node in expression.walk() if isinstance(node, LEAVES))


def is_physical(expression: Expression) -> bool:
    """Whether the value depends on the row under test and its neighbours alone."""
    return all(isinstance(leaf, Read) and leaf.anchor == "current" for leaf in leaves(expression))


def with_cells(expression: Expression, read: list[Expression]) -> Expression:
    """The expression over cells; `read` gets the leaves, each once."""
    if isinstance(expression, LEAVES):
        if expression not in read:
            read.append(expression)
        column = getattr(expression, "column", None)
        return Cell(read.index(expression), column, expression.type)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(with_cells(each, read) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression


def under_test(expression: Expression, variable: int) -> Expression:
    """A DEFINE as it is tested: what names the row under test in another way reads that row.

    The last row of A while A is being tested is the row under test, so `PREV(A.x)` needs no path.
    """
    if isinstance(expression, Read | Classifier):
        return _under_test(expression, variable)
    if isinstance(expression, Call | UserCall):
        arguments = tuple(under_test(each, variable) for each in expression.arguments)
        return replace(expression, arguments=arguments)
    return expression


def _under_test(leaf: Read | Classifier, variable: int) -> Expression:
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


def conjuncts(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Call) and expression.name == "and":
        for argument in expression.arguments:
            yield from conjuncts(argument)
    else:
        yield expression
