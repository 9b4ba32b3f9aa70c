"""Spellings of other systems become those of the standard."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cep.errors import PatternError
from tests.sql.recorded import Recorded, rewritten


def statement(inside: str, source: str = "ticks AS t") -> str:
    return f"SELECT * FROM {source} MATCH_RECOGNIZE ({inside})"


def call(inside: str, source: str = "ticks AS t", args: Any = None) -> dict[str, Any]:
    (only,) = rewritten(statement(inside, source), args).calls
    return only


def condition(text: str, source: str = "ticks AS t", args: Any = None) -> str:
    """What a condition of b becomes."""
    return dict(call(f"PATTERN (a b x) DEFINE b AS {text}", source, args)["pattern"].define)["b"]


def measure(text: str, clause: str = "ORDER BY ts DESC NULLS LAST") -> str:
    return call(f"{clause} MEASURES {text} AS m PATTERN (a b)")["measures"]["m"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("price > LAG(price)", "price > PREV(price)"),
        ("lead(price, 2) > 1", "NEXT(price, 2) > 1"),
        ("LAG(upper(LAG(x)), 2) = 1", "PREV(upper(PREV(x)), 2) = 1"),
        (
            "LAG(x, 2, 0) > 1",
            "CASE WHEN PREV((x) IS NULL, 2) IS NULL THEN (0) ELSE PREV(x, 2) END > 1",
        ),
        (
            "LEAD(t.x, 1, t.y)",
            "CASE WHEN NEXT((x) IS NULL, 1) IS NULL THEN (y) ELSE NEXT(x, 1) END",
        ),
        (
            "LAG(x, ?, ?) = ?",
            "CASE WHEN PREV((x) IS NULL, 1) IS NULL THEN (2) ELSE PREV(x, 1) END = 3",
        ),
        ("lag > lead", "lag > lead"),
        ("`LAG`(x) > 1", "`LAG`(x) > 1"),
        ("f.lag(x) > 1", "f.lag(x) > 1"),
        ("MATCH_SEQUENCE_NUMBER() < 3", "RUNNING count(*) < 3"),
        ("match_row_number() < 3", "RUNNING count(*) < 3"),
    ],
)  # fmt: skip
def test_calls_in_conditions(written: str, meant: str) -> None:
    assert condition(written, args=[1, 2, 3]) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MATCH_ROWTIME()", "FINAL LAST(ts)"),
        ("match_rowtime(t.seen)", "FINAL LAST(seen)"),
        ("FINAL MATCH_SEQUENCE_NUMBER()", "FINAL count(*)"),
        ("LAG(b.price) - a.price", "PREV(b.price) - a.price"),
    ],
)
def test_calls_in_measures(written: str, meant: str) -> None:
    assert measure(written) == meant


@pytest.mark.parametrize(
    ("source", "written", "meant"),
    [
        ("ticks AS t", "t.price > a.price", "price > a.price"),
        ("ticks AS T", "t . price > `t`.`a b`", "price > `a b`"),
        ("ticks", "sum(ticks.price) > 1", "sum(price) > 1"),
        ("db.ticks", "db.ticks.price > ticks.price", "price > price"),
        ("c.db.ticks q", "c.db.ticks.price > q.price", "price > price"),
        ("ticks q", "count(q.*) > 1", "count(*) > 1"),
        # A variable of the same name, a field of a struct, a lambda's argument, a function.
        ("ticks a", "a.price > 1", "a.price > 1"),
        ("ticks q", "other.q.price > 1", "other.q.price > 1"),
        ("ticks q", "exists(xs, q -> q.price > 1)", "exists(xs, q -> q.price > 1)"),
        ("db.f", "db.f(price) > 1", "db.f(price) > 1"),
        ("a JOIN t ON a.k = t.k", "t.price > k.price", "price > k.price"),
    ],
)
def test_the_name_of_the_input_is_before_its_columns(source: str, written: str, meant: str) -> None:
    assert condition(written, source) == meant


def test_the_name_of_the_input_in_an_expression_of_order_by() -> None:
    found = call("ORDER BY date(t.ts) DESC, t.n + t.k PATTERN (a)")
    assert found["order_by"] == ["date(ts) DESC", "n + k"]


def test_a_struct_column_with_the_name_of_the_input_keeps_its_fields() -> None:
    recorded = Recorded(columns=("t", "price"))
    found = rewritten(statement("PATTERN (a) DEFINE a AS t.field > t.price"), recorded=recorded)
    assert found.calls[0]["pattern"].define == (("a", "t.field > price"),)


@pytest.mark.parametrize(
    ("item", "name", "text"),
    [
        ("MATCH_NUMBER() mn", "mn", "MATCH_NUMBER()"),
        ("b.price bottom", "bottom", "b.price"),
        ("b.price `the bottom`", "the bottom", "b.price"),
        ("xs[0] x", "x", "xs[0]"),
        ("'a' label", "label", "'a'"),
        ("1 n", "n", "1"),
        ("CASE WHEN x THEN y END c", "c", "CASE WHEN x THEN y END"),
        ("x IS NULL missing", "missing", "x IS NULL"),
        ("count(*) month", "month", "count(*)"),
        ("ts - INTERVAL 5 MINUTES AS t", "t", "ts - INTERVAL 5 MINUTES"),
        ("x > INTERVAL 1 MINUTE long", "long", "x > INTERVAL 1 MINUTE"),
    ],
)
def test_a_measure_needs_no_as(item: str, name: str, text: str) -> None:
    assert call(f"MEASURES {item}, 2 AS z PATTERN (a)")["measures"] == {name: text, "z": "2"}


@pytest.mark.parametrize(
    "item",
    ["x", "b.price", "NOT x", "x AND y", "x IS NULL", "CASE WHEN x THEN y END",
     "ts - INTERVAL 5 MINUTES", "x + INTERVAL '1' DAY", "DATE '2024-01-01'", "x DIV y", "f(x)"],
)  # fmt: skip
def test_the_last_word_of_an_expression_is_no_name(item: str) -> None:
    with pytest.raises(PatternError, match="a measure needs a name"):
        rewritten(statement(f"MEASURES {item} PATTERN (a)"))


def test_a_measure_without_a_name_is_told_one_in_its_own_text() -> None:
    with pytest.raises(PatternError) as caught:
        rewritten(statement("MEASURES LAST(b.price) PATTERN (a b)"))
    assert caught.value.hint == "write MEASURES LAST(b.price) AS price"


def test_keys_are_computed_by_the_query_of_the_input() -> None:
    recorded = Recorded(columns=("symbol", "ts", "day", "lower(venue)"))
    found = rewritten(
        statement("PARTITION BY date(t.ts) AS day, (t.symbol), lower(venue) PATTERN (a)"),
        recorded=recorded,
    )
    assert found.inputs == ["SELECT *, date(t.ts) AS day, lower(venue) FROM ticks AS t"]
    assert found.calls[0]["partition_by"] == ["`day`", "symbol", "`lower(venue)`"]


def test_a_computed_key_has_a_name_of_its_own() -> None:
    with pytest.raises(PatternError, match="which a column of the input has too") as caught:
        rewritten(
            statement("PARTITION BY date(ts) PATTERN (a)"), recorded=Recorded(columns=("ts", "ts"))
        )
    assert caught.value.hint == "give it another name: PARTITION BY date(ts) AS ts_key"


def test_parameters_of_keys_go_with_the_input() -> None:
    found = rewritten(
        "SELECT ? FROM t MATCH_RECOGNIZE (PARTITION BY x > ? AS k ORDER BY ts PATTERN (a{?,?}?) "
        "DEFINE a AS x < ?) WHERE y = ?",
        [1, 2, 3, 4, 5, 6],
    )
    assert found.args == [[2]]
    assert found.last is not None
    assert found.last.args == [1, 6]
    pattern = found.calls[0]["pattern"]
    assert (pattern.text, pattern.define) == ("a{3,4}?", (("a", "x < 5"),))


@pytest.mark.parametrize(
    ("pattern", "args", "text"),
    [
        ("a b{:n}", {"n": 2}, "a b{2}"),
        ("a b{:n,}?", {"n": 0}, "a b{0,}?"),
        ("a b{ , :most }", {"most": 3}, "a b{ , 3 }"),
        ("a? b{?} c?", [4], "a? b{4} c?"),
        ("a?? b{1,?}? c", [4], "a?? b{1,4}? c"),
    ],
)
def test_parameters_are_bounds(pattern: str, args: Any, text: str) -> None:
    assert call(f"PATTERN ({pattern})", args=args)["pattern"].text == text


@pytest.mark.parametrize("value", [-1, 1.5, "2", True, None])
def test_a_bound_is_a_count(value: object) -> None:
    with pytest.raises(PatternError, match="a quantifier counts rows") as caught:
        call("PATTERN (a{:n})", args={"n": value})
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert problem["text"][problem["column"] - 1 :].startswith(":n})")


def test_a_mistake_in_a_pattern_with_parameters_is_at_its_place() -> None:
    with pytest.raises(PatternError, match="unexpected character") as caught:
        call("PATTERN (a{:count_of_rows} & b)", args={"count_of_rows": 2})
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert problem["text"][problem["column"] - 1 :].startswith("& b")


def test_parts_may_be_in_any_order() -> None:
    parts = [
        "DEFINE b AS x > 1 AND y IS NOT NULL",
        "SUBSET u = (a, b)",
        "PATTERN (a b+?)",
        "WITHIN INTERVAL '1' HOUR",
        "AFTER MATCH SKIP TO NEXT ROW",
        "OPTIONS (use_longest_match = FALSE)",
        "ALL ROWS PER MATCH",
        "MEASURES count(*) AS n, max(x) OVER_ALL",
        "ORDER BY ts DESC",
        "PARTITION BY k",
    ]
    wanted = call(" ".join(reversed(parts)))
    for turn in range(len(parts)):
        turned = [*parts[turn:], *parts[:turn]]
        assert call(" ".join(turned)) == wanted


def test_options_of_another_system() -> None:
    for options in ("()", "(USE_LONGEST_MATCH = false)"):
        assert call(f"PATTERN (a) OPTIONS {options} DEFINE a AS x")["pattern"].text == "a"
        assert not call(f"PATTERN (a) OPTIONS {options}")["pattern"].is_longest
    asked = call("PATTERN (a) OPTIONS (use_longest_match = TRUE) DEFINE a AS x")
    assert asked["pattern"].is_longest
    for value in (True, False):
        chosen = call("PATTERN (a) OPTIONS (use_longest_match = ?) DEFINE a AS x", args=[value])
        assert chosen["pattern"].is_longest is value
        chosen = call(
            "PATTERN (a) OPTIONS (use_longest_match = :long) DEFINE a AS x", args={"long": value}
        )
        assert chosen["pattern"].is_longest is value
    with pytest.raises(PatternError, match="this parameter is 1"):
        call("PATTERN (a) OPTIONS (use_longest_match = ?)", args=[1])
    with pytest.raises(PatternError, match="applies to row patterns only"):
        call("ORDER BY ts PATTERN SEQ(a, b) OPTIONS (use_longest_match = true)")
    with pytest.raises(PatternError, match="is not an option"):
        call("PATTERN (a) OPTIONS (x = 1)")


@pytest.mark.parametrize(
    ("clause", "message", "hint", "marked"),
    [
        ("ORDER BY ts DEFINE a AS MATCH_ROWTIME() > 1 PATTERN (a)", "DEFINE does not know",
         "write ts, the time of the row", "MATCH_ROWTIME()"),
        ("MEASURES MATCH_ROWTIME() AS t PATTERN (a)", "needs the column of the event time",
         "MATCH_ROWTIME(ts)", "MATCH_ROWTIME()"),
        ("MEASURES MATCH_SEQUENCE_NUMBER(a) AS t PATTERN (a)", "takes no arguments",
         "write MATCH_SEQUENCE_NUMBER()", "MATCH_SEQUENCE_NUMBER(a)"),
        ("MEASURES max(1 + MATCH_ROW_NUMBER()) AS t PATTERN (a)", "MAX cannot contain",
         "write FINAL count(*)", "MATCH_ROW_NUMBER()"),
        ("MEASURES LAG(LAST(x), 1, 0) AS t PATTERN (a)", "over FIRST or LAST takes no default",
         "write coalesce(LAG(LAST(x), 1), 0)", "0)"),
        ("MEASURES PREV(x, 1, 0) AS t PATTERN (a)", "PREV takes no default",
         "write LAG(x, 1, 0)", "0)"),
        ("PATTERN (a) DEFINE a AS NEXT(x, 1, 2) > 1", "NEXT takes no default",
         "write LEAD(x, 1, 2)", "2)"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_here(clause: str, message: str, hint: str, marked: str) -> None:
    with pytest.raises(PatternError, match=message) as caught:
        call(clause)
    assert hint in (caught.value.hint or "")
    (problem,) = caught.value.details["problems"]  # type: ignore[misc]
    assert problem["text"][problem["column"] - 1 :].startswith(marked)
