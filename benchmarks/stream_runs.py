"""Running a streaming query over files written before, one a trigger, and reading its times.

Times are Spark's own, of the query's progress. The first triggers of a query start workers and
fill the window: they do not count.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import START_US, Stock, write_stock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARMING = 4
TICKS = "symbol long, ts timestamp, kind string, price double"
WHOLE = "triggerExecution"

Progress = Mapping[str, Any]


@dataclass(frozen=True)
class Ran:
    """Milliseconds of each steady trigger, by the part that Spark calls so, and what the last one
    counted."""

    milliseconds: Mapping[str, tuple[float, ...]]
    counted: Mapping[str, int]

    def median(self, part: str = WHOLE) -> float:
        return statistics.median(self.milliseconds[part])


def write_triggers(shape: Stock, folder: Path, triggers: int) -> str:
    """`shape.rows` rows for each trigger, a file each, in the order in which Spark takes them."""
    path = write_stock(replace(shape, rows=shape.rows * triggers), folder, triggers)
    for number in range(triggers):
        at = START_US // 1_000_000 + number
        os.utime(Path(path) / f"part-{number}.parquet", (at, at))
    return path


def read_triggers(spark: SparkSession, path: str, watermark: str) -> DataFrame:
    files = spark.readStream.schema(TICKS).option("maxFilesPerTrigger", 1).parquet(path)
    return files.withWatermark("ts", watermark)


def in_turn(queries: Mapping[str, Callable[[], DataFrame]], rounds: int) -> dict[str, Ran]:
    """Each query from its start to the end of the files, `rounds` times, in turn."""
    runs: dict[str, list[Ran]] = {name: [] for name in queries}
    for _ in range(rounds):
        for name, make in queries.items():
            runs[name].append(steady(run_query(make())))
    return {name: joined(of_query) for name, of_query in runs.items()}


def run_query(answer: DataFrame) -> list[Progress]:
    """The progress of each trigger that had rows, when all files have been taken."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writing = answer.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [json.loads(each.json) for each in query.recentProgress]
        return [each for each in progress if each["numInputRows"]]


def steady(progress: Sequence[Progress]) -> Ran:
    late = progress[WARMING:]
    if not late:
        raise ValueError(f"a run needs more than {WARMING} triggers, this one had {len(progress)}")
    parts = late[0]["durationMs"]
    times = {part: tuple(each["durationMs"][part] for each in late) for part in parts}
    return Ran(times, _counted(late[-1]))


def joined(runs: Sequence[Ran]) -> Ran:
    """Several rounds of one query as one."""
    times = {
        part: tuple(ms for run in runs for ms in run.milliseconds[part])
        for part in runs[0].milliseconds
    }
    return Ran(times, runs[-1].counted)


def _counted(progress: Progress) -> dict[str, int]:
    """What the buckets of a trigger counted, summed; nothing for a query without a pattern."""
    counted: dict[str, int] = {}
    for observed in (progress.get("observedMetrics") or {}).values():
        for text in filter(None, (observed.get("buckets") or "").split("\n")):
            for name, count in json.loads(text).items():
                if isinstance(count, int):
                    counted[name] = counted.get(name, 0) + count
    return counted
