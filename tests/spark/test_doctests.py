"""The examples of public functions that need a Spark session hold."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

from tests.documented import examples, public_objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize(
    "name", [name for name in public_objects() if examples(name, with_spark=True)]
)
def test_docstring_examples_hold(spark: SparkSession, name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    session = spark.newSession()
    for found in examples(name, with_spark=True):
        found.globs["spark"] = session
        runner.run(found)
    assert runner.summarize().failed == 0


def test_the_functions_that_take_dataframes_have_examples() -> None:
    named = {name for name in public_objects() if examples(name, with_spark=True)}
    assert {"match_pattern", "explain", "plan_of", "metrics", "sql", "install"} <= named
