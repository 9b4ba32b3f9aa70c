"""Windows in which the streams of the shedding experiments are enough work, and no more.

    python -m benchmarks.shed_windows [bounds figures]

An engine that takes a row in microseconds needs longer windows for an overload than the paper's,
where it took milliseconds, and each type more makes ten times the work. So each template and length
has a window of its own, found by this program: matching all rows takes about so many seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from benchmarks.progress import run_tasks
from benchmarks.shed_queries import LENGTHS, QUERIES, SHORT, VARIED, Query
from benchmarks.shed_runs import PlanKind, run, work_of

# Seconds of event time, for lengths 3 to 8.
Windows = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Purpose:
    """`rows`: that a pattern may match. `seconds`: for all of them. `windows`: found for that."""

    rows: int
    seconds: float
    plan: PlanKind
    windows: Windows

    def query(self, template: str, length: int) -> Query:
        """A template of this length, with its window and rows."""
        query = QUERIES[template].with_length(length)
        if query.dataset != "game":
            query = replace(query, rows=round(self.rows / query.matching_share()))
        place = 0 if template in SHORT else LENGTHS.index(length)
        found = self.windows.get(template, ())
        return replace(query, window=round(1e6 * found[place])) if place < len(found) else query


# ---- finding them ------------------------------------------------------------------------------

# Of the rows, and of the work.
SAMPLE = 0.2
_FIRST_ROWS = 30
_TRIES = 9
_MOST_GROWTH = 3.0


def calibrate(purpose: Purpose, template: str, length: int) -> float:
    """The window in seconds, found on a part of the rows."""
    query = purpose.query(template, length)
    query = replace(query, rows=round(query.rows * SAMPLE))
    goal = SAMPLE * purpose.seconds
    times = work_of(query).prepared.times()
    span = float(times[-1] - times[0])
    window = span / len(times) * _FIRST_ROWS
    tried: list[tuple[float, float]] = []
    for _ in range(_TRIES):
        work = work_of(replace(query, window=round(window)), plan=purpose.plan)
        seconds = run(work, np.linspace(0, 4.0, work.rows), "none").work_seconds
        tried.append((window, seconds))
        if abs(seconds / goal - 1) < 0.15 or (window >= span / 4 and seconds < goal):
            break
        power = float(length)
        if len(tried) > 1:
            (a, before), (b, after) = tried[-2:]
            power = max(log(after / before) / log(b / a), 1.0) + 0.5
        window = min(window * min((goal / seconds) ** (1 / power), _MOST_GROWTH), span / 4)
    print(f"{template} {length}: {tried}", file=sys.stderr, flush=True)
    return min(tried, key=lambda each: abs(log(each[1] / goal)))[0] / 1e6


def _calibrate(task: tuple[Purpose, str, int]) -> float:
    return calibrate(*task)


def main(names: Sequence[str]) -> None:
    for name in names or PURPOSES:
        purpose = PURPOSES[name]
        templates = QUERIES if purpose.plan == "auto" else sorted(set(VARIED.values()))
        todo = [
            (purpose, template, length)
            for template in templates
            for length in (LENGTHS if template not in SHORT else LENGTHS[:1])
        ]
        found: dict[str, list[float]] = {}
        for number, window in run_tasks(_calibrate, todo):
            found.setdefault(todo[number][1], []).append(float(f"{window:.4g}"))
        print(f"{name}:")
        print("\n".join(f'    "{each}": {tuple(of)},' for each, of in found.items()), flush=True)


# ---- what was found ----------------------------------------------------------------------------

_BOUNDS: Windows = {}
_FIGURES: Windows = {}

# The table of bounds runs what a stream runs by default, the figures the paper's left-deep trees.
BOUNDS = Purpose(100_000, 7.0, "auto", _BOUNDS)
FIGURES = Purpose(60_000, 3.0, "chain", _FIGURES)
PURPOSES: Mapping[str, Purpose] = {"bounds": BOUNDS, "figures": FIGURES}


if __name__ == "__main__":
    main(sys.argv[1:])
