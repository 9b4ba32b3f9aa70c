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
        ("a > 1", "a is a variable, not a column", "a", "a.ts"),
        ("CLASSIFIER(x) = 'a'", "the pattern has no variable x", "x", "a, b, c, u, w"),
        ("count(x.*) > 1", "the pattern has no variable x", "x", "a, b, c, u, w"),
        # what may stand in what
        ("PREV(PREV(price)) > 1", "PREV cannot contain PREV", "PREV(price)", "PREV(price, 2)"),
        ("LAST(PREV(price)) > 1", "LAST cannot contain PREV", "PREV(price)", "swap the two"),
        ("FIRST(LAST(price)) > 1", "FIRST cannot contain LAST", "LAST(price)", "LAST(b."),
        (
            "PREV(LAST(price) + 1) > 1",
            "PREV cannot contain an expression over LAST",
            "LAST(price)",
            "one FIRST",
        ),
        ("PREV(sum(price)) > 1", "PREV cannot contain the aggregate SUM", "sum(price)", "alone"),
        ("LAST(count(*)) > 1", "LAST cannot contain the aggregate COUNT", "count(*)", "alone"),
        (
            "sum(avg(price)) > 1",
            "SUM cannot contain the aggregate AVG",
            "avg(price)",
            "cannot be nested",
        ),
        ("sum(LAST(price)) > 1", "SUM cannot contain LAST", "LAST(price)", "columns of the rows"),
        ("sum(PREV(price)) > 1", "SUM cannot contain PREV", "PREV(price)", "columns of the rows"),
        (
            "PREV(MATCH_NUMBER() + qty) > 1",
            "PREV cannot contain MATCH_NUMBER()",
            "MATCH_",
            "outside PREV",
        ),
        # what a call is about
        ("PREV(a.price + qty) > 1", "mixes a and all rows", "PREV(", "of one variable"),
        ("sum(a.price + c.price) > 1", "mixes a and c", "sum(", "of one variable"),
        ("LAST(a.name || CLASSIFIER()) > ''", "mixes a and all rows", "LAST(", "one variable"),
        ("LAST(1) > 0", "LAST(1) does not refer to a column", "LAST(1)", "PREV(price)"),
        # RUNNING, FINAL, numbers of rows
        (
            "FINAL LAST(price) > 1",
            "FINAL is not allowed in DEFINE",
            "FINAL LAST(price)",
            "remove FINAL",
        ),
        (
            "FINAL sum(price) > 1",
            "FINAL is not allowed in DEFINE",
            "FINAL sum(price)",
            "remove FINAL",
        ),
        ("RUNNING PREV(price) > 1", "unexpected RUNNING", "RUNNING", "precede FIRST"),
        ("PREV(price, -1) > 1", "an integer literal, not -1", "-1", "PREV(price, 2)"),
        ("LAST(price, qty) > 1", "an integer literal, not qty", "qty", "LAST(price, 2)"),
        ("PREV(price, 1.5) > 1", "an integer literal, not 1.5", "1.5", "number of rows"),
        ("PREV(price, 1, 2) > 1", "takes an expression and an offset", "PREV(", "PREV(price, 2)"),
        ("PREV() > 1", "PREV takes an expression", "PREV()", "PREV(price)"),
        ("CLASSIFIER(a, b) = 'a'", "at most one variable", "CLASSIFIER(", "CLASSIFIER(a)"),
        ("MATCH_NUMBER(a) = 1", "MATCH_NUMBER takes no arguments", "MATCH_", "MATCH_NUMBER()"),
        (
            "approx_count_distinct(a.name) > 3",
            "approx_count_distinct() is not supported in DEFINE",
            "approx_count_distinct(a.name)",
            "count(DISTINCT b.kind)",
        ),
        ("mode(name) = 'x'", "mode() gives any", "mode(name)", "WITHIN GROUP (ORDER BY name)"),
        ("bit_and(price) = 1", "bit_and() does not take DOUBLE", "bit_and(price)", "an integer"),
        ("bit_and(qty, qty) = 1", "bit_and() with 2 arguments", "bit_and(", "bit_and(b.flags)"),
        ("median(price, qty) > 1", "median() with 2 arguments", "median(", "median(b.price)"),
        ("try_sum() > 1", "try_sum() with 0 arguments", "try_sum(", "try_sum(b.price)"),
        (
            "LAST(price, 1) IGNORE NULLS > 1",
            "either an offset or IGNORE NULLS",
            "LAST(price, 1)",
            "try_element_at(collect_list(price), -2)",
        ),
        ("PREV(price) IGNORE NULLS > 1", "cannot ignore NULLs", "PREV(price)", "LAST(price) IGN"),
        ("max(price) IGNORE NULLS > 1", "does not have IGNORE", "max(price)", "skip NULL"),
        ("upper(name) IGNORE NULLS = 'A'", "IGNORE NULLS follows", "upper(name)", "LAST(b.price)"),
        ("stddev(name) > 1D", "stddev() does not take STRING", "stddev(", "use a number"),
        ("max_by(price) = 1", "MAX_BY takes 2 expressions", "max_by(price)", "MAX_BY(price, ts)"),
        # what the engine and Spark cannot do
        (
            "hll_sketch_agg(price) IS NULL",
            "hll_sketch_agg() is not supported in DEFINE",
            "hll_sketch_agg",
            "return it as a measure",
        ),
        ("sum(name) > 1", "sum() does not take STRING", "sum(name)", "a number"),
        ("rand() > 0.5", "is not deterministic", "rand", "before matching"),
        ("price > (SELECT 1)", "subqueries are not supported", "(SELECT", "join the other table"),
        (
            "sum(price) OVER () > 1",
            "window functions are not supported",
            "sum(price)",
            "PREV, NEXT",
        ),
        (
            "lag(price) OVER (ORDER BY qty) > 1",
            "window functions are not supported",
            "lag(price)",
            "PREV, NEXT",
        ),
        (
            "any_value(price HAVING MAX qty) > 1",
            "HAVING inside ANY_VALUE is not Spark SQL",
            "HAVING MAX qty",
            "write max_by(price, qty)",
        ),
        (
            "array_agg(price LIMIT 3)[0] > 1",
            "LIMIT inside ARRAY_AGG is not Spark SQL",
            "LIMIT 3",
            "write slice(array_agg(price), 1, 3)",
        ),
        ("CLASSIFIER = 'b'", "no column CLASSIFIER", "CLASSIFIER", "write CLASSIFIER()"),
        ("price", "must be TRUE or FALSE, but price is DOUBLE", "price", "compare it"),
        ("name - 1 > PREV(qty)", "cannot type `name` - 1", "name - 1", None),
        ("price <", "an operand is missing next to '<'", "<", "price < PREV(price)"),
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
        (
            {"x": "TRUE"},
            {},
            "DEFINE defines x, which is not a variable of the pattern",
            "x",
            "add it",
        ),
        ({"bb": "TRUE"}, {}, "DEFINE defines bb", "bb", "did you mean b?"),
        (
            {"u": "TRUE"},
            {"u": ["a"]},
            "DEFINE defines u, which is a subset",
            "u",
            "define its variables",
        ),
        ({"b": "TRUE", "B": "TRUE"}, {}, "DEFINE defines B twice", "B", "AND"),
        ({}, {"u": ["a", "x"]}, "the subset u contains x, which is not a variable", "x", "a, b, c"),
        ({}, {"u": []}, "the subset u is empty", "u", "write its variables"),
        ({}, {"A": ["b"]}, "the subset A has the name of a variable", "A", "another name"),
        ({}, {"u": ["a"], "U": ["b"]}, "the subset U is defined twice", "U", "remove one"),
        (
            {},
            {"u": ["v", "a"], "v": ["b"]},
            "the subset u contains the subset v",
            "v",
            "the variables of v",
        ),
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
        "the subset u contains the subset v",
        "the subset v contains the subset u",
    ]


