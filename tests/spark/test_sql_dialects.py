"""The queries that manuals of other systems open with, over data small enough to check by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PRICES = (10, 9, 8, 9, 11, 12, 11, 10, 13, 14, 13, 12)
CONDITIONS = "DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    rows = [("A", day, float(price)) for day, price in enumerate(PRICES)]
    spark.createDataFrame(rows, "s string, d int, price double").createOrReplaceTempView("quotes")
    yield spark
    spark.catalog.dropTempView("quotes")


CASES = {
    "oracle: a V, one row": (
        "SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY s ORDER BY d "
        "MEASURES STRT.d AS start_d, LAST(DOWN.d) AS bottom_d, LAST(UP.d) AS end_d "
        "ONE ROW PER MATCH AFTER MATCH SKIP TO LAST UP "
        f"PATTERN (STRT DOWN+ UP+) DEFINE {CONDITIONS}) MR ORDER BY MR.s, MR.start_d",
        [("A", 0, 2, 5), ("A", 5, 7, 9)],
    ),
    "oracle: a V, all rows": (
        "SELECT d, num, part, up_days, all_days, so_far, diff FROM quotes MATCH_RECOGNIZE ("
        "PARTITION BY s ORDER BY d MEASURES MATCH_NUMBER() AS num, CLASSIFIER() AS part, "
        "FINAL COUNT(UP.d) AS up_days, FINAL COUNT(d) AS all_days, RUNNING COUNT(d) AS so_far, "
        "price - STRT.price AS diff ALL ROWS PER MATCH AFTER MATCH SKIP TO LAST UP "
        f"PATTERN (STRT DOWN+ UP+) DEFINE {CONDITIONS}) WHERE num = 2 ORDER BY d",
        [
            (5, 2, "STRT", 2, 5, 1, 0.0),
            (6, 2, "DOWN", 2, 5, 2, -1.0),
            (7, 2, "DOWN", 2, 5, 3, -2.0),
            (8, 2, "UP", 2, 5, 4, 1.0),
            (9, 2, "UP", 2, 5, 5, 2.0),
        ],
    ),
    "oracle: a subset": (
        "SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY s ORDER BY d "
        "MEASURES AVG(STDN.price) AS mean, NVL(LAST(STDN.d), -1) AS till "
        f"PATTERN (STRT DOWN+ UP+) SUBSET STDN= (STRT, DOWN) DEFINE {CONDITIONS}) ORDER BY till",
        [("A", 9.0, 2), ("A", 10.5, 7)],
    ),
    "flink: the previous row of a variable": (
        "SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY s ORDER BY d "
        "MEASURES R.d AS since, LAST(F.d) AS bottom, LAST(U.d) AS till ONE ROW PER MATCH "
        "AFTER MATCH SKIP TO LAST U PATTERN (R F+ U) DEFINE "
        "F AS (LAST(F.price, 1) IS NULL AND F.price < R.price) OR F.price < LAST(F.price, 1), "
        "U AS U.price > LAST(F.price, 1)) MR",
        [("A", 5, 7, 8)],
    ),
    "flink: an average in a condition": (
        "SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY s ORDER BY d "
        "MEASURES FIRST(A.d) AS since, LAST(A.d) AS till, AVG(A.price) AS mean ONE ROW PER MATCH "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS AVG(A.price) < 10) MR",
        [("A", 1, 5, 9.8)],
    ),
    "trino: labels of a subset": (
        "SELECT * FROM quotes MATCH_RECOGNIZE (PARTITION BY s ORDER BY d "
        "MEASURES A.price AS first_price, LAST(B.price) AS bottom, LAST(U.price) AS top, "
        "array_agg(CLASSIFIER(U)) AS parts AFTER MATCH SKIP PAST LAST ROW "
        "PATTERN (A B+ C+ D+) SUBSET U = (C, D) DEFINE B AS price < PREV(price), "
        "C AS price > PREV(price) AND price <= A.price, D AS price > PREV(price)) AS m",
        [("A", 10.0, 8.0, 12.0, ["C", "D", "D"])],
    ),
    "snowflake: counts of parts": (
        "select * from quotes match_recognize (partition by s order by d "
        "measures match_number() as num, first(d) as since, last(d) as till, count(*) as days, "
        "count(fall.*) as falls, count(rise.*) as rises one row per match "
        "after match skip to last rise pattern(before_ fall+ rise+) "
        "define fall as price < prev(price), rise as price > prev(price)) order by num",
        [("A", 1, 0, 5, 6, 2, 3), ("A", 2, 5, 9, 5, 2, 2)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_queries_of_other_systems_give_what_they_give_there(
    session: SparkSession, name: str
) -> None:
    text, expected = CASES[name]
    found: list[tuple[Any, ...]] = [tuple(row) for row in sql(session, text).collect()]
    assert found == expected
