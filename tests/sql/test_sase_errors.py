"""What is wrong with a SASE text is said with its line, its column and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

import spark_cep as cep
from spark_cep import sase
from spark_cep.errors import PatternError

FREE: dict[str, object] = dict.fromkeys(("a", "b", "c", "d"))


def error(text: str, **symbols: object) -> PatternError:
    with pytest.raises(PatternError) as caught:
        sase(text, symbols={**FREE, **symbols})
    return caught.value


def only_problem(text: str, **symbols: object) -> dict[str, Any]:
    found = error(text, **symbols)
    problems: Any = found.details["problems"]
    assert len(problems) == 1, found
    return dict(problems[0])


def marked(text: str, **symbols: object) -> str:
    """What stands above the carets."""
    lines = str(error(text, **symbols)).split("\n")
    carets = next(place for place, line in enumerate(lines) if set(line.strip()) == {"^"})
    start = lines[carets].index("^")
    return lines[carets - 1][start : len(lines[carets])]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        # Reading the pattern.
        ("", "expected an event or an operator, but the text ends", ""),
        ("PATTERN", "expected an event or an operator, but the text ends", ""),
        ("SEQ(a, b", "( is not closed", "("),
        ("SEQ(a, b WHERE a.x = 1", "( is not closed", "("),
        ("SEQ(a b c)", "expected ) or a comma, but found c", "c"),
        ("SEQ(a, , b)", "expected an event or an operator, but found ,", ","),
        ("SEQ()", "SEQ() is empty", "SEQ()"),
        ("SEQ(a, b) c", "expected the end or the next clause, but found c", "c"),
        ("SEQ(a, b))", "expected the end or the next clause, but found )", ")"),
        ("SEQ(a, b OR c; d)", "AND or OR beside ; is ambiguous", "b OR c"),
        ("KLEEN(a)", "KLEEN is not an operator", "KLEEN"),
        ("ANY(a)", "ANY is not an operator", "ANY"),
        ("SEQ(a++, b)", "a part has two quantifiers", "a++"),
        ("SEQ(KLEENE(a+), b)", "KLEENE is applied to a part with a quantifier", "a+"),
        ("SEQ(a{4,2}, b)", "the lower bound of {4,2} is larger than its upper bound", "{4,2}"),
        ("SEQ(a{}, b)", "{} is not a quantifier", "{}"),
        # The shape of the pattern.
        ("SEQ(a, b, A)", "the variable A is bound twice (as a; case makes no difference)", "A"),
        ("SEQ(a, b, a)", "the variable a is bound twice", "a"),
        ("SEQ(a, NOT(NOT(b)), c)", "a negated event is negated again", "NOT(b)"),
        ("SEQ(a, NOT(SEQ(b, c+)), d)", "a negated event has a quantifier", "c+"),
        ("SEQ(a, NOT(b+), c)", "a negated event has a quantifier", "b+"),
        ("SEQ(a, NOT(SEQ(b, c)))", "NOT (b, c) is at the end of the pattern", "NOT(SEQ(b, c))"),
        ("SEQ(a, (NOT(b))+, c)", "a negated event has a quantifier", "(NOT(b))+"),
        ("a OR NOT(b)", "NOT directly in OR has no bounds", "NOT(b)"),
        ("SEQ(a, (b OR c+)+)", "an alternative may contain only events", "c+"),
        ("SEQ(a, (b OR (c; d OR e))+)", "AND or OR beside ; is ambiguous", "d OR e"),
        ("SEQ(a, OR(b, SEQ(c, OR(d, e)))+)", "an alternative may contain only events", "OR(d, e)"),
        ("SEQ(a, OR(b, SEQ(c, ~d, e))+)", "a repeated OR cannot have NOT", "~d"),
        ("SEQ(a, AND(b, c OR d)+)", "a repeated group may contain only events", "c OR d"),
        ("SEQ(a, AND(b, ~c)+)", "a repeated group cannot have NOT in AND", "~c"),
        ("SEQ(a, (b, c+)+)", "a repeated group may contain only events", "c+"),
        ("SEQ(a, (b, ~c)+)", "a repeated group cannot begin or end with NOT", "~c"),
        ("NOT(a)", "every event of the pattern is negated", "NOT(a)"),
        ("SEQ(a, NOT(b))", "NOT b is at the end of the pattern", "NOT(b)"),
        ("SEQ(~a, b) WITHIN 5 events", "NOT a is at the start of the pattern", "~a"),
        ("AND(a, ~b)", "NOT b is in all_of", "~b"),
        # Families.
        ("SEQ(S_1, ..., S_n)", "S_n, next to the dots, has no number", "..."),
        ("SEQ(S_{n}, b)", "the subscript of S_n has no value", "S_{n}"),
        ("SEQ(S_{}, b)", "the subscript of S is empty", "S_{}"),
        ("SEQ(..., b)", "dots must be between two events", "..."),
        ("SEQ(S_1, ..., T_3)", "the dots go from S_1 to T_3, which are of two families", "..."),
        ("SEQ(S_3, ..., S_3)", "the dots go from S_3 to S_3", "..."),
        ("SEQ(S_1, ..., S_5000)", "the dots stand for 4999 events", "..."),
        # Reading conditions.
        ("SEQ(a, b) WHERE", "expected a value, but the text ends", ""),
        ("SEQ(a, b) WHERE a.x <", "expected a value, but the text ends", ""),
        ("SEQ(a, b) WHERE a.x < AND b.x = 1", "expected a value, but found AND", "AND"),
        ("SEQ(a, b) WHERE (a.x < 1", "( is not closed", "("),
        ("SEQ(a, b) WHERE a.x = 'it", "this quote is not closed", "'it"),
        (
            "SEQ(a, b) WHERE a.x = 1 || b.x = 2",
            "|| can mean OR or the concatenation",
            "||",
        ),
        ("SEQ(a, b) WHERE a.x = $1", "unexpected character $", "$"),
        ("SEQ(a, b) WHERE a.x < 25:00", "25:00 is not a time of day", "25:00"),
        ("SEQ(a, b+) WHERE b[2].x < 2", "[2] does not name an element of a list", "[2]"),
        ("SEQ(a, b) WHERE a.x IS 3", "expected NULL, but found 3", "3"),
        ("SEQ(a, b) WHERE ∀i ∈ {1, 2} a.x = 1", "expected :, but found a", "a"),
        ("SEQ(a, b) WHERE ∀i ∈ {..., 2}: a.x = 1", "a range needs two bounds", "{..., 2}"),
        ("SEQ(a, b) WHERE strict_contiguity(a) a.x = 1", "expected {, but found a", "a"),
        # What conditions name.
        ("SEQ(a, b) WHERE a.x < T", "unknown name T", "T"),
        ("SEQ(a, b) WHERE price > 10", "unknown name price", "price"),
        ("SEQ(a, b) WHERE a.x = b", "b is a variable, not a value", "b"),
        ("SEQ(a, b) WHERE A = B", "A is a variable, not a value", "A"),
        ("SEQ(a, b) WHERE e.x = 1", "the pattern has no variable e", "e"),
        ("SEQ(a, b) WHERE a.x ∈ Finance", "unknown set Finance", "Finance"),
        ("SEQ(a, b) WHERE a.x ∈ Hi-Tech", "unknown set Hi-Tech", "Hi-Tech"),
        ("SEQ(a, b) WHERE a.x ∈ {}", "the set is empty", "{}"),
        ("SEQ(a, b) WHERE dist(a, b) < 1", "unknown function dist", "dist(a, b)"),
        (
            "SEQ(a, b) WHERE Corr(a.x, b.x) < 1",
            "unknown function Corr",
            "Corr(a.x, b.x)",
        ),
        ("SEQ(a, b) WHERE a[1].x < 2", "a is not a list", "a[1].x"),
        ("SEQ(a, b) WHERE a.x = REMOTE()", "REMOTE needs a key", "REMOTE()"),
        ("SEQ(a, b) WHERE NOT SAME[x]", "SAME cannot be part of another condition", "SAME[x]"),
        ("SEQ(a, b) WHERE SAME[a.x]", "SAME applies to every event", "a.x"),
        ("SEQ(a, b) WHERE ∀i ∈ {1, k}: a.x = i", "these are not whole numbers", "{1, k}"),
        ("SEQ(a, b) WHERE ∀i ∈ {1, 9999}: a.x = i", "∀ ranges over 9999 numbers", "{1, 9999}"),
        ("SEQ(a, b) WHERE ∀i ∈ Some: a.x = i", "Some is not a list of whole numbers", "Some"),
        ("SEQ(a(x, y), b) WHERE a.z = 1", "a is declared without the attribute z", "a.z"),
        # The window.
        ("SEQ(a) WITHIN", "expected a duration, but the text ends", ""),
        ("SEQ(a) WITHIN h", "unknown duration h", "h"),
        ("SEQ(a) WITHIN 5 parsecs", "WITHIN 5 parsecs: unknown unit parsecs", "5 parsecs"),
        ("SEQ(a) WITHIN 2 months", "WITHIN 2 months: a month has no fixed length", "2 months"),
        ("SEQ(a) WITHIN 0 minutes", "WITHIN 0 minutes must be positive", "0 minutes"),
        ("SEQ(a) WITHIN 0", "the window must be larger than zero", "0"),
        ("SEQ(a) WITHIN 2.5 events", "2.5 is not a number of events", "2.5 events"),
        ("SEQ(a) WITHIN n events", "unknown number n", "n events"),
        ("SEQ(a) WITHIN 1 hour 5 events", "this is not a duration", "1 hour 5 events"),
        # Other clauses.
        ("SEQ(a) RETURN a.x", "RETURN is not supported", "RETURN"),
        ("SEQ(a) WITHIN 5 min WHERE a.x = 1", "WHERE is given too late or twice", "WHERE"),
        ("SEQ(a) FROM ticks", "FROM is not supported", "FROM"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_a_hint(text: str, message: str, place: str) -> None:
    problem = only_problem(text)
    assert message in problem["message"]
    assert problem["hint"]
    assert (problem["line"], problem["text"]) == (1, text)
    if place:
        assert marked(text) == place


def test_a_place_is_counted_over_the_lines_of_the_text() -> None:
    text = "PATTERN SEQ(a, b)\nWHERE a.x < b.x\n  AND a.y > T\n"
    assert str(error(text)) == (
        "unknown name T\n"
        "  at line 3, column 13:\n"
        "      AND a.y > T\n"
        "                ^\n"
        '  hint: give its value in symbols={"T": ...}, or name the event that it is a column of: '
        "a.T"
    )


def test_everything_unknown_is_reported_at_once_and_each_name_once() -> None:
    found = error("SEQ(T a1, T a2) WHERE a1.x ∈ Low AND a2.x ∈ Low AND f(a1.x) > K WITHIN w")
    problems: Any = found.details["problems"]
    assert [each["message"] for each in problems] == [
        "nothing says which rows are of type T",
        "unknown set Low",
        "unknown function f",
        "unknown name K",
        "unknown duration w",
    ]
    assert str(found).startswith("the SASE text has 5 problems\n1. ")


@pytest.mark.parametrize("text", ["SEQ(Stock x, Stock y)", "SEQ(Stock+ x[], a)"])
def test_a_type_that_nothing_explains_is_refused(text: str) -> None:
    problem = only_problem(text)
    assert problem["message"] == "nothing says which rows are of type Stock"
    assert 'type_column="kind"' in problem["hint"]
    assert '{"Stock": None}' in problem["hint"]


def test_a_bare_name_that_nothing_explains_is_refused() -> None:
    with pytest.raises(PatternError, match="nothing says which rows are B") as caught:
        sase("PATTERN A; B WHERE A.x = 1 AND A.x < B.x")
    assert "if B is a type" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ({"T": [1, 2]}, "T is a set, not a value"),
        ({"T": None}, "T is a type without a condition, not a value"),
    ],
)
def test_a_symbol_of_another_kind_is_no_value(symbols: dict[str, object], message: str) -> None:
    assert only_problem("SEQ(a, b) WHERE a.x > T", **symbols)["message"] == message


@pytest.mark.parametrize(
    ("given", "message"),
    [(0.5, "Low is a float, not a set"), ([], "the set Low is empty")],
)
def test_a_symbol_of_another_kind_is_no_set(given: object, message: str) -> None:
    assert only_problem("SEQ(a, b) WHERE a.x ∈ Low", Low=given)["message"] == message


def test_a_symbol_of_another_kind_is_no_function() -> None:
    found = only_problem("SEQ(a, b) WHERE near(a.x, b.x) < 1", near=[1])
    assert found["message"] == "the symbol near is not a function"
    found = only_problem("SEQ(a, b) WHERE near(a.x) < 1", near="{0} - {1}")
    assert found["message"] == "near takes 2 arguments, not 1"


def test_a_family_needs_as_many_types_as_members() -> None:
    with pytest.raises(PatternError, match="the family S has only 2 members"):
        sase("SEQ(S_1, ..., S_n)", type_column="kind", symbols={"n": 3, "S": ["X", "Y"]})


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ({"f": len}, "symbols: f has an unsupported value, a builtin_function_or_method"),
        ({"f": object()}, "symbols: f has an unsupported value, an object"),
        ({"f": [object()]}, "symbols: f has an unsupported value, a set"),
        ({3: 1}, "symbols: 3 is not a name"),
    ],
)
def test_symbols_are_checked_before_the_text(symbols: Any, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        sase("SEQ(", symbols=symbols)
    assert caught.value.message.startswith(message)


def test_arguments_of_other_kinds_are_refused() -> None:
    wrong: Any
    for wrong in (None, 3, cep.event("a")):
        with pytest.raises(PatternError, match="sase takes text"):
            sase(wrong)
    wrong = ["kind"]
    with pytest.raises(PatternError, match="type_column must be the name of a column"):
        sase("SEQ(a)", type_column=wrong)
    with pytest.raises(PatternError, match="symbols must be a dict"):
        sase("SEQ(a)", symbols=wrong)


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    assert "nested too deeply" in error("(" * 5000 + "a" + ")" * 5000).message
    deep = "SEQ(a) WHERE " + "(" * 5000 + "a.x = 1" + ")" * 5000
    assert "nested too deeply" in error(deep).message
