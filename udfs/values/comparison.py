"""Comparisons and three-valued logic over vectors.

Always holds: NaN equals NaN and is larger than any other float, -0.0 equals 0.0 (Spark's order,
not IEEE's); NULL in gives NULL out except where SQL says otherwise. Without NULL and NaN a
comparison is one numpy call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.values.vectors import Vector, has_nan

if TYPE_CHECKING:
    from spark_cep.udfs.values.arrow_values import Array

_PLAIN: dict[str, Callable[[Array, Array], Array]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
COMPARISONS = frozenset(_PLAIN)


def compare(name: str, left: Vector, right: Vector) -> Vector:
    return Vector(compare_values(name, left, right), both_valid(left, right))


def compare_values(name: str, left: Vector, right: Vector) -> Array:
    """The comparison of the values alone, whatever the masks say."""
    # By type and not by value: numpy 1.26 would round the array's side to a 0-d operand's type.
    dtype = np.promote_types(left.values.dtype, right.values.dtype)
    a = left.values.astype(dtype, copy=False)
    b = right.values.astype(dtype, copy=False)
    if dtype.kind != "f" or not (_may_have_nan(left) or _may_have_nan(right)):
        return np.asarray(_PLAIN[name](a, b))
    return np.asarray(_WITH_NAN[name](a, b))


# What numpy says, which is False next to NaN, plus what NaN as the largest value adds.
_WITH_NAN: dict[str, Callable[[Array, Array], Array]] = {
    "=": lambda a, b: (a == b) | (np.isnan(a) & np.isnan(b)),
    "<>": lambda a, b: (a != b) & ~(np.isnan(a) & np.isnan(b)),
    "<": lambda a, b: (a < b) | (np.isnan(b) & ~np.isnan(a)),
    "<=": lambda a, b: (a <= b) | np.isnan(b),
    ">": lambda a, b: (a > b) | (np.isnan(a) & ~np.isnan(b)),
    ">=": lambda a, b: (a >= b) | np.isnan(a),
}


def _may_have_nan(vector: Vector) -> bool:
    return vector.values.dtype.kind == "f" and not vector.nan_free and has_nan(vector.values)


def null_safe_equal(left: Vector, right: Vector) -> Vector:
    """<=>: never NULL; two NULLs are equal."""
    equal = compare_values("=", left, right)
    if left.valid is None and right.valid is None:
        return Vector(equal)
    a, b = valid_mask(left), valid_mask(right)
    return Vector(np.where(a & b, equal, ~(a | b)))


def is_nan(vector: Vector) -> Vector:
    """isnan is FALSE for NULL."""
    nan = np.asarray(np.isnan(vector.values))
    return Vector(nan if vector.valid is None else nan & vector.valid)


def is_null(vector: Vector) -> Vector:
    if vector.valid is None:
        return Vector(np.zeros(vector.values.shape, np.bool_))
    return Vector(np.broadcast_to(~vector.valid, vector.values.shape))


def negate(vector: Vector) -> Vector:
    return Vector(np.asarray(~vector.values), vector.valid)


def both(left: Vector, right: Vector) -> Vector:
    """AND: FALSE wins over NULL."""
    if left.valid is None and right.valid is None:
        return Vector(np.asarray(left.values & right.values))
    true = is_true(left) & is_true(right)
    return Vector(true, true | is_false(left) | is_false(right))


def either(left: Vector, right: Vector) -> Vector:
    """OR: TRUE wins over NULL."""
    if left.valid is None and right.valid is None:
        return Vector(np.asarray(left.values | right.values))
    true = is_true(left) | is_true(right)
    return Vector(true, true | (is_false(left) & is_false(right)))


def is_true(vector: Vector) -> Array:
    return np.asarray(vector.values if vector.valid is None else vector.values & vector.valid)


def is_false(vector: Vector) -> Array:
    return np.asarray(~vector.values if vector.valid is None else ~vector.values & vector.valid)


def valid_mask(vector: Vector) -> Array:
    return np.ones((), np.bool_) if vector.valid is None else vector.valid


def both_valid(left: Vector, right: Vector) -> Array | None:
    if left.valid is None or right.valid is None:
        return right.valid if left.valid is None else left.valid
    return np.asarray(left.valid & right.valid)
