"""Order columns: directions inside Columns, and strings whose order only Spark knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"))


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    """At one moment x is 1 where A is, 2 where B is."""
    return spark.sql(
        "SELECT t, kind, x, name COLLATE UTF8_LCASE AS name, map(t, t) AS m FROM VALUES "
        "(1, 'A', 1, 'B'), (1, 'B', 2, 'a'), (2, 'A', NULL, 'x'), (2, 'B', 1, 'y') "
        "AS rows(t, kind, x, name)"
    )


def moments(df: DataFrame, *order_by: str | Column) -> list[tuple[int, int]]:
    matches = cep.match_pattern(df, PAIR, order_by=order_by)
    return sorted((row[0], row[1]) for row in matches.selectExpr("a.t", "b.t").collect())


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("x", F.col),
        ("x DESC", lambda x: F.col(x).desc()),
        ("x ASC NULLS LAST", lambda x: F.col(x).asc_nulls_last()),
        ("x DESC NULLS FIRST", lambda x: F.col(x).desc_nulls_first()),
    ],
)
def test_a_direction_in_a_column_is_the_direction_in_text(df: DataFrame, text, made) -> None:  # type: ignore[no-untyped-def]
    assert moments(df, "t", made("x")) == moments(df, "t", text)


def test_a_descending_column_turns_ties_round(df: DataFrame) -> None:
    assert (1, 1) in moments(df, "t", F.col("x"))
    assert (1, 1) not in moments(df, "t", F.col("x").desc())


def test_the_first_column_must_ascend_however_it_is_given(df: DataFrame) -> None:
    for order_by in (F.col("t").desc(), [F.col("t").desc(), "x"]):
        with pytest.raises(cep.PatternError, match="first order column must be ascending"):
            cep.match_pattern(df, PAIR, order_by=order_by)
    assert cep.match_pattern(df, PAIR, order_by=F.col("t").asc()).count() == 1


@pytest.mark.parametrize("given", ["name", "array(name) DESC", "struct(name, t)"])
def test_a_collated_order_is_refused(df: DataFrame, given: str) -> None:
    bare = given.removesuffix(" DESC")
    for order in (given, F.expr(bare), F.expr(bare).desc()):
        with pytest.raises(cep.PatternError, match="has a collation") as caught:
            cep.match_pattern(df, PAIR, order_by=["t", order])
        assert "CAST(name AS STRING)" in str(caught.value.hint)


def test_what_the_refusal_proposes_works(df: DataFrame) -> None:
    assert (1, 1) in moments(df, "t", "CAST(name AS STRING)")
    assert (1, 1) not in moments(df, "t", "lower(CAST(name AS STRING))")


def test_a_column_without_an_order_is_refused(df: DataFrame) -> None:
    with pytest.raises(cep.PatternError, match="cannot be ordered"):
        cep.match_pattern(df, PAIR, order_by=["t", F.col("m")])
