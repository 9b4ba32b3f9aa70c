"""Which queries a SELECT over windows with row patterns becomes, and what is wrong with others."""

from __future__ import annotations

import pytest

from spark_cep.errors import PatternError
from spark_cep.rows.windows import WindowRequest
from spark_cep.sql.statement import Statement
from spark_cep.sql.window_query import find_window_selects
from tests.sql.recorded import rewritten

FRAME = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
PATTERN = f"{FRAME} PATTERN (a b?) DEFINE b AS x > PREV(x)"
W = f"WINDOW w AS (PARTITION BY k ORDER BY ts DESC MEASURES LAST(b.x) AS top {PATTERN})"


def test_a_measure_and_a_function_become_columns() -> None:
    recorded = rewritten(f"SELECT t.ts, top OVER w, sum(x) OVER w + t.y AS s FROM t {W} LIMIT 3")
    inner, outer = recorded.inputs
    assert inner == ("SELECT *, 0 AS __cep_i0, t.ts, 0 AS __cep_i1, t.y AS __cep_w0 FROM t")
    assert outer == (
        "SELECT `__cep_s3` AS `ts`, `__cep_m0` AS `top`, `__cep_m1` + `__cep_w0` AS s "
        "FROM {<windows 1>} LIMIT 3"
    ).replace("{", "").replace("}", "")
    assert recorded.query == "SELECT * FROM <input 2>"
    (call,) = recorded.windows
    assert call["measures"] == {"__cep_m0": "LAST(b.x)", "__cep_m1": "sum(`x`)"}
    assert call["partition_by"] == ["k"]
    assert call["order_by"] == ["`ts` DESC"]
    assert call["window"] == WindowRequest(("__cep_s3", "__cep_w0"), frozenset({"__cep_m1"}))


def test_a_pattern_behind_a_frame_needs_no_other_part() -> None:
    for end in ("UNBOUNDED FOLLOWING", "CURRENT ROW"):
        frame = f"ROWS BETWEEN CURRENT ROW AND {end}"
        recorded = rewritten(f"SELECT count(*) OVER (ORDER BY ts {frame} PATTERN (a b?)) FROM t")
        assert recorded.windows[0]["measures"] == {"__cep_m0": "count(*)"}
    text = "SELECT count(*) OVER (PARTITION BY pattern(x) ORDER BY pattern(y)) FROM t"
    assert rewritten(text).windows == []


@pytest.mark.parametrize("word", ["intersect", "except", "union", "minus"])
def test_the_words_of_set_operations_are_names_too(word: str) -> None:
    window = f"WINDOW w AS (PARTITION BY {word} ORDER BY ts, {word} {PATTERN})"
    recorded = rewritten(f"SELECT t.{word}, {word}, sum({word}) OVER w AS {word} FROM t {window}")
    assert recorded.windows[0]["measures"] == {"__cep_m0": f"sum(`{word}`)"}
    query = rewritten(f"SELECT 1 {word} ALL SELECT top OVER w FROM t {W} {word} (SELECT 2)").query
    assert query == f"SELECT 1 {word} ALL SELECT * FROM <input 2> {word} (SELECT 2)"


def test_the_rest_of_the_statement_stays() -> None:
    text = f"INSERT INTO q SELECT 1 UNION ALL SELECT top OVER w FROM t {W} ORDER BY 1"
    assert rewritten(text).query == (
        "INSERT INTO q SELECT 1 UNION ALL SELECT * FROM <input 2> ORDER BY 1"
    )
    text = f"WITH q AS (SELECT 1) SELECT * FROM (SELECT top OVER w FROM q {W}) z WHERE top > 1"
    recorded = rewritten(text)
    assert recorded.inputs[0].startswith("WITH q AS (SELECT 1)\nSELECT *, 0 AS __cep_i0 FROM q")
    assert recorded.query == (
        "WITH q AS (SELECT 1) SELECT * FROM (SELECT * FROM <input 2>) z WHERE top > 1"
    )


def test_what_a_column_may_be_confused_with_is_computed_before() -> None:
    calls = "max(b) OVER w, max(t.x) OVER w, max(x + 1) OVER w, listagg(y, ',') OVER w"
    recorded = rewritten(f"SELECT {calls} FROM t {W}")
    assert list(recorded.windows[0]["measures"].values()) == [
        "max(`__cep_w0`)", "max(`__cep_w1`)", "max(`__cep_w2`)", "listagg(`y`, ',')",
    ]  # fmt: skip
    assert recorded.inputs[0].endswith("b AS __cep_w0, t.x AS __cep_w1, x + 1 AS __cep_w2 FROM t")


