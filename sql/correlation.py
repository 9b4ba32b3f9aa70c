"""Clauses that refer to columns of the query around them, by LATERAL or as a subquery.

    FROM t, LATERAL (SELECT * FROM q MATCH_RECOGNIZE (... DEFINE b AS price > t.low) AS m)

    1  SELECT DISTINCT t.low AS o FROM t                                       the outer values
    2  SELECT ..., o AS h FROM (1), (SELECT * FROM q)                          the input
    3  the matches of 2 with o as the first partition column
    4  FROM t, LATERAL (SELECT * FROM (SELECT ... FROM (3) WHERE o <=> t.low) AS m)

Partitions are matched one by one, so the matches for one outer value are those that the clause has
with this value as a literal. What surrounds the clause stays Spark's: it evaluates 4. Where the
input itself refers to outer columns, FROM q WHERE q.k = t.k, it stands behind LATERAL in 2, beside
a table t of the outer values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from spark_cep.expressions.names import quote_name
from spark_cep.expressions.schema import HIDDEN_PREFIX
from spark_cep.sql.selects import find_select, is_query, tokens_without_queries
from spark_cep.sql.statement import FramePiece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from spark_cep.sql.clause import Span
    from spark_cep.sql.location import ClauseLocation
    from spark_cep.sql.selects import Select
    from spark_cep.sql.statement import Statement

# Their values would differ between the two evaluations of the outer tables.
_CHANGING = {
    "RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "TABLESAMPLE",
    "MONOTONICALLY_INCREASING_ID",
}  # fmt: skip
_JOIN_WORDS = (
    "JOIN",
    "INNER",
    "CROSS",
    "LEFT",
    "RIGHT",
    "FULL",
    "OUTER",
    "NATURAL",
    "SEMI",
    "ANTI",
)
_NESTED_TYPE = re.compile(r"array|map|struct|variant|interval$|void")
_COLLATED = re.compile(r"string collate (\S+)")


@dataclass(frozen=True)
class OuterScope:
    """The tables whose columns a clause may refer to, as tokens [first, stop), with the WHERE that
    comes before the clause. `names`: their names and aliases, in lower case, among other words.
    `merges`: USING or NATURAL makes one column of two, k is not u.k."""

    first: int
    stop: int
    names: frozenset[str]
    merges: bool = False


def find_outer_scope(statement: Statement, location: ClauseLocation) -> OuterScope | None:
    """The tables of the innermost query around a clause that it may refer to.

    A query in FROM without LATERAL, or a common table expression, refers to none of its own.
    """
    opened = statement.groups[location.word]
    while opened >= 0:
        if is_query(statement, opened):
            select, around = find_select(statement, opened), statement.groups[opened]
            if select is None and around >= 0 and statement.is_at(around + 1, "SELECT"):
                # A SELECT without FROM: Spark has no references through two queries.
                return None
            scope = None if select is None else _scope_of_query(statement, opened, select, location)
            if scope is not None:
                return scope
        opened = statement.groups[opened]
    return None


def _scope_of_query(
    statement: Statement, opened: int, select: Select, location: ClauseLocation
) -> OuterScope | None:
    tables = select.sections["FROM"]
    first, stop = tables.content, tables.stop
    if statement.is_at(opened - 1, "LATERAL"):
        group = statement.groups[opened]
        if group >= first:
            first = group + 1
        stop = opened - 1
        while stop > first and statement.tokens[stop - 1].is_word(*_JOIN_WORDS):
            stop -= 1
        stop -= statement.symbol(stop - 1, ",")
    elif first <= opened < stop:
        # A table, or a condition of a join that also reads tables behind it.
        return None
    if first >= stop or first <= location.word < stop:
        return None
    merges = any(statement.tokens[at].is_word("USING", "NATURAL") for at in range(first, stop))
    names = _names(statement, first, stop)
    where = select.sections.get("WHERE")
    if where is not None and not tables.content <= opened < where.stop:
        # A subquery of an item is for the rows that WHERE keeps: it may fail for others.
        words = [statement.tokens[at] for at in range(where.content, where.stop)]
        if not any(each.is_word("MATCH_RECOGNIZE", "LIMIT", *_CHANGING) for each in words):
            stop = where.stop
    return OuterScope(first, stop, names, merges)


def _names(statement: Statement, first: int, stop: int) -> frozenset[str]:
    return frozenset(
        statement.tokens[at].text.casefold()
        for at in tokens_without_queries(statement, first, stop)
        if statement.tokens[at].kind in {"word", "quoted"}
    )


# ---- the columns that are referred to ------------------------------------------------------------


@dataclass(frozen=True)
class OuterColumn:
    """A column of the outer tables, with the name in front of it, if one is needed.

    `key`: its value as a text, in {}, that Spark groups by exactly: it takes -0.0 for 0.0, and a
    collation texts for each other. `value`: the value from the key."""

    qualifier: str | None
    column: str
    key: str = "{}"
    value: str = "{}"

    @property
    def text(self) -> str:
        name = quote_name(self.column)
        return name if self.qualifier is None else f"{quote_name(self.qualifier)}.{name}"

    @property
    def key_text(self) -> str:
        return self.key.format(self.text)


def qualified_columns(
    statement: Statement, span: Span, names: Iterable[str]
) -> Iterator[OuterColumn]:
    """What may be columns of the outer tables among the tokens: t.low."""
    known = frozenset(names)
    first, stop = statement.first_token(span[0]), statement.first_token(span[1])
    for at in range(first, stop - 2):
        token, column = statement.tokens[at], statement.tokens[at + 2]
        is_path = statement.symbol(at + 1, ".") and not statement.symbol(at - 1, ".")
        is_name = token.kind in {"word", "quoted"} and column.kind in {"word", "quoted"}
        if is_path and is_name and token.text.casefold() in known:
            yield OuterColumn(token.text, column.text)


def bare_columns(statement: Statement, span: Span, columns: Iterable[str]) -> Iterator[OuterColumn]:
    """What may be columns of the outer tables by their names alone."""
    known = frozenset(columns)
    first, stop = statement.first_token(span[0]), statement.first_token(span[1])
    for at in range(first, stop):
        token = statement.tokens[at]
        is_alone = not statement.symbol(at - 1, ".") and not statement.symbol(at + 1, ".", "(")
        if token.kind in {"word", "quoted"} and is_alone and token.text.casefold() in known:
            yield OuterColumn(None, token.text)


def distinct_columns(found: Iterable[OuterColumn], *, merges: bool) -> list[OuterColumn]:
    """Each column once; one without a qualifier is left out where a qualifier has it too, unless
    it may be a column that a join `merges`."""
    seen: dict[tuple[str | None, str], OuterColumn] = {}
    for each in found:
        qualifier = None if each.qualifier is None else each.qualifier.casefold()
        seen.setdefault((qualifier, each.column.casefold()), each)
    qualified = {column for qualifier, column in seen if qualifier is not None}
    return [
        each
        for (qualifier, column), each in seen.items()
        if merges or qualifier is not None or column not in qualified
    ]


def find_merged(columns: Sequence[OuterColumn]) -> OuterColumn | None:
    """A column without a qualifier that is also there with one."""
    bare = {each.column.casefold(): each for each in columns if each.qualifier is None}
    return next(
        (
            bare[each.column.casefold()]
            for each in columns
            if each.qualifier is not None and each.column.casefold() in bare
        ),
        None,
    )


# ---- the outer rows ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OuterRows:
    """The distinct values of the columns, each in a column `names` of `df`."""

    df: Any
    columns: tuple[OuterColumn, ...]

    @property
    def names(self) -> list[str]:
        return [f"{HIDDEN_PREFIX}outer_{number}" for number in range(1, len(self.columns) + 1)]

    def has(self, statement: Statement, span: Span) -> bool:
        """Whether the name in the statement is one of the columns."""
        return self._find(statement, span) is not None

    def value(self, statement: Statement, span: Span) -> str:
        """The value of the column that the name in the statement means, from its key."""
        found = self._find(statement, span)
        assert found is not None
        return self.columns[found].value.format(self.names[found])

    def _find(self, statement: Statement, span: Span) -> int | None:
        tokens = statement.tokens[statement.first_token(span[0]) : statement.first_token(span[1])]
        parts = [each.text.casefold() for each in tokens[::2]]
        names = [
            [part.casefold() for part in (each.qualifier, each.column) if part is not None]
            for each in self.columns
        ]
        if parts in names:
            return names.index(parts)
        same = (number for number, each in enumerate(names) if parts == each[1:])
        return next(same, None)

    def beside(
        self, items: Sequence[Any], source: Span, values: Sequence[str], *, is_lateral: bool
    ) -> list[Any]:
        """SELECT items FROM source beside each of the rows, with `values` made of these.
        `is_lateral`: the items or the source refer to the rows as the clause does."""
        pieces: list[Any] = ["SELECT __cep_outer.*, __cep_input.*"]
        pieces += [f", {each}" for each in values]
        pieces += [" FROM ", FramePiece(self.df), " AS __cep_outer"]
        if is_lateral:
            pieces += self._tables()
        opened = ", LATERAL (" if is_lateral else " CROSS JOIN ("
        return [*pieces, opened, "SELECT ", *items, " FROM ", source, ") AS __cep_input"]

    def _tables(self) -> Iterator[str]:
        """The outer columns by the names that the clause has for them."""
        names: dict[str, str] = {}
        values: dict[str, list[str]] = {}
        for each, name in zip(self.columns, self.names, strict=True):
            table = each.qualifier or "__cep_bare"
            names.setdefault(table.casefold(), table)
            value = f"{each.value.format(name)} AS {quote_name(each.column)}"
            values.setdefault(table.casefold(), []).append(value)
        for key, listed in values.items():
            yield f", LATERAL (SELECT {', '.join(listed)}) AS {quote_name(names[key])}"

    def replacement(self, matches: Any) -> tuple[Any, str, str]:
        """The matches of the outer row, as a DataFrame and the texts around it."""
        given = list(matches.columns)
        renamed = [f"__cep_c{number}" for number in range(len(given))]
        own = dict(zip(given, renamed, strict=True))
        shown = ", ".join(
            f"{name} AS {quote_name(column)}"
            for column, name in own.items()
            if column not in self.names
        )
        # The clause may have no columns of its own, and the query only counts its rows.
        shown = shown or f"NULL AS {HIDDEN_PREFIX}none"
        tests = " AND ".join(
            f"__cep_matches.{own[name]} <=> {each.key_text}"
            for each, name in zip(self.columns, self.names, strict=True)
        )
        return (
            matches.toDF(*renamed),
            f"(SELECT {shown} FROM ",
            f" AS __cep_matches WHERE {tests})",
        )


def read_outer_rows(
    statement: Statement,
    scope: OuterScope,
    columns: Sequence[OuterColumn],
    run: Callable[[list[Any]], Any],
    *,
    is_certain: bool = True,
) -> OuterRows | None:
    """The distinct values of those columns that the outer tables have; None if they have none of
    them. `run`: runs a query, or raises what Spark says. `is_certain`: the clause refers to all of
    the columns; if not, those of types that it cannot refer to may be columns of its input."""
    span = statement.span(scope.first, scope.stop)

    def select(items: Sequence[str], distinct: str = "") -> Any:
        named = [f"{text} AS {HIDDEN_PREFIX}outer_{n}" for n, text in enumerate(items, 1)]
        return run([f"SELECT {distinct}{', '.join(named)} FROM ", span])

    try:
        rows = select([each.text for each in columns])
    except Exception:
        columns = [each for each in columns if _is_column(select, each)]
        if not columns:
            return None
        rows = select([each.text for each in columns])
    types = [field.dataType.simpleString() for field in rows.schema.fields]
    if not is_certain and not all(map(_NESTED_TYPE.match, types)):
        kept = [not _NESTED_TYPE.match(type_) for type_ in types]
        columns, types = list(compress(columns, kept)), list(compress(types, kept))
    typed = [
        _typed(statement, each, type_, span) for each, type_ in zip(columns, types, strict=True)
    ]
    df = select([each.key_text for each in typed], "DISTINCT ")
    return OuterRows(df, tuple(typed))


def _is_column(select: Callable[[list[str]], Any], each: OuterColumn) -> bool:
    try:
        select([each.text])
    except Exception:
        return False
    return True


def _typed(statement: Statement, column: OuterColumn, type_: str, span: Span) -> OuterColumn:
    if type_ in {"float", "double"}:
        return replace(column, key="CAST({} AS STRING)", value=f"CAST({{}} AS {type_.upper()})")
    collated = _COLLATED.fullmatch(type_)
    if collated is not None:
        return replace(
            column, key="({} COLLATE UTF8_BINARY)", value=f"({{}} COLLATE {collated[1]})"
        )
    if _NESTED_TYPE.match(type_):
        name = column.text.replace("`", "")
        raise statement.error(
            f"a clause cannot refer to {name} of the query around it, which is of type {type_}",
            span,
            hint="name a field or an element of it in a subquery, before LATERAL",
        )
    return column


def check_repeatable(statement: Statement, first: int, stop: int) -> None:
    """Refuses outer tables, as tokens, that would not be the same when they are read again."""
    tokens = range(first, stop)
    is_ordered = any(statement.tokens[at].is_word("ORDER") for at in tokens)
    for at in tokens:
        if statement.tokens[at].is_word("LIMIT", "OFFSET") and not is_ordered:
            raise statement.error_at(
                f"{statement.tokens[at].text} without ORDER BY may not be in the tables that a "
                "MATCH_RECOGNIZE refers to: they are read twice, and have to be the same",
                at,
                hint="add an ORDER BY, or write these rows to a table first",
            )
        if statement.tokens[at].is_word(*_CHANGING):
            raise statement.error_at(
                f"{statement.tokens[at].text} may not be in the tables that a MATCH_RECOGNIZE "
                "refers to: they are read twice, and have to be the same",
                at,
                hint="write these rows to a table first",
            )
