"""The choice of a plan, and what is said about it; wrong statistics and limits."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cep import Limits, Statistics, plans
from spark_cep.errors import PatternError, PlanError
from spark_cep.planning.choice import Facts, check_selectivities, choose
from spark_cep.plans import Wish
from spark_cep.udfs.program import Strategy, Variable

AB = (Variable("a"), Variable("b"))


@pytest.mark.parametrize("strategy", ["any", "next", "strict"])
@pytest.mark.parametrize("names", [("a", "x"), ("a",)])
def test_a_chain_names_the_patterns_variables_under_every_strategy(
    strategy: Strategy, names: tuple[str, ...]
) -> None:
    with pytest.raises(PlanError, match="the chain"):
        choose(Facts(AB, strategy, plans.chain(*names)))


def test_a_chain_that_cannot_be_followed_is_said_to_have_no_effect() -> None:
    choice = choose(Facts(AB, "next", plans.chain("b", "a")))
    assert choice.order == (0, 1)
    assert "whatever plan= says" in choice.reason
    assert "plan=" not in choose(Facts(AB, "next", Wish("auto"))).reason


def test_notes_stand_in_the_reason() -> None:
    assert choose(Facts(AB, "any", Wish("auto"), notes=("so it is",))).reason.endswith("so it is")


def test_selectivities_are_of_variables_that_the_pattern_has() -> None:
    check_selectivities(Statistics(selectivities={("A", "b"): 0.5}), AB)
    with pytest.raises(PlanError, match="a selectivity for 'x'") as caught:
        check_selectivities(Statistics(selectivities={("a", "x"): 0.5}), AB)
    assert "a, b" in str(caught.value.hint)


@pytest.mark.parametrize(
    "given",
    [
        {"rates": {"a": -1}},
        {"rates": {"a": float("nan")}},
        {"rates": {"a": "many"}},
        {"selectivities": {("a", "b"): 2}},
        {"selectivities": {("a", "b"): "few"}},
        {"selectivities": {"ab": 0.5}},
    ],
)
def test_statistics_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        Statistics(**given)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["partial_matches", "matches", "backtracking_steps"])
@pytest.mark.parametrize("value", ["lots", -3, 0, 1.5, True])
def test_a_limit_is_a_whole_number_above_0(name: str, value: object) -> None:
    with pytest.raises(PatternError, match=name) as caught:
        Limits(**{name: value})  # type: ignore[arg-type]
    assert "None for no limit" in str(caught.value.hint)


def test_a_limit_may_be_left_away() -> None:
    assert Limits(partial_matches=None, matches=1).partial_matches is None
