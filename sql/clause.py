"""The parts of a MATCH_RECOGNIZE clause, as trees and as sections of tokens.

A `Clause` holds the text of each part and where it is in the statement; `match_pattern` gives the
texts their meaning, and an error inside one is shown where the user wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.sql.misspellings import check_spelling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.pattern import Pattern, StrategyName
    from spark_cep.sql.statement import Statement
    from spark_cep.udfs.program import Consumption

Span = tuple[int, int]


@dataclass(frozen=True)
class TextPart:
    """A range of the statement that is passed on as text."""

    span: Span


@dataclass(frozen=True)
class Identifier:
    """`text` is without quotes, `span` with them. Neither includes the input's name of t.symbol."""

    text: str
    span: Span


@dataclass(frozen=True)
class PartitionColumn(Identifier):
    """`expression`: what is computed for it; None: it is a column of the input. `is_named`: the
    clause gives the name (AS day); otherwise Spark does, and `text` is the expression's."""

    expression: Span | None = None
    is_named: bool = True


@dataclass(frozen=True)
class NamedExpression:
    """`expression AS name` of MEASURES, `name AS condition` of DEFINE."""

    name: Identifier
    part: TextPart


@dataclass(frozen=True)
class SubsetDefinition:
    name: Identifier
    members: tuple[Identifier, ...]


@dataclass(frozen=True)
class RowPatternText:
    """PATTERN (...): the range between the parentheses."""

    span: Span


@dataclass(frozen=True)
class EventPatternTree:
    """PATTERN SEQ(...), without the conditions of DEFINE. `strategy` and `consumption` are None
    where the clause does not name them."""

    span: Span
    root: Pattern
    strategy: StrategyName | None = None
    consumption: Consumption | None = None


@dataclass(frozen=True)
class Clause:
    """`rows` and `after_match` are as `match_pattern` takes them, None where the clause does not
    name them. `hints` holds the names and values of the hint after the clause, `hint` its range.
    `qualifiers`: the names of the input, in lower case, which may be in front of its columns.
    `longest`: where the clause asks for longest matches; `longest_value`: the parameter that says
    whether it does.
    Errors point at `span` when nothing closer is known.
    """

    pattern: RowPatternText | EventPatternTree
    span: Span
    partition_by: tuple[PartitionColumn, ...] = ()
    order_by: tuple[TextPart, ...] = ()
    measures: tuple[NamedExpression, ...] = ()
    rows: str | None = None
    after_match: TextPart | None = None
    within: TextPart | None = None
    subsets: tuple[SubsetDefinition, ...] = ()
    define: tuple[NamedExpression, ...] = ()
    hints: dict[str, Any] = field(default_factory=dict)
    hint: Span | None = None
    qualifiers: frozenset[str] = frozenset()
    longest: Span | None = None
    longest_value: TextPart | None = None

    def parts(self) -> Iterator[TextPart]:
        """All texts that may contain parameters of the statement."""
        yield from self.order_by
        yield from (each.part for each in self.measures)
        if self.within is not None:
            yield self.within
        yield from (each.part for each in self.define)


# ---- sections ------------------------------------------------------------------------------------

_SECTIONS = (
    "PARTITION BY", "ORDER BY", "MEASURES", "ROWS PER MATCH", "AFTER MATCH", "PATTERN", "WITHIN",
    "SKIP TILL", "CONSUMPTION", "SUBSET", "DEFINE",
)  # fmt: skip
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("PARTITION BY", ("PARTITION", "BY")),
    ("ORDER BY", ("ORDER", "BY")),
    ("MEASURES", ("MEASURES",)),
    ("ROWS PER MATCH", ("ONE", "ROW")),
    ("ROWS PER MATCH", ("ALL", "ROWS")),
    ("AFTER MATCH", ("AFTER", "MATCH")),
    ("PATTERN", ("PATTERN",)),
    ("WITHIN", ("WITHIN",)),
    ("SKIP TILL", ("SKIP", "TILL")),
    ("SKIP TILL", ("STRICT",)),
    ("CONSUMPTION", ("CONSUME",)),
    ("CONSUMPTION", ("REUSE",)),
    ("SUBSET", ("SUBSET",)),
    ("DEFINE", ("DEFINE",)),
    ("OPTIONS", ("OPTIONS",)),
)
# Complete by themselves; the words of the other sections are followed by something.
_COMPLETE_SECTIONS = {"ROWS PER MATCH", "SKIP TILL", "CONSUMPTION"}
# Only after a pattern; elsewhere their words are names.
_PATTERN_OPTIONS = {"SKIP TILL", "CONSUMPTION"}
_PATTERN_SECTIONS = {"PATTERN", "SUBSET", "WITHIN", *_PATTERN_OPTIONS}
# Sections that may follow a list.
_AFTER_LISTS = {
    "PARTITION BY", "ORDER BY", "MEASURES", "ROWS PER MATCH", "AFTER MATCH", "SUBSET", "DEFINE",
}  # fmt: skip
# The first word after these is a name, or begins an expression.
_NAME_SECTIONS = {"PARTITION BY", "ORDER BY", "MEASURES", "PATTERN", "SUBSET", "DEFINE"}
_UNFINISHED = {
    "AS", "AND", "OR", "NOT", "TO", "CASE", "WHEN", "THEN", "ELSE", "IN", "IS", "BETWEEN", "LIKE",
    "ILIKE", "RLIKE", "REGEXP", "DIV", "DISTINCT", "FROM", "ESCAPE", "COLLATE",
}  # fmt: skip
# Behind one of these words, the word before it is still a column's name.
_NOT_AFTER_NAMES = {*_UNFINISHED, "ASC", "DESC", "NULLS", "END", "COLLATE"}


