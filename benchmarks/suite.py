"""A suite of patterns with their streams, for comparing plans: each operator, 2 to 6 variables,
equal, skewed and changing rates, conditions that keep much or little, few and many keys.

Cases are generated: structures times rates, with condition styles and numbers of keys dealt
out in turn. Windows are as long as makes the plan matter: in a short one every plan takes as
long as sorting the rows, in a long one a bad plan takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import Literal

import numpy as np

from benchmarks.data import SEED
from spark_cep.pattern import Pattern, all_of, any_of, event, seq

Weather = Literal["steady", "bursts", "shift", "switching"]

# What ties two variables together, by how much it keeps: a half, a twentieth (as a range and as
# an equality, which is looked up), a fiftieth.
STYLES: Mapping[str, tuple[str, ...]] = {
    "rising": ("{0}.x < {1}.x",),
    "near": ("{0}.x < {1}.x", "{1}.x < {0}.x + 0.05"),
    "equal": ("{0}.id = {1}.id",),
    "far": ("{0}.x + 0.8 < {1}.x",),
}
# The share of pairs that a style's conditions keep.
KEEPS = {"rising": 0.5, "near": 0.05, "equal": 0.05, "far": 0.02}
IDS = 20
KEYS = (1, 10, 100)
# How much rarer the rare kind is than each of the others.
SKEW = 50
# What windows are made for: about so many pairs in the worst order, over so many rows.
PAIRS = 10_000_000
ROWS = 200_000
# Weather: a burst makes one kind this much more frequent for one stretch in four.
BURST = 10
BURST_ROWS = 2_000
# A shift comes after what the sample sees.
SHIFT_AT = 0.15
SWITCHES = 5


@dataclass(frozen=True)
class Stream:
    """`shares` of the kinds 0, 1, ...; their sum is 1."""

    shares: tuple[float, ...]
    keys: int
    weather: Weather = "steady"

    def columns(self, rows: int) -> dict[str, np.ndarray]:
        """One row each tick. x is uniform on [0, 1), id on 0..19."""
        random = np.random.default_rng(SEED)
        bounds = np.cumsum(self._shares(rows, random), axis=1)
        draw = random.random((rows, 1)) * bounds[:, -1:]
        return {
            "t": np.arange(rows),
            "k": random.integers(0, self.keys, rows),
            "kind": (draw >= bounds).sum(axis=1),
            "x": random.random(rows),
            "id": random.integers(0, IDS, rows),
        }

    def _shares(self, rows: int, random: np.random.Generator) -> np.ndarray:
        shares = np.tile(self.shares, (rows, 1))
        row = np.arange(rows)
        if self.weather == "shift":
            shares[row >= SHIFT_AT * rows] = self.shares[::-1]
        elif self.weather == "switching":
            for turn in range(SWITCHES):
                shares[row * SWITCHES // rows == turn] = np.roll(self.shares, turn)
        elif self.weather == "bursts":
            stretch = row // BURST_ROWS
            kinds = random.integers(0, 4 * shares.shape[1], stretch[-1] + 1)[stretch]
            for kind in range(shares.shape[1]):
                shares[kinds == kind, kind] *= BURST
        return shares


@dataclass(frozen=True)
class Case:
    name: str
    pattern: Pattern
    stream: Stream
    family: str = ""


def suite() -> tuple[Case, ...]:
    """All cases; their names are all different."""
    families = {
        "SEQ": _sequences(), "AND": _unordered(), "NOT": _negations(), "Kleene": _lists(),
        "OR": _choices(), "changing rates": _changing(),
    }  # fmt: skip
    return tuple(replace(case, family=name) for name, cases in families.items() for case in cases)


def of_eight() -> tuple[Case, ...]:
    """The largest patterns that planning is measured on."""
    names = "abcdefgh"
    parts, stream = _parts(" ".join(names)), Stream(_even(len(names)), 1)
    return tuple(
        Case(f"{kind} of 8", _tied(made(*parts), "rising", *pairwise(names)).within(100), stream)
        for kind, made in (("seq", seq), ("and", all_of))
    )


# ---- parts -------------------------------------------------------------------------------------


def _part(text: str) -> Pattern:
    """ "b", "!b", "b+", "b{2,3}": the rows of the kind that the letter numbers."""
    return event(text, f"kind = {'abcdefgh'.index(text.lstrip('!')[0])}")


def _parts(texts: str) -> list[Pattern]:
    return [_part(text) for text in texts.split()]


def _tied(pattern: Pattern, style: str, *pairs: Sequence[str]) -> Pattern:
    """The pattern with the style's conditions between each pair of variables."""
    return pattern.where(*[text.format(*pair) for pair in pairs for text in STYLES[style]])


def _case(name: str, pattern: Pattern, window_rows: int, stream: Stream) -> Case:
    keys = "1 key" if stream.keys == 1 else f"{stream.keys} keys"
    weather = "" if stream.weather == "steady" else f", {stream.weather}"
    return Case(f"{name}, {keys}{weather}", pattern.within(window_rows * stream.keys), stream)


def _even(kinds: int) -> tuple[float, ...]:
    return (1 / kinds,) * kinds


def _rare(kinds: int, rare: int) -> tuple[float, ...]:
    weights = [1.0 if kind == rare else float(SKEW) for kind in range(kinds)]
    return tuple(weight / sum(weights) for weight in weights)


def _window_rows(stream: Stream, style: str, *, unordered: bool = False) -> int:
    """Rows of one key in a window, such that the worst order evaluates about PAIRS pairs."""
    shares = sorted(stream.shares, reverse=True)
    most = ROWS // stream.keys // 4
    return next(
        (size for size in range(10, most, 2) if _pairs(shares, style, size, unordered) > PAIRS),
        most,
    )


