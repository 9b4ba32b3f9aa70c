"""How time, tasks and memory grow: rows, keys, a hot key, rows behind joins.

    python -m benchmarks.scale [rows keys hot joins] [--scale 0.1] [--rounds N]

Each line is one query through `match_pattern`, beside the floor: the same rows, filtered and
shuffled in the same way, into a function that only counts them. No Python worker does two tasks, so
its size is that of one bucket. docs/scale.md keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import spark_cep as cep
from benchmarks.floor import floor_of
from benchmarks.session import start
from benchmarks.timing import worker_memory
from spark_cep import event, row_pattern, seq
from spark_cep.planner import layout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RISING = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("a.price < b.price", "b.price < c.price")
    .within("10 seconds")
)
DIP = row_pattern("down{3} up{3}", {"down": "price < PREV(price)", "up": "price > PREV(price)"})
PATTERNS = {"SEQ of three": (RISING, {"gain": "c.price - a.price"}), "down{3} up{3}": (DIP, None)}
ROWS_A_SECOND = 4


@dataclass(frozen=True)
class Figures:
    """`tasks`: of all jobs of the action."""

    definition: float
    action: float
    floor: float
    tasks: int
    largest_worker: int
    matches: int

    def line(self, what: str) -> str:
        return (
            f"| {what} | {self.definition:.2f} | {self.action:.2f} | {self.floor:.2f} "
            f"| {self.action / self.floor:.2f} | {self.tasks} | {self.largest_worker >> 20} "
            f"| {self.matches:,} |"
        )


HEADER = (
    "| | definition, s | action, s | floor, s | action / floor | tasks | largest worker, MiB "
    "| matches |\n|---|---|---|---|---|---|---|---|"
)


def write_ticks(spark: SparkSession, folder: Path, rows: int, key: str, place: str) -> DataFrame:
    """`rows` ticks in files, `key` an expression over their `id`, `place` the number of a row among
    those of its key. Each key has some rows a second, so a window holds about forty of them."""
    path = folder / f"{rows}-{uuid.uuid5(uuid.NAMESPACE_OID, key).hex}"
    if not path.exists():
        spark.range(rows).select(
            F.expr(key).alias("symbol"),
            (F.pmod(F.xxhash64("id", F.lit(1)), F.lit(100_000)) / 1000).alias("price"),
            F.expr("substr('ABCD', int(pmod(xxhash64(id, 2), 4)) + 1, 1)").alias("kind"),
            F.expr(f"timestamp_millis(({place}) * {1000 // ROWS_A_SECOND})").alias("ts"),
        ).write.parquet(str(path))
    return spark.read.parquet(str(path))


def write_even_ticks(spark: SparkSession, folder: Path, rows: int, keys: int) -> DataFrame:
    return write_ticks(spark, folder, rows, f"id % {keys}", f"id DIV {keys}")


def measure(make: Callable[[], DataFrame], rounds: int, floor: Callable[[], DataFrame]) -> Figures:
    """The medians of some rounds, the action and its floor in turns."""
    definitions, actions, floors = [], [], []
    tasks = largest = matches = 0
    floor_of(floor())
    for _ in range(rounds):
        began = time.perf_counter()
        answer = make()
        definitions.append(time.perf_counter() - began)
        with worker_memory() as peak, count_tasks(answer.sparkSession) as counted:
            began = time.perf_counter()
            matches = answer.count()
            actions.append(time.perf_counter() - began)
        tasks, largest = counted[0], max(largest, peak.bytes)
        began = time.perf_counter()
        floor_of(floor())
        floors.append(time.perf_counter() - began)

    def median(seconds: list[float]) -> float:
        return sorted(seconds)[len(seconds) // 2]

    return Figures(median(definitions), median(actions), median(floors), tasks, largest, matches)


@contextmanager
def count_tasks(spark: SparkSession) -> Iterator[list[int]]:
    """The tasks that complete in the block."""
    context, group = spark.sparkContext, uuid.uuid4().hex
    context.setJobGroup(group, group)
    counted = [0]
    yield counted
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            found = tracker.getStageInfo(stage)
            counted[0] += found.numCompletedTasks if found else 0


def ask(ticks: DataFrame, name: str, keyed: bool = True) -> DataFrame:
    pattern, measures = PATTERNS[name]
    return cep.match_pattern(
        ticks, pattern, order_by="ts", partition_by="symbol" if keyed else None,
        measures=measures or {"bottom": "LAST(down.price)"}, plan="auto",
    )  # fmt: skip


def without_hot_keys(ticks: DataFrame, name: str, keyed: bool = True) -> DataFrame:
    """The plan whose floor is taken: nothing looks for hot keys in it."""
    spark = ticks.sparkSession
    if keyed:
        spark.conf.set("spark.cep.slices", "off")
    try:
        return ask(ticks, name, keyed)
    finally:
        spark.conf.unset("spark.cep.slices")


def cutting_hot_keys(ticks: DataFrame, name: str) -> DataFrame:
    """As on a cluster of more cores."""
    least, layout.LEAST_CORES = layout.LEAST_CORES, 1
    try:
        return ask(ticks, name)
    finally:
        layout.LEAST_CORES = least


# ---- workloads -----------------------------------------------------------------------------------


def by_rows(spark: SparkSession, folder: Path, scale: float, rounds: int) -> None:
    """1,000 keys."""
    for name in PATTERNS:
        for rows in (1_000_000, 5_000_000, 20_000_000, 50_000_000):
            count = int(rows * scale)
            ticks = write_even_ticks(spark, folder, count, 1000)
            found = measure(
                lambda t=ticks, n=name: ask(t, n),  # type: ignore[misc]
                rounds,
                lambda t=ticks, n=name: without_hot_keys(t, n),  # type: ignore[misc]
            )
            print(found.line(f"{name}, {count:,} rows"), flush=True)


def by_keys(spark: SparkSession, folder: Path, scale: float, rounds: int) -> None:
    rows = int(10_000_000 * scale)
    for name in PATTERNS:
        for keys in (0, 1, 100, 10_000, 1_000_000):
            ticks = write_even_ticks(spark, folder, rows, max(1, keys))
            keyed = keys > 0
            found = measure(
                lambda t=ticks, n=name, k=keyed: ask(t, n, k),  # type: ignore[misc]
                rounds,
                lambda t=ticks, n=name, k=keyed: without_hot_keys(t, n, k),  # type: ignore[misc]
            )
            print(found.line(f"{name}, {rows:,} rows, {keys:,} keys"), flush=True)


def hot_key(spark: SparkSession, folder: Path, scale: float, rounds: int) -> None:
    """One key has half of the rows."""
    rows = int(10_000_000 * scale)
    name = "SEQ of three"
    hot = (
        "IF(id % 2 = 0, -1, id DIV 2 % 1000)",
        "IF(id % 2 = 0, id DIV 2, id DIV 2000)",
    )
    for what, (key, place) in (
        ("even", ("id % 1000", "id DIV 1000")),
        ("one key has half", hot),
    ):
        ticks = write_ticks(spark, folder, rows, key, place)
        for make in (ask, cutting_hot_keys):
            found = measure(
                lambda t=ticks, m=make: m(t, name),  # type: ignore[misc]
                rounds,
                lambda t=ticks: without_hot_keys(t, name),  # type: ignore[misc]
            )
            how = "one task" if make is ask else "cut if it is large"
            print(found.line(f"{what}, {how}"), flush=True)


def behind_joins(spark: SparkSession, folder: Path, scale: float, rounds: int) -> None:
    """The same rows from files, and behind two joins."""
    rows = int(1_000_000 * scale)
    name = "SEQ of three"
    ticks = write_even_ticks(spark, folder, rows, 1000)
    sides = spark.range(1000).selectExpr("id AS symbol", "id % 7 AS sector")
    limits = spark.range(7).selectExpr("id AS sector", "id * 10 AS most")
    for what, table in (("sides", sides), ("limits", limits)):
        table.write.mode("overwrite").parquet(str(folder / what))
    joined = ticks.join(spark.read.parquet(str(folder / "sides")), "symbol").join(
        spark.read.parquet(str(folder / "limits")), "sector"
    )
    for what, df in (("files", ticks), ("behind two joins", joined)):
        for join in ("broadcast", "shuffled") if df is joined else ("",):
            spark.conf.set(
                "spark.sql.autoBroadcastJoinThreshold", "-1" if join[:1] == "s" else "10m"
            )
            found = measure(
                lambda d=df: ask(d, name),  # type: ignore[misc]
                rounds,
                lambda d=df: without_hot_keys(d, name),  # type: ignore[misc]
            )
            print(found.line(f"{what} {join}".strip()), flush=True)
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


WORKLOADS = {"rows": by_rows, "keys": by_keys, "hot": hot_key, "joins": behind_joins}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("workloads", nargs="*", default=[], choices=[*WORKLOADS, []])
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the data is kept between runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = given.folder or Path(own)
        for name in given.workloads or WORKLOADS:
            spark = start(fresh_workers=True)
            try:
                print(f"\n{name}\n\n{HEADER}")
                WORKLOADS[name](spark, folder, given.scale, given.rounds)
            finally:
                spark.stop()


if __name__ == "__main__":
    main()
