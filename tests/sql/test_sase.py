# ruff: noqa: RUF001 - the papers' signs look like ASCII ones
"""`sase`: each way of writing something gives the pattern that the builders give."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep import all_of, any_of, event, no, sase, seq
from tests.cases import code

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

FREE = dict.fromkeys(("a", "b", "c", "d", "e", "A", "B", "C"))


def free(text: str, **symbols: object) -> Pattern:
    """With symbols that let every variable be any row."""
    return sase(text, symbols={**FREE, **symbols})


def conditions(text: str, pattern: str = "SEQ(a, b, c+)", **symbols: object) -> tuple[str, ...]:
    return free(f"PATTERN {pattern} WHERE {text}", **symbols).conditions


# ---- PATTERN -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SEQ(a, b, c)", seq("a", "b", "c")),
        ("pattern seq(a, b)", seq("a", "b")),
        ("a; b; c", seq("a", "b", "c")),
        ("PATTERN a ; b ;", seq("a", "b")),
        ("AND(a, b)", all_of("a", "b")),
        ("a AND b", all_of("a", "b")),
        ("a ∧ b & c", all_of("a", "b", "c")),
        ("OR(a, b)", any_of("a", "b")),
        ("a or b ∨ c", any_of("a", "b", "c")),
        ("a AND b OR c", any_of(all_of("a", "b"), "c")),
        ("a AND (b OR c)", all_of("a", any_of("b", "c"))),
        ("a; (b OR c)", seq("a", any_of("b", "c"))),
        ("SEQ(a, (b, c))", seq("a", seq("b", "c"))),
        ("SEQ(a, SEQ(b, c))", seq("a", seq("b", "c"))),
        ("SEQ(a, NOT(b), c)", seq("a", "!b", "c")),
        ("SEQ(a, AND(b, d)+)", seq("a", all_of("b", "d").times("+"))),
        ("SEQ(a, (b OR c)+)", seq("a", any_of("b", "c").times("+"))),
        ("SEQ(a, OR(SEQ(b, c), d){2,4})", seq("a", any_of(seq("b", "c"), "d").times("{2,4}"))),
        ("SEQ(a, NOT(SEQ(b, d)), c)", seq("a", no(seq("b", "d")), "c")),
        ("SEQ(a, ~(b, d), c)", seq("a", no(seq("b", "d")), "c")),
        ("SEQ(a, !(b AND d OR e), c)", seq("a", no(any_of(all_of("b", "d"), "e")), "c")),
        ("SEQ(a, NOT b, c)", seq("a", "!b", "c")),
        ("SEQ(a, NEG(b), c)", seq("a", "!b", "c")),
        ("SEQ(a, ~b, c)", seq("a", "!b", "c")),
        ("SEQ(a, !b, c)", seq("a", "!b", "c")),
        ("SEQ(a, ¬b, c)", seq("a", "!b", "c")),
        ("SEQ(a, ~(b), c)", seq("a", "!b", "c")),
        ("SEQ(a, KLEENE(b))", seq("a", "b+")),
        ("SEQ(a, b+)", seq("a", "b+")),
        ("SEQ(a, b[])", seq("a", "b+")),
        ("SEQ(a, b*, c?)", seq("a", "b*", "c?")),
        ("SEQ(a{2,4}, b{3}, c{2,}, d{,4})", seq("a{2,4}", "b{3}", "c{2,}", "d{,4}")),
        ("SEQ(a, (b, c)+)", seq("a", seq("b", "c").times("+"))),
        ("SEQ(a, KLEENE(SEQ(b, c)))", seq("a", seq("b", "c").times("+"))),
        ("SEQ(a, KLEENE(b, c))", seq("a", seq("b", "c").times("+"))),
        ("SEQ(a, (b, ~c, d)+)", seq("a", seq("b", "!c", "d").times("+"))),
        ("SEQ(a, AND(b, c)?)", seq("a", all_of("b", "c").optional())),
        ("Q7: SEQ(a, b)", seq("a", "b")),
        ("PATTERN(1) SEQ(a, b)", seq("a", "b")),
        ("SEQ(a, b).", seq("a", "b")),
        ("SEQ(`a`, b)", seq("a", "b")),
    ],
)
def test_a_pattern_is_what_the_builders_make(text: str, expected: Pattern) -> None:
    assert free(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Stock a",
        "Stock+ a",
        "Stock a+",
        "Stock+ a[]",
        "Stock a[]",
        "KLEENE(Stock a)",
        "Stock a {1,}",
    ],
)
def test_a_type_is_a_condition_on_the_type_column(text: str) -> None:
    found = sase(f"SEQ({text}, Stock b)", type_column="kind")
    first = "a" if text == "Stock a" else "a+" if "{" not in text else "a{1,}"
    assert found == seq(event(first, "kind = 'Stock'"), event("b", "kind = 'Stock'"))


def test_a_bare_name_is_type_and_variable() -> None:
    found = sase("A; ~B; C+", type_column="kind")
    parts = (event("A", "kind = 'A'"), no(event("B", "kind = 'B'")), event("C+", "kind = 'C'"))
    assert found == seq(*parts)


def test_without_a_type_column_a_bare_name_needs_a_condition_of_its_own() -> None:
    assert sase("SEQ(a, b) WHERE a.kind = A AND b.kind = B").root == seq("a", "b").root


def test_a_type_may_be_a_condition_or_none_at_all() -> None:
    found = sase("SEQ(Stock a, Any b)", symbols={"Stock": "kind = 1 AND open", "Any": None})
    assert found == seq(event("a", "kind = 1 AND open"), "b")


def test_names_that_sql_would_misread_stand_in_backquotes() -> None:
    found = sase("SEQ(T select, T b) WHERE select.`we ird` < b.order", type_column="the kind")
    assert found.conditions == ("`select`.`we ird` < b.order",)
    assert found.root.parts[1].condition == "`the kind` = 'T'"  # type: ignore[union-attr]


# ---- WHERE -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.x < b.x", ["a.x < b.x"]),
        ("a.x < b.x AND a.y = 1", ["a.x < b.x", "a.y = 1"]),
        ("((a.x < b.x) ∧ (a.y = 1))", ["a.x < b.x", "a.y = 1"]),
        ("a.x < b.x ^ a.y = 1 & b.y = 2", ["a.x < b.x", "a.y = 1", "b.y = 2"]),
        ("a.x = 1 OR b.x = 2 AND b.y = 3", ["a.x = 1 OR b.x = 2 AND b.y = 3"]),
        ("(a.x = 1 ∨ b.x = 2) AND b.y = 3", ["a.x = 1 OR b.x = 2", "b.y = 3"]),
        ("NOT (a.x = 1 OR b.x = 2)", ["NOT (a.x = 1 OR b.x = 2)"]),
        ("¬ a.x = 1", ["NOT a.x = 1"]),
        ("a.x < b.x < c.x <= 10", ["a.x < b.x", "b.x < c.x", "c.x <= 10"]),
        ("a.x < b.x < 3 OR b.y = 2", ["a.x < b.x AND b.x < 3 OR b.y = 2"]),
        ("NOT a.x < b.x < 3", ["NOT (a.x < b.x AND b.x < 3)"]),
        ("a.x ≠ 1 AND a.y != 2 AND a.z <> 3", ["a.x <> 1", "a.y <> 2", "a.z <> 3"]),
        ("a.x ≤ 1 AND a.y ≥ 2 AND a.z == 3", ["a.x <= 1", "a.y >= 2", "a.z = 3"]),
        ("a.x > 10k AND a.y > 1.5k AND a.z < 2M", ["a.x > 10000", "a.y > 1500", "a.z < 2000000"]),
        ("a.x > 10,000 AND a.y < 1,234,567", ["a.x > 10000", "a.y < 1234567"]),
        ("a.x > 46.51°C", ["a.x > 46.51"]),
        ("a.x > 10L AND a.y > 1.5D AND a.z > 1e3", ["a.x > 10L", "a.y > 1.5D", "a.z > 1e3"]),
        ("greatest(a.x, 10,200) > 1", ["greatest(a.x, 10, 200) > 1"]),
        ("a.x IN (10,200)", ["a.x IN (10, 200)"]),
        ("a.x × 2 > b.x · 3", ["a.x * 2 > b.x * 3"]),
        ("(a.x + 1) * 2 > a.x - (b.x - 1)", ["(a.x + 1) * 2 > a.x - (b.x - 1)"]),
        ("-a.x > -(-3)", ["-a.x > -(-3)"]),
        ("a.ticker = MSFT AND GOOG = b.ticker", ["a.ticker = 'MSFT'", "'GOOG' = b.ticker"]),
        ("a.ticker ∈ {MSFT, 'GO OG'}", ["a.ticker IN ('MSFT', 'GO OG')"]),
        ("a.ticker NOT IN (MSFT)", ["a.ticker NOT IN ('MSFT')"]),
        ("a.ticker ∉ [MSFT]", ["a.ticker NOT IN ('MSFT')"]),
        ("a.x IN b.tags", ["array_contains(b.tags, a.x)"]),
        ("a.x NOT IN b.tags", ["NOT array_contains(b.tags, a.x)"]),
        ("a.x IS NULL AND b.x IS NOT NULL", ["a.x IS NULL", "b.x IS NOT NULL"]),
        ("a.x LIKE 'A%' AND a.y NOT LIKE 'B%'", ["a.x LIKE 'A%'", "a.y NOT LIKE 'B%'"]),
        ("a.x BETWEEN 1 AND 5 AND a.y = 2", ["a.x BETWEEN 1 AND 5", "a.y = 2"]),
        ("a.open = true AND a.x <> null", ["a.open = TRUE", "a.x <> NULL"]),
        ('a.x = "it\'s"', [r"a.x = 'it\'s'"]),
        ("a.x = “quoted”", ["a.x = 'quoted'"]),
        ("a.addr.zip = b.addr.zip", ["a.addr.zip = b.addr.zip"]),
        ("a.tags[0] = b.x", ["a.tags[0] = b.x"]),
        ("upper(a.x) = X AND abs(a.x - b.x) > 2", ["upper(a.x) = 'X'", "abs(a.x - b.x) > 2"]),
        ("count(c) > 2 AND avg(c[].x) > a.x", ["count(c) > 2", "avg(c.x) > a.x"]),
        ("c[1].x > 1 AND c[c.LEN].x > 2", ["first(c.x) > 1", "last(c.x) > 2"]),
        ("c[i].x > c[i-1].x", ["c.x > prev(c.x)"]),
        ("c.x > prev(c.x)", ["c.x > prev(c.x)"]),
        ("a.x = 1 AND a.x = 1", ["a.x = 1"]),
        ("a.x \\leq 1 \\land b.x \\in {1, 2}", ["a.x <= 1", "b.x IN (1, 2)"]),
        ("a.at >= 6:00", ["date_format(a.at, 'HH:mm:ss.SSSSSS') >= '06:00:00.000000'"]),
        ("18:30:05.5 > a.at", ["'18:30:05.500000' > date_format(a.at, 'HH:mm:ss.SSSSSS')"]),
    ],
)
def test_a_condition_is_its_conjuncts_in_spark_sql(text: str, expected: list[str]) -> None:
    assert list(conditions(text)) == expected


def test_symbols_are_sets_values_functions_and_expressions() -> None:
    symbols: dict[str, Any] = {
        "Finance": ["JPM", "it's"],
        "T": 0.5,
        "Low": Decimal("1.50"),
        "Goog": "'GOOG'",
        "Next": "1 + 1",
        "gap": "{1}.x - {0}.x",
        "near": "abs",
        "Odd": {3, 1},
    }
    text = (
        "a.s ∈ Finance AND a.x > T AND a.x < Low AND a.s = Goog AND a.x * Next > 1 "
        "AND gap(a, b) > 2 AND near(a.x - b.x) < 1 AND a.x IN Odd"
    )
    assert conditions(text, **symbols) == (
        r"a.s IN ('JPM', 'it\'s')",
        "a.x > 0.5D",
        "a.x < 1.50",
        "a.s = 'GOOG'",
        "a.x * (1 + 1) > 1",
        "(b.x - a.x) > 2",
        "abs(a.x - b.x) < 1",
        "a.x IN (1, 3)",
    )


def test_names_of_symbols_may_be_any_text() -> None:
    assert conditions("a.s∈Hi-Tech", **{"Hi-Tech": ["X"]}) == ("a.s IN ('X')",)


def test_a_udf_is_called_by_its_own_name() -> None:
    made = cep.udf(lambda x, y: x - y, returns="double", name="sase_gap")
    found = free("SEQ(a, b) WHERE Corr(a.x, b.x) > 1 AND UDF1[a.x, b.x] < 2", Corr=made, UDF1=made)
    assert found.conditions == ("sase_gap(a.x, b.x) > 1", "sase_gap(a.x, b.x) < 2")


@pytest.mark.parametrize("name", ["skip_till_next_match", "SKIP_TILL_NEXT_MATCH"])
def test_a_strategy_may_stand_around_the_conditions(name: str) -> None:
    found = free(f"SEQ(a, b) WHERE {name}(a[], b) {{ a.x < b.x }} WITHIN 5 s")
    assert found == seq("a", "b").where("a.x < b.x").within("5 s").strategy("skip till next match")


# ---- SAME --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("SEQ(a, b, c)", ["a.k = b.k", "a.k = c.k"]),
        ("SEQ(a, ~b, c)", ["a.k = b.k", "a.k = c.k"]),
        ("SEQ(a?, b+, c)", ["c.k = a.k", "c.k = b.k"]),
        ("SEQ(a, b) OR c", ["a.k = b.k"]),
        ("SEQ(a+, b+)", ["a.k = prev(a.k)", "b.k = prev(b.k)", "a.k = b.k"]),
        ("SEQ(a?, b?)", ["a.k = b.k"]),
        ("SEQ(a, (b OR c)+)", ["a.k = b.k", "a.k = c.k"]),
        # Alternatives of a repeated OR may both be filled; the pair is refused where it is tested.
        ("(a OR b)+", ["a.k = prev(a.k)", "b.k = prev(b.k)", "a.k = b.k"]),
        ("SEQ(a, ~b, ~c, d)", ["a.k = b.k", "a.k = c.k", "a.k = d.k"]),
    ],
)
def test_same_ties_each_event_to_one_that_is_always_there(
    pattern: str, expected: list[str]
) -> None:
    assert list(conditions("SAME[k]", pattern)) == expected
    assert list(conditions("[k]", pattern)) == expected


def test_same_takes_several_attributes_fields_and_functions() -> None:
    found = conditions("SAME[k, addr.zip, upper(name)]", "SEQ(a, b)")
    assert found == ("a.k = b.k", "a.addr.zip = b.addr.zip", "upper(a.name) = upper(b.name)")


# ---- families ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(S_1, S_2, ..., S_n)",
        "SEQ(S_1, …, S_n)",
        "SEQ(S_1, \\ldots, S_{n})",
        "SEQ(S₁, ..., Sₙ)",
        "S_1; ...; S_n",
        "SEQ(S_1, ..., S_3, ..., S_n)",
    ],
)
def test_a_family_is_counted_out(text: str) -> None:
    found = sase(text, type_column="kind", symbols={"n": 4})
    assert found == seq(*(event(f"S_{n}", f"kind = 'S_{n}'") for n in range(1, 5)))


def test_the_members_of_a_family_may_have_one_type_or_types_from_a_list() -> None:
    one = sase("SEQ(Stock s_1, ..., Stock s_n)", type_column="kind", symbols={"n": 3})
    assert one == seq(*(event(f"s_{n}", "kind = 'Stock'") for n in (1, 2, 3)))
    many = sase("SEQ(S_1, ..., S_n)", type_column="kind", symbols={"n": 3, "S": [7, 8, 9]})
    assert many == seq(*(event(f"S_{n}", f"kind = {n + 6}") for n in (1, 2, 3)))


@pytest.mark.parametrize("wrapped", ["KLEENE(S_j)", "NEG(S_j)"])
def test_one_member_of_a_family_may_have_an_operator(wrapped: str) -> None:
    found = sase(f"SEQ(S_1, ..., {wrapped}, ..., S_n)", type_column="k", symbols={"n": 4, "j": 2})
    second = event("S_2+", "k = 'S_2'") if "KLEENE" in wrapped else no(event("S_2", "k = 'S_2'"))
    first, third, fourth = (event(f"S_{n}", f"k = 'S_{n}'") for n in (1, 3, 4))
    assert found == seq(first, second, third, fourth)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ("{2, n}", [2, 3, 4]),
        ("{2, ..., n}", [2, 3, 4]),
        ("{2, 3, ..., n}", [2, 3, 4]),
        ("[3, 4]", [3, 4]),
        ("{2, 3, 4}", [2, 3, 4]),
        ("Some", [2, 4]),
        ("{5, 4}", []),
    ],
)
def test_for_all_goes_through_its_numbers(numbers: str, expected: list[int]) -> None:
    for spelling in ("∀i ∈", "FORALL i IN", "for all i in", "\\forall i \\in"):
        found = sase(
            f"SEQ(S_1, ..., S_n) WHERE {spelling} {numbers}: S_i.x > S_{{i-1}}.x",
            type_column="kind",
            symbols={"n": 4, "Some": [2, 4]},
        )
        assert list(found.conditions) == [f"S_{n}.x > S_{n - 1}.x" for n in expected]


def test_for_all_reaches_as_far_as_the_condition_and_may_use_its_number() -> None:
    found = sase(
        "SEQ(S_1, ..., S_n) WHERE (∀i ∈ {1, 2}: S_i.x > i OR S_i.y = 0) AND S_3.x = 1",
        type_column="kind",
        symbols={"n": 3},
    )
    assert found.conditions == ("S_1.x > 1 OR S_1.y = 0", "S_2.x > 2 OR S_2.y = 0", "S_3.x = 1")


def test_for_all_inside_or_is_one_condition() -> None:
    found = sase("SEQ(S_1, S_2) WHERE S_1.y = 1 OR ∀i ∈ {1, 2}: S_i.x > 0", type_column="kind")
    assert found.conditions == ("S_1.y = 1 OR S_1.x > 0 AND S_2.x > 0",)


# ---- WITHIN ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4 hours", seq("a").within("4 hours")),
        ("5min", seq("a").within("5 min")),
        ("1h", seq("a").within("1 h")),
        ("10 minutes.", seq("a").within("10 minutes")),
        ("1 hour 30 minutes", seq("a").within("1 hour 30 minutes")),
        ("10", seq("a").within(10)),
        ("2.5", seq("a").within(2.5)),
        ("50K", seq("a").within(50_000)),
        ("2000 events", seq("a").within(events=2000)),
        ("50K EVENTS", seq("a").within(events=50_000)),
        ("10,000 events", seq("a").within(events=10_000)),
        ("n events", seq("a").within(events=7)),
        ("n minutes", seq("a").within("7 minutes")),
        ("n", seq("a").within(7)),
        ("h", seq("a").within("20 minutes")),
        ("long", seq("a").within(timedelta(hours=3))),
    ],
)
def test_a_window_is_a_duration_a_number_or_a_count(text: str, expected: Pattern) -> None:
    symbols = {"n": 7, "h": "20 minutes", "long": timedelta(hours=3)}
    assert free(f"PATTERN SEQ(a) WITHIN {text}", **symbols) == expected


def test_a_pattern_can_be_added_to_in_python() -> None:
    found = free("SEQ(a, b) WHERE a.x < b.x").where("a.y > 1").within("1 hour")
    assert code(found) == "seq(event('a'), event('b')).where('a.x < b.x', 'a.y > 1').within(1 hour)"
