"""Row patterns with gaps through Spark: the plan changes no answer, and explain names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PATTERN = cep.row_pattern(
    "r z* b z* m",
    define={
        "r": "kind = 'R'",
        "b": "kind = 'B' AND abs(x - LAST(r.x)) <= 2",
        "m": "kind = 'M' AND abs(x - LAST(r.x)) <= 2 AND t - LAST(r.t) <= 20",
    },
)
QUERY = """SELECT * FROM reports MATCH_RECOGNIZE (
    PARTITION BY city ORDER BY t
    MEASURES r.t AS rt, b.t AS bt, m.t AS mt, COUNT(z.*) AS n
    ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
    PATTERN (r z* b z* m)
    DEFINE r AS kind = 'R', b AS kind = 'B' AND abs(x - LAST(r.x)) <= 2,
           m AS kind = 'M' AND abs(x - LAST(r.x)) <= 2 AND t - LAST(r.t) <= 20
)"""


@pytest.fixture
def reports(spark: SparkSession) -> DataFrame:
    rows = [
        (city, t, "RBMOO"[(t * t + 3 * t + city) % 5], (7 * t * t + city) % 11)
        for city in range(3)
        for t in range(80)
    ]
    found = spark.createDataFrame(rows, "city int, t bigint, kind string, x int")
    found.createOrReplaceTempView("reports")
    return found


def matched(reports: DataFrame, plan: str, **options: Any) -> DataFrame:
    given: dict[str, Any] = {
        "measures": {"rt": "r.t", "bt": "b.t", "mt": "m.t", "n": "count(z.*)"},
        "after_match": "SKIP TO NEXT ROW",
        **options,
    }
    return reports.match_pattern(PATTERN, partition_by="city", order_by="t", plan=plan, **given)


def test_both_plans_give_the_same_answer(reports: DataFrame) -> None:
    found = {
        plan: sorted(map(tuple, matched(reports, plan).collect())) for plan in ("walk", "gaps")
    }
    assert found["walk"] == found["gaps"]
    assert len(found["gaps"]) > 10
    assert all(rt < bt < mt <= rt + 20 for _, rt, bt, mt, _ in found["gaps"])


def test_both_plans_show_the_same_rows(reports: DataFrame) -> None:
    options = {
        "rows": "all with unmatched", "measures": {"label": "classifier()"},
        "after_match": "SKIP TO LAST b",
    }  # fmt: skip
    found = [
        sorted(map(repr, matched(reports, plan, **options).collect())) for plan in ("walk", "gaps")
    ]
    assert found[0] == found[1]
    assert len({row.split("label=")[1] for row in found[0]}) >= 5


def test_the_plan_says_why_it_was_taken(
    reports: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    found = matched(reports, "auto")
    plan = cep.plan_of(found)
    assert (plan.to_dict()["plan"], plan.to_dict()["rung"]) == ("gaps", "gaps")
    text = str(plan)
    assert "gaps r → b → m" in text
    assert "r, b and m are joined by ranges; the rows of z are skipped" in text
    assert "walk: scans all rows of a gap" in text
    found.explain()
    assert "match_pattern[rows by gaps r z* b z* m, one  #" in capsys.readouterr().out
    assert cep.plan_of(matched(reports, "walk")).to_dict()["reason"] == "forced by plan="


def test_sql_takes_the_same_plans(spark: SparkSession, reports: DataFrame) -> None:
    wanted = sorted(map(tuple, matched(reports, "walk").collect()))
    for hint, plan in (
        ("", "gaps"),
        (" /*+ plan('walk') */", "walk"),
        (" /*+ plan('gaps') */", "gaps"),
    ):
        found = sql(spark, QUERY + hint)
        assert cep.plan_of(found).to_dict()["plan"] == plan
        assert sorted(map(tuple, found.collect())) == wanted


def test_joins_that_cannot_be_are_refused_before_any_job(reports: DataFrame) -> None:
    with pytest.raises(cep.PlanError, match="no variable between two others is repeated"):
        reports.match_pattern(
            cep.row_pattern("r z*"), order_by="t", measures={"n": "count(*)"}, plan="gaps"
        )
