"""Conditions by their shape: comparisons of a new row with what is bound already.

`cell = bound` can be looked up in an index; `cell < bound` narrows the scope where the cell's
values grow with time. Bound expressions read plain variables only, one value a partial match.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_cep.udfs.expressions import (
    BIGINT,
    Call,
    Cell,
    Constant,
    Expression,
    UserCall,
    cells_of,
    remote_sources_of,
)

if TYPE_CHECKING:
    from spark_cep.udfs.program import Condition


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_ORDERED = frozenset({"<", "<=", ">", ">="})
_GROWING = frozenset({"int", "float", "date", "timestamp", "timestamp_ntz", "interval"})


@dataclass(frozen=True)
class CellEquality:
    """`cell` of the new row equals `bound`, an expression over what is already bound."""

    cell: Cell
    bound: Expression
    condition: Condition


@dataclass(frozen=True)
class CellBound:
    """`cell` of the new row is `comparison` ("<=", ...) than `bound`. If the cell's values happen
    to grow with time, as `ts` and `ts + INTERVAL 5 MINUTES` do, that narrows the scope."""

    comparison: str
    cell: Cell
    bound: Expression
    condition: Condition


def as_bound(
    condition: Condition, variable: int, is_plain: Callable[[int], bool], *, ansi: bool
) -> CellBound | None:
    """The condition as a bound on a new row of `variable`, if it is one."""
    given = condition.expression
    # Without ANSI a difference that wraps may meet the condition far from any bound.
    moved = _rearrange_difference(given, variable) if ansi else given
    if remote_sources_of(given):
        return None  # a test of its own, as what it reads may not be here yet
    for expression in (given, moved):
        found = _split_comparison(expression, variable, is_plain, _ORDERED)
        if (
            found is not None
            and found[1].type.kind in _GROWING
            and found[1].type.kind == found[2].type.kind
        ):
            return CellBound(*found, condition)
    return None


def _rearrange_difference(expression: Expression, variable: int) -> Expression:
    """`x - y < constant` as `x < y + constant` where x is new, as `y > x - constant` where y is.

    Only for whole numbers of one unit: floats round differently on the two sides, and dates
    differ by microseconds but count days.
    """
    if not isinstance(expression, Call) or expression.name not in _MIRRORED:
        return expression
    left, right, name = *expression.arguments, expression.name
    if isinstance(left, Constant):
        left, right, name = right, left, _MIRRORED[name]
    if not (isinstance(left, Call) and left.name == "-" and isinstance(right, Constant)):
        return expression
    first, second = left.arguments
    units = {first.type.kind, second.type.kind, right.type.kind}
    if units not in ({"int"}, {"timestamp_ntz", "interval"}):
        return expression
    moved: tuple[Expression, Expression]
    if isinstance(first, Cell) and first.variable == variable:
        moved = first, _widen_operands("+", second, right)
    else:
        name = _MIRRORED[name]
        moved = second, _widen_operands("-", first, right)
    return replace(expression, name=name, arguments=moved)


def _widen_operands(name: str, operand: Expression, constant: Constant) -> Expression:
    """In 64 bits, where the difference of two narrower numbers has its place too."""
    if operand.type.kind != "int":
        return Call(name, (operand, constant), operand.type)
    wide = operand if operand.type == BIGINT else Call("cast", (operand,), BIGINT)
    return Call(name, (wide, Constant(constant.value, BIGINT)), BIGINT)


def _split_comparison(
    expression: Expression,
    variable: int,
    is_plain: Callable[[int], bool],
    comparisons: frozenset[str],
) -> tuple[str, Cell, Expression] | None:
    """`cell-of-variable comparison expression-over-plain-bound-variables`, either way round."""
    if not isinstance(expression, Call) or expression.name not in comparisons:
        return None
    left, right = expression.arguments
    for cell, other, name in (
        (left, right, expression.name),
        (right, left, _MIRRORED[expression.name]),
    ):
        if (
            isinstance(cell, Cell)
            and cell.variable == variable
            and cell.reading == "each"
            and any(True for _ in cells_of(other))
            and all(c.variable != variable and is_plain(c.variable) for c in cells_of(other))
            and not any(isinstance(node, UserCall) for node in other.walk())
        ):
            return name, cell, other
    return None


def as_equality(
    condition: Condition, variable: int, is_plain: Callable[[int], bool]
) -> CellEquality | None:
    """The condition as an equality of a new row of `variable`, if it is one."""
    found = _split_comparison(condition.expression, variable, is_plain, frozenset({"="}))
    if found is None or found[1].type.kind in {"decimal", "other", "null"}:
        return None
    if remote_sources_of(found[2]) and found[1].type.kind in {"string", "binary"}:
        return None  # words that no column may have
    return CellEquality(found[1], found[2], condition)


def evaluation_cost(condition: Condition) -> int:
    """Plain comparisons first, then user functions, what has to be fetched last."""
    nodes = list(condition.expression.walk())
    calls = sum(isinstance(node, UserCall) for node in nodes)
    return len(nodes) + 1000 * calls + 1_000_000 * len(remote_sources_of(condition.expression))
