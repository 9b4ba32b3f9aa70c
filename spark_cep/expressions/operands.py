"""What an expression tree is made of before its columns are shipped.

While a conjunct is translated its leaves still are text: `Hoisted` is what Spark computes on one
variable's row, `Fixed` what is the same for all rows. So an operand can be brought to another
type by a CAST in its text, which Spark then does exactly; only what the engine itself computes
needs the engine's `cast`. `shipped` turns the finished tree into the engine's.
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
    from spark_cep.expressions.schema import ColumnRequests, Typer


@dataclass(frozen=True)
class RowOperand(Expression):
    """Text over an input row, read at the rows of a variable. `text` None: count(b).
    `may_fail`: computing it on other rows could raise an error, so it is guarded."""

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
    """Only Spark can evaluate this; `reason` completes "the engine cannot evaluate ...:"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_READ_AS_IT_IS = frozenset({"each", "prev", "first", "last"})


class Conversion:
    """Brings operands to the types that Spark's rules ask for."""

    def __init__(self, typer: Typer, *, ansi: bool) -> None:
        self._typer = typer
        self._ansi = ansi

    def to(self, operand: Expression, target: Type, *, in_engine: bool = False) -> Expression:
        """`in_engine`: prefer the engine's cast, which ships no column of its own."""
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
        if isinstance(operand, RowOperand) and operand.reading in _READ_AS_IT_IS:
            # A cast that fails makes the comparison NULL, as an error across variables does.
            safely = self._ansi and operand.type.kind == "string"
            text = sql_cast(operand.text or "", target, safely=safely)
            return replace(operand, text=text, type=target)
        if exact:
            return Call("cast", (operand,), target)
        raise InexactError("a value computed from several rows would have to be cast")

    def constant(self, text: str) -> Constant:
        """The value of text without columns; raises ValueError with Spark's sentence."""
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
    """The tree as the engine takes it: hoisted texts become columns of the shipment."""
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
