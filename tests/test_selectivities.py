"""What a worker knows of its conditions: the same under every plan, with factors and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from spark_cep.pattern import any_of, event, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events import selectivities as module
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.events.load import LoadMeter
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.events.sampling import MeasuredShare, make_sample_context
from spark_cep.udfs.events.selectivities import BucketSelectivities
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.program import Adaptation, BranchPlan, Estimates, Plan
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep.udfs.program import Program, Shape

ROWS = 3_000
# Of all pairs b, c nearly a half is kept, of those that follow a pair a, b hardly any.
CORRELATED = (
    seq(event("a", "kind = 0"), event("b", "kind = 1"), event("c", "kind = 2"))
    .where("a.x < b.x - 0.9", "b.x < c.x - 0.01")
    .within(300)
)
FREE = Estimates({0: 100.0, 1: 100.0, 2: 100.0}, windows=10.0)


def rows(seed: int = 1) -> Prepared:
    random = np.random.default_rng(seed)
    columns = {
        "t": np.arange(ROWS), "kind": random.integers(0, 3, ROWS), "x": random.random(ROWS)
    }  # fmt: skip
    return prepare(CORRELATED, columns)


def drawn(monkeypatch: pytest.MonkeyPatch, prepared: Prepared, times: int = 3) -> Estimates:
    monkeypatch.setattr(module, "DRAWING_SHARE", 1e9)
    monkeypatch.setattr(module, "FIRST_SHARE", 1e9)
    known = BucketSelectivities(prepared.program, Estimates({}))
    known.add_advance(Metrics(rows=ROWS), prepared.program.plan)
    for _ in range(times):
        assert known.look(make_sample_context(prepared.program, prepared.table), lambda: 1.0)
    return known.estimates(FREE)


def test_dependent_conditions_have_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drawn(monkeypatch, rows())
    assert found.selectivities[0] == pytest.approx(0.005, rel=0.5)
    assert found.selectivities[1] == pytest.approx(0.48, rel=0.1)
    # Of what a condition on b keeps that is above 0.9, c is larger in a 29th.
    assert found.joint[frozenset({0, 1})] == pytest.approx(0.06, rel=0.7)
    assert 0 < found.errors[1] < found.errors[0] < 0.3


def test_independent_conditions_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = replace(CORRELATED, conditions=()).where("a.x < b.x", "b.y < c.y")
    random = np.random.default_rng(3)
    columns = {
        "t": np.arange(ROWS), "kind": random.integers(0, 3, ROWS), "x": random.random(ROWS),
        "y": random.random(ROWS),
    }  # fmt: skip
    assert drawn(monkeypatch, prepare(pattern, columns)).joint == {}


def test_the_estimated_matches_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = rows()
    found = drawn(monkeypatch, prepared)
    engine = AdaptiveEngine(prepared.program)
    step = engine.step(EventState(), prepared.table, None)
    true = sum(len(matches) for matches in engine.matches(step))
    (model,) = branch_models(prepared.program)
    with_factor = model.estimator(found).cardinality(model.all) * found.windows
    without = replace(found, joint={})
    independent = model.estimator(without).cardinality(model.all) * found.windows
    assert with_factor == pytest.approx(true, rel=0.8)
    assert independent > 5 * true


@pytest.mark.parametrize("shape", [((0, 1), 2), ((2, 1), 0)])
def test_a_plan_does_not_change_what_is_known(
    monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    """The engine tests b, c on what a, b has left under one plan, and on everything under the
    other."""
    monkeypatch.setattr(module, "DRAWING_SHARE", 1e9)
    monkeypatch.setattr(module, "FIRST_SHARE", 1e9)
    prepared = rows()
    plan = Plan("lazy-chain", (BranchPlan(shape),))
    program = replace(prepared.program, plan=plan, adaptation=Adaptation("invariants"))
    engine, state = AdaptiveEngine(program), EventState()
    for begin in range(0, ROWS, 500):
        step = engine.step(state, prepared.table.slice(begin, 500), begin + 499)
        tested = [len(matches) for matches in engine.matches(step)]
        assert tested is not None
        state = step.state
    known = {place: share for place, share, _ in engine.learnt()["shares"]}
    # What was left of a, b keeps a 30th.
    assert known[1] == pytest.approx(0.48, rel=0.3)


def work(seconds: float, **counts: Any) -> Metrics:
    return Metrics(pairs=round(seconds / TYPICAL_COSTS.pair), **counts)


def test_nothing_is_drawn_that_costs_more_than_a_small_part_of_the_work() -> None:
    prepared = rows()
    plan, parts = prepared.program.plan, 3  # both conditions, and whether they are dependent
    known = BucketSelectivities(prepared.program, Estimates({}))
    context = make_sample_context(prepared.program, prepared.table)
    price = parts * (module.PART_SECONDS + module.FIRST_DRAWS * module.DRAW_SECONDS)
    assert not known.look(context, lambda: 0.0)
    assert not known.look(context, lambda: 0.99 * price / module.FIRST_SHARE)
    known.add_advance(work(1.01 * price / module.FIRST_SHARE), plan)
    assert known.look(context, lambda: 0.0)
    assert not known.look(context, lambda: 1e9)  # only the first look may run ahead of the work
    known.add_advance(work(3 * price / module.DRAWING_SHARE), plan)
    assert known.look(context, lambda: 0.0)
    assert not known.look(context, lambda: 0.0)


def test_a_look_comes_sooner_where_the_tests_keep_another_share() -> None:
    prepared = rows()
    plan, other = prepared.program.plan, Plan("lazy-chain", (BranchPlan(((2, 1), 0)),))
    context = make_sample_context(prepared.program, prepared.table)

    def looks_again(kept: int, plan_then: Plan) -> bool:
        known = BucketSelectivities(prepared.program, Estimates({}))
        known.add_advance(work(0.4, conditions={0: (10_000, 1_000)}), plan)
        assert known.look(context, lambda: 0.0)
        known.add_advance(work(0.1, conditions={0: (10_000, kept)}), plan_then)
        return known.look(context, lambda: 0.0)

    assert not looks_again(1_100, plan)
    assert looks_again(2_000, plan)
    assert looks_again(500, plan)
    # Another plan tests the condition on other combinations.
    assert not looks_again(2_000, other)


def test_looks_are_the_same_in_every_run() -> None:
    """Whatever the machine was doing: work and looks are counted at fixed prices."""
    prepared = rows()

    def learnt() -> dict[str, Any]:
        engine, state = AdaptiveEngine(_adapting(prepared)), EventState()
        for begin in range(0, ROWS, 500):
            step = engine.step(state, prepared.table.slice(begin, 500), begin + 499)
            assert sum(len(found) for found in engine.matches(step)) >= 0
            state = step.state
        return {name: value for name, value in engine.learnt().items() if name != "load"}

    first = learnt()
    assert first["drawn"] == [0, 1]
    assert first == learnt()


def _adapting(prepared: Prepared) -> Program:
    plan = Plan("lazy-chain", (BranchPlan(((0, 1), 2)),))
    return replace(prepared.program, plan=plan, adaptation=Adaptation("invariants", to_hybrid=True))


def test_measurements_are_combined_unless_they_contradict_each_other() -> None:
    combine = module._combine
    first = MeasuredShare(0.50, 0.1)
    both = combine(first, MeasuredShare(0.54, 0.1))
    assert 0.52 < both.value < 0.54
    assert both.error < 0.1
    assert combine(first, MeasuredShare(0.05, 0.1)) == MeasuredShare(0.05, 0.1)


def test_what_is_known_survives_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWING_SHARE", 1e9)
    monkeypatch.setattr(module, "FIRST_SHARE", 1e9)
    prepared = rows()
    known = BucketSelectivities(prepared.program, Estimates({}))
    known.look(make_sample_context(prepared.program, prepared.table), lambda: 1.0)
    again = BucketSelectivities(prepared.program, Estimates({}))
    again.restore(json.loads(json.dumps(known.to_json())))
    assert again.estimates(FREE) == known.estimates(FREE)


def test_selectivities_of_earlier_checkpoints_are_read() -> None:
    known = BucketSelectivities(rows().program, Estimates({}))
    known.restore({"0": 0.25, "1": 0.5})
    assert known.estimates(FREE).selectivities == {0: 0.25, 1: 0.5}


def test_the_load_is_an_average_over_triggers() -> None:
    prepared = rows()
    context = make_sample_context(prepared.program, prepared.table)
    load = LoadMeter()
    load.begin(context, 100.0)
    assert load.estimate().arrivals is None
    assert load.estimate().events == ROWS
    load.end(0.5)
    load.begin(context, 110.0)
    arrivals = load.estimate().arrivals
    assert arrivals is not None
    assert sum(arrivals.values()) == pytest.approx(ROWS / 10)
    assert load.estimate().is_idle
    load.end(100.0)
    assert not load.estimate().is_idle
    again = LoadMeter()
    again.restore(json.loads(json.dumps(load.to_json())))
    assert again.estimate() == load.estimate()


def test_branches_that_begin_alike_have_a_factor_each(monkeypatch: pytest.MonkeyPatch) -> None:
    either = any_of(event("c", "kind = 2"), event("d", "kind = 3"))
    pattern = (
        seq(event("a", "kind = 0"), event("b", "kind = 1"), either)
        .where("a.x < b.x - 0.9", "b.x < c.x - 0.01", "b.x < d.x - 0.01")
        .within(400)
    )
    random = np.random.default_rng(4)
    columns = {"t": np.arange(ROWS), "kind": random.integers(0, 4, ROWS), "x": random.random(ROWS)}
    found = drawn(monkeypatch, prepare(pattern, columns))
    assert found.joint.keys() == {frozenset({0, 1}), frozenset({0, 2})}
