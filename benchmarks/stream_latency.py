"""How long a row takes from its arrival to its match in the sink.

A thread writes a file of ticks ten times a second; they arrive when the file has its name. The
query starts its triggers as soon as it can, and foreachBatch notes when it has an answer's rows.
The same is done with an operator that only keeps the rows and answers with the arrivals of its
files: that is what Spark takes (finding files, planning, logs, state store, two Python stages).
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import spark_cep as cep
from benchmarks.event_patterns import RISING
from benchmarks.reporting import table
from benchmarks.session import start
from benchmarks.stream_baselines import below_engine, kept_blobs
from benchmarks.stream_runs import TICKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATES = (1_000, 10_000, 50_000)
SECONDS = 20
WARM_ANSWERS = 3
WARM_SECONDS = 5
FILE_SECONDS = 0.1
WINDOW_SECONDS = 10
ROWS_OF_A_KEY = 41  # in a window, so that about 0.8 matches come of a row at any rate
SEED = 20_261
SCHEMA = f"{TICKS}, arrived long"


@dataclass(frozen=True)
class Arrivals:
    """`late_ms` of each match, and the milliseconds between answers."""

    late_ms: np.ndarray
    trigger_ms: np.ndarray

    @property
    def median(self) -> float:
        return float(np.median(self.late_ms))

    def share(self, percent: float) -> float:
        return float(np.percentile(self.late_ms, percent))


@dataclass
class Sink:
    """What foreachBatch saw: the time, and the arrivals that an answer tells of."""

    seen: list[tuple[float, np.ndarray]] = field(default_factory=list)

    def take(self, batch: DataFrame, _: int) -> None:
        arrived = batch.toArrow().column("arrived").to_numpy()
        self.seen.append((time.time(), arrived))

    def arrivals(self, since: float, until: float) -> Arrivals:
        counted = [(at, arrived) for at, arrived in self.seen if since <= at < until]
        late = [1000 * at - arrived / 1000 for at, arrived in counted]
        times = np.array([at for at, _ in counted])
        return Arrivals(np.concatenate(late), 1000 * np.diff(times))


def ticks(rate: int, random: np.random.Generator) -> pa.Table:
    """One file's rows, but for their times."""
    count = round(rate * FILE_SECONDS)
    kinds = random.choice(3, size=count, p=[20 / 41, 20 / 41, 1 / 41]).astype(np.int8)
    keys = max(1, rate * WINDOW_SECONDS // ROWS_OF_A_KEY)
    return pa.table(
        {
            "symbol": random.integers(0, keys, size=count),
            "kind": pa.DictionaryArray.from_arrays(kinds, ["A", "B", "C"]).cast(pa.string()),
            "price": random.random(count),
        }
    )


def stamped(rows: pa.Table, now: float) -> pa.Table:
    """`rows` of the time up to `now`, in which they arrive."""
    count, now_us = rows.num_rows, int(now * 1_000_000)
    times = now_us - np.linspace(FILE_SECONDS * 1_000_000, 0, count, endpoint=False).astype(int)
    rows = rows.append_column("ts", pa.array(times, pa.timestamp("us", tz="UTC")))
    return rows.append_column("arrived", pa.array(np.full(count, now_us)))


@contextmanager
def arriving(rate: int, folder: Path) -> Iterator[None]:
    """Rows keep arriving while the block runs."""
    done = threading.Event()
    writer = threading.Thread(target=_write, args=(rate, folder, done), daemon=True)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def _write(rate: int, folder: Path, done: threading.Event) -> None:
    random = np.random.default_rng(SEED)
    due, number = time.time(), 0
    while not done.wait(max(0.0, due - time.time())):
        rows = ticks(rate, random)
        hidden = folder / f".{number}"
        pq.write_table(stamped(rows, time.time()), hidden)
        hidden.rename(folder / f"{number:06}.parquet")
        due, number = due + FILE_SECONDS, number + 1


def run_for(
    spark: SparkSession, rate: int, make: Callable[[DataFrame], DataFrame], seconds: int
) -> Arrivals:
    with tempfile.TemporaryDirectory() as folder:
        (rows := Path(folder) / "rows").mkdir()
        source = spark.readStream.schema(SCHEMA).parquet(str(rows))
        answer, sink = make(source.withWatermark("ts", "1 second")), Sink()
        writing = answer.writeStream.foreachBatch(sink.take)
        with arriving(rate, rows):
            query = writing.option("checkpointLocation", f"{folder}/checkpoint").start()
            # The rows that wait for the first answers, compiling and new workers, are caught up
            # with before anything counts.
            while len(sink.seen) < WARM_ANSWERS and query.isActive:
                time.sleep(FILE_SECONDS)
            since = time.time() + WARM_SECONDS
            query.awaitTermination(WARM_SECONDS + seconds)
        # Stopping in the middle of a trigger would fail its foreachBatch, at length.
        query.processAllAvailable()
        query.stop()
        return sink.arrivals(since, since + seconds)


def matched(rows: DataFrame) -> DataFrame:
    return cep.match_pattern(
        rows, RISING, partition_by="symbol", order_by="ts", measures={"arrived": "c.arrived"}
    ).select("arrived")


def kept(rows: DataFrame) -> DataFrame:
    below = below_engine(matched(rows))
    times = [name for name, kind in below.dtypes if kind == "timestamp"]
    echoed = [name for name, kind in below.dtypes if kind == "bigint"]
    answer = kept_blobs(below, times[0], WINDOW_SECONDS * 1_000_000, echoed[-1])
    return answer.withColumnRenamed("rows", "arrived")


def latency(seconds: int = SECONDS, rates: tuple[int, ...] = RATES) -> tuple[str, object]:
    """The table and the figures."""
    spark = start()
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    try:
        found = {
            rate: [run_for(spark, rate, make, seconds) for make in (kept, matched)]
            for rate in rates
        }
    finally:
        spark.stop()
    head = ["rows a second", "median ms", "95 of 100 below", "trigger ms", "Spark alone: median ms",
            "95 of 100", "trigger ms", "Spark's share"]  # fmt: skip
    rows = [[rate, *_line(match), *_line(spark_alone), f"{spark_alone.median / match.median:.2f}"]
            for rate, (spark_alone, match) in found.items()]  # fmt: skip
    return table(head, rows), {
        str(rate): [
            {name: values.tolist() for name, values in asdict(each).items()} for each in both
        ]
        for rate, both in found.items()
    }


def _line(arrivals: Arrivals) -> list[object]:
    middle = float(np.median(arrivals.trigger_ms))
    return [round(arrivals.median), round(arrivals.share(95)), round(middle)]
