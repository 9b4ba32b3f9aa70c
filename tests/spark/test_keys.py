"""Partition keys are equal where GROUP BY says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, row_pattern, seq
from spark_cep.errors import PatternError

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


# ---- Columns as keys ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT * FROM VALUES (1, 'A', 'x', named_struct('z', 1, 'k', 2)), "
        "(2, 'B', 'X', named_struct('z', 1, 'k', 2)), (3, 'B', 'x', named_struct('z', 1, 'k', 3)) "
        "AS t(t, kind, k, s)"
    ).withColumn("a b", F.col("k"))


@pytest.mark.parametrize(
    ("key", "name", "found"),
    [
        (lambda _: F.col("k"), "k", [3]),
        (lambda _: F.col("K"), "k", [3]),
        (lambda df: df.k, "k", [3]),
        (lambda df: df["a b"], "a b", [3]),
        (lambda _: F.col("`a b`"), "a b", [3]),
        (lambda _: F.upper("k"), "upper(k)", [2, 3]),
        (lambda _: F.upper("k").alias("key"), "key", [2, 3]),
        (lambda _: F.col("s.z"), "z", [2, 3]),
        (lambda _: F.expr("t > 1 AS late"), "late", []),
    ],
)
def test_a_key_may_be_a_column_and_gives_the_answer_its_name(
    named: DataFrame, key: Callable[[DataFrame], Column], name: str, found: list[int]
) -> None:
    pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"))
    for keys in (key(named), [key(named)]):
        answer = named.match_pattern(pattern, order_by="t", partition_by=keys)
        assert answer.columns == [name, "a", "b", "match_start", "match_end"]
        assert sorted(row[0] for row in answer.select("b.t").collect()) == found
    rows = row_pattern("a b", {"b": "t > a.t"})
    answer = named.match_pattern(rows, order_by="t", partition_by=key(named), measures={"m": "b.t"})
    assert answer.columns == [name, "m"]
    assert [row.m for row in answer.collect() if row.m] == ([3] if found != [2, 3] else [2])


def test_names_and_columns_may_stand_side_by_side(named: DataFrame) -> None:
    answer = named.match_pattern(
        seq("a", "b"),
        order_by=[F.col("t"), F.col("kind").desc()],
        partition_by=["kind", F.lower("k").alias("lower")],
        measures={"t": "b.t"},
    )
    assert [tuple(row) for row in answer.collect()] == [("B", "x", 3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": F.col}, "partition_by takes column names and Columns, not function"),
        ({"partition_by": 5}, "partition_by takes column names and Columns, not int"),
        ({"partition_by": [5]}, "partition_by takes column names, not int"),
        ({"order_by": 5}, "order_by takes column names and Columns, not int"),
        ({"order_by": ["t", None]}, "order_by takes column names and Columns, not NoneType"),
    ],
)
def test_what_is_no_column_is_refused(
    named: DataFrame, options: dict[str, Any], message: str
) -> None:
    for pattern in (seq("a", "b"), row_pattern("a b")):
        with pytest.raises(PatternError, match=message) as caught:
            named.match_pattern(pattern, **{"order_by": "t", "measures": {"m": "a.t"}, **options})
        assert caught.value.hint


def test_columns_that_are_no_keys_are_refused(named: DataFrame) -> None:
    for key, message in (
        (F.upper("k").alias("K"), "has the name of a column of the input"),
        (F.col("s.k"), "has the name of a column of the input"),
        (F.col("nope"), "partition_by: .*nope"),
        (F.rand(), "rand.. is not deterministic"),
        (F.explode(F.array("k")), "explode.. returns several rows"),
        (F.count("*"), "partition_by: an aggregate"),
        (F.col("*"), "partition_by: "),
        ([F.upper("k").alias("u"), F.lower("k").alias("U")], "two keys called U"),
    ):
        with pytest.raises(PatternError, match=message):
            named.match_pattern(seq("a", "b"), order_by="t", partition_by=key)


def test_a_stream_takes_columns_as_keys(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES ('x', 1, 'A'), ('X', 2, 'B'), ('y', 3, 'B'), ('y', 100, 'A') "
        "AS t(k, n, kind)"
    ).selectExpr("k", "timestamp_seconds(n) AS at", "kind")
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within("5 seconds")
    matches = stream.withWatermark("at", "1 second").match_pattern(
        pattern, order_by=F.col("at"), partition_by=F.upper("k").alias("key")
    )
    query = (
        matches.select("key", "b.kind")
        .writeStream.format("memory")
        .queryName("keyed_by_column")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [tuple(row) for row in spark.table("keyed_by_column").collect()] == [("X", "B")]
