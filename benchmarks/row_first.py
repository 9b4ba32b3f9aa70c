"""What the first row pattern costs: in a fresh Python worker of Spark, in a fresh process, and the
very first time ever, when the matcher is compiled.

A worker is fresh where Spark may not use one again; the floor with fresh workers is taken off.
Run as a script, this file is the fresh process: `NUMBA_CACHE_DIR` says where the matcher is kept.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROUNDS = 5
BUCKETS = "spark.cep.buckets"


def first_calls() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as empty:
        compiling = _in_fresh_process(empty)
        loading = [_in_fresh_process(empty) for _ in range(ROUNDS)]
    return {
        "the very first call, compiling": compiling["call"],
        "importing in a fresh process": statistics.median(each["import"] for each in loading),
        "the first call in it, from the cache": statistics.median(each["call"] for each in loading),
        **_in_fresh_workers(),
    }


def _in_fresh_process(cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.row_first"]
    env = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _in_fresh_workers() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.row_first", "workers"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _workers() -> dict[str, float]:
    """Few rows in one bucket, so that one worker is started for each stage of a query."""
    import pandas as pd  # noqa: PLC0415

    import spark_cep as cep  # noqa: PLC0415
    from benchmarks.floor import floor_of  # noqa: PLC0415
    from benchmarks.row_data import walks  # noqa: PLC0415
    from benchmarks.row_works_deep import NAMED  # noqa: PLC0415
    from benchmarks.session import start  # noqa: PLC0415
    from benchmarks.timing import take_turns  # noqa: PLC0415

    spark = start(fresh_workers=True)
    try:
        spark.conf.set(BUCKETS, "1")
        rows = spark.createDataFrame(pd.DataFrame(walks(1_000, 4)))

        def planned() -> DataFrame:
            # Planned anew: Spark does not run the stages of one plan twice.
            return cep.sql(spark, NAMED[0].query, rows=rows)

        timed = take_turns(
            {
                "planning": lambda: planned().schema,
                "floor": lambda: floor_of(planned()),
                "ours": lambda: planned().collect(),
            },
            rounds=ROUNDS,
        )
    finally:
        spark.stop()
    return {
        "the floor in a fresh worker": timed["floor"].median - timed["planning"].median,
        "added to it by the first call": timed["ours"].median - timed["floor"].median,
    }


def _call() -> dict[str, float]:
    began = time.perf_counter()
    import pyarrow as pa  # noqa: PLC0415

    from spark_cep.udfs.execution.row_engine import compile_row_program  # noqa: PLC0415
    from spark_cep.udfs.execution.worker import run  # noqa: PLC0415
    from spark_cep.udfs.expressions import BIGINT, BOOL, Call  # noqa: PLC0415
    from spark_cep.udfs.output import RowOutput  # noqa: PLC0415
    from spark_cep.udfs.program import Limits  # noqa: PLC0415
    from spark_cep.udfs.row_program import (  # noqa: PLC0415
        Aggregate,
        RowPatternNode,
        RowProgram,
        RowRead,
        RowVariable,
        Skip,
    )

    imported = time.perf_counter()
    fell = Call("<", (RowRead("current", 0, BIGINT), RowRead("current", 0, BIGINT, shift=-1)), BOOL)
    falling = RowPatternNode("repeat", parts=(RowPatternNode("variable", 1),), low=1, high=None)
    program = RowProgram(
        columns=("v",),
        keys=(),
        orders=(),
        variables=(RowVariable("a"), RowVariable("b", fell)),
        pattern=RowPatternNode("concat", parts=(RowPatternNode("variable", 0), falling)),
        measures=(Aggregate("count", None, BIGINT),),
        rows="one",
        skip=Skip(),
        limits=Limits(),
    )
    batch = pa.RecordBatch.from_pydict({"v": [3, 2, 1, 5, 4]})
    compiled = compile_row_program(program)
    answer = list(run(compiled, RowOutput(), iter([batch]), 0))
    assert sum(each.num_rows for each in answer) == 3
    return {"import": imported - began, "call": time.perf_counter() - imported}


if __name__ == "__main__":
    print(json.dumps(_workers() if sys.argv[1:] == ["workers"] else _call()))
