"""Fetched values in conditions, on Spark: by the engine, and before it where it cannot compute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import event, seq
from tests.spark.streams import LAST, Files, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'T'"), event("b", "kind = 'T'")).within(10)
TIMES = {"a": "a.ts", "b": "b.ts"}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """SELECT * FROM VALUES
        (1, 'T', 'u1', 'o1', 'paris', 20.0D), (2, 'T', 'u1', 'o1', 'rome', 30.0D),
        (3, 'D', 'u1', 'o1', 'rome',   0.0D), (4, 'T', 'u1', 'o1', 'oslo', 40.0D),
        (5, 'T', 'u2', 'o2', 'rome',  20.0D), (6, 'T', 'u2', NULL, 'paris', 20.0D),
        (7, 'T', 'u3', 'o1', 'rome',  90.0D)
        AS t(ts, kind, user, org, loc, vol)"""
    )


def source(values: dict[Any, Any], value_type: str, **options: Any) -> cep.Remote:
    def fetch(keys: list[Any]) -> dict[Any, Any]:
        return {key: values[key] for key in keys if key in values}

    return cep.Remote.fetch(fetch, value_type, **options)


LIMITS = {"o1": 25.0, "o2": 10.0}
PLACES = {"u1": ["paris", "rome"], "u2": ["rome"]}
INFO = {"o1": {"max": 25.0, "region": "eu"}, "o2": {"max": 10.0, "region": None}}


def found(rows: DataFrame, pattern: Any, **options: Any) -> list[tuple[Any, ...]]:
    answer = rows.match_pattern(pattern, order_by="ts", **options)
    return sorted((tuple(row) for row in answer.collect()), key=str)


STRATEGIES = ("auto", "blocking", "cached", "post", "prefetch", "lazy", "hybrid")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gives_the_same_answer(rows: DataFrame, strategy: Any) -> None:
    pattern = PAIR.where("b.vol > remote('l', a.org) AND b.loc NOT IN remote('p', a.user)")
    remotes = {
        "l": source(LIMITS, "double", strategy=strategy),
        "p": source(PLACES, "array<string>", strategy=strategy),
    }
    assert found(rows, pattern, remotes=remotes, measures=TIMES) == [(1, 4), (2, 4), (5, 6)]


def test_fields_of_structs_are_read_where_they_are_fetched(rows: DataFrame) -> None:
    pattern = PAIR.where("b.vol >= remote('i', a.org).max", "remote('i', a.org).region IS NULL")
    remotes = {"i": source(INFO, "struct<max: double, region: string>")}
    given = found(rows, pattern, remotes=remotes, measures=TIMES)
    assert given == [(5, 6), (5, 7)]


def test_what_the_engine_does_not_compute_is_looked_up_before(rows: DataFrame) -> None:
    pattern = seq(event("a", "upper(remote('i', org).region) LIKE 'E%' AND vol > 20")).within(10)
    remotes = {"i": source(INFO, "struct<max: double, region: string>")}
    given = found(rows, pattern, remotes=remotes, measures={"a": "a.ts"})
    assert given == [(2,), (4,), (7,)]


def test_a_fetched_table_and_a_joined_one_stand_side_by_side(
    spark: SparkSession, rows: DataFrame
) -> None:
    table = cep.Remote.table(spark.sql("VALUES ('o1', 'eu'), ('o2', 'us') AS t(o, r)"), "o", "r")
    pattern = PAIR.where("remote('t', b.org) = 'us'", "b.vol > remote('l', b.org)")
    remotes = {"t": table, "l": source(LIMITS, "double")}
    given = found(rows, pattern, remotes=remotes, measures=TIMES)
    assert given == [(1, 5), (2, 5), (4, 5)]


def test_keys_of_several_variables_and_of_lists(rows: DataFrame) -> None:
    fees = {("u1", "oslo"): 35.0, ("u1", "rome"): 100.0}
    pattern = PAIR.where("b.vol > remote('f', a.user, b.loc)")
    remotes = {"f": source(fees, "double")}
    assert found(rows, pattern, remotes=remotes, measures=TIMES) == [(1, 4), (2, 4)]
    many = seq(event("a+", "kind = 'T'"), event("d", "kind = 'D'")).within(10)
    many = many.where("remote('l', last(a.org)) > 20")
    given = found(rows, many, remotes={"l": source(LIMITS, "double")}, measures={"n": "count(a)"})
    assert given == [(1,), (1,), (2,)]


def test_under_skip_till_next_match_a_run_waits_for_the_value(rows: DataFrame) -> None:
    pattern = PAIR.where("b.vol > remote('l', a.org)").strategy("skip till next match")
    remotes = {"l": source(LIMITS, "double", strategy="hybrid")}
    given = found(rows, pattern, remotes=remotes, measures=TIMES)
    assert given == [(1, 2), (2, 4), (4, 7), (5, 6)]


def test_a_negated_variable_is_asked_for_too(rows: DataFrame) -> None:
    pattern = seq(event("a", "kind = 'T'"), "!n", event("b", "kind = 'T'")).within(10)
    pattern = pattern.where("n.ts = n.ts AND n.vol > remote('l', a.org)")
    given = found(rows, pattern, remotes={"l": source(LIMITS, "double")}, measures=TIMES)
    assert given == [(1, 2), (2, 4), (4, 5), (4, 6), (4, 7), (5, 6), (6, 7)]


def test_a_source_that_fails_ends_the_query_or_gives_null(rows: DataFrame) -> None:
    def fails(keys: list[Any]) -> dict[Any, Any]:
        raise ConnectionError("no route to host")

    pattern = PAIR.where("b.vol > remote('l', a.org)")
    for show_errors in (False, True):
        broken = cep.Remote.fetch(fails, "double", retries=0, show_errors=show_errors)
        with pytest.raises(Exception, match="1 attempt: ConnectionError") as caught:
            found(rows, pattern, remotes={"l": broken})
        assert isinstance(cep.error_of(caught.value), cep.RemoteError)
        assert ("no route to host" in str(caught.value)) == show_errors
    silent = cep.Remote.fetch(fails, "double", retries=0, on_error="null")
    assert found(rows, pattern, remotes={"l": silent}) == []


def test_a_value_type_that_spark_does_not_read_is_said(rows: DataFrame) -> None:
    with pytest.raises(cep.PatternError, match="value_type of the remote 'l', 'dubble'"):
        found(rows, PAIR.where("b.vol > remote('l', a.org)"), remotes={"l": source({}, "dubble")})


@pytest.mark.parametrize("strategy", ["hybrid", "prefetch"])
def test_a_stream_goes_on_from_its_checkpoint_with_a_new_function(
    spark: SparkSession, tmp_path: Path, strategy: Any
) -> None:
    files = Files(tmp_path / "in")
    pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within("1 minute")
    pattern = pattern.where("b.x > remote('l', a.k)")

    def run(remote: cep.Remote) -> list[tuple[Any, ...]]:
        matches = files.stream(spark).match_pattern(
            pattern, order_by="ts", partition_by="k", remotes={"l": remote}
        )
        writer = matches.selectExpr("a.u AS a", "b.u AS b").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        return sorted(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect()))

    with small(spark):
        files.put([(0, 1, "A", 5, 0), (1, 2, "A", 5, 1)])
        assert run(source({1: 7, 2: 10}, "bigint")) == []
        files.put([(2, 1, "B", 9, 2), (3, 2, "B", 9, 3)])
        files.put([LAST])
        again = source({1: 7, 2: 10, 3: 0}, "bigint", strategy=strategy, timeout=3)
        assert run(again) == [(0, 2)]


def test_sql_takes_sources_with_a_statement_or_with_the_session(
    spark: SparkSession, rows: DataFrame
) -> None:
    rows.createOrReplaceTempView("remote_rows")
    text = """
        SELECT * FROM remote_rows MATCH_RECOGNIZE (
          ORDER BY ts
          MEASURES a.ts AS a, b.ts AS b
          PATTERN SEQ(a, b)
          WITHIN 10
          DEFINE a AS kind = 'T', b AS kind = 'T' AND vol > remote('l', a.org)
            AND loc NOT IN remote('p', a.user)
        )
    """
    remotes = {"l": source(LIMITS, "double"), "p": source(PLACES, "array<string>")}
    given = cep.sql(spark, text, remotes=remotes)
    assert sorted(map(tuple, given.collect())) == [(1, 4), (2, 4), (5, 6)]
    with pytest.raises(cep.PatternError, match="there is no remote source 'p'"):
        cep.sql(spark, text, remotes={"l": remotes["l"]})
    with pytest.raises(cep.PatternError, match="uses the remote 'x'"):
        cep.sql(spark, "SELECT 1", remotes={"x": remotes["l"]})


def test_an_installed_session_has_its_sources(spark: SparkSession, rows: DataFrame) -> None:
    other = spark.newSession()
    cep.install(other, remotes={"l": source(LIMITS, "double"), "unused": source({}, "int")})
    other.createDataFrame(rows.collect()).createOrReplaceTempView("remote_rows")
    text = """SELECT * FROM remote_rows MATCH_RECOGNIZE (
        ORDER BY ts MEASURES a.ts AS a PATTERN SEQ(a) DEFINE a AS vol > remote('l', org))"""
    assert sorted(row[0] for row in other.sql(text).collect()) == [2, 4, 5, 7]
    with pytest.raises(cep.PatternError, match=r"no remote source 'll'(.|\n)*did you mean 'l'"):
        other.sql(text.replace("'l'", "'ll'"))


def test_the_papers_fraud_query_runs_as_it_is_printed(spark: SparkSession) -> None:
    rows = spark.sql(
        """SELECT * FROM VALUES
        (0, 'T', 7, 20000, 'Rome', NULL, 'ACME', 'ann', 'X'),
        (60, 'D', 7, 90000, 'Oslo', NULL, 'ACME', 'ann', 'X'),
        (90, 'L', 7, NULL, NULL, 900, NULL, 'ann', 'X'),
        (120, 'T', 7, 15000, 'Oslo', NULL, 'ACME', 'ann', 'X'),
        (180, 'T', 7, 11000, 'Lima', NULL, 'ACME', 'ann', 'X'),
        (240, 'T', 7, 60000, 'Oslo', NULL, 'Evil', 'ann', 'X'),
        (270, 'T', 8, 60000, 'Lima', NULL, 'Evil', 'bob', 'X')
        AS t(s, type, cc, vol, loc, limit, ben, user, org)"""
    ).selectExpr("timestamp_seconds(s) AS ts", "*")
    pattern = cep.sase(
        """
        SEQ(T t1, (SEQ(D d, T t2) OR SEQ(L l, T t3)))
        WHERE SAME[cc] AND t1.vol > 10k AND t2.vol > 10k
        AND t1.loc <> t2.loc AND (t2.loc NOT IN REMOTE[t1.user])
        AND l.limit > REMOTE[t1.org]
        AND t3.vol > 50k AND (t3.ben NOT IN REMOTE[t3.org])
        WITHIN 5min
        """,
        type_column="type",
    )
    table = spark.sql("VALUES ('X', 500) AS t(org, highest)")
    answer = rows.match_pattern(
        pattern,
        order_by="ts",
        measures={"first": "t1.s", "denied": "t2.loc", "raised": "t3.ben"},
        remotes={
            "user": source({"ann": ["Rome", "Oslo"]}, "array<string>"),
            "t1_org": cep.Remote.table(table, "org", "highest"),
            "t3_org": source({"X": ["ACME"]}, "array<string>"),
        },
    )
    assert {tuple(row) for row in answer.collect()} == {(0, "Lima", None), (0, None, "Evil")}
