"""Aggregates of MEASURES against Spark's own GROUP BY over the rows that a match has."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import PatternError, row_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = (
    "k string, t int, x double, y double, i int, d decimal(12,3), e decimal(38,10), s string, "
    "f boolean, v array<int>"
)
# Rows of any kind, b in runs, and an end: matches of every length, empty ones too.
PATTERN = row_pattern(
    "(a | b)* c?",
    define={"a": "i % 4 = 0", "b": "i % 4 IN (1, 2)", "c": "i % 4 = 3 AND x > 3"},
    subset={"u": ["a", "c"]},
)

# Over a variable, written with {v} for what stands before a column.
AGGREGATES = [
    "sum({v}x)", "avg({v}y)", "min({v}s)", "max({v}d)", "count({v}x)", "count_if({v}f)",
    "any({v}f)", "some({v}f)", "every({v}f)", "bool_and({v}f)", "sum({v}d)", "avg({v}d)",
    "avg({v}e)", "sum({v}e)", "sum(DISTINCT {v}i)", "round(avg(DISTINCT {v}x), 6) + 1",
    "count(DISTINCT {v}i)", "count(DISTINCT {v}i, {v}s)", "count({v}i, {v}x)",
    "stddev({v}x)", "stddev_pop({v}x)", "var_samp({v}y)", "var_pop({v}i)",
    "median({v}x)", "median({v}i)", "median({v}d)", "percentile({v}e, 0.3)", "median({v}s)",
    "percentile({v}x, 0.3)", "percentile({v}i, array(0.1, 0.9))",
    "percentile({v}x, 0.5, abs({v}i))", "percentile(DISTINCT {v}i, 0.4)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY {v}x)",
    "percentile_cont(0.25) WITHIN GROUP (ORDER BY {v}x DESC)",
    "percentile_disc(0.75) WITHIN GROUP (ORDER BY {v}x)",
    "percentile_approx({v}x, 0.5)", "approx_percentile({v}i, array(0.2, 0.8), 50)",
    "approx_count_distinct({v}s)", "approx_count_distinct({v}x, 0.1)",
    "corr({v}x, {v}y)", "covar_pop({v}x, {v}i)", "covar_samp({v}x, {v}y)",
    "regr_slope({v}x, {v}y)", "regr_intercept({v}x, {v}y)", "regr_r2({v}x, {v}y)",
    "regr_count({v}x, {v}y)", "regr_avgx({v}x, {v}y)", "regr_avgy({v}x, {v}y)",
    "regr_sxx({v}x, {v}y)", "regr_syy({v}x, {v}y)", "regr_sxy({v}x, {v}y)",
    "skewness({v}x)", "kurtosis({v}y)", "try_sum({v}i)", "try_sum({v}x)", "try_avg({v}x)",
    "try_avg({v}d)", "histogram_numeric({v}x, 3)", "bit_and({v}i)", "bit_or({v}i)",
    "bit_xor({v}i)", "max_by({v}s, {v}x)", "min_by({v}x, {v}y)",
    "max_by({v}s, {v}t, 2)", "min_by({v}s, {v}t, 2)", "sort_array(collect_set({v}i))",
    "collect_list({v}x)", "array_agg({v}s)", "listagg({v}s, '-')", "string_agg({v}s)",
    "listagg({v}s, '-') WITHIN GROUP (ORDER BY {v}s DESC, {v}t)",
    "listagg(DISTINCT {v}s, '-') WITHIN GROUP (ORDER BY {v}s DESC)",
    "hll_sketch_estimate(hll_sketch_agg({v}i))", "hex(count_min_sketch({v}i, 0.5d, 0.5d, 1))",
    "bitmap_count(bitmap_construct_agg(bitmap_bit_position({v}i)))", "sum({v}s)",
    "approx_top_k({v}k)", "round(percentile({v}x * 2 + {v}y, 0.5), 2) + 1",
    "mode(CASE WHEN {v}x > 5 THEN 1 END)", "median({v}v[0])", "avg(CAST({v}i AS STRING))",
]  # fmt: skip

# Beside other DISTINCT aggregates Spark can fail to plan it, so it is compared alone.
UNPLANNED = "listagg(DISTINCT"
# Of these, every supported Spark has more.
LEAST = 70


@pytest.fixture(autouse=True)
def sums_in_order(conf: dict[str, str]) -> None:
    """Behind this number of groups Spark sums up one of them in two parts, which rounds otherwise,
    and which one depends on the plan."""
    conf["spark.sql.objectHashAggregate.sortBased.fallbackThreshold"] = "100000"


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> DataFrame:
    chance = random.Random(51)

    def some(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    rows = [
        (
            f"k{key}", place,
            some(round(chance.uniform(-20, 20), chance.choice([0, 3, 9]))),
            some(chance.choice([0.1, 0.2, 0.3, 1e9, -7.5])),
            some(chance.randrange(12)), some(f"{chance.randrange(10**6)}.125"),
            some(f"{chance.randrange(10**9)}.{chance.randrange(10**9)}"),
            some(str(chance.randrange(5))), some(chance.random() < 0.5),
            some([chance.randrange(9)]),
        )
        for key in range(5)
        for place in range(40)
    ]  # fmt: skip
    texts = SCHEMA.replace("decimal(12,3)", "string").replace("decimal(38,10)", "string")
    df = spark.createDataFrame(rows, texts)
    typed = df.withColumns(
        {"d": F.col("d").cast("decimal(12,3)"), "e": F.col("e").cast("decimal(38,10)")}
    )
    return typed.coalesce(1).cache()


def known(spark: SparkSession, aggregates: Sequence[str]) -> list[str]:
    """Those that this version of Spark has."""
    one = spark.range(1).selectExpr(
        "'1' AS k", "1 AS t", "1D AS x", "1D AS y", "1 AS i", "1.5BD AS d", "1.5BD AS e",
        "'1' AS s", "TRUE AS f", "array(1) AS v",
    )  # fmt: skip
    found = []
    for each in aggregates:
        with contextlib.suppress(AnalysisException, ParseException):
            one.selectExpr(each.format(v=""))
            found.append(each)
    assert len(found) > LEAST
    return found


def match(data: DataFrame, measures: Mapping[str, str], **options: Any) -> DataFrame:
    return data.match_pattern(
        PATTERN, partition_by="k", order_by="t", measures=dict(measures), **options
    )


def matched(data: DataFrame) -> DataFrame:
    """The rows of the matches, with number, label and place."""
    measures = {"m": "MATCH_NUMBER()", "label": "CLASSIFIER()", "place": "count(*)"}
    return match(data, measures, rows="all").coalesce(1)


def compare(found: DataFrame, rows: DataFrame, pairs: Sequence[tuple[str, str]], keys: str) -> None:
    """The measures of `found` behind the keys, beside Spark's aggregates of the rows by these keys.
    `pairs`: what was measured, and what Spark is asked for."""
    names = keys.split()
    measured = {tuple(row[: len(names)]): row[len(names) :] for row in found.collect()}
    # The names of the types: array_compact of Spark 3.5 does not say that its array has no NULL.
    types = [kind for _, kind in found.dtypes[len(names) :]]
    for places in separable([own for _, own in pairs]):
        asked = [F.expr(pairs[place][1]).alias(f"m{place}") for place in places]
        own = rows.groupBy(*names).agg(*asked)
        expected = {tuple(row[: len(names)]): row[len(names) :] for row in own.collect()}
        assert measured.keys() == expected.keys()
        for column, place in enumerate(places):
            assert types[place] == own.dtypes[len(names) + column][1], pairs[place]
            for key, values in expected.items():
                assert repr(measured[key][place]) == repr(values[column]), (key, pairs[place])


def separable(texts: Sequence[str]) -> list[list[int]]:
    """The places of the texts, in parts: Spark cannot plan listagg, WITHIN GROUP beside DISTINCT
    aggregates."""
    distinct = [place for place, each in enumerate(texts) if "DISTINCT" in each]
    rest = [place for place in range(len(texts)) if place not in distinct]
    return [each for each in (distinct, rest) if each]


def with_filter(text: str, condition: str) -> str:
    """The aggregate with FILTER behind it, for texts that are one call."""
    return f"{text} FILTER (WHERE {condition})"


def is_call(text: str) -> bool:
    return not text.endswith("+ 1") and not text.startswith(
        ("sort_array", "hll_sketch_est", "hex", "bitmap_count")
    )


@pytest.mark.parametrize(
    ("variable", "labels"), [("", "a b c"), ("b.", "b"), ("u.", "a c")], ids=["all", "b", "subset"]
)
def test_aggregates_of_one_row_per_match_are_sparks(
    spark: SparkSession, data: DataFrame, variable: str, labels: str
) -> None:
    texts = known(spark, AGGREGATES)
    chosen = ", ".join(f"'{each}'" for each in labels.split())
    plain = [each.format(v="") for each in texts]
    pairs = [
        (each.format(v=variable), with_filter(own, "mine") if is_call(own) else own)
        for each, own in zip(texts, plain, strict=True)
        if not own.startswith(UNPLANNED)
    ]
    found = match(data, {"m": "MATCH_NUMBER()", **named(pairs)})
    # Columns are NULL on other rows for what is more than one call.
    columns = [f"CASE WHEN label IN ({chosen}) THEN {each} END AS {each}" for each in "txyidesfv"]
    mine = f"coalesce(label IN ({chosen}), FALSE) AS mine"
    compare(found, matched(data).selectExpr("k", "m", *columns, mine), pairs, "k m")


def named(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {f"m{place}": text for place, (text, _) in enumerate(pairs)}


def test_filters_are_sparks(spark: SparkSession, data: DataFrame) -> None:
    texts = [each for each in known(spark, AGGREGATES) if is_call(each)]
    texts = [each for each in texts if not each.startswith(UNPLANNED)]
    conditions = {
        "y > 0": "y > 0",
        "CLASSIFIER() = 'b' OR MATCH_NUMBER() % 2 = 0": "label = 'b' OR m % 2 = 0",
    }
    pairs = [
        (with_filter(text, ours), with_filter(text, f"label IS NOT NULL AND ({own})"))
        for ours, own in conditions.items()
        for text in (each.format(v="") for each in (*texts, "count(*)"))
    ]
    found = match(data, {"m": "MATCH_NUMBER()", **named(pairs)})
    compare(found, matched(data), pairs, "k m")


RUNNING = [
    "median({v}x)", "percentile({v}i, 0.4)", "corr({v}x, {v}y)", "count(*)", "sum({v}d)",
    "bit_xor({v}i)", "avg({v}e)", "skewness({v}x)", "max_by({v}s, {v}x)", "regr_count({v}x, {v}y)",
]  # fmt: skip


def test_running_and_final_aggregates_are_sparks(data: DataFrame) -> None:
    pairs = []
    for text in (each.format(v="") for each in RUNNING):
        for how, seen in [("RUNNING", "label > '' AND place <= at"), ("FINAL", "label > ''")]:
            pairs.append((f"{how} {text}", with_filter(text, seen)))
            condition = "y > 0 OR {} = 'b'"
            own = with_filter(text, f"{seen} AND ({condition.format('label')})")
            pairs.append((with_filter(f"{how} {text}", condition.format("CLASSIFIER()")), own))
    measures = {"m": "MATCH_NUMBER()", "place": "count(*)", **named(pairs)}
    found = match(data, measures, rows="all").select("k", "m", "place", "t", *named(pairs))
    rows = matched(data)
    current = rows.selectExpr("k AS other", "m AS number", "place AS at", "t AS now")
    seen_rows = rows.join(current, F.expr("k = other AND m = number"))
    compare(found, seen_rows, pairs, "k m at now")


def test_listagg_sorts_distinct_values(data: DataFrame) -> None:
    text = "listagg(DISTINCT s, '-') WITHIN GROUP (ORDER BY s DESC)"
    if not data.sparkSession.catalog.functionExists("listagg"):
        pytest.skip("this Spark has no listagg to compare with")
    found = match(data, {"m": "MATCH_NUMBER()", "m0": text})
    rows = matched(data).withColumn("s", F.expr("CASE WHEN label > '' THEN s END"))
    compare(found, rows, [(text, text)], "k m")


def test_unmatched_rows_stay_and_have_no_aggregates(data: DataFrame) -> None:
    only = row_pattern("b{2,}", {"b": "x > 0"})
    found = data.match_pattern(
        only,
        partition_by="k",
        order_by="t",
        measures={"m": "MATCH_NUMBER()", "middle": "median(x)", "n": "count(*)"},
        rows="all with unmatched",
    )
    rows = [(row.m is None, row.middle is None, row.n is None) for row in found.collect()]
    assert len(rows) == data.count()
    assert set(rows) == {(True, True, True), (False, False, False)}


def test_one_partition_of_all_rows_keeps_its_matches_apart(
    data: DataFrame, conf: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not matched in ranges, each of which counts places anew."""
    conf["spark.cep.slices"] = "on"
    pattern = row_pattern("b+", {"b": "i > 3"})
    ordered = data.selectExpr("CAST(substr(k, 2) AS INT) * 1000 + t AS at", "i")
    found = ordered.match_pattern(
        pattern, order_by="at", measures={"v": "bit_xor(at)", "ats": "collect_list(at)"}
    )
    cep.explain(found)
    assert "which each range counts anew" in capsys.readouterr().out
    rows = found.collect()
    assert rows
    for row in rows:
        expected = 0
        for at in row.ats:
            expected ^= at
        assert row.v == expected


