"""What runs over patterns of every shape show: cells, tables, claims, the picture.

A *cell* is a shape and the share of the rows that stays. In it every policy answers the same query
over the same rows with several seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.pictures import Number, Panel
from benchmarks.reporting import Claim, table
from benchmarks.shed_shape_rows import SHAPES

if TYPE_CHECKING:
    from spark_cep.udfs.shedding.utility import SheddingPolicy

UTILITY: Final = "utility"
POLICIES: tuple[SheddingPolicy, ...] = (UTILITY, "darling", "random", "keys")
# Methods of the literature. All but the first keep every row and drop partial matches.
LITERATURE: tuple[SheddingPolicy, ...] = ("espice", "hspice", "pspice", "random-partials")
KEEPS = (0.1, 0.3, 0.5, 0.8)
SEEDS = (0, 1, 2)
BY_HAND = "keys by hand"
# Utility may be behind by so much recall, or by so much of the rival's.
POINTS, PART = 0.03, 0.05
# A quota is met to one percent of itself; a told interval of 90 % holds the truth this often.
QUOTA, COVERED = 0.01, 0.8


@dataclass(frozen=True)
class Setting:
    """`by_hand`: whole keys by a hash, chosen outside the library, are a rival, too."""

    policies: Sequence[SheddingPolicy] = POLICIES
    keeps: Sequence[float] = KEEPS
    seeds: Sequence[int] = SEEDS
    by_hand: bool = False
    with_spark: bool = True


@dataclass(frozen=True)
class Outcome:
    """One answer. `kept`: its share of all matches; `stayed`: of the rows that may be shed.
    `told`: the expected recall, with its interval, or why it is not known. `full`, `call` and
    `action` are seconds: of the full answer, and of this one. `pairs`: the share of the full
    answer's pairs that were tested."""

    shape: str
    keep: float
    policy: str
    seed: int
    kept: float
    full: float
    stayed: float | None = None
    told: float | None = None
    interval: tuple[float, float] | None = None
    unknown: str | None = None
    call: float = 0.0
    action: float = 0.0
    pairs: float | None = None

    @property
    def covered(self) -> bool:
        assert self.interval is not None
        return self.interval[0] <= self.kept <= self.interval[1]


@dataclass(frozen=True)
class Cell:
    """The outcomes of one shape and share."""

    shape: str
    keep: float
    outcomes: tuple[Outcome, ...]

    def of(self, policy: str) -> list[Outcome]:
        return [each for each in self.outcomes if each.policy == policy]

    def kept(self, policy: str) -> float:
        return statistics.mean(each.kept for each in self.of(policy))

    def deviation(self, policy: str) -> float:
        return statistics.pstdev(each.kept for each in self.of(policy))

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(each.policy for each in self.outcomes))

    @property
    def best_rival(self) -> str:
        rivals = [each for each in self.policies if each != UTILITY]
        return max(rivals, key=self.kept)

    @property
    def margin(self) -> float:
        """What utility keeps more than the best of the others, as a share of all matches."""
        return self.kept(UTILITY) - self.kept(self.best_rival)

    @property
    def holds(self) -> bool:
        behind = -self.margin
        return behind <= POINTS or behind <= PART * self.kept(self.best_rival)

    @property
    def name(self) -> str:
        return f"{self.shape}, keep {self.keep:g}"


def cells(outcomes: Sequence[Outcome]) -> list[Cell]:
    """By shape and share, where utility is most behind first; those with other policies to compare
    it with."""
    groups: dict[tuple[str, float], list[Outcome]] = {}
    for each in outcomes:
        groups.setdefault((each.shape, each.keep), []).append(each)
    found = [Cell(shape, keep, tuple(of)) for (shape, keep), of in groups.items()]
    found = [each for each in found if UTILITY in each.policies and len(each.policies) > 1]
    return sorted(found, key=lambda each: each.margin)


# ---- tables ------------------------------------------------------------------------------------


