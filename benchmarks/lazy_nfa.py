"""Figures 7 to 10 of the lazy-nfa paper: eager, every chain order and the tree NFA on one pattern.

    python -m benchmarks.lazy_nfa [--quick] [--figures FOLDER]

The pattern is the paper's: three quotes in sequence within the length of a price history, of
which the second is correlated with both others. `c` is the rare one. An *operation* is the
paper's too: one evaluation of a condition on an edge, so an event that only begins a partial match
counts as one. benchmarks/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

import spark_cep as cep
from benchmarks.histories import (
    HISTORY,
    PER_MINUTE,
    PHASES,
    SECTORS,
    pearson,
    quotes,
    steady,
    switching,
)
from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.programs import Prepared, chain, cut, prepare, run, run_pieces
from benchmarks.reporting import Claim, table
from spark_cep.udfs.program import BranchPlan, Plan

if TYPE_CHECKING:
    from spark_cep.udfs.events.metrics import Metrics

SECTOR = dict(zip("abc", SECTORS, strict=True))
ORDERS = tuple("".join(order) for order in permutations("abc"))
CONTESTANTS = ("eager", *ORDERS, "tree")
# Pearson coefficients above it count as correlated: of the pairs within a window, 92 % and 24 %.
THRESHOLD = 0.7
HIGH_THRESHOLD = 0.85
# Who is drawn over the changing stream: the other chains lie on one of these, as in the paper.
CHANGING = ("eager", "acb", "bac", "cba", "tree")


@dataclass(frozen=True)
class Sizes:
    """`minutes` of the streams of Figures 7 and 8; `lengths` those of Figure 9."""

    minutes: int
    shares: tuple[float, ...]
    lengths: tuple[int, ...]
    phase_events: int
    piece_events: int


FULL = Sizes(
    minutes=100_000,
    shares=(0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005),
    lengths=(10_000, 20_000, 40_000, 80_000, 160_000),
    phase_events=100_000,
    piece_events=10_000,
)
QUICK = Sizes(20_000, (0.5, 0.05, 0.005, 0.0005), (5_000, 10_000, 20_000), 20_000, 2_000)
# The share of c in the streams of Figure 9.
MEMORY_SHARE = 0.01


@dataclass(frozen=True)
class Count:
    operations: int
    peak: int
    matches: int


def pattern(sequence: str, threshold: float = THRESHOLD) -> cep.Pattern:
    cep.udf(pearson, returns="double")
    return (
        cep.seq(*[cep.event(name, f"sector = '{SECTOR[name]}'") for name in sequence])
        .where(
            f"pearson(a.history, b.history) > {threshold}",
            f"pearson(b.history, c.history) > {threshold}",
        )
        .within(HISTORY)
    )


def plan(contestant: str, sequence: str) -> Plan:
    """The contestant for a sequence; a chain is named by the order in which it binds."""
    if contestant == "eager":
        return Plan("eager")
    if contestant == "tree":
        return Plan("tree", (BranchPlan(None),))
    return chain(*[sequence.index(name) for name in contestant])


def count(metrics: Metrics) -> Count:
    """Partial matches that are no join's result were begun by one event: one operation each."""
    last = max((slots for _, slots in metrics.nodes), key=len, default=frozenset())
    joined = sum(kept for (_, slots), (_, kept) in metrics.nodes.items() if slots != last)
    begun = metrics.partial_matches - joined
    return Count(metrics.pairs + begun, metrics.peak_partial_matches, metrics.matches)


# ---- the figures -------------------------------------------------------------------------------

Counts = Mapping[str, Sequence[Count]]


def by_share(sequence: str, sizes: Sizes, threshold: float = THRESHOLD) -> Counts:
    """Figures 7 and 8: for each contestant its counts for each share of c."""
    counts: dict[str, list[Count]] = {name: [] for name in CONTESTANTS}
    for share in sizes.shares:
        columns = quotes(steady(sizes.minutes, share)).columns()
        prepared = prepare(pattern(sequence, threshold), columns)
        _run_all(prepared, sequence, counts)
    return counts