def test_aggregates_of_the_session_are_known(spark: SparkSession, data: DataFrame) -> None:
    register_aggregate(spark, "own_max", "max")
    spark.udf.register("twice", lambda v: None if v is None else 2 * v, "int")
    measures = {
        "a": "own_max(x) = max(x)",
        "b": "own_max(i) FILTER (WHERE CLASSIFIER() = 'b') <=> max(b.i)",
        "c": "twice(own_max(i)) <=> max(twice(i))",
    }
    found = match(data.filter("x IS NOT NULL"), measures).select(*measures)
    assert {value for row in found.collect() for value in row} == {True, None}


def register_aggregate(spark: SparkSession, name: str, known: str) -> None:
    """An aggregate of Spark under a name of the session's, in place of one written in Java."""
    jvm: Any = spark._jvm
    registry = spark._jsparkSession.sessionState().functionRegistry()
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    try:
        builder = registry.lookupFunctionBuilder(identifier(known)).get()
    except Exception:
        # Newer versions have names in three parts.
        some = jvm.scala.Some
        builder = registry.lookupFunctionBuilder(
            identifier(known, some("builtin"), some("system"))
        ).get()
    registry.createOrReplaceTempFunction(name, builder, "scala_udf")


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("percentile(b.x, 2)", "between [0.0, 1.0]"),
        ("regr_slope(b.x)", "2 parameters"),
        ("median(b.v)", "data type mismatch"),
        ("stddev(b.v)", "stddev"),
        ("median(b.x).z", "median(b.x)"),
    ],
)
def test_errors_about_aggregates_are_at_their_place(
    data: DataFrame, measure: str, message: str
) -> None:
    with pytest.raises(PatternError) as caught:
        match(data, {"m": measure})
    assert message in str(caught.value)
    assert "__cep" not in str(caught.value)
    (problem,) = caught.value.details["problems"]  # type: ignore[call-overload, misc]
    assert problem["text"] == measure
