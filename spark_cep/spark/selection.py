"""Columns as SQL text where possible.

Each call of a function on a Column is ten calls of the JVM on a classic session, 0.1 ms each on an
idle machine; `selectExpr` is one for a text. A text is set in brackets, with its end on a line of
its own, so that it stays one expression; texts here have been analyzed by themselves before.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Expression = str | Column


def select_named(
    df: DataFrame, items: Sequence[tuple[Expression, str]], beside: Sequence[str] = ()
) -> DataFrame:
    """The expressions under their names, behind columns that keep theirs; `*` is all of them."""
    if all(isinstance(each, str) for each, _ in items):
        plain = [each if each == "*" else quote_column(each) for each in beside]
        return df.selectExpr(
            *plain, *[f"{in_brackets(each)} AS {quote_column(name)}" for each, name in items]
        )
    named = [as_column(each).alias(name) for each, name in items]
    return df.select(*[each if each == "*" else quote_column(each) for each in beside], *named)


def make_struct(fields: Sequence[tuple[Expression, str]]) -> Expression:
    if all(isinstance(each, str) for each, _ in fields):
        parts = [f"{in_brackets(each)} AS {quote_column(name)}" for each, name in fields]
        return f"struct({', '.join(parts)})"
    return F.struct(*[as_column(each).alias(name) for each, name in fields])


def as_column(expression: Expression) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def in_brackets(expression: object) -> str:
    """
    >>> in_brackets("a OR b")
    '(a OR b\\n)'
    >>> in_brackets("`k`"), in_brackets("c0")
    ('`k`', 'c0')
    """
    text = str(expression)
    is_name = text.replace("_", "a").isalnum() or (
        text[:1] == text[-1:] == "`" and "`" not in text[1:-1]
    )
    return text if is_name else f"({text}\n)"


def quote_column(name: str) -> str:
    """A column name as SQL text.

    >>> quote_column("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
