"""The do-nothing baseline: how long rows take to reach Python when nothing is done to them.

`floor_of` is what every benchmark is compared with. Run as a script, this file compares the ways
of dealing buckets to Python workers with each other; docs/decisions/0001 rests on its figures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.data import Stock, write_stock
from benchmarks.session import start
from benchmarks.timing import Timed, take_turns


def floor_of(matches: DataFrame) -> int:
    """Rows that reach the engine of an answer, counted in its place.

    The plan below the engine is taken as it is: the same columns, the same filter, the same
    slices, the same shuffle. Only the function differs.
    """
    spark = matches.sparkSession
    node = matches._jdf.queryExecution().analyzed()
    while node.nodeName() != "MapInArrow":
        node = node.children().head()
    of_rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows
    below = DataFrame(of_rows(spark._jsparkSession, node.children().head()), spark)
    return _total(below.mapInArrow(_count_batches, "rows long"))


def floor(prepared: DataFrame, buckets: int) -> int:
    """The floor of columns prepared here: one bucket a partition."""
    dealt = prepared.repartitionById(buckets, _bucket(buckets))
    return _total(dealt.mapInArrow(_count_batches, "rows long"))


def prepare(ticks: DataFrame) -> DataFrame:
    """The columns that the stock pattern needs, its types as one byte."""
    return ticks.select("symbol", "ts", "price", _mask().alias("mask"))


def _bucket(buckets: int) -> Column:
    return F.pmod(F.xxhash64("symbol"), F.lit(buckets)).cast("int")


def _mask() -> Column:
    bits = F.when(F.col("kind") == "A", 1).when(F.col("kind") == "B", 2).otherwise(4)
    return bits.cast("byte")


def _count_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def _count_table(table: pa.Table) -> pa.Table:
    return pa.table({"rows": [table.num_rows]})


def _total(counts: DataFrame) -> int:
    return int(counts.agg(F.sum("rows")).collect()[0][0])


def variants(ticks: DataFrame, buckets: int) -> dict[str, Callable[[], object]]:
    """Ways of dealing the same rows to Python, the chosen one first."""
    numbers = prepare(ticks)
    with_kind = ticks.select("symbol", "ts", "price", "kind")
    text_key = F.concat(F.lit("symbol-"), F.col("symbol").cast("string"))
    return {
        "by id, mapInArrow": lambda: floor(numbers, buckets),
        "  type as text": lambda: floor(with_kind, buckets),
        "  key as text": lambda: floor(numbers.withColumn("symbol", text_key), buckets),
        "  bucket number shipped": lambda: _with_bucket(numbers, buckets),
        "  sorted in the JVM": lambda: _sorted_in_jvm(numbers, buckets),
        "  batches of 100,000 rows": lambda: _in_large_batches(numbers, buckets),
        "  half the buckets": lambda: floor(numbers, buckets // 2),
        "  four times the buckets": lambda: floor(numbers, buckets * 4),
        "by hash, mapInArrow": lambda: _hashed(numbers, buckets),
        "groupBy, applyInArrow": lambda: _grouped(numbers, buckets),
        "groupBy, applyInArrow, type as text": lambda: _grouped(with_kind, buckets),
    }


def _with_bucket(prepared: DataFrame, buckets: int) -> int:
    return floor(prepared.withColumn("bucket", _bucket(buckets)), buckets)


def _sorted_in_jvm(prepared: DataFrame, buckets: int) -> int:
    dealt = prepared.repartitionById(buckets, _bucket(buckets))
    ordered = dealt.sortWithinPartitions("symbol", "ts")
    return _total(ordered.mapInArrow(_count_batches, "rows long"))


def _in_large_batches(prepared: DataFrame, buckets: int) -> int:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    prepared.sparkSession.conf.set(setting, "100000")
    try:
        return floor(prepared, buckets)
    finally:
        prepared.sparkSession.conf.unset(setting)


def _hashed(prepared: DataFrame, buckets: int) -> int:
    dealt = prepared.repartition(buckets, _bucket(buckets))
    return _total(dealt.mapInArrow(_count_batches, "rows long"))


def _grouped(prepared: DataFrame, buckets: int) -> int:
    grouped = prepared.withColumn("bucket", _bucket(buckets)).groupBy("bucket")
    return _total(grouped.applyInArrow(_count_table, "rows long"))


def table(timed: dict[str, Timed]) -> str:
    best = next(iter(timed.values())).median
    lines = [f"{'way':<40} {'median s':>9} {'ratio':>6} {'min s':>7} {'max s':>7}"]
    lines += [
        f"{name:<40} {one.median:9.2f} {one.median / best:6.2f} "
        f"{min(one.seconds):7.2f} {max(one.seconds):7.2f}"
        for name, one in timed.items()
    ]
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--buckets", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write_stock(Stock(given.rows, 100), Path(folder))
        spark = start()
        try:
            ways = variants(spark.read.parquet(path), given.buckets)
            timed = take_turns(ways, rounds=given.rounds)
            print(f"{given.rows} rows, {given.buckets} buckets, {given.rounds} rounds")
            print(table(timed))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
