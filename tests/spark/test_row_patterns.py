"""Row patterns end to end through Spark: shapes, types, keys, measures, limits, explain."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import row_pattern
from tests.spark.test_types_round_trip import VALUES, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

V = row_pattern(
    "strt down+ up+",
    define={"down": "price < PREV(price)", "up": "price > PREV(price)"},
    subset={"moves": ["down", "up"]},
)
PRICES = {"x": [90, 80, 70, 80, 90, 50, 40, 60], "y": [1, 2, 3, 2, 1, 4, 4, 4]}
LOW = {"low": "LAST(down.price)", "n": "count(moves.*)"}


@pytest.fixture(scope="module")
def ticks(spark: SparkSession) -> DataFrame:
    rows = [
        (name, place, float(price), "a" * place)
        for name, prices in PRICES.items()
        for place, price in enumerate(prices)
    ]
    return spark.createDataFrame(rows, "symbol string, ts int, price double, note string")


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.collect()))


# ---- the answer's shape ------------------------------------------------------------------------


def test_one_row_has_partition_columns_and_measures(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, partition_by="symbol", order_by="ts", measures=LOW)
    assert found.columns == ["symbol", "low", "n"]
    assert rows(found) == [("x", 40.0, 2), ("x", 70.0, 4), ("y", 1.0, 3)]


def test_all_rows_have_order_columns_before_measures_and_the_rest_behind(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, partition_by="symbol", order_by="ts", measures=LOW, rows="all")
    assert found.columns == ["symbol", "ts", "low", "n", "price", "note"]
    assert rows(found.filter("symbol = 'y'").drop("note")) == [
        ("y", 2, None, 0, 3.0),
        ("y", 3, 2.0, 1, 2.0),
        ("y", 4, 1.0, 2, 1.0),
        ("y", 5, 1.0, 3, 4.0),
    ]


def test_an_order_column_stands_as_often_as_it_orders(ticks: DataFrame) -> None:
    found = ticks.match_pattern(
        V, partition_by="symbol", order_by=["ts", "lower(note)", "ts DESC"], rows="all"
    )
    assert found.columns == ["symbol", "ts", "ts", "price", "note"]


def test_partition_columns_are_enough_for_an_answer(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, partition_by="SYMBOL", order_by="ts")
    assert (found.columns, rows(found)) == (["symbol"], [("x",), ("x",), ("y",)])


def test_nothing_of_the_input_is_needed_for_an_answer(ticks: DataFrame) -> None:
    with pytest.warns(cep.PatternWarning):
        found = ticks.match_pattern(row_pattern("a{8}"), measures={"hello": "'world'"})
    assert rows(found) == [("world",), ("world",)]


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("all", [(0, 1, None), (1, 2, "b"), (2, 2, "b"), (3, 3, None)]),
        ("all omit empty", [(1, 2, "b"), (2, 2, "b")]),
        ("one", [(1, None), (2, "b"), (3, None)]),
    ],
)
def test_empty_matches_count_and_have_no_rows(
    spark: SparkSession, how: str, found: list[Any]
) -> None:
    df = spark.createDataFrame([(0, 90), (1, 80), (2, 70), (3, 70)], "t int, p int")
    pattern = row_pattern("b*", {"b": "p < PREV(p)"})
    measures = {"number": "MATCH_NUMBER()", "label": "CLASSIFIER()"}
    answer = df.match_pattern(pattern, order_by="t", measures=measures, rows=how)
    assert rows(answer.drop("p")) == found


def test_measures_of_an_empty_match_are_those_of_no_rows(spark: SparkSession) -> None:
    df = spark.createDataFrame([(0, 1)], "t int, p int")
    measures = {
        "count": "count(*)",
        "sum": "sum(p)",
        "list": "collect_list(p)",
        "p": "p",
        "or": "coalesce(LAST(p), -1)",
    }
    found = df.match_pattern(row_pattern("() | a"), order_by="t", measures=measures)
    assert rows(found) == [(0, None, [], None, -1)]


def test_rows_of_no_match_show_no_measures(spark: SparkSession) -> None:
    df = spark.createDataFrame([(0, 90), (1, 80), (2, 80)], "t int, p int")
    found = df.match_pattern(
        row_pattern("b+", {"b": "p < PREV(p)"}),
        order_by="t",
        measures={"one": "1", "n": "count(*)", "l": "upper(CLASSIFIER())"},
        rows="all with unmatched",
    )
    assert sorted(map(tuple, found.collect())) == [
        (0, None, None, None, 90),
        (1, 1, 1, "B", 80),
        (2, None, None, None, 80),
    ]


def test_excluded_rows_are_counted_but_not_shown(ticks: DataFrame) -> None:
    pattern = row_pattern("strt {- down+ -} up+", dict(V.define))
    found = ticks.filter("symbol = 'y'").match_pattern(
        pattern, order_by="ts", measures={"n": "count(*)"}, rows="all"
    )
    assert rows(found.select("ts", "n")) == [(2, 1), (5, 4)]


# ---- the order of rows -------------------------------------------------------------------------


def test_rows_may_be_ordered_the_other_way(ticks: DataFrame) -> None:
    rising = row_pattern("a up+", {"up": "price > PREV(price)"})
    measures = {"from": "FIRST(ts)", "to": "LAST(ts)"}
    found = ticks.filter("symbol = 'x'").match_pattern(
        rising, order_by=F.col("ts").desc(), measures=measures
    )
    assert rows(found) == [(2, 0), (6, 4)]


def test_a_window_is_measured_from_the_first_row(ticks: DataFrame) -> None:
    pattern = row_pattern("a b*").within(2)
    found = ticks.match_pattern(
        pattern, partition_by="symbol", order_by="ts", measures={"n": "count(*)"}
    )
    assert sorted(row.n for row in found.collect()) == [2, 2, 3, 3, 3, 3]


def test_after_match_says_where_the_next_match_begins(ticks: DataFrame) -> None:
    options: dict[str, Any] = {"order_by": "ts", "measures": {"at": "FIRST(ts)"}}
    x = ticks.filter("symbol = 'x'")
    to_low = x.match_pattern(V, after_match="SKIP TO LAST Down", **options)
    assert rows(to_low) == [(0,), (4,)]
    to_next = x.match_pattern(V, after_match="skip to next row", **options)
    assert rows(to_next) == [(0,), (1,), (4,), (5,)]


def test_skipping_to_the_first_row_of_the_match_ends_the_query(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, order_by="ts", rows="all", after_match="SKIP TO FIRST strt")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's, with ours inside
        found.collect()
    assert cep.error_of(raised.value) is not None


@pytest.fixture
def buckets(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    spark.conf.set("spark.cep.buckets", request.param)
    yield
    spark.conf.unset("spark.cep.buckets")


@pytest.mark.parametrize("buckets", ["1", "3", "7"], indirect=True)
@pytest.mark.usefixtures("buckets")
def test_buckets_do_not_change_the_answer(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, partition_by="symbol", order_by="ts", measures=LOW)
    assert rows(found) == [("x", 40.0, 2), ("x", 70.0, 4), ("y", 1.0, 3)]


# ---- conditions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("note RLIKE '^a+$' AND exists(array(price, 1D), e -> e = 50)", [5]),
        ("hash(upper(note)) = hash(upper(repeat('A', 3)))", [3]),
        ("price = 2 * try_divide(PREV(price), 2) - 40", [5]),
        ("PREV(upper(note)) = 'AA'", [3]),
        ("PREV(struct(price, ts).price) = 40", [7]),
        ("NEXT(note) IS NULL", [7]),
        ("coalesce(PREV(price), -1) = -1", [0]),
        ("PREV(concat('x', note)) IS NULL", [0]),
    ],
)
def test_any_function_of_spark_works_on_a_row(
    ticks: DataFrame, condition: str, found: list[int]
) -> None:
    answer = ticks.filter("symbol = 'x'").match_pattern(
        row_pattern("a", {"a": condition}), order_by="ts", rows="all"
    )
    assert [row.ts for row in answer.orderBy("ts").collect()] == found


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        # a is unfilled where c is tried first
        ("a.note IS NULL", "c"),
        ("upper(concat_ws('-', a.note, 'q')) = 'Q'", "c"),
        ("named_struct('x', a.note).x IS NULL", "c"),
        ("a.note = ''", "a c"),
        ("lower(CLASSIFIER(u)) = 'a'", "a c"),
        ("CLASSIFIER(u) IS NULL", "c"),
        ("CLASSIFIER(u) || a.symbol = 'ax'", "a c"),
        ("count(a.*) = 0", "c"),
    ],
)
def test_a_variable_without_rows_is_null(ticks: DataFrame, condition: str, found: str) -> None:
    pattern = row_pattern("c | a c", {"c": condition}, {"u": ["a"]})
    answer = ticks.filter("symbol = 'x' AND ts < 2").match_pattern(
        pattern, order_by="ts", measures={"l": "concat_ws(' ', collect_list(CLASSIFIER()))"}
    )
    assert answer.collect()[0].l == found


def test_a_column_may_be_a_condition(ticks: DataFrame) -> None:
    pattern = row_pattern("a b", {"a": F.col("price") == 70, "b": "price > a.price"})
    found = ticks.match_pattern(pattern, order_by="ts", partition_by="symbol", rows="all")
    assert [row.ts for row in found.orderBy("ts").collect()] == [2, 3]


def test_a_guard_keeps_an_error_asleep(spark: SparkSession) -> None:
    df = spark.createDataFrame([(0, "x"), (1, "1"), (2, "2")], "t int, v string")
    pattern = row_pattern(
        "a b", {"b": "v <> 'x' AND CAST(v AS INT) > len(PREV(v)) + PREV(len(v)) - 1"}
    )
    found = df.match_pattern(pattern, order_by="t", measures={"v": "b.v"})
    assert rows(found) == [("2",)]


def test_a_branch_that_is_not_taken_keeps_its_error_asleep(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    df = spark.createDataFrame([(0, "x"), (1, "1"), (2, "2"), (3, None)], "t int, v string")
    conditions = {
        "CASE v WHEN '2' THEN CAST(v AS INT) + PREV(t) END = 3": ["2"],
        "CASE PREV(v) WHEN '1' THEN t + CAST(PREV(v) AS INT) END = 3": ["2"],
        "if(v = 'x' OR PREV(v) = 'x', 0, CAST(v AS INT) + PREV(t)) = 3": ["2"],
        "nvl2(nullif(v, 'x'), CAST(v AS INT) + nvl(PREV(t), 0), 0) = 3": ["2"],
    }
    for condition, expected in conditions.items():
        found = df.match_pattern(
            row_pattern("b", {"b": condition}), order_by="t", measures={"v": "b.v"}
        )
        assert [row.v for row in found.collect()] == expected, condition


# ---- measures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "aggregate",
    [
        "count(*)", "count(price)", "count(DISTINCT price)", "count(DISTINCT price, note)",
        "count_if(price > 60)", "sum(price)", "sum(ts)", "sum(DISTINCT ts)", "avg(ts)",
        "min(note)", "max(struct(price, ts))", "sum(CAST(price AS DECIMAL(38, 6)))",
        "avg(CAST(price AS DECIMAL(10, 2)))", "bool_and(price > 10)", "bool_or(price > 100)",
        "stddev(price)", "stddev_pop(price)", "variance(ts)", "var_pop(price)",
        "max_by(note, price)", "min_by(ts, struct(price, ts))", "listagg(note, '+')",
        "sort_array(collect_set(price))", "collect_list(nullif(price, 80))", "any_value(note)",
        "sum(INTERVAL '1' SECOND * ts)", "CAST(min(INTERVAL '1' MONTH * ts) AS STRING)",
    ],
)  # fmt: skip
def test_an_aggregate_over_all_rows_is_sparks(ticks: DataFrame, aggregate: str) -> None:
    """Beside Spark's own over the whole partition."""
    found = ticks.match_pattern(
        row_pattern("a+"), partition_by="symbol", order_by="ts", measures={"v": aggregate}
    )
    ordered = ticks.orderBy("symbol", "ts").coalesce(1)
    own = ordered.groupBy("symbol").agg(F.expr(aggregate).alias("v"))
    assert [field.dataType for field in found.schema] == [field.dataType for field in own.schema]
    assert rows(found) == rows(own)


