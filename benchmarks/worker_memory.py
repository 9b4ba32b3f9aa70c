"""The memory and the time of one Python worker, without Spark.

A process of its own is fed record batches as Spark sends them (10,000 rows of key, time, kind and
value, made as they are asked for) and drops the answer. Contestants, in turns:

    floor       the rows are counted and dropped
    one call    all rows are held, and matched in one call of the engine
    bounded     `run` as the product calls it: what does not fit into its memory is spilled

    python -m benchmarks.worker_memory --rows 10000000 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

BATCH_ROWS = 10_000
SECOND = 1_000_000
# More than any input: everything is matched in one call.
NO_BOUND = 1 << 50
CONTESTANTS = ("floor", "one call", "bounded")
MEASURED = "measured: "


@dataclass(frozen=True)
class Workload:
    """`keys` 0: no partition key. `shuffled`: rows do not come in the order of time."""

    pattern: str
    keys: int
    shuffled: bool

    def title(self) -> str:
        keys = f"{self.keys:,} keys" if self.keys else "no key"
        return f"{self.pattern} pattern, {keys}, {'any order' if self.shuffled else 'in order'}"


WORKLOADS = (
    Workload("row", 0, False),
    Workload("row", 0, True),
    Workload("event", 0, False),
    Workload("event", 0, True),
    Workload("row", 1_000, True),
    Workload("event", 1_000, True),
)


# ---- rows ----------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("t", pa.timestamp("us", "UTC")),
        ("kind", pa.int64()),
        ("x", pa.float64()),
    ]
)


def columns(workload: Workload, first: int, rows: int, total: int) -> dict[str, np.ndarray]:
    """The rows from number `first` on; one each second."""
    random = np.random.default_rng(first)
    number = np.arange(first, first + rows)
    if workload.shuffled:
        # A linear permutation: any number that has no divisor in common with `total`.
        number = number * 7_368_787 % total
    return {
        "key": random.integers(0, max(workload.keys, 1), rows),
        "t": number * SECOND,
        "kind": random.integers(0, 2, rows),
        "x": random.random(rows),
    }


def batches(workload: Workload, rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The shipped rows, `schema` has their columns."""
    for first in range(0, rows, BATCH_ROWS):
        made = columns(workload, first, min(BATCH_ROWS, rows - first), rows)
        made["mask"] = 1 << made["kind"]
        arrays = [pa.array(made[field.name]).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(schema))])


# ---- programs ------------------------------------------------------------------------------------


def event_job(workload: Workload) -> tuple[Any, Any, list[str]]:
    """The program, its output, and the shipped columns."""
    from benchmarks.programs import prepare  # noqa: PLC0415 - the worker has no driver
    from spark_cep import seq  # noqa: PLC0415
    from spark_cep.pattern import event  # noqa: PLC0415
    from spark_cep.udfs.output import EventOutput, Field, Struct  # noqa: PLC0415

    window = (20 if not workload.keys else 20 * workload.keys) * SECOND
    pattern = (
        seq(event("a", "kind = 0"), event("b", "kind = 1")).where("b.x > a.x + 0.9").within(window)
    )
    keys = ["key"] if workload.keys else []
    prepared = prepare(pattern, columns(workload, 0, 100, 100), partition_by=keys)
    program = prepared.program
    names = {program.orders[0].column: "t", program.mask: "mask"}
    names |= dict.fromkeys(program.keys, "key")
    shipped = [names.get(place, "x") for place in range(len(program.columns))]
    x = shipped.index("x")
    structs = tuple(Struct(v, (Field(x, "x"),), flat=True) for v in range(2))
    return program, EventOutput("one", program.orders[0].column, structs), shipped


