"""Which partial matches a stream keeps between its triggers: the choice, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events import adaptive
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.planning.streams import KEEPING_SECONDS, PREFIX_SECONDS, StreamPlanOptions
from spark_cep.udfs.program import Adaptation, Estimates, Plan, StreamLoad
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern

WINDOW = 2000
ROWS = 60
TRIGGER = 100


def three(condition: str) -> Pattern:
    kinds = [event(name, f"kind = {n}") for n, name in enumerate("abc")]
    return seq(*kinds).where(condition).within(WINDOW)


RARELY_TRUE = three("(a.x + b.x) % 1000 = 0")
ALWAYS_TRUE = three("a.x + b.x >= 0")


def trigger(pattern: Pattern, number: int, shares: tuple[float, ...]) -> Prepared:
    random = np.random.default_rng(number)
    return prepare(
        pattern,
        {
            "t": np.sort(random.integers(number * TRIGGER, (number + 1) * TRIGGER, ROWS)),
            "kind": random.choice(3, ROWS, p=shares),
            "x": random.integers(0, 1000, ROWS),
        },
    )


def streamed(pattern: Pattern, shares: tuple[float, ...], triggers: int = 40) -> AdaptiveEngine:
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    program = replace(
        trigger(pattern, 0, shares).program, plan=Plan("lazy-chain"), adaptation=adaptation
    )
    adaptive, state = AdaptiveEngine(program), EventState()
    for number in range(triggers):
        table = trigger(pattern, number, shares).table
        step = adaptive.step(state, table, number * TRIGGER)
        for _ in adaptive.matches(step):
            pass
        state = step.state
    return adaptive


@pytest.fixture
def _any_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "REPLANNING_SECONDS", 0.0)


@pytest.mark.usefixtures("_any_work_counts")
def test_pairs_that_hardly_ever_fit_are_kept_for_frequent_last_events() -> None:
    swaps = streamed(RARELY_TRUE, (0.2, 0.2, 0.6)).metrics.swaps
    assert swaps[-1]["to"] == "a b | c"
    assert "partial matches is expected to take" in swaps[-1]["because"]
    assert "finding them anew" in swaps[-1]["because"]


@pytest.mark.usefixtures("_any_work_counts")
def test_pairs_that_always_fit_are_not_kept() -> None:
    swaps = streamed(ALWAYS_TRUE, (0.2, 0.2, 0.6)).metrics.swaps
    assert not any("|" in swap["to"] for swap in swaps)


def test_nothing_is_kept_where_there_is_hardly_any_work() -> None:
    swaps = streamed(RARELY_TRUE, (0.2, 0.2, 0.6), triggers=5).metrics.swaps
    assert not any("|" in swap["to"] for swap in swaps)


def test_the_first_way_keeps_nothing_and_holding_costs_in_every_trigger() -> None:
    program = trigger(RARELY_TRUE, 0, (0.2, 0.2, 0.6)).program
    (model,) = branch_models(program)
    estimates = Estimates({0: 100.0, 1: 100.0, 2: 300.0}, {0: 0.001}, windows=3.0)
    options = StreamPlanOptions(model, replace(estimates, load=StreamLoad(15.0)), TYPICAL_COSTS)
    without = StreamPlanOptions(model, replace(estimates, load=StreamLoad(0.0)), TYPICAL_COSTS)
    groups = list(options.groups())
    assert groups == [(), (0, 1), (0, 2), (1, 2)]
    assert (options.option(()).plan.eager, options.option(()).held) == ((), 0.0)
    for group in groups[1:]:
        option, idle = options.option(group), without.option(group)
        assert option.plan.eager == group
        assert option.held > 0
        # All but the holding is work for new events only.
        keeping = KEEPING_SECONDS * option.held + PREFIX_SECONDS * (len(group) - 1)
        assert idle.seconds == pytest.approx(keeping)
        assert option.seconds > idle.seconds
