"""Policies that drop partial matches: a part of the full answer, the same one however rows lie and
are divided, with figures of what was dropped; and the patterns that they are refused for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import Shed, event, no, seq
from tests.spark.streams import Files, drained, small
from tests.spark.test_shedding_streams import (
    KEYED,
    MEASURES,
    RISING,
    progress,
    written,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_cep.udfs.shedding.utility import SheddingPolicy

pytestmark = pytest.mark.spark

POLICIES: tuple[SheddingPolicy, ...] = ("hspice", "pspice", "random-partials")
policies = pytest.mark.parametrize("policy", POLICIES)
A, B, C = (event(each, f"kind = '{each.upper()}'") for each in "abc")
CHAIN = seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(60)
OPTIONS: dict[str, Any] = {"partition_by": "k", "order_by": "t"}
Matches = Counter[tuple[int, ...]]


@pytest.fixture(scope="module")
def stock(spark: SparkSession) -> Iterator[DataFrame]:
    df = spark.range(0, 8_000, 1, 2).selectExpr(
        "CAST(id AS INT) AS t",
        "substr('ABC', CAST(1 + pmod(xxhash64(id, 'kind'), 3) AS INT), 1) AS kind",
        "pmod(xxhash64(id, 'x'), 100000) / 100000D AS x",
        "CAST(pmod(xxhash64(id, 'k'), 2) AS STRING) AS k",
    )
    df = df.cache()
    yield df
    df.unpersist()


def matched(df: DataFrame, shed: Shed | None, **more: Any) -> DataFrame:
    return cep.match_pattern(df, CHAIN, **OPTIONS, shed=shed, **more)


def rows(matches: DataFrame) -> Matches:
    return Counter(tuple(row) for row in matches.selectExpr("a.t", "b.t", "c.t").collect())


@policies
def test_the_share_of_the_pairs_stays_and_what_is_told_is_what_was_kept(
    stock: DataFrame, policy: SheddingPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    # By the order of the sample's plan, without shedding.
    everything = matched(stock, Shed(keep=1.0, policy=policy))
    full = rows(everything)
    assert full == rows(matched(stock, None))
    whole = cep.metrics(everything)
    answer = matched(stock, Shed(keep=0.4, policy=policy))
    kept = rows(answer)
    found = cep.metrics(answer)
    assert not kept - full
    assert found["pairs"] / whole["pairs"] == pytest.approx(0.4, rel=0.1)
    assert found["estimated_recall"] == pytest.approx(kept.total() / full.total(), abs=0.06)
    assert found["dropped_pairs" if policy == "hspice" else "dropped_partials"] > 0
    assert "dropped_pairs" not in whole
    capsys.readouterr()
    cep.explain(answer)
    cep.explain(answer, mode="analyze")
    text = capsys.readouterr().out
    assert f"keep 40%, by {policy}" in text
    assert "40%: of the pairs of a partial match and a row" in text
    assert "drops " in text
    assert " pairs were tested" in text
    assert " matches of a sample; estimated ≈ " in text


@pytest.mark.parametrize("policy", ["hspice", "pspice"])
def test_the_answer_is_the_same_however_rows_lie_and_are_divided(
    spark: SparkSession, stock: DataFrame, policy: SheddingPolicy
) -> None:
    how = Shed(keep=0.4, policy=policy, seed=3)
    expected = rows(matched(stock, how))
    assert expected
    assert rows(matched(stock.repartition(5), how)) == expected
    assert rows(matched(stock.orderBy(F.desc("x")).coalesce(1), how)) == expected
    for name, value in (("spark.cep.buckets", "1"), ("spark.cep.buckets", "7"),
                        ("spark.cep.slices", "on")):  # fmt: skip
        spark.conf.set(name, value)
        try:
            assert rows(matched(stock, how)) == expected
        finally:
            spark.conf.unset(name)
    assert rows(matched(stock, Shed(keep=0.4, policy=policy, seed=4))) != expected


def test_a_latency_leaves_as_much_work_as_there_is_time_for(stock: DataFrame) -> None:
    enough = matched(stock, Shed(latency="1 hour", policy="pspice"))
    assert cep.plan_of(enough).to_dict()["shedding"]["share"] == 1
    hurried = matched(stock, Shed(latency="4 milliseconds", policy="pspice"))
    assert cep.plan_of(hurried).to_dict()["shedding"]["share"] < 1
    assert not rows(hurried) - rows(enough)


def test_a_stream_drops_in_the_engine_and_gives_each_match_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with small(spark):
        stream = written(tmp_path, [1000] * 3).stream(spark)
        whole, _ = drained(stream.match_pattern(RISING, **KEYED, measures=MEASURES))
        shed = Shed(keep=0.4, policy="hspice")
        given, query = drained(stream.match_pattern(RISING, **KEYED, measures=MEASURES, shed=shed))
    found = given.collect()
    assert len(set(found)) == len(found) > 0
    assert set(found) < set(whole.collect())
    # The first trigger drops partial matches at random, as nothing is known.
    assert all(each["dropped_pairs"] > 0 for each in progress(query)[1:3])


def test_a_history_shows_what_partial_matches_are_worth(
    spark: SparkSession, tmp_path: Path
) -> None:
    with small(spark):
        files: Files = written(tmp_path, [2000])
        stream = files.stream(spark)
        shed = Shed(keep=0.4, policy="pspice", history=files.batch(spark))
        matches = stream.match_pattern(RISING, **KEYED, measures=MEASURES, shed=shed)
        _, query = drained(matches)
    first = progress(query)[0]
    assert first["dropped_partials"] > 0
    assert first["estimated_recall"] is not None


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "options", "message", "hint"),
    [
        (seq(A).within(9), {}, "complete with its first part", 'policy="random"'),
        (seq(seq(A, B).times("+"), C).within(9), {}, "the repeated group of a, b",
         "repeat single events"),
        (CHAIN, {"plan": "tree"}, "needs a plan that binds the variables in one order, "
         "which 'tree' does not", 'plan="lazy-chain"'),
        (CHAIN, {"plan": "zstream"}, "which 'zstream' does not", 'plan="lazy-chain"'),
        (CHAIN, {"plan": cep.plans.hybrid(eager=["a"], lazy=["b", "c"])}, "which 'hybrid' does not",
         'plan="lazy-chain"'),
        (CHAIN.strategy("skip till next match"), {}, "the strategy 'skip till next match'",
         "skip till any match"),
    ],
)  # fmt: skip
def test_what_has_no_states_is_refused_before_any_job(
    spark: SparkSession, pattern: Any, options: dict[str, Any], message: str, hint: str
) -> None:
    failing = spark.range(4).selectExpr(
        "CAST(raise_error('a job ran') AS INT) AS t", "'A' AS kind", "id AS x", "id AS k"
    )
    for policy in POLICIES:
        shed = Shed(keep=0.3, policy=policy)
        with pytest.raises(cep.PlanError) as raised:
            cep.match_pattern(failing, pattern, **OPTIONS, **options, shed=shed)
        assert message in raised.value.message
        assert hint in (raised.value.hint or "")


def test_conditions_that_a_sample_does_not_test_are_refused(stock: DataFrame) -> None:
    cep.udf(lambda x, y: abs(x - y) < 1, "boolean", name="nearly")
    pattern = seq(A, B).where("nearly(a.x, b.x)").within(9)
    with pytest.raises(cep.PlanError, match="functions of the user are not tested"):
        cep.match_pattern(stock, pattern, **OPTIONS, shed=Shed(keep=0.3, policy="hspice"))


def test_a_not_loses_none_of_its_rows(stock: DataFrame) -> None:
    pattern = seq(A, no(event("x", "kind = 'C'")), B).within(30)
    full = Counter(
        tuple(row)
        for row in cep.match_pattern(stock, pattern, **OPTIONS).selectExpr("a.t", "b.t").collect()
    )
    for policy in POLICIES:
        kept = cep.match_pattern(stock, pattern, **OPTIONS, shed=Shed(keep=0.5, policy=policy))
        found = Counter(tuple(row) for row in kept.selectExpr("a.t", "b.t").collect())
        assert found
        assert not found - full
