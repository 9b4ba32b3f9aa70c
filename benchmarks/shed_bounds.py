"""Whether a latency bound holds on streams: every template of the darling paper, lengths 3 to 8.

    python -m benchmarks.shed_bounds [--quick] [--jobs N] [--policies P ...] [--json FILE]
                                     [--templates T ...] [--lengths N ...] [--part P]
    python -m benchmarks.shed_bounds --processor-time  on a machine that other programs use
    python -m benchmarks.shed_bounds --spark           some of them in Spark's triggers

Without Spark, one bucket's triggers go through the product's own path (`shed_runs.py`): plan,
shedder, engine, deadline, state. The time of the worker's part is the one on the wall, the worker's
clock sees it too, and its processor time is measured beside it. Load comes in the paper's two ways:
70 % of the rows in four peaks, and all rows so fast that 70 % of the work is too much.
benchmarks/load_shedding_streams.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.pictures import FIGURES, Number, Panel, draw
from benchmarks.progress import run_tasks
from benchmarks.reporting import Claim, table
from benchmarks.shed_queries import LENGTHS, QUERIES, SHORT
from benchmarks.shed_runs import (
    BOUND,
    Peaks,
    Run,
    Work,
    overloaded,
    run,
    with_warming,
    work_of,
)
from benchmarks.shed_windows import BOUNDS
from spark_cep.udfs.shedding.pace import SPARK_SECONDS

Shape = Literal["peaks", "continuous"]
SHAPES: tuple[Shape, ...] = ("peaks", "continuous")
TEMPLATES = [name for name, query in QUERIES.items() if query.dataset != "game"]
# Of all work, in the continuous load.
OVERLOAD = 70
# Seconds in which the rows at the base rate come, those to warm up with included.
CALM_SECONDS = 18.0
# More than this part above the bound counts as missed, and so many of a hundred triggers may be.
SLACK, ALLOWED = 1.1, 0.01
QUICK_PART = 0.02


# ---- cells -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Triggers after the rows to warm up with. `late`: longer than the bound; `missed`: by more
    than a tenth; `unscheduled`: missed, but not if the time counts in which the process ran.
    `shed` and `cut`: triggers in which rows were dropped, and in which matching was stopped.
    `whole_kept` and `whole_by_chance`: of the matches without rows of triggers that were cut."""

    triggers: int
    shed: int
    cut: int
    late: int
    missed: int
    unscheduled: int
    longest: float
    longest_running: float
    rows_kept: float
    matches_kept: float
    by_chance: float
    mean_latency: float
    whole_kept: float
    whole_by_chance: float


@dataclass(frozen=True)
class Cell:
    """`without`: the longest trigger without shedding, in peaks. `work`: seconds for all rows."""

    template: str
    length: int
    shape: Shape
    policy: str
    rows: int
    window_rows: float
    matches: int
    work: float
    without: float
    outcome: Outcome


@dataclass(frozen=True)
class Task:
    template: str
    length: int
    policies: tuple[str, ...]
    part: float
    by_processor: bool = False

    @property
    def timer(self) -> Callable[[], float]:
        return time.process_time if self.by_processor else time.perf_counter


def cells_of(task: Task) -> list[Cell]:
    query = BOUNDS.query(task.template, task.length)
    work = work_of(replace(query, rows=round(query.rows * task.part)), plan=BOUNDS.plan)
    calm = max(CALM_SECONDS * min(task.part, 1.0), 2.0)
    loaded = work.rows - work.warm
    peaks = with_warming(Peaks(seconds=calm).arrivals(loaded), work.warm, calm / 3)
    full = run(work, peaks, "none", timer=task.timer)
    row_seconds = full.work_seconds / work.rows
    arrivals = {"peaks": peaks, "continuous": overloaded(work, row_seconds, OVERLOAD)}
    return [
        Cell(
            task.template,
            task.length,
            shape,
            policy,
            loaded,
            work.window_rows,
            len(full.found),
            full.work_seconds,
            full.longest,
            outcome(run(work, arrivals[shape], policy, timer=task.timer), full, work),
        )
        for policy in task.policies
        for shape in SHAPES
    ]


