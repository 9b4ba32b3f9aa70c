"""Clauses that refer to the query around them. The oracle is a statement for each row of the outer
tables, with the row's values as literals."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.errors import PatternError
from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OUTER = "id int, low int, k string, x double, day date"


def _literal(value: Any, type_: str) -> str:
    return f"CAST({'NULL' if value is None else repr(str(value))} AS {type_})"


def _outer_rows(rng: random.Random) -> list[tuple[Any, ...]]:
    return [
        (
            number,
            rng.choice([None, 2, 5, 5, 8]),
            rng.choice([None, "a", "b", "a'b"]),
            rng.choice([None, 0.0, -0.0, math.nan, 4.5]),
            rng.choice(["2024-02-29", None]),
        )
        for number in range(4)
    ]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    rng = random.Random(7)
    rows = [
        (sym, n, rng.randrange(10), float(rng.randrange(8)))
        for sym in ("a", "b", "a'b")
        for n in range(9)
    ]
    spark.createDataFrame(rows, "sym string, n int, price int, y double").createOrReplaceTempView(
        "lateral_q"
    )
    yield spark
    for view in ("lateral_q", "lateral_t"):
        spark.catalog.dropTempView(view)


def _outer(spark: SparkSession, rows: list[tuple[Any, ...]]) -> list[dict[str, str]]:
    """Makes the outer table, and gives the literals of each row."""
    types = [each.split() for each in OUTER.split(", ")]
    literals = [
        {name: _literal(value, type_) for (name, type_), value in zip(types, row, strict=True)}
        for row in rows
    ]
    selects = [
        "SELECT " + ", ".join(f"{text} AS {name}" for name, text in each.items())
        for each in literals
    ]
    made = spark.sql(" UNION ALL ".join(selects))
    # Spark 4.3 fails on a scalar subquery that is correlated to a UNION.
    spark.createDataFrame(made.collect(), made.schema).createOrReplaceTempView("lateral_t")
    return literals


def _sorted(rows: list[Any]) -> list[str]:
    return sorted(repr(tuple(row)) for row in rows)


# {name} is a column of the outer table, or its value.
QUERIES = {
    "a condition": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n MEASURES "
    "a.n AS since, count(*) AS c PATTERN (a b+) DEFINE b AS price > {low})",
    "measures": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n MEASURES "
    "a.n AS since, {low} AS l, LAST(b.price - {low}) AS d, sum(b.price * {low}) AS s, "
    "CAST({x} AS STRING) AS shown, {day} AS day PATTERN (a b+) DEFINE b AS b.price >= a.price)",
    "the input": "SELECT m.c, m.since FROM (SELECT * FROM lateral_q AS q WHERE q.sym = {k} AND "
    "q.price <> {low}) MATCH_RECOGNIZE (ORDER BY n MEASURES a.n AS since, count(*) AS c "
    "PATTERN (a b*) DEFINE b AS b.price > PREV(price)) AS m",
    "input and conditions": "SELECT * FROM (SELECT n, price + {low} AS p FROM lateral_q WHERE sym "
    "IS NOT DISTINCT FROM {k}) AS i MATCH_RECOGNIZE (ORDER BY n MEASURES count(*) AS c, "
    "MATCH_NUMBER() AS number PATTERN (a b+) DEFINE b AS i.p > a.p - {low} AND p < 2 * {low})",
    "around the clause": "SELECT m.c + {id} AS y, {k} AS k FROM lateral_q MATCH_RECOGNIZE ("
    "PARTITION BY sym ORDER BY n MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > {low}) "
    "AS m WHERE m.sym = {k} OR m.c > {id}",
    "an aggregate": "SELECT count(*) AS n, max(c) AS c FROM lateral_q MATCH_RECOGNIZE (ORDER BY "
    "sym, n MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > {low})",
    "groups": "SELECT sym, sum(c) AS s FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n "
    "MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > {low}) GROUP BY sym HAVING "
    "count(*) > 1",
    "a limit": "SELECT since FROM lateral_q MATCH_RECOGNIZE (ORDER BY sym, n MEASURES a.n AS since,"
    " a.sym AS s PATTERN (a b) DEFINE b AS price > {low}) ORDER BY s, since DESC LIMIT 2",
    "all rows": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n MEASURES "
    "CLASSIFIER() AS v, MATCH_NUMBER() AS number ALL ROWS PER MATCH WITH UNMATCHED ROWS "
    "PATTERN (a b+) DEFINE b AS price > {low} AND y <> {x})",
    "numbers with two zeros": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY "
    "n MEASURES count(*) AS c, CAST(atan2({x}, -1D) AS FLOAT) AS t "
    "PATTERN (a b+) DEFINE b AS y >= {x})",
    "an aggregate of Spark": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n "
    "MEASURES median(b.price + {low}) AS mid ALL ROWS PER MATCH PATTERN (a b+) "
    "DEFINE b AS price > {low})",
    "two clauses": "SELECT * FROM lateral_q MATCH_RECOGNIZE (ORDER BY sym, n MEASURES c.price AS p,"
    " c.n AS n, c.sym AS sym PATTERN (c) DEFINE c AS price > {low}) MATCH_RECOGNIZE (PARTITION BY "
    "sym ORDER BY n MEASURES count(*) AS c PATTERN (a b*) DEFINE b AS p > PREV(p) - {id})",
    "an event pattern": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n "
    "PATTERN SEQ(a, b) DEFINE a AS price > {low}, b AS b.price > a.price + {low} - 4)",
    "a computed key": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY price > {low} AS over "
    "ORDER BY sym, n MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > PREV(price))",
    "a subquery beside it": "SELECT * FROM lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n "
    "MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > {low} AND "
    "price < (SELECT max(price) FROM lateral_q))",
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_lateral_is_a_statement_for_each_outer_row(session: SparkSession, query: str) -> None:
    literals = _outer(session, _outer_rows(random.Random(len(query))))
    names = {name: f"t.{name}" for name in literals[0]}
    inner = f"LATERAL ({query.format(**names)}) AS m"
    found = sql(session, f"SELECT t.id, m.* FROM lateral_t AS t, {inner}").collect()
    assert _sorted(found) == _sorted(_one_by_one(session, query, literals))


def _one_by_one(
    spark: SparkSession, query: str, literals: list[dict[str, str]]
) -> list[tuple[Any, ...]]:
    """The query for each of the outer rows, behind the row's number."""
    texts = [
        f"SELECT {number} AS __id, m.* FROM ({query.format(**each)}) AS m"
        for number, each in enumerate(literals)
    ]
    return [tuple(row) for row in sql(spark, " UNION ALL ".join(texts)).collect()]


