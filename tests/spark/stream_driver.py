"""A driver of its own, to be killed: python -m tests.spark.stream_driver FOLDER.

Matches of the rows in FOLDER/in go to SQLite and to Parquet files. While FOLDER/hangs-N is not
there, the place N makes it and then hangs: 0 the operator in a worker, 1 the sink when it has
written, 2 what follows the operator.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep
from spark_cep import event, no, seq
from tests.spark.conftest import SETTINGS
from tests.spark.streams import SETTINGS as SMALL
from tests.spark.streams import Files, into_sqlite, lingering, striking, struck_batches

PLACES = 3
LONG = 60.0
PATTERN = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), no(event("n", "kind = 'C'")))
    .where("strikes(a.x, b.x)")
    .within("5 seconds")
)


def matches(df: DataFrame, folder: Path) -> DataFrame:
    strikes = striking(folder / "hangs-0", lingering(LONG))
    cep.udf(strikes, returns="boolean", name="strikes")
    found = df.match_pattern(PATTERN, partition_by="k", order_by="ts")
    flat = found.selectExpr("k", "a.u AS a", "b.u AS b", "b.x AS x")
    return flat.mapInArrow(struck_batches(folder / "hangs-2", lingering(LONG), "x"), flat.schema)


def main(folder: Path) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in {**SETTINGS, **SMALL}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    write = into_sqlite(folder / "matches.db")

    def sink(df: DataFrame, batch: int) -> None:
        write(df, batch)
        marker = folder / "hangs-1"
        if batch == 2 and not marker.exists():
            marker.touch()
            time.sleep(LONG)

    given = matches(Files(folder / "in").stream(spark), folder)
    queries = [
        given.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint-db")),
        given.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint-out")),
    ]  # fmt: skip
    for each in queries:
        each.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
