"""Figures 6 to 10 of the darling paper: matches kept, how late they are, memory, and cost.

    python -m benchmarks.darling [peaks overload cost] [--quick] [--seeds N] [--jobs N]
                                 [--policies P ...] [--data D ...] [--figures FOLDER] [--json FILE]

One bucket's triggers without Spark, on a simulated clock that counts processor time
(`shed_runs.py`), over the game's rows and generated streams (`shed_streams.py`) and the templates
of the paper's Table 1 (`shed_queries.py`). Each cell is a task; what is done and what is left is
told on the way.
benchmarks/load_shedding_streams.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.pictures import FIGURES, Number, Panel, draw
from benchmarks.progress import run_tasks
from benchmarks.reporting import Claim, table
from benchmarks.shed_figures import (
    Cell,
    Outcome,
    ahead_claims,
    averaged,
    bound_claims,
    cell,
    deviation,
    draw_figure,
    latencies,
    memories,
    plain,
    shares,
)
from benchmarks.shed_queries import LENGTHS, VARIED, Dataset, Query
from benchmarks.shed_runs import (
    NEVER,
    POLICIES,
    How,
    Peaks,
    overloaded,
    run,
    with_warming,
    work_of,
)
from benchmarks.shed_windows import FIGURES as STREAMS
from spark_cep.udfs.shedding.pace import SPARK_SECONDS

# Two thirds of the paper's 1.5 s, so that streams may be short: 0.4 s are left for matching.
BOUND = 1.0
# Of the default window and factor.
WINDOWS = (0.8, 1.0, 1.2)
FACTORS = (0.9, 1.1)
# The game has three kinds of rows, so longer patterns have a generated one.
OF_LENGTHS: tuple[Dataset, ...] = ("stock", "bus", "soccer")
OF_WINDOWS: tuple[Dataset, ...] = ("stock", "bus", "game")
MIDDLE = 4
OVERLOADS = (10, 30, 50, 70, 90)
PAPERS = 70
# How many times the rows of the other figures, so that a load lasts for several triggers.
LONGER = 2
THREE, LITTLE = 3.0, 0.02

PARTS = ("peaks", "overload", "cost")
_HELP = "peaks: Figures 6 to 8; overload: Figure 9; cost: Figure 10"


@dataclass(frozen=True)
class Sizes:
    """`rows`: the part of each stream. `calm`: the seconds of the rows at the base rate, in which a
    trigger begins every 0.4."""

    rows: float
    calm: float
    lengths: Sequence[int] = LENGTHS
    overloads: Sequence[int] = OVERLOADS
    windows: Sequence[float] = WINDOWS
    varies_factors: bool = True


FULL = Sizes(1.0, 10.0)
QUICK = Sizes(0.02, 1.0, (3, 8), (70,), (1.0,), varies_factors=False)


@dataclass(frozen=True)
class Task:
    """A cell of a figure with one seed. `at`: the value of what is varied; `times`: the part of the
    default window or factor that it is."""

    part: str
    dataset: Dataset
    what: str
    at: float
    times: float
    seed: int
    policies: tuple[How, ...]
    sizes: Sizes

    def query(self) -> Query:
        length = int(self.at) if self.what == "length" else MIDDLE
        query = STREAMS.query(VARIED[self.dataset], length)
        if self.what == "window":
            query = query.with_window(self.times)
        if self.what == "partial matches":
            query = query.looser(self.times)
        longer = LONGER if self.what == "overload" and self.dataset != "game" else 1
        return replace(query, rows=round(query.rows * self.sizes.rows * longer))

    @property
    def name(self) -> tuple[str, str, float]:
        return VARIED[self.dataset], self.what, self.at


# ---- Figures 6 to 9 ----------------------------------------------------------------------------


def measure(task: Task) -> Cell | Overhead:
    if task.part == "cost":
        return overhead(task)
    query = task.query()
    work = work_of(query, seed=task.seed)
    hows = ("none", *task.policies)
    if task.part == "peaks":
        load = Peaks(seconds=task.sizes.calm).arrivals(work.rows - work.warm)
        arrivals = with_warming(load, work.warm, task.sizes.calm / 2)
        return cell(task.name, work, arrivals, hows, bound=BOUND)
    # The matches of all rows are those of a run in which all come in time; how late they are
    # without shedding is looked at where the load is the paper's.
    full = run(work, np.linspace(0, work.rows / 20_000, work.rows), "none", BOUND)
    arrivals = overloaded(work, full.work_seconds / work.rows, int(task.at), BOUND)
    if task.at == PAPERS:
        return cell(task.name, work, arrivals, hows, bound=BOUND)
    return cell(task.name, work, arrivals, task.policies, full=full, bound=BOUND)


# ---- Figure 10 ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overhead:
    """Seconds of all triggers of a calm stream with each policy, none of which drops a row, and
    without shedding ("none"): the worker's own part."""

    query: str
    what: str
    at: float
    triggers: int
    seconds: Mapping[How, float]

    def of_worker(self, how: How) -> float:
        return self.seconds[how] / self.seconds["none"] - 1

    def of_triggers(self, how: How) -> float:
        spark = self.triggers * SPARK_SECONDS
        return (self.seconds[how] + spark) / (self.seconds["none"] + spark) - 1


