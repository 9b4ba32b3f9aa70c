"""The methods side by side: averages over the pattern sets, tables, pictures, and who is first.

A cell is one pattern: a stream, a planner, a pattern set and a size. Figures 6 and 7 of the paper
show a row for each size, over the pattern sets; who is first is looked at cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.pattern_sets import Stream
from benchmarks.pictures import Panel, draw
from benchmarks.reporting import table

if TYPE_CHECKING:
    from benchmarks.adaptive_runs import Result, Results
    from spark_cep.udfs.program import PlanKind

Pair = tuple[Stream, "PlanKind"]
# What the paper calls the planners.
NAMES = {"lazy-chain": "greedy", "zstream": "ZStream"}
COMPARED = ("static", "always", "threshold", "invariants")
# Closer than this two methods did the same work, and differ by the time of a few checks.
TIE = 0.05


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
    return sum(result.planning for result in results) / sum(result.seconds for result in results)


def throughput_table(rows: Sequence[Row]) -> str:
    """Thousand events a second, counted; gains over the static plan; the same as measured."""
    adaptive = COMPARED[1:]
    head = ["size", *COMPARED, *(f"gain of {name}" for name in adaptive)]
    head += [f"measured: {name}" for name in COMPARED]
    lines = [
        [
            row.size,
            *(row.counted[name] / 1e3 for name in COMPARED),
            *(row.counted[name] / row.counted["static"] for name in adaptive),
            *(row.measured[name] / 1e3 for name in COMPARED),
        ]
        for row in rows
    ]
    return table(head, lines)


def adapting_table(rows: Sequence[Row]) -> str:
    """Plans replaced in a run, and the share of its time that went into adapting."""
    adaptive = COMPARED[1:]
    head = ["size", *(f"replaced: {name}" for name in adaptive)]
    head += [f"% of time: {name}" for name in adaptive]
    lines = [
        [
            row.size,
            *(row.swaps[name] for name in adaptive),
            *(100 * row.overhead[name] for name in adaptive),
        ]
        for row in rows
    ]
    return table(head, lines)


# ---- who is first ------------------------------------------------------------------------------


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
                    theirs.counted / mine.counted, _why(mine, theirs),
                    mine.pairs / mine.events, theirs.pairs / theirs.events,
                    1e6 * mine.planning / mine.events, 1e6 * theirs.planning / theirs.events,
                    mine.swaps, theirs.swaps,
                ]
            )  # fmt: skip
    return found


BEHIND = (
    "stream", "planner", "set", "size", "first", "ratio", "why", "pairs an event", "theirs",
    "adapting, us an event", "theirs", "swaps", "theirs",
)  # fmt: skip


def _why(mine: Result, theirs: Result) -> str:
    """What the difference comes from: another plan, or the time of looking for one."""
    return "plans" if mine.pairs > (1 + TIE) * theirs.pairs else "time of checks"


# ---- pictures ----------------------------------------------------------------------------------


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
            "time of adapting", "pattern size", "% of the run", at,
            {method: [100 * row.overhead[method] for row in rows] for method in adaptive},
            kind="bars",
        ),
    ]  # fmt: skip
    draw(name, panels, folder)
