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
from spark_cep.udfs.errors import WorkerError

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
_FIRST_ROWS = 90
_TRIES = 10
_MOST_GROWTH = 2.0
_FAR_TOO_LONG = 30.0


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
        try:
            seconds = run(work, np.linspace(0, 4.0, work.rows), "none").work_seconds
        except WorkerError:
            # More matches than the library allows.
            seconds = _FAR_TOO_LONG * goal
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
            print(f"{todo[number][1:]} {window:.4g}", file=sys.stderr, flush=True)
        print(f"{name}:")
        print("\n".join(f'    "{each}": {tuple(of)},' for each, of in found.items()), flush=True)


# Q2B from 5 on is shorter than what was found on a part of the rows: when the goalkeeper stands
# among the defenders all of them are near, and hundreds of millions of pairs pass.
# ---- what was found ----------------------------------------------------------------------------

_BOUNDS: Windows = {
    "Q1A": (68210.0, 31580.0, 12810.0, 10700.0, 7654.0, 6637.0),
    "Q2A": (4953.0, 4063.0, 5557.0, 11950.0, 7474.0, 10490.0),
    "Q3A": (400000.0, 200000.0, 60000.0, 17770.0, 8509.0, 9409.0),
    "Q1B": (40.0,),
    "Q1B*": (1.3,),
    "Q2B": (70.89, 45.98, 20.0, 12.0, 9.0, 7.0),
    "Q3B": (1.638, 2.093, 2.275, 2.691, 3.125, 4.101),
    "Q4B": (300.0,),
    "Q1C": (66670.0, 51490.0, 45410.0, 52730.0, 56670.0, 57220.0),
    "Q2C": (11760.0, 14130.0, 16250.0, 21360.0, 29790.0, 38570.0),
    "Q3C": (327700.0, 278500.0, 242200.0, 103400.0, 86110.0, 62780.0),
}
_FIGURES: Windows = {
    "Q1A": (57390.0, 18030.0, 6646.0, 9822.0, 7766.0, 7841.0),
    "Q1B*": (1.3,),
    "Q1C": (66670.0, 51490.0, 45410.0, 52730.0, 56670.0, 57220.0),
    "Q2B": (50.01, 37.51, 20.0, 12.0, 9.0, 7.0),
}

# The table of bounds runs what a stream runs by default, the figures the paper's left-deep trees.
BOUNDS = Purpose(100_000, 7.0, "auto", _BOUNDS)
FIGURES = Purpose(60_000, 3.0, "chain", _FIGURES)
PURPOSES: Mapping[str, Purpose] = {"bounds": BOUNDS, "figures": FIGURES}


if __name__ == "__main__":
    main(sys.argv[1:])
