"""Row patterns over one partition in ranges of its order: `spark.cep.slices` on against off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import row_pattern
from spark_cep.spark.source import plan_text
from tests.spark.jobs import count_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 4_000
RANGES = 3
V = row_pattern("strt down+ up+", {"down": "price < PREV(price)", "up": "price > PREV(price)"})
LOW = {"first": "FIRST(t)", "last": "LAST(t)", "low": "min(price)", "rows": "count(*)"}


@pytest.fixture(autouse=True)
def in_ranges(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.cep.buckets", str(RANGES))
    yield
    for name in ("spark.cep.buckets", "spark.cep.slices", "spark.cep.memory"):
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def ticks(spark: SparkSession) -> DataFrame:
    """Rows in no order, with NULL, NaN and both zeros in `level`."""
    return (
        spark.range(ROWS)
        .selectExpr(
            f"id * 7919 % {ROWS} AS t",
            "pmod(xxhash64(id), 7) AS price",
            "CASE WHEN id % 90 = 0 THEN NULL WHEN id % 70 = 0 THEN double('NaN') "
            "WHEN id % 50 = 0 THEN -0.0D ELSE (id * 31 % 400 - 200) / 8D END AS level",
            f"timestamp_seconds(id * 7919 % {ROWS}) AS at",
            "concat('note ', id) AS note",
            "make_ym_interval(0, CAST(id AS INT)) AS age",
        )
        .repartition(3)
    )


def matched(df: DataFrame, mode: str, pattern: Any, **options: Any) -> DataFrame:
    df.sparkSession.conf.set("spark.cep.slices", mode)
    return df.match_pattern(pattern, **{"order_by": "t", "measures": LOW, **options})


def rows(df: DataFrame) -> list[str]:
    texts = df.select([F.col(name).cast("string") for name in df.columns])
    return sorted(repr(tuple(row)) for row in texts.collect())


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "V": (V, {}),
    "all rows": (V, {"rows": "all"}),
    "descending": (V, {"order_by": "t DESC"}),
    "ties, NULL and NaN": (V, {"order_by": ["level DESC NULLS LAST", "t"]}),
    "next row": (V, {"after_match": "SKIP TO NEXT ROW"}),
    "to a variable": (V, {"after_match": "SKIP TO LAST up"}),
    "WITHIN": (
        row_pattern("a b* c", {"b": "price <= avg(b.price) + 5", "c": "price > a.price"}).within(
            "6 seconds"
        ),
        {"order_by": "at"},
    ),
    "bounded length": (
        row_pattern("a b{1,3} c", {"a": "price > 1", "c": "price > a.price"}), {"plan": "walk"},
    ),
    "no cut anywhere": (row_pattern("a+ b", {"a": "price >= 0", "b": "price > 100"}), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_ranges_change_no_row_of_the_answer(ticks: DataFrame, name: str) -> None:
    pattern, options = CASES[name]
    one = matched(ticks, "off", pattern, **options)
    wanted, counts = rows(one), cep.metrics(one)
    answer = matched(ticks, "on", pattern, **options)
    assert "ranges of the order" in str(cep.plan_of(answer).facts["slices"])
    assert rows(answer) == wanted
    found = cep.metrics(answer)
    for each in ("rows", "partitions", "matches", "empty_matches", "unmatched_rows", "complete"):
        assert found[each] == counts[each], each
    assert found["rows"] == ROWS
    assert (found["border_rows"] == ROWS) is (name == "no cut anywhere")


def test_the_ranges_are_matched_by_several_tasks(ticks: DataFrame) -> None:
    answer = matched(ticks, "on", V)
    with count_jobs() as ran:
        answer.collect()
    # Three tasks match the ranges; four pass on their answer or match the borders.
    assert {RANGES, RANGES + 1} <= {job.tasks for job in ran.jobs}
    assert "rangepartitioning(" in plan_text(answer)
    found = cep.metrics(answer)
    assert 0 < found["border_rows"] < ROWS / 10
    assert found["complete"]


def test_a_part_of_the_answer_has_a_part_of_the_counts(ticks: DataFrame) -> None:
    answer = matched(ticks, "on", V)
    answer.take(1)
    assert cep.metrics(answer)["complete"] is False


def test_ranges_that_do_not_fit_are_spilled(ticks: DataFrame, spark: SparkSession) -> None:
    wanted = rows(matched(ticks, "off", V))
    spark.conf.set("spark.cep.memory", "1m")
    large = ticks.unionByName(ticks.selectExpr("t + 4000 AS t", "* EXCEPT (t)"))
    large = large.unionByName(large.selectExpr("t + 8000 AS t", "* EXCEPT (t)"))
    answer = matched(large.unionByName(large.selectExpr("t + 16000 AS t", "* EXCEPT (t)")), "on", V)
    assert set(wanted) <= set(rows(answer))
    assert cep.metrics(answer)["spilled_rows"] > 0


def test_an_empty_input_has_no_match(ticks: DataFrame) -> None:
    answer = matched(ticks.filter("t < 0"), "on", V)
    assert answer.collect() == []


def test_an_error_of_a_range_is_the_error_of_the_query(ticks: DataFrame) -> None:
    pattern = row_pattern("a b? c", {"a": "price > 3", "c": "price > 3"})
    answer = matched(ticks, "on", pattern, after_match="SKIP TO FIRST b")
    with pytest.raises(Exception, match="nowhere to go") as caught:
        answer.collect()
    assert "nowhere to go" in str(cep.error_of(caught.value))


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "keys": (V, {"partition_by": "price"}, "the rows of a key stay together"),
    "anchor": (row_pattern("^ a+", {"a": "price > 3"}), {}, "^ is about the whole partition"),
    "end": (row_pattern("a+ $", {"a": "price > 3"}), {}, "$ is about the whole partition"),
    "number": (V, {"measures": {"n": "MATCH_NUMBER()"}}, "matches are numbered"),
    "unmatched": (V, {"rows": "all with unmatched"}, "matches are numbered"),
    "gaps": (
        row_pattern("r z* m", {"r": "price = 1", "m": "price = 2"}), {"plan": "gaps"},
        "gaps are joined",
    ),
    "text": (V, {"order_by": "note"}, "of type string"),
    "free": (row_pattern("a+ b", {"b": "price > 9"}), {}, "a search may be open at any row"),
    "lag": (
        row_pattern("a b+", {"b": "levenshtein(note, PREV(note)) < 3"}), {},
        "Spark computes a condition on neighbouring rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_explain_says_why_a_partition_is_not_cut(ticks: DataFrame, name: str) -> None:
    pattern, options, reason = REFUSED[name]
    plan = cep.plan_of(matched(ticks, "on", pattern, **options))
    assert str(plan.facts["slices"]).startswith("none")
    assert reason in str(plan.facts["slices"])


def test_explain_shows_the_ranges_or_that_the_setting_forbids_them(ticks: DataFrame) -> None:
    shown = str(cep.plan_of(matched(ticks, "on", V)))
    assert "4: 3 ranges, and one for their borders" in shown
    assert "none: set by spark.cep.slices" in str(cep.plan_of(matched(ticks, "off", V)))


def test_a_small_input_is_one_task_unless_the_setting_asks(
    ticks: DataFrame, spark: SparkSession
) -> None:
    spark.conf.unset("spark.cep.buckets")
    spark.conf.unset("spark.cep.slices")
    plan = cep.plan_of(ticks.match_pattern(V, order_by="t", measures=LOW))
    assert plan.facts["buckets"]["count"] == 1
