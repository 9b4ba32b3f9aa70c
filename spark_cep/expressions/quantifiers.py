"""Quantifiers: how often a part of a pattern is repeated.

    +  *  ?  {n}  {n,}  {,m}  {n,m}

One reader for the string shorthand ("b+"), `times()`, PATTERN and SASE text. It reads the texts of
tokens, so each parser keeps its own tokens and shows an error at their places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# The longest quantifier: { n , m } and the ? of a reluctant one.
MAX_TOKENS = 6
_BOUNDS = {"+": (1, None), "*": (0, None), "?": (0, 1)}
_MAX_DIGITS = 18
_BRACES = re.compile(r"(?P<low>\d*) ?(?P<comma>,?) ?(?P<high>\d*)")
_TOKEN = re.compile(r"\d+|\S")
_HINT = "write +, *, ?, {3}, {2,4}, {2,} or {,4}"


@dataclass(frozen=True)
class Quantifier:
    """At least `low` and at most `high` times (None: unbounded). `length`: its number of tokens."""

    text: str
    low: int
    high: int | None
    length: int
    greedy: bool = True


class QuantifierError(Exception):
    """A quantifier that cannot be used; `length` is the number of tokens that the error covers."""

    def __init__(self, message: str, hint: str, length: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.length = length


def is_quantifier(token: str) -> bool:
    """Whether a quantifier begins with this token."""
    return token in _BOUNDS or token == "{"


def read_quantifier(tokens: Sequence[str], *, row_pattern: bool = False) -> Quantifier | None:
    """The quantifier at the beginning of `tokens`; None if there is none. Row patterns also have
    `{,}` and reluctant quantifiers, with a ? behind them. Raises QuantifierError.

    >>> read_quantifier(["{", "2", ",", "}", "?", "b"], row_pattern=True)
    Quantifier(text='{2,}?', low=2, high=None, length=5, greedy=False)
    >>> read_quantifier(["b", "+"])
    """
    if not tokens or not is_quantifier(tokens[0]):
        return None
    if tokens[0] == "{":
        low, high, length = _read_braces(tokens, row_pattern=row_pattern)
    else:
        (low, high), length = _BOUNDS[tokens[0]], 1
    is_reluctant = row_pattern and list(tokens[length : length + 1]) == ["?"]
    length += is_reluctant
    return Quantifier("".join(tokens[:length]), low, high, length, not is_reluctant)


def parse_quantifier(text: str) -> Quantifier:
    """The quantifier that the whole text is; raises QuantifierError.

    >>> parse_quantifier("{ 2, 4 }")
    Quantifier(text='{2,4}', low=2, high=4, length=5, greedy=True)
    """
    tokens = _TOKEN.findall(text)
    found = read_quantifier(tokens)
    if found is None or found.length < len(tokens):
        raise QuantifierError(f"{text!r} is not a quantifier", _HINT, len(tokens))
    return found


def _read_braces(tokens: Sequence[str], *, row_pattern: bool) -> tuple[int, int | None, int]:
    """Lower and upper bound, and the number of tokens."""
    inner = []
    for token in tokens[1:]:
        if token != "," and not token.isdecimal():
            break
        inner.append(token)
    length = tokens.index("}") + 1 if "}" in tokens else min(len(inner) + 2, len(tokens))
    text = "".join(tokens[:length])
    # A blank between two numbers must not make one of them.
    is_closed = list(tokens[len(inner) + 1 : length]) == ["}"]
    found = _BRACES.fullmatch(" ".join(inner)) if is_closed else None
    if found is None or not (found["low"] or found["high"] or (row_pattern and found["comma"])):
        raise QuantifierError(f"{text} is not a quantifier", _HINT, length)
    if any(len(each) > _MAX_DIGITS for each in inner):
        raise QuantifierError("this number has too many digits", _HINT, length)
    low = int(found["low"] or 0)
    high = int(found["high"]) if found["high"] else None
    if not found["comma"]:
        high = low
    if high == 0:
        hint = "the upper bound must be at least 1: {0,1}"
        raise QuantifierError(f"the upper bound of {text} is 0", hint, length)
    if high is not None and high < low:
        message = f"the lower bound of {text} is larger than its upper bound"
        hint = f"write the smaller number first: {{{high},{low}}}"
        raise QuantifierError(message, hint, length)
    return low, high, length
