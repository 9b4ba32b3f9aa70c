"""Values for a statement: parameters `:name` and `?`, and `{fields}` of `spark.sql`.

Outside a clause parameters stay, and Spark binds them. Inside, the texts become the texts of
several
queries, so parameters become literals of the type that Spark would give them.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spark_cep.expressions.problems import Place, Problems
from spark_cep.sql.statement import DerivedText, TextEdit, derive_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_cep.sql.clause import Span, TextPart
    from spark_cep.sql.statement import Statement


# ---- literals ------------------------------------------------------------------------------------


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


def find_markers(statement: Statement, patterns: Sequence[Span]) -> tuple[int, ...]:
    """The positions of each `?` that is a parameter; in patterns it is a quantifier, except
    between braces."""
    return tuple(
        token.start
        for index, token in enumerate(statement.tokens)
        if token.is_symbol("?")
        if is_in_braces(statement, index) or not any(a <= token.start < b for a, b in patterns)
    )


def is_in_braces(statement: Statement, index: int) -> bool:
    """Whether the token is one of the bounds of a quantifier: {?,?}, {:n}."""
    while index > 0:
        index -= 1
        token = statement.tokens[index]
        if token.is_symbol("{"):
            return True
        if token.kind == "symbol" and token.text not in {",", "?", ":"}:
            return False
        if token.kind == "word" and not statement.symbol(index - 1, ":"):
            return False
    return False


def bind_bounds(
    statement: Statement, part: TextPart, args: Any, places: tuple[int, ...]
) -> DerivedText:
    """The text of a pattern with the parameters of its quantifiers replaced by their values."""
    edits = []
    for start, end, value in _find_parameters(statement, part.span, args, places):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise statement.error(
                f"a quantifier counts rows, and this parameter is {value!r}",
                (start, end),
                hint="give an integer, 0 or larger",
            )
        edits.append((start, end, str(value)))
    return derive_text(statement.text, part.span, edits)


def parameter_value(
    statement: Statement, part: TextPart, args: Any, places: tuple[int, ...]
) -> Any:
    """The value of a part that consists of one parameter; else None."""
    found = list(_find_parameters(statement, part.span, args, places))
    return found[0][2] if len(found) == 1 and found[0][:2] == part.span else None


def parameter_edits(
    statement: Statement, part: TextPart, args: Any, places: tuple[int, ...]
) -> Iterator[TextEdit]:
    """The literals of the parameters of a part."""
    for start, end, value in _find_parameters(statement, part.span, args, places):
        try:
            yield start, end, sql_literal(value)
        except LiteralTypeError:
            kind = type(value).__name__
            raise statement.error(
                f"a value of type {kind} cannot be a parameter inside MATCH_RECOGNIZE",
                (start, end),
                hint="a parameter is a number, a string, a date, a time, bytes, None or a list "
                "of these; add other values as columns of the input",
            ) from None


def text_with_values(statement: Statement, span: Span, args: Any, places: tuple[int, ...]) -> str:
    """A range of the statement with what its parameters print, which need have no literals."""
    found = _find_parameters(statement, span, args, places)
    edits = [(start, end, repr(value)) for start, end, value in found]
    return derive_text(statement.text, span, edits).text


def _find_parameters(
    statement: Statement, span: Span, args: Any, places: tuple[int, ...]
) -> Iterator[tuple[int, int, Any]]:
    """Start, end and value of each parameter in a range."""
    start, end = span
    for index, token in enumerate(statement.tokens):
        if not start <= token.start < end:
            continue
        if token.is_symbol("?") and token.start in places:
            number = places.index(token.start)
            if not isinstance(args, list) or number >= len(args):
                raise statement.error_at(
                    "this parameter has no value", index, hint="give it in args=[...]"
                )
            yield token.start, token.end, args[number]
        elif token.is_symbol(":") and is_named_parameter(statement, index):
            name = statement.tokens[index + 1]
            if not isinstance(args, Mapping) or name.text not in args:
                raise statement.error(
                    f"the parameter {name.text} has no value",
                    (token.start, name.end),
                    hint=f'give it in args={{"{name.text}": ...}}',
                )
            yield token.start, name.end, args[name.text]


def is_named_parameter(statement: Statement, index: int) -> bool:
    """Whether `:x` is a parameter, not a path into a variant: payload:x."""
    if index + 1 >= len(statement.tokens) or statement.tokens[index + 1].kind != "word":
        return False
    before = statement.tokens[index - 1]
    return not (before.end == statement.tokens[index].start and before.kind in {"word", "quoted"})


# ---- fields --------------------------------------------------------------------------------------

_BOUND = r"(?:\d+|\?|:\w+)"
_NO_FIELD = re.compile(
    rf"\{{\s*(?:{_BOUND}\s*(?:,\s*{_BOUND}?)?|,\s*{_BOUND}?)\s*\}}|\{{-(?!\}})|-\}}(?!\}})"
)
_FORMATTER = string.Formatter()


@dataclass(frozen=True)
class FilledTemplate:
    """`frames` holds the ranges of the DataFrames' names in the text."""

    text: DerivedText
    frames: tuple[tuple[tuple[int, int], Any], ...]


