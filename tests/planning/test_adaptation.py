"""The detection-adaptation loop: decisions, swaps, and what is counted."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from spark_cep.udfs.planning.adaptation import Adapter
from spark_cep.udfs.planning.planner import format_plan, plan_generators
from spark_cep.udfs.program import Adaptation, Estimates, PlanKind, PlannerName
from tests.planning.branches import EVEN, compared, estimates, model

if TYPE_CHECKING:
    from spark_cep.udfs.planning.cost_model import BranchModel

CALM = estimates([100, 15, 10], 0.5, 0.5)


def chained() -> BranchModel:
    return model(3, [compared(0, 1), compared(1, 2)])


def adapter(
    adaptation: Adaptation,
    first: Estimates = CALM,
    kind: PlanKind = "lazy-chain",
    branches: Sequence[BranchModel] | None = None,
) -> Adapter:
    """With Algorithm 2 for chains: its invariants can be read off the rates."""
    planner: PlannerName = "greedy" if kind == "lazy-chain" else "zstream"
    return Adapter(adaptation, plan_generators(kind, branches or [chained()], EVEN, planner), first)


def like(known: Estimates) -> Estimates:
    """The same figures, measured again."""
    return Estimates(dict(known.rates), dict(known.selectivities))


def test_off_never_looks() -> None:
    loop = adapter(Adaptation("off"))
    assert loop.after(estimates([1, 1000, 1000])) is None
    assert (loop.checks, loop.plannings, loop.swaps) == (0, 0, [])


def test_always_plans_each_time_but_swaps_only_for_a_better_plan() -> None:
    loop = adapter(Adaptation("always"))
    assert loop.after(like(CALM)) is None
    swap = loop.after(estimates([1, 15, 10], 0.5, 0.5))
    assert swap is not None
    assert format_plan(swap.before, [loop.generators[0].model.names]) == "c→b→a"
    assert format_plan(swap.after, [loop.generators[0].model.names]) == "a→b→c"
    assert swap.gain > 0
    assert loop.plan == swap.after
    assert (loop.checks, loop.plannings, len(loop.swaps)) == (2, 2, 1)
    assert loop.seconds > 0


def test_a_threshold_reacts_to_any_statistic_that_changed_by_a_share() -> None:
    loop = adapter(Adaptation("threshold", threshold=0.3))
    loop.after(estimates([129, 15, 10], 0.5, 0.5))
    loop.after(estimates([100, 15, 7.1], 0.5, 0.5))
    assert loop.plannings == 0
    # The rate of a is far from mattering, and still a reason.
    assert loop.decision.check(estimates([131, 15, 10], 0.5, 0.5)) == "rate(a) went from 100 to 131"
    assert (
        loop.decision.check(estimates([100, 15, 10], 0.5, 0.1))
        == "sel(b.x < c.x) went from 0.5 to 0.1"
    )


def test_a_threshold_counts_from_the_statistics_of_the_last_plan() -> None:
    loop = adapter(Adaptation("threshold", threshold=0.3))
    for rate in (125, 140, 180, 190):
        loop.after(estimates([rate, 15, 10], 0.5, 0.5))
    # 100 to 140, then 140 to 190.
    assert (loop.checks, loop.plannings) == (4, 2)


def test_invariants_ignore_what_cannot_change_the_plan() -> None:
    loop = adapter(Adaptation("invariants", distance=0.0))
    loop.after(estimates([100_000, 15, 10], 0.5, 0.5))
    loop.after(estimates([30, 15, 1], 0.5, 0.5))
    assert (loop.checks, loop.plannings) == (2, 0)
    swap = loop.after(estimates([100, 9.1, 12], 0.5, 0.5))
    assert swap is not None
    assert swap.because == "rate(c) = 12 is no longer below rate(b) = 9.1"
    assert format_plan(swap.after, [loop.generators[0].model.names]) == "b→c→a"


def test_after_a_swap_the_invariants_are_those_of_the_new_plan() -> None:
    loop = adapter(Adaptation("invariants", distance=0.0))
    now = estimates([100, 9.1, 12], 0.5, 0.5)
    loop.after(now)
    assert loop.after(like(now)) is None
    assert (loop.plannings, len(loop.swaps)) == (1, 1)
    assert loop.after(like(CALM)) is not None


def test_a_plan_that_is_not_better_is_not_taken_and_not_made_again_and_again() -> None:
    # Algorithm 2 begins with c as soon as it is the rarest, though nothing ties it to the others.
    first = estimates([18, 8, 13], 0.5)
    tied = model(3, [compared(0, 1)])
    loop = adapter(Adaptation("invariants", distance=0.0), first, branches=[tied])
    before, now = loop.plan, estimates([28, 19, 12], 0.5)
    assert loop.after(now) is None
    assert loop.plannings == 1
    assert loop.plan == before
    assert loop.after(like(now)) is None
    assert (loop.checks, loop.plannings) == (2, 1)


def test_a_plan_that_was_worse_is_taken_when_it_is_better() -> None:
    """Though the planner would have made it all the time, so that its invariants hold."""
    first = estimates([18, 8, 13], 0.5)
    loop = adapter(
        Adaptation("invariants", distance=0.0), first, branches=[model(3, [compared(0, 1)])]
    )
    assert loop.after(estimates([28, 19, 12], 0.5)) is None
    later = estimates([1_000, 19, 0.1], 0.5)
    assert loop.decision.check(later) is None
    assert loop.after(later) is not None


def test_rates_that_take_turns_swap_plans_only_without_a_distance() -> None:
    turns = [estimates([100, 10.0, 10.2], 0.5, 0.5), estimates([100, 10.2, 10.0], 0.5, 0.5)]
    swaps = {}
    for distance in (0.0, 0.1, "auto", "meta"):
        loop = adapter(Adaptation("invariants", distance=distance), turns[0])  # type: ignore[arg-type]
        for turn in range(40):
            loop.after(like(turns[turn % 2]))
        swaps[distance] = len(loop.swaps)
    assert swaps[0.0] == 39
    assert swaps[0.1] == swaps["auto"] == 0
    assert swaps["meta"] <= 8


def test_meta_learns_a_distance_that_auto_misses() -> None:
    """Nearly equal rates have a small average difference, and jitter exceeds it again and again."""
    random = Random(3)
    jitter = [estimates([random.uniform(97, 103) for _ in range(6)]) for _ in range(200)]
    plannings = {}
    for distance in ("auto", "meta"):
        loop = adapter(Adaptation("invariants", distance=distance), jitter[0], branches=[model(6)])  # type: ignore[arg-type]
        for now in jitter:
            loop.after(now)
        plannings[distance] = loop.plannings
    assert plannings["auto"] > 50
    assert plannings["meta"] < plannings["auto"] / 5


@pytest.mark.parametrize("kind", ["lazy-chain", "zstream"])
def test_each_branch_has_a_plan_and_invariants_of_its_own(kind: PlanKind) -> None:
    branches = [model(2), model(3, [compared(0, 1), compared(1, 2)])]
    loop = adapter(Adaptation("invariants", distance=0.0), CALM, kind, branches)
    assert loop.plan.branches is not None
    assert [each.shape for each in loop.plan.branches] == [(1, 0), ((2, 1), 0)]
    swap = loop.after(estimates([12, 15, 10], 0.5, 0.5))
    assert swap is not None
    assert swap.after.branches is not None
    assert [each.shape for each in swap.after.branches] == [(0, 1), ((2, 1), 0)]


def test_a_loop_can_be_kept_in_a_state() -> None:
    for kind in ("always", "threshold", "invariants"):
        loop = adapter(Adaptation(kind), kind="zstream")  # type: ignore[arg-type]
        loop.after(estimates([1, 15, 10], 0.5, 0.5))
        again = pickle.loads(pickle.dumps(loop))
        now = estimates([40, 2, 1], 0.5, 0.5)
        assert (again.after(like(now)) is None) == (loop.after(now) is None)
        assert again.plan == loop.plan


# ---- errors ------------------------------------------------------------------------------------


def test_a_gain_within_the_error_is_luck_until_the_error_is_smaller() -> None:
    """Two orders that differ by 5 %, where the selectivity behind it is known to a half."""
    branch = model(3, [compared(0, 1), compared(1, 2)])
    first = estimates([100, 100, 100], 0.20, 0.21)
    adapter = Adapter(Adaptation("always"), plan_generators("lazy-chain", [branch], EVEN), first)
    before = adapter.plan
    turned = estimates([100, 100, 100], 0.22, 0.21)
    for error, swaps in ((0.5, False), (0.001, True)):
        now = replace(turned, errors={0: error, 1: error})
        assert (adapter.after(now) is not None) is swaps
        assert (adapter.plan != before) is swaps


def test_a_refused_plan_is_made_again_when_more_is_known() -> None:
    branch = model(3, [compared(0, 1), compared(1, 2)])
    first = estimates([100, 100, 100], 0.20, 0.21)
    adaptation = Adaptation("invariants", distance=0.0)
    adapter = Adapter(adaptation, plan_generators("lazy-chain", [branch], EVEN), first)
    turned = estimates([100, 100, 100], 0.22, 0.21)
    unsure = replace(turned, errors={0: 0.5, 1: 0.5})
    assert adapter.after(unsure) is None
    plannings = adapter.plannings
    assert adapter.after(unsure) is None
    assert adapter.plannings == plannings
    swap = adapter.after(replace(turned, errors={0: 0.001, 1: 0.001}))
    assert swap is not None
    assert swap.because == "the statistics are known better"
