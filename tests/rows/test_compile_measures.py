"""MEASURES: what the engine reads for them, and what Spark makes of it."""

from __future__ import annotations

import pytest

from spark_cep.rows.compiled import reading_name
from spark_cep.udfs.expressions import Type
from tests.compiling import COLUMNS
from tests.fake_typer import LocalTyper
from tests.rows.compiling import Result, compiled, marked, problems


class Typer(LocalTyper):
    """Takes functions that it does not know for ones that give something."""

    def _answer(self, expression: object) -> Type | str:
        found = super()._answer(expression)
        return Type("other") if isinstance(found, str) and "not known here" in found else found


def measured(text: str, rows: str = "all", pattern: str = "a b+ c") -> Result:
    return compiled(
        pattern,
        measures={"m": text},
        subset={"u": ["a", "b"], "w": ["a", "c"]},
        rows=rows,
        typer=Typer(COLUMNS),
    )


def short(text: str, rows: str = "all") -> str:
    """The measure with its readings in the places of their names."""
    found = measured(text, rows)
    sql = found.compiled.measures[0].sql
    for number, reading in reversed(list(enumerate(found.readings()))):
        sql = sql.replace(reading_name(number), f"<{reading}>")
    return sql


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("price", "<last(*)[`price`]>"),
        ("b.price", "<last(b)[`price`]>"),
        ("RUNNING LAST(price, 2)", "<last(*-2)[`price`]>"),
        ("FINAL LAST(w.price)", "<!last(a|c)[`price`]>"),
        ("FIRST(price)", "<first(*)[`price`]>"),
        ("PREV(price, 2)", "<last(*)-2[`price`]>"),
        ("NEXT(FINAL FIRST(a.price, 1))", "<!first(a+1)+1[`price`]>"),
        ("LAST(b.price) - FIRST(b.price)", "<last(b)[`price`]> - <first(b)[`price`]>"),
        ("upper(PREV(name))", "upper(<last(*)-1[`name`]>)"),
        ("PREV(upper(name))", "<last(*)-1[upper(`name`)]>"),
        ("addr.city", "<last(*)[`addr`]>.city"),
        ("b.addr.city", "<last(b)[`addr`]>.city"),
        ("FIRST(a.qty) IN (300, LAST(a.qty))", "<first(a)[`qty`]> IN (300, <last(a)[`qty`]>)"),
        ("'foo'", "'foo'"),
        (
            "struct(b.price, LAST(qty), a.addr.city, a.name AS n)",
            "struct(<last(b)[`price`]> AS `price`, <last(*)[`qty`]> AS `col2`, "
            "<last(a)[`addr`]>.city, <last(a)[`name`]> AS n)",
        ),
        ("MATCH_NUMBER() + match_number()", "<match number> + <match number>"),
        ("CLASSIFIER()", "<label last(*)>"),
        ("NEXT(classifier(u))", "<label last(a|b)+1>"),
        ("count(*)", "<count(*: )>"),
        ("count(b.*) + count(u) + count()", "<count(b: )> + <count(a|b: )> + <count(*: )>"),
        ("FINAL sum(b.price) / 2", "<!sum(b: `price`)> / 2"),
        ("min(DISTINCT price)", "<min(*: distinct `price`)>"),
        ("any_value(b.price)", "<first(b)[`price`]>"),
        (
            "sum(b.price) FILTER (WHERE b.qty > 3) + 1",
            "<sum(b: CASE WHEN `qty` > 3 THEN `price` END)> + 1",
        ),
        (
            "FINAL count(*) FILTER (WHERE qty > 3 OR price IS NULL)",
            "<!count(*: CASE WHEN `qty` > 3 OR `price` IS NULL THEN 1 END)>",
        ),
        ("count(u.*) FILTER (WHERE u.qty > 3)", "<count(a|b: CASE WHEN `qty` > 3 THEN 1 END)>"),
        (
            "collect_list(b.name) FILTER (WHERE b.qty > 3)",
            "(array_compact(<list(b: CASE WHEN `qty` > 3 THEN `name` END)>))",
        ),
        ("round(median(b.price), 1)", "round(__cep_g0, 1)"),
        ("collect_list(price + 1)", "(array_compact(<list(*: `price` + 1)>))"),
        (
            "LAST(name || CLASSIFIER())",
            "CASE WHEN <last(*)[there is]> THEN <last(*)[`name`]> || <label last(*)> END",
        ),
        (
            "collect_list(b.name || lower(CLASSIFIER(b)))",
            "(array_compact(transform(<list(b: )>, (__cep_n, __cep_i) -> (get(<list(b: `name`)>, "
            "__cep_i) || lower(get(<list(b: )>, __cep_i))))))",
        ),
    ],
)  # fmt: skip
def test_the_engine_reads_and_spark_computes(text: str, found: str) -> None:
    assert short(text) == found


