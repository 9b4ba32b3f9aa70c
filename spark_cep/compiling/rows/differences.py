"""datediff and timestampdiff between rows, as differences of numbers that Spark computes on each.

    datediff(b.day, a.day)              ->   unix_date(b.day) - unix_date(a.day)
    timestampdiff(MINUTE, a.ts, b.ts)   ->   (micros(b.ts) - micros(a.ts)) div 60000000

Spark takes the difference of the local times of day, so the micros are those of the session's
clock; both count whole units only. Months and years have no fixed length, and are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Sequence

_DATES = {"datediff", "date_diff"}
_UNIT_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_DAYS = "unix_date(CAST({} AS DATE))"
_LOCAL_US = "timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {})"


@dataclass(frozen=True)
class Difference:
    """`number` of the later minus that of the earlier, in units of so many; None: as it is."""

    later: exp.Expr
    earlier: exp.Expr
    number: str
    unit: int | None = None


def difference_of(node: exp.Expr) -> Difference | None:
    """What the node is the difference of, if it is one of these functions."""
    if not isinstance(node, exp.Anonymous):
        return None
    name, arguments = node.name.lower(), node.expressions
    if name in _DATES and len(arguments) == len(("later", "earlier")):
        return Difference(arguments[0], arguments[1], _DAYS)
    if name in {*_DATES, "timestampdiff", "timediff"}:
        return _in_units(arguments)
    return None


def _in_units(arguments: Sequence[exp.Expr]) -> Difference | None:
    if len(arguments) != len(("unit", "earlier", "later")):
        return None
    unit, earlier, later = arguments
    length_us = _UNIT_US.get(unit.name.lower()) if isinstance(unit, exp.Column) else None
    return None if length_us is None else Difference(later, earlier, _LOCAL_US, length_us)
