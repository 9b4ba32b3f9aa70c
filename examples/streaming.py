"""Doors that were left open, told while it happens.

A cold store: who opens a door closes it again, mostly within a minute. Looked for are openings
with no closing of the same door within two minutes. That nothing happened is certain when two
minutes have passed, so a match is given when the watermark is two minutes past the opening.

Rows come in files, a little out of order. The matches go to two sinks, each exactly once:
Parquet files, which Spark commits with its checkpoint, and a table of SQLite by foreachBatch,
which Spark may call again with rows it has given before, so their key makes the second time
harmless. Halfway both queries stop and go on from their checkpoints, as after a new release.

Run it with `python examples/streaming.py`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep
from spark_cep import event, no, seq

LEFT_OPEN = seq(event("opened", "NOT shut"), no(event("closed", "shut"))).within("2 minutes")

MORNING = datetime(2026, 1, 5, 6, 0, tzinfo=UTC)
COLUMNS = "door int, at timestamp, shut boolean"
DOORS, HOURS, FILES = 40, 8, 4
FORGOTTEN = {7: 95, 19: 200, 31: 340}  # minutes after six o'clock

# SQLite has no type for times.
SHOWN = ("door", "string(opened) AS opened")

Rows = list[tuple[int, datetime, bool]]
Alarms = list[tuple[int, str]]


def movements() -> Rows:
    """A day of doors, in the order in which their messages arrive."""
    chance = random.Random(5)
    rows: Rows = []

    def opened(door: int, minute: float, seconds: float) -> None:
        at = MORNING + timedelta(minutes=minute)
        rows.extend([(door, at, False), (door, at + timedelta(seconds=seconds), True)])

    for door in range(DOORS):
        for minute in range(5, 60 * HOURS - 10, 10):
            opened(door, minute + chance.random(), chance.randrange(5, 90))
    for door, minute in FORGOTTEN.items():
        opened(door, minute + 2, 150)
    return sorted(rows, key=lambda row: row[1] + timedelta(seconds=chance.randrange(30)))


def arrive(spark: SparkSession, rows: Rows, folder: Path) -> None:
    """Rows become files, each a trigger's."""
    size = -(-len(rows) // (FILES // 2))
    for start in range(0, len(rows), size):
        part = spark.createDataFrame(rows[start : start + size], COLUMNS)
        part.coalesce(1).write.mode("append").parquet(str(folder))


def left_open(spark: SparkSession, folder: Path) -> DataFrame:
    arriving = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return (
        arriving.parquet(str(folder))
        .withWatermark("at", "1 minute")
        .match_pattern(
            LEFT_OPEN, partition_by="door", order_by="at", measures={"opened": "opened.at"}
        )
    )


class Table:
    """The alarms in SQLite. The key is what makes a match this match."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run("CREATE TABLE alarms (door INT, opened TEXT, PRIMARY KEY (door, opened))")

    def write(self, matches: DataFrame, _trigger: int) -> None:
        rows = matches.selectExpr(*SHOWN).collect()
        self._run("INSERT OR IGNORE INTO alarms VALUES (?, ?)", rows)

    def rows(self) -> Alarms:
        return self._run("SELECT door, opened FROM alarms ORDER BY opened")

    def _run(self, statement: str, rows: Iterable[Any] | None = None) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            if rows is None:
                return connection.execute(statement).fetchall()
            connection.executemany(statement, rows)
            return []


def run(matches: DataFrame, table: Table, folder: Path) -> None:
    """Both queries, until they have read all files that there are."""
    to_files = matches.writeStream.format("parquet").option("path", str(folder / "alarms"))
    to_table = matches.writeStream.foreachBatch(table.write)
    for name, sink in {"files": to_files, "table": to_table}.items():
        checkpoint = str(folder / f"checkpoint of {name}")
        query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        for each in cep.streaming.metrics(query):
            print(
                f"{name}, trigger {each['trigger']}: {each['rows']} rows, {each['matches']} "
                f"matches; kept {each['state_rows']} rows, {each['state_bytes'] / 1024:.1f} KiB"
            )


def main(spark: SparkSession) -> tuple[Alarms, Alarms]:
    """The alarms in the files, and those in the table."""
    rows = movements()
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "movements"
        table = Table(folder / "alarms.db")
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            arrive(spark, half, source)
            # Built anew, as by a program that was started again.
            matches = left_open(spark, source)
            run(matches, table, folder)
        cep.explain(matches)
        alarms = spark.read.parquet(str(folder / "alarms")).orderBy("opened")
        alarms.show(truncate=False)
        return [tuple(row) for row in alarms.selectExpr(*SHOWN).collect()], table.rows()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("doors left open")
    builder = builder.config("spark.sql.shuffle.partitions", 2)  # 8 buckets
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
