"""Names that are a variable and a column, and calls of which a part would have no effect."""

from __future__ import annotations

import pytest

from tests.rows.compiling import compiled, marked, problems


def measure(text: str, pattern: str = "(price b)+", **options: object) -> list[str]:
    found = compiled(pattern, measures={"m": text}, **options)
    return found.readings()


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        # A bare name is the column, in every call.
        ("count(price)", "!count(*: `price`)"),
        ("count(DISTINCT Price)", "!count(*: distinct `price`)"),
        ("count(`price`)", "!count(*: `price`)"),
        ("sum(price)", "!sum(*: `price`)"),
        ("price", "!last(*)[`price`]"),
        ("FIRST(price)", "!first(*)[`price`]"),
        ("FINAL LAST(price, 1)", "!last(*-1)[`price`]"),
        ("PREV(price)", "!last(*)-1[`price`]"),
        # In front of a dot, and where only a variable may be, it is the variable.
        ("price.price", "!last(price)[`price`]"),
        ("count(price.price)", "!count(price: `price`)"),
        ("count(price.*)", "!count(price: )"),
        ("CLASSIFIER(price)", "label !last(price)"),
        # A name that is no column is the variable, in count only.
        ("count(b)", "!count(b: )"),
        ("count(B)", "!count(b: )"),
    ],
)
def test_a_name_of_a_variable_and_a_column(text: str, reading: str) -> None:
    assert measure(text) == [reading]


def test_a_name_of_a_subset_and_a_column() -> None:
    subset = {"price": ["a", "b"]}
    assert measure("count(price)", "(a b)+", subset=subset) == ["!count(*: `price`)"]
    assert measure("count(price.*)", "(a b)+", subset=subset) == ["!count(a|b: )"]
    assert measure("price.qty", "(a b)+", subset=subset) == ["!last(a|b)[`qty`]"]


def test_it_is_the_column_in_define_too() -> None:
    found = compiled("(price b)+", define={"b": "count(price) > 1 AND price > price.qty"})
    assert found.define("b") == (
        "and(>(count(*: `price`), 1), >(.[`price`], cast float64(last(price)[`qty`])))"
    )


def test_columns_are_told_apart_as_the_session_says() -> None:
    assert measure("count(PRICE)", "(PRICE b)+") == ["!count(*: `price`)"]
    exact = measure("count(PRICE)", "(PRICE b)+", case_sensitive=True)
    assert exact == ["!count(PRICE: )"]


def test_a_field_of_a_struct_with_the_name_of_a_variable_is_in_parentheses() -> None:
    (problem,) = problems("(addr b)+", measures={"m": "addr.city"})
    assert problem["message"] == "addr is a variable here, and the input has no column city"
    assert problem["hint"] == "write (addr).city for the field of the column addr"
    assert marked(problem) == "city"


def test_the_argument_of_a_lambda_hides_the_variable() -> None:
    text = "exists(b.tags, tags -> tags = 'x')"
    assert compiled("(tags b)+", define={"b": text}).define("b") == (
        ".[exists(`tags`, tags -> tags = 'x')]"
    )


def test_running_and_final_are_names_before_an_operator() -> None:
    texts = ["final.flag OR (running.flag)", "final.qty IN (1)", "FINAL LAST(final.qty)"]
    for text in texts:
        assert problems("(final running)+", measures={"m": text}) == []


@pytest.mark.parametrize(
    ("text", "message", "at", "hint"),
    [
        ("LAST(DISTINCT qty)", "LAST takes no DISTINCT", "LAST", "write LAST(qty)"),
        ("PREV(DISTINCT a.qty)", "PREV takes no DISTINCT", "PREV", "write PREV(a.qty)"),
        ("CLASSIFIER(a.qty)", "takes a variable, not a.qty", "a.qty", "write CLASSIFIER(a)"),
        ("CLASSIFIER(upper(b))", "takes a variable", "upper", "write CLASSIFIER(b)"),
        ("CLASSIFIER(1)", "takes a variable, not 1", "1", "write CLASSIFIER(a)"),
        ("count(DISTINCT b.*)", "counts rows of b, not values", "count", "write count(b.*)"),
        ("count(DISTINCT b)", "counts rows of b, not values", "count", "count(DISTINCT b.price)"),
        ("count(b, b.qty)", "counts rows of b, not values", "count", "write count(b.*)"),
        ("count(*, qty)", "takes * only as count(*)", "count", "count(*)"),
        ("count(DISTINCT *)", "takes * only as count(*)", "count", "count(*)"),
        ("sum(*)", "SUM takes * only as count(*)", "sum", "SUM(b.price)"),
    ],
)
def test_nothing_is_ignored(text: str, message: str, at: str, hint: str) -> None:
    (problem,) = problems("(a b)+", measures={"m": text})
    assert message in problem["message"]
    assert marked(problem).startswith(at)
    assert hint in problem["hint"]


@pytest.mark.parametrize(
    ("condition", "blamed", "hint"),
    [
        ("qty > 1 AND floor(price / a.price, 1) > 1", "floor(price / a.price, 1)",
         "compare without floor(): price / a.price > 1"),
        ("flag AND xxhash64(qty, a.qty) > 1", "xxhash64(qty, a.qty)", None),
    ],
)  # fmt: skip
def test_a_refused_operation_is_marked_and_rewritten(
    condition: str, blamed: str, hint: str | None
) -> None:
    (problem,) = problems("(a b)+", define={"b": condition})
    start = problem["column"] - 1
    assert condition[start : start + problem["length"]] == blamed
    assert "PREV" not in problem["message"].upper()
    assert hint is None or problem["hint"] == hint


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("PREV(PREV(qty), 2) > 1", "add the offsets: PREV(qty, 3)"),
        ("NEXT(PREV(a.qty), 3) > 1", "add the offsets: NEXT(a.qty, 2)"),
        ("LAST(PREV(a.qty, 2), 1) > 1", "swap the two: PREV(LAST(a.qty, 1), 2)"),
        ("FIRST(NEXT(qty)) > 1", "swap the two: NEXT(FIRST(qty))"),
        ("PREV(sum(a.qty)) > 1", "navigation takes columns of one row; use sum(a.qty) alone"),
        ("PREV(LAST(a.qty, 1) + 1, 2) > 1",
         "PREV takes one FIRST or LAST alone: PREV(LAST(a.qty, 1), 2)"),
    ],
)  # fmt: skip
def test_a_refused_nesting_is_written_anew(condition: str, hint: str) -> None:
    assert hint in [each["hint"] for each in problems("(a b)+", define={"b": condition})]


def test_an_order_inside_an_aggregate_is_a_problem_with_a_place() -> None:
    (problem,) = problems("(a b)+", measures={"m": "1 + max(qty ORDER BY ts)"})
    assert problem["column"] > 1
