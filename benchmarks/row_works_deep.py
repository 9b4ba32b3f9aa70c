"""The works whose conditions look back at the match, those with too many ways, and those that the
project has bounds for (`row_works` for what a work is)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import row_data as data
from benchmarks import row_plain as plain
from benchmarks.row_measures import SESSION_MEASURES, session_numbers
from benchmarks.row_works import LENGTH, Bound, Numbers, Work, by_letters, counted, moving

if TYPE_CHECKING:
    from benchmarks.row_data import Array, Columns

NEAR = 0.1
HALF_AN_HOUR_US = 30 * 60 * 1_000_000
GAPS = (2_000, 4_000, 20_000, 200_000)
LINEAR = Bound(above=2)


# ---- conditions on the match so far ------------------------------------------------------------


def _navigation(columns: Columns) -> Numbers:
    v = columns["v"]
    found = plain.matches(
        [("a", False), ("b", True)], {"b": lambda path, row: v[row] > v[path["a"][-1]]}, len(v)
    )
    return _totals(found)


def _totals(found: object) -> Numbers:
    sizes = [sum(map(len, each.values())) for each in found]  # type: ignore[attr-defined]
    return len(sizes), sum(sizes)


def _aggregate(columns: Columns) -> Numbers:
    """A row begins each match and is its own average."""
    sizes: list[int] = []
    total = size = 0
    for value in columns["v"].tolist():
        if size and value * (size + 1) < total + value:
            sizes.append(size)
            total = size = 0
        total, size = total + value, size + 1
    return len(sizes) + 1, sum(sizes) + size


def _bins(columns: Columns) -> Numbers:
    rows = largest = 0
    for bin_ in plain.partitions(columns, "bin"):
        total = 0
        for w in columns["w"][bin_].tolist():
            if total + w <= 20:
                total, rows = total + w, rows + 1
        largest += total
    return len(np.unique(columns["bin"])), rows, largest


def _merged(columns: Columns) -> Numbers:
    sizes, end, size = [], 0, 0
    for start, stop in zip(columns["s"].tolist(), columns["e"].tolist(), strict=True):
        if size and start > end:
            sizes.append(size)
            end = size = 0
        end, size = max(end, stop), size + 1
    sizes.append(size)
    return len(sizes), sum(sizes), max(sizes)


def _shoulders(columns: Columns) -> Numbers:
    v = columns["v"]

    def up(path: plain.Match, row: int) -> bool:
        return row > 0 and bool(v[row] > v[row - 1])

    def down(path: plain.Match, row: int) -> bool:
        return row > 0 and bool(v[row] < v[row - 1])

    conditions = {
        "up": up,
        "down": down,
        "up2": lambda path, row: v[row] > max(v[path["up"]]),
        "down2": lambda path, row: v[row] < min(v[path["down"]]),
    }
    names = ["up", "down", "up2", "down", "up", "down2"]
    return _totals(plain.matches([("s", False), *((n, True) for n in names)], conditions, len(v)))


def _extended_v(columns: Columns) -> Numbers:
    """The shape leaves no choice, so the last condition is tested on the one way that there is."""
    found = 0
    for rows in plain.partitions(columns, "symbol"):
        v, at = columns["v"][rows], 0
        text = plain.moves(v)
        while at < len(text):
            shape = next(plain.spans(".DD*UU*DUU", text[at:]), None)
            if shape is None:
                break
            start, end = at + shape[0], at + shape[1]
            fits = v[end - 1] > v[start + 1]
            found += fits
            at = end - 1 if fits else start + 1
    return (int(found),)


def _crime_sequence(columns: Columns) -> Numbers:
    """R Z* B Z* M prefers the latest B before the latest M, and any B before any M will do."""
    ts, kind = columns["ts"], columns["type"]
    sizes = []
    for r in np.flatnonzero(kind == "robbery").tolist():
        near = _near(columns, r)
        soon = near & (ts <= ts[r] + HALF_AN_HOUR_US)
        thefts = np.flatnonzero((kind == "motor vehicle theft") & soon)
        batteries = np.flatnonzero((kind == "battery") & near)
        thefts, batteries = thefts[thefts > r], batteries[batteries > r]
        before = batteries[batteries < thefts[-1]] if len(thefts) else batteries[:0]
        if len(before):
            sizes.append(int(thefts[-1]) - r + 1)
    return len(sizes), sum(sizes)


def _near(columns: Columns, row: int) -> Array:
    close = [np.abs(columns[each] - columns[each][row]) <= NEAR for each in ("lon", "lat")]
    return np.asarray(close[0] & close[1])


def crime_sequence(rows: int) -> Work:
    return Work(
        f"crime_sequence_{rows // 1_000}k", rows, data.crimes,
        counted(f"""ORDER BY ts {LENGTH} AFTER MATCH SKIP TO NEXT ROW PATTERN (r z* b z* m)
            DEFINE r AS type = 'robbery',
                b AS type = 'battery' AND b.lon BETWEEN r.lon - {NEAR} AND r.lon + {NEAR}
                    AND b.lat BETWEEN r.lat - {NEAR} AND r.lat + {NEAR},
                m AS type = 'motor vehicle theft'
                    AND m.lon BETWEEN r.lon - {NEAR} AND r.lon + {NEAR}
                    AND m.lat BETWEEN r.lat - {NEAR} AND r.lat + {NEAR}
                    AND m.ts <= r.ts + INTERVAL '30' MINUTE"""),
        _crime_sequence, Bound(seconds=3) if rows == 20_000 else None,
    )  # fmt: skip


LOOKING_BACK: tuple[Work, ...] = (
    Work(
        "navigation", 200_000, data.scattered,
        counted(f"ORDER BY i {LENGTH} PATTERN (a b+) DEFINE b AS v > LAST(a.v)"), _navigation,
    ),
    Work(
        "extended_v", 52_000, data.quotes,
        counted("""PARTITION BY symbol ORDER BY i MEASURES LAST(fin.v) AS top
            AFTER MATCH SKIP TO LAST fin PATTERN (s d1 d2* u1 u2* d3 u3 fin)
            DEFINE d1 AS v < PREV(v), d2 AS v < PREV(v), d3 AS v < PREV(v), u1 AS v > PREV(v),
                u2 AS v > PREV(v), u3 AS v > PREV(v), fin AS v > PREV(v) AND v > LAST(d1.v)""",
            "count(*)"),
        _extended_v,
    ),
    Work(
        "aggregate_define", 1_000_000, data.uniform,
        counted(f"ORDER BY i {LENGTH} PATTERN (a+) DEFINE a AS a.v >= avg(a.v)"),
        _aggregate, Bound(ratio=2),
    ),
    Work(
        "bin_packing", 1_000_000, data.bins,
        """SELECT count(DISTINCT bin), count(*), sum(w) FROM {rows} MATCH_RECOGNIZE (
            PARTITION BY bin ORDER BY i MEASURES CLASSIFIER() AS part ALL ROWS PER MATCH
            PATTERN ((x | {- rest -})+) DEFINE x AS sum(x.w) <= 20)""",
        _bins,
    ),
    Work(
        "merge_ranges", 1_000_000, data.ranges,
        counted(f"ORDER BY i {LENGTH} PATTERN (j* l) DEFINE j AS NEXT(s) <= max(e)",
                "count(*), sum(length), max(length)"),
        _merged,
    ),
    Work(
        "shoulders", 1_000_000, data.uniform,
        counted(f"""ORDER BY i {LENGTH} PATTERN (s up+ down+ up2+ down+ up+ down2+)
            DEFINE up AS v > PREV(v), down AS v < PREV(v),
                up2 AS v > max(up.v), down2 AS v < min(down.v)"""),
        _shoulders,
    ),
    Work(
        "session_measures", 500_000, data.sessions,
        f"""SELECT count(*), sum(events), sum(score_view + score_engage) FROM {{rows}}
            MATCH_RECOGNIZE (PARTITION BY visitor ORDER BY i MEASURES {SESSION_MEASURES}
            PATTERN (view engage* (stage | suppress | escalate)*)
            DEFINE view AS kind = 'view', engage AS kind = 'engage', stage AS kind = 'stage',
                suppress AS kind = 'suppress', escalate AS kind = 'escalate')""",
        session_numbers, full=5_000_000,
    ),
)  # fmt: skip


# ---- works with too many ways ------------------------------------------------------------------


def _nothing(_: Columns) -> Numbers:
    return 0, 0


def _optional_prefix(rows: int) -> Work:
    return Work(
        "optional_prefix", rows, data.constant,
        counted(f"ORDER BY i {LENGTH} PATTERN ((a{{0,1}}){{{rows}}} a{{{rows}}}) "
                "DEFINE a AS v = 1"),
        lambda columns: (1, len(columns["v"])), LINEAR, checked=rows,
    )  # fmt: skip


EXPLOSIVE: tuple[Work, ...] = (
    Work(
        "nested_quantifier", 2_000_000, data.constant,
        counted(f"ORDER BY i {LENGTH} PATTERN ((a+)+ b) DEFINE a AS v = 1, b AS v = 2"),
        _nothing, LINEAR,
    ),
    Work(
        "equal_rows", 5_000, data.constant,
        counted(f"ORDER BY i {LENGTH} PATTERN (a+ b+) DEFINE a AS v = 1, b AS v = 2"),
        _nothing, LINEAR,
    ),
    Work(
        "equal_rows_back", 5_000, data.constant,
        counted(f"ORDER BY i {LENGTH} PATTERN (a+ b+) DEFINE a AS v = 1, b AS b.v > LAST(a.v)"),
        _nothing, LINEAR,
    ),
    _optional_prefix(4_000),
)  # fmt: skip


# ---- the project's own -------------------------------------------------------------------------


def walks_of(symbols: int) -> Callable[[int], Columns]:
    return lambda rows: data.walks(rows, symbols)


NAMED: tuple[Work, ...] = (
    Work(
        "v_shape", 5_000_000, data.walks,
        counted("""PARTITION BY symbol ORDER BY ts
            MEASURES count(*) AS length, FIRST(ts) AS since, LAST(down.price) AS bottom,
                LAST(up.price) AS top
            PATTERN (strt down+ up+) DEFINE down AS price < PREV(price), up AS price > PREV(price)
            """),
        by_letters(".D+U+", moving("price"), key="symbol"), Bound(ratio=1.2), checked=20_000,
    ),
    Work(
        "rising_run", 1_000_000, walks_of(100),
        counted(f"""PARTITION BY symbol ORDER BY ts {LENGTH} AFTER MATCH SKIP TO NEXT ROW
            PATTERN (a up{{3,}}) DEFINE up AS price > PREV(price)"""),
        by_letters(".U{3,}", moving("price"), plain.next_row, key="symbol"), Bound(ratio=2),
    ),
)  # fmt: skip