def by_length(sizes: Sizes) -> Counts:
    """Figure 9: the same for inputs of growing length."""
    counts: dict[str, list[Count]] = {name: [] for name in CONTESTANTS}
    for minutes in sizes.lengths:
        prepared = prepare(pattern("abc"), quotes(steady(minutes, MEMORY_SHARE)).columns())
        _run_all(prepared, "abc", counts)
    return counts


def by_piece(sizes: Sizes) -> Counts:
    """Figure 10: for each contestant its counts for each piece of the changing stream."""
    prepared = prepare(pattern("abc"), quotes(switching(sizes.phase_events)).columns())
    pieces = cut(prepared, sizes.piece_events)
    found = {
        name: [count(each.metrics) for each in run_pieces(prepared, plan(name, "abc"), pieces)]
        for name in CONTESTANTS
    }
    _check_equal({name: sum(each.matches for each in counts) for name, counts in found.items()})
    return found


def _run_all(prepared: Prepared, sequence: str, counts: Mapping[str, list[Count]]) -> None:
    found = {name: count(run(prepared, plan(name, sequence)).metrics) for name in CONTESTANTS}
    _check_equal({name: each.matches for name, each in found.items()})
    for name, each in found.items():
        counts[name].append(each)


def _check_equal(matches: Mapping[str, int]) -> None:
    if len(set(matches.values())) > 1:
        raise AssertionError(f"the plans do not agree on the matches: {dict(matches)}")


# ---- the claims --------------------------------------------------------------------------------


def claims_by_share(what: str, counts: Counts, shares: Sequence[float]) -> list[Claim]:
    """`what` begins with the sequence."""
    best = [min(counts[order][i].operations for order in ORDERS) for i in range(len(shares))]
    tree = [each.operations for each in counts["tree"]]
    worst, share = max((t / b, s) for t, b, s in zip(tree, best, shares, strict=True))
    found = [
        Claim(
            f"{what}: the tree is never more than 5 % above the best chain",
            worst <= 1.05,
            f"at most {worst:.3f}x, at f_c = {share:g}",
        )
    ]
    if what.startswith("abc"):
        lazy = min(best[-1], tree[-1])
        gain = counts["eager"][-1].operations / lazy
        text = f"{what}: eager needs at least 100 times the best lazy plan at the extreme"
        found.append(Claim(text, gain >= 100, f"{gain:,.0f}x at f_c = {shares[-1]:g}"))
    return found


def claims_by_length(counts: Counts) -> list[Claim]:
    peaks = {name: max(each.peak for each in found) for name, found in counts.items()}
    lazy = max(peaks["cab"], peaks["cba"])
    return [
        Claim(
            "chains that begin with c hold fewer partial matches than those that end with it",
            lazy < min(peaks["abc"], peaks["bac"], peaks["eager"]),
            f"{lazy:,} against {min(peaks['abc'], peaks['bac'], peaks['eager']):,}",
        ),
        Claim(
            "the tree holds about as many as the best chain",
            peaks["tree"] <= 1.25 * min(peaks[order] for order in ORDERS),
            f"{peaks['tree']:,} against {min(peaks[order] for order in ORDERS):,}",
        ),
    ]


def claims_by_piece(counts: Counts) -> list[Claim]:
    totals = {name: sum(each.operations for each in found) for name, found in counts.items()}
    order = min(ORDERS, key=lambda name: totals[name])
    tree = totals["tree"]
    pieces = range(len(counts["tree"]))
    above = sum(
        counts["tree"][i].operations > 1.05 * min(counts[name][i].operations for name in ORDERS)
        for i in pieces
    )
    return [
        Claim(
            "over the whole changing stream the tree is below every fixed chain",
            tree < totals[order],
            f"{tree:,} against {totals[order]:,} of {order}: {totals[order] / tree:.1f}x",
        ),
        Claim(
            "in every piece it is within 5 % of the chain that is best there",
            not above,
            f"{above} of {len(pieces)} pieces above",
        ),
    ]


# ---- tables and pictures -----------------------------------------------------------------------


