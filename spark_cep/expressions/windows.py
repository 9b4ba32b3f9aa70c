"""WITHIN: the window as the user wrote it, and its size in the unit of the shipped event time.

The unit is a microsecond for timestamps, a day for dates, 1 for numbers (decimals unscaled).
Differences of integers are integers, so rounding a size down to the unit changes no comparison. A
day has 24 hours; months and years have no fixed length and are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError
from spark_cep.expressions.problems import Place, Problems
from spark_cep.expressions.types import NUMBERS, TIMES, UNITS_US, name_of
from spark_cep.udfs.program import Window

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Type


# Timestamps are between the years 1 and 9999, so a wider window contains all of them.
_ALL_TIME_US = Decimal(10_000 * 366 * UNITS_US["day"])
_SHORT = {
    "microsecond": "us micros",
    "millisecond": "ms millis msec msecs",
    "second": "s sec secs",
    "minute": "m min mins",
    "hour": "h hr hrs",
    "day": "d",
    "week": "w",
}
_UNIT = {
    spelling: unit_us
    for name, unit_us in UNITS_US.items()
    for spelling in (name, f"{name}s", *_SHORT[name].split())
}
_NO_LENGTH = re.compile(r"(mon|month|quarter|year|yr)s?")
_TERM = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([^\W\d]+)\s*(?:,|and\b)?", re.I)
_INTERVAL = re.compile(r"\s*interval\b(.*)", re.I | re.S)
_EXAMPLES = '"10 minutes", "1.5 hours", "1 hour 30 minutes" or a timedelta'


@dataclass(frozen=True)
class Within:
    """The window as the user wrote it; its unit depends on the order column."""

    duration: str | timedelta | int | float | None = None
    events: int | None = None


def window_of(within: Within, time: Type) -> Window:
    """The window for an event time of type `time`; raises PatternError."""
    if within.events is not None:
        return _of_events(within.events)
    duration = within.duration
    if time.kind in TIMES:
        size_us = parse_duration_us(duration)
        _check_positive(size_us, duration)
        unit_us = UNITS_US["day"] if time.kind == "date" else 1
        return Window("time", math.floor(min(size_us, _ALL_TIME_US) / unit_us))
    if time.kind in NUMBERS:
        return Window("time", _in_numbers(duration, time))
    raise PatternError(
        f"WITHIN needs an event time, but the first order column is {name_of(time)}",
        hint="order by a timestamp, a date or a number first",
    )


def check_window(within: Within) -> None:
    """Checks a window before the type of the event time is known; raises PatternError."""
    duration = within.duration
    if within.events is not None:
        _of_events(within.events)
    elif isinstance(duration, str | timedelta):
        _check(duration)
    else:
        _check_positive(_number(duration), duration)


def _check(duration: str | timedelta) -> None:
    problems = Problems()
    try:
        _check_positive(parse_duration_us(duration), duration)
    except PatternError as error:
        problems.take(error, Place.whole(str(duration)))
    problems.raise_if_any()


def _of_events(events: object) -> Window:
    if isinstance(events, bool) or not isinstance(events, int):
        raise PatternError(
            f"within(events=...) takes a number of rows, not {events!r}",
            hint="write within(events=2000)",
        )
    if events <= 0:
        raise PatternError(
            f"within(events={events}) must be positive", hint="write at least events=1"
        )
    return Window("events", events)


def _check_positive(size: Decimal, duration: object) -> None:
    if size <= 0:
        raise PatternError(
            f"WITHIN {duration} must be positive",
            hint=f"write a duration above zero: {_EXAMPLES}",
        )


def _in_numbers(duration: object, time: Type) -> int | float:
    if isinstance(duration, bool) or not isinstance(duration, int | float | Decimal):
        raise PatternError(
            f"WITHIN {duration} is a duration, but the first order column is {name_of(time)}",
            hint="write a number in the unit of the column: within(10)",
        )
    size = _number(duration)
    _check_positive(size, duration)
    if time.kind == "float":
        return float(duration)
    return math.floor(size.scaleb(time.scale if time.kind == "decimal" else 0))


def _number(duration: object) -> Decimal:
    if isinstance(duration, bool) or not isinstance(duration, int | float | Decimal):
        raise PatternError(
            f".within takes text, a timedelta or a number, not {type(duration).__name__}",
            hint=f"write {_EXAMPLES}",
        )
    size = Decimal(str(duration))
    if not size.is_finite():
        raise PatternError(f"WITHIN {duration} must be finite", hint="write a finite number")
    return size


def parse_duration_us(duration: object) -> Decimal:
    """A duration from text or a timedelta; raises PatternError."""
    if isinstance(duration, timedelta):
        return Decimal(duration // timedelta(microseconds=1))
    if isinstance(duration, bool) or not isinstance(duration, str):
        raise PatternError(
            f"within({duration!r}) needs a unit",
            hint=f"the first order column is a time: write '{duration} seconds'",
        )
    text = duration
    found = _INTERVAL.fullmatch(text)
    if found is not None:
        text = found[1]
    return _sum_of_terms(text.replace("'", " ").strip(), duration)


def _sum_of_terms(text: str, whole: str) -> Decimal:
    if re.fullmatch(r"[+-]?[\d.]+", text):
        raise PatternError(
            f"within({whole!r}) needs a unit", hint=f"write '{text} seconds' or another unit"
        )
    total, at = Decimal(0), 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise _invalid_duration(whole)
        total += _term(found[1], found[2].lower(), whole)
        at = found.end()
    if not text:
        raise _invalid_duration(whole)
    return total


def _term(number: str, unit: str, whole: str) -> Decimal:
    no_length = _NO_LENGTH.fullmatch(unit)
    if no_length is not None:
        raise PatternError(
            f"WITHIN {whole}: a {no_length[1]} has no fixed length",
            hint="write days: '30 days'",
        )
    if unit not in _UNIT:
        raise PatternError(
            f"WITHIN {whole}: unknown unit {unit}",
            hint="units are microseconds, milliseconds, seconds, minutes, hours, days and weeks",
        )
    try:
        return Decimal(number) * _UNIT[unit]
    except InvalidOperation:
        raise _invalid_duration(whole) from None


def _invalid_duration(whole: str) -> PatternError:
    return PatternError(f"WITHIN {whole!r} is not a duration", hint=f"write {_EXAMPLES}")
