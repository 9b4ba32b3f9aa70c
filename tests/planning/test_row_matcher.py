"""Which matcher a row pattern gets, and the reason that is given for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spark_cep.errors import PlanError
from spark_cep.options import check_row_options
from spark_cep.planner.matcher import MatcherChoice, MatcherFacts, choose_matcher
from spark_cep.plans import read_plan_request
from spark_cep.udfs.expressions import BIGINT, Call
from spark_cep.udfs.program import Window
from tests.rows.gapped import gap_program
from tests.rows.programs import T, compare, concat, current, last, number, plus, star, v

if TYPE_CHECKING:
    from spark_cep.udfs.row_program import RowProgram

A, B, C, D, Y, Z = range(6)
ABC = concat(v(A), star(v(Z)), v(B), star(v(Z)), v(C))
NEAR = compare("<", Call("-", (current(), last([A])), BIGINT), number(3))
TIED = gap_program(ABC, {C: NEAR})


def choose(program: RowProgram, plan: Any = "auto") -> MatcherChoice:
    return choose_matcher(MatcherFacts(program, plan))


def test_rows_that_conditions_tie_together_are_joined() -> None:
    choice = choose(TIED)
    assert (choice.matcher, choice.rung, choice.shown) == ("gaps", "gaps", "A → B → C")
    assert choice.reason == ("A, B and C are joined by ranges; the rows of Z are skipped")
    (other,) = choice.rejected
    assert other.plan == "walk"
    assert "scans all rows of a gap for each possible first row" in other.reason


@pytest.mark.parametrize(
    ("condition", "within", "words"),
    [
        (compare("=", current(), last([A])), None, "joined by equal values;"),
        (compare("<=", current(T), last([B], T)), None, "joined by ranges;"),
        (compare("<>", current(), last([A])), None, "A, B and C are joined;"),
        (NEAR, Window("time", 5), "joined by ranges and WITHIN;"),
    ],
)
def test_what_narrows_the_join_is_said(condition: Any, within: Any, words: str) -> None:
    program = gap_program(ABC, {C: condition}, within=within)
    assert words in choose(program).reason


def test_rows_judged_by_themselves_are_walked() -> None:
    choice = choose(gap_program(ABC, {B: compare("<", current(), number(3))}))
    assert (choice.matcher, choice.rung, choice.shown) == (
        "walk", "rows by themselves", "in row order",
    )  # fmt: skip
    assert "depend only on a row and its neighbours" in choice.reason
    assert choice.rejected[0].plan == "gaps"
    assert "no condition connects the rows" in choice.rejected[0].reason


def test_a_pattern_without_gaps_is_walked_and_says_why() -> None:
    choice = choose(gap_program(concat(v(A), plus(v(B)), plus(v(C))), {}))
    assert (choice.matcher, choice.rung) == ("walk", "no gaps")
    assert choice.reason.endswith("the adjacent variables B and C are both repeated")
    assert choice.rejected[0].reason == "the adjacent variables B and C are both repeated"


def test_what_is_asked_for_is_done() -> None:
    choice = choose(TIED, "walk")
    assert (choice.matcher, choice.rung, choice.reason) == ("walk", "forced", "forced by plan=")
    assert choice.rejected[0].reason == "not requested"
    untied = choose(gap_program(ABC, {}), "gaps")
    assert (untied.matcher, untied.rung, untied.shown) == ("gaps", "forced", "A → B → C")


def test_joins_that_cannot_be_are_refused_with_the_reason() -> None:
    program = replace(TIED, pattern=concat(v(A), plus(v(B))))
    with pytest.raises(PlanError, match="no variable between two others is repeated") as raised:
        choose(program, "gaps")
    assert "r z\\* b z\\* m".replace("\\", "") in (raised.value.hint or "")


def test_plans_of_event_patterns_are_refused() -> None:
    options: dict[str, Any] = {
        "rows": "one", "measures": None, "after_match": None, "limits": None, "statistics": None,
    }  # fmt: skip
    assert check_row_options(plan="gaps", **options).plan == "gaps"
    with pytest.raises(PlanError, match="row patterns have no plan 'zstream'") as raised:
        check_row_options(plan="zstream", **options)
    assert 'plan="gaps"' in (raised.value.hint or "")
    with pytest.raises(PlanError, match="plan='walk' is for row patterns"):
        read_plan_request("walk")