@pytest.mark.parametrize(
    ("options", "message", "at", "hint"),
    [
        ({"after_match": "SKIP TO x"}, "after_match names x", "x", "a, b, c"),
        ({"after_match": "SKIP TO FIRST bb"}, "after_match names bb", "bb", "did you mean b?"),
        (
            {"after_match": "SKIP"},
            "after_match is not a valid SKIP clause",
            "SKIP",
            "SKIP TO NEXT ROW",
        ),
        ({"measures": {"m": "price, qty"}}, "not a Spark SQL expression", ", qty", "in SELECT"),
        (
            {"measures": {"m": "sum(sum(price))"}},
            "cannot contain the aggregate",
            "sum(price)",
            "nested",
        ),
        ({"measures": {"m": "FINAL price"}}, "not a Spark SQL", "price", "precede FIRST"),
        ({"measures": {"m": "FINAL CLASSIFIER()"}}, "unexpected FINAL", "FINAL", "FIRST"),
        ({"measures": {"m": "explode(tags)"}}, "returns several rows", "explode", "exists"),
        ({"measures": {"m": "1", "M": "2"}}, "the measure M is defined twice", "M", "another"),
        ({"measures": {"m": "b.price - name - 1"}}, "the measure m: cannot type", "b.price", None),
        ({"measures": {"m": "to_json(struct(*))"}}, "* is not a value here", "*", "struct(b.price"),
        ({"define": {"b": "*"}}, "* is not a value here", "*", "count(*)"),
        ({"order_by": "nope"}, "order_by: the input has no column nope", "nope", "its columns"),
        ({"order_by": "abs(PREV(price))"}, "PREV refers to a match", "PREV", "of the input"),
        ({"order_by": "classifier() DESC"}, "CLASSIFIER refers to a match", "classifier", "input"),
        ({"order_by": "nope.price"}, "the input has no column nope", "nope", "its columns"),
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
    assert "cannot be STRING" in problems(pattern, order_by="name")[0]["message"]


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
