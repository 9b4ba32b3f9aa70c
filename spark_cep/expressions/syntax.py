"""Parsed Spark SQL expressions with the place of every node in the text.

Spark always gets the user's text, cut by position, because SQL generated from a syntax tree may
differ in meaning: sqlglot rewrites functions, argument orders and literals. Every cut is parsed
again and must give the node that it was cut for.

sqlglot keeps no positions for most nodes. This parser records for every node the tokens that its
rule consumed, widened to a keyword or function name in front (CASE, INTERVAL, `if(`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from spark_cep.expressions.identifiers import NamePredicate, mark_names, no_names
from spark_cep.expressions.problems import Place
from spark_cep.udfs.errors import CepError

if TYPE_CHECKING:
    from sqlglot.expressions import Expr
    from sqlglot.parsers.spark import SparkParser
else:
    # sqlglot 30 moved the parsers, and put Expr above Expression. Both are the same classes before.
    Expr = getattr(exp, "Expr", exp.Expression)
    SparkParser = Spark.Parser

if not hasattr(SparkParser._parse_expression, "__code__"):
    raise CepError(
        "sqlglot is installed with its compiled parser, sqlglotc, which cannot be extended",
        hint="pip uninstall sqlglotc; sqlglot works without it",
    )

__all__ = ["Expr", "SparkParser"]

Edit = tuple[int, int, str]  # (start, end, replacement) in the whole text
_SPAN = "cep_span"


class _SparkExpressions(Spark):
    """Spark without commands: sqlglot would read all that follows SHOW or CALL as one string."""

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            text: kind
            for text, kind in Spark.Tokenizer.KEYWORDS.items()
            if kind != TokenType.COMMAND and not set(text) & set("{}%")
        }


_DIALECT = _SparkExpressions()
# No type of Spark has as many; Python refuses to convert more than 4300.
MAX_DIGITS = 1000
_OPEN = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1}
_CLOSE = {TokenType.R_PAREN: 1, TokenType.R_BRACKET: 1}
# An INTERVAL keyword is at most this many tokens before the recorded tokens of its node.
_INTERVAL_REACH = 4


class SyntaxProblem(Exception):
    """The text is not a valid expression; `place` is where it stops being one."""

    def __init__(self, message: str, place: Place) -> None:
        super().__init__(message)
        self.message = message
        self.place = place


def _record_span(rule: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(rule)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = self._index
        node = rule(self, *args, **kwargs)
        if isinstance(node, Expr) and self._index > start:
            first, last = start, self._index - 1
            known = node.meta.get(_SPAN)
            if known is None or (first <= known[0] and last >= known[1]):
                node.meta[_SPAN] = (first, last)
        return node

    return recorded


# The functions that the compiler knows. All others stay names with arguments: sqlglot would
# reorder or wrap the arguments of some, and reject argument lists that it does not know.
_FUNCTIONS = frozenset(
    {
        "ABS", "AVG", "COALESCE", "COUNT", "FIRST", "GREATEST", "IFNULL", "ISNAN", "IS_NAN",
        "LAST", "LEAST", "MAX", "MIN", "MOD", "NULLIF", "NVL", "NVL2", "SUM",
    }
)  # fmt: skip


# The names of functions that sqlglot knows Spark to have, in capitals: not all of them.
SPARK_FUNCTIONS = frozenset(SparkParser.FUNCTIONS)
# Functions whose arguments have their own grammar.
_WITH_GRAMMAR = frozenset(
    {
        "CAST", "CEIL", "EXTRACT", "FLOOR", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM",
        "TRY_CAST",
    }
)  # fmt: skip


# Names that sqlglot reads as constructors in front of a bracket.
_CONSTRUCTORS = frozenset({"array", "list", "map"})


class _ExpressionParser(SparkParser):
    """sqlglot's Spark parser; every rule records the tokens of its node."""

    FUNCTIONS = {  # noqa: RUF012 - as sqlglot declares it
        name: build for name, build in SparkParser.FUNCTIONS.items() if name in _FUNCTIONS
    }
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: rule for name, rule in SparkParser.FUNCTION_PARSERS.items() if name in _WITH_GRAMMAR
    }
    NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
        name: rule
        for name, rule in SparkParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name != "TRANSFORM"
    }

    def _parse_bracket(self, this: Any = None) -> Any:
        """A column called array or list, `list[0]`, is not a constructor."""
        name = this.this if isinstance(this, exp.Column) else this
        if not isinstance(name, exp.Identifier) or name.name.lower() not in _CONSTRUCTORS:
            return super()._parse_bracket(this)
        spelled = name.this
        name.set("this", "_")
        try:
            return super()._parse_bracket(this)
        finally:
            name.set("this", spelled)


def _build_navigation(kind: type[exp.First | exp.Last]) -> Callable[[list[Expr]], Expr]:
    return lambda args: kind(**dict(zip(("this", "expression"), args, strict=False)))


