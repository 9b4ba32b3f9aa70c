"""A stream's answer is that of a batch over the same rows, whatever came in which trigger."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import all_of, any_of, event, no, row_pattern, seq
from tests.spark.streams import LAST, LAST_KEY, Files, assert_same, by_match, drained, small

pytestmark = pytest.mark.spark

A = event("a", "kind = 'A'")
B = event("b", "kind = 'B'")
C = event("c", "kind = 'C'")
BS = event("b+", "kind = 'B'")
X = no(event("n", "kind = 'C'"))
KEYED: dict[str, Any] = {"partition_by": "k", "order_by": "ts"}
UNTIED: dict[str, Any] = {"partition_by": "k", "order_by": ["ts", "u"]}

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "any": (seq(A, B, C).where("a.x < c.x").within("12 seconds"), KEYED),
    "not at the start": (seq(X, A, B).within("5 seconds"), KEYED),
    "not between": (seq(A, X, B).within("8 seconds"), KEYED),
    "not at the end": (seq(A, B, X).within("5 seconds"), KEYED),
    "and, or, a list": (
        seq(A, all_of(B, any_of(event("d", "kind = 'C' AND x > 5"), event("e?", "x = 1"))),
            event("f{1,2}", "kind = 'A'")).within("5 seconds"),
        KEYED,
    ),
    "next": (seq(A, BS, C).within("8 seconds").strategy("skip till next match"), KEYED),
    "strict": (seq(A, BS, C).within("8 seconds").strategy("strict"), KEYED),
    "consume": (seq(A, B).within("5 seconds").consumption("consume"), UNTIED),
    "next and consume": (
        seq(A, B).within("5 seconds").strategy("skip till next match").consumption("consume"),
        UNTIED,
    ),
    "measures": (
        seq(A, BS, C).where("sum(b.x) > a.x").within("6 seconds"),
        {**KEYED, "measures": {"n": "count(b)", "most": "max(b.x)", "gap": "c.ts - a.ts",
                               "since": "match_start"}},
    ),
    "events": (seq(A, B).within(events=5), KEYED),
    "no key": (seq(A, B, X).where("a.x = b.x").within("3 seconds"), {"order_by": "ts"}),
    "a key that the conditions tell": (
        seq(A, B).where("a.x = b.x").within("8 seconds"), {"order_by": "ts"}
    ),
}  # fmt: skip
# What needs a JVM's minute is told by the others, without Spark, in tests/streaming.
SLOW = {"not at the start", "next and consume", "a key that the conditions tell", "strict"}


def slow_ones(names: Any, slow: set[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


@pytest.fixture(autouse=True, scope="module")
def _small(spark: SparkSession) -> Iterator[None]:
    with small(spark):
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Rows of a minute, up to 5 seconds out of their order, many of them at the same time."""
    chance = random.Random(5)
    rows = [
        (chance.randrange(60), chance.choice([1, 2, 3, None]), chance.choice("AABBC"),
         chance.randrange(9), u)
        for u in range(90)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[0] + chance.random() * 5)
    rows[20] = (None, *rows[20][1:])
    files = Files(tmp_path_factory.mktemp("minute"))
    files.put(rows[:50])
    files.put(rows[50:])
    files.put([LAST])
    return files


@pytest.mark.parametrize("kind", slow_ones(KINDS, SLOW))
def test_an_event_pattern_gives_the_answer_of_a_batch(
    spark: SparkSession, files: Files, kind: str
) -> None:
    pattern, options = KINDS[kind]
    wanted = files.batch(spark).match_pattern(pattern, **options)
    assert wanted.count() > 2
    given, _ = drained(files.stream(spark).match_pattern(pattern, **options))
    assert_same(given, wanted)


def test_a_row_for_each_event(spark: SparkSession, files: Files) -> None:
    pattern = seq(A, BS, C).within("5 seconds")
    wanted = files.batch(spark).match_pattern(pattern, rows="all", **KEYED)
    given, _ = drained(files.stream(spark).match_pattern(pattern, rows="all", **KEYED))
    assert_same(by_match(given), by_match(wanted))


# ---- row patterns ------------------------------------------------------------------------------

V = row_pattern(
    "strt down+ up+", define={"down": "x < PREV(x)", "up": "x > PREV(x)"}
).within("20 seconds")  # fmt: skip
LOWS = {"n": "MATCH_NUMBER()", "low": "LAST(down.x)", "since": "FIRST(ts)", "ups": "count(up.*)"}
BOUNDED = row_pattern("strt down{1,3} up?", define={"down": "x < PREV(x)", "up": "x > PREV(x)"})

