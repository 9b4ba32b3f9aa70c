"""Subqueries of DEFINE and MEASURES become hidden columns of the clause's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from spark_cep.errors import PatternError
from tests.sql.recorded import Recorded, Rows, rewritten

VALUES = (
    "(SELECT array_distinct(transform(collect_list(struct(__cep_value)), e -> e.__cep_value)) FROM "
    "{} AS __cep_values(__cep_value))"
)


def statement(define: str, measures: str = "1 AS one", source: str = "ticks AS t") -> str:
    return (
        f"SELECT * FROM {source} MATCH_RECOGNIZE (ORDER BY ts MEASURES {measures} PATTERN (a b+) "
        f"SUBSET u = (a, b) DEFINE b AS {define})"
    )


def parts(define: str, measures: str = "1 AS one", args: Any = None) -> tuple[str, str, str]:
    """The condition, the first measure, and what the input gets."""
    found = rewritten(statement(define, measures), args)
    (call,) = found.calls
    added = found.inputs[-1].removeprefix("SELECT *, ").removesuffix(" FROM ticks AS t")
    return dict(call["pattern"].define)["b"], next(iter(call["measures"].values())), added


def test_a_value() -> None:
    define, _, added = parts("price > (SELECT avg(price)\nFROM all_ticks) * 2")
    assert define == "price > __cep_hidden_1 * 2"
    assert added == "(SELECT avg(price)\nFROM all_ticks) AS __cep_hidden_1"


def test_select_and_with_may_be_columns() -> None:
    for query in ("SELECT -1", "SELECT *  FROM x", "SELECT (1)", "WITH x AS (SELECT 1) TABLE x"):
        assert parts(f"price > ({query})")[0] == "price > __cep_hidden_1"
    for names in (
        "(select)", "(with.price)", "(select AND flag)", "(with IS NULL)",
        "CAST(select AS INT) > 1", "CAST(with AS INT) > 1",
    ):  # fmt: skip
        condition = f"price > 1 OR {names}"
        (call,) = rewritten(statement(condition)).calls
        assert dict(call["pattern"].define)["b"] == condition


def test_existence() -> None:
    define, _, added = parts("price > 1 AND NOT EXISTS (SELECT 1 FROM holidays)")
    assert define == "price > 1 AND NOT __cep_hidden_1"
    assert added == "EXISTS (SELECT 1 FROM holidays) AS __cep_hidden_1"


@pytest.mark.parametrize(
    ("text", "becomes", "column"),
    [
        ("kind IN (SELECT k FROM bad)", "__cep_hidden_1", "kind"),
        ("t.kind not in (SELECT k FROM bad)", "(NOT __cep_hidden_1)", "kind"),
        ("a.kind IN (SELECT k FROM bad)", "`a`.__cep_hidden_1", "kind"),
        ("count(CASE WHEN u.kind IN (SELECT k FROM bad) THEN 1 END) > 2",
         "count(CASE WHEN `u`.__cep_hidden_1 THEN 1 END) > 2", "kind"),
        ("PREV(`the kind` IN (SELECT k FROM bad))", "PREV(__cep_hidden_1)", "the kind"),
    ],
)  # fmt: skip
def test_a_column_among_values_is_tested_on_the_row(text: str, becomes: str, column: str) -> None:
    values = VALUES.format("(SELECT k FROM bad)")
    wanted = f"(size({values}) > 0 AND array_contains({values}, `{column}`)) AS __cep_hidden_1"
    assert parts(text)[::2] == (becomes, wanted)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("LAST(a.kind) IN (SELECT k FROM bad)",
         "(size(`a`.{0}) > 0 AND array_contains(`a`.{0}, LAST(a.kind)))"),
        ("upper(t.kind) NOT IN (SELECT k FROM bad) OR x",
         "(NOT (size({0}) > 0 AND array_contains({0}, upper(kind)))) OR x"),
        ("x AND LAG(kind, 1, 'z') IN (SELECT k FROM bad)",
         "x AND (size({0}) > 0 AND array_contains({0}, CASE WHEN PREV((kind) IS NULL, 1) IS NULL "
         "THEN ('z') ELSE PREV(kind, 1) END))"),
        ("addr.city IN (SELECT k FROM bad)",
         "(size({0}) > 0 AND array_contains({0}, addr.city))"),
        ("exists(xs, x -> (x) IN (SELECT k FROM bad))",
         "exists(xs, x -> (size({0}) > 0 AND array_contains({0}, (x))))"),
    ],
)  # fmt: skip
def test_an_expression_among_values_is_tested_against_their_list(text: str, becomes: str) -> None:
    define, _, added = parts(text)
    assert define == becomes.format("__cep_hidden_1")
    assert added == f"{VALUES.format('(SELECT k FROM bad)')} AS __cep_hidden_1"


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("LAST(price) - (SELECT 1)", "LAST(price) - {}"),
        ("sum(b.price - (SELECT 1))", "sum(b.price - `b`.{})"),
        ("sum(price - (SELECT 1))", "sum(price - {})"),
        ("FINAL LAST(u.price * (SELECT 1), 2)", "FINAL LAST(u.price * `u`.{}, 2)"),
        ("CASE WHEN a.x THEN (SELECT 1) END", "CASE WHEN a.x THEN {} END"),
    ],
)
def test_a_measure_reads_it_from_the_rows_that_it_is_over(text: str, becomes: str) -> None:
    assert parts("x", f"{text} AS m")[1] == becomes.format("__cep_hidden_1")


def test_each_subquery_has_its_own_column_and_its_own_query() -> None:
    found = rewritten(
        statement("x > (SELECT 1) AND y > (SELECT max(z) FROM t MATCH_RECOGNIZE (PATTERN (a)))",
                  "LAST(x) - (WITH q AS (SELECT 2) SELECT * FROM q) AS m")
    )  # fmt: skip
    assert found.inputs == [
        "SELECT * FROM t",
        "SELECT * FROM (SELECT 1) AS __cep_subquery",
        "SELECT * FROM (SELECT max(z) FROM <matches 1>) AS __cep_subquery",
        "SELECT * FROM (WITH q AS (SELECT 2) SELECT * FROM q) AS __cep_subquery",
        "SELECT *, (SELECT 1) AS __cep_hidden_1, (SELECT max(z) FROM <matches 1>) AS "
        "__cep_hidden_2, (WITH q AS (SELECT 2) SELECT * FROM q) AS __cep_hidden_3 FROM ticks AS t",
    ]
    assert found.calls[1]["measures"] == {"m": "LAST(x) - __cep_hidden_3"}


def test_definitions_before_the_statement_are_visible() -> None:
    found = rewritten(
        "WITH bad AS (SELECT 1 AS k), good AS (SELECT 2 AS k), rest AS (SELECT 3) "
        + statement("n > (SELECT k FROM good)", source="bad")
    )
    with_clause = "WITH bad AS (SELECT 1 AS k), good AS (SELECT 2 AS k)\n"
    assert found.inputs == [
        f"{with_clause}SELECT * FROM (SELECT k FROM good) AS __cep_subquery",
        f"{with_clause}SELECT *, (SELECT k FROM good) AS __cep_hidden_1 FROM bad",
    ]


def test_parameters_stay_in_the_query_that_they_are_in() -> None:
    found = rewritten(
        "SELECT ? FROM t MATCH_RECOGNIZE (ORDER BY ts PATTERN (a{?}) "
        "DEFINE a AS x > ? AND y IN (SELECT k FROM f(?) WHERE z > ?) AND x < ?) WHERE y = ?",
        [1, 2, 3, 4, 5, 6, 7],
    )
    assert found.args == [[4, 5], [4, 5, 4, 5]]
    assert dict(found.calls[0]["pattern"].define) == {"a": "x > 3 AND __cep_hidden_1 AND x < 6"}
    assert found.last is not None
    assert found.last.args == [1, 7]


def test_events_have_subqueries_in_define() -> None:
    found = rewritten(
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts PATTERN SEQ(a, b) "
        "DEFINE a AS t.x IN (SELECT 1), b AS x > a.x + (SELECT 2))"
    )
    conditions = [part.condition for part in found.calls[0]["pattern"].root.parts]
    assert conditions == ["__cep_hidden_1", "x > a.x + __cep_hidden_2"]


@pytest.mark.parametrize(
    ("inside", "message", "hint", "marked"),
    [
        ("PATTERN (a) DEFINE a AS x > ANY (SELECT 1)", "ANY before a subquery", "IN (SELECT ...)",
         "ANY (SELECT 1)"),
        ("PATTERN (a) DEFINE a AS x > all (SELECT 1)", "ALL before a subquery", "SELECT max(",
         "all (SELECT 1)"),
        ("PATTERN (a) DEFINE a AS exists(xs, x -> x IN (SELECT 1))", "not clear what is before",
         "(x) IN (SELECT ...)", "IN (SELECT 1)"),
        ("PATTERN (a) DEFINE a AS x > (SELECT 1) + > 2", "not a Spark SQL expression", "", ">"),
        ("MEASURES (SELECT 1) AS m PATTERN (a*)", "where a match may have no rows",
         "SELECT m.*, (SELECT 1) FROM ...", "(SELECT 1)"),
        ("MEASURES a.x - (SELECT 1) AS m PATTERN SEQ(a, b)", "MEASURES of an event pattern",
         "SELECT m.*, (SELECT 1) FROM ...", "(SELECT 1)"),
    ],
)  # fmt: skip
def test_what_is_refused(inside: str, message: str, hint: str, marked: str) -> None:
    text = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts {inside})"
    with pytest.raises(PatternError, match=message) as caught:
        rewritten(text)
    assert hint in (caught.value.hint or "")
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert text[problem["column"] - 1 :][: problem["length"]] == marked


@dataclass
class _Refusing(Recorded):
    """Refuses queries of subqueries as Spark does."""

    message: str = ""

    def sql(self, query: Any) -> Rows:
        if self.message and "__cep_subquery" in query.text:
            raise ValueError(self.message)
        return super().sql(query)


@pytest.mark.parametrize(
    ("message", "said", "hint"),
    [
        ("[UNRESOLVED_COLUMN] A column with name `a`.`n` cannot be resolved. Did you mean",
         "no column a.n, and a subquery in DEFINE or MEASURES cannot refer to the rows around it",
         "join its table to the input first"),
        ("Syntax error at or near 'x'.", "Syntax error at or near 'x'.", ""),
    ],
)  # fmt: skip
def test_a_subquery_that_is_no_query_by_itself_is_refused_at_its_place(
    message: str, said: str, hint: str
) -> None:
    text = statement("n > (SELECT max(n) FROM s WHERE s.n = a.n)")
    with pytest.raises(PatternError, match=said) as caught:
        rewritten(text, recorded=_Refusing(message=message))
    assert hint in (caught.value.hint or "")
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert text[problem["column"] - 1 :].startswith("(SELECT max(n) FROM s")


def test_a_value_has_one_column() -> None:
    text = statement("n > (SELECT x, y FROM s)")
    with pytest.raises(PatternError, match="this subquery has 2 columns") as caught:
        rewritten(text, recorded=Recorded(columns=("x", "y")))
    assert caught.value.hint == "name one column: (SELECT x FROM ...)"
    text = statement("EXISTS (SELECT x, y FROM s)")
    found = rewritten(text, recorded=Recorded(columns=("x", "y")))
    assert len(found.calls) == 1
