"""Patterns of every shape that load shedding has to do well on, and rows for each of them.

A *shape* is a pattern with generated rows: as many that the full answer has 10,000 to a million
matches and takes about a second. Rows may be exactly one variable, or every variable, so the share
of the rows that stay can be read from the counts of the variables.

The rows of `soccer` are real where a file of them is given (`SOCCER`); those of `stocks` and
`buses` have the mean and deviation that DARLING's authors published for their attributes.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.shed_queries import HOUR, QUERIES
from benchmarks.shed_streams import SECOND
from spark_cep import all_of, any_of, event, no, seq

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

Columns = Mapping[str, np.ndarray]
Random = np.random.Generator

WINDOW = 10 * SECOND
# Sensor, time in picoseconds, ..., speed: 50,000 rows of the DEBS 2013 soccer data.
SOCCER = Path(__file__).parents[2] / "shared/data/soccer_50k.csv.gz"


@dataclass(frozen=True)
class Shape:
    """`family`: which of the twelve shapes this is one of, or where its rows are from. `keys`: the
    columns that no match crosses, which need not be said to `match_pattern`. `needed`: the
    kind of the rows that a NOT could need. Rows are in the order of `t`, and a match is within one
    `window`, both in microseconds or another unit."""

    name: str
    family: str
    pattern: Pattern
    make: Callable[[], Columns]
    keys: tuple[str, ...] = ()
    partition_by: tuple[str, ...] | None = None
    needed: str | None = None
    window: int = WINDOW

    @property
    def partition(self) -> list[str]:
        return list(self.keys if self.partition_by is None else self.partition_by)


# ---- rows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ticks:
    """Rows evenly over time, of `kinds` with `weights`. `dense`: rows of one key in a window, on
    average over keys. `skew`: the n-th key has a part in proportion to n to this negative power."""

    rows: int = 60_000
    keys: int = 20
    dense: float = 30.0
    kinds: str = "ABC"
    weights: tuple[float, ...] | None = None
    skew: float = 0.0
    seed: int = 20_250

    def columns(self) -> dict[str, np.ndarray]:
        """`t`, the row number `i`, `key`, `kind`, and `x`, `y`, `z`, uniform in [0, 1)."""
        random = np.random.default_rng(self.seed)
        gap = WINDOW / self.dense / self.keys
        moments = np.arange(self.rows) * gap + random.random(self.rows) * gap * 0.9
        # One microsecond more for each row: then no two are the same.
        t = moments.astype(np.int64) + np.arange(self.rows)
        parts = np.arange(1, self.keys + 1, dtype=float) ** -self.skew
        weights = np.ones(len(self.kinds)) if self.weights is None else np.array(self.weights)
        kinds = random.choice(len(self.kinds), size=self.rows, p=weights / weights.sum())
        return {
            "t": t,
            "i": np.arange(self.rows),
            "key": random.choice(self.keys, size=self.rows, p=parts / parts.sum()),
            "kind": np.array(list(self.kinds))[kinds],
            **{name: random.random(self.rows) for name in "xyz"},
        }

    def random(self) -> Random:
        """For columns of a shape's own."""
        return np.random.default_rng(self.seed + 1)


def _correlated() -> Columns:
    """`y` is `x` with a little noise, so a condition on each says almost the same."""
    ticks = Ticks(dense=36)
    columns, random = ticks.columns(), ticks.random()
    return {**columns, "y": columns["x"] + 0.1 * random.standard_normal(ticks.rows)}


def _drifting() -> Columns:
    """`x` has a level that rises by ten times what it varies by."""
    ticks = Ticks(dense=36)
    columns = ticks.columns()
    return {**columns, "x": columns["x"] + 10.0 * np.linspace(0, 1, ticks.rows)}


def _cards() -> Columns:
    """Which card a row is of, beside the key that the query is partitioned by."""
    ticks = Ticks(dense=1_500, keys=2)
    return {**ticks.columns(), "card": ticks.random().integers(0, 50, ticks.rows)}


