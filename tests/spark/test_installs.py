"""The package is importable wherever it lies, and so it is in Spark's workers.

Each way runs in an empty virtual environment. PYTHONPATH leads to the dependencies, and not to the
editable install that the tests themselves run with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spark_cep

ROOT = Path(__file__).parents[2]
FOLDERS = {"spark_cep": "spark_cep", "sql": "spark_cep/sql", "udfs": "spark_cep/udfs"}
INSTALLED = Path(sysconfig.get_paths()["purelib"])

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


@dataclass(frozen=True)
class Environment:
    """An empty virtual environment, and a folder that has the dependencies."""

    folder: Path
    dependencies: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, *arguments: str | Path, cwd: Path, path: Path | str = "") -> dict[str, Any]:
        """What a Python program prints as JSON; `path` is in front of the dependencies."""
        return self.run_command(self.python, *arguments, cwd=cwd, path=path)

    def run_command(self, *command: str | Path, cwd: Path, path: Path | str = "") -> dict[str, Any]:
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(path), str(self.dependencies)])),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            # The user's cache stays as it is.
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        done = subprocess.run(
            command, cwd=cwd, env=variables, capture_output=True, text=True, check=False,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed here, without this project."""
    folder = tmp_path_factory.mktemp("dependencies")
    for path in INSTALLED.iterdir():
        if "spark_cep" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture
def environment(dependencies: Path, tmp_path: Path) -> Environment:
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return Environment(folder, dependencies)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: building leaves files behind."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    (copy / "tests" / "__init__.py").touch()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, checkout)
    (found,) = folder.glob("spark_cep-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel is installed in."""
    target = tmp_path_factory.mktemp("installed")
    _pip("install", "--no-deps", "--target", target, wheel)
    return target


def _pip(*arguments: str | Path, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def homes(root: Path, folders: tuple[str, ...] = tuple(FOLDERS)) -> list[str]:
    return [str(root / folder / "__init__.py") for folder in folders]


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert found == {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.py")
    }


def test_a_wheel_is_importable(environment: Environment, installed: Path, tmp_path: Path) -> None:
    answer = environment.run("-c", IMPORTING, cwd=tmp_path, path=installed)
    assert answer == {"homes": homes(installed, tuple(FOLDERS.values())), **VERSION}


def test_an_editable_install_is_importable(
    environment: Environment, checkout: Path, tmp_path: Path
) -> None:
    _pip(
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


@pytest.mark.spark
def test_patterns_match_from_a_zip_given_to_spark_submit(
    environment: Environment, wheel: Path, tmp_path: Path
) -> None:
    archive = shutil.copy(wheel, tmp_path / "spark_cep.zip")
    program = tmp_path / "program.py"
    program.write_text(MATCHING)
    submit = INSTALLED / "pyspark" / "bin" / "spark-submit"
    answer = environment.run_command(
        submit, "--master", "local[2]", "--py-files", archive, program, cwd=tmp_path
    )
    (home,) = answer.pop("homes")
    assert home.endswith("spark_cep.zip/spark_cep/udfs/__init__.py")
    assert answer == MATCHED