def test_functions_that_ignore_the_frame_are_left_to_spark() -> None:
    calls = "lag(x) IGNORE NULLS OVER w - 1 AS y, max(x) OVER v"
    recorded = rewritten(f"SELECT {calls} FROM t {W}, v AS (ORDER BY z)")
    assert recorded.inputs[0] == (
        "SELECT *, 0 AS __cep_i0, max(x) OVER v, 0 AS __cep_i1, "
        "lag(x) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts DESC) AS __cep_w0 "
        "FROM t WINDOW v AS (ORDER BY z)"
    )
    assert recorded.windows == []


@pytest.mark.parametrize(
    ("call", "measure"),
    [
        ("count(*)", "count(*)"),
        ("count(DISTINCT x)", "count(DISTINCT `x`)"),
        ("first_value(x)", "FIRST(`x`)"),
        ("last_value(x)", "LAST(`x`)"),
        ("last(x, true)", "get(collect_list(`x`), size(collect_list(`x`)) - 1)"),
        ("first_value(x) IGNORE NULLS", "get(collect_list(`x`), 0)"),
        ("nth_value(x, 3)", "FIRST(`x`, 2)"),
        ("nth_value(x, 3) RESPECT NULLS", "FIRST(`x`, 2)"),
        ("max_by(x, y)", "max_by(`x`, `y`)"),
    ],
)
def test_functions_over_the_rows_of_the_match(call: str, measure: str) -> None:
    recorded = rewritten(f"SELECT {call} OVER w AS n FROM t {W}")
    assert recorded.windows[0]["measures"] == {"__cep_m0": measure}


@pytest.mark.parametrize(
    ("frame", "following", "seeks"),
    [
        ("UNBOUNDED FOLLOWING", None, False),
        ("CURRENT ROW", 0, False),
        ("99999999999999999999 FOLLOWING", None, False),
        ("5 FOLLOWING EXCLUDE NO OTHERS INITIAL", 5, False),
        ("x + 1 FOLLOWING AFTER MATCH SKIP TO NEXT ROW SEEK", "__cep_w0", True),
    ],
)
def test_frames(frame: str, following: object, seeks: bool) -> None:
    window = f"ROWS BETWEEN CURRENT ROW AND {frame} PATTERN (a) DEFINE a AS TRUE"
    request = rewritten(f"SELECT count(*) OVER ({window}) AS n FROM t").windows[0]["window"]
    assert (request.following, request.seeks) == (following, seeks)


def test_a_window_extends_another() -> None:
    text = (
        f"SELECT count(*) OVER (v {PATTERN}) AS n FROM t "
        "WINDOW u AS (PARTITION BY k), v AS (u ORDER BY ts)"
    )
    (call,) = rewritten(text).windows
    assert (call["partition_by"], call["order_by"]) == (["k"], ["`ts`"])


def test_parameters_of_all_parts() -> None:
    text = (
        "SELECT ?, sum(x + ?) OVER w + ? AS n FROM t WHERE y = ? WINDOW w AS (ORDER BY ts "
        f"{FRAME} PATTERN (a? b) DEFINE b AS x > ? AND y < ?) LIMIT ?"
    )
    recorded = rewritten(text, [1, 2, 3, 4, 5, 6, 7])
    assert recorded.args == [[1, 2, 4], [3, 7]]
    assert recorded.windows[0]["pattern"].define == (("b", "x > 5 AND y < 6"),)


