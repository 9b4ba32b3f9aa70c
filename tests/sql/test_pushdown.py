"""What a statement lets be done in front of its clauses; joins against SQLite."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.sql.location import find_clauses
from spark_cep.sql.parameters import find_markers
from spark_cep.sql.pushdown import ClausePushdown, find_pushdown
from spark_cep.sql.reader import read_clause
from spark_cep.sql.statement import Statement
from tests.sql.recorded import rewritten

CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY user, region ORDER BY ts MEASURES FIRST(a.x) AS gain, LAST(b.y) AS loss
    PATTERN (a b?) DEFINE a AS x > 1
)"""
ALL_ROWS = CLAUSE.replace("PATTERN", "ALL ROWS PER MATCH PATTERN")
EVENTS = """MATCH_RECOGNIZE (
    PARTITION BY user, region ORDER BY ts PATTERN SEQ(a, b) DEFINE a AS x > 1
)"""


def pushdowns(text: str, args: Any = None) -> tuple[ClausePushdown, ...]:
    statement = Statement(text)
    locations = find_clauses(statement)
    clauses = [read_clause(statement, each) for each in locations]
    markers = find_markers(statement, [each.pattern.span for each in clauses])
    return find_pushdown(statement, locations, clauses, args, markers)


def conditions(text: str, args: Any = None) -> list[str]:
    """The conditions of the only clause."""
    (found,) = pushdowns(text, args)
    return [each.sql() for each in found.conditions]


def unused(text: str) -> set[str]:
    (found,) = pushdowns(text)
    return set(found.unused)


# ---- conditions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("m.user = 'x' AND m.gain > 3", ["(`user` = 'x')"]),
        ("M.`User` = 'x'", ["(`User` = 'x')"]),
        ("user = 'x' OR region IS NULL", ["((`user` = 'x') OR (`region` IS NULL))"]),
        ("user = 'x' OR gain > 3", []),
        ("user = 'x' AND (region > 1 AND (gain = 1 OR loss = 2))",
         ["(`user` = 'x')", "(`region` > 1)"]),
        ("NOT (user IN ('x', NULL) AND region BETWEEN 1 AND 2)",
         ["(NOT ((`user` IN ('x', NULL)) AND (`region` BETWEEN 1 AND 2)))"]),
        ("user NOT LIKE 'x%'", ["(`user` NOT LIKE 'x%')"]),
        ("user = region", ["(`user` = `region`)"]),
        ("user = r'a\\b' OR user = 'it''s'", []),
        (r"user = 'it\'s'", [r"(`user` = 'it\'s')"]),
        ("day >= DATE '2024-01-31'", []),
        ("region >= DATE '2024-01-31'", ["(`region` >= DATE'2024-01-31')"]),
        ("lower(user) = 'x'", []),
        ("1 / region > 2", []),
        ("rand() < 0.5", []),
        ("user IN (SELECT k FROM u)", []),
        ("user = (SELECT max(k) FROM u)", []),
        ("m.user.name = 'x'", []),
        ("other.user = 'x'", []),
    ],
)  # fmt: skip
def test_conditions_on_partition_columns_are_moved(where: str, expected: list[str]) -> None:
    assert conditions(f"SELECT * FROM t {CLAUSE} AS m WHERE {where}") == expected


def test_all_rows_and_event_patterns_have_partition_columns_too() -> None:
    assert conditions(f"SELECT * FROM t {ALL_ROWS} WHERE user = 'x'") == ["(`user` = 'x')"]
    assert conditions(f"SELECT * FROM t {EVENTS} WHERE user = 'x'") == ["(`user` = 'x')"]


def test_a_measure_of_the_same_name_hides_a_partition_column() -> None:
    clause = CLAUSE.replace("AS gain", "AS USER")
    assert conditions(f"SELECT * FROM t {clause} WHERE user = 'x' AND region = 1") == [
        "(`region` = 1)"
    ]


def test_names_of_the_answers_columns_count_from_the_left() -> None:
    query = f"SELECT * FROM t {CLAUSE} AS m (a, b, user, d) WHERE user = 1 AND m.b = 2"
    assert conditions(query) == ["(`region` = 2)"]
    events = EVENTS.replace("PATTERN", "ALL ROWS PER MATCH PATTERN")
    assert conditions(f"SELECT * FROM t {events} AS m (a, b) WHERE a = 1") == []


