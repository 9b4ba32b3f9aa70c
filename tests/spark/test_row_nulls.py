"""IGNORE NULLS and FILTER of functions that read one row; lists and percentiles of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spark_cep as cep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = """
    SELECT * FROM VALUES (1, 'a', NULL), (2, 'b', 20), (3, NULL, 30), (4, 'd', NULL), (5, 'a', 50)
    AS t (id, kind, x)"""


def test_measures_ignore_nulls_as_aggregates_of_spark_do(spark: SparkSession) -> None:
    spark.sql(ROWS).createOrReplaceTempView("null_rows")
    measures = {
        "FIRST(x) IGNORE NULLS": 20,
        "LAST(a.x) IGNORE NULLS": 50,
        "first_value(x, true)": 20,
        "last(x IGNORE NULLS)": 50,
        "any_value(x IGNORE NULLS)": 20,
        "last(x, false)": 50,
        "FIRST(x) RESPECT NULLS": None,
        "first_value(x) FILTER (WHERE id > 3)": None,
        "first_value(x) FILTER (WHERE id > 3) IGNORE NULLS": 50,
        "last_value(kind) FILTER (WHERE x < 40)": None,
        "size(collect_list(x) RESPECT NULLS)": 5,
        "FIRST(x + id) IGNORE NULLS": 22,
        "any_value(CLASSIFIER()) FILTER (WHERE x > 20)": "a",
    }
    listed = ", ".join(f"{text} AS m{place}" for place, text in enumerate(measures))
    answer = cep.sql(
        spark,
        f"""SELECT * FROM null_rows MATCH_RECOGNIZE (
            ORDER BY id MEASURES {listed} PATTERN (a+) DEFINE a AS id > 0)""",
    ).collect()
    assert dict(zip(measures, answer[0], strict=True)) == measures


def test_running_measures_ignore_nulls_up_to_the_row(spark: SparkSession) -> None:
    spark.sql(ROWS).createOrReplaceTempView("null_rows")
    answer = cep.sql(
        spark,
        """SELECT id, so_far, whole FROM null_rows MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES LAST(x) IGNORE NULLS AS so_far, FINAL LAST(x) IGNORE NULLS AS whole
            ALL ROWS PER MATCH PATTERN (a+) DEFINE a AS id > 0) ORDER BY id""",
    ).collect()
    assert [row["so_far"] for row in answer] == [None, 20, 30, 30, 50]
    assert {row["whole"] for row in answer} == {50}


@pytest.mark.parametrize(
    ("define", "ids"),
    [
        ("b AS size(collect_set(u.kind)) < 3", [1, 2, 3]),
        ("b AS NOT array_contains(collect_list(a.kind), kind)", [1, 2]),
        ("b AS LAST(u.x) IGNORE NULLS > 25", [2, 3, 4, 5]),
        ("b AS median(x) < 30", [1, 2, 3, 4]),
        ("b AS max_by(u.id, u.kind) < 4", [1, 2, 3]),
        ("b AS array_join(collect_list(CLASSIFIER()), '') <> 'abbb'", [1, 2, 3]),
        ("b AS bit_or(u.id) < 4", [1, 2, 3]),
    ],
)
def test_conditions_over_values_so_far(spark: SparkSession, define: str, ids: list[int]) -> None:
    spark.sql(ROWS).createOrReplaceTempView("null_rows")
    answer = cep.sql(
        spark,
        f"""SELECT ids FROM null_rows MATCH_RECOGNIZE (
            ORDER BY id MEASURES collect_list(id) AS ids PATTERN (a b+) SUBSET u = (a, b)
            DEFINE {define})""",
    ).collect()
    assert answer[0]["ids"] == ids