def fill_template(
    text: str,
    values: Mapping[str, Any],
    is_frame: Callable[[Any], bool],
    written: Callable[[str], str],
) -> FilledTemplate:
    """The text with its fields filled in; `written` gives what Spark makes of a field in braces.

    DataFrames stay DataFrames: their fields become names. Everything else is written by Spark's own
    formatter, as in a statement without a clause. The braces of a pattern, `a{2,4}` and `{- a -}`,
    cannot be fields and stay as they are; doubled, as a template wants them, they work too.

    >>> fill_template("{x} a{2} {{y}}", {"x": 1}, lambda _: False, lambda field: "one").text.text
    'one a{2} {y}'
    """
    edits: list[TextEdit] = []
    dfs: dict[int, Any] = {}
    for start, end, field in _find_fields(text):
        if field is None:
            edits.append((start, end, text[start]))
            continue
        value = _field_value(field, values, Place(text, start, end))
        if is_frame(value):
            dfs[start] = value
            edits.append((start, end, f"cep_frame_{len(dfs)}"))
        else:
            edits.append((start, end, written(text[start:end])))
    made = derive_text(text, (0, len(text)), edits)
    lengths = {start: len(replacement) for start, _, replacement in edits}
    frames = [
        ((begin, begin + lengths[source]), dfs[source])
        for begin, source, copied in made.pieces
        if not copied and source in dfs
    ]
    return FilledTemplate(made, tuple(frames))


def _field_value(field: str, values: Mapping[str, Any], place: Place) -> Any:
    name = re.split(r"[!:]", field, maxsplit=1)[0]
    try:
        return _FORMATTER.get_field(name, (), values)[0]
    except (AttributeError, LookupError, TypeError, ValueError):
        problems = Problems()
        known = ", ".join(f"{each}=" for each in values)
        problems.add(
            f"there is no value for the field {{{field}}}",
            place,
            hint=f"the values given are {known}; other braces are doubled: {{{{ }}}}",
        )
        raise problems.error() from None


def _find_fields(text: str) -> Iterator[tuple[int, int, str | None]]:
    """The ranges of doubled braces, with None, and of fields, from left to right."""
    at = 0
    while at < len(text):
        if text[at] not in "{}-":
            at += 1
            continue
        plain = _NO_FIELD.match(text, at)
        if plain is not None:
            at = plain.end()
        elif text.startswith(("{{", "}}"), at):
            yield at, at + 2, None
            at += 2
        else:
            end = text.find("}", at) + 1 if text[at] == "{" else 0
            if end:
                yield at, end, text[at + 1 : end - 1]
            at = end or at + 1
