"""The engine against brute force, on random patterns and rows.

Each test names what may vary beside the case. Compared are the engine's matches with how often it
gave them, so a match that is given twice is found too. The cases are always the same ones, so that
a failure is a change's own; SPARK_CEP_EXAMPLES asks for more and others (random_cases.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import Event, NoGroup, Repeat, all_of, children, event, no, seq
from spark_cep.udfs.program import Adaptation, Plan
from tests.cases import Case, has_two_readings
from tests.local import Setting, adapted, answer
from tests.random_cases import random_cases
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches, without_marks
from tests.settings import in_advances, in_slices, whole
from tests.strategies import cases

if TYPE_CHECKING:
    from spark_cep.pattern import EventPatternNode, Pattern
    from tests.reference.expressions import Value
    from tests.reference.matcher import Match

SettingsOf = Callable[[Case], st.SearchStrategy[Setting]]

QUICK = 250
# Brute force looks at so many assignments at most; a larger case is not tried.
STEPS = 20_000


def agree(
    examples: int,
    drawn: st.SearchStrategy[Case],
    settings_of: SettingsOf,
    only: Callable[[Case], bool] = lambda _: True,
    run: Callable[[Case, Setting], Counter[Match]] = answer,
) -> None:
    """Fails with the smallest case and setting for which engine and reference differ."""

    @random_cases(examples)
    @given(drawn, st.data())
    def compare(case: Case, data: st.DataObject) -> None:
        assume(only(case))
        setting = data.draw(settings_of(case), label="setting")
        check(case, setting, run)

    compare()


def check(
    case: Case, setting: Setting, run: Callable[[Case, Setting], Counter[Match]] = answer
) -> None:
    try:
        expected: Iterable[Match] = matches(
            case.pattern,
            case.rows,
            order_by=case.order_by,
            partition_by=case.partition_by,
            steps=STEPS,
        )
    except TooMany:
        assume(False)
    found = run(case, setting)
    if has_two_readings(case.pattern.root):
        expected, found = without_marks(expected), Counter(without_marks(found.elements()))
    missing, surplus = Counter(expected) - found, found - Counter(expected)
    assert {"missing": dict(missing), "surplus": dict(surplus)} == {"missing": {}, "surplus": {}}


def has_list(node: EventPatternNode) -> bool:
    return isinstance(node, Repeat) or any(has_list(child) for child in children(node))


def has_group_operator(case: Case) -> bool:
    """Whether the pattern has a NOT or a repetition of a group that is not only a sequence."""

    def is_in(node: EventPatternNode) -> bool:
        repeats = isinstance(node, Repeat) and not isinstance(node.part, Event)
        return isinstance(node, NoGroup) or repeats or any(is_in(child) for child in children(node))

    return is_in(case.pattern.root)


# ---- skip till any match -----------------------------------------------------------------------


def test_every_plan_and_block_size_gives_the_answer() -> None:
    agree(QUICK, cases(("any",)), whole)


def test_every_split_into_advances_gives_the_answer() -> None:
    agree(QUICK, cases(("any",)), in_advances)


def test_every_slice_length_gives_the_answer() -> None:
    agree(
        QUICK,
        cases(("any",)),
        in_slices,
        lambda case: case.pattern.window is not None and case.pattern.window.events is None,
    )


def test_lists_agree_in_every_plan_and_split() -> None:
    agree(QUICK, cases(("any",)), in_advances, lambda case: has_list(case.pattern.root))


def test_changing_the_plan_between_advances_gives_the_answer() -> None:
    """Plans are made anew after every advance, from what was seen."""

    def always(case: Case, setting: Setting) -> Counter[Match]:
        plan = Plan("zstream" if setting.plan.kind in {"zstream", "tree"} else "lazy-chain")
        return adapted(case, replace(setting, plan=plan), Adaptation("always"))

    agree(QUICK, cases(("any",)), in_advances, run=always)


def test_groups_agree_in_every_plan_and_split() -> None:
    agree(QUICK // 5, cases(("any",), groups=True), in_advances, has_group_operator)


def test_groups_agree_under_every_strategy_and_consumption() -> None:
    drawn = cases(("any", "next", "strict"), consuming=True, groups=True)
    agree(QUICK // 5, drawn, in_advances, has_group_operator)


# ---- the other strategies ----------------------------------------------------------------------


def test_skip_till_next_match_agrees() -> None:
    agree(QUICK, cases(("next",)), whole)


def test_skip_till_next_match_agrees_in_every_split() -> None:
    agree(QUICK, cases(("next",)), in_advances)


def test_strict_agrees() -> None:
    agree(QUICK, cases(("strict",)), whole)


def test_strict_agrees_in_every_split() -> None:
    agree(QUICK, cases(("strict",)), in_advances)


# ---- consumption -------------------------------------------------------------------------------


def test_consume_agrees() -> None:
    agree(QUICK, cases(("any", "next", "strict"), consuming=True), whole)


def test_consume_agrees_in_every_split() -> None:
    agree(QUICK, cases(("any", "next", "strict"), consuming=True), in_advances)


# ---- single cases ------------------------------------------------------------------------------

A, B, C = (event(name.lower(), f"kind = '{name}'") for name in "ABC")


def timed(*rows: tuple[int | None, str, int]) -> list[dict[str, Value]]:
    """Rows of one key: time, kind, x."""
    return [
        {"t": t, "u": u, "k": 1, "x": x, "f": 0.0, "kind": kind}
        for u, (t, kind, x) in enumerate(rows)
    ]


@pytest.mark.parametrize("rows", [timed(), timed((None, "A", 0))])
def test_nothing_matches_where_no_row_has_a_time(rows: list[dict[str, Value]]) -> None:
    check(Case(A, rows), Setting())


@pytest.mark.parametrize("pattern", [seq(no(B), A), seq(A, no(B))])
def test_a_not_at_an_edge_reaches_to_the_order_key_of_its_part(
    pattern: Pattern,
) -> None:
    rows = timed((1, "B", 0), (1, "A", 1), (1, "B", 2))
    check(Case(pattern.within(3), rows, order_by=("t", "x")), Setting())


def test_a_row_that_the_match_has_elsewhere_does_not_block_inside_a_group() -> None:
    group = seq(A, no(event("y", "kind = 'C'")), B).times("+")
    check(Case(all_of(C, group), timed((0, "A", 0), (1, "C", 0), (2, "B", 0))), Setting())


def test_a_run_that_split_over_tied_rows_reports_its_longest_match_only() -> None:
    pattern = A.times("+").where("a.x <= avg(a.x)").strategy("skip till next match")
    check(Case(pattern, timed((1, "A", 0), (2, "A", 0), (2, "A", 2))), Setting())


def test_a_key_is_not_inferred_from_variables_that_may_be_unfilled() -> None:
    pattern = seq(A, B.optional(), C).where("a.x = b.x AND b.x = c.x").within(5)
    check(Case(pattern, timed((0, "A", 0), (1, "B", 1), (2, "C", 2))), Setting())


def test_a_not_a_number_that_is_the_only_candidate_is_above_every_number() -> None:
    rows = [
        {"t": t, "u": t, "k": 1, "x": 0, "f": f, "kind": kind}
        for t, (kind, f) in enumerate([("A", 0.0), ("B", float("nan"))])
    ]
    check(Case(seq(A, B).where("a.f < b.f").within(3), rows), Setting())


def test_a_not_a_number_alone_in_its_partition_is_above_every_number() -> None:
    rows = [
        {"t": t, "u": t + 2 * k, "k": k, "x": 0, "f": f, "kind": kind}
        for k, last in [(1, 1.0), (2, float("nan"))]
        for t, (kind, f) in enumerate([("A", 0.0), ("B", last)])
    ]
    check(Case(seq(A, B).where("a.f < b.f").within(3), rows), Setting())
