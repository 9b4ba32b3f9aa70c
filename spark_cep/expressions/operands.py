"""The operands of a conjunct while it is translated, their conversion, and how they are shipped.

Leaves are still text: a `RowOperand` is computed by Spark on one variable's row, a
`ConstantOperand` is the same for all rows. So an operand is converted to another type by a CAST in
its text, which Spark evaluates exactly; only results of the engine need the engine's `cast`.
`ship_expression` turns the finished tree into the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.expressions.types import convert_constant, parse_literal, sql_cast, widens
from spark_cep.udfs.expressions import (
    BIGINT,
    Call,
    Cell,
    CellReading,
    Constant,
    Expression,
    Member,
    RemoteCall,
    Type,
    UserCall,
)

if TYPE_CHECKING:
    from sqlglot import exp

    from spark_cep.expressions.schema import ColumnRequests, Typer


@dataclass(frozen=True)
class RowOperand(Expression):
    """SQL over an input row, read at the rows of a variable. `text` None: count(b). `may_fail`: on
    other rows it could raise an error, so it is guarded."""

    variable: int
    text: str | None
    type: Type
    reading: CellReading = "each"
    may_fail: bool = False


@dataclass(frozen=True)
class ConstantOperand(Expression):
    constant: Constant
    text: str

    @property
    def type(self) -> Type:  # type: ignore[override]
        return self.constant.type


class InexactError(Exception):
    """Only Spark can evaluate this exactly. `reason` completes "the engine cannot evaluate ...".
    `node`: the part of the condition that it is about, if it is known."""

    def __init__(self, reason: str, node: exp.Expr | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


_VALUE_READINGS = frozenset({"each", "prev", "first", "last"})


class Conversion:
    """Converts operands to the types that Spark's rules require."""

    def __init__(self, typer: Typer, *, ansi: bool) -> None:
        self._typer = typer
        self._ansi = ansi

    def to(self, operand: Expression, target: Type, *, in_engine: bool = False) -> Expression:
        """The operand as `target`. `in_engine`: prefer the engine's cast, which ships no further
        column."""
        if operand.type == target:
            return operand
        if isinstance(operand, ConstantOperand):
            return self._fixed(operand, target)
        if isinstance(operand, Constant):
            constant = convert_constant(operand, target)
            if constant is not None:
                return constant
        exact = widens(operand.type, target)
        if exact and (in_engine or not isinstance(operand, RowOperand)):
            return Call("cast", (operand,), target)
        if isinstance(operand, RowOperand) and operand.reading in _VALUE_READINGS:
            # A failing cast makes the comparison NULL, as an error across variables does.
            safely = self._ansi and operand.type.kind == "string"
            text = sql_cast(operand.text or "", target, safely=safely)
            return replace(operand, text=text, type=target)
        if exact:
            return Call("cast", (operand,), target)
        raise InexactError("a cast of a value computed from several rows")

    def constant(self, text: str) -> Constant:
        """The value of SQL without columns; raises ValueError with Spark's message."""
        known = parse_literal(text)
        if known is not None:
            return known
        (answer,) = self._typer.constants([text])
        if isinstance(answer, str):
            raise ValueError(answer)
        return answer

    def _fixed(self, operand: ConstantOperand, target: Type) -> ConstantOperand:
        constant = convert_constant(operand.constant, target)
        text = sql_cast(operand.text, target, safely=self._ansi)
        if constant is None:
            try:
                constant = self.constant(text)
            except ValueError as problem:
                raise InexactError(str(problem)) from None
        return ConstantOperand(constant, text)


def ship_expression(expression: Expression, shipment: ColumnRequests) -> Expression:
    """The expression for the engine: row operands become columns of the shipment."""
    if isinstance(expression, ConstantOperand):
        return expression.constant
    if isinstance(expression, RowOperand):
        if expression.text is None:
            return Cell(expression.variable, None, BIGINT, "count")
        guards = frozenset({expression.variable}) if expression.may_fail else frozenset[int]()
        column = shipment.column(expression.text, guards=guards)
        return Cell(expression.variable, column, expression.type, expression.reading)
    if isinstance(expression, Member):
        value, array = (ship_expression(each, shipment) for each in expression.children())
        return Member(value, array)
    if isinstance(expression, Call | UserCall | RemoteCall):
        return replace(expression, arguments=_ship_all(expression.arguments, shipment))
    return expression


def _ship_all(arguments: Sequence[Expression], shipment: ColumnRequests) -> tuple[Expression, ...]:
    return tuple(ship_expression(argument, shipment) for argument in arguments)
