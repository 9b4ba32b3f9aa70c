"""Input rows in their partitions, with order keys that Python can compare.

Rule: 'Keys are equal when GROUP BY says so: NULL is a key of its own, NaN equals NaN, -0.0
equals 0.0.' Rule: 'rows whose event time is NULL or NaN are ignored'. They are gone before
anything is counted, so they neither span a window nor lie between two events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.reference.expressions import Value, Values, rank

Key = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Row:
    """One event: two rows with equal values are two events."""

    id: int
    key: Key
    time: int | float
    values: Values


@dataclass(frozen=True)
class Order:
    """One order column as Spark reads it: NULLs first when ascending, unless said otherwise."""

    column: str
    descending: bool = False
    nulls_first: bool = True


def parse_order(text: str) -> Order:
    """
    >>> parse_order("s DESC NULLS FIRST")
    Order(column='s', descending=True, nulls_first=True)
    >>> parse_order("s desc")
    Order(column='s', descending=True, nulls_first=False)
    """
    column, *rest = text.split()
    words = [word.lower() for word in rest]
    descending = "desc" in words
    nulls_first = words[-1] == "first" if "nulls" in words else not descending
    return Order(column, descending, nulls_first)


def partitions(
    rows: Sequence[Mapping[str, Value]], order_by: Sequence[str], partition_by: Sequence[str]
) -> list[list[Row]]:
    """The rows with an event time, cut by key; ids are positions in the input."""
    orders = [parse_order(text) for text in order_by]
    timed = [(id_, row) for id_, row in enumerate(rows) if _is_time(row[orders[0].column])]
    parts: dict[Key, list[Row]] = {}
    for id_, row in timed:
        key = tuple(_place(row[o.column], o, [r[o.column] for _, r in timed]) for o in orders)
        event = Row(id_, key, row[orders[0].column], row)  # type: ignore[arg-type]
        parts.setdefault(tuple(_group(row[name]) for name in partition_by), []).append(event)
    return list(parts.values())


def _is_time(value: Value) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _group(value: Value) -> object:
    return None if value is None else rank(value)


def _place(value: Value, order: Order, column: Sequence[Value]) -> int:
    """A number that sorts as the order column does: how many different values come before."""
    if value is None:
        return -1 if order.nulls_first else len(column)
    different = {rank(other) for other in column if other is not None}
    if order.descending:
        return sum(other > rank(value) for other in different)
    return sum(other < rank(value) for other in different)
