"""Where a statement contains MATCH_RECOGNIZE, and what the input of each clause is.

The words alone do not make a clause: they may be in a comment or a string, or be the name of a
column, an alias or a function. Only brackets after them whose content reads like a clause do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.sql.misspellings import is_misspelled_keyword

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.errors import PatternError
    from spark_cep.sql.statement import Statement

KEYWORD = "MATCH_RECOGNIZE"
_NOT_A_NAME = {
    "SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ON", "AND", "OR", "NOT", "BY", "IN", "AS",
    "JOIN", "CROSS", "INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "NATURAL", "USING",
    "LATERAL", "UNION", "EXCEPT", "INTERSECT", "MINUS", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE",
    "LIMIT", "WINDOW", "SET", "WHEN", "THEN", "ELSE", "END",
}  # fmt: skip
# Spark refuses these as aliases even behind AS; FROM and JOIN would begin another table here.
_NOT_AN_ALIAS = {
    "ANTI", "CROSS", "EXCEPT", "FROM", "FULL", "INNER", "INTERSECT", "JOIN", "LATERAL", "LEFT",
    "MINUS", "NATURAL", "ON", "RIGHT", "SEMI", "UNION", "USING",
}  # fmt: skip
_CLAUSE_STARTS = (
    ("PARTITION", "BY"), ("ORDER", "BY"), ("MEASURES",), ("ONE", "ROW", "PER"),
    ("ALL", "ROWS", "PER"), ("AFTER", "MATCH"),
)  # fmt: skip
_HINT = "write it directly after its table: FROM ticks MATCH_RECOGNIZE (...) AS m"
# What a FROM item does not contain: the clause is behind it.
_BEHIND_FROM = {
    "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "WINDOW",
    "UNION", "EXCEPT", "INTERSECT", "MINUS", "SELECT", "WHEN", "SET", "LATERAL",
}  # fmt: skip
_PLAN_HINT = re.compile(r"\s*/\*\+(.*?)\*/", re.S)


@dataclass(frozen=True)
class ClauseLocation:
    """A clause by its tokens: its input [first, word), the word itself, and its brackets `opened`
    and `closed`. `span` is the range of characters from the input to the plan hint after the
    clause, `hint` that of the hint's content."""

    first: int
    word: int
    opened: int
    closed: int
    span: tuple[int, int]
    hint: tuple[int, int] | None


def find_clauses(statement: Statement) -> tuple[ClauseLocation, ...]:
    """All clauses in the order in which they end: a clause depends only on earlier ones."""
    found = []
    for index in range(len(statement.tokens)):
        if statement.is_at(index, KEYWORD) and statement.symbol(index + 1, "("):
            if _reads_like_a_clause(statement, index + 1):
                found.append(_locate_clause(statement, index))
        elif is_misspelled_keyword(statement, index) and _begins_clause(statement, index + 2):
            raise statement.error_at(
                f"{statement.tokens[index].text} is not a word of SQL",
                index,
                hint=f"did you mean {KEYWORD}?",
            )
    return tuple(sorted(found, key=lambda each: each.closed))


def _reads_like_a_clause(statement: Statement, opened: int) -> bool:
    closed = statement.partners.get(opened, len(statement.tokens))
    if _begins_clause(statement, opened + 1):
        return True
    return closed == opened + 1 or any(
        statement.is_at(index, "PATTERN") and not statement.symbol(index + 1, ",", ")", ".")
        for index in statement.top(opened + 1, closed)
    )


def _begins_clause(statement: Statement, index: int) -> bool:
    return any(statement.is_at(index, *words) for words in _CLAUSE_STARTS)


def _locate_clause(statement: Statement, word: int) -> ClauseLocation:
    opened = word + 1
    closed = statement.partners.get(opened)
    if closed is None:
        raise _unclosed_bracket_error(statement, opened)
    first = _input_start(statement, word)
    start, end = statement.tokens[first].start, statement.tokens[closed].end
    hinted = _PLAN_HINT.match(statement.text, end)
    if hinted is None:
        return ClauseLocation(first, word, opened, closed, (start, end), None)
    return ClauseLocation(first, word, opened, closed, (start, hinted.end()), hinted.span(1))


