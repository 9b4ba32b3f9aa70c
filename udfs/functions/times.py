"""Functions of dates and timestamps, which are days and microseconds since 1970.

The calendar is the proleptic Gregorian one, for any year. A local time that a clock change skips is
moved forward by the gap, one that exists twice is the earlier one, as in java.time.
"""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from spark_cep.udfs.functions.decimals import divide_half_up
from spark_cep.udfs.functions.registry import Binding, Failure, Run, bound_function, function

if TYPE_CHECKING:
    from collections.abc import Callable


SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
_LONG: Final = 1 << 63
_INT: Final = 1 << 31
# After so many days the Gregorian calendar repeats, weekdays included.
_CYCLE_DAYS: Final = 146_097


# ---- the calendar --------------------------------------------------------------------------------


def civil(days: int) -> tuple[int, int, int]:
    """
    >>> civil(0), civil(-1), civil(-719529)
    ((1970, 1, 1), (1969, 12, 31), (-1, 12, 31))
    """
    days += 719_468
    era, day = divmod(days, _CYCLE_DAYS)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    number = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return year + era * 400 + (month <= 2), month, number


def days_of(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * _CYCLE_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _month_length(year: int, month: int) -> int:
    return calendar.monthrange(2000 + year % 400, month)[1]


def plus_months(days: int, months: int) -> int:
    year, month, day = civil(days)
    year, month = divmod(12 * year + month - 1 + months, 12)
    return days_of(year, month + 1, min(day, _month_length(year, month + 1)))


# ---- time zones ----------------------------------------------------------------------------------


_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAYS: Final = _EPOCH.toordinal()


def is_known_zone(name: str) -> bool:
    """
    >>> is_known_zone("Europe/Berlin"), is_known_zone("+02:00"), is_known_zone("Nowhere/Else")
    (True, True, False)
    """
    try:
        _zone(name)
    except (ValueError, OSError, KeyError):
        return False
    return True


@lru_cache(16)
def _zone(name: str) -> ZoneInfo | int:
    """A zone with clock changes, or a fixed offset in seconds."""
    if name in {"Z", "UTC", "GMT", "UT"}:
        return 0
    found = _OFFSET.fullmatch(name)
    if found is None:
        return ZoneInfo(name)
    seconds = int(found[2]) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
    return -seconds if found[1] == "-" else seconds


def _offset(zone: str, us: int, *, local: bool) -> int:
    """The offset in microseconds at an instant or at a local time."""
    known = _zone(zone)
    if isinstance(known, int):
        return known * SECOND_US
    # Years that datetime does not have follow the rules of years that it has.
    days, rest = divmod(us, DAY_US)
    year = civil(days)[0]
    cycles = 0 if 2 <= year <= 9998 else (year - 2400 if year > 9998 else year - 400) // 400
    days -= cycles * _CYCLE_DAYS
    moment = datetime.fromordinal(days + _EPOCH_DAYS) + timedelta(microseconds=rest)
    if local:
        found = moment.replace(tzinfo=known).utcoffset()
    else:
        found = moment.replace(tzinfo=UTC).astimezone(known).utcoffset()
    assert found is not None
    return found // timedelta(microseconds=1)


def to_local(us: int, zone: str) -> int:
    return us + _offset(zone, us, local=False)


def to_instant(local: int, zone: str, preferred: int | None = None) -> int:
    """`preferred`: the offset in microseconds to take if the local time exists twice."""
    if preferred is not None and _offset(zone, local - preferred, local=False) == preferred:
        return local - preferred
    return local - _offset(zone, local, local=True)


def to_day(us: int, zone: str) -> int:
    return to_local(us, zone) // DAY_US


def start_of_day(days: int, zone: str) -> int:
    return _checked(to_instant(days * DAY_US, zone))


def _checked(us: int) -> int:
    if not -_LONG <= us < _LONG:
        raise Failure(always=True)
    return us


def _checked_day(days: int) -> int:
    if not -_INT <= days < _INT:
        raise Failure(always=True)
    return days


# ---- fields --------------------------------------------------------------------------------------


def _of_year(days: int) -> int:
    return days - days_of(civil(days)[0], 1, 1) + 1


def _iso_week(days: int) -> tuple[int, int]:
    """Year and number of the week, which belongs to the year of its Thursday."""
    thursday = days - (days + 3) % 7 + 3
    return civil(thursday)[0], (_of_year(thursday) - 1) // 7 + 1


_DATE_FIELDS: Final[dict[str, Callable[[int], int]]] = {
    "year": lambda d: civil(d)[0],
    "quarter": lambda d: (civil(d)[1] - 1) // 3 + 1,
    "month": lambda d: civil(d)[1],
    "day dayofmonth": lambda d: civil(d)[2],
    "dayofyear": _of_year,
    "dayofweek": lambda d: (d + 4) % 7 + 1,
    "weekday": lambda d: (d + 3) % 7,
    "weekofyear": lambda d: _iso_week(d)[1],
    "yearofweek": lambda d: _iso_week(d)[0],
    "dayofweek_iso": lambda d: (d + 3) % 7 + 1,
}
for _names, _field in _DATE_FIELDS.items():
    function(_names, "date")(_field)
# The fields of EXTRACT and date_part, by the function that computes them.
EXTRACTED: Final = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), "year"),
    **dict.fromkeys(("quarter", "qtr"), "quarter"),
    **dict.fromkeys(("month", "mon", "mons", "months"), "month"),
    **dict.fromkeys(("week", "w", "weeks"), "weekofyear"),
    **dict.fromkeys(("day", "d", "days"), "day"),
    **dict.fromkeys(("dayofweek", "dow"), "dayofweek"),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), "dayofweek_iso"),
    "doy": "dayofyear",
    "yearofweek": "yearofweek",
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), "minute"),
    **dict.fromkeys(("second", "s", "sec", "seconds", "secs"), "second_fraction"),
}


