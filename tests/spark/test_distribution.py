"""How rows get to tasks: by adaptive execution, by number, and keys too large for one task."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import spark_cep as cep
from spark_cep import event, seq
from spark_cep.planner import layout
from spark_cep.spark.source import plan_text
from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10)
ADAPTIVE = "REPARTITION_BY_COL"


@pytest.fixture(autouse=True)
def many_partitions(spark: SparkSession) -> Iterator[None]:
    """More shuffle partitions than are needed, as in a session that nobody has tuned; and no
    sample that says that the input is tiny."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "50")
    spark.conf.set("spark.cep.sample", "off")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))
    for name in ("spark.cep.buckets", "spark.cep.slices", "spark.cep.sample"):
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def ticks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """6,000 rows in files, a third of them with the key -1."""
    path = str(tmp_path_factory.mktemp("ticks") / "ticks")
    rows = spark.range(6_000).selectExpr(
        "IF(id % 3 = 0, -1, id % 50) AS k",
        "CAST(id AS INT) AS t",
        "element_at(array('A', 'B', 'C'), CAST(pmod(xxhash64(id), 3) AS INT) + 1) AS kind",
    )
    rows.repartition(3).write.parquet(path)
    return spark.read.parquet(path)


def match(df: DataFrame, **options: object) -> DataFrame:
    return cep.match_pattern(df, PAIR, **{"order_by": "t", "partition_by": "k", **options})


def pairs(matches: DataFrame) -> list[tuple[int, ...]]:
    return sorted(tuple(row) for row in matches.selectExpr("k", "a.t", "b.t AS other").collect())


def executed_plan(df: DataFrame) -> str:
    """The plan of the last action on `df`, as adaptive execution left it."""
    plan = str(df._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]
    assert "isFinalPlan=true" in plan
    return plan.partition("Initial Plan")[0]


# ---- the number of tasks -------------------------------------------------------------------------


