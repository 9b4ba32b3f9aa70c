"""Measures: texts over the answer, what they read, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep import seq
from spark_cep.errors import PatternError
from spark_cep.events.measures import CompiledMeasures, compile_measures
from spark_cep.udfs.expressions import BOOL, Type
from tests.compiling import COLUMNS, INFOS, compiled
from tests.fake_typer import LocalTyper

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

PATTERN = seq("a", "b+", "!x", "c?", "d").within("1 hour")


class _Anything(LocalTyper):
    """Over a match every expression has a type, but what mentions `wrong`."""

    def of_match(self, expressions: Any, variables: Mapping[str, bool]) -> list[Type | str]:
        assert variables == {"a": False, "b": True, "c": False, "d": False}
        return ["it is wrong" if "wrong" in text else BOOL for text in expressions]


def measured(
    measures: Mapping[str, str], pattern: Pattern = PATTERN, **options: Any
) -> CompiledMeasures:
    found = compiled(pattern, partition_by="card").compiled
    return compile_measures(measures, found, INFOS, typer=_Anything(COLUMNS), **options)


def text(measure: str, **options: Any) -> str:
    (only,) = measured({"m": measure}, **options).measures
    assert only.name == "m"
    return only.text


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("c.price - A.Price", "`c`.`price` - `a`.`price`"),
        ("upper(a.name)", "upper(`a`.`name`)"),
        ("a.addr.city", "`a`.`addr`.city"),
        ("a.`we ird`", "`a`.`we ird`"),
        ("a", "`a`"),
        ("b.price", "`b`.`price`"),
        ("card", "`card`"),
        ("match_end - MATCH_START", "`match_end` - `match_start`"),
        ("rand()", "rand()"),
        ("exists(a.tags, t -> t = a.name)", "exists(`a`.`tags`, t -> t = `a`.`name`)"),
        ("count(b)", "coalesce(CAST(array_size(`b`) AS BIGINT), 0L)"),
        (
            "count(b.qty)",
            "coalesce(CAST(array_size(filter(`b`.`qty`, __cep_v -> __cep_v IS NOT NULL))"
            " AS BIGINT), 0L)",
        ),
        ("first(b.price)", "try_element_at(`b`.`price`, 1)"),
        ("last(b).price", "try_element_at(`b`, -1).price"),
        ("last(b.price * 2)", "try_element_at(transform(`b`, __cep_e -> __cep_e.`price` * 2), -1)"),
        ("max(b.qty - a.qty)", "array_max(transform(`b`, __cep_e -> __cep_e.`qty` - `a`.`qty`))"),
        ("1 + min(b.qty)", "1 + array_min(`b`.`qty`)"),
    ],
)
def test_measures_become_text_over_the_answer(measure: str, expected: str) -> None:
    assert text(measure) == expected


def test_sums_are_folds_with_sparks_types() -> None:
    assert text("sum(b.qty)") == (
        "CASE WHEN array_size(filter(`b`.`qty`, __cep_v -> __cep_v IS NOT NULL)) > 0 THEN "
        "aggregate(filter(`b`.`qty`, __cep_v -> __cep_v IS NOT NULL), CAST(0 AS BIGINT), "
        "(__cep_s, __cep_v) -> CAST(__cep_s + CAST(__cep_v AS BIGINT) AS BIGINT)) END"
    )
    assert "CAST(0 AS DECIMAL(20,2))" in text("sum(b.amount)")
    assert "CAST(0 AS DOUBLE)" in text("avg(b.weight)")
    assert text("avg(b.amount)").endswith("AS DECIMAL(14,6)) END")
    # A sum with 38 digits gives up one digit of range, so that no addition rounds.
    assert "AS DECIMAL(37,18))) AS DECIMAL(38,18)) END" in text("sum(b.rate)")


def test_columns_of_the_answer_may_have_other_names() -> None:
    found = text("sum(b.qty) + a.qty + card", column_of=lambda name: f"`_{name}`")
    assert "filter(`_b`.`qty`" in found
    assert found.endswith("+ `_a`.`qty` + `_card`")


def test_only_what_is_read_is_needed() -> None:
    found = measured({"gain": "c.price - a.price", "n": "count(b)", "k": "card"})
    assert found.reads == {0: {"price"}, 3: {"price"}}
    assert [measure.name for measure in found.measures] == ["gain", "n", "k"]


def test_a_whole_variable_needs_all_its_columns() -> None:
    assert measured({"row": "a"}).reads == {0: set(COLUMNS)}
    assert measured({"row": "first(b)"}).reads == {1: set(COLUMNS)}


def test_what_spark_tests_after_the_engine_is_needed_too() -> None:
    pattern = PATTERN.where("a.name LIKE d.name")
    assert measured({"n": "count(b)"}, pattern).reads == {0: {"name"}, 4: {"name"}}


@pytest.mark.parametrize(
    ("measure", "message", "marked", "hint"),
    [
        ("price", "price does not refer to a variable", "price", "a.price"),
        ("c.prise", "the input has no column prise", "prise", "price"),
        ("x.price", "x is negated, so it binds no row", "x.price", "not negated"),
        ("sum(a.qty)", "sum(a.qty): a binds one row", "sum(a.qty)", '"a+"'),
        ("prev(b.qty)", "prev() is not supported in measures", "prev(b.qty)", "last(b.price)"),
        ("sum(b)", "sum(b): sum() takes a column", "sum(b)", "sum(b.price)"),
        ("max(values b.qty)", "is ambiguous", "values b.qty", ""),
        ("sum(sum(b.qty))", "aggregates cannot be nested", "sum(sum(b.qty))", "two measures"),
        ("count(*)", "count() takes one expression over one list", "count(*)", "count(b) counts"),
        ("sum(b.name)", "sum() does not take STRING", "sum(b.name)", "number"),
        ("avg(b.rate)", "avg of DECIMAL(38,18) cannot be computed exactly", "avg(b.rate)", "fewer"),
        ("sum(b.name - 1)", "cannot type `name` - 1", "b.name - 1", ""),
        ("stddev(b.qty)", "the aggregate stddev() is not supported", "stddev", "first, last"),
        ("(SELECT 1)", "subqueries are not supported", "(SELECT 1)", "join"),
        ("a.qty +", "an operand is missing next to '+'", "+", "as in SELECT"),
        ("a.qty AS q", "unexpected 'AS'", "AS", "as in SELECT"),
        ("wrong(a.qty)", "the measure m: it is wrong", "wrong(a.qty)", ""),
    ],
)
def test_a_wrong_measure_is_one_problem(measure: str, message: str, marked: str, hint: str) -> None:
    with pytest.raises(PatternError) as caught:
        measured({"m": measure})
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert message in problem["message"]
    assert measure[problem["column"] - 1 :].startswith(marked)
    assert caught.value.message.count("^") == len(marked)
    assert hint in (problem["hint"] or "")


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ({"gain": "1", "GAIN": "2"}, "the measure GAIN has the same name as the measure gain"),
        ({"Card": "a.qty"}, "the measure Card has the same name as the partition column card"),
    ],
)
def test_output_names_must_differ(measures: dict[str, str], message: str) -> None:
    with pytest.raises(PatternError) as caught:
        measured(measures)
    assert message in caught.value.message
    assert "case does not matter" in (caught.value.hint or "")
