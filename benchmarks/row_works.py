"""The works of the row pattern suite: rows, query, and what a plain computation says of them.

The names and shapes are those of another engine's suite; data and text are ours, so its figures
compare as orders of magnitude only. Each query ends in one row of whole numbers, so that nothing
is measured but matching, and the answer can be checked. `{rows}` is the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import row_data as data
from benchmarks import row_plain as plain

if TYPE_CHECKING:
    from benchmarks.row_data import Columns

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Bound:
    """What a work may take: so many times its floor, so many seconds above it, or in all."""

    ratio: float | None = None
    above: float | None = None
    seconds: float | None = None

    def text(self) -> str:
        """
        >>> Bound(ratio=1.2).text(), Bound(above=2).text()
        ('<= 1.2x', '< floor + 2 s')
        """
        if self.ratio is not None:
            return f"<= {self.ratio:g}x"
        return f"< floor + {self.above:g} s" if self.above is not None else f"< {self.seconds:g} s"

    def holds(self, floor: float, ours: float) -> bool:
        if self.ratio is not None:
            return ours <= self.ratio * floor
        if self.above is not None:
            return ours < floor + self.above
        assert self.seconds is not None
        return ours < self.seconds


@dataclass(frozen=True)
class Work:
    """`rows`: by default; `full`: as the suite has it, where that is more. `plain`: the answer's
    numbers over columns, without the engine. `checked`: rows that it takes no time for."""

    name: str
    rows: int
    data: Callable[[int], Columns]
    query: str
    plain: Callable[[Columns], Numbers]
    bound: Bound | None = None
    full: int | None = None
    checked: int = 3_000


MATCHES_AND_ROWS = "count(*), coalesce(sum(length), 0)"


def counted(clause: str, numbers: str = MATCHES_AND_ROWS) -> str:
    """A query whose answer is one row: `clause` is what stands in MATCH_RECOGNIZE."""
    return f"SELECT {numbers} FROM {{rows}} MATCH_RECOGNIZE ({clause})"


def by_letters(
    pattern: str,
    letter: Callable[[Columns], str],
    skip: Callable[[int, int], int] = lambda _, end: end,
    key: str | None = None,
) -> Callable[[Columns], Numbers]:
    """Matches and matched rows, by a regular expression over a letter a row."""

    def found(columns: Columns) -> Numbers:
        spans = [
            span
            for rows in plain.partitions(columns, key)
            for span in plain.spans(
                pattern, letter({name: each[rows] for name, each in columns.items()}), skip
            )
        ]
        return len(spans), sum(end - start for start, end in spans)

    return found


def of_v(names: Callable[[int], str]) -> Callable[[Columns], str]:
    return lambda columns: "".join(map(names, columns["v"].tolist()))


def moving(column: str = "v") -> Callable[[Columns], str]:
    return lambda columns: plain.moves(columns[column])


LENGTH = "MEASURES count(*) AS length"
_TWO = f"{LENGTH} PATTERN (a b) DEFINE a AS v = 0, b AS v = 1"


def selectivity(name: str, share: int) -> Work:
    def letter(v: int) -> str:
        return "ba"[v < share] if v < 50 else ".A"[v < share]

    clause = f"""ORDER BY i {LENGTH} PATTERN (a b{{2}})
        DEFINE a AS v < {share}, b AS v < 50"""
    return Work(
        f"selectivity_{name}", 2_000_000, data.hundredths, counted(clause),
        by_letters("[aA][ab]{2}", of_v(letter)), full=10_000_000,
    )  # fmt: skip


def _funnel(name: str, pattern: str, letters: str) -> Work:
    clause = f"""PARTITION BY visitor ORDER BY i {LENGTH} PATTERN ({pattern})
        DEFINE b AS action = 'browse', s AS action = 'select', c AS action = 'cart'"""
    if "c" not in pattern:
        clause = clause.removesuffix(", c AS action = 'cart'")
    names = {"browse": "b", "select": "s", "cart": "c"}
    return Work(
        name, 2_000_000, data.funnel, counted(clause),
        by_letters(letters, lambda columns: plain.letters(columns["action"], names), key="visitor"),
        full=10_000_000,
    )  # fmt: skip


_CRIME_LETTERS = {"robbery": "r", "battery": "b", "theft": "t", "motor vehicle theft": "m"}


def _crimes(columns: Columns) -> str:
    return plain.letters(columns["type"], _CRIME_LETTERS)


PHYSICAL: tuple[Work, ...] = (
    Work(
        "scan", 2_000_000, lambda rows: data.counting(rows, 5), counted(f"ORDER BY i {_TWO}"),
        by_letters("01", of_v(str)),
    ),
    Work(
        "partitions", 2_000_000, lambda rows: data.partitions_of(rows, 100, 5),
        counted(f"PARTITION BY k ORDER BY i {_TWO}"), by_letters("01", of_v(str), key="k"),
        Bound(ratio=1.25),
    ),
    Work(
        "quantifier", 500_000, lambda rows: data.counting(rows, 17),
        """SELECT count(DISTINCT number), count(*) FROM {rows} MATCH_RECOGNIZE (
            ORDER BY i MEASURES MATCH_NUMBER() AS number ALL ROWS PER MATCH
            PATTERN (a+ b+ a+) DEFINE a AS v < 12, b AS v >= 12)""",
        by_letters("a+b+a+", of_v(lambda v: "a" if v < 12 else "b")),
    ),
    Work(
        "no_match", 200_000, data.runs_of_actions,
        counted(f"""ORDER BY i {LENGTH} PATTERN (a+ b+ c+ d)
            DEFINE a AS v = 0, b AS v = 1, c AS v = 2, d AS v = 3"""),
        lambda _: (0, 0),
    ),
    selectivity("low", 1),
    selectivity("mid", 25),
    selectivity("high", 99),
    Work(
        "sessionize", 2_000_000, data.visits,
        counted(f"""PARTITION BY visitor ORDER BY t {LENGTH} PATTERN (a b*)
            DEFINE b AS t - PREV(t) <= 100"""),
        lambda columns: (-(-len(columns["t"]) // 50), len(columns["t"])), full=10_000_000,
    ),
    Work(
        "streak", 2_000_000, data.sensors,
        counted(f"""PARTITION BY sensor ORDER BY i {LENGTH} PATTERN (a b*)
            DEFINE b AS v > PREV(v)"""),
        by_letters(".U*", moving(), key="sensor"), full=10_000_000,
    ),
    _funnel("funnel_two_step", "(b s) | b", "bs|b"),
    _funnel("funnel_three_step", "b s c", "bsc"),
    Work(
        "crime_alternation", 2_000_000, data.crimes,
        counted(f"""ORDER BY ts {LENGTH} AFTER MATCH SKIP TO NEXT ROW PATTERN ((a | b) (c | d))
            DEFINE a AS type = 'robbery', b AS type = 'battery',
                   c AS type = 'theft', d AS type = 'motor vehicle theft'"""),
        by_letters("[rb][tm]", _crimes, plain.next_row), full=7_200_000,
    ),
    Work(
        "crime_repeats", 2_000_000, data.crimes,
        counted(f"""ORDER BY ts {LENGTH} AFTER MATCH SKIP TO NEXT ROW PATTERN (a (b+ c)+ d)
            DEFINE a AS type = 'robbery', b AS type = 'battery',
                   c AS type = 'theft', d AS type = 'motor vehicle theft'"""),
        by_letters("r(b+t)+m", _crimes, plain.next_row), full=7_200_000,
        checked=50_000,
    ),
    Work(
        "union_skip", 1_000_000, data.walk,
        counted(f"""ORDER BY i {LENGTH} AFTER MATCH SKIP TO LAST ups
            PATTERN (s (dn | same)+ (up | same)+) SUBSET ups = (up, same)
            DEFINE dn AS v < PREV(v), same AS v = PREV(v), up AS v > PREV(v)"""),
        by_letters(".[DS]+[US]+", moving(), lambda _, end: end - 1),
    ),
)  # fmt: skip
