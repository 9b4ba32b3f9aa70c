"""exp, log, log10 and power as Java's StrictMath computes them, which is fdlibm.

The C library of a worker rounds its results more precisely, so that the last digit may differ from
Spark's. These are the published algorithms over Python's floats; they come with this notice:

    Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
    Permission to use, copy, modify, and distribute this software is freely granted, provided that
    this notice is preserved.
"""

# ruff: noqa: PLR0911, PLR0912, PLR2004

from __future__ import annotations

import math
import struct
from typing import Final

_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_TWO54: Final = 1.80143985094819840000e16


def _high(x: float) -> int:
    """The upper 32 bits, signed."""
    return int(struct.unpack(">i", struct.pack(">d", x)[:4])[0])


def _low(x: float) -> int:
    return int(struct.unpack(">I", struct.pack(">d", x)[4:])[0])


def _with_high(x: float, high: int) -> float:
    packed = struct.pack(">I", high & 0xFFFFFFFF) + struct.pack(">d", x)[4:]
    return float(struct.unpack(">d", packed)[0])


def _without_low(x: float) -> float:
    return float(struct.unpack(">d", struct.pack(">d", x)[:4] + b"\0\0\0\0")[0])


# ---- log -----------------------------------------------------------------------------------------


_LG: Final = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
    1.479819860511658591e-01,
)  # fmt: skip


def log(x: float) -> float:
    """
    >>> log(1.0), log(10.0), log(math.inf)
    (0.0, 2.302585092994046, inf)
    """
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    if math.isinf(x):
        return x
    k = 0
    if _high(x) < 0x00100000:  # subnormal
        k, x = -54, x * _TWO54
    hx = _high(x)
    k += (hx >> 20) - 1023
    hx &= 0x000FFFFF
    i = (hx + 0x95F64) & 0x100000
    x = _with_high(x, hx | (i ^ 0x3FF00000))
    k += i >> 20
    f, dk = x - 1.0, float(k)
    if (0x000FFFFF & (2 + hx)) < 3:  # |f| < 2**-20
        if f == 0.0:
            return 0.0 if k == 0 else dk * _LN2_HIGH + dk * _LN2_LOW
        r = f * f * (0.5 - 0.33333333333333333 * f)
        if k == 0:
            return f - r
        return dk * _LN2_HIGH - ((r - dk * _LN2_LOW) - f)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (_LG[1] + w * (_LG[3] + w * _LG[5]))
    t2 = z * (_LG[0] + w * (_LG[2] + w * (_LG[4] + w * _LG[6])))
    r = t2 + t1
    if ((hx - 0x6147A) | (0x6B851 - hx)) > 0:
        hfsq = 0.5 * f * f
        if k == 0:
            return f - (hfsq - s * (hfsq + r))
        return dk * _LN2_HIGH - ((hfsq - (s * (hfsq + r) + dk * _LN2_LOW)) - f)
    if k == 0:
        return f - s * (f - r)
    return dk * _LN2_HIGH - ((s * (f - r) - dk * _LN2_LOW) - f)


_IVLN10: Final = 4.34294481903251816668e-01
_LOG10_2_HIGH: Final = 3.01029995663611771306e-01
_LOG10_2_LOW: Final = 3.69423907715893078616e-13


def log10(x: float) -> float:
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    if math.isinf(x):
        return x
    k = 0
    if _high(x) < 0x00100000:
        k, x = -54, x * _TWO54
    hx = _high(x)
    k += (hx >> 20) - 1023
    i = 1 if k < 0 else 0
    hx = (hx & 0x000FFFFF) | ((0x3FF - i) << 20)
    y = float(k + i)
    z = y * _LOG10_2_LOW + _IVLN10 * log(_with_high(x, hx))
    return z + y * _LOG10_2_HIGH


# ---- exp -----------------------------------------------------------------------------------------


_P: Final = (
    1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05,
    -1.65339022054652515390e-06, 4.13813679705723846039e-08,
)  # fmt: skip
_INVERSE_LN2: Final = 1.44269504088896338700e00


