"""Two checkouts of this project on the same workloads, in turns, in one run.

    python -m benchmarks.two_commits OLD [NEW] [--only NAME ...] [--rounds N] [--json FILE]

OLD and NEW are folders of checkouts (NEW: this one). Each side is a process with a Spark session
of its own that works only when it is its turn, so that both meet the same machine. Printed: the
median of each side and their ratio, per workload.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent.parent
# The product's folders, and where an installation puts them.
INSTALLED = {"spark_cep": "spark_cep", "sql": "spark_cep/sql", "udfs": "spark_cep/udfs"}


# ---- one side: only the public API, which both checkouts have ----------------------------------


def serve(stock: str, many_keys: str) -> None:
    """Runs the workload that each line of the input names; answers with its seconds."""
    from benchmarks.session import start  # noqa: PLC0415 - the module lies in NEW, for both sides

    spark = start()
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    work = _workloads(spark, stock, many_keys)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(work[line.strip()]()), flush=True)
    spark.stop()


def _workloads(spark: Any, stock: str, many_keys: str) -> dict[str, Callable[[], float]]:
    import spark_cep as cep  # noqa: PLC0415 - of the side that this process is

    rising = (
        cep.seq(
            cep.event("a", "kind = 'A'"), cep.event("b", "kind = 'B'"), cep.event("c", "kind = 'C'")
        )
        .where("a.price < b.price", "b.price < c.price")
        .within("10 seconds")
    )
    vee = cep.row_pattern(
        "strt down+ up+", define={"down": "price < PREV(price)", "up": "price > PREV(price)"}
    )
    options = {"partition_by": "symbol", "order_by": "ts"}
    gain = {"gain": "c.price - a.price"}

    def timed(call: Callable[[], object]) -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    def batch(path: str, pattern: Any, measures: dict[str, str]) -> Callable[[], float]:
        def call() -> None:
            rows = spark.read.parquet(path)
            found = rows.match_pattern(pattern, measures=measures, **options)
            found.write.format("noop").mode("overwrite").save()

        return lambda: timed(call)

    def stream() -> float:
        """The median of a query's triggers after the first one."""
        rows = spark.readStream.schema(spark.read.parquet(stock).schema)
        rows = rows.option("maxFilesPerTrigger", 1).parquet(stock).withWatermark("ts", "1 second")
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                rows.match_pattern(rising, measures=gain, **options)
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress = [json.loads(each.json) for each in query.recentProgress]
        seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in progress]
        return statistics.median(seconds[1:])

    return {
        "stock": batch(stock, rising, gain),
        "many keys": batch(many_keys, rising, gain),
        "V-shape": batch(stock, vee, {"bottom": "LAST(down.price)"}),
        "one stream trigger": stream,
    }


# ---- both sides in turns -----------------------------------------------------------------------


class Side:
    """A process that runs workloads with the product of one checkout."""

    def __init__(self, checkout: Path, folder: Path, inputs: tuple[str, str]) -> None:
        for source, target in INSTALLED.items():
            shutil.copytree(
                checkout / source,
                folder / target,
                ignore=shutil.ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )
        shutil.copytree(HERE / "benchmarks", folder / "benchmarks")
        command = [sys.executable, "-m", "benchmarks.two_commits", "--serve", *inputs]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._read()

    def run(self, workload: str) -> float:
        self._pipe(self._process.stdin).write(workload + "\n")
        self._pipe(self._process.stdin).flush()
        return float(json.loads(self._read()))

    def close(self) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait()
        self._log.close()

    def _read(self) -> str:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"a side of the comparison ended:\n{self._log.read()[-4000:]}")
        return line

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


WORKLOADS = ("stock", "many keys", "V-shape", "one stream trigger")


def compare(
    old: Path, new: Path, workloads: tuple[str, ...], rounds: int, scale: float
) -> dict[str, dict[str, object]]:
    from benchmarks.data import Stock, write_stock  # noqa: PLC0415

    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        inputs = (
            write_stock(Stock(rows=int(1_000_000 * scale), keys=100), base),
            write_stock(Stock(rows=int(2_000_000 * scale), keys=100_000), base),
        )
        sides = {"old": Side(old, base / "old", inputs), "new": Side(new, base / "new", inputs)}
        for workload in workloads:
            seconds: dict[str, list[float]] = {name: [] for name in sides}
            for turn in range(rounds + 1):
                order = list(sides) if turn % 2 else list(reversed(sides))
                for name in order:
                    took = sides[name].run(workload)
                    if turn:  # the first turn warms up
                        seconds[name].append(took)
            medians = {name: statistics.median(each) for name, each in seconds.items()}
            best = {name: min(each) for name, each in seconds.items()}
            found[workload] = {
                "seconds": seconds,
                "ratio": medians["new"] / medians["old"],
                "ratio of the best": best["new"] / best["old"],
            }
            print(
                f"{workload:20} old {medians['old']:.3f} s  new {medians['new']:.3f} s  "
                f"ratio {found[workload]['ratio']:.3f}, of the best runs "
                f"{found[workload]['ratio of the best']:.3f}",
                flush=True,
            )
        for side in sides.values():
            side.close()
    return found


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = compare(
        given.old.resolve(), given.new.resolve(), tuple(given.only), given.rounds, given.scale
    )
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
