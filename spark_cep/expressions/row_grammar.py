"""The grammar of PATTERN: its text as a tree, with the place of every part.

    alternation    concatenation | concatenation | ...    the first or the last may be empty: (a|)
    concatenation  term term ...
    term           primary quantifier?
    primary        name  ( alternation )  ()  ^  $  {- alternation -}  PERMUTE( alternation, ... )
    quantifier     * + ? {n} {n,} {,m} {n,m} {,}, each with a reluctant ?

Not parsed by a SQL parser: `{-`, `^` and `$` are not SQL tokens, and every error here has a place
and says what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.quantifiers import (
    MAX_TOKENS,
    Quantifier,
    QuantifierError,
    is_quantifier,
    read_quantifier,
)
from spark_cep.udfs.rows.instructions import MOST_INSTRUCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.errors import PatternError


NodeKind = Literal[
    "variable", "concat", "alternate", "permute", "repeat", "exclude", "empty", "start", "end"
]
# The parser recurses once for each level.
_MAX_DEPTH = 100
_ELEMENTS_HINT = "a pattern consists of names, ( ) | * + ? {n,m} ^ $ {- -} and PERMUTE(...)"


@dataclass(frozen=True)
class PatternNode:
    """A part of the pattern: characters [start, end) of its text.

    "variable" has a `name`; "concat", "alternate" and "permute" have `parts`; "repeat" has one
    part, `low` to `high` times (None: unbounded); "exclude" has one part; "empty", "start" and
    "end" have none.
    """

    kind: NodeKind
    start: int
    end: int
    name: str = ""
    parts: tuple[PatternNode, ...] = ()
    low: int = 1
    high: int | None = 1
    greedy: bool = True


def parse_row_pattern(text: str) -> PatternNode:
    """The tree of a pattern; raises PatternError with the place of the error.

    >>> tree = parse_row_pattern("strt down+ up{2,}?")
    >>> [(each.kind, node_text("strt down+ up{2,}?", each)) for each in tree.parts]
    [('variable', 'strt'), ('repeat', 'down+'), ('repeat', 'up{2,}?')]
    """
    return _RowPatternParser(text, tokenize_pattern(text)).whole()


def node_text(text: str, node: PatternNode) -> str:
    return text[node.start : node.end]


def variable_nodes(node: PatternNode) -> tuple[PatternNode, ...]:
    """Every use of a variable, from left to right."""
    if node.kind == "variable":
        return (node,)
    return tuple(each for part in node.parts for each in variable_nodes(part))


def exclusions_of(node: PatternNode) -> tuple[PatternNode, ...]:
    inner = tuple(each for part in node.parts for each in exclusions_of(part))
    return (node, *inner) if node.kind == "exclude" else inner


def may_be_empty(node: PatternNode) -> bool:
    """Whether a match may have no rows.

    >>> may_be_empty(parse_row_pattern("a* (b|)")), may_be_empty(parse_row_pattern("a* b"))
    (True, False)
    """
    if node.kind == "repeat":
        return node.low == 0 or may_be_empty(node.parts[0])
    if node.kind == "alternate":
        return any(map(may_be_empty, node.parts))
    return node.kind != "variable" and all(map(may_be_empty, node.parts))


@dataclass(frozen=True)
class PatternToken:
    kind: str
    text: str
    start: int
    end: int


class _RowPatternParser:
    def __init__(self, text: str, tokens: list[PatternToken]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> PatternNode:
        if not self._tokens:
            raise pattern_error(
                "the pattern is empty",
                Place.whole(self._text) if self._text else None,
                "write variables: strt down+ up+; () matches the empty sequence",
            )
        node = self._alternation()
        token = self._next()
        if token is not None:
            raise self._unexpected(token)
        return node

    # ---- rules -----------------------------------------------------------------------------------

    def _alternation(self) -> PatternNode:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            token = self._next() or self._tokens[-1]
            raise pattern_error(
                f"the pattern is nested deeper than {_MAX_DEPTH} levels",
                self._place(token),
                "write repetitions with quantifiers: (a b){20}",
            )
        parts = [self._alternative()]
        while self._accept("|"):
            parts.append(self._alternative(is_later=True))
        self._depth -= 1
        return _combine("alternate", parts)

    def _alternative(self, *, is_later: bool = False) -> PatternNode:
        """A concatenation. The first and the last alternative may be empty."""
        token = self._next()
        at = len(self._text) if token is None else token.start
        is_bar = token is not None and token.kind == "mark" and token.text == "|"
        is_end = token is None or _ends(token)
        if (is_end and not is_bar) if is_later else is_bar:
            return PatternNode("empty", at, at)
        return self._concatenation()

    def _concatenation(self) -> PatternNode:
        parts = []
        while (token := self._next()) is not None and not _ends(token):
            parts.append(self._term())
        if not parts:
            raise self._missing()
        return _combine("concat", parts)

    def _term(self) -> PatternNode:
        part = self._primary()
        quantifier = self._quantifier()
        if quantifier is None:
            return part
        node = PatternNode(
            "repeat",
            part.start,
            self._last().end,
            "",
            (part,),
            quantifier.low,
            quantifier.high,
            quantifier.greedy,
        )
        again = self._next()
        if again is not None and is_quantifier(again.text):
            raise pattern_error(
                f"{node_text(self._text, node)} already has a quantifier",
                self._place(again),
                f"put it in parentheses: ({node_text(self._text, node)}){again.text}"
                + ("n}" if again.text == "{" else ""),
            )
        return node

    def _quantifier(self) -> Quantifier | None:
        tokens = self._tokens[self._at : self._at + MAX_TOKENS]
        try:
            found = read_quantifier([each.text for each in tokens], row_pattern=True)
        except QuantifierError as error:
            place = Place(self._text, tokens[0].start, tokens[error.length - 1].end)
            raise pattern_error(error.message, place, error.hint) from None
        if found is not None and max(found.low, found.high or 0) > MOST_INSTRUCTIONS:
            raise pattern_error(
                f"{found.text} compiles to more than {MOST_INSTRUCTIONS:,} instructions",
                Place(self._text, tokens[0].start, tokens[found.length - 1].end),
                f"write {{{found.low},}}, or a smaller bound"
                if found.low <= MOST_INSTRUCTIONS
                else "count in DEFINE: b AS count(b.*) <= 1000000",
            )
        self._at += 0 if found is None else found.length
        return found

    def _primary(self) -> PatternNode:
        token = self._take()
        following = self._next()
        if token.kind == "quoted":
            return PatternNode("variable", token.start, token.end, unquote(token.text))
        if token.kind == "name":
            if token.text.upper() == "PERMUTE" and following and following.text == "(":
                return self._permutation(token)
            return PatternNode("variable", token.start, token.end, token.text)
        if token.text == "(":
            return self._group(token)
        if token.text == "{-":
            inner = self._alternation()
            closing = self._closing(token, "-}")
            return PatternNode("exclude", token.start, closing.end, "", (inner,))
        if token.text in {"^", "$"}:
            return PatternNode("start" if token.text == "^" else "end", token.start, token.end)
        raise self._unexpected(token)

    def _group(self, opening: PatternToken) -> PatternNode:
        if self._accept(")"):
            return PatternNode("empty", opening.start, self._last().end)
        inner = self._alternation()
        closing = self._closing(opening, ")")
        return replace(inner, start=opening.start, end=closing.end)

    def _permutation(self, name: PatternToken) -> PatternNode:
        opening = self._take()
        parts = [self._alternation()]
        while self._accept(","):
            parts.append(self._alternation())
        closing = self._closing(opening, ")")
        return PatternNode("permute", name.start, closing.end, "", tuple(parts))

    # ---- tokens ----------------------------------------------------------------------------------

    def _next(self) -> PatternToken | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> PatternToken:
        self._at += 1
        return self._tokens[self._at - 1]

    def _last(self) -> PatternToken:
        return self._tokens[self._at - 1]

    def _accept(self, text: str) -> bool:
        token = self._next()
        found = token is not None and token.kind == "mark" and token.text == text
        self._at += found
        return found

    def _closing(self, opening: PatternToken, text: str) -> PatternToken:
        if self._accept(text):
            return self._last()
        token = self._next()
        if token is not None:
            raise self._unexpected(token)
        raise pattern_error(
            f"this {opening.text} is not closed", self._place(opening), f"add {text}"
        )

    def _depth_of(self, opening: str, closing: str) -> int:
        """How many brackets are open at the current token."""
        before = [each.text for each in self._tokens[: self._at]]
        return before.count(opening) - before.count(closing)

    def _place(self, token: PatternToken) -> Place:
        return Place(self._text, token.start, token.end)

    def _missing(self) -> PatternError:
        """The error for a missing term."""
        token = self._next()
        if token is None:
            return pattern_error(
                f"expected a variable after {self._last().text}",
                self._place(self._last()),
                "write () for the empty sequence",
            )
        return self._unexpected(token)

    def _unexpected(self, token: PatternToken) -> PatternError:
        hint = _ELEMENTS_HINT
        if is_quantifier(token.text):
            hint = "write a quantifier after the part that it repeats: a+ or (a b)+"
        elif token.text == ",":
            hint = "separate variables with blanks; commas are used only in PERMUTE(a, b)"
        elif token.text in {"|", ")", "-}"}:
            opened = {")": "(", "-}": "{-"}.get(token.text)
            hint = "write a variable before it, or () for the empty sequence"
            if opened and not self._depth_of(opened, token.text):
                hint = f"there is no matching {opened} before it"
        return pattern_error(f"unexpected {token.text}", self._place(token), hint)


def _ends(token: PatternToken) -> bool:
    return token.kind == "mark" and token.text in {"|", ")", "-}", ","}


def _combine(kind: Literal["concat", "alternate"], parts: list[PatternNode]) -> PatternNode:
    if len(parts) == 1:
        return parts[0]
    return PatternNode(kind, parts[0].start, parts[-1].end, "", tuple(parts))


# ---- tokens --------------------------------------------------------------------------------------


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\d+)
    |(?P<mark>\{-|-\}|[()|*+?{},^$])""",
    re.X | re.S,
)


