"""Hints behind a clause: MATCH_RECOGNIZE (...) /*+ plan('zstream'), adapt('off') */.

Spark ignores hints that it does not know. These are ours alone, so a misspelled one is an error:
a plan that was asked for and silently not used would be worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError
from spark_cep.sql.statement import Statement, Token, Unreadable
from spark_cep.sql.wording import in_sql
from spark_cep.udfs.program import Limits

if TYPE_CHECKING:
    from spark_cep.errors import PatternError

_TEXTS = {"plan", "adapt"}
_LIMITS = tuple(Limits.__dataclass_fields__)
_HINT = "hints are plan('zstream'), adapt('off') and " + ", ".join(
    f"{name}(1000000)" for name in _LIMITS
)


def hints(statement: Statement, span: tuple[int, int] | None) -> dict[str, Any]:
    """Options of match_pattern from the characters of a hint."""
    if span is None:
        return {}
    try:
        inner = Statement(statement.text[span[0] : span[1]])
    except Unreadable:
        raise statement.error("this hint cannot be read", span, hint=_HINT) from None
    found: dict[str, Any] = {}
    limits: dict[str, int] = {}
    tokens = [token for token in inner.tokens if not token.is_symbol(",")]
    for at in range(0, len(tokens), 4):
        name, value = _call(statement, span, tokens[at : at + 4])
        (limits if name in _LIMITS else found)[name] = value
    if limits:
        try:
            found["limits"] = Limits(**limits)
        except CepError as error:
            hint = None if error.hint is None else in_sql(error.hint)
            raise statement.error(error.message, span, hint=hint) from None
    return found


def _call(statement: Statement, span: tuple[int, int], tokens: list[Token]) -> tuple[str, Any]:
    """name('text') or name(number)."""
    at = (span[0] + tokens[0].start, span[0] + tokens[-1].end)
    name = tokens[0].text.lower()
    shape = "".join(token.text if token.kind == "symbol" else "x" for token in tokens)
    if shape != "x(x)" or name not in _TEXTS | set(_LIMITS):
        raise _unknown(statement, at)
    value = tokens[2]
    if name in _TEXTS and value.kind == "string":
        return name, value.text
    if name in _LIMITS and value.kind == "number" and value.text.isdigit():
        return name, int(value.text)
    raise _unknown(statement, at)


def _unknown(statement: Statement, span: tuple[int, int]) -> PatternError:
    text = statement.text[span[0] : span[1]]
    return statement.error(f"{text} is no hint for MATCH_RECOGNIZE", span, hint=_HINT)
