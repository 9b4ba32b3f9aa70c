"""The adaptive loop on recorded streams: a violated invariant means another plan (Theorem 1), an
unchanged plan means that nothing was violated (Theorem 2), and each swap lowers the work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events import adaptive as loop
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.planning import streams
from spark_cep.udfs.planning.adaptation import Adapter
from spark_cep.udfs.planning.planner import branch_models, generate_plans, plan_generators
from spark_cep.udfs.program import Adaptation, Plan
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern
    from spark_cep.udfs.program import Estimates

TRIGGERS, TICKS = 60, 100
KINDS = [event(name, f"kind = {n}") for n, name in enumerate("abc")]
CORRELATED = seq(*KINDS).where("a.x < b.x - 0.9", "b.x < c.x - 0.01").within(10 * TICKS)
NEAR = seq(*KINDS).where("abs(a.x - b.x) < 0.002", "b.x < c.x - 0.8").within(10 * TICKS)
# Shares of the kinds in the first and in the second half of the stream.
STREAMS = {
    "correlated": (CORRELATED, (0.4, 0.4, 0.2), (0.4, 0.4, 0.2)),
    "switching": (NEAR, (0.1, 0.1, 0.8), (0.499, 0.499, 0.002)),
}


def trigger(pattern: Pattern, number: int, shares: tuple[float, ...], rows: int) -> Prepared:
    random = np.random.default_rng(number)
    columns = {
        "t": np.sort(random.integers(number * TICKS, (number + 1) * TICKS, rows)),
        "kind": random.choice(3, rows, p=shares),
        "x": random.random(rows),
    }
    return prepare(pattern, columns)


@dataclass
class Recorded:
    """Of each trigger: its pairs and the plan in force."""

    pairs: list[int] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    estimates: list[Estimates] = field(default_factory=list)


def stream(name: str, plan: Plan, adaptation: Adaptation, rows: int = 150) -> Recorded:
    pattern, first, second = STREAMS[name]
    pieces = [
        trigger(pattern, n, first if n < TRIGGERS // 2 else second, rows) for n in range(TRIGGERS)
    ]
    program = replace(pieces[0].program, plan=plan, adaptation=adaptation)
    engine, state, found = AdaptiveEngine(program), EventState(), Recorded()
    adapted = engine._adapted

    def record(now: Estimates) -> tuple[Plan, str]:
        found.estimates.append(now)
        return adapted(now)

    engine._adapted = record  # type: ignore[method-assign]
    for number, piece in enumerate(pieces):
        step = engine.step(state, piece.table, (number + 1) * TICKS - 1)
        for _ in engine.matches(step):
            pass
        state = step.state
        found.pairs.append(step.metrics.pairs)
        found.plans.append(engine._plan)
    return found


@pytest.mark.parametrize("name", STREAMS)
def test_each_swap_lowers_the_work_of_the_triggers_that_follow(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(loop, "REPLANNING_SECONDS", 0.0)
    monkeypatch.setattr(streams, "PREFIX_SECONDS", 0.0)
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    adapted = stream(name, Plan("lazy-chain"), adaptation)
    swaps = [n for n in range(1, TRIGGERS) if adapted.plans[n] != adapted.plans[n - 1]]
    assert 1 <= len(swaps) <= 3
    for number in swaps:
        ends = min([n for n in swaps if n > number], default=TRIGGERS)
        before = stream(name, adapted.plans[number - 1], Adaptation())
        after = stream(name, adapted.plans[number], Adaptation())
        assert sum(after.pairs[number:ends]) <= 1.02 * sum(before.pairs[number:ends])


def test_dependent_conditions_do_not_make_the_plan_oscillate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "REPLANNING_SECONDS", 0.0)
    monkeypatch.setattr(streams, "PREFIX_SECONDS", 0.0)
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    adapted = stream("correlated", Plan("lazy-chain"), adaptation)
    assert len({plan.kind for plan in adapted.plans[20:]}) == 1
    assert adapted.plans[-1].branches[0].eager == (0, 1)
    lazy = stream("correlated", Plan("lazy-chain"), Adaptation())
    assert sum(adapted.pairs[20:]) < 0.7 * sum(lazy.pairs[20:])


@pytest.mark.parametrize("name", STREAMS)
def test_with_all_conditions_a_violation_is_another_plan(name: str) -> None:
    adaptation = Adaptation("invariants", k=None, distance=0.0)
    recorded = stream(name, Plan("lazy-chain"), adaptation).estimates
    models = branch_models(trigger(STREAMS[name][0], 0, STREAMS[name][1], 10).program)
    generators = plan_generators("lazy-chain", models, TYPICAL_COSTS)
    adapter = Adapter(adaptation, generators, recorded[0])
    made = generate_plans("lazy-chain", models, recorded[0], TYPICAL_COSTS)
    changed = 0
    for now in recorded[1:]:
        is_violated = adapter.decision.check(now) is not None
        again = generate_plans("lazy-chain", models, now, TYPICAL_COSTS)
        if is_violated:
            assert [each.shape for each in again] != [each.shape for each in made]
        else:
            best = sum(each.cost.time for each in again)
            cost = sum(g.seconds(m, now) for g, m in zip(generators, made, strict=True))
            assert cost <= best * (1 + 1e-9)
        changed += is_violated
        if is_violated:
            made = again
            adapter.decision.record_plan(made, now, 0.5)
    assert changed or name == "correlated"
