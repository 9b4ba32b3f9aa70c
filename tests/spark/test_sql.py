"""MATCH_RECOGNIZE in statements, end to end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs" / "sql.md"
PAIRS = """MATCH_RECOGNIZE (
    ORDER BY ts
    MEASURES a.ts AS a, b.ts AS b, b.p - a.p AS gain
    PATTERN SEQ(a, b) WITHIN 10
    DEFINE a AS k = 'A', b AS k = 'B' AND b.p > a.p
)"""
RISES = """MATCH_RECOGNIZE (
    ORDER BY ts
    MEASURES FIRST(up.ts) AS since, count(*) AS n
    PATTERN (a up{1,}) DEFINE up AS p > PREV(p)
)"""


@pytest.fixture
def ticks(spark: SparkSession) -> Iterator[DataFrame]:
    rows = [(1, "A", 10), (2, "B", 20), (3, "A", 5), (4, "B", 7)]
    df = spark.createDataFrame(rows, "ts int, k string, p int")
    df.createOrReplaceTempView("ticks")
    yield df
    spark.catalog.dropTempView("ticks")


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.collect()))


def test_a_pattern_of_rows(spark: SparkSession, ticks: DataFrame) -> None:
    assert rows(sql(spark, f"SELECT * FROM ticks {RISES}")) == [(2, 2), (4, 2)]


def test_the_first_collect_gives_the_metrics(spark: SparkSession, ticks: DataFrame) -> None:
    found = sql(spark, f"SELECT * FROM ticks {RISES}")
    assert len(found.collect()) == 2
    counts = cep.metrics(found)
    assert (counts["rows"], counts["matches"], counts["complete"]) == (4, 2, True)


def test_a_pattern_of_events(spark: SparkSession, ticks: DataFrame) -> None:
    assert rows(sql(spark, f"SELECT * FROM ticks {PAIRS}")) == [(1, 2, 10), (3, 4, 2)]


def test_both_beside_each_other(spark: SparkSession, ticks: DataFrame) -> None:
    found = sql(
        spark,
        f"""
        WITH low AS (SELECT * FROM ticks WHERE p < 20),
             m AS (SELECT * FROM low {PAIRS})
        SELECT m.a, m.gain, r.n, '{{"json": 1}}' AS note
        FROM m JOIN ticks {RISES} AS r ON r.since = m.b
        UNION ALL
        SELECT a, gain, 0, '' FROM ticks t {PAIRS} WHERE a IN (SELECT ts FROM ticks WHERE p > 5)
        """,
    )
    assert rows(found) == [(1, 10, 0, ""), (3, 2, 2, '{"json": 1}')]


def test_matches_may_be_matched_again(spark: SparkSession, ticks: DataFrame) -> None:
    inner = f"SELECT a AS ts, 'A' AS k, gain AS p FROM ticks {PAIRS} UNION ALL SELECT 9, 'B', 100"
    assert rows(sql(spark, f"SELECT * FROM ({inner}) {PAIRS}")) == [(1, 9, 90), (3, 9, 98)]


def test_frames_and_values_in_fields(spark: SparkSession, ticks: DataFrame) -> None:
    found = sql(
        spark,
        "SELECT {col}, {text} AS t, '{{x}}' AS x "
        f"FROM {{df}} AS q {PAIRS} WHERE gain > {{n}}",
        df=ticks,
        col=F.col("gain"),
        text="it's",
        n=3,
    )
    assert rows(found) == [(10, "it's", "{x}")]


def test_parameters_by_name(spark: SparkSession, ticks: DataFrame) -> None:
    clause = PAIRS.replace("WITHIN 10", "WITHIN :w").replace("b.p > a.p", "b.p > a.p + :more")
    text = f"SELECT *, :note AS n FROM (SELECT * FROM ticks WHERE ts > :since) {clause}"
    args = {"note": "z", "since": 0, "more": 2, "w": 1}
    assert rows(sql(spark, text, args)) == [(1, 2, 10, "z")]


def test_parameters_by_place(spark: SparkSession, ticks: DataFrame) -> None:
    clause = PAIRS.replace("b.p > a.p", "b.p > a.p + ?")
    text = f"SELECT ? AS n, m.a FROM (SELECT * FROM ticks WHERE ts > ?) {clause} m WHERE m.a < ?"
    assert rows(sql(spark, text, args=["z", 0, 1, 3])) == [("z", 1)]


def test_a_temporary_view_outlives_its_statement(spark: SparkSession, ticks: DataFrame) -> None:
    view = "OR REPLACE TEMP VIEW `the pairs` (x COMMENT 'first', y, z)"
    text = f"CREATE {view} AS SELECT * FROM ticks {PAIRS}"
    assert sql(spark, text).columns == []
    assert rows(spark.sql("SELECT y, x FROM `the pairs`")) == [(2, 1), (4, 3)]
    assert spark.sql("DESCRIBE `the pairs`").collect()[0]["comment"] == "first"
    with pytest.raises(AnalysisException, match="already exists"):
        sql(spark, text.replace("OR REPLACE ", ""))
    spark.catalog.dropTempView("the pairs")


def test_a_view_may_replace_its_own_input(spark: SparkSession, ticks: DataFrame) -> None:
    sql(spark, f"CREATE OR REPLACE TEMP VIEW ticks AS SELECT * FROM ticks {PAIRS}")
    assert rows(spark.table("ticks")) == [(1, 2, 10), (3, 4, 2)]


def test_tables_are_made_and_filled(spark: SparkSession, ticks: DataFrame, tmp_path: Path) -> None:
    location = f"USING parquet LOCATION '{tmp_path / 'pairs'}'"
    try:
        sql(spark, f"CREATE TABLE pairs {location} AS SELECT * FROM ticks {PAIRS}")
        sql(spark, f"INSERT INTO pairs SELECT * FROM ticks {PAIRS} AS m WHERE m.a = 1")
        assert rows(spark.table("pairs")) == [(1, 2, 10), (1, 2, 10), (3, 4, 2)]
    finally:
        spark.sql("DROP TABLE IF EXISTS pairs")


def test_answers_stay_good_when_nothing_else_holds_them(
    spark: SparkSession, ticks: DataFrame
) -> None:
    before = {table.name for table in spark.catalog.listTables()}
    found = sql(spark, f"SELECT a FROM ticks {PAIRS}")
    again = found.filter("a > 1").selectExpr("a + 1")
    del found
    assert {table.name for table in spark.catalog.listTables()} == before
    assert rows(again) == [(4,)]


def test_the_plan_can_be_asked_for(spark: SparkSession, ticks: DataFrame) -> None:
    text = f"SELECT a FROM ticks {PAIRS} /*+ plan('eager') */ WHERE a > 1"
    assert cep.plan_of(sql(spark, text)).to_dict()["plan"] == "eager"
    (plan,) = sql(spark, f"EXPLAIN {text}").collect()
    assert "match_pattern[eager" in plan[0]


def test_explain_pattern_gives_rows_of_text(spark: SparkSession, ticks: DataFrame) -> None:
    lines = [
        row.plan for row in sql(spark, f"EXPLAIN PATTERN SELECT * FROM ticks {PAIRS}").collect()
    ]
    assert lines[0].endswith("SEQ(a, b)")
    assert any("rejected" in line for line in lines)
    sql(spark, f"CREATE TEMP VIEW pairs AS SELECT * FROM ticks {PAIRS}")
    assert sql(spark, "explain pattern SELECT * FROM pairs").count() == len(lines)
    spark.catalog.dropTempView("pairs")
    with pytest.raises(cep.PlanError, match="the query matches no pattern"):
        sql(spark, "EXPLAIN PATTERN SELECT 1")


def test_mistakes_are_shown_in_the_statement(spark: SparkSession, ticks: DataFrame) -> None:
    text = f"SELECT *\nFROM ticks {PAIRS.replace('b.p > a.p', 'b.q > a.p')}"
    with pytest.raises(cep.PatternError, match="the input has no column q") as caught:
        sql(spark, text)
    assert re.search(r"at line 6, column 45:\n.*\n +\^\n", str(caught.value))
    with pytest.raises(cep.PatternError, match=r"no column q\n  at line 6, column 56"):
        sql(spark, text.replace("b.q > a.p", "b.p > :n + a.q"), {"n": 1_000_000})
    with pytest.raises(cep.PatternError, match=r"no column zz\n  at line 3, column 18"):
        sql(spark, text.replace("ORDER BY ts", "PARTITION BY zz ORDER BY ts"))
    with pytest.raises(cep.PatternError, match=r"is INT\n  at line 5, column 30"):
        sql(spark, text.replace("WITHIN 10", "WITHIN INTERVAL 10 DAYS").replace("b.q", "b.p"))


def test_a_mistake_in_the_input_says_whose_input(spark: SparkSession, ticks: DataFrame) -> None:
    inner = f"SELECT 1 FROM (SELECT * FROM ticks WHERE p > missing) {PAIRS}"
    with pytest.raises(AnalysisException) as caught:
        sql(spark, inner)
    assert "the MATCH_RECOGNIZE at line 1, column 15" in caught.value.__notes__[0]
    with pytest.raises(cep.PatternError, match=r"the input of this MATCH_RECOGNIZE.*`missing`"):
        sql(spark, f"SELECT * FROM ticks o WHERE EXISTS ({inner})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW v AS SELECT * FROM ticks", "a permanent view cannot contain"),
        ("CACHE TABLE v AS SELECT * FROM ticks", "CACHE TABLE"),
        ("SELECT * FROM ticks, LATERAL (SELECT 1)", "cannot follow LATERAL"),
    ],
)
def test_what_cannot_contain_a_clause(
    spark: SparkSession, ticks: DataFrame, text: str, message: str
) -> None:
    with pytest.raises(cep.PatternError, match=message):
        sql(spark, f"{text} {PAIRS}")


def test_an_installed_session_takes_both_kinds(spark: SparkSession, ticks: DataFrame) -> None:
    own = spark.sql
    try:
        cep.install(spark)
        cep.install(spark)
        assert rows(spark.sql(f"SELECT a FROM ticks {PAIRS}")) == [(1,), (3,)]
        assert rows(cep.sql(spark, f"SELECT a FROM ticks {PAIRS}")) == [(1,), (3,)]
        assert spark.sql(sqlQuery="SELECT :a AS a", args={"a": 1}).collect()[0].a == 1
        assert rows(spark.sql("SELECT 'match_recognize (', {x} FROM {d}", x=1, d=ticks.limit(1)))
        assert spark.sql.__name__ == "sql"
    finally:
        for name in ("sql", "_spark_cep_installed"):
            vars(spark).pop(name, None)
    assert spark.sql == own


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'FROM t MATCH_RECOGNIZE (PATTERN (a))' AS x",
        'SELECT 1 AS x -- "MATCH_RECOGNIZE (',
        "SELECT count(*) /* FROM t MATCH_RECOGNIZE (PATTERN (a)) */ FROM ticks",
        "SELECT match_recognize.k FROM ticks AS match_recognize",
    ],
)
def test_other_sql_reaches_spark_as_it_is(spark: SparkSession, ticks: DataFrame, text: str) -> None:
    assert rows(sql(spark, text)) == rows(spark.sql(text))


def test_what_spark_cannot_read_is_sparks_to_say(spark: SparkSession) -> None:
    with pytest.raises(ParseException):
        sql(spark, "SELECT 'MATCH_RECOGNIZE (PATTERN (a))")


def test_functions_of_neighbouring_rows_are_sparks(spark: SparkSession, ticks: DataFrame) -> None:
    conditions = {
        "sign(p - PREV(p)) = 1": [(2, 2), (4, 2)],
        "levenshtein(k, PREV(k)) = 1 AND round(p / PREV(p)) > 1": [(2, 2)],
        "array_contains(array(PREV(ts), PREV(LAST(ts))), ts - 1)": [(2, 4)],
        "datediff(date_add(DATE'2024-01-01', ts), date_add(DATE'2024-01-01', a.ts)) <= 1": [
            (2, 2),
            (4, 2),
        ],
        "timestampdiff(SECOND, timestamp_millis(a.ts * 500), timestamp_millis(ts * 500)) = 0": [
            (2, 2),
            (4, 2),
        ],
        "timediff(HOUR, timestamp_seconds(ts * 3599), timestamp_seconds(PREV(ts) * 3599)) = 0": [
            (2, 4)
        ],
    }
    for condition, expected in conditions.items():
        clause = RISES.replace("p > PREV(p)", condition)
        assert rows(sql(spark, f"SELECT * FROM ticks {clause}")) == expected, condition


def test_a_partition_is_all_that_spark_sees_of_neighbours(
    spark: SparkSession, ticks: DataFrame
) -> None:
    clause = (
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts DESC MEASURES b.ts AS ts "
        "PATTERN (a b) DEFINE b AS concat_ws('<', PREV(p), p) RLIKE '^[0-9]+<')"
    )
    assert rows(sql(spark, f"SELECT * FROM ticks {clause}")) == [("A", 1), ("B", 2)]


def test_a_measure_fails_on_its_own_rows_only(spark: SparkSession, ticks: DataFrame) -> None:
    clause = """MATCH_RECOGNIZE (
        ORDER BY ts
        MEASURES max(CAST(b.t AS INT)) AS top, LAST(CAST(b.t AS INT)) AS last
        PATTERN (a b+) DEFINE b AS t RLIKE '^[0-9]+$' AND sum(CAST(b.t AS INT)) < CAST(:most AS INT)
    )"""
    source = (
        "(SELECT ts, CASE WHEN ts IN (1, 4) THEN 'none' ELSE CAST(p AS STRING) END AS t FROM ticks)"
    )
    found = sql(spark, f"SELECT * FROM {source} {clause}", {"most": "30"})
    assert rows(found) == [(20, 5)]


def test_errors_of_a_statement_are_worded_in_sql(spark: SparkSession, ticks: DataFrame) -> None:
    text = f"SELECT *\nFROM ticks {RISES}; SELECT 1"
    with pytest.raises(cep.PatternError, match=r"second statement.*\n  at line 6, column 4"):
        sql(spark, text)
    with pytest.raises(cep.PatternError, match="cannot follow TABLE"):
        sql(spark, f"TABLE ticks {RISES}")
    clash = f"SELECT * FROM ticks {RISES.replace('ORDER BY ts', 'PARTITION BY k ORDER BY ts')}"
    with pytest.raises(cep.PatternError, match=r"two columns called 'k'.*\n  at line 3, column 49"):
        sql(spark, clash.replace("AS n", "AS k"))
    stream = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS p")
    with pytest.raises(cep.PatternError, match="a search could wait forever") as caught:
        sql(spark, f"SELECT * FROM {{df}} {RISES}", df=stream)
    assert "bound it: WITHIN INTERVAL '10' MINUTES" in str(caught.value.hint)
    assert "/*+ rows(100000) */" in str(caught.value.hint)


def test_the_page_on_sql_runs_as_printed(spark: SparkSession) -> None:
    text = DOCS.read_text()
    names: dict[str, Any] = {"spark": spark}
    try:
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(code, str(DOCS), "exec"), names)
        for query in re.findall(r"```sql\n(.*?)```", text, re.DOTALL):
            for statement in query.strip().rstrip(";").split(";\n"):
                names["cep"].sql(spark, statement).collect()
    finally:
        spark.catalog.dropTempView("ticks")
        spark.catalog.dropTempView("dips")
        for name in ("sql", "_spark_cep_installed"):
            vars(spark).pop(name, None)
