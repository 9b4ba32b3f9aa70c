"""Figures 6, 7, 9 and 10 of the darling paper: what is left of the matches, and how late they are.

    python -m benchmarks.darling [--quick] [--rounds N] [--figures FOLDER] [--json FILE]

One bucket's triggers without Spark, on a simulated clock (`shed_runs.py`), over generated streams
(`shed_streams.py`) and the templates of the paper's Table 1 (`shed_queries.py`).
benchmarks/experiments.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.pictures import FIGURES, Number, Panel, draw
from benchmarks.reporting import Claim, table
from benchmarks.shed_figures import (
    HOWS,
    Cell,
    ahead_claims,
    bound_claims,
    cell,
    draw_pair,
    latencies,
    plain,
    shares,
)
from benchmarks.shed_queries import QUERIES, VARIED, Dataset, Query
from benchmarks.shed_runs import (
    BOUND,
    NEVER,
    POLICIES,
    SAFETY,
    Peaks,
    Work,
    run,
    with_warming,
    work_of,
)
from spark_cep.udfs.shedding.pace import SPARK_SECONDS

# Of the default window, length and factor; a longer pattern has a shorter window, for with each
# type more its work grows tenfold.
WINDOWS = (0.8, 1.0, 1.2)
LENGTHS: Mapping[Dataset, Mapping[int, float]] = {
    "stock": {3: 1.2, 4: 1.0, 5: 0.6},
    "bus": {3: 1.6, 4: 1.0, 5: 0.8},
    "soccer": {3: 2.5, 4: 1.0, 5: 0.6},
}
FACTORS: Mapping[Dataset, Sequence[float]] = {
    "stock": (0.9, 1.0, 1.1), "bus": (1.1, 1.0, 0.9), "soccer": (0.9, 1.0, 1.1),
}  # fmt: skip
OVERLOADS = (10, 30, 50, 70, 90)
PAPERS = 70
# How many times the rows of Figures 6 and 7, so that a load lasts for several triggers.
LONGER = 2
THREE, LITTLE = 3.0, 0.02


@dataclass(frozen=True)
class Sizes:
    """`rows`: the part of each stream. `calm`: the seconds of the rows at the base rate, in which a
    trigger begins every 0.4. `overloads`: of Figure 9."""

    rows: float
    calm: float
    overloads: Sequence[int]
    rounds: int
    datasets: Sequence[Dataset] = ("stock", "bus", "soccer")

    @property
    def varied(self) -> dict[Dataset, str]:
        return {dataset: VARIED[dataset] for dataset in self.datasets}


FULL = Sizes(1.0, 40.0, OVERLOADS, 5)
QUICK = Sizes(0.15, 8.0, (70,), 2)


# ---- Figures 6 and 7 ---------------------------------------------------------------------------


def in_peaks(query: Query, what: str, at: float, sizes: Sizes) -> Cell:
    work = work_of(replace(query, rows=round(query.rows * sizes.rows)))
    value = work.window_rows if what == "window" else at
    load = Peaks(seconds=sizes.calm).arrivals(work.rows - work.warm)
    arrivals = with_warming(load, work.warm, sizes.calm / 2)
    found = cell((query.name, what, value), work, arrivals)
    if what == "partial matches":
        found = replace(found, at=found.partials)
    return found


def figures_6_and_7(sizes: Sizes, folder: Path | None) -> dict[str, dict[Dataset, list[Cell]]]:
    found: dict[str, dict[Dataset, list[Cell]]] = {
        "window": {},
        "length": {},
        "partial matches": {},
    }
    for dataset, name in sizes.varied.items():
        query = QUERIES[name]
        middle = in_peaks(query, "window", 1.0, sizes)
        found["window"][dataset] = [
            middle if times == 1 else in_peaks(query.with_window(times), "window", times, sizes)
            for times in WINDOWS
        ]
        found["length"][dataset] = [
            replace(middle, what="length", at=float(length))
            if length == query.length
            else in_peaks(replace(query, length=length).with_window(times), "length", length, sizes)
            for length, times in LENGTHS[dataset].items()
        ]
        partials = [
            replace(middle, what="partial matches", at=middle.partials)
            if times == 1
            else in_peaks(query.looser(times), "partial matches", times, sizes)
            for times in FACTORS[dataset]
        ]
        found["partial matches"][dataset] = sorted(partials, key=lambda each: each.at)
    if folder is not None:
        for letter, (what, of) in zip("abc", found.items(), strict=True):
            x = {"window": "rows in a window", "length": "pattern length"}.get(what, what)
            draw_pair((f"darling-6{letter}", f"darling-7{letter}"), x, of, folder)
    return found


def templates(sizes: Sizes) -> list[Cell]:
    """The other templates of Table 1, each as it is."""
    others = [
        query
        for name, query in QUERIES.items()
        if query.dataset in sizes.datasets and name not in VARIED.values()
    ]
    return [in_peaks(query, "window", 1.0, sizes) for query in others]


# ---- Figure 9 ----------------------------------------------------------------------------------


def overloaded(work: Work, row_seconds: float, overload: int) -> np.ndarray:
    """Rows that come so fast that of the work so many per cent are too much for triggers that last
    the planned part of the bound."""
    planned = BOUND * SAFETY
    capacity = (planned - SPARK_SECONDS) / row_seconds / planned
    gap = (1 - overload / 100) / capacity
    return with_warming(np.arange(1, work.rows - work.warm + 1) * gap, work.warm)


def figure_9(sizes: Sizes, folder: Path | None) -> dict[Dataset, list[Cell]]:
    """The matches of all rows are those of a run in which all come in time; how late they are
    without shedding is looked at where the load is the paper's."""
    found: dict[Dataset, list[Cell]] = {}
    for dataset, name in sizes.varied.items():
        query = QUERIES[name]
        work = work_of(replace(query, rows=round(LONGER * query.rows * sizes.rows)))
        full = run(work, np.linspace(0, work.rows / 20_000, work.rows), "none")
        row_seconds = full.work_seconds / work.rows
        found[dataset] = [
            cell(
                (name, "overload", float(overload)),
                work,
                overloaded(work, row_seconds, overload),
                POLICIES if overload != PAPERS else HOWS,
                full if overload != PAPERS else None,
            )
            for overload in sizes.overloads
        ]
        print(f"{name}: {1e6 * row_seconds:.1f} us a row", file=sys.stderr, flush=True)
    if folder is not None:
        draw_pair(("darling-9-shares", "darling-9-latency"), "overload, %", found, folder)
    return found


