"""Compiles row patterns without Spark, for tests, and writes expressions in a short notation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.row_patterns import RowPattern, row_pattern
from spark_cep.rows.compile import compile_row_pattern
from spark_cep.udfs.expressions import Call, Constant, Expression
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead, VariableSet
from tests.compiling import COLUMNS, INFOS, FakeShipment
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from spark_cep.rows.compiled import CompiledRowPattern


@dataclass(frozen=True)
class Result:
    compiled: CompiledRowPattern
    shipment: FakeShipment

    def define(self, name: str) -> str:
        """The condition of a variable as a line."""
        found = next(each for each in self.compiled.variables if each.name == name)
        return "any row" if found.define is None else self.short(found.define)

    def readings(self) -> list[str]:
        return [self.short(each.expression) for each in self.compiled.readings]

    def short(self, node: Expression) -> str:
        """`last(a-1)+2[text]`: two rows after the last but one row of a; `.` is the current row,
        `*` all rows, `!` the whole match."""
        if isinstance(node, Constant):
            return repr(node.value)
        if isinstance(node, Call):
            name = f"cast {node.type.kind}{node.type.bits}" if node.name == "cast" else node.name
            return f"{name}({', '.join(self.short(each) for each in node.arguments)})"
        if isinstance(node, MatchNumber):
            return "match number"
        if isinstance(node, Aggregate):
            return self._aggregate(node)
        if isinstance(node, Classifier):
            return f"label {self._row(node)}"
        assert isinstance(node, RowRead)
        text = "there is" if node.column is None else self.shipment.texts[node.column]
        return f"{self._row(node)}[{text}]"

    def _row(self, node: Any) -> str:
        shift = f"{node.shift:+d}" if node.shift else ""
        if node.anchor == "current":
            return f".{shift}"
        sign = "+" if node.anchor == "first" else "-"
        offset = f"{sign}{node.offset}" if node.offset else ""
        final = "!" if node.final else ""
        return f"{final}{node.anchor}({self._names(node.variables)}{offset}){shift}"

    def _names(self, variables: VariableSet) -> str:
        if variables is None:
            return "*"
        return "|".join(self.compiled.variables[each].name for each in sorted(variables))

    def _aggregate(self, node: Aggregate) -> str:
        text = "" if node.column is None else self.shipment.texts[node.column]
        if node.argument is not None:
            text = self.short(node.argument)
        if node.by is not None:
            text += f" by {self.shipment.texts[node.by[0]]}"
        distinct = "distinct " if node.distinct else ""
        final = "!" if node.final else ""
        return f"{final}{node.name}({self._names(node.variables)}: {distinct}{text})"


def compiled(pattern: RowPattern | str, **options: Any) -> Result:
    """`define`, `subset`: of a pattern that is given as text; the others as match_pattern has
    them."""
    if isinstance(pattern, str):
        pattern = row_pattern(pattern, options.pop("define", None), options.pop("subset", None))
    shipment = FakeShipment()
    options["measures"] = tuple(dict(options.get("measures", {})).items())
    options.setdefault("order_by", "ts")
    options.setdefault("partition_by", None)
    options.setdefault("typer", LocalTyper(COLUMNS))
    options.setdefault("time_zone", "America/New_York")
    return Result(compile_row_pattern(pattern, INFOS, shipment=shipment, **options), shipment)


def problems(pattern: RowPattern | str, **options: Any) -> list[dict[str, Any]]:
    """What building and compiling complain about."""
    try:
        compiled(pattern, **options)
    except PatternError as error:
        return list(error.details["problems"])  # type: ignore[call-overload]
    return []


def marked(problem: dict[str, Any]) -> str:
    """The rest of the line from where the problem is."""
    line = str(problem["text"]).split("\n")[problem["line"] - 1]
    return line[problem["column"] - 1 :]