class _NavigationParser(_ExpressionParser):
    """Takes the second argument of FIRST and LAST, which sqlglot before 28 may not know."""

    FUNCTIONS = {  # noqa: RUF012
        **_ExpressionParser.FUNCTIONS,
        "FIRST": _build_navigation(exp.First),
        "LAST": _build_navigation(exp.Last),
    }

    def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
        is_navigation = isinstance(expression, exp.First | exp.Last)
        if is_navigation and args is not None and len(args) == len(("this", "expression")):
            return expression
        return super().validate_expression(expression, args)


if "expression" not in exp.First.arg_types:
    _ExpressionParser = _NavigationParser  # type: ignore[misc]


for _name in dir(_ExpressionParser):
    if _name.startswith("_parse_") and callable(getattr(_ExpressionParser, _name)):
        setattr(_ExpressionParser, _name, _record_span(getattr(_ExpressionParser, _name)))


class ParsedExpression:
    """An expression: its text, its tree, and the tokens of each node."""

    def __init__(
        self, text: str, root: exp.Expr, tokens: Sequence[Token], is_name: NamePredicate = no_names
    ) -> None:
        self.text = text
        self.root = root
        self.tokens = tokens
        self._is_name = is_name

    def tokens_of(self, node: exp.Expr) -> tuple[int, int]:
        """First and last token of the node."""
        found = None if node is self.root else self._ranges.get(id(node))
        if found is None:
            return 0, len(self.tokens) - 1
        return self._widened(node, *found)

    def span(self, node: exp.Expr) -> tuple[int, int]:
        """Characters [start, end) of the node."""
        first, last = self.tokens_of(node)
        return self.tokens[first].start, self.tokens[last].end + 1

    def place(self, node: exp.Expr) -> Place:
        return Place(self.text, *self.span(node))

    def text_of(self, node: exp.Expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def cut(self, node: exp.Expr, edits: Iterable[Edit] = ()) -> str:
        """The node's text with edits."""
        start, end = self.span(node)
        if node is not self.root and _tree(self.text[start:end], self._is_name) != node:
            raise SyntaxProblem(
                "this part of the expression is ambiguous; put it in parentheses",
                self.place(node),
            )
        return apply_edits(self.text, start, end, edits)

    def calls(self, node: exp.Expr) -> Iterator[tuple[str, Place]]:
        """Every function call below the node: its name in lower case, and its place."""
        first, last = self.tokens_of(node)
        for index in range(first, last):
            token = self.tokens[index]
            if self.tokens[index + 1].token_type == TokenType.L_PAREN and is_call_name(token):
                yield token.text.lower(), Place(self.text, token.start, token.end + 1)

    def call_name(self, node: exp.Expr) -> str | None:
        """The name of the function, in lower case, if the whole node is a single call.

        >>> parsed = parse_expression("least(a.x, b.x) || upper(c.x)")
        >>> parsed.call_name(parsed.root), parsed.call_name(parsed.root.this)
        (None, 'least')
        """
        first, last = self.tokens_of(node)
        is_call = last > first + 1 and self.tokens[first + 1].token_type == TokenType.L_PAREN
        if not is_call or not is_call_name(self.tokens[first]):
            return None
        depth = 0
        for index in range(first + 1, last + 1):
            kind = self.tokens[index].token_type
            depth += (kind in _OPEN) - (kind in _CLOSE)
            if not depth:
                return self.tokens[first].text.lower() if index == last else None
        return None

    @cached_property
    def _ranges(self) -> dict[int, tuple[int, int]]:
        """First and last token of each node's subtree; without recursion, because a condition may
        have thousands of ORs."""
        found: dict[int, tuple[int, int]] = {}
        for node in reversed(list(self.root.walk())):
            ranges = [found[id(c)] for c in node.iter_expressions() if id(c) in found]
            if _SPAN in node.meta:
                ranges.append(node.meta[_SPAN])
            if ranges:
                found[id(node)] = min(r[0] for r in ranges), max(r[1] for r in ranges)
        return found

    def _widened(self, node: exp.Expr, first: int, last: int) -> tuple[int, int]:
        first, last = self._balanced(first, last)
        if isinstance(node, exp.Interval):
            for reach in range(_INTERVAL_REACH):
                at = first - reach
                if at >= 0 and self.tokens[at].token_type == TokenType.INTERVAL:
                    return at, last
        before = self.tokens[first - 1] if first else None
        if before is None:
            return first, last
        if isinstance(node, exp.Case) and before.token_type == TokenType.CASE:
            return first - 1, last
        opened = self.tokens[first].token_type == TokenType.L_PAREN
        is_call = isinstance(node, exp.Func) and not isinstance(node, exp.Binary)
        if opened and is_call and is_call_name(before):
            return first - 1, last
        return first, last

    def _balanced(self, first: int, last: int) -> tuple[int, int]:
        """Widened until brackets are balanced, with the names of calls."""
        depth, lowest = 0, 0
        for token in self.tokens[first : last + 1]:
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
            lowest = min(lowest, depth)
        missing = -lowest
        while missing and first > 0:
            first -= 1
            kind = self.tokens[first].token_type
            missing += (kind in _CLOSE) - (kind in _OPEN)
            if not missing and first and is_call_name(self.tokens[first - 1]):
                first -= 1
        depth -= lowest
        while depth > 0 and last + 1 < len(self.tokens):
            last += 1
            kind = self.tokens[last].token_type
            depth += (kind in _OPEN) - (kind in _CLOSE)
        return first, last


def parse_expression(text: str, is_name: NamePredicate = no_names) -> ParsedExpression:
    """Parses one expression. `is_name`: whether a word such as current_date is a column.

    >>> parsed = parse_expression("a.x + 1 < b.x")
    >>> parsed.text_of(parsed.root.this)
    'a.x + 1'
    """
    tokens = mark_names(_tokens(text), text, is_name)
    if not tokens:
        raise SyntaxProblem("the expression is empty", Place.whole(text))
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            place = Place(text, token.start, token.end + 1)
            raise SyntaxProblem("an expression must not contain ';'", place)
        if token.token_type == TokenType.NUMBER and len(token.text) > MAX_DIGITS:
            place = Place(text, token.start, token.end + 1)
            raise SyntaxProblem("this number has too many digits", place)
    try:
        root = _parse_tokens(tokens, text)
    except ParseError as error:
        raise _syntax_problem(text, error) from None
    except RecursionError:
        raise SyntaxProblem("the expression is nested too deeply", Place.whole(text)) from None
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
        # sqlglot does not expect every text: `else + 1` makes it read beyond the last token.
        raise SyntaxProblem("this is not a Spark SQL expression", Place.whole(text)) from None
    return ParsedExpression(text, root, tokens, is_name)


def tokenize(text: str) -> list[Token]:
    """The tokens of any text; raises SyntaxProblem."""
    return _tokens(text)


def apply_edits(text: str, start: int, end: int, edits: Iterable[Edit]) -> str:
    """text[start:end] with edits; edits outside of it are ignored.

    >>> apply_edits("a.x + a.y", 0, 9, [(0, 3, "`x`"), (6, 9, "`y`")])
    '`x` + `y`'
    """
    pieces, done = [], start
    for begin, stop, replacement in sorted(edits):
        if start <= begin and stop <= end:
            pieces += [text[done:begin], replacement]
            done = stop
    return "".join([*pieces, text[done:end]])


def _tokens(text: str) -> list[Token]:
    try:
        return list(_DIALECT.tokenize(text))
    except TokenError as error:
        raise SyntaxProblem("this quote or comment is not closed", _unclosed_place(text)) from error


def _parse_tokens(tokens: list[Token], text: str) -> exp.Expr:
    root = _ExpressionParser(dialect=_DIALECT).parse_into(exp.Condition, tokens, text)[0]
    assert isinstance(root, Expr)
    return root


def _tree(text: str, is_name: NamePredicate) -> exp.Expr | None:
    try:
        return _parse_tokens(mark_names(_tokens(text), text, is_name), text)
    except (ParseError, SyntaxProblem):
        return None


def is_call_name(token: Token) -> bool:
    """Whether a parenthesis after this token is its argument list."""
    return token.token_type not in _NO_FUNCTIONS and bool(re.match(r"\w", token.text))


_NO_FUNCTIONS = {
    TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.BETWEEN, TokenType.LIKE,
    TokenType.ILIKE, TokenType.RLIKE, TokenType.IS, TokenType.CASE, TokenType.WHEN, TokenType.THEN,
    TokenType.ELSE, TokenType.END, TokenType.FROM, TokenType.FOR, TokenType.ALIAS, TokenType.DIV,
    TokenType.NUMBER, TokenType.STRING, TokenType.ESCAPE, TokenType.OVER, TokenType.INTERVAL,
    TokenType.DISTINCT, TokenType.WHERE, TokenType.FILTER,
}  # fmt: skip


def _syntax_problem(text: str, error: ParseError) -> SyntaxProblem:
    found = error.errors[0] if error.errors else {}
    word = found.get("highlight") or ""
    line, column = found.get("line"), found.get("col")
    if not line or not column:
        return SyntaxProblem("this is not a Spark SQL expression", Place.whole(text))
    begin = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    end = min(begin + column, len(text))
    start = max(begin, end - max(1, len(word)))
    if "Required keyword" in (found.get("description") or ""):
        message = f"an operand is missing next to {word!r}"
    else:
        message = f"unexpected {word!r}"
    return SyntaxProblem(message, Place(text, start, end))


def _unclosed_place(text: str) -> Place:
    """The first quote or comment that is not closed."""
    pattern = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/|--[^\n]*", re.S)
    rest = pattern.sub(lambda found: " " * len(found.group()), text)
    start = next((i for i, c in enumerate(rest) if c in "'\"`"), -1)
    start = start if start >= 0 else max(rest.find("/*"), 0)
    return Place(text, start, len(text))