# ---- Figure 10 ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overhead:
    """Seconds of all triggers of a calm stream, with shedding that drops nothing and without, round
    by round: the worker's own part."""

    query: str
    triggers: int
    off: tuple[float, ...]
    on: tuple[float, ...]

    @property
    def of_worker(self) -> float:
        """The median of the rounds' ratios, less 1."""
        return statistics.median(b / a for a, b in zip(self.off, self.on, strict=True)) - 1

    @property
    def of_triggers(self) -> float:
        spark = self.triggers * SPARK_SECONDS
        ratios = [(b + spark) / (a + spark) for a, b in zip(self.off, self.on, strict=True)]
        return statistics.median(ratios) - 1


def figure_10(sizes: Sizes, folder: Path | None) -> list[Overhead]:
    found = []
    for name in sizes.varied.values():
        query = QUERIES[name]
        work = work_of(replace(query, rows=round(query.rows * sizes.rows / 2)))
        arrivals = np.linspace(0, 20.0, work.rows)
        off, on, triggers = [], [], 0
        for turn in range(1 + sizes.rounds):
            without = run(work, arrivals, "none")
            shedding = run(work, arrivals, "utility", NEVER)
            if shedding.share_of(without) < 1:
                raise AssertionError(f"{name}: rows were dropped without overload")
            if turn:
                off.append(without.work_seconds / len(without.triggers))
                on.append(shedding.work_seconds / len(shedding.triggers))
            triggers = len(without.triggers)
        found.append(
            Overhead(
                name, triggers, tuple(triggers * s for s in off), tuple(triggers * s for s in on)
            )
        )
    if folder is not None:
        series: dict[str, list[Number | None]] = {
            "of the worker's time": [100 * each.of_worker for each in found],
            "of the trigger": [100 * each.of_triggers for each in found],
        }
        names = [f"{dataset}, {name}" for dataset, name in sizes.varied.items()]
        draw(
            "darling-10",
            [Panel("no rows dropped", "", "more time, %", names, series, "bars")],
            folder,
        )
    return found