def _bind_local(binding: Binding) -> Callable[[int, str], int]:
    """The local time of a timestamp of either kind, or of a date."""
    kind = binding.arguments[0].kind
    if kind == "timestamp":
        return to_local
    if kind == "date":
        return lambda days, zone: to_local(start_of_day(days, zone), zone)
    return lambda us, _: us


@bound_function("hour", "time", zoned=True)
def _hour(binding: Binding) -> Run:
    local = _bind_local(binding)
    return lambda us, zone: local(us, zone) % DAY_US // HOUR_US


@bound_function("minute", "time", zoned=True)
def _minute(binding: Binding) -> Run:
    local = _bind_local(binding)
    return lambda us, zone: local(us, zone) % HOUR_US // MINUTE_US


@bound_function("second", "time", zoned=True)
def _second(binding: Binding) -> Run:
    local = _bind_local(binding)
    return lambda us, zone: local(us, zone) % MINUTE_US // SECOND_US


@bound_function("second_fraction", "time", zoned=True)
def _second_with_fraction(binding: Binding) -> Run:
    local = _bind_local(binding)
    return lambda us, zone: local(us, zone) % MINUTE_US


function("to_date", "date")(lambda days: days)
function("unix_date", "date")(lambda days: days)
function("date_from_unix_date", "int")(lambda days: days)
function("unix_micros", "timestamp")(lambda us: us)
function("unix_millis", "timestamp")(lambda us: us // 1000)
function("unix_seconds", "timestamp")(lambda us: us // SECOND_US)
function("unix_timestamp to_unix_timestamp", "timestamp")(lambda us: _truncated(us, SECOND_US))
function("timestamp_micros", "bigint")(lambda us: us)
function("timestamp_millis", "bigint")(lambda ms: _checked(1000 * ms))


@function("make_date", "int int int")
def _make_date(year: int, month: int, day: int) -> int:
    if not 1 <= month <= 12 or not 1 <= day <= _month_length(year, month):
        raise Failure
    return days_of(year, month, day)


# ---- differences and shifts ----------------------------------------------------------------------


@function("date_add", "date int")
def _date_add(days: int, count: int) -> int:
    return _checked_day(days + count)


@function("date_sub", "date int")
def _date_sub(days: int, count: int) -> int:
    return _checked_day(days - count)


@function("date_diff datediff", "date date")
def _date_diff(later: int, earlier: int) -> int:
    return later - earlier


@function("add_months", "date int")
def _add_months(days: int, months: int) -> int:
    return _checked_day(plus_months(days, months))


@function("months_between", "timestamp timestamp bool?", zoned=True)
def _months_between(later: int, earlier: int, *rest: Any) -> float:
    *rounding, zone = rest
    (days1, seconds1), (days2, seconds2) = (
        (day, (us - start_of_day(day, zone)) // SECOND_US)
        for us in (later, earlier)
        for day in (to_day(us, zone),)
    )
    (year1, month1, day1), (year2, month2, day2) = civil(days1), civil(days2)
    months = 12 * (year1 - year2) + month1 - month2
    both_last = day1 == _month_length(year1, month1) and day2 == _month_length(year2, month2)
    if day1 == day2 or both_last:
        return float(months)
    seconds = (day1 - day2) * 86_400 + seconds1 - seconds2
    found = months + seconds / (31 * 86_400)
    if rounding and not rounding[0]:
        return found
    return _java_round(found * 1e8) / 1e8


def _java_round(number: float) -> int:
    """Math.round: ties towards positive infinity, exactly."""
    whole = int(number // 1)
    return whole + (2 * (number - whole) >= 1)


@function("last_day", "date")
def _last_day(days: int) -> int:
    year, month, _ = civil(days)
    return days_of(year, month, _month_length(year, month))


_WEEKDAYS: Final = {
    name[:size].upper(): place
    for place, name in enumerate(
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    )
    for size in (2, 3, len(name))
}


@function("next_day", "date string")
def _next_day(days: int, name: str) -> int:
    weekday = _WEEKDAYS.get(name.strip().upper())
    if weekday is None:
        raise Failure
    return days + (weekday - (days + 3) % 7 - 1) % 7 + 1


@bound_function("shift_months", "time any", zoned=True)
def _shift_months(binding: Binding) -> Run:
    """A time and an interval of months."""
    kind = binding.arguments[0].kind
    if kind == "date":
        return lambda days, months, _: _checked_day(plus_months(days, months))

    def shift(us: int, months: int, zone: str) -> int:
        if kind == "timestamp_ntz":
            return _checked(_shift_local_months(us, months))
        offset = _offset(zone, us, local=False)
        return _checked(to_instant(_shift_local_months(us + offset, months), zone, offset))

    return shift


def _shift_local_months(us: int, months: int) -> int:
    return plus_months(us // DAY_US, months) * DAY_US + us % DAY_US


@bound_function("shift_time", "time any", zoned=True)
def _shift_time(binding: Binding) -> Run:
    """A time and an interval of days to microseconds: first its days by the calendar, then the rest
    by the clock."""
    kind, result = binding.arguments[0].kind, binding.result.kind
    if kind == "date" and result == "date":
        return lambda days, interval, _: _checked_day(days + interval // DAY_US)

    def shift(moment: int, interval: int, zone: str) -> int:
        days = abs(interval) // DAY_US * (-1 if interval < 0 else 1)
        if result == "timestamp_ntz":
            return _checked((moment * DAY_US if kind == "date" else moment) + interval)
        us = start_of_day(moment, zone) if kind == "date" else moment
        if days:
            offset = _offset(zone, us, local=False)
            us = to_instant(us + offset + days * DAY_US, zone, offset)
        return _checked(us + interval - days * DAY_US)

    return shift


_UNIT_US: Final = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND_US,
    "minute": MINUTE_US,
    "hour": HOUR_US,
    "day": DAY_US,
    "dayofyear": DAY_US,
    "week": 7 * DAY_US,
}
# These go by the calendar, smaller units by the clock.
_DAY_UNITS: Final = frozenset({"day", "dayofyear", "week"})
_UNIT_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
TIME_UNITS: Final = frozenset({*_UNIT_US, *_UNIT_MONTHS})


@bound_function("timestampadd", "string bigint time", zoned=True)
def _timestamp_add(binding: Binding) -> Run:
    kind = binding.arguments[2].kind
    times = Binding(binding.arguments[2:] + binding.arguments[1:2], binding.result, binding.ansi)
    shift, shift_months = _shift_time(times), _shift_months(times)

    def add(unit: str, count: int, moment: int, zone: str) -> int:
        months = _UNIT_MONTHS.get(unit)
        if months is None and unit not in _DAY_UNITS:
            us = start_of_day(moment, zone) if kind == "date" else moment
            return _checked(us + count * _UNIT_US[unit])
        if months is None:
            return int(shift(moment, count * _UNIT_US[unit], zone))
        if kind == "date":
            moment = start_of_day(moment, zone)
        return int(shift_months(moment, count * months, zone))

    if kind == "date":
        shift_months = _shift_months(
            Binding((binding.result, *times.arguments[1:]), binding.result, binding.ansi)
        )
    return add


@function("timestampdiff", "string timestamp timestamp", zoned=True)
def _timestamp_diff(unit: str, start: int, end: int, zone: str) -> int:
    """Whole units between the local times."""
    low, high = to_local(start, zone), to_local(end, zone)
    months = _UNIT_MONTHS.get(unit)
    if months is None:
        return _truncated(high - low, _UNIT_US[unit])
    return _truncated(_whole_months(low, high), months)


def _truncated(number: int, unit: int) -> int:
    found = abs(number) // unit
    return -found if number < 0 else found


def _whole_months(start: int, end: int) -> int:
    (year1, month1, day1), (year2, month2, day2) = civil(start // DAY_US), civil(end // DAY_US)
    months = 12 * (year2 - year1) + month2 - month1
    rest = (day2, end % DAY_US), (day1, start % DAY_US)
    if months > 0 and rest[0] < rest[1]:
        return months - 1
    return months + 1 if months < 0 and rest[0] > rest[1] else months


@bound_function("divide_interval", "any number")
def _divide_interval(binding: Binding) -> Run:
    def divide(interval: int, number: int) -> int:
        if number == 0:
            raise Failure(always=True)
        return divide_half_up(interval, number)

    return divide


# ---- truncation ----------------------------------------------------------------------------------


_LEVELS: Final = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}
_DATE_LEVELS: Final = frozenset({"year", "quarter", "month", "week"})


def _first_day(days: int, level: str) -> int:
    if level == "week":
        return days - (days + 3) % 7
    year, month, _ = civil(days)
    if level == "quarter":
        month -= (month - 1) % 3
    return days_of(year, 1 if level == "year" else month, 1)


@function("trunc", "date string")
def _truncate_date(days: int, text: str) -> int | None:
    level = _LEVELS.get(text.upper())
    return _first_day(days, level) if level in _DATE_LEVELS else None


@function("date_trunc", "string timestamp", zoned=True)
def _truncate_timestamp(text: str, us: int, zone: str) -> int | None:
    level = _LEVELS.get(text.upper())
    if level is None:
        return None
    if level in {"microsecond", "millisecond", "second"}:
        return us - us % _UNIT_US[level]
    if level in _DATE_LEVELS:
        return start_of_day(_first_day(to_day(us, zone), level), zone)
    offset = _offset(zone, us, local=False)
    local = us + offset
    return to_instant(local - local % _UNIT_US[level], zone, offset)


# ---- texts ---------------------------------------------------------------------------------------


def date_text(days: int) -> str:
    """
    >>> date_text(0), date_text(-719529), date_text(2932897)
    ('1970-01-01', '-0001-12-31', '+10000-01-01')
    """
    year, month, day = civil(days)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def timestamp_text(local: int) -> str:
    """
    >>> timestamp_text(0), timestamp_text(1_500_000)
    ('1970-01-01 00:00:00', '1970-01-01 00:00:01.5')
    """
    days, us = divmod(local, DAY_US)
    seconds, fraction = divmod(us, SECOND_US)
    tail = f".{fraction:06}".rstrip("0") if fraction else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{date_text(days)} {clock}{tail}"


_DATE_TEXT: Final = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.S)


def parse_date(text: str) -> int:
    """The days of a text as CAST reads it; fails if it is none."""
    found = _DATE_TEXT.fullmatch(text)
    if found is None or not text.isascii():
        raise Failure
    return int(_make_date(int(found[1]), int(found[2] or 1), int(found[3] or 1)))
