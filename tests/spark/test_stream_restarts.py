"""A query that was stopped goes on from its checkpoint and gives every match exactly once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep import event, no, row_pattern, seq
from tests.spark.streams import (
    LAST,
    LAST_KEY,
    Files,
    as_json,
    assert_same,
    in_sqlite,
    into_sqlite,
    small,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

A = event("a", "kind = 'A'")
B = event("b", "kind = 'B'")
LATE = no(event("n", "kind = 'C'"))
KINDS: dict[str, Any] = {
    "any": seq(A, B).within("20 seconds"),
    "not at the end": seq(A, B, LATE).within("20 seconds"),
    "next": seq(A, event("b+", "kind = 'B'"), event("c", "kind = 'C'"))
    .within("20 seconds")
    .strategy("skip till next match"),
    "consume": seq(A, B).within("20 seconds").consumption("consume"),
    "rows": row_pattern(
        "strt down+ up+", define={"down": "x < PREV(x)", "up": "x > PREV(x)"}
    ).within("20 seconds"),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


def minute(seed: int) -> list[list[Any]]:
    """Rows of six triggers, out of their order by up to 5 seconds, and the last one's."""
    chance = random.Random(seed)
    rows = [
        (t, chance.choice([1, 2, None]), chance.choice("AABBC"), chance.randrange(9), t)
        for t in range(60)
    ]
    rows.sort(key=lambda row: row[0] + chance.random() * 5)
    return [*(rows[begin : begin + 10] for begin in range(0, 60, 10)), [LAST]]


def matched(df: DataFrame, kind: str) -> DataFrame:
    options: dict[str, Any] = {"partition_by": "k", "order_by": ["ts", "u"]}
    if kind == "rows":
        measures = {"n": "MATCH_NUMBER()", "since": "FIRST(ts)", "low": "LAST(down.x)"}
        found = df.match_pattern(KINDS[kind], measures=measures, **options)
        return found.filter(f"k IS NULL OR k <> {LAST_KEY}")
    return df.match_pattern(KINDS[kind], **options)


def ran(writer: DataStreamWriter) -> None:
    """Everything that is there."""
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "any"), "any"],
)
def test_stops_between_triggers_lose_and_repeat_nothing_in_files(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    files = Files(tmp_path / "in")
    chance = random.Random(kind)
    triggers = minute(len(kind))
    stops = sorted(chance.sample(range(1, len(triggers)), 2))
    for number, rows in enumerate(triggers):
        files.put(rows)
        if number in stops or rows == [LAST]:
            # The query is made anew, as a program that starts again does.
            writer = matched(files.stream(spark), kind).writeStream.format("parquet")
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            ran(writer.option("path", str(tmp_path / "out")))
    wanted = matched(files.batch(spark), kind)
    assert wanted.count() > 3
    assert_same(spark.read.parquet(str(tmp_path / "out")), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["next", "rows"])
def test_stops_in_the_middle_of_triggers_lose_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    files = Files(tmp_path / "in")
    for rows in minute(1):
        files.put(rows)
    sink = tmp_path / "matches.db"
    chance = random.Random(kind)

    def writer() -> DataStreamWriter:
        found = matched(files.stream(spark), kind).writeStream.foreachBatch(into_sqlite(sink))
        return found.option("checkpointLocation", str(tmp_path / "checkpoint"))

    for _ in range(3):
        query = writer().start()
        deadline = time.monotonic() + 60
        while not query.recentProgress and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chance.random())
        query.stop()
    ran(writer())
    assert in_sqlite(sink) == as_json(matched(files.batch(spark), kind))