def row_job(workload: Workload) -> tuple[Any, Any, list[str]]:
    """A V: `down+ up+` with a total fall of more than 0.9."""
    from spark_cep.udfs.execution.row_engine import compile_row_program  # noqa: PLC0415
    from spark_cep.udfs.expressions import (  # noqa: PLC0415
        BIGINT,
        BOOL,
        DOUBLE,
        Call,
        Constant,
        Type,
    )
    from spark_cep.udfs.output import Field, RowOutput  # noqa: PLC0415
    from spark_cep.udfs.program import Limits, Order  # noqa: PLC0415
    from spark_cep.udfs.row_program import (  # noqa: PLC0415
        MatchNumber,
        RowPatternNode,
        RowProgram,
        RowRead,
        RowVariable,
        Skip,
    )

    def plus(variable: int) -> RowPatternNode:
        node = RowPatternNode("variable", variable)
        return RowPatternNode("repeat", parts=(node,), low=1, high=None)

    x, before = (RowRead("current", 2, DOUBLE, shift=shift) for shift in (0, -1))
    program = RowProgram(
        columns=("c0", "c1", "c2"),
        keys=(0,) if workload.keys else (),
        orders=(Order(1, Type("timestamp")),),
        variables=(
            RowVariable("start", Call(">", (x, Constant(0.9, DOUBLE)), BOOL)),
            RowVariable("down", Call("<", (x, before), BOOL)),
            RowVariable("up", Call(">", (x, before), BOOL)),
        ),
        pattern=RowPatternNode("concat", parts=(RowPatternNode("variable", 0), plus(1), plus(2))),
        measures=(MatchNumber(BIGINT), RowRead("last", 2, DOUBLE, frozenset({1}), final=True)),
        rows="one",
        skip=Skip(),
        limits=Limits(),
    )
    return compile_row_program(program), RowOutput((Field(0, "k"),)), ["key", "t", "x"]


# ---- one run -------------------------------------------------------------------------------------


def run_child(path: str) -> None:
    """Runs what the file says and prints what was measured."""
    from spark_cep.udfs.execution.worker import run  # noqa: PLC0415

    with Path(path).open("rb") as file:
        workload, rows, contestant, memory, job = pickle.load(file)
    program, output, shipped = job
    schema = pa.schema([SCHEMA.field(n) if n != "mask" else ("mask", pa.int8()) for n in shipped])
    # The first call of an engine loads or compiles its kernel.
    few = Workload(workload.pattern, workload.keys, workload.shuffled)
    for _ in run(program, output, batches(few, BATCH_ROWS, schema), 0):
        pass
    base = _resident_bytes()
    began, computed = time.perf_counter(), time.process_time()
    metrics: dict[str, Any] = {}
    source = batches(workload, rows, schema)
    if contestant == "floor":
        metrics["rows"] = sum(batch.num_rows for batch in source)
    else:
        for batch in run(program, output, source, 0, memory=memory):
            last = batch.column(batch.num_columns - 1)
            if last.null_count < len(last):
                metrics = json.loads(last[len(last) - 1].as_py())
    seconds, cpu = time.perf_counter() - began, time.process_time() - computed
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    kept = ("rows", "matches", "parts", "spilled_rows", "spilled_bytes")
    found = {name: metrics[name] for name in kept if name in metrics}
    print(
        MEASURED + json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, "base": base, **found})
    )


def _resident_bytes() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(workload: Workload, rows: int, contestant: str, memory: int | None) -> dict[str, Any]:
    job = event_job(workload) if workload.pattern == "event" else row_job(workload)
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(pickle.dumps((workload, rows, contestant, memory, job)))
        file.flush()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.worker_memory", "--child", file.name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith(MEASURED):
            found: dict[str, Any] = json.loads(line[len(MEASURED) :])
            return found
    raise SystemExit(done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", type=int, help="bytes that the bounded worker may use")
    parser.add_argument("--only", help="workloads whose title has this text")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        run_child(given.child)
        return
    for workload in WORKLOADS:
        if given.only and given.only not in workload.title():
            continue
        print(f"\n{workload.title()}: {given.rows:,} rows")
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
        for _ in range(given.rounds):
            for name in CONTESTANTS:
                memory = NO_BOUND if name == "one call" else given.memory
                runs[name].append(measure(workload, given.rows, name, memory))
        one = statistics.median(each["seconds"] for each in runs["one call"])
        for name, found in runs.items():
            seconds = statistics.median(each["seconds"] for each in found)
            cpu = statistics.median(each["cpu"] for each in found)
            peak = max(each["peak"] for each in found)
            rest = {
                k: v for k, v in found[0].items() if k not in ("seconds", "cpu", "peak", "base")
            }
            print(
                f"  {name:10s} {seconds:7.2f} s  {seconds / one:5.2f}  cpu {cpu:6.2f} s"
                f"  peak {peak >> 20:5d} MiB  (before {found[0]['base'] >> 20} MiB)  {rest}"
            )


if __name__ == "__main__":
    main()
