"""What a statement does with its query, as far as it matters to MATCH_RECOGNIZE.

Most statements run or describe their query at once and need nothing special: SELECT, INSERT, CREATE
TABLE AS, MERGE, EXPLAIN. Of a view Spark keeps the text and parses it again later, when the
DataFrames that it names are gone. So a temporary view is made from the query's DataFrame, and what
outlives the session is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.sql.statement import Statement


_VIEW = "create a temporary view, CREATE TEMPORARY VIEW v AS ..., or a table, CREATE TABLE t AS ..."
_PERMANENT = {
    "VIEW": "a permanent view cannot contain MATCH_RECOGNIZE",
    "FUNCTION": "a function cannot contain MATCH_RECOGNIZE",
    "STREAMING": "a streaming table cannot contain MATCH_RECOGNIZE",
}
_VIEW_WORDS = ("OR", "REPLACE", "GLOBAL", "TEMP", "TEMPORARY", "MATERIALIZED", "REFRESH", "PRIVATE")


@dataclass(frozen=True)
class TemporaryView:
    """CREATE TEMPORARY VIEW name (columns) AS query. `query` is the first token of the query,
    `columns` holds names and comments."""

    name: str
    replaces: bool
    is_global: bool
    columns: tuple[tuple[str, str | None], ...]
    query: int


def find_explain(statement: Statement) -> int | None:
    """The first token after EXPLAIN PATTERN, if the statement begins with it."""
    return 2 if statement.is_at(0, "EXPLAIN", "PATTERN") else None


def read_temporary_view(statement: Statement) -> TemporaryView | None:
    """The temporary view that the statement creates, if it creates one."""
    index = 1
    if not statement.is_at(0, "CREATE"):
        return None
    replaces = statement.is_at(index, "OR", "REPLACE")
    index += 2 * replaces
    is_global = statement.is_at(index, "GLOBAL")
    index += is_global
    if not (statement.is_at(index, "TEMP") or statement.is_at(index, "TEMPORARY")):
        return None
    if not statement.is_at(index + 1, "VIEW"):
        return None
    index += 2
    if statement.is_at(index, "IF", "NOT", "EXISTS"):
        raise statement.error(
            "CREATE TEMPORARY VIEW does not take IF NOT EXISTS",
            statement.span(index, index + 3),
            hint="write CREATE OR REPLACE TEMPORARY VIEW",
        )
    name, index = _read_name(statement, index)
    columns, index = _read_columns(statement, index)
    if statement.is_at(index, "COMMENT"):
        index += 2
    if not statement.is_at(index, "AS") or index + 1 >= len(statement.tokens):
        raise statement.error_at("expected AS and a query here", index)
    return TemporaryView(name, replaces, is_global, columns, index + 1)


def _read_name(statement: Statement, index: int) -> tuple[str, int]:
    stop = index + 1
    while statement.symbol(stop, "."):
        stop += 2
    if index >= len(statement.tokens) or statement.tokens[index].kind not in {"word", "quoted"}:
        raise statement.error_at("the view has no name", index)
    if stop - index > 1:
        raise statement.error(
            "the name of a temporary view cannot be qualified",
            statement.span(index, min(stop, len(statement.tokens))),
            hint="remove the catalog and the schema",
        )
    return statement.cut(index, stop), stop


def _read_columns(
    statement: Statement, index: int
) -> tuple[tuple[tuple[str, str | None], ...], int]:
    if not statement.symbol(index, "("):
        return (), index
    closed = statement.partners.get(index)
    if closed is None:
        raise statement.error_at("this bracket is not closed", index, hint="add )")
    found: list[tuple[str, str | None]] = []
    at = index + 1
    while at < closed:
        name, comment = statement.tokens[at].text, None
        at += 1
        if statement.is_at(at, "COMMENT") and at + 1 < closed:
            comment = statement.tokens[at + 1].text
            at += 2
        found.append((name, comment))
        if at < closed and not statement.symbol(at, ","):
            raise statement.error_at("expected a comma here", at)
        at += 1
    return tuple(found), closed + 1


def check_not_permanent(statement: Statement) -> None:
    """Refuses statements of which Spark keeps the text, and scripts."""
    if statement.is_at(0, "CREATE") or statement.is_at(0, "ALTER"):
        made = 1
        while any(statement.is_at(made, word) for word in _VIEW_WORDS):
            made += 1
        word = statement.tokens[made].text.upper() if made < len(statement.tokens) else ""
        message = _PERMANENT.get(word)
        if message is not None:
            raise statement.error_at(message, made, hint=_VIEW)
    if statement.is_at(0, "CACHE"):
        raise statement.error_at(
            "CACHE TABLE ... AS cannot contain MATCH_RECOGNIZE",
            0,
            hint="write CREATE TEMPORARY VIEW v AS ..., then CACHE TABLE v",
        )
    if statement.is_at(0, "BEGIN"):
        raise statement.error_at(
            "a script cannot contain MATCH_RECOGNIZE: its input may not exist yet",
            0,
            hint="run the statements one at a time",
        )


def check_single_statement(statement: Statement) -> None:
    """Refuses a second statement after the first."""
    ends = [at for at in range(len(statement.tokens)) if statement.symbol(at, ";")]
    for end in ends:
        after = end + 1
        if after < len(statement.tokens) and not statement.symbol(after, ";"):
            raise statement.error_at(
                "there is a second statement after this one", after, hint="run them one at a time"
            )
