"""A compiled check answers as the comparisons themselves, and takes constant time."""

from __future__ import annotations

from dataclasses import replace
from math import isclose, prod
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_cep.udfs.planning.adaptation import InvariantDecision
from spark_cep.udfs.planning.compiled_invariants import CompiledInvariants
from spark_cep.udfs.planning.dynamic import plan_cheapest_chain, plan_cheapest_tree
from spark_cep.udfs.planning.greedy import plan_greedy_order, plan_lazy_chain
from spark_cep.udfs.planning.invariants import (
    Comparison,
    InvariantDistance,
    first_violation,
    select_invariants,
)
from spark_cep.udfs.planning.monomials import Least
from spark_cep.udfs.planning.zstream import plan_zstream
from spark_cep.udfs.program import Branch, Estimates, Negation, Slot
from tests.planning.branches import (
    EVEN,
    NAMES,
    compared,
    estimates,
    listed,
    model,
    models,
    sequence,
    statistics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DataObject

    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.planning.monomials import Side
    from spark_cep.udfs.planning.planner import PlanFunction

PLANNERS = [plan_greedy_order, plan_cheapest_chain, plan_cheapest_tree, plan_zstream]
RULES = settings(derandomize=True, deadline=None, max_examples=150)


def value_of(side: Side, now: Estimates) -> float:
    if isinstance(side, Least):
        return min(sum(value_of(part, now) for part in option) for option in side.options)
    return sum(
        weight * prod(factor.value(now) ** power for factor, power in powers)
        for powers, weight in side.items()
    )


def divides_by_zero(side: Side, now: Estimates) -> bool:
    if isinstance(side, Least):
        return any(divides_by_zero(part, now) for option in side.options for part in option)
    return any(power < 0 and factor.value(now) == 0 for powers in side for factor, power in powers)


def is_near(comparison: Comparison, now: Estimates, distance: float) -> bool:
    """Whether rounding may decide."""
    chosen, other = comparison.sides(now)
    return isclose(chosen, (1 + distance) * other, rel_tol=1e-6)


# ---- the same answers --------------------------------------------------------------------------


@RULES
@given(st.sampled_from(PLANNERS), models(), st.data())
def test_the_sums_are_the_sides_of_a_comparison(
    planner: PlanFunction, branch: BranchModel, data: DataObject
) -> None:
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    made = planner(branch, then, EVEN)
    for comparison in select_invariants(made, None, then):
        sums = comparison.sums()
        if sums is not None:
            for side, value in zip(sums, comparison.sides(now), strict=True):
                assume(not divides_by_zero(side, now))
                assert value_of(side, now) == pytest.approx(value, rel=1e-9, abs=1e-250)


@RULES
@given(
    st.sampled_from([*PLANNERS, plan_lazy_chain]),
    models(),
    st.data(),
    st.sampled_from([1, 2, None]),
    st.sampled_from([0.0, 0.1, 0.5]),
)
def test_a_compiled_check_answers_as_the_comparisons(
    planner: PlanFunction, branch: BranchModel, data: DataObject, k: int | None, distance: float
) -> None:
    then = data.draw(statistics(branch))
    made = planner(branch, then, EVEN)
    invariants = select_invariants(made, k, then)
    compiled = CompiledInvariants(invariants, distance)
    for now in (then, data.draw(statistics(branch)), data.draw(statistics(branch))):
        violated = [each for each in invariants if not each.holds(now, distance)]
        if compiled.hold(now):
            assert all(is_near(each, now, distance) for each in violated)
        else:
            uncertain = [
                each
                for each in invariants
                if is_near(each, now, distance)
                or any(divides_by_zero(side, now) for side in each.sums() or ())
            ]
            assert violated or uncertain


_PAIR = Branch((Slot((1,)), Slot((2,))), frozenset({(0, 1)}), ())


@pytest.mark.parametrize(
    "group",
    [
        Slot((1, 2), 1, 3, is_list=True, bodies=(_PAIR,)),
        Slot((1, 2, 4), 1, 3, is_list=True, bodies=(_PAIR, Branch((Slot((4,)),), frozenset()))),
    ],
)
def test_a_group_has_the_rate_of_its_iterations(group: Slot) -> None:
    conditions = [compared(1, 2), compared(0, 3)]
    branch = model(3, conditions, slots={1: group, 2: Slot((3,))})
    then, now = estimates([5, 2, 3, 4, 2], 0.5, 0.2), estimates([3, 6, 1, 9, 7], 0.1, 0.7)
    invariants = select_invariants(plan_cheapest_chain(branch, then, EVEN), None, then)
    assert CompiledInvariants(invariants, 0.0).hold(then)
    assert CompiledInvariants(invariants, 0.0).hold(now) == all(
        each.holds(now, 0.0) for each in invariants
    )
    for comparison in invariants:
        sums = comparison.sums()
        assert sums is not None
        for side, value in zip(sums, comparison.sides(now), strict=True):
            assert value_of(side, now) == pytest.approx(value)


@pytest.mark.parametrize("planner", PLANNERS)
def test_conditions_on_elements_on_the_next_and_on_whole_lists(planner: PlanFunction) -> None:
    conditions = [
        compared(0, 1),
        compared(1, 1, reading="prev"),
        compared(0, 1, reading="max"),
        compared(2, 1, reading="sum"),
    ]
    branch = model(3, conditions, slots={1: listed(1, 2, 5)})
    then, now = estimates([5, 2, 3], *4 * [0.5]), estimates([3, 6, 1], 0.3, 0.2, 0.6, 0.7)
    for comparison in select_invariants(planner(branch, then, EVEN), None, then):
        sums = comparison.sums()
        if sums is not None:
            for side, value in zip(sums, comparison.sides(now), strict=True):
                assert value_of(side, now) == pytest.approx(value)


def test_a_decision_gives_the_first_violation_whether_it_is_compiled_or_not() -> None:
    branch = model(4, [compared(0, 1), compared(1, 2), compared(2, 3)])
    then = estimates([4, 3, 2, 1], 0.5, 0.5, 0.5)
    made = plan_greedy_order(branch, then, EVEN)
    decision = InvariantDecision(None, InvariantDistance(0.0), [NAMES[:4]])
    decision.record_plan([made], then)
    again = [Estimates(dict(then.rates), dict(then.selectivities)) for _ in range(4)]
    assert [decision.check(each) for each in again] == 4 * [None]
    now = estimates([4, 3, 2, 9], 0.5, 0.5, 0.5)
    text = "rate(d) = 9 is no longer below rate(a) = 4"
    assert decision.check(now) == text
    fresh = InvariantDecision(None, InvariantDistance(0.0), [NAMES[:4]])
    fresh.record_plan([made], then)
    assert fresh.check(now) == text


def test_a_tie_that_is_no_violation_is_none_when_compiled() -> None:
    for rates, is_held in (([1, 2], True), ([2, 1], False)):
        branch = model(2)
        then = estimates(rates)
        invariants = select_invariants(plan_greedy_order(branch, then, EVEN), 1, then)
        assert CompiledInvariants(invariants, 0.0).hold(estimates([2, 2])) == is_held
        assert CompiledInvariants(invariants, 0.0).hold(estimates([0, 0])) == is_held


def test_correlated_conditions_are_left_to_the_comparisons() -> None:
    branch = model(3, [compared(0, 1), compared(1, 2)])
    then = estimates([3, 2, 1], 0.5, 0.5)
    compiled = CompiledInvariants(
        select_invariants(plan_cheapest_chain(branch, then, EVEN), 1, then), 0.5
    )
    assert compiled.hold(then)
    assert not compiled.hold(replace(then, joint={frozenset({0, 1}): 2.0}))


# ---- lists and negations -----------------------------------------------------------------------


def test_a_number_of_lists_is_computed_only_where_what_it_depends_on_has_changed() -> None:
    branch = model(3, [compared(0, 1)], slots={1: listed(1, 1, 3)})
    then = estimates([5, 2, 3], 0.5)
    made = plan_cheapest_chain(branch, then, EVEN)
    compiled = CompiledInvariants(select_invariants(made, None, then), 0.5)
    assert compiled.hold(then)
    known = list(compiled._latest)
    assert known
    compiled.hold(estimates([5.1, 2, 3.1], 0.5))
    assert all(old is new for old, new in zip(known, compiled._latest, strict=True))
    compiled.hold(estimates([5, 2.1, 3], 0.5))
    assert not any(old is new for old, new in zip(known, compiled._latest, strict=True))


def test_a_negation_blocks_by_the_rate_of_its_variable() -> None:
    gaps = [Negation(3, "between", after=(0,), before=(1,))]
    branch = model(3, [compared(0, 1), compared(0, 3)], negations=gaps)
    then = estimates([5, 2, 3, 1], 0.5, 0.5)
    for comparison in select_invariants(plan_cheapest_chain(branch, then, EVEN), None, then):
        for blockers in (0.0, 1.0, 300.0):
            now = estimates([5, 2, 3, blockers], 0.5, 0.5)
            sums = comparison.sums()
            assert sums is not None
            for side, value in zip(sums, comparison.sides(now), strict=True):
                assert value_of(side, now) == pytest.approx(value)


# ---- time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "least"), [(1, 8), (None, 30)])
def test_a_check_of_eight_variables_takes_a_small_part_of_evaluating_it(
    k: int | None, least: float
) -> None:
    branch = model(8, [compared(i, i + 1) for i in range(7)], sequence(8))
    then = estimates([9, 3, 30, 7, 1, 4, 12, 2], *7 * [0.4])
    invariants = select_invariants(plan_cheapest_chain(branch, then, EVEN), k, then)
    compiled = CompiledInvariants(invariants, 0.1)

    def seconds(check: Callable[[Estimates], object]) -> float:
        measured = []
        for _ in range(30):
            now = Estimates(dict(then.rates), dict(then.selectivities))
            start = perf_counter()
            check(now)
            measured.append(perf_counter() - start)
        return min(measured)

    assert first_violation(invariants, then, 0.1) is None
    assert compiled.hold(then)
    exact = seconds(lambda now: first_violation(invariants, now, 0.1))
    assert seconds(compiled.hold) < exact / least
