"""Plans on real triggers: `plan="auto"` beside the best named plan and what one writes without it.

    python -m benchmarks.plans_on_streams [--only NAME ...] [--json FILE]

The four patterns of `stream_plans.py` with windows of ten triggers, a file a trigger. Beside the
plans stand two rivals in foreachBatch, which read the files of the window again in each trigger (a
batch pattern, and a join by hand), and an operator that only keeps the rows of the window. Each
contestant has a session of its own, so that the memory of its workers is its own.
`plans_on_streams.md` keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import spark_cep as cep
from benchmarks.data import START_US
from benchmarks.reporting import Claim, table
from benchmarks.session import start
from benchmarks.stream_baselines import below_engine, kept_blobs
from benchmarks.stream_plans import ABC, GOAL, WORKS, StreamWork
from benchmarks.stream_windows import TICKS
from benchmarks.timing import worker_memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW = 10  # triggers
TRIGGERS = 18
# Those after a window, and one more of the new plan's.
STEADY = 7
ROWS = 4_000  # in a window
SCHEMA = "ts timestamp, kind int, x double, y double, k long"
# The named plan with the fewest pairs, by `stream_plans.py`.
BEST: Mapping[str, cep.plans.PlanRequest] = {
    "correlated": cep.plans.hybrid(eager=["a", "b"], lazy=["c"]),
    "few pairs fit": cep.plans.hybrid(eager=["a", "b"], lazy=["c"]),
    "rates switch": cep.plans.chain("b", "c", "a"),
    "tied by values": cep.plans.chain("b", "c", "a"),
}


def write_work(work: StreamWork, folder: Path, triggers: int = TRIGGERS) -> Path:
    """A file for each trigger, in the order in which Spark takes them."""
    columns = work.columns(WINDOW, triggers)
    for number in range(triggers):
        rows = (columns["t"] >= number * TICKS) & (columns["t"] < (number + 1) * TICKS)
        times = START_US + 1000 * columns["t"][rows]
        arrays = {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "kind": pa.array(columns["kind"][rows].astype(np.int32)),
            **{name: pa.array(columns[name][rows]) for name in ("x", "y", "k")},
        }
        file = folder / f"part-{number:03}.parquet"
        pq.write_table(pa.table(arrays), file)
        os.utime(file, (START_US // 1_000_000 + number,) * 2)
    return folder


@dataclass(frozen=True)
class Trigger:
    """Milliseconds of a trigger by Spark's clock, and what the engine counted in it."""

    milliseconds: float
    matches: int = 0
    pairs: int = 0
    matching_us: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Ran:
    triggers: tuple[Trigger, ...]
    peak_bytes: int
    swaps: tuple[str, ...] = ()

    def median(self, name: str) -> float:
        return statistics.median(getattr(each, name) for each in self.triggers)

    def total(self, name: str) -> int:
        return int(sum(getattr(each, name) for each in self.triggers))


@dataclass(frozen=True)
class Input:
    """A work's files, and one session's view of them."""

    work: StreamWork
    folder: Path
    spark: SparkSession

    def stream(self) -> DataFrame:
        files = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return files.parquet(str(self.folder)).withWatermark("ts", "0 seconds")

    def window(self, number: int) -> DataFrame:
        """The rows of the trigger and of the window before it."""
        numbers = range(max(number - WINDOW, 0), number + 1)
        paths = [str(self.folder / f"part-{each:03}.parquet") for each in numbers]
        return self.spark.read.schema(SCHEMA).parquet(*paths)


def match(rows: DataFrame, work: StreamWork, plan: Any) -> DataFrame:
    pattern = cep.seq(*ABC).where(*work.conditions).within(f"{WINDOW} seconds")
    measures = {"first": "a.ts", "last": "c.ts", "gain": "c.x - a.x"}
    return cep.match_pattern(rows, pattern, order_by="ts", plan=plan, measures=measures)


def joined_by_hand(rows: DataFrame, work: StreamWork) -> DataFrame:
    """What one writes in SQL for the three events."""
    rows.createOrReplaceTempView("window_rows")
    kinds = ", ".join(
        f"(SELECT * FROM window_rows WHERE kind = {kind}) {name}" for kind, name in enumerate("abc")
    )
    conditions = " AND ".join(work.conditions)
    return rows.sparkSession.sql(
        f"SELECT a.ts AS first, c.ts AS last, c.x - a.x AS gain FROM {kinds} "
        f"WHERE a.ts < b.ts AND b.ts < c.ts AND {conditions} "
        f"AND c.ts - a.ts <= INTERVAL {WINDOW} SECONDS"
    )


# ---- contestants ---------------------------------------------------------------------------------


def run_plan(given: Input, plan: Any) -> Ran:
    progress, counted = _run(match(given.stream(), given.work, plan).writeStream.format("noop"))
    swaps = tuple(swap["to"] for each in counted for swap in each["swaps"])
    triggers = [
        Trigger(
            each["durationMs"]["triggerExecution"],
            *(counts[name] for name in ("matches", "pairs", "matching_us", "state_bytes")),
        )
        for each, counts in zip(progress, counted, strict=True)
        if each["numInputRows"]
    ]
    return Ran(tuple(triggers[-STEADY:]), 0, swaps)


