"""Common table expressions, and which of them the input of a clause can see.

The input of MATCH_RECOGNIZE is a query of its own, so the definitions that it refers to go in
front of it. Only those: others would be analyzed for nothing. Definitions of an inner WITH hide
outer ones of the same name, which nested queries keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.sql.clauses import Found
    from spark_cep.sql.statement import Statement


@dataclass(frozen=True)
class Definition:
    """name AS (query): tokens [first, closed], the query's bracket is `opened`."""

    name: str
    first: int
    opened: int
    closed: int


@dataclass(frozen=True)
class With:
    """WITH of tokens [first, ...): its definitions hold up to the token `stop`."""

    first: int
    stop: int
    is_recursive: bool
    definitions: tuple[Definition, ...]


def withs(statement: Statement) -> tuple[With, ...]:
    """Every WITH that defines queries, outer ones before inner ones."""
    found = (_with(statement, index) for index in range(len(statement.tokens)))
    return tuple(each for each in found if each is not None)


def _with(statement: Statement, index: int) -> With | None:
    if not statement.is_at(index, "WITH"):
        return None
    is_recursive = statement.is_at(index + 1, "RECURSIVE")
    definitions = tuple(_definitions(statement, index + 1 + is_recursive))
    if not definitions:
        return None
    return With(index, statement.end_of_group(index), is_recursive, definitions)


def _definitions(statement: Statement, index: int) -> Iterator[Definition]:
    while index < len(statement.tokens):
        name = statement.tokens[index]
        opened = _query(statement, index + 1)
        closed = None if opened is None else statement.partners.get(opened)
        if name.kind not in {"word", "quoted"} or opened is None or closed is None:
            return
        yield Definition(name.text, index, opened, closed)
        if not statement.symbol(closed + 1, ","):
            return
        index = closed + 2


def _query(statement: Statement, index: int) -> int | None:
    """The bracket of the query behind a name: (columns) MAX RECURSION LEVEL 5 AS (."""
    if statement.symbol(index, "("):
        index = statement.partners.get(index, index) + 1
    if statement.is_at(index, "MAX", "RECURSION", "LEVEL"):
        index += 4
    if statement.is_at(index, "AS") and statement.symbol(index + 1, "("):
        return index + 1
    return None


def visible(
    statement: Statement, found: Found, all_withs: tuple[With, ...]
) -> tuple[tuple[With, tuple[Definition, ...]], ...]:
    """The definitions that a clause's input refers to, directly or through others; outer WITHs
    first, those without such definitions left out."""
    names = _names(statement, found.first, found.word)
    needed: list[tuple[With, tuple[Definition, ...]]] = []
    for each in reversed(all_withs):
        if not each.first < found.first < each.stop:
            continue
        chosen: list[Definition] = []
        for definition in reversed(_earlier(statement, found, each)):
            if definition.name.casefold() in names:
                chosen.append(definition)
                names |= _names(statement, definition.opened, definition.closed)
        if chosen:
            needed.append((each, tuple(reversed(chosen))))
    return tuple(reversed(needed))


def _earlier(statement: Statement, found: Found, each: With) -> tuple[Definition, ...]:
    """The definitions in front of the one that the clause stands in, or all."""
    for index, definition in enumerate(each.definitions):
        if definition.opened < found.first < definition.closed:
            _check_not_recursive(statement, found, each, definition)
            return each.definitions[:index]
    return each.definitions


def _check_not_recursive(
    statement: Statement, found: Found, each: With, definition: Definition
) -> None:
    for index in range(found.first, found.word):
        token = statement.tokens[index]
        if each.is_recursive and token.text.casefold() == definition.name.casefold():
            raise statement.error_at(
                f"MATCH_RECOGNIZE cannot match the rows of {definition.name} while they are "
                "still being computed",
                index,
                hint="match behind the recursion: SELECT ... FROM "
                f"{definition.name} MATCH_RECOGNIZE (...)",
            )


def _names(statement: Statement, first: int, stop: int) -> set[str]:
    return {
        token.text.casefold()
        for token in statement.tokens[first:stop]
        if token.kind in {"word", "quoted"}
    }
