"""Subqueries in DEFINE and MEASURES, as hidden columns of the clause's input.

    price > (SELECT avg(price) FROM t)    price > __cep_hidden_1
    price > t.low                         __cep_hidden_1, of a table t around the clause
    kind IN (SELECT kind FROM bad)        __cep_hidden_2, the condition on a row of the input
    LAST(kind) IN (SELECT ...)            array_contains of __cep_hidden_3, the list of the values
    EXISTS (SELECT ...)                   __cep_hidden_4

The value is the same in all rows, and Spark computes it once. A hidden column is read from a row
that its surroundings read already, so that it changes neither what a navigation or an aggregate is
over nor what a condition depends on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.names import is_lambda_argument, name_parts_of, quote_name
from spark_cep.expressions.problems import Problems
from spark_cep.expressions.schema import HIDDEN_PREFIX
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.rows.calls import parse_calls
from spark_cep.sql.parameters import is_named_parameter
from spark_cep.sql.vendors import token_range

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from spark_cep.sql.clause import Span
    from spark_cep.sql.statement import Statement, TextEdit
    from spark_cep.sql.vendors import PartNames


@dataclass(frozen=True)
class Subquery:
    """`span`: the query in its brackets; `whole`: with EXISTS or IN before it. Of kind "outer" it
    is a column of the query around the clause."""

    kind: Literal["scalar", "in", "exists", "outer"]
    span: Span
    whole: Span


@dataclass(frozen=True)
class HiddenColumn:
    """A column that the clause's input gets: texts and ranges of the statement."""

    name: str
    pieces: tuple[str | Span, ...]
    subquery: Subquery


@dataclass(frozen=True)
class SubqueryEdits:
    """What a part becomes, and the columns that it then reads."""

    edits: tuple[TextEdit, ...]
    columns: tuple[HiddenColumn, ...]


def find_subqueries(statement: Statement, span: Span) -> tuple[Subquery, ...]:
    """The outermost subqueries of a part."""
    first, stop = token_range(statement, span)
    return tuple(_find_subqueries(statement, first, stop))


def _find_subqueries(statement: Statement, first: int, stop: int) -> Iterator[Subquery]:
    index = first
    while index < stop:
        closed = statement.partners.get(index) if statement.symbol(index, "(") else None
        if closed is None or not _begins_query(statement, index + 1):
            index += 1
            continue
        start, end = statement.span(index, closed + 1)
        if statement.is_at(index - 1, "ANY") or statement.is_at(index - 1, "SOME"):
            _refuse_quantified(statement, index, (statement.tokens[index - 1].start, end), "min")
        if statement.is_at(index - 1, "ALL"):
            _refuse_quantified(statement, index, (statement.tokens[index - 1].start, end), "max")
        if statement.is_at(index - 1, "EXISTS"):
            yield Subquery("exists", (start, end), (statement.tokens[index - 1].start, end))
        elif statement.is_at(index - 1, "IN"):
            yield Subquery("in", (start, end), (statement.tokens[index - 1].start, end))
        else:
            yield Subquery("scalar", (start, end), (start, end))
        index = closed + 1


def _begins_query(statement: Statement, index: int) -> bool:
    """Whether a query begins at the token; `select` and `with` may also be columns or variables."""
    while statement.symbol(index, "("):
        index += 1
    is_select = statement.is_at(index, "SELECT")
    if index + 1 >= len(statement.tokens) or not (is_select or statement.is_at(index, "WITH")):
        return False
    following = statement.tokens[index + 1]
    if following.kind == "symbol":
        return is_select and following.text in _BEGINS_ITEM
    return not following.is_word(*_BETWEEN_OPERANDS)


# What may begin the first item of a SELECT.
_BEGINS_ITEM = {"(", "*", "-", "+", "~", "?", ":"}
_BETWEEN_OPERANDS = (
    "AND", "OR", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "DIV", "AS",
)  # fmt: skip