def test_parameters_are_literals() -> None:
    query = f"SELECT * FROM t {CLAUSE} WHERE user = :user AND region IN (:one, 2) AND x = :none"
    args = {"user": "it's", "one": 1}
    assert conditions(query, args) == [r"(`user` = 'it\'s')", "(`region` IN (1, 2))"]
    query = f"SELECT ? FROM t {CLAUSE.replace('x > 1', 'x > ?')} WHERE user = ? AND region = ?"
    assert conditions(query, [0, 1, "x", 2]) == ["(`user` = 'x')", "(`region` = 2)"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT user AS who, gain FROM t {M}) s WHERE s.who = 'x' AND gain > 1",
        "SELECT * FROM (SELECT m.* FROM t {M} m) WHERE user = 'x'",
        "SELECT * FROM (SELECT DISTINCT * FROM (SELECT * FROM t {M})) WHERE user = 'x'",
        "WITH r AS (SELECT * FROM t {M}) SELECT * FROM r WHERE user = 'x'",
        "WITH r (a, b) AS (SELECT user, gain FROM t {M}) SELECT * FROM r AS q WHERE q.a = 'x'",
        "SELECT user, count(*) FROM t {M} WHERE user = 'x' GROUP BY user HAVING count(*) > 1",
        "SELECT user FROM u WHERE EXISTS (SELECT 1 FROM t {M} m WHERE m.user = 'x' AND k = 1)",
        "SELECT 1 UNION SELECT user FROM t {M} WHERE user = 'x' ORDER BY 1 LIMIT 3",
        "SELECT * FROM u, t {M} AS m WHERE m.user = 'x'",
        "EXPLAIN PATTERN SELECT * FROM t {M} WHERE user = 'x'",
        "EXPLAIN FORMATTED SELECT * FROM t {M} WHERE user = 'x'",
        "CREATE TEMP VIEW v (a COMMENT 'SELECT') AS SELECT * FROM t {M} WHERE user = 'x'",
        "INSERT INTO z SELECT * FROM t {M} WHERE user = 'x'",
        "SELECT * FROM (SELECT k user, max(x) x FROM t GROUP BY k) {M} WHERE user = 'x'",
        "SELECT * FROM t {M} /*+ plan('walk') */ AS m WHERE m.user = 'x'",
    ],
)
def test_conditions_are_moved_through_queries(query: str) -> None:
    found = conditions(query.replace("{M}", CLAUSE))
    assert [each.casefold() for each in found] == ["(`user` = 'x')"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT * FROM t {M} LIMIT 3) WHERE user = 'x'",
        "SELECT * FROM (SELECT *, row_number() OVER (ORDER BY gain) n FROM t {M}) WHERE user = 'x'",
        "SELECT * FROM (SELECT user, count(*) FROM t {M} GROUP BY user) WHERE user = 'x'",
        "SELECT * FROM (SELECT max(user) AS user FROM t {M}) WHERE user = 'x'",
        "SELECT * FROM (SELECT gain AS user FROM t {M}) WHERE user = 'x'",
        "SELECT * FROM (SELECT lower(user) AS user FROM t {M}) WHERE user = 'x'",
        "SELECT * FROM (SELECT *, 1 AS user FROM t {M}) WHERE user = 1",
        "SELECT * FROM (SELECT * EXCEPT (user) FROM t {M}) WHERE user = 'x'",
        "SELECT * FROM t {M} TABLESAMPLE (5 ROWS) AS m WHERE m.user = 'x'",
        "SELECT * FROM t {M} PIVOT (max(gain) FOR region IN (1, 2)) WHERE user = 'x'",
        "WITH r AS (SELECT * FROM t {M}) SELECT * FROM r WHERE user = 'x' UNION TABLE r",
        "WITH r AS (SELECT * FROM t {M}) SELECT * FROM r JOIN r AS q WHERE q.user = 'x'",
        "SELECT user = 'x' FROM t {M}",
        "SELECT count(*) FROM t {M} GROUP BY user HAVING user = 'x'",
        "FROM t {M} |> WHERE user = 'x'",
        "SELECT * FROM t {M} JOIN u USING (user) WHERE user = 'x'",
        "SELECT * FROM t {M} NATURAL JOIN u WHERE user = 'x'",
        "SELECT * FROM u LEFT ANTI JOIN t {M} m ON u.k = m.gain WHERE user = 'x'",
        "SELECT * FROM u ANTI JOIN t {M} m ON u.user = 'x'",
        "SELECT * FROM t {M} m ANTI JOIN u ON m.user = 'x'",
    ],
)
def test_conditions_stay_where_moving_them_would_be_wrong(query: str) -> None:
    assert conditions(query.replace("{M}", CLAUSE)) == []