def exp(x: float) -> float:
    """
    >>> exp(0.0), exp(1.0), exp(1000.0), exp(-1000.0)
    (1.0, 2.7182818284590455, inf, 0.0)
    """
    if math.isnan(x):
        return x
    if x > 7.09782712893383973096e02:
        return math.inf
    if x < -7.45133219101941108420e02:
        return 0.0
    negative, hx, k, high, low = x < 0, _high(x) & 0x7FFFFFFF, 0, 0.0, 0.0
    if hx > 0x3FD62E42:  # |x| > ln(2) / 2
        if hx < 0x3FF0A2B2:  # |x| < 1.5 ln(2)
            k = -1 if negative else 1
            high, low = x - k * _LN2_HIGH, k * _LN2_LOW
        else:
            k = int(_INVERSE_LN2 * x + (-0.5 if negative else 0.5))
            high, low = x - k * _LN2_HIGH, k * _LN2_LOW
        x = high - low
    elif hx < 0x3E300000:
        return 1.0 + x
    t = x * x
    c = x - t * (_P[0] + t * (_P[1] + t * (_P[2] + t * (_P[3] + t * _P[4]))))
    if k == 0:
        return 1.0 - ((x * c) / (c - 2.0) - x)
    y = 1.0 - ((low - (x * c) / (2.0 - c)) - high)
    if k >= -1021:
        return _with_high(y, _high(y) + (k << 20)) if k < 1024 else y * 2.0 * 2.0**1023
    return _with_high(y, _high(y) + ((k + 1000) << 20)) * 2.0**-1000


# ---- power ---------------------------------------------------------------------------------------


_L: Final = (
    5.99999999999994648725e-01, 4.28571428578550184252e-01, 3.33333329818377432918e-01,
    2.72728123808534006489e-01, 2.30660745775561754067e-01, 2.06975017800338417784e-01,
)  # fmt: skip
_BP: Final = (1.0, 1.5)
_DP_HIGH: Final = (0.0, 5.84962487220764160156e-01)
_DP_LOW: Final = (0.0, 1.35003920212974897128e-08)
_LG2: Final = 6.93147180559945286227e-01
_LG2_HIGH: Final = 6.93147182464599609375e-01
_LG2_LOW: Final = -1.90465429995776804525e-09
_OVERFLOW: Final = 8.0085662595372944372e-17
_CP: Final = 9.61796693925975554329e-01
_CP_HIGH: Final = 9.61796700954437255859e-01
_CP_LOW: Final = -7.02846165095275826516e-09
_IVLN2: Final = 1.44269504088896338700e00
_IVLN2_HIGH: Final = 1.44269502162933349609e00
_IVLN2_LOW: Final = 1.92596299112661746887e-08


