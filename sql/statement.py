"""A statement as the user wrote it: its tokens, its brackets, and errors that point into it.

What goes to Spark is always cut from the text by position, never printed from tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from spark_cep.expressions.problems import Excerpt, Place, Problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spark_cep.errors import PatternError

TokenKind = Literal["word", "quoted", "string", "number", "symbol"]


@dataclass(frozen=True)
class SqlToken:
    """The characters [start, end) of the text; `text` is without quotes."""

    kind: TokenKind
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


class Statement:
    """An SQL text, with its `origin` if it was derived from what the user wrote."""

    def __init__(self, text: str, origin: DerivedText | None = None) -> None:
        self.text = text
        self.origin = origin
        self.tokens = tuple(_tokenize(text))

    def is_at(self, index: int, *words: str) -> bool:
        """Whether these words begin at the token, in any case, unquoted."""
        found = self.tokens[max(index, 0) : index + len(words)]
        return (
            index >= 0
            and len(found) == len(words)
            and all(token.is_word(word) for token, word in zip(found, words, strict=True))
        )

    def symbol(self, index: int, *symbols: str) -> bool:
        return 0 <= index < len(self.tokens) and self.tokens[index].is_symbol(*symbols)

    @cached_property
    def partners(self) -> dict[int, int]:
        """From each bracket's token to the one that closes or opens it."""
        found: dict[int, int] = {}
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.is_symbol(*_OPENS):
                opened.append(index)
            elif token.is_symbol(*_CLOSES) and opened:
                if _OPENS[self.tokens[opened[-1]].text] == token.text:
                    found[opened[-1]], found[index] = index, opened[-1]
                opened.pop()
        return found

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """For each token the bracket around it, -1 outside all brackets. A bracket is outside the
        group that it encloses."""
        found: list[int] = []
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.is_symbol(*_CLOSES) and opened:
                opened.pop()
            found.append(opened[-1] if opened else -1)
            if token.is_symbol(*_OPENS):
                opened.append(index)
        return tuple(found)

    def end_of_group(self, index: int) -> int:
        """The token that closes the group around the token, or the number of tokens."""
        group = self.groups[index]
        return self.partners.get(group, len(self.tokens)) if group >= 0 else len(self.tokens)

    def first_token(self, offset: int) -> int:
        """The first token that begins at the character or after it."""
        return bisect_left(self.tokens, offset, key=lambda token: token.start)

    def top(self, first: int, stop: int) -> Iterator[int]:
        """The tokens of [first, stop) outside its brackets, opening brackets included."""
        index = first
        while index < stop:
            yield index
            token = self.tokens[index]
            closed = self.partners.get(index) if token.is_symbol(*_OPENS) else None
            index = (index if closed is None else closed) + 1

    def span(self, first: int, stop: int) -> tuple[int, int]:
        """The range of the tokens [first, stop), of which there is at least one."""
        return self.tokens[first].start, self.tokens[stop - 1].end

    def cut(self, first: int, stop: int) -> str:
        """The text of the tokens [first, stop)."""
        start, end = self.span(first, stop)
        return self.text[start:end]

    def place(self, span: tuple[int, int]) -> Place:
        """The place in what the user wrote."""
        start, end = span
        if self.origin is not None:
            last = self.origin.source(max(start, end - 1))
            start, end = self.origin.source(start), last + (end > start)
        return Place(self.whole, start, end)

    @property
    def whole(self) -> str:
        """What the user wrote."""
        return self.text if self.origin is None else self.origin.original

    def excerpt(self, span: tuple[int, int]) -> str:
        """A part of the text that knows where the user wrote it."""
        text = self.text[slice(*span)]
        start = span[0] if self.origin is None else self.origin.source(span[0])
        found = Excerpt(self.whole, start, start + len(text))
        return found if found == text else text

    def error(
        self, message: str, span: tuple[int, int], *, hint: str | None = None
    ) -> PatternError:
        """An error at a range of the text."""
        problems = Problems()
        problems.add(message, self.place(span), hint=hint)
        return problems.error()

    def error_at(self, message: str, index: int, *, hint: str | None = None) -> PatternError:
        """An error at a token, or after the last one."""
        if index < len(self.tokens):
            return self.error(message, self.span(index, index + 1), hint=hint)
        return self.error(message, (len(self.text), len(self.text)), hint=hint)