def overhead(task: Task) -> Overhead:
    work = work_of(task.query(), seed=task.seed)
    arrivals = np.linspace(0, task.sizes.calm, work.rows)
    seconds: dict[How, float] = {}
    without = run(work, arrivals, "none", NEVER)
    for how in ("none", *task.policies):
        found = run(work, arrivals, how, NEVER)
        if found.share_of(without) < 1:
            raise AssertionError(f"{task.name}: {how} dropped rows without overload")
        seconds[how] = found.work_seconds / len(found.triggers) * len(without.triggers)
    return Overhead(*task.name, len(without.triggers), seconds)


# ---- the program -------------------------------------------------------------------------------


def tasks(
    parts: Sequence[str], seeds: Sequence[int], policies: tuple[How, ...], sizes: Sizes
) -> list[Task]:
    varied: list[tuple[str, Dataset, str, float, float]] = []
    for part in ("peaks", "cost"):
        for dataset in OF_WINDOWS:
            varied += [(part, dataset, "window", times, times) for times in sizes.windows]
            if sizes.varies_factors:
                varied += [(part, dataset, "partial matches", times, times) for times in FACTORS]
        for dataset in OF_LENGTHS:
            lengths = [
                each for each in sizes.lengths if dataset not in OF_WINDOWS or each != MIDDLE
            ]
            varied += [(part, dataset, "length", length, 1.0) for length in lengths]
    varied += [
        ("overload", dataset, "overload", overload, 1.0)
        for dataset in OF_WINDOWS
        for overload in sizes.overloads
    ]
    # Seed by seed, so that a run that is stopped has whole figures.
    return [
        Task(*each, seed, policies, sizes)
        for seed in seeds
        for each in varied
        if each[0] in parts and (each[0] != "cost" or seed == seeds[0])
    ]


Found = TypeVar("Found", Cell, Overhead)


def with_middles(found: Sequence[Found]) -> list[Found]:
    """The cell of the default window, length and factor stands in all three figures."""
    copies: list[Found] = []
    for each in found:
        if each.what == "window" and each.at == 1.0:
            copies.append(replace(each, what="partial matches"))
            if each.query in {VARIED[dataset] for dataset in OF_LENGTHS}:
                copies.append(replace(each, what="length", at=float(MIDDLE)))
    return [*found, *copies]


def draw_all(cells: Sequence[Cell], cost: Sequence[Overhead], folder: Path) -> None:
    of = {template: dataset for dataset, template in VARIED.items()}
    letters = {"window": "a", "length": "b", "partial matches": "c"}
    for what, letter in letters.items():
        x = {"window": "rows in a window", "length": "pattern length"}.get(what, what)
        here: dict[str, list[Cell]] = {}
        for each in cells:
            if each.what == what:
                here.setdefault(of[each.query], []).append(each)
        for number, measured in ((6, "shares"), (7, "latency"), (8, "memory")):
            if here:
                draw_figure(f"darling-{number}{letter}", measured, x, here, folder)
        spent: dict[str, list[Overhead]] = {}
        for one in cost:
            if one.what == what:
                spent.setdefault(of[one.query], []).append(one)
        if spent:
            panels = [_cost_panel(dataset, x, each) for dataset, each in spent.items()]
            draw(f"darling-10{letter}", panels, folder, names=("none", *POLICIES))
    loaded: dict[str, list[Cell]] = {}
    for each in cells:
        if each.what == "overload":
            loaded.setdefault(of[each.query], []).append(each)
    if loaded:
        for measured in ("shares", "latency"):
            draw_figure(f"darling-9-{measured}", measured, "overload, %", loaded, folder)


def _cost_panel(dataset: str, x: str, cost: Sequence[Overhead]) -> Panel:
    found = sorted(cost, key=lambda each: each.at)
    policies = [how for how in found[0].seconds if how != "none"]
    series: dict[str, list[Number | None]] = {
        how: [100 * each.of_triggers(how) for each in found] for how in policies
    }
    return Panel(dataset, x, "more time of a trigger, %", [each.at for each in found], series)


