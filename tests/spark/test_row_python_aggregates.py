"""Aggregates in Python in MEASURES, against Spark's GROUP BY over the rows that a match has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pandas as pd  # noqa: TC002 - Spark reads the types of functions
import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import PatternError, row_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PATTERN = row_pattern(
    "(a | b)* c?",
    define={"a": "i % 4 = 0", "b": "i % 4 IN (1, 2)", "c": "i % 4 = 3 AND x > 3"},
    subset={"u": ["a", "c"]},
)


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> DataFrame:
    register(spark)
    return spark.range(160).selectExpr(
        "nullif(concat('k', id % 4), 'k3') AS k", "CAST(id AS INT) AS t",
        "CASE WHEN id % 11 > 0 THEN (id * 37 % 101) / 7D END AS x",
        "CAST(id * 53 % 17 AS INT) AS i", "CAST(id * 31 % 5 AS STRING) AS s",
    )  # fmt: skip


def register(spark: SparkSession) -> None:
    @F.pandas_udf("double")  # type: ignore[call-overload, untyped-decorator]
    def spread(values: pd.Series) -> float:
        return float(values.max() - values.min())

    @F.pandas_udf("string")  # type: ignore[call-overload, untyped-decorator]
    def places(texts: pd.Series, numbers: pd.Series) -> str:
        # Without a row it would fail.
        assert len(texts)
        assert not numbers.isna().any()
        return " ".join(f"{text}{number}" for text, number in zip(texts, numbers, strict=True))

    @F.pandas_udf("bigint")  # type: ignore[call-overload, untyped-decorator]
    def no_value(values: pd.Series) -> int | None:
        return None if len(values) > 1 else len(values)

    for each in (spread, places, no_value):
        spark.udf.register(each.__name__, each)
    spark.udf.register("twice", lambda value: None if value is None else 2 * value, "double")


def match(data: DataFrame, measures: Mapping[str, str], **options: Any) -> DataFrame:
    return data.match_pattern(
        PATTERN, partition_by="k", order_by="t", measures=dict(measures), **options
    )


def matched(data: DataFrame) -> DataFrame:
    """The rows of the matches, with number, label and place."""
    measures = {"m": "MATCH_NUMBER()", "label": "CLASSIFIER()", "place": "count(*)"}
    return match(data, measures, rows="all").localCheckpoint()


def grouped(rows: DataFrame, aggregate: str, condition: str, keys: str) -> dict[Any, Any]:
    """Spark's aggregate of the rows that meet the condition, in their order; NULL for no rows."""
    names = keys.split()
    groups = {tuple(row): None for row in rows.select(*names).distinct().collect()}
    chosen = rows.filter(condition).coalesce(1).sortWithinPartitions(*names, "place")
    for row in chosen.groupBy(*names).agg(F.expr(aggregate)).collect():
        groups[tuple(row)[:-1]] = row[-1]
    return groups


def measured(found: DataFrame, name: str, keys: str) -> dict[Any, Any]:
    names = keys.split()
    return {tuple(row)[:-1]: row[-1] for row in found.select(*names, name).collect()}


# What is measured, what Spark is asked for, and of which rows of the match.
CASES = [
    ("spread(x)", "spread(x)", "TRUE"),
    ("spread(b.x)", "spread(x)", "label = 'b'"),
    ("spread(u.x * 2 + u.i)", "spread(x * 2 + i)", "label IN ('a', 'c')"),
    ("spread(twice(x))", "spread(twice(x))", "TRUE"),
    ("places(c.s, c.i)", "places(s, i)", "label = 'c'"),
    ("places(CLASSIFIER(), t)", "places(label, t)", "TRUE"),
    ("places(b.s, 1) FILTER (WHERE b.i > 5)", "places(s, 1)", "label = 'b' AND i > 5"),
    ("places(s, t) FILTER (WHERE CLASSIFIER() = 'a' OR MATCH_NUMBER() % 2 = 0)", "places(s, t)",
     "label = 'a' OR m % 2 = 0"),
    ("places(s, t) FILTER (WHERE i > 100)", "places(s, t)", "FALSE"),
    ("no_value(i)", "no_value(i)", "TRUE"),
]  # fmt: skip


def test_aggregates_of_one_row_per_match_are_sparks(data: DataFrame) -> None:
    measures = {f"m{place}": ours for place, (ours, _, _) in enumerate(CASES)}
    found = match(data, {"m": "MATCH_NUMBER()", "n": "count(*)", "mid": "median(x)", **measures})
    found = found.localCheckpoint()
    rows = matched(data)
    filled = rows.filter("label IS NOT NULL").groupBy("k", "m").count().count()
    assert 20 < filled < found.count()
    for name, (_, aggregate, condition) in zip(measures, CASES, strict=True):
        expected = grouped(rows, aggregate, f"label IS NOT NULL AND ({condition})", "k m")
        assert repr(sorted_items(measured(found, name, "k m"))) == repr(sorted_items(expected))
    # Beside them those of Spark are as they are alone.
    alone = match(data, {"m": "MATCH_NUMBER()", "n": "count(*)", "mid": "median(x)"})
    assert measured(found, "mid", "k m n") == measured(alone, "mid", "k m n")


