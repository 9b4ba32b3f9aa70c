"""Aggregates in DEFINE against Spark's own, of the rows so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import spark_cep as cep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Aggregates over all rows so far whose last digit, or more, depends on the order of the rows. Spark
# computes them as windows; where it cannot, the same with CASE instead of FILTER.
ORDERED = (
    ("stddev(x)", "stddev(x) {over}"),
    ("std(i)", "std(i) {over}"),
    ("stddev_samp(f)", "stddev_samp(f) {over}"),
    ("stddev_pop(d)", "stddev_pop(d) {over}"),
    ("variance(f)", "variance(f) {over}"),
    ("var_samp(i)", "var_samp(i) {over}"),
    ("var_pop(x)", "var_pop(x) {over}"),
    ("max_by(name, x)", "max_by(name, x) {over}"),
    ("min_by(x, f)", "min_by(x, f) {over}"),
    ("max_by(d, ts)", "max_by(d, ts) {over}"),
    ("min_by(f, d)", "min_by(f, d) {over}"),
    ("max_by(ts, name = 'a')", "max_by(ts, name = 'a') {over}"),
    ("sum(x) FILTER (WHERE f > 1)", "sum(CASE WHEN f > 1 THEN x END) {over}"),
    ("stddev(x) FILTER (WHERE x > 2)", "stddev(CASE WHEN x > 2 THEN x END) {over}"),
    ("max_by(x, f) FILTER (WHERE x < 9)", "max_by(x, CASE WHEN x < 9 THEN f END) {over}"),
    ("max_by(x, name)", "max_by(x, name) {over}"),
    ("min_by(d, name)", "min_by(d, name) {over}"),
    ("get(collect_list(x), 1)", "get(collect_list(x) {over}, 1)"),
    ("array_join(collect_list(name), '-')", "array_join(collect_list(name) {over}, '-')"),
    ("listagg(name)", "listagg(name) {over}"),
    ("listagg(name, ',')", "listagg(name, ',') {over}"),
    ("listagg(x, '|')", "listagg(x, '|') {over}"),
    ("string_agg(name, NULL)", "string_agg(name, NULL) {over}"),
    ("corr(x, f)", "corr(x, f) {over}"),
    ("corr(f, d)", "corr(f, d) {over}"),
    ("corr(x, 2)", "corr(x, 2) {over}"),
    ("covar_pop(x, f)", "covar_pop(x, f) {over}"),
    ("covar_samp(d, f)", "covar_samp(d, f) {over}"),
    ("regr_avgx(x, d)", "regr_avgx(x, d) {over}"),
    ("regr_avgy(x, f)", "regr_avgy(x, f) {over}"),
    ("regr_slope(x, f)", "regr_slope(x, f) {over}"),
    ("regr_intercept(f, x)", "regr_intercept(f, x) {over}"),
    ("regr_r2(x, f)", "regr_r2(x, f) {over}"),
    ("regr_r2(f, x)", "regr_r2(f, x) {over}"),
    ("regr_sxx(x, f)", "regr_sxx(x, f) {over}"),
    ("regr_sxy(x, f)", "regr_sxy(x, f) {over}"),
    ("regr_syy(x, f)", "regr_syy(x, f) {over}"),
    ("corr(x, f) FILTER (WHERE i = 1)", "corr(CASE WHEN i = 1 THEN x END, f) {over}"),
    ("skewness(f)", "skewness(f) {over}"),
    ("kurtosis(x)", "kurtosis(x) {over}"),
    ("try_sum(f)", "try_sum(f) {over}"),
    ("FIRST(name) IGNORE NULLS", "FIRST(name) IGNORE NULLS {over}"),
    ("LAST(x) IGNORE NULLS", "LAST(x) IGNORE NULLS {over}"),
    ("last(f, true)", "last(f, true) {over}"),
    ("any_value(name IGNORE NULLS)", "any_value(name) IGNORE NULLS {over}"),
    (
        "first_value(ts) FILTER (WHERE x > 5)",
        "first(CASE WHEN x > 5 THEN ts END) IGNORE NULLS {over}",
    ),
    (
        "last_value(x) FILTER (WHERE f > 1) IGNORE NULLS",
        "last(CASE WHEN f > 1 THEN x END) IGNORE NULLS {over}",
    ),
    ("first(x) RESPECT NULLS", "first(x) RESPECT NULLS {over}"),
    ("sum(x / (x - 3)) FILTER (WHERE x <> 3)", "sum(CASE WHEN x <> 3 THEN x / (x - 3) END) {over}"),
)
# Others. Spark groups the rows so far, as many of these cannot be windows.
UNORDERED = (
    "count(*) FILTER (WHERE x > 6)",
    "bool_and(x > 3) FILTER (WHERE f < 2)",
    "count_if(i = 1) FILTER (WHERE f < 2)",
    "size(collect_list(x))",
    "array_contains(collect_list(x), 7)",
    "array_contains(array_agg(z), double('NaN'))",
    "size(array_agg(ts))",
    "size(collect_list(name) RESPECT NULLS)",
    "array_max(collect_list(d))",
    "get(sort_array(collect_set(x)), 2)",
    "size(collect_set(f))",
    "array_join(sort_array(collect_set(name)), '')",
    "size(collect_list(x) FILTER (WHERE f > 1))",
    "listagg(name, ',') WITHIN GROUP (ORDER BY x DESC, id)",
    "listagg(x, ',') WITHIN GROUP (ORDER BY f NULLS LAST, name DESC NULLS FIRST, id)",
    "listagg(name) WITHIN GROUP (ORDER BY d, id) FILTER (WHERE x > 4)",
    "bit_and(x)",
    "bit_or(i)",
    "bit_xor(x)",
    "bit_xor(x) FILTER (WHERE f < 3)",
    "bit_and(x) + size(collect_list(x))",
    "regr_count(x, f)",
    "median(x)",
    "median(f)",
    "median(d)",
    "percentile(f, 0.1)",
    "percentile(d, 0.37D)",
    "percentile(x, 1)",
    "percentile(z, 0.3)",
    "percentile_cont(0.4) WITHIN GROUP (ORDER BY x)",
    "percentile_cont(0.4) WITHIN GROUP (ORDER BY f DESC)",
    "median(x) FILTER (WHERE x > 2)",
    "mode(x, true)",
    "mode() WITHIN GROUP (ORDER BY name)",
    "mode() WITHIN GROUP (ORDER BY f DESC)",
    "try_sum(x)",
    "try_sum(big)",
    "try_sum(d)",
    "try_sum(wide)",
    "try_avg(x)",
    "try_avg(d)",
    "count(DISTINCT x)",
)
ROWS = """
    SELECT id, CAST(nullif(id * 37 % 11, 5) AS INT) AS x, CAST(id % 3 AS TINYINT) AS i,
      nullif(id * 13 % 7 / 1.5D, 2D) + id % 4 / 10D AS f,
      CAST(id * 29 % 9 / 3 AS DECIMAL(12, 4)) AS d,
      nullif(substr('abcdefgh', 1 + CAST(id * 5 % 8 AS INT), 1), 'c') AS name,
      CASE id % 9 WHEN 4 THEN double('NaN') WHEN 7 THEN -double('Infinity') WHEN 2 THEN NULL
        ELSE id * 17 % 13 / 7D END AS z,
      IF(id = 20, 9223372036854775807L, id) AS big,
      IF(id > 30, CAST(repeat('9', 38) AS DECIMAL(38, 0)), CAST(id AS DECIMAL(38, 0))) AS wide,
      TIMESTAMP '2026-01-01' + make_dt_interval(0, 0, CAST(id * 7 % 10 AS INT)) AS ts
    FROM range(0, 40, 1, 1)"""


def test_aggregates_of_define_are_those_of_spark(spark: SparkSession) -> None:
    spark.sql(ROWS).createOrReplaceTempView("plain_rows")
    over = "OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    windows = ", ".join(f"{by.format(over=over)} AS w{n}" for n, (_, by) in enumerate(ORDERED))
    groups = ", ".join(f"{text} AS g{n}" for n, text in enumerate(UNORDERED))
    spark.sql(f"""
        SELECT * FROM (SELECT *, {windows} FROM plain_rows) JOIN (
          SELECT last_id, {groups}
          FROM (SELECT id AS last_id FROM range(40)) JOIN plain_rows ON id <= last_id
          GROUP BY last_id) ON id = last_id""").createOrReplaceTempView("folded_rows")
    equal = [f"{text} <=> w{place}" for place, (text, _) in enumerate(ORDERED)]
    equal += [f"{text} <=> g{place}" for place, text in enumerate(UNORDERED)]

    def length(conditions: list[str]) -> int:
        found = cep.sql(
            spark,
            f"""SELECT * FROM folded_rows MATCH_RECOGNIZE (
                ORDER BY id MEASURES count(*) AS length PATTERN (^ a*)
                DEFINE a AS {" AND ".join(conditions)})""",
        )
        return int(found.collect()[0]["length"])

    if length(equal) < 40:
        assert [(each, length([each])) for each in equal] == [(each, 40) for each in equal]
