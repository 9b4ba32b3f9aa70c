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

from spark_cep.compiling.literals import converted, literal, sql_cast
from spark_cep.compiling.types import widens
from spark_cep.udfs.expressions import (
    BIGINT,
    Call,
    Cell,
    Constant,
    Expression,
    Member,
    Reading,
    RemoteCall,
    Type,
    UserCall,
)

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import Shipment, Typer


@dataclass(frozen=True)
class Hoisted(Expression):
    """Text over an input row, read at the rows of a variable. `text` None: count(b).
    `may_fail`: computing it on other rows could raise an error, so it is guarded."""

    variable: int
    text: str | None
    type: Type
    reading: Reading = "each"
    may_fail: bool = False


@dataclass(frozen=True)
class Fixed(Expression):
    constant: Constant
    text: str

    @property
    def type(self) -> Type:  # type: ignore[override]
        return self.constant.type


class Inexact(Exception):
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
        if isinstance(operand, Fixed):
            return self._fixed(operand, target)
        if isinstance(operand, Constant):
            constant = converted(operand, target)
            if constant is not None:
                return constant
        exact = widens(operand.type, target)
        if exact and (in_engine or not isinstance(operand, Hoisted)):
            return Call("cast", (operand,), target)
        if isinstance(operand, Hoisted) and operand.reading in _READ_AS_IT_IS:
            # A cast that fails makes the comparison NULL, as an error across variables does.
            safely = self._ansi and operand.type.kind == "string"
            text = sql_cast(operand.text or "", target, safely=safely)
            return replace(operand, text=text, type=target)
        if exact:
            return Call("cast", (operand,), target)
        raise Inexact("a value computed from several rows would have to be cast")

    def constant(self, text: str) -> Constant:
        """The value of text without columns; raises ValueError with Spark's sentence."""
        known = literal(text)
        if known is not None:
            return known
        (answer,) = self._typer.constants([text])
        if isinstance(answer, str):
            raise ValueError(answer)
        return answer

    def _fixed(self, operand: Fixed, target: Type) -> Fixed:
        constant = converted(operand.constant, target)
        text = sql_cast(operand.text, target, safely=self._ansi)
        if constant is None:
            try:
                constant = self.constant(text)
            except ValueError as problem:
                raise Inexact(str(problem)) from None
        return Fixed(constant, text)


def shipped(expression: Expression, shipment: Shipment) -> Expression:
    """The tree as the engine takes it: hoisted texts become columns of the shipment."""
    if isinstance(expression, Fixed):
        return expression.constant
    if isinstance(expression, Hoisted):
        if expression.text is None:
            return Cell(expression.variable, None, BIGINT, "count")
        guards = frozenset({expression.variable}) if expression.may_fail else frozenset[int]()
        column = shipment.column(expression.text, guards=guards)
        return Cell(expression.variable, column, expression.type, expression.reading)
    if isinstance(expression, Member):
        value, array = (shipped(each, shipment) for each in expression.children())
        return Member(value, array)
    if isinstance(expression, Call | UserCall | RemoteCall):
        return replace(expression, arguments=_all(expression.arguments, shipment))
    return expression


def _all(arguments: Sequence[Expression], shipment: Shipment) -> tuple[Expression, ...]:
    return tuple(shipped(argument, shipment) for argument in arguments)
