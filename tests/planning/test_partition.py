"""APAM: the partitions of the matching order, their latencies, and the one that is chosen."""

from __future__ import annotations

from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING

import pytest

from spark_cep.udfs.costs import TYPICAL_COSTS, OperationCosts
from spark_cep.udfs.planning.apam import (
    ApamPartition,
    EventLoad,
    MergePlanner,
    apam_partitions,
    fastest_partition,
    plan_hybrid,
    plan_hybrid_groups,
)
from spark_cep.udfs.planning.planner import format_plan
from spark_cep.udfs.planning.shapes import slots_of
from spark_cep.udfs.program import Negation
from tests.planning.branches import EVEN, compared, estimates, model

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import Estimates

WINDOW = 2000
# Table 2: the selectivities of A-B, B-C, C-D and D-E in the paper's three experiments.
EXPERIMENTS = {
    1: (0.008, 0.006, 0.004, 0.002),
    2: (0.002, 0.004, 0.006, 0.008),
    3: (0.006, 0.002, 0.004, 0.008),
}
# An engine a thousand times slower than ours, which the paper's arrival rates keep busy.
SLOW = OperationCosts(pair=1e-6, result=1e-6, insert=1e-6)
DEAR_RESULTS = OperationCosts(pair=1e-6, result=20e-6, insert=1e-6)
RATES = [10, 100, 500, 1000, 1500, 2000, 3000, 3700, 4500, 6000, 20_000, 1_000_000]


def experiment(number: int) -> tuple[BranchModel, Estimates]:
    branch = model(5, [compared(i, i + 1) for i in range(4)])
    return branch, estimates([WINDOW / 5] * 5, *EXPERIMENTS[number])


def scored(number: int, rate: float, costs: OperationCosts = SLOW) -> list[ApamPartition]:
    # WITHIN counts events, so the window shrinks as they come faster.
    return apam_partitions(*experiment(number), costs, EventLoad(WINDOW / rate))


def named(partition: ApamPartition) -> str:
    names = experiment(1)[0].names
    eager = " ".join(names[slot] for slot in partition.eager)
    return f"{eager}/{' '.join(names[slot] for slot in partition.lazy)}"


# ---- the candidates ----------------------------------------------------------------------------


def test_there_is_one_partition_for_each_prefix_of_the_matching_order() -> None:
    assert [named(each) for each in scored(1, 100)] == [
        "/d e c b a", "d/e c b a", "d e/c b a", "c d e/b a", "b c d e/a", "a b c d e/",
    ]  # fmt: skip
    assert [named(each) for each in scored(3, 100)][2:4] == ["b c/d a e", "b c d/a e"]


def test_the_eager_group_is_a_subtree_in_pattern_order_and_a_merge_begins_at_the_final_slot() -> (
    None
):
    shapes = [each.shape for each in scored(3, 100)]
    assert shapes[0] == ((((4, 3), 2), 1), 0)
    assert shapes[3] == ((4, ((1, 2), 3)), 0)
    assert shapes[5] == ((((0, 1), 2), 3), 4)
    assert [format_plan(each.plan, "abcde") for each in scored(3, 100)][3] == "b c d | e→a"


def test_merges_are_in_the_cheapest_order() -> None:
    branch = model(4, [compared(0, 3), compared(1, 3), compared(2, 3)])
    lazy = apam_partitions(branch, estimates([50] * 4, 0.5, 0.001, 0.1), SLOW)[0]
    assert lazy.shape == (((3, 1), 2), 0)


# ---- the equations -----------------------------------------------------------------------------


def test_services_and_latency_are_those_of_the_equations() -> None:
    """a; b with a.x < b.x, 10 of a and 20 of b in a window of 2 seconds, by hand."""
    branch, known = model(2, [compared(0, 1)]), estimates([10, 20], 0.1)
    costs = OperationCosts(pair=0.001, result=0.002, insert=0.0005)
    lazy, half, eager = apam_partitions(branch, known, costs, EventLoad(2.0))
    merge = 10 * 0.001 + 10 * 0.1 * 0.002  # one b meets the 10 a of its window
    for found, a, b in (
        (lazy, 0.0005, 0.0005 + merge),
        (half, 0.002, 0.0005 + merge),
        (eager, 0.002, merge),
    ):
        mean = (5 * a + 10 * b) / 15
        deviation = sqrt((5 * (a - mean) ** 2 + 10 * (b - mean) ** 2) / 15)
        rho = 15 * mean
        waiting = rho * mean / (2 * (1 - rho)) * (1 + (deviation / mean) ** 2)
        assert found.service == pytest.approx(mean)
        assert found.rho == pytest.approx(rho)
        assert found.latency == pytest.approx(waiting + b)


