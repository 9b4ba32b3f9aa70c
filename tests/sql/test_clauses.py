"""Where a clause is found, what its input is, and what is left of the statement."""

from __future__ import annotations

import pytest

from spark_cep.errors import PatternError
from spark_cep.sql.location import find_clauses
from spark_cep.sql.statement import Statement, UnterminatedTextError
from tests.sql.recorded import rewritten

CLAUSE = "MATCH_RECOGNIZE (ORDER BY ts PATTERN (a b{2,3}?) DEFINE b AS x > 1)"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("SELECT * FROM [t {M}]", "t"),
        ("SELECT * FROM [c.s.`t x` AS q {M}] AS m(y2) WHERE y2 > 1;", "c.s.`t x` AS q"),
        (
            "SELECT * FROM [(SELECT * FROM t WHERE x > '(') {M}] m",
            "(SELECT * FROM t WHERE x > '(')",
        ),
        ("SELECT * FROM u JOIN [t {M}] m ON m.y = u.y", "t"),
        ("SELECT * FROM u LEFT JOIN ([t {M}] m) ON m.y = u.y", "t"),
        ("SELECT * FROM u, [a JOIN b USING (id) {M}] m", "a JOIN b USING (id)"),
        (
            "SELECT * FROM [a x JOIN b ON x.k = b.k LEFT JOIN (SELECT 1) c ON f(b.k, 2) {M}]",
            "a x JOIN b ON x.k = b.k LEFT JOIN (SELECT 1) c ON f(b.k, 2)",
        ),
        ("SELECT * FROM a CROSS JOIN [b {M}]", "b"),
        ("SELECT * FROM u, [t {M}] m, v", "t"),
        (
            "SELECT * FROM [VALUES (1, 2), (3, 4) AS t(ts, x) {M}]",
            "VALUES (1, 2), (3, 4) AS t(ts, x)",
        ),
        ("SELECT * FROM u, [VALUES 1, 2 t(x) {M}]", "VALUES 1, 2 t(x)"),
        ("SELECT * FROM VALUES 1, 2 t(x), [u {M}]", "u"),
        ("SELECT * FROM [(VALUES 1, 2) t(x) {M}]", "(VALUES 1, 2) t(x)"),
        ("SELECT * FROM [range(10) AS r {M}]", "range(10) AS r"),
        ("SELECT * FROM [IDENTIFIER(:t) {M}]", "IDENTIFIER(:t)"),
        ("SELECT * FROM [t VERSION AS OF 12 {M}]", "t VERSION AS OF 12"),
        (
            "SELECT * FROM [t TIMESTAMP AS OF '2024-01-01' x {M}]",
            "t TIMESTAMP AS OF '2024-01-01' x",
        ),
        ("SELECT * FROM [t TABLESAMPLE (10 PERCENT) s {M}]", "t TABLESAMPLE (10 PERCENT) s"),
        (
            "SELECT * FROM [t PIVOT (sum(x) FOR k IN ('a')) p {M}]",
            "t PIVOT (sum(x) FOR k IN ('a')) p",
        ),
        ("FROM [t {M}] |> SELECT y", "t"),
        ("SELECT * FROM u WHERE x IN (SELECT y FROM [t {M}] LIMIT 1)", "t"),
        ("SELECT 1 UNION ALL SELECT * FROM [t {M}] ORDER BY 1", "t"),
        ("INSERT OVERWRITE q PARTITION (d = 1) SELECT * FROM [t {M}]", "t"),
        ("CREATE TABLE q USING parquet AS SELECT * FROM [t {M}]", "t"),
        (
            "MERGE INTO q USING [(SELECT 1) {M}] s ON q.a = s.a WHEN MATCHED THEN DELETE",
            "(SELECT 1)",
        ),
        ("SELECT * FROM [t /* MATCH_RECOGNIZE ( */ -- {\n {M}] m", "t"),
        ("select * from [T\tmatch_recognize\n(order by ts pattern (a))] M", "T"),
        ("SELECT * FROM [t {M}] LATERAL VIEW explode(m.xs) e AS x", "t"),
    ],
)
def test_the_table_in_front_and_the_clause_give_way_to_the_matches(text: str, source: str) -> None:
    text = text.replace("{M}", CLAUSE)
    start, end = text.index("["), text.rindex("]")
    text = text[:start] + text[start + 1 : end] + text[end + 1 :]
    recorded = rewritten(text, {"t": 1})
    assert recorded.query == f"{text[:start]}<matches 1>{text[end - 1 :]}"
    assert recorded.inputs[-1] == f"SELECT * FROM {source}"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'x MATCH_RECOGNIZE (PATTERN (a))' FROM t",
        'SELECT "FROM t MATCH_RECOGNIZE (PATTERN (a))"',
        "SELECT 1 -- FROM t MATCH_RECOGNIZE (PATTERN (a))\n FROM t",
        "SELECT 1 /* FROM t MATCH_RECOGNIZE (PATTERN (a)) */ FROM t",
        "SELECT match_recognize FROM t",
        "SELECT match_recognize(x, pattern) FROM t",
        "SELECT * FROM t match_recognize (a, b)",
        "SELECT * FROM t AS match_recognize (pattern, define)",
        "SELECT * FROM `match_recognize` (PATTERN (a))",
    ],
)
def test_the_word_alone_is_no_clause(text: str) -> None:
    assert find_clauses(Statement(text)) == ()