@pytest.mark.parametrize("name", ["a condition", "the input", "an aggregate"])
def test_a_left_join_keeps_outer_rows_without_matches(session: SparkSession, name: str) -> None:
    literals = _outer(session, _outer_rows(random.Random(4)))
    inner = QUERIES[name].format(**{each: f"t.{each}" for each in literals[0]})
    text = f"SELECT t.id, m.* FROM lateral_t t LEFT JOIN LATERAL ({inner}) AS m ON TRUE"
    found = sql(session, text)
    expected = _one_by_one(session, QUERIES[name], literals)
    missing = {*range(len(literals))} - {row[0] for row in expected}
    nulls = [None] * (len(found.columns) - 1)
    expected += [(number, *nulls) for number in missing]
    assert _sorted(found.collect()) == _sorted(expected)


C = "MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > {})"
Q = "lateral_q MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n "


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("SELECT t.id, (SELECT max(m.c) FROM {} AS m) AS top FROM lateral_t AS t", Q + C),
        ("SELECT t.id, EXISTS (SELECT 1 FROM {} AS m WHERE m.c > 3) AS e FROM lateral_t t", Q + C),
    ],
)
def test_subqueries_refer_to_the_tables_around_them(
    session: SparkSession, outer: str, inner: str
) -> None:
    literals = _outer(session, _outer_rows(random.Random(3)))
    found = sql(session, outer.format(inner.format("t.low")))
    texts = [
        f"{outer.format(inner.format(each['low']))} WHERE id = {number}"
        for number, each in enumerate(literals)
    ]
    expected = sql(session, " UNION ALL ".join(texts)).collect()
    assert _sorted(found.collect()) == _sorted(expected)


