"""Aggregates of MEASURES on streams: where Spark groups the answer of a batch, the worker computes
the same values, and what it cannot is refused before a query starts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_cep as cep
from tests.spark.streams import LAST, LAST_KEY, Files, drained, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

INPUT = """
    SELECT ts, k, kind, u, CAST(x AS INT) AS x, CAST(x * 37 % 128 AS TINYINT) AS i,
      nullif(x * 13 % 7 / 1.5D, 2D) + u % 4 / 10D AS f,
      CAST(nullif(u * 29 % 9, 4) / 3 AS DECIMAL(12, 4)) AS d,
      CASE u % 9 WHEN 4 THEN double('NaN') WHEN 7 THEN -double('Infinity') WHEN 2 THEN NULL
        ELSE u * 17 % 13 / 7D END AS z,
      CAST(u % 5 AS FLOAT) / 3 AS g,
      nullif(kind, 'B') AS name, IF(u % 10 = 3, 9223372036854775807L, u) AS big,
      IF(u % 10 < 3, CAST(repeat('9', 38) AS DECIMAL(38, 0)), CAST(u AS DECIMAL(38, 0))) AS wide,
      CAST(IF(u % 4 < 2, repeat('9', 34), '7.5') AS DECIMAL(38, 4)) AS high
    FROM {}"""
# {v} stands before a column: all rows, a variable or a subset.
AGGREGATES = (
    "median({v}x)", "median({v}d)", "median({v}z)", "median({v}g)", "median(DISTINCT {v}x)",
    "median({v}f) FILTER (WHERE {v}x > 2)",
    "percentile({v}f, 0.1)", "percentile({v}d, 0.37D)", "percentile({v}x, 1)",
    "percentile({v}f, array(0.1, 0.5, 0.9))", "percentile({v}x, array(1))",
    "percentile({v}d, array(0D, 0.25)) FILTER (WHERE {v}kind <> 'C')",
    "percentile_cont(0.4) WITHIN GROUP (ORDER BY {v}x)",
    "percentile_cont(array(0.2, 0.7)) WITHIN GROUP (ORDER BY {v}f DESC)",
    "mode({v}x, true)", "mode() WITHIN GROUP (ORDER BY {v}name)",
    "mode() WITHIN GROUP (ORDER BY {v}d DESC)", "mode() WITHIN GROUP (ORDER BY {v}ts)",
    "mode() WITHIN GROUP (ORDER BY {v}g)",
    "mode() WITHIN GROUP (ORDER BY date_add(DATE '2026-01-01', {v}x))",
    "mode({v}x > 4, true)", "mode() WITHIN GROUP (ORDER BY CAST({v}kind AS BINARY))",
    "corr({v}x, {v}f)", "corr({v}f, {v}d)", "corr({v}x, {v}f) FILTER (WHERE {v}i > 20)",
    "covar_pop({v}x, {v}f)", "covar_samp({v}d, {v}f)", "covar_samp({v}z, {v}f)",
    "regr_avgx({v}x, {v}d)", "regr_avgy({v}x, {v}f)", "regr_count({v}x, {v}f)",
    "regr_slope({v}x, {v}f)", "regr_intercept({v}f, {v}x)", "regr_r2({v}x, {v}f)",
    "regr_sxx({v}x, {v}f)", "regr_sxy({v}x, {v}f)", "regr_syy({v}x, {v}f)",
    "skewness({v}f)", "kurtosis({v}x)", "skewness({v}z)",
    "bit_and({v}x)", "bit_or({v}i)", "bit_xor({v}i)", "bit_xor({v}u) FILTER (WHERE {v}x < 6)",
    "try_sum({v}x)", "try_sum({v}f)", "try_sum({v}d)", "try_sum({v}big)", "try_sum({v}wide)",
    "try_sum(DISTINCT {v}i)", "try_avg({v}x)", "try_avg({v}d)", "try_avg({v}f)",
    "try_avg({v}high)", "round(median({v}f) * 2 + percentile({v}x, 0.3), 3)",
)  # fmt: skip
# Arguments that only the worker knows.
OF_LABELS = (
    "median(CASE WHEN CLASSIFIER() = 'b' THEN f END)",
    # No row of b fails.
    "median(CASE WHEN CLASSIFIER() = 'b' THEN 12 / (x - 2) END)",
    "mode() WITHIN GROUP (ORDER BY CLASSIFIER())",
    "bit_xor(x) FILTER (WHERE CLASSIFIER() <> 'a')",
    "corr(x, IF(CLASSIFIER() = 'b', 1, u))",
    "max(length(CLASSIFIER())) + try_sum(x + MATCH_NUMBER() * 0)",
)
STATEMENT = """
    SELECT * FROM {table} MATCH_RECOGNIZE (
      PARTITION BY k ORDER BY ts, u
      MEASURES {measures}
      {rows} AFTER MATCH SKIP TO NEXT ROW
      PATTERN (a b* c?) WITHIN INTERVAL 12 SECONDS
      SUBSET s = (a, c)
      DEFINE b AS x > 2, c AS kind <> 'B')"""


@pytest.fixture(autouse=True)
def sums_in_order(conf: dict[str, str]) -> None:
    """Behind this number of groups Spark sums up one of them in two parts."""
    conf["spark.sql.objectHashAggregate.sortBased.fallbackThreshold"] = "100000"


@pytest.fixture(autouse=True, scope="module")
def _views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    chance = random.Random(29)
    rows = [
        (chance.randrange(50), chance.choice([1, 2, 3]), chance.choice("AABBC"),
         chance.choice([None, *range(9)]), u)
        for u in range(90)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[0] + chance.random() * 5)
    files = Files(tmp_path_factory.mktemp("aggregates"))
    files.put(rows[:40])
    files.put(rows[40:])
    files.put([LAST])
    with small(spark):
        files.stream(spark).createOrReplaceTempView("arriving")
        files.batch(spark).createOrReplaceTempView("arrived")
        spark.sql(INPUT.format("arriving")).createOrReplaceTempView("streamed")
        spark.sql(INPUT.format("arrived")).createOrReplaceTempView("stored")
        yield


def statement(table: str, texts: list[str], rows: str) -> str:
    keys = "FIRST(u) AS head, LAST(u) AS tail"
    measures = [keys, *(f"{text} AS m{place}" for place, text in enumerate(texts))]
    return STATEMENT.format(table=table, measures=",\n".join(measures), rows=rows)


def values(found: DataFrame, texts: list[str]) -> dict[Any, list[str]]:
    names = [f"m{place}" for place in range(len(texts))]
    kept = found.filter(f"k <> {LAST_KEY}").collect()
    return {
        (row["k"], row["head"], row["tail"]): [repr(row[name]) for name in names] for row in kept
    }


def compare(spark: SparkSession, texts: list[str], rows: str) -> None:
    streamed = cep.sql(spark, statement("streamed", texts, rows))
    stored = cep.sql(spark, statement("stored", texts, rows))
    names = [name for name in stored.columns if name.startswith("m")]
    assert streamed.select(names).dtypes == stored.select(names).dtypes
    wanted = values(stored, texts)
    given = values(drained(streamed)[0], texts)
    assert len(wanted) > 60
    assert given.keys() == wanted.keys()
    for place, text in enumerate(texts):
        differ = {
            key: (given[key][place], wanted[key][place])
            for key in wanted
            if given[key][place] != wanted[key][place]
        }
        assert not differ, text
        assert len({each[place] for each in wanted.values()}) > 1, text


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_aggregates_of_a_stream_are_those_of_a_batch(
    spark: SparkSession, conf: dict[str, str], ansi: str
) -> None:
    conf["spark.sql.ansi.enabled"] = ansi
    variable = {"true": "s.", "false": "b."}[ansi]
    texts = [text.format(v=variable) for text in AGGREGATES]
    compare(spark, [*texts, *OF_LABELS], "ONE ROW PER MATCH")


def test_running_and_final_aggregates_with_all_rows(spark: SparkSession) -> None:
    texts = [text.format(v="") for text in AGGREGATES]
    finals = [f"FINAL {text.format(v='s.')}" for text in AGGREGATES if not text.startswith("round")]
    rows = "ALL ROWS PER MATCH"
    streamed = statement("streamed", [*texts, *finals, "FINAL LAST(u)"], rows)
    compare_rows(spark, streamed, statement("stored", [*texts, *finals, "FINAL LAST(u)"], rows))


def compare_rows(spark: SparkSession, streamed: str, stored: str) -> None:
    """Matches overlap, so a row is known by its match, too."""
    given, _ = drained(cep.sql(spark, streamed))
    found = [
        sorted(repr(row) for row in each.filter(f"k <> {LAST_KEY}").collect())
        for each in (given, cep.sql(spark, stored))
    ]
    assert len(found[0]) > 150
    assert found[0] == found[1]


def test_an_argument_that_fails_ends_the_query_as_it_ends_a_batch(
    spark: SparkSession, conf: dict[str, str]
) -> None:
    conf["spark.sql.ansi.enabled"] = "true"
    text = "median(x / (MATCH_NUMBER() - 1))"
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        cep.sql(spark, statement("stored", [text], "ONE ROW PER MATCH")).collect()
    with pytest.raises(StreamingQueryException) as failed:
        drained(cep.sql(spark, statement("streamed", [text], "ONE ROW PER MATCH")))
    error = cep.error_of(failed.value)
    assert error is not None
    assert "an argument of percentile in a measure fails" in error.message
    conf["spark.sql.ansi.enabled"] = "false"
    compare(spark, [text], "ONE ROW PER MATCH")


# What is refused, what the error says, and the hint.
REFUSED = {
    "approx_count_distinct(x)": ("on a stream approx_count_distinct()", "count(DISTINCT"),
    "approx_percentile(x, 0.5)": ("on a stream approx_percentile()", "percentile("),
    "histogram_numeric(x, 3)": ("on a stream histogram_numeric()", "percentile("),
    "hex(hll_sketch_agg(x))": ("on a stream hll_sketch_agg()", "foreachBatch"),
    "mode(kind)": ("not certain", "mode() WITHIN GROUP (ORDER BY kind)"),
    "max_by(kind, x, 2)": ("max_by() with a number of rows is not supported in measures on a", ""),
    "percentile(x, 0.5, 2)": ("percentile() with 3 arguments is not supported in measures", ""),
    "percentile(x, 1.5)": ("The percentage must be between", ""),
    "median(x, u)": ("but the actual number is 2", ""),
    "bit_and(x, u)": ("but the actual number is 2", ""),
    "try_sum(ts - TIMESTAMP '2026-01-01')": ("INTERVAL DAY TO SECOND is not supported", "number"),
    "try_avg(x + MATCH_NUMBER())": ("with CLASSIFIER() or MATCH_NUMBER()", "collect_list"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_other_aggregates_are_refused_before_a_query_starts(spark: SparkSession, text: str) -> None:
    message, hint = REFUSED[text]
    with pytest.raises(cep.PatternError) as caught:
        cep.sql(spark, statement("streamed", [text], "ONE ROW PER MATCH"))
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")
