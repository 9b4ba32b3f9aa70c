"""Conditions that compare columns with literals, and nothing else: they cannot fail on any row.

Only such a condition may be tested on rows that the query, as it was written, would not have tested
it on: those below a pattern, or those that a condition before it leaves out. No cast of a column is
in them that may fail, no function of the user, no random number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.expressions.names import quote_name

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type

TypeOf = Callable[[exp.Column], "Type | None"]

# In the meta data of a string literal: its text in the statement, quotes included.
SOURCE_TEXT = "cep_text"

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}  # fmt: skip
# Digits of a number that fits into a decimal with every other such number and every long.
_MOST_DIGITS = 18
_NUMBER = re.compile(r"\d+(\.\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")


def conjuncts_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts that AND connects, from left to right, without recursion."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.Paren):
            waiting.append(each.this)
        elif isinstance(each, exp.And):
            waiting += [each.expression, each.this]
        else:
            yield each


def comparisons_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts that AND, OR and NOT connect, from left to right, without recursion."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.Paren | exp.Not):
            waiting.append(each.this)
        elif isinstance(each, exp.And | exp.Or):
            waiting += [each.expression, each.this]
        else:
            yield each


def is_comparison(node: exp.Expr) -> bool:
    """Whether the condition has the form: columns compared with literals or with each other, tests
    for NULL, and AND, OR and NOT between these. Types are not looked at."""
    return all(_operands(each) is not None for each in comparisons_of(node))


def cannot_fail(node: exp.Expr, type_of: TypeOf, *, floats: bool = True) -> bool:
    """Whether the condition, `is_comparison`, has an answer for every value of its columns.
    `floats`: whether floating point columns are allowed."""
    return all(_cannot_fail(each, type_of, floats) for each in comparisons_of(node))


def _cannot_fail(node: exp.Expr, type_of: TypeOf, floats: bool) -> bool:
    operands = _operands(node) or []
    types = {type_of(each) for each in operands if isinstance(each, exp.Column)}
    first = types.pop() if len(types) == 1 else None
    if first is None or first.kind not in _COMPARABLE or (first.kind == "float" and not floats):
        return False
    if isinstance(node, exp.Like) and first.kind != "string":
        return False
    return all(_fits(each, first) for each in operands if not isinstance(each, exp.Column))


def is_strict(node: exp.Expr) -> bool:
    """Whether the condition, `is_comparison`, is not true where all of its columns are NULL."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return any(map(is_strict, node.flatten()))
    if isinstance(node, exp.Or):
        return all(map(is_strict, node.flatten()))
    if isinstance(node, exp.Not):
        # NOT of NULL is NULL. Of a test for NULL it is the test that a value is there.
        inner = node.this.unnest()
        is_simple = not isinstance(inner, exp.NullSafeEQ | exp.And | exp.Or | exp.Not)
        return is_simple and (isinstance(inner, exp.Is) or is_strict(inner))
    return not isinstance(node, exp.Is | exp.NullSafeEQ)


def write_comparison(node: exp.Expr) -> str:
    """The condition, `is_comparison`, as text for Spark; its strings have their SOURCE_TEXT."""
    node = node.unnest()
    if isinstance(node, exp.Not):
        return f"(NOT {write_comparison(node.this)})"
    if isinstance(node, exp.And | exp.Or):
        word = " AND " if isinstance(node, exp.And) else " OR "
        return f"({word.join(map(write_comparison, node.flatten()))})"
    operands = _operands(node)
    assert operands is not None
    first, *others = map(_write_operand, operands)
    if isinstance(node, exp.Is):
        test = "IS NULL"
    elif isinstance(node, exp.In):
        test = f"IN ({', '.join(others)})"
    elif isinstance(node, exp.Between):
        test = f"BETWEEN {others[0]} AND {others[1]}"
    elif isinstance(node, exp.Like):
        test = f"{'NOT ' if node.args.get('negate') else ''}LIKE {others[0]}"
    else:
        test = f"{_OPERATORS[type(node)]} {others[0]}"
    return f"({first} {test})"