def _pairs(shares: Sequence[float], style: str, size: int, unordered: bool) -> float:
    """Expected pairs of the kinds in this order, for windows of `size` rows: each more kind may
    lie anywhere between the others (unordered) or in one place only."""
    total, partials = 0.0, shares[0] * size
    for place, share in enumerate(shares[1:], start=1):
        pairs = partials * share * size * (place + 1 if unordered else 1) / place
        total, partials = total + pairs, pairs * KEEPS[style]
    return total * ROWS / size


# ---- the cases ---------------------------------------------------------------------------------


def _sequences() -> Iterator[Case]:
    turn = cycle([(style, keys) for keys in KEYS for style in STYLES])
    for kinds in (2, 3, 4, 5, 6):
        names = "abcdef"[:kinds]
        for rates, shares in (
            ("even", _even(kinds)),
            ("rare first", _rare(kinds, 0)),
            ("rare last", _rare(kinds, kinds - 1)),
            *([("rare inside", _rare(kinds, kinds // 2))] if kinds > 2 else []),
        ):
            style, keys = next(turn)
            pattern = _tied(seq(*_parts(" ".join(names))), style, *pairwise(names))
            stream = Stream(shares, keys)
            rows = _window_rows(stream, style)
            yield _case(f"seq {names}: {style}, {rates}", pattern, rows, stream)
    mixed = seq(*_parts("a b c d")).where(
        "a.id = c.id", "b.x < d.x", "c.x < d.x", "d.x < c.x + 0.1"
    )
    yield _case("seq abcd: mixed, even", mixed, 80, Stream(_even(4), 10))
    yield _case("seq abcd: mixed, rare first", mixed, 80, Stream(_rare(4, 0), 10))


def _unordered() -> Iterator[Case]:
    turn = cycle([(style, keys) for keys in KEYS for style in STYLES])
    for kinds in (2, 3, 4):
        names = "abcd"[:kinds]
        for rates, shares in (("even", _even(kinds)), ("rare last", _rare(kinds, kinds - 1))):
            style, keys = next(turn)
            pattern = _tied(all_of(*_parts(" ".join(names))), style, *pairwise(names))
            stream = Stream(shares, keys)
            rows = _window_rows(stream, style, unordered=True)
            yield _case(f"and {names}: {style}, {rates}", pattern, rows, stream)
    inside = _tied(seq(_part("a"), all_of(*_parts("b c")), _part("d")), "rising", "ab", "bd", "cd")
    yield _case("seq a (b and c) d: rising, rare last", inside, 40, Stream(_rare(4, 3), 10))


def _negations() -> Iterator[Case]:
    inside = _tied(seq(*_parts("a !b c d")), "rising", "ac", "cd")
    at_end = _tied(seq(*_parts("a b !c")), "near", "ab")
    tied = _tied(seq(*_parts("a !b c d")), "equal", "ac", "bc").where("c.x < d.x")
    under_and = _tied(all_of(*_parts("a b !c")), "rising", "ab")
    yield _case("seq a !b c d: rising, rare last", inside, 60, Stream(_rare(4, 3), 10))
    yield _case("seq a b !c: near, even", at_end, 150, Stream((0.45, 0.45, 0.1), 100))
    yield _case("seq a !b c d: equal, even", tied, 200, Stream(_even(4), 1))
    yield _case("and a b !c: rising, rare last", under_and, 60, Stream(_rare(3, 2), 10))


def _lists() -> Iterator[Case]:
    some = _tied(seq(*_parts("a b+ c")), "rising", "ac")
    between = _tied(seq(*_parts("a b{2,3} c")), "rising", "ab", "bc")
    at_end = _tied(seq(*_parts("a b c{1,3}")), "near", "ab").where("b.x < c.x")
    rising = _tied(seq(*_parts("a b{1,4} c d")), "rising", "ac", "cd").where("prev(b.x) < b.x")
    yield _case("seq a b+ c: rising, rare list", some, 100, Stream(_rare(3, 1), 10))
    yield _case("seq a b+ c: rising, rare last", some, 12, Stream(_rare(3, 2), 10))
    yield _case("seq a b{2,3} c: rising, even", between, 24, Stream(_even(3), 10))
    yield _case("seq a b c{1,3}: near, even", at_end, 40, Stream(_even(3), 100))
    yield _case("seq a b{1,4} c d: rising, rare last", rising, 18, Stream(_rare(4, 3), 10))


def _choices() -> Iterator[Case]:
    inside = _tied(seq(_part("a"), any_of(*_parts("b c")), _part("d")), "rising", "ad")
    tied = inside.where("a.x < b.x", "a.id = c.id")
    either = any_of(seq(*_parts("a b c")), seq(*_parts("d e")))
    either = _tied(_tied(either, "rising", "ab", "bc"), "equal", "de")
    yield _case("seq a (b or c) d: rising, even", inside, 60, Stream(_even(4), 10))
    yield _case("seq a (b or c) d: mixed, rare first", tied, 150, Stream(_rare(4, 0), 1))
    yield _case("seq abc or seq de: mixed, rare inside", either, 200, Stream(_rare(5, 2), 100))


def _changing() -> Iterator[Case]:
    for weather in ("bursts", "shift", "switching"):
        for names in ("abc", "abcd"):
            for style in ("rising", "near"):
                pattern = _tied(seq(*_parts(" ".join(names))), style, *pairwise(names))
                shares = _even(len(names)) if weather == "bursts" else _rare(len(names), 0)
                stream = Stream(shares, 10, weather)  # type: ignore[arg-type]
                yield _case(f"seq {names}: {style}", pattern, _window_rows(stream, style), stream)
