"""Aggregates in DEFINE against Spark's own, computed over a window for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spark_cep as cep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# An aggregate over all rows so far; where it has FILTER the same with CASE, for Spark has no FILTER
# in windows.
AGGREGATES = (
    ("stddev(x)", None),
    ("std(i)", None),
    ("stddev_samp(f)", None),
    ("stddev_pop(d)", None),
    ("variance(f)", None),
    ("var_samp(i)", None),
    ("var_pop(x)", None),
    ("max_by(name, x)", None),
    ("min_by(x, f)", None),
    ("max_by(d, ts)", None),
    ("min_by(f, d)", None),
    ("max_by(ts, name = 'a')", None),
    ("count(*) FILTER (WHERE x > 6)", "count(CASE WHEN x > 6 THEN 1 END)"),
    ("sum(x) FILTER (WHERE f > 1)", "sum(CASE WHEN f > 1 THEN x END)"),
    ("stddev(x) FILTER (WHERE x > 2)", "stddev(CASE WHEN x > 2 THEN x END)"),
    ("max_by(x, f) FILTER (WHERE x < 9)", "max_by(x, CASE WHEN x < 9 THEN f END)"),
    ("bool_and(x > 3) FILTER (WHERE f < 2)", "bool_and(CASE WHEN f < 2 THEN x > 3 END)"),
    ("count_if(i = 1) FILTER (WHERE f < 2)", "count_if(i = 1 AND f < 2)"),
    ("sum(x / (x - 3)) FILTER (WHERE x <> 3)", "sum(CASE WHEN x <> 3 THEN x / (x - 3) END)"),
)


def test_aggregates_of_define_are_those_of_spark(spark: SparkSession) -> None:
    over = "OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    values = ", ".join(
        f"{by_case or text} {over} AS w{place}" for place, (text, by_case) in enumerate(AGGREGATES)
    )
    spark.sql(f"""
        SELECT *, {values} FROM (
          SELECT id, CAST(nullif(id * 37 % 11, 5) AS INT) AS x, CAST(id % 3 AS TINYINT) AS i,
            nullif(id * 13 % 7 / 1.5D, 2D) AS f, CAST(id * 29 % 9 / 3 AS DECIMAL(12, 4)) AS d,
            substr('abcdefgh', 1 + CAST(id * 5 % 8 AS INT), 1) AS name,
            TIMESTAMP '2026-01-01' + make_dt_interval(0, 0, CAST(id * 7 % 10 AS INT)) AS ts
          FROM range(40))
    """).createOrReplaceTempView("folded_rows")
    equal = [f"{text} <=> w{place}" for place, (text, _) in enumerate(AGGREGATES)]

    def length(conditions: list[str]) -> int:
        found = cep.sql(
            spark,
            f"""SELECT * FROM folded_rows MATCH_RECOGNIZE (
                ORDER BY id MEASURES count(*) AS length PATTERN (^ a*)
                DEFINE a AS {" AND ".join(conditions)})""",
        )
        return int(found.collect()[0]["length"])

    if length(equal) < 40:
        assert [(each, length([each])) for each in equal] == [(each, 40) for each in equal]