def test_running_aggregates_see_the_rows_so_far(ticks: DataFrame) -> None:
    found = ticks.filter("symbol = 'x' AND ts < 3").match_pattern(
        row_pattern("a+"),
        order_by="ts",
        measures={
            "so_far": "collect_list(price)",
            "all": "FINAL collect_list(price)",
            "rest": "FINAL count(*) - count(*)",
            "labels": "concat_ws('', collect_list(CLASSIFIER() || MATCH_NUMBER() || ts))",
        },
        rows="all",
    )
    whole = [90.0, 80.0, 70.0]
    assert [row[1:5] for row in sorted(found.collect())] == [
        (whole[:1], whole, 2, "a10"),
        (whole[:2], whole, 1, "a10a11"),
        (whole, whole, 0, "a10a11a12"),
    ]


def test_any_function_of_spark_works_around_readings(ticks: DataFrame) -> None:
    found = ticks.filter("symbol = 'y'").match_pattern(
        V,
        order_by="ts",
        measures={
            "m": "transform(collect_list(price), p -> round(p / FIRST(price), 2))",
            "s": "named_struct('low', LAST(down.price), 'label', upper(CLASSIFIER())).label",
            "next": "NEXT(LAST(up.ts)) || '/' || PREV(FIRST(ts), 1)",
            "note": "regexp_replace(LAST(down.note), 'a{4}', 'four')",
        },
    )
    assert rows(found) == [([1.0, 0.67, 0.33, 1.33], "UP", "6/1", "four")]


