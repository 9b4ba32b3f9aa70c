"""Every clause of a statement becomes a DataFrame, innermost and leftmost first.

A clause's input is a query of its own: what stands in front of MATCH_RECOGNIZE, with the common
table expressions that it refers to. All clauses are read before Spark is asked for anything, so
a mistake in the last one is told before the first one is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.sql.ctes import Definition, With, visible, withs
from spark_cep.sql.parameters import markers
from spark_cep.sql.reading import clause
from spark_cep.sql.recognizing import recognition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spark_cep.sql.clauses import Found
    from spark_cep.sql.composing import Composer, Query
    from spark_cep.sql.statement import Statement


@dataclass(frozen=True)
class Engine:
    """What is needed of the world: `spark.sql` of a query, and `match_pattern`."""

    sql: Callable[[Query], Any]
    match: Callable[..., Any]


def recognized(composer: Composer, found: Sequence[Found], engine: Engine) -> None:
    """Matches each clause; from then on its matches stand for it in the composer's queries."""
    statement = composer.statement
    read = [clause(statement, each) for each in found]
    composer.markers = markers(statement, [each.pattern.span for each in read])
    calls = [recognition(statement, each, composer.args, composer.markers) for each in read]
    all_withs = withs(statement)
    for each, call in zip(found, calls, strict=True):
        rows = _input(composer, each, all_withs, engine)
        composer.replace(each.span, call.run(rows, engine.match))


def _input(composer: Composer, found: Found, all_withs: tuple[With, ...], engine: Engine) -> Any:
    """The DataFrame that a clause reads."""
    statement = composer.statement
    span = statement.span(found.first, found.word)
    alone = [frame.df for frame in composer.frames if (frame.start, frame.end) == span]
    if alone:
        return alone[0]
    query = composer.query(list(_pieces(statement, found, visible(statement, found, all_withs))))
    try:
        rows = engine.sql(query)
        # A Connect session looks at the query only now.
        _ = rows.schema
    except Exception as problem:
        line, column = statement.place(span).line_and_column()
        note = f"This is the input of the MATCH_RECOGNIZE at line {line}, column {column}."
        if "UNRESOLVED_COLUMN" in str(problem):
            note += " It is a query of its own, and cannot refer to columns of the query around it."
        problem.add_note(note)
        raise
    return rows


def _pieces(
    statement: Statement,
    found: Found,
    needed: Sequence[tuple[With, tuple[Definition, ...]]],
) -> Iterator[str | tuple[int, int]]:
    """WITH ... SELECT * FROM (WITH ... SELECT * FROM input)."""
    for number, (each, definitions) in enumerate(needed):
        yield "SELECT * FROM (WITH " if number else "WITH "
        yield "RECURSIVE " if each.is_recursive else ""
        for index, definition in enumerate(definitions):
            yield ", " if index else ""
            yield statement.span(definition.first, definition.closed + 1)
        yield "\n"
    yield "SELECT * FROM "
    yield statement.span(found.first, found.word)
    yield ")" * (len(needed) - 1)