@pytest.mark.parametrize("join", ["LEFT SEMI JOIN", "SEMI JOIN", "LEFT ANTI JOIN", "ANTI JOIN"])
def test_partners_of_semi_joins_are_chosen_by_on(join: str) -> None:
    query = f"SELECT * FROM u {join} t {CLAUSE} m ON u.k = m.user AND m.user = 'x'"
    assert conditions(query) == ["(`user` = 'x')"]


def test_a_clause_after_another_hands_conditions_on() -> None:
    inner, outer = pushdowns(
        f"SELECT * FROM t {CLAUSE} {CLAUSE.replace('user, region', 'region')} AS m WHERE region = 1"
    )
    assert [each.sql() for each in inner.conditions] == ["(`region` = 1)"]
    assert [each.sql() for each in outer.conditions] == ["(`region` = 1)"]
    inner, outer = pushdowns(
        f"SELECT * FROM (SELECT gain AS user, region FROM t {CLAUSE} WHERE user = 'y') {CLAUSE} "
        "AS m WHERE user = 'x'"
    )
    assert [each.sql() for each in inner.conditions] == ["(`user` = 'y')"]
    assert [each.sql() for each in outer.conditions] == ["(`user` = 'x')"]


# ---- joins ---------------------------------------------------------------------------------------

