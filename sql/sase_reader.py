"""A place in the tokens, moved forward by the grammars.

Grammars only ever look at the next tokens and take them; nothing is tried and taken back, so the
first token that fits no rule is where the error is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn

from spark_cep.compiling.problems import Place
from spark_cep.sql.sase_nodes import Sql
from spark_cep.sql.sase_tokens import Token, failed

# Words that end what stands before them.
CLAUSES = ("PATTERN", "WHERE", "WITHIN", "RETURN", "HAVING", "FROM", "PARTITION")
_THOUSANDS = {"k": 3, "K": 3, "M": 6}
_SPARK_SUFFIX = re.compile(r"[lsydf]|bd", re.I)


class Reader:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    @property
    def before(self) -> Token:
        """The token taken last."""
        return self._tokens[max(self._at - 1, 0)]

    def ahead(self, count: int = 1) -> Token:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def at(self, *values: str) -> bool:
        """Whether the next token is one of these marks or keywords."""
        return said(self.token) in values

    def take(self, *values: str) -> Token | None:
        return self.advance() if self.at(*values) else None

    def expect(self, value: str, hint: str) -> Token:
        return self.take(value) or self.unexpected(f"expected {value}", hint)

    def name(self, what: str, hint: str) -> Token:
        if self.token.kind not in {"name", "quoted"}:
            self.unexpected(f"expected {what}", hint)
        return self.advance()

    def unexpected(self, message: str, hint: str) -> NoReturn:
        found = "the text ends" if self.token.kind == "end" else f"found {self.token.written}"
        failed(f"{message}, but {found}", self.token.place, hint)

    def close(self, opening: Token, closing: str) -> Token:
        """The bracket that belongs to `opening`."""
        if self.at(closing):
            return self.advance()
        if self.token.kind == "end" or self.at("WHERE", "WITHIN"):
            hint = f"add {closing} where it ends"
            failed(f"{opening.written} is not closed", opening.place, hint)
        return self.unexpected(f"expected {closing} or a comma", f"{opening.written} is still open")

    def touches(self, count: int = 0) -> bool:
        """Whether nothing stands between a token and the one before it."""
        place = self.ahead(count).place
        return self._tokens[max(self._at + count - 1, 0)].place.end == place.start

    def since(self, start: Token | Place) -> Place:
        """From a token or node to the token taken last."""
        place = start.place if isinstance(start, Token) else start
        return Place(place.text, place.start, self.before.place.end)

    def number(self, *, grouped: bool, typed: bool) -> Sql:
        """A number token with what is printed onto it: 10k, 46.51°C and, if `grouped` says that
        no list can be meant, 10,000. `typed`: also Spark's 10L, 1.5D."""
        first = self.advance()
        text = first.value
        while grouped and self._is_group(text):
            self.advance()
            text += self.advance().value
        if self.at("°") and self.touches():
            # The unit of a column is the column's; its sign says nothing more.
            self.advance()
            if self.token.kind == "name" and self.touches():
                self.advance()
        elif self.token.kind == "name" and self.touches():
            text = self._suffixed(text, typed=typed)
        return Sql(text, self.since(first))

    def _is_group(self, text: str) -> bool:
        digits = self.ahead().value
        return (
            text.isdigit()
            and self.at(",")
            and self.touches()
            and self.touches(1)
            and self.ahead().kind == "number"
            and digits.isdigit()
            and len(digits) == len("000")
        )

    def _suffixed(self, text: str, *, typed: bool) -> str:
        suffix = self.token.value
        zeros = _THOUSANDS.get(suffix)
        if zeros is not None and text.replace(".", "", 1).isdigit():
            self.advance()
            return _shifted(text, zeros)
        if typed and _SPARK_SUFFIX.fullmatch(suffix):
            self.advance()
            return text + suffix
        return text


def said(token: Token) -> str:
    """A mark, or a word in capitals; nothing for what can be no keyword.

    >>> from spark_cep.sql.sase_tokens import tokens
    >>> [said(token) for token in tokens("seq `or` | 'and'")]
    ['SEQ', '', 'OR', '', '']
    """
    if token.kind == "mark":
        return token.value
    return token.value.upper() if token.kind == "name" else ""


def _shifted(text: str, zeros: int) -> str:
    """
    >>> _shifted("1.5", 3), _shifted("10", 3), _shifted("1.2345", 3), _shifted(".5", 3)
    ('1500', '10000', '1234.5', '500')
    """
    whole, _, fraction = text.partition(".")
    digits = fraction.ljust(zeros, "0")
    number = f"{whole}{digits[:zeros]}".lstrip("0") or "0"
    return f"{number}.{digits[zeros:]}" if digits[zeros:] else number
