"""Every message about a wrong row pattern, once: what it says, where it points, what to write."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cep.expressions.problems import Excerpt
from spark_cep.row_patterns import row_pattern
from tests.rows.compiling import marked, problems

SUBSETS = {"u": ["a", "b"], "w": ["a", "c"]}


@pytest.mark.parametrize(
    ("condition", "message", "at", "hint"),
    [
        # names
        ("nope > 1", "the input has no column nope", "nope", "its columns are"),
        ("x.price > 1", "the pattern has no variable x", "x", "a, b, c, u, w"),
        ("a > 1", "a is a variable, not a value", "a", "a.ts"),
        ("CLASSIFIER(x) = 'a'", "the pattern has no variable x", "x", "a, b, c, u, w"),
        ("count(x.*) > 1", "the pattern has no variable x", "x", "a, b, c, u, w"),
        # what may stand in what
        ("PREV(PREV(price)) > 1", "PREV cannot stand inside PREV", "PREV(price)", "PREV(price, 2)"),
        ("LAST(PREV(price)) > 1", "PREV cannot stand inside LAST", "PREV(price)", "outside"),
        ("FIRST(LAST(price)) > 1", "LAST cannot stand inside FIRST", "LAST(price)", "LAST(b."),
        ("PREV(LAST(price) + 1) > 1", "LAST cannot stand here in PREV", "LAST(price)", "one FIRST"),
        ("PREV(sum(price)) > 1", "PREV takes no aggregate", "sum(price)", "by itself"),
        ("LAST(count(*)) > 1", "LAST takes no aggregate", "count(*)", "by itself"),
        ("sum(avg(price)) > 1", "SUM takes no aggregate", "avg(price)", "cannot be nested"),
        ("sum(LAST(price)) > 1", "LAST cannot stand inside SUM", "LAST(price)", "by itself"),
        ("sum(PREV(price)) > 1", "PREV cannot stand inside SUM", "PREV(price)", "by itself"),
        ("PREV(MATCH_NUMBER() + qty) > 1", "MATCH_NUMBER() cannot stand", "MATCH_", "outside"),
        # what a call is about
        ("PREV(a.price + qty) > 1", "is about a and all rows", "PREV(", "of one variable"),
        ("sum(a.price + c.price) > 1", "is about a and c", "sum(", "of one variable"),
        ("LAST(a.name || CLASSIFIER()) > ''", "is about a and all rows", "LAST(", "one variable"),
        ("LAST(1) > 0", "LAST(1) names no column", "LAST(1)", "PREV(price)"),
        # RUNNING, FINAL, numbers of rows
        (
            "FINAL LAST(price) > 1",
            "FINAL has no place in DEFINE",
            "FINAL LAST(price)",
            "drop FINAL",
        ),
        ("FINAL sum(price) > 1", "FINAL has no place in DEFINE", "FINAL sum(price)", "drop FINAL"),
        ("RUNNING PREV(price) > 1", "RUNNING has no place here", "RUNNING", "in front of FIRST"),
        ("PREV(price, -1) > 1", "-1 is no number of rows", "-1", "PREV(price, 2)"),
        ("LAST(price, qty) > 1", "qty is no number of rows", "qty", "LAST(price, 2)"),
        ("PREV(price, 1.5) > 1", "1.5 is no number of rows", "1.5", "whole number"),
        ("PREV(price, 1, 2) > 1", "takes an expression and a number", "PREV(", "PREV(price, 2)"),
        ("PREV() > 1", "PREV takes an expression", "PREV()", "PREV(price)"),
        ("CLASSIFIER(a, b) = 'a'", "at most one variable", "CLASSIFIER(", "CLASSIFIER(a)"),
        ("MATCH_NUMBER(a) = 1", "MATCH_NUMBER takes nothing", "MATCH_", "MATCH_NUMBER()"),
        ("max_by(price) = 1", "MAX_BY takes 2 expressions", "max_by(price)", None),
        # what the engine and Spark cannot do
        (
            "name LIKE a.name",
            "does not compute LIKE over several rows",
            "name LIKE",
            "and around those of",
        ),
        ("collect_list(price) = 1", "collect_list has no place in DEFINE", "collect_", "count_if"),
        ("percentile(price, 0.5) > 1", "percentile() is an aggregate", "percentile", "count_if"),
        ("sum(name) > 1", "sum does not take STRING", "sum(name)", "a number"),
        ("rand() > 0.5", "gives another value each time", "rand", "before matching"),
        ("price > (SELECT 1)", "a subquery has no place", "(SELECT", "join the other table"),
        ("sum(price) OVER () > 1", "a window function has no place", "sum(price)", "PREV, NEXT"),
        ("LAST(price) IGNORE NULLS > 1", "FILTER and IGNORE NULLS", "LAST(price)", "PREV, NEXT"),
        ("price", "must be TRUE or FALSE, but price is DOUBLE", "price", "compare it"),
        ("name - 1 > PREV(qty)", "cannot type `name` - 1", "name - 1", None),
        ("price <", "something is missing beside '<'", "<", "price < PREV(price)"),
    ],
)
def test_a_wrong_condition_is_refused_where_it_stands(
    condition: str, message: str, at: str, hint: str | None
) -> None:
    (problem,) = problems("a b+ c", define={"b": condition}, subset=SUBSETS)
    assert message in problem["message"]
    assert marked(problem).startswith(at)
    if hint is not None:
        assert hint in problem["hint"]


@pytest.mark.parametrize(
    ("define", "subset", "message", "at", "hint"),
    [
        ({"x": "TRUE"}, {}, "DEFINE names x, which the pattern does not have", "x", "add it"),
        ({"bb": "TRUE"}, {}, "DEFINE names bb", "bb", "did you mean b?"),
        ({"u": "TRUE"}, {"u": ["a"]}, "DEFINE names u, a subset", "u", "made of"),
        ({"b": "TRUE", "B": "TRUE"}, {}, "DEFINE names B twice", "B", "AND"),
        ({}, {"u": ["a", "x"]}, "the subset u names x, which the pattern", "x", "a, b, c"),
        ({}, {"u": []}, "the subset u is empty", "u", "name variables"),
        ({}, {"A": ["b"]}, "the subset A has the name of a variable", "A", "another name"),
        ({}, {"u": ["a"], "U": ["b"]}, "the subset U is there twice", "U", "drop one"),
        ({}, {"u": ["v", "a"], "v": ["b"]}, "the subset u names v, which is a", "v", "those of v"),
    ],
)
def test_names_that_mean_nothing_are_refused(
    define: dict[str, str], subset: dict[str, list[str]], message: str, at: str, hint: str
) -> None:
    (problem,) = problems("a b+ c", define=define, subset=subset)
    assert message in problem["message"]
    assert marked(problem) == at
    assert hint in problem["hint"]


def test_subsets_that_name_each_other_are_refused() -> None:
    found = problems("a", subset={"u": ["v"], "v": ["u"]})
    assert [each["message"] for each in found] == [
        "the subset u names v, which is a subset",
        "the subset v names u, which is a subset",
    ]


@pytest.mark.parametrize(
    ("options", "message", "at", "hint"),
    [
        ({"after_match": "SKIP TO x"}, "after_match names x", "x", "a, b, c"),
        ({"after_match": "SKIP TO FIRST bb"}, "after_match names bb", "bb", "did you mean b?"),
        ({"after_match": "SKIP"}, "after_match cannot be read", "SKIP", "SKIP TO NEXT ROW"),
        ({"measures": {"m": "price, qty"}}, "not a Spark SQL expression", ", qty", "in SELECT"),
        ({"measures": {"m": "sum(sum(price))"}}, "no aggregate", "sum(price)", "nested"),
        ({"measures": {"m": "FINAL price"}}, "not a Spark SQL", "price", "in front of FIRST"),
        ({"measures": {"m": "FINAL CLASSIFIER()"}}, "FINAL has no place here", "FINAL", "FIRST"),
        ({"measures": {"m": "explode(tags)"}}, "several rows of one", "explode", "exists"),
        ({"measures": {"m": "1", "M": "2"}}, "the measure M is there twice", "M", "another"),
        ({"measures": {"m": "b.price - name - 1"}}, "the measure m: cannot type", "b.price", None),
        ({"order_by": "nope"}, "order_by: the input has no column nope", "nope", "its columns"),
        ({"partition_by": "nope"}, "partition_by: the input has no", "nope", "its columns"),
    ],
)
def test_wrong_options_are_refused_where_they_stand(
    options: dict[str, Any], message: str, at: str, hint: str | None
) -> None:
    (problem,) = problems("a b+ c", **options)
    assert message in problem["message"]
    assert marked(problem).startswith(at)
    if hint is not None:
        assert hint in problem["hint"]


def test_an_exclusion_is_refused_where_unmatched_rows_are_shown() -> None:
    (problem,) = problems("a {- b -} c", rows="all with unmatched")
    assert marked(problem) == "{- b -} c"
    assert 'rows="all"' in problem["hint"]


def test_a_window_needs_an_ascending_event_time() -> None:
    pattern = row_pattern("a b").within("1 hour")
    assert "order_by is missing" in problems(pattern, order_by=None)[0]["message"]
    assert "must be ascending" in problems(pattern, order_by="ts DESC")[0]["message"]
    assert "STRING is none" in problems(pattern, order_by="name")[0]["message"]


def test_all_mistakes_are_told_at_once() -> None:
    found = problems(
        "a b c",
        define={"a": "nope > 1", "b": "PREV(PREV(price)) > 1"},
        measures={"m": "x.price"},
        after_match="SKIP TO y",
    )
    assert len(found) == 4


def test_a_condition_that_was_cut_from_a_query_is_shown_there() -> None:
    query = "MATCH_RECOGNIZE (PATTERN (a b)\nDEFINE b AS b.price < PREV(nope))"
    start = query.index("b.price")
    define = {"b": Excerpt(query, start, len(query) - 1)}
    (problem,) = problems(row_pattern("a b", define))
    assert (problem["line"], problem["column"], problem["text"]) == (2, 28, query)
