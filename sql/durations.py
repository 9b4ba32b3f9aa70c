"""WITHIN in SQL: intervals in all of Spark's spellings, numbers, and counts of events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_EVENTS = re.compile(r"(\d+)\s+EVENTS?", re.I)
_RANGE = re.compile(
    r"INTERVAL\s+(?P<sign>-?)\s*'(?P<text>[^']*)'\s+(?P<first>DAY|HOUR|MINUTE)\s+TO\s+"
    r"(?P<last>HOUR|MINUTE|SECOND)",
    re.I,
)
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_SIGNED = re.compile(r"INTERVAL\s+([+-])\s*'\s*(\d[^']*)'(.*)", re.I | re.S)


@dataclass(frozen=True)
class EventCount:
    """WITHIN 2000 EVENTS."""

    events: int


def duration(text: str) -> str | int | Decimal | EventCount:
    """What stands behind WITHIN, as `.within` takes it.

    >>> duration("INTERVAL '10' MINUTES"), duration("10"), duration("20 events")
    ("INTERVAL '10' MINUTES", 10, EventCount(events=20))
    >>> duration("INTERVAL '1 02:30' DAY TO MINUTE")
    '1 DAY 02 HOUR 30 MINUTE'
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return int(text) if text.isdigit() else Decimal(text)
    counted = _EVENTS.fullmatch(text)
    if counted is not None:
        return EventCount(int(counted[1]))
    ranged = _RANGE.fullmatch(text)
    if ranged is not None:
        return _terms(ranged) or text
    signed = _SIGNED.fullmatch(text)
    if signed is not None:
        return f"INTERVAL '{signed[1]}{signed[2]}'{signed[3]}"
    return text


def _terms(found: re.Match[str]) -> str | None:
    """'1 02:30' DAY TO MINUTE as terms; None if the text has not that many numbers."""
    first, last = (_UNITS.index(found[name].upper()) for name in ("first", "last"))
    numbers = re.split(r"[ :]+", found["text"].strip())
    units = _UNITS[first : last + 1]
    if len(numbers) != len(units) or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    return " ".join(
        f"{found['sign']}{number} {unit}" for number, unit in zip(numbers, units, strict=True)
    )
