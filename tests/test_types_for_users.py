"""A user's project that calls `df.match_pattern(...)` is checked by mypy, with the plugin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
CONFIG = """
[tool.mypy]
strict = true
plugins = ["spark_cep.mypy_plugin"]
# As for an installed package: only the user's files are checked.
[[tool.mypy.overrides]]
module = "spark_cep.*"
follow_imports = "silent"
"""
RIGHT = """
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, row_pattern, seq


def event_pattern(df: DataFrame) -> DataFrame:
    pattern = seq("a", event("b+", F.col("price") > 1)).within(timedelta(minutes=10))
    return df.filter("price > 0").match_pattern(
        pattern.strategy("skip till next match"),
        order_by=["at", F.col("line")],
        partition_by=F.lower("venue"),
        measures={"first": "a.at"},
        plan=cep.plans.chain("a", "b"),
        statistics=cep.Statistics(rates={"a": 1, "b": 2.5}),
        adapt=cep.adapt.invariants(distance=0.1),
        limits=cep.Limits(matches=1000),
        shed=cep.Shed(keep=0.3),
        remotes={"limits": cep.Remote.table(df, key="org")},
    )


def row_pattern_(df: DataFrame) -> DataFrame:
    pattern = row_pattern("a b+", {"b": "price > PREV(price)"}, subset={"u": ["a", "b"]})
    matches: DataFrame = df.match_pattern(
        pattern, order_by="at", rows="all with unmatched", after_match="SKIP TO NEXT ROW",
        plan="gaps",
    )
    cep.explain(matches, mode="analyze")
    return matches.where(matches.price > 1)


def statement(spark: SparkSession, df: DataFrame) -> int:
    cep.install(spark)
    pattern = cep.sase("PATTERN SEQ(A a, B b)", type_column="kind")
    return cep.sql(spark, "SELECT * FROM {df}", df=df.match_pattern(pattern, order_by="at")).count()
"""
# No import of spark_cep: the plugin knows the method all the same.
WRONG = """
from pyspark.sql import DataFrame


def misspelled(df: DataFrame, pattern: object) -> int:
    df.match_pattern("a b", order_by="at")
    df.match_patern("a b", order_by="at")
    return df.match_pattern(rows="oen", order_by=1)
"""
WRONG_OPTIONS = """
import spark_cep as cep
from pyspark.sql import DataFrame
from spark_cep import seq


def misspelled(df: DataFrame) -> None:
    df.match_pattern(seq("a"), order_by="at", rows="oen")
    cep.match_pattern(df, seq("a"), order_by="at", rows="oen")
    df.match_pattern(seq("a"), order_by="at", plan="fast", adapt=0.3)
    df.match_pattern(seq("a"), order_by="at", partition="venue")
    seq("a").strategy("skip some").consumption("once")
    cep.explain(df, mode="xml")
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy prints for the three files."""
    project = tmp_path_factory.mktemp("project")
    packages = tmp_path_factory.mktemp("packages")
    shutil.copytree(ROOT / "spark_cep", packages / "spark_cep")
    for folder in ("sql", "udfs"):
        shutil.copytree(ROOT / folder, packages / "spark_cep" / folder)
    (project / "pyproject.toml").write_text(CONFIG)
    for name, text in {"right": RIGHT, "wrong": WRONG, "wrong_options": WRONG_OPTIONS}.items():
        (project / f"{name}.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", "right.py", "wrong.py", "wrong_options.py"],
        cwd=project,
        env=os.environ | {"MYPYPATH": str(packages), "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout.splitlines()


def errors(report: list[str], file: str) -> dict[int, str]:
    """The messages for a file, by line."""
    found: dict[int, str] = {}
    for line in report:
        name, _, rest = line.partition(":")
        number, _, message = rest.partition(": error: ")
        if name == file and message:
            found[int(number)] = f"{found.get(int(number), '')}{message}"
    return found


def test_right_calls_are_accepted(report: list[str]) -> None:
    assert errors(report, "right.py") == {}


def test_wrong_values_of_options_are_errors(report: list[str]) -> None:
    found = errors(report, "wrong_options.py")
    assert sorted(found) == list(range(8, 14))
    for line in (8, 9):
        assert 'Argument "rows" to "match_pattern" has incompatible type' in found[line]
        assert "oen" in found[line]
    assert 'Argument "plan"' in found[10]
    assert 'Argument "adapt"' in found[10]
    assert 'Unexpected keyword argument "partition"' in found[11]
    assert "skip some" in found[12]
    assert "xml" in found[13]


def test_a_file_that_does_not_import_the_package_is_checked_too(report: list[str]) -> None:
    found = errors(report, "wrong.py")
    assert sorted(found) == [6, 7, 8]
    assert 'expected "Pattern | RowPattern"' in found[6]
    # Any other attribute is a Column, as before.
    assert '"Column" not callable' in found[7]
    assert 'Missing positional argument "pattern"' in found[8]