def test_a_clause_and_a_window_in_each_other() -> None:
    clause = "MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(x) AS x PATTERN (a))"
    recorded = rewritten(f"SELECT top OVER w FROM t {clause} AS m {W}")
    assert recorded.inputs[1].endswith("FROM <matches 1> AS m")
    recorded = rewritten(f"SELECT * FROM (SELECT *, top OVER w FROM t {W}) {clause}")
    assert recorded.inputs[-1] == "SELECT * FROM (SELECT * FROM <input 2>)"
    assert recorded.query == "SELECT * FROM <matches 1>"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(x) OVER (PARTITION BY pattern ORDER BY pattern(define)) FROM t",
        "WITH w AS (SELECT pattern (x) FROM define) SELECT 1",
        "SELECT 1 AS (",
    ],
)
def test_other_windows_have_no_row_pattern(text: str) -> None:
    assert find_window_selects(Statement(text)) == ()


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        (f"SELECT tap OVER w FROM t {W}", "has no measure tap", "tap OVER w"),
        (f"SELECT 1 FROM t WHERE top OVER w > 1 {W}", "cannot be used in WHERE", "top OVER w >"),
        (f"SELECT upper(x) OVER w FROM t {W}", "upper() cannot be used", "upper(x)"),
        (f"SELECT sum(x) FILTER (y) OVER w FROM t {W}", "FILTER has no condition", "FILTER"),
        (f"SELECT sum(x) FILTER (WHERE) OVER w FROM t {W}", "FILTER has no condition", "FILTER"),
        (f"SELECT first_value(x) FILTER (WHERE y) OVER w FROM t {W}",
         "FILTER is for aggregates", "y) OVER"),
        (f"SELECT any_value(x, true) FILTER (WHERE y) OVER w FROM t {W}",
         "FILTER is for aggregates", "y) OVER"),
        (f"SELECT nth_value(x, 2) FILTER (WHERE y) OVER w FROM t {W}",
         "FILTER is for aggregates", "y) OVER"),
        (f"SELECT sum(x) FILTER (WHERE top OVER w > 1) OVER w FROM t {W}",
         "FILTER cannot contain a window function", "OVER w > 1"),
        (f"SELECT nth_value(x, y) OVER w FROM t {W}", "a number from 1", "y) OVER"),
        (f"SELECT array_agg(x ORDER BY y) OVER w FROM t {W}", "ORDER BY is not", "ORDER BY y"),
        (f"SELECT top OVER (w ORDER BY x) FROM t {W}", "no window can extend it", "w ORDER BY x"),
        (f"SELECT explode(x), top OVER w FROM t {W}", "add rows", "explode"),
        (f"SELECT sum(top OVER w) OVER (ORDER BY x) FROM t {W}", "cannot contain", "sum(top"),
        (f"SELECT top OVER w FROM t GROUP BY 1 {W}", "takes expressions only", "1 WINDOW"),
        (f"SELECT top OVER w FROM t {W} CLUSTER BY x", "CLUSTER BY", "CLUSTER BY x"),
        (f"SELECT count(*) OVER (q {PATTERN}) FROM t", "there is no window q", "q ROWS"),
        (f"SELECT nth_value(x, {'9' * 5000}) OVER w FROM t {W}", "too many digits", "9999"),
        (f"SELECT top OVER w FROM t {W} z", "expected the definition", "w AS"),
        (f"SELECT count(*) OVER (ORDER BY x {PATTERN}) UNION SELECT 1 FROM t",
         "a SELECT with a FROM", "(ORDER BY x"),
        (f"SELECT count(*) OVER (ORDER BY x {PATTERN})", "a SELECT with a FROM", "(ORDER BY x"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_call(text: str, message: str, marked: str) -> None:
    _check(text, message, marked)


@pytest.mark.parametrize(
    ("window", "message", "marked"),
    [
        ("PATTERN (a) DEFINE a AS TRUE", "needs a frame of rows", "PATTERN"),
        ("RANGE BETWEEN CURRENT ROW AND CURRENT ROW PATTERN (a) DEFINE a AS TRUE",
         "needs a frame of rows", "RANGE"),
        ("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW PATTERN (a) DEFINE a AS TRUE",
         "begins at the current row", "1 PRECEDING"),
        ("ROWS BETWEEN CURRENT ROW AND 1 PRECEDING PATTERN (a) DEFINE a AS TRUE",
         "ends at a following row", "1 PRECEDING"),
        ("ROWS BETWEEN CURRENT ROW AND 1 PATTERN (a) DEFINE a AS FOLLOWING > 1",
         "ends at a following row", "1 PATTERN"),
        (f"{FRAME} EXCLUDE TIES PATTERN (a) DEFINE a AS TRUE", "excludes no rows", "EXCLUDE"),
        (f"{FRAME} PATTERN (^ a) DEFINE a AS TRUE", "^ is not allowed", "^"),
        (f"MEASURES MATCH_NUMBER() AS n {FRAME} PATTERN (a) DEFINE a AS TRUE",
         "MATCH_NUMBER() is not allowed", "MATCH_NUMBER"),
        (f"{FRAME} PATTERN (a) WITHIN INTERVAL 1 DAY DEFINE a AS TRUE", "no WITHIN", "WITHIN"),
        (f"{FRAME} ONE ROW PER MATCH PATTERN (a) DEFINE a AS TRUE", "no ROWS PER MATCH", "PER"),
        (f"{FRAME} PATTERN (a b) DEFINE c AS TRUE", "c", "c AS TRUE"),
        (f"{FRAME} SEEK INITIAL PATTERN (a)", "INITIAL was not expected", "INITIAL"),
        ("ROWS BETWEEN CURRENT ROW AND -1 FOLLOWING PATTERN (a)", "is at least 0", "-1 F"),
        ("ROWS BETWEEN CURRENT ROW AND NULL FOLLOWING PATTERN (a)", "is at least 0", "NULL F"),
        (f"x y {FRAME} PATTERN (a) DEFINE a AS TRUE", "y was not expected here", "y ROWS"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_window(window: str, message: str, marked: str) -> None:
    _check(f"SELECT count(*) OVER ({window}) AS n FROM t", message, marked)


def _check(text: str, message: str, marked: str) -> None:
    with pytest.raises(PatternError) as caught:
        rewritten(text)
    assert message in caught.value.message
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert text[problem["column"] - 1 :].startswith(marked)