def power(x: float, y: float) -> float:
    """
    >>> power(2.0, 10.0), power(-8.0, 3.0), power(0.0, -1.0), power(1.0, math.inf)
    (1024.0, -512.0, inf, nan)
    """
    if y == 0.0:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    magnitude = abs(x)
    odd = _oddness(y) if x < 0 or (x == 0 and math.copysign(1, x) < 0) else 0
    if math.isinf(y):
        if magnitude == 1.0:
            return math.nan
        return abs(y) if (magnitude > 1.0) == (y > 0) else 0.0
    if y == 1.0:
        return x
    if y == -1.0:
        return _inverse(x)
    if y == 2.0:
        return x * x
    if y == 0.5 and x >= 0:
        return math.sqrt(x + 0.0)
    if magnitude in (0.0, 1.0, math.inf):
        z = _inverse(magnitude) if y < 0 else magnitude
        if math.copysign(1, x) < 0:
            if magnitude == 1.0 and odd == 0:
                return math.nan
            if odd == 1:
                z = -z
        return z
    if x < 0 and odd == 0:
        return math.nan
    sign = -1.0 if x < 0 and odd == 1 else 1.0
    ix, iy = _high(magnitude), _high(y) & 0x7FFFFFFF
    if abs(y) > 2147483647.0001 or iy > 0x41E00000:
        if iy > 0x43F00000:
            if ix <= 0x3FEFFFFF:
                return math.inf if y < 0 else 0.0
            if ix >= 0x3FF00000:
                return math.inf if y > 0 else 0.0
        if ix < 0x3FEFFFFF:
            return sign * math.inf if y < 0 else sign * 0.0
        if ix > 0x3FF00000:
            return sign * math.inf if y > 0 else sign * 0.0
        t = magnitude - 1.0
        w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
        u = _IVLN2_HIGH * t
        v = t * _IVLN2_LOW - w * _IVLN2
        t1 = _without_low(u + v)
        t2 = v - (t1 - u)
    else:
        t1, t2 = _log2_in_parts(magnitude, ix)
    y1 = _without_low(y)
    p_low = (y - y1) * t1 + y * t2
    p_high = y1 * t1
    z = p_low + p_high
    j, i = _high(z), _low(z)
    if j >= 0x40900000:
        if ((j - 0x40900000) | i) != 0 or p_low + _OVERFLOW > z - p_high:
            return sign * math.inf
    elif (j & 0x7FFFFFFF) >= 0x4090CC00 and (
        ((j - _signed(0xC090CC00)) | i) != 0 or p_low <= z - p_high
    ):
        return sign * 0.0
    return sign * _exp2(p_high, p_low, j)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def _inverse(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1.0 / x


def _oddness(y: float) -> int:
    """0: not an integer, 1: odd, 2: even."""
    if abs(y) >= 2.0**53:
        return 2
    return 0 if y != math.floor(y) else 2 - int(abs(y)) % 2


def _log2_in_parts(ax: float, ix: int) -> tuple[float, float]:
    n = 0
    if ix < 0x00100000:
        ax *= 9007199254740992.0
        n -= 53
        ix = _high(ax)
    n += (ix >> 20) - 0x3FF
    j = ix & 0x000FFFFF
    ix = j | 0x3FF00000
    if j <= 0x3988E:
        k = 0
    elif j < 0xBB67A:
        k = 1
    else:
        k = 0
        n += 1
        ix -= 0x00100000
    ax = _with_high(ax, ix)
    u = ax - _BP[k]
    v = 1.0 / (ax + _BP[k])
    ss = u * v
    s_h = _without_low(ss)
    t_h = _with_high(0.0, ((ix >> 1) | 0x20000000) + 0x00080000 + (k << 18))
    t_l = ax - (t_h - _BP[k])
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = ss * ss
    r = s2 * s2 * (_L[0] + s2 * (_L[1] + s2 * (_L[2] + s2 * (_L[3] + s2 * (_L[4] + s2 * _L[5])))))
    r += s_l * (s_h + ss)
    s2 = s_h * s_h
    t_h = _without_low(3.0 + s2 + r)
    t_l = r - ((t_h - 3.0) - s2)
    u = s_h * t_h
    v = s_l * t_h + t_l * ss
    p_h = _without_low(u + v)
    p_l = v - (p_h - u)
    z_h = _CP_HIGH * p_h
    z_l = _CP_LOW * p_h + p_l * _CP + _DP_LOW[k]
    t = float(n)
    t1 = _without_low(((z_h + z_l) + _DP_HIGH[k]) + t)
    t2 = z_l - (((t1 - t) - _DP_HIGH[k]) - z_h)
    return t1, t2


def _exp2(p_high: float, p_low: float, j: int) -> float:
    i = j & 0x7FFFFFFF
    k = (i >> 20) - 0x3FF
    n = 0
    if i > 0x3FE00000:
        n = j + (0x00100000 >> (k + 1))
        k = ((n & 0x7FFFFFFF) >> 20) - 0x3FF
        t = _with_high(0.0, n & ~(0x000FFFFF >> k))
        n = ((n & 0x000FFFFF) | 0x00100000) >> (20 - k)
        if j < 0:
            n = -n
        p_high -= t
    t = _without_low(p_low + p_high)
    u = t * _LG2_HIGH
    v = (p_low - (t - p_high)) * _LG2 + t * _LG2_LOW
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * (_P[0] + t * (_P[1] + t * (_P[2] + t * (_P[3] + t * _P[4]))))
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    z = 1.0 - (r - z)
    j = _high(z) + (n << 20)
    if (j >> 20) <= 0:
        return math.ldexp(z, n)
    return _with_high(z, j)


# ---- cube root -----------------------------------------------------------------------------------


def cbrt(x: float) -> float:
    if x == 0 or not math.isfinite(x):
        return x
    sign, x = math.copysign(1.0, x), abs(x)
    high = _high(x)
    if high < 0x00100000:
        t = _with_high(0.0, _high(2.0**54 * x) // 3 + 696219795)
    else:
        t = _with_high(0.0, high // 3 + 715094163)
    r = t * t / x
    s = 19 / 35 + r * t
    t *= 5 / 14 + (45 / 28) / (s + 99 / 70 + (-864 / 1225) / s)
    t = _with_high(0.0, _high(t) + 1)
    s = t * t
    r = x / s
    r = (r - t) / (t + t + r)
    return sign * (t + t * r)
