"""Patterns that mislead a planner: correlated conditions, skewed values, rates that shift.

What a cost model supposes does not hold in them: that conditions are independent, that all keys and
times are alike, that the first rows are like the rest. Windows are such that a bad order evaluates
some ten million pairs over 300,000 rows, or keys and rates forbid it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.data import SEED
from benchmarks.suite import Case, Stream
from spark_cep.pattern import Pattern, event, seq

ADVERSARY_ROWS = 300_000
SWITCHES = 5

Values = Callable[[np.random.Generator, dict[str, np.ndarray]], None]


@dataclass(frozen=True)
class LawStream(Stream):
    """A stream whose `law` changes the drawn columns: `place` is the row's share of the stream."""

    law: Values | None = None

    def columns(self, rows: int) -> dict[str, np.ndarray]:
        columns = super().columns(rows)
        random = np.random.default_rng(SEED + 1)
        columns["u"] = random.integers(0, 20, rows)
        columns["v"] = random.random(rows)
        if self.law is not None:
            self.law(random, columns)
        return columns


def plan_adversaries() -> tuple[Case, ...]:
    """All cases; their names are all different."""
    families = {"correlated": _correlated(), "skewed": _skewed(), "shifting": _shifting()}
    return tuple(replace(case, family=name) for name, cases in families.items() for case in cases)


def _seq(names: str, *conditions: str) -> Pattern:
    parts = [event(name, f"kind = {number}") for number, name in enumerate(names)]
    return seq(*parts).where(*conditions)


def _case(
    name: str,
    pattern: Pattern,
    window: int,
    weights: tuple[float, ...],
    law: Values | None = None,
    **stream: int | str,
) -> Case:
    shares = tuple(weight / sum(weights) for weight in weights)
    made = LawStream(shares, int(stream.get("keys", 1)), law=law)
    made = replace(made, weather=stream.get("weather", "steady"))  # type: ignore[arg-type]
    return Case(name, pattern.within(window), made)


# ---- conditions that are not independent -------------------------------------------------------


def _correlated() -> Iterator[Case]:
    steps = _seq("abc", "a.x < b.x - 0.9", "b.x < c.x - 0.01")
    yield _case(
        "high after low: what passes the first step hardly passes the second", steps, 300, (1, 1, 1)
    )
    implied = _seq("abc", "a.id = b.id", "a.u = b.u", "b.x + 0.9 < c.x")
    yield _case("one equality implies the other", implied, 500, (1, 1, 1), _halves)
    against = _seq("abcd", "a.x + 0.4 < b.x", "b.x + 0.4 < c.x", "c.x < d.x")
    yield _case("two steps that exclude each other", against, 80, (1, 1, 1, 1))
    across = _seq("abcd", "a.u = c.u", "b.u = d.u")
    yield _case("pairs that are not neighbours", across, 60, (1, 1, 1, 1))
    star = _seq("abcde", "c.id = a.id", "c.u = b.u", "c.x < d.x", "d.x + 0.6 < e.x")
    yield _case("a star whose equalities agree", star, 60, (1, 1, 1, 1, 1), _halves)
    follows = _seq("abc", "a.v < b.v", "a.x < b.x", "b.x + 0.8 < c.x")
    yield _case("two columns that rise together", follows, 250, (1, 1, 1), _same_values)


def _halves(_: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    columns["u"] = columns["id"] // 2


def _same_values(random: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    columns["v"] = columns["x"] + 0.05 * random.random(len(columns["x"]))


# ---- values, keys and rates that are not even --------------------------------------------------


def _skewed() -> Iterator[Case]:
    tied = _seq("abc", "a.x < b.x", "b.x + 0.5 < c.x")
    yield _case("one key has half of the rows", tied, 300, (5, 5, 1), _hot_key, keys=50)
    equal = _seq("abc", "a.id = b.id", "b.id = c.id")
    yield _case("a few values are frequent", equal, 200, (1, 1, 1), _zipf)
    four = _seq("abcd", "a.id = b.id", "b.id = c.id", "c.x < d.x")
    yield _case("a few values are frequent, the last kind is rare", four, 200, (9, 9, 9, 1), _zipf)
    apart = _seq("abc", "a.x < b.x", "b.x < c.x")
    yield _case("each kind has values of its own", apart, 100, (1, 1, 1), _by_kind)
    rates = _seq("abcd", "a.x < b.x", "b.x < c.x", "c.x < d.x")
    yield _case("rates of 1, 10, 100 and 1,000", rates, 900, (1_000, 10, 100, 1))


def _hot_key(random: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    columns["k"][random.random(len(columns["k"])) < 0.5] = 0


def _zipf(random: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    columns["id"] = np.minimum(random.zipf(1.5, len(columns["id"])), 1_000)


def _by_kind(_: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    columns["x"] = columns["x"] ** np.array([0.2, 1.0, 3.0])[columns["kind"]]


# ---- what is true at first does not stay true --------------------------------------------------


def _shifting() -> Iterator[Case]:
    equal = _seq("abcd", "a.id = b.id", "c.id = d.id", "b.x < c.x")
    yield _case("rates turn round", equal, 150, (1, 5, 20, 40), weather="shift")
    across = _seq("abcd", "a.u = c.u", "b.u = d.u")
    yield _case(
        "the rare kind switches, pairs are not neighbours",
        across,
        120,
        (1, 9, 9, 9),
        weather="switching",
    )
    rising = _seq("abc", "a.x < b.x", "b.x < c.x")
    yield _case("values shift, rates do not", rising, 80, (1, 1, 1), _values_shift)
    both = _seq("abc", "a.x < b.x", "b.x < c.x")
    yield _case("values and rates shift", both, 100, (1, 4, 9), _values_shift, weather="shift")
    drifting = _seq("abc", "a.x < b.x", "b.x < c.x")
    yield _case("rates drift", drifting, 80, (1, 1, 1), _drift)
    keys = _seq("abc", "a.x < b.x", "b.x < c.x")
    yield _case("another kind is rare in each key", keys, 900, (1, 1, 1), _rare_by_key, keys=12)


def _values_shift(_: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    """At first b is hardly above a, later c hardly above b."""
    late = np.arange(len(columns["x"])) > 0.3 * len(columns["x"])
    kind = columns["kind"]
    columns["x"][~late & (kind == 0)] **= 0.05
    columns["x"][late & (kind == 1)] **= 0.05


def _drift(random: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    """a is rare at the beginning, c at the end."""
    place = np.linspace(0.0, 1.0, len(columns["kind"]))
    weights = np.stack([0.02 + place, np.full_like(place, 0.7), 1.02 - place])
    bounds = np.cumsum(weights / weights.sum(axis=0), axis=0)
    columns["kind"] = (random.random(len(place)) >= bounds[:2]).sum(axis=0)


def _rare_by_key(random: np.random.Generator, columns: dict[str, np.ndarray]) -> None:
    """Of nine rows of the rare kind, eight are of the next one instead."""
    is_rare = columns["kind"] == columns["k"] % 3
    moved = is_rare & (random.random(len(is_rare)) < 8 / 9)
    columns["kind"] = np.where(moved, (columns["kind"] + 1) % 3, columns["kind"])
