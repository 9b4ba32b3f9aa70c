"""A stand-in for Spark that writes down what it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spark_cep.sql.composer import QueryComposer, SessionFunctions, SparkQuery, match_clauses
from spark_cep.sql.location import find_clauses
from spark_cep.sql.statement import Statement


@dataclass(frozen=True)
class Rows:
    """A DataFrame, by its name."""

    name: str
    schema: None = None


@dataclass
class Recorded:
    """`inputs`: the queries for inputs of clauses, frames written as <name>. `calls`: what
    match_pattern was called with. `query`: the statement that is left."""

    inputs: list[str] = field(default_factory=list)
    args: list[Any] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    query: str = ""
    last: SparkQuery | None = None

    def sql(self, query: SparkQuery) -> Rows:
        self.inputs.append(shown(query))
        self.args.append(query.args)
        return Rows(f"input {len(self.inputs)}")

    def match(self, df: Rows, pattern: Any, **options: Any) -> Rows:
        self.calls.append({"df": df.name, "pattern": pattern, **options})
        return Rows(f"matches {len(self.calls)}")


def shown(query: SparkQuery) -> str:
    """The text of a query with the names of its frames in it."""
    if not query.frames:
        return query.text
    return query.text.format(**{key: f"<{df.name}>" for key, df in query.frames.items()})


def rewritten(text: str, args: Any = None) -> Recorded:
    """What becomes of a statement."""
    recorded = Recorded()
    statement = Statement(text)
    composer = QueryComposer(statement, args)
    match_clauses(composer, find_clauses(statement), SessionFunctions(recorded.sql, recorded.match))
    recorded.last = composer.query([(0, len(text))])
    recorded.query = shown(recorded.last)
    return recorded
