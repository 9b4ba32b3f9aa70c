"""Rows of 207 columns: what the columns cost that an answer shows and matching does not read.

    python -m benchmarks.wide_rows [--rows 400000] [--rounds N] [--workload few|many]

Four ways to the same answer take turns. `measures` is what matching costs without the other
columns; `ship` and `join` are the settings of spark.cep.payload; `by hand` is a query of few
columns whose matches are joined to the table again by a key that users seldom have. Beside each:
CPU seconds of the JVM and of the Python workers, and the bytes written to shuffles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pyspark.sql import functions as F

import spark_cep as cep
from benchmarks.session import start
from spark_cep import event, seq

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

HEADER = "| | seconds | CPU seconds | shuffled, MiB | matches |\n|---|---|---|---|---|"
PAYLOAD_COLUMNS = 202
KEYS = 500
# `few`: a match for about two thousand rows; `many`: about one for each row.
CONDITIONS = {
    "few": ("a.price < b.price - 95", "b.price < c.price + 95", "c.price < a.price + 5"),
    "many": ("a.price < b.price", "b.price < c.price"),
}
WINDOWS = {"few": "10 seconds", "many": "5 seconds"}


def write_table(spark: SparkSession, folder: Path, rows: int) -> DataFrame:
    """Five columns that patterns read, and 202 others: numbers, and one text in ten."""
    path = folder / f"wide-{rows}"
    if not path.exists():
        others = [
            f"concat('text ', id % {1000 + place}) AS c{place}"
            if place % 10 == 0
            else f"xxhash64(id, {place}) / 1e12D AS c{place}"
            for place in range(PAYLOAD_COLUMNS)
        ]
        table = spark.range(rows).selectExpr(
            f"id % {KEYS} AS symbol",
            f"timestamp_millis(id * 250 DIV {KEYS}) AS ts",
            "pmod(xxhash64(id, 1), 100000) / 1000 AS price",
            "substr('ABCD', int(pmod(xxhash64(id, 2), 4)) + 1, 1) AS kind",
            "id",
            *others,
        )
        table.write.parquet(str(path))
    return spark.read.parquet(str(path))


def answers(table: DataFrame, workload: str) -> dict[str, Callable[[], DataFrame]]:
    pattern = (
        seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
        .where(*CONDITIONS[workload])
        .within(WINDOWS[workload])
    )

    def match(mode: str, **options: object) -> DataFrame:
        table.sparkSession.conf.set("spark.cep.payload", mode)
        return cep.match_pattern(
            table, pattern, order_by="ts", partition_by="symbol",
            **options,  # type: ignore[arg-type]
        )  # fmt: skip

    ids = {f"{name}_id": f"{name}.id" for name in "abc"}

    def by_hand() -> DataFrame:
        found = match("ship", measures=ids)
        for name in "abc":
            row = table.select(F.col("id").alias(f"{name}_id"), F.struct("*").alias(name))
            found = found.join(row, f"{name}_id")
        return found

    return {
        "measures": lambda: match("ship", measures=ids),
        "join": lambda: match("join"),
        "by hand": by_hand,
        "ship": lambda: match("ship"),
        "auto": lambda: match("auto"),
    }


def cpu_seconds() -> float:
    """Of the JVM and all Python workers, those that ended included."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def shuffled_bytes(spark: SparkSession) -> int:
    """Written to shuffles until now."""
    store = spark.sparkContext._jsc.sc().statusStore()  # type: ignore[union-attr]
    return int(store.executorSummary("driver").totalShuffleWrite())


def run(make: Callable[[], DataFrame]) -> tuple[float, float, int, int]:
    """Seconds, CPU seconds, shuffled bytes, rows. All rows are computed and none is kept."""
    matches = make()
    spark = matches.sparkSession
    before, cpu, began = shuffled_bytes(spark), cpu_seconds(), time.perf_counter()
    matches.write.format("noop").mode("overwrite").save()
    seconds, used = time.perf_counter() - began, cpu_seconds() - cpu
    counts = cep.metrics(matches)
    return seconds, used, shuffled_bytes(spark) - before, int(counts["matches"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", choices=[*CONDITIONS], help="one of both")
    parser.add_argument("--folder", type=Path, help="where the table is kept between runs")
    given = parser.parse_args()
    spark = start()
    with tempfile.TemporaryDirectory() as own:
        table = write_table(spark, given.folder or Path(own), given.rows)
        for workload in [given.workload] if given.workload else CONDITIONS:
            contestants = answers(table, workload)
            figures: dict[str, list[tuple[float, float, int, int]]] = {}
            for _ in range(given.rounds + 1):
                for name, make in contestants.items():
                    figures.setdefault(name, []).append(run(make))
            auto = cep.plan_of(contestants["auto"]()).to_dict()["payload"]
            print(f"\n{workload} matches of {given.rows:,} rows; auto: {auto}\n\n{HEADER}")
            for name, rounds in figures.items():
                # The first round warms up.
                columns = zip(*rounds[1:], strict=True)
                seconds, cpu, size, found = (sorted(each)[len(each) // 2] for each in columns)
                print(f"| {name} | {seconds:.1f} | {cpu:.1f} | {size >> 20} | {found:,} |")
    spark.stop()


if __name__ == "__main__":
    main()