def test_one_row_per_match_looks_back_from_its_end() -> None:
    assert short("price - FIRST(a.price)", "one") == "<!last(*)[`price`]> - <!first(a)[`price`]>"
    assert short("sum(price)", "one") == "<!sum(*: `price`)>"


def test_rows_of_no_match_have_no_measures() -> None:
    assert short("1", "all with unmatched") == "CASE WHEN <match number> IS NOT NULL THEN 1 END"


def test_what_two_measures_read_is_read_once() -> None:
    found = compiled("a b", measures={"x": "LAST(b.price)", "y": "b.price + 1"}, rows="one")
    assert found.readings() == ["!last(b)[`price`]"]


def test_a_reading_keeps_the_type_of_its_column() -> None:
    found = measured("max(amount) + sum(amount)").compiled.readings
    assert [each.source is None for each in found] == [False, True]
    assert found[1].expression.type == Type("decimal", precision=20, scale=2)


@pytest.mark.parametrize(
    ("text", "shipped"),
    [
        ("LAST(CAST(b.name AS INT))", "CASE WHEN ((`price` > 3)) THEN CAST(`name` AS INT) END"),
        ("max(CAST(b.name AS INT))", "CASE WHEN ((`price` > 3)) THEN CAST(`name` AS INT) END"),
        ("array_size(collect_list(1 / b.qty))", "CASE WHEN ((`price` > 3)) THEN 1 / `qty` END"),
        ("LAST(CAST(name AS INT))", "CAST(`name` AS INT)"),
        ("CAST(LAST(b.name) AS INT)", "`name`"),
    ],
)
def test_what_fails_on_other_rows_is_computed_on_the_rows_of_its_variable(
    text: str, shipped: str
) -> None:
    found = compiled(
        "a b", define={"b": "price > 3 AND price > PREV(price)"}, measures={"m": text},
        typer=Typer(COLUMNS),
    )  # fmt: skip
    assert shipped in found.shipment.texts


@pytest.mark.parametrize(
    ("text", "aggregate", "readings"),
    [
        (
            "percentile(b.price, 0.5)",
            "percentile(__cep_m0, 0.5) FILTER (WHERE __cep_in0)",
            ["list(b: `price`)"],
        ),
        (
            "FINAL corr(price, qty) FILTER (WHERE price > qty OR flag)",
            "corr(__cep_m0, __cep_m1) FILTER (WHERE __cep_in0 AND (__cep_m0 > __cep_m1 OR "
            "__cep_m2))",
            ["!list(*: `price`)", "!list(*: `qty`)", "!list(*: `flag`)"],
        ),
        (
            "mode() WITHIN GROUP (ORDER BY u.addr.city DESC)",
            "mode() WITHIN GROUP (ORDER BY __cep_m0.city DESC) FILTER (WHERE __cep_in0)",
            ["list(a|b: `addr`)"],
        ),
        (
            "max_by(CLASSIFIER(), price % MATCH_NUMBER(), 2)",
            "max_by(__cep_m1, __cep_m0 % __cep_m2, 2) FILTER (WHERE __cep_in0)",
            ["list(*: `price`)", "list(*: )", "match number"],
        ),
    ],
)
def test_spark_computes_other_aggregates_over_lists(
    text: str, aggregate: str, readings: list[str]
) -> None:
    found = measured(text)
    (one,) = found.compiled.aggregates
    assert (one.sql, found.readings()) == (aggregate, readings)
    assert set(one.readings) == set(range(len(readings)))


