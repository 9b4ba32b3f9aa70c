"""The examples of public functions that need a Spark session hold."""

from __future__ import annotations

import doctest
from typing import TYPE_CHECKING

import pytest

from tests.documented import NEEDS_SPARK, public_objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", sorted(NEEDS_SPARK))
def test_docstring_examples_hold(spark: SparkSession, name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    found = doctest.DocTestFinder(recurse=False).find(
        public_objects()[name], name, module=False, globs={"spark": spark.newSession()}
    )
    assert [runner.run(each).attempted > 0 for each in found] == [True]
    assert runner.summarize().failed == 0
