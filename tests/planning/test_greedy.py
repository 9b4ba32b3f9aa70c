"""Algorithm 2: the order, its deciding conditions, and what its invariants promise."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_cep.udfs.planning.greedy import plan_greedy_order
from spark_cep.udfs.planning.invariants import (
    describe_violation,
    first_violation,
    select_invariants,
)
from spark_cep.udfs.planning.shapes import slots_of
from spark_cep.udfs.program import Branch, Negation, Slot
from tests.planning.branches import (
    EVEN,
    compared,
    estimates,
    listed,
    model,
    models,
    sequence,
    statistics,
)

ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, max_examples=150)
# The paper's Example 1: the main gate, the lobby, the restricted area.
CAMERAS = estimates([100, 15, 10])


def test_the_papers_cameras_are_watched_rarest_first() -> None:
    found = plan_greedy_order(model(3), CAMERAS, EVEN)
    assert found.shape == ((2, 1), 0)
    kept = select_invariants(found, 1, CAMERAS)
    assert [each.text("ABC") for each in kept] == ["rate(C) < rate(B)", "rate(B) < rate(A)"]
    everything = [[each.text("ABC") for each in block.conditions] for block in found.blocks]
    assert everything == [
        ["rate(C) < rate(A)", "rate(C) < rate(B)"],
        ["rate(B) < rate(A)"],
        [],
    ]


def test_a_violated_invariant_says_what_has_changed() -> None:
    kept = select_invariants(plan_greedy_order(model(3), CAMERAS, EVEN), 1, CAMERAS)
    busy = estimates([100, 9.13, 12])
    found = first_violation(kept, busy)
    assert found is not None
    assert (
        describe_violation(found, busy, "abc") == "rate(c) = 12 is no longer below rate(b) = 9.13"
    )
    # A change of the most frequent type, however large, is no reason.
    assert first_violation(kept, estimates([16, 15, 10])) is None


def test_a_condition_draws_a_variable_nearer_to_what_it_is_compared_with() -> None:
    tied = model(3, [compared(0, 1), compared(1, 2)])
    found = plan_greedy_order(tied, estimates([20, 20, 1], 0.5, 0.5), EVEN)
    assert found.shape == ((2, 1), 0)
    assert found.blocks[1].conditions[0].text("abc") == "rate(b) · sel(b.x < c.x) < rate(a)"


def test_lists_come_last_unless_they_are_short() -> None:
    listing = model(3, slots={1: listed(1)})
    assert plan_greedy_order(listing, estimates([10, 10, 10]), EVEN).shape == ((0, 2), 1)
    assert plan_greedy_order(listing, estimates([10, 0.1, 10]), EVEN).shape == ((1, 0), 2)


def test_a_negation_changes_no_order() -> None:
    blocked = model(3, negations=[Negation(3, "between", after=(0,), before=(1,))])
    for rates in ([4, 5, 6, 0], [4, 5, 6, 100]):
        assert plan_greedy_order(blocked, estimates(rates), EVEN).shape == ((0, 1), 2)


def test_a_group_weighs_as_much_as_it_has_iterations() -> None:
    body = Branch((Slot((1,)), Slot((2,))), sequence(2))
    group = Slot((1, 2), 1, 1, is_list=True, bodies=(body,))
    grouped = model(2, slots={1: group})
    assert plan_greedy_order(grouped, estimates([5, 3, 3]), EVEN).shape == (0, 1)
    assert plan_greedy_order(grouped, estimates([5, 1, 1]), EVEN).shape == (1, 0)
    assert grouped.names == ("a", "(b c)")


def test_a_repeated_choice_weighs_as_much_as_its_alternatives_together() -> None:
    bodies = (Branch((Slot((1,)), Slot((2,))), sequence(2)), Branch((Slot((3,)),), frozenset()))
    choice = Slot((1, 2, 3), 1, 1, is_list=True, bodies=bodies)
    branch = model(2, slots={1: choice})
    assert plan_greedy_order(branch, estimates([5, 2, 2, 4]), EVEN).shape == (0, 1)
    assert plan_greedy_order(branch, estimates([5, 1, 1, 2]), EVEN).shape == (1, 0)
    assert branch.names == ("a", "(b c | d)")


@ALWAYS_THE_SAME
@given(st.data())
def test_every_slot_taken_was_the_lightest_of_those_left(data: st.DataObject) -> None:
    branch = data.draw(models())
    known = data.draw(statistics(branch))
    assume(not branch.lists)
    order = slots_of(plan_greedy_order(branch, known, EVEN).shape)
    for place, chosen in enumerate(order):

        def weight(slot: int, before: tuple[int, ...] = order[:place]) -> float:
            product = known.rates[slot]
            for index, text in enumerate(branch.texts):
                names = {"abcdefghijkl".index(text[0]), "abcdefghijkl".index(text[-3])}
                if slot in names and names <= {slot, *before}:
                    product *= known.selectivities[index]
            ways = branch.order.count(sum(1 << s for s in (*before, slot)))
            return product * ways

        assert all(weight(chosen) <= weight(slot) * (1 + 1e-9) for slot in order[place:])


@ALWAYS_THE_SAME
@given(st.data(), st.sampled_from([1, 2, 3]))
def test_a_violated_invariant_always_means_another_order(data: st.DataObject, k: int) -> None:
    """Theorem 1, ties included."""
    branch = data.draw(models())
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    found = plan_greedy_order(branch, then, EVEN)
    assert first_violation(select_invariants(found, k, then), then) is None
    if first_violation(select_invariants(found, k, then), now) is not None:
        assert plan_greedy_order(branch, now, EVEN).shape != found.shape


@ALWAYS_THE_SAME
@given(st.data())
def test_with_all_conditions_kept_the_same_order_means_no_violation_and_back(
    data: st.DataObject,
) -> None:
    """Theorem 2, ties included."""
    branch = data.draw(models())
    then, now = data.draw(statistics(branch)), data.draw(statistics(branch))
    found = plan_greedy_order(branch, then, EVEN)
    has_changed = plan_greedy_order(branch, now, EVEN).shape != found.shape
    assert (first_violation(select_invariants(found, None, then), now) is not None) == has_changed


def test_ordering_weighs_each_slot_once_a_step() -> None:
    for size in (8, 12):
        branch = model(size, [compared(i, i + 1) for i in range(size - 1)])
        known = estimates([10 + i for i in range(size)], *[0.5] * (size - 1))
        plan_greedy_order(branch, known, EVEN)
        assert branch.estimator(known).work <= size * (size + 1) // 2 + 3 * size
