"""Parameters inside a clause: `:name` and `?` become literals of the type that Spark gives them.

Outside of a clause they stay, and Spark binds them. Inside, the texts are taken apart and put
into several queries, so the values go into the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spark_cep.sql.derived import Derived, Edit, derived

if TYPE_CHECKING:
    from spark_cep.sql.clause import Part, Span
    from spark_cep.sql.statement import Statement

_INT_BITS, _LONG_BITS = 31, 63


class Unwritable(Exception):
    """The value has no literal."""


def markers(statement: Statement, patterns: Sequence[Span]) -> tuple[int, ...]:
    """Where the `?` that are parameters stand; in patterns they are quantifiers."""
    return tuple(
        token.start
        for token in statement.tokens
        if token.is_symbol("?") and not any(a <= token.start < b for a, b in patterns)
    )


def bound(statement: Statement, part: Part, args: Any, places: tuple[int, ...]) -> Derived:
    """The text of a part with values for its parameters."""
    return derived(statement.text, part.span, _edits(statement, part, args, places))


def value_of(statement: Statement, part: Part, args: Any, places: tuple[int, ...]) -> Any:
    """The value of a part that is nothing but one parameter; None if it is more than that."""
    found = list(_found(statement, part, args, places))
    return found[0][2] if len(found) == 1 and found[0][:2] == part.span else None


def _edits(statement: Statement, part: Part, args: Any, places: tuple[int, ...]) -> Iterator[Edit]:
    for start, end, value in _found(statement, part, args, places):
        try:
            yield start, end, literal(value)
        except Unwritable:
            raise statement.error(
                f"a {type(value).__name__} cannot be a parameter inside MATCH_RECOGNIZE",
                (start, end),
                hint="numbers, strings, dates, times, bytes, None and lists of them can; add "
                "another value as a column of the input",
            ) from None


def _found(
    statement: Statement, part: Part, args: Any, places: tuple[int, ...]
) -> Iterator[tuple[int, int, Any]]:
    """Start, end and value of each parameter in a part."""
    start, end = part.span
    for index, token in enumerate(statement.tokens):
        if not start <= token.start < end:
            continue
        if token.is_symbol("?"):
            number = places.index(token.start)
            if not isinstance(args, list) or number >= len(args):
                raise statement.error_at(
                    "there is no value for this parameter", index, hint="give args=[...]"
                )
            yield token.start, token.end, args[number]
        elif token.is_symbol(":") and _is_marker(statement, index):
            name = statement.tokens[index + 1]
            if not isinstance(args, Mapping) or name.text not in args:
                raise statement.error(
                    f"there is no value for the parameter {name.text}",
                    (token.start, name.end),
                    hint=f'give args={{"{name.text}": ...}}',
                )
            yield token.start, name.end, args[name.text]


def _is_marker(statement: Statement, index: int) -> bool:
    """`:x` behind something complete is a path into a variant: payload:x."""
    if index + 1 >= len(statement.tokens) or statement.tokens[index + 1].kind != "word":
        return False
    before = statement.tokens[index - 1]
    return not (before.end == statement.tokens[index].start and before.kind in {"word", "quoted"})


def literal(value: Any) -> str:  # noqa: PLR0911 - one line a type
    """Spark SQL of the type that `lit(value)` has.

    >>> literal(5), literal(5_000_000_000), literal("it's"), literal([1, None])
    ('5', '5000000000L', "'it\\\\'s'", 'array(1, NULL)')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _signed(f"{value!r}D") if math.isfinite(value) else f"double('{value}')"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bytes | bytearray):
        return f"X'{value.hex()}'"
    if isinstance(value, Decimal) and value.is_finite():
        return _signed(f"{value:f}BD")
    if isinstance(value, list | tuple):
        return f"array({', '.join(map(literal, value))})"
    return _of_time(value)


def _of_time(value: Any) -> str:
    if isinstance(value, datetime):
        # Python takes a time without a zone as local time, and so does lit.
        return f"TIMESTAMP'{value.astimezone(UTC).isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME'{value.isoformat()}'"
    if isinstance(value, timedelta):
        seconds = Decimal(value // timedelta(microseconds=1)).scaleb(-6)
        return f"make_dt_interval(0, 0, 0, {seconds:f}BD)"
    raise Unwritable


def _integer(value: int) -> str:
    if -(1 << _INT_BITS) <= value < 1 << _INT_BITS:
        return _signed(str(value))
    if -(1 << _LONG_BITS) <= value < 1 << _LONG_BITS:
        return _signed(f"{value}L")
    raise Unwritable


def _signed(text: str) -> str:
    """In brackets where it is negative: x -:p would begin a comment."""
    return f"({text})" if text.startswith("-") else text


def _string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
