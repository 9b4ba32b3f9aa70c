"""The rows of the row pattern works: numpy columns, the same for every run and machine.

`column` names say what a row is: `i` its place from 0, which is the order wherever no other order
is named. Numbers that look random come from `mixed`, so that a row is the same however many follow
it; only the walks and the crimes draw from a seeded generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FILES, SEED, START_US

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]

SYMBOLS = 1_000
CRIMES = {
    "theft": 0.22, "battery": 0.19, "damage": 0.12, "narcotics": 0.09, "other": 0.16,
    "assault": 0.08, "burglary": 0.05, "motor vehicle theft": 0.05, "robbery": 0.04,
}  # fmt: skip
SECONDS_BETWEEN_CRIMES = 86  # a thousand a day


def write(columns: Columns, target: Path) -> str:
    """Writes the rows in their order, as several files for several cores."""
    target.mkdir(parents=True)
    table = pa.table({name: _arrow(name, values) for name, values in columns.items()})
    size = max(1, -(-len(table) // FILES))
    for number, start in enumerate(range(0, len(table), size)):
        pq.write_table(table.slice(start, size), target / f"part-{number}.parquet")
    return str(target)


def _arrow(name: str, values: Array) -> pa.Array:
    return pa.array(values, pa.timestamp("us", tz="UTC") if name == "ts" else None)


def mixed(i: Array, salt: int = 0) -> Array:
    """A hash of each number, at least 0 (the mixing of splitmix64)."""
    x = i.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((x >> np.uint64(33)).astype(np.int64))


def counting(rows: int, cycle: int) -> Columns:
    i = np.arange(rows)
    return {"i": i, "v": i % cycle}


def partitions_of(rows: int, size: int, cycle: int) -> Columns:
    return {"k": np.arange(rows) // size, **counting(rows, cycle)}


def constant(rows: int) -> Columns:
    return {"i": np.arange(rows), "v": np.ones(rows, np.int64)}


def scattered(rows: int) -> Columns:
    i = np.arange(rows)
    return {"i": i, "v": i * 2_654_435_761 % 1_000}


def runs_of_actions(rows: int) -> Columns:
    i = np.arange(rows)
    return {"i": i, "v": i // 1_000 % 3}


def hundredths(rows: int) -> Columns:
    i = np.arange(rows)
    return {"i": i, "v": mixed(i) % 100}


def visits(rows: int) -> Columns:
    """A thousand rows a visitor, a second apart in a session of 50 rows."""
    i = np.arange(rows)
    return {"visitor": i // 1_000, "t": i * 10 + i // 50 * 1_000}


def sensors(rows: int) -> Columns:
    i = np.arange(rows)
    return {"sensor": i // 1_000, "i": i, "v": mixed(i) % 1_000}


def funnel(rows: int) -> Columns:
    i = np.arange(rows)
    actions = np.array(["browse", "select", "cart", "buy"])
    return {"visitor": i // 10, "i": i, "action": actions[i % 4]}


def walks(rows: int, symbols: int = SYMBOLS) -> Columns:
    """Ticks of random symbols, each a random walk rounded to cents."""
    random = np.random.default_rng(SEED)
    symbol = random.integers(0, symbols, rows)
    steps = random.normal(0, 0.02, rows)
    order = np.argsort(symbol, kind="stable")
    walk = np.cumsum(steps[order])
    begins = np.flatnonzero(np.diff(symbol[order], prepend=-1))
    walk -= np.repeat(walk[begins], np.diff(np.append(begins, rows)))
    price = np.empty(rows)
    price[order] = np.round(100 + walk, 2)
    return {"symbol": symbol, "ts": START_US + np.arange(rows) * 1_000, "price": price}


def walk(rows: int, step: int = 3) -> Columns:
    """One walk in whole numbers; a sixth of the rows or so stay where they are."""
    random = np.random.default_rng(SEED)
    return {"i": np.arange(rows), "v": np.cumsum(random.integers(-step, step + 1, rows))}


def uniform(rows: int) -> Columns:
    i = np.arange(rows)
    return {"i": i, "v": mixed(i) % 1_000}


def quotes(rows: int) -> Columns:
    return {"symbol": np.arange(rows) // 1_000, **walk(rows)}


def bins(rows: int) -> Columns:
    i = np.arange(rows)
    return {"bin": i // 1_000, "i": i, "w": mixed(i) % 9 + 1}


def ranges(rows: int) -> Columns:
    """Ranges by their start, which overlap the next one more often than not."""
    i = np.arange(rows)
    start = i * 10 + mixed(i) % 10
    return {"i": i, "s": start, "e": start + mixed(i, 1) % 30}


def crimes(rows: int) -> Columns:
    random = np.random.default_rng(SEED)
    gaps = random.exponential(SECONDS_BETWEEN_CRIMES * 1_000_000, rows).astype(np.int64) + 1
    kinds = random.choice(len(CRIMES), rows, p=list(CRIMES.values()))
    return {
        "ts": START_US + np.cumsum(gaps),
        "type": np.array(list(CRIMES))[kinds],
        "lon": random.integers(-87_900, -87_500, rows) / 1_000,
        "lat": random.integers(41_600, 42_000, rows) / 1_000,
    }


def sessions(rows: int) -> Columns:
    """Ten events a run; one run in seven has no view to open it."""
    i = np.arange(rows)
    run, place = i // 10, i % 10
    kind = np.array(["engage", "stage", "suppress", "escalate"])[
        np.where(place < 5, 0, 1 + mixed(i) % 3)
    ]
    kind = np.where(place > 0, kind, np.where(run % 7 == 3, "other", "view"))
    texts = [f'{{"score": {s}, "page": "p{s % 7}", "ms": {s * 13}}}' for s in range(50)]
    return {"visitor": i // 50, "i": i, "kind": kind, "payload": np.array(texts)[mixed(i, 2) % 50]}