ROW_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "one": (V, {**UNTIED, "measures": LOWS}),
    "to next row": (V, {**UNTIED, "measures": LOWS, "after_match": "SKIP TO NEXT ROW"}),
    "all": (V, {**UNTIED, "measures": {"v": "CLASSIFIER()", "n": "MATCH_NUMBER()"}, "rows": "all"}),
    "all omit empty": (V, {**UNTIED, "measures": LOWS, "rows": "all omit empty"}),
    "all with unmatched": (V, {**UNTIED, "measures": LOWS, "rows": "all with unmatched"}),
    "no window": (BOUNDED, {**UNTIED, "measures": LOWS}),
}


def of_the_minute(answer: DataFrame) -> DataFrame:
    """Without the row that moves the watermark, which is never decided itself."""
    return answer.filter(f"k IS NULL OR k <> {LAST_KEY}")


@pytest.mark.parametrize(
    "kind", slow_ones(ROW_KINDS, {"to next row", "all", "all omit empty", "no window"})
)
def test_a_row_pattern_gives_the_answer_of_a_batch(
    spark: SparkSession, files: Files, kind: str
) -> None:
    pattern, options = ROW_KINDS[kind]
    wanted = of_the_minute(files.batch(spark).match_pattern(pattern, **options))
    given, _ = drained(files.stream(spark).match_pattern(pattern, **options))
    given = of_the_minute(given)
    if kind == "no window":
        # Where rows may still come the last search of each key waits for them.
        assert given.count() > 5
        assert given.exceptAll(wanted.select(given.columns)).count() == 0
        return
    assert wanted.count() > 5
    assert_same(given, wanted)


SQL = """SELECT * FROM {} MATCH_RECOGNIZE (
    PARTITION BY k ORDER BY ts, u MEASURES MATCH_NUMBER() AS n, LAST(down.x) AS low
    ALL ROWS PER MATCH PATTERN (strt down+ up+) WITHIN INTERVAL 20 SECONDS
    DEFINE down AS x < PREV(x), up AS x > PREV(x))"""
SQL_EVENTS = """SELECT k, gain FROM {} MATCH_RECOGNIZE (
    PARTITION BY k ORDER BY ts MEASURES b.x - a.x AS gain PATTERN SEQ(a, b)
    WITHIN INTERVAL '5' SECONDS DEFINE a AS kind = 'A', b AS kind = 'B' AND b.x > a.x)
    WHERE gain > 1"""


@pytest.mark.parametrize("text", [SQL, SQL_EVENTS], ids=["rows", "events"])
def test_sql_over_a_streaming_view_gives_the_answer_of_a_batch(
    spark: SparkSession, files: Files, text: str
) -> None:
    files.stream(spark).createOrReplaceTempView("ticks_streamed")
    files.batch(spark).createOrReplaceTempView("ticks_batched")
    given, _ = drained(cep.sql(spark, text.format("ticks_streamed")))
    wanted = cep.sql(spark, text.format("ticks_batched"))
    assert wanted.count() > 5
    assert_same(of_the_minute(given), of_the_minute(wanted))


# ---- values ------------------------------------------------------------------------------------

PAYLOAD = """
    CAST(9007199254740993 AS BIGINT) AS long,
    CAST('12345678901234567890.123456789012345678' AS DECIMAL(38, 18)) AS decimal,
    TIMESTAMP '0001-01-03 00:00:00.000001' AS first_year,
    TIMESTAMP '9999-12-31 23:59:59.999999' AS last_year,
    TIMESTAMP_NTZ '9999-12-31 23:59:59.999999' AS without_zone,
    DATE '0001-01-01' AS date, X'00FF' AS binary, array(1L, NULL, 9007199254740993L) AS array,
    named_struct('a', 1, 'b', array('x', NULL)) AS struct, double('NaN') AS nan,
    INTERVAL '1 02:03:04.000005' DAY TO SECOND AS days"""
KEYS = "CASE k WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0D WHEN 3 THEN 0.0D END AS d"


