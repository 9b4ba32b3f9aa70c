"""The constructs that docs/sql.md lists, over data small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import spark_cep as cep
from spark_cep.sql.session import sql
from tests.constructs import PRICES, REFUSED, STATEMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    rows = list(enumerate(PRICES, 1))
    spark.createDataFrame(rows, "id int, p int").createOrReplaceTempView("t")
    yield spark
    spark.catalog.dropTempView("t")


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_answer_is_the_known_one(session: SparkSession, name: str) -> None:
    statement = STATEMENTS[name]
    found = sql(session, statement.text, statement.args).collect()
    assert sorted(map(tuple, found)) == statement.answer


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(session: SparkSession, name: str) -> None:
    with pytest.raises(cep.PatternError):
        sql(session, REFUSED[name])
