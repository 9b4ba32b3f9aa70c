"""Plan shapes: building them, taking them apart, printing them.

A shape is the number of a slot or a pair (left, right), a join: the left side is the spine, the
right side the unit that is joined to it. A left-deep shape is the order of a chain.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cep.udfs.program import Shape


def left_deep_shape(units: Sequence[Shape]) -> Shape:
    """The left-deep shape that joins the units in this order.

    >>> left_deep_shape([2, 1, 0]), left_deep_shape([2, (0, 1)])
    (((2, 1), 0), (2, (0, 1)))
    """
    shape, *others = units
    for unit in others:
        shape = (shape, unit)
    return shape


def order_of(shape: Shape) -> tuple[int, ...] | None:
    """The order of a left-deep shape of slots, None for any other shape.

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
    """The slots of a shape from left to right.

    >>> slots_of(((2, (4, 3)), 0))
    (2, 4, 3, 0)
    """
    if isinstance(shape, int):
        return (shape,)
    return slots_of(shape[0]) + slots_of(shape[1])


def with_first(shape: Shape, slot: int, whole: Collection[frozenset[int]] = ()) -> Shape:
    """The same order, except that it begins with `slot`. A subtree whose slots are one of the sets
    in `whole` is not taken apart, unless it contains the slot.

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
            # The slots that were joined with `slot` come next.
            shape = (with_first(right, slot, whole), left) if right != slot else (slot, left)
            return left_deep_shape([*_chain_units(shape, whole), *rest])
        rest.insert(0, right)
        shape = left
    return left_deep_shape([shape, *rest])


def _chain_units(shape: Shape, whole: Collection[frozenset[int]]) -> list[Shape]:
    """The units that a chain binds one after the other, the second side taken apart too."""
    assert not isinstance(shape, int)
    first, second = shape
    units: list[Shape] = []
    while not isinstance(second, int) and frozenset(slots_of(second)) not in whole:
        second, last = second
        units.insert(0, last)
    return [first, second, *units]


def tree_text(shape: Shape, names: Sequence[str]) -> str:
    """
    >>> tree_text(((0, 1), 2), "abc")
    '((a b) c)'
    """
    if isinstance(shape, int):
        return names[shape]
    return f"({tree_text(shape[0], names)} {tree_text(shape[1], names)})"


def order_text(
    shape: Shape | None, names: Sequence[str], kept: Collection[frozenset[int]] = ()
) -> str:
    """The units of a chain in the order in which they are bound; `kept` groups in brackets. None:
    each partial match chooses.

    >>> order_text(((2, 1), 0), "abc"), order_text((3, (2, (0, 1))), "abcd", [frozenset({0, 1})])
    ('c→b→a', 'd→(c [a b])')
    >>> order_text(((0, 1), 2), "abc", [frozenset({0, 1})]), order_text(None, "abc")
    ('[a b]→c', '{a, b, c}')
    """
    if shape is None:
        return f"{{{', '.join(names)}}}"
    units: list[str] = []
    while not isinstance(shape, int) and frozenset(slots_of(shape)) not in kept:
        shape, unit = shape
        units.append(_unit_text(unit, names, kept))
    return "→".join([_unit_text(shape, names, kept), *reversed(units)])


def _unit_text(shape: Shape, names: Sequence[str], kept: Collection[frozenset[int]]) -> str:
    if isinstance(shape, int):
        return names[shape]
    if frozenset(slots_of(shape)) in kept:
        return f"[{' '.join(names[slot] for slot in slots_of(shape))}]"
    return f"({_unit_text(shape[0], names, kept)} {_unit_text(shape[1], names, kept)})"
