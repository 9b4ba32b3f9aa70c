"""The cost model, against small numbers worked out by hand and against simulated arrivals."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.planning.conditions import slot_set
from spark_cep.udfs.planning.cost_model import BranchModel, plan_cost, plan_steps
from spark_cep.udfs.planning.shapes import left_deep_shape, slots_of
from spark_cep.udfs.program import Branch, Estimates, Negation, Shape, Slot
from tests.planning.arrivals import Arrivals
from tests.planning.branches import (
    EVEN,
    compared,
    estimates,
    listed,
    model,
    models,
    statistics,
)

AND = frozenset[tuple[int, int]]()
# a before b and c, both before d
DIAMOND = frozenset({(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)})


# ---- by hand -----------------------------------------------------------------------------------


def test_combinations_are_rates_times_the_share_that_order_and_window_leave() -> None:
    rates = estimates([2, 3, 4])
    # Of three rows in a window of a sequence: 24 ways to take them, 1 / 2! in order and window.
    assert model(3).estimator(rates).cardinality(0b111) == pytest.approx(12)
    # In any order: three rows, each of which may be the first, the others in the window after it.
    assert model(3, order=AND).estimator(rates).cardinality(0b111) == pytest.approx(72)
    assert model(4, order=DIAMOND).estimator(estimates([1, 1, 1, 6])).cardinality(0b1111) == 2


def test_conditions_count_where_all_their_variables_are_bound() -> None:
    figures = model(3, [compared(0, 2)]).estimator(estimates([2, 3, 4], 0.1))
    assert figures.cardinality(0b011) == pytest.approx(6)
    assert figures.cardinality(0b101) == pytest.approx(0.8)
    assert figures.cardinality(0b111) == pytest.approx(1.2)


def test_a_condition_whose_selectivity_nobody_knows_keeps_a_half() -> None:
    assert model(2, [compared(0, 1)]).estimator(estimates([2, 3])).cardinality(0b11) == 3


def test_pairs_are_counted_before_the_conditions_between_the_sides() -> None:
    figures = model(3, [compared(0, 1), compared(1, 2)]).estimator(estimates([2, 3, 4], 0.5, 0.1))
    assert figures.pairs(0b001, 0b010) == pytest.approx(6)
    assert figures.pairs(0b011, 0b100) == pytest.approx(6 * 0.5 * 4 / 2)
    assert figures.join(0b011, 0b100).partials == pytest.approx(6 * 0.5 * 4 / 2 * 0.1)


def test_an_equality_is_looked_up_and_makes_no_pairs() -> None:
    for name, pairs in (("<", 6), ("=", 0.6)):
        figures = model(2, [compared(0, 1, name)]).estimator(estimates([2, 3], 0.1))
        assert figures.pairs(0b01, 0b10) == pytest.approx(pairs)
        assert figures.join(0b01, 0b10).partials == pytest.approx(0.6)


def test_an_equality_with_a_list_is_looked_up_only_while_the_list_grows() -> None:
    lists = model(2, [compared(0, 1, "=")], slots={1: listed(1, 1, 1)})
    figures = lists.estimator(estimates([2, 3], 0.1))
    assert figures.pairs(0b01, 0b10) == pytest.approx(0.6)
    assert figures.pairs(0b10, 0b01) == pytest.approx(6)


def test_a_condition_on_a_variable_that_the_branch_does_not_fill_does_not_apply() -> None:
    assert not model(2, [compared(0, 3)]).condition_models


def test_lists_are_counted_by_their_length() -> None:
    figures = model(2, slots={1: listed(1, 1, 2)}).estimator(estimates([2, 3]))
    # After each of 2 rows 3 elements on average: 3 lists of one, 9 / 2 of two.
    assert figures.cardinality(0b11) == pytest.approx(2 * (3 + 4.5))
    # By itself: a list of one, or one with a second element in the window after its first.
    assert figures.cardinality(0b10) == pytest.approx(3 + 9)


def test_a_list_is_tested_element_by_element_and_on_the_whole_when_it_is_complete() -> None:
    each = model(2, [compared(0, 1)], slots={1: listed(1, 2, 2)})
    whole = model(2, [compared(0, 1, reading="sum")], slots={1: listed(1, 2, 2)})
    steps = model(2, [compared(1, 1, reading="prev")], slots={1: listed(1, 2, 2)})
    known = estimates([2, 3], 0.1)
    assert each.estimator(known).cardinality(0b11) == pytest.approx(2 * 4.5 * 0.01)
    assert whole.estimator(known).cardinality(0b11) == pytest.approx(2 * 4.5 * 0.1)
    assert steps.estimator(known).cardinality(0b11) == pytest.approx(2 * 4.5 * 0.1)
    # While it grows, lists that are too short or not tested yet are partial matches as well.
    assert whole.estimator(known).join(0b01, 0b10).partials == pytest.approx(2 * (3 + 4.5))
    assert each.estimator(known).pairs(0b01, 0b10) == pytest.approx(2 * (0.3 + 0.045) / 0.1)


def test_a_repeated_group_has_as_many_elements_as_its_body_has_matches() -> None:
    body = Branch((Slot((1,)), Slot((2,))), frozenset({(0, 1)}))
    group = Slot((1, 2), 1, 1, is_list=True, bodies=(body,))
    conditions = [compared(1, 2), compared(0, 1)]
    figures = model(2, conditions, slots={1: group}).estimator(estimates([5, 3, 4], 0.5, 0.1))
    assert figures.rate(1) == pytest.approx(6)
    assert figures.cardinality(0b11) == pytest.approx(5 * 6 * 0.1)


def test_a_negation_keeps_the_combinations_that_nothing_blocks() -> None:
    between = Negation(2, "between", after=(0,), before=(1,))
    figures = model(2, [compared(0, 2)], negations=[between]).estimator(estimates([2, 3, 8], 0.5))
    # 4 blockers a window, and a gap that is even between 0 and a window: (1 - e^-4) / 4.
    assert figures.cardinality(0b11) == pytest.approx(6 * (1 - 2.718281828**-4) / 4)
    assert figures.join(0b01, 0b10).partials == pytest.approx(6)


def test_nothing_overflows() -> None:
    many = model(12, slots={i: listed(i) for i in range(0, 12, 2)}, order=AND)
    known = estimates([1e12] * 12)
    for shape in (
        left_deep_shape(range(12)),
        ((left_deep_shape(range(6))), left_deep_shape(range(6, 12))),
    ):
        cost = plan_cost(many, shape, known, EVEN)
        assert isfinite(cost.time)
        assert cost.time > 0


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_what_a_set_of_slots_comes_to_does_not_depend_on_the_plan(data: st.DataObject) -> None:
    branch = data.draw(models())
    known = data.draw(statistics(branch))
    orders = data.draw(st.permutations(range(branch.size)))
    last = plan_steps(branch, left_deep_shape(orders), known)[-1]
    if not branch.lists and not branch.negation_models:
        expected = branch.estimator(known).cardinality(branch.all)
        assert last.partials == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert sorted(last.slots) == list(range(branch.size))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_a_plan_takes_what_its_nodes_take(data: st.DataObject) -> None:
    branch = data.draw(models())
    known = data.draw(statistics(branch))
    shape = left_deep_shape(data.draw(st.permutations(range(branch.size))))
    nodes = plan_steps(branch, shape, known)
    cost = plan_cost(branch, shape, known, EVEN)
    assert cost.pairs == pytest.approx(sum(node.pairs for node in nodes))
    assert cost.time == pytest.approx(cost.pairs + sum(node.partials for node in nodes))
    decided = [index for node in nodes for index in node.conditions]
    assert sorted(decided) == sorted(applied.index for applied in branch.condition_models)


# ---- by simulation -----------------------------------------------------------------------------

CHAINS = {
    "a sequence in its order": (None, left_deep_shape([0, 1, 2])),
    "a sequence from its end": (None, left_deep_shape([2, 1, 0])),
    "a sequence from its middle": (None, left_deep_shape([1, 0, 2])),
    "rows in any order": (AND, left_deep_shape([1, 2, 0])),
}


@pytest.mark.parametrize(("order", "shape"), CHAINS.values(), ids=CHAINS.keys())
def test_chains_make_the_pairs_and_matches_of_simulated_arrivals(
    order: frozenset[tuple[int, int]] | None, shape: Shape
) -> None:
    branch = model(3, [compared(0, 1), compared(1, 2)], order)
    known = estimates([4, 5, 3], 0.5, 0.3)
    _agree(branch, known, shape, within=0.06)


BUSHY = {
    "neighbours": (None, ((0, 1), (2, 3))),
    "spine behind": (None, ((3, 2), (0, 1))),
    "far apart": (None, ((0, 3), (1, 2))),
    "a diamond": (DIAMOND, ((0, 3), (1, 2))),
    "a join in the middle of an order": (DIAMOND, (((0, 1), 2), 3)),
    "held on one side and on both": (frozenset({(0, 1), (0, 2), (0, 3), (2, 3)}), ((0, 3), (1, 2))),
    "any order": (AND, ((0, 1), (2, 3))),
}


@pytest.mark.parametrize(("order", "shape"), BUSHY.values(), ids=BUSHY.keys())
def test_joins_of_joins_make_the_pairs_and_matches_of_simulated_arrivals(
    order: frozenset[tuple[int, int]] | None, shape: Shape
) -> None:
    branch = model(4, [compared(0, 1), compared(1, 3)], order)
    known = estimates([3, 4, 3, 2], 0.6, 0.5)
    _agree(branch, known, shape, within=0.08)


def test_looked_up_pairs_are_those_of_simulated_arrivals() -> None:
    branch = model(3, [compared(0, 1, "="), compared(1, 2, "=")])
    _agree(branch, estimates([5, 6, 5], 0.4, 0.3), left_deep_shape([2, 1, 0]), within=0.06)


def test_growing_lists_make_the_pairs_and_lists_of_simulated_arrivals() -> None:
    branch = model(3, slots={1: listed(1, 1, 3)})
    _agree(branch, estimates([2, 4, 2]), ((0, 2), 1), within=0.1)
    _agree(branch, estimates([2, 4, 2]), (0, 1), within=0.06)


@pytest.mark.parametrize("blockers", [0.5, 5.0, 30.0])
def test_negations_block_as_many_simulated_matches(blockers: float) -> None:
    between = Negation(3, "between", after=(0,), before=(1,))
    branch = model(3, negations=[between])
    known = estimates([3, 4, 3, blockers])
    arrivals = Arrivals(branch, known)
    share = arrivals.unblocked(arrivals.run(((0, 1), 2)), 3, after=0, before=1)
    free = model(3).estimator(known).cardinality(0b111)
    assert branch.estimator(known).cardinality(0b111) / free == pytest.approx(share, rel=0.08)


def _agree(branch: BranchModel, known: Estimates, shape: Shape, *, within: float) -> None:
    arrivals = Arrivals(branch, known)
    arrivals.run(shape)
    figures = branch.estimator(known)

    def check(part: Shape) -> int:
        if isinstance(part, int):
            return 1 << part
        left, right = check(part[0]), check(part[1])
        counted = arrivals.joins[tuple(sorted(slots_of(part)))]
        expected = figures.join(left, right)
        assert expected.pairs == pytest.approx(counted.pairs, rel=within)
        assert expected.partials == pytest.approx(counted.partials, rel=within)
        return slot_set(slots_of(part))

    check(shape)


def test_more_than_a_float_can_hold_times_nothing_is_nothing() -> None:
    pair = Branch((Slot((1,)), Slot((2,))), frozenset({(0, 1)}))
    alone = Branch((Slot((3,)),), frozenset())
    group = Slot((1, 2), 1, None, True, (pair,))
    choice = Slot((1, 2, 3), 1, None, True, (pair, alone))
    conditions = [compared(0, 1), compared(1, 2)]
    for branch in (
        model(3, conditions, slots={2: listed(2)}),
        model(3, conditions, slots={1: listed(1), 2: listed(2)}),
        model(2, conditions, slots={1: group}),
        model(2, conditions, slots={1: choice}),
    ):
        for order in (range(branch.size), range(branch.size)[::-1]):
            cost = plan_cost(branch, left_deep_shape(order), estimates([1e300] * 3, 0.0, 0.0), EVEN)
            assert isfinite(cost.pairs + cost.partials + cost.time)
