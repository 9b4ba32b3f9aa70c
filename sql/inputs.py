"""The input of a clause: a query of what is before it, with the columns that the clause adds.

    WITH ... SELECT *, lower(k) AS key, (SELECT avg(price) FROM t) AS __cep_hidden_1 FROM input

Keys that PARTITION BY computes become columns of the input, and subqueries of DEFINE and MEASURES
hidden ones. Each subquery is also analyzed by itself, where the input's columns are not visible: a
name that is not found there refers to the rows around it.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spark_cep.expressions.schema import NOT_OF_ONE_ROW
from spark_cep.sql.clause import RowPatternText
from spark_cep.sql.correlation import (
    bare_columns,
    check_repeatable,
    distinct_columns,
    find_merged,
    find_outer_scope,
    qualified_columns,
    read_outer_rows,
)
from spark_cep.sql.location import visible_definitions
from spark_cep.sql.parameters import text_with_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.sql.clause import PartitionColumn, Span
    from spark_cep.sql.composer import QueryComposer, SessionFunctions
    from spark_cep.sql.correlation import OuterColumn, OuterRows, OuterScope
    from spark_cep.sql.location import ClauseLocation, CteDefinition, WithClause
    from spark_cep.sql.match_call import MatchCall
    from spark_cep.sql.statement import Statement
    from spark_cep.sql.subqueries import HiddenColumn

    Definitions = Sequence[tuple[WithClause, tuple[CteDefinition, ...]]]

_COLUMN = re.compile(r"with name (`.*?`) cannot be resolved")


@dataclass(frozen=True)
class ClauseInput:
    """The rows that a clause matches, and its call. `outer`: the rows of the query around it that
    it refers to, whose values are in the first columns."""

    rows: Any
    call: MatchCall
    outer: OuterRows | None = None


def read_input(
    composer: QueryComposer,
    location: ClauseLocation,
    all_withs: tuple[WithClause, ...],
    session: SessionFunctions,
    call: MatchCall,
) -> ClauseInput:
    """What a clause matches."""
    scope = find_outer_scope(composer.statement, location)
    if scope is not None:
        found = _CorrelatedInput(composer, location, all_withs, session, scope=scope).read(call)
        if isinstance(found, ClauseInput):
            return found
        call = found
    return ClauseInput(_read_alone(composer, location, all_withs, session, call), call)


def _needed_definitions(
    composer: QueryComposer,
    location: ClauseLocation,
    all_withs: tuple[WithClause, ...],
    call: MatchCall,
) -> Definitions:
    ranges = [each.subquery.span for each in call.hidden]
    ranges += [each.expression for each in _computed_keys(call) if each.expression is not None]
    return visible_definitions(composer.statement, location, all_withs, ranges)


def _read_alone(
    composer: QueryComposer,
    location: ClauseLocation,
    all_withs: tuple[WithClause, ...],
    session: SessionFunctions,
    call: MatchCall,
) -> Any:
    """The rows of an input that is a query by itself."""
    statement = composer.statement
    computed = _computed_keys(call)
    needed = _needed_definitions(composer, location, all_withs, call)
    for hidden in call.hidden:
        _check_subquery(composer, session, needed, hidden)
    span = statement.span(location.first, location.word)
    alone = [
        frame.df
        for frame in composer.frames
        if (frame.start, frame.end) == span and not frame.before.strip()
    ]
    if alone and not computed and not call.hidden:
        return alone[0]
    added = [*_key_items(statement, computed), *_hidden_items(call.hidden)]
    quietly = session.quietly if added else nullcontext
    try:
        with quietly():
            return _run(composer, session, [*_select(statement, needed, ["*", *added], span)])
    except Exception as problem:
        if added:
            _run_noted(composer, session, [*_select(statement, needed, ["*"], span)], span)
            at = computed[0].expression if computed else call.hidden[0].subquery.whole
            assert at is not None
            message, hint = session.describe(problem), None
            if message == NOT_OF_ONE_ROW:
                message = "an aggregate is not a value of a row"
                hint = "write columns of the input, and expressions over them"
            message = f"PARTITION BY: {message}" if computed else message
            raise statement.error(message, at, hint=hint) from None
        _note_input(statement, span, problem)
        raise


class _CorrelatedInput:
    """Reads the input of a clause that may refer to columns of the query around it."""

    def __init__(
        self,
        composer: QueryComposer,
        location: ClauseLocation,
        all_withs: tuple[WithClause, ...],
        session: SessionFunctions,
        *,
        scope: OuterScope,
    ) -> None:
        self._composer, self._session, self._scope = composer, session, scope
        self._location, self._withs = location, all_withs
        self._statement = composer.statement
        self._source = self._statement.span(location.first, location.word)
        self._tables = self._statement.span(scope.first, scope.stop)
        # What a WITH behind LATERAL defines is not what the tables in front of it are.
        of_tables = replace(location, first=scope.first, word=scope.stop)
        self._of_tables = visible_definitions(self._statement, of_tables, all_withs)
        self._needed = visible_definitions(self._statement, location, all_withs)

    def read(self, call: MatchCall) -> ClauseInput | MatchCall:
        """The input; only the call if it refers to nothing around the clause."""
        of_tables = self._columns_of(self._tables, self._of_tables)
        if of_tables is None:
            return call.without_outer()
        bare = {each for each in of_tables if of_tables.count(each) == 1}
        of_input = self._columns_of(self._source, self._needed)
        is_lateral = of_input is None or bool(_computed_keys(call))
        found: list[OuterColumn] = []
        if of_input is None:
            found += qualified_columns(self._statement, self._source, self._scope.names)
            found += bare_columns(self._statement, self._source, bare)
            outer = self._outer_rows(found, is_certain=False)
            if outer is None:
                return call.without_outer()
            found = [*outer.columns]
            self._check_merged(outer)
            rows = self._run_noted(outer.beside(["*"], self._source, [], is_lateral=True))
            of_input = [each.casefold() for each in rows.columns[len(outer.names) :]]
        call = call.with_outer_columns(frozenset(of_input), frozenset(bare) - {*of_input})
        spans = [each.subquery.span for each in call.hidden if each.subquery.kind == "outer"]
        keys = [each.expression for each in _computed_keys(call) if each.expression is not None]
        for span in (*spans, *keys):
            names = self._scope.names - call.clause.qualifiers
            found += qualified_columns(self._statement, span, names)
            found += bare_columns(self._statement, span, bare - {*of_input})
        outer = self._outer_rows(found)
        self._check_columns(spans, outer)
        if outer is None:
            return call
        if is_lateral:
            self._check_merged(outer)
        self._check_shown(call)
        return ClauseInput(self._rows(call, outer, is_lateral=is_lateral), call, outer)

    def _check_columns(self, spans: Sequence[Span], outer: OuterRows | None) -> None:
        """Refuses names of columns that the tables around the clause do not have."""
        for span in spans:
            if outer is None or not outer.has(self._statement, span):
                name = self._statement.text[slice(*span)]
                raise self._statement.error(
                    f"the tables around the clause have no column {name}",
                    span,
                    hint="name a column of the input or of a table in FROM before LATERAL",
                )

    def _check_shown(self, call: MatchCall) -> None:
        """Refuses a clause whose answer would have only the outer values."""
        clause = call.clause
        has_none = not (clause.measures or clause.partition_by)
        if has_none and clause.rows in {None, "one"} and isinstance(clause.pattern, RowPatternText):
            raise self._statement.error_at(
                "there is nothing to show: no measures, and no partition columns",
                self._location.word,
                hint="say what to show of a match, MEASURES LAST(b.price) AS last, or write ALL "
                "ROWS PER MATCH",
            )

    def _check_merged(self, outer: OuterRows) -> None:
        """Refuses a column that a join with USING makes, beside one of those it is made of, where
        Spark would look for it among the outer values."""
        found = find_merged(outer.columns) if self._scope.merges else None
        if found is not None:
            raise self._statement.error(
                f"the input of a clause cannot refer to {found.column} with and without the name "
                "of its table where USING or NATURAL makes one column of two",
                self._tables,
                hint=f"give them names of their own in front of LATERAL: (SELECT {found.column}, "
                f"b.{found.column} AS b_{found.column} FROM a JOIN b USING ({found.column})) AS o",
            )

    def _columns_of(self, source: Span, needed: Definitions) -> list[str] | None:
        """The columns of a table, in lower case; None if it is not one by itself."""
        try:
            with self._session.quietly():
                rows = self._run(["SELECT * FROM ", source], needed)
        except Exception:
            return None
        return [each.casefold() for each in rows.columns]

    def _outer_rows(
        self, found: Sequence[OuterColumn], *, is_certain: bool = True
    ) -> OuterRows | None:
        columns = distinct_columns(found, merges=self._scope.merges)
        if not columns:
            return None
        with self._session.quietly():
            outer = read_outer_rows(
                self._statement,
                self._scope,
                columns,
                lambda pieces: self._run(pieces, self._of_tables),
                is_certain=is_certain,
            )
        if outer is None:
            return None
        for _, definitions in self._of_tables:
            for each in definitions:
                check_repeatable(self._statement, each.opened, each.closed)
        check_repeatable(self._statement, self._scope.first, self._scope.stop)
        if getattr(outer.df, "isStreaming", False):
            raise self._stream_error()
        return outer

    def _rows(self, call: MatchCall, outer: OuterRows, *, is_lateral: bool) -> Any:
        computed, statement = _computed_keys(call), self._statement
        needed = _needed_definitions(self._composer, self._location, self._withs, call)
        for hidden in call.hidden:
            if hidden.subquery.kind != "outer":
                _check_subquery(self._composer, self._session, needed, hidden)
        self._needed = visible_definitions(
            statement,
            self._location,
            self._withs,
            [statement.span(self._location.first, self._location.closed)],
        )
        inner = [each for each in call.hidden if each.subquery.kind != "outer"]
        values = [
            f"{outer.value(statement, each.subquery.span)} AS {each.name}"
            for each in call.hidden
            if each.subquery.kind == "outer"
        ]
        items = ["*", *_key_items(statement, computed), *_hidden_items(inner)]
        rows = self._run_noted(outer.beside(items, self._source, values, is_lateral=is_lateral))
        if getattr(rows, "isStreaming", False):
            raise self._stream_error()
        return rows

    def _stream_error(self) -> Exception:
        return self._statement.error_at(
            "a MATCH_RECOGNIZE over a stream cannot refer to columns of the query around it",
            self._location.word,
            hint="join the streams or the table in front of the clause: FROM (SELECT ... FROM a "
            "JOIN b ON ...) MATCH_RECOGNIZE (...)",
        )

    def _run(self, pieces: Sequence[Any], needed: Definitions) -> Any:
        query = [*with_definitions(self._statement, needed, pieces)]
        return _run(self._composer, self._session, query)

    def _run_noted(self, pieces: Sequence[Any]) -> Any:
        try:
            with self._session.quietly():
                return self._run(pieces, self._needed)
        except Exception as problem:
            raise self._statement.error(
                f"the input of this MATCH_RECOGNIZE: {self._session.describe(problem)}",
                self._source,
            ) from None


def _computed_keys(call: MatchCall) -> list[PartitionColumn]:
    return [each for each in call.clause.partition_by if each.expression is not None]


def _key_items(statement: Statement, keys: Sequence[PartitionColumn]) -> Iterator[Any]:
    for each in keys:
        assert each.expression is not None
        yield ", "
        yield each.expression
        if each.is_named:
            yield f" AS {statement.text[slice(*each.span)]}"


def _hidden_items(columns: Sequence[HiddenColumn]) -> Iterator[Any]:
    for each in columns:
        yield ", "
        yield from each.pieces
        yield f" AS {each.name}"


def _run(composer: QueryComposer, session: SessionFunctions, pieces: list[str | Span]) -> Any:
    rows = session.sql(composer.query(pieces))
    # A Connect session analyzes the query only here.
    _ = rows.schema
    return rows


def _run_noted(
    composer: QueryComposer, session: SessionFunctions, pieces: list[str | Span], span: Span
) -> None:
    try:
        _run(composer, session, pieces)
    except Exception as problem:
        _note_input(composer.statement, span, problem)
        raise


def _note_input(statement: Statement, span: Span, problem: Exception) -> None:
    line, column = statement.place(span).line_and_column()
    note = f"This is the input of the MATCH_RECOGNIZE at line {line}, column {column}."
    if "UNRESOLVED_COLUMN" in str(problem):
        note += " It is a separate query and cannot refer to columns of the enclosing query."
    problem.add_note(note)


def _select(
    statement: Statement, needed: Definitions, items: Sequence[str | Span], source: Span
) -> Iterator[Any]:
    """WITH ... SELECT items FROM source."""
    return with_definitions(statement, needed, ["SELECT ", *items, " FROM ", source])


def with_definitions(
    statement: Statement, needed: Definitions, query: Sequence[Any]
) -> Iterator[Any]:
    """WITH ... SELECT * FROM (WITH ... query)."""
    for number, (each, definitions) in enumerate(needed):
        yield "SELECT * FROM (WITH " if number else "WITH "
        yield "RECURSIVE " if each.is_recursive else ""
        for index, definition in enumerate(definitions):
            yield ", " if index else ""
            yield statement.span(definition.first, definition.closed + 1)
        yield "\n"
    yield from query
    yield ")" * (len(needed) - 1)


# ---- subqueries ----------------------------------------------------------------------------------


def _check_subquery(
    composer: QueryComposer,
    session: SessionFunctions,
    needed: Definitions,
    hidden: HiddenColumn,
) -> None:
    """Refuses a subquery that is not a query by itself, or has not the one column that it needs."""
    statement, subquery = composer.statement, hidden.subquery
    pieces = [*_select(statement, needed, ["*"], subquery.span), " AS __cep_subquery"]
    try:
        with session.quietly():
            rows = _run(composer, session, pieces)
    except Exception as problem:
        raise _subquery_error(statement, session, hidden, problem) from None
    if getattr(rows, "isStreaming", False):
        raise statement.error(
            "a subquery in DEFINE or MEASURES cannot read a stream",
            subquery.whole,
            hint="read a table, or join the two streams before MATCH_RECOGNIZE",
        )
    columns = rows.columns
    if subquery.kind != "exists" and len(columns) > 1:
        raise statement.error(
            f"this subquery has {len(columns)} columns, and a value is one",
            subquery.span,
            hint=f"name one column: (SELECT {columns[0]} FROM ...)",
        )


def _subquery_error(
    statement: Statement, session: SessionFunctions, hidden: HiddenColumn, problem: Exception
) -> Exception:
    found = _COLUMN.search(str(problem))
    if found is None:
        return statement.error(session.describe(problem), hidden.subquery.span)
    name = found[1].replace("`", "")
    return statement.error(
        f"the tables of this subquery have no column {name}, and a subquery in DEFINE or MEASURES "
        "cannot refer to the rows around it",
        hidden.subquery.span,
        hint="join its table to the input first: FROM (SELECT ... FROM a JOIN b ON ...) "
        "MATCH_RECOGNIZE (...)",
    )


# ---- keys ----------------------------------------------------------------------------------------


def partition_names(statement: Statement, rows: Any, call: MatchCall) -> list[str] | None:
    """The partition columns by the names that they have in the input; None: as the clause says."""
    computed = _computed_keys(call)
    if not computed or not rows.columns:
        return None
    columns = list(rows.columns)
    found: list[str] = []
    names = iter(_added_keys(rows, call))
    for each in call.clause.partition_by:
        name = each.text if each.expression is None else next(names)
        same = [other for other in columns if other.casefold() == name.casefold()]
        if each.expression is not None and len(same) > 1:
            text = statement.text[slice(*each.expression)]
            raise statement.error(
                f"PARTITION BY: {text} has the name {name}, which a column of the input has too",
                each.span,
                hint=f"give it another name: PARTITION BY {text} AS {name}_key",
            )
        found.append(_quoted(name) if each.expression is not None else str(each.text))
    return found


def _added_keys(rows: Any, call: MatchCall) -> list[str]:
    """The names that the computed keys have in the input."""
    columns, hidden = list(rows.columns), len(call.hidden)
    return columns[len(columns) - hidden - len(_computed_keys(call)) : len(columns) - hidden]


def computed_texts(composer: QueryComposer, rows: Any, call: MatchCall) -> dict[str, str]:
    """The computed keys and the subqueries of a stream by the names of their columns, with the
    values of parameters: its state fits no others."""
    if not getattr(rows, "isStreaming", False):
        return {}

    def text(span: Span) -> str:
        return text_with_values(composer.statement, span, composer.args, composer.markers)

    keys = zip(_added_keys(rows, call), _computed_keys(call), strict=True)
    found = {name: text(each.expression) for name, each in keys if each.expression is not None}
    for hidden in call.hidden:
        pieces = (each if isinstance(each, str) else text(each) for each in hidden.pieces)
        found[hidden.name] = "".join(pieces)
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
