"""Literals that can be read here, without asking Spark; all others are Spark's to evaluate.

Values are as expressions.Constant wants them: decimals unscaled, times and intervals in
microseconds. Types are those of Spark's parser: 1.50 is DECIMAL(3,2), 1e3 DOUBLE.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal

from spark_cep.compiling.types import MAX_PRECISION, as_decimal, name_of
from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, Constant, Type

_INT = re.compile(r"(-?)\s*(\d+)([lsy]?)", re.I)
_POINT = re.compile(r"(-?)\s*(\d+\.\d*|\.\d+)(bd)?", re.I)
_DOUBLE = re.compile(r"(-?)\s*((?:\d+\.?\d*|\.\d+)e[+-]?\d+d?|(?:\d+\.?\d*|\.\d+)d)", re.I)
_STRING = re.compile(r"'([^'\\]*)'")
_INTERVAL = re.compile(r"interval\s+(?:'\s*(-?\d+)\s*'|(-?\d+))\s+([a-z]+)", re.I)
_SUFFIX_BITS = {"l": 64, "s": 16, "y": 8}
_WORDS = {
    "true": Constant(True, BOOL),
    "false": Constant(False, BOOL),
    "null": Constant(None, Type("null")),
}
UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}


def literal(text: str) -> Constant | None:
    """The constant that the text is, if it is a plain literal.

    >>> literal("1.50")
    Constant(value=150, type=Type(kind='decimal', bits=64, precision=3, scale=2))
    >>> literal("INTERVAL '5' MINUTES").value
    300000000
    """
    text = text.strip()
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    return _integer(text) or _decimal(text) or _double(text) or _string(text) or _interval(text)


def _integer(text: str) -> Constant | None:
    found = _INT.fullmatch(text)
    if found is None:
        return None
    value = int(found[1] + found[2])
    for bits in (32, 64) if not found[3] else (_SUFFIX_BITS[found[3].lower()],):
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return Constant(value, Type("int", bits))
    digits = len(str(abs(value)))
    if found[3] or digits > MAX_PRECISION:
        return None
    return Constant(value, Type("decimal", precision=digits))


def _decimal(text: str) -> Constant | None:
    found = _POINT.fullmatch(text)
    if found is None:
        return None
    return _of_decimal(Decimal(found[1] + found[2]))


def _of_decimal(value: Decimal) -> Constant | None:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)))
    precision = max(len(str(unscaled)), -exponent)
    if precision > MAX_PRECISION:
        return None
    return Constant(
        -unscaled if sign else unscaled, Type("decimal", precision=precision, scale=-exponent)
    )


def _double(text: str) -> Constant | None:
    found = _DOUBLE.fullmatch(text)
    if found is None:
        return None
    return Constant(float(found[1] + found[2].rstrip("dD")), DOUBLE)


def _string(text: str) -> Constant | None:
    found = _STRING.fullmatch(text)
    return None if found is None else Constant(found[1], Type("string"))


def _interval(text: str) -> Constant | None:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return None
    unit = found[3].lower()
    unit_us = UNITS_US.get(unit) or UNITS_US.get(unit.removesuffix("s"))
    if unit_us is None:
        return None
    return Constant(int(found[1] or found[2]) * unit_us, Type("interval"))


def converted(constant: Constant, target: Type) -> Constant | None:
    """The constant cast to a type, where that is exact or Spark's own rounding."""
    source, value = constant.type, constant.value
    if source == target:
        return constant
    if source.kind == "null" or value is None:
        return Constant(None, target)
    if target.kind == "float" and source.kind in {"int", "decimal", "float"}:
        return _to_float(constant, target)
    limit, digits = 0, 0
    if source.kind == "int" and target.kind == "int":
        limit = 1 << (target.bits - 1)
    elif source.kind in {"int", "decimal"} and target.kind == "decimal":
        limit, digits = 10**target.precision, target.scale - source.scale
    if digits < 0 or limit == 0 or abs(value) * 10**digits >= limit:
        return None
    return Constant(value * 10**digits, target)


def _to_float(constant: Constant, target: Type) -> Constant | None:
    value = constant.value
    if constant.type.kind == "decimal":
        if target.bits != DOUBLE.bits:
            return None
        # Dividing Python integers rounds once, as BigDecimal.doubleValue does.
        return Constant(value / 10**constant.type.scale, target)
    if target.bits == DOUBLE.bits:
        return Constant(float(value), target)
    if constant.type.kind == "int" and abs(value) >= 1 << 53:
        return None  # two roundings, by way of double, could differ from one
    return Constant(struct.unpack("f", struct.pack("f", value))[0], target)


def narrowest_decimal(constant: Constant) -> Type:
    """In a binary operation with a decimal, an integer literal has as many digits as it needs."""
    if constant.type.kind == "int" and constant.value is not None:
        return Type("decimal", precision=len(str(abs(constant.value))))
    return as_decimal(constant.type)


def sql_cast(text: str, target: Type, *, safely: bool) -> str:
    """`safely`: NULL where the cast fails, for a comparison that then is NULL and rejects."""
    # What TIMESTAMP means is a setting of the session; TIMESTAMP_LTZ is not.
    name = "TIMESTAMP_LTZ" if target.kind == "timestamp" else name_of(target)
    return f"{'try_cast' if safely else 'CAST'}(({text}) AS {name})"


assert BIGINT.bits == _SUFFIX_BITS["l"]
