"""The public API in one file, small enough to run with every Spark: `make matrix` does so.

The answers are written down, so a version of Spark, pandas or numpy that computes something else is
noticed. It needs pytest and chispa, and no other package than the library itself.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # noqa: TC002 - Spark reads the types of functions
import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import all_of, event, no, row_pattern, seq
from spark_cep.spark.versions import parse_version, repartition_by_number
from tests.spark.streams import LAST, Files, drained, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
PAIR = seq(A, B).where("a.x < b.x").within(10)
TIMES = {"a": "a.t", "b": "b.t"}
CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY k ORDER BY t
    MEASURES FIRST(up.t) AS since, count(up.*) AS n
    PATTERN (start up+) DEFINE up AS x > PREV(x)
)"""


@pytest.fixture(scope="module")
def ticks(spark: SparkSession) -> Iterator[DataFrame]:
    rows = [
        ("k1", 1, "A", 10), ("k1", 2, "A", 30), ("k1", 3, "C", 5), ("k1", 4, "B", 20),
        ("k1", 5, "B", 40), ("k2", 1, "A", 1), ("k2", 7, "B", 2), ("k2", 30, "B", 3),
    ]  # fmt: skip
    df = spark.createDataFrame(rows, "k string, t int, kind string, x int")
    df.createOrReplaceTempView("smoke_ticks")
    yield df
    spark.catalog.dropTempView("smoke_ticks")


def found(df: DataFrame, pattern: Any = PAIR, **options: Any) -> list[tuple[Any, ...]]:
    options = {"order_by": "t", "partition_by": "k", "measures": TIMES, **options}
    return values(df.match_pattern(pattern, **options))


def values(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=str)