def outcome(of: Run, full: Run, work: Work) -> Outcome:
    came = np.cumsum([each.rows for each in of.triggers])
    loaded = [each for each, ends in zip(of.triggers, came, strict=True) if ends > work.warm]
    running = [each.processor_seconds + SPARK_SECONDS for each in loaded]
    missed = [each.seconds > SLACK * BOUND for each in loaded]
    rows = sum(each.rows for each in loaded)
    whole = full.beside_chance(of)
    return Outcome(
        triggers=len(loaded),
        shed=sum(each.dropped > 0 for each in loaded),
        cut=sum(each.cut for each in loaded),
        late=sum(each.seconds > BOUND for each in loaded),
        missed=sum(missed),
        unscheduled=sum(m and s <= SLACK * BOUND for m, s in zip(missed, running, strict=True)),
        longest=max(each.seconds for each in loaded),
        longest_running=max(running),
        rows_kept=1 - sum(each.rows * (1 - each.kept_share) for each in loaded) / rows,
        matches_kept=of.share_of(full),
        by_chance=full.by_chance(of),
        mean_latency=of.mean_latency,
        whole_kept=whole[0],
        whole_by_chance=whole[1],
    )


def tasks(
    templates: Sequence[str],
    lengths: Sequence[int],
    policies: Sequence[str],
    part: float,
    *,
    by_processor: bool = False,
) -> list[Task]:
    return [
        Task(template, length, tuple(policies), part, by_processor)
        for template in templates
        for length in (lengths if template not in SHORT else (3,))
    ]


# ---- what is told ------------------------------------------------------------------------------


def details(cells: Sequence[Cell]) -> str:
    head = ["template", "length", "load", "work, s", "without, s", "triggers", "shed", "cut"]
    head += [f"> {BOUND} s", f"> {SLACK * BOUND:.2f} s", "longest, s", "rows kept, %"]
    head += ["matches kept, %", "random, %", "not cut: kept, %", "random, %"]
    rows: list[list[object]] = []
    for each in cells:
        of = each.outcome
        rows.append(
            [
                *(each.template, each.length, each.shape, f"{each.work:.1f}"),
                f"{each.without:.1f}" if each.shape == "peaks" else "",
                *(of.triggers, of.shed, of.cut, of.late, of.missed),
                *(f"{of.longest:.2f}", f"{100 * of.rows_kept:.0f}"),
                *(f"{100 * of.matches_kept:.1f}", f"{100 * of.by_chance:.1f}"),
                *(f"{100 * of.whole_kept:.1f}", f"{100 * of.whole_by_chance:.1f}"),
            ]
        )
    return table(head, rows)


def summary(cells: Sequence[Cell]) -> str:
    """All lengths of a template together."""
    head = ["template", "load", "lengths", "triggers", "shed", "cut", f"> {BOUND} s"]
    head += [f"> {SLACK * BOUND:.2f} s", "of them not running", "longest, s", "rows kept, %"]
    head += ["matches kept, %", "random, %"]

    def key(cell: Cell) -> tuple[str, str]:
        return cell.template, cell.shape

    rows: list[list[object]] = []
    for (template, shape), grouped in groupby(sorted(cells, key=key), key):
        found = list(grouped)
        of = [each.outcome for each in found]
        lengths = sorted({each.length for each in found})
        rows.append(
            [
                template,
                shape,
                f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else str(lengths[0]),
                *(sum(getattr(each, name) for each in of) for name in _COUNTS),
                f"{max(each.longest for each in of):.2f}",
                *(_range([100 * getattr(each, name) for each in of]) for name in _SHARES),
            ]
        )
    return table(head, rows)


_COUNTS = ("triggers", "shed", "cut", "late", "missed", "unscheduled")
_SHARES = ("rows_kept", "matches_kept", "by_chance")


def _range(values: Sequence[float]) -> str:
    """
    >>> _range([3.2, 99.8, 40.0])
    '3 to 100'
    """
    low, high = round(min(values)), round(max(values))
    return str(low) if low == high else f"{low} to {high}"


