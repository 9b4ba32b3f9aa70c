"""What cannot be shed is refused on the driver, before any job, with what to write instead."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import Shed, event, row_pattern, seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_cep import Pattern

pytestmark = pytest.mark.spark

A, B = event("a", "kind = 'A'"), event("b", "kind = 'B'")
PAIR = seq(A, B)
KEEP = Shed(keep=0.3)


@pytest.fixture(scope="module")
def failing(spark: SparkSession) -> DataFrame:
    """Any job over it fails."""
    return spark.range(4).selectExpr(
        "CAST(raise_error('a job ran') AS INT) AS t",
        "DATE '2024-01-01' AS day",
        "timestamp_seconds(id) AS ts",
        "'A' AS kind",
        "id AS x",
    )


@pytest.mark.parametrize(
    ("pattern", "options", "message", "hint"),
    [
        (PAIR.within(9).strategy("skip till next match"), {}, "strategy 'skip till next match'",
         "skip till any match"),
        (PAIR.within(9).strategy("strict"), {}, "strategy 'strict'", "skip till any match"),
        (PAIR.within(9).consumption("consume"), {"order_by": ["t", "x"]}, "consumption 'consume'",
         "reuse"),
        (PAIR, {}, "the pattern has no window", "within("),
        (PAIR.within(events=9), {}, "a window that counts events", "within("),
        (PAIR.within(9), {"shed": Shed(rows_per_second=5)}, "needs an event time in seconds",
         "keep=0.3"),
        (PAIR.within("2 days"), {"shed": Shed(rows_per_second=5), "order_by": "day"},
         "the first order column is DATE", "keep=0.3"),
        (PAIR.within(9), {"shed": 0.3}, "shed takes cep.Shed, not float", "cep.Shed(keep=0.3)"),
        (PAIR.within(9), {"shed": {"keep": 0.3}}, "shed takes cep.Shed, not dict", "cep.Shed("),
    ],
)  # fmt: skip
def test_what_shedding_could_falsify_is_refused(
    failing: DataFrame, pattern: Pattern, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(cep.PlanError) as raised:
        cep.match_pattern(failing, pattern, **{"order_by": "t", "shed": KEEP, **options})
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


def test_row_patterns_are_not_shed(failing: DataFrame) -> None:
    pattern = row_pattern("a b", define={"a": "kind = 'A'", "b": "kind = 'B'"})
    with pytest.raises(
        cep.PlanError, match="a row pattern would give other matches if rows were dropped"
    ):
        cep.match_pattern(
            failing, pattern, order_by="t", measures={"t": "LAST(a.t)"}, shed=KEEP
        )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "message", "hint"),
    [
        ({}, "one of keep, latency and rows_per_second, not none", "cep.Shed(keep=0.3)"),
        ({"keep": 0.3, "latency": "1 second"}, "not keep and latency", "cep.Shed(keep=0.3)"),
        ({"keep": 0.3, "rows_per_second": 5}, "not keep and rows_per_second", "keep=0.3"),
        ({"keep": 1.5}, "keep is 1.5", "a share between 0 and 1: keep=0.3"),
        ({"keep": -0.1}, "keep is -0.1", "keep=0.3"),
        ({"keep": float("nan")}, "keep is nan", "keep=0.3"),
        ({"keep": True}, "keep is True", "keep=0.3"),
        ({"keep": "30%"}, "keep is '30%'", "keep=0.3"),
        ({"latency": "soon"}, "latency 'soon' is not a duration", "1.5 seconds"),
        ({"latency": 1.5}, "latency 1.5 is not a duration", "1.5 seconds"),
        ({"latency": "2 months"}, "latency '2 months' is not a duration", "1.5 seconds"),
        ({"latency": "0 seconds"}, "latency '0 seconds' is not above 0", "1.5 seconds"),
        ({"latency": timedelta(seconds=-1)}, "is not above 0", "1.5 seconds"),
        ({"rows_per_second": 0}, "rows_per_second is 0", "rows_per_second=100_000"),
        ({"rows_per_second": float("inf")}, "rows_per_second is inf", "a number above 0"),
        ({"rows_per_second": "5"}, "rows_per_second is '5'", "a number above 0"),
        ({"keep": 0.3, "policy": "best"}, "policy is 'best'", '"utility", "keys"'),
        ({"keep": 0.3, "policy": ["utility"]}, "policy is [", '"utility", "keys"'),
        ({"keep": 0.3, "safety": 0}, "safety is 0", "safety=0.3"),
        ({"keep": 0.3, "safety": 1.1}, "safety is 1.1", "safety=0.3"),
        ({"keep": 0.3, "seed": 1.0}, "seed is 1.0", "whole number"),
        ({"keep": 0.3, "seed": True}, "seed is True", "whole number"),
        ({"keep": 0.3, "seed": 2**63}, "seed is 9223372036854775808", "64 bits"),
    ],
)
def test_how_to_shed_is_checked_when_it_is_written(
    how: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(cep.PlanError) as raised:
        Shed(**how)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    "how",
    [
        {"keep": 0}, {"keep": 1}, {"latency": timedelta(milliseconds=5)},
        {"latency": "INTERVAL '1' SECOND"}, {"rows_per_second": 0.5, "seed": -(2**63)},
        {"keep": 0.5, "safety": 1, "seed": 2**63 - 1},
    ],
)  # fmt: skip
def test_what_makes_sense_is_taken(how: dict[str, Any]) -> None:
    assert Shed(**how).asked()
