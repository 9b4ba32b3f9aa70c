"""Shapes of plans: made from orders, taken apart, shown.

A shape is a slot's number or (left, right); left is the spine, right the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.program import Shape


def chain(order: Sequence[int]) -> Shape:
    """The left-deep shape that binds slots in this order.

    >>> chain([2, 1, 0])
    ((2, 1), 0)
    """
    shape: Shape = order[0]
    for slot in order[1:]:
        shape = (shape, slot)
    return shape


def order_of(shape: Shape) -> tuple[int, ...] | None:
    """The order of a left-deep shape, None for any other.

    >>> order_of(((2, 1), 0)), order_of((2, (1, 0)))
    ((2, 1, 0), None)
    """
    order: list[int] = []
    while not isinstance(shape, int):
        shape, last = shape
        if not isinstance(last, int):
            return None
        order.append(last)
    return (shape, *reversed(order))


def slots_of(shape: Shape) -> tuple[int, ...]:
    """The slots in the order in which they stand in the shape.

    >>> slots_of(((2, (4, 3)), 0))
    (2, 4, 3, 0)
    """
    if isinstance(shape, int):
        return (shape,)
    return slots_of(shape[0]) + slots_of(shape[1])


def tree_text(shape: Shape, names: Sequence[str]) -> str:
    """
    >>> tree_text(((0, 1), 2), "abc")
    '((a b) c)'
    """
    if isinstance(shape, int):
        return names[shape]
    return f"({tree_text(shape[0], names)} {tree_text(shape[1], names)})"