def test_exists_in_where_and_bare_names(session: SparkSession) -> None:
    literals = _outer(session, _outer_rows(random.Random(5)))
    where = "(SELECT 1 FROM {} AS m WHERE m.c > 2)"
    texts = [
        f"SELECT {number} AS id WHERE EXISTS {where}".format((Q + C).format(each["low"]))
        for number, each in enumerate(literals)
    ]
    kept = sorted(row.id for row in sql(session, " UNION ALL ".join(texts)).collect())
    text = f"SELECT id FROM lateral_t WHERE EXISTS {where}".format((Q + C).format("low"))
    assert sorted(row.id for row in sql(session, text).collect()) == kept
    assert 0 < len(kept) < len(literals)


def test_joined_tables_common_tables_and_frames(session: SparkSession) -> None:
    _outer(session, [(1, 2, "a", 0.0, None), (2, 5, "b", 0.0, None)])
    text = (
        "WITH o AS (SELECT id, low FROM lateral_t), keys AS (SELECT id AS i, k FROM lateral_t) "
        "SELECT o.id, m.* FROM o JOIN keys ON o.id = keys.i JOIN LATERAL (SELECT * FROM (SELECT * "
        "FROM {q} AS q WHERE q.sym = keys.k AND price > :least) MATCH_RECOGNIZE (ORDER BY n "
        "MEASURES count(*) AS c, a.sym AS s PATTERN (a b+) DEFINE b AS price >= low) AS m) AS m "
        "ON m.c > 1"
    )
    found = sql(session, text, {"least": 1}, q=session.table("lateral_q")).collect()
    expected: list[Any] = []
    for number, low, k in ((1, 2, "a"), (2, 5, "b")):
        alone = (
            f"SELECT * FROM (SELECT * FROM lateral_q WHERE sym = '{k}' AND price > 1) "
            "MATCH_RECOGNIZE (ORDER BY n MEASURES count(*) AS c, a.sym AS s PATTERN (a b+) "
            f"DEFINE b AS price >= {low})"
        )
        expected += [(number, *row) for row in sql(session, alone).collect()]
    assert _sorted(found) == _sorted(expected)
    assert found


def test_inner_names_come_first(session: SparkSession) -> None:
    _outer(session, [(1, 2, "a", 0.0, None)])
    # t is the input here, and n and price are its columns.
    text = (
        "SELECT m.c FROM (SELECT 100 AS price, 100 AS n) AS t, LATERAL (SELECT * FROM lateral_q AS "
        "t MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n MEASURES count(*) AS c PATTERN (a b+) "
        "DEFINE b AS t.price > a.price AND price < 100 AND n < 100)) AS m"
    )
    alone = text.split("LATERAL (")[1].removesuffix(") AS m")
    found = sql(session, text).collect()
    assert _sorted(found) == _sorted(sql(session, f"SELECT c FROM ({alone})").collect())
    assert found


def test_a_clause_without_partitions_is_only_counted(session: SparkSession) -> None:
    literals = _outer(session, _outer_rows(random.Random(9)))
    # Nothing names the measure, so it is not computed, and no column is left.
    outer = (
        "SELECT t.id, EXISTS (SELECT 1 FROM lateral_q MATCH_RECOGNIZE (ORDER BY sym, n MEASURES "
        "a.n AS since PATTERN (a b{{3,}}) DEFINE b AS price > {})) AS e FROM lateral_t AS t"
    )
    texts = [
        f"{outer.format(each['low'])} WHERE id = {number}" for number, each in enumerate(literals)
    ]
    expected = sql(session, " UNION ALL ".join(texts)).collect()
    found = sql(session, outer.format("t.low")).collect()
    assert _sorted(found) == _sorted(expected)
    assert {row.e for row in found} == {True, False}


