"""The row pattern works, each against the do-nothing floor of the same run.

    python -m benchmarks.row_patterns [NAME ...] [--scale 0.1] [--full] [--rounds N]
    python -m benchmarks.row_patterns --check        # answers on few rows, nothing is timed
    python -m benchmarks.row_patterns --gaps 2000 200000   # other sizes of crime_sequence
    python -m benchmarks.row_patterns first_call  # in a fresh worker, and compiling

What is timed is the whole call, from the text of the query to its answer. benchmarks/results.md
keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import spark_cep as cep
from benchmarks.cold_start import first_calls
from benchmarks.floor import floor_of
from benchmarks.reporting import table
from benchmarks.row_data import write
from benchmarks.row_works import PHYSICAL, Work
from benchmarks.row_works_deep import EXPLOSIVE, GAPS, LOOKING_BACK, NAMED, crime_sequence
from benchmarks.session import start
from benchmarks.timing import take_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Works of so few rows are what they are because of the pattern, and stay as they are.
SMALL = 10_000
# More crimes than this are asked for by name: what walks every row would take minutes.
GAPS_BY_DEFAULT = 20_000
FIRST = "first_call"


@dataclass(frozen=True)
class Line:
    """One work of the report. Seconds are medians; `best_ratio` is of the best rounds."""

    work: str
    rows: int
    floor: float
    ours: float
    planning: float
    ratio: float
    best_ratio: float
    bound: str
    met: bool | None
    answer: tuple[int, ...]

    def mark(self) -> str:
        return "" if self.met is None else ("met" if self.met else "MISSED")


@dataclass
class Whole:
    """The query from text to answer, and what of it was planning, time by time."""

    spark: SparkSession
    work: Work
    rows: DataFrame
    planning: list[float] = field(default_factory=list)

    def planned(self) -> DataFrame:
        return cep.sql(self.spark, self.work.query, rows=self.rows)

    def __call__(self) -> tuple[int, ...]:
        began = time.perf_counter()
        answer = self.planned()
        self.planning.append(time.perf_counter() - began)
        return tuple(answer.collect()[0])


def works(gaps: Sequence[int] = GAPS) -> dict[str, Work]:
    every = (*NAMED, *PHYSICAL, *LOOKING_BACK, *EXPLOSIVE, *map(crime_sequence, gaps))
    return {work.name: work for work in every}


def check(spark: SparkSession, work: Work, folder: Path) -> str | None:
    """What is wrong with the answer over few rows; None if nothing is."""
    columns = work.data(work.checked)
    rows = spark.read.parquet(write(columns, folder / f"check-{work.name}"))
    answer, expected = Whole(spark, work, rows)(), work.plain(columns)
    return None if answer == expected else f"{work.name}: {answer}, but plainly {expected}"


def measured(spark: SparkSession, work: Work, rows: int, given: argparse.Namespace) -> Line:
    with tempfile.TemporaryDirectory() as folder:
        read = spark.read.parquet(write(work.data(rows), Path(folder) / work.name))
        whole = Whole(spark, work, read)
        planned = whole.planned()
        timed = take_turns({"floor": lambda: floor_of(planned), "ours": whole}, rounds=given.rounds)
    floor, ours = timed["floor"], timed["ours"]
    result = ours.result
    assert isinstance(result, tuple)
    return Line(
        work.name, rows, floor.median, ours.median,
        sorted(whole.planning)[len(whole.planning) // 2],
        ours.median / floor.median, min(ours.seconds) / min(floor.seconds),
        work.bound.text() if work.bound else "",
        work.bound.holds(floor.median, ours.median) if work.bound else None, result,
    )  # fmt: skip


def rows_of(work: Work, given: argparse.Namespace) -> int:
    rows = work.full if given.full and work.full else work.rows
    return rows if rows <= SMALL else max(SMALL, int(rows * given.scale))


def report(lines: Sequence[Line]) -> str:
    head = ["work", "rows", "floor s", "ours s", "planning s", "ratio", "best", "bound", ""]
    return table(
        head,
        [
            [
                each.work, each.rows, each.floor, each.ours, each.planning, each.ratio,
                each.best_ratio, each.bound, each.mark(),
            ]
            for each in lines
        ],
    )  # fmt: skip


def chosen(given: argparse.Namespace, every: dict[str, Work]) -> list[Work]:
    if given.names:
        return [every[name] for name in given.names if name != FIRST]
    asked = set(given.gaps or [size for size in GAPS if size <= GAPS_BY_DEFAULT])
    gaps = {crime_sequence(size).name for size in (*GAPS, *asked)}
    wanted = {crime_sequence(size).name for size in asked}
    return [work for name, work in every.items() if name not in gaps or name in wanted]


def main() -> None:
    arguments = argparse.ArgumentParser(description="Times the row pattern works.")
    arguments.add_argument("names", nargs="*", metavar="NAME")
    arguments.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    arguments.add_argument("--full", action="store_true", help="as many rows as in the suite")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--gaps", type=int, nargs="+", metavar="ROWS", help="sizes of crimes")
    arguments.add_argument("--check", action="store_true", help="answers on few rows")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    every = works(tuple(dict.fromkeys((*GAPS, *(given.gaps or ())))))
    unknown = [name for name in given.names if name not in every and name != FIRST]
    if unknown:
        arguments.error(f"no work is called {unknown[0]!r}; there are {', '.join(every)}, {FIRST}")
    wanted = chosen(given, every)
    if given.check:
        sys.exit(_check_all(wanted))
    lines = _timed(wanted, given)
    first = first_calls() if not given.names or FIRST in given.names else {}
    if lines:
        print(report(lines))
    for matcher, times in first.items():
        print(f"first call, the matcher {matcher}: {times['call']:.2f} s")
    if given.json:
        figures = {"works": [asdict(line) for line in lines], FIRST: first}
        given.json.write_text(json.dumps(figures))


def _timed(wanted: Sequence[Work], given: argparse.Namespace) -> list[Line]:
    lines: list[Line] = []
    if not wanted:
        return lines
    spark = start()
    try:
        for work in wanted:
            rows = rows_of(work, given)
            print(f"{work.name}: {rows:,} rows", file=sys.stderr, flush=True)
            lines.append(measured(spark, work, rows, given))
    finally:
        spark.stop()
    return lines


def _check_all(wanted: Sequence[Work]) -> int:
    spark = start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            problems = [check(spark, work, Path(folder)) for work in wanted]
    finally:
        spark.stop()
    found = [problem for problem in problems if problem]
    print("\n".join(found) or f"{len(wanted)} works answer what they must")
    return 1 if found else 0


if __name__ == "__main__":
    main()