def shares(found: Sequence[Cell]) -> str:
    """A line for each cell: matches kept, in percent, and what was told of utility's."""
    policies = list(dict.fromkeys(name for each in found for name in each.policies))
    head = ["shape", "keep", *policies, "ahead of the best", "told", "interval", "holds it"]
    rows: list[list[object]] = []
    for one in found:
        kept = [
            f"{100 * one.kept(each):.1f} ± {100 * one.deviation(each):.1f}" if one.of(each) else ""
            for each in policies
        ]
        mine = one.of(UTILITY)
        known = [each for each in mine if each.interval is not None]
        held = f"{sum(each.covered for each in known)} of {len(known)}" if known else ""
        told = [each.told for each in mine if each.told is not None]
        said = f"{100 * statistics.mean(told):.1f}" if told else "unknown"
        interval = [each.interval for each in known if each.interval is not None]
        rows.append(
            [one.shape, f"{one.keep:g}", *kept, _points(one.margin), said, _span(interval), held]
        )
    return table(head, rows)


def work(found: Sequence[Cell]) -> str:
    """A line for each cell: matches kept, in percent, of so many percent of the pairs."""
    policies = list(dict.fromkeys(name for each in found for name in each.policies))
    rows: list[list[object]] = []
    for one in found:
        texts = []
        for policy in policies:
            pairs = [each.pairs for each in one.of(policy) if each.pairs is not None]
            kept = f"{100 * one.kept(policy):.1f}" if one.of(policy) else ""
            texts.append(f"{kept} of {100 * statistics.mean(pairs):.1f}" if pairs else kept)
        rows.append([one.shape, f"{one.keep:g}", *texts])
    return table(["shape", "keep", *policies], rows)


def by_pairs(found: Sequence[Cell]) -> str:
    """A line for each shape: by how many points utility is ahead of the best of the others if they
    test as many pairs as it does, and which one that is where it is not."""
    keeps = sorted({each.keep for each in found})
    rows: list[list[object]] = []
    for shape in dict.fromkeys(each.shape for each in found):
        same = {each.keep: each for each in found if each.shape == shape}
        texts = [_text_by_pairs(same[keep], [*same.values()]) if keep in same else ""
                 for keep in keeps]  # fmt: skip
        rows.append([shape, *texts])
    return table(["shape", *(f"keep {keep:g}" for keep in keeps)], rows)


def _text_by_pairs(cell: Cell, same: Sequence[Cell]) -> str:
    pairs = _mean_pairs(cell, UTILITY)
    if pairs is None:
        return ""
    kept = {each: kept_at(same, each, pairs) for each in cell.policies if each != UTILITY}
    name, best = max(((n, k) for n, k in kept.items() if k is not None), key=lambda each: each[1])
    ahead = cell.kept(UTILITY) - best
    is_behind = -ahead > POINTS and -ahead > PART * best
    return _points(ahead) + f" **behind** {name}" * is_behind


def kept_at(cells_of_shape: Sequence[Cell], policy: str, pairs: float) -> float | None:
    """The matches that a policy keeps of so many pairs, on lines between its cells."""
    points = [(0.0, 0.0), (1.0, 1.0)]
    for each in cells_of_shape:
        tested = _mean_pairs(each, policy)
        if tested is not None:
            points.append((tested, each.kept(policy)))
    if len(points) == 2:
        return None
    at, kept = zip(*sorted(points), strict=True)
    return float(np.interp(pairs, at, kept))


def _mean_pairs(cell: Cell, policy: str) -> float | None:
    found = [each.pairs for each in cell.of(policy) if each.pairs is not None]
    return statistics.mean(found) if found else None


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def margins(found: Sequence[Cell]) -> str:
    """A line for each shape: by how many points utility is ahead of the best of the others, for
    each share that stays. A cell in which it is too far behind is marked."""
    keeps = sorted({each.keep for each in found})
    rows: list[list[object]] = []
    for shape in dict.fromkeys(each.shape for each in found):
        at = {each.keep: each for each in found if each.shape == shape}
        texts = [
            _points(at[keep].margin) + " **behind**" * (not at[keep].holds) if keep in at else ""
            for keep in keeps
        ]
        rows.append([shape, *texts])
    return table(["shape", *(f"keep {keep:g}" for keep in keeps)], rows)


def _span(intervals: Sequence[tuple[float, float]]) -> str:
    """The mean of the ends."""
    if not intervals:
        return ""
    low, high = (statistics.mean(each[end] for each in intervals) for end in (0, 1))
    return f"{100 * low:.1f} to {100 * high:.1f}"