def test_labels_are_spelled_as_the_pattern_first_spells_them(ticks: DataFrame) -> None:
    pattern = row_pattern("Strt DOWN+ up+", dict(V.define), {"U": ["strt", "down"]})
    found = ticks.filter("symbol = 'y'").match_pattern(
        pattern,
        order_by="ts",
        measures={"l": "CLASSIFIER()", "u": "classifier(u)", "n": "NEXT(CLASSIFIER())"},
        rows="all",
    )
    assert [row[1:4] for row in sorted(found.collect())] == [
        ("Strt", "Strt", "DOWN"),
        ("DOWN", "DOWN", "DOWN"),
        ("DOWN", "DOWN", "up"),
        ("up", "DOWN", None),
    ]


# ---- types and keys ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every_type(spark: SparkSession) -> DataFrame:
    """Row 1 has a value in every column x0, x1, ..., row 2 has NULL."""
    columns = [
        F.expr(f"CASE WHEN t = 1 THEN {expression} END AS x{place}")
        for place, expression in enumerate(VALUES.values())
    ]
    return spark.sql("SELECT * FROM VALUES (1), (2) AS rows(t)").select("t", *columns)


def test_every_type_passes_through_rows(every_type: DataFrame) -> None:
    found = every_type.match_pattern(row_pattern("a+"), order_by="t", rows="all")
    assert found.dtypes == every_type.dtypes
    assert texts(found.orderBy("t"), "") == texts(every_type.orderBy("t"), "")