def _unclosed_bracket_error(statement: Statement, opened: int) -> PatternError:
    """Blames an inner bracket that contains a section, if there is one: it must be the open one."""
    for inner, closed in sorted(statement.partners.items()):
        if opened < inner < closed and any(
            (statement.is_at(at, "PATTERN") and statement.symbol(at + 1, "("))
            or (statement.is_at(at, "DEFINE") and statement.is_at(at + 2, "AS"))
            for at in statement.top(inner + 1, closed)
        ):  # fmt: skip
            return statement.error_at("this bracket is not closed", inner, hint="add )")
    return statement.error_at(
        "the bracket of MATCH_RECOGNIZE is not closed", opened, hint="add ) after its last part"
    )


def _input_start(statement: Statement, word: int) -> int:
    """The first token of the input.

    A clause belongs to the one table before it, so its input is searched backwards: up to FROM,
    JOIN, a comma or the enclosing bracket. The tokens in between are then read forwards as a table
    with its alias. If that table does not end exactly at the clause, it may be followed by the
    condition of a join: then the input is the join, as it is for a PIVOT there. Otherwise the
    clause is misplaced.
    """
    first = _after_separator(statement, word)
    values = next(_values_before(statement, first, word), None)
    if values is not None:
        return values
    if statement.is_at(first, "TABLE") and word - first == len(("TABLE", "name")):
        raise statement.error_at(
            "MATCH_RECOGNIZE cannot follow TABLE",
            first,
            hint=f"write SELECT * FROM {statement.tokens[first + 1].text} MATCH_RECOGNIZE (...)",
        )
    if _end_of_table(statement, first, word) == word:
        return first
    if first == word:
        raise statement.error_at("there is no table before MATCH_RECOGNIZE", word, hint=_HINT)
    if statement.is_at(first, "LATERAL"):
        raise statement.error_at(
            "MATCH_RECOGNIZE cannot follow LATERAL directly",
            first,
            hint="make a query of it: LATERAL (SELECT * FROM q MATCH_RECOGNIZE (...)) AS m",
        )
    joined = _join_start(statement, first)
    if joined is not None and _is_join_with_condition(statement, joined, first, word):
        return joined
    source = " ".join(statement.cut(first if joined is None else joined, word).split())
    raise statement.error_at(
        f"MATCH_RECOGNIZE must follow a table, not {_shorten(source)}",
        word,
        hint=f"write it directly after its table, or make a table of the query: FROM (SELECT * "
        f"FROM {source}) MATCH_RECOGNIZE (...)",
    )


def _join_start(statement: Statement, first: int) -> int | None:
    """The first table of the joins that the table at the token is the last of."""
    if not statement.is_at(first - 1, "JOIN"):
        return None
    index = first - 1
    while index > 0:
        token = statement.tokens[index - 1]
        if token.is_symbol(",", "(", "[", ";", "|>") or token.is_word("FROM"):
            return index
        if token.is_word("USING") and statement.is_at(0, "MERGE"):
            return index
        index = statement.partners.get(index - 1, index - 1)
    return None


def _is_join_with_condition(statement: Statement, start: int, last: int, word: int) -> bool:
    """Whether [start, word) is a table with joins, of which the last, of the table at `last`, ends
    with its condition."""
    tokens = [statement.tokens[at] for at in statement.top(start, word)]
    if any(token.is_word(*_BEHIND_FROM) for token in tokens):
        return False
    conditions = [
        at
        for at in statement.top(last, word)
        if statement.is_at(at, "ON") or statement.is_at(at, "USING")
    ]
    if not conditions or _end_of_table(statement, last, conditions[0]) != conditions[0]:
        return False
    if statement.is_at(conditions[0], "USING"):
        return statement.partners.get(conditions[0] + 1) == word - 1
    return conditions[0] + 1 < word


def _shorten(text: str, most: int = 40) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= most else f"{text[: most - 3]}...")


def _after_separator(statement: Statement, word: int) -> int:
    index = word
    while index > 0:
        before = index - 1
        token = statement.tokens[before]
        if token.is_symbol(",", "(", "[", ";", "|>") or token.is_word("FROM", "JOIN"):
            return index
        if token.is_word("USING") and statement.is_at(0, "MERGE"):
            return index
        index = statement.partners.get(before, before) if token.is_symbol(")", "]") else before
    return index


