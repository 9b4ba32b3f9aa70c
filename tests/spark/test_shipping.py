"""What happens in Spark around the engine: filtering, dealing, slicing, counting."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq
from spark_cep.spark.source import plan_text
from tests.spark.jobs import count_jobs

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10)


@pytest.fixture(scope="module")
def ticks(spark: SparkSession) -> DataFrame:
    """400 rows, 4 keys, time steps of 1, gaps of 30."""
    return spark.range(400).selectExpr(
        "id % 4 AS k",
        "CAST(id + 30 * (id DIV 50) AS INT) AS t",
        "element_at(array('A', 'B', 'C'), CAST(pmod(xxhash64(id), 3) AS INT) + 1) AS kind",
        "id",
    )


def pairs(df: DataFrame, **options: object) -> list[tuple[int, int]]:
    matches = cep.match_pattern(df, PAIR, **{"order_by": "t", **options})
    return sorted((row[0], row[1]) for row in matches.selectExpr("a.id", "b.id").collect())


# ---- before the engine -------------------------------------------------------------------------


def test_rows_that_can_be_nothing_are_dropped_before_the_shuffle(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    plan = plan_text(matches)
    assert "Filter" in plan[plan.index("Exchange") :]
    matches.count()
    assert cep.metrics(matches)["rows"] == ticks.filter("kind != 'C'").count()


def test_spark_shows_plan_order_window_and_strategy(ticks: DataFrame) -> None:
    matches = cep.match_pattern(
        ticks, PAIR, order_by="t", partition_by="k", plan=cep.plans.chain("b", "a")
    )
    assert "match_pattern[lazy-chain b→a, within 10, any  #" in plan_text(matches)


def test_what_rows_are_distributed_by_is_no_column(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k", plan="eager")
    assert cep.plan_of(matches).to_dict()["before"]["shipped"] == [
        "k", "t", "kind", "id", "candidates",
    ]  # fmt: skip


def test_a_condition_is_not_tried_where_an_earlier_one_fails(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT * FROM VALUES (1, 'A', '7'), (2, 'X', 'no'), (3, NULL, 'no') r(t, kind, s)"
    )
    one = cep.event("a", F.col("kind") == "A")
    both = cep.event("a", "kind = 'A' AND CAST(s AS INT) > 3")
    for pattern in (one, both):
        assert cep.match_pattern(df, pattern, order_by="t").count() == 1


def test_no_job_runs_but_the_sample(ticks: DataFrame) -> None:
    fresh = ticks.select("*", F.lit("no other test").alias("unique"))

    def jobs(plan: str) -> int:
        with count_jobs() as ran:
            cep.match_pattern(fresh, PAIR, order_by="t", partition_by="k", plan=plan)
        return len(ran)

    assert jobs("eager") == 0
    assert jobs("auto") > 0
    assert jobs("zstream") == 0  # the sample is kept with the DataFrame


def test_a_sample_can_be_done_without(spark: SparkSession, ticks: DataFrame) -> None:
    spark.conf.set("spark.cep.sample", "off")
    try:
        matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
        told = cep.plan_of(matches).to_dict()
    finally:
        spark.conf.unset("spark.cep.sample")
    assert told["rung"] == "no statistics"
    assert "no sample, for spark.cep.sample is off" in told["reason"]


def test_given_statistics_replace_the_sample(ticks: DataFrame) -> None:
    statistics = cep.Statistics(rates={"a": 5, "b": 1})
    with count_jobs() as ran:
        matches = cep.match_pattern(
            ticks.select("*"), PAIR, order_by="t", partition_by="k", statistics=statistics
        )
    assert len(ran) == 0
    assert cep.plan_of(matches).to_dict()["order"] == ["b", "a"]


def test_input_columns_of_one_name_are_refused(ticks: DataFrame) -> None:
    twice = ticks.select("*", F.lit(1).alias("T"))
    with pytest.raises(cep.PatternError, match="more than one column called 't'"):
        cep.match_pattern(twice, PAIR, order_by="t")


# ---- buckets and slices ------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", ["1", "3", "16"])
def test_buckets_do_not_change_the_answer(
    ticks: DataFrame, conf: dict[str, str], buckets: str
) -> None:
    expected = pairs(ticks, partition_by="k")
    conf["spark.cep.buckets"] = buckets
    assert len(expected) > 50
    assert pairs(ticks, partition_by="k") == expected


TIMES = {
    "tinyint times 1": "CAST(t % 100 AS TINYINT)",
    "int": "t",
    "negative": "t - 200",
    "near the largest bigint": "9223372036854775806L - t",
    "near the smallest bigint": "-9223372036854775807L + t",
    "double": "t * 1.0D + 0.1D",
    "double far out": "t * 1.0D + 1e16D",
    "float": "CAST(t AS FLOAT)",
    "decimal": "CAST(t AS DECIMAL(38, 18))",
}
MOMENTS = [
    ("timestamp_micros(t * 1000000L - 200000000L)", "10 seconds"),
    ("TIMESTAMP_NTZ '2024-03-10 01:58:00' + make_dt_interval(0, 0, 0, t)", "10 seconds"),
    ("date_add(DATE '1969-12-01', t)", "10 days"),
]


@pytest.mark.parametrize("time", TIMES.values(), ids=TIMES.keys())
@pytest.mark.parametrize("keys", [None, "k"])
def test_slices_do_not_change_the_answer(
    ticks: DataFrame, conf: dict[str, str], time: str, keys: str | None
) -> None:
    df = ticks.withColumn("t", F.expr(time))
    conf["spark.cep.slices"] = "off"
    expected = pairs(df, partition_by=keys)
    conf["spark.cep.slices"], conf["spark.cep.buckets"] = "on", "3"
    assert len(expected) > 50
    assert pairs(df, partition_by=keys) == expected


@pytest.mark.parametrize(("time", "window"), MOMENTS, ids=["timestamp", "ntz", "date"])
def test_slices_of_moments_do_not_change_the_answer(
    ticks: DataFrame, conf: dict[str, str], time: str, window: str
) -> None:
    df = ticks.withColumn("t", F.expr(time))
    pattern = seq(event("a", "kind = 'A'"), event("!x", "id % 7 = 0"), event("b", "kind = 'B'"))
    conf["spark.cep.slices"] = "off"
    whole = cep.match_pattern(df, pattern.within(window), order_by="t")
    expected = whole.selectExpr("a.id", "b.id").collect()
    conf["spark.cep.slices"], conf["spark.cep.buckets"] = "on", "3"
    cut = cep.match_pattern(df, pattern.within(window), order_by="t")
    assert len(expected) > 50
    assert sorted(cut.selectExpr("a.id", "b.id").collect()) == sorted(expected)


@pytest.mark.parametrize(
    "pattern",
    [
        seq(event("!x", "kind = 'X'"), event("a", "kind = 'A'"), event("b", "kind = 'B'")),
        seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("!x", "kind = 'X'")),
        cep.all_of(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("!x", "kind = 'X'")),
    ],
    ids=["start", "end", "around"],
)
def test_negations_look_across_the_edges_of_slices(
    spark: SparkSession, conf: dict[str, str], pattern: cep.Pattern
) -> None:
    # Sparse rows, so that some windows have none besides a and b.
    df = (
        spark.range(3000)
        .selectExpr(
            "CAST(id * 4 AS INT) AS t",
            "substr('ABXZZZ', CAST(pmod(xxhash64(id), 6) AS INT) + 1, 1) AS kind",
            "id",
        )
        .filter("kind != 'Z'")
    )
    negated = pattern.within(10)
    conf["spark.cep.slices"] = "off"
    whole = cep.match_pattern(df, negated, order_by="t").selectExpr("a.id", "b.id").collect()
    conf["spark.cep.slices"], conf["spark.cep.buckets"] = "on", "4"
    cut = cep.match_pattern(df, negated, order_by="t").selectExpr("a.id", "b.id").collect()
    assert len(whole) > 50
    assert sorted(cut) == sorted(whole)


def test_decimal_and_integer_results_are_plain_values(ticks: DataFrame) -> None:
    df = ticks.withColumn("t", F.expr("CAST(t AS DECIMAL(20, 2))"))
    row = cep.match_pattern(df, PAIR, order_by="t", partition_by="k").first()
    assert row is not None
    assert isinstance(row["match_start"], Decimal)


# ---- the answer --------------------------------------------------------------------------------


def test_the_default_answer_has_keys_structs_and_bounds(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    assert matches.columns == ["k", "a", "b", "match_start", "match_end"]
    row = matches.first()
    assert row is not None
    assert (row["a"]["t"], row["b"]["t"]) == (row["match_start"], row["match_end"])


def test_rows_all_has_a_row_for_each_matched_event(ticks: DataFrame) -> None:
    rows = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k", rows="all")
    assert rows.columns == ["match_id", "variable", "k", "t", "kind", "id"]
    counts = rows.groupBy("match_id").agg(F.collect_set("variable").alias("v"), F.count("*"))
    assert {(tuple(sorted(row[1])), row[2]) for row in counts.collect()} == {(("a", "b"), 2)}
    assert counts.count() == len(pairs(ticks, partition_by="k"))


@pytest.mark.parametrize("name", ["k", "match_start"])
def test_a_variable_called_like_another_column_of_the_answer_is_refused(
    ticks: DataFrame, name: str
) -> None:
    pattern = seq(event(name.upper(), "kind = 'A'"), event("b", "kind = 'B'")).within(10)
    with pytest.raises(cep.PatternError, match="two columns called"):
        cep.match_pattern(ticks, pattern, order_by="t", partition_by="k")


# ---- metrics and plans -------------------------------------------------------------------------


def test_metrics_are_those_of_the_first_action(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k", plan="eager")
    with pytest.raises(cep.CepError, match="no action has run"):
        cep.metrics(matches)
    found = matches.count()
    first = cep.metrics(matches)
    assert first["matches"] == found
    assert first["rows"] == ticks.filter("kind != 'C'").count()
    assert first["complete"]
    assert matches.alias("l").join(matches.alias("r"), F.expr("l.a = r.a")).count() >= found
    assert cep.metrics(matches.filter("k = 1")) == first


def test_a_self_join_as_the_first_action_counts_each_match_once(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    both = matches.union(matches).count()
    assert cep.metrics(matches)["matches"] * 2 == both


def test_a_limit_makes_metrics_incomplete(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k", plan="eager")
    matches.limit(1).collect()
    assert not cep.metrics(matches)["complete"]


def test_empty_buckets_do_not_make_metrics_incomplete(
    ticks: DataFrame, conf: dict[str, str]
) -> None:
    conf["spark.cep.buckets"] = "12"
    matches = cep.match_pattern(ticks.limit(3), PAIR, order_by="t", partition_by="k")
    matches.count()
    assert cep.metrics(matches)["complete"]


def test_candidates_without_an_event_time_are_ignored_and_counted(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT * FROM VALUES (1D, 'A'), (NULL, 'B'), (double('NaN'), 'A'), (2D, 'B'), (NULL, 'C') "
        "AS r(t, kind)"
    )
    matches = cep.match_pattern(df, PAIR, order_by="t")
    assert matches.count() == 1
    assert cep.metrics(matches)["ignored_rows"] == 2


def test_a_plan_is_found_from_what_was_made_of_the_answer(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    derived = matches.groupBy("k").count().orderBy("k")
    assert cep.plan_of(derived).to_dict() == cep.plan_of(matches).to_dict()


def test_a_dataframe_of_two_answers_has_two_plans(
    ticks: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    one = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    two = cep.match_pattern(ticks, PAIR, order_by="t")
    both = one.select("a").union(two.select("a"))
    with pytest.raises(cep.PlanError, match="2 patterns"):
        cep.plan_of(both)
    cep.explain(both)
    assert capsys.readouterr().out.count("SEQ(a, b)") == 2
    both.count()
    assert cep.metrics(both)["matches"] == one.count() + two.count()


def test_a_dataframe_without_a_pattern_has_no_plan(ticks: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match="was not made by match_pattern"):
        cep.explain(ticks)


def test_the_method_is_the_function(ticks: DataFrame) -> None:
    assert ticks.match_pattern(PAIR, order_by="t").count() == len(pairs(ticks))


def test_measures_ship_only_what_they_read(ticks: DataFrame) -> None:
    matches = cep.match_pattern(
        ticks,
        PAIR,
        order_by="t",
        measures={"gap": "b.t - a.t", "length": "match_end - match_start"},
    )
    assert matches.columns == ["gap", "length"]
    assert matches.filter("gap != length").count() == 0
    assert cep.plan_of(matches).to_dict()["before"]["shipped"] == ["t", "candidates"]


def test_a_measure_may_be_called_like_a_variable(ticks: DataFrame) -> None:
    matches = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k", measures={"a": "k"})
    assert matches.columns == ["k", "a"]


def test_conditions_left_to_spark_filter_matches_and_events_alike(ticks: DataFrame) -> None:
    pattern = PAIR.where("levenshtein(CAST(a.id AS STRING), CAST(b.id AS STRING)) = 1")
    expected = [
        pair for pair in pairs(ticks) if sum(map(str.__ne__, *(f"{x:3}" for x in pair))) == 1
    ]
    structs = cep.match_pattern(ticks, pattern, order_by="t")
    assert sorted(structs.selectExpr("a.id", "b.id").collect()) == expected
    rows = cep.match_pattern(ticks, pattern, order_by="t", rows="all")
    assert rows.columns == ["match_id", "variable", *ticks.columns]
    assert rows.count() == 2 * len(expected)
    assert "levenshtein" in str(cep.plan_of(rows)).partition("After")[2]


def test_a_limit_ends_the_query_with_an_error_that_can_be_read_back(ticks: DataFrame) -> None:
    matches = cep.match_pattern(
        ticks, PAIR, order_by="t", partition_by="k", limits=cep.Limits(matches=1)
    )
    with pytest.raises(Exception, match="limit") as caught:
        matches.count()
    error = cep.error_of(caught.value)
    assert isinstance(error, cep.LimitError)
    assert len(error.details["key"]) == 1
    assert error.details["allowed"] == 1


WORK = (
    "CAST(id AS INT) AS t",
    "7 AS k",
    "substr('AB', id % 2 + 1, 1) AS kind",
    "hash(id) AS x",
)


def test_a_limit_of_time_ends_a_window_with_too_many_pairs(spark: SparkSession) -> None:
    rows = spark.range(400_000).selectExpr(*WORK)
    pattern = cep.seq(cep.event("a", "kind = 'A'"), cep.event("b", "kind = 'B'"))
    matches = cep.match_pattern(
        rows,
        pattern.where("abs(a.x - b.x) = 1").within(1_000_000),
        order_by="t",
        partition_by="k",
        limits=cep.Limits(seconds=0.5),
    )
    with pytest.raises(Exception, match="limit") as caught:
        matches.count()
    error = cep.error_of(caught.value)
    assert isinstance(error, cep.LimitError)
    assert error.details["limit"] == "seconds"
    assert error.details["key"] == [7]
    assert error.details["rows"] == {"a": 200_000, "b": 200_000}


def test_limits_on_work_that_are_not_reached_change_nothing(ticks: DataFrame) -> None:
    limits = cep.Limits(seconds=600, pairs=1_000_000)
    limited = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k", limits=limits)
    free = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    assert sorted(limited.collect()) == sorted(free.collect())
    counts = cep.metrics(limited)
    assert counts["slow_tasks"] == 0
    assert 0 < counts["longest_task_us"] < 600_000_000
