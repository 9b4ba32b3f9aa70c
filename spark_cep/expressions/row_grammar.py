"""The text of PATTERN as a tree, with the place of every part in the text.

    alternation    concatenation | concatenation | ...
    concatenation  term term ...
    term           primary quantifier?
    primary        name  ( alternation )  ()  ^  $  {- alternation -}  PERMUTE( alternation, ... )
    quantifier     * + ? {n} {n,} {,m} {n,m} {,}, each with a reluctant ?

A grammar of its own rather than a general parser's: `{-`, `^` and `$` are no tokens of SQL, and
every refusal here has a place and says what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from spark_cep.expressions.problems import Place, Problems

if TYPE_CHECKING:
    from spark_cep.errors import PatternError


# --------------------------------------------------------------------------------------------------
# The words and marks of a pattern's text, names with and without quotes, and its problems.
# --------------------------------------------------------------------------------------------------


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\d+)
    |(?P<mark>\{-|-\}|[()|*+?{},^$])""",
    re.X | re.S,
)


@dataclass(frozen=True)
class PatternToken:
    kind: str
    text: str
    start: int
    end: int


def unquote(name: str) -> str:
    """A name without its quotes.

    >>> unquote('"a b"'), unquote("`a``b`"), unquote("a")
    ('a b', 'a`b', 'a')
    """
    quote = name[:1]
    if len(name) > 1 and quote in {'"', "`"} and name.endswith(quote):
        return name[1:-1].replace(quote * 2, quote)
    return name


def tokenize_pattern(text: str) -> list[PatternToken]:
    """Raises PatternError for what is neither."""
    found, at = [], 0
    while at < len(text):
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
        message = "this quote has no end" if text[at] != "'" else "a string is no variable"
        hint = "a name with other characters than letters, digits and _ stands in backticks"
    else:
        message = f"{text[at]!r} has no place in a pattern"
        hint = "a pattern has names, ( ) | * + ? {n,m} ^ $ {- -} and PERMUTE(...)"
    return pattern_error(message, Place(text, at, at + 1), hint)


def pattern_error(message: str, place: Place | None, hint: str | None) -> PatternError:
    """One problem as an error."""
    problems = Problems()
    problems.add(message, place, hint=hint)
    return problems.error()


NodeKind = Literal[
    "variable", "concat", "alternate", "permute", "repeat", "exclude", "empty", "start", "end"
]
# A deeper nesting is no pattern that a person wrote; the parser goes down one call a level.
_MAX_DEPTH = 100