@dataclass(frozen=True)
class Types:
    """Event types that report at the same rate, and the mean and deviation of a value of each."""

    column: str
    values: tuple[tuple[float, float], ...]
    gap: int
    rows: int = 60_000

    def columns(self) -> Columns:
        """Values are lognormal with these moments; `kind` numbers the types."""
        random = np.random.default_rng(20_251)
        count = len(self.values)
        turns = -(-self.rows // count)
        t = np.arange(turns)[:, None] * self.gap + random.integers(0, self.gap, (turns, count))
        values = np.stack([_lognormal(m, d, turns, random) for m, d in self.values], axis=1)
        order = np.argsort(t.ravel(), kind="stable")[: self.rows]
        kind = np.broadcast_to(np.arange(count), t.shape).ravel()
        return {
            "t": t.ravel()[order] + np.arange(len(order)),
            "i": np.arange(len(order)),
            "kind": kind[order],
            self.column: values.ravel()[order],
        }


def _lognormal(mean: float, deviation: float, size: int, random: Random) -> np.ndarray:
    spread = np.log1p((deviation / mean) ** 2)
    found: np.ndarray = np.exp(
        np.log(mean) - spread / 2 + np.sqrt(spread) * random.standard_normal(size)
    )
    return found


# GOOG, AAPL, INTC and MSFT: volumes. Lines 39, 15, 38 and 145: metres from the centre.
STOCKS = Types(
    "volume",
    ((24_606, 25_828), (104_430, 95_221), (164_981, 212_131), (357_064, 460_943)),
    60 * SECOND,
)
BUSES = Types(
    "dist", ((5_249, 4_137), (4_820, 3_054), (6_378, 4_751), (14_746, 9_459)), 20 * SECOND
)
# Sensors of the file: rows a second, and mean and deviation of the speed.
SENSORS = {61: (177, 136_036, 83_324), 8: (1_945, 129_900, 70_019), 13: (218, 109_698, 60_659)}
SOCCER_WINDOW = 50_000_000_000
_PICOSECONDS = 10**12


def _soccer() -> Columns:
    """Real rows, where they are; else rows of the same rates and speeds."""
    if SOCCER.exists():
        with gzip.open(SOCCER, "rt") as file:
            read = np.loadtxt(file, delimiter=",", dtype=np.int64, usecols=(0, 1, 5))
        return {"t": read[:, 1], "i": np.arange(len(read)), "kind": read[:, 0], "v": read[:, 2]}
    random = np.random.default_rng(20_252)
    moments, kinds, speeds = [], [], []
    for sensor, (rate, mean, deviation) in SENSORS.items():
        count = round(50_000 * rate / sum(each[0] for each in SENSORS.values()))
        moments.append(np.sort(random.integers(0, count * _PICOSECONDS // rate, count)))
        kinds.append(np.full(count, sensor))
        speeds.append(_lognormal(mean, deviation, count, random).astype(np.int64))
    order = np.argsort(np.concatenate(moments), kind="stable")
    return {
        "t": np.concatenate(moments)[order] + np.arange(len(order)),
        "i": np.arange(len(order)),
        "kind": np.concatenate(kinds)[order],
        "v": np.concatenate(speeds)[order],
    }


# ---- whole keys by hand ------------------------------------------------------------------------

# A block of a key has so many windows: few matches cross its borders.
BLOCK_WINDOWS = 10


def in_blocks(shape: Shape, columns: Columns, keep: float, seed: int) -> np.ndarray:
    """Flags of the rows of whole blocks, keys in stretches of time, in the order of a hash until
    the quota is met: of the last block its first rows. Rows that a NOT could need all stay."""
    t = columns["t"]
    block = (t // (BLOCK_WINDOWS * shape.window)).astype(np.uint64)
    for name in shape.keys:
        block = block * np.uint64(1_000_003) + columns[name].astype(np.uint64)
    random = np.random.default_rng(seed)
    _, place = np.unique(block, return_inverse=True)
    turn = random.permutation(place.max() + 1)[place]
    needed = np.zeros(len(t), dtype=np.bool_)
    if shape.needed is not None:
        needed = columns["kind"] == shape.needed
    may_go = np.flatnonzero(~needed)
    chosen = may_go[np.lexsort((t[may_go], turn[may_go]))][: round(keep * len(may_go))]
    needed[chosen] = True
    return needed


# ---- shapes ------------------------------------------------------------------------------------


def _of(name: str, *conditions: str) -> Pattern:
    """An event of the kind that its name says, such as `b+` of kind B."""
    return event(name, " AND ".join((f"kind = '{name[0].upper()}'", *conditions)))


def _chain(length: int, ticks: Ticks) -> Shape:
    names = "abcdef"[:length]
    steps = pairwise(names)
    pattern = seq(*map(_of, names)).where(*(f"{a}.x < {b}.x" for a, b in steps))
    ticks = replace(ticks, kinds=names.upper())
    return _keyed(f"chain of {length}", "chain", pattern, ticks)


def _keyed(
    name: str, family: str, pattern: Pattern, rows: Ticks | Callable[[], Columns], **more: object
) -> Shape:
    make = rows.columns if isinstance(rows, Ticks) else rows
    within = pattern.within(WINDOW)
    return Shape(name, family, within, make, ("key",), **more)  # type: ignore[arg-type]


def _rising_list() -> Shape:
    pattern = seq(_of("a"), _of("b+", "b.x > prev(b.x)"), _of("c"))
    return _keyed(
        "rising list",
        "list",
        pattern.where("first(b.x) > a.x", "c.x > last(b.x)"),
        Ticks(dense=24),
    )


def _not_between() -> Shape:
    pattern = seq(_of("a"), no(_of("n")), _of("b"), _of("c"))
    return _keyed(
        "NOT",
        "NOT",
        pattern.where("a.x < b.x", "b.x < c.x", "n.x > a.x"),
        Ticks(dense=36, kinds="ABCN", weights=(10, 10, 10, 3)),
        needed="N",
    )


def _choice() -> Shape:
    pattern = seq(_of("a"), any_of(_of("b"), _of("c")), _of("d"))
    conditions = "a.x < b.x", "b.x < d.x", "c.y < a.y", "d.y < c.y"
    return _keyed("OR", "OR", pattern.where(*conditions), Ticks(dense=36, kinds="ABCD"))


def _optional() -> Shape:
    pattern = seq(_of("a"), _of("b?"), _of("c"))
    conditions = "a.x < b.x", "b.x < c.x", "a.y + 0.3 < c.y"
    return _keyed("optional", "optional", pattern.where(*conditions), Ticks(dense=36))


def _equal_cards() -> Shape:
    """The key is in the conditions alone; another one is given."""
    pattern = seq(_of("a"), _of("b"), _of("c")).where(
        "a.card = b.card", "b.card = c.card", "a.x < b.x", "b.x < c.x"
    )
    return Shape(
        "equal cards",
        "equality",
        pattern.within(WINDOW),
        _cards,
        ("key", "card"),
        partition_by=("key",),
    )


def _same_kind(name: str, *conditions: str, dense: float) -> Shape:
    pattern = seq(event("a"), event("b"), event("c")).where(*conditions)
    return _keyed(name, "same kind", pattern, Ticks(dense=dense))


def _shapes() -> tuple[Shape, ...]:
    abc = seq(_of("a"), _of("b"), _of("c"))
    together = all_of(_of("a"), _of("b"), _of("c"))
    rising = "a.x < b.x", "b.x < c.x"
    near = "abs(a.x - b.x) < 0.1", "abs(b.x - c.x) < 0.1"
    return (
        _chain(2, Ticks(keys=100, dense=20)),
        _chain(3, Ticks(keys=20, dense=30)),
        _chain(4, Ticks(keys=20, dense=50)),
        _chain(5, Ticks(keys=1, dense=80)),
        _chain(6, Ticks(keys=20, dense=120)),
        _rising_list(),
        _not_between(),
        _keyed("AND", "AND", together.where(*rising), Ticks(dense=18)),
        _keyed(
            "AND, cyclic",
            "AND",
            together.where("a.x < b.x", "b.y < c.y", "c.z < a.z"),
            Ticks(dense=18),
        ),
        _choice(),
        _optional(),
        _equal_cards(),
        _keyed("distance", "distance", abc.where(*near), Ticks(dense=60)),
        _same_kind("same kind, rising", *rising, dense=10),
        _same_kind("same kind, distance", *near, dense=20),
        _keyed(
            "correlated", "correlated columns", abc.where(*rising, "a.y < b.y", "b.y < c.y"),
            _correlated,
        ),
        _keyed(
            "skewed keys", "skewed keys", abc.where(*rising),
            Ticks(keys=100, dense=5, skew=1.0),
        ),
        _keyed("drifting", "drifting values", abc.where("a.x < b.x", "b.x < c.x"), _drifting),
        _stock(),
        _queried("Q1A", 4, 2 * HOUR),
        _queried("Q1A", 5, 3 * HOUR),
        _typed("stocks", STOCKS, 3.0, HOUR // 4),
        _typed("buses", BUSES, 1.5, 6 * 60 * SECOND),
        Shape(
            "soccer",
            "soccer",
            seq(event("a", "kind = 61"), event("b", "kind = 8"), event("c", "kind = 13"))
            .where("b.v > a.v", "c.v > b.v")
            .within(SOCCER_WINDOW),
            _soccer,
            window=SOCCER_WINDOW,
        ),
    )  # fmt: skip


def _stock() -> Shape:
    """Two frequent kinds and a rare one, as in the first table of the issue of shedding."""
    ticks = Ticks(rows=120_000, keys=100, dense=41, weights=(20, 20, 1))
    pattern = seq(_of("a"), _of("b"), _of("c")).where("a.x < b.x", "b.x < c.x")
    return _keyed("stock", "stock", pattern, ticks)


def _queried(name: str, length: int, window: int) -> Shape:
    query = replace(QUERIES[name], length=length, rows=60_000, window=window)

    return Shape(f"{name}, {length} types", "Q1A", query.pattern(), query.columns, window=window)


def _typed(name: str, types: Types, factor: float, window: int) -> Shape:
    kinds = range(len(types.values))
    pattern = seq(*(event(f"s{kind}", f"kind = {kind}") for kind in kinds)).where(
        *(f"s{kind}.{types.column} > s{kind - 1}.{types.column} * {factor}" for kind in kinds[1:])
    )
    return Shape(name, name, pattern.within(window), types.columns, window=window)


SHAPES: Mapping[str, Shape] = {each.name: each for each in _shapes()}


def named(names: Sequence[str]) -> list[Shape]:
    """All shapes, or those of these names or families."""
    unknown = set(names) - {part for each in SHAPES.values() for part in (each.name, each.family)}
    if unknown:
        raise SystemExit(f"no shape is named {', '.join(sorted(unknown))}: {', '.join(SHAPES)}")
    return [each for each in SHAPES.values() if not names or {each.name, each.family} & {*names}]