def test_of_the_final_slot_only_the_event_that_came_is_in_play() -> None:
    branch, costs = model(3, [compared(0, 1)], frozenset()), OperationCosts(0.001, 0.002, 0.0005)
    merges = MergePlanner(branch.estimator(estimates([10, 20, 5], 0.1)), costs, {2: 1.0})
    # All a and b of the window before it, then what they came to with the one event.
    assert merges.join(0b001, 0b010) == pytest.approx(200 * 0.001 + 20 * 0.002)
    assert merges.join(0b011, 0b100) == pytest.approx(20 * (0.001 + 0.002))


def test_in_any_order_the_merges_of_all_final_events_are_the_work_of_the_joins() -> None:
    branch = model(3, [compared(0, 1)], frozenset())
    known = estimates([10, 20, 5], 0.1)
    figures = branch.estimator(known)
    at = [MergePlanner(figures, SLOW, {final: 1.0}).join(0b011, 0b100) for final in range(3)]
    joined = figures.join(0b011, 0b100)
    work = sum(known.rates[final] * each for final, each in enumerate(at))
    assert work == pytest.approx((joined.pairs + joined.partials) * 1e-6)


def test_arrivals_of_all_keys_are_what_keeps_the_server_busy() -> None:
    branch, known = experiment(1)
    one_key = apam_partitions(branch, known, SLOW, EventLoad(20.0))
    arrivals = {v: 400 / 20.0 * 50 for v in range(5)}
    many_keys = apam_partitions(branch, known, SLOW, EventLoad(20.0, arrivals))
    for one, many in zip(one_key, many_keys, strict=True):
        assert many.service == pytest.approx(one.service)
        assert many.rho == pytest.approx(50 * one.rho)


def test_rows_that_can_only_block_wait_in_the_queue_too() -> None:
    between = Negation(2, "between", after=(0,), before=(1,))
    known = estimates([10, 20, 300], 0.1)
    free = apam_partitions(model(2, [compared(0, 1)]), known, SLOW, EventLoad(1.0))
    blocked = apam_partitions(
        model(2, [compared(0, 1)], negations=[between]), known, SLOW, EventLoad(1.0)
    )
    assert all(b.rho > f.rho for f, b in zip(free, blocked, strict=True))


# ---- section 4.3 -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", EXPERIMENTS)
@pytest.mark.parametrize("costs", [TYPICAL_COSTS, SLOW, DEAR_RESULTS])
def test_case_1_slow_arrivals_are_evaluated_eagerly(number: int, costs: OperationCosts) -> None:
    chosen = fastest_partition(scored(number, 10, costs))
    assert chosen.rho < 0.1
    assert not chosen.lazy


@pytest.mark.parametrize("costs", [TYPICAL_COSTS, SLOW, DEAR_RESULTS])
def test_case_2_arrivals_that_no_plan_keeps_up_with_are_matched_in_the_optimal_order(
    costs: OperationCosts,
) -> None:
    expected = {1: ("/", "d/", "d e/"), 2: ("a b c d e/",), 3: ("b c d/",)}
    for number, names in expected.items():
        every = scored(number, 1e9, costs)
        assert all(each.latency == inf and each.rho >= 1 for each in every)
        chosen = fastest_partition(every)
        assert named(chosen).startswith(names)
        assert chosen.service == min(each.service for each in every)


def test_case_3_in_between_less_is_evaluated_eagerly_the_faster_events_come() -> None:
    for number in EXPERIMENTS:
        eager = [len(fastest_partition(scored(number, rate)).eager) for rate in RATES]
        assert eager == sorted(eager, reverse=True)
    assert len({len(fastest_partition(scored(1, rate)).eager) for rate in RATES}) >= 4


