"""Remote data in the measures of event patterns: looked up on the matches, behind the engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import event, seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PATTERN = (
    seq(event("a", "kind = 'A'"), event("b*", "kind = 'B'"), event("c", "kind = 'C'"))
    .within("10 seconds")
    .strategy("strict")
)


def payments(spark: SparkSession) -> DataFrame:
    return spark.sql(
        """SELECT id, timestamp_seconds(id) AS ts, kind, org, amount FROM VALUES
        (0, 'A', 'x', 10.0D), (1, 'B', 'y', 1.0D), (2, 'C', 'y', 50.0D),
        (3, 'A', NULL, 7.0D), (4, 'C', 'z', 3.0D)
        t(id, kind, org, amount)"""
    )


def limits() -> cep.Remote:
    known = {"x": {"max": 5.0, "who": ["u", "v"]}, "y": {"max": 40.0, "who": []}}
    return cep.Remote.fetch(
        lambda keys: {key: known[key] for key in keys if key in known},
        "struct<max: double, who: array<string>>",
    )


def measured(spark: SparkSession, remotes: Any = None, **measures: str) -> list[Any]:
    found = payments(spark).match_pattern(
        PATTERN, order_by="ts", measures=measures, remotes=remotes or {"limits": limits()}
    )
    return [tuple(row) for row in found.orderBy(found.columns[0]).collect()]


def test_a_value_stands_in_any_expression(spark: SparkSession) -> None:
    found = measured(
        spark,
        id="a.id",
        over="c.amount - remote('limits', c.org).max",
        filled="coalesce(remote('LIMITS', a.org).max, 0) + 1",
        has="exists(remote('limits', a.org).who, w -> w = 'u')",
        longest="size(remote('limits', upper(lower(first(b.org)))).who)",
        lists="transform(b.amount, x -> x + remote('limits', c.org).max)",
    )
    assert found == [
        (0, 10.0, 6.0, True, None, [41.0]),
        (3, None, 1.0, None, None, []),
    ]


def test_a_key_may_be_made_of_several_variables_and_the_bounds(spark: SparkSession) -> None:
    between = cep.Remote.fetch(
        lambda keys: {key: f"{key[0]}-{key[1]} {key[2].second}" for key in keys}, "string"
    )
    found = measured(
        spark, {"between": between}, id="a.id", m="remote('between', a.org, c.org, match_end)"
    )
    assert found == [(0, "x-y 2"), (3, None)]


def test_a_table_is_joined_to_the_matches(spark: SparkSession) -> None:
    table = spark.sql("SELECT * FROM VALUES ('x', 1, 2), ('y', 3, 4) t(org, low, high)")
    found = measured(
        spark,
        {"bounds": cep.Remote.table(table, "org", ["low", "high"])},
        id="a.id",
        low="remote('bounds', a.org).low",
        high="remote('bounds', c.org).high",
    )
    assert found == [(0, 1, 4), (3, None, None)]


def test_a_table_with_a_key_twice_ends_the_query(spark: SparkSession) -> None:
    table = spark.sql("SELECT * FROM VALUES ('x', 1), ('x', 2) t(org, low)")
    remotes = {"bounds": cep.Remote.table(table, "org", "low")}
    with pytest.raises(Exception, match="two rows for one org") as raised:
        measured(spark, remotes, m="remote('bounds', a.org)")
    assert isinstance(cep.error_of(raised.value), cep.RemoteError)


def test_conditions_that_spark_tests_last_keep_keys_from_being_computed(
    spark: SparkSession,
) -> None:
    seen = cep.Remote.fetch(lambda keys: {key: key for key in keys}, "bigint")
    pattern = seq("a", "c").where("concat(a.kind, c.kind) = 'AC'").within("1 second")
    matches = payments(spark).match_pattern(
        pattern,
        order_by="ts",
        measures={"k": "remote('seen', CAST(assert_true(a.kind = 'A') IS NULL AS INT) + a.id)"},
        remotes={"seen": seen},
    )
    assert [row.k for row in matches.collect()] == [4]


def test_metrics_and_explain_tell_of_the_lookups(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = payments(spark).match_pattern(
        PATTERN,
        order_by="ts",
        measures={"over": "c.amount - remote('limits', c.org).max"},
        remotes={"limits": limits()},
    )
    assert matches.count() == 2
    counted = cep.metrics(matches)
    assert (counted["matches"], counted["complete"]) == (2, True)
    assert (counted["remotes"]["limits"]["calls"], counted["remotes"]["limits"]["keys"]) == (1, 2)
    (told,) = cep.plan_of(matches).to_dict()["remotes"]
    (place,) = told["places"]
    assert (place["where"], place["how"]) == ("on the matches", "fetched by c.org for the measures")
    assert place["requests"][0]["when"] == "four batches ahead of the matches that are handed on"
    cep.explain(matches, mode="analyze")
    assert "1 call for 2 keys: 2 used, 0 in vain" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("remote('limts', a.org)", "there is no remote source 'limts'", "did you mean 'limits'"),
        ("remote('limits', b.org)", "of type array", "first\\(b.org\\)"),
        (
            "transform(b.org, o -> remote('limits', o))",
            "the key of 'limits' depends on the lambda argument o",
            "first\\(b.org\\)",
        ),
        ("remote('limits', remote('limits', a.org))", "contains a call of remote", "join one"),
        ("remote('limits', a.organ)", "the input has no column organ", "org"),
        ("remote('limits', a.org).most", "most", None),
    ],
)
def test_what_cannot_be_looked_up_is_refused_with_a_hint(
    spark: SparkSession, text: str, says: str, hint: str | None
) -> None:
    with pytest.raises(cep.PatternError, match=says) as raised:
        measured(spark, m=text)
    if hint is not None:
        assert raised.match(hint)


def test_a_variable_may_be_called_like_the_counts(spark: SparkSession) -> None:
    pattern = seq(event("metrics", "kind = 'A'"), event("p0", "kind = 'C'")).within("10 seconds")
    matches = payments(spark).match_pattern(
        pattern,
        order_by="ts",
        measures={"m": "remote('limits', metrics.org).max", "n": "p0.id"},
        remotes={"limits": limits()},
    )
    assert values(matches.where("m IS NOT NULL").select("m", "n").collect()) == {(5.0, 2), (5.0, 4)}


def values(rows: Iterable[Any]) -> set[Any]:
    return {tuple(row) for row in rows}


def test_a_source_is_not_asked_with_texts_and_numbers(spark: SparkSession) -> None:
    with pytest.raises(cep.PatternError, match="are of types STRING and INT") as said:
        measured(spark, m="remote('limits', a.org).max", n="remote('limits', a.id).max")
    assert said.value.hint == "cast the key in one of them"
