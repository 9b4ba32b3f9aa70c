"""Aggregates of DEFINE by their definitions: each of all its rows, anew. `rows` are the arguments
of an aggregate, one tuple for each row of its set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import Aggregate

Rows = Sequence[tuple[Any, ...]]


def key(each: Any) -> Any:
    """Spark's order: NaN equals itself and is the largest."""
    if isinstance(each, float):
        return (math.isnan(each), 0.0 if math.isnan(each) else each)
    return each


def fold(node: Aggregate, rows: Rows) -> Any:
    """The aggregate of FOLDS over these rows."""
    taken, of = FOLDS[node.name]
    kept = [row for row in rows if None not in taken(row)]
    if node.distinct:
        compared = [tuple(map(key, row if taken is _all else row[:1])) for row in kept]
        kept = [row for i, row in enumerate(kept) if compared[i] not in compared[:i]]
    if not kept:
        return [] if node.name.startswith("collect") else None
    return of(kept)


# ---- which arguments may not be NULL -----------------------------------------------------------


def _all(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row


def _first(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:1]


def _last(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[-1:]


# ---- the aggregates ----------------------------------------------------------------------------


def _values(rows: Rows) -> list[Any]:
    return [row[0] for row in rows]


def _try_sum(rows: Rows) -> int | None:
    totals = [sum(_values(rows[: n + 1])) for n in range(len(rows))]
    return totals[-1] if all(-(1 << 63) <= each < 1 << 63 for each in totals) else None


def _joined(rows: Rows) -> str:
    separator, directions = rows[0][1], rows[0][2].split()
    ordered = list(rows)
    for place in reversed(range(len(directions))):
        found = [row for row in ordered if row[3 + place] is not None]
        nulls = [row for row in ordered if row[3 + place] is None]
        # Reversed twice, equal ones stay in their order.
        if "d" in directions[place]:
            found = sorted(found[::-1], key=lambda row: key(row[3 + place]))[::-1]
        else:
            found = sorted(found, key=lambda row: key(row[3 + place]))
        ordered = nulls + found if "n" in directions[place] else found + nulls
    return (separator or "").join(_values(ordered))


def _mode(rows: Rows) -> Any:
    groups = [list(same) for _, same in groupby(sorted(_values(rows), key=key), key)]
    most = max(map(len, groups))
    found = [same[0] for same in groups if len(same) == most]
    return found[-1 if rows[0][1] else 0]


def _percentile(rows: Rows) -> float:
    _, share, descends, by_difference = rows[0]
    ordered = sorted(_values(rows), key=key, reverse=descends)
    position = (len(ordered) - 1) * share
    low, high = (float(ordered[f(position)]) for f in (math.floor, math.ceil))
    if key(low) == key(high):
        return low
    if by_difference:
        return low + (position - math.floor(position)) * (high - low)
    return (math.ceil(position) - position) * low + (position - math.floor(position)) * high


def _best(how: Callable[..., Any]) -> Callable[[Rows], Any]:
    """Of equal ones the last."""

    def find(rows: Rows) -> Any:
        best = how(key(by) for _, by in rows)
        return next(x for x, by in reversed(rows) if key(by) == best)

    return find


def _moments(values: Sequence[float]) -> tuple[float, float, float, float]:
    """The count, and the sums of powers of deviations, value by value as Spark adds them."""
    n = mean = m2 = m3 = m4 = 0.0
    for each in values:
        n += 1
        delta = each - mean
        part = delta / n
        mean += part
        square, part2 = delta * delta, part * part
        m2 += delta * (delta - part)
        m3 = m3 - 3.0 * part * m2 + delta * (square - part2)
        m4 = m4 - 4.0 * part * m3 - 6.0 * part2 * m2 + delta * (delta * square - part * part2)
    return n, m2, m3, m4


def _common(rows: Rows) -> tuple[float, float, float, float]:
    """The count, and the sums of products of deviations of pairs: xy, xx, yy."""
    n = mean_x = mean_y = xy = xx = yy = 0.0
    for x, y in rows:
        n += 1
        dx, dy = x - mean_x, y - mean_y
        mean_x += dx / n
        mean_y += dy / n
        xy, xx, yy = xy + dx * (y - mean_y), xx + dx * (x - mean_x), yy + dy * (y - mean_y)
    return n, xy, xx, yy


def _covariance(lost: int) -> Callable[[Rows], float | None]:
    def find(rows: Rows) -> float | None:
        n, xy, _, _ = _common(rows)
        return None if n <= lost else xy / (n - lost)

    return find


def _correlation(rows: Rows) -> float | None:
    n, xy, xx, yy = _common(rows)
    return None if n < 2 or xx * yy == 0 else xy / math.sqrt(xx * yy)


def _kurtosis(rows: Rows) -> float | None:
    n, m2, _, m4 = _moments(_values(rows))
    return None if m2 == 0 else n * m4 / (m2 * m2) - 3.0


FOLDS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Rows], Any]]] = {
    "bit_and": (_all, lambda rows: reduce(lambda a, b: a & b, _values(rows))),
    "bit_or": (_all, lambda rows: reduce(lambda a, b: a | b, _values(rows))),
    "bit_xor": (_all, lambda rows: reduce(lambda a, b: a ^ b, _values(rows))),
    "try_sum": (_all, _try_sum),
    "collect_list": (_all, _values),
    "collect_list with nulls": (_last, _values),
    "listagg": (_first, _joined),
    "mode": (_first, _mode),
    "percentile": (_first, _percentile),
    "max_by": (_last, _best(max)),
    "min_by": (_last, _best(min)),
    "first": (_last, lambda rows: rows[0][0]),
    "last": (_last, lambda rows: rows[-1][0]),
    "corr": (_all, _correlation),
    "covar_pop": (_all, _covariance(0)),
    "covar_samp": (_all, _covariance(1)),
    "regr_sxy": (_all, lambda rows: _common(rows)[1]),
    "kurtosis": (_all, _kurtosis),
}