@dataclass(frozen=True)
class PatternNode:
    """A part of the pattern: characters [start, end) of the text.

    "variable": `name`. "concat", "alternate", "permute": `parts`. "repeat": one part, `low`
    to `high` times (None: no end). "exclude": one part. "empty", "start" and "end": nothing.
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
    """The tree; raises PatternError with the place of what is wrong.

    >>> tree = parse_row_pattern("strt down+ up{2,}?")
    >>> [(each.kind, node_text("strt down+ up{2,}?", each)) for each in tree.parts]
    [('variable', 'strt'), ('repeat', 'down+'), ('repeat', 'up{2,}?')]
    """
    return _RowPatternParser(text, tokenize_pattern(text)).whole()


def node_text(text: str, node: PatternNode) -> str:
    return text[node.start : node.end]


def variable_nodes(node: PatternNode) -> tuple[PatternNode, ...]:
    """Every place where a variable is named, from left to right."""
    if node.kind == "variable":
        return (node,)
    return tuple(each for part in node.parts for each in variable_nodes(part))


def exclusions_of(node: PatternNode) -> tuple[PatternNode, ...]:
    inner = tuple(each for part in node.parts for each in exclusions_of(part))
    return (node, *inner) if node.kind == "exclude" else inner


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
                "name variables: strt down+ up+; () matches no row",
            )
        node = self._alternation()
        token = self._next()
        if token is not None:
            raise self._unexpected(token)
        return node

    # ---- rules ---------------------------------------------------------------------------------

    def _alternation(self) -> PatternNode:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            token = self._next() or self._tokens[-1]
            raise pattern_error(
                f"the pattern is nested more than {_MAX_DEPTH} levels deep",
                self._place(token),
                "write repetitions with quantifiers: (a b){20}",
            )
        parts = [self._concatenation()]
        while self._took("|"):
            parts.append(self._concatenation())
        self._depth -= 1
        return _combine("alternate", parts)

    def _concatenation(self) -> PatternNode:
        parts = []
        while (token := self._next()) is not None and not _ends(token):
            parts.append(self._term())
        if not parts:
            raise self._missing()
        return _combine("concat", parts)

    def _term(self) -> PatternNode:
        part = self._primary()
        start = self._next()
        if start is None or start.text not in {"*", "+", "?", "{"}:
            return part
        low, high = self._bounds()
        greedy = not self._took("?")
        node = PatternNode("repeat", part.start, self._last().end, "", (part,), low, high, greedy)
        again = self._next()
        if again is not None and again.text in {"*", "+", "?", "{"}:
            raise pattern_error(
                f"{node_text(self._text, node)} has a quantifier already",
                self._place(again),
                f"put it in parentheses: ({node_text(self._text, node)}){again.text}"
                + ("n}" if again.text == "{" else ""),
            )
        return node

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
        if self._took(")"):
            return PatternNode("empty", opening.start, self._last().end)
        inner = self._alternation()
        closing = self._closing(opening, ")")
        return replace(inner, start=opening.start, end=closing.end)

    def _permutation(self, name: PatternToken) -> PatternNode:
        opening = self._take()
        parts = [self._alternation()]
        while self._took(","):
            parts.append(self._alternation())
        closing = self._closing(opening, ")")
        return PatternNode("permute", name.start, closing.end, "", tuple(parts))

    # ---- quantifiers ---------------------------------------------------------------------------

    def _bounds(self) -> tuple[int, int | None]:
        token = self._take()
        if token.text == "*":
            return 0, None
        if token.text == "+":
            return 1, None
        if token.text == "?":
            return 0, 1
        low = self._number()
        comma = self._took(",")
        high = self._number() if comma else low
        closing = self._next()
        if closing is None or closing.text != "}" or not (comma or low is not None):
            raise pattern_error(
                "this quantifier cannot be read",
                Place(self._text, token.start, (closing or self._last()).end),
                "quantifiers are * + ? {3} {2,4} {2,} and {,4}, each with a ? behind it to "
                "prefer fewer rows",
            )
        self._take()
        self._check_bounds(low, high, Place(self._text, token.start, closing.end))
        return low or 0, high

    def _check_bounds(self, low: int | None, high: int | None, place: Place) -> None:
        if high == 0:
            raise pattern_error(
                "this quantifier asks for nothing", place, "the upper bound is at least 1: {0,1}"
            )
        if low is not None and high is not None and high < low:
            raise pattern_error(
                f"this quantifier can never be met: at least {low}, at most {high}",
                place,
                f"the second number is the larger one: {{{high},{low}}}",
            )

    def _number(self) -> int | None:
        token = self._next()
        if token is None or token.kind != "number":
            return None
        return int(self._take().text)

    # ---- tokens --------------------------------------------------------------------------------

    def _next(self) -> PatternToken | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> PatternToken:
        self._at += 1
        return self._tokens[self._at - 1]

    def _last(self) -> PatternToken:
        return self._tokens[self._at - 1]

    def _took(self, text: str) -> bool:
        token = self._next()
        found = token is not None and token.kind == "mark" and token.text == text
        self._at += found
        return found

    def _closing(self, opening: PatternToken, text: str) -> PatternToken:
        if self._took(text):
            return self._last()
        token = self._next()
        if token is not None:
            raise self._unexpected(token)
        raise pattern_error(
            f"this {opening.text} is not closed", self._place(opening), f"write the {text} for it"
        )

    def _depth_of(self, opening: str, closing: str) -> int:
        """How many are open before the token that comes next, or was taken last."""
        before = [each.text for each in self._tokens[: self._at]]
        return before.count(opening) - before.count(closing)

    def _place(self, token: PatternToken) -> Place:
        return Place(self._text, token.start, token.end)

    def _missing(self) -> PatternError:
        """Something must stand here, and nothing does."""
        token = self._next()
        if token is None:
            return pattern_error(
                f"something is missing after {self._last().text}",
                self._place(self._last()),
                "() matches no row",
            )
        return self._unexpected(token)

    def _unexpected(self, token: PatternToken) -> PatternError:
        hint = "a pattern is made of names, ( ) | * + ? {n,m} ^ $ {- -} and PERMUTE(...)"
        if token.text in {"*", "+", "?", "{"}:
            hint = "a quantifier stands behind what it repeats: a+ or (a b)+"
        elif token.text == ",":
            hint = "variables are separated by blanks; commas stand in PERMUTE(a, b)"
        elif token.text in {"|", ")", "-}"}:
            opened = {")": "(", "-}": "{-"}.get(token.text)
            hint = "something must stand before it; () matches no row"
            if opened and not self._depth_of(opened, token.text):
                hint = f"no {opened} stands before it"
        return pattern_error(f"{token.text} was not expected here", self._place(token), hint)


def _ends(token: PatternToken) -> bool:
    return token.kind == "mark" and token.text in {"|", ")", "-}", ","}


def _combine(kind: Literal["concat", "alternate"], parts: list[PatternNode]) -> PatternNode:
    if len(parts) == 1:
        return parts[0]
    return PatternNode(kind, parts[0].start, parts[-1].end, "", tuple(parts))