def _table(first: str, at: Sequence[object], counts: Counts, what: str) -> str:
    rows = [
        [each, *(getattr(counts[name][i], what) for name in CONTESTANTS)]
        for i, each in enumerate(at)
    ]
    return table([first, *CONTESTANTS], rows)


def _series(counts: Counts, what: str) -> dict[str, list[int | float | None]]:
    """Nothing to draw at 0 on a logarithmic axis."""
    return {name: [getattr(each, what) or None for each in found] for name, found in counts.items()}


def _phases(counts: Counts, phase_events: int, piece_events: int) -> dict[str, list[Count]]:
    """Pieces added up to phases; the stream is a piece longer or shorter by chance."""
    pieces = phase_events // piece_events
    return {
        name: [
            Count(sum(each.operations for each in part), max(each.peak for each in part), 0)
            for part in (
                found[phase * pieces : (phase + 1) * pieces] for phase in range(len(PHASES))
            )
        ]
        for name, found in counts.items()
    }


def figures_7_and_8(sizes: Sizes, folder: Path | None) -> list[Claim]:
    """Figure 7 a second time with a threshold that few pairs reach, which the paper does not
    vary: there the order of a and b matters too."""
    claims: list[Claim] = []
    panels = []
    shown = [f"{share:g}" for share in sizes.shares]
    for figure, sequence, threshold in (
        (7, "abc", THRESHOLD), (7, "abc", HIGH_THRESHOLD), (8, "cba", THRESHOLD),
        (8, "acb", THRESHOLD),
    ):  # fmt: skip
        counts = by_share(sequence, sizes, threshold)
        what = f"{sequence}, correlation above {threshold:g}"
        print(f"\nFigure {figure}: operations, {what}\n")
        print(_table("f_c", shown, counts, "operations"))
        claims += claims_by_share(what, counts, sizes.shares)
        series = _series(counts, "operations")
        axis = "relative frequency of c"
        panels.append(Panel(what, axis, "operations", sizes.shares, series, log_x=True, log_y=True))
    if folder is not None:
        draw("lazy-nfa-7", panels[:2], folder, names=CONTESTANTS)
        draw("lazy-nfa-8", panels[2:], folder, names=CONTESTANTS)
    return claims


def figure_9(sizes: Sizes, folder: Path | None) -> list[Claim]:
    counts = by_length(sizes)
    lengths = [round(PER_MINUTE * (2 + MEMORY_SHARE) * minutes) for minutes in sizes.lengths]
    print("\nFigure 9: peak partial matches, sequence abc\n")
    print(_table("events, about", lengths, counts, "peak"))
    if folder is not None:
        series = _series(counts, "peak")
        title = "peak partial matches, sequence a, b, c"
        panel = Panel(title, "events", "", lengths, series, log_x=True)
        draw("lazy-nfa-9", [panel], folder, names=CONTESTANTS)
    return claims_by_length(counts)


def figure_10(sizes: Sizes, folder: Path | None) -> list[Claim]:
    counts = by_piece(sizes)
    phases = [f"{number + 1}: {rare} is rare" for number, rare in enumerate(PHASES)]
    print(f"\nFigure 10: operations in each phase of {sizes.phase_events:,} events\n")
    by_phase = _phases(counts, sizes.phase_events, sizes.piece_events)
    print(_table("phase", phases, by_phase, "operations"))
    if folder is not None:
        title = f"operations per {sizes.piece_events:,} events, sequence a, b, c"
        at = [(piece + 1) * sizes.piece_events for piece in range(len(counts["tree"]))]
        drawn = _series({name: counts[name] for name in CHANGING}, "operations")
        panel = Panel(title, "events", "", at, drawn, log_y=True, marked=False)
        draw("lazy-nfa-10", [panel], folder, names=CONTESTANTS)
    return claims_by_piece(counts)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 7 to 10 of the lazy-nfa paper.")
    arguments.add_argument("--quick", action="store_true", help="small streams, no pictures")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else FULL
    folder = given.figures or (None if given.quick else FIGURES)
    claims = figures_7_and_8(sizes, folder) + figure_9(sizes, folder) + figure_10(sizes, folder)
    print("\n" + "\n".join(claim.line() for claim in claims))


if __name__ == "__main__":
    main()
