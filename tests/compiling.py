"""Compiles patterns without Spark, for tests: columns of every type, a shipment that lists the
requested columns, and expressions in a short notation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.events.compile import compile_pattern
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.udfs.expressions import (
    BIGINT,
    BOOL,
    DOUBLE,
    Call,
    Cell,
    Constant,
    Expression,
    Member,
    RemoteCall,
    Type,
    UserCall,
)
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.pattern import Pattern

COLUMNS = {
    "ts": Type("timestamp"),
    "ntz": Type("timestamp_ntz"),
    "day": Type("date"),
    "price": DOUBLE,
    "weight": Type("float", 32),
    "qty": Type("int", 32),
    "card": BIGINT,
    "amount": Type("decimal", precision=10, scale=2),
    "rate": Type("decimal", precision=38, scale=18),
    "name": Type("string"),
    "flag": BOOL,
    "addr": Type("other"),
    "tags": Type("other", sql="array<string>"),
    "we ird": BIGINT,
}
INFOS = [ColumnInfo(name, type_) for name, type_ in COLUMNS.items()]


@dataclass
class FakeShipment:
    """Texts by index, and their guards."""

    texts: list[str] = field(default_factory=list)
    guards: list[frozenset[int]] = field(default_factory=list)

    def column(self, expression: Any, *, guards: frozenset[int] = frozenset()) -> int:
        if expression not in self.texts:
            self.texts.append(expression)
            self.guards.append(guards)
        return self.texts.index(expression)


@dataclass(frozen=True)
class Result:
    compiled: CompiledPattern
    shipment: FakeShipment

    def conditions(self) -> list[str]:
        return [self.short(each.expression) for each in self.compiled.conditions]

    def short(self, node: Expression) -> str:
        """The tree as a line: `a[text]` is a cell, `b.sum[text]` a fold."""
        if isinstance(node, Constant):
            return repr(node.value)
        if isinstance(node, Call | UserCall):
            name = f"cast {node.type.kind}{node.type.bits}" if node.name == "cast" else node.name
            return f"{name}({', '.join(self.short(each) for each in node.arguments)})"
        if isinstance(node, RemoteCall):
            keys = ", ".join(self.short(each) for each in node.arguments)
            name = self.compiled.remotes[node.remote].remote.name
            return ".".join([f"{name}({keys})", *node.path])
        if isinstance(node, Member):
            return f"member({self.short(node.value)}, {self.short(node.array)})"
        assert isinstance(node, Cell)
        how = "" if node.reading == "each" else f".{node.reading}"
        text = "" if node.column is None else self.shipment.texts[node.column]
        return f"{self.compiled.variables[node.variable].name}{how}[{text}]"


def compiled(
    pattern: Pattern, *, order_by: Any = "ts", partition_by: Any = None, **options: Any
) -> Result:
    shipment = FakeShipment()
    columns = options.pop("columns", INFOS)
    typer = options.pop("typer", None) or LocalTyper({c.name: c.type for c in columns})
    options.setdefault("time_zone", "America/New_York")
    found = compile_pattern(
        pattern,
        columns,
        order_by=order_by,
        partition_by=partition_by,
        typer=typer,
        shipment=shipment,
        **options,
    )
    return Result(found, shipment)


def problems(pattern: Pattern, **options: Any) -> list[dict[str, Any]]:
    """What compiling complains about."""
    try:
        compiled(pattern, **options)
    except PatternError as error:
        return list(error.details["problems"])  # type: ignore[call-overload]
    return []