def _refuse_quantified(statement: Statement, index: int, span: Span, function: str) -> None:
    word = statement.tokens[index - 1].text.upper()
    raise statement.error(
        f"{word} before a subquery is not supported in Spark SQL",
        span,
        hint=f"compare with one value: (SELECT {function}(price) FROM t), or use IN (SELECT ...)",
    )


def subquery_edits(
    statement: Statement, span: Span, names: PartNames, known: Sequence[HiddenColumn] = ()
) -> SubqueryEdits:
    """The hidden columns for the subqueries of a part, and for columns of the query around the
    clause; `known`: those that there are already."""
    found = find_subqueries(statement, span)
    if not found and not names.outer and not names.outer_columns:
        return SubqueryEdits((), ())
    masked = _MaskedPart(statement, span, names, found)
    edits: list[TextEdit] = []
    columns: list[HiddenColumn] = []
    for outer in masked.outer_columns():
        text = statement.text[slice(*outer)]
        same = (
            each.name
            # What MEASURES read is not that of DEFINE: a match may have no rows to read it from.
            for each in (*(known if names.in_define else ()), *columns)
            if each.subquery.kind == "outer" and statement.text[slice(*each.subquery.span)] == text
        )
        name = next(same, "")
        if not name:
            name = f"{HIDDEN_PREFIX}{len(known) + len(columns) + 1}"
            columns.append(HiddenColumn(name, (outer,), Subquery("outer", outer, outer)))
        edits.append((*outer, masked.qualified(outer, name)))
    for each in found:
        name = f"{HIDDEN_PREFIX}{len(known) + len(columns) + 1}"
        if each.kind == "in":
            own, pieces = _membership(masked, each, name)
        else:
            prefix = "EXISTS " if each.kind == "exists" else ""
            own = [(*each.whole, masked.qualified(each.whole, name))]
            pieces = (prefix, each.span)
        edits += own
        columns.append(HiddenColumn(name, pieces, each))
    return SubqueryEdits(tuple(edits), tuple(columns))


_VALUES = (
    "(SELECT array_distinct(transform(collect_list(struct(__cep_value)), e -> e.__cep_value)) FROM "
)
_VALUES_END = " AS __cep_values(__cep_value))"


def _membership(
    masked: _MaskedPart, each: Subquery, name: str
) -> tuple[list[TextEdit], tuple[str | Span, ...]]:
    """x IN (query) by the list of the query's values, with the NULLs among them. The list of no
    values makes it FALSE, also for NULL."""
    values: tuple[str | Span, ...] = (_VALUES, each.span, _VALUES_END)
    start, end, column, is_negated = masked.left_of(each)
    before, after = ("(NOT ", ")") if is_negated else ("", "")
    if column is not None:
        own = masked.qualifier(column)
        test = (
            "(size(", *values, ") > 0 AND array_contains(", *values, f", {quote_name(own[1])}))"
        )  # fmt: skip
        return [(start, each.span[1], f"{before}{own[0]}{name}{after}")], test
    hidden = masked.qualified((start, end), name)
    before += f"(size({hidden}) > 0 AND array_contains({hidden}, "
    return [(start, start, before), (end, each.span[1], f")){after}")], values


