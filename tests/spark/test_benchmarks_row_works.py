"""The works of the row pattern benchmarks answer what a plain computation says, on few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spark_cep as cep
from benchmarks.row_data import walks, write
from benchmarks.row_patterns import check, works

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WORKS = works(gaps=(4_000,))
WITHOUT_A_MATCH = {"no_match", "nested_quantifier", "equal_rows", "equal_rows_back"}
V_SHAPES = """SELECT * FROM {rows} MATCH_RECOGNIZE (
    PARTITION BY symbol ORDER BY ts
    MEASURES FIRST(ts) AS since, LAST(down.price) AS bottom, LAST(up.price) AS top, count(*) AS size
    PATTERN (strt down+ up+) DEFINE down AS price < PREV(price), up AS price > PREV(price))"""


@pytest.mark.parametrize("name", WORKS)
def test_a_work_answers_what_a_plain_computation_does(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    assert check(spark, WORKS[name], tmp_path) is None


@pytest.mark.parametrize("name", WORKS.keys() - WITHOUT_A_MATCH)
def test_the_few_rows_of_a_check_have_matches(name: str) -> None:
    work = WORKS[name]
    assert work.plain(work.data(work.checked))[0] > 0


def test_v_shapes_do_not_depend_on_the_number_of_buckets(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.read.parquet(write(walks(20_000, 50), tmp_path / "ticks"))
    answers = []
    for buckets in ("1", "3", "8", "61"):
        spark.conf.set("spark.cep.buckets", buckets)
        try:
            answers.append(sorted(cep.sql(spark, V_SHAPES, rows=rows).collect()))
        finally:
            spark.conf.unset("spark.cep.buckets")
    assert len(answers[0]) > 1_000
    assert all(answer == answers[0] for answer in answers[1:])
