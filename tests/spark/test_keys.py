"""Partition keys are equal where GROUP BY says so."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10)


def pairs(df: DataFrame, *keys: str) -> list[tuple[int, int]]:
    """Which A was matched with which B, with rows dealt to several buckets."""
    matches = cep.match_pattern(df, PAIR, order_by="t", partition_by=list(keys), plan="eager")
    return sorted((row[0], row[1]) for row in matches.selectExpr("a.t", "b.t").collect())


def rows(spark: SparkSession, first: str, second: str, other: str) -> DataFrame:
    """An A with key `first`, a B with `second`, a B with `other`."""
    values = spark.sql("SELECT * FROM VALUES (1, 'A'), (2, 'B'), (3, 'B') AS rows(t, kind)")
    key = f"CASE t WHEN 1 THEN {first} WHEN 2 THEN {second} ELSE {other} END"
    return values.select("t", "kind", F.expr(key).alias("k"))


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        ("CAST(NULL AS STRING)", "NULL", "'x'"),
        ("0.0D", "-0.0D", "1.0D"),
        ("-0.0D", "0.0D", "double('NaN')"),
        ("double('NaN')", "-double('NaN')", "NULL"),
        ("CAST('NaN' AS FLOAT)", "CAST('NaN' AS FLOAT)", "CAST(0 AS FLOAT)"),
        ("'Straße' COLLATE UTF8_LCASE", "'STRAßE'", "'Strasse'"),
        ("'a' COLLATE UNICODE_CI_AI", "'Ä'", "'b'"),
        ("'a  ' COLLATE UTF8_BINARY_RTRIM", "'a'", "' a'"),
        ("named_struct('x', 0.0D)", "named_struct('x', -0.0D)", "named_struct('x', 1.0D)"),
        ("array(0.0D, NULL)", "array(-0.0D, NULL)", "array(0.0D)"),
        ("array('a' COLLATE UTF8_LCASE)", "array('A')", "array('a', 'a')"),
        ("map('a', 0.0D, 'b', 2D)", "map('b', 2D, 'a', -0.0D)", "map('a', 0.0D)"),
        ("INTERVAL '14' MONTH", "INTERVAL '14' MONTH", "INTERVAL '2' MONTH"),
        ("named_struct('x', CAST(NULL AS INT))", "named_struct('x', NULL)", "NULL"),
    ],
)
def test_equal_keys_meet_and_other_keys_do_not(
    spark: SparkSession, first: str, second: str, other: str
) -> None:
    assert pairs(rows(spark, first, second, other), "k") == [(1, 2)]


def test_several_key_columns_are_compared_together(spark: SparkSession) -> None:
    df = rows(spark, "1", "1", "1").withColumn("l", F.expr("CASE t WHEN 3 THEN 'z' END"))
    assert pairs(df, "k", "l") == [(1, 2)]


def test_a_float_key_shows_as_group_by_shows_it(spark: SparkSession) -> None:
    df = rows(spark, "-0.0D", "0.0D", "1.0D")
    matches = cep.match_pattern(df, PAIR, order_by="t", partition_by="k")
    assert str(matches.collect()[0]["k"]) == "0.0"
    assert str(matches.collect()[0]["a"]["k"]) == "-0.0"


def test_a_collated_key_shows_the_value_of_the_earliest_event(spark: SparkSession) -> None:
    df = rows(spark, "'b' COLLATE UTF8_LCASE", "'B'", "'c'")
    matches = cep.match_pattern(df, PAIR, order_by="t", partition_by="k")
    assert matches.collect()[0]["k"] == "b"
    assert matches.schema["k"].dataType == df.schema["k"].dataType


def test_a_key_that_group_by_refuses_is_refused(spark: SparkSession) -> None:
    df = rows(spark, "parse_json('1')", "parse_json('1')", "parse_json('2')")
    with pytest.raises(cep.PatternError, match="cannot be partitioned by k"):
        cep.match_pattern(df, PAIR, order_by="t", partition_by="k")
