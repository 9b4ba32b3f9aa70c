"""Functions of numbers. Floats that Spark reads as decimals (to round them, to print them) are read
by their shortest text."""

from __future__ import annotations

import math
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Decimal,
    localcontext,
)
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.functions import fdlibm
from spark_cep.udfs.functions.decimals import to_decimal, truncated_remainder
from spark_cep.udfs.functions.float_texts import float_text
from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function, function

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type


_ROUNDED_DIGITS: Final = 400


def wrap(number: int, bits: int) -> int:
    """The low bits of an integer, as a signed integer."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def to_integer(number: int, bits: int, *, ansi: bool) -> int:
    if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        return number
    if ansi:
        raise Failure
    return wrap(number, bits)


def saturated(number: float, bits: int = 64) -> int:
    """A float as an integer, as Java casts it."""
    if math.isnan(number):
        return 0
    half = 1 << (bits - 1)
    if math.isinf(number):
        return half - 1 if number > 0 else -half
    return min(max(int(number), -half), half - 1)


def as_float(number: float, type_: Type) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(number)) if type_.bits < 64 else number


def quantize(number: Decimal, scale: int, rounding: str) -> Decimal:
    with localcontext() as context:
        context.prec = _ROUNDED_DIGITS
        return number.quantize(Decimal(1).scaleb(-scale), rounding)


# ---- rounding ------------------------------------------------------------------------------------


def _bind_rounding(binding: Binding, rounding: str) -> Run:
    source, result = binding.arguments[0], binding.result
    if source.kind == "float":
        return lambda x, scale=0: _round_float(x, scale, rounding, result)
    if source.kind == "decimal":

        def round_decimal(value: int, scale: int = 0) -> int:
            with localcontext() as context:
                context.prec = _ROUNDED_DIGITS
                exact = Decimal(value).scaleb(-source.scale)
                found = quantize(exact, min(scale, source.scale), rounding)
                return to_decimal(int(found.scaleb(result.scale)), result.scale, result)

        return round_decimal

    def round_integer(value: int, scale: int = 0) -> int:
        if scale >= 0:
            return value
        found = int(quantize(Decimal(value), scale, rounding))
        return to_integer(found, result.bits, ansi=binding.ansi)

    return round_integer


def _round_float(number: float, scale: int, rounding: str, type_: Type) -> float:
    if not math.isfinite(number) or scale > _ROUNDED_DIGITS - 20:
        return number
    found = float(quantize(Decimal(repr(number)), scale, rounding))
    return as_float(found + 0.0, type_)


@bound_function("round", "number int?")
def _round(binding: Binding) -> Run:
    return _bind_rounding(binding, ROUND_HALF_UP)


@bound_function("bround", "number int?")
def _round_half_even(binding: Binding) -> Run:
    return _bind_rounding(binding, ROUND_HALF_EVEN)


@bound_function("floor", "number")
def _floor(binding: Binding) -> Run:
    return _bind_whole(binding, math.floor, ROUND_FLOOR)


@bound_function("ceil ceiling", "number")
def _ceil(binding: Binding) -> Run:
    return _bind_whole(binding, math.ceil, ROUND_CEILING)


def _bind_whole(binding: Binding, whole: Any, rounding: str) -> Run:
    source, result = binding.arguments[0], binding.result
    if source.kind == "float":
        ansi = binding.ansi

        def of_float(x: float) -> int:
            if ansi and not math.isnan(x) and not -(2.0**63) <= x < 2.0**63:
                raise Failure
            return saturated(whole(x)) if math.isfinite(x) else saturated(x)

        return of_float
    if source.kind == "int":
        return lambda x: x
    unit = 10**source.scale
    if rounding == ROUND_FLOOR:
        return lambda x: to_decimal(x // unit, 0, result)
    return lambda x: to_decimal(-(-x // unit), 0, result)


@function("rint", "double")
def _rint(x: float) -> float:
    return math.copysign(float(round(x)), x) if math.isfinite(x) else x


# ---- signs and remainders ------------------------------------------------------------------------


@function("sign signum", "double")
def _sign(x: float) -> float:
    return x if math.isnan(x) or x == 0 else math.copysign(1.0, x)


@bound_function("pmod", "result result")
def _positive_remainder(binding: Binding) -> Run:
    result = binding.result
    if result.kind == "float":

        def of_floats(a: float, b: float) -> float:
            if b == 0:
                raise Failure
            found = _fmod(a, b)
            return as_float(_fmod(as_float(found + b, result), b) if found < 0 else found, result)

        return of_floats

    def of_integers(a: int, b: int) -> int:
        if b == 0:
            raise Failure
        found = truncated_remainder(a, b)
        if found < 0:
            total = found + b if result.kind == "decimal" else wrap(found + b, max(result.bits, 32))
            found = truncated_remainder(total, b)
        return found

    return of_integers


def _fmod(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a):
        return math.nan
    return math.fmod(a, b)


@function("nanvl", "result result", takes_null=True)
def _unless_nan(a: float | None, b: float | None) -> float | None:
    return b if a is not None and math.isnan(a) else a


# ---- bits ----------------------------------------------------------------------------------------


@function("bit_and", "result result")
def _and(a: int, b: int) -> int:
    return a & b


@function("bit_or", "result result")
def _or(a: int, b: int) -> int:
    return a | b


@function("bit_xor", "result result")
def _xor(a: int, b: int) -> int:
    return a ^ b


@function("bit_not", "result")
def _not(a: int) -> int:
    return ~a


@bound_function("shiftleft", "any int")
def _shift_left(binding: Binding) -> Run:
    bits = max(binding.result.bits, 32)
    return lambda a, by: wrap(a << (by % bits), bits)


@bound_function("shiftright", "any int")
def _shift_right(binding: Binding) -> Run:
    bits = max(binding.result.bits, 32)
    return lambda a, by: a >> (by % bits)


@bound_function("shiftrightunsigned", "any int")
def _shift_right_unsigned(binding: Binding) -> Run:
    bits = max(binding.result.bits, 32)
    return lambda a, by: wrap((a & (1 << bits) - 1) >> (by % bits), bits)


@function("bit_count", "any")
def _bit_count(a: int) -> int:
    return int(a).bit_count() if a >= 0 or isinstance(a, bool) else (a & (1 << 64) - 1).bit_count()


@function("bin", "bigint")
def _binary(a: int) -> str:
    return f"{a & (1 << 64) - 1:b}"


# ---- roots, powers, logarithms -------------------------------------------------------------------


@function("sqrt", "double")
def _sqrt(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


@function("exp", "double")
def _exp(x: float) -> float:
    return fdlibm.exp(x)


@function("pow power", "double double")
def _power(x: float, y: float) -> float:
    return fdlibm.power(x, y)


@function("ln", "double")
def _ln(x: float) -> float | None:
    return None if x <= 0 else fdlibm.log(x)


@function("log", "double double?")
def _log(base: float, x: float | None = None) -> float | None:
    if x is None:
        return _ln(base)
    return None if x <= 0 or base <= 0 else _divide(fdlibm.log(x), fdlibm.log(base))


@function("log2", "double")
def _log2(x: float) -> float | None:
    return None if x <= 0 else fdlibm.log(x) / fdlibm.log(2.0)


@function("log10", "double")
def _log10(x: float) -> float | None:
    return None if x <= 0 else fdlibm.log10(x)


def _divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


# ---- angles --------------------------------------------------------------------------------------


def _total(run: Any) -> Run:
    """NaN where Python raises an error."""

    def guarded(*values: float) -> float:
        try:
            return float(run(*values))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return guarded


for _name in ("sin", "cos", "tan", "asin", "acos", "atan", "tanh", "cosh"):
    function(_name, "double")(_total(getattr(math, _name)))
function("atan2", "double double")(lambda y, x: math.atan2(y + 0.0, x + 0.0))
function("hypot", "double double")(_total(math.hypot))


@function("sinh", "double")
def _sinh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > 720 else math.sinh(x)


@function("degrees", "double")
def _degrees(x: float) -> float:
    return x * (180.0 / math.pi)


@function("radians", "double")
def _radians(x: float) -> float:
    return x * (math.pi / 180.0)


# ---- others --------------------------------------------------------------------------------------


@function("factorial", "int")
def _factorial(n: int) -> int | None:
    return math.factorial(n) if 0 <= n <= _MOST_FACTORIAL else None


_MOST_FACTORIAL: Final = 20


@function("cbrt", "double")
def _cube_root(x: float) -> float:
    return fdlibm.cbrt(x)


@function("width_bucket", "double double double bigint")
def _width_bucket(value: float, low: float, high: float, count: int) -> int | None:
    is_wrong = count <= 0 or count == (1 << 63) - 1 or math.isnan(value) or low == high
    if is_wrong or not math.isfinite(low) or not math.isfinite(high):
        return None
    bottom, top = min(low, high), max(low, high)
    if value < bottom if low < high else value > top:
        return 0
    if value >= top if low < high else value <= bottom:
        return count + 1
    distance = value - low if low < high else low - value
    return saturated(count * distance / (top - bottom)) + 1


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@bound_function("conv", "string int int")
def _convert_base(binding: Binding) -> Run:
    def run(text: str, source: int, target: int) -> str | None:
        text = text.strip(" ")
        if not 2 <= source <= 36 or not 2 <= abs(target) <= 36 or not text:
            return None
        negative, number = text[0] == "-", 0
        for each in text[negative:]:
            digit = _DIGITS.find(each.upper()) if each.isascii() else -1
            if not 0 <= digit < source:
                break
            number = number * source + digit
            if number >> 64:
                if binding.ansi:
                    raise Failure
                number = (1 << 64) - 1
                break
        if negative and target > 0:
            number = (1 << 64) - 1 if number >> 63 else -number % (1 << 64)
        if target < 0 and number >> 63:
            number, negative = (1 << 64) - number, True
        found = ""
        while number:
            number, digit = divmod(number, abs(target))
            found = _DIGITS[digit] + found
        return ("-" if negative and target < 0 else "") + (found or "0")

    return run


@bound_function("format_number", "number int")
def _format_number(binding: Binding) -> Run:
    source = binding.arguments[0]

    def run(value: Any, digits: int) -> str | None:
        if digits < 0:
            return None
        if source.kind == "float":
            if math.isnan(value):
                return "NaN"
            if math.isinf(value):
                return "-\u221e" if value < 0 else "\u221e"
            # Java knows the digits that it prints, and pads them with zeros.
            printed = Decimal(float_text(value, 64, shortest=False))
            is_whole = -int(printed.as_tuple().exponent) <= digits
            exact = printed if is_whole else Decimal(value)
        else:
            exact = (
                Decimal(value).scaleb(-source.scale) if source.kind == "decimal" else Decimal(value)
            )
        return format(quantize(exact, digits, ROUND_HALF_EVEN), ",f")

    return run
