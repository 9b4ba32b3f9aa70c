r"""The tokens of SASE text with their places, and a reader that moves through them.

The papers print one operator in several ways (AND, ∧, ^, &), and text copied from them has typeset
forms too (\land, \ldots, subscripts). Every sign becomes one canonical mark here, so that the
grammar knows only one spelling. Words stay as written: only the grammar knows whether `E` is a
type or `OR` an operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.syntax import MAX_DIGITS
from spark_cep.sql.parameters import sql_string
from spark_cep.sql.sase.nodes import SqlLiteral

SaseTokenKind = Literal["name", "quoted", "number", "string", "mark", "end"]


@dataclass(frozen=True)
class SaseToken:
    """`value` is a name as written, with subscripts as `S_{i-1}`, a string as Spark SQL, or a mark
    in its canonical form. A `quoted` name is never a keyword."""

    kind: SaseTokenKind
    value: str
    place: Place

    @property
    def written(self) -> str:
        return self.place.text[self.place.start : self.place.end]


def raise_syntax_error(message: str, place: Place, hint: str) -> NoReturn:
    """Stops at a syntax error, because what follows it has no certain meaning."""
    problems = Problems()
    problems.add(message, place, hint=hint)
    problems.raise_if_any()
    raise AssertionError


def _spellings(*rows: tuple[str, str]) -> dict[str, str]:
    return {spelling: mark for mark, spellings in rows for spelling in spellings.split()}


_MARKS = _spellings(
    ("AND", "∧ ^ && & \\land \\wedge"),
    ("OR", "∨ | \\lor \\vee"),
    ("NOT", "¬ ~ ! \\lnot \\neg"),
    ("IN", "∈ \\in"),
    ("∉", "∉ \\notin"),
    ("FORALL", "∀ \\forall"),
    ("<=", "<= ≤ \\leq \\le"),
    (">=", ">= ≥ \\geq \\ge"),
    ("<>", "<> != ≠ \\neq \\ne"),
    ("=", "= =="),
    ("*", "* × · ⋅ ∗ \\times \\cdot \\ast"),
    ("/", "/ ÷"),
    ("-", "- − \N{EN DASH}"),
    ("...", "... … ⋯ \\ldots \\dots \\cdots"),
    ("{", "{ \\{"),
    ("}", "} \\}"),
    *((mark, mark) for mark in ("<", ">", "+", "%", "(", ")", "[", "]", ",", ";", ":", ".", "..")),
    *((mark, mark) for mark in ("?", "°")),
)
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", "0123456789+-aehijklmnoprstuvx")
_SUBSCRIPT = "".join(map(chr, _SUBSCRIPTS))
_SPACE = re.compile(r"(?:\s|\\[ ,;:!])+")
_SUBSCRIPTED = re.compile(
    rf"(?P<base>[^\W\d]\w*?)(?:_\{{(?P<braced>[^{{}}]*)\}}|(?P<low>[{_SUBSCRIPT}]+))"
)
_PLAIN = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?")
_STRING = re.compile(
    r"""'(?P<plain>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)\""""
    r"""|‘(?P<curly>[^’]*)’|“(?P<other>[^”]*)”""",
    re.S,
)
_MARK = re.compile("|".join(re.escape(each) for each in sorted(_MARKS, key=len, reverse=True)))


def tokenize(text: str, names: Iterable[str] = ()) -> list[SaseToken]:
    """The tokens and an `end`. `names` are read whole even if they are no identifiers: Hi-Tech.

    sqlglot's tokenizer reads Spark SQL, in which most of these signs mean something else.

    >>> [token.value for token in tokenize("a.ticker∈Hi-Tech ∧ S₁.x ≤ 10k", ["Hi-Tech"])]
    ['a', '.', 'ticker', 'IN', 'Hi-Tech', 'AND', 'S_{1}', '.', 'x', '<=', '10', 'k', '']
    """
    whole = sorted(names, key=len, reverse=True)
    special = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in whole) or r"(?!)")
    return list(_split_tokens(text, special))


def _split_tokens(text: str, special: re.Pattern[str]) -> Iterator[SaseToken]:
    at = 0
    while at < len(text):
        space = _SPACE.match(text, at)
        if space is not None:
            at = space.end()
            continue
        token = _read_token(text, at, special)
        at = token.place.end
        yield token
    end = len(text.rstrip())
    yield SaseToken("end", "", Place(text, end, end))


def _read_token(text: str, at: int, special: re.Pattern[str]) -> SaseToken:
    found = special.match(text, at)
    if found is not None:
        return SaseToken("name", found.group(), Place(text, at, found.end()))
    found = _SUBSCRIPTED.match(text, at)
    if found is not None:
        place = Place(text, at, found.end())
        if found["braced"] == "":
            raise_syntax_error(
                f"the subscript of {found['base']} is empty",
                place,
                f"write a number or a name between the braces, such as {found['base']}_{{1}}",
            )
        subscript = found["braced"] or found["low"].translate(_SUBSCRIPTS)
        return SaseToken("name", f"{found['base']}_{{{subscript}}}", place)
    found = _PLAIN.match(text, at)
    if found is not None:
        return SaseToken("name", found.group(), Place(text, at, found.end()))
    found = _NUMBER.match(text, at)
    if found is not None:
        place = Place(text, at, found.end())
        if len(found.group()) > MAX_DIGITS:
            raise_syntax_error("this number has too many digits", place, "write a shorter number")
        return SaseToken("number", found.group(), place)
    found = _QUOTED.match(text, at)
    if found is not None:
        return SaseToken("quoted", found[1], Place(text, at, found.end()))
    return _read_string_or_mark(text, at)


