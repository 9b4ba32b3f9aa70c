"""Python values as literals of Spark SQL."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_INT_BITS, _LONG_BITS = 31, 63


class LiteralTypeError(Exception):
    """The value has no literal."""


def sql_literal(value: Any) -> str:  # noqa: PLR0911 - one line a type
    """A literal of Spark SQL with the type of `lit(value)`.

    >>> sql_literal(5), sql_literal(5_000_000_000), sql_literal("it's"), sql_literal([1, None])
    ('5', '5000000000L', "'it\\\\'s'", 'array(1, NULL)')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return _integer_literal(value)
    if isinstance(value, float):
        return _bracket_sign(f"{value!r}D") if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, str):
        return sql_string(value)
    if isinstance(value, bytes | bytearray):
        return f"X'{value.hex()}'"
    if isinstance(value, Decimal) and value.is_finite():
        return _bracket_sign(f"{value:f}BD")
    if isinstance(value, list | tuple):
        return f"array({', '.join(map(sql_literal, value))})"
    return _time_literal(value)


def _time_literal(value: Any) -> str:
    if isinstance(value, datetime):
        # Like lit, this takes a time without a zone as local time.
        return f"TIMESTAMP'{value.astimezone(UTC).isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME'{value.isoformat()}'"
    if isinstance(value, timedelta):
        seconds = Decimal(value // timedelta(microseconds=1)).scaleb(-6)
        return f"make_dt_interval(0, 0, 0, {seconds:f}BD)"
    raise LiteralTypeError


def _integer_literal(value: int) -> str:
    if -(1 << _INT_BITS) <= value < 1 << _INT_BITS:
        return _bracket_sign(str(value))
    if -(1 << _LONG_BITS) <= value < 1 << _LONG_BITS:
        return _bracket_sign(f"{value}L")
    raise LiteralTypeError


def _bracket_sign(text: str) -> str:
    """The text in parentheses if it is negative: in x -:p it would begin a comment."""
    return f"({text})" if text.startswith("-") else text


def sql_string(value: str) -> str:
    """A string as a literal of Spark SQL.

    >>> sql_string("it's")
    "'it\\\\'s'"
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
