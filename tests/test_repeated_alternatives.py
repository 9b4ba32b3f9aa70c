"""Repetition of any_of: random patterns, and its rules one by one, against brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.errors import PatternError
from spark_cep.pattern import Pattern, Within, all_of, any_of, event, no, seq
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.program import Adaptation, Plan
from tests.cases import Case
from tests.compiling import compiled, problems
from tests.local import Pipeline, Setting, adapted, answer
from tests.looked_up import looking, problem
from tests.random_cases import random_cases
from tests.settings import in_advances, in_slices, whole
from tests.streaming.test_triggers import check as check_triggers
from tests.streaming.triggers import courses
from tests.test_differential import check

if TYPE_CHECKING:
    from tests.reference.expressions import Value
    from tests.reference.matcher import Match

A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
D = event("d", "kind IN ('A', 'C')")
X = event("x", "kind = 'C'")


def timed(*rows: tuple[int, str, int]) -> list[dict[str, Value]]:
    """Rows of one key: time, kind, x."""
    return [
        {"t": t, "u": u, "k": 1, "x": x, "f": 0.0, "kind": kind}
        for u, (t, kind, x) in enumerate(rows)
    ]


# ---- random cases --------------------------------------------------------------------------------

_PATTERNS = (
    any_of(A, B).times("+"),
    any_of(A, D).times("{1,3}"),
    seq(C, any_of(A, B).times("{2,3}")),
    seq(any_of(A, B).times("+"), C),
    seq(any_of(A, D).times("*"), B),
    all_of(D, any_of(A, B).times("{1,3}")),
    seq(any_of(seq(A, B), C).times("+"), D.optional()),
    seq(D, any_of(all_of(A, B), C).times("{1,2}")),
    seq(any_of(A, any_of(B, D)).times("{1,3}"), C),
    seq(any_of(A, B).times("+"), no(X), D),
    all_of(no(X), any_of(A, B).times("+")),
    seq(no(X), any_of(A, B).times("{2}")),
    seq(any_of(A, B).times("{1,2}"), any_of(C, D).times("{1,2}")),
    any_of(seq(A, B).times("+"), any_of(C, D).times("+")),
    seq(C, any_of(A, B).times("{1,2}"), D.optional()),
    seq(D.optional(), C.optional(), any_of(A, B).times("{1,2}")),
)
_CONDITIONS = (
    "a.x < d.x", "a.x = d.x", "a.x = c.x", "b.x = c.x", "a.x <> c.x", "b.x <= c.x", "d.x = b.x",
    "b.t - d.t <= 2", "a.x <= b.x", "a.x > prev(a.x)", "b.x >= prev(b.x) + 1", "count(b) >= 2",
    "sum(a.x) <= 2", "first(b.x) < last(b.x)", "c.x = first(a.x)", "x.x = a.x", "x.x < b.x",
    "10 / (a.x - c.x) > 0", "d.x > prev(d.x)",
)  # fmt: skip


@cache
def conditions_of(place: int) -> list[str]:
    """The conditions that the pattern may have."""

    def is_valid(text: str) -> bool:
        pattern = Pattern(_PATTERNS[place].root, (text,), Within(3))
        try:
            Pipeline(Case(pattern, timed()), Setting())
        except PatternError:
            return False
        return True

    return [text for text in _CONDITIONS if is_valid(text)]


@st.composite
def repeated_alternatives(draw: st.DrawFn, consuming: tuple[str | None, ...] = (None,)) -> Case:
    place = draw(st.sampled_from(range(len(_PATTERNS))))
    texts = draw(st.lists(st.sampled_from(conditions_of(place)), max_size=2, unique=True))
    row = st.tuples(st.integers(0, 5), st.sampled_from("ABABC"), st.integers(0, 2))
    count = draw(st.sampled_from([8, 7, 6, 4]))
    pattern = Pattern(
        _PATTERNS[place].root,
        tuple(texts),
        Within(draw(st.sampled_from([3, 4, 6]))),
        "any",
        draw(st.sampled_from(consuming)),
    )
    rows = timed(*draw(st.lists(row, min_size=count, max_size=count)))
    return Case(pattern, rows, order_by=("t",) if pattern.consuming is None else ("t", "u"))


@random_cases(60)
@given(repeated_alternatives(), st.data())
def test_every_plan_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(whole(case), label="setting"))


@random_cases(60)
@given(repeated_alternatives((None, "consume")), st.data())
def test_every_split_into_advances_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_advances(case), label="setting"))


@random_cases(30)
@given(repeated_alternatives(), st.data())
def test_every_slice_length_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_slices(case), label="setting"))


@random_cases(30)
@given(repeated_alternatives((None, "consume")), st.data())
def test_every_split_into_triggers_gives_the_answer(case: Case, data: st.DataObject) -> None:
    course = data.draw(courses(case), label="course")
    check_triggers(case, replace(course, adapts=data.draw(st.booleans(), label="adapts")))


@random_cases(20)
@given(repeated_alternatives(), st.data())
def test_changing_the_plan_between_advances_gives_the_answer(
    case: Case, data: st.DataObject
) -> None:
    def always(case: Case, setting: Setting) -> Counter[Match]:
        plan = Plan("zstream" if setting.plan.kind in {"zstream", "tree"} else "lazy-chain")
        return adapted(case, replace(setting, plan=plan), Adaptation("always"))

    check(case, data.draw(in_advances(case), label="setting"), always)


# ---- rule by rule --------------------------------------------------------------------------------

EITHER = any_of(A, B).times("+")


def found(pattern: Pattern, *rows: tuple[int, str, int]) -> set[tuple[object, ...]]:
    case = Case(pattern, timed(*rows))
    check(case, Setting())
    return {tuple(rows for _, rows in match) for match in answer(case, Setting())}


def test_lists_hold_the_rows_of_the_iterations_that_chose_them() -> None:
    rows = [(0, "A", 0), (1, "B", 0), (2, "A", 0)]
    pattern = any_of(A, B).times("{3}")
    assert found(pattern, *rows) == {((0, 2), (1,))}
    assert found(any_of(A, B).times("{2}"), *rows) == {((0,), (1,)), ((0, 2), ()), ((2,), (1,))}


def test_a_row_that_may_be_either_gives_a_match_for_each() -> None:
    pattern = any_of(A, D).times("{2}")
    assert found(pattern, (0, "A", 0), (1, "A", 0)) == {
        ((0, 1), ()), ((0,), (1,)), ((1,), (0,)), ((), (0, 1))
    }  # fmt: skip


def test_tied_rows_are_never_two_iterations() -> None:
    assert found(any_of(A, B).times("{2}"), (0, "A", 0), (0, "B", 0)) == set()


def test_a_condition_concerns_the_list_of_its_variable() -> None:
    rows = [(0, "A", 1), (1, "B", 9), (2, "A", 0), (3, "B", 2)]
    longest = any_of(A, B).times("{4}")
    assert found(longest, *rows) == {((0, 2), (1, 3))}
    # The element before is the one before in the list, whatever came in between.
    assert found(longest.where("a.x < prev(a.x)", "count(b) = 2"), *rows) == {((0, 2), (1, 3))}
    assert found(longest.where("a.x > prev(a.x)"), *rows) == set()
    assert found(longest.where("max(b.x) < 9"), *rows) == set()


def test_a_condition_on_an_empty_list_is_not_tested() -> None:
    pattern = seq(any_of(A, B).times("{1}"), C).where("a.x > c.x", "count(a) >= 2")
    assert found(pattern, (0, "A", 5), (1, "B", 0), (2, "C", 0)) == {((), (1,), 2)}


def test_what_an_iteration_did_not_choose_gives_no_error() -> None:
    """The other alternative's place is empty: nothing is evaluated there."""
    pattern = seq(EITHER, C).where("10 / (a.x - c.x) > 0").strategy("skip till any match")
    for rows, errors in (
        ([(0, "B", 0), (1, "B", 0), (2, "C", 0)], 0),
        ([(0, "A", 1), (1, "B", 0), (2, "C", 0)], 0),
        ([(0, "A", 0), (1, "B", 0), (2, "C", 0)], 1),
    ):
        pipeline = Pipeline(Case(pattern, timed(*rows)), Setting())
        step = advance_events(pipeline.program, EventState(), pipeline.table(0), None)
        list(step.matches)
        assert bool(step.metrics.condition_errors) == bool(errors)


