"""explain as a page and beside what was measured, for DataFrames that Spark runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq
from spark_cep.spark.metrics import analyze_answers, keep_record, records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAIR = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).where("a.t + 3 < b.t").within(10)


@pytest.fixture(scope="module")
def ticks(spark: SparkSession) -> DataFrame:
    return spark.range(60).selectExpr(
        "id % 2 AS k", "CAST(id AS INT) AS t", "substr('AAB', 1 + id % 3, 1) AS kind"
    )


@pytest.fixture
def matches(ticks: DataFrame) -> DataFrame:
    return cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")


def printed(df: DataFrame, mode: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    cep.explain(df, mode=mode)
    return capsys.readouterr().out


def row(text: str, label: str) -> list[str]:
    """The numbers beside a label."""
    found = re.search(rf"^  {re.escape(label)}  +(.*)$", text, re.MULTILINE)
    assert found, text
    return found.group(1).split()


def test_a_page_is_printed_and_notebooks_show_the_same(
    matches: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    html = printed(matches.filter("k = 1"), "html", capsys)
    assert ElementTree.fromstring(html.partition("\n")[2]).find("body") is not None
    assert cep.plan_of(matches)._repr_html_() in html
    assert "SEQ(a, b)" in html


def test_analyze_runs_the_query_and_counts_all_of_it(
    matches: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(matches, "analyze", capsys)
    assert row(text, "rows")[1] == "60"
    assert row(text, "matches")[1] == str(matches.count())
    assert re.search(r"^  ran       in \d", text, re.MULTILINE)


def test_analyze_measures_anew_what_an_earlier_action_counted_in_part(
    ticks: DataFrame, matches: DataFrame
) -> None:
    matches.limit(1).collect()
    assert not cep.metrics(matches)["complete"]
    again = cep.match_pattern(ticks, PAIR, order_by="t", partition_by="k")
    (record,), (other,) = records_of(matches), records_of(again)
    keep_record(matches, replace(record, rerun=lambda: (again, other.observation)))
    (analysis,) = analyze_answers(matches)
    assert analysis.counts["complete"]
    assert analysis.seconds is not None
    assert analysis.counts["matches"] == matches.count()


def test_an_answer_that_cannot_be_made_again_keeps_the_counts_of_its_first_action(
    matches: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,) = records_of(matches)
    keep_record(matches, replace(record, rerun=None))
    matches.limit(1).collect()
    text = printed(matches, "analyze", capsys)
    assert "ran       earlier" in text
    assert "the answer was read only in part" in text


def test_analyze_of_two_answers_compares_both(
    ticks: DataFrame, matches: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    other = cep.match_pattern(ticks, PAIR, order_by="t")
    text = printed(matches.select("a").union(other.select("a")), "analyze", capsys)
    parts = text.split("\n\n")
    assert [row(part, "matches")[1] for part in parts] == [
        str(matches.count()),
        str(other.count()),
    ]


def test_an_input_without_rows_can_be_analyzed(
    ticks: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = cep.match_pattern(ticks.filter("t < 0"), PAIR, order_by="t", partition_by="k")
    assert row(printed(empty, "analyze", capsys), "rows")[1] == "0"


def test_metrics_give_the_counts_of_plans_too(matches: DataFrame) -> None:
    matches.count()
    found = cep.metrics(matches)
    names = ("plan_swaps", "plan_checks", "planning_us", "matching_us", "stretches")
    assert [type(found[name]) for name in names] == [int] * 5
    assert {"conditions", "candidates", "nodes", "swaps"}.isdisjoint(found)


def test_the_page_about_explain_shows_what_is_printed(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    code, text, *_, analyzed = re.findall(r"```\w*\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {"spark": spark}
    try:
        # Fewer rows than on the page, and more than a sample has.
        exec(code.replace("300_000", "24_000"), names)
        matches = names["matches"]
        assert labels(printed(matches, "text", capsys)) == labels(text)
        found = printed(matches, "analyze", capsys)
    finally:
        spark.conf.unset("spark.cep.buckets")
    assert labels(found.partition("Pairs")[0]) == labels(analyzed.partition("Pairs")[0])


def labels(text: str) -> list[str]:
    """What stands before the first wide gap of each line, the heading and its number apart."""
    lines = [line for line in text.splitlines()[1:] if line[2:3] != " "]
    return [re.split(r"(?<=\S)  +", line)[0][:12] for line in lines]


def test_what_is_no_answer_of_ours_is_refused(ticks: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match="was not made by match_pattern"):
        cep.explain(ticks)
    with pytest.raises(cep.PlanError, match="int is not a DataFrame"):
        cep.explain(3)  # type: ignore[arg-type]


def test_an_answer_that_spark_optimized_away_keeps_its_plan(matches: DataFrame) -> None:
    assert "SEQ(a, b)" in str(cep.plan_of(matches.limit(0)))


def test_names_are_quoted_only_where_they_must_be(ticks: DataFrame) -> None:
    renamed = ticks.withColumnRenamed("k", 'the ] "key" <&>')
    pattern = (
        seq(event("a", "kind <> 'the `t`'"), "b").where('a.`the ] "key" <&>` < b.t').within(10)
    )
    matches = renamed.match_pattern(pattern, order_by="t")
    facts = cep.plan_of(matches.filter("match_start > 3")).to_dict()
    assert facts["order_by"] == ["t"]
    assert facts["before"]["candidates"]["a"] == ["kind <> 'the `t`'"]
    assert facts["engine"]["conditions"] == ['a.`the ] "key" <&>` < b.t']
    html = cep.plan_of(matches)._repr_html_()
    assert 'a.`the ] "key" <&>` < b.t' in "".join(ElementTree.fromstring(html).itertext())


def test_columns_are_shown_as_what_they_hold(ticks: DataFrame) -> None:
    pattern = seq(event("a", F.col("kind") == "A"), "b").within(10)
    facts = cep.plan_of(ticks.match_pattern(pattern, order_by=F.col("t"))).to_dict()
    assert "Column<" not in str(facts)
    assert "kind" in facts["before"]["candidates"]["a"][0]


def test_a_pattern_that_no_row_of_the_sample_may_be_part_of_says_so(ticks: DataFrame) -> None:
    pattern = seq(event("a", "kind = 'Y'"), event("b", "kind = 'Z'")).within(10)
    found = cep.plan_of(ticks.match_pattern(pattern, order_by="t")).to_dict()
    assert "no variable accepts any of the input's 60 rows" in found["reason"]


def test_the_runner_up_in_sparks_plan_is_another_plan(
    ticks: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = ticks.match_pattern(PAIR, order_by="t")
    matches.explain()
    (runner_up,) = re.findall(r"match_pattern\[.* pairs \((\S+) [^)]*\)", capsys.readouterr().out)
    facts = cep.plan_of(matches).to_dict()
    shown = {each["plan"]: each["shown"] for each in facts["rejected"]}
    assert shown[runner_up] != facts["shown"]


def test_a_mode_that_there_is_not_is_refused(matches: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match="'loud' is not a mode of explain"):
        cep.explain(matches, mode="loud")