@pytest.mark.parametrize("costs", [TYPICAL_COSTS, SLOW, DEAR_RESULTS])
def test_in_experiment_2_everything_is_evaluated_eagerly_at_every_rate(
    costs: OperationCosts,
) -> None:
    for rate in RATES:
        assert not fastest_partition(scored(2, rate, costs)).lazy


@pytest.mark.parametrize("number", EXPERIMENTS)
def test_the_choice_is_never_slower_than_eager_or_lazy(number: int) -> None:
    for rate in RATES:
        every = scored(number, rate)
        assert fastest_partition(every).latency <= min(every[0].latency, every[-1].latency)


# ---- plans -------------------------------------------------------------------------------------


def test_without_a_load_the_partition_of_least_work_is_taken() -> None:
    branch, known = experiment(3)
    assert all(not isfinite(each.latency) for each in apam_partitions(branch, known, SLOW))
    assert plan_hybrid(branch, known, SLOW).eager == (1, 2, 3)
    assert plan_hybrid(branch, known, SLOW, load=EventLoad(200.0)).eager == (0, 1, 2, 3, 4)


def test_given_groups_are_kept_and_merged_from_the_final_slot_on() -> None:
    branch, known = model(4), estimates([5, 5, 5, 5])
    assert plan_hybrid_groups(branch, [2, 1], [0, 3], known).eager == (1, 2)
    assert plan_hybrid_groups(branch, [1, 2], [0, 3], known).shape in (
        ((3, (1, 2)), 0), ((3, 0), (1, 2)),
    )  # fmt: skip
    assert plan_hybrid_groups(branch, [3, 0], [2, 1], known).shape == (((0, 3), 2), 1)
    assert plan_hybrid_groups(branch, [], [2, 3, 1, 0], known).shape == (((3, 2), 1), 0)
    assert plan_hybrid_groups(branch, [0, 1, 2, 3], [], known).shape == (((0, 1), 2), 3)
    assert plan_hybrid(branch, known, SLOW, ([1], [0, 3, 2])).eager == (1,)


def test_the_eager_group_joins_where_it_makes_fewest_pairs() -> None:
    branch = model(4, [compared(2, 3), compared(0, 3)])
    early, late = estimates([50] * 4, 0.0001, 0.9), estimates([50] * 4, 0.9, 0.0001)
    assert plan_hybrid_groups(branch, [1, 2], [0, 3], early).shape == ((3, (1, 2)), 0)
    assert plan_hybrid_groups(branch, [1, 2], [0, 3], late).shape == ((3, 0), (1, 2))


def test_in_any_order_a_merge_may_begin_anywhere() -> None:
    branch = model(3, [compared(0, 1)], frozenset())
    known = estimates([10, 10, 10], 0.001)
    for each in apam_partitions(branch, known, SLOW, EventLoad(1.0)):
        assert isfinite(each.latency)
    lazy = apam_partitions(branch, known, SLOW, EventLoad(1.0))[0]
    assert lazy.shape in (((0, 1), 2), ((1, 0), 2))
    assert plan_hybrid_groups(branch, [1, 2], [0], known).shape in ((0, (1, 2)), ((1, 2), 0))


def test_scoring_joins_each_pair_of_groups_once() -> None:
    branch = model(8, [compared(i, i + 1) for i in range(7)])
    known = estimates([20] * 8, *[0.1] * 7)
    apam_partitions(branch, known, SLOW, EventLoad(1.0))
    assert branch.estimator(known).work < 3000


def test_of_many_groups_only_the_best_beginnings_of_a_merge_are_followed() -> None:
    branch = model(12, [compared(i, i + 1) for i in range(11)], frozenset())
    known = estimates([1 + 7 * i % 5 for i in range(12)])
    made = apam_partitions(branch, known, EVEN)
    assert all(sorted(slots_of(each.shape)) == [*range(12)] for each in made)
    assert branch.estimator(known).work < 7_000


@pytest.mark.parametrize("rates", [(0, 0, 0), (1e10, 1e308, 1), (1e-300, 1e200, 1e-300)])
def test_there_is_a_partition_whatever_the_rates(rates: tuple[float, ...]) -> None:
    branch = model(3, [compared(0, 1), compared(1, 2)])
    for load in (None, EventLoad(1.0)):
        found = fastest_partition(apam_partitions(branch, estimates(rates), SLOW, load))
        assert sorted(slots_of(found.shape)) == [0, 1, 2]