def _read_string_or_mark(text: str, at: int) -> SaseToken:
    found = _STRING.match(text, at)
    if found is not None:
        return SaseToken("string", _string_as_sql(found), Place(text, at, found.end()))
    if text[at] in "'\"‘“`":
        raise_syntax_error(
            "this quote is not closed",
            Place(text, at, len(text)),
            f"add {text[at]} at the end of the string",
        )
    if text.startswith("||", at):
        hint = "write OR, or concat(a.x, a.y) to join strings"
        raise_syntax_error(
            "|| can mean OR or the concatenation of strings", Place(text, at, at + 2), hint
        )
    found = _MARK.match(text, at)
    if found is None:
        hint = "write other names in backquotes, a.`we ird`, and strings in quotes, 'A-1'"
        raise_syntax_error(f"unexpected character {text[at]}", Place(text, at, at + 1), hint)
    return SaseToken("mark", _MARKS[found.group()], Place(text, at, found.end()))


def _string_as_sql(found: re.Match[str]) -> str:
    """Double quotes may delimit names in a session, so every string gets single ones."""
    if found["plain"] is not None:
        return found.group()
    if found["double"] is not None:
        inner = re.sub(r"(?s)\\(.)|'", _requote, found["double"])
        return f"'{inner}'"
    inner = found["curly"] if found["curly"] is not None else found["other"]
    return sql_string(inner)


def _requote(found: re.Match[str]) -> str:
    return '"' if found.group() == '\\"' else "\\'" if found.group() == "'" else found.group()


# ---- reader --------------------------------------------------------------------------------------

# Words that end what is before them.
CLAUSES = ("PATTERN", "WHERE", "WITHIN", "RETURN", "HAVING", "FROM", "PARTITION")
_THOUSANDS = {"k": 3, "K": 3, "M": 6}
_SPARK_SUFFIX = re.compile(r"[lsydf]|bd", re.I)


class TokenReader:
    """Moves forward through tokens. The grammar only looks at the next tokens and takes them; it
    never goes back, so the first token that fits no rule is where the error is."""

    def __init__(self, tokens: Sequence[SaseToken]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def token(self) -> SaseToken:
        return self._tokens[self._at]

    @property
    def before(self) -> SaseToken:
        """The token that was taken last."""
        return self._tokens[max(self._at - 1, 0)]

    def ahead(self, count: int = 1) -> SaseToken:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def advance(self) -> SaseToken:
        token = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def at(self, *values: str) -> bool:
        """Whether the next token is one of these marks or keywords."""
        return keyword_of(self.token) in values

    def take(self, *values: str) -> SaseToken | None:
        return self.advance() if self.at(*values) else None

    def expect(self, value: str, hint: str) -> SaseToken:
        return self.take(value) or self.unexpected(f"expected {value}", hint)

    def name(self, what: str, hint: str) -> SaseToken:
        if self.token.kind not in {"name", "quoted"}:
            self.unexpected(f"expected {what}", hint)
        return self.advance()

    def unexpected(self, message: str, hint: str) -> NoReturn:
        found = "the text ends" if self.token.kind == "end" else f"found {self.token.written}"
        raise_syntax_error(f"{message}, but {found}", self.token.place, hint)

    def close(self, opening: SaseToken, closing: str) -> SaseToken:
        """Takes the bracket that closes `opening`."""
        if self.at(closing):
            return self.advance()
        if self.token.kind == "end" or self.at("WHERE", "WITHIN"):
            hint = f"add {closing} where it ends"
            raise_syntax_error(f"{opening.written} is not closed", opening.place, hint)
        return self.unexpected(f"expected {closing} or a comma", f"{opening.written} is still open")

    def touches(self, count: int = 0) -> bool:
        """Whether a token directly follows the one before it."""
        place = self.ahead(count).place
        return self._tokens[max(self._at + count - 1, 0)].place.end == place.start

    def since(self, start: SaseToken | Place) -> Place:
        """From a token or node to the token taken last."""
        place = start.place if isinstance(start, SaseToken) else start
        return Place(place.text, place.start, self.before.place.end)

    def number(self, *, grouped: bool, typed: bool) -> SqlLiteral:
        """A number token with what is attached to it: 10k, 46.51°C and, if `grouped` says that it
        cannot be a list, 10,000. `typed` also takes Spark's 10L and 1.5D."""
        first = self.advance()
        text = first.value
        while grouped and self._is_group(text):
            self.advance()
            text += self.advance().value
        if self.at("°") and self.touches():
            # The column's values have this unit anyway, so its sign adds nothing.
            self.advance()
            if self.token.kind == "name" and self.touches():
                self.advance()
        elif self.token.kind == "name" and self.touches():
            text = self._suffixed(text, typed=typed)
        return SqlLiteral(text, self.since(first))

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
            return _shift_decimal(text, zeros)
        if typed and _SPARK_SUFFIX.fullmatch(suffix):
            self.advance()
            return text + suffix
        return text


def keyword_of(token: SaseToken) -> str:
    """A mark, or a word in capitals; empty for what cannot be a keyword.

    >>> from spark_cep.sql.sase.lexer import tokenize
    >>> [keyword_of(token) for token in tokenize("seq `or` | 'and'")]
    ['SEQ', '', 'OR', '', '']
    """
    if token.kind == "mark":
        return token.value
    return token.value.upper() if token.kind == "name" else ""


def _shift_decimal(text: str, zeros: int) -> str:
    """
    >>> tuple(_shift_decimal(number, 3) for number in ["1.5", "10", "1.2345", ".5"])
    ('1500', '10000', '1234.5', '500')
    """
    whole, _, fraction = text.partition(".")
    digits = fraction.ljust(zeros, "0")
    number = f"{whole}{digits[:zeros]}".lstrip("0") or "0"
    return f"{number}.{digits[zeros:]}" if digits[zeros:] else number