class _MaskedPart:
    """A part of a clause in which parameters and subqueries are literals, parsed."""

    def __init__(
        self, statement: Statement, span: Span, names: PartNames, found: Sequence[Subquery]
    ) -> None:
        self._statement = statement
        self._offset = span[0]
        self._names = names
        text = statement.text[slice(*span)]
        for each in found:
            text = self._mask(text, each.whole, "IN (0)" if each.kind == "in" else "(0)")
        first, stop = token_range(statement, span)
        for index in range(first, stop):
            token = statement.tokens[index]
            if any(each.span[0] <= token.start < each.span[1] for each in found):
                continue
            if token.is_symbol("?"):
                text = self._mask(text, (token.start, token.end), "0")
            elif token.is_symbol(":") and is_named_parameter(statement, index):
                end = statement.tokens[index + 1].end
                text = self._mask(text, (token.start, end), "0")
        try:
            self._calls = parse_calls(text, Problems(), in_define=names.in_define)
        except SyntaxProblem as problem:
            at = (problem.place.start + span[0], problem.place.end + span[0])
            raise statement.error(
                f"this is not a Spark SQL expression: {problem.message}", at
            ) from None

    def _mask(self, text: str, span: Span, literal: str) -> str:
        start, end = span[0] - self._offset, span[1] - self._offset
        return text[:start] + literal.ljust(end - start) + text[end:]

    def left_of(self, each: Subquery) -> tuple[int, int, exp.Column | None, bool]:
        """The operand of IN: where it begins and ends, its column if it is nothing more, and
        whether NOT is before IN."""
        parsed = self._calls.parsed
        for node in parsed.root.find_all(exp.In):
            start, end = parsed.span(node)
            if not start + self._offset < each.whole[0] < end + self._offset:
                continue
            left = node.this
            begin, stop = parsed.span(left)
            if stop + self._offset > each.whole[0]:
                continue
            between = parsed.text[stop : each.whole[0] - self._offset]
            column = left if isinstance(left, exp.Column) and self._is_of_input(left) else None
            if between.strip().upper() in {"", "NOT"}:
                negated = bool(between.strip())
                return begin + self._offset, stop + self._offset, column, negated
        raise self._statement.error(
            "it is not clear what is before this IN",
            each.whole,
            hint="put it in parentheses: (x) IN (SELECT ...)",
        )

    def _is_of_input(self, column: exp.Column) -> bool:
        """Whether the name is a column of the input, not a field of one or a lambda's argument."""
        first, *rest = (each.name.casefold() for each in column.parts)
        if isinstance(column.this, exp.Star) or len(rest) > 1 or is_lambda_argument(column):
            return False
        if not rest or first in self._names.variables:
            return True
        columns = self._names.columns or frozenset()
        is_field = first in columns and rest[0] not in columns
        return first in self._names.qualifiers and not is_field

    def outer_columns(self) -> Iterator[Span]:
        """Where columns of the query around the clause are."""
        for column in self._calls.parsed.root.find_all(exp.Column):
            first, *rest = name_parts_of(self._calls.parsed, column)
            known = self._names.outer if rest else self._names.outer_columns
            if first.name.casefold() in known and not is_lambda_argument(column):
                last = rest[-1] if rest else first
                yield first.place.start + self._offset, last.place.end + self._offset

    def qualifier(self, column: exp.Column) -> tuple[str, str]:
        """`a.` and the column's name; the input's own name is none."""
        parts = name_parts_of(self._calls.parsed, column)
        if len(parts) > 1 and parts[0].name.casefold() in self._names.variables:
            return f"{quote_name(parts[0].name)}.", parts[1].name
        return "", parts[-1].name

    def qualified(self, span: Span, name: str) -> str:
        """The hidden column, of the variable whose rows are read around or in this range."""
        variable = self._variable(span)
        return name if variable is None else f"{quote_name(variable)}.{name}"

    def _variable(self, span: Span) -> str | None:
        parsed, start, end = self._calls.parsed, span[0] - self._offset, span[1] - self._offset
        for node in parsed.root.walk():
            begin, stop = parsed.span(node)
            if not (start <= begin and stop <= end):
                continue
            call = self._calls.around[id(node)]
            around = [] if call is None else [call, *call.around()]
            searched = around[-1].node if around else node
            for column in searched.find_all(exp.Column):
                parts = name_parts_of(parsed, column)
                is_qualified = len(parts) > 1 or call is not None
                if is_qualified and parts[0].name.casefold() in self._names.variables:
                    return parts[0].name
            return None
        return None
