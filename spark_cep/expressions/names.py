"""Name resolution: the variable and the input column that each name in a condition refers to.

The first part of a dotted name is a variable if the pattern has it, else a column. A bare name is a
column of the event that the condition belongs to; `.where` has no bare names. Variables are case
insensitive, columns as the session is configured. Spark checks the fields of structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from spark_cep.expressions.problems import Place, Problems, list_names, nearest_name
from spark_cep.expressions.schema import HIDDEN_PREFIX

if TYPE_CHECKING:
    from spark_cep.expressions.schema import ColumnInfo
    from spark_cep.expressions.syntax import ParsedExpression
    from spark_cep.udfs.program import Variable


def quote_name(name: str) -> str:
    """A name as Spark SQL text.

    >>> quote_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Reference:
    """A name in a condition: a column of a variable's row, or (`column` None) the variable itself.

    The characters [start, end) are the name up to the column; fields of a struct follow them.
    """

    node: exp.Expr
    variable: int
    column: ColumnInfo | None
    start: int
    end: int

    def edit(self, prefix: str = "") -> tuple[int, int, str]:
        """The edit that makes it a column of an input row, or of the struct `prefix`."""
        assert self.column is not None
        return self.start, self.end, prefix + quote_name(self.column.name)


# Functions of row patterns, some of which other systems write without parentheses.
_CALLS = {"CLASSIFIER", "MATCH_NUMBER", "MATCH_SEQUENCE_NUMBER", "MATCH_ROW_NUMBER"}


@dataclass(frozen=True)
class NamePart:
    name: str
    place: Place


class PatternNames:
    """The variables of a pattern and the columns of its input. `columns_first`: a bare name in
    count() is a column if there is one of this name, as in row patterns."""

    def __init__(
        self,
        variables: Sequence[Variable],
        columns: Sequence[ColumnInfo],
        *,
        case_sensitive: bool,
        columns_first: bool = False,
    ) -> None:
        self.variables = tuple(variables)
        self.columns = tuple(columns)
        self.case_sensitive = case_sensitive
        self._columns_first = columns_first
        self._ids = {v.name.casefold(): number for number, v in enumerate(variables)}

    def variable(self, name: str) -> int | None:
        return self._ids.get(name.casefold())

    def is_name(self, word: str) -> bool:
        """Whether a word is the name of a variable or of a column."""
        return self.variable(word) is not None or bool(self.matching(word))

    def column(self, name: str, place: Place, problems: Problems) -> ColumnInfo | None:
        """The input column of this name; None, with a problem, if there is not exactly one."""
        found = self.matching(name)
        if len(found) == 1:
            return found[0]
        if found:
            problems.add(
                f"{name} is ambiguous: the input has {len(found)} columns with this name",
                place,
                hint="rename one of them before matching: df.withColumnRenamed(...)",
            )
            return None
        names = (column.name for column in self.columns)
        known = [each for each in names if not each.startswith(HIDDEN_PREFIX)]
        nearest = nearest_name(name, known)
        hint = f"did you mean {nearest}?" if nearest else f"its columns are {list_names(known)}"
        if self._columns_first and name.upper() in _CALLS:
            hint = f"write {name}()"
        problems.add(f"the input has no column {name}", place, hint=hint)
        return None

    def matching(self, name: str) -> list[ColumnInfo]:
        if self.case_sensitive:
            return [column for column in self.columns if column.name == name]
        return [column for column in self.columns if column.name.casefold() == name.casefold()]

    def references(
        self, parsed: ParsedExpression, node: exp.Expr, own: int | None, problems: Problems
    ) -> list[Reference] | None:
        """Every name below the node; None if one of them is invalid. `own`: the variable that bare
        columns belong to, if any."""
        found = [self._reference(parsed, column, own, problems) for column in columns_of(node)]
        valid = [each for each in found if each is not None]
        return valid if len(valid) == len(found) else None

    def _reference(
        self, parsed: ParsedExpression, node: exp.Column, own: int | None, problems: Problems
    ) -> Reference | None:
        if isinstance(node.this, exp.Star):
            problems.add(
                f"{parsed.text_of(node)} is not a value",
                parsed.place(node),
                hint="name one column; count(b) counts the rows of b",
            )
            return None
        parts = name_parts_of(parsed, node)
        variable = self.variable(parts[0].name)
        if variable is None:
            return self._of_own(node, parts, own, problems)
        if len(parts) > 1:
            return self._of_variable(node, parts, variable, own, problems)
        place, is_column = parts[0].place, own is not None and bool(self.matching(parts[0].name))
        if isinstance(node.parent, exp.Count) and not (is_column and self._columns_first):
            return Reference(node, variable, None, place.start, place.end)
        if is_column:
            return self._of_own(node, parts, own, problems)
        self._bare_variable(parts[0], problems)
        return None

    def _of_variable(
        self,
        node: exp.Column,
        parts: Sequence[NamePart],
        variable: int,
        own: int | None,
        problems: Problems,
    ) -> Reference | None:
        """variable.column, also where a struct column has the variable's name."""
        struct = self.matching(parts[0].name) if own is not None else []
        if struct and not self.matching(parts[1].name):
            name, field = parts[0].name, parts[1].name
            problems.add(
                f"{name} is a variable here, and the input has no column {field}",
                parts[1].place,
                hint=f"write ({name}).{field} for the field of the column {name}",
            )
            return None
        column = self.column(parts[1].name, parts[1].place, problems)
        start, end = parts[0].place.start, parts[1].place.end
        place = Place(parts[0].place.text, start, parts[-1].place.end)
        if column is None or not self._uncaptured(node, column, place, problems):
            return None
        return Reference(node, variable, column, start, end)

    def _of_own(
        self, node: exp.Column, parts: Sequence[NamePart], own: int | None, problems: Problems
    ) -> Reference | None:
        """A bare column, with or without fields of a struct."""
        if len(parts) > 1 and not self.matching(parts[0].name):
            self._unknown_variable(parts[0], problems)
        elif own is None:
            self._no_variable(parts, problems)
        else:
            place = parts[0].place
            column = self.column(parts[0].name, place, problems)
            if column is not None:
                return Reference(node, own, column, place.start, place.end)
        return None

    def _uncaptured(
        self, node: exp.Expr, column: ColumnInfo, place: Place, problems: Problems
    ) -> bool:
        """Whether the column without its variable would not be captured by a lambda around it."""
        while node.parent is not None:
            node = node.parent
            if isinstance(node, exp.Lambda):
                for argument in node.expressions:
                    if argument.name.casefold() == column.name.casefold():
                        problems.add(
                            f"the lambda argument {argument.name} hides the column {column.name}",
                            place,
                            hint="rename the lambda argument",
                        )
                        return False
        return True

    def _bare_variable(self, part: NamePart, problems: Problems) -> None:
        first = self.columns[0].name if self.columns else "column"
        problems.add(
            f"{part.name} is a variable, not a column",
            part.place,
            hint=f"write one of its columns, such as {part.name}.{first}",
        )

    def _no_variable(self, parts: Sequence[NamePart], problems: Problems) -> None:
        text = ".".join(part.name for part in parts)
        example = next((v.name for v in self.variables if not v.negated), "a")
        first, last = parts[0].place, parts[-1].place
        problems.add(
            f"{text} does not refer to a variable",
            Place(first.text, first.start, last.end),
            hint=f"write {example}.{text}; bare columns are allowed only in event(name, "
            "condition), where they belong to that event",
        )

    def _unknown_variable(self, part: NamePart, problems: Problems) -> None:
        known = [v.name for v in self.variables]
        if not known:
            self.column(part.name, part.place, problems)
            return
        nearest = nearest_name(part.name, known)
        hint = f"did you mean {nearest}?" if nearest else f"its variables are {list_names(known)}"
        problems.add(f"the pattern has no variable {part.name}", part.place, hint=hint)


