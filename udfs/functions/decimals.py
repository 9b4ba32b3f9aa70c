"""Arithmetic of decimals whose result type has fewer digits than the exact result, and rounding.

Values are unscaled integers. Spark computes with java.math.BigDecimal: a quotient gets 39 digits
after the point, a product 39 digits in all, and only then the result type; both round half up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type


_DIGITS: Final = 39


def divide_half_up(numerator: int, denominator: int) -> int:
    """The nearest integer to a quotient, ties away from zero.

    >>> divide_half_up(5, 2), divide_half_up(-5, 2), divide_half_up(4, 3)
    (3, -3, 1)
    """
    quotient, remainder = divmod(abs(numerator), abs(denominator))
    quotient += int(2 * remainder >= abs(denominator))
    return -quotient if (numerator < 0) != (denominator < 0) else quotient


def rescale(value: int, scale: int, target: int) -> int:
    """An unscaled value with another number of digits after the point, rounded half up."""
    if target >= scale:
        return value * int(10 ** (target - scale))
    return divide_half_up(value, 10 ** (scale - target))


def to_decimal(value: int, scale: int, target: Type) -> int:
    """The value in a decimal type; fails if it does not fit."""
    found = rescale(value, scale, target.scale)
    if abs(found) >= 10**target.precision:
        raise Failure
    return found


def scale_of(type_: Type) -> int:
    return type_.scale if type_.kind == "decimal" else 0


def truncated_remainder(a: int, b: int) -> int:
    """The remainder with the sign of the dividend, as in Java."""
    found = abs(a) % abs(b)
    return -found if a < 0 else found


@bound_function("add_decimals", "decimals decimals")
def _add(binding: Binding) -> Run:
    left, right = map(scale_of, binding.arguments)
    scale, result = max(left, right), binding.result
    return lambda a, b: to_decimal(
        a * 10 ** (scale - left) + b * 10 ** (scale - right), scale, result
    )


@bound_function("subtract_decimals", "decimals decimals")
def _subtract(binding: Binding) -> Run:
    add = _add(binding)
    return lambda a, b: add(a, -b)


@bound_function("multiply_decimals", "decimals decimals")
def _multiply(binding: Binding) -> Run:
    scale, result = sum(map(scale_of, binding.arguments)), binding.result

    def multiply(a: int, b: int) -> int:
        product, digits = a * b, scale
        excess = len(str(abs(product))) - _DIGITS
        if excess > 0:
            product, digits = divide_half_up(product, 10**excess), digits - excess
        return to_decimal(product, digits, result)

    return multiply


@bound_function("divide_decimals", "decimals decimals")
def _divide(binding: Binding) -> Run:
    left, right = map(scale_of, binding.arguments)

    def divide(a: int, b: int) -> int:
        if b == 0:
            raise Failure
        quotient = divide_half_up(a * 10 ** (_DIGITS + right), b * 10**left)
        return to_decimal(quotient, _DIGITS, binding.result)

    return divide


@bound_function("mod_decimals", "decimals decimals")
def _mod(binding: Binding) -> Run:
    left, right = map(scale_of, binding.arguments)
    scale = max(left, right)

    def remainder(a: int, b: int) -> int:
        if b == 0:
            raise Failure
        found = truncated_remainder(a * 10 ** (scale - left), b * 10 ** (scale - right))
        return to_decimal(found, scale, binding.result)

    return remainder
