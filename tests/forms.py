"""Patterns compiled to programs without Spark, over the columns of tests/compiling.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_cep.events.compile import compile_event_query
from spark_cep.expressions.lookups import LookupColumn, Lookups, RemoteSchema
from spark_cep.row_patterns import RowPattern, row_pattern
from spark_cep.rows.compile import compile_row_query
from spark_cep.udfs.remote_spec import RemoteSpec
from tests.compiling import COLUMNS, INFOS
from tests.fake_typer import LocalTyper
from tests.looked_up import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.events.compiled import CompiledEventQuery, CompiledPattern
    from spark_cep.pattern import Pattern
    from spark_cep.rows.compiled import CompiledRowPattern, CompiledRowQuery
    from spark_cep.udfs.canonical import Data
    from spark_cep.udfs.program import Program
    from spark_cep.udfs.row_program import RowProgram

ARROW = {"string": pa.string(), "int": pa.int64(), "float": pa.float64()}


@dataclass(frozen=True)
class Events:
    """A compiled event pattern and its program."""

    query: CompiledEventQuery
    program: Program

    @property
    def compiled(self) -> CompiledPattern:
        return self.query.compiled

    def form(self) -> Data:
        """What the state of a stream is compared with."""
        return self.query.form(self.program)


@dataclass(frozen=True)
class Rows:
    """A compiled row pattern and its program."""

    query: CompiledRowQuery
    program: RowProgram

    @property
    def compiled(self) -> CompiledRowPattern:
        return self.query.compiled

    def form(self) -> Data:
        """What the state of a stream is compared with."""
        return self.query.form(self.program)


def events(
    pattern: Pattern,
    *,
    order_by: Any = "ts",
    partition_by: Any = None,
    remotes: Mapping[str, RemoteSchema] = SOURCES,
    ansi: bool = True,
) -> Events:
    typer = LocalTyper(COLUMNS)

    def add_column(made: LookupColumn) -> None:
        typer._columns[made.name] = made.remote.value.type

    query = compile_event_query(
        pattern,
        INFOS,
        order_by=order_by,
        partition_by=partition_by,
        typer=typer,
        ansi=ansi,
        time_zone="UTC",
        lookups=Lookups(remotes, add_column),
    )
    specs = [
        RemoteSpec(
            each.remote.name, dict, tuple(ARROW[key.kind] for key in each.keys), pa.float64()
        )
        for each in query.compiled.remotes
    ]
    return Events(query, query.program(remotes=specs))


def rows(  # noqa: PLR0913 - as match_pattern has them
    pattern: RowPattern | str,
    define: Mapping[str, str] | None = None,
    subset: Mapping[str, Any] | None = None,
    *,
    measures: Mapping[str, str] | None = None,
    order_by: Any = "ts",
    partition_by: Any = None,
    ansi: bool = True,
    **options: Any,
) -> Rows:
    """`options`: `rows` and `after_match`."""
    if isinstance(pattern, str):
        pattern = row_pattern(pattern, define, subset)
    query = compile_row_query(
        pattern,
        INFOS,
        order_by=order_by,
        partition_by=partition_by,
        typer=LocalTyper(COLUMNS),
        time_zone="UTC",
        measures=tuple((measures or {}).items()),
        ansi=ansi,
        **options,
    )
    return Rows(query, query.program())