def test_every_type_passes_through_measures(every_type: DataFrame) -> None:
    names = [f"x{place}" for place in range(len(VALUES))]
    first = {name: f"FIRST({name})" for name in names}
    last = {f"l{name}": f"get(collect_list({name}), 0)" for name in names}
    found = every_type.match_pattern(row_pattern("a+"), order_by="t", measures={**first, **last})
    expected = every_type.filter("t = 1")
    assert texts(found.select(*names), "") == texts(expected, "")
    assert texts(found.select(*[F.col(f"l{name}").alias(name) for name in names]), "") == texts(
        expected, ""
    )


def test_equal_keys_are_one_partition_and_show_as_they_were(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT t, x, k COLLATE UTF8_LCASE AS k FROM VALUES (1, 0.0D, 'a'), (2, -0.0D, 'A'), "
        "(3, double('NaN'), NULL), (4, double('NaN'), NULL) AS rows(t, x, k)"
    )
    found = df.match_pattern(
        row_pattern("a+"), partition_by=["x", "k"], order_by="t", measures={"n": "count(*)"}
    )
    assert sorted(str(tuple(row)) for row in found.collect()) == [
        "(0.0, 'a', 2)",
        "(nan, None, 2)",
    ]
    every = df.match_pattern(row_pattern("a+"), partition_by=["x", "k"], order_by="t", rows="all")
    assert sorted(row.k or "" for row in every.collect()) == ["", "", "A", "a"]


