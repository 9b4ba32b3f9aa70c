"""A stream for tests: rows in small files, one file a trigger, and what a query gave of them.

The last file has one row of a key of its own, an hour later than all others: it moves the
watermark, so the trigger without data that follows it closes all windows.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from chispa import assert_df_equality
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("k", pa.int64()),
        ("kind", pa.string()),
        ("x", pa.int64()),
        ("u", pa.int64()),
    ]
)
COLUMNS = "ts timestamp, k long, kind string, x long, u long"
LAST_KEY = 999
LAST = (3600.0, LAST_KEY, "Z", None, -1)

Row = tuple[Any, ...]


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Files:
    """A folder of Parquet files, read in the order in which they were put there."""

    folder: Path
    columns: str = COLUMNS
    schema: pa.Schema = SCHEMA

    def put(self, rows: Sequence[Row]) -> None:
        """Rows of one trigger. The first value of a row is its time, in seconds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        values = [[at(row[0]), *row[1:]] for row in rows]
        columns = list(zip(*values, strict=True)) or [()] * len(self.schema)
        arrays = [pa.array(each, f.type) for each, f in zip(columns, self.schema, strict=True)]
        number = len(list(self.folder.glob("*.parquet")))
        path = self.folder / f"{number:04}.parquet"
        hidden = self.folder / f"_{number:04}"
        pq.write_table(pa.Table.from_arrays(arrays, schema=self.schema), hidden)
        # The source takes the oldest files first, and its clock is no finer than a second here.
        os.utime(hidden, (1e9 + number, 1e9 + number))
        hidden.rename(path)

    def stream(self, spark: SparkSession, delay: str = "10 seconds") -> DataFrame:
        reader = spark.readStream.schema(self.columns).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder)).withWatermark("ts", delay)

    def batch(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(self.columns).parquet(str(self.folder))


# Two buckets in one partition: both are there, and a trigger has no more tasks than it needs.
SETTINGS = {"spark.sql.shuffle.partitions": "1", "spark.cep.buckets": "2"}


@contextmanager
def small(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


def drained(matches: DataFrame) -> tuple[DataFrame, StreamingQuery]:
    """What all files give, and the query that gave it."""
    name = f"given_{uuid.uuid4().hex}"
    writer = matches.writeStream.format("memory").queryName(name)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return matches.sparkSession.table(name), query


def assert_same(given: DataFrame, wanted: DataFrame) -> None:
    assert_df_equality(
        given,
        wanted,
        ignore_nullable=True,
        ignore_metadata=True,
        ignore_row_order=True,
        allow_nan_equality=True,
    )


def by_match(rows: DataFrame) -> DataFrame:
    """The rows of each match together: its number differs between stream and batch."""
    columns = [name for name in rows.columns if name != "match_id"]
    together = F.sort_array(F.collect_list(F.struct(*columns))).alias("match")
    return rows.groupBy("match_id").agg(together).select("match")


def into_sqlite(path: Path) -> Callable[[DataFrame, int], None]:
    """For foreachBatch: a batch that comes again replaces itself, so what is given in two batches
    is there twice."""

    def write(matches: DataFrame, batch: int) -> None:
        found = [(batch, row[0]) for row in matches.select(F.to_json(F.struct("*"))).collect()]
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS matches (batch INTEGER, match TEXT)")
            db.execute("DELETE FROM matches WHERE batch = ?", (batch,))
            db.executemany("INSERT INTO matches VALUES (?, ?)", found)

    return write


def in_sqlite(path: Path) -> list[str]:
    with sqlite3.connect(path) as db:
        return sorted(row[0] for row in db.execute("SELECT match FROM matches"))


def as_json(matches: DataFrame) -> list[str]:
    return sorted(row[0] for row in matches.select(F.to_json(F.struct("*"))).collect())


def striking(marker: Path, what: Callable[[], None]) -> Callable[..., Any]:
    """A condition that always holds, for `cep.udf`: the first time that it sees an x of 13 in its
    first argument it does something to its process. It travels by value."""
    path = str(marker)

    def strikes(x: Any, _: Any) -> Any:
        import pathlib

        if (x == 13).any() and not pathlib.Path(path).exists():
            pathlib.Path(path).touch()
            what()
        return x.isna() | x.notna()

    return strikes


def struck_batches(marker: Path, what: Callable[[], None], column: str) -> Callable[..., Any]:
    """The same for mapInArrow, which hands its rows on: where `column` has a 13."""
    path = str(marker)

    def strikes(batches: Any) -> Any:
        import pathlib

        for batch in batches:
            if 13 in batch.column(column).to_pylist() and not pathlib.Path(path).exists():
                pathlib.Path(path).touch()
                what()
            yield batch

    return strikes


def dying() -> Callable[[], None]:
    def die() -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    return die


def lingering(seconds: float) -> Callable[[], None]:
    def linger() -> None:
        import time

        time.sleep(seconds)

    return linger