class UnterminatedTextError(Exception):
    """The text ends inside a quote or a comment."""


# ---- tokens --------------------------------------------------------------------------------------


class _PlainDialect(Spark):
    """Spark's tokens without keywords; braces are braces, not those of a template language.

    Which words mean something depends on where they are, and most of SQL does not matter here. With
    keywords, sqlglot would read what follows EXPLAIN as one string, and ORDER BY as one token
    unless a comment is in between.
    """

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            text: kind
            for text, kind in Spark.Tokenizer.KEYWORDS.items()
            if not text[0].isalpha() and not set(text) & set("{}") and text not in {"/*+", "??"}
        }


_DIALECT = _PlainDialect()
_STRINGS = {
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.HEX_STRING,
    TokenType.NATIONAL_STRING,
    TokenType.BYTE_STRING,
}
_OPENS, _CLOSES = {"(": ")", "[": "]"}, {")", "]"}


def _tokenize(text: str) -> Iterator[SqlToken]:
    try:
        found = _DIALECT.tokenize(text)
    except TokenError as error:
        raise UnterminatedTextError from error
    for token in found:
        start, end = token.start, token.end + 1
        yield SqlToken(_token_kind(token.token_type, text[start:end]), token.text, start, end)


def _token_kind(kind: TokenType, text: str) -> TokenKind:
    if kind in _STRINGS:
        return "string"
    if kind == TokenType.IDENTIFIER:
        return "quoted"
    if kind == TokenType.NUMBER:
        return "number"
    return "word" if text[0] == "_" or text[0].isalnum() or ord(text[0]) > 127 else "symbol"


# ---- queries -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FramePiece:
    """A DataFrame in a query that is made of texts and ranges."""

    df: Any


QueryPiece = str | tuple[int, int] | FramePiece


# ---- derived text --------------------------------------------------------------------------------

TextEdit = tuple[int, int, str]


@dataclass(frozen=True)
class DerivedText:
    """`original[start:end]` with replacements. Each piece holds its first character in `text`, the
    character of the original that it comes from, and whether the piece was copied."""

    original: str
    text: str
    pieces: tuple[tuple[int, int, bool], ...]

    def source(self, offset: int) -> int:
        """The character of the original that a character of the text comes from; within a
        replacement, the beginning of what was replaced.

        >>> derive_text("a < :x AND b", (0, 12), [(4, 6, "1000")]).source(13)
        11
        """
        at = bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1
        start, source, copied = self.pieces[max(at, 0)]
        return source + (offset - start if copied else 0)


def derive_text(
    original: str, span: tuple[int, int], edits: Iterable[TextEdit] = ()
) -> DerivedText:
    """The characters [start, end) of a text, with edits (start, end, replacement).

    >>> derive_text("a < :x AND b", (0, 12), [(4, 6, "1000")]).text
    'a < 1000 AND b'
    """
    start, end = span
    texts: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    length, done = 0, start

    def add(text: str, source: int, *, copied: bool) -> None:
        nonlocal length
        if text:
            pieces.append((length, source, copied))
            texts.append(text)
            length += len(text)

    for begin, stop, replacement in sorted(edits):
        if start <= begin and stop <= end:
            add(original[done:begin], done, copied=True)
            add(replacement, begin, copied=False)
            done = stop
    add(original[done:end], done, copied=True)
    return DerivedText(original, "".join(texts), tuple(pieces) or ((0, start, True),))
