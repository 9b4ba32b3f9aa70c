"""Arithmetic over vectors, with Spark's widths and Spark's errors.

Always holds: the result has the declared type's width; what does not fit is an ANSI error (that
element is NULL and counted) or, in a session without ANSI, wraps around for integers and is NULL
for decimals. Intervals and times never wrap: Spark raises for them in both modes.

Overflow is excluded from the operands' least and largest values first, which costs a tenth of
the addition itself; only if that fails each element is looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import CepError
from spark_cep.udfs.values.comparison import both_valid
from spark_cep.udfs.values.vectors import Vector, dtype_of

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import Active, Tally

_DAY_US = 86_400_000_000
_INT64_LEAST = np.iinfo(np.int64).min
# Spark negates decimals through Scala's BigDecimal, which rounds to so many digits.
_NEGATED_DIGITS = 34
_RING: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_UFUNC: dict[str, np.ufunc] = {"+": np.add, "-": np.subtract, "*": np.multiply}


@dataclass(frozen=True)
class Operation:
    """What an arithmetic call needs to know besides its operands."""

    name: str
    type: Type
    operands: tuple[Type, ...]
    tally: Tally
    active: Active


def binary(operation: Operation, left: Vector, right: Vector) -> Vector:
    """+ - * / % div"""
    name, kind = operation.name, operation.type.kind
    valid = both_valid(left, right)
    if name == "/" or (name == "%" and kind == "float"):
        return _float_division(operation, left, right, valid)
    if kind == "float":
        dtype = dtype_of(operation.type)
        a = left.values.astype(dtype, copy=False)
        b = right.values.astype(dtype, copy=False)
        return Vector(np.asarray(_UFUNC[name](a, b)), valid)
    if "date" in (type_.kind for type_ in operation.operands) and kind.startswith("timestamp"):
        raise _refused(operation)  # a date counts days, and adding an interval may need a zone
    a, b = _integers(operation, left, right)
    if name in ("%", "div"):
        return _integer_division(operation, a, b, valid)
    if kind == "decimal":
        return _decimal(operation, a, b, valid)
    result = _integer(operation, a, b, valid)
    if kind == "interval" and operation.operands[0].kind == "date":
        days = Operation("*", operation.type, operation.operands, operation.tally, operation.active)
        return _integer(days, result.values, np.array(_DAY_US), result.valid)
    return result


def unary(operation: Operation, operand: Vector) -> Vector:
    """neg, abs"""
    values, type_ = operand.values, operation.type
    if type_.kind == "decimal" and type_.precision > _NEGATED_DIGITS:
        raise _refused(operation)
    if values.dtype.kind == "b":  # a NULL without a type
        values = values.astype(dtype_of(type_))
    result = np.asarray(np.negative(values) if operation.name == "neg" else np.abs(values))
    if values.dtype.kind != "i" or type_.kind == "decimal" or not values.size:
        return Vector(result, operand.valid, operand.nan_free)
    least = np.iinfo(values.dtype).min
    if values.min() != least or _wraps(operation):
        return Vector(result, operand.valid)
    failed = np.asarray(values == least)
    always = type_.kind != "int"
    return Vector(
        result, operation.tally.fail(failed, operand.valid, operation.active, always=always)
    )


def rescaled(values: Array, digits: int) -> Array:
    """Unscaled decimals with `digits` more digits after the point."""
    if digits == 0:
        return values
    low, high = _bounds(values)
    if values.dtype != object and max(high, -low) * 10**digits < 1 << 63:
        return np.asarray(values * 10**digits)
    return np.asarray(values.astype(object) * 10**digits)


def checked_decimal(
    values: Array, valid: Array | None, type_: Type, tally: Tally, active: Active
) -> Vector:
    """Unscaled values as the declared decimal type; those with too many digits fail."""
    limit = 10**type_.precision
    low, high = _bounds(values)
    if low <= -limit or high >= limit:
        failed = np.asarray((values >= limit) | (values <= -limit), np.bool_)
        valid = tally.fail(failed, valid, active)
        values = np.where(failed, 0, values)
    return Vector(values.astype(dtype_of(type_), copy=False), valid)


def _float_division(
    operation: Operation, left: Vector, right: Vector, valid: Array | None
) -> Vector:
    if operation.type.kind != "float":
        raise _refused(operation)
    dtype = dtype_of(operation.type)
    a = left.values.astype(dtype, copy=False)
    b = right.values.astype(dtype, copy=False)
    result = np.asarray(np.divide(a, b) if operation.name == "/" else np.fmod(a, b))
    zero = np.asarray(b == 0)
    return Vector(result, _divided(operation, zero, valid, result))


def _integer_division(operation: Operation, a: Array, b: Array, valid: Array | None) -> Vector:
    zero = np.asarray(b == 0, np.bool_)
    safe = np.where(zero, 1, b) if zero.any() else b
    if object in (a.dtype, safe.dtype):
        remainder = np.asarray(_REMAINDER(a, safe), object)
    else:
        remainder = np.asarray(np.fmod(a, safe))
    if operation.name == "%":
        valid = _divided(operation, zero, valid, remainder)
        return Vector(remainder.astype(dtype_of(operation.type), copy=False), valid)
    result = np.asarray((a - remainder) // safe)
    valid = _divided(operation, zero, valid, result)
    if result.dtype == object:
        # Spark takes the low 64 bits of a decimal quotient, in an ANSI session too.
        return Vector(((result + (1 << 63)) % (1 << 64) - (1 << 63)).astype(np.int64), valid)
    failed = np.asarray((a == _INT64_LEAST) & (safe == -1))
    if failed.any() and not _wraps(operation):
        valid = operation.tally.fail(failed, valid, operation.active)
    return Vector(result, valid)


def _divided(operation: Operation, zero: Array, valid: Array | None, result: Array) -> Array | None:
    if not zero.any():
        return valid
    zero = np.broadcast_to(zero, result.shape)
    return operation.tally.fail(zero, valid, operation.active)


def _integer(operation: Operation, a: Array, b: Array, valid: Array | None) -> Vector:
    dtype = dtype_of(operation.type)
    result = np.asarray(_UFUNC[operation.name](a, b))
    low, high = _result_bounds(operation.name, a, b)
    limits = np.iinfo(dtype.type)
    if (limits.min <= low and high <= limits.max) or _wraps(operation):
        return Vector(result.astype(dtype, copy=False), valid)
    failed = _overflowed(operation.name, a, b, result)
    failed = failed | (result < limits.min) | (result > limits.max)
    if failed.any():
        always = operation.type.kind != "int"
        valid = operation.tally.fail(failed, valid, operation.active, always=always)
    return Vector(result.astype(dtype, copy=False), valid)


def _overflowed(name: str, a: Array, b: Array, result: Array) -> Array:
    """Where the int64 result wrapped around."""
    if name == "+":
        return np.asarray(((a ^ result) & (b ^ result)) < 0)
    if name == "-":
        return np.asarray(((a ^ b) & (a ^ result)) < 0)
    # A wrapped product is at least 2**64 off, so dividing it by one factor misses the other.
    divisor = np.where(a == 0, 1, a)
    missed = (result // divisor != b) & (a != 0)
    return np.asarray(missed | ((a == -1) & (b == _INT64_LEAST)))


def _decimal(operation: Operation, a: Array, b: Array, valid: Array | None) -> Vector:
    low, high = _result_bounds(operation.name, a, b)
    if max(high, -low) >= 1 << 63 and a.dtype != object:
        a = a.astype(object)
    result = np.asarray(_UFUNC[operation.name](a, b))
    return checked_decimal(result, valid, operation.type, operation.tally, operation.active)


def _integers(operation: Operation, left: Vector, right: Vector) -> tuple[Array, Array]:
    """The operands as int64 (or Python ints), decimals brought to one scale except for *."""
    a, b = left.values, right.values
    width = dtype_of(operation.type)
    if operation.type.kind == "int" and width.itemsize < 8:
        # Narrow operands stay narrow where the result fits: a quarter of the memory traffic.
        low, high = _result_bounds(operation.name, a, b)
        limits = np.iinfo(width.type)
        if operation.name in _RING and limits.min <= low and high <= limits.max:
            return a.astype(width, copy=False), b.astype(width, copy=False)
    a = a if a.dtype == object else a.astype(np.int64, copy=False)
    b = b if b.dtype == object else b.astype(np.int64, copy=False)
    if operation.name == "*":
        return a, b
    scales = [type_.scale for type_ in operation.operands]
    return rescaled(a, max(scales) - scales[0]), rescaled(b, max(scales) - scales[1])


def _refused(operation: Operation) -> CepError:
    return CepError(
        f"the engine cannot compute {operation.name} with the result type "
        f"{operation.type.kind} as Spark does",
        hint="let Spark compute it: name one variable only, or use it in measures",
    )


def _wraps(operation: Operation) -> bool:
    return operation.type.kind == "int" and not operation.tally.ansi


def _result_bounds(name: str, a: Array, b: Array) -> tuple[int, int]:
    if name not in _RING:
        return 0, 0
    (a_low, a_high), (b_low, b_high) = _bounds(a), _bounds(b)
    if name == "-":
        return a_low - b_high, a_high - b_low
    corners = [_RING[name](x, y) for x in (a_low, a_high) for y in (b_low, b_high)]
    return min(corners), max(corners)


def _bounds(values: Array) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if values.size else (0, 0)


def _truncated_remainder(a: int, b: int) -> int:
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


_REMAINDER = np.frompyfunc(_truncated_remainder, 2, 1)