TABLES = {
    "r": [(1, 1), (1, None), (2, 2), (None, 3), (3, 1), (2, None)],
    "s": [(1, 1), (2, None), (None, 2), (4, 4)],
    "q": [(1, 2), (3, 3), (None, None)],
}
ATOMS = st.builds(
    "{}.{} {}".format,
    st.sampled_from(["r", "r", "r", "s", "q"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(
        ["= 1", "<> 2", "< 3", "<=> 1", "IS NULL", "IS NOT NULL", "IN (1, NULL)", "BETWEEN 1 AND 2"]
    ),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=3,
)
JOINS = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
ON = st.builds(
    lambda column, more: f"{column} AND {more}" if more else column,
    st.sampled_from(["r.a = s.a", "r.b = s.b", "q.a = r.a", "q.b = s.a"]),
    st.none() | CONDITIONS,
)


def run_sqlite(query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(":memory:") as database:
        for name, table in TABLES.items():
            database.execute(f"CREATE TABLE {name} (a int, b int)")
            database.executemany(f"INSERT INTO {name} VALUES (?, ?)", table)
        rows = database.execute(query.replace("<=>", "IS")).fetchall()
    return sorted(rows, key=repr)


@given(st.permutations(["r", "s", "q"]), st.tuples(JOINS, JOINS), st.tuples(ON, ON), CONDITIONS)
def test_moved_conditions_do_not_change_a_join(
    order: list[str], joins: tuple[str, str], conditions_on: tuple[str, str], where: str
) -> None:
    (first, second), (on, last_on) = joins, conditions_on
    known = set(order[:2])
    if not set(re.findall(r"([rsq])\.", on)) <= known:
        on = f"{order[0]}.a = {order[1]}.a"
    one, two, three = order
    query = f"SELECT * FROM {one} {first} {two} ON {on} {second} {three} ON {last_on} WHERE {where}"
    clause = (
        "r0 MATCH_RECOGNIZE (PARTITION BY a, b ORDER BY t MEASURES 1 AS x PATTERN (a) "
        "DEFINE a AS TRUE) AS r"
    )
    moved = conditions(re.sub(r"\br\b(?!\.)", clause, query))
    chosen = " AND ".join(["TRUE", *moved])
    rewritten_query = re.sub(
        r"\br\b(?!\.)", f"(SELECT * FROM r WHERE {chosen}) AS r", query, count=1
    )
    assert run_sqlite(query) == run_sqlite(rewritten_query)


# ---- measures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT m.user FROM t {M} m", {"gain", "loss"}),
        ("SELECT count(*) FROM t {M}", {"gain", "loss"}),
        ("SELECT user, `Gain` FROM t {M}", {"loss"}),
        ("SELECT user FROM t {M} WHERE gain > 1 ORDER BY loss", set()),
        ("SELECT user FROM t {M} GROUP BY user HAVING max(gain) > 1", {"loss"}),
        ("SELECT user FROM t {M} m JOIN u ON u.loss = 1", {"gain"}),
        ("SELECT user FROM t {M} m WHERE EXISTS (SELECT 1 FROM u WHERE k = gain)", {"loss"}),
        ("SELECT user FROM t {M} LATERAL VIEW explode(gain) e AS x", {"loss"}),
        ("WITH w AS (SELECT * FROM t) SELECT user FROM w {M}", {"gain", "loss"}),
        ("SELECT * FROM (SELECT user, loss FROM t {M})", {"gain"}),
        ("CREATE TEMP VIEW v AS SELECT user FROM t {M}", {"gain", "loss"}),
        # Stars, and what stands for columns without their names.
        ("SELECT * FROM t {M}", set()),
        ("SELECT user, m.* FROM t {M} m", set()),
        ("SELECT to_json(struct(*)) FROM t {M}", set()),
        ("SELECT user FROM t {M} m WHERE to_json(struct(m.*)) <> ''", set()),
        ("SELECT count(DISTINCT *) FROM t {M}", set()),
        ("SELECT count(m.*) FROM t {M} m", set()),
        ("SELECT user FROM t {M} NATURAL JOIN u", set()),
        ("SELECT d FROM t {M} AS m (a, b, c, d)", set()),
        ("SELECT user FROM t {M} PIVOT (max(region) FOR region IN (1, 2))", set()),
        ("SELECT IDENTIFIER('ga' || 'in') FROM t {M}", set()),
        ("SELECT `(ga|x)+` FROM t {M}", set()),
        ("SELECT x FROM t {M} m, LATERAL (SELECT m.*) l", set()),
        ("SELECT user FROM (t {M} JOIN u)", set()),
        ("FROM t {M} |> SELECT user", set()),
        ("INSERT INTO z TABLE u", None),
    ],
)
def test_measures_that_nothing_names_are_left_out(query: str, expected: set[str] | None) -> None:
    if expected is not None:
        assert unused(query.replace("{M}", CLAUSE)) == expected


def test_an_answer_that_is_matched_again_as_a_whole_keeps_its_measures() -> None:
    inner, _ = pushdowns(
        f"SELECT user FROM t {CLAUSE} MATCH_RECOGNIZE (ORDER BY ts ALL ROWS PER MATCH "
        "PATTERN (a) DEFINE a AS TRUE)"
    )
    assert inner.unused == frozenset()


def test_measures_with_remote_data_stay() -> None:
    clause = CLAUSE.replace("FIRST(a.x)", "remote('limits', a.x)")
    assert unused(f"SELECT user FROM t {clause}") == set()


# ---- the composer --------------------------------------------------------------------------------


def test_without_a_session_that_filters_nothing_is_moved() -> None:
    recorded = rewritten(f"SELECT user FROM t {CLAUSE} WHERE user = 'x'")
    (call,) = recorded.calls
    assert set(call["measures"]) == {"gain", "loss"}
    assert "unused" not in call


def test_a_measure_that_a_later_one_uses_stays() -> None:
    clause = """MATCH_RECOGNIZE (PARTITION BY user ORDER BY ts MEASURES LAST(a.x) AS x,
        count(*) AS n, n + 1 AS more, more * 2 AS twice, LAST(b.n) AS other PATTERN (a b))"""
    assert unused(f"SELECT m.twice FROM t {clause} AS m") == {"x", "other"}
    assert unused(f"SELECT m.more FROM t {clause} AS m") == {"x", "twice", "other"}
    assert unused(f"SELECT m.user FROM t {clause} AS m") == {"x", "n", "more", "twice", "other"}


def test_conditions_on_computed_keys_are_moved_by_their_names() -> None:
    clause = "MATCH_RECOGNIZE (PARTITION BY lower(user) AS low, upper(x) ORDER BY ts PATTERN (a))"
    assert conditions(f"SELECT * FROM t {clause} AS m WHERE m.low = 'a'") == ["(`low` = 'a')"]
    assert conditions(f"SELECT * FROM t {clause} AS m WHERE m.user = 'a'") == []