# In timestampdiff(MINUTE, a.ts, b.ts) the unit is a keyword, but the parser returns a column.
_WITH_UNIT = frozenset(
    {
        "timestampadd", "timestampdiff", "timediff", "dateadd", "date_add", "datediff",
        "date_diff",
    }
)  # fmt: skip
_UNITS = frozenset(
    {
        "year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second",
        "millisecond", "microsecond",
    }
)  # fmt: skip


def columns_of(node: exp.Expr) -> Iterator[exp.Column]:
    """Every name below the node that refers to a column or a variable."""
    for column in node.find_all(exp.Column, bfs=False):
        if not _is_unit(column):
            yield column


def _is_unit(column: exp.Column) -> bool:
    call = column.parent
    return (
        isinstance(call, exp.Anonymous)
        and call.name.lower() in _WITH_UNIT
        and len(call.expressions) > 2
        and call.expressions[0] is column
        and column.name.lower() in _UNITS
    )


def is_lambda_argument(column: exp.Column) -> bool:
    """Whether the name, or the first part of it, is the argument of a lambda around it."""
    name, around = column.parts[0].name.casefold(), column.find_ancestor(exp.Lambda)
    while around is not None:
        if any(each.name.casefold() == name for each in around.expressions):
            return True
        around = around.find_ancestor(exp.Lambda)
    return False


def name_parts_of(parsed: ParsedExpression, node: exp.Column) -> list[NamePart]:
    """The parts of a dotted name with their places, without the fields that the tree keeps outside
    the column (`a.x.y.z.w`)."""
    top: exp.Expr = node
    while isinstance(top.parent, exp.Dot) and top.parent.this is top:
        top = top.parent
    at, _ = parsed.tokens_of(top)
    # The node may begin with parentheses, and with a plus that the tree does not have: `+(a.x)`.
    while parsed.tokens[at].token_type in {TokenType.L_PAREN, TokenType.PLUS}:
        at += 1
    parts = []
    for _ in node.parts:
        token = parsed.tokens[at]
        name = token.text
        parts.append(NamePart(name, Place(parsed.text, token.start, token.end + 1)))
        at += 2
    return parts
