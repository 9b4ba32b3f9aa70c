# ruff: noqa: RUF001 - the look-alikes of ASCII signs are what is read here
"""The words and signs of SASE text, with their places.

The papers print one operator in several ways (AND, ∧, ^, &), and text copied from them has typeset
forms too (\\land, \\ldots, subscripts). Every sign becomes one canonical mark here, so that no
grammar knows more than one spelling. Words stay as written: only a grammar knows whether `E` is
a type or `OR` an operator. sqlglot's tokenizer reads Spark SQL, in which most of these signs mean
something else or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NoReturn

from spark_cep.compiling.problems import Place, Problems

Kind = Literal["name", "quoted", "number", "string", "mark", "end"]


@dataclass(frozen=True)
class Token:
    """`value`: a name as written, subscripts as `S_{i-1}`; a string as Spark SQL; a mark in its
    canonical form. A `quoted` name is never a keyword."""

    kind: Kind
    value: str
    place: Place

    @property
    def written(self) -> str:
        return self.place.text[self.place.start : self.place.end]


def failed(message: str, place: Place, hint: str) -> NoReturn:
    """Ends the reading: what follows a syntax error has no certain meaning."""
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


def tokens(text: str, names: Iterable[str] = ()) -> list[Token]:
    """Every token and an `end`. `names` are read whole though no identifiers, such as Hi-Tech.

    >>> [token.value for token in tokens("a.ticker∈Hi-Tech ∧ S₁.x ≤ 10k", ["Hi-Tech"])]
    ['a', '.', 'ticker', 'IN', 'Hi-Tech', 'AND', 'S_{1}', '.', 'x', '<=', '10', 'k', '']
    """
    whole = sorted(names, key=len, reverse=True)
    special = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in whole) or r"(?!)")
    return list(_tokens(text, special))


def _tokens(text: str, special: re.Pattern[str]) -> Iterator[Token]:
    at = 0
    while at < len(text):
        space = _SPACE.match(text, at)
        if space is not None:
            at = space.end()
            continue
        token = _token(text, at, special)
        at = token.place.end
        yield token
    end = len(text.rstrip())
    yield Token("end", "", Place(text, end, end))


def _token(text: str, at: int, special: re.Pattern[str]) -> Token:
    found = special.match(text, at)
    if found is not None:
        return Token("name", found.group(), Place(text, at, found.end()))
    found = _SUBSCRIPTED.match(text, at)
    if found is not None:
        subscript = found["braced"] or found["low"].translate(_SUBSCRIPTS)
        return Token("name", f"{found['base']}_{{{subscript}}}", Place(text, at, found.end()))
    found = _PLAIN.match(text, at)
    if found is not None:
        return Token("name", found.group(), Place(text, at, found.end()))
    found = _NUMBER.match(text, at)
    if found is not None:
        return Token("number", found.group(), Place(text, at, found.end()))
    found = _QUOTED.match(text, at)
    if found is not None:
        return Token("quoted", found[1], Place(text, at, found.end()))
    return _string_or_mark(text, at)


def _string_or_mark(text: str, at: int) -> Token:
    found = _STRING.match(text, at)
    if found is not None:
        return Token("string", _as_sql(found), Place(text, at, found.end()))
    if text[at] in "'\"‘“`":
        failed("this quote is not closed", Place(text, at, len(text)), f"add {text[at]} at its end")
    if text.startswith("||", at):
        hint = "write OR; to join strings concat(a.x, a.y)"
        failed("|| can mean OR or the joining of strings", Place(text, at, at + 2), hint)
    found = _MARK.match(text, at)
    if found is None:
        hint = "names with other characters stand in backquotes: a.`we ird`, texts in quotes: 'A-1'"
        failed(f"{text[at]} means nothing here", Place(text, at, at + 1), hint)
    return Token("mark", _MARKS[found.group()], Place(text, at, found.end()))


def _as_sql(found: re.Match[str]) -> str:
    """Double quotes may mean names in a session, so every string gets single ones."""
    if found["plain"] is not None:
        return found.group()
    if found["double"] is not None:
        inner = re.sub(r"(?s)\\(.)|'", _requoted, found["double"])
        return f"'{inner}'"
    inner = found["curly"] if found["curly"] is not None else found["other"]
    return sql_string(inner)


def _requoted(found: re.Match[str]) -> str:
    return '"' if found.group() == '\\"' else "\\'" if found.group() == "'" else found.group()


def sql_string(value: str) -> str:
    """A text as a literal of Spark SQL.

    >>> sql_string("it's")
    "'it\\\\'s'"
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
