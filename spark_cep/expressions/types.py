"""Spark's type rules for the operations that the engine computes, and literals.

`common_type` is the type in which Spark compares two values; `arithmetic_rule` gives the type of a
result and those to which Spark casts the operands. None leaves the operation to Spark: the rule is
unknown, the result would be rounded, or it depends on the session's time zone. Checked against
Spark 4.3's analyzer with ANSI on and off, which differ for integers with floats (ANSI: DOUBLE) and
for strings with other types (only ANSI is here).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from spark_cep.udfs.expressions import BIGINT, BOOL, DOUBLE, CellReading, Constant, Type

MAX_PRECISION = 38
INTERVAL = Type("interval")
NUMBERS = frozenset({"int", "float", "decimal"})
TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
# Kinds that the engine can order and compare. "other" is left to Spark.
COMPARABLE = NUMBERS | TIMES | {"bool", "string", "binary", "interval", "months"}
_INT_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_INT_NAMES = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_NAMES = {
    "bool": "BOOLEAN",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "interval": "INTERVAL DAY TO SECOND",
    "months": "INTERVAL YEAR TO MONTH",
    "null": "VOID",
    "other": "a nested or collated type",
}
Operator = Literal["+", "-", "*", "/", "%", "div"]
# Zones with a fixed offset, in which differences of local times equal those of instants.
_FIXED_ZONE = re.compile(
    r"(utc|gmt|z|etc/(utc|gmt|uct|zulu)|(utc|gmt)?[+-]\d{1,2}(:?\d{2})?)", re.I
)


def name_of(type_: Type) -> str:
    """The SQL name of a type.

    >>> name_of(Type("decimal", precision=10, scale=2))
    'DECIMAL(10,2)'
    """
    if type_.kind == "int":
        return _INT_NAMES[type_.bits]
    if type_.kind == "float":
        return "FLOAT" if type_.bits == 32 else "DOUBLE"
    if type_.kind == "decimal":
        return f"DECIMAL({type_.precision},{type_.scale})"
    return _NAMES[type_.kind]


_SYNONYMS = {
    "boolean": Type("bool"), "bool": Type("bool"),
    "tinyint": Type("int", 8), "byte": Type("int", 8),
    "smallint": Type("int", 16), "short": Type("int", 16),
    "int": Type("int", 32), "integer": Type("int", 32),
    "bigint": BIGINT, "long": BIGINT,
    "float": Type("float", 32), "real": Type("float", 32),
    "double": DOUBLE,
    "string": Type("string"), "binary": Type("binary"), "date": Type("date"),
    "timestamp": Type("timestamp"), "timestamp_ltz": Type("timestamp"),
    "timestamp_ntz": Type("timestamp_ntz"),
    "interval day to second": INTERVAL,
    "decimal": Type("decimal", precision=10), "dec": Type("decimal", precision=10),
    "numeric": Type("decimal", precision=10),
}  # fmt: skip
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def parse_type(text: str) -> Type | None:
    """The type with a SQL name; None for types that the engine does not compute with.

    >>> parse_type("decimal(12, 3)")
    Type(kind='decimal', bits=64, precision=12, scale=3)
    """
    words = " ".join(text.lower().split())
    found = _DECIMAL.fullmatch(words)
    if found is not None:
        precision, scale = int(found[1]), int(found[2] or 0)
        if scale <= precision <= MAX_PRECISION:
            return Type("decimal", precision=precision, scale=scale)
        return None
    return _SYNONYMS.get(words)


def is_fixed_zone(time_zone: str) -> bool:
    return _FIXED_ZONE.fullmatch(time_zone.strip()) is not None


def as_decimal(type_: Type) -> Type:
    """The decimal type that holds every value of an integer type."""
    if type_.kind == "int":
        return Type("decimal", precision=_INT_DIGITS[type_.bits])
    return type_


def common_type(left: Type, right: Type, *, ansi: bool) -> Type | None:  # noqa: PLR0911
    """The type in which Spark compares the two."""
    if left == right:
        return left
    kinds = {left.kind, right.kind}
    if "null" in kinds:
        return right if left.kind == "null" else left
    if kinds <= NUMBERS:
        return _common_number_type(left, right, ansi=ansi)
    if kinds in ({"date", "timestamp"}, {"timestamp", "timestamp_ntz"}):
        return Type("timestamp")
    if kinds == {"date", "timestamp_ntz"}:
        return Type("timestamp_ntz")
    if len(kinds) == 1 and kinds <= {"interval", "months", "bool", "string", "binary"}:
        return left
    if "string" in kinds and ansi:
        return _common_with_string(right if left.kind == "string" else left)
    return None


def _common_number_type(left: Type, right: Type, *, ansi: bool) -> Type | None:
    kinds = {left.kind, right.kind}
    if kinds in ({"int"}, {"float"}):
        return left if left.bits >= right.bits else right
    if kinds == {"int", "float"}:
        return DOUBLE if ansi else (left if left.kind == "float" else right)
    if "float" in kinds:
        return DOUBLE
    return _wider_decimal(as_decimal(left), as_decimal(right))


def _wider_decimal(left: Type, right: Type) -> Type | None:
    scale = max(left.scale, right.scale)
    return _exact_decimal(
        scale + max(left.precision - left.scale, right.precision - right.scale), scale
    )


def _common_with_string(other: Type) -> Type | None:
    """ANSI: a string is cast to the other type; for numbers, to the widest one."""
    if other.kind == "int":
        return BIGINT
    if other.kind in {"float", "decimal"}:
        return DOUBLE
    return other if other.kind in TIMES | {"bool"} else None


def _exact_decimal(precision: int, scale: int) -> Type | None:
    """A decimal type; None if Spark would drop digits to make it fit."""
    if precision > MAX_PRECISION:
        return None
    return Type("decimal", precision=precision, scale=scale)


@dataclass(frozen=True)
class ArithmeticRule:
    """The type of a result, and the types that the operands are cast to."""

    type: Type
    left: Type
    right: Type


def arithmetic_rule(  # noqa: PLR0911
    operator: Operator, left: Type, right: Type, *, ansi: bool, fixed_zone: bool
) -> ArithmeticRule | None:
    kinds = (left.kind, right.kind)
    if "null" in kinds:
        return None
    if kinds[0] in NUMBERS and kinds[1] in NUMBERS:
        return _on_numbers(operator, left, right, ansi=ansi)
    if kinds == ("interval", "interval"):
        if operator in {"+", "-"}:
            return ArithmeticRule(INTERVAL, left, right)
        return ArithmeticRule(BIGINT, left, right) if operator == "div" else None
    if kinds == ("interval", "int") and operator == "*":
        return ArithmeticRule(INTERVAL, left, BIGINT)
    if kinds == ("int", "interval") and operator == "*":
        return ArithmeticRule(INTERVAL, BIGINT, right)
    if operator == "-" and kinds[0] in TIMES and kinds[1] in TIMES:
        return _time_difference(left, right, fixed_zone=fixed_zone)
    return _shift_time(operator, left, right, fixed_zone=fixed_zone)


def _time_difference(left: Type, right: Type, *, fixed_zone: bool) -> ArithmeticRule:
    """Spark subtracts local times: in a zone with daylight saving time the operands must become
    TIMESTAMP_NTZ first."""
    local = Type("timestamp_ntz")
    kinds = {left.kind, right.kind}
    if kinds == {"date"} or (fixed_zone and kinds == {"timestamp"}):
        return ArithmeticRule(INTERVAL, left, right)
    return ArithmeticRule(INTERVAL, local, local)


def _shift_time(
    operator: Operator, left: Type, right: Type, *, fixed_zone: bool
) -> ArithmeticRule | None:
    """A time plus or minus an interval. A day of a TIMESTAMP need not have 24 hours."""
    if operator == "+" and left.kind == "interval":
        swapped = _shift_time(operator, right, left, fixed_zone=fixed_zone)
        return None if swapped is None else ArithmeticRule(swapped.type, left, right)
    exact = left.kind == "timestamp_ntz" or (left.kind == "timestamp" and fixed_zone)
    if operator in {"+", "-"} and exact and right.kind == "interval":
        return ArithmeticRule(left, left, right)
    return None


def _on_numbers(
    operator: Operator, left: Type, right: Type, *, ansi: bool
) -> ArithmeticRule | None:
    kinds = {left.kind, right.kind}
    if "decimal" in kinds and "float" not in kinds:
        return _on_decimals(operator, as_decimal(left), as_decimal(right))
    if operator == "div":
        return ArithmeticRule(BIGINT, left, right) if kinds == {"int"} else None
    if operator == "/":
        return ArithmeticRule(DOUBLE, DOUBLE, DOUBLE)
    both = _common_number_type(left, right, ansi=ansi)
    return None if both is None else ArithmeticRule(both, both, both)


def _on_decimals(operator: Operator, left: Type, right: Type) -> ArithmeticRule | None:
    whole = (left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    result: Type | None = None
    if operator in {"+", "-"}:
        result = _exact_decimal(max(whole) + scale + 1, scale)
    elif operator == "*":
        result = _exact_decimal(left.precision + right.precision + 1, left.scale + right.scale)
    elif operator == "%":
        result = _exact_decimal(min(whole) + scale, scale)
    elif operator == "div":
        result = BIGINT
    return None if result is None else ArithmeticRule(result, left, right)


def widens(source: Type, target: Type) -> bool:
    """Whether the engine's `cast` always gives Spark's exact value and never fails."""
    if source == target or source.kind == "null":
        return True
    kinds = (source.kind, target.kind)
    if kinds in {("int", "int"), ("float", "float")}:
        return source.bits <= target.bits
    if kinds in (("int", "float"), ("date", "timestamp_ntz")):
        return True
    if kinds == ("decimal", "float"):
        return target.bits == DOUBLE.bits
    if kinds[1] == "decimal" and kinds[0] in {"int", "decimal"}:
        source = as_decimal(source)
        whole = source.precision - source.scale
        return source.scale <= target.scale and whole <= target.precision - target.scale
    return False


def aggregate_type(reading: CellReading, type_: Type) -> Type | None:  # noqa: PLR0911
    """The type of an aggregate over values of a type; None if Spark has no such aggregate, or
    the engine cannot compute it exactly."""
    kind = type_.kind
    if reading == "count":
        return BIGINT
    if reading in {"first", "last", "each", "prev"}:
        return type_
    if reading in {"min", "max"}:
        return type_ if kind in COMPARABLE else None
    if kind == "interval":
        return type_
    if kind in {"int", "float"}:
        return BIGINT if (reading, kind) == ("sum", "int") else DOUBLE
    if kind != "decimal":
        return None
    if reading == "sum":
        return Type(
            "decimal", precision=min(MAX_PRECISION, type_.precision + 10), scale=type_.scale
        )
    if type_.scale + 4 > MAX_PRECISION:
        return None
    return Type("decimal", precision=min(MAX_PRECISION, type_.precision + 4), scale=type_.scale + 4)


# ---- literals ------------------------------------------------------------------------------------


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


def parse_literal(text: str) -> Constant | None:
    """The constant of a plain literal; None if Spark must evaluate the text. Types are those of
    Spark's parser: 1.50 is DECIMAL(3,2), 1e3 DOUBLE. Decimals are unscaled, times and intervals in
    microseconds.

    >>> parse_literal("1.50")
    Constant(value=150, type=Type(kind='decimal', bits=64, precision=3, scale=2))
    >>> parse_literal("INTERVAL '5' MINUTES").value
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


def convert_constant(constant: Constant, target: Type) -> Constant | None:
    """The constant cast to a type; None unless it is exact or rounded as Spark rounds."""
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
        return None  # rounding twice, through double, could differ from rounding once
    return Constant(struct.unpack("f", struct.pack("f", value))[0], target)


def narrowest_decimal(constant: Constant) -> Type:
    """The type of a literal in an operation with a decimal: an integer has only the digits that it
    needs."""
    if constant.type.kind == "int" and constant.value is not None:
        return Type("decimal", precision=len(str(abs(constant.value))))
    return as_decimal(constant.type)


def sql_cast(text: str, target: Type, *, safely: bool) -> str:
    """SQL for a cast. `safely`: NULL where it fails, so that a comparison is NULL and rejects."""
    # The meaning of TIMESTAMP is a setting of the session; that of TIMESTAMP_LTZ is not.
    name = "TIMESTAMP_LTZ" if target.kind == "timestamp" else name_of(target)
    return f"{'try_cast' if safely else 'CAST'}(({text}) AS {name})"


assert BIGINT.bits == _SUFFIX_BITS["l"]