@pytest.mark.parametrize(
    ("conditions", "keys"),
    [
        # A match without a d has nothing that ties f to the others.
        ("a.card = d.card AND d.card = f.card AND a.card = b.card", ()),
        ("a.card = f.card AND a.card = d.card AND a.card = b.card", ("`card`",)),
    ],
)
def test_a_key_is_inferred_if_it_ties_each_alternative(
    conditions: str, keys: tuple[str, ...]
) -> None:
    pattern = seq("a", any_of("b", "d").times("+"), "f").where(conditions).within("1 hour")
    assert compiled(pattern).compiled.inferred == keys


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["remote('f_limit', b.name) > a.price", "remote('f_limit', a.name) > b.price"]
)
def test_conditions_on_alternatives_read_no_remote_data_but_of_tables(text: str) -> None:
    pattern = seq("a", any_of("b", "c").times("+")).within("1 hour")
    found = problem(pattern.where(text))
    assert found["message"].startswith(f"{text} reads remote data and names b, an alternative")
    read = looking(pattern.where("remote('t_limit', b.name) > a.price")).conditions()
    assert read == [">(b[`__cep_remote_0`], a[`price`])"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (any_of("a", "b+").times("+"), "a repeated any_of cannot contain another quantified part"),
        (any_of("a", seq("b", "c?")).times("+"), "a repeated any_of cannot contain an optional"),
        (any_of("a", seq("b", "!x", "c")).times("+"), "a repeated any_of cannot contain a NOT"),
        (any_of("a", seq("b", any_of("c", "d"))).times("+"), "a repeated group cannot contain any"),
        (any_of("a", "b").times("+").where("a.qty < b.qty"), "a.qty < b.qty refers to a and b"),
        (any_of("a", "b").times("+").strategy("strict"), "a repeated any_of cannot be matched"),
        (
            seq("c", any_of("a", "b").times("+")).strategy("skip till next match"),
            'a repeated any_of cannot be matched with the strategy "skip till next match"',
        ),
    ],
)
def test_what_a_repeated_choice_cannot_have(pattern: Pattern, message: str) -> None:
    (problem,) = problems(pattern)
    assert problem["message"].startswith(message)
