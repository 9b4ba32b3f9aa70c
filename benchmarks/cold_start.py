"""What the first row pattern costs, by where the compiled matcher comes from.

    python -m benchmarks.cold_start [--rounds N]     # two minutes a round

Measured in a fresh process without Spark, and in a fresh executor: a local session that has run
only the floor of the query before, so what its first query takes more than its second is the
package's. The package is a copy, laid out as a wheel installs it, with the matcher as part of it,
in a cache, or nowhere. Its folder cannot be written, and mostly there is no home.
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
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.reporting import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[1]
ROUNDS = 3
IN_PACKAGE, WARM, NO_HOME, EMPTY = SCENARIOS = (
    "in the package", "in a cache", "in a cache, no home", "nowhere",
)  # fmt: skip
COLUMNS = ("import", "call", "call again", "numba", "floor", "query", "query again")
NOWHERE = "/dev/null"


def first_calls(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """The medians of `COLUMNS` in each scenario; the scenarios take turns."""
    found: dict[str, list[dict[str, float]]] = {each: [] for each in SCENARIOS}
    with tempfile.TemporaryDirectory() as folder:
        packages = Packages(Path(folder))
        for _ in range(rounds):
            for scenario, lines in found.items():
                process = packages.run(scenario, "process")
                lines.append(process | packages.run(scenario, "executor"))
    return {
        scenario: {key: statistics.median(line[key] for line in lines) for key in COLUMNS}
        for scenario, lines in found.items()
    }


class Packages:
    """Two copies of the package, one with the matcher in it, and a cache that has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bare, self._complete = self._copy("bare"), self._copy("complete")
        code = (
            "from pathlib import Path; from spark_cep.udfs import compiling; "
            "from spark_cep.udfs.rows import loading; "
            "compiling.write_packaged(loading.MATCHER, Path(loading.__file__).parent)"
        )
        subprocess.run([sys.executable, "-c", code], cwd=self._complete, check=True)
        self._warm = folder / "warm"
        warming = [sys.executable, "-m", "spark_cep.cli", "warm-up"]
        self._run(warming, self._bare, self._warm, NOWHERE)

    def _copy(self, name: str) -> Path:
        target, ignored = self._folder / name, shutil.ignore_patterns("__pycache__")
        for source, place in (("spark_cep", "."), ("sql", "sql"), ("udfs", "udfs")):
            copy = target / "spark_cep" / place
            shutil.copytree(ROOT / source, copy, ignore=ignored, dirs_exist_ok=True)
        shutil.copytree(ROOT / "benchmarks", target / "benchmarks", ignore=ignored)
        # A file where the folder would be: also root cannot write there.
        (target / "spark_cep" / "udfs" / "rows" / "__pycache__").touch()
        return target

    def run(self, scenario: str, what: str) -> dict[str, float]:
        """What a fresh process measures: `run_process` or `run_executor`."""
        package = self._complete if scenario == IN_PACKAGE else self._bare
        empty = Path(tempfile.mkdtemp(dir=self._folder))
        cache = {WARM: self._warm, NO_HOME: self._warm, EMPTY: empty}.get(scenario, Path(NOWHERE))
        home = str(empty) if scenario in (WARM, EMPTY) else NOWHERE
        command = [sys.executable, "-m", "benchmarks.cold_start", what]
        done = self._run(command, package, cache, home)
        found: dict[str, float] = json.loads(done.splitlines()[-1])
        return found

    def _run(self, command: list[str], package: Path, cache: Path, home: str) -> str:
        env = {
            **os.environ, "PYTHONPATH": str(package), "SPARK_CEP_CACHE_DIR": str(cache),
            "HOME": home, "XDG_CACHE_HOME": home,
        }  # fmt: skip
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=package
        )
        return done.stdout


# ---- in the fresh process ----------------------------------------------------------------------


def run_executor() -> dict[str, float]:
    """Few rows in one bucket. Each query is planned anew: Spark does not run a plan's stages
    twice."""
    import pandas as pd  # noqa: PLC0415

    import spark_cep as cep  # noqa: PLC0415
    from benchmarks.floor import floor_of  # noqa: PLC0415
    from benchmarks.row_data import walks  # noqa: PLC0415
    from benchmarks.row_works_deep import NAMED  # noqa: PLC0415
    from benchmarks.session import start  # noqa: PLC0415

    spark = start()
    try:
        spark.conf.set("spark.cep.buckets", "1")
        rows = spark.createDataFrame(pd.DataFrame(walks(1_000, 4)))

        def planned() -> DataFrame:
            return cep.sql(spark, NAMED[0].query, rows=rows)

        for _ in range(3):
            floor_of(planned())
        times = [time.perf_counter()]
        for run in (lambda: floor_of(planned()), *[lambda: planned().collect()] * 2):
            run()
            times.append(time.perf_counter())
    finally:
        spark.stop()
    names = ("floor", "query", "query again")
    return {name: times[at + 1] - times[at] for at, name in enumerate(names)}


def run_process() -> dict[str, float]:
    """Imports, and two calls of the worker's code, without Spark."""
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
    times = [imported]
    for _ in range(2):
        answer = list(run(compiled, RowOutput(), iter([batch]), 0))
        assert sum(each.num_rows for each in answer) == 3
        times.append(time.perf_counter())
    return {
        "import": imported - began,
        "call": times[1] - times[0],
        "call again": times[2] - times[1],
        "numba": float("numba" in sys.modules),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("process", "executor"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    if given.what is not None:
        print(json.dumps(run_process() if given.what == "process" else run_executor()))
        return
    found = first_calls(given.rounds)
    lines = [[name, *(f"{each[key]:.2f}" for key in COLUMNS)] for name, each in found.items()]
    print(table(["matcher", *COLUMNS], lines))


if __name__ == "__main__":
    main()
