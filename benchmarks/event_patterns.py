"""The event pattern workloads, each against the do-nothing floor of the same run.

    python -m benchmarks.event_patterns [stock structs many-keys no-key growth] [--json FILE]

benchmarks/results.md explains the workloads and keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import spark_cep as cep
from benchmarks.data import Stock, write_stock
from benchmarks.floor import floor_of
from benchmarks.session import start
from benchmarks.timing import Timed, take_turns
from spark_cep import event, seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RISING = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("a.price < b.price", "b.price < c.price")
    .within("10 seconds")
)
# 410 rows a second over all symbols: 2.44 s hold about 1,000 of them.
LEAPING = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("a.price < b.price", "b.price + 0.9 < c.price", "a.price + 0.9 < c.price")
    .within("2.44 seconds")
)

STOCK = Stock(rows=1_000_000, keys=100)
MANY_KEYS = Stock(rows=2_000_000, keys=100_000)
# Past one bucket's size already, and ten times that.
GROWTH = (Stock(rows=2_000_000, keys=200), Stock(rows=20_000_000, keys=2_000))
SESSIONS = 2
Measures = dict[str, str] | None
GAIN: Measures = {"gain": "c.price - a.price"}


@dataclass(frozen=True)
class Run:
    folder: Path
    rounds: int
    scale: float

    def rows(self, shape: Stock) -> int:
        return max(1, int(shape.rows * self.scale))

    def ticks(self, spark: SparkSession, shape: Stock) -> DataFrame:
        scaled = replace(shape, rows=self.rows(shape))
        return spark.read.parquet(write_stock(scaled, self.folder))


@dataclass(frozen=True)
class Line:
    """One row of the report. `ratio` compares with the first line of its workload; memory is
    known only where a contestant had Python workers of its own."""

    workload: str
    what: str
    seconds: tuple[float, ...]
    median: float
    ratio: float
    peak_worker_mb: int | None
    result: object
    counters: Mapping[str, int]


def stock(run: Run) -> list[Line]:
    """100 keys, 41 rows of a key in each window, about 0.8 matches a row."""
    return _against_floor(run, "stock", STOCK, GAIN)


def structs(run: Run) -> list[Line]:
    """The stock workload with whole rows in the answer instead of a measure."""
    return _against_floor(run, "structs", STOCK, None)


def many_keys(run: Run) -> list[Line]:
    """100,000 keys of 20 rows each, as dense in time as the stock workload."""
    return _against_floor(run, "many-keys", MANY_KEYS, GAIN)


def no_key(run: Run) -> list[Line]:
    """One global partition, 1,000 rows in each window: time slices use both cores.

    Each contestant is a process held to its cores: Spark with one core still runs its JVM and
    its Python worker beside each other where the machine has two.
    """
    lines = []
    for name in ("floor", "match"):
        timed = {f"{name}, {cores} cores": _on_cores(run, name, cores) for cores in (1, 2)}
        lines += _lines("no-key", timed, {}, own_workers=True)
    return lines


def _on_cores(run: Run, name: str, cores: int) -> Timed:
    command = [sys.executable, "-m", "benchmarks.on_cores", name, str(cores)]
    command += [str(run.folder), str(run.rounds), str(run.scale)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Timed(**json.loads(done.stdout.splitlines()[-1]))


def leaping(run: Run, spark: SparkSession) -> DataFrame:
    return cep.match_pattern(
        run.ticks(spark, STOCK), LEAPING, order_by="ts", plan="lazy-chain", measures=GAIN
    )


def growth(run: Run) -> list[Line]:
    """Ten times the rows over ten times the keys."""

    def matches(shape: Stock) -> Callable[[SparkSession], DataFrame]:
        return lambda spark: _match(run.ticks(spark, shape), "lazy-chain", GAIN)

    return _in_own_sessions(
        run,
        "growth",
        {f"{run.rows(shape):,} rows": (2, matches(shape)) for shape in GROWTH},
    )


WORKLOADS: dict[str, Callable[[Run], list[Line]]] = {
    "stock": stock,
    "structs": structs,
    "many-keys": many_keys,
    "no-key": no_key,
    "growth": growth,
}


def _against_floor(run: Run, workload: str, shape: Stock, measures: Measures) -> list[Line]:
    """Times whole calls, planning and sampling included, and one that was planned before."""
    spark = start()
    try:
        ticks = run.ticks(spark, shape)
        planned = _match(ticks, "lazy-chain", measures)
        answers: dict[str, DataFrame] = {}

        def whole(plan: str) -> int:
            answers[plan] = _match(ticks, plan, measures)
            return answers[plan].count()

        timed = take_turns(
            {
                "floor": lambda: floor_of(planned),
                "lazy-chain": lambda: whole("lazy-chain"),
                "  planned before": planned.count,
                "eager": lambda: whole("eager"),
            },
            rounds=run.rounds,
        )
        counters = {plan: cep.metrics(matches) for plan, matches in answers.items()}
        return _lines(workload, timed, counters)
    finally:
        spark.stop()


def _match(ticks: DataFrame, plan: str, measures: Measures) -> DataFrame:
    return cep.match_pattern(
        ticks, RISING, partition_by="symbol", order_by="ts", plan=plan, measures=measures
    )


def _in_own_sessions(
    run: Run,
    workload: str,
    contestants: Mapping[str, tuple[int, Callable[[SparkSession], DataFrame]]],
) -> list[Line]:
    """Sessions of their own, in turn: a session has its cores for life, and Python workers that
    are used again keep the memory of the largest thing they did. Warm: what a first action costs
    is the same whatever the cores and the rows."""
    turns: dict[str, list[Timed]] = {name: [] for name in contestants}
    for _ in range(SESSIONS):
        for name, (cores, make) in contestants.items():
            spark = start(cores)
            try:
                action = {name: make(spark).count}
                turns[name].append(take_turns(action, rounds=run.rounds, warmups=2)[name])
            finally:
                spark.stop()
    timed = {
        name: Timed(
            tuple(second for each in parts for second in each.seconds),
            parts[-1].result,
            max(each.peak_worker_bytes for each in parts),
        )
        for name, parts in turns.items()
    }
    return _lines(workload, timed, {}, own_workers=True)


def _lines(
    workload: str,
    timed: Mapping[str, Timed],
    counters: Mapping[str, Mapping[str, int]],
    *,
    own_workers: bool = False,
) -> list[Line]:
    first = next(iter(timed.values())).median
    return [
        Line(
            workload,
            what,
            one.seconds,
            one.median,
            one.median / first,
            one.peak_worker_bytes >> 20 if own_workers else None,
            one.result,
            counters.get(what, {}),
        )
        for what, one in timed.items()
    ]


def table(lines: list[Line]) -> str:
    """The report as text, a line for each contestant."""
    head = f"{'workload':<10} {'what':<16} {'median s':>9} {'ratio':>6} {'min':>7} {'max':>7}"
    texts = [f"{head} {'worker MB':>10} {'counted':>12} {'pairs':>13}"]
    for line in lines:
        texts.append(
            f"{line.workload:<10} {line.what:<16} {line.median:9.2f} {line.ratio:6.2f} "
            f"{min(line.seconds):7.2f} {max(line.seconds):7.2f} "
            f"{_number(line.peak_worker_mb):>10} {_number(line.result):>12} "
            f"{_number(line.counters.get('pairs')):>13}"
        )
    return "\n".join(texts)


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def main() -> None:
    arguments = argparse.ArgumentParser(description="Times the event pattern workloads.")
    arguments.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), given.rounds, given.scale)
        for name in given.workloads or WORKLOADS:
            print(f"{name}: {WORKLOADS[name].__doc__}", file=sys.stderr, flush=True)
            lines += WORKLOADS[name](run)
    print(table(lines))
    if given.json:
        given.json.write_text(json.dumps([asdict(line) for line in lines]))


if __name__ == "__main__":
    main()
