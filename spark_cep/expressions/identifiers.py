"""Which words of an expression are names, as Spark reads them.

Spark has no reserved words by default: `show`, `values`, `case` and even `and` are names wherever a
name may be, and only TRUE, FALSE and NULL are never columns. sqlglot decides by the word alone. So
the words that Spark reads as names are marked as quoted identifiers before sqlglot parses. Words
before a parenthesis are functions and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

NamePredicate = Callable[[str], bool]

# Between operands; an operand follows.
_INFIX = {
    "AND", "OR", "IS", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "DIV", "WHEN", "THEN",
    "ELSE", "ESCAPE", "FROM", "FOR", "PLACING", "NOT", "END", "AS", "COLLATE", "ASC", "DESC",
    "NULLS", "OVER", "FILTER", "WITHIN", "AT",
}  # fmt: skip
# Of these no operand follows: what comes next belongs to the operand before.
_BEHIND_OPERANDS = {
    "IS", "NOT", "END", "COLLATE", "ASC", "DESC", "NULLS", "OVER", "FILTER", "WITHIN", "AT",
}  # fmt: skip
_PREFIXES = {"NOT", "CASE", "INTERVAL", "DISTINCT", "ALL", "BOTH", "LEADING", "TRAILING"}
_CONSTANTS = {"NULL", "TRUE", "FALSE"}
_QUERIES = {"SELECT", "WITH", "VALUES", "TABLE", "FROM"}
_FIRST_WORDS = {*_QUERIES, "WHERE"}
_OPENS = {"(", "["}
_CLOSES = {")", "]"}
_SIGNS = {"+", "-", "~"}
_VALUES = {
    TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING,
    TokenType.NATIONAL_STRING, TokenType.BYTE_STRING, TokenType.BIT_STRING, TokenType.PLACEHOLDER,
}  # fmt: skip


def no_names(_: str) -> bool:
    """The default of `mark_names`: current_date and the like are functions."""
    return False


def mark_names(
    tokens: Sequence[Token], text: str, is_name: NamePredicate = no_names
) -> list[Token]:
    """The tokens, names as identifiers. `is_name`: whether a word such as current_date, which is a
    function without parentheses unless there is a column of this name, is a name."""
    return _NameMarker(tokens, text, is_name).run()


class _NameMarker:
    """Reads the tokens from left to right. `_expects`: an operand may begin at the token. `_cases`:
    how many CASE are open."""

    def __init__(self, tokens: Sequence[Token], text: str, is_name: NamePredicate) -> None:
        self._tokens = list(tokens)
        self._shown = [text[each.start : each.end + 1] for each in tokens]
        self._words = [
            shown.upper() if _is_word(token, shown) else ""
            for token, shown in zip(tokens, self._shown, strict=True)
        ]
        self._is_name = is_name
        self._expects = True
        self._cases = 0

    def run(self) -> list[Token]:
        at = 0
        while at < len(self._tokens):
            at = self._read_word(at) if self._words[at] else self._read_other(at)
        return self._tokens

    # ---- symbols, literals, quoted names ---------------------------------------------------------

    def _read_other(self, at: int) -> int:
        shown = self._shown[at]
        if self._tokens[at].token_type in _VALUES or shown[:1] in {"`", "'", '"'}:
            self._expects = False
        elif shown in _OPENS:
            self._expects = True
            if self._is_query(at + 1):
                return self._end_of_group(at)
        elif shown in _CLOSES or shown in {".", "::", "?::"}:
            self._expects = False
        elif shown == "*":
            # A product, or the star of count(*).
            self._expects = not self._expects and self._shown_at(at - 1) != "."
        else:
            self._expects = True
        return at + 1

    def _is_query(self, at: int) -> bool:
        return self._word_at(at) in _QUERIES and self._begins_operand(at + 1)

    def _end_of_group(self, at: int) -> int:
        """The token that closes the bracket at the token, or the number of tokens."""
        depth = 0
        for index in range(at, len(self._tokens)):
            depth += (self._shown[index] in _OPENS) - (self._shown[index] in _CLOSES)
            if not depth:
                return index
        return len(self._tokens)

    # ---- words -----------------------------------------------------------------------------------

    def _read_word(self, at: int) -> int:
        is_call = self._shown_at(at + 1) == "("
        if self._is_qualified(at):
            return self._mark(at)
        if not self._expects:
            return self._read_after_operand(at)
        if is_call or self._is_keyword(at):
            self._cases += self._words[at] == "CASE" and not is_call
            # There is no operand between the two words.
            is_case = self._words[at] == "CASE" and self._word_at(at + 1) == "WHEN"
            return at + 1 + (is_case or self._is_before_from(at))
        if self._is_constant(at):
            self._expects = False
            return at + 1
        return self._mark(at)

    def _is_qualified(self, at: int) -> bool:
        """Whether the word is a part of a dotted name."""
        if self._shown_at(at + 1) == "." and self._is_name_at(at + 2):
            return True
        return self._shown_at(at - 1) == "." and self._shown_at(at + 1) != "("

    def _is_constant(self, at: int) -> bool:
        if self._words[at] in _CONSTANTS:
            return True
        is_function = self._tokens[at].token_type in _FUNCTIONS_WITHOUT_PARENTHESES
        return is_function and not self._is_name(self._shown[at])

    def _read_after_operand(self, at: int) -> int:
        """An operator, or a word that belongs to the operand before it."""
        word = self._words[at]
        if word == "AS":
            return self._end_of_type(at)
        self._cases -= word == "END"
        self._expects = word in _INFIX - _BEHIND_OPERANDS
        return at + 1

    def _end_of_type(self, at: int) -> int:
        """The end of CAST(... AS type)."""
        depth = 0
        for index in range(at + 1, len(self._tokens)):
            depth += (self._shown[index] in _OPENS) - (self._shown[index] in _CLOSES)
            if depth < 0:
                return index
        return len(self._tokens)

    def _is_keyword(self, at: int) -> bool:
        """Whether the word, at which an operand may begin, is part of the grammar."""
        word = self._words[at]
        if self._tokens_type(at + 1) in _VALUES - {TokenType.NUMBER} and word not in _INFIX:
            # DATE '2024-01-01', INTERVAL '5' DAYS, DISTINCT 'x'
            return True
        if self._is_before_from(at):
            return True
        if word == "CASE":
            return self._is_case(at)
        if word in _FIRST_WORDS:
            return self._is_first_word(at)
        if word in _PREFIXES:
            return self._is_prefix(at)
        return word in _INFIX and not self._is_operand(at)

    def _is_before_from(self, at: int) -> bool:
        """EXTRACT(YEAR FROM ts), trim(BOTH FROM name)."""
        is_first = self._shown_at(at - 1) == "(" and self._word_at(at + 1) == "FROM"
        return is_first and self._begins_operand(at + 2)

    def _is_first_word(self, at: int) -> bool:
        """Whether the word begins a query or the condition of FILTER."""
        if self._words[at] == "WHERE" and self._word_at(at - 2) == "FILTER":
            return self._shown_at(at - 1) == "("
        return self._shown_at(at - 1) in {"", "("} and self._begins_operand(at + 1)

    def _is_prefix(self, at: int) -> bool:
        """Whether NOT, DISTINCT, INTERVAL and the like are in front of an operand."""
        word, following = self._words[at], self._shown_at(at + 1)
        if word == "INTERVAL" and following in _SIGNS:
            return bool(self._word_at(at + 3)) and self._word_at(at + 3) not in _INFIX
        begins = following in _SIGNS or self._begins_operand(at + 1)
        if word in {"NOT", "INTERVAL"}:
            return begins
        return self._shown_at(at - 1) == "(" and (begins or following == "*")

    def _is_case(self, at: int) -> bool:
        """CASE WHEN, CASE x WHEN; a column otherwise."""
        if self._shown_at(at + 1) not in _SIGNS:
            return self._word_at(at + 1) == "WHEN" or self._begins_operand(at + 1)
        depth = 0
        for index in range(at + 1, len(self._tokens)):
            depth += (self._shown[index] in _OPENS) - (self._shown[index] in _CLOSES)
            if depth < 0 or (not depth and self._words[index] in {"CASE", "WHEN", "END"}):
                return depth == 0 and self._words[index] == "WHEN"
        return False

    def _begins_operand(self, at: int) -> bool:
        """Whether an operand begins at the token, if the one before it is a keyword."""
        if at >= len(self._tokens):
            return False
        if self._words[at] == "END" and self._cases > 0:
            return self._word_at(at + 1) == "END"
        if self._words[at]:
            return self._words[at] not in _INFIX or self._is_operand(at)
        shown = self._shown[at]
        return self._tokens[at].token_type in _VALUES or shown == "(" or shown[:1] in {"`", "'"}

    def _is_operand(self, at: int) -> bool:
        """Whether a word that may stand between operands is a name itself: nothing that could be
        its right operand follows."""
        following, word = self._shown_at(at + 1), self._word_at(at + 1)
        if word:
            return word in _INFIX and not (self._words[at] == "NOT" and word in _NEGATED)
        if following in _SIGNS:
            return self._words[at] != "NOT"
        return following != "(" and not self._begins_operand(at + 1)

    # ---- tokens ----------------------------------------------------------------------------------

    def _mark(self, at: int) -> int:
        token = self._tokens[at]
        is_plain = token.token_type == TokenType.VAR
        if not is_plain or self._words[at] in Spark.Parser.NO_PAREN_FUNCTION_PARSERS:
            self._tokens[at] = Token(
                TokenType.IDENTIFIER, token.text, token.line, token.col, token.start, token.end,
                token.comments,
            )  # fmt: skip
        self._expects = False
        return at + 1

    def _is_name_at(self, at: int) -> bool:
        return bool(self._word_at(at)) or self._shown_at(at)[:1] in {"`", "*"}

    def _shown_at(self, at: int) -> str:
        return self._shown[at] if 0 <= at < len(self._shown) else ""

    def _word_at(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _tokens_type(self, at: int) -> TokenType | None:
        return self._tokens[at].token_type if at < len(self._tokens) else None


_NEGATED = {"IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN"}
_FUNCTIONS_WITHOUT_PARENTHESES = frozenset(Spark.Parser.NO_PAREN_FUNCTIONS)
_WORD = re.compile(r"\w+")


def _is_word(token: Token, shown: str) -> bool:
    return token.token_type not in _VALUES and bool(_WORD.fullmatch(shown))
