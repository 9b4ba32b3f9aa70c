"""Options that are wrong, or that this version does not have, are refused before any job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10)


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT * FROM VALUES (1, 'A'), (2, 'B') AS rows(t, kind)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remotes": {"x": 1}}, "the remote 'x' is a int, not a cep.Remote"),
        ({"shed": 0.5}, "shed takes cep.Shed, not float"),
        ({"after_match": "SKIP TO NEXT ROW"}, "after_match= is for row patterns"),
        ({"adapt": "sometimes"}, "unknown value of adapt: 'sometimes'"),
        ({"optimize": "latancy"}, "unknown value of optimize: 'latancy'"),
        ({"rows": "all omit empty"}, "is for row patterns"),
        ({"rows": "some"}, "unknown value of rows: 'some'"),
        ({"plan": cep.plans.join(("a", "a"))}, "the join tree names 'a' twice"),
        ({"plan": cep.plans.hybrid(eager=["a"])}, "the hybrid plan omits b"),
        ({"plan": "fast"}, "unknown plan 'fast'"),
        ({"planner": "gready"}, "unknown planner 'gready'"),
        ({"planner": "greedy", "plan": "zstream"}, "makes no plan of the kind 'zstream'"),
        ({"plan": cep.plans.chain("a")}, "the chain omits b"),
        ({"plan": cep.plans.chain("a", "b", "a")}, "the chain names 'a' twice"),
        ({"plan": cep.plans.chain("a", "x")}, "the chain names 'x', which"),
        ({"measures": {}}, "measures takes a dict"),
        ({"measures": {"m": 1}}, "the measure 'm' is of type int"),
        ({"measures": {"m": "a.t"}, "rows": "all"}, "takes no measures"),
        ({"limits": 5}, "limits takes cep.Limits"),
        ({"statistics": {}}, "statistics takes cep.Statistics"),
        ({"statistics": cep.Statistics(rates={"a": 1})}, "no rate for 'b'"),
        ({"statistics": cep.Statistics(rates={"z": 1})}, "rate for 'z'"),
        ({"statistics": cep.Statistics(selectivities={("a", "z"): 0.5})}, "selectivity for 'z'"),
    ],
)
def test_wrong_or_missing_options_are_refused(
    df: DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(cep.CepError, match=message) as caught:
        cep.match_pattern(df, PAIR, order_by="t", **options)
    assert caught.value.hint


@pytest.mark.parametrize(
    "plan",
    [
        *("auto", "eager", "lazy-chain", "tree", "zstream", "hybrid"),
        cep.plans.chain("b", "a"),
        cep.plans.join(("b", "a")),
        cep.plans.hybrid(eager=["a", "b"]),
    ],
)
@pytest.mark.parametrize("adapt", ["off", "always", cep.adapt.invariants(k=2, distance="meta")])
def test_every_plan_and_adaptation_gives_the_answer(df: DataFrame, plan: Any, adapt: Any) -> None:
    matches = cep.match_pattern(df, PAIR, order_by="t", plan=plan, adapt=adapt)
    assert matches.select("a.t", "b.t").collect() == [(1, 2)]


@pytest.mark.parametrize("planner", ["dp", "greedy", "zstream", "local-search"])
def test_every_planner_gives_the_answer_and_is_named(df: DataFrame, planner: Any) -> None:
    matches = cep.match_pattern(df, PAIR, order_by="t", planner=planner)
    assert matches.select("a.t", "b.t").collect() == [(1, 2)]
    assert cep.plan_of(matches).to_dict()["planner"].startswith(f"{planner}: ")


def test_row_patterns_have_nothing_to_optimize(df: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match="optimize= is for event patterns"):
        cep.match_pattern(df, cep.row_pattern("a", {"a": "t > 0"}), optimize="latency")


def test_row_patterns_have_no_planner(df: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match="planner= is for event patterns"):
        cep.match_pattern(df, cep.row_pattern("a", {"a": "t > 0"}), planner="greedy")


def test_the_order_is_needed(df: DataFrame) -> None:
    with pytest.raises(cep.PatternError, match="order_by"):
        cep.match_pattern(df, PAIR)


def test_a_pattern_is_needed(df: DataFrame) -> None:
    with pytest.raises(cep.PatternError, match="takes a pattern, not str"):
        cep.match_pattern(df, "a b", order_by="t")  # type: ignore[arg-type]


SETTINGS = (
    ("spark.cep.buckets", "many"),
    ("spark.cep.slices", "maybe"),
    ("spark.cep.sample", "a bit"),
    ("spark.cep.memory", "much"),
    ("spark.cep.memory", "10k"),
)


def test_settings_that_make_no_sense_are_refused(spark: SparkSession, df: DataFrame) -> None:
    for name, value in SETTINGS:
        spark.conf.set(name, value)
        with pytest.raises(cep.PlanError, match=name):
            cep.match_pattern(df, PAIR, order_by="t")
        spark.conf.unset(name)


def test_rows_cannot_be_added_beside_a_column_of_that_name(df: DataFrame) -> None:
    named = df.withColumnRenamed("kind", "Variable")
    pattern = seq(event("a", "Variable = 'A'"), event("b", "Variable = 'B'")).within(10)
    with pytest.raises(cep.PatternError, match="adds a column 'variable'"):
        cep.match_pattern(named, pattern, order_by="t", rows="all")


def test_selectivities_alone_leave_the_sample_on(df: DataFrame) -> None:
    statistics = cep.Statistics(selectivities={("a", "b"): 0.5})
    matches = cep.match_pattern(df, PAIR, order_by="t", statistics=statistics)
    reason = cep.plan_of(matches).to_dict()["reason"]
    assert "the input's 2 rows" in reason
    assert "no condition between a and b, so their selectivity is unused" in reason


@pytest.mark.parametrize("failing", ["CAST('x' || t AS INT)", "java"])
def test_a_sample_that_fails_is_none_of_the_calls_errors(
    spark: SparkSession, df: DataFrame, failing: str
) -> None:
    if failing == "java":
        failing = "java_method('java.lang.Integer', 'parseInt', 'x')"
    pattern = seq(event("a", f"{failing} > 1"), event("b", "kind = 'B'")).within(10)
    matches = cep.match_pattern(df, pattern, order_by="t")
    plan = cep.plan_of(matches).to_dict()
    assert "no sample, for Spark failed on it" in plan["reason"]
    with pytest.raises(Exception, match=r"x|no"):
        matches.collect()


def test_ansi_and_case_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 'A', 2147483647, 1), (2, 'B', 2147483647, 2) AS v(t, kind, x, y)"
    )
    spark.conf.set("spark.sql.ansi.enabled", "TRUE")
    spark.conf.set("spark.sql.caseSensitive", "True")
    try:
        cased = rows.select("t", "kind", "x", F.col("y").alias("X"))
        assert cep.match_pattern(cased, PAIR.where("a.x + b.x < 0"), order_by="t").count() == 0
        assert cep.match_pattern(cased, PAIR.where("a.X < b.X"), order_by="t").count() == 1
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_partition_column_hides_the_bound_of_its_name(df: DataFrame) -> None:
    named = df.withColumn("match_start", F.lit(7)).withColumn("Match_End", F.lit(8))
    keys = ["match_start", "Match_End"]
    measures = {"start": "match_start", "end": "match_end"}
    matches = cep.match_pattern(named, PAIR, order_by="t", partition_by=keys, measures=measures)
    assert [tuple(row) for row in matches.collect()] == [(7, 8, 7, 8)]
    with pytest.raises(cep.PatternError, match="two columns called 'match_start'"):
        cep.match_pattern(named, PAIR, order_by="t", partition_by="match_start")
    events = cep.match_pattern(named, PAIR, order_by="t", partition_by=keys, rows="all")
    assert events.count() == 2


def test_a_column_that_compares_with_the_name_of_a_function_is_no_call(df: DataFrame) -> None:
    pattern = seq(event("a", F.col("kind") != "rand()"), event("b", "kind = 'B'"))
    assert cep.match_pattern(df, pattern, order_by="t").count() == 1
    left_to_chance = seq(event("a", (F.rand() > 0.5) & (F.col("kind") == "it's")), "b")
    with pytest.raises(cep.PatternError, match="is not deterministic"):
        cep.match_pattern(df, left_to_chance, order_by="t")
