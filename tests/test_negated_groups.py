"""NOT over a group: random groups at every place, and its rules one by one, against brute force."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.errors import PatternError
from spark_cep.pattern import Pattern, Within, all_of, any_of, event, no, seq
from spark_cep.udfs.canonical import event_program
from tests.cases import Case
from tests.compiling import compiled, problems
from tests.local import Pipeline, Setting
from tests.random_cases import random_cases
from tests.settings import in_advances, in_slices, whole
from tests.test_differential import check

if TYPE_CHECKING:
    from tests.reference.expressions import Value

A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
X, Y = event("x", "kind = 'X'"), event("y", "kind IN ('Y', 'C')")
Z = event("z", "kind IN ('X', 'Y')")


def timed(*rows: tuple[int, str, int]) -> list[dict[str, Value]]:
    """Rows of one key: time, kind, x."""
    return [
        {"t": t, "u": u, "k": 1, "x": x, "f": 0.0, "kind": kind}
        for u, (t, kind, x) in enumerate(rows)
    ]


# ---- random cases --------------------------------------------------------------------------------

_GROUPS = (
    seq(X, Y),
    seq(X, Y),
    all_of(X, Y),
    seq(X, Y, Z),
    seq(X, all_of(Y, Z)),
    all_of(X, seq(Y, Z)),
    any_of(Z, seq(X, Y)),
    seq(X, any_of(Y, Z)),
)
_CONDITIONS = (
    "x.x = y.x", "x.x < y.x", "x.x = a.x", "y.x = a.x", "y.x <= a.x", "y.x = a.x AND x.x = a.x",
    "x.x + y.x > a.x", "y.t <= a.t + 2", "y.t - x.t < 2", "x.x <> a.x", "y.x <> a.x",
)  # fmt: skip


@st.composite
def negated_groups(draw: st.DrawFn, selections: tuple[str, ...] = ("any",)) -> Case:
    group = draw(st.sampled_from(_GROUPS))
    pattern: Pattern = draw(
        st.sampled_from(
            [
                seq(A, no(group), B),
                seq(A, no(group), B),
                seq(no(group), A, B.optional()),
                seq(A, B.times("{1,2}"), no(group)),
                all_of(A, no(group)),
                all_of(C, seq(A, no(group), B)),
                seq(A, no(group), B).times("{1,2}"),
                all_of(C, seq(A, no(group), B).times("{1,2}")),
            ]
        )
    )
    names = {name for name in "xyz" if f"'{name}'" in repr(group)}
    texts = draw(st.lists(st.sampled_from(_CONDITIONS), max_size=2, unique=True))
    named = [text for text in texts if {"x", "y"} & names >= {w for w in "xy" if f"{w}." in text}]
    row = st.tuples(st.integers(0, 6), st.sampled_from("ABXYXYC"), st.integers(0, 2))
    count = draw(st.sampled_from([10, 8, 6, 4]))
    return Case(
        Pattern(
            pattern.where(*named).root, tuple(named), Within(draw(st.sampled_from([3, 4, 6]))),
            draw(st.sampled_from(selections)),
        ),
        timed(*draw(st.lists(row, min_size=count, max_size=count))),
    )  # fmt: skip


@random_cases(60)
@given(negated_groups(), st.data())
def test_every_plan_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(whole(case), label="setting"))


@random_cases(60)
@given(negated_groups(), st.data())
def test_every_split_into_advances_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_advances(case), label="setting"))


@random_cases(30)
@given(negated_groups(), st.data())
def test_every_slice_length_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_slices(case), label="setting"))


@random_cases(60)
@given(negated_groups(("next", "strict")), st.data())
def test_the_other_strategies_agree(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_advances(case), label="setting"))


# ---- rule by rule --------------------------------------------------------------------------------

ROWS = timed((0, "A", 1), (1, "X", 0), (2, "Y", 0), (3, "Y", 1), (4, "B", 0), (5, "Y", 1))


@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, no(seq(X, Y)), B),
        seq(A, no(seq(Y, X)), B),
        seq(A, no(all_of(Y, X)), B),
        # The first y that follows x does not meet the condition, the second does.
        seq(A, no(seq(X, Y)), B).where("y.x = a.x"),
        seq(A, no(seq(X, Y)), B).where("y.x > a.x"),
        seq(A, no(seq(X, Y)), B).where("y.x = a.x", "x.x < y.x"),
        # Only one side of the condition on an alternative occurs.
        seq(A, no(any_of(Z, seq(X, Y))), B).where("z.x > a.x", "y.x > a.x"),
        # An x before b and a y after it are no occurrence between a and b.
        seq(A, no(seq(X, event("y", "t = 5"))), B),
        seq(A, no(seq(X, event("y", "t = 5")))).within(5),
        seq(A, no(seq(X, event("y", "t = 5")))).within(4),
    ],
)
def test_a_rule(pattern: Pattern) -> None:
    check(Case(pattern, ROWS), Setting())


def test_an_occurrence_with_a_row_of_the_match_does_not_block_but_another_does() -> None:
    pattern = all_of(C, seq(A, no(seq(X, Y)), B)).within(9)
    rows = [(0, "A", 0), (1, "X", 0), (2, "C", 0), (4, "B", 0)]
    check(Case(pattern, timed(*rows)), Setting())
    check(Case(pattern, timed(*rows, (3, "Y", 0))), Setting())


def test_around_a_match_an_occurrence_fits_into_one_window() -> None:
    pattern = all_of(A, no(seq(X, Y))).within(3)
    for late in (2, 3):
        rows = timed((3, "A", 0), (0, "X", 0), (late, "Y", 0), (6, "Y", 0))
        check(Case(pattern, rows), Setting())
    check(Case(pattern, timed((3, "A", 0), (0, "X", 0), (6, "Y", 0))), Setting())


def test_tied_rows_are_an_occurrence_in_any_order_only() -> None:
    rows = timed((0, "A", 0), (1, "X", 0), (1, "Y", 0), (2, "B", 0))
    for group in (seq(X, Y), all_of(X, Y), all_of(X, Z)):
        check(Case(seq(A, no(group), B), rows), Setting())


def test_the_state_of_a_stream_knows_which_group_is_negated() -> None:
    groups = [seq("x", "y"), all_of("x", "y"), seq("y", "x"), any_of("x", "y")]
    patterns = [seq("a", no(group), "b") for group in groups] + [seq("a", "!x", "!y", "b")]
    forms = [
        event_program(Pipeline(Case(pattern, timed()), Setting()).program) for pattern in patterns
    ]
    assert all(one != other for one, other in combinations(forms, 2))


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["x+", seq("x", "y?"), seq("x", "!y"), no("x"), seq("x", "y*")])
def test_a_negated_group_has_plain_variables_only(part: Pattern | str) -> None:
    with pytest.raises(PatternError, match=r"no\(\.\.\.\)"):
        no(part)


def test_a_condition_names_one_negated_group() -> None:
    pattern = seq("a", no(seq("x", "y")), "b", "!z", "c")
    assert not problems(pattern.where("x.qty = y.qty + a.qty"))
    (problem,) = problems(pattern.where("x.qty = z.qty"))
    assert "more than one negated variable: x and z" in problem["message"]


def test_a_condition_over_two_alternatives_of_a_not_is_refused() -> None:
    (problem,) = problems(seq("a", no(any_of("x", "y")), "b").where("x.qty = y.qty"))
    assert "x and y, alternatives of one NOT" in problem["message"]


@pytest.mark.parametrize("pattern", [seq("a", no(seq("x", "y"))), all_of("a", no(seq("x", "y")))])
def test_a_group_at_the_edge_needs_a_window(pattern: Pattern) -> None:
    (problem,) = problems(pattern)
    assert problem["message"].startswith("NOT (x, y) is ")


def test_a_key_is_inferred_where_every_negated_variable_has_it() -> None:
    pattern = seq("a", no(seq("x", "y")), "b").where("a.qty = b.qty", "x.qty = a.qty")
    assert compiled(pattern.within("1 hour")).compiled.inferred == ()
    both = pattern.where("y.qty = a.qty").within("1 hour")
    assert len(compiled(both).compiled.inferred) == 1