def test_an_aggregate_that_two_measures_have_is_computed_once() -> None:
    measures = {"x": "median(b.price)", "y": "upper(median(b.price))"}
    found = compiled("a b", measures=measures, typer=Typer(COLUMNS))
    assert [each.sql for each in found.compiled.measures] == ["__cep_g0", "upper(__cep_g0)"]
    assert len(found.compiled.aggregates) == 1


@pytest.mark.parametrize(
    ("text", "message", "at", "hint"),
    [
        ("PREV(price) FILTER (WHERE qty > 3)", "PREV reads one row", "PREV(price)", "max_by"),
        ("upper(name) FILTER (WHERE qty > 3)", "FILTER follows an agg", "upper(name)", "sum("),
        ("array_agg(price ORDER BY ts)", "not Spark SQL", "ORDER BY ts", "array_sort(array_agg"),
        ("max(b.price ORDER BY b.ts DESC)", "not Spark SQL", "ORDER BY b.ts", "max(b.price)"),
        (
            "listagg(DISTINCT name, '-' ORDER BY ts)",
            "not Spark SQL",
            "ORDER BY ts",
            "listagg(DISTINCT name, '-') WITHIN GROUP (ORDER BY ts)",
        ),
        ("count(*) FILTER (WHERE b.qty > 3)", "mixes b and all rows", "count(*)", "count(b.*)"),
        ("sum(b.qty) FILTER (WHERE qty > 3)", "mixes b and all rows", "sum(b.qty)", "in front"),
        ("sum(qty) FILTER (WHERE qty)", "must be TRUE or FALSE", "qty)", "compare"),
        ("sum(qty) FILTER (WHERE sum(qty) > 3)", "SUM cannot contain", "sum(qty) > 3", "nested"),
        ("median(sum(qty))", "MEDIAN cannot contain the aggregate SUM", "sum(qty)", "nested"),
        (
            "listagg(DISTINCT name) WITHIN GROUP (ORDER BY ts)",
            "its own values only",
            "ts)",
            "ORDER BY name",
        ),
    ],
)
def test_a_wrong_aggregate_is_refused_where_it_stands(
    text: str, message: str, at: str, hint: str
) -> None:
    (problem,) = problems("a b+", measures={"m": text}, typer=Typer(COLUMNS))
    assert message in problem["message"]
    assert marked(problem).startswith(at)
    assert hint in problem["hint"]


def test_on_a_stream_spark_cannot_group_the_answer() -> None:
    (problem,) = problems(
        "a b+", measures={"m": "hll_sketch_agg(price)"}, typer=Typer(COLUMNS), in_batch=False
    )
    assert "on a stream hll_sketch_agg() cannot be computed" in problem["message"]
    assert "collect_list" in problem["hint"]


def test_on_a_stream_the_engine_folds_what_spark_groups_in_a_batch() -> None:
    measures = {
        "slope": "regr_slope(b.price, b.price)",
        "last": "FINAL bit_xor(DISTINCT qty)",
        "total": "try_avg(qty) + 1",
        "parts": "mode() WITHIN GROUP (ORDER BY CLASSIFIER())",
    }
    found = compiled("a b+", measures=measures, typer=Typer(COLUMNS), in_batch=False, rows="all")
    assert not found.compiled.aggregates
    assert found.readings() == [
        "regr_slope(b: struct(.[CAST(`price` AS DOUBLE)], .[CAST(`price` AS DOUBLE)]))",
        "!bit_xor(*: distinct `qty`)",
        "avg(*: `qty`)",
        "mode(*: struct(if(=(label ., 0), 'a', if(=(label ., 1), 'b', None)), False))",
    ]
