"""Texts of docs/sase.md on Spark: all of them with Spark's own types, some of them on data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spark_cep as cep
from tests.sql.sase_page import patterns, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PATTERNS = patterns()


def table(spark: SparkSession, name: str, values: str = "") -> DataFrame:
    """The table of a pattern of the page, with rows written as SQL VALUES."""
    ddl = schema(name)
    if not values:
        return spark.createDataFrame([], ddl)
    names = ", ".join(part.split(" ")[0] for part in ddl.split(", "))
    raw = spark.sql(f"SELECT * FROM VALUES {values} AS rows({names})")
    kinds = dict(part.replace("`", "").split(" ") for part in ddl.split(", "))
    return raw.selectExpr(*(f"CAST(`{each}` AS {kind}) `{each}`" for each, kind in kinds.items()))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_text_of_the_page_can_be_planned(spark: SparkSession, name: str) -> None:
    answer = cep.match_pattern(table(spark, name), PATTERNS[name], order_by="ts")
    assert {"match_start", "match_end"} <= set(answer.columns)


def test_the_fraud_query_finds_a_transaction_at_an_unknown_place(spark: SparkSession) -> None:
    name = "eires_listing_1"
    # ts, type, cc, vol, loc, limit, ben, known_places, highest_limit, authorized
    known, none = "array('Rome', 'Oslo')", "array('ACME')"
    rows = table(
        spark,
        name,
        f"""
        ('2024-01-01 10:00:00', 'T', 7, 20000, 'Rome', NULL, 'ACME', {known}, 500, {none}),
        ('2024-01-01 10:01:00', 'D', 7, 90000, 'Oslo', NULL, 'ACME', {known}, 500, {none}),
        ('2024-01-01 10:01:30', 'L', 7, NULL, NULL, 900, NULL, {known}, 500, {none}),
        ('2024-01-01 10:02:00', 'T', 7, 15000, 'Oslo', NULL, 'ACME', {known}, 500, {none}),
        ('2024-01-01 10:03:00', 'T', 7, 11000, 'Lima', NULL, 'ACME', {known}, 500, {none}),
        ('2024-01-01 10:04:00', 'T', 7, 60000, 'Oslo', NULL, 'Evil', {known}, 500, {none}),
        ('2024-01-01 10:04:30', 'T', 8, 60000, 'Lima', NULL, 'Evil', {known}, 500, {none})
        """,
    )
    measures = {"first": "t1.ts", "denied": "t2.loc", "raised": "t3.ben"}
    answer = cep.match_pattern(rows, PATTERNS[name], order_by="ts", measures=measures)
    found = {(row["first"].minute, row["denied"], row["raised"]) for row in answer.collect()}
    assert found == {(0, "Lima", None), (0, None, "Evil")}


def test_correlated_stocks_are_found_by_a_function_of_arrays(spark: SparkSession) -> None:
    up, down = "array(1.0, 2.0, 3.0)", "array(3.0, 2.0, 1.0)"
    rows = table(
        spark,
        "lazy_section_7",
        f"""
        ('2024-01-01 10:00:00', 'JPM', 1, {up}), ('2024-01-01 10:01:00', 'GS', 2, {down}),
        ('2024-01-01 10:02:00', 'INTC', 3, {up}), ('2024-01-01 10:03:00', 'GOOG', 4, {up}),
        ('2024-01-01 10:04:00', 'GOOG', 5, {down})
        """,
    )
    measures = {"a": "a.ticker", "b": "b.ticker", "c": "c.price"}
    pattern = PATTERNS["lazy_section_7"]
    answer = cep.match_pattern(rows, pattern, order_by="ts", measures=measures)
    assert [tuple(row) for row in answer.collect()] == [("JPM", "INTC", 4.0)]


def test_a_bushfire_is_a_group_that_repeats_by_day(spark: SparkSession) -> None:
    # ts, boundary, channel, time, level, sensor_temperature, sensor_humidity
    def reading(clock: str, channel: int, boundary: int) -> str:
        time = f"'2024-07-01 {clock}'"
        return f"({time}, {boundary}, {channel}, TIMESTAMP {time}, 'high', 50, 20)"

    seen = [
        reading("05:58:00", 7, 110),  # before six
        reading("06:00:00", 7, 110),
        reading("06:01:00", 14, 120),
        reading("06:02:00", 16, 130),
        reading("06:03:00", 16, 230),  # another place
        reading("06:10:00", 7, 140),
        reading("06:11:00", 14, 150),
        reading("06:12:00", 16, 160),
    ]
    rows = table(spark, "eires_listing_3", ", ".join(seen))
    pattern = PATTERNS["eires_listing_3"]
    answer = cep.match_pattern(rows, pattern, order_by="ts", measures={"rounds": "count(a)"})
    rounds = sorted(row["rounds"] for row in answer.collect())
    assert rounds.count(2) == 1
    assert set(rounds) == {1, 2}