def _values_before(statement: Statement, first: int, word: int) -> Iterator[int]:
    """VALUES 1, 2 AS t(x): commas separate its rows, so it begins before the last comma."""
    index = first
    while index > 0 and statement.symbol(index - 1, ","):
        index = _after_separator(statement, index - 1)
        if statement.is_at(index, "VALUES") and _end_of_table(statement, index, word) == word:
            yield index


def _end_of_table(statement: Statement, index: int, stop: int) -> int | None:
    """Where the table that begins at the token ends; None if none does."""
    after = _end_of_primary(statement, index, stop)
    while after is not None and after < stop:
        further = _end_of_decoration(statement, after, stop)
        if further is None or further == after:
            return further
        after = further
    return after


def _end_of_primary(statement: Statement, index: int, stop: int) -> int | None:
    if index >= stop:
        return None
    if statement.symbol(index, "("):
        return _end_of_brackets(statement, index, stop)
    if statement.is_at(index, "VALUES"):
        return _end_of_values(statement, index + 1, stop)
    if not _is_name(statement, index) or statement.is_at(index, "LATERAL"):
        return None
    after = index + 1
    while statement.symbol(after, ".") and _is_name(statement, after + 1):
        after += 2
    if statement.symbol(after, "("):
        return _end_of_brackets(statement, after, stop)
    return after if after <= stop else None


def _end_of_brackets(statement: Statement, index: int, stop: int) -> int | None:
    closed = statement.partners.get(index)
    return closed + 1 if closed is not None and closed < stop else None


def _end_of_values(statement: Statement, index: int, stop: int) -> int | None:
    """The rows of VALUES: up to a bracket or literal that is followed by a name."""
    for at in statement.top(index, stop):
        after = (statement.partners.get(at, at) if statement.symbol(at, "(") else at) + 1
        ends = statement.tokens[at].kind in {"string", "number"} or statement.symbol(at, "(")
        named = after < stop and statement.tokens[after].kind in {"word", "quoted"}
        if after == stop or (named and (ends or statement.is_at(after, "AS"))):
            return after
    return None


def _end_of_decoration(statement: Statement, index: int, stop: int) -> int | None:
    """What may follow a table: a sample, a version, a pivot, another clause, or its alias."""
    if statement.is_at(index, KEYWORD) and statement.symbol(index + 1, "("):
        return _end_of_brackets(statement, index + 1, stop)
    if statement.is_at(index, "TABLESAMPLE") or statement.is_at(index, "PIVOT"):
        return _end_of_brackets(statement, index + 1, stop)
    if statement.is_at(index, "REPEATABLE"):
        return _end_of_brackets(statement, index + 1, stop)
    if statement.is_at(index, "UNPIVOT"):
        opened = next((at for at in range(index, stop) if statement.symbol(at, "(")), stop)
        return _end_of_brackets(statement, opened, stop)
    version = index + 1 if statement.is_at(index, "FOR") else index
    for words in ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME"):
        if statement.is_at(version, words, "AS", "OF"):
            return _end_of_version(statement, version + 3, stop)
    return _end_of_alias(statement, index, stop)


def _end_of_version(statement: Statement, index: int, stop: int) -> int | None:
    """A literal, or an expression such as date_sub(...)."""
    if index >= stop:
        return None
    return (
        _end_of_brackets(statement, index + 1, stop)
        if statement.symbol(index + 1, "(")
        else index + 1
    )


def _end_of_alias(statement: Statement, index: int, stop: int) -> int | None:
    has_as = statement.is_at(index, "AS")
    index += has_as
    is_alias = _is_alias if has_as else _is_name
    if index >= stop or not is_alias(statement, index):
        return None
    after = index + 1
    return _end_of_brackets(statement, after, stop) if statement.symbol(after, "(") else after


def _is_alias(statement: Statement, index: int) -> bool:
    """Whether Spark takes the word as an alias behind AS."""
    token = statement.tokens[index]
    is_word = token.kind == "word" and token.text.upper() not in _NOT_AN_ALIAS
    return token.kind == "quoted" or is_word


def _is_name(statement: Statement, index: int) -> bool:
    if index >= len(statement.tokens):
        return False
    token = statement.tokens[index]
    return token.kind == "quoted" or (
        token.kind == "word" and token.text.upper() not in _NOT_A_NAME
    )


# ---- common table expressions --------------------------------------------------------------------


