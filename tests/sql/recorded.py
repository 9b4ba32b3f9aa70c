"""A stand-in for Spark that writes down what it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from spark_cep.sql.composer import QueryComposer, SessionFunctions, SparkQuery, match_clauses
from spark_cep.sql.location import find_clauses
from spark_cep.sql.selects import find_select
from spark_cep.sql.statement import Statement
from spark_cep.sql.window_query import find_window_selects


@dataclass(frozen=True)
class Rows:
    """A DataFrame, by its name. `columns`: those of an input, where `*` is x and y."""

    name: str
    columns: tuple[str, ...] = ()
    schema: None = None
    columns: tuple[str, ...] = ()

    def toDF(self, *names: str) -> Rows:
        assert len(names) == len(self.columns)
        return replace(self, columns=names)


def _columns_of(query: SparkQuery) -> Iterator[str]:
    """The names of a SELECT's items, as far as they have names."""
    statement = Statement(query.text)
    select = next(
        found
        for at in range(len(statement.tokens))
        if statement.is_at(at, "SELECT") and (found := find_select(statement, at + 1)) is not None
    )
    for first, stop in select.items:
        name = statement.tokens[stop - 1].text
        yield from ("x", "y") if statement.symbol(first, "*") else (name,)


@dataclass
class Recorded:
    """`inputs`: the queries for inputs of clauses, frames written as <name>. `calls`,
    `windows`: what match_pattern and match_window were called with. `query`: the statement that is
    left. `columns`: of every input of a clause."""

    columns: tuple[str, ...] = ()
    inputs: list[str] = field(default_factory=list)
    args: list[Any] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    query: str = ""
    last: SparkQuery | None = None

    def sql(self, query: SparkQuery) -> Rows:
        self.inputs.append(shown(query))
        self.args.append(query.args)
        name = f"input {len(self.inputs)}"
        is_list = "__cep_i0" in query.text
        return Rows(name, columns=tuple(_columns_of(query)) if is_list else self.columns)

    def match(self, df: Rows, pattern: Any, **options: Any) -> Rows:
        self.calls.append({"df": df.name, "pattern": pattern, **options})
        return Rows(f"matches {len(self.calls)}")

    def match_window(self, df: Rows, pattern: Any, **options: Any) -> Rows:
        self.windows.append({"df": df, "pattern": pattern, **options})
        return Rows(f"windows {len(self.windows)}")


def shown(query: SparkQuery) -> str:
    """The text of a query with the names of its frames in it."""
    if not query.frames:
        return query.text
    return query.text.format(**{key: f"<{df.name}>" for key, df in query.frames.items()})


def rewritten(text: str, args: Any = None, *, recorded: Recorded | None = None) -> Recorded:
    """What becomes of a statement."""
    recorded = recorded or Recorded()
    statement = Statement(text)
    composer = QueryComposer(statement, args)
    session = SessionFunctions(recorded.sql, recorded.match, match_window=recorded.match_window)
    selects = find_window_selects(statement)
    match_clauses(composer, find_clauses(statement), session, selects)
    recorded.last = composer.query([(0, len(text))])
    recorded.query = shown(recorded.last)
    return recorded
