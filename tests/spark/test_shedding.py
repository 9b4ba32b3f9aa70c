"""A batch that is shed: as many rows as asked for, the same ones each time, no match invented."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import Shed, event, no, seq
from spark_cep.spark import shedding_sample
from spark_cep.udfs import costs
from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_cep import Pattern

pytestmark = pytest.mark.spark

A, B = event("a", "kind = 'A'"), event("b", "kind = 'B'")
PAIR = seq(A, B).where("a.x + 0.5 < b.x").within(40)
FEW = seq(A, B).where("a.x + 0.9 < b.x").within(40)
Pairs = Counter[tuple[int, int]]


def ticks(spark: SparkSession, rows: int, kinds: str = "AABBC") -> DataFrame:
    """One row a second, of kinds and with values in [0, 1) that hang on the second alone."""
    return spark.range(0, rows, 1, 2).selectExpr(
        "CAST(id AS INT) AS t",
        f"substr('{kinds}', CAST(1 + pmod(xxhash64(id, 'kind'), {len(kinds)}) AS INT), 1) AS kind",
        "pmod(xxhash64(id, 'x'), 100000) / 100000D AS x",
        "CAST(pmod(xxhash64(id, 'k'), 4) AS STRING) AS k",
    )


def shed(df: DataFrame, how: Shed | None, pattern: Pattern = PAIR, **more: Any) -> DataFrame:
    return cep.match_pattern(df, pattern, order_by="t", shed=how, **more)


def pairs(matches: DataFrame) -> Pairs:
    return Counter((row[0], row[1]) for row in matches.selectExpr("a.t", "b.t").collect())


def plan_name(df: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    df.explain()
    found = re.search(r"match_pattern\[.*?\]", capsys.readouterr().out)
    assert found
    return found.group().partition("  #")[0]


@pytest.fixture(scope="module")
def stock(spark: SparkSession) -> Iterator[DataFrame]:
    df = ticks(spark, 6_000).cache()
    yield df
    df.unpersist()


@pytest.fixture(scope="module")
def full(stock: DataFrame) -> Pairs:
    return pairs(shed(stock, None))


# ---- quotas ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "kinds", "how"),
    [
        (3_000, "AAAAAAAAAAAAAAAAAAAABCCCC", Shed(keep=0.1)),
        (8_000, "AABBC", Shed(keep=0.3, policy="keys")),
        (8_000, "AABBC", Shed(keep=0.3, policy="darling")),
        (100_000, "AABBC", Shed(keep=0.7)),
        # All rows are in one level.
        (20_000, "AABBC", Shed(keep=0.25, policy="random")),
        (8_000, "AAAABCCCC", Shed(keep=0.25, policy="frequency")),
    ],
)
def test_quotas_are_met(spark: SparkSession, rows: int, kinds: str, how: Shed) -> None:
    df = ticks(spark, rows, kinds)
    counts = df.filter("kind <> 'C'").groupBy("kind").count().collect()
    candidates = {row["kind"].lower(): row["count"] for row in counts}
    answer = shed(df, how)
    size = answer.count()
    found = cep.metrics(answer)["shed"]
    assert {name: sum(each.values()) for name, each in found.items()} == candidates
    kept = sum(each["kept"] for each in found.values())
    assert how.keep is not None
    assert kept == pytest.approx(how.keep * sum(candidates.values()), rel=0.02)
    facts = cep.plan_of(answer).to_dict()["shedding"]
    for kind in facts["kinds"]:
        (name,) = kind["variables"]
        assert found[name]["kept"] == pytest.approx(kind["kept"], rel=0.03, abs=5)
    if how.policy == "random":
        assert found["a"]["kept"] / found["b"]["kept"] == pytest.approx(1, rel=0.1)
    if how.policy == "frequency":
        assert found["a"]["dropped"] > 3 * found["b"]["dropped"]
    assert size > 0


def test_all_or_nothing_stays_at_the_ends(stock: DataFrame, full: Pairs) -> None:
    nothing = shed(stock, Shed(keep=0))
    assert nothing.count() == 0
    assert {each["kept"] for each in cep.metrics(nothing)["shed"].values()} == {0}
    assert cep.metrics(nothing)["estimated_recall"] == 0
    assert pairs(shed(stock, Shed(keep=1.0))) == full


def test_rows_that_a_not_could_need_are_never_dropped(stock: DataFrame) -> None:
    pattern = seq(A, no(event("x", "kind = 'B' AND x < 0.2")), B).within(40)
    answer = shed(stock, Shed(keep=0), pattern)
    assert answer.count() == 0
    needed = stock.filter("kind = 'B' AND x < 0.2").count()
    found = cep.metrics(answer)["shed"]
    assert (found["a"]["kept"], found["b"]["kept"]) == (0, needed)
    assert "x" not in found
    assert cep.plan_of(answer).to_dict()["shedding"]["never"] == ["x"]
    every, some = pairs(shed(stock, None, pattern)), pairs(shed(stock, Shed(keep=0.5), pattern))
    assert not some - every
    assert 0 < some.total() < every.total()


def test_where_a_not_could_need_every_row_none_is_dropped(stock: DataFrame) -> None:
    pattern = seq(A, no("x"), B).within(40)
    answer = shed(stock, Shed(keep=0.1), pattern)
    assert pairs(answer) == pairs(shed(stock, None, pattern))


def test_rows_that_can_be_in_no_match_are_no_part_of_the_quota(spark: SparkSession) -> None:
    """Without an event time, or without the key that the conditions infer."""
    df = ticks(spark, 8_000).selectExpr(
        "CASE WHEN t % 5 > 0 THEN t END AS t", "kind", "x", "CASE WHEN t % 3 > 0 THEN k END AS k"
    )
    answer = shed(df, Shed(keep=0.25), seq(A, B).where("a.k = b.k", "a.x < b.x").within(40))
    assert answer.count() > 0
    found = cep.metrics(answer)["shed"]
    kept = sum(each["kept"] for each in found.values())
    every = sum(sum(each.values()) for each in found.values())
    assert kept == pytest.approx(0.25 * every, rel=0.02)


def test_rows_per_second_are_of_event_time(spark: SparkSession) -> None:
    df = ticks(spark, 6_000).withColumn("t", F.expr("timestamp_millis(t * 100)"))
    pattern = seq(A, B).where("a.x < b.x").within("4 seconds")
    answer = shed(df, Shed(rows_per_second=3), pattern)
    assert answer.count() > 0
    kept = sum(each["kept"] for each in cep.metrics(answer)["shed"].values())
    # 600 seconds; 8 of 10 rows a second may be shed.
    assert kept == pytest.approx(3 * 600, rel=0.02)
    enough = shed(df, Shed(rows_per_second=1000), pattern)
    assert cep.plan_of(enough).to_dict()["shedding"]["share"] == 1


# ---- jobs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        Shed(keep=0.3),
        Shed(keep=0.1, policy="keys"),
        Shed(latency="1 millisecond"),
        Shed(keep=0.5, policy="darling"),
    ],
)
def test_one_job_chooses_what_stays_and_an_action_repeats_nothing(
    stock: DataFrame, how: Shed
) -> None:
    with count_jobs() as chosen:
        answer = shed(stock, how)
    # One task for each partition, and no shuffle.
    assert (len(chosen), chosen.tasks) == (1, 2)
    with count_jobs() as plain:
        shed(stock, None).count()
    for _ in range(2):
        with count_jobs() as ran:
            answer.count()
        assert len(ran) <= len(plain)


def test_a_large_input_is_counted_only_where_drawn_rows_would_miss_the_quota(
    spark: SparkSession,
) -> None:
    rows = ticks(spark, 150_000)
    every = rows.filter("kind <> 'C'").count()
    for keep, jobs in ((0.8, 1), (0.05, 2)):
        with count_jobs() as ran:
            answer = shed(rows, Shed(keep=keep), FEW)
        # Counting has a shuffle, of which adaptive execution makes one more job.
        assert len(ran) <= jobs + (keep < 0.1)
        assert answer.count() > 0
        found = cep.metrics(answer)["shed"]
        assert sum(sum(each.values()) for each in found.values()) == every
        kept = sum(each["kept"] for each in found.values())
        assert kept == pytest.approx(keep * every, rel=0.01)
        facts = cep.plan_of(answer).to_dict()["shedding"]
        assert facts["counted"] == (jobs == 2)
        assert ("about" in facts["reason"]) == (jobs == 1)


def test_drawn_rows_are_the_same_however_rows_lie_and_whatever_was_guessed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(df: DataFrame) -> Any:
        answer = shed(df, Shed(keep=0.8), FEW, partition_by="k")
        assert not cep.plan_of(answer).to_dict()["shedding"]["counted"]
        hashed = F.sum(F.expr("pmod(xxhash64(a.t, b.t), 1000000007)"))
        return answer.agg(F.count("*"), hashed).first()

    monkeypatch.setattr(shedding_sample, "LEAST_DRAWN", 25_000)
    rows = ticks(spark, 60_000)
    rows.orderBy(F.desc("x")).coalesce(1).write.parquet(str(tmp_path / "one"))
    expected = digest(spark.read.parquet(str(tmp_path / "one")))
    assert expected[0] > 300
    assert digest(rows.repartition(5)) == expected
    # Fewer rows than were guessed, and more than a task may give.
    monkeypatch.setattr(shedding_sample, "_FILE_PART", 0.02)
    assert digest(rows) == expected
    monkeypatch.setattr(shedding_sample, "_FILE_PART", 0.4)
    monkeypatch.setattr(shedding_sample, "_MOST_OF_TASK", 45_000)
    assert digest(rows) == expected
    # A size that is not known.
    monkeypatch.setattr(shedding_sample, "input_bytes", lambda df: None)
    assert digest(rows) == expected


def test_it_is_said_where_shedding_costs_more_than_it_saves(
    stock: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(cep.PatternWarning, match="choosing among 4,.* rows takes 0.4 s, and saves"):
        answer = shed(stock, Shed(keep=0.3))
    cep.explain(answer)
    assert "costs     choosing is expected to take 0.4 s" in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shed(stock, Shed(latency="1 hour"))


# ---- a subset, the same each time --------------------------------------------------------------


@pytest.mark.parametrize("policy", ["utility", "keys", "darling", "frequency"])
def test_the_answer_is_part_of_the_full_answer(stock: DataFrame, full: Pairs, policy: Any) -> None:
    found = pairs(shed(stock, Shed(keep=0.4, policy=policy)))
    assert not found - full
    assert 0 < found.total() < full.total()


def test_utility_keeps_more_matches_than_chance(stock: DataFrame, full: Pairs) -> None:
    by_utility, by_chance = (
        pairs(shed(stock, Shed(keep=0.3, policy=policy))) for policy in ("utility", "random")
    )
    assert not by_chance - full
    assert by_utility.total() > 3 * by_chance.total()
    assert by_utility.total() > 0.5 * full.total()


def test_the_same_rows_stay_however_they_lie_and_come(
    spark: SparkSession, stock: DataFrame, tmp_path: Path
) -> None:
    how = Shed(keep=0.3)
    options = {"partition_by": "k"}
    expected = shed(stock, how, **options).cache()
    assert expected.count() > 100
    stock.repartition(7).write.parquet(str(tmp_path / "many"))
    stock.orderBy(F.desc("x")).coalesce(1).write.parquet(str(tmp_path / "one"))
    for other in (
        stock,
        stock.orderBy(F.desc("t")),
        spark.read.parquet(str(tmp_path / "many")),
        spark.read.parquet(str(tmp_path / "one")),
    ):
        found = shed(other, how, **options)
        assert_df_equality(found, expected, ignore_row_order=True)
    expected.unpersist()


def test_of_most_blocks_all_matches_stay_or_none(stock: DataFrame) -> None:
    def by_block(how: Shed | None) -> dict[tuple[str, int], int]:
        found = shed(stock, how, partition_by="k").selectExpr("a.k AS k", "a.t DIV 640 AS s")
        return {(row.k, row.s): row["count"] for row in found.groupBy("k", "s").count().collect()}

    every, kept = by_block(None), by_block(Shed(keep=0.4, policy="keys"))
    shares = [kept.get(block, 0) / count for block, count in every.items()]
    # Matches across two stretches may go; one block is cut by the quota.
    assert sum(0.15 < share < 0.85 for share in shares) <= 2
    assert sum(kept.values()) / sum(every.values()) == pytest.approx(0.4, abs=0.12)


def test_another_seed_drops_other_rows_of_like_worth(stock: DataFrame) -> None:
    found = [pairs(shed(stock, Shed(keep=0.3, seed=seed))) for seed in (0, 1, -1)]
    assert len({frozenset(each) for each in found}) == 3
    sizes = [each.total() for each in found]
    assert max(sizes) < 1.2 * min(sizes)


def test_which_rows_stay_does_not_hang_on_the_speed_of_the_machine(
    stock: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a b c no variable makes the same work as another.
    pattern = seq(A, B, event("c", "kind = 'C'")).where("a.x + 0.5 < b.x").within(20)
    kinds = []
    for factor in (1.0, 400.0):
        times = iter([3e-6, factor * 1e-6, 5e-6])
        monkeypatch.setattr(costs, "_fastest", lambda _, times=times: next(times))
        costs.measure_costs.cache_clear()
        kinds.append(
            cep.plan_of(shed(stock, Shed(keep=0.3), pattern)).to_dict()["shedding"]["kinds"]
        )
    costs.measure_costs.cache_clear()
    assert kinds[0] == kinds[1]


def test_a_part_of_the_answer_can_be_asked_again(stock: DataFrame) -> None:
    answer = shed(stock, Shed(keep=0.3))
    first = answer.count()
    assert answer.count() == first
    assert answer.filter("a.x < 0.1").count() < first
    assert cep.match_pattern(
        stock, PAIR, order_by="t", rows="all", shed=Shed(keep=0.3)
    ).count() == 2 * first  # fmt: skip


# ---- what is said ------------------------------------------------------------------------------


def test_with_room_for_all_nothing_is_shed_or_said(
    stock: DataFrame, full: Pairs, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = shed(stock, Shed(latency="1 hour"))
    # What is estimated hangs on which rows a sample happens to see first.
    names = [plan_name(each, capsys) for each in (answer, shed(stock, None))]
    assert len({re.sub(r"est\. .*?\), ", "", name) for name in names}) == 1
    assert pairs(answer) == full
    found = cep.metrics(answer)
    assert found["estimated_recall"] == 1
    assert "shed" not in found
    assert (found["cut"], found["left"], found["left_share"]) == (0, 0, 0)
    cep.explain(answer)
    assert "all rows: matching 4," in capsys.readouterr().out


def test_too_little_time_sheds(stock: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    answer = shed(stock, Shed(latency="1 millisecond"))
    facts = cep.plan_of(answer).to_dict()["shedding"]
    assert 0 <= facts["share"] < 1
    assert "is expected to take" in facts["reason"]
    tighter = shed(stock, Shed(latency="0.5 milliseconds"))
    assert cep.plan_of(tighter).to_dict()["shedding"]["share"] <= facts["share"]
    assert "shed to" in plan_name(answer, capsys)


def test_a_clock_stops_what_takes_longer_than_expected(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pair takes 20 microseconds, asleep, of which the driver knows nothing: all 250,000 of them
    would take five seconds."""

    def slow(a: Any, b: Any) -> Any:
        import time

        time.sleep(2e-5 * len(a))
        return b > a

    cep.udf(slow, returns="boolean", name="slow_rise")
    rows = spark.range(0, 1000, 1, 1).selectExpr("id AS t", "id % 2 AS kind", "id * 7 % 101 AS x")
    pattern = seq(event("a", "kind = 0"), event("b", "kind = 1")).where("slow_rise(a.x, b.x)")
    answer = rows.match_pattern(
        pattern.within(2000), order_by="t", shed=Shed(latency="1 second", safety=1.0)
    )
    given = answer.selectExpr("a.t", "b.t", "a.x < b.x").collect()
    assert given
    assert len({(a, b) for a, b, _ in given}) == len(given)
    assert all(a < b and rises for a, b, rises in given)
    found = cep.metrics(answer)
    assert found["cut"] == 1
    assert 0 < found["left_share"] < 1
    assert found["longest_task_us"] < 1_300_000
    assert found["pairs"] < 100_000
    cep.explain(answer, mode="analyze")
    assert "passed in 1 bucket: " in capsys.readouterr().out


