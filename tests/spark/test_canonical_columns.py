"""Conditions that are Columns, in the canonical form of a query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_cep.udfs.canonical import Data, spark_column

pytestmark = pytest.mark.spark

COLUMNS: dict[str, Callable[[], Column]] = {
    "comparison": lambda: F.col("k") == "A",
    "literal": lambda: F.col("k") == "B",
    "column": lambda: F.col("k_1") == "A",
    "lambda": lambda: F.exists("tags", lambda x: x == "A"),
    "two variables": lambda: (
        F.size(F.transform("tags", lambda x, i: F.concat(x, F.lit("-"), i))) > 0
    ),
    "swapped": lambda: F.size(F.transform("tags", lambda x, i: F.concat(i, F.lit("-"), x))) > 0,
    "nested": lambda: F.exists("tags", lambda t: F.exists("others", lambda o: o < t)),
    "nested, swapped": lambda: F.exists("tags", lambda t: F.exists("others", lambda o: t < o)),
}


def form(column: Any) -> Data:
    return spark_column(str(column))


@pytest.mark.usefixtures("spark")
def test_a_column_that_is_made_again_has_the_same_form() -> None:
    assert {n: form(made()) for n, made in COLUMNS.items()} == {
        n: form(made()) for n, made in COLUMNS.items()
    }


@pytest.mark.usefixtures("spark")
def test_columns_that_mean_something_else_have_another_form() -> None:
    assert len({str(form(made())) for made in COLUMNS.values()}) == len(COLUMNS)