_COMMENT_MARK = re.compile(r"/\*|\*/")


def unquote(name: str) -> str:
    """A name without its quotes.

    >>> unquote('"a b"'), unquote("`a``b`"), unquote("a")
    ('a b', 'a`b', 'a')
    """
    quote = name[:1]
    if len(name) > 1 and quote in {'"', "`"} and name.endswith(quote):
        return name[1:-1].replace(quote * 2, quote)
    return name


def end_of_comment(text: str, at: int) -> int | None:
    """Where the bracketed comment that begins at a character ends; None if there is none. Comments
    contain others, as in Spark.

    >>> end_of_comment("a /* b /* c */ */ d", 2)
    17
    """
    if not text.startswith("/*", at):
        return None
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return None


def tokenize_pattern(text: str) -> list[PatternToken]:
    """The tokens of a pattern; raises PatternError for a character that begins none."""
    found, at = [], 0
    while at < len(text):
        comment = end_of_comment(text, at)
        if comment is not None:
            at = comment
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable_error(text, at)
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            found.append(PatternToken(match.lastgroup, match[0], match.start(), match.end()))
        at = match.end()
    return found


def _unreadable_error(text: str, at: int) -> PatternError:
    if text[at] in "'\"`":
        message = "this quote is not closed" if text[at] != "'" else "a string is not a variable"
        hint = "put a name with characters other than letters, digits and _ in backticks"
    else:
        message = f"unexpected character {text[at]!r}"
        hint = _ELEMENTS_HINT
    return pattern_error(message, Place(text, at, at + 1), hint)


def undecidable_node(node: PatternNode) -> PatternNode | None:
    """The part for which a stream may wait forever: `$`, or else the first repetition without an
    upper bound.

    >>> text = "(a{2} | b+ $) c*"
    >>> node_text(text, undecidable_node(parse_row_pattern(text)))
    '$'
    >>> node_text("a{2} (b | c*)", undecidable_node(parse_row_pattern("a{2} (b | c*)")))
    'c*'
    """
    found = list(_all_nodes(node))
    ends = (each for each in found if each.kind == "end")
    repeats = (
        each
        for each in found
        if each.kind == "repeat" and each.high is None and variable_nodes(each)
    )
    return next(ends, None) or next(repeats, None)


def _all_nodes(node: PatternNode) -> Iterator[PatternNode]:
    yield node
    for part in node.parts:
        yield from _all_nodes(part)


def pattern_error(message: str, place: Place | None, hint: str | None) -> PatternError:
    """One problem as an error."""
    problems = Problems()
    problems.add(message, place, hint=hint)
    return problems.error()
