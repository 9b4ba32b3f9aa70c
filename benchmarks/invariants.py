"""Figures 5 to 7 of the adaptive-invariants paper: when to make another plan, on changing streams.

    python -m benchmarks.invariants [--quick] [--figures FOLDER] [--json FILE]

Figure 5 scans the distance d of the invariant method on sequences, and with it the threshold t of
the threshold method. Figures 6 and 7 compare the methods, with the best d and t of their stream
and planner, on all five pattern sets. Throughput is the counted one (`adaptive_runs.py`), beside
it the measured one. docs/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.adaptive_runs import Cell, Result, run_all
from benchmarks.pattern_sets import KINDS, SIZES, STREAMS, Kind, Stream
from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.reporting import Claim, table
from spark_cep.udfs.program import Adaptation

if TYPE_CHECKING:
    from spark_cep.udfs.program import PlanKind

PLANNERS: tuple[PlanKind, ...] = ("lazy-chain", "zstream")
# What the paper calls them.
NAMES = {"lazy-chain": "greedy", "zstream": "ZStream"}
COMPARED = ("static", "always", "threshold", "invariants")
VARIANTS = {
    "auto": Adaptation("invariants", distance="auto"),
    "meta": Adaptation("invariants", distance="meta"),
    "k = all": Adaptation("invariants", k=None, distance=0.0),
}
# Closer than this two methods did the same work, and differ by the time of a few checks.
TIE = 0.02
GOAL_OVERHEAD = 0.01

Pair = tuple[Stream, "PlanKind"]
Methods = Mapping[str, Adaptation]
Results = Mapping[Cell, Mapping[str, Result]]


@dataclass(frozen=True)
class Scale:
    events: int
    sizes: tuple[int, ...]
    kinds: tuple[Kind, ...]
    distances: tuple[float, ...]
    thresholds: tuple[float, ...]


FULL = Scale(300_000, SIZES, KINDS, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), (0.1, 0.2, 0.3, 0.5, 1.0, 2.0))
QUICK = Scale(100_000, (3, 5), ("sequence", "conjunction"), (0.0, 0.2), (0.3, 1.0))


# ---- Figure 5: scanning d and t ----------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """Runs over the sequences: invariants by distance, thresholds, and the other variants."""

    scale: Scale
    results: Results

    def best_distance(self, pair: Pair) -> float:
        return max(self.scale.distances, key=lambda d: self.mean(pair, f"d = {d:g}"))

    def best_threshold(self, pair: Pair) -> float:
        return max(self.scale.thresholds, key=lambda t: self.mean(pair, f"t = {t:g}"))

    def mean(self, pair: Pair, method: str) -> float:
        cells = [cell for cell in self.results if (cell.stream, cell.planner) == pair]
        return geometric(self.results[cell][method].counted for cell in cells)


def scan(scale: Scale) -> Scan:
    methods = {
        "static": Adaptation("off"),
        "always": Adaptation("always"),
        **{f"d = {d:g}": Adaptation("invariants", distance=d) for d in scale.distances},
        **{f"t = {t:g}": Adaptation("threshold", threshold=t) for t in scale.thresholds},
        **VARIANTS,
    }
    cells = [
        Cell(stream, planner, "sequence", size)
        for stream, planner, size in product(STREAMS, PLANNERS, scale.sizes)
    ]
    return Scan(scale, run_all(cells, scale.events, lambda _: methods))


def scan_table(found: Scan, pair: Pair) -> str:
    cells = [cell for cell in found.results if (cell.stream, cell.planner) == pair]
    names = list(found.results[cells[0]])
    rows = [
        [cell.size, *(found.results[cell][name].counted / 1e3 for name in names)] for cell in cells
    ]
    return table(["size", *names], rows)


# ---- Figures 6 and 7: the methods --------------------------------------------------------------


def compare(found: Scan) -> Results:
    """All pattern sets under the four methods; sequences were run in the scan."""
    scale = found.scale

    def methods(cell: Cell) -> Methods:
        pair = cell.stream, cell.planner
        return {
            "static": Adaptation("off"),
            "always": Adaptation("always"),
            "threshold": Adaptation("threshold", threshold=found.best_threshold(pair)),
            "invariants": Adaptation("invariants", distance=found.best_distance(pair)),
        }

    others = [
        Cell(stream, planner, kind, size)
        for stream, planner, kind, size in product(STREAMS, PLANNERS, scale.kinds, scale.sizes)
        if kind != "sequence"
    ]
    results = run_all(others, scale.events, methods)
    for cell, runs in found.results.items():
        pair = cell.stream, cell.planner
        results[cell] = {
            "static": runs["static"],
            "always": runs["always"],
            "threshold": runs[f"t = {found.best_threshold(pair):g}"],
            "invariants": runs[f"d = {found.best_distance(pair):g}"],
        }
    return results


def geometric(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


@dataclass(frozen=True)
class Row:
    """One size of one stream and planner, over all pattern sets: throughputs as geometric means,
    replacements as means, overheads of all sets together."""

    size: int
    counted: Mapping[str, float]
    measured: Mapping[str, float]
    swaps: Mapping[str, float]
    overhead: Mapping[str, float]


def rows_of(results: Results, pair: Pair, sizes: Sequence[int]) -> list[Row]:
    def row(size: int) -> Row:
        runs = [
            runs
            for cell, runs in results.items()
            if (cell.stream, cell.planner) == pair and cell.size == size
        ]

        def each(figure: Callable[[list[Result]], float]) -> dict[str, float]:
            return {name: figure([run[name] for run in runs]) for name in COMPARED}

        return Row(
            size,
            each(lambda of: geometric(result.counted for result in of)),
            each(lambda of: geometric(result.measured for result in of)),
            each(lambda of: float(np.mean([result.swaps for result in of]))),
            each(_overhead),
        )

    return [row(size) for size in sizes]


def _overhead(results: Sequence[Result]) -> float:
    planning = sum(result.planning for result in results)
    return planning / (planning + sum(result.matching for result in results))


def comparison_table(rows: Sequence[Row]) -> str:
    head = ["size", *(f"{name}, k/s" for name in COMPARED)]
    head += [f"gain of {name}" for name in COMPARED[1:]]
    head += [f"measured {name}, k/s" for name in COMPARED]
    head += [f"swaps {name}" for name in COMPARED[1:]]
    head += [f"overhead {name}, %" for name in COMPARED[1:]]
    return table(
        head,
        [
            [
                row.size,
                *(row.counted[name] / 1e3 for name in COMPARED),
                *(row.counted[name] / row.counted["static"] for name in COMPARED[1:]),
                *(row.measured[name] / 1e3 for name in COMPARED),
                *(row.swaps[name] for name in COMPARED[1:]),
                *(100 * row.overhead[name] for name in COMPARED[1:]),
            ]
            for row in rows
        ],
    )


# ---- claims ------------------------------------------------------------------------------------


def not_first(results: Results) -> list[list[object]]:
    """The cells in which another method had more throughput, by more than a tie."""
    found: list[list[object]] = []
    for cell, runs in results.items():
        first = max(runs, key=lambda name: runs[name].counted)
        mine, theirs = runs["invariants"], runs[first]
        if theirs.counted > (1 + TIE) * mine.counted:
            found.append(
                [
                    cell.stream, NAMES[cell.planner], cell.kind, cell.size, first,
                    theirs.counted / mine.counted,
                    mine.pairs / mine.events, theirs.pairs / theirs.events,
                    1e6 * mine.planning / mine.events, 1e6 * theirs.planning / theirs.events,
                    mine.swaps, theirs.swaps,
                ]
            )  # fmt: skip
    return found


BEHIND = (
    "stream", "planner", "set", "size", "first", "ratio", "pairs an event", "theirs",
    "planning us an event", "theirs", "swaps", "theirs",
)  # fmt: skip


def claims(results: Results, scale: Scale) -> list[Claim]:
    behind = not_first(results)
    everywhere = Claim(
        f"invariants have the most throughput in every cell (ties within {TIE:.0%})",
        not behind,
        f"{len(results) - len(behind)} of {len(results)} cells",
    )
    found = [everywhere]
    for pair in product(STREAMS, PLANNERS):
        rows = rows_of(results, pair, scale.sizes)
        means = {name: geometric(row.counted[name] for row in rows) for name in COMPARED}
        best = max(means[name] for name in COMPARED[:-1])
        overhead = max(row.overhead["invariants"] for row in rows)
        name = f"{pair[0]}, {NAMES[pair[1]]}"
        ratio = means["invariants"] / best
        gain = means["invariants"] / means["static"]
        found += [
            Claim(
                f"{name}: invariants are first on average",
                ratio >= 1 - TIE,
                f"{ratio:.2f}x the next best, {gain:.2f}x static",
            ),
            Claim(
                f"{name}: overhead of invariants below {GOAL_OVERHEAD:.0%}",
                overhead < GOAL_OVERHEAD,
                f"at most {overhead:.2%}",
            ),
        ]
    return found


# ---- pictures ----------------------------------------------------------------------------------


def draw_scan(found: Scan, folder: Path) -> None:
    panels = []
    for pair in product(STREAMS, PLANNERS):
        cells = [cell for cell in found.results if (cell.stream, cell.planner) == pair]
        series = {
            f"d = {d:g}": [found.results[cell][f"d = {d:g}"].counted for cell in cells]
            for d in found.scale.distances
        }
        title = f"{pair[0]}, {NAMES[pair[1]]}"
        at = [cell.size for cell in cells]
        panels.append(Panel(title, "pattern size", "events a second", at, series, log_y=True))
    draw("adaptive-invariants-5", panels, folder)


def draw_comparison(name: str, title: str, rows: Sequence[Row], folder: Path) -> None:
    at = [row.size for row in rows]
    adaptive = COMPARED[1:]
    panels = [
        Panel(
            title, "pattern size", "events a second", at,
            {method: [row.counted[method] for row in rows] for method in COMPARED}, log_y=True,
        ),
        Panel(
            "gain over static", "pattern size", "times", at,
            {m: [row.counted[m] / row.counted["static"] for row in rows] for m in adaptive},
        ),
        Panel(
            "replaced plans", "pattern size", "in a run", at,
            {method: [row.swaps[method] for row in rows] for method in adaptive}, kind="bars",
        ),
        Panel(
            "time in D and A", "pattern size", "% of the run", at,
            {method: [100 * row.overhead[method] for row in rows] for method in adaptive},
            kind="bars",
        ),
    ]  # fmt: skip
    draw(name, panels, folder)


# ---- the run -----------------------------------------------------------------------------------


def report_scan(found: Scan) -> None:
    for pair in product(STREAMS, PLANNERS):
        print(f"\nFigure 5: {pair[0]}, {NAMES[pair[1]]}: thousand events a second, counted\n")
        print(scan_table(found, pair))
        print(
            f"\nbest d {found.best_distance(pair):g}, best t {found.best_threshold(pair):g}; of "
            f"the best d: auto {_beside_best(found, pair, 'auto'):.2f}, "
            f"meta {_beside_best(found, pair, 'meta'):.2f}, "
            f"k = all {_beside_best(found, pair, 'k = all'):.2f}"
        )


def _beside_best(found: Scan, pair: Pair, variant: str) -> float:
    return found.mean(pair, variant) / found.mean(pair, f"d = {found.best_distance(pair):g}")


def report_comparison(results: Results, scale: Scale, folder: Path | None) -> None:
    for number, (stream, planner) in enumerate(product(STREAMS, PLANNERS)):
        rows = rows_of(results, (stream, planner), scale.sizes)
        name, title = f"{6 + number // 2}{'ab'[number % 2]}", f"{stream}, {NAMES[planner]}"
        print(f"\nFigure {name}: {title}: counted throughput, averages over the pattern sets\n")
        print(comparison_table(rows))
        if folder is not None:
            draw_comparison(f"adaptive-invariants-{name}", title, rows, folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 5 to 7 of adaptive-invariants.")
    arguments.add_argument("--quick", action="store_true", help="few, short streams, no pictures")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all runs there")
    given = arguments.parse_args()
    scale = QUICK if given.quick else FULL
    folder = given.figures or (None if given.quick else FIGURES)
    found = scan(scale)
    report_scan(found)
    if folder is not None:
        draw_scan(found, folder)
    results = compare(found)
    report_comparison(results, scale, folder)
    behind = not_first(results)
    if behind:
        print("\nWhere another method was first\n")
        print(table(BEHIND, behind))
    print("\n" + "\n".join(claim.line() for claim in claims(results, scale)))
    if given.json:
        runs = [
            {**asdict(cell), "method": name, **asdict(result)}
            for part in (found.results, results)
            for cell, of in part.items()
            for name, result in of.items()
        ]
        given.json.write_text(json.dumps(runs))


if __name__ == "__main__":
    main()
