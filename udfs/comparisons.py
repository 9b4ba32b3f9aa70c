"""Recognizes conditions that compare a new row with rows that are bound already.

`cell = bound` can be looked up in an index; `cell < bound` narrows the scope where the cell's
values grow with time. Bound expressions read plain variables only: one value per partial match.
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
    """`cell comparison bound`, with `cell` of the new row and a comparison such as "<=".

    It narrows the scope if the cell's values grow with time, as `ts` and `ts + INTERVAL 5 MINUTES`
    do.
    """

    comparison: str
    cell: Cell
    bound: Expression
    condition: Condition


def as_equality(
    condition: Condition, variable: int, is_plain: Callable[[int], bool]
) -> CellEquality | None:
    """The condition as an equality of a new row of `variable`, if it is one."""
    parts = _split_comparison(condition.expression, variable, is_plain, frozenset({"="}))
    if parts is None:
        return None
    _, cell, bound = parts
    if cell.type.kind in {"decimal", "other", "null"}:
        return None
    if remote_sources_of(bound) and cell.type.kind in {"string", "binary"}:
        return None  # remote words may have no code in the vocabulary
    return CellEquality(cell, bound, condition)


def as_bound(
    condition: Condition, variable: int, is_plain: Callable[[int], bool], *, ansi: bool
) -> CellBound | None:
    """The condition as a bound on a new row of `variable`, if it is one."""
    written = condition.expression
    # Without ANSI a difference that wraps around may meet the condition beyond any bound.
    moved = _rearrange_difference(written, variable) if ansi else written
    if remote_sources_of(written):
        return None  # its remote data may not have arrived: a test of its own
    for expression in (written, moved):
        parts = _split_comparison(expression, variable, is_plain, _ORDERED)
        if parts is None:
            continue
        comparison, cell, bound = parts
        if cell.type.kind in _GROWING and cell.type.kind == bound.type.kind:
            return CellBound(comparison, cell, bound, condition)
    return None


def _split_comparison(
    expression: Expression,
    variable: int,
    is_plain: Callable[[int], bool],
    comparisons: frozenset[str],
) -> tuple[str, Cell, Expression] | None:
    """The comparison as (name, cell of the variable, expression over plain bound variables)."""
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


def _rearrange_difference(expression: Expression, variable: int) -> Expression:
    """`x - y < constant` as `x < y + constant` if x is new, as `y > x - constant` if y is.

    Only for whole numbers of one unit: floats round differently on the two sides, and the
    difference of dates is in microseconds while dates count days.
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
    """The operation in 64 bits, which hold any sum or difference of narrower numbers."""
    if operand.type.kind != "int":
        return Call(name, (operand, constant), operand.type)
    wide = operand if operand.type == BIGINT else Call("cast", (operand,), BIGINT)
    return Call(name, (wide, Constant(constant.value, BIGINT)), BIGINT)


def evaluation_cost(condition: Condition) -> int:
    """A sort key for tests: plain comparisons first, then user functions, remote data last."""
    nodes = list(condition.expression.walk())
    calls = sum(isinstance(node, UserCall) for node in nodes)
    return len(nodes) + 1000 * calls + 1_000_000 * len(remote_sources_of(condition.expression))
