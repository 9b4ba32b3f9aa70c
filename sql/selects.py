"""One SELECT of a statement by its tokens: its items, and the clauses behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spark_cep.sql.statement import Statement

QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_SECTIONS = (
    ("WHERE", ("WHERE",)), ("GROUP BY", ("GROUP", "BY")), ("HAVING", ("HAVING",)),
    ("QUALIFY", ("QUALIFY",)), ("WINDOW", ("WINDOW",)), ("ORDER BY", ("ORDER", "BY")),
    ("SORT BY", ("SORT", "BY")), ("CLUSTER BY", ("CLUSTER", "BY")),
    ("DISTRIBUTE BY", ("DISTRIBUTE", "BY")), ("LIMIT", ("LIMIT",)), ("OFFSET", ("OFFSET",)),
)  # fmt: skip
# They belong to the whole query, of which a SELECT may be only a part.
OF_QUERY = ("ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "LIMIT", "OFFSET")
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT", "MINUS")


@dataclass(frozen=True)
class SelectSection:
    """The tokens [first, content) are its words, [content, stop) what follows them."""

    first: int
    content: int
    stop: int


@dataclass(frozen=True)
class Select:
    """The tokens [first, stop) are a SELECT with its clauses. `items`: those of its list.
    `is_distinct`: SELECT DISTINCT. `is_operand`: of a UNION or another set operation; ORDER BY and
    LIMIT are then not its own."""

    first: int
    stop: int
    is_distinct: bool
    is_operand: bool
    items: tuple[tuple[int, int], ...]
    sections: Mapping[str, SelectSection]


def find_select(statement: Statement, token: int) -> Select | None:
    """The SELECT that the token belongs to; None outside of any."""
    start = _query_start(statement, token)
    end = statement.end_of_group(start) if start < len(statement.tokens) else start
    end = next((at for at in statement.top(start, end) if statement.symbol(at, ";", "|>")), end)
    heads = [at for at in statement.top(start, end) if statement.is_at(at, "SELECT")]
    first = next((at for at in reversed(heads) if at < token), None)
    if first is None:
        return None
    is_operand = any(_is_set_operator(statement, at) for at in statement.top(start, end))
    return _read_select(statement, first, end, is_operand=is_operand)


def _query_start(statement: Statement, token: int) -> int:
    """The first token of the innermost query around the token."""
    while True:
        group = statement.groups[token]
        if group < 0:
            return 0
        if is_query(statement, group):
            return group + 1
        token = group


def is_query(statement: Statement, opened: int) -> bool:
    """Whether the bracket holds a query."""
    inner = opened + 1
    while statement.symbol(inner, "("):
        inner += 1
    return any(statement.is_at(inner, word) for word in QUERY_WORDS)


def _is_set_operator(statement: Statement, at: int) -> bool:
    """Whether a second query follows: `SELECT 1 AS except`, `max(except)` and `* EXCEPT (a)` are
    names and lists."""
    if not statement.tokens[at].is_word(*_SET_OPERATORS):
        return False
    is_item = statement.symbol(at - 1, "*", ".", ",") or statement.is_at(at - 1, "AS")
    follows = any(statement.is_at(at + 1, word) for word in ("ALL", "DISTINCT", *QUERY_WORDS))
    is_first = statement.is_at(at - 1, "SELECT") or statement.is_at(at - 1, "BY")
    return not (is_item or is_first) and (follows or statement.symbol(at + 1, "("))


def _read_select(statement: Statement, first: int, end: int, *, is_operand: bool) -> Select | None:
    content = first + 1
    is_distinct = statement.is_at(content, "DISTINCT")
    content += is_distinct or statement.is_at(content, "ALL")
    starts: list[tuple[str, int, int]] = []
    stop = end
    for at in statement.top(content, end):
        if _is_set_operator(statement, at):
            stop = at
            break
        if not starts:
            if statement.is_at(at, "FROM") and not _is_comparison(statement, at):
                starts.append(("FROM", at, at + 1))
            continue
        for name, words in _SECTIONS:
            if statement.is_at(at, *words) and _begins(statement, name, at, len(words)):
                starts.append((name, at, at + len(words)))
                break
    if not starts:
        return None
    if is_operand:
        own = [each for each in starts if each[0] not in OF_QUERY]
        stop = min([stop, *(each[1] for each in starts if each[0] in OF_QUERY)])
        starts = own
    ends = [*(each[1] for each in starts[1:]), stop]
    sections = {
        name: SelectSection(at, after, until)
        for (name, at, after), until in zip(starts, ends, strict=True)
    }
    items = tuple(list_items(statement, content, starts[0][1]))
    return Select(first, stop, is_distinct, is_operand, items, sections)


def _is_comparison(statement: Statement, at: int) -> bool:
    """x IS [NOT] DISTINCT FROM y"""
    return statement.is_at(at - 1, "DISTINCT") and (
        statement.is_at(at - 2, "IS") or statement.is_at(at - 3, "IS", "NOT")
    )


def _begins(statement: Statement, name: str, at: int, words: int) -> bool:
    """Whether the words are no names: FROM t AS window, ORDER BY limit."""
    if name == "WINDOW":
        return statement.is_at(at + 2, "AS")
    if words > 1:
        return True
    after = at + words
    is_last = after >= len(statement.tokens) or statement.symbol(after, ",", ")", ".", ";")
    return not (is_last or statement.is_at(at - 1, "AS") or statement.symbol(at - 1, ".", ","))


def list_items(statement: Statement, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """The tokens between the commas of a list."""
    begin = first
    for at in statement.top(first, stop):
        if statement.symbol(at, ","):
            if at > begin:
                yield begin, at
            begin = at + 1
    if stop > begin:
        yield begin, stop


def tokens_without_queries(statement: Statement, first: int, stop: int) -> Iterator[int]:
    """The tokens of [first, stop) in the order of the text, without those of subqueries."""
    at = first
    while at < stop:
        yield at
        closed = statement.partners.get(at) if statement.symbol(at, "(") else None
        at = closed if closed is not None and is_query(statement, at) else at + 1