# ---- the program -------------------------------------------------------------------------------


PARTS = ("peaks", "templates", "overload", "cost")
_HELP = "peaks: Figures 6 and 7; templates: the other queries; overload: Figure 9; cost: Figure 10"


def three_times(stock: Sequence[Cell]) -> list[Claim]:
    ratios = [one.ratio("random") for one in stock if one.at == PAPERS]
    text = f"at 70 % overload utility keeps {THREE:g} times the matches of random on stock"
    return [Claim(text, ratio >= THREE, f"{ratio:.1f} times") for ratio in ratios]


def cheap(cost: Sequence[Overhead]) -> list[Claim]:
    worst = max(each.of_triggers for each in cost)
    figures = ", ".join(
        f"{each.query} {100 * each.of_triggers:.1f} % of a trigger, {100 * each.of_worker:.1f} % "
        "of the worker's part" for each in cost
    )  # fmt: skip
    return [Claim("without overload a trigger takes less than 2 % more", worst < LITTLE, figures)]


def _show(title: str, cells: Sequence[Cell], *, in_peaks: bool = True) -> None:
    print(f"\n{title}: matches kept\n\n{shares(cells, in_peaks=in_peaks)}")
    print(
        f"\n{title}: detection latency and the longest trigger, seconds\n\n{latencies(cells)}",
        flush=True,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description="Figures 6, 7, 9 and 10 of the darling paper.")
    arguments.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=_HELP)
    arguments.add_argument("--quick", action="store_true", help="short streams, no pictures")
    arguments.add_argument("--rounds", type=int, help="of Figure 10")
    arguments.add_argument(
        "--overloads", nargs="+", type=int, metavar="PERCENT", help="of Figure 9"
    )
    arguments.add_argument("--datasets", nargs="+", choices=VARIED, default=list(VARIED))
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    given = arguments.parse_args()
    sizes = QUICK if given.quick else FULL
    sizes = replace(sizes, rounds=given.rounds or sizes.rounds, datasets=given.datasets)
    sizes = replace(sizes, overloads=given.overloads or sizes.overloads)
    folder = given.figures or (None if given.quick else FIGURES)
    parts = given.parts or PARTS
    warm_up(sizes)
    cells: list[Cell] = []
    said: list[Claim] = []
    content: dict[str, object] = {}
    if "peaks" in parts:
        for what, of in figures_6_and_7(sizes, folder).items():
            found = [one for each in of.values() for one in each]
            _show(f"Figures 6 and 7, {what}", found)
            cells += found
    if "templates" in parts:
        others = templates(sizes)
        _show("The other templates", others)
        cells += others
    if "overload" in parts:
        continuous = figure_9(sizes, folder)
        found = [one for of in continuous.values() for one in of]
        _show("Figure 9", found, in_peaks=False)
        cells += found
        said += three_times(continuous.get("stock", ()))
    if cells:
        said += [*bound_claims(cells), *ahead_claims(cells)]
    if "cost" in parts:
        cost = figure_10(sizes, folder)
        rows = [[c.query, c.triggers, 100 * c.of_worker, 100 * c.of_triggers] for c in cost]
        print("\nFigure 10: more time with shedding that drops nothing, %\n")
        print(table(["query", "triggers", "of the worker's part", "of the trigger"], rows))
        said += cheap(cost)
        content["cost"] = [vars(each) for each in cost]
    print("\n" + "\n".join(claim.line() for claim in said))
    if given.json is not None:
        content |= {"cells": [plain(one) for one in cells], "claims": [vars(each) for each in said]}
        given.json.write_text(json.dumps(content, indent=1))


def warm_up(sizes: Sizes) -> None:
    """The first large trigger of a process takes twice as long as any later one: memory."""
    query = QUERIES["Q1A"]
    work = work_of(replace(query, rows=round(query.rows * sizes.rows / 2)))
    run(work, with_warming(Peaks().arrivals(work.rows - work.warm), work.warm), "none")


if __name__ == "__main__":
    main()
