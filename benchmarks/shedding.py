"""Load shedding with Spark: what it costs, what it saves and what it keeps.

    python -m benchmarks.shedding [batch steep peaks calm] [--quick] [--rounds N] [--json FILE]

benchmarks/results.md explains the workloads and keeps the figures of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import spark_cep as cep
from benchmarks.data import START_US, Stock, write_stock
from benchmarks.event_patterns import GAIN, RISING
from benchmarks.floor import floor_of
from benchmarks.reporting import Claim, table
from benchmarks.session import start
from benchmarks.stream_runs import (
    WHOLE,
    Progress,
    in_turn,
    read_triggers,
    run_query,
    write_triggers,
)
from benchmarks.timing import take_turns
from spark_cep import Shed, event, seq, shed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_cep.udfs.shedding.utility import SheddingPolicy

POLICIES: tuple[SheddingPolicy, ...] = ("utility", "keys", "darling", "random")
KEEP = 0.3
BATCH = Stock(rows=2_000_000, keys=100)
# Matching takes more than five times the floor, and finds few matches.
STEEP = Stock(rows=2_000_000, keys=100, rows_per_window=1_200)
STEEPLY_RISING = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("a.price + 0.45 < b.price", "b.price + 0.45 < c.price")
    .within("10 seconds")
)
# Call and action to the full answer's: at most this, on the stock set, and where matching takes so
# many times the floor.
STOCK_GOAL, STEEP_GOAL = 1.0, 0.5
# Thirty times as many rows in a window, of which few make a match: matching takes longer than
# reading.
PEAKS = Stock(rows=2_000_000, keys=100, rows_per_window=1_200)
LEAPING = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("a.price < b.price", "b.price + 0.9 < c.price")
    .within("10 seconds")
)
# Shares of the rows that come at once, each as one trigger; the others in small ones between them.
SHARES = (0.3, 0.1, 0.2, 0.1)
CALM_TRIGGERS = 4
BOUND = 3.0
CALM = Stock(rows=50_000, keys=100)
PARTITIONS = 2
WATERMARK = "10 seconds"
LITTLE = 0.02


@dataclass(frozen=True)
class Run:
    """`scale`: the part of the rows."""

    folder: Path
    rounds: int
    scale: float

    def scaled(self, shape: Stock) -> Stock:
        return replace(shape, rows=round(shape.rows * self.scale))


@dataclass(frozen=True)
class Report:
    text: str
    claims: list[Claim]
    figures: object


# ---- batch -------------------------------------------------------------------------------------


@dataclass
class _Asked:
    """The seconds of a call, planning and a look at the rows, and of the action after it."""

    calls: list[float]
    actions: list[float]
    answer: DataFrame | None = None


def batch(run: Run) -> Report:
    """The stock set, of which 30 % stay."""
    return _batch(run, BATCH, RISING, STOCK_GOAL)


def steep(run: Run) -> Report:
    """Rows that take five times the floor to match and more, of which 30 % stay."""
    return _batch(run, STEEP, STEEPLY_RISING, STEEP_GOAL)


def _batch(run: Run, stock: Stock, pattern: cep.Pattern, goal: float) -> Report:
    with _session() as spark:
        ticks = spark.read.parquet(write_stock(run.scaled(stock), run.folder))
        planned = _match(ticks, pattern, None)
        asked = {name: _Asked([], []) for name in ("full answer", *shed.POLICIES)}

        def ask(name: str, shed: Shed | None) -> int:
            started = time.perf_counter()
            one = asked[name]
            one.answer = _match(ticks, pattern, shed)
            one.calls.append(time.perf_counter() - started)
            count = one.answer.count()
            one.actions.append(time.perf_counter() - started - one.calls[-1])
            return count

        ways: dict[str, Callable[[], object]] = {
            "floor": lambda: floor_of(planned),
            "full answer": lambda: ask("full answer", None),
        }
        for policy in shed.POLICIES:
            ways[policy] = partial(ask, policy, Shed(keep=KEEP, policy=policy))
        timed = take_turns(ways, rounds=run.rounds)
        floor, full = timed["floor"].median, timed["full answer"]
        rows: list[list[object]] = [["floor", "", "", floor, 1.0, "", "", ""]]
        figures: dict[str, Any] = {"floor": timed["floor"].seconds}
        for name, one in asked.items():
            whole = timed[name].median
            kept = 100 * int(str(timed[name].result)) / int(str(full.result))
            estimated = "" if name == "full answer" else _estimate(one.answer)
            call, action = (statistics.median(each[1:]) for each in (one.calls, one.actions))
            times = [f"{call:.2f}", f"{action:.2f}", whole, whole / floor]
            rows.append([name, *times, f"{whole / full.median:.2f}", f"{kept:.1f}", estimated])
            figures[name] = {"call": one.calls, "action": one.actions, "kept": kept}
    head = ["what", "call, s", "action, s", "both, s", "to the floor", "to the full answer"]
    ratio = timed["utility"].median / full.median
    claims = [
        Claim(
            f"shedding by utility takes at most {goal:g} of the full answer's time",
            ratio <= goal,
            f"{ratio:.2f}, where the full answer takes {full.median / floor:.1f} times the floor",
        )
    ]
    return Report(table([*head, "matches kept, %", "estimated, %"], rows), claims, figures)


def _estimate(answer: DataFrame | None) -> str:
    assert answer is not None
    recall = cep.plan_of(answer).to_dict()["shedding"]["estimated_recall"]
    return "unknown" if recall is None else f"{100 * recall:.1f}"


# ---- streams -----------------------------------------------------------------------------------


def peaks(run: Run) -> Report:
    """Four peaks of 30, 10, 20 and 10 % of the rows, one trigger each, under a bound of 3 s."""
    with _session() as spark:
        path = write_peaks(run.scaled(PEAKS), run.folder)
        files = spark.readStream.schema("symbol long, ts timestamp, kind string, price double")
        ticks = files.option("maxFilesPerTrigger", 1).parquet(path).withWatermark("ts", WATERMARK)
        # A first run starts the workers; it does not count.
        run_query(_match(ticks, LEAPING, None))
        sheds: dict[str, Shed | None] = {"no shedding": None}
        sheds |= {each: Shed(latency=f"{BOUND} seconds", policy=each) for each in POLICIES}
        ran = {name: run_query(_match(ticks, LEAPING, shed)) for name, shed in sheds.items()}
    full = sum(_counted(each, "matches") for each in ran["no shedding"])
    rows: list[list[object]] = []
    late: dict[str, float] = {}
    for name, triggers in ran.items():
        seconds = [each["durationMs"][WHOLE] / 1000 for each in triggers]
        of_peaks = [
            second for each, second in zip(triggers, seconds, strict=True) if _is_peak(each, run)
        ]
        calm = [
            second
            for each, second in zip(triggers, seconds, strict=True)
            if not _is_peak(each, run)
        ]
        late[name] = max(of_peaks[1:])
        kept = 100 * sum(_counted(each, "matches") for each in triggers) / max(full, 1)
        texts = ", ".join(f"{second:.2f}" for second in of_peaks)
        rows.append([name, texts, max(seconds), statistics.median(calm), kept])
    figures = {
        name: [[each["numInputRows"], each["durationMs"]] for each in of]
        for name, of in ran.items()
    }
    head = [
        "policy",
        "the four peaks, s",
        "longest, s",
        "calm trigger, median s",
        "matches kept, %",
    ]
    goal = Claim(
        f"no peak after the first takes longer than {BOUND} s",
        late["utility"] <= BOUND,
        f"{late['utility']:.2f} s; without shedding {late['no shedding']:.2f} s",
    )
    return Report(table(head, rows), [goal], figures)


def write_peaks(shape: Stock, folder: Path) -> str:
    """The rows in files as triggers take them, one a trigger."""
    whole = Path(write_stock(shape, folder, 1)) / "part-0.parquet"
    rows = pq.read_table(whole)
    target = folder / f"{shape.name}-peaks"
    target.mkdir(exist_ok=True)
    begin = 0
    for number, share in enumerate(trigger_shares()):
        end = min(begin + round(share * rows.num_rows), rows.num_rows)
        path = target / f"part-{number:03}.parquet"
        pq.write_table(rows.slice(begin, end - begin), path)
        at = START_US // 1_000_000 + number
        os.utime(path, (at, at))
        begin = end
    return str(target)


def trigger_shares() -> list[float]:
    """Of the rows that each trigger brings."""
    calm = (1 - sum(SHARES)) / (len(SHARES) + 1) / CALM_TRIGGERS
    found = [calm] * CALM_TRIGGERS
    for share in SHARES:
        found += [share, *[calm] * CALM_TRIGGERS]
    return found


def _is_peak(progress: Progress, run: Run) -> bool:
    return bool(progress["numInputRows"] > 0.9 * min(SHARES) * run.scaled(PEAKS).rows)


def _counted(progress: Progress, name: str) -> int:
    buckets = [
        json.loads(text)
        for observed in (progress.get("observedMetrics") or {}).values()
        for text in filter(None, (observed.get("buckets") or "").split("\n"))
    ]
    return sum(each.get(name, 0) for each in buckets)


def calm(run: Run) -> Report:
    """A stream that is never too fast, with shed= and without, in turn."""
    with _session() as spark:
        path = write_triggers(run.scaled(CALM), run.folder, 16)
        ticks = read_triggers(spark, path, WATERMARK)
        ran = in_turn(
            {
                "without shed=": partial(_match, ticks, RISING, None),
                "with shed=": partial(_match, ticks, RISING, Shed(latency="60 seconds")),
            },
            run.rounds,
        )
    without, with_ = (ran[name].milliseconds[WHOLE] for name in ("without shed=", "with shed="))
    each_round = len(without) // run.rounds
    ratios = [
        statistics.median(with_[at : at + each_round])
        / statistics.median(without[at : at + each_round])
        for at in range(0, len(without), each_round)
    ]
    ratio = statistics.median(ratios)
    rows = [
        [name, round(one.median()), one.median() / ran["without shed="].median()]
        for name, one in ran.items()
    ]
    said = ", ".join(f"{each:.3f}" for each in ratios)
    goal = Claim("without overload a trigger takes less than 2 % more", ratio < 1 + LITTLE, said)
    figures = {"without": without, "with": with_, "ratios": ratios}
    return Report(table(["what", "ms a trigger, median", "ratio"], rows), [goal], figures)


# ---- the program -------------------------------------------------------------------------------

WORKLOADS: Mapping[str, Callable[[Run], Report]] = {
    "batch": batch,
    "steep": steep,
    "peaks": peaks,
    "calm": calm,
}


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = start()
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    try:
        yield spark
    finally:
        spark.stop()


def _match(ticks: DataFrame, pattern: cep.Pattern, shed: Shed | None) -> DataFrame:
    return cep.match_pattern(
        ticks, pattern, partition_by="symbol", order_by="ts", measures=GAIN, shed=shed
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Times load shedding with Spark.")
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args(arguments)
    figures = {}
    for name in given.workloads or WORKLOADS:
        print(f"{name}: {WORKLOADS[name].__doc__}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder), given.rounds, 0.1 if given.quick else 1.0)
            report = WORKLOADS[name](run)
        print(report.text)
        print("\n".join(claim.line() for claim in report.claims), flush=True)
        figures[name] = report.figures
    if given.json:
        given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
