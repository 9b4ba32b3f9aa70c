"""The package is importable wherever it lies, and so it is in Spark's workers.

Each way runs in an empty virtual environment. PYTHONPATH leads to the dependencies, and not to the
editable install that the tests themselves run with.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import spark_cep
from spark_cep.udfs import compiling
from spark_cep.udfs.rows import loading
from tests.spark.installing import FOLDERS, ROOT, Environment, run_pip

pytestmark = [pytest.mark.slow]

IMPORTING = """
import json, sys
import spark_cep
for name in spark_cep.__all__:
    getattr(spark_cep, name)
import spark_cep.sql, spark_cep.udfs
homes = [module.__file__ for module in (spark_cep, spark_cep.sql, spark_cep.udfs)]
print(json.dumps({"homes": homes, "version": spark_cep.__version__}))
"""

# An event pattern, one that consumes, and a row pattern: all that numba compiles runs in workers.
MATCHING = """
import json, os, sys
import spark_cep
from pyspark.sql import SparkSession
from spark_cep import event, row_pattern, seq

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
rows = spark.createDataFrame([("k", at, at % 3) for at in range(6)], "k string, at int, v int")

def home(batches):
    import spark_cep.udfs
    for frame in batches:
        yield frame.assign(k=spark_cep.udfs.__file__)

how = {"partition_by": "k", "order_by": "at"}
rise = seq(event("a", "v = 0"), event("b", "v = 2"))
dip = row_pattern("down up+", define={"down": "v < PREV(v)", "up": "v > PREV(v)"})
last = {"last": "b.at"}
print(json.dumps({
    "version": spark_cep.__version__,
    "homes": sorted({row.k for row in rows.mapInPandas(home, rows.schema).collect()}),
    "events": sorted(row.last for row in rows.match_pattern(rise, **how, measures=last).collect()),
    "consumed": sorted(
        row.last
        for row in rows.match_pattern(rise.consumption("consume"), **how, measures=last).collect()
    ),
    "rows": [
        row.n
        for row in rows.match_pattern(dip, **how, measures={"n": "count(up.*)"}).collect()
    ],
}))
"""
VERSION = {"version": spark_cep.__version__}
MATCHED = {**VERSION, "events": [2, 5, 5], "consumed": [2, 5], "rows": [2]}


def homes(root: Path, folders: tuple[str, ...] = tuple(FOLDERS)) -> list[str]:
    return [str(root / folder / "__init__.py") for folder in folders]


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert found == {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.py")
    }


def test_the_wheel_has_the_compiled_matcher(wheel: Path) -> None:
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".bin")}
    assert found == {
        f"spark_cep/udfs/rows/{loading.MATCHER.packaged_name(platform)}"
        for platform in compiling.TRIPLES
    }


def test_a_wheel_is_importable(environment: Environment, installed: Path, tmp_path: Path) -> None:
    answer = environment.run("-c", IMPORTING, cwd=tmp_path, path=installed)
    assert answer == {"homes": homes(installed, tuple(FOLDERS.values())), **VERSION}


def test_an_editable_install_is_importable(
    environment: Environment, checkout: Path, tmp_path: Path
) -> None:
    run_pip(
        "--python", environment.python, "install", "--no-deps", "--no-build-isolation",
        "--editable", checkout, PYTHONPATH=str(environment.dependencies),
    )  # fmt: skip
    answer = environment.run("-c", IMPORTING, cwd=tmp_path)
    assert answer == {"homes": homes(checkout), **VERSION}


@pytest.mark.parametrize("is_installed", [False, True])
def test_the_root_of_a_checkout_is_importable(
    environment: Environment, checkout: Path, installed: Path, is_installed: bool
) -> None:
    path = installed if is_installed else ""
    answer = environment.run("-c", IMPORTING, cwd=checkout, path=path)
    assert answer == {"homes": homes(checkout), **VERSION}


def test_other_folders_of_a_checkout_are_no_part_of_the_package(
    environment: Environment, checkout: Path
) -> None:
    code = """
import importlib.util, json, spark_cep
print(json.dumps({n: importlib.util.find_spec("spark_cep." + n) is None for n in ("tests", "sql")}))
"""
    answer = environment.run("-c", code, cwd=checkout)
    assert answer == {"tests": True, "sql": False}


@pytest.mark.spark
def test_patterns_match_in_the_root_of_a_checkout(environment: Environment) -> None:
    # This checkout and not a copy of it: here the matcher may be compiled already.
    answer = environment.run("-c", MATCHING, cwd=ROOT)
    assert answer == {"homes": homes(ROOT, ("udfs",)), **MATCHED}
