"""Numbers as text: a few digits, in one format for explain, its page and analyze.

Estimates and counts range from a share of one to 10^30, so large ones are powers of ten. An unknown
number is "unknown", never 0.
"""

from __future__ import annotations

import math

UNKNOWN = "unknown"
# Numbers from here on are powers of ten: 1.2e6 is easier to read than 1,234,567.
_LONG_NUMBER = 1_000_000
# Factors from here on are 1.0 when rounded to two digits.
_ABOUT_ONE = 0.995


def format_amount(value: float | None) -> str:
    """A count, or the estimate of a count.

    >>> tuple(map(format_amount, [0, 0.00123, 3.14159, 24_000, 1.23e7, None]))
    ('0', '0.0012', '3.1', '24,000', '1.2e7', 'unknown')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞"
    if value == int(value) and abs(value) < _LONG_NUMBER:
        return f"{int(value):,}"
    if abs(value) < 1:
        return format_power(value) if abs(value) < 1e-4 else f"{value:.2g}"  # noqa: PLR2004
    if abs(value) < 10:
        return f"{value:.1f}"
    return format_power(value) if abs(value) >= _LONG_NUMBER else f"{value:,.0f}"


def format_power(value: float) -> str:
    """
    >>> format_power(1_234_567), format_power(0.00001)
    ('1.2e6', '1.0e-5')
    """
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def format_factor(value: float | None, base: float | None) -> str:
    """A value as a multiple of `base`; empty if either is unknown or `base` is 0.

    >>> pairs = [(20, 20), (3000, 2), (1, 400), (999, 1000), (5, 0)]
    >>> tuple(format_factor(*pair) for pair in pairs)
    ('1.0x', '1,500x', '0.0025x', '1.0x', '')
    """
    if value is None or base is None or not (base > 0 and math.isfinite(base)):
        return ""
    factor = value / base
    return f"{factor:.1f}x" if _ABOUT_ONE <= factor < 10 else f"{format_amount(factor)}x"


def format_duration(us: float) -> str:
    """
    >>> format_duration(900), format_duration(12_300), format_duration(4_000_000)
    ('0.9 ms', '12 ms', '4.0 s')
    """
    if us >= 1_000_000:
        return f"{us / 1_000_000:.1f} s"
    return f"{us / 1000:.1f} ms" if us < 10_000 else f"{us / 1000:.0f} ms"
