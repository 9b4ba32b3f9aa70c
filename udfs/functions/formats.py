"""Texts made of formats: format_string, and dates and times by pattern."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from spark_cep.udfs.functions.float_texts import float_text
from spark_cep.udfs.functions.numbers import quantize, wrap
from spark_cep.udfs.functions.registry import Binding, Run, bound_function, function
from spark_cep.udfs.functions.times import DAY_US, SECOND_US, civil, to_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_cep.udfs.expressions import Type


# ---- format_string -------------------------------------------------------------------------------


_PIECE: Final = re.compile(r"%(?:(?P<flags>[-0+ ,]*)(?P<width>[1-9]\d*)?(?:\.(?P<digits>\d+))?"
                           r"(?P<kind>[sdxXf%n]))|(?P<text>[^%]+)|(?P<wrong>%)")  # fmt: skip


def printable(template: str, types: tuple[Type, ...]) -> bool:
    """Whether the worker prints the arguments as Java does: texts, integers, and floats."""
    at = 0
    for piece in _PIECE.finditer(template):
        kind, flags = piece["kind"], piece["flags"] or ""
        if piece["wrong"] or ("-" in flags and (not piece["width"] or "0" in flags)):
            return False
        if kind in {None, "%", "n"}:
            if kind and piece[0] != f"%{kind}":
                return False
            continue
        if at >= len(types) or not _fits(piece, types[at]):
            return False
        at += 1
    return True


def _fits(piece: re.Match[str], type_: Type) -> bool:
    kind, flags, digits = piece["kind"], piece["flags"] or "", piece["digits"]
    if "0" in flags and not piece["width"]:
        return False
    if kind == "s":
        return type_.kind in {"string", "int", "bool"} and not set(flags) - {"-"}
    if kind == "f":
        return type_.kind == "float" and not {"+", " "} <= set(flags)
    is_int = type_.kind == "int" and digits is None
    if kind == "d":
        return is_int and not {"+", " "} <= set(flags)
    return is_int and type_.bits >= 32 and not set(flags) - {"-", "0"}


@bound_function("format_string printf", "string any*", takes_null=True)
def _format_string(binding: Binding) -> Run:
    types = binding.arguments[1:]

    def run(template: str | None, *values: Any) -> str | None:
        if template is None:
            return None
        given = iter(zip(values, types, strict=True))
        return "".join(_printed(piece, given) for piece in _PIECE.finditer(template))

    return run


def _printed(piece: re.Match[str], given: Any) -> str:
    kind = piece["kind"]
    if kind is None:
        return piece["text"]
    if kind in "%n":
        return "%" if kind == "%" else "\n"
    value, type_ = next(given)
    flags, width = piece["flags"] or "", int(piece["width"] or 0)
    if value is None or kind == "s" or (kind == "f" and not math.isfinite(value)):
        shown = _plain_text(value)
        if value is not None and kind == "f" and value > 0:
            shown = ("+" if "+" in flags else " " if " " in flags else "") + shown
        shown = shown.upper() if kind == "X" else shown
        if piece["digits"] and (kind == "s" or value is None):
            shown = shown[: int(piece["digits"])]
        return shown.ljust(width) if "-" in flags else shown.rjust(width)
    if kind in "xX":
        shown = format(value % (1 << type_.bits), kind)
        pad = "0" if "0" in flags else " "
        return shown.ljust(width) if "-" in flags else shown.rjust(width, pad)
    if kind == "d":
        digits, is_negative = format(abs(value), "," if "," in flags else "d"), value < 0
    else:
        is_negative = math.copysign(1, value) < 0
        # Java rounds the digits that it prints.
        exact = Decimal(float_text(abs(value), 64, shortest=False))
        exact = quantize(exact, int(piece["digits"] or 6), ROUND_HALF_UP)
        digits = format(exact, ",f" if "," in flags else "f")
    sign = "-" if is_negative else "+" if "+" in flags else " " if " " in flags else ""
    if "0" in flags:
        return sign + digits.rjust(width - len(sign), "0")
    return (sign + digits).ljust(width) if "-" in flags else (sign + digits).rjust(width)


def _plain_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value)


# ---- times by pattern ----------------------------------------------------------------------------


_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
)  # fmt: skip
_PART: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")


def _year(value: int) -> str:
    return f"{'-' if value < 0 else '+' if value > 9999 else ''}{abs(value):04d}"


# By letters: what is printed of (year, month, day, microseconds of the day, weekday).
_PARTS: Final[dict[str, Callable[[tuple[int, ...]], str]]] = {
    "yyyy": lambda t: _year(t[0]),
    "y": lambda t: str(t[0]),
    "yy": lambda t: f"{abs(t[0]) % 100:02d}",
    "M": lambda t: str(t[1]),
    "MM": lambda t: f"{t[1]:02d}",
    "MMM": lambda t: _MONTHS[t[1] - 1][:3],
    "MMMM": lambda t: _MONTHS[t[1] - 1],
    "d": lambda t: str(t[2]),
    "dd": lambda t: f"{t[2]:02d}",
    "H": lambda t: str(t[3] // 3600 // SECOND_US),
    "HH": lambda t: f"{t[3] // 3600 // SECOND_US:02d}",
    "h": lambda t: str((t[3] // 3600 // SECOND_US - 1) % 12 + 1),
    "hh": lambda t: f"{(t[3] // 3600 // SECOND_US - 1) % 12 + 1:02d}",
    "m": lambda t: str(t[3] // 60 // SECOND_US % 60),
    "mm": lambda t: f"{t[3] // 60 // SECOND_US % 60:02d}",
    "s": lambda t: str(t[3] // SECOND_US % 60),
    "ss": lambda t: f"{t[3] // SECOND_US % 60:02d}",
    "a": lambda t: "AM" if t[3] < DAY_US // 2 else "PM",
    "E": lambda t: _DAYS[t[4]][:3],
    "EEE": lambda t: _DAYS[t[4]][:3],
    "EEEE": lambda t: _DAYS[t[4]],
    "q": lambda t: str((t[1] + 2) // 3),
    "Q": lambda t: str((t[1] + 2) // 3),
    **{
        "S" * n: lambda t, n=n: f"{t[3] % SECOND_US:06d}000"[:n]  # type: ignore[misc]
        for n in range(1, 10)
    },
}


def prints(pattern: str) -> bool:
    """Whether the worker prints times by a pattern.

    >>> prints("yyyy-MM-dd'T'HH:mm"), prints("VV")
    (True, False)
    """
    return _printers(pattern) is not None


@lru_cache(256)
def _printers(pattern: str) -> tuple[Callable[[tuple[int, ...]], str], ...] | None:
    found: list[Callable[[tuple[int, ...]], str]] = []
    at = 0
    for part in _PART.finditer(pattern):
        text = part[0]
        if part.start() != at or text in "[]{}#":
            return None
        at = part.end()
        if part[2]:
            printer = _PARTS.get(text)
            if printer is None:
                return None
            found.append(printer)
        else:
            literal = text if part[1] is None else part[1].replace("''", "'") or "'"
            found.append(lambda _, literal=literal: literal)  # type: ignore[misc]
    return tuple(found) if at == len(pattern) else None


def _print(local: int, pattern: str) -> str:
    days, us = divmod(local, DAY_US)
    printers = _printers(pattern)
    assert printers is not None
    return "".join(each((*civil(days), us, (days + 3) % 7)) for each in printers)


@function("date_format", "timestamp string", zoned=True)
def _date_format(us: int, pattern: str, zone: str) -> str:
    return _print(to_local(us, zone), pattern)


@function("from_unixtime", "bigint string?", zoned=True)
def _from_unixtime(seconds: int, *rest: str) -> str:
    pattern = rest[0] if len(rest) > 1 else "yyyy-MM-dd HH:mm:ss"
    return _print(to_local(wrap(seconds * SECOND_US, 64), rest[-1]), pattern)