def test_types_pass_unchanged_with_nulls_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.put([(1, 1, "A", 1, 1), (1, 2, "A", None, 2)])
    files.put([(2, 2, "B", None, 3)])
    files.put([(3, 1, "B", 1, 4)])

    def with_payload(df: DataFrame) -> DataFrame:
        full = df.select("*", F.expr(f"struct({PAYLOAD})").alias("payload"))
        return full.selectExpr("ts", "k", "kind", "IF(x IS NULL, NULL, payload) AS p", "payload.*")

    pattern = seq(A, B).within("5 seconds")
    wanted = with_payload(files.batch(spark)).match_pattern(pattern, **KEYED)
    given, _ = drained(with_payload(files.stream(spark)).match_pattern(pattern, **KEYED))
    assert wanted.count() == 2
    assert_same(given, wanted)
    (row,) = given.filter("k = 1").select("b.p.*").collect()
    assert row.long == 9007199254740993
    assert given.filter("k = 2 AND a.p IS NULL AND a.long = 9007199254740993").count() == 1


def test_keys_are_equal_as_group_by_says(spark: SparkSession, files: Files) -> None:
    pattern = seq(A, B).within("5 seconds")
    options: dict[str, Any] = {"partition_by": "d", "order_by": "ts"}
    wanted = files.batch(spark).selectExpr("*", KEYS).match_pattern(pattern, **options)
    given, _ = drained(files.stream(spark).selectExpr("*", KEYS).match_pattern(pattern, **options))
    assert_same(given, wanted)
    assert given.select("d").distinct().count() == 3


# ---- triggers ----------------------------------------------------------------------------------


def test_the_watermark_follows_rows_that_no_variable_accepts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where the event time is never NULL, of which the optimizer knows how to make use."""
    files = Files(tmp_path)
    files.put([(1, 1, "A", 1, 1), (2, 1, "B", 1, 2)])
    files.put([LAST])
    time = F.coalesce("ts", F.timestamp_seconds(F.lit(0))).alias("at")
    read = spark.readStream.schema(files.columns).option("maxFilesPerTrigger", 1)
    rows = read.parquet(str(tmp_path)).select("k", "kind", "x", time)
    rows = rows.withWatermark("at", "10 seconds")
    pattern = seq(A, B, X).within("5 seconds")
    given, _ = drained(rows.match_pattern(pattern, partition_by="k", order_by="at"))
    assert given.count() == 1


def test_an_idle_source_closes_windows_when_the_watermark_has_moved(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    files.put([(1, 1, "A", 1, 1), (2, 1, "B", 1, 2)])
    for _ in range(3):
        files.put([])
    files.put([LAST])
    files.put([])
    pattern = seq(A, B, X).within("5 seconds")
    given, query = drained(files.stream(spark).match_pattern(pattern, **KEYED))
    counts = cep.streaming.metrics(query)
    assert given.count() == 1
    when = [each["trigger"] for each in counts if each["matches"]]
    rows = {each["trigger"]: each["rows"] for each in counts}
    assert all(sum(each["orders"].values()) == each["pairs"] for each in counts)
    # In the trigger that first knows of the new watermark, without a row.
    assert when == [5]
    assert rows[5] == 0
    assert counts[-1]["state_rows"] == 0


def test_rows_later_than_the_watermark_are_dropped_and_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    files.put([(0, 1, "A", 1, 1), (1, 2, "A", 1, 2)])
    files.put([(100, 1, "A", 1, 3), (100, 2, "A", 1, 4)])
    # The watermark has moved to 90: rows of this trigger may have been on their way.
    files.put([(3, 1, "B", 1, 5)])
    files.put([(4, 1, "B", 1, 6), (90, 2, "B", 1, 7), (91, 2, "B", 1, 8), (95, 1, "A", 1, 9)])
    files.put([(101, 1, "B", 1, 10), (2, 2, "B", 1, 11)])
    pattern = seq(A, B).within("20 seconds")
    given, query = drained(files.stream(spark).match_pattern(pattern, **KEYED))
    pairs = sorted((row.a.u, row.b.u) for row in given.collect())
    assert pairs == [(1, 5), (3, 10), (9, 10)]
    late = [each["late_rows"] for each in cep.streaming.metrics(query)]
    assert sum(late) == 3
    assert late[3:5] == [2, 1]


def test_a_query_that_goes_on_gives_what_new_files_bring(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(tmp_path / "in")
    files.put([(1, 1, "A", 1, 1)])
    matches = files.stream(spark).match_pattern(seq(A, B).within("5 seconds"), **KEYED)
    writer = matches.writeStream.format("memory").queryName("goes_on")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert spark.table("goes_on").count() == 0
        files.put([(2, 1, "B", 1, 2)])
        query.processAllAvailable()
        assert spark.table("goes_on").count() == 1
    finally:
        query.stop()
