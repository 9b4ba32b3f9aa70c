"""Processes that are killed in the middle of a trigger: every match is in the sink exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import spark_cep as cep
from spark_cep import event, seq
from tests.spark import stream_driver
from tests.spark.streams import (
    LAST,
    Files,
    as_json,
    assert_same,
    dying,
    in_sqlite,
    into_sqlite,
    small,
    striking,
    struck_batches,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLACES = ("before", "in", "after")


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


def put(files: Files) -> None:
    """Pairs in every trigger, some across triggers; an x of 13 in the second and the fourth."""
    for trigger in range(5):
        begin = 10 * trigger
        x = 13 if trigger in (1, 3) else 1
        files.put(
            [
                (begin, 1, "B", x, begin),
                (begin + 1, 1, "A", x, begin + 1),
                (begin + 3, 1, "B", x, begin + 3),
                (begin + 8, 2, "A", x, begin + 8),
                (begin + 7, 1, "A", 2, begin + 7),
                (begin + 12, 2, "B", 3, begin + 12),
            ]
        )
    files.put([LAST])


# ---- the driver --------------------------------------------------------------------------------


def test_a_killed_driver_goes_on_where_its_checkpoint_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    put(files)
    for place in range(stream_driver.PLACES):
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stream_driver", str(tmp_path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 120
        hung = place + 1
        while len(list(tmp_path.glob("hangs-*"))) < hung and time.monotonic() < deadline:
            assert driver.poll() is None, "the driver ended by itself"
            time.sleep(0.05)
        time.sleep(0.2)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(30)
        assert len(list(tmp_path.glob("hangs-*"))) == hung
    done = [sys.executable, "-m", "tests.spark.stream_driver", str(tmp_path)]
    run = subprocess.run(done, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    wanted = stream_driver.matches(files.batch(spark), tmp_path)
    assert wanted.count() > 8
    assert in_sqlite(tmp_path / "matches.db") == as_json(wanted)
    assert_same(spark.read.parquet(str(tmp_path / "out")), wanted)


# ---- a worker ----------------------------------------------------------------------------------


def faulty(df: DataFrame, folder: Path, place: str) -> DataFrame:
    """Pairs; at one place of the way a worker kills itself, once."""
    marker = folder / f"died-{place}"
    if place == "before":
        df = df.mapInArrow(struck_batches(marker, dying(), "x"), df.schema)
    pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within("5 seconds")
    if place == "in":
        cep.udf(striking(marker, dying()), returns="boolean", name="strikes")
        pattern = pattern.where("strikes(a.x, b.x)")
    found = df.withWatermark("ts", "10 seconds").match_pattern(
        pattern, partition_by="k", order_by="ts"
    )
    flat = found.selectExpr("k", "a.u AS a", "b.u AS b", "b.x AS x")
    if place == "after":
        flat = flat.mapInArrow(struck_batches(marker, dying(), "x"), flat.schema)
    return flat


def raw(files: Files, spark: SparkSession) -> DataFrame:
    reader = spark.readStream.schema(files.columns).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(files.folder))


@pytest.mark.parametrize("place", PLACES)
def test_a_query_that_failed_with_its_worker_goes_on_when_it_is_started_again(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    files = Files(tmp_path / "in")
    put(files)
    sink = tmp_path / "matches.db"

    def run() -> None:
        found = faulty(raw(files, spark), tmp_path, place).writeStream
        writer = found.foreachBatch(into_sqlite(sink)).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match=r"crashed|exited"):
        run()
    assert (tmp_path / f"died-{place}").exists()
    run()
    wanted = as_json(faulty(files.batch(spark), tmp_path, place))
    assert len(wanted) > 8
    assert in_sqlite(sink) == wanted


RETRIED = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.spark.conftest import SETTINGS
from tests.spark.streams import SETTINGS as SMALL
from tests.spark.streams import Files, as_json, in_sqlite, into_sqlite
from tests.spark.test_stream_faults import PLACES, faulty, put, raw

folder = Path(sys.argv[1])
builder = SparkSession.builder
for name, value in {**SETTINGS, **SMALL, "spark.master": "local[2,4]"}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
files = Files(folder / "in")
put(files)
out = {}
for place in PLACES:
    sink = folder / f"{place}.db"
    writer = faulty(raw(files, spark), folder, place).writeStream.foreachBatch(into_sqlite(sink))
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{place}"))
    writer.trigger(availableNow=True).start().awaitTermination()
    wanted = as_json(faulty(files.batch(spark), folder, place))
    died = (folder / f"died-{place}").exists()
    out[place] = [died, len(wanted), in_sqlite(sink) == wanted]
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_a_task_that_is_tried_again_finds_the_state_of_the_trigger_before(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", RETRIED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=300,
    )
    results = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, run.stderr[-4000:]
    found = json.loads(results[0].removeprefix("RESULT "))
    for place in PLACES:
        died, matches, right = found[place]
        assert died, place
        assert matches > 8
        assert right, place
