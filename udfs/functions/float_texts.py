"""Floats as text, as Java prints them.

Since Java 19 that is the shortest text that reads back as the same float, with at least one digit
after the point. Before, the algorithm of FloatingDecimal sometimes prints a digit too many; it is
rebuilt here with Python's integers.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Final

import numpy as np

_FRACTION: Final = 52
_SMALL: Final = 27
_FIVE_BITS: Final = [0, *((5**n).bit_length() for n in range(1, _SMALL))]


def float_text(number: float, bits: int, *, shortest: bool) -> str:
    """
    >>> [float_text(x, 64, shortest=True) for x in (0.1, 1e7, 1e-3, 5e-324, -0.0, 123.0)]
    ['0.1', '1.0E7', '0.001', '4.9E-324', '-0.0', '123.0']
    >>> [float_text(2.0**-44, 64, shortest=each) for each in (True, False)]
    ['5.684341886080802E-14', '5.6843418860808015E-14']
    """
    if math.isnan(number):
        return "NaN"
    sign = "-" if math.copysign(1, number) < 0 else ""
    if math.isinf(number):
        return f"{sign}Infinity"
    if number == 0:
        return f"{sign}0.0"
    digits, point = (_shortest if shortest else _before_java_19)(abs(number), bits)
    return sign + _layout(digits.rstrip("0") or "0", point)


def _layout(digits: str, point: int) -> str:
    """`point`: the place of the decimal point relative to the first digit."""
    if 0 < point < 8:
        return f"{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if -3 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    return f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _shortest(number: float, bits: int) -> tuple[str, int]:
    text = repr(number) if bits == 64 else str(np.float32(number))
    _, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)
    if len(digits) == 1:
        # Of the texts with two digits, the closest: 4.9E-324, not 5E-324.
        exact = f"{Decimal(number):.1e}"
        same = float(exact) == number if bits == 64 else np.float32(exact) == np.float32(number)
        if same:
            _, digits, exponent = Decimal(exact).as_tuple()
            assert isinstance(exponent, int)
    return "".join(map(str, digits)), len(digits) + exponent


def _parts(number: float, bits: int) -> tuple[int, int, int]:
    """The fraction with its hidden bit, the binary exponent, and how many bits are significant."""
    if bits == 64:
        (raw,) = struct.unpack(">Q", struct.pack(">d", number))
        width, bias = _FRACTION, 1023
    else:
        (raw,) = struct.unpack(">I", struct.pack(">f", number))
        width, bias = 23, 127
    exponent, fraction = raw >> width, raw & ((1 << width) - 1)
    if exponent:
        significant, fraction = width + 1, fraction | 1 << width
    else:
        significant = fraction.bit_length()
        shift = width + 1 - significant
        fraction, exponent = fraction << shift, 1 - shift
    return fraction << (_FRACTION - width), exponent - bias, significant


def _before_java_19(number: float, bits: int) -> tuple[str, int]:
    fraction, exponent, significant = _parts(number, bits)
    zeros = (fraction & -fraction).bit_length() - 1
    fraction_bits = _FRACTION + 1 - zeros
    tiny = max(0, fraction_bits - exponent - 1)
    if -21 <= exponent <= 62 and tiny == 0 and fraction_bits < 64:
        return _whole_number(fraction, exponent, significant)
    mantissa = struct.unpack(">d", struct.pack(">Q", 1023 << 52 | fraction & (1 << 52) - 1))[0]
    estimate = (mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981
    decimal_exponent = math.floor(estimate)
    b5, s5 = max(0, -decimal_exponent), max(0, decimal_exponent)
    b2, s2 = b5 + tiny + exponent, s5 + tiny
    m2 = b2 - significant
    fraction >>= zeros
    b2 -= fraction_bits - 1
    common = min(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    if fraction_bits == 1:
        m2 -= 1
    if m2 < 0:
        b2, s2, m2 = b2 - m2, s2 - m2, 0
    b_bits = fraction_bits + b2 + (_FIVE_BITS[b5] if b5 < _SMALL else 3 * b5)
    s_bits = s2 + 1 + (_FIVE_BITS[s5 + 1] if s5 + 1 < _SMALL else 3 * (s5 + 1))
    most = max(b_bits, s_bits)
    width = 32 if most < 32 else 64 if most < 64 else None
    b, s, m = fraction * 5**b5 << b2, 5**s5 << s2, 5**b5 << m2
    return _digits(b, s, m, decimal_exponent, width)


def _digits(b: int, s: int, m: int, exponent: int, width: int | None) -> tuple[str, int]:
    """`width`: of the integers that Java uses, whose overflow is part of the algorithm; None: any
    number of bits."""
    tens = 10 * s

    def is_high() -> bool:
        return b + m >= tens if width is None else _wrap(b + m, width) > tens

    digits: list[int] = []
    q, b = b // s, 10 * (b % s)
    m = _wrap(10 * m, width)
    low, high = b < m, is_high()
    if q == 0 and not high:
        exponent -= 1
    else:
        digits.append(q)
    if exponent < -3 or exponent >= 8:
        low = high = False
    while not low and not high:
        q, b = b // s, 10 * (b % s)
        m = _wrap(10 * m, width)
        low, high = (b < m, is_high()) if m > 0 else (True, True)
        digits.append(q)
    difference = 2 * b - tens
    if high and (not low or difference > 0 or (difference == 0 and digits[-1] % 2)):
        rounded = str(int("".join(map(str, digits))) + 1)
        return rounded, exponent + 1 + len(rounded) - len(digits)
    return "".join(map(str, digits)), exponent + 1


def _wrap(number: int, width: int | None) -> int:
    if width is None:
        return number
    half = 1 << (width - 1)
    return (number + half) % (2 * half) - half


def _whole_number(fraction: int, exponent: int, significant: int) -> tuple[str, int]:
    power = exponent - significant - 1
    insignificant = len(str(1 << power)) - 1 if power > 1 else 0
    shift = exponent - _FRACTION
    whole = fraction << shift if shift >= 0 else fraction >> -shift
    if insignificant:
        unit = 10**insignificant
        whole, residue = divmod(whole, unit)
        whole += residue >= unit // 2
    text = str(whole)
    return text, len(text) + insignificant
