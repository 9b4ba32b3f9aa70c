"""Repetition of groups in any order: random groups, and its rules one by one, against brute
force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.pattern import Pattern, Within, all_of, any_of, event, no, seq
from tests.cases import Case
from tests.compiling import problems
from tests.local import Setting
from tests.random_cases import random_cases
from tests.settings import in_advances, whole
from tests.test_differential import check

if TYPE_CHECKING:
    from tests.reference.expressions import Value

A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
D = event("d", "kind IN ('A', 'C')")


def timed(*rows: tuple[int, str, int]) -> list[dict[str, Value]]:
    """Rows of one key: time, kind, x."""
    return [
        {"t": t, "u": u, "k": 1, "x": x, "f": 0.0, "kind": kind}
        for u, (t, kind, x) in enumerate(rows)
    ]


# ---- random cases --------------------------------------------------------------------------------

_PATTERNS = (
    all_of(A, B).times("{1,3}"),
    seq(all_of(A, B).times("+"), C.optional()),
    seq(C, all_of(A, B).times("{1,2}")),
    seq(C.optional(), all_of(A, B).times("*"), D),
    all_of(C, all_of(A, B).times("{1,2}")),
    seq(A, all_of(B, D)).times("{1,2}"),
    all_of(B, seq(A, no(event("x", "kind = 'B'")), C)).times("{1,2}"),
    seq(all_of(A, B).times("+"), no(event("x", "kind = 'C'")), D),
)
_CONDITIONS = (
    "a.x = b.x", "a.x <= b.x", "a.x > prev(a.x)", "b.x >= prev(a.x)", "a.t <= b.t", "a.t < b.t",
    "b.t - a.t <= 1", "count(a) >= 2", "sum(a.x) >= sum(b.x)", "a.x = first(b.x)",
)  # fmt: skip


@st.composite
def repeated_groups(draw: st.DrawFn, selections: tuple[str, ...] = ("any",)) -> Case:
    pattern = draw(st.sampled_from(_PATTERNS))
    texts = draw(st.lists(st.sampled_from(_CONDITIONS), max_size=2, unique=True))
    row = st.tuples(st.integers(0, 4), st.sampled_from("ABABC"), st.integers(0, 2))
    count = draw(st.sampled_from([8, 7, 6, 4]))
    return Case(
        Pattern(
            pattern.root,
            tuple(texts),
            Within(draw(st.sampled_from([3, 4, 6]))),
            draw(st.sampled_from(selections)),
        ),
        timed(*draw(st.lists(row, min_size=count, max_size=count))),
    )


@random_cases(60)
@given(repeated_groups(), st.data())
def test_every_plan_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(whole(case), label="setting"))


@random_cases(60)
@given(repeated_groups(), st.data())
def test_every_split_into_advances_gives_the_answer(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_advances(case), label="setting"))


@random_cases(60)
@given(repeated_groups(("next", "strict")), st.data())
def test_the_other_strategies_agree(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(in_advances(case), label="setting"))


# ---- rule by rule --------------------------------------------------------------------------------

PAIRS = all_of(A, B).times("+")


@pytest.mark.parametrize("strategy", ["skip till any match", "skip till next match", "strict"])
@pytest.mark.parametrize(
    "rows",
    [
        # Either order within an iteration, and every row of one before the rows of the next.
        timed((0, "A", 0), (1, "B", 0), (2, "B", 1), (3, "A", 1)),
        # Tied rows may be one iteration, but never two.
        timed((0, "A", 0), (0, "B", 0), (1, "A", 0), (1, "B", 0)),
        timed((0, "A", 0), (1, "B", 0), (1, "A", 1), (2, "B", 1)),
    ],
)
def test_iterations_are_in_sequence_and_their_rows_in_any_order(
    rows: list[dict[str, Value]], strategy: str
) -> None:
    for texts in ((), ("a.x = b.x",), ("a.x > prev(b.x)",)):
        pattern = Pattern(PAIRS.root, texts, Within(9)).strategy(strategy)  # type: ignore[arg-type]
        check(Case(pattern, rows), Setting())


def test_a_row_of_the_same_iteration_does_not_block_a_not_inside() -> None:
    group = all_of(B, seq(A, no(event("x", "kind = 'B'")), C)).times("+")
    rows = [(0, "A", 0), (1, "B", 0), (2, "C", 0), (3, "B", 0), (4, "A", 0), (5, "C", 0)]
    check(Case(group, timed(*rows)), Setting())
    # With a condition on another variable the NOT is tested once the match is complete.
    outer = seq(event("d", "kind = 'D'"), group).where("x.x = d.x")
    check(Case(outer, timed((-1, "D", 0), *rows)), Setting())


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (all_of("a", any_of("b", "c")).times("+"), "a repeated group cannot contain any_of"),
        (all_of("a", "b?").times("+"), "a repeated group cannot contain an optional part"),
        (all_of("a", "!x").times("+"), "NOT x cannot be in all_of within a repeated group"),
        (all_of("a", seq("b", no(seq("x", "y")))).times("+"), "NOT (x, y) cannot be the first or"),
        (seq(seq("!x", "a"), "b").times("+"), "NOT x cannot be the first or last part of"),
    ],
)
def test_a_repeated_group_consists_of_plain_variables(pattern: Pattern, message: str) -> None:
    (problem,) = problems(pattern)
    assert problem["message"].startswith(message)
