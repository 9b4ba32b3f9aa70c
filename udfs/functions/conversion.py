"""CAST between basic types, for values that are computed from several rows."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.functions.decimals import to_decimal
from spark_cep.udfs.functions.float_texts import float_text
from spark_cep.udfs.functions.numbers import as_float, quantize, saturated, to_integer, wrap
from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function
from spark_cep.udfs.functions.times import (
    date_text,
    parse_date,
    start_of_day,
    timestamp_text,
    to_day,
    to_instant,
    to_local,
)

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type

_DAY_US: Final = 86_400_000_000
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"([+-]?)([0-9]*)(?:\.[0-9]*)?")
_FLOAT: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_SPECIAL: Final = {
    "inf": math.inf, "+inf": math.inf, "infinity": math.inf, "+infinity": math.inf,
    "-inf": -math.inf, "-infinity": -math.inf, "nan": math.nan,
}  # fmt: skip
_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_SPACE: Final = "".join(map(chr, range(0x21))) + "\x7f"
# The exponent of a decimal text may not be so large that the digits fill the memory.
_MOST_EXPONENT: Final = 10_000


_NUMBERS: Final = frozenset({"int", "float", "decimal"})
_PAIRS: Final = frozenset(
    {
        ("date", "timestamp"), ("date", "timestamp_ntz"), ("timestamp", "date"),
        ("timestamp", "timestamp_ntz"), ("timestamp_ntz", "date"), ("timestamp_ntz", "timestamp"),
        ("timestamp", "float"), ("timestamp", "int"), ("string", "binary"), ("string", "date"),
        ("string", "bool"), ("binary", "string"),
    }
)  # fmt: skip


def converts(source: Type, target: Type) -> bool:
    """Whether the worker can cast between the types."""
    kinds = (source.kind, target.kind)
    if source == target or kinds in _PAIRS:
        return True
    if target.kind == "string":
        return source.kind in _NUMBERS | {"bool", "date", "timestamp", "timestamp_ntz"}
    if source.kind in {"string", "bool"} and target.kind in _NUMBERS:
        return True
    return source.kind in _NUMBERS and target.kind in _NUMBERS | {"bool"}


@bound_function("convert", "any string bool?")
def _convert(binding: Binding) -> Run:  # noqa: PLR0911
    """The second argument is the time zone; a third says whether floats are printed shortest."""
    source, target = binding.arguments[0], binding.result
    if source == target:
        return lambda value, *_: value
    if target.kind == "string":
        return _to_text(source, ansi=binding.ansi)
    if target.kind == "binary":
        return lambda text, *_: text.encode()
    if source.kind == "string":
        return _of_text(target, ansi=binding.ansi)
    if target.kind == "bool":
        return lambda value, *_: bool(value != 0)
    if source.kind in {"date", "timestamp", "timestamp_ntz"}:
        return _of_time(source, target, ansi=binding.ansi)
    return _of_number(source, target, ansi=binding.ansi)


@bound_function("try_convert", "any string bool?")
def _try_convert(binding: Binding) -> Run:
    """TRY_CAST: as under ANSI, with NULL for an error."""
    convert = _convert(Binding(binding.arguments, binding.result, ansi=True))

    def run(*values: Any) -> Any:
        try:
            return convert(*values)
        except Failure:
            return None

    return run


def _to_text(source: Type, *, ansi: bool) -> Run:
    kind = source.kind
    if kind == "decimal":
        if ansi:
            return lambda value, *_: format(_exact(value, source.scale), "f")
        # BigDecimal.toString, which has exponents: as str().
        return lambda value, *_: str(_exact(value, source.scale))
    simple: dict[str, Run] = {
        "int": lambda value, *_: str(value),
        "bool": lambda value, *_: "true" if value else "false",
        "date": lambda value, *_: date_text(value),
        "timestamp_ntz": lambda value, *_: timestamp_text(value),
        "timestamp": lambda value, zone, *_: timestamp_text(to_local(value, zone)),
        "binary": lambda value, *_: value.decode(errors="replace"),
        "float": lambda value, _, shortest: float_text(value, source.bits, shortest=shortest),
    }
    return simple[kind]


def _exact(value: int, scale: int) -> Decimal:
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))


def _of_text(target: Type, *, ansi: bool) -> Run:
    kind = target.kind
    if kind == "int":
        return lambda text, *_: _parse_integer(text.strip(_SPACE), target.bits, ansi=ansi)
    if kind == "float":
        return lambda text, *_: as_float(_parse_float(text), target)
    if kind == "decimal":
        return lambda text, *_: _parse_decimal(text.strip(_SPACE), target)
    if kind == "bool":
        return lambda text, *_: _parse_bool(text.strip(_SPACE).lower())
    return lambda text, *_: parse_date(text.strip(_SPACE))


def _parse_integer(text: str, bits: int, *, ansi: bool) -> int:
    if ansi:
        if _INTEGER.fullmatch(text) is None:
            raise Failure
        return to_integer(int(text), bits, ansi=True)
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) == len(found[1]):
        raise Failure
    return to_integer(int(found[1] + (found[2] or "0")), bits, ansi=True)


def _parse_float(text: str) -> float:
    stripped = text.strip(_SPACE[:-1])
    special = _SPECIAL.get(stripped.lower())
    if special is not None:
        return special
    found = _FLOAT.fullmatch(stripped)
    if found is None:
        raise Failure
    return float(found[1])


def _parse_decimal(text: str, target: Type) -> int:
    if _FLOAT.fullmatch(text) is None or text[-1] in "dDfF":
        raise Failure
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise Failure from None
    if abs(number.adjusted()) > _MOST_EXPONENT:
        raise Failure
    return _fit(number, target)


def _fit(number: Decimal, target: Type) -> int:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    value = int("".join(map(str, digits))) * (-1 if sign else 1)
    if exponent > 0:
        return to_decimal(value * 10**exponent, 0, target)
    return to_decimal(value, -exponent, target)


def _parse_bool(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise Failure
    return text in _TRUE


def _of_time(source: Type, target: Type, *, ansi: bool) -> Run:
    kinds = (source.kind, target.kind)
    found: dict[tuple[str, str], Run] = {
        ("date", "timestamp"): lambda days, zone, *_: start_of_day(days, zone),
        ("date", "timestamp_ntz"): lambda days, *_: days * _DAY_US,
        ("timestamp", "date"): lambda us, zone, *_: to_day(us, zone),
        ("timestamp", "timestamp_ntz"): lambda us, zone, *_: to_local(us, zone),
        ("timestamp_ntz", "date"): lambda us, *_: us // _DAY_US,
        ("timestamp_ntz", "timestamp"): lambda us, zone, *_: to_instant(us, zone),
        ("timestamp", "float"): lambda us, *_: as_float(us / 1_000_000, target),
    }
    if kinds == ("timestamp", "int"):
        return lambda us, *_: to_integer(us // 1_000_000, target.bits, ansi=ansi)
    return found[kinds]


def _of_number(source: Type, target: Type, *, ansi: bool) -> Run:
    if target.kind == "int":
        return _to_integer(source, target, ansi=ansi)
    if target.kind == "float":
        if source.kind == "decimal":
            return lambda value, *_: as_float(value / 10**source.scale, target)
        return lambda value, *_: as_float(float(value), target)
    if source.kind == "float":
        return lambda value, *_: _float_to_decimal(value, target)
    scale = source.scale if source.kind == "decimal" else 0
    return lambda value, *_: to_decimal(int(value), scale, target)


def _float_to_decimal(number: float, target: Type) -> int | None:
    if not math.isfinite(number):
        return None
    return _fit(quantize(Decimal(repr(number)), target.scale, ROUND_HALF_UP), target)


def _to_integer(source: Type, target: Type, *, ansi: bool) -> Run:
    bits = target.bits
    if source.kind == "decimal":
        unit = 10**source.scale

        def of_decimal(value: int, *_: Any) -> int:
            whole = abs(value) // unit * (-1 if value < 0 else 1)
            if not ansi and bits < 32:
                return wrap(wrap(whole, 32), bits)
            return to_integer(whole, bits, ansi=ansi)

        return of_decimal
    if source.kind != "float":
        return lambda value, *_: to_integer(int(value), bits, ansi=ansi)

    def of_float(number: float, *_: Any) -> int:
        if ansi:
            half = 1 << (bits - 1)
            if not math.isfinite(number) or not (
                math.floor(number) <= half - 1 and math.ceil(number) >= -half
            ):
                # The largest BIGINT is not a float: the next one is taken for it.
                if bits == 64 and number == float(half):
                    return half - 1
                raise Failure
            return int(number)
        return wrap(saturated(number, max(bits, 32)), bits)

    return of_float
