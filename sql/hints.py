"""Hints after a clause: MATCH_RECOGNIZE (...) /*+ plan('zstream'), shed(keep => 0.3) */.

Spark ignores hints that it does not know. These belong to this library alone, so a misspelled one
is an error: a plan that silently is not used would be worse.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError
from spark_cep.expressions.problems import nearest_name
from spark_cep.shed import Shed
from spark_cep.sql.messages import reword_for_sql
from spark_cep.sql.statement import SqlToken, Statement, UnterminatedTextError
from spark_cep.udfs.program import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.errors import PatternError

_TEXTS = {"plan": "zstream", "planner": "greedy", "optimize": "latency", "adapt": "off"}
_LIMITS = tuple(Limits.__dataclass_fields__)
# A statement cannot name the history of a stream.
_SHED = tuple(name for name in Shed.__dataclass_fields__ if name != "history")
_HINT = "the hints are {}, shed(keep => 0.3) and {}".format(
    ", ".join(f"{name}('{value}')" for name, value in _TEXTS.items()),
    ", ".join(f"{name}({600 if name == 'seconds' else 1_000_000})" for name in _LIMITS),
)


def read_hints(statement: Statement, span: tuple[int, int] | None) -> dict[str, Any]:
    """Options of match_pattern from the characters of a hint."""
    if span is None:
        return {}
    try:
        inner = Statement(statement.text[span[0] : span[1]])
    except UnterminatedTextError:
        raise statement.error("this hint cannot be read", span, hint=_HINT) from None
    found: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for tokens in _hint_calls(inner):
        at = (span[0] + tokens[0].start, span[0] + tokens[-1].end)
        name, arguments = tokens[0].text.lower(), tokens[2:-1]
        if name == "shed":
            found[name] = _read_shed(statement, at, arguments)
        else:
            (limits if name in _LIMITS else found)[name] = _hint_value(
                statement, at, name, arguments
            )
    if limits:
        try:
            found["limits"] = Limits(**limits)
        except CepError as error:
            raise _hint_error(statement, span, error) from None
    return found


def _hint_calls(inner: Statement) -> Iterator[tuple[SqlToken, ...]]:
    """The tokens of each call, from its name to its closing bracket; what is not a call, whole."""
    index, count = 0, len(inner.tokens)
    while index < count:
        if inner.tokens[index].is_symbol(","):
            index += 1
            continue
        closed = inner.partners.get(index + 1) if inner.symbol(index + 1, "(") else None
        stop = count if closed is None else closed + 1
        yield inner.tokens[index:stop]
        index = stop


def _hint_value(
    statement: Statement, at: tuple[int, int], name: str, arguments: tuple[SqlToken, ...]
) -> Any:
    """name('text') or name(number)."""
    if len(arguments) == 1:
        value = arguments[0]
        if name in _TEXTS and value.kind == "string":
            return value.text
        if name in _LIMITS and value.kind == "number" and re.fullmatch(r"\d{1,18}", value.text):
            return int(value.text)
        if name == "seconds" and value.kind == "number" and re.fullmatch(r"\d*\.\d+", value.text):
            return float(value.text)
    raise _unknown_hint_error(statement, at, name)


def _read_shed(statement: Statement, at: tuple[int, int], arguments: tuple[SqlToken, ...]) -> Shed:
    """shed(keep => 0.3, policy => 'random'): the arguments of cep.Shed by their names."""
    found: dict[str, Any] = {}
    tokens = [token for token in arguments if not token.is_symbol(",")]
    for place in range(0, len(tokens), 3):
        name, *rest = tokens[place : place + 3]
        if len(rest) < 2 or not rest[0].is_symbol("=>") or name.text.lower() not in _SHED:
            known = ", ".join(_SHED)
            hint = f"write shed(keep => 0.3, policy => 'utility'); its arguments are {known}"
            raise statement.error("the arguments of shed cannot be read", at, hint=hint)
        found[name.text.lower()] = _literal_value(rest[1])
    try:
        return Shed(**found)
    except CepError as error:
        raise _hint_error(statement, at, error) from None


_NUMBER = re.compile(r"(\d{1,18}(\.\d{0,18})?|\.\d{1,18})(e[+-]?\d{1,3})?", re.I)


def _literal_value(token: SqlToken) -> Any:
    if token.kind != "number" or not _NUMBER.fullmatch(token.text):
        return token.text
    return int(token.text) if token.text.isdecimal() else float(token.text)


def _hint_error(statement: Statement, span: tuple[int, int], error: CepError) -> PatternError:
    hint = None if error.hint is None else reword_for_sql(error.hint)
    return statement.error(reword_for_sql(error.message), span, hint=hint)


def _unknown_hint_error(statement: Statement, span: tuple[int, int], name: str) -> PatternError:
    text = statement.text[span[0] : span[1]]
    if name in _LIMITS:
        kind = "a number above 0" if name == "seconds" else "a whole number above 0"
        example = f"{name}({600 if name == 'seconds' else 1_000_000})"
        return statement.error(f"{name} takes {kind}", span, hint=f"write {example}")
    if name in _TEXTS:
        example = f"{name}('{_TEXTS[name]}')"
        return statement.error(f"{name} takes a string", span, hint=f"write {example}")
    nearest = nearest_name(name, (*_TEXTS, *_LIMITS, "shed"))
    hint = f"did you mean {nearest}?" if nearest else _HINT
    return statement.error(f"{text} is not a hint of MATCH_RECOGNIZE", span, hint=hint)
