"""What Spark's optimizer sees of a pattern: scans read less, exchanges are reused, a limit ends it.

Answers with `spark.cep.pushdown` on are compared with those that it gives off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spark_cep as cep
from spark_cep import event, no, seq
from spark_cep.spark.source import plan_text
from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RISES = """MATCH_RECOGNIZE (
    PARTITION BY user ORDER BY ts
    MEASURES FIRST(a.price) AS low, LAST(b.pad) AS pad, count(*) AS n
    PATTERN (a b+) DEFINE b AS price > PREV(price)
)"""


@contextmanager
def set_conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


@pytest.fixture(scope="module")
def clicks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """600 rows of the users u0 to u5, in files by kind."""
    folder = tmp_path_factory.mktemp("clicks")
    rows = spark.range(600).selectExpr(
        "concat('u', id % 6) AS user",
        "CAST(id AS INT) AS ts",
        "CAST(pmod(xxhash64(id), 50) AS INT) AS price",
        "element_at(array('A', 'B', 'C', 'D'), CAST(id % 4 AS INT) + 1) AS kind",
        "concat('pad', id) AS pad",
    )
    rows.write.parquet(str(folder / "plain"))
    rows.write.partitionBy("kind").parquet(str(folder / "by_kind"))
    spark.read.parquet(str(folder / "plain")).createOrReplaceTempView("clicks")
    yield folder
    spark.catalog.dropTempView("clicks")


def scans(df: DataFrame) -> list[dict[str, str]]:
    """What the scans of a plan say of themselves."""
    plan = plan_text(df, "formatted")
    found = re.findall(r"\(\d+\) Scan .*?(?=\n\n)", plan, re.S)
    return [dict(re.findall(r"^(\w+): (.*)$", scan, re.M)) for scan in found]


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.collect()), key=repr)


def both_ways(spark: SparkSession, query: str) -> tuple[list[Any], list[Any]]:
    """The answers with and without pushdown."""
    found = rows(sql(spark, query))
    with set_conf(spark, "spark.cep.pushdown", "off"):
        return found, rows(sql(spark, query))


# ---- conditions behind a clause ------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM clicks {M} AS m WHERE m.user = 'u3' AND m.n > 1",
        "SELECT * FROM (SELECT user AS who, n FROM clicks {M}) WHERE who = 'u3'",
        "WITH r AS (SELECT * FROM clicks {M}) SELECT u.k FROM VALUES ('u3') AS u(k) "
        "LEFT JOIN r ON r.user = u.k AND r.user = 'u3'",
    ],
)
def test_a_condition_on_keys_reaches_the_scan(
    spark: SparkSession, clicks: Path, query: str
) -> None:
    query = query.replace("{M}", RISES)
    (scan,) = scans(sql(spark, query))
    assert "EqualTo(user,u3)" in scan["PushedFilters"]
    found, expected = both_ways(spark, query)
    assert found == expected
    assert found
    with set_conf(spark, "spark.cep.pushdown", "off"):
        (scan,) = scans(sql(spark, query))
    assert "PushedFilters" not in scan


def test_a_condition_on_a_measure_stays_behind(spark: SparkSession, clicks: Path) -> None:
    (scan,) = scans(sql(spark, f"SELECT * FROM clicks {RISES} WHERE low = 3"))
    assert "PushedFilters" not in scan


@pytest.mark.parametrize("where", ["1 / key > 2", "CAST(name AS INT) = 1", "name = 1"])
def test_a_condition_that_fails_on_other_partitions_does_not_fail(
    spark: SparkSession, where: str
) -> None:
    with set_conf(spark, "spark.sql.ansi.enabled", "true"):
        found = sql(
            spark,
            f"""SELECT key FROM VALUES (0, 'x', 1), (0, 'x', 2) AS t(key, name, ts)
            MATCH_RECOGNIZE (PARTITION BY key, name ORDER BY ts MEASURES 1 AS one PATTERN (a b)
            DEFINE b AS ts < PREV(ts)) WHERE {where}""",
        )
        assert found.collect() == []


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("CAST(k AS DOUBLE)", "key IN (0.0, 1.0)"),
        ("IF(k = 0, -0.0D, CAST(k AS DOUBLE))", "key = 0"),
        ("IF(k = 0, 'X', 'x') COLLATE UTF8_LCASE", "key LIKE 'X%'"),
        ("map('a', k)", "key IS NOT NULL"),
        ("named_struct('user', k)", "key.user = 1"),
    ],
)
def test_keys_with_several_forms_are_compared_behind(
    spark: SparkSession, key: str, where: str
) -> None:
    query = f"""SELECT n FROM (SELECT {key} AS key, ts FROM VALUES (0, 1), (1, 2), (0, 3), (1, 4)
        AS t(k, ts)) MATCH_RECOGNIZE (PARTITION BY key ORDER BY ts MEASURES count(*) AS n
        PATTERN (a b?) DEFINE b AS ts > PREV(ts)) WHERE {where}"""
    found, expected = both_ways(spark, query)
    assert found == expected


def test_padded_keys_are_compared_behind(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE padded (k CHAR(3), ts INT) USING parquet LOCATION '{tmp_path / 't'}'")
    try:
        spark.sql("INSERT INTO padded VALUES ('a', 1), ('a', 2), ('abc', 1), ('abc', 2)")
        for where in ("k = 'a'", "k <> 'a'", "k = 'a  '", "k LIKE 'a'"):
            found, expected = both_ways(
                spark,
                "SELECT * FROM padded MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES "
                f"count(*) AS n PATTERN (a b) DEFINE a AS TRUE) WHERE {where}",
            )
            assert found == expected, where
    finally:
        spark.sql("DROP TABLE padded")


def test_names_differ_by_case_where_the_session_says_so(spark: SparkSession) -> None:
    with set_conf(spark, "spark.sql.caseSensitive", "true"):
        found, expected = both_ways(
            spark,
            """SELECT * FROM VALUES (1, 7, 1), (1, 8, 2), (2, 8, 3) AS t(key, KEY, ts)
            MATCH_RECOGNIZE (PARTITION BY key ORDER BY ts ALL ROWS PER MATCH PATTERN (a b?)
            DEFINE b AS TRUE) WHERE KEY = 8""",
        )
    assert found == expected
    assert len(found) == 2


def test_a_stream_is_not_filtered(spark: SparkSession, clicks: Path) -> None:
    stream = (
        spark.readStream.schema("user STRING, ts INT, price INT, pad STRING")
        .parquet(str(clicks / "plain"))
        .selectExpr("*", "timestamp_seconds(ts) AS at")
        .withWatermark("at", "1 minute")
    )
    clause = RISES.replace("BY ts", "BY at").replace("(a b+)", "(a b)")
    matches = sql(spark, f"SELECT user FROM {{s}} {clause} WHERE user = 'u1'", s=stream)
    plan = plan_text(matches)
    assert plan.count("= u1") == 1
    assert "pad" in plan[plan.index("= u1") :].split("StreamingRelation")[0]


def test_a_setting_that_there_is_not_is_refused(spark: SparkSession, clicks: Path) -> None:
    with (
        set_conf(spark, "spark.cep.pushdown", "maybe"),
        pytest.raises(cep.PlanError, match=r"spark\.cep\.pushdown is 'maybe'"),
    ):
        sql(spark, f"SELECT * FROM clicks {RISES}")


KEYS = ["key", "day"]
ATOMS = st.one_of(
    st.builds(
        "key {} {}".format,
        st.sampled_from(["=", "<>", "<", ">=", "<=>"]),
        st.sampled_from(["'a'", "'b'", "NULL"]),
    ),
    st.sampled_from(["key IN ('a', NULL)", "key NOT IN ('b')", "key LIKE '_'", "key IS NULL"]),
    st.builds("m.day {} {}".format, st.sampled_from(["=", "<", "<=>"]), st.integers(0, 2)),
    st.sampled_from(["DAY BETWEEN 1 AND 2", "day IS NOT NULL", "n > 1", "n IS NULL", "n = day"]),
)
WHERE = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)
ROWS_PER_MATCH = st.sampled_from(
    [
        "ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
    ]
)  # fmt: skip
SKIP = st.sampled_from(
    ["PAST LAST ROW", "TO NEXT ROW", "TO LAST b", "TO FIRST b"],
)
SHAPES = st.sampled_from(
    [
        "SELECT * FROM events {M} AS m WHERE {W}",
        "SELECT m.key, m.n FROM events {M} AS m JOIN events e ON e.key = m.key WHERE {W}",
        "SELECT key, n FROM (SELECT key, day, n FROM events {M} AS m) m WHERE {W}",
        "SELECT e.x, m.n FROM events e LEFT JOIN (SELECT * FROM events {M}) m ON {W}",
    ]
)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> Iterator[None]:
    df = spark.range(60).selectExpr(
        "element_at(array('a', 'b', NULL, 'c'), CAST(id % 4 AS INT) + 1) AS key",
        "nullif(CAST(id % 3 AS INT), 2) AS day",
        "CAST(id AS INT) AS ts",
        "CAST(pmod(xxhash64(id), 5) AS INT) AS x",
    )
    df.coalesce(1).cache().createOrReplaceTempView("events")
    yield
    spark.catalog.dropTempView("events")


@pytest.mark.slow
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(WHERE, st.tuples(ROWS_PER_MATCH, SKIP), SHAPES)
def test_pushdown_does_not_change_the_answer(
    spark: SparkSession, events: None, where: str, mode: tuple[str, str], shape: str
) -> None:
    per_match, skip = mode
    clause = f"""MATCH_RECOGNIZE (PARTITION BY key, day ORDER BY ts
        MEASURES count(*) AS n, LAST(b.x) AS last_x {per_match} AFTER MATCH SKIP {skip}
        PATTERN (a b+ c?) DEFINE b AS x >= PREV(x), c AS x < PREV(x))"""
    if "JOIN" in shape:
        where = re.sub(r"(?<!\.)\b(key|day|n)\b", r"m.\1", where, flags=re.I)
    query = shape.replace("{M}", clause).replace("{W}", where)
    with set_conf(spark, "spark.cep.buckets", "1"):
        found, expected = both_ways(spark, query)
    assert found == expected


# ---- measures ------------------------------------------------------------------------------------


def test_a_measure_that_nobody_reads_is_not_computed(spark: SparkSession, clicks: Path) -> None:
    query = f"SELECT m.user, m.low FROM clicks {RISES} AS m"
    df = sql(spark, query)
    (scan,) = scans(df)
    assert scan["ReadSchema"] == "struct<user:string,ts:int,price:int>"
    assert "low" in str(cep.plan_of(df))
    assert "LAST(b.pad)" not in str(cep.plan_of(df))
    found, expected = both_ways(spark, query)
    assert found == expected
    (scan,) = scans(sql(spark, f"SELECT count(*) FROM clicks {RISES}"))
    assert scan["ReadSchema"] == "struct<user:string,ts:int,price:int>"


def test_an_event_pattern_keeps_one_measure(spark: SparkSession, clicks: Path) -> None:
    clause = """MATCH_RECOGNIZE (PARTITION BY user ORDER BY ts
        MEASURES a.price AS low, b.pad AS pad PATTERN SEQ(a, b) WITHIN 20
        DEFINE a AS kind = 'A', b AS kind = 'C')"""
    for query in (f"SELECT count(*) FROM clicks {clause}", f"SELECT user FROM clicks {clause}"):
        (scan,) = scans(sql(spark, query))
        assert "pad" not in scan["ReadSchema"]
        found, expected = both_ways(spark, query)
        assert found == expected


def test_mistakes_in_measures_that_nobody_reads_are_reported(
    spark: SparkSession, clicks: Path
) -> None:
    clause = RISES.replace("LAST(b.pad)", "LAST(b.pda)")
    with pytest.raises(cep.PatternError, match="pda"):
        sql(spark, f"SELECT user FROM clicks {clause}")


# ---- event patterns and scans --------------------------------------------------------------------

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B' AND price > 40")).within(50)


def test_conditions_of_an_event_pattern_reach_the_scan(spark: SparkSession, clicks: Path) -> None:
    df = spark.read.parquet(str(clicks / "plain"))
    matches = df.match_pattern(PAIR, order_by="ts", partition_by="user", measures={"p": "b.price"})
    (scan,) = scans(matches)
    assert "Or(EqualTo(kind,A),And(EqualTo(kind,B),GreaterThan(price,40)))" in scan["PushedFilters"]
    assert scan["ReadSchema"] == "struct<user:string,ts:int,price:int,kind:string>"


def test_conditions_of_an_event_pattern_choose_partitions(
    spark: SparkSession, clicks: Path
) -> None:
    df = spark.read.parquet(str(clicks / "by_kind"))
    negated = no(event("x", "kind = 'C'"))
    (scan,) = scans(df.match_pattern(seq("a", negated, "b").within(50), order_by="ts"))
    assert "PartitionFilters" not in scan
    pattern = seq(event("a", "kind = 'A'"), negated, event("b", "kind = 'B'"))
    matches = df.match_pattern(pattern.within(50), order_by="ts", partition_by="user")
    (scan,) = scans(matches)
    assert all(f"= {kind})" in scan["PartitionFilters"] for kind in "ABC")
    plain = spark.read.parquet(str(clicks / "plain"))
    expected = plain.match_pattern(pattern.within(50), order_by="ts", partition_by="user")
    assert rows(matches.selectExpr("user", "a.ts", "b.ts")) == rows(
        expected.selectExpr("user", "a.ts", "b.ts")
    )


def test_a_condition_that_can_fail_is_not_tested_before_its_guard(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT * FROM VALUES (1, 'A', '7'), (2, 'X', 'no'), (3, 'B', '8') r(t, kind, s)"
    )
    guarded = event("a", "kind = 'A' AND CAST(s AS INT) > 3")
    with set_conf(spark, "spark.sql.ansi.enabled", "true"):
        matches = df.match_pattern(seq(guarded, event("b", "kind = 'B'")), order_by="t")
        assert matches.count() == 1


# ---- exchanges and limits ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM clicks {M} UNION ALL SELECT * FROM clicks {N}",
        "SELECT x.n, y.n FROM clicks {M} AS x JOIN clicks {N} AS y ON x.user = y.user "
        "WHERE length(x.pad) = length(y.pad) AND x.low >= y.low",
    ],
)
def test_patterns_over_the_same_columns_share_one_exchange(
    spark: SparkSession, clicks: Path, query: str
) -> None:
    other = RISES.replace("price >", "price <")
    df = sql(spark, query.replace("{M}", RISES).replace("{N}", other))
    df.collect()
    assert "ReusedExchange" in plan_text(df)


def count_tasks(spark: SparkSession, action: Callable[[], object]) -> int:
    """The tasks that run for an action."""
    scala: Any = spark.sparkContext._jsc.sc()

    def tasks() -> int:
        scala.listenerBus().waitUntilEmpty()
        jobs = scala.statusStore().jobsList(None)
        return sum(jobs.apply(at).numCompletedTasks() for at in range(jobs.size()))

    before = tasks()
    action()
    return tasks() - before


@pytest.mark.parametrize("pattern", ["(a b)", "SEQ(a, b) WITHIN 100"])
def test_a_limit_stops_before_the_other_buckets(
    spark: SparkSession, clicks: Path, pattern: str
) -> None:
    clause = f"""MATCH_RECOGNIZE (PARTITION BY user ORDER BY ts MEASURES b.price AS p
        PATTERN {pattern} DEFINE b AS b.price > 1)"""
    with set_conf(spark, "spark.cep.buckets", "12"):
        some = sql(spark, f"SELECT * FROM clicks {clause} LIMIT 1")
        every = sql(spark, f"SELECT * FROM clicks {clause}")
        limited = count_tasks(spark, some.collect)
        whole = count_tasks(spark, every.collect)
    assert some.count() == 1
    # Of the twelve buckets one, or five if the first has no match.
    assert limited <= whole - 12 + 5
