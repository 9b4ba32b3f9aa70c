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


# ---- max_wait ------------------------------------------------------------------------------------


def slow(keys: list[int]) -> dict[int, int]:
    """A fifth of the keys takes longer than some triggers."""
    import time

    time.sleep(1.5 if keys[0] % 5 == 0 else 0.0)
    return {key: 3 * key for key in keys}


def test_what_comes_too_late_comes_in_a_later_trigger_also_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    options = {"max_wait": "20 ms", "max_in_flight": 20}
    delayed: list[int] = []

    def run(max_wait: str = "20 ms") -> None:
        how = {**options, "max_wait": max_wait}
        found = matched(files.stream(spark), slow, **how).writeStream.format("parquet")
        found = found.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = found.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        query.awaitTermination()
        delayed.extend(each["delayed_rows"] for each in cep.streaming.metrics(query))

    for number, rows in enumerate(minute(3)):
        files.put(rows)
        if number in (2, 5):
            run()
    for later in range(1, 9):
        # A restarted query asks for the values again: now it may wait until they are there.
        files.put([(LAST[0] + 100 * later, *LAST[1:])])
        run("20 seconds")
        if not delayed[-1]:
            break
    assert sum(delayed) > 0
    assert delayed[-1] == 0
    wanted = matched(files.batch(spark), slow, **options)
    assert wanted.count() > 10
    assert_same(spark.read.parquet(str(tmp_path / "out")), wanted)


def test_max_wait_is_refused_where_a_row_cannot_be_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    files.put([LAST])
    pair = seq("a", "b").within("5 seconds")

    def refused(condition: str, message: str, measures: Any = None, **options: Any) -> None:
        source = cep.Remote.fetch(limits, "bigint", max_wait="1 s", **options)
        with pytest.raises(cep.PatternError, match=message):
            files.stream(spark).match_pattern(
                pair.where(condition), order_by="ts", remotes={"r": source}, measures=measures
            )

    refused("b.u > remote('r', a.x)", "wait for every value", {"m": "remote('r', a.x)"})
    refused("b.u > remote('r', a.x, b.x)", "columns of one row")
    refused("b.u > remote('r', a.x)", "keeps no value", strategy="blocking")
    refused("b.u LIKE remote('r', a.k)", "wait for every value", {"m": "remote('r', a.k)"})
