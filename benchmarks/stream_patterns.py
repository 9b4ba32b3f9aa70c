"""The event patterns on streams, each against a stateful operator that only keeps its rows.

    python -m benchmarks.stream_patterns [stock many-keys long-window latency]
        [--triggers N] [--rounds N] [--json FILE]

benchmarks/results.md explains the workloads and keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import spark_cep as cep
from benchmarks.data import Stock
from benchmarks.event_patterns import GAIN, RISING
from benchmarks.reporting import Claim, table
from benchmarks.session import start
from benchmarks.stream_baselines import below_engine, kept_blobs, kept_rows
from benchmarks.stream_latency import latency
from benchmarks.stream_runs import Ran, in_turn, read_triggers, write_triggers
from benchmarks.stream_windows import long_window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

STOCK = Stock(rows=200_000, keys=100)
# As many rows a second with a hundred times the keys: 4,100 of them, so that the keys are all
# that differs; a window holds 41 rows of one of the few keys and one of every second of the many.
FEW_KEYS = Stock(rows=200_000, keys=1_000, rows_per_window=41)
MANY_KEYS = Stock(rows=200_000, keys=100_000, rows_per_window=0.41)
MANY_BUCKETS = 64
PARTITIONS = 2
WATERMARK = "10 seconds"


@dataclass(frozen=True)
class Run:
    folder: Path
    triggers: int
    rounds: int


@dataclass(frozen=True)
class Report:
    """What a workload ends with: a table, claims, and its figures for programs."""

    text: str
    claims: list[Claim]
    figures: object


def stock(run: Run) -> Report:
    """200,000 rows a trigger, 100 keys, a window of 4,100 rows."""
    with _session() as spark:
        ticks = _ticks(spark, STOCK, run)
        queries: dict[str, Callable[[], DataFrame]] = {
            "keeps rows, packed": partial(_keeping, ticks),
            "keeps rows, by hand": lambda: kept_rows(ticks, STOCK.window_us),
            "lazy-chain": partial(_match, ticks, "lazy-chain"),
            "eager": partial(_match, ticks, "eager"),
            "auto": partial(_match, ticks, "auto"),
        }
        ran = in_turn(queries, run.rounds)
        rows = [*_rows(ran, STOCK.rows), _batch_row(spark, run)]
    ratio = ran["auto"].median() / ran["keeps rows, packed"].median()
    goal = Claim("stock is at most 1.5 times its baseline", ratio <= 1.5, f"{ratio:.2f}")
    return Report(table(HEAD, rows), [goal], _figures(ran))


def many_keys(run: Run) -> Report:
    """64 buckets: 100,000 keys against 1,000 keys, as many rows a second."""
    with _session() as spark:
        spark.conf.set("spark.cep.buckets", MANY_BUCKETS)
        few, many = (_ticks(spark, shape, run) for shape in (FEW_KEYS, MANY_KEYS))
        queries: dict[str, Callable[[], DataFrame]] = {
            "keeps rows, 1,000 keys": partial(_keeping, few),
            "keeps rows, 100,000 keys": partial(_keeping, many),
            "1,000 keys": partial(_match, few, "auto"),
            "100,000 keys": partial(_match, many, "auto"),
        }
        ran = in_turn(queries, run.rounds)
    ratio = ran["100,000 keys"].median() / ran["1,000 keys"].median()
    goal = Claim("100,000 keys are at most 1.3 times 1,000", ratio <= 1.3, f"{ratio:.2f}")
    return Report(table(HEAD, _rows(ran, STOCK.rows)), [goal], _figures(ran))


def windows(run: Run) -> Report:
    """A hundred triggers a window: what is kept between triggers, without Spark."""
    text, claims, figures = long_window(triggers=run.triggers)
    return Report(text, claims, figures)


def latencies(run: Run) -> Report:
    """From a row's arrival to its match in the sink."""
    text, figures = latency()
    return Report(text, [], figures)


WORKLOADS: dict[str, Callable[[Run], Report]] = {
    "stock": stock,
    "many-keys": many_keys,
    "long-window": windows,
    "latency": latencies,
}

# ---- contestants -------------------------------------------------------------------------------


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = start()
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    try:
        yield spark
    finally:
        spark.stop()


def _ticks(spark: SparkSession, shape: Stock, run: Run) -> DataFrame:
    return read_triggers(spark, write_triggers(shape, run.folder, run.triggers), WATERMARK)


def _match(ticks: DataFrame, plan: str) -> DataFrame:
    return cep.match_pattern(
        ticks, RISING, partition_by="symbol", order_by="ts", plan=plan, measures=GAIN
    )


def _keeping(ticks: DataFrame) -> DataFrame:
    """The rows as the operator of the pattern is given them."""
    below = below_engine(_match(ticks, "lazy-chain"))
    times = [name for name, kind in below.dtypes if kind == "timestamp"]
    return kept_blobs(below, times[0], STOCK.window_us)


def _batch_row(spark: SparkSession, run: Run) -> list[object]:
    """The same files as a batch, in milliseconds for as many rows as a trigger has."""
    path = write_triggers(STOCK, run.folder, run.triggers)
    answer = _match(spark.read.parquet(path), "auto")
    seconds = []
    for _ in range(1 + run.rounds):
        started = time.perf_counter()
        answer.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - started)
    rows = STOCK.rows * run.triggers
    ms = 1000 * sorted(seconds[1:])[run.rounds // 2] / run.triggers
    return ["the same files as a batch", ms, "", "", round(1000 * rows / (ms * run.triggers)), ""]


# ---- the report --------------------------------------------------------------------------------

HEAD = ["what", "ms a trigger", "ratio", "of that, the rows' way", "rows a second", "matches"]


def _rows(ran: Mapping[str, Ran], rows: int) -> list[list[object]]:
    """`ratio` compares with the first; the rows' way is the job without planning and logs."""
    first = next(iter(ran.values())).median()
    return [
        [
            name,
            round(one.median()),
            f"{one.median() / first:.2f}",
            str(round(one.median("addBatch"))),
            round(1000 * rows / one.median()),
            f"{one.counted['matches']:,}" if one.counted else "",
        ]
        for name, one in ran.items()
    ]


def _figures(ran: Mapping[str, Ran]) -> object:
    return {name: asdict(one) for name, one in ran.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description="Times the event patterns on streams.")
    arguments.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    arguments.add_argument("--triggers", type=int, default=12, help="of which four do not count")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    figures = {}
    for name in given.workloads or WORKLOADS:
        print(f"{name}: {WORKLOADS[name].__doc__}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            report = WORKLOADS[name](Run(Path(folder), given.triggers, given.rounds))
        print(report.text)
        print("\n".join(claim.line() for claim in report.claims), flush=True)
        figures[name] = report.figures
    if given.json:
        given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
