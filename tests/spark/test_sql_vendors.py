"""What other systems write gives the answer of the statement written the long way."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from spark_cep.errors import PatternError
from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PRICES = (10, 9, None, 8, 9, 11, 12, 11, 10, 13, 14, 13)
START = datetime.datetime(2024, 1, 1)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    rows = [
        (key, n, START + datetime.timedelta(minutes=7 * n), price, "xyz"[n % 3])
        for key in ("A", "B", "a")
        for n, price in enumerate(PRICES[ord(key) % 3 :])
    ]
    schema = "symbol string, n int, ts timestamp, price int, kind string"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("quotes")
    bad = spark.createDataFrame([("x",), (None,)], "k string")
    bad.createOrReplaceTempView("bad")
    yield spark
    for name in ("quotes", "bad"):
        spark.catalog.dropTempView(name)


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=str)


def clause(inside: str, source: str = "quotes") -> str:
    return f"SELECT * FROM {source} MATCH_RECOGNIZE ({inside})"


ORDERED = "PARTITION BY symbol ORDER BY ts"
RISE = "PATTERN (a b+) DEFINE b AS price > PREV(price)"
# What is written there, and the long way.
CASES = {
    "snowflake: LAG and a measure without AS": (
        clause(f"{ORDERED} MEASURES LAST(b.price) top, MATCH_SEQUENCE_NUMBER() rows_in_match "
               "PATTERN (a b+) DEFINE b AS price > LAG(price)"),
        clause(f"{ORDERED} MEASURES LAST(b.price) AS top, count(*) AS rows_in_match {RISE}"),
    ),
    "snowflake: the number of each row": (
        clause(f"{ORDERED} MEASURES MATCH_SEQUENCE_NUMBER() AS i ALL ROWS PER MATCH {RISE}"),
        clause(f"{ORDERED} MEASURES RUNNING count(*) AS i ALL ROWS PER MATCH {RISE}"),
    ),
    "snowflake: a default where there is no row": (
        clause(f"{ORDERED} MEASURES count(*) AS n PATTERN (a b*) "
               "DEFINE a AS LAG(price, 2, 100) = 100, b AS LEAD(price, 1, 7) <> 9"),
        clause(f"{ORDERED} MEASURES count(*) AS n PATTERN (a b*) DEFINE a AS earlier = 100, "
               "b AS later <> 9",
               "(SELECT *, lag(price, 2, 100) OVER w AS earlier, lead(price, 1, 7) OVER w AS later "
               "FROM quotes WINDOW w AS (PARTITION BY symbol ORDER BY ts))"),
    ),
    "flink: the time of a match": (
        clause(f"{ORDERED} MEASURES MATCH_ROWTIME() AS rowtime {RISE}"),
        clause(f"{ORDERED} MEASURES LAST(ts) AS rowtime {RISE}"),
    ),
    "an alias of the input": (
        clause("PARTITION BY q.symbol ORDER BY date_trunc('second', q.ts) "
               "MEASURES sum(q.price) AS total PATTERN (a b+) DEFINE b AS q.price > PREV(q.price)",
               "quotes AS q"),
        clause(f"{ORDERED} MEASURES sum(price) AS total {RISE}"),
    ),
    "computed keys": (
        clause("PARTITION BY lower(symbol) AS low, kind = 'x' ORDER BY n, ts, symbol "
               f"MEASURES count(*) AS c ALL ROWS PER MATCH {RISE}"),
        clause("PARTITION BY low, `(kind = x)` ORDER BY n, ts, symbol "
               f"MEASURES count(*) AS c ALL ROWS PER MATCH {RISE}",
               "(SELECT *, lower(symbol) AS low, kind = 'x' FROM quotes)"),
    ),
    "a condition on a computed key": (
        "SELECT m.c FROM quotes MATCH_RECOGNIZE (PARTITION BY lower(symbol) AS low ORDER BY n, "
        f"ts, symbol MEASURES count(*) AS c {RISE}) AS m WHERE m.low = 'a'",
        "SELECT m.c FROM (SELECT * FROM quotes WHERE symbol <> 'B') MATCH_RECOGNIZE (ORDER BY n, "
        f"ts, symbol MEASURES count(*) AS c {RISE}) AS m",
    ),
    "earlier measures": (
        clause(f"{ORDERED} MEASURES FINAL LAST(b.price) AS top, top - price AS below, "
               f"below * 2 AS twice ALL ROWS PER MATCH {RISE}"),
        clause(f"{ORDERED} MEASURES FINAL LAST(b.price) AS top, FINAL LAST(b.price) - price AS "
               f"below, (FINAL LAST(b.price) - price) * 2 AS twice ALL ROWS PER MATCH {RISE}"),
    ),
    "an earlier measure that the query does not name": (
        f"SELECT twice FROM quotes MATCH_RECOGNIZE ({ORDERED} MEASURES count(*) AS c, "
        f"1 AS other, c * 2 AS twice {RISE})",
        f"SELECT twice FROM quotes MATCH_RECOGNIZE ({ORDERED} "
        f"MEASURES count(*) * 2 AS twice {RISE})",
    ),
    "an empty alternative": (
        clause(f"{ORDERED} MEASURES count(*) AS c PATTERN (a (b b|) (|a) b) "
               "DEFINE b AS price > PREV(price)"),
        clause(f"{ORDERED} MEASURES count(*) AS c PATTERN (a (b b|()) (()|a) b) "
               "DEFINE b AS price > PREV(price)"),
    ),
    "a join with its condition": (
        clause("PARTITION BY q.symbol ORDER BY q.ts MEASURES max(limits.most) AS most "
               "PATTERN (a b+) DEFINE b AS q.price > limits.most",
               "quotes q JOIN (SELECT symbol AS s, max(price) - 3 AS most FROM quotes GROUP BY 1) "
               "AS limits ON q.symbol = limits.s"),
        clause(f"{ORDERED} MEASURES max(most) AS most PATTERN (a b+) DEFINE b AS price > most",
               "(SELECT q.*, l.most FROM quotes q JOIN (SELECT symbol AS s, max(price) - 3 AS most "
               "FROM quotes GROUP BY 1) l ON q.symbol = l.s)"),
    ),
    "no blanks around the clause": (
        "SELECT m.c FROM range(1)JOIN(SELECT * FROM quotes)MATCH_RECOGNIZE("
        f"{ORDERED} MEASURES count(*)AS c {RISE})m;",
        f"SELECT c FROM quotes MATCH_RECOGNIZE ({ORDERED} MEASURES count(*) AS c {RISE}) AS m",
    ),
    "conditions of FILTER that begin with an operator": (
        clause(f"{ORDERED} MEASURES count(*) FILTER (WHERE NOT kind = 'x') AS c, "
               f"sum(n) FILTER (WHERE -n < -1) AS s {RISE}"),
        clause(f"{ORDERED} MEASURES count_if(kind <> 'x') AS c, "
               f"sum(CASE WHEN n > 1 THEN n END) AS s {RISE}"),
    ),
    "CLASSIFIER without parentheses": (
        clause(f"{ORDERED} MEASURES classifier AS c, concat(CLASSIFIER, Classifier) AS d, "
               "RUNNING count(classifier) AS c2 ALL ROWS PER MATCH PATTERN (a b+) "
               "DEFINE b AS price > PREV(price) AND classifier = 'b'"),
        clause(f"{ORDERED} MEASURES CLASSIFIER() AS c, concat(CLASSIFIER(), CLASSIFIER()) AS d, "
               "RUNNING count(*) AS c2 ALL ROWS PER MATCH PATTERN (a b+) "
               "DEFINE b AS price > PREV(price)"),
    ),
    "classifier as a column, a variable, a measure and an argument": (
        "SELECT * FROM (SELECT *, n AS Classifier FROM quotes) MATCH_RECOGNIZE ("
        f"{ORDERED} MEASURES LAST(classifier) AS c {RISE}) UNION ALL "
        + clause(f"{ORDERED} MEASURES classifier.n AS c PATTERN (a classifier) "
                 "DEFINE classifier AS price > PREV(price)") + " UNION ALL "
        + "SELECT symbol, d FROM (" + clause(f"{ORDERED} MEASURES b.n AS classifier, classifier + "
          f"1 AS d {RISE}") + ") UNION ALL "
        + clause(f"{ORDERED} MEASURES transform(array(b.n), classifier -> classifier * 2)[0] AS c "
                 f"{RISE}"),
        clause(f"{ORDERED} MEASURES LAST(n) AS c {RISE}") + " UNION ALL "
        + clause(f"{ORDERED} MEASURES LAST(b.n) AS c PATTERN (a b) DEFINE b AS price > PREV(price)")
        + " UNION ALL " + clause(f"{ORDERED} MEASURES b.n + 1 AS c {RISE}") + " UNION ALL "
        + clause(f"{ORDERED} MEASURES b.n * 2 AS c {RISE}"),
    ),
    "fields of a struct": (
        clause(f"{ORDERED} MEASURES to_json(struct(a.n, LAST(b.n), b.n AS k)) AS c {RISE}"),
        clause(f"{ORDERED} MEASURES to_json(named_struct('n', a.n, 'col2', LAST(b.n), 'k', b.n)) "
               f"AS c {RISE}"),
    ),
    "parts in another order": (
        clause("DEFINE b AS price > PREV(price) PATTERN (a b+) AFTER MATCH SKIP TO NEXT ROW "
               "WITHIN INTERVAL '20' MINUTES MEASURES count(*) AS c ORDER BY ts "
               "PARTITION BY symbol"),
        clause(f"{ORDERED} MEASURES count(*) AS c AFTER MATCH SKIP TO NEXT ROW "
               "PATTERN (a b+) WITHIN INTERVAL '20' MINUTES DEFINE b AS price > PREV(price)"),
    ),
    "subqueries in conditions": (
        clause(f"{ORDERED} MEASURES count(*) AS c ALL ROWS PER MATCH PATTERN (a b+) "
               "DEFINE a AS kind NOT IN (SELECT k FROM bad WHERE k IS NOT NULL), "
               "b AS price > (SELECT avg(price) FROM quotes) AND EXISTS (SELECT 1 FROM bad) "
               "AND price - a.price < (SELECT 5)"),
        clause(f"{ORDERED} MEASURES count(*) AS c ALL ROWS PER MATCH PATTERN (a b+) "
               "DEFINE a AS kind NOT IN ('x'), b AS price > 11.03 AND price - a.price < 5"),
    ),
    "subqueries in measures": (
        clause(f"{ORDERED} MEASURES LAST(price) - (SELECT min(price) FROM quotes) AS over, "
               "sum(b.price - (SELECT 8)) AS above, LAST(b.kind) IN (SELECT k FROM bad) AS known, "
               f"upper(LAST(b.kind)) NOT IN (SELECT upper(k) FROM bad) AS unknown {RISE}"),
        clause(f"{ORDERED} MEASURES LAST(price) - 8 AS over, sum(b.price - 8) AS above, "
               "LAST(b.kind) IN ('x', NULL) AS known, upper(LAST(b.kind)) NOT IN ('X', NULL) AS "
               f"unknown {RISE}"),
    ),
    "a subquery with a definition and a clause": (
        "WITH rises AS (" + clause(f"{ORDERED} MEASURES count(*) AS c {RISE}") + ") "
        + clause(f"{ORDERED} MEASURES count(*) AS c PATTERN (a b+) "
                 "DEFINE b AS count(*) <= (SELECT max(c) - 1 FROM rises) AND price > PREV(price)"),
        clause(f"{ORDERED} MEASURES count(*) AS c PATTERN (a b+) "
               "DEFINE b AS count(*) <= 3 AND price > PREV(price)"),
    ),
    "a subquery in events": (
        clause(f"{ORDERED} PATTERN SEQ(a, b) WITHIN 2 EVENTS DEFINE a AS kind IN (SELECT k FROM "
               "bad), b AS price > (SELECT avg(price) FROM quotes)"),
        clause(f"{ORDERED} PATTERN SEQ(a, b) WITHIN 2 EVENTS DEFINE a AS kind = 'x', "
               "b AS price > 11.03"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_the_long_way(session: SparkSession, name: str) -> None:
    short, long = (sql(session, text) for text in CASES[name])
    assert short.columns == long.columns
    found = rows_of(short)
    assert found
    assert found == rows_of(long)


@pytest.mark.parametrize("values", ["('x'), ('z')", "('x'), (NULL)", "(NULL)", ""])
def test_in_has_the_nulls_of_sql(session: SparkSession, values: str) -> None:
    query = f"SELECT * FROM VALUES {values} AS v(k)" if values else "SELECT 'x' AS k WHERE FALSE"
    listed = values.replace("(", "").replace(")", "")

    def measures(among: str | None) -> str:
        tests = []
        for left in ("kind", "nullif(kind, 'y')", "PREV(kind)"):
            for negation in ("", "NOT "):
                known = f"{left} {negation}IN ({among})" if among else str(bool(negation))
                tests.append(f"{known} AS m{len(tests)}")
        return ", ".join(tests)

    found, wanted = (
        sql(session, clause(f"{ORDERED} MEASURES {each} ALL ROWS PER MATCH PATTERN (a)"))
        for each in (measures(query), measures(listed))
    )
    assert rows_of(found) == rows_of(wanted)


def test_hidden_columns_are_in_no_answer(session: SparkSession) -> None:
    define = "DEFINE a AS n > (SELECT min(n) FROM quotes)"
    found = sql(session, clause(f"{ORDERED} ALL ROWS PER MATCH PATTERN (a) {define}"))
    assert sorted(found.columns) == ["kind", "n", "price", "symbol", "ts"]


@pytest.mark.parametrize(
    ("inside", "message", "hint", "marked"),
    [
        ("DEFINE b AS n > (SELECT max(n) FROM bad WHERE k = a.kind) PATTERN (a b)",
         "no column", "join its table to the input", "(SELECT max(n)"),
        ("DEFINE b AS n > (SELECT k, k FROM bad) PATTERN (a b)", "has 2 columns",
         "(SELECT k FROM ...)", "(SELECT k, k"),
        ("PARTITION BY nope(symbol) PATTERN (a) DEFINE a AS TRUE", "`nope`", "", "nope(symbol)"),
        ("PARTITION BY upper(kind) AS kind PATTERN (a) DEFINE a AS TRUE", "has the name kind",
         "AS kind_key", "kind PATTERN"),
        ("PATTERN (a b+) DEFINE b AS ts - a.ts < 60/86400", "an interval in Spark",
         "write ts - a.ts < INTERVAL 1 MINUTE", "ts - a.ts < 60/86400"),
        ("PATTERN (a b+) DEFINE b AS price > PREVIOUS(price)", "no function PREVIOUS",
         "did you mean PREV?", "PREVIOUS"),
        ("MEASURES count(*) AS c, c || nope(1) AS d PATTERN (a)", "no function nope", "", "nope"),
        ("AFTER MATCH SKIP TO NEXT MEASURES 1 AS one PATTERN (a)", "names NEXT",
         "did you mean SKIP TO NEXT ROW?", "NEXT"),
    ],
)  # fmt: skip
def test_mistakes_are_shown_where_they_are(
    session: SparkSession, inside: str, message: str, hint: str, marked: str
) -> None:
    text = clause(f"ORDER BY ts {inside}")
    with pytest.raises(PatternError, match=message) as caught:
        sql(session, text)
    assert hint in (caught.value.hint or "")
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert text[problem["column"] - 1 :].startswith(marked)


def test_a_mistake_in_the_input_stays_sparks(session: SparkSession) -> None:
    text = clause("PARTITION BY lower(x) PATTERN (a) DEFINE a AS n > (SELECT 1)", "nowhere")
    with pytest.raises(AnalysisException, match="nowhere"):
        sql(session, text)


def test_the_longest_match(session: SparkSession) -> None:
    clause = """
        SELECT * FROM quotes MATCH_RECOGNIZE (
          PARTITION BY symbol ORDER BY n
          MEASURES first(n) AS since, count(*) AS length
          AFTER MATCH SKIP TO NEXT ROW
          PATTERN (up+? | up down) {}
          DEFINE up AS price > PREV(price), down AS price < PREV(price)
        ) WHERE symbol = 'B'"""
    longest = "OPTIONS (use_longest_match = true)"
    preferred, found = (rows_of(sql(session, clause.format(each))) for each in ("", longest))
    assert {length for *_, length in preferred} == {1}
    # 8 9 11 12 11 10 13 14 13, from 9 on: all that rises, or one row and a fall.
    assert [row[2] for row in sorted(found)] == [3, 2, 2, 2, 2]


def test_a_star_does_not_show_the_columns_of_subqueries(session: SparkSession) -> None:
    shown = clause("ORDER BY n, ts, symbol MEASURES collect_list(struct(*)) AS all PATTERN (a)")
    (first, *_) = sql(session, shown).collect()
    assert first["all"][0].asDict().keys() == {"symbol", "n", "ts", "price", "kind"}
    for star in ("collect_list(struct(*))", "hash(*) + (SELECT 1)"):
        with pytest.raises(PatternError, match=r"\* is not a value here"):
            sql(session, clause(f"ORDER BY ts MEASURES {star} AS a, (SELECT 1) AS b PATTERN (a)"))
