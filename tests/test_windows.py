"""WITHIN in the unit of the event time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_cep.errors import PatternError
from spark_cep.expressions.windows import Within, window_of
from spark_cep.udfs.expressions import DOUBLE, Type
from spark_cep.udfs.program import Window

TIMESTAMP = Type("timestamp")
DATE = Type("date")
INT = Type("int", 32)
DECIMAL = Type("decimal", precision=10, scale=2)
SECOND = 1_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "size_us"),
    [
        ("10 minutes", 600 * SECOND),
        ("10 min", 600 * SECOND),
        ("1 MINUTE", 60 * SECOND),
        ("1.5 hours", 5400 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("1 hour, 30 minutes and 2 s", 5402 * SECOND),
        ("2 weeks", 14 * 24 * HOUR),
        ("1 day", 24 * HOUR),
        ("250 milliseconds", 250_000),
        ("7 microseconds", 7),
        ("1.0000005 seconds", SECOND),
        ("INTERVAL '10' MINUTES", 600 * SECOND),
        ("interval 10 minutes", 600 * SECOND),
        ("INTERVAL '1 day 2 hours'", 26 * HOUR),
    ],
)
def test_durations_of_timestamps_are_microseconds(text: str, size_us: int) -> None:
    assert window_of(Within(text), TIMESTAMP) == Window("time", size_us)
    assert window_of(Within(text), Type("timestamp_ntz")) == Window("time", size_us)


def test_a_timedelta_is_a_duration() -> None:
    assert window_of(Within(timedelta(minutes=1, microseconds=3)), TIMESTAMP).size == 60_000_003


@pytest.mark.parametrize(("text", "days"), [("36 hours", 1), ("2 days", 2), ("5 hours", 0)])
def test_durations_of_dates_are_whole_days(text: str, days: int) -> None:
    assert window_of(Within(text), DATE) == Window("time", days)


@pytest.mark.parametrize(
    ("number", "time", "size"),
    [
        (10, INT, 10),
        (2.9, INT, 2),
        (0.5, DOUBLE, 0.5),
        (3, Type("float", 32), 3.0),
        (1.5, DECIMAL, 150),
        (0.129, DECIMAL, 12),
    ],
)
def test_numbers_are_in_the_columns_own_unit(number: float, time: Type, size: float) -> None:
    window = window_of(Within(number), time)
    assert window == Window("time", size)
    assert type(window.size) is type(size)


def test_a_window_wider_than_time_fits_64_bits() -> None:
    assert window_of(Within("99999999999 weeks"), TIMESTAMP).size < 1 << 62


def test_events_are_counted_whatever_the_event_time() -> None:
    assert window_of(Within(events=2000), TIMESTAMP) == Window("events", 2000)


@pytest.mark.parametrize(
    ("within", "time", "message", "hint"),
    [
        (Within("0 seconds"), TIMESTAMP, "must be positive", "above zero"),
        (Within("-5 minutes"), TIMESTAMP, "must be positive", "above zero"),
        (Within(timedelta(0)), TIMESTAMP, "must be positive", "above zero"),
        (Within(0), INT, "must be positive", "above zero"),
        (Within(float("nan")), DOUBLE, "must be finite", "finite"),
        (Within("1 month"), TIMESTAMP, "a month has no fixed length", "'30 days'"),
        (Within("2 years"), DATE, "a year has no fixed length", "'30 days'"),
        (Within(10), TIMESTAMP, "within(10) needs a unit", "'10 seconds'"),
        (Within("10"), TIMESTAMP, "within('10') needs a unit", "'10 seconds'"),
        (Within("3 fortnights"), TIMESTAMP, "unknown unit fortnights", "weeks"),
        (Within("soon"), TIMESTAMP, "'soon' is not a duration", "10 minutes"),
        (Within(""), TIMESTAMP, "'' is not a duration", "10 minutes"),
        (Within("10 minutes"), INT, "the first order column is INT", "within(10)"),
        (Within(timedelta(1)), DOUBLE, "the first order column is DOUBLE", "within(10)"),
        (Within("1 day"), Type("string"), "needs an event time", "a timestamp, a date or a number"),
        (Within(events=0), INT, "must be positive", "events=1"),
        (Within(events=True), INT, "takes a number of rows", "events=2000"),
        (Within(events=2.5), INT, "takes a number of rows", "events=2000"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_window_is_refused(within: Within, time: Type, message: str, hint: str) -> None:
    with pytest.raises(PatternError) as caught:
        window_of(within, time)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