def claims(cells: Sequence[Cell]) -> list[Claim]:
    triggers = sum(each.outcome.triggers for each in cells)
    shed = sum(each.outcome.shed for each in cells)
    missed = sum(each.outcome.missed for each in cells)
    ran = missed - sum(each.outcome.unscheduled for each in cells)
    late = sum(each.outcome.late for each in cells)
    longest = max(each.outcome.longest for each in cells)
    behind = [
        f"{each.template} {each.length} {each.shape}"
        for each in cells
        if each.outcome.whole_kept
        < min(each.outcome.whole_by_chance - 0.03, 0.95 * each.outcome.whole_by_chance)
    ]
    said = f"{missed} of {triggers}, {ran} of them while the process ran; {shed} triggers shed rows"
    return [
        Claim(
            "at most one trigger in a hundred is longer than the bound by more than a tenth",
            missed <= ALLOWED * triggers,
            said,
        ),
        Claim(
            "nor one in a hundred of those that shed",
            missed <= ALLOWED * shed,
            f"{missed} of {shed}",
        ),
        Claim("no trigger is above the bound", not late, f"{late}, {longest:.2f} s at worst"),
        Claim(
            "of triggers that were not cut more matches are kept than of as many rows at random, "
            "within 3 points or 5 %",
            not behind,
            f"{len(cells) - len(behind)} of {len(cells)}"
            + (f"; not {', '.join(behind)}" * bool(behind)),
        ),
    ]


def draw_cells(cells: Sequence[Cell], folder: Path) -> None:
    lengths = sorted({each.length for each in cells})
    templates = list(dict.fromkeys(each.template for each in cells))
    panels = []
    for shape in SHAPES:
        here = {(each.template, each.length): each for each in cells if each.shape == shape}
        series: dict[str, list[Number | None]] = {
            template: [
                here[template, length].outcome.longest if (template, length) in here else None
                for length in lengths
            ]
            for template in templates
        }
        series["bound"] = [BOUND for _ in lengths]
        panels.append(Panel(f"{shape}: longest trigger", "pattern length", "s", lengths, series))
    draw("load-shedding-bounds", panels, folder, names=[*templates, "bound"])


def read_cells(files: Sequence[Path]) -> list[Cell]:
    plain = [each for file in files for each in json.loads(file.read_text())]
    return [Cell(**{**each, "outcome": Outcome(**each["outcome"])}) for each in plain]


# ---- the program -------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Whether a latency bound holds on streams.")
    parser.add_argument("--quick", action="store_true", help="few rows, lengths 3 and 4")
    parser.add_argument("--spark", action="store_true", help="in Spark's own triggers")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--read", nargs="+", type=Path, metavar="FILE", help="cells of former runs")
    parser.add_argument("--part", type=float, default=1.0, help="of the rows")
    parser.add_argument("--templates", nargs="+", choices=TEMPLATES, default=TEMPLATES)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--policies", nargs="+", default=["utility"])
    parser.add_argument("--processor-time", action="store_true", help="of the worker as its clock")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cells there")
    given = parser.parse_args(arguments)
    if given.spark:
        from benchmarks.shed_triggers import run_in_spark  # noqa: PLC0415 - needs a JVM

        run_in_spark(quick=given.quick)
        return
    lengths = given.lengths if not given.quick else given.lengths[:2]
    part = QUICK_PART if given.quick else given.part
    by_processor = given.processor_time
    todo = tasks(given.templates, lengths, given.policies, part, by_processor=by_processor)
    found = read_cells(given.read or ())
    for _, cells in run_tasks(cells_of, [] if given.read else todo, given.jobs):
        found += cells
        print(details(cells).splitlines()[-1], file=sys.stderr, flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    order = list(QUERIES)
    found.sort(key=lambda each: (order.index(each.template), each.length))
    for policy in given.policies:
        of = [each for each in found if each.policy == policy]
        print(f"\n{policy}\n\n{details(of)}\n\n{summary(of)}\n")
        print("\n".join(claim.line() for claim in claims(of)))
        folder = given.figures or (None if given.quick else FIGURES)
        if folder is not None and policy == "utility":
            draw_cells(of, folder)


if __name__ == "__main__":
    main()
