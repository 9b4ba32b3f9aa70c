"""What is said where Spark is missing or too old, and how rows are dealt where it is old."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spark_cep.errors import PlanError
from spark_cep.spark import versions

WITHOUT = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark" else real(name, *rest)
sys.modules["pyspark"] = None
"""
OLD = """
import pyspark
pyspark.__version__ = "3.4.4"
"""


def fresh(code: str) -> str:
    """What a fresh interpreter prints last, its traceback included."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@pytest.mark.parametrize(
    "use", ["spark_cep.match_pattern", "spark_cep.metrics", "spark_cep.sql(None, 'SELECT 1')"]
)
def test_without_pyspark_one_error_says_what_to_install(use: str) -> None:
    *_, error, hint = fresh(f"{WITHOUT}\nimport spark_cep\n{use}").strip().split("\n")
    assert error == "spark_cep.CepError: spark-cep needs PySpark, and there is none in this Python"
    assert "pip install 'spark-cep[spark]'" in hint


def test_patterns_are_built_without_pyspark() -> None:
    code = "import spark_cep as cep\nprint(type(cep.seq('a', cep.event('b', 'x > 1')).within(10)))"
    assert fresh(f"{WITHOUT}\n{code}") == "<class 'spark_cep.Pattern'>\n"


def test_a_spark_before_3_5_is_refused() -> None:
    shown = fresh(f"{OLD}\nimport spark_cep\nspark_cep.match_pattern")
    assert "spark_cep.CepError: spark-cep needs Spark 3.5 or newer; this is 3.4.4" in shown


def frame_of(version: str, grouped: object = None) -> Any:
    session = SimpleNamespace(version=version)
    return SimpleNamespace(sparkSession=session, groupBy=lambda: grouped)


@pytest.mark.parametrize("version", ["3.5.9", "3.5.6-amzn-1"])
def test_streams_are_refused_before_4_0(version: str) -> None:
    with pytest.raises(PlanError) as raised:
        versions.check_streams(frame_of(version))
    wanted = f"patterns on streams need Spark 4.0 or newer; this is {version}"
    assert raised.value.message == wanted
    assert raised.value.hint


def test_streams_through_connect_are_refused_before_4_1() -> None:
    with pytest.raises(PlanError, match="through Spark Connect need Spark 4") as raised:
        versions.check_streams(frame_of("4.0.2", grouped=object()))
    assert raised.value.hint
    versions.check_streams(frame_of("4.0.2", SimpleNamespace(transformWithStateInPandas=None)))


def test_connect_is_refused_before_4_0() -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    with pytest.raises(
        PlanError, match=r"^patterns through Spark Connect need Spark 4\.0 or newer"
    ):
        versions.check_dataframe(frame)


@pytest.mark.parametrize("count", [1, 2, 3, 64, 200, 1_000, 20_000])
def test_every_partition_has_an_integer_of_its_own(count: int) -> None:
    found = versions.integers_by_partition(count)
    assert len(set(found)) == count
    assert all(0 <= each < 2**31 for each in found)


def test_integers_are_hashed_as_spark_hashes_them() -> None:
    # SELECT hash(0), hash(1), hash(42)
    hashes = versions._hash_integers(np.array([0, 1, 42]))
    assert hashes.tolist() == [933211791, -559580957, 29417773]