def test_measures_may_have_the_names_of_outer_columns(session: SparkSession) -> None:
    literals = _outer(session, _outer_rows(random.Random(6)))
    query = "SELECT * FROM " + Q + "MEASURES {k} AS k, {low} AS l, b.price AS low, low AS m "
    query += "PATTERN (a b) DEFINE b AS price > {low})"
    inner = query.format(**{name: name for name in literals[0]})
    found = sql(session, f"SELECT t.id, m.* FROM lateral_t t, LATERAL ({inner}) AS m").collect()
    assert _sorted(found) == _sorted(_one_by_one(session, query, literals))
    assert found


@pytest.mark.parametrize("columns", [("k", "u.k"), ("t.k", "k")])
def test_a_column_of_using_is_not_that_of_a_table(
    session: SparkSession, columns: tuple[str, str]
) -> None:
    tables = "(VALUES ('a'), ('b')) AS t(k) FULL JOIN (VALUES ('a'), ('c')) AS u(k) USING (k)"
    clause = Q + "MEASURES {} AS x, {} AS y PATTERN (a) DEFINE a AS {} <> '' OR {} <> '')"
    first, second = columns
    inner = clause.format(first, second, first, second)
    text = f"SELECT x, y, sym, count(*) AS n FROM {tables}, LATERAL (SELECT * FROM {inner}) AS m "
    expected: list[Any] = []
    for row in session.sql(f"SELECT {first}, {second} FROM {tables}").collect():
        values = [_literal(value, "string") for value in row]
        alone = f"SELECT x, y, sym, count(*) AS n FROM {clause.format(*values, *values)} "
        expected += sql(session, alone + "GROUP BY x, y, sym").collect()
    assert _sorted(sql(session, text + "GROUP BY x, y, sym").collect()) == _sorted(expected)
    assert any(None in tuple(row) for row in expected)


def test_tables_of_inner_and_outer_queries_may_have_one_name(session: SparkSession) -> None:
    clause = "MATCH_RECOGNIZE (PARTITION BY sym ORDER BY n MEASURES count(*) AS c PATTERN (a b+) "
    text = (
        "WITH o AS (SELECT 5 AS low) SELECT m.c FROM o, LATERAL (WITH o AS (SELECT * FROM lateral_q"
        f" WHERE n > 1) SELECT * FROM o {clause} DEFINE b AS price > low)) AS m"
    )
    alone = f"SELECT c FROM (SELECT * FROM lateral_q WHERE n > 1) {clause} DEFINE b AS price > 5)"
    found = sql(session, text).collect()
    assert _sorted(found) == _sorted(sql(session, alone).collect())
    assert found


def test_where_keeps_rows_from_the_subqueries_of_the_select_list(session: SparkSession) -> None:
    _outer(session, [(1, 2, "a", 0.0, None), (2, 5, "b", 0.0, None)])
    query = "(SELECT max(c) FROM " + Q + "MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS "
    text = f"SELECT {query} price > 6 / (t.low - 5))) AS c FROM lateral_t t WHERE t.low <> 5"
    alone = f"SELECT {query} price > 6 / (2 - 5)))"
    assert sql(session, text).collect()[0].c == sql(session, alone).collect()[0][0]


def test_inner_columns_may_have_the_names_of_outer_ones_of_any_type(session: SparkSession) -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY n MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS n > 3)"
    inner = "(SELECT n, price FROM lateral_q WHERE sym = {})"
    text = (
        "SELECT m.c FROM (SELECT array(1) AS price, 'a' AS k) AS o, "
        f"LATERAL (SELECT * FROM {inner.format('o.k')} {clause}) AS m"
    )
    alone = f"SELECT * FROM {inner.format(repr('a'))} {clause}"
    assert _sorted(sql(session, text).collect()) == _sorted(sql(session, alone).collect())


def test_tables_in_brackets_have_names(session: SparkSession) -> None:
    _outer(session, [(1, 2, "a", 0.0, None)])
    tables = "(lateral_t t JOIN (SELECT 1 AS id, 9 AS high) AS u ON t.id = u.id)"
    clause = Q + "MEASURES count(*) AS c PATTERN (a b+) DEFINE b AS price > {} AND price < {})"
    text = f"SELECT m.* FROM {tables}, LATERAL (SELECT * FROM {clause.format('t.low', 'u.high')}) m"
    found = sql(session, text).collect()
    assert _sorted(found) == _sorted(sql(session, f"SELECT * FROM {clause.format(2, 9)}").collect())
    assert found


