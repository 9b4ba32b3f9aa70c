"""Figures 5 to 7 of the adaptive-invariants paper: when to make another plan, on changing streams.

    python -m benchmarks.invariants [--quick | --short] [--figures FOLDER] [--json FILE]

Figure 5 scans the distance d of the invariant method on sequences, and with it the threshold t of
the threshold method. Figures 6 and 7 compare the methods, with the best d and t of their stream
and planner, on all five pattern sets. Throughput is the counted one (`adaptive_runs.py`), beside
it the measured one. benchmarks/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.adaptive_runs import PAST, Cell, Methods, Results, run_all
from benchmarks.comparison import (
    BEHIND,
    COMPARED,
    NAMES,
    TIE,
    Pair,
    adapting_table,
    draw_comparison,
    geometric,
    not_first,
    rows_of,
    throughput_table,
)
from benchmarks.pattern_sets import KINDS, SIZES, STREAMS, Kind
from benchmarks.pictures import FIGURES, Panel, draw
from benchmarks.reporting import Claim, table
from spark_cep.udfs.program import Adaptation

if TYPE_CHECKING:
    from spark_cep.udfs.program import PlanKind

PLANNERS: tuple[PlanKind, ...] = ("lazy-chain", "zstream")
VARIANTS = {
    "auto": Adaptation("invariants", distance="auto"),
    "meta": Adaptation("invariants", distance="meta"),
    "k = all": Adaptation("invariants", k=None, distance=0.0),
}
GOAL_OVERHEAD = 0.01


@dataclass(frozen=True)
class Scale:
    events: int
    sizes: tuple[int, ...]
    kinds: tuple[Kind, ...]
    distances: tuple[float, ...]
    thresholds: tuple[float, ...]


FULL = Scale(400_000, SIZES, KINDS, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), (0.2, 0.5, 1.0, 2.0))
SHORT = Scale(160_000, (3, 5, 8), KINDS, (0.0, 0.1, 0.2, 0.5), (0.2, 0.5, 2.0))
QUICK = Scale(160_000, (3, 5), ("sequence", "conjunction"), (0.0, 0.2), (0.3, 1.0))


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


# ---- decisions on past statistics --------------------------------------------------------------


def compare_past(found: Scan) -> Results:
    """Sequences, with each function deciding on the statistics of the chunk before, as in the
    paper, and on the rates of the chunk to come, as the product does."""
    scale = found.scale

    def methods(cell: Cell) -> Methods:
        pair = cell.stream, cell.planner
        adaptations = {
            "always": Adaptation("always"),
            "threshold": Adaptation("threshold", threshold=found.best_threshold(pair)),
            "invariants": Adaptation("invariants", distance=found.best_distance(pair)),
        }
        past = {f"{name}{PAST}": each for name, each in adaptations.items()}
        return {"static": Adaptation("off"), **past, **adaptations}

    cells = [
        Cell(stream, planner, "sequence", size)
        for stream, planner, size in product(STREAMS, PLANNERS, scale.sizes)
    ]
    return run_all(cells, scale.events, methods)


def past_table(past: Results) -> str:
    """Pairs an event, and swaps."""
    names = list(next(iter(past.values())))
    rows = [
        [
            cell.stream, NAMES[cell.planner], cell.size,
            *(runs[name].pairs / runs[name].events for name in names),
            *(runs[name].swaps for name in (f"invariants{PAST}", "invariants")),
        ]
        for cell, runs in past.items()
    ]  # fmt: skip
    head = ["stream", "planner", "size", *names, f"swaps: invariants{PAST}", "swaps: invariants"]
    return table(head, rows)


# ---- overhead over the engine's own chunks -----------------------------------------------------


def compare_own_chunks(found: Scan) -> Results:
    """Longer streams, for these chunks are longer; of the sizes the first and the last."""
    scale = found.scale
    sizes = scale.sizes[0], scale.sizes[-1]
    cells = [
        Cell(stream, planner, "sequence", size)
        for stream, planner, size in product(STREAMS, PLANNERS, sizes)
    ]

    def methods(cell: Cell) -> Methods:
        distance = found.best_distance((cell.stream, cell.planner))
        return {
            "always": Adaptation("always"),
            "invariants": Adaptation("invariants", distance=distance),
        }

    return run_all(cells, 2 * scale.events, methods, own_chunks=True)


def own_chunks_table(own: Results) -> str:
    names = ("always", "invariants")
    rows = [
        [
            cell.stream, NAMES[cell.planner], cell.size, runs["invariants"].checks,
            *(1e3 * runs[name].planning / max(1, runs[name].checks) for name in names),
            *(100 * runs[name].overhead for name in names),
        ]
        for cell, runs in own.items()
    ]  # fmt: skip
    head = ["stream", "planner", "size", "chunks"]
    head += [f"{name}, ms a chunk" for name in names] + [f"overhead {name}, %" for name in names]
    return table(head, rows)


# ---- claims ------------------------------------------------------------------------------------


def claims(results: Results, own: Results, scale: Scale) -> list[Claim]:
    """`own`: runs over the engine's own chunks."""
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
        overhead = max(
            runs["invariants"].overhead
            for cell, runs in own.items()
            if (cell.stream, cell.planner) == pair
        )
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
                f"{name}: overhead below {GOAL_OVERHEAD:.0%} over the engine's own chunks",
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
        print(f"\nFigure {name}: {title}: thousand events a second, over the pattern sets\n")
        print(f"{throughput_table(rows)}\n\n{adapting_table(rows)}")
        if folder is not None:
            draw_comparison(f"adaptive-invariants-{name}", title, rows, folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 5 to 7 of adaptive-invariants.")
    arguments.add_argument("--quick", action="store_true", help="few, short streams, no pictures")
    arguments.add_argument("--short", action="store_true", help="three sizes, shorter streams")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all runs there")
    given = arguments.parse_args()
    scale = QUICK if given.quick else SHORT if given.short else FULL
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
    print("\nDeciding on past statistics and on the rates to come, sequences\n")
    print(past_table(compare_past(found)))
    own = compare_own_chunks(found)
    print("\nOverhead over the engine's own chunks, sequences\n")
    print(own_chunks_table(own))
    print("\n" + "\n".join(claim.line() for claim in claims(results, own, scale)))
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
