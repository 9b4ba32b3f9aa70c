"""Numbers as people read them: a few digits, one spelling for explain, its page and analyze.

Estimates and counts reach from a share of one to 10^30, so large ones are powers of ten; what is
not known is said, never shown as 0.
"""

from __future__ import annotations

import math

UNKNOWN = "unknown"
# From here on digits stop helping: 1.2e6 is read faster than 1,234,567.
_LONG = 1_000_000
# From here on two digits round to a bare 1.
_ABOUT_ONE = 0.995


def amount(value: float | None) -> str:
    """A count or an estimate of one.

    >>> amount(0), amount(0.00123), amount(3.14159), amount(24_000), amount(1.23e7), amount(None)
    ('0', '0.0012', '3.1', '24,000', '1.2e7', 'unknown')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞"
    if value == int(value) and abs(value) < _LONG:
        return f"{int(value):,}"
    if abs(value) < 1:
        return power(value) if abs(value) < 1e-4 else f"{value:.2g}"  # noqa: PLR2004
    if abs(value) < 10:
        return f"{value:.1f}"
    return power(value) if abs(value) >= _LONG else f"{value:,.0f}"


def power(value: float) -> str:
    """
    >>> power(1_234_567), power(0.00001)
    ('1.2e6', '1.0e-5')
    """
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def times(value: float | None, base: float | None) -> str:
    """How many times `base` a value is; empty where that says nothing.

    >>> times(20, 20), times(3000, 2), times(1, 400), times(999, 1000), times(5, 0)
    ('1.0x', '1,500x', '0.0025x', '1.0x', '')
    """
    if value is None or base is None or not (base > 0 and math.isfinite(base)):
        return ""
    factor = value / base
    return f"{factor:.1f}x" if _ABOUT_ONE <= factor < 10 else f"{amount(factor)}x"


def seconds(us: float) -> str:
    """
    >>> seconds(900), seconds(12_300), seconds(4_000_000)
    ('0.9 ms', '12 ms', '4.0 s')
    """
    if us >= 1_000_000:
        return f"{us / 1_000_000:.1f} s"
    return f"{us / 1000:.1f} ms" if us < 10_000 else f"{us / 1000:.0f} ms"
