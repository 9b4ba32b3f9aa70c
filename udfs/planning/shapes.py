"""Shapes of plans: made from orders, taken apart, shown.

A shape is a slot's number or (left, right); left is the spine, right the unit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.program import Shape


def left_deep_shape(order: Sequence[int]) -> Shape:
    """The left-deep shape that binds slots in this order.

    >>> left_deep_shape([2, 1, 0])
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


def with_first(shape: Shape, slot: int, whole: Collection[frozenset[int]] = ()) -> Shape:
    """The same order, but beginning with `slot`. Subtrees with the slots of one of `whole` stay
    in one piece unless the slot is in them.

    >>> with_first(((2, 1), 0), 1), with_first((2, (1, 0)), 0)
    (((1, 2), 0), ((0, 1), 2))
    >>> with_first(((2, 1), 0), 0, [frozenset({1, 2})])
    (0, (2, 1))
    """
    rest: list[Shape] = []
    while not isinstance(shape, int):
        if slot not in slots_of(shape) and frozenset(slots_of(shape)) in whole:
            break
        left, right = shape
        if slot in slots_of(right):
            # What the slot stood with comes first.
            shape = (with_first(right, slot, whole), left) if right != slot else (slot, left)
            return _join_units(_spine(shape, whole), rest)
        rest.insert(0, right)
        shape = left
    return _join_units([shape], rest)


def _spine(shape: Shape, whole: Collection[frozenset[int]]) -> list[Shape]:
    """What a chain binds one after the other, the second part taken apart too."""
    assert not isinstance(shape, int)
    first, second = shape
    parts: list[Shape] = []
    while not isinstance(second, int) and frozenset(slots_of(second)) not in whole:
        second, last = second
        parts.insert(0, last)
    return [first, second, *parts]


def _join_units(first: Sequence[Shape], rest: Sequence[Shape]) -> Shape:
    shape, *others = [*first, *rest]
    for unit in others:
        shape = (shape, unit)
    return shape


def tree_text(shape: Shape, names: Sequence[str]) -> str:
    """
    >>> tree_text(((0, 1), 2), "abc")
    '((a b) c)'
    """
    if isinstance(shape, int):
        return names[shape]
    return f"({tree_text(shape[0], names)} {tree_text(shape[1], names)})"