@dataclass(frozen=True)
class ClauseSection:
    """The tokens [first, content) are its words, [content, stop) what follows them."""

    name: str
    first: int
    content: int
    stop: int


def find_sections(statement: Statement, first: int, stop: int) -> dict[str, ClauseSection]:
    """The sections among the tokens [first, stop), by name.

    Every word of the grammar may also be the name of a column: ORDER BY measures, AS define. So a
    section begins only where its words follow something complete and are followed by what the
    section needs, which no expression and no list of names does. That holds in any order, so
    sections may be in any order.
    """
    _check_commas(statement, first, stop)
    starts = list(_find_starts(statement, first, stop))
    if first < stop and (not starts or starts[0][1] > first):
        raise statement.error_at(
            f"{statement.tokens[first].text} was not expected here", first, hint=_sections_hint()
        )
    found: dict[str, ClauseSection] = {}
    for number, (name, begin, content) in enumerate(starts):
        end = starts[number + 1][1] if number + 1 < len(starts) else stop
        if name in found:
            raise statement.error_at(
                f"{_section_spelling(name)} is given twice", begin, hint="remove one of them"
            )
        found[name] = ClauseSection(name, begin, content, end)
    return found


def _sections_hint() -> str:
    return f"the parts of a clause are {', '.join(map(_section_spelling, _SECTIONS))}"


def _section_spelling(name: str) -> str:
    return {
        "ROWS PER MATCH": "ONE ROW PER MATCH or ALL ROWS PER MATCH",
        "AFTER MATCH": "AFTER MATCH SKIP",
        "SKIP TILL": "SKIP TILL ANY MATCH, SKIP TILL NEXT MATCH or STRICT",
        "CONSUMPTION": "CONSUME or REUSE",
    }.get(name, name)


def _find_starts(statement: Statement, first: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """For each section its name, its first token and the first token of its content."""
    last, needed = "", -1
    for index in statement.top(first, stop):
        in_pattern = last in _PATTERN_SECTIONS
        is_first = index == needed and last in _NAME_SECTIONS
        if is_first or not _may_end(statement, index, first, in_pattern=in_pattern):
            continue
        for name, words in _WORDS:
            content = index + len(words)
            if not statement.is_at(index, *words) or (name in _PATTERN_OPTIONS and not in_pattern):
                continue
            # Behind a pattern there are no expressions that the words could be names in.
            if in_pattern or _may_follow(statement, name, content, stop):
                yield name, index, content
                last, needed = name, content
                break
        else:
            check_spelling(statement, index, is_first=index == first)


def _may_end(statement: Statement, index: int, first: int, *, in_pattern: bool) -> bool:
    """Whether an expression or a list may end before the token."""
    if index == first:
        return True
    token = statement.tokens[index - 1]
    if token.kind == "symbol":
        return token.text in {")", "]"} or (in_pattern and token.text in {"+", "*", "?", "}"})
    return not token.is_word(*_UNFINISHED) or _is_name(statement, index - 1, first)


def _is_name(statement: Statement, index: int, first: int) -> bool:
    """Whether a word, which may be an operator, is a name because of what is before it."""
    before = index - 1
    if before < first:
        return False
    is_target = statement.is_at(before - 2, "SKIP", "TO") or statement.is_at(before - 1, "SKIP")
    return (
        statement.symbol(before, ",", ".")
        or statement.is_at(before, "AS")
        or statement.is_at(before, "BY")
        or (is_target and statement.tokens[before].is_word("TO", "FIRST", "LAST"))
    )


def _may_follow(statement: Statement, name: str, content: int, stop: int) -> bool:
    """Whether the section's words are followed by what the section needs."""
    if name in _COMPLETE_SECTIONS or content >= stop:
        return True
    token = statement.tokens[content]
    if name in {"OPTIONS", "WITHIN"}:
        is_literal = token.kind in {"number", "string"} or token.is_symbol(":", "?")
        is_duration = is_literal or token.is_word("INTERVAL")
        return token.is_symbol("(") if name == "OPTIONS" else is_duration
    if name in {"DEFINE", "SUBSET"}:
        after = content + 1
        is_named = statement.is_at(after, "AS") or statement.symbol(after, "=")
        return token.kind != "symbol" and (is_named or after >= stop) and not token.is_word("AS")
    if token.is_word("AS") and not statement.symbol(content + 1, "."):
        return False
    if name == "MEASURES" and token.is_symbol("*"):
        return True
    return token.kind != "symbol" or token.text in {"(", "!", "~", "+", "-", ":", "?", "$", "["}


def _check_commas(statement: Statement, first: int, stop: int) -> None:
    """Refuses a comma before a section: ORDER BY ts, MEASURES LAST(b.price) AS p. A column called
    measures would not be followed by a word."""
    for index in statement.top(first, stop - 1):
        if not statement.symbol(index, ","):
            continue
        for name, words in _WORDS:
            after = index + 1 + len(words)
            if name not in _AFTER_LISTS or not statement.is_at(index + 1, *words):
                continue
            token = statement.tokens[after] if after < stop else None
            is_name = token is None or token.kind == "symbol" or token.is_word(*_NOT_AFTER_NAMES)
            if len(words) > 1 or not is_name:
                raise statement.error_at(
                    f"unexpected comma before {words[0]}", index, hint="remove the comma"
                )