def run_again(given: Input, found: Callable[[DataFrame, StreamWork], DataFrame]) -> Ran:
    """The rows of the window are matched anew, and those matches kept whose end is new."""
    counts: list[Mapping[str, Any]] = []

    def take(_: DataFrame, number: int) -> None:
        answer = found(given.window(number), given.work)
        begin = f"timestamp_micros({START_US + 1000 * number * TICKS})"
        matches = answer.where(f"last >= {begin}").count()
        is_pattern = found is not joined_by_hand
        counts.append({**(cep.metrics(answer) if is_pattern else {}), "matches": matches})

    progress, _ = _run(given.stream().writeStream.foreachBatch(take))
    triggers = [
        Trigger(
            each["durationMs"]["triggerExecution"],
            *(count.get(name, 0) for name in ("matches", "pairs", "matching_us")),
        )
        for each, count in zip(progress, counts, strict=True)
    ]
    return Ran(tuple(triggers[-STEADY:]), 0)


def run_floor(given: Input) -> Ran:
    below = below_engine(match(given.stream(), given.work, "lazy-chain"))
    time = next(name for name, kind in below.dtypes if kind == "timestamp")
    kept = kept_blobs(below, time, WINDOW * TICKS * 1000)
    progress, _ = _run(kept.writeStream.format("noop"))
    rows = [each for each in progress if each["numInputRows"]]
    took = [Trigger(each["durationMs"]["triggerExecution"]) for each in rows]
    return Ran(tuple(took[-STEADY:]), 0)


def _run(writing: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The progress of each trigger, and what its engine counted."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [json.loads(each.json) for each in query.recentProgress]
        return progress, cep.streaming.metrics(query)


def contestants(name: str) -> dict[str, Callable[[Input], Ran]]:
    return {
        "auto": lambda given: run_plan(given, "auto"),
        "best named": lambda given: run_plan(given, BEST[name]),
        "pattern anew": lambda given: run_again(
            given, lambda rows, work: match(rows, work, "lazy-chain")
        ),
        "join by hand": lambda given: run_again(given, joined_by_hand),
        "keeps rows": run_floor,
    }


def measure(name: str, triggers: int = TRIGGERS, rows: int = ROWS) -> dict[str, Ran]:
    work, ran = replace(WORKS[name], rows=rows), {}
    with tempfile.TemporaryDirectory() as folder:
        files = write_work(work, Path(folder), triggers)
        for contestant, run in contestants(name).items():
            spark = start()
            spark.conf.set("spark.sql.shuffle.partitions", 1)
            spark.conf.set("spark.cep.buckets", 1)
            try:
                with worker_memory() as peak:
                    found = run(Input(work, files, spark))
            finally:
                spark.stop()
            ran[contestant] = replace(found, peak_bytes=peak.bytes)
            print(name, contestant, found.total("matches"), file=sys.stderr, flush=True)
    return ran


# ---- the report ----------------------------------------------------------------------------------


def report(measured: Mapping[str, Mapping[str, Ran]]) -> tuple[str, list[Claim]]:
    head = ["pattern", "what", "pairs", "engine ms a trigger", "ms a trigger", "of the floor"]
    head += ["state KB", "worker MB", "matches"]
    rows = [
        [
            name,
            what,
            f"{one.total('pairs'):,}" if one.total("pairs") else "",
            f"{one.median('matching_us') / 1000:.1f}" if one.total("matching_us") else "",
            round(one.median("milliseconds")),
            f"{one.median('milliseconds') / ran['keeps rows'].median('milliseconds'):.2f}",
            f"{one.median('state_bytes') / 1000:,.0f}" if one.total("state_bytes") else "",
            round(one.peak_bytes / 1e6),
            f"{one.total('matches'):,}" if what != "keeps rows" else "",
        ]
        for name, ran in measured.items()
        for what, one in ran.items()
    ]
    return table(head, rows), [
        claim for name, ran in measured.items() for claim in _claims(name, ran)
    ]


def _claims(name: str, ran: Mapping[str, Ran]) -> Sequence[Claim]:
    auto, best = ran["auto"], ran["best named"]
    swaps = ", ".join(auto.swaps) or "no swap"
    matches = {one.total("matches") for what, one in ran.items() if what != "keeps rows"}
    claims = [Claim(f"{name}: all give the same matches", len(matches) == 1, f"{sorted(matches)}")]
    for part, text in {
        "pairs": "pairs",
        "matching_us": "engine time",
        "milliseconds": "wall time",
    }.items():
        ratio = auto.median(part) / max(best.median(part), 1)
        claims.append(
            Claim(f"{name}: auto is within {GOAL} of the best named plan in {text}",
                  ratio <= GOAL, f"{ratio:.2f}; {swaps}")
        )  # fmt: skip
    return claims


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--only", nargs="+", choices=WORKS, default=list(WORKS))
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = arguments.parse_args()
    measured = {name: measure(name) for name in given.only}
    text, claims = report(measured)
    print(text)
    print("\n".join(claim.line() for claim in claims))
    if given.json:
        figures = {
            name: {what: asdict(one) for what, one in ran.items()} for name, ran in measured.items()
        }
        given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