@dataclass(frozen=True)
class CteDefinition:
    """name AS (query): the tokens [first, closed]; `opened` is the query's bracket."""

    name: str
    first: int
    opened: int
    closed: int


@dataclass(frozen=True)
class WithClause:
    """A WITH at the token `first`; its definitions are visible up to the token `stop`."""

    first: int
    stop: int
    is_recursive: bool
    definitions: tuple[CteDefinition, ...]


def find_withs(statement: Statement) -> tuple[WithClause, ...]:
    """Every WITH that defines queries, outer ones before inner ones."""
    found = (_read_with(statement, index) for index in range(len(statement.tokens)))
    return tuple(each for each in found if each is not None)


def _read_with(statement: Statement, index: int) -> WithClause | None:
    if not statement.is_at(index, "WITH"):
        return None
    is_recursive = statement.is_at(index + 1, "RECURSIVE")
    definitions = tuple(_read_definitions(statement, index + 1 + is_recursive))
    if not definitions:
        return None
    return WithClause(index, statement.end_of_group(index), is_recursive, definitions)


def _read_definitions(statement: Statement, index: int) -> Iterator[CteDefinition]:
    while index < len(statement.tokens):
        name = statement.tokens[index]
        opened = _query_bracket(statement, index + 1)
        closed = None if opened is None else statement.partners.get(opened)
        if name.kind not in {"word", "quoted"} or opened is None or closed is None:
            return
        yield CteDefinition(name.text, index, opened, closed)
        if not statement.symbol(closed + 1, ","):
            return
        index = closed + 2


def _query_bracket(statement: Statement, index: int) -> int | None:
    """The bracket of the query after a name: (columns) MAX RECURSION LEVEL 5 AS (."""
    if statement.symbol(index, "("):
        index = statement.partners.get(index, index) + 1
    if statement.is_at(index, "MAX", "RECURSION", "LEVEL"):
        index += 4
    if statement.is_at(index, "AS") and statement.symbol(index + 1, "("):
        return index + 1
    return None


def visible_definitions(
    statement: Statement,
    location: ClauseLocation,
    all_withs: tuple[WithClause, ...],
    ranges: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[WithClause, tuple[CteDefinition, ...]], ...]:
    """The definitions that a clause's input refers to, directly or through others, by their WITH;
    outer ones first. `ranges`: characters of the clause that belong to its input too.

    The input is a query of its own, so these definitions go before it. Only these: others would be
    analyzed for nothing. Definitions of an inner WITH hide outer ones of the same name, which the
    nesting of the queries keeps.
    """
    names = _names_used(statement, location.first, location.word)
    for start, end in ranges:
        first, stop = statement.first_token(start), statement.first_token(end)
        names |= _names_used(statement, first, stop)
    needed: list[tuple[WithClause, tuple[CteDefinition, ...]]] = []
    for each in reversed(all_withs):
        if not each.first < location.first < each.stop:
            continue
        chosen: list[CteDefinition] = []
        for definition in reversed(_earlier_definitions(statement, location, each)):
            if definition.name.casefold() in names:
                chosen.append(definition)
                names |= _names_used(statement, definition.opened, definition.closed)
        if chosen:
            needed.append((each, tuple(reversed(chosen))))
    return tuple(reversed(needed))


def _earlier_definitions(
    statement: Statement, location: ClauseLocation, each: WithClause
) -> tuple[CteDefinition, ...]:
    """The definitions before the one that contains the clause, or all."""
    for index, definition in enumerate(each.definitions):
        if definition.opened < location.first < definition.closed:
            _check_not_recursive(statement, location, each, definition)
            return each.definitions[:index]
    return each.definitions


def _check_not_recursive(
    statement: Statement, location: ClauseLocation, each: WithClause, definition: CteDefinition
) -> None:
    for index in range(location.first, location.word):
        token = statement.tokens[index]
        if each.is_recursive and token.text.casefold() == definition.name.casefold():
            raise statement.error_at(
                f"MATCH_RECOGNIZE cannot match the rows of {definition.name} while they are "
                "still being computed",
                index,
                hint="match after the recursion: SELECT ... FROM "
                f"{definition.name} MATCH_RECOGNIZE (...)",
            )


def _names_used(statement: Statement, first: int, stop: int) -> set[str]:
    return {
        token.text.casefold()
        for token in statement.tokens[first:stop]
        if token.kind in {"word", "quoted"}
    }
