"""Patterns compiled to programs without Spark, over the columns of tests/compiling.py, and the
canonical form of what a stream with them would keep its state for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_cep.events.compile import compile_pattern
from spark_cep.expressions.lookups import LookupColumn, Lookups, RemoteSchema
from spark_cep.expressions.shipment import Shipment
from spark_cep.row_patterns import RowPattern, row_pattern
from spark_cep.rows.compile import CompilerInput, RowPatternRequest, compile_row_pattern
from spark_cep.spark.stream import query_fingerprint
from spark_cep.udfs.canonical import event_program, row_program
from spark_cep.udfs.program import Limits, Order, Plan, Program
from spark_cep.udfs.remote_spec import RemoteSpec
from spark_cep.udfs.row_program import RowProgram
from tests.compiling import COLUMNS, INFOS
from tests.fake_typer import LocalTyper
from tests.looked_up import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.pattern import Pattern
    from spark_cep.rows.compiled import CompiledRowPattern
    from spark_cep.udfs.canonical import Data

ARROW = {"string": pa.string(), "int": pa.int64(), "float": pa.float64()}


@dataclass(frozen=True)
class Events:
    """An event pattern, compiled."""

    compiled: CompiledPattern
    shipment: Shipment
    program: Program

    def form(self) -> Data:
        lookups = [(each.remote.name, each.keys) for each in self.compiled.lookups]
        program = event_program(self.program)
        return query_fingerprint(
            program, self.shipment, self.compiled.masks, lookups, self.compiled.inferred
        )


@dataclass(frozen=True)
class Rows:
    """A row pattern, compiled."""

    compiled: CompiledRowPattern
    shipment: Shipment
    program: RowProgram

    def form(self) -> Data:
        return query_fingerprint(row_program(self.program), self.shipment)


def events(
    pattern: Pattern,
    *,
    order_by: Any = "ts",
    partition_by: Any = None,
    remotes: Mapping[str, RemoteSchema] = SOURCES,
    ansi: bool = True,
) -> Events:
    shipment = Shipment(list(COLUMNS))
    typer = LocalTyper(COLUMNS)

    def told(made: LookupColumn) -> None:
        typer._columns[made.name] = made.remote.value.type

    compiled = compile_pattern(
        pattern,
        INFOS,
        order_by=order_by,
        partition_by=partition_by,
        typer=typer,
        shipment=shipment,
        ansi=ansi,
        time_zone="UTC",
        lookups=Lookups(remotes, told),
    )
    keys = tuple(shipment.column(each) for each in (*compiled.partition, *compiled.inferred))
    orders = tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in compiled.orders
    )
    asked = tuple(
        RemoteSpec(
            each.remote.name, dict, tuple(ARROW[key.kind] for key in each.keys), pa.float64()
        )
        for each in compiled.remotes
    )
    mask = shipment.special("mask", "candidates")
    program = Program(
        columns=shipment.names(),
        keys=keys,
        orders=orders,
        mask=mask,
        variables=compiled.variables,
        conditions=compiled.conditions,
        tree=compiled.tree,
        branches=compiled.branches,
        plan=Plan("eager"),
        window=compiled.window,
        strategy=compiled.strategy,
        consumption=compiled.consumption,
        ansi=ansi,
        remotes=asked,
    )
    return Events(compiled, shipment, program)


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
    shipment = Shipment(list(COLUMNS))
    query = RowPatternRequest(
        pattern,
        order_by=order_by,
        partition_by=partition_by,
        measures=tuple((measures or {}).items()),
        **options,
    )
    given = CompilerInput(INFOS, LocalTyper(COLUMNS), shipment, "UTC", ansi=ansi)
    compiled = compile_row_pattern(query, given)
    keys = tuple(shipment.column(f"`{each}`") for each in compiled.partition)
    orders = tuple(
        Order(shipment.column(each.expression), each.type, each.descending, each.nulls_first)
        for each in compiled.orders
    )
    program = RowProgram(
        columns=shipment.names(),
        keys=keys,
        orders=orders,
        variables=compiled.variables,
        pattern=compiled.pattern,
        measures=tuple(each.expression for each in compiled.readings),
        rows=compiled.rows,
        skip=compiled.skip,
        limits=Limits(),
        within=compiled.window,
        ansi=ansi,
    )
    return Rows(compiled, shipment, program)