def sorted_items(values: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(values.items(), key=lambda item: tuple(map(str, item[0])))


def test_running_and_final_aggregates_are_sparks(data: DataFrame) -> None:
    measures = {
        "m": "MATCH_NUMBER()", "place": "count(*)", "up_to": "places(s, t)",
        "whole": "FINAL places(s, t)", "of_b": "RUNNING spread(b.x)",
    }  # fmt: skip
    found = match(data, measures, rows="all").localCheckpoint()
    rows = matched(data)
    current = rows.selectExpr("k AS other", "m AS number", "place AS at", "t AS now")
    seen = rows.join(current, F.expr("k <=> other AND m = number")).localCheckpoint()
    found = found.selectExpr("k", "m", "place AS at", "t AS now", *list(measures)[2:])
    for name, aggregate, condition in [
        ("up_to", "places(s, t)", "place <= at"),
        ("whole", "places(s, t)", "TRUE"),
        ("of_b", "spread(x)", "place <= at AND label = 'b'"),
    ]:
        expected = grouped(seen, aggregate, f"label IS NOT NULL AND {condition}", "k m at now")
        own = measured(found, name, "k m at now")
        assert repr(sorted_items(own)) == repr(sorted_items(expected)), name


def test_rows_are_matched_once_for_all_of_them(spark: SparkSession, data: DataFrame) -> None:
    measures = {"a": "spread(x)", "b": "places(b.s, b.t)", "c": "spread(b.x)", "d": "median(x)"}
    found = match(data, measures)
    untyped: Any = found
    untyped._jdf.collectToPython()
    plan = str(untyped._jdf.queryExecution().executedPlan().toString())
    final = plan.partition("Initial Plan")[0]
    assert final.count("MapInArrow") == 1
    assert final.count("ReusedExchange") == 3
    assert cep.metrics(found)["matches"] == found.count()


def test_unmatched_rows_and_windows_have_no_aggregate(spark: SparkSession, data: DataFrame) -> None:
    only = row_pattern("b{2,}", {"b": "x > 3"})
    found = data.match_pattern(
        only, partition_by="k", order_by="t", rows="all with unmatched",
        measures={"m": "MATCH_NUMBER()", "wide": "spread(x)"},
    )  # fmt: skip
    rows = [(row.m is None, row.wide is None) for row in found.collect()]
    assert len(rows) == data.count()
    assert set(rows) == {(True, True), (False, False)}
    data.createOrReplaceTempView("python_rows")
    windows = cep.sql(
        spark,
        "SELECT t, wide OVER w AS wide, count(*) OVER w AS n FROM python_rows WINDOW w AS ("
        "PARTITION BY k ORDER BY t MEASURES spread(x) AS wide "
        "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (b{2,}) DEFINE b AS x > 3)",
    )
    wide = {row.t: row.wide for row in windows.filter("n > 0").collect()}
    single = data.match_pattern(
        only, partition_by="k", order_by="t", measures={"t": "FIRST(t)", "wide": "spread(x)"}
    )
    expected = {row.t: row.wide for row in single.collect()}
    assert expected
    assert wide == expected


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("spread(DISTINCT x)", "spread is a function in Python, for which Spark has no DISTINCT"),
        ("spread(x) FILTER (WHERE i)", "the condition of FILTER must be TRUE or FALSE"),
        ("spread(x) FILTER (WHERE nope > 1)", "nope"),
        ("spread(b.x + a.x)", "mixes a and b"),
        ("sum(spread(x))", "SUM cannot contain the aggregate SPREAD"),
    ],
)
def test_what_spark_does_not_have_is_refused(data: DataFrame, measure: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        match(data, {"m": measure})
    assert message in str(caught.value)
    assert "__cep" not in str(caught.value)


def test_functions_of_arrow_arrays_and_iterators(spark: SparkSession, data: DataFrame) -> None:
    try:
        from pyspark.sql.functions import arrow_udf
    except ImportError:
        pytest.skip("this Spark has no functions of Arrow arrays")
    import pyarrow as pa
    import pyarrow.compute as pc

    def largest(values):  # type: ignore[no-untyped-def]
        return pc.max(values).as_py()

    largest.__annotations__ = {"values": pa.Array, "return": float}
    spark.udf.register("largest", arrow_udf(largest, "double"))
    found = match(data, {"own": "largest(b.x) + spread(b.x)", "known": "max(b.x) + spread(b.x)"})
    assert {row.own == row.known for row in found.filter("known > 0").collect()} == {True}


CONNECT = """
import json
import pandas as pd
import spark_cep as cep
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")

@F.pandas_udf("double")
def spread(values: pd.Series) -> float:
    assert not values.isna().any()
    return float(values.max() - values.min())

spark.udf.register("spread", spread)
text = '''SELECT * FROM VALUES ('a', 1, 1D), ('a', 2, 5D), ('a', 3, 2D), (NULL, 1, 3D) AS t(k, i, x)
MATCH_RECOGNIZE (PARTITION BY k ORDER BY i
    MEASURES spread(x) AS wide, spread(b.x) AS b_wide, spread(x) FILTER (WHERE i > 1) AS late,
        median(x) AS middle
    PATTERN (a b*) DEFINE b AS TRUE)'''
rows = sorted((tuple(row) for row in cep.sql(spark, text).collect()), key=str)
spark.stop()
print("RESULT " + json.dumps(rows))
"""


@pytest.mark.slow
def test_functions_of_a_connect_session_are_known() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CONNECT],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    results = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, run.stderr[-4000:]
    rows = json.loads(results[0].removeprefix("RESULT "))
    assert rows == [["a", 4.0, 3.0, 3.0, 2.0], [None, 0.0, None, None, 3.0]]
