"""Parameters and fields: inside a clause their values go into its texts, outside they stay."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spark_cep.errors import PatternError, PlanError
from spark_cep.expressions.problems import Place, Problems
from spark_cep.sql.clause import Clause, RowPatternText, TextPart
from spark_cep.sql.messages import locate_error
from spark_cep.sql.parameters import fill_template, sql_literal
from spark_cep.sql.statement import Statement, derive_text
from tests.sql.recorded import Rows, rewritten

NAMED = (
    "SELECT *, :x FROM (SELECT * FROM t WHERE y > :y) MATCH_RECOGNIZE (MEASURES a.p * :f AS q "
    "PATTERN (a b?) DEFINE b AS p > :x AND s = ':x') WHERE q > :x"
)
POSITIONAL = (
    "SELECT *, ? FROM (SELECT * FROM t WHERE y > ?) MATCH_RECOGNIZE (MEASURES a.p * ? AS q "
    "PATTERN (a b?) DEFINE b AS p > ? AND s = '?') WHERE q > ?"
)


def test_named_parameters_are_filled_in_inside_of_clauses_only() -> None:
    args = {"x": 1, "y": 2, "f": 0.5}
    recorded = rewritten(NAMED, args)
    assert recorded.inputs == ["SELECT * FROM (SELECT * FROM t WHERE y > :y)"]
    assert recorded.args == [args]
    (call,) = recorded.calls
    assert call["measures"] == {"q": "a.p * 0.5D"}
    assert call["pattern"].define == (("b", "p > 1 AND s = ':x'"),)
    assert recorded.query == "SELECT *, :x FROM <matches 1> WHERE q > :x"


def test_positional_parameters_go_where_they_stood() -> None:
    recorded = rewritten(POSITIONAL, ["out", "in", 0.5, 1, "last"])
    assert recorded.args == [["in"]]
    (call,) = recorded.calls
    assert call["measures"] == {"q": "a.p * 0.5D"}
    assert call["pattern"].define == (("b", "p > 1 AND s = '?'"),)
    assert recorded.last is not None
    assert recorded.last.args == ["out", "last"]


def test_arguments_too_many_are_left_to_spark() -> None:
    last = rewritten(POSITIONAL, ["out", "in", 0.5, 1, "last", "more"]).last
    assert last is not None
    assert last.args == ["out", "last", "more"]


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        (NAMED, {"x": 1, "y": 2}, "the parameter f has no value"),
        (NAMED, None, "the parameter x has no value"),
        (POSITIONAL, ["out"], "this parameter has no value"),
        (NAMED, {"x": object(), "y": 2, "f": 1}, "a value of type object cannot be a parameter"),
    ],
)
def test_values_that_are_not_there(text: str, args: Any, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        rewritten(text, args)


def test_a_path_into_a_variant_is_no_parameter() -> None:
    (call,) = rewritten(
        "SELECT * FROM t MATCH_RECOGNIZE (MEASURES a.v:x AS q PATTERN (a))", {}
    ).calls
    assert call["measures"] == {"q": "a.v:x"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "(-5)"),
        (1 << 31, "2147483648L"),
        (1.5, "1.5D"),
        (-0.1, "(-0.1D)"),
        (math.inf, "double('inf')"),
        (Decimal("1E+2"), "100BD"),
        ("a\\b'c", "'a\\\\b\\'c'"),
        (b"\x01\xff", "X'01ff'"),
        (date(2024, 1, 2), "DATE'2024-01-02'"),
        (datetime(2024, 1, 2, 3, tzinfo=UTC), "TIMESTAMP'2024-01-02 03:00:00+00:00'"),
        (time(1, 2, 3), "TIME'01:02:03'"),
        (timedelta(minutes=1.5), "make_dt_interval(0, 0, 0, 90.000000BD)"),
        ([1, "x"], "array(1, 'x')"),
    ],
)
def test_literals(value: object, text: str) -> None:
    assert sql_literal(value) == text


def test_what_is_wrong_behind_a_parameter_is_shown_where_it_stands() -> None:
    statement = Statement("DEFINE b AS p > :limit AND q > 1")
    made = derive_text(statement.text, (12, 32), [(16, 22, "1000000")])
    problems = Problems()
    at = made.text.index("q")
    problems.add("no column q", Place(made.text, at, at + 1))
    clause = Clause(RowPatternText((0, 1)), (0, 6))
    error = locate_error(problems.error(), statement, clause, [made])
    assert "line 1, column 28" in error.message


def test_an_error_without_a_place_gets_that_of_its_section() -> None:
    statement = Statement("MATCH_RECOGNIZE (ORDER BY ts WITHIN 5)")
    clause = Clause(
        RowPatternText((0, 1)), (0, 15), order_by=(TextPart((26, 28)),), within=TextPart((36, 37))
    )
    for message, column in (("WITHIN 5 is", 37), ("order_by: x", 27), ("the input has", 1)):
        error = locate_error(PatternError(message), statement, clause, [])
        assert f"line 1, column {column}:" in error.message
    assert isinstance(locate_error(PlanError("no plan"), statement, clause, []), PlanError)


def test_fields_are_filled_in_and_frames_stay_frames() -> None:
    text = "SELECT {c} FROM {df} m(PATTERN (a{2,3} {- b -} c{,2} d{{2}}) '{{x}}' {df}"
    made = fill_template(
        text, {"df": Rows("df"), "c": 1}, lambda each: isinstance(each, Rows), lambda _: "one"
    )
    assert made.text.text == (
        "SELECT one FROM cep_frame_1 m(PATTERN (a{2,3} {- b -} c{,2} d{2}) '{x}' cep_frame_2"
    )
    assert [made.text.text[a:b] for (a, b), _ in made.frames] == ["cep_frame_1", "cep_frame_2"]
    assert made.text.source(made.text.text.index("m(")) == text.index("m(")


@pytest.mark.parametrize("field", ["{nope}", "{}", "{x.nope}", "{x[}", "{x[1]}"])
def test_a_field_without_a_value_is_an_error_at_the_field(field: str) -> None:
    with pytest.raises(PatternError) as raised:
        fill_template(f"SELECT {field}", {"x": 1}, lambda _: False, str)
    (problem,) = raised.value.details["problems"]  # type: ignore[misc,attr-defined]
    assert problem["column"] == len("SELECT ") + 1
    assert "x=" in problem["hint"]
