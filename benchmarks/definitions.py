"""What calling `match_pattern` costs before any action: seconds, jobs and tasks.

Beside each call stands the sample as it was taken before, `limit(10_000)` and `toArrow()`, which
runs a task over every partition. Run as `python -m benchmarks.definitions`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import spark_cep as cep
from benchmarks.session import start
from spark_cep import event, row_pattern, seq
from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, SPLITS, DEFINITIONS, ROWS_BEFORE = 2_000, 350, 50, 10_000


def rows(spark: SparkSession, partitions: int, number: int) -> DataFrame:
    return spark.range(0, number, 1, partitions).selectExpr(
        "id % 50 AS k",
        "timestamp_seconds(id) AS ts",
        "substr('ABC', id % 3 + 1, 1) AS kind",
        "CAST(id % 97 AS DOUBLE) AS v",
    )


def event_pattern(number: int) -> cep.Pattern:
    return (
        seq(
            event("a", f"kind = 'A' AND v > {number}"),
            event("b", "kind = 'B'"),
            event("c", "kind = 'C'"),
        )
        .where("a.v < b.v", "b.v < c.v")
        .within("10 minutes")
    )


def define(df: DataFrame, number: int) -> DataFrame:
    measures = {"first": "a.ts", "gain": "c.v - a.v"}
    return cep.match_pattern(
        df, event_pattern(number), order_by="ts", partition_by="k", measures=measures
    )


def define_rows(df: DataFrame, number: int) -> DataFrame:
    pattern = row_pattern("a b+ c", {"a": f"v > {number}", "b": "v < PREV(v)", "c": "v > PREV(v)"})
    return cep.match_pattern(
        df, pattern, order_by="ts", partition_by="k", measures={"low": "LAST(b.v)"}
    )


def define_sql(spark: SparkSession, number: int) -> DataFrame:
    return cep.sql(
        spark,
        f"""
        SELECT * FROM ticks MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts MEASURES LAST(b.v) AS low PATTERN (a b+ c)
            DEFINE a AS v > {number}, b AS v < PREV(v), c AS v > PREV(v))
        """,
    )


def sample_before(df: DataFrame) -> object:
    return df.limit(ROWS_BEFORE).toArrow()


def measure(name: str, run: Callable[[], object]) -> None:
    with count_jobs() as ran:
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
    print(f"{name:40} {seconds:8.2f} s {len(ran):5} jobs {ran.tasks:6} tasks")


def main() -> None:
    spark = start()
    for number in range(20):
        define(rows(spark, 3, 30_000 + number), number)
        define_rows(rows(spark, 3, 30_000 + number), number)
    sample_before(rows(spark, 3, 30_000))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "ticks")
        rows(spark, SPLITS, 700_000).write.parquet(path)
        # So that every file is a split.
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))
        measure_all(spark, path)
    spark.stop()


def measure_all(spark: SparkSession, path: str) -> None:
    many = rows(spark, PARTITIONS, 2_000_000)
    few = rows(spark, PARTITIONS, 20_000)
    table = spark.read.parquet(path)
    totals = many.groupBy("k", "ts", "kind").sum("v").withColumnRenamed("sum(v)", "v")
    measure("2,000 partitions of 1,000 rows", lambda: define(many, 1))
    measure("  before", lambda: sample_before(many))
    measure("2,000 partitions of 10 rows", lambda: define(few, 1))
    measure("350 files", lambda: define(table, 1))
    measure("  before", lambda: sample_before(table))
    # Sampling it before meant to compute it: all partitions, and a shuffle.
    measure("an aggregate", lambda: define(totals, 1))
    table.createOrReplaceTempView("ticks")
    # A table that was not sampled yet.
    fresh = table.filter("v >= 0")
    numbers = range(DEFINITIONS)
    measure("50 event patterns on one table", lambda: [define(fresh, n) for n in numbers])
    measure("  each with spark.table", lambda: [define(spark.table("ticks"), n) for n in numbers])
    measure("50 row patterns on one table", lambda: [define_rows(fresh, n) for n in numbers])
    measure("50 statements over one table", lambda: [define_sql(spark, n) for n in numbers])


if __name__ == "__main__":
    main()