M = "SELECT * FROM lateral_q MATCH_RECOGNIZE (ORDER BY n "


def test_a_query_without_tables_in_between_hides_the_outer_columns(session: SparkSession) -> None:
    _outer(session, [(1, 2, "a", 0.0, None)])
    with pytest.raises(PatternError, match="has no variable"):
        sql(
            session,
            "SELECT * FROM lateral_t t, LATERAL (SELECT (SELECT max(c) FROM lateral_q "
            "MATCH_RECOGNIZE (ORDER BY n MEASURES count(*) AS c PATTERN (a b) "
            "DEFINE b AS price > t.low)) AS x) AS m",
        )


@pytest.mark.parametrize(
    ("tables", "clause", "message", "at"),
    [
        ("lateral_t t", "MEASURES 1 AS one PATTERN (a{t.id}))", "PATTERN cannot refer", "a{t.id}"),
        ("lateral_t t", "MEASURES 1 AS one PATTERN (a) WITHIN t.low)", "WITHIN cannot", "t.low"),
        ("lateral_t t", ", t.low MEASURES 1 AS one PATTERN (a))", "ORDER BY cannot", "t.low"),
        ("lateral_t t", "MEASURES 1 AS one PATTERN (a) DEFINE a AS price > t.lo)",
         "have no column t.lo", "t.lo"),
        ("lateral_t t", "MEASURES t.low AS l PATTERN (a*))", "may have no rows", "t.low"),
        ("(SELECT array(1) AS xs) t", "MEASURES 1 AS one PATTERN (a) DEFINE a AS n > t.xs[0])",
         "of type array<int>", "(SELECT array(1) AS xs) t"),
        ("(SELECT rand() AS x) t", "MEASURES 1 AS one PATTERN (a) DEFINE a AS n > t.x)",
         "they are read twice", "rand"),
        ("(SELECT low FROM lateral_t LIMIT 2) t",
         "MEASURES 1 AS one PATTERN (a) DEFINE a AS n > t.low)", "add an ORDER BY", "LIMIT"),
        ("lateral_t t", "PATTERN (a) DEFINE a AS n > t.low)", "nothing to show", "MATCH_RECOGNIZE"),
    ],
)  # fmt: skip
def test_what_cannot_be_referred_to(
    session: SparkSession, tables: str, clause: str, message: str, at: str
) -> None:
    _outer(session, [(1, 2, "a", 0.0, None)])
    text = f"SELECT * FROM {tables}, LATERAL ({M}{clause}) AS m"
    with pytest.raises(PatternError, match=message) as raised:
        sql(session, text)
    (problem,) = raised.value.details["problems"]  # type: ignore[misc]
    assert text[problem["column"] - 1 :][: problem["length"]] == at


def test_rows_that_change_are_refused_in_common_table_expressions(session: SparkSession) -> None:
    clause = "MEASURES 1 AS one PATTERN (a) DEFINE a AS n > t.x)"
    text = f"WITH t AS (SELECT rand() AS x) SELECT * FROM t, LATERAL ({M}{clause}) AS m"
    with pytest.raises(PatternError, match="they are read twice"):
        sql(session, text)


def test_an_input_cannot_have_both_columns_of_using(session: SparkSession) -> None:
    tables = "(VALUES ('a')) AS t(k) LEFT JOIN (VALUES ('b')) AS u(k) USING (k)"
    source = "(SELECT * FROM lateral_q WHERE sym = k OR u.k IS NULL)"
    text = f"SELECT * FROM {tables}, LATERAL (SELECT * FROM {source} MATCH_RECOGNIZE (ORDER BY n "
    with pytest.raises(PatternError, match="makes one column of two"):
        sql(session, text + "MEASURES count(*) AS c PATTERN (a b+))) AS m")