def test_what_has_no_end_is_left_to_spark() -> None:
    with pytest.raises(UnterminatedTextError):
        Statement("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a)) WHERE x = 'y")


def test_braces_of_the_statement_are_no_fields() -> None:
    last = rewritten(f"SELECT '{{\"a\": 1}}' FROM t {CLAUSE}").last
    assert last is not None
    assert last.text == "SELECT '{{\"a\": 1}}' FROM {cep_0}"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("SELECT * FROM t {M}m WHERE m.y > 1", "SELECT * FROM <matches 1> m WHERE m.y > 1"),
        ("SELECT * FROM t {M}WHERE y > 1", "SELECT * FROM <matches 1> WHERE y > 1"),
        ("SELECT*FROM(SELECT 1){M}`m`", "SELECT*FROM <matches 1> `m`"),
        ("SELECT*FROM`t`{M}, u", "SELECT*FROM <matches 1>, u"),
        ("SELECT * FROM (t {M})m", "SELECT * FROM (<matches 1>)m"),
    ],
)
def test_a_clause_may_touch_the_words_around_it(text: str, query: str) -> None:
    assert rewritten(text.replace("{M}", CLAUSE)).query == query


def test_clauses_may_follow_and_contain_each_other() -> None:
    recorded = rewritten(
        f"SELECT * FROM (SELECT * FROM t {CLAUSE} m) {CLAUSE} a {CLAUSE} JOIN u {CLAUSE} USING (y)"
    )
    assert recorded.inputs == [
        "SELECT * FROM t",
        "SELECT * FROM (SELECT * FROM <matches 1> m)",
        "SELECT * FROM <matches 2> a",
        "SELECT * FROM u",
    ]
    assert recorded.query == "SELECT * FROM <matches 3> JOIN <matches 4> USING (y)"


def test_the_input_sees_the_definitions_that_it_refers_to() -> None:
    recorded = rewritten(
        "WITH a AS (SELECT 1), b(k) AS (SELECT * FROM a), c AS (SELECT 2) "
        f"SELECT * FROM b {CLAUSE} JOIN c"
    )
    assert recorded.inputs == ["WITH a AS (SELECT 1), b(k) AS (SELECT * FROM a)\nSELECT * FROM b"]
    assert recorded.query.endswith("c AS (SELECT 2) SELECT * FROM <matches 1> JOIN c")


def test_matches_in_a_definition_are_not_matched_again() -> None:
    recorded = rewritten(
        f"WITH a AS (SELECT * FROM t {CLAUSE}) SELECT * FROM a {CLAUSE} JOIN a USING (y)"
    )
    assert recorded.inputs == [
        "SELECT * FROM t",
        "WITH a AS (SELECT * FROM <matches 1>)\nSELECT * FROM a",
    ]
    assert recorded.query == (
        "WITH a AS (SELECT * FROM <matches 1>) SELECT * FROM <matches 2> JOIN a USING (y)"
    )


def test_an_inner_definition_hides_the_outer_one() -> None:
    recorded = rewritten(
        "WITH a AS (SELECT 1) SELECT * FROM "
        f"(WITH b AS (SELECT 0), a AS (SELECT 2 FROM a) SELECT * FROM a {CLAUSE})"
    )
    assert recorded.inputs == [
        "WITH a AS (SELECT 1)\nSELECT * FROM (WITH a AS (SELECT 2 FROM a)\nSELECT * FROM a)"
    ]


def test_a_definition_sees_only_earlier_ones() -> None:
    recorded = rewritten(
        f"WITH a AS (SELECT 1), b AS (SELECT * FROM a {CLAUSE}), c AS (SELECT 2) SELECT * FROM c"
    )
    assert recorded.inputs == ["WITH a AS (SELECT 1)\nSELECT * FROM a"]


def test_a_recursive_definition_is_matched_when_it_is_complete() -> None:
    head = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r"
    recorded = rewritten(f"{head} WHERE n < 5) SELECT * FROM r {CLAUSE}")
    assert recorded.inputs[0].startswith(f"{head} WHERE n < 5)\nSELECT * FROM r")
    with pytest.raises(PatternError, match="while they are still being computed"):
        rewritten(f"{head} {CLAUSE} WHERE n < 5) SELECT * FROM r")


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("SELECT * FROM a JOIN b ON a.x = b.x WHERE x {M}", "a.x = b.x WHERE x", "MATCH_"),
        ("SELECT * FROM a JOIN b USING (id) x {M}", "must follow a table", "MATCH_"),
        ("SELECT * FROM a LATERAL VIEW explode(x) e {M}", "must follow a table", "MATCH_"),
        ("SELECT * FROM a WHERE x > 1 {M}", "must follow a table", "MATCH_"),
        ("SELECT * FROM a, LATERAL (SELECT 1) {M}", "cannot follow LATERAL", "LATERAL"),
        ("SELECT ({M})", "there is no table before MATCH_RECOGNIZE", "MATCH_"),
        ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a)", "is not closed", "("),
    ],
)
def test_a_clause_stands_behind_a_table(text: str, message: str, marked: str) -> None:
    text = text.replace("{M}", CLAUSE)
    with pytest.raises(PatternError, match=message) as caught:
        rewritten(text)
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert problem["text"] == text
    assert text[problem["column"] - 1 :].startswith(marked)
