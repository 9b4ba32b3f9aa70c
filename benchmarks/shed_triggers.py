"""A latency bound in Spark's own triggers, under the loads of `shed_bounds.py`.

The rows are in files, one a trigger. In peaks, four of the triggers have 30, 10, 20 and 10 % of
them, and small ones come between; in the continuous load all but the first few have as many, more
than there is time for. Matches are compared with those of a batch over all rows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import spark_cep as cep
from benchmarks.data import START_US
from benchmarks.reporting import Claim, table
from benchmarks.session import start
from benchmarks.shed_windows import BOUNDS
from benchmarks.stream_runs import WHOLE, Progress, run_query
from spark_cep import Shed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.shed_queries import Query

# Spark takes 0.4 to 1 second of a trigger.
BOUND = 2.0
SLACK = 1.1
PARTITIONS = 2
QUERIES = (("Q1A", 4), ("Q3A", 5), ("Q2C", 4), ("Q2B", 6))
PEAKS = (0.3, 0.1, 0.2, 0.1)
CALM_TRIGGERS = 4
# Of the rows, so that there is something to learn from before the load.
WARM = (0.02,) * 5
CONTINUOUS_TRIGGERS = 8


@dataclass(frozen=True)
class Triggers:
    """`seconds`: of each trigger after those to warm up with, by Spark. `spark`: the median of what
    a trigger takes without load."""

    template: str
    length: int
    shape: str
    seconds: tuple[float, ...]
    spark: float
    cut: int
    kept: int
    dropped: int
    matches: int
    all_matches: int


def trigger_shares(shape: str) -> list[float]:
    """Of the rows that each trigger brings."""
    left = 1 - sum(WARM)
    if shape == "continuous":
        return [*WARM, *(left / CONTINUOUS_TRIGGERS for _ in range(CONTINUOUS_TRIGGERS))]
    calm = left * (1 - sum(PEAKS)) / (len(PEAKS) + 1) / CALM_TRIGGERS
    found = [*WARM, *(calm for _ in range(CALM_TRIGGERS))]
    for share in PEAKS:
        found += [left * share, *(calm for _ in range(CALM_TRIGGERS))]
    return found


def run_in_spark(*, quick: bool) -> None:
    found = []
    with _session() as spark, tempfile.TemporaryDirectory() as folder:
        for template, length in QUERIES[:1] if quick else QUERIES:
            query = BOUNDS.query(template, length)
            if quick:
                query = replace(query, rows=query.rows // 50)
            for shape in ("peaks", "continuous"):
                each = _run(spark, query, shape, Path(folder) / f"{template}-{length}-{shape}")
                found.append(each)
                print(each, file=sys.stderr, flush=True)
    print(details(found))
    print("\n".join(claim.line() for claim in claims(found)))


def _run(spark: SparkSession, query: Query, shape: str, folder: Path) -> Triggers:
    shares = trigger_shares(shape)
    schema = write_files(query, shares, folder)
    rows = spark.read.schema(schema).parquet(str(folder))
    every = _match(rows, query, None).count()
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    stream = files.withWatermark("ts", "0 seconds")
    progress = run_query(_match(stream, query, Shed(latency=f"{BOUND} seconds")))
    seconds = [each["durationMs"][WHOLE] / 1000 for each in progress]
    loaded = progress[len(WARM) :]
    counts = [each for trigger in loaded for each in _buckets(trigger)]
    shed = [of for each in counts for of in each.get("shed", {}).values()]
    return Triggers(
        query.name,
        query.length,
        shape,
        tuple(seconds[len(WARM) :]),
        float(np.median(seconds[1 : len(WARM)])),
        sum(each.get("cut", 0) for each in counts),
        sum(kept for kept, _ in shed),
        sum(dropped for _, dropped in shed),
        sum(each.get("matches", 0) for trigger in progress for each in _buckets(trigger)),
        every,
    )


def write_files(query: Query, shares: Sequence[float], folder: Path) -> str:
    """The rows in files as triggers take them; their schema."""
    columns = query.columns()
    times = pa.array(START_US + columns["t"], pa.timestamp("us", tz="UTC"))
    values = {name: pa.array(of) for name, of in columns.items() if name != "t"}
    rows = pa.table({"ts": times, **values})
    folder.mkdir()
    ends = np.round(np.cumsum(shares) * rows.num_rows).astype(int)
    begin = 0
    for number, end in enumerate(ends.tolist()):
        path = folder / f"part-{number:03}.parquet"
        pq.write_table(rows.slice(begin, end - begin), path)
        at = START_US // 1_000_000 + number
        os.utime(path, (at, at))
        begin = end
    types = {"i": "long", "f": "double"}
    return ", ".join(
        ["ts timestamp", *(f"{n} {types[of.dtype.kind]}" for n, of in columns.items() if n != "t")]
    )


def _match(rows: DataFrame, query: Query, shed: Shed | None) -> DataFrame:
    within = timedelta(microseconds=query.window)
    return cep.match_pattern(
        rows,
        query.sequence().within(within),
        order_by="ts",
        measures={"rows": "1"},
        shed=shed,
    )


def _buckets(progress: Progress) -> Iterator[dict[str, Any]]:
    for observed in (progress.get("observedMetrics") or {}).values():
        for text in filter(None, (observed.get("buckets") or "").split("\n")):
            yield json.loads(text)


def details(found: Sequence[Triggers]) -> str:
    head = ["template", "length", "load", "triggers", f"> {BOUND} s", f"> {SLACK * BOUND:.1f} s"]
    head += ["longest, s", "calm, s", "cut", "rows kept, %", "matches kept, %"]
    rows = [
        [
            *(each.template, each.length, each.shape, len(each.seconds)),
            sum(one > BOUND for one in each.seconds),
            sum(one > SLACK * BOUND for one in each.seconds),
            f"{max(each.seconds):.2f}",
            f"{each.spark:.2f}",
            each.cut,
            f"{100 * each.kept / max(each.kept + each.dropped, 1):.0f}",
            f"{100 * each.matches / max(each.all_matches, 1):.1f}",
        ]
        for each in found
    ]
    return table(head, rows)


def claims(found: Sequence[Triggers]) -> list[Claim]:
    seconds = [one for each in found for one in each.seconds]
    missed = sum(one > SLACK * BOUND for one in seconds)
    text = "at most one of Spark's triggers in a hundred is longer than the bound by a tenth"
    said = f"{missed} of {len(seconds)}, {max(seconds):.2f} s at worst"
    return [Claim(text, missed <= 0.01 * len(seconds), said)]


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = start()
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    try:
        yield spark
    finally:
        spark.stop()
