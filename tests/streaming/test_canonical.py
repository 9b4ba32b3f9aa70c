"""Whose state it is: what changes the meaning of a query changes its canonical form, and nothing
else does."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.expressions.user_functions import udf
from spark_cep.pattern import Pattern, all_of, any_of, event, no, seq
from spark_cep.udfs import expressions, program
from spark_cep.udfs import row_program as rows_program
from spark_cep.udfs.canonical import (
    event_program,
    expression,
    fingerprint,
    normalized,
    row_program,
    spark_column,
)
from spark_cep.udfs.expressions import BOOL, Constant, Expression, Type
from spark_cep.udfs.program import Adaptation, Estimates, Limits, Plan
from tests import forms

WINDOW = "10 minutes"


def of_events(pattern: Pattern, **options: Any) -> str:
    return fingerprint(forms.events(pattern, **options).form())


def of_rows(*pattern: Any, **options: Any) -> str:
    return fingerprint(forms.rows(*pattern, **options).form())


@pytest.fixture(autouse=True)
def _functions() -> None:
    udf(lambda x, y: x < y, returns="boolean", name="near")


# ---- what changes nothing ----------------------------------------------------------------------

# Conditions by their tokens. Capitals are keywords and functions; ~ is a space in a string.
CONDITIONS = [
    "a.name = 'AND~--x' AND b.price > 1.5D * a.price",
    "ABS ( a.price ) > 3 AND a.name NOT IN ( 'x' , \"y~z\" ) AND b.qty IS NOT NULL",
    "CASE WHEN a.qty > b.qty THEN TRUE ELSE a.flag END",
    "CAST ( a.name AS INT ) > 3 AND a.ts < b.ts - INTERVAL '5' MINUTE",
    "a.qty BETWEEN 1 AND 3 OR b.qty = 7",
    "NEAR ( a.price , b.price )",
]
DEFINES = [
    "ABS ( price ) > 3 AND name = 'DOWN~/*' AND price < PREV ( price )",
    "LAST ( a.price , 1 ) > b.price OR COUNT ( a.* ) > 2 AND NOT flag",
    "CLASSIFIER ( ) = 'B' AND AVG ( a.price ) < price",
]
GAPS = st.sampled_from([" ", "  ", "\n", "\t", " /* a = 'b' */ ", " -- OR\n"])


@st.composite
def laid_out(draw: st.DrawFn, condition: str) -> str:
    """The same tokens in another layout, keywords and functions in another case."""
    parts = []
    for token in condition.split(" "):
        case = draw(st.sampled_from([str.upper, str.lower, str.capitalize]))
        parts.append(
            case(token) if token.isalpha() and token.isupper() else token.replace("~", " ")
        )
        parts.append(draw(GAPS))
    return draw(st.sampled_from(["", " "])) + "".join(parts)


@pytest.mark.parametrize("condition", CONDITIONS)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_the_layout_of_a_condition_changes_nothing(condition: str, data: st.DataObject) -> None:
    one, other = (
        of_events(seq(event("a"), event("b")).where(text).within(WINDOW))
        for text in (data.draw(laid_out(condition)), data.draw(laid_out(condition)))
    )
    assert one == other


@pytest.mark.parametrize("condition", DEFINES)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_the_layout_of_a_row_pattern_changes_nothing(condition: str, data: st.DataObject) -> None:
    one, other = (
        of_rows(
            data.draw(st.sampled_from(["a+ b", " a +\n b", "a+ b  "])),
            {"b": data.draw(laid_out(condition))},
            measures={"m": data.draw(laid_out("LAST ( b.price ) + 1"))},
        )
        for _ in range(2)
    )
    assert one == other


def test_an_expression_written_twice_in_two_layouts_is_shipped_once() -> None:
    once = "abs(a.price) < b.price AND abs(a.price) < b.weight"
    twice = "abs(a.price) < b.price AND ABS( a.price ) < b.weight"
    one, other = (of_events(seq("a", "b").where(text).within(WINDOW)) for text in (once, twice))
    assert one == other


def test_how_a_program_is_run_changes_nothing() -> None:
    pattern = seq(event("a", "qty > 1"), event("b", "price > a.price")).within(WINDOW)
    made = forms.events(pattern).program
    runs_otherwise = replace(
        made,
        plan=Plan("lazy-chain"),
        limits=Limits(matches=3),
        block_pairs=7,
        adaptation=Adaptation("always"),
        estimates=Estimates({0: 1.0}),
    )
    assert event_program(runs_otherwise) == event_program(made)
    rows = forms.rows("a b", {"b": "price > PREV(price)"}).program
    assert row_program(replace(rows, limits=Limits(matches=3), matcher="gaps")) == row_program(rows)


def test_what_a_user_function_does_and_where_it_lies_changes_nothing() -> None:
    pattern = seq("a", "b").where("near(a.price, b.price)").within(WINDOW)
    before = of_events(pattern)
    udf(lambda x, y: x > y, returns="boolean", name="Near")
    assert of_events(pattern) == before
    udf(lambda x, y: x - y, returns="double", name="near")
    assert of_events(seq("a", "b").where("near(a.price, b.price) > 0").within(WINDOW)) != before


def test_where_remote_values_come_from_changes_nothing() -> None:
    made = forms.events(
        seq("a", "b").where("remote('f_limit', a.qty + b.qty) > b.price").within(WINDOW)
    ).program
    (remote,) = made.remotes
    other = replace(remote, fetch=max, strategy="hybrid", token="two", ttl=1.0, on_error="null")  # type: ignore[arg-type]
    assert event_program(replace(made, remotes=(other,))) == event_program(made)
    wider = replace(remote, value=pa.string())
    assert event_program(replace(made, remotes=(wider,))) != event_program(made)


# ---- names of classes --------------------------------------------------------------------------

RICH = seq(
    event("a", "qty > 1 AND name <> 'x'"),
    event("b+", "price > prev(b.price)"),
    no(event("n", "price > a.price")),
    any_of("c", all_of("d", event("e", "flag"))),
)
RICH = RICH.where(
    "near(a.price, c.price)",
    "remote('f_limit', a.qty + c.qty) > c.price",
    "c.name IN remote('f_places', a.name)",
    "avg(b.price) < 3",
).within(WINDOW)


def rich_rows() -> Any:
    return forms.rows(
        "^ a+? (b | c){2,4} PERMUTE(d, e) $",
        {
            "b": "price > PREV(price) AND price > FIRST(a.price)",
            "c": "COUNT(a.*) > 2 AND CLASSIFIER() = 'C' AND MATCH_NUMBER() > 1",
        },
        {"u": ("b", "c")},
        measures={"m": "FINAL LAST(u.price, 1)", "n": "MATCH_NUMBER()", "c": "CLASSIFIER()"},
        rows="all with unmatched",
        after_match="SKIP TO LAST c",
    ).program


def renamed(value: Any) -> Any:
    """The same with each object of a class of another name, that prints otherwise."""
    if isinstance(value, tuple):
        return tuple(map(renamed, value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    kind = type(value)
    other = type("Another", (kind,), {"__repr__": lambda _: "another", "__module__": "elsewhere"})
    return other(**{each.name: renamed(getattr(value, each.name)) for each in fields(value)})


def test_the_names_of_classes_are_not_in_the_form() -> None:
    events, rows = forms.events(RICH).program, rich_rows()
    assert event_program(renamed(events)) == event_program(events)
    assert row_program(renamed(rows)) == row_program(rows)


def test_renaming_every_class_in_its_module_changes_nothing() -> None:
    events, rows = forms.events(RICH).program, rich_rows()
    before = event_program(events), row_program(rows)
    modules = (program, expressions, rows_program)
    classes = [c for m in modules for c in vars(m).values() if is_dataclass(c)]
    names = [(c, c.__name__, c.__qualname__) for c in classes if isinstance(c, type)]
    try:
        for each, *_ in names:
            each.__name__, each.__qualname__ = "Renamed", "Renamed"
        assert "Renamed" in repr(events)
        assert "Renamed" in repr(rows)
        assert (event_program(events), row_program(rows)) == before
    finally:
        for each, name, qualified in names:
            each.__name__, each.__qualname__ = name, qualified


def test_a_form_is_plain_json() -> None:
    for form in (forms.events(RICH).form(), forms.rows("a b").form()):
        assert json.loads(json.dumps(form, allow_nan=False)) == form


def test_an_expression_without_a_form_is_refused() -> None:
    class Unheard(Expression):
        type = BOOL

    with pytest.raises(TypeError, match="no canonical form"):
        expression(Unheard())
    with pytest.raises(TypeError, match="no canonical form"):
        expression(Constant(object(), BOOL))


# ---- what changes it ---------------------------------------------------------------------------

A, B = event("a", "qty > 1"), event("b", "price > a.price")
BASE = seq(A, B).within(WINDOW)
EVENTS: dict[str, tuple[Pattern, dict[str, Any]]] = {
    "base": (BASE, {}),
    "a condition on one row": (seq(event("a", "qty > 2"), B).within(WINDOW), {}),
    "a string that differs in case": (seq(event("a", "name = 'x'"), B).within(WINDOW), {}),
    "the other case": (seq(event("a", "name = 'X'"), B).within(WINDOW), {}),
    "a condition across rows": (seq(A, event("b", "price >= a.price")).within(WINDOW), {}),
    "another column": (seq(A, event("b", "price > a.weight")).within(WINDOW), {}),
    "a shipped expression": (seq(A, event("b", "price > abs(a.price)")).within(WINDOW), {}),
    "another one": (seq(A, event("b", "price > abs(a.price - 1)")).within(WINDOW), {}),
    "a literal": (seq(A, event("b", "price > a.price + 1")).within(WINDOW), {}),
    "another literal": (seq(A, event("b", "price > a.price + 2")).within(WINDOW), {}),
    "the window": (seq(A, B).within("11 minutes"), {}),
    "a window of events": (seq(A, B).within(events=600_000_000), {}),
    "no window": (seq(A, B), {}),
    "the order of parts": (seq(B, A).within(WINDOW), {}),
    "all_of": (all_of(A, B).within(WINDOW), {}),
    "any_of": (any_of(A, B).within(WINDOW), {}),
    "a name": (seq(event("x", "qty > 1"), event("b", "price > x.price")).within(WINDOW), {}),
    "a quantifier": (seq(A, event("b+", "price > a.price")).within(WINDOW), {}),
    "its bounds": (seq(A, event("b{2,3}", "price > a.price")).within(WINDOW), {}),
    "an optional part": (seq(A, event("b?", "price > a.price")).within(WINDOW), {}),
    "a negation": (seq(A, no(event("n", "flag")), B).within(WINDOW), {}),
    "a negation elsewhere": (seq(A, B, no(event("n", "flag"))).within(WINDOW), {}),
    "next": (BASE.strategy("skip till next match"), {}),
    "strict": (BASE.strategy("strict"), {}),
    "consume": (BASE.consumption("consume"), {}),
    "a key": (BASE, {"partition_by": "card"}),
    "another key": (BASE, {"partition_by": "name"}),
    "two keys": (BASE, {"partition_by": ["card", "name"]}),
    "another order": (BASE, {"order_by": "ntz"}),
    "a second order column": (BASE, {"order_by": ["ts", "qty"]}),
    "a direction": (BASE, {"order_by": ["ts", "qty DESC"]}),
    "the place of NULLs": (BASE, {"order_by": ["ts", "qty NULLS LAST"]}),
    "not ANSI": (BASE, {"ansi": False}),
    "a function": (BASE.where("near(a.price, b.price)"), {}),
    "its arguments": (BASE.where("near(b.price, a.price)"), {}),
    "a source": (BASE.where("remote('f_limit', a.qty + b.qty) > b.qty"), {}),
    "its key": (BASE.where("remote('f_limit', b.qty + a.qty) > b.qty"), {}),
    "a looked-up column": (BASE.where("remote('t_limit', a.name) > b.qty"), {}),
    "another table": (BASE.where("remote('pair', a.name, a.card) > b.qty"), {}),
    "an inferred key": (BASE.where("a.card = b.card"), {}),
}  # fmt: skip
ROWS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "base": (("a b+", {"b": "price > PREV(price)"}), {}),
    "a condition": (("a b+", {"b": "price >= PREV(price)"}), {}),
    "a condition on one row": (("a b+", {"b": "price > PREV(price)", "a": "qty > 1"}), {}),
    "another one": (("a b+", {"b": "price > PREV(price)", "a": "qty > 2"}), {}),
    "how far back": (("a b+", {"b": "price > PREV(price, 2)"}), {}),
    "the first row": (("a b+", {"b": "price > FIRST(a.price)"}), {}),
    "the last row": (("a b+", {"b": "price > LAST(b.price)"}), {}),
    "an aggregate": (("a b+", {"b": "price > AVG(b.price)"}), {}),
    "another aggregate": (("a b+", {"b": "price > MAX(b.price)"}), {}),
    "distinct": (("a b+", {"b": "COUNT(DISTINCT b.price) > 2"}), {}),
    "not distinct": (("a b+", {"b": "COUNT(b.price) > 2"}), {}),
    "the pattern": (("a b*", {"b": "price > PREV(price)"}), {}),
    "reluctant": (("a b+?", {"b": "price > PREV(price)"}), {}),
    "an exclusion": (("a {- b+ -}", {"b": "price > PREV(price)"}), {"rows": "all"}),
    "all rows": (("a b+", {"b": "price > PREV(price)"}), {"rows": "all"}),
    "omit empty": (("a b+", {"b": "price > PREV(price)"}), {"rows": "all omit empty"}),
    "skip": (("a b+", {"b": "price > PREV(price)"}), {"after_match": "SKIP TO NEXT ROW"}),
    "skip to": (("a b+", {"b": "price > PREV(price)"}), {"after_match": "SKIP TO LAST b"}),
    "skip to first": (("a b+", {"b": "price > PREV(price)"}), {"after_match": "SKIP TO FIRST b"}),
    "measures": (("a b+", {"b": "price > PREV(price)"}), {"measures": {"m": "LAST(b.qty)"}}),
    "a measure": (("a b+", {"b": "price > PREV(price)"}), {"measures": {"m": "FIRST(b.qty)"}}),
    "a key": (("a b+", {"b": "price > PREV(price)"}), {"partition_by": "card"}),
    "another order": (("a b+", {"b": "price > PREV(price)"}), {"order_by": "ntz"}),
    "not ANSI": (("a b+", {"b": "price > PREV(price)"}), {"ansi": False}),
}  # fmt: skip


def test_a_change_of_an_event_patterns_meaning_changes_it() -> None:
    found: dict[str, str] = {}
    for name, (pattern, options) in EVENTS.items():
        known = found.setdefault(of_events(pattern, **options), name)
        assert known == name, f"{name} is taken for {known}"


def test_a_change_of_a_row_patterns_meaning_changes_it() -> None:
    found: dict[str, str] = {}
    for name, (pattern, options) in ROWS.items():
        known = found.setdefault(of_rows(*pattern, **options), name)
        assert known == name, f"{name} is taken for {known}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Constant(1, Type("int", 64)), Constant(True, BOOL)),
        (Constant(1, Type("int", 64)), Constant(1, Type("int", 32))),
        (Constant("61", Type("string")), Constant(b"a", Type("binary"))),
        (Constant(0.0, Type("float")), Constant(-0.0, Type("float"))),
        (Constant(1, Type("decimal", precision=3)), Constant(1, Type("decimal", precision=4))),
    ],
)
def test_literals_of_different_types_are_different(one: Constant, other: Constant) -> None:
    assert expression(one) != expression(other)


# ---- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a  AND\tb -- why\n", "a and b"),
        ("DATE'2026-01-01'", "date '2026-01-01'"),
        ("x::INT", "x::int"),
        ("INTERVAL 5 MINUTES", "interval 5 minutes"),
        ("INTERVAL '1-2' YEAR TO MONTH", "interval '1-2' year to month"),
        ("CAST(x AS DECIMAL(3,1))", "cast( x as decimal( 3, 1 ) )"),
        ("1E5 + 2L", "1e5+2l"),
        ("x/* a -- b */+1", "x + 1"),
        ("TRANSFORM(xs, x -> x+1)", "transform(xs,x->x + 1)"),
    ],
)
def test_texts_that_mean_the_same_are_one(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'a  b'", "'a b'"),
        ("'AND'", "'and'"),
        ("'-- x'", "''"),
        ("`a  b`", "`a b`"),
        ("struct(A)", "struct(a)"),
        ("Date", "date"),
        ("x.Date", "x.date"),
        ("day + 1", "Day + 1"),
        ("a < = b", "a <= b"),
        (r"'it\'s'", r"'it\\s'"),
        ("r'\\' = x", "r'\\' = y"),
        ("'it''s'", "'it' 's'"),
        ("1.5", "15"),
    ],
)
def test_texts_that_differ_in_more_than_layout_are_two(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


CLASSIC = "Column<'exists(a, x_{0} -> exists(b, x_{1} -> {2}))'>"
CONNECT = "Column<'exists(a, LambdaFunction(exists(b, LambdaFunction({2}, x_{1})), x_{0}))'>"


@pytest.mark.parametrize("text", [CLASSIC, CONNECT])
def test_the_numbers_that_pyspark_gives_lambda_variables_are_not_in_the_form(text: str) -> None:
    first, later = (text.format(n, n + 1, f"=(x_{n + 1}, x_{n})") for n in (3, 127))
    assert spark_column(first) == spark_column(later)
    assert spark_column(first) != spark_column(text.format(3, 4, "=(x_4, x_4)"))


def test_a_column_that_is_called_like_a_lambda_variable_keeps_its_name() -> None:
    one, other = (spark_column(f"Column<'>(x_{n}, 1)'>") for n in (1, 2))
    assert one != other