def test_adaptive_execution_makes_as_many_buckets_as_the_rows_need(
    ticks: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = match(ticks)
    matches.collect()
    assert ADAPTIVE in executed_plan(matches)
    assert "AQEShuffleRead coalesced" in executed_plan(matches)
    assert cep.plan_of(matches).to_dict()["buckets"]["count"] is None
    cep.explain(matches, mode="analyze")
    assert "over 1 bucket" in capsys.readouterr().out


def test_a_forced_number_is_the_number_of_partitions(spark: SparkSession, ticks: DataFrame) -> None:
    expected = pairs(match(ticks))
    spark.conf.set("spark.cep.buckets", "7")
    forced = match(ticks)
    assert forced.rdd.getNumPartitions() == 7
    assert pairs(forced) == expected


@pytest.fixture
def fixed_plans(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")


@pytest.mark.usefixtures("fixed_plans")
def test_without_adaptive_execution_there_are_some_buckets_a_core(ticks: DataFrame) -> None:
    fixed = match(ticks)
    assert cep.plan_of(fixed).to_dict()["buckets"]["count"] == 4
    assert fixed.rdd.getNumPartitions() == 4


@pytest.mark.usefixtures("fixed_plans")
def test_estimates_of_joins_do_not_count(ticks: DataFrame) -> None:
    """Spark's estimate of a join is the product of its sides: here more than a terabyte."""
    one, two = ticks.selectExpr("t AS t1"), ticks.selectExpr("t AS t2")
    joined = ticks.join(one, ticks.t == one.t1).join(two, ticks.t == two.t2)
    assert "TiB" in plan_text(joined, "cost")
    matches = match(joined)
    assert cep.plan_of(matches).to_dict()["buckets"]["count"] == 4
    assert pairs(matches) == pairs(match(ticks))


# ---- inputs that are partitioned already ---------------------------------------------------------


def test_keys_stay_together_behind_a_join_on_them(spark: SparkSession, ticks: DataFrame) -> None:
    """Spark would remove a repartition by the keys themselves, for the join is partitioned so; and
    then read the join's shuffle by mapper, as adaptive execution makes a broadcast join of it."""
    codes = spark.range(50).selectExpr("id AS k", "id * 2 AS code").repartition(2)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1")
    spark.conf.set("spark.sql.adaptive.autoBroadcastJoinThreshold", "10m")
    try:
        matches = match(ticks.repartition(6).join(codes, "k"))
        found = sorted((row.k, row.a.t, row.b.t) for row in matches.collect())
        assert "BroadcastHashJoin" in executed_plan(matches)
        assert ADAPTIVE in executed_plan(matches)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
        spark.conf.unset("spark.sql.adaptive.autoBroadcastJoinThreshold")
    assert found == [row for row in pairs(match(ticks)) if row[0] >= 0]


# ---- hot keys ------------------------------------------------------------------------------------


@pytest.fixture
def hot_at(monkeypatch: pytest.MonkeyPatch, ticks: DataFrame) -> Callable[[int], None]:
    """Makes keys hot that have more rows than this. Rows of C are dropped before."""
    monkeypatch.setattr(layout, "LARGE_INPUT_BYTES", 0)
    monkeypatch.setattr(layout, "LEAST_CORES", 1)

    def set_rows(rows: int) -> None:
        found = match(ticks)
        reason = cep.plan_of(found).to_dict()["slices"]
        least = int(re.search(r"more than ([\d,]+) rows", reason)[1].replace(",", ""))  # type: ignore[index]
        monkeypatch.setattr(layout, "HOT_KEY_BYTES", rows * (layout.HOT_KEY_BYTES // least))

    return set_rows


@pytest.mark.parametrize("rows", [100_000, 500, 10, 1])
def test_hot_keys_are_cut_into_slices(
    spark: SparkSession, ticks: DataFrame, hot_at: Callable[[int], None], rows: int
) -> None:
    """None is hot; the key -1 is; most are; all are."""
    spark.conf.set("spark.cep.slices", "off")
    expected = pairs(match(ticks))
    spark.conf.unset("spark.cep.slices")
    hot_at(rows)
    matches = match(ticks)
    assert f"more than {rows:,} rows" in cep.plan_of(matches).to_dict()["slices"]
    assert len(expected) > 100
    assert pairs(matches) == expected
    assert cep.metrics(matches)["complete"]


def test_what_hot_keys_need_is_gone_where_there_are_none(
    ticks: DataFrame, hot_at: Callable[[int], None]
) -> None:
    hot_at(100_000)
    matches = match(ticks)
    matches.collect()
    plan = executed_plan(matches)
    assert plan.count("Exchange hashpartitioning") == 1
    assert "Join" not in plan


def test_the_input_is_read_once_for_hot_keys_and_others(
    ticks: DataFrame, hot_at: Callable[[int], None]
) -> None:
    hot_at(500)
    matches = match(ticks)
    matches.collect()
    plan = executed_plan(matches)
    assert plan.count("FileScan") == 1
    assert plan.count("ReusedExchange") >= 2
    # The rows of the slices are copies of those of one key.
    rows = cep.metrics(matches)["rows"]
    shipped = ticks.filter("kind != 'C'").count()
    assert shipped < rows < shipped * 1.2


def test_one_hot_key_takes_few_tasks(
    ticks: DataFrame, hot_at: Callable[[int], None], conf: dict[str, str]
) -> None:
    """Of 200 shuffle partitions 199 are empty, which makes Spark think twice of a broadcast."""
    conf["spark.sql.shuffle.partitions"] = "200"
    conf["spark.sql.autoBroadcastJoinThreshold"] = "1k"
    hot_at(500)
    matches = match(ticks.filter("k = -1"))
    with count_jobs() as ran:
        assert matches.count() > 100
    assert ran.tasks < 20


def test_matches_of_hot_and_other_keys_have_different_numbers(
    ticks: DataFrame, hot_at: Callable[[int], None]
) -> None:
    hot_at(500)
    rows = match(ticks, rows="all")
    per_match = rows.groupBy("match_id").count()
    assert per_match.filter("count != 2").count() == 0
    assert per_match.count() == len(pairs(match(ticks)))


# ---- metrics -------------------------------------------------------------------------------------


def test_metrics_are_complete_only_if_every_bucket_was_read(
    spark: SparkSession, ticks: DataFrame
) -> None:
    spark.conf.set("spark.sql.adaptive.coalescePartitions.parallelismFirst", "false")
    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "4k")
    try:
        whole, some = match(ticks), match(ticks)
        everything = len(whole.collect())
        assert cep.metrics(whole)["complete"]
        assert cep.metrics(whole)["matches"] == everything
        some.take(3)
        assert not cep.metrics(some)["complete"]
        behind = match(ticks)
        behind.limit(3).groupBy("k").count().collect()
        assert not cep.metrics(behind)["complete"]
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.parallelismFirst")
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")
