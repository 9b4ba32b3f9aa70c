"""A query of many triggers on Spark, in a time that slides on: nothing grows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import spark_cep as cep
from spark_cep import event, no, seq
from tests.spark.streams import Files, small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TRIGGERS = 40
SETTLED = 15
ROWS = 200  # a trigger, a second each
WINDOW = 300
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


def worker_memory() -> int:
    found = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(process.cmdline()):
                found += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return found


def test_state_and_worker_memory_stay_flat(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    pattern = (
        seq(
            event("a", "kind = 'A'"),
            event("b", "kind = 'B'"),
            no(event("n", "kind = 'C' AND x > 99")),
        )
        .where("a.x = b.x")
        .within(f"{WINDOW} seconds")
    )
    files.put([])
    matches = files.stream(spark).match_pattern(pattern, partition_by="k", order_by="ts")
    writer = matches.writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    memory = []
    try:
        for trigger in range(TRIGGERS):
            seconds = range(ROWS * trigger, ROWS * (trigger + 1))
            files.put([(t, t % 3, "ABBC"[t * 7 % 4], t % 11, t) for t in seconds])
            query.processAllAvailable()
            memory.append(worker_memory())
        counts = cep.streaming.metrics(query)
        progress: list[Any] = [json.loads(each.json) for each in query.recentProgress]
    finally:
        query.stop()
    assert sum(each["matches"] for each in counts) > TRIGGERS
    settled = [each for each in counts if each["trigger"] >= SETTLED]
    # A window and the watermark's 10 seconds behind, and the rows of the trigger itself.
    assert max(each["state_rows"] for each in settled) <= WINDOW + 10 + ROWS
    in_store = [sum(s["numRowsTotal"] for s in each["stateOperators"]) for each in progress]
    assert max(in_store[SETTLED:]) <= max(in_store[:SETTLED])
    assert memory[-1] - memory[SETTLED] < 20 * MEGABYTE