@contextmanager
def setting(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings by their names, with _ for the points."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


# ---- event patterns ------------------------------------------------------------------------------


PAIRS = [("k1", 1, 4), ("k1", 1, 5), ("k1", 2, 5), ("k2", 1, 7)]


def test_an_event_pattern_gives_its_events(ticks: DataFrame) -> None:
    matches = ticks.match_pattern(PAIR, order_by="t", partition_by="k")
    assert matches.columns == ["k", "a", "b", "match_start", "match_end"]
    assert values(matches.select("k", "a.t", "b.t")) == PAIRS
    row = matches.orderBy("k", "match_start", "match_end").first()
    assert row is not None
    assert row["a"].asDict() == {"k": "k1", "t": 1, "kind": "A", "x": 10}


def test_every_plan_gives_the_same_answer(ticks: DataFrame) -> None:
    for plan in ("auto", "eager", "lazy-chain", "tree", "zstream", "hybrid"):
        assert found(ticks, plan=plan) == PAIRS


def test_all_rows_of_a_match(ticks: DataFrame) -> None:
    rows = ticks.match_pattern(PAIR, order_by="t", partition_by="k", rows="all")
    assert rows.columns == ["match_id", "variable", "k", "t", "kind", "x"]
    assert rows.count() == 8
    assert rows.select("match_id").distinct().count() == 4
    assert values(rows.filter("k = 'k2'").select("variable", "t")) == [("a", 1), ("b", 7)]


def test_payload_is_joined_to_matches(
    spark: SparkSession, ticks: DataFrame, tmp_path: Path
) -> None:
    ticks.coalesce(1).write.parquet(str(tmp_path / "ticks"))
    read = spark.read.parquet(str(tmp_path / "ticks"))
    with setting(spark, spark_cep_payload="join"):
        matches = read.match_pattern(PAIR, order_by="t", partition_by="k")
        assert cep.plan_of(matches).to_dict()["payload"]["mode"] == "join"
        assert values(matches.select("k", "a.t", "b.t")) == PAIRS
    assert cep.metrics(matches)["matches"] == len(PAIRS)


def test_lists_negations_and_optional_parts(ticks: DataFrame) -> None:
    measures = {"n": "count(a)", "total": "sum(a.x)", "first": "first(a.t)", "b": "b.t"}
    lists = found(ticks, seq(event("a+", "kind = 'A'"), B).within(10), measures=measures)
    assert lists == [
        ("k1", 1, 10, 1, 4), ("k1", 1, 10, 1, 5), ("k1", 1, 30, 2, 4), ("k1", 1, 30, 2, 5),
        ("k1", 2, 40, 1, 4), ("k1", 2, 40, 1, 5), ("k2", 1, 1, 1, 7),
    ]  # fmt: skip
    without = seq(A, no(event("c", "kind = 'C'")), B).within(10)
    assert found(ticks, without) == [("k2", 1, 7)]
    optional = all_of(A, B, event("c?", "kind = 'C'")).where("a.x < b.x").within(10)
    assert len(found(ticks, optional, measures={"c": "c.t"})) == 7


def test_strategies_and_consumption(ticks: DataFrame) -> None:
    following = PAIR.strategy("skip till next match")
    assert found(ticks, following) == [("k1", 1, 4), ("k1", 2, 5), ("k2", 1, 7)]
    assert found(ticks, following.consumption("consume")) == found(ticks, following)
    assert found(ticks, PAIR.strategy("strict")) == [("k2", 1, 7)]


def test_the_answer_is_the_same_in_slices_and_buckets(
    spark: SparkSession, ticks: DataFrame
) -> None:
    with setting(spark, spark_cep_slices="on", spark_cep_buckets="7"):
        assert found(ticks) == PAIRS
        pairs = found(ticks, PAIR.where("a.k = b.k"), partition_by=None)
    assert pairs == sorted(each[1:] for each in PAIRS)


# ---- row patterns and text -----------------------------------------------------------------------


RISES = [("k1", 2, 1), ("k1", 4, 2), ("k2", 7, 2)]


def test_a_row_pattern(ticks: DataFrame) -> None:
    rises = row_pattern("start up+", {"up": "x > PREV(x)"})
    assert found(ticks, rises, measures={"since": "FIRST(up.t)", "n": "count(up.*)"}) == RISES
    every = found(ticks, rises, measures={"n": "count(up.*)"}, rows="all with unmatched")
    assert len(every) == 8


def test_match_recognize_in_sql(spark: SparkSession, ticks: DataFrame) -> None:
    text = f"SELECT * FROM smoke_ticks {CLAUSE} WHERE n > :least"
    assert values(cep.sql(spark, text, {"least": 0})) == RISES
    assert values(cep.sql(spark, text.replace("smoke_ticks", "{df}"), {"least": 1}, df=ticks)) == [
        each for each in RISES if each[2] > 1
    ]
    session = spark.newSession()
    cep.install(session)
    ticks.createOrReplaceGlobalTempView("smoke_ticks")
    text = f"SELECT count(*) AS n FROM global_temp.smoke_ticks {CLAUSE}"
    assert session.sql(text).collect()[0]["n"] == 3
    spark.catalog.dropGlobalTempView("smoke_ticks")


def test_a_row_pattern_in_a_window(spark: SparkSession, ticks: DataFrame) -> None:
    text = """SELECT s.t, n OVER w AS n, s.x - first_value(x) IGNORE NULLS OVER w, lag(t) OVER w
        FROM smoke_ticks s WHERE k = :k WINDOW w AS (
          PARTITION BY k ORDER BY t MEASURES count(up.*) AS n
          ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING SEEK
          PATTERN (low up+) DEFINE low AS x < 10, up AS x > PREV(x)
        ) ORDER BY s.t DESC LIMIT 5"""
    assert values(cep.sql(spark, text, {"k": "k1"})) == [
        (1, None, None, None), (2, 1, 25, 1), (3, None, None, 2), (4, None, None, 3),
        (5, None, None, 4),
    ]  # fmt: skip


def test_aggregates_of_spark_in_measures(spark: SparkSession, ticks: DataFrame) -> None:
    measures = """median(x) AS middle, bit_xor(t) AS bits,
        count(*) FILTER (WHERE kind = 'B' OR CLASSIFIER() = 'start') AS some,
        sum(up.x) FILTER (WHERE up.x > 20) AS high,
        percentile(x, 0.5) FILTER (WHERE kind = 'A') AS a_middle, max_by(kind, x) AS top"""
    text = "SELECT * FROM smoke_ticks " + CLAUSE.replace("FIRST(up.t) AS since", measures)
    assert values(cep.sql(spark, text)) == [
        ("k1", 20.0, 2, 3, 40, None, "B", 2), ("k1", 20.0, 3, 1, 30, 20.0, "A", 1),
        ("k2", 2.0, 24, 3, None, 1.0, "B", 2),
    ]  # fmt: skip


def test_an_aggregate_in_python_in_measures(spark: SparkSession, ticks: DataFrame) -> None:
    @F.pandas_udf("int")  # type: ignore[call-overload, untyped-decorator]
    def spread(values: pd.Series) -> int:
        assert not values.isna().any()
        return int(values.max() - values.min())

    spark.udf.register("spread", spread)
    measures = """spread(x) AS wide, spread(up.x) AS up_wide, median(x) AS middle,
        spread(x) FILTER (WHERE kind = 'A') AS a_wide"""
    text = "SELECT * FROM smoke_ticks " + CLAUSE.replace("FIRST(up.t) AS since", measures)
    assert values(cep.sql(spark, text)) == [
        ("k1", 20, 0, 20.0, 20, 1), ("k1", 35, 20, 20.0, None, 2), ("k2", 2, 1, 2.0, 0, 2),
    ]  # fmt: skip


def test_an_aggregate_that_this_spark_does_not_have(spark: SparkSession, ticks: DataFrame) -> None:
    clause = CLAUSE.replace("count(up.*)", "approx_top_k(kind)[0].count")
    text = f"SELECT * FROM smoke_ticks {clause}"
    if parse_version(spark.version) >= (4, 1):
        assert [row[-1] for row in values(cep.sql(spark, text))] == [2, 2, 2]
        return
    with pytest.raises(cep.PatternError, match="approx_top_k") as raised:
        cep.sql(spark, text)
    assert "line 3" in str(raised.value)


def test_functions_and_aggregates_in_define(spark: SparkSession, ticks: DataFrame) -> None:
    clause = """SELECT * FROM smoke_ticks MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY t MEASURES FIRST(t) AS since, count(*) AS n PATTERN ({})
        DEFINE b AS {})"""
    functions = "round(x / a.x, 1) >= 2 AND concat(a.kind, kind) NOT LIKE 'A' || a.kind"
    assert values(cep.sql(spark, clause.format("a b+", functions))) == [("k1", 3, 3), ("k2", 1, 3)]
    aggregates = """count(*) FILTER (WHERE kind = 'B') <= 1 AND stddev_pop(x) < 20
        AND max_by(x, t) = x"""
    assert values(cep.sql(spark, clause.format("b+", aggregates))) == [
        ("k1", 1, 4), ("k1", 5, 1), ("k2", 1, 2), ("k2", 30, 1),
    ]  # fmt: skip


def test_names_and_spellings_of_other_systems(spark: SparkSession, ticks: DataFrame) -> None:
    text = """SELECT * FROM (SELECT k, t, x AS values FROM smoke_ticks) AS q MATCH_RECOGNIZE (
        PARTITION BY upper(q.k) AS key ORDER BY t
        MEASURES count(*) n, n * 2 AS twice,
          LAST(show.values) - (SELECT min(x) FROM smoke_ticks) AS above
        PATTERN (start show+)
        DEFINE show AS values > LAG(values) AND q.values IN (SELECT x FROM smoke_ticks)
    )"""
    assert values(cep.sql(spark, text)) == [
        ("K1", 2, 4, 29), ("K1", 3, 6, 39), ("K2", 3, 6, 2),
    ]  # fmt: skip
    with pytest.warns(cep.PatternWarning, match="no ORDER BY"):
        cep.sql(spark, text.replace("ORDER BY t", ""))


def test_an_event_pattern_in_sql_and_its_plan(spark: SparkSession, ticks: DataFrame) -> None:
    text = """SELECT * FROM smoke_ticks MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY t MEASURES a.t AS a, b.t AS b PATTERN SEQ(a, b) WITHIN 10
        DEFINE a AS kind = 'A', b AS kind = 'B' AND b.x > a.x
    )"""
    assert values(cep.sql(spark, text)) == PAIRS
    lines = [row[0] for row in cep.sql(spark, f"EXPLAIN PATTERN {text}").collect()]
    assert lines[0].endswith("SEQ(a, b)")


def test_sase_text(ticks: DataFrame) -> None:
    pattern = cep.sase("SEQ(A a, B b) WHERE a.x < b.x WITHIN 10", type_column="kind")
    assert found(ticks, pattern) == PAIRS


# ---- explain and metrics -------------------------------------------------------------------------


def test_a_plan_is_explained(ticks: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    matches = ticks.match_pattern(PAIR, order_by="t", partition_by="k")
    cep.explain(matches.filter("k = 'k1'"))
    assert re.match(r"Match #\d+: SEQ\(a, b\)", capsys.readouterr().out)
    cep.explain(matches, mode="json")
    assert json.loads(capsys.readouterr().out)["order"] in (["a", "b"], ["b", "a"])
    cep.explain(matches, mode="html")
    assert "<svg" in capsys.readouterr().out
    matches.explain()
    assert "match_pattern[" in capsys.readouterr().out
    cep.explain(matches, mode="analyze")
    assert re.search(r"matches\D+4\b", capsys.readouterr().out)


def test_what_was_counted_comes_with_the_answer(ticks: DataFrame) -> None:
    matches = ticks.match_pattern(PAIR, order_by="t", partition_by="k")
    with pytest.raises(cep.CepError, match="no action has run"):
        cep.metrics(matches)
    assert matches.count() == 4
    counts = cep.metrics(matches)
    assert (counts["rows"], counts["matches"], counts["complete"]) == (7, 4, True)


def test_without_a_row_there_are_metrics_too(ticks: DataFrame) -> None:
    matches = ticks.filter("x > 1000").match_pattern(PAIR, order_by="t", partition_by="k")
    assert matches.collect() == []


# ---- remote data, shedding, limits ---------------------------------------------------------------


LIMITS = {"k1": 25.0, "k2": 0.0}
ABOVE = PAIR.where("b.x > remote('most', a.k)")


def test_a_remote_table_is_joined_or_collected(spark: SparkSession, ticks: DataFrame) -> None:
    table = spark.createDataFrame(list(LIMITS.items()), "k string, most double")
    remotes = {"most": cep.Remote.table(table, key="k", value="most")}
    assert found(ticks, ABOVE, remotes=remotes) == [("k1", 1, 5), ("k1", 2, 5), ("k2", 1, 7)]
    pairs = spark.createDataFrame([(10, 40, "yes"), (1, 2, "yes")], "x int, y int, word string")
    both = PAIR.where("remote('pairs', a.x, b.x) = 'yes'")
    remotes = {"pairs": cep.Remote.table(pairs, key=["x", "y"], value="word")}
    assert found(ticks, both, remotes=remotes) == [("k1", 1, 5), ("k2", 1, 7)]


def test_a_remote_function_is_called_by_the_workers(ticks: DataFrame) -> None:
    limits = dict(LIMITS)

    def fetch(keys: list[str]) -> dict[str, float]:
        return {key: limits[key] for key in keys if key in limits}

    remotes = {"most": cep.Remote.fetch(fetch, "double")}
    measures = {**TIMES, "over": "b.x - remote('most', b.k)"}
    wanted = [("k1", 1, 5, 15.0), ("k1", 2, 5, 15.0), ("k2", 1, 7, 2.0)]
    assert found(ticks, ABOVE, remotes=remotes, measures=measures) == wanted
    rises = row_pattern("start up+", {"up": "x > PREV(x) AND x > remote('most', k)"})
    assert found(ticks, rises, remotes=remotes, measures={"n": "count(up.*)"}) == [
        ("k1", 1),
        ("k1", 1),
        ("k2", 2),
    ]


def test_a_remote_database(ticks: DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    with sqlite3.connect(tmp_path / "limits.db") as db:
        db.execute("CREATE TABLE limits (k TEXT, most REAL)")
        db.executemany("INSERT INTO limits VALUES (?, ?)", LIMITS.items())
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    remote = cep.Remote.sql(url, "limits", key="k", value="most", value_type="double")
    wanted = [("k1", 1, 5), ("k1", 2, 5), ("k2", 1, 7)]
    assert found(ticks, ABOVE, remotes={"most": remote}) == wanted


def test_rows_are_shed(spark: SparkSession) -> None:
    rows = spark.range(4_000).selectExpr(
        "CAST(id AS INT) AS t", "CASE WHEN id % 2 = 0 THEN 'A' ELSE 'B' END AS kind", "id % 7 AS x"
    )
    everything = rows.match_pattern(PAIR, order_by="t", measures=TIMES)
    matches = rows.match_pattern(PAIR, order_by="t", measures=TIMES, shed=cep.Shed(keep=0.5))
    given, whole = set(values(matches)), set(values(everything))
    assert given < whole
    assert len(given) > 0.25 * len(whole)
    dropped = sum(each["dropped"] for each in cep.metrics(matches)["shed"].values())
    assert dropped == pytest.approx(2_000, rel=0.1)


def test_a_limit_ends_the_query(ticks: DataFrame) -> None:
    with pytest.raises(Exception, match="limit") as raised:
        found(ticks, limits=cep.Limits(matches=2))
    assert isinstance(cep.error_of(raised.value), cep.LimitError)


def test_a_function_of_the_user(ticks: DataFrame) -> None:
    @cep.udf(returns="double")
    def distance(x: Any, y: Any) -> Any:
        return (x - y).abs() * 1.0

    pattern = seq(A, B).where("distance(a.x, b.x) <= 10").within(10)
    assert found(ticks, pattern) == [
        ("k1", 1, 4), ("k1", 2, 4), ("k1", 2, 5), ("k2", 1, 7),
    ]  # fmt: skip


# ---- values of all kinds -------------------------------------------------------------------------


def test_keys_are_equal_where_group_by_says_so(spark: SparkSession) -> None:
    nan = float("nan")
    rows = [(0.0, 1), (-0.0, 2), (nan, 1), (nan, 2), (None, 1), (None, 2), (1.0, 1)]
    schema = "k double, t int, m map<string,double>, l array<double>"
    df = spark.createDataFrame([(k, t, {"m": k or 0.0}, [k]) for k, t in rows], schema)
    pattern = seq("a", "b")
    for key in ("k", "l"):
        matches = df.match_pattern(pattern, order_by="t", partition_by=key, measures=TIMES)
        assert values(matches.select("a", "b")) == [(1, 2)] * 3
    by_map = found(df, pattern, partition_by=F.struct("l", "k").alias("key"))
    assert len(by_map) == 3


def test_types_that_arrow_does_not_know_alike(spark: SparkSession) -> None:
    df = spark.sql("""SELECT * FROM VALUES
        (TIMESTAMP_NTZ '2026-01-05 09:00:00', INTERVAL '90' MINUTE, INTERVAL '14' MONTH,
         12345678901234567.89BD, DATE '2026-01-05', X'00FF', 'a'),
        (TIMESTAMP_NTZ '2026-01-05 09:00:05.000001', INTERVAL '2' MINUTE, INTERVAL '2' MONTH,
         0.11BD, DATE '2026-02-05', X'01', 'b')
        AS rows(t, span, months, amount, day, bytes, kind)""")
    pattern = seq(event("a", "kind = 'a'"), event("b", "kind = 'b'")).within("6 seconds")
    pattern = pattern.where("a.months > b.months", "a.span > b.span", "b.day > a.day")
    measures = {
        "gap": "b.t - a.t",
        "total": "a.amount + b.amount",
        "months": "CAST(a.months AS STRING)",
        "start": "match_start",
    }
    matches = df.match_pattern(pattern, order_by="t", measures=measures)
    assert values(matches) == [
        (
            timedelta(seconds=5, microseconds=1),
            Decimal("12345678901234568.00"),
            "INTERVAL '14' MONTH",
            datetime(2026, 1, 5, 9),
        )
    ]
    # PySpark reads no year-month interval.
    matches = df.match_pattern(pattern, order_by="t")
    whole = matches.select("a.span", "a.day", "a.bytes").collect()[0]
    assert (whole["span"], whole["day"]) == (timedelta(minutes=90), date(2026, 1, 5))
    assert bytes(whole["bytes"]) == b"\x00\xff"
    assert matches.select("a.months").dtypes == [("months", "interval month")]


def test_timestamps_are_those_of_the_session_time_zone(spark: SparkSession) -> None:
    with setting(spark, spark_sql_session_timeZone="America/Los_Angeles"):
        df = spark.sql("""SELECT to_timestamp(at) AS t, kind FROM VALUES
            ('2026-03-08 01:59:59', 'A'), ('2026-03-08 03:00:01', 'B') AS rows(at, kind)""")
        pattern = seq(A, B).within("10 seconds")
        # Spark subtracts the readings of the clock, and a window measures the time between.
        measures = {"hours": "hour(b.t) - hour(a.t)", "gap": "b.t - a.t"}
        answer = values(df.match_pattern(pattern, order_by="t", measures=measures))
        texts = df.match_pattern(pattern, order_by="t").selectExpr("CAST(b.t AS STRING)")
        assert values(texts) == [("2026-03-08 03:00:01",)]
    assert answer == [(2, timedelta(seconds=3602))]


def test_arithmetic_follows_the_ansi_setting_of_the_session(
    spark: SparkSession, ticks: DataFrame
) -> None:
    overflow = {"more": "CAST(b.x AS TINYINT) + CAST(2147483647 AS INT)"}
    for ansi, expected in (("false", -2147483647), ("true", None)):
        with setting(spark, spark_sql_ansi_enabled=ansi):
            two = ticks.filter("k = 'k2'")
            matches = two.match_pattern(PAIR, order_by="t", measures=overflow)
            if expected is None:
                with pytest.raises(Exception, match=r"(?i)overflow"):
                    matches.collect()
            else:
                assert values(matches) == [(expected,)]


def test_the_ansi_setting_that_nobody_made_is_that_of_spark(
    spark: SparkSession, ticks: DataFrame
) -> None:
    is_on = parse_version(spark.version) >= (4, 0)
    assert spark.conf.get("spark.sql.ansi.enabled") == ("true" if is_on else "false")
    # Without ANSI, Spark casts the string to the type of the other side.
    words = ticks.withColumn("word", F.expr("CAST(x AS STRING)"))
    pattern = seq(A, B).where("CAST(b.word AS INT) > a.word").within(10)
    assert found(words, pattern) == PAIRS


# ---- streams, errors, partitions -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["event pattern", "row pattern"])
def test_a_stream_gives_each_match_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    files = Files(tmp_path / "in")
    files.put([(1.0, 1, "A", 1, 0), (2.0, 1, "A", 2, 1)])
    files.put([(3.0, 1, "B", 2, 2), (4.0, 2, "B", 9, 3)])
    files.put([LAST])
    pattern: Any = seq(A, B).where("a.x < b.x").within("5 seconds")
    measures = {"x": "a.x", "u": "b.u"}
    if kind == "row pattern":
        pattern = row_pattern("a b", {"a": "kind = 'A'", "b": "kind = 'B'"}).within("5 seconds")
    options = {"order_by": "ts", "partition_by": "k", "measures": measures}
    with small(spark):
        if parse_version(spark.version) < (4, 0):
            expected = f"patterns on streams need Spark 4.0 or newer; this is {spark.version}"
            with pytest.raises(cep.PlanError, match=re.escape(expected)) as raised:
                files.stream(spark).match_pattern(pattern, **options)
            assert raised.value.hint
            return
        matches, query = drained(files.stream(spark).match_pattern(pattern, **options))
        assert values(matches) == ([(1, 1, 2)] if kind == "event pattern" else [(1, 2, 2)])
        assert sum(each["matches"] for each in cep.streaming.metrics(query)) == 1


def test_mistakes_are_reported_before_any_job(ticks: DataFrame) -> None:
    for options, message in (
        ({"order_by": "nope"}, "nope"),
        ({"order_by": F.col("t").desc()}, "ascending"),
        ({"measures": {"m": "a.nope"}}, "nope"),
        ({"measures": {"m": "upper(a.kind, 1)"}}, "upper"),
        ({"plan": "fast"}, "fast"),
    ):
        with pytest.raises(cep.CepError, match=message) as raised:
            found(ticks, **options)
        assert "SQLSTATE" not in raised.value.message
        assert "\n\n" not in raised.value.message
    with pytest.raises(cep.PatternError, match=r"line 1|column"):
        found(ticks, seq(event("a", "kind ==== 'A'"), B))


def test_columns_are_orders_and_keys(ticks: DataFrame) -> None:
    order = [F.col("t"), F.col("x").desc()]
    assert found(ticks, order_by=order, partition_by=F.col("k")) == PAIRS
    upper = found(ticks, order_by=["t", "x DESC"], partition_by=F.upper("k").alias("key"))
    assert upper == [(key.upper(), a, b) for key, a, b in PAIRS]


@pytest.mark.parametrize("count", [1, 5, 64])
def test_rows_go_to_the_partition_of_their_number(spark: SparkSession, count: int) -> None:
    rows = spark.range(0, 20 * count, 1, 3).withColumn("n", F.pmod("id", F.lit(count)))
    dealt = repartition_by_number(rows, count, F.col("n"))
    places = dealt.groupBy("n", F.spark_partition_id().alias("place")).count()
    assert values(places) == sorted(((n, n, 20) for n in range(count)), key=str)