def test_the_answer_carries_a_flag_in_the_plans_name(
    stock: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    how = Shed(keep=0.305, policy="frequency")
    assert plan_name(shed(stock, how), capsys).endswith(", any, shed to 30.5% by frequency")
    assert "shed" not in plan_name(shed(stock, None), capsys)


def test_metrics_have_what_stayed_and_the_recall(stock: DataFrame, full: Pairs) -> None:
    answer = shed(stock, Shed(keep=0.5))
    size = answer.count()
    found = cep.metrics(answer)
    assert found["complete"]
    assert found["matches"] == size
    assert {name: sorted(each) for name, each in found["shed"].items()} == {
        "a": ["dropped", "kept"],
        "b": ["dropped", "kept"],
    }
    assert found["estimated_recall"] == pytest.approx(size / full.total(), abs=0.07)


def test_a_row_that_may_be_two_variables_counts_for_both(spark: SparkSession) -> None:
    pattern = seq(event("a"), event("b", "x > 0.5")).where("a.x < b.x").within(3)
    answer = shed(ticks(spark, 2_000), Shed(keep=0.5), pattern)
    assert answer.count() > 0
    found = cep.metrics(answer)["shed"]
    assert sum(found["a"].values()) == 2_000
    assert sum(found["b"].values()) == ticks(spark, 2_000).filter("x > 0.5").count()
    kinds = cep.plan_of(answer).to_dict()["shedding"]["kinds"]
    assert [kind["variables"] for kind in kinds] == [["a"], ["a", "b"]]


def test_explain_says_what_was_asked_and_what_it_loses(
    stock: DataFrame, full: Pairs, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = shed(stock, Shed(keep=0.3, seed=7))

    def printed(mode: str) -> str:
        capsys.readouterr()
        cep.explain(answer, mode=mode)
        return capsys.readouterr().out

    text = printed("text")
    assert "keep 30%, by utility" in text
    assert re.search(r"recall +≈ \d+(\.\d+)?% of the matches", text)
    assert re.search(r"a: +[\d,]+ of [\d,]+ rows, from level [\d.]+ of 1,000", text)
    assert re.search(r"a by a\.x \+ 0\.5 < b\.x: [\d.e-]+ to [\d.]+ times the mean worth", text)
    facts = json.loads(printed("json"))["shedding"]
    assert (facts["seed"], facts["policy"], facts["share"]) == (7, "utility", 0.3)
    assert sum(kind["kept"] for kind in facts["kinds"]) == pytest.approx(
        0.3 * sum(kind["rows"] for kind in facts["kinds"]), abs=2
    )
    assert [each["by_key"] for each in facts["utility"]] == [False, False]
    assert "keep 30%, by utility" in printed("html")
    analyzed = printed("analyze")
    found = re.search(r"recall +([\d.]+)%: ([\d,]+) of ([\d,]+) matches of a sample", analyzed)
    assert found, analyzed
    # The sample are all rows.
    assert int(found.group(3).replace(",", "")) == full.total()
    measured = answer.count() / full.total()
    assert float(found.group(1)) / 100 == pytest.approx(measured, abs=0.02)
    assert re.search(r"a: +[\d,]+ of [\d,]+ rows stayed", analyzed)


def test_a_condition_on_a_text_and_a_number_is_not_by_key(stock: DataFrame) -> None:
    condition = "a.k = '1' AND a.x < b.x OR a.k = b.k"
    how = Shed(keep=0.3, policy="darling")
    answer = shed(stock, how, seq(A, B).where(f"({condition})").within(40))
    utility = cep.plan_of(answer).to_dict()["shedding"]["utility"]
    assert [each["by_key"] for each in utility] == [False, False]


def test_keys_that_differ_are_told_apart(spark: SparkSession) -> None:
    # In key 0 no b is above its a.
    df = ticks(spark, 20_000).withColumn(
        "x", F.expr("CASE WHEN k = '0' AND kind = 'B' THEN x - 1 ELSE x END")
    )
    pattern = seq(A, B).where("a.x < b.x").within(400)
    answer = shed(df, Shed(keep=0.5), pattern, partition_by="k")
    size, every = answer.count(), shed(df, None, pattern, partition_by="k").count()
    facts = cep.plan_of(answer).to_dict()["shedding"]
    assert [each["by_key"] for each in facts["utility"]] == [True, True]
    assert cep.metrics(answer)["estimated_recall"] == pytest.approx(size / every, abs=0.05)
    # Three quarters of the rows make all matches.
    assert size > 0.5 * every


def test_an_empty_input_is_shed_to_nothing(spark: SparkSession) -> None:
    answer = shed(ticks(spark, 1).filter("t < 0"), Shed(keep=0.3))
    assert answer.count() == 0
    assert cep.metrics(answer)["estimated_recall"] == 1