def three_times(cells: Sequence[Cell]) -> list[Claim]:
    text = f"at 70 % overload utility keeps {THREE:g} times the matches of random on stock"
    ratios = [
        one.ratio("random")
        for one in cells
        if (one.query, one.what, one.at) == (VARIED["stock"], "overload", PAPERS)
        and "random" in one.outcomes
    ]
    return [Claim(text, ratio >= THREE, f"{ratio:.1f} times") for ratio in ratios]


def cheap(cost: Sequence[Overhead]) -> list[Claim]:
    """Single cells vary by what the machine does; the median does not."""
    found = [each.of_triggers("utility") for each in cost if "utility" in each.seconds]
    text = "without overload a trigger takes less than 2 % more"
    middle = statistics.median(found) if found else 0.0
    return [Claim(text, middle < LITTLE, f"median {100 * middle:.1f} %, {100 * max(found):.1f} %")]


def cost_table(cost: Sequence[Overhead]) -> str:
    policies = [how for how in cost[0].seconds if how != "none"]
    head = ["cell", "triggers", "worker without, s", *(f"{how}, worker, %" for how in policies)]
    head += [f"{how}, trigger, %" for how in policies]
    rows: list[list[object]] = [
        [
            f"{each.query}, {each.what} {each.at:,.3g}",
            each.triggers,
            each.seconds["none"],
            *(100 * each.of_worker(how) for how in policies),
            *(100 * each.of_triggers(how) for how in policies),
        ]
        for each in cost
    ]
    return table(head, rows)


def show(cells: Sequence[Cell], cost: Sequence[Overhead]) -> list[Claim]:
    """Prints the tables; the claims."""
    means = averaged(cells)
    for what in dict.fromkeys(each.what for each in means):
        here = [each for each in means if each.what == what]
        title = "Figure 9" if what == "overload" else f"Figures 6 to 8, {what}"
        print(f"\n{title}: matches kept\n\n{shares(here, in_peaks=what != 'overload')}")
        print(f"\n{title}: detection latency and the longest trigger, s\n\n{latencies(here)}")
        print(f"\n{title}: peak memory\n\n{memories(here)}", flush=True)
    said = [*three_times(means)]
    if means:
        spread = 100 * deviation(cells)
        print(f"\nOver seeds a share of matches deviates by up to {spread:.1f} points.")
        said += [*bound_claims(means), *ahead_claims(means)]
    if cost:
        print(f"\nFigure 10: more time with shedding that drops nothing\n\n{cost_table(cost)}")
        said += cheap(cost)
    print("\n" + "\n".join(claim.line() for claim in said), flush=True)
    return said


def read(file: Path) -> list[Cell | Overhead]:
    """What `--json` wrote."""
    content = json.loads(file.read_text())
    cells = [
        Cell(**{**each, "outcomes": {how: Outcome(**o) for how, o in each["outcomes"].items()}})
        for each in content["cells"]
    ]
    return [*cells, *(Overhead(**each) for each in content["cost"])]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Figures 6 to 10 of the darling paper.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=_HELP)
    parser.add_argument("--quick", action="store_true", help="short streams, no pictures")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--data", nargs="+", choices=VARIED, default=list(VARIED))
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw them there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--read", type=Path, metavar="FILE", help="of a run, also a part of one")
    given = parser.parse_args(arguments)
    sizes = QUICK if given.quick else FULL
    folder = given.figures or (None if given.quick else FIGURES)
    seeds = range(1 if given.quick else given.seeds)
    every_task = tasks(given.parts or PARTS, seeds, tuple(given.policies), sizes)
    todo = [each for each in every_task if each.dataset in given.data and not given.read]
    found: dict[int, Cell | Overhead] = dict(enumerate(read(given.read))) if given.read else {}
    for number, result in run_tasks(measure, todo, given.jobs):
        found[number] = result
        if given.json is not None:
            every = [found[number] for number in sorted(found)]
            content = {
                "cells": [plain(each) for each in every if isinstance(each, Cell)],
                "cost": [vars(each) for each in every if isinstance(each, Overhead)],
            }
            given.json.write_text(json.dumps(content, indent=1))
    every = [found[number] for number in sorted(found)]
    cells = with_middles([each for each in every if isinstance(each, Cell)])
    cost = with_middles([each for each in every if isinstance(each, Overhead)])
    show(cells, cost)
    if folder is not None:
        draw_all(averaged(cells), cost, folder)
    print(f"{len(every)} cells", file=sys.stderr)


if __name__ == "__main__":
    main()