def _operands(node: exp.Expr) -> list[exp.Expr] | None:
    """The columns and literals that one comparison has, at least one column among them; None if it
    is not one."""
    if set(_given(node)) - _ARGUMENTS.get(type(node), set()):
        return None
    if type(node) in _OPERATORS or isinstance(node, exp.Like):
        operands = [node.this, node.expression]
    elif isinstance(node, exp.In):
        operands = [node.this, *node.expressions]
    elif isinstance(node, exp.Between):
        operands = [node.this, node.args["low"], node.args["high"]]
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        operands = [node.this]
    else:
        return None
    is_symmetric = type(node) in _OPERATORS
    has_column = isinstance(operands[0], exp.Column) or (
        is_symmetric and isinstance(operands[1], exp.Column)
    )
    return operands if has_column and all(map(_is_operand, operands)) else None


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


_BINARY = {"this", "expression"}
_ARGUMENTS: dict[type[exp.Expr], set[str]] = {
    **dict.fromkeys(_OPERATORS, _BINARY),
    exp.Like: {*_BINARY, "negate"},
    exp.In: {"this", "expressions"},
    exp.Between: {"this", "low", "high"},
    exp.Is: _BINARY,
}


def _is_operand(node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return set(_given(node)) <= {"this", "table"} and isinstance(node.this, exp.Identifier)
    return isinstance(node, exp.Null | exp.Boolean | exp.Literal) or (
        _negated_number(node) is not None or _time_literal(node) is not None
    )


def _negated_number(node: exp.Expr) -> exp.Literal | None:
    inner = node.this if isinstance(node, exp.Neg) else None
    return inner if isinstance(inner, exp.Literal) and not inner.is_string else None


def _time_literal(node: exp.Expr) -> tuple[str, str] | None:
    """DATE or TIMESTAMP, and the text, of DATE'...' and CAST('...' AS DATE)."""
    if type(node) is not exp.Cast or not isinstance(node.this, exp.Literal):
        return None
    word = {"DATE": "DATE", "TIMESTAMPTZ": "TIMESTAMP"}.get(node.to.this.name)
    return (word, node.this.this) if word and node.this.is_string else None


def _write_operand(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):
        table = f"{quote_name(node.table)}." if node.table else ""
        return table + quote_name(node.name)
    if isinstance(node, exp.Null | exp.Boolean):
        return node.sql().upper()
    time = _time_literal(node)
    if time is not None:
        return f"{time[0]}'{time[1]}'"
    if isinstance(node, exp.Neg):
        return f"(-{node.this.this})"
    # A string's text is not made from its value: how it is escaped depends on the session.
    return str(node.meta[SOURCE_TEXT] if node.is_string else node.this)


# ---- types ---------------------------------------------------------------------------------------

_NUMBERS = {"int", "decimal", "float"}
_COMPARABLE = _NUMBERS | {"bool", "string", "date", "timestamp"}


def _fits(literal: exp.Expr, type_: Type) -> bool:
    """Whether Spark compares a column of the type with the literal without a cast that may fail."""
    if isinstance(literal, exp.Null):
        return True
    if isinstance(literal, exp.Boolean):
        return type_.kind == "bool"
    time = _time_literal(literal)
    if time is not None:
        allowed = {"DATE": {"date", "timestamp"}, "TIMESTAMP": {"timestamp"}}[time[0]]
        return type_.kind in allowed and _is_time(time[1], time[0] == "DATE")
    negated = _negated_number(literal)
    number = literal if negated is None else negated
    assert isinstance(number, exp.Literal)
    if number.is_string:
        if type_.kind == "string":
            return "\\" not in number.this or not isinstance(literal.parent, exp.Like)
        return type_.kind in {"date", "timestamp"} and _is_time(number.this, type_.kind == "date")
    return type_.kind in _NUMBERS and _fits_number(number.this, type_)


def _fits_number(text: str, type_: Type) -> bool:
    digits = len(text.replace(".", ""))
    if not _NUMBER.fullmatch(text) or digits > _MOST_DIGITS:
        return False
    return type_.kind != "decimal" or type_.precision <= _MOST_DIGITS


def _is_time(text: str, is_date: bool) -> bool:
    try:
        if is_date:
            date.fromisoformat(text)
        else:
            datetime.fromisoformat(text)
    except ValueError:
        return False
    return bool((_DATE if is_date else _MOMENT).fullmatch(text))