def seconds(outcomes: Sequence[Outcome], keep: float = 0.3) -> str:
    """A line for each shape: seconds of call + action beside those of the full answer."""
    policies = [each for each in dict.fromkeys(o.policy for o in outcomes) if each != BY_HAND]
    head = ["shape", "full answer, s", *(f"{each}, s" for each in policies)]
    rows: list[list[object]] = []
    for shape in dict.fromkeys(each.shape for each in outcomes):
        mine = [each for each in outcomes if each.shape == shape and each.keep == keep]
        if mine:
            rows.append([shape, mine[0].full, *(_seconds(mine, each) for each in policies)])
    return table([*head], rows)


def _seconds(outcomes: Sequence[Outcome], policy: str) -> str:
    mine = [each for each in outcomes if each.policy == policy]
    call, action = (
        statistics.median(getattr(each, name) for each in mine) for name in ("call", "action")
    )
    return f"{call:.2f} + {action:.2f}"


def by_policy(outcomes: Sequence[Outcome]) -> str:
    """A line for each policy: quotas, and how often what was told was right."""
    rows: list[list[object]] = []
    for policy in dict.fromkeys(each.policy for each in outcomes if each.policy != BY_HAND):
        mine = [each for each in outcomes if each.policy == policy]
        known = [each for each in mine if each.interval is not None]
        unknown = sum(each.told is None for each in mine)
        off = [abs(each.told - each.kept) for each in mine if each.told is not None]
        worst = max(mine, key=missed)
        rows.append(
            [
                policy,
                f"{100 * missed(worst):.2f} ({worst.shape}, keep {worst.keep:g})",
                f"{sum(each.covered for each in known)} of {len(known)}",
                unknown,
                f"{100 * statistics.median(off):.1f}" if off else "",
                f"{100 * max(off):.1f}" if off else "",
            ]
        )
    head = ["policy", "quota missed by, % at worst", "truth in the interval", "unknown"]
    return table([*head, "told less true, points, median", "at worst"], rows)


def missed(of: Outcome) -> float:
    """By which part of the quota more or fewer rows stay."""
    return 0.0 if of.stayed is None else abs(of.stayed - of.keep) / of.keep


# ---- claims and the picture --------------------------------------------------------------------


def claims(outcomes: Sequence[Outcome]) -> list[Claim]:
    found = cells(outcomes)
    behind = [each for each in found if not each.holds]
    told = "; ".join(f"{each.name}: {_points(each.margin)} to {each.best_rival}" for each in behind)
    worst = max((each for each in outcomes if each.policy != BY_HAND), key=missed)
    known = [each for each in outcomes if each.policy == UTILITY and each.interval is not None]
    covered = sum(each.covered for each in known)
    return [
        Claim(
            f"utility keeps as many matches as the best of the others, within {100 * POINTS:g} "
            f"points or {100 * PART:g} %",
            not behind,
            f"{len(found) - len(behind)} of {len(found)} cells" + (f"; {told}" if told else ""),
        ),
        Claim(
            f"quotas are met to {100 * QUOTA:g} % of the quota",
            missed(worst) <= QUOTA,
            f"{100 * missed(worst):.2f} % at worst: {worst.shape}, keep {worst.keep:g}, "
            f"{worst.policy}",
        ),
        Claim(
            f"the told interval of 90 % has the truth in {100 * COVERED:g} % of the runs",
            covered >= COVERED * len(known) and bool(known),
            f"{covered} of {len(known)}",
        ),
    ]


def panels(found: Sequence[Cell]) -> list[Panel]:
    """One for each share, a row for each shape, in the order of the shapes."""
    shapes = [name for name in SHAPES if any(each.shape == name for each in found)]
    drawn = []
    for keep in dict.fromkeys(sorted(each.keep for each in found)):
        at = {each.shape: each for each in found if each.keep == keep}
        policies = dict.fromkeys(name for each in at.values() for name in each.policies)
        series: dict[str, list[Number | None]] = {
            policy: [
                100 * at[shape].kept(policy) if shape in at and at[shape].of(policy) else None
                for shape in shapes
            ]
            for policy in policies
        }
        title = f"{100 * keep:g} % of the rows stay"
        drawn.append(Panel(title, "matches kept, %", "", shapes, series, "dots"))
    return drawn


def report(outcomes: Sequence[Outcome]) -> str:
    found = cells(outcomes)
    made = [margins(found), shares(found), by_policy(outcomes), seconds(outcomes)]
    if any(each.pairs is not None for each in outcomes):
        made += [work(found), by_pairs(found)]
    return "\n\n".join([*made, "\n".join(each.line() for each in claims(outcomes))])