# ---- what is refused, and limits ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"measures": {"Symbol": "1"}}, "two columns called 'Symbol'", "another name"),
        ({"measures": {"NOTE": "1"}, "rows": "all"}, "two columns called 'NOTE'", "another"),
        ({"partition_by": None}, "there is nothing to show", "measures="),
        ({"plan": "tree"}, "row patterns have no plan 'tree'", "leave it out"),
        ({"statistics": cep.Statistics(rates={"a": 1})}, "statistics= is for event", "leave it"),
        ({"rows": "some"}, "unknown value of rows: 'some'", "all omit empty"),
        ({"after_match": 1}, "after_match takes text", "SKIP TO NEXT ROW"),
        ({"measures": "x"}, "measures takes a dict", "measures="),
        ({"shed": 1}, "shed= is for event patterns", "leave shed= out"),
        ({"measures": {"m": "upper(price, 1)"}}, "the measure m:", None),
        ({"measures": {"m": "sum(array(note))"}}, "data type mismatch", None),
    ],
)
def test_what_cannot_be_answered_is_refused(
    ticks: DataFrame, options: dict[str, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(cep.CepError) as raised:
        ticks.match_pattern(V, **{"partition_by": "symbol", "order_by": "ts", **options})
    assert message in raised.value.message
    if hint is not None:
        assert hint in (raised.value.hint or "")


def test_what_spark_says_of_a_condition_is_told_with_its_place(ticks: DataFrame) -> None:
    with pytest.raises(cep.PatternError) as raised:
        ticks.match_pattern(row_pattern("a", {"a": "foo(price) > 3"}), order_by="ts", rows="all")
    assert "DEFINE a:" in raised.value.message
    assert "foo(price) > 3\n    ^" in raised.value.message


def test_a_limit_on_steps_ends_the_query(spark: SparkSession) -> None:
    df = spark.range(64).withColumn("v", F.lit(1))
    pattern = row_pattern("(a | b)* c", {"c": "sum(a.id) = sum(b.id) AND count(a.*) = 40"})
    found = df.match_pattern(
        pattern, order_by="id", rows="all", limits=cep.Limits(backtracking_steps=10_000)
    )
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's, with ours inside
        found.collect()
    assert isinstance(cep.error_of(raised.value), cep.LimitError)


def test_a_limit_of_time_ends_the_search(spark: SparkSession) -> None:
    # A prime is no product, but the matcher has to try.
    pattern = row_pattern("a+ b+ c", {"c": "id * LAST(a.id) = 15485863"})
    found = spark.range(5_000).match_pattern(
        pattern, order_by="id", rows="all", limits=cep.Limits(seconds=0.2)
    )
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's, with ours inside
        found.collect()
    error = cep.error_of(raised.value)
    assert isinstance(error, cep.LimitError)
    assert error.details["limit"] == "seconds"
    assert set(error.details["rows"]) <= {"a", "b", "c"}


# ---- explain -----------------------------------------------------------------------------------


def test_the_plan_says_what_is_tested_where(ticks: DataFrame) -> None:
    define = {
        "a": "note <> 'x'",
        "b": "price < PREV(price)",
        "d": "price < LAST(b.price)",
        "e": "count_if(CLASSIFIER() = 'b') > 1",
    }
    pattern = row_pattern("^ a b{2,} (c | d | e | ())", define).within(10)
    found = ticks.match_pattern(
        pattern, order_by="ts", measures={"n": "count(*)"}, after_match="SKIP TO LAST b"
    )
    facts = cep.plan_of(found.filter("n > 2")).to_dict()
    assert (facts["kind"], facts["pattern"]) == ("row pattern", "^ a b{2,} (c | d | e | ())")
    assert facts["before"]["candidates"] == {
        "a": ["note <> 'x'  (as a column, in Spark)"],
        "b": ["price < PREV(price)  (as a column, in the engine)"],
        "c": [],
        "d": ["price < LAST(b.price)  (row by row, in the engine)"],
        "e": ["count_if(CLASSIFIER() = 'b') > 1  (row by row, in Python)"],
    }
    text = str(cep.plan_of(found))
    for line in (
        "strategy  one row per match, skip to the last b",
        "window    10",
        "keys      none: one partition",
        "computes  `note` <> 'x'",
        "columns   count(*) AS n",
    ):
        assert f"  {line}" in text
    assert "<svg" in cep.plan_of(found)._repr_html_()


def test_a_pattern_that_is_too_large_is_refused_before_any_job(ticks: DataFrame) -> None:
    with pytest.raises(cep.PatternError) as raised:
        ticks.match_pattern(row_pattern("((a{1000}){1000}){10}"), order_by="ts", rows="all")
    assert "repetition counts multiply" in (raised.value.hint or "")


def test_sparks_own_plan_names_the_pattern(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, order_by="ts", measures={"n": "count(*)"})
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found.explain()
    assert "match_pattern[rows strt down+ up+, one  #" in printed.getvalue()


def test_metrics_count_what_the_matcher_did(ticks: DataFrame) -> None:
    found = ticks.match_pattern(V, partition_by="symbol", order_by="ts", measures=LOW)
    found.collect()
    counts = cep.metrics(found)
    assert (counts["rows"], counts["partitions"], counts["matches"]) == (16, 2, 3)
    assert counts["complete"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        cep.explain(found, mode="analyze")
    assert "empty matches" in printed.getvalue()
