"""Remote tables on Spark: joined to the input, or in every worker where the key is of several
variables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import event, seq
from tests.spark.streams import LAST, Files, drained, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

T, D = event("a", "kind = 'T'"), event("d", "kind = 'D'")
PAIR = seq(event("a", "kind = 'T'"), event("b", "kind = 'T'")).within(10)
TIMES = {"a": "a.ts", "b": "b.ts"}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """SELECT * FROM VALUES
        (1, 'T', 'u1', 'o1', 'paris', 20.0D, '10'), (2, 'T', 'u1', 'o1', 'rome', 30.0D, '20'),
        (3, 'D', 'u1', 'o1', 'rome',   0.0D, 'x'),  (4, 'T', 'u1', 'o1', 'oslo', 40.0D, '30'),
        (5, 'T', 'u2', 'o2', 'rome',  20.0D, '10'), (6, 'T', 'u2', NULL, 'paris', 20.0D, '10'),
        (7, 'T', 'u3', 'o1', 'rome',  90.0D, '10')
        AS t(ts, kind, user, org, loc, vol, payload)"""
    )


@pytest.fixture
def places(spark: SparkSession) -> cep.Remote:
    table = spark.sql("VALUES ('u1', array('paris', 'rome')), ('u2', array('rome')) AS t(u, p)")
    return cep.Remote.table(table, "u", "p")


@pytest.fixture
def limits(spark: SparkSession) -> cep.Remote:
    table = spark.sql(
        "VALUES ('o1', 25.0D, 'eu'), ('o2', 10.0D, 'us'), (NULL, 0.0D, '?'), (NULL, 1.0D, '?') "
        "AS t(org, max, region)"
    )
    return cep.Remote.table(table, "org")


def found(rows: DataFrame, pattern: Any, **options: Any) -> list[tuple[Any, ...]]:
    answer = rows.match_pattern(pattern, order_by="ts", **options)
    return sorted((tuple(row) for row in answer.collect()), key=str)


def test_a_field_of_a_tables_row_is_a_condition_on_one_row(
    rows: DataFrame, limits: cep.Remote
) -> None:
    pattern = seq(event("a", "remote('l', org).max < vol AND remote('l', org).region = 'eu'"))
    given = found(rows, pattern.within(10), remotes={"l": limits}, measures={"a": "a.ts"})
    assert given == [(2,), (4,), (7,)]


def test_an_unknown_key_is_null_and_so_is_not_in(rows: DataFrame, places: cep.Remote) -> None:
    pattern = PAIR.where("b.loc NOT IN remote('p', a.user)")
    assert found(rows, pattern, remotes={"p": places}, measures=TIMES) == [
        (1, 4), (2, 4), (5, 6),
    ]  # fmt: skip
    open_ = PAIR.where("b.user = 'u3' AND b.loc NOT IN coalesce(remote('p', b.user), array())")
    assert len(found(rows, open_, remotes={"p": places}, measures=TIMES)) == 5


def test_no_row_is_lost_and_none_comes_twice(rows: DataFrame, limits: cep.Remote) -> None:
    pattern = seq(event("a", "remote('l', org) IS NULL OR remote('l', org).max > 0")).within(10)
    given = found(rows, pattern, remotes={"l": limits}, measures={"a": "a.ts"})
    assert given == [(n,) for n in range(1, 8)]


@pytest.mark.parametrize("options", [{}, {"rows": "all"}])
def test_what_was_looked_up_is_not_shown(rows: DataFrame, limits: cep.Remote, options: Any) -> None:
    pattern = PAIR.where("remote('l', a.org).region LIKE substr(concat('e', b.loc), 1, 1) || '%'")
    answer = rows.match_pattern(pattern, order_by="ts", remotes={"l": limits}, **options)
    assert "__cep" not in answer.schema.simpleString()
    assert answer.filter("true").count() == 12 * (2 if options else 1)


def test_a_key_that_fails_on_other_rows_is_not_computed_there(
    spark: SparkSession, rows: DataFrame
) -> None:
    codes = cep.Remote.table(spark.sql("VALUES (10, 5), (20, 0) AS t(k, v)"), "k", "v")
    text = "kind = 'T' AND remote('c', CAST(payload AS INT)) > 1"
    given = found(rows, seq(event("a", text)), remotes={"c": codes}, measures={"a": "a.ts"})
    assert given == [(1,), (5,), (6,), (7,)]
    guarded = "kind <> 'T' OR remote('c', CAST(payload AS INT)) > 1"
    given = found(rows, seq(event("a", guarded)), remotes={"c": codes}, measures={"a": "a.ts"})
    assert given == [(1,), (3,), (5,), (6,), (7,)]


def test_a_key_that_comes_twice_ends_the_query(spark: SparkSession, rows: DataFrame) -> None:
    twice = cep.Remote.table(spark.sql("VALUES ('u1', 5), ('u1', 0) AS t(k, v)"), "k", "v")
    answer = rows.match_pattern(
        seq(event("a", "remote('t', user) > 1")), order_by="ts", remotes={"t": twice}
    )
    with pytest.raises(Exception, match="two rows for one k") as caught:
        answer.collect()
    error = cep.error_of(caught.value)
    assert isinstance(error, cep.RemoteError)
    assert "dropDuplicates(['k'])" in str(error.hint)


@pytest.mark.parametrize("condition", ["remote('t', a.ts) > 1", "remote('t', a.ts + b.ts) > 1"])
def test_keys_that_are_one_key_only_as_they_are_compared_come_twice_too(
    spark: SparkSession, rows: DataFrame, condition: str
) -> None:
    pattern = PAIR.where(condition)
    once = cep.Remote.table(spark.sql("VALUES ('3', 5), ('02', 5) AS t(k, v)"), "k", "v")
    given = found(rows, pattern, remotes={"t": once}, measures=TIMES)
    assert given == ([(1, 2)] if "b." in condition else [(2, 4), (2, 5), (2, 6), (2, 7)])
    twice = cep.Remote.table(spark.sql("VALUES ('3', 5), ('03', 0) AS t(k, v)"), "k", "v")
    with pytest.raises(Exception, match="'t' has two rows for one k, compared as BIGINT"):
        found(rows, pattern, remotes={"t": twice})


def test_a_looked_up_value_may_partition_the_input(rows: DataFrame, limits: cep.Remote) -> None:
    pattern = PAIR.where("remote('l', a.org).region = remote('l', b.org).region")
    given = found(rows, pattern, remotes={"l": limits}, measures=TIMES)
    assert given == [(1, 2), (1, 4), (1, 7), (2, 4), (2, 7), (4, 7)]


def test_a_table_by_the_rows_of_two_variables_is_in_every_worker(
    spark: SparkSession, rows: DataFrame
) -> None:
    table = spark.sql("VALUES ('u1', 'oslo', 5), ('u1', 'rome', 0), ('u2', NULL, 9) AS t(u, l, v)")
    remotes = {"t": cep.Remote.table(table, ["u", "l"], "v")}
    pattern = PAIR.where("remote('t', a.user, b.loc) > 1")
    assert found(rows, pattern, remotes=remotes, measures=TIMES) == [(1, 4), (2, 4)]


def test_a_table_that_is_too_large_for_the_workers_is_refused(
    spark: SparkSession, rows: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_cep.spark.lookups.MOST_BYTES", 1 << 20)
    table = spark.range(200_000).selectExpr("CAST(id AS STRING) AS u", "'x' AS l", "id AS v")
    remotes = {"big": cep.Remote.table(table, ["u", "l"], "v")}
    with pytest.raises(cep.PatternError, match="'big' is too large to send to every worker"):
        found(rows, PAIR.where("remote('big', a.user, b.loc) > 1"), remotes=remotes)


def test_keys_are_equal_as_spark_has_them(spark: SparkSession) -> None:
    numbers = spark.sql(
        "VALUES (1, DOUBLE('NaN'), 1Y), (2, -0.0D, 2Y), (3, NULL, 3Y), (4, 1.5D, 4Y) AS t(ts, x, n)"
    )
    table = spark.sql("VALUES (FLOAT('NaN'), 1), (0.0F, 2), (1.5F, 3) AS t(x, v)")
    remotes = {"t": cep.Remote.table(table, "x", "v")}
    one = seq(event("a", "remote('t', x) > 0"))
    assert found(numbers, one, remotes=remotes, measures={"a": "a.ts"}) == [(1,), (2,), (4,)]
    pair = spark.sql("VALUES (DOUBLE('NaN'), 2L, 1), (0.0D, 4L, 2), (1.5D, NULL, 3) AS t(x, n, v)")
    remotes = {"t": cep.Remote.table(pair, ["x", "n"], "v")}
    two = seq("a", "b").where("remote('t', a.x, b.n) > 0").within(10)
    assert found(numbers, two, remotes=remotes, measures=TIMES) == [(1, 2), (2, 4)]


def test_a_table_stands_beside_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(tmp_path / "in")
    files.put([(0, 1, "A", 5, 0), (1, 1, "B", 9, 1), (2, 2, "A", 5, 2), (3, 2, "B", 9, 3)])
    files.put([LAST])
    table = cep.Remote.table(spark.sql("VALUES (1L, 7L), (2L, 10L) AS t(k, v)"), "k", "v")
    pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B' AND x > remote('t', k)"))
    with small(spark):
        stream = files.stream(spark).match_pattern(
            pattern.within("1 minute"), order_by="ts", partition_by="k", remotes={"t": table}
        )
        given, _ = drained(stream.selectExpr("a.u AS a", "b.u AS b"))
        assert [tuple(row) for row in given.collect()] == [(0, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("remote('l', array(a.org)).max = 1", "but its key column org is STRING"),
        ("remote('l', a.org).mx > 1", "mx"),
        ("remote('l', a.org) > 1", "remote('l', ...) > 1"),
        ("a.loc IN remote('l', a.org).region", "array_contains(remote('l', ...).region, loc)"),
        ("remote('l', a.org, a.loc) IS NULL", "the key of 'l' has 1 part (org)"),
        ("remote('k', a.org) > 1", "there is no remote source 'k'"),
    ],
)
def test_what_a_table_cannot_be_asked_is_said_before_any_job(
    rows: DataFrame, limits: cep.Remote, text: str, message: str
) -> None:
    with pytest.raises(cep.PatternError) as caught:
        found(rows, PAIR.where(text), remotes={"l": limits})
    assert message in str(caught.value)
    assert "^" in str(caught.value)


def test_a_source_that_is_not_used_is_said(rows: DataFrame, limits: cep.Remote) -> None:
    with pytest.raises(cep.PatternError, match="uses the remote 'l'"):
        found(rows, PAIR, remotes={"l": limits})
