"""MATCH_RECOGNIZE through Spark Connect, in a process of its own: it needs a server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = '''
import json
import spark_cep as cep
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
values = [(1, "A", 10), (2, "B", 20), (3, "A", 5), (4, "B", 7)]
ticks = spark.createDataFrame(values, "ts int, k string, p int")
values_df = ticks
ticks.createOrReplaceTempView("ticks")
pairs = """MATCH_RECOGNIZE (
    ORDER BY ts MEASURES a.ts AS a, b.ts AS b, b.p - a.p AS gain PATTERN SEQ(a, b) WITHIN 10
    DEFINE a AS k = 'A', b AS k = 'B' AND b.p > a.p + :more)"""
rises = """MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(up.ts) AS since, count(*) AS n
    PATTERN (a up{1,}) DEFINE up AS p > PREV(p))"""
def rows(df):
    return sorted(map(list, df.collect()))

cep.install(spark)
args = {"more": 0}
out = {"before": [each.name for each in spark.catalog.listTables()]}
out["rises"] = rows(spark.sql(f"SELECT * FROM ticks {rises}"))
out["pairs"] = rows(spark.sql(f"SELECT * FROM ticks {pairs}", args))
late = spark.sql(
    f"WITH m AS (SELECT * FROM ticks {pairs}) "
    f"SELECT m.a, r.n FROM m JOIN ticks {rises} r ON r.since = m.b",
    args,
)
out["after"] = [each.name for each in spark.catalog.listTables()]
out["late"] = rows(late)
fields = {"df": ticks, "c": F.col("gain"), "n": 3}
text = f"SELECT {{c}} FROM {{df}} {pairs} WHERE gain > {{n}}"
out["fields"] = rows(spark.sql(text, args, **fields))
spark.sql(f"CREATE OR REPLACE TEMP VIEW ticks AS SELECT * FROM ticks {pairs}", args)
out["view"] = rows(spark.table("ticks"))
out["explained"] = [row.plan for row in spark.sql("EXPLAIN PATTERN SELECT * FROM ticks").collect()]
try:
    spark.sql(f"SELECT *\\nFROM {{df}} {rises.replace('PREV(p)', 'PREV(q)')}", df=ticks)
except cep.PatternError as problem:
    out["refusal"] = problem.details["problems"][0]
out["window"] = rows(spark.sql(
    "WITH q AS (SELECT * FROM {df}) SELECT q.ts, n OVER w, sum(q.p) OVER w AS s, "
    "p - first_value(p) OVER w AS d FROM q WHERE k <> :no WINDOW w AS (ORDER BY ts "
    "MEASURES count(*) AS n ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING "
    "PATTERN (a b) DEFINE b AS p < PREV(p)) ORDER BY ts LIMIT 3", {"no": "Z"}, df=values_df))
out["aggregates"] = rows(spark.sql("""SELECT * FROM {df} AS q MATCH_RECOGNIZE (ORDER BY ts
    MEASURES median(q.p) AS middle, count(*) FILTER (WHERE k = 'A') AS show, show * 2 AS twice,
      bit_xor(ts) AS bits, LAST(p) - (SELECT min(p) FROM {df}) AS above PATTERN (a up)
    DEFINE up AS round(p / a.p, 1) >= 1.4 AND concat(a.k, k) LIKE a.k || '%'
      AND stddev_pop(p) < 9 AND p > LAG(p))""", df=values_df))
out["plain"] = rows(spark.sql("SELECT 'MATCH_RECOGNIZE (', :x", {"x": 1}))
spark.stop()
print("RESULT " + json.dumps(out))
'''


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=300,
    )
    results = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, run.stderr[-4000:]
    answer: dict[str, object] = json.loads(results[0].removeprefix("RESULT "))
    return answer


def test_rows_and_events_are_matched(found: dict[str, object]) -> None:
    assert found["rises"] == [[2, 2], [4, 2]]
    assert found["pairs"] == [[1, 2, 10], [3, 4, 2]]
    assert found["late"] == [[1, 2], [3, 2]]
    assert found["fields"] == [[10]]


def test_a_window_has_a_row_pattern(found: dict[str, object]) -> None:
    nothing = [None, None, None]
    assert found["window"] == [[1, *nothing], [2, 2, 25, 0], [3, *nothing]]


def test_aggregates_functions_and_spellings(found: dict[str, object]) -> None:
    assert found["aggregates"] == [[6.0, 1, 2, 7, 2], [15.0, 1, 2, 3, 15]]


def test_no_view_is_left_behind(found: dict[str, object]) -> None:
    assert found["before"] == found["after"]


def test_a_view_is_made_of_the_answer(found: dict[str, object]) -> None:
    assert found["view"] == [[1, 2, 10], [3, 4, 2]]
    assert "SEQ(a, b)" in str(found["explained"])


def test_mistakes_and_other_sql_are_as_in_a_classic_session(found: dict[str, object]) -> None:
    refusal = found["refusal"]
    assert isinstance(refusal, dict)
    assert "q" in refusal["message"]
    assert refusal["line"] == 3
    assert "FROM {df}" in refusal["text"]
    assert found["plain"] == [["MATCH_RECOGNIZE (", 1]]
