"""A measure's tree with its names resolved, and how it becomes text over the answer's columns.

Names and aggregates are replaced by position; all other text stays the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.compiling.conditions import navigated
from spark_cep.compiling.list_folds import counting, folding
from spark_cep.compiling.names import quoted
from spark_cep.udfs.expressions import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlglot import exp

    from spark_cep.compiling.compiled import ColumnInfo
    from spark_cep.compiling.spans import Parsed
    from spark_cep.udfs.expressions import Reading
    from spark_cep.udfs.program import Variable

Edit = tuple[int, int, str]
# What an element of the list is called inside the lambda that an aggregate becomes.
_ELEMENT = "__cep_e"


@dataclass(frozen=True)
class Name:
    """A name in a measure: characters [start, end) stand for `shown`, a column of the answer,
    and with `column` for a field of it."""

    node: exp.Expr
    start: int
    end: int
    shown: str
    variable: Variable | None = None
    column: ColumnInfo | None = None

    def edit(self, struct: str) -> Edit:
        field = "" if self.column is None else f".{quoted(self.column.name)}"
        return self.start, self.end, struct + field


@dataclass(frozen=True)
class Fold:
    """An aggregate; `type` None: over rows, not over values."""

    node: exp.Expr
    how: Reading
    type: Type | None


class Body:
    """A measure's tree with its names and folds."""

    def __init__(self, parsed: Parsed, names: Sequence[Name]) -> None:
        self.parsed = parsed
        self.names = names
        self.folds: list[Fold] = []

    def below(self, node: exp.Expr) -> list[Name]:
        inside = {id(each) for each in node.walk()}
        return [each for each in self.names if id(each.node) in inside]

    def row_text(self, node: exp.Expr) -> str:
        edits = [
            (each.start, each.end, quoted(each.column.name))
            for each in self.below(node)
            if each.column is not None
        ]
        return self.parsed.cut(node, edits)

    def text(self, column_of: Callable[[str], str]) -> str:
        folded = [id(each.node) for fold in self.folds for each in self.below(fold.node)]
        edits = [
            each.edit(column_of(each.shown)) for each in self.names if id(each.node) not in folded
        ]
        edits += [
            (*self.parsed.span(fold.node), self._folded(fold, column_of)) for fold in self.folds
        ]
        return self.parsed.cut(self.parsed.root, edits)

    def _folded(self, fold: Fold, column_of: Callable[[str], str]) -> str:
        argument = navigated(fold.node)
        assert argument is not None
        named = self.below(argument)
        the_list = next(each for each in named if each.variable and each.variable.is_list)
        array = column_of(the_list.shown)
        if fold.type is None:
            whole = folding(fold.how, array, Type("other")) if fold.how != "count" else ""
            return whole or counting(array)
        if argument is the_list.node and the_list.column is not None:
            return folding(fold.how, f"{array}.{quoted(the_list.column.name)}", fold.type)
        edits = [
            each.edit(_ELEMENT if each.variable is the_list.variable else column_of(each.shown))
            for each in named
        ]
        values = f"transform({array}, {_ELEMENT} -> {self.parsed.cut(argument, edits)})"
        return folding(fold.how, values, fold.type)
