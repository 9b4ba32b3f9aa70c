"""The words and marks of a pattern's text, names with and without quotes, and its problems."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.compiling.problems import Place, Problems

if TYPE_CHECKING:
    from spark_cep.errors import PatternError

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\d+)
    |(?P<mark>\{-|-\}|[()|*+?{},^$])""",
    re.X | re.S,
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


def unquoted(name: str) -> str:
    """A name without its quotes.

    >>> unquoted('"a b"'), unquoted("`a``b`"), unquoted("a")
    ('a b', 'a`b', 'a')
    """
    quote = name[:1]
    if len(name) > 1 and quote in {'"', "`"} and name.endswith(quote):
        return name[1:-1].replace(quote * 2, quote)
    return name


def tokens_of(text: str) -> list[Token]:
    """Raises PatternError for what is neither."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(text, at)
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match[0], match.start(), match.end()))
        at = match.end()
    return found


def _unreadable(text: str, at: int) -> PatternError:
    if text[at] in "'\"`":
        message = "this quote has no end" if text[at] != "'" else "a string is no variable"
        hint = "a name with other characters than letters, digits and _ stands in backticks"
    else:
        message = f"{text[at]!r} has no place in a pattern"
        hint = "a pattern has names, ( ) | * + ? {n,m} ^ $ {- -} and PERMUTE(...)"
    return problem(message, Place(text, at, at + 1), hint)


def problem(message: str, place: Place | None, hint: str | None) -> PatternError:
    """One problem as an error."""
    problems = Problems()
    problems.add(message, place, hint=hint)
    return problems.error()
