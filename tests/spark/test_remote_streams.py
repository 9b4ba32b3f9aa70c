"""Streams that look values up: buckets that wait in turns, stops between triggers, workers that
die. Every match is in the sink exactly once."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_cep as cep
from spark_cep import event, no, seq
from tests.spark.streams import LAST, Files, as_json, assert_same, in_sqlite, into_sqlite, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PATTERN = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), no(event("n", "kind = 'C'")))
    .where("remote('limits', a.x) <= b.u")
    .within("20 seconds")
)


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


def limits(keys: list[int]) -> dict[int, int]:
    """Far away, for some keys more than for others."""
    import time

    time.sleep(0.02 * (min(keys) % 3))
    return {key: 3 * key for key in keys}


def minute(seed: int) -> list[list[Any]]:
    chance = random.Random(seed)
    rows = [
        (t, chance.choice([1, 2, 3, None]), chance.choice("AABBC"), chance.randrange(20), t)
        for t in range(60)
    ]
    rows.sort(key=lambda row: row[0] + chance.random() * 5)
    return [*(rows[begin : begin + 12] for begin in range(0, 60, 12)), [LAST]]


def matched(df: DataFrame, fetch: Any = limits, **options: Any) -> DataFrame:
    remotes = {"limits": cep.Remote.fetch(fetch, "bigint", batch_size=2, **options)}
    return df.match_pattern(PATTERN, partition_by="k", order_by=["ts", "u"], remotes=remotes)


def test_stops_between_triggers_lose_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    for number, rows in enumerate(minute(1)):
        files.put(rows)
        if number in (2, 4) or rows == [LAST]:
            writer = matched(files.stream(spark)).writeStream.format("parquet")
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            writer = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True)
            writer.start().awaitTermination()
    wanted = matched(files.batch(spark))
    assert wanted.count() > 10
    assert_same(spark.read.parquet(str(tmp_path / "out")), wanted)


@pytest.mark.slow
def test_a_worker_that_dies_while_buckets_wait_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    for rows in minute(2):
        files.put(rows)
    marker, process = tmp_path / "died", os.getpid()

    def deadly(keys: list[int]) -> dict[int, int]:
        if max(keys) > 9 and not marker.exists() and os.getpid() != process:
            marker.touch()
            os._exit(1)
        return {key: 3 * key for key in keys}

    def run() -> None:
        found = matched(files.stream(spark), deadly).writeStream
        writer = found.foreachBatch(into_sqlite(tmp_path / "matches.db"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match=r"crashed|exited"):
        run()
    assert marker.exists()
    run()
    wanted = as_json(matched(files.batch(spark)))
    assert len(wanted) > 10
    assert in_sqlite(tmp_path / "matches.db") == wanted
