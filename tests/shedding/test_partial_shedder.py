"""Partial matches dropped on a stream: none is invented or given twice, and the share stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_cep.pattern import event, no, seq
from spark_cep.udfs.program import Plan
from spark_cep.udfs.shedding.partial_matches import PartialStatistics, learn_partials
from spark_cep.udfs.shedding.partial_shedder import PartialShedder
from spark_cep.udfs.shedding.shedder import LEAST_ROWS_UNDER_LOAD
from spark_cep.udfs.shedding.utility import SheddingPolicy, StreamSheddingSpec
from tests.cases import Case, has_two_readings
from tests.local import Pipeline, Setting
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches
from tests.shedding.test_stream_shedding import STEPS, given_by
from tests.strategies import cases
from tests.streaming.triggers import Course, courses, filled

SHED = StreamSheddingSpec(None, None, None, "pspice", 0.8, 0, 1)
POLICIES: tuple[SheddingPolicy, ...] = ("hspice", "pspice", "random-partials")
policies = pytest.mark.parametrize("policy", POLICIES)
A, B, C = (event(each, f"kind = '{each}'") for each in "abc")
CHAIN = seq(A, B, C).where("a.x <= b.x")


def rows_of(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    kinds = random.choice(list("abc"), count).tolist()
    values = random.integers(0, 9, count).tolist()
    return [
        {"t": t, "u": t, "k": 1, "x": x, "f": 0.5, "kind": kind}
        for t, (x, kind) in enumerate(zip(values, kinds, strict=True))
    ]


def pairs_of(metrics: list[dict[str, Any]]) -> list[int]:
    return [sum(pairs for pairs, _ in each["nodes"].values()) for each in metrics]


@settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(cases(("any",)), st.data())
def test_no_match_is_invented_and_none_comes_twice(case: Case, data: st.DataObject) -> None:
    assume(case.pattern.window is not None and case.pattern.window.events is None)
    branches = Pipeline(case, Setting()).program.branches
    assume(not any(slot.is_group for branch in branches for slot in branch.slots))
    course = data.draw(courses(case), label="course")
    policy = data.draw(st.sampled_from(POLICIES))
    keep = data.draw(st.sampled_from([0.0, 0.3, 0.5, 0.8]))
    try:
        every = Counter(
            matches(
                case.pattern,
                case.rows,
                order_by=case.order_by,
                partition_by=case.partition_by,
                steps=STEPS,
            )
        )
    except TooMany:
        assume(False)
    found, _ = given_by(case, course, replace(SHED, keep=keep, policy=policy))
    found, every = filled(found), filled(every)
    if has_two_readings(case.pattern.root):
        found, every = Counter(set(found)), Counter(set(every))
    assert not found - every


@policies
@pytest.mark.parametrize("pattern", [CHAIN, seq(A, no(event("x", "kind = 'c'")), B, C)])
def test_what_was_learnt_leaves_the_share_and_a_part_of_the_matches(
    policy: SheddingPolicy, pattern: Any
) -> None:
    count, each = 2_000, 500
    assert each >= LEAST_ROWS_UNDER_LOAD
    case = Case(pattern.within(30), rows_of(count))
    course = Course(Plan("eager"), tuple(t // each for t in range(count)), count // each)
    full, plain = given_by(case, course, replace(SHED, keep=1.0, policy=policy))
    found, stream = given_by(case, course, replace(SHED, keep=0.4, policy=policy))
    assert found
    assert not found - full
    assert max(found.values()) == 1
    before, after = pairs_of(plain.metrics), pairs_of(stream.metrics)
    # The first trigger is dropped by chance, as nothing is known.
    assert sum(after[1:]) / sum(before[1:]) == pytest.approx(0.4, rel=0.15)
    names = {"hspice": "dropped_pairs"}
    dropped = [each.get(names.get(policy, "dropped_partials"), 0) for each in stream.metrics[1:3]]
    assert min(dropped) > 0
    assert all(kept == [rows, 0] for each in stream.metrics for kept in each["shed"].values()
               for rows in kept[:1])  # fmt: skip
    told = [each["shed_recall"] for each in stream.metrics[1:-1]]
    assert all(not each or "" in each for each in told)


@policies
def test_a_history_is_applied_from_the_first_trigger_on(policy: SheddingPolicy) -> None:
    case = Case(CHAIN.within(30), rows_of(1_500))
    course = Course(Plan("eager"), (0,) * 1_500, 1)
    pipeline = Pipeline(case, Setting(Plan("eager")))
    model = learn_partials(pipeline.program, pipeline.table(0), policy)
    known = replace(SHED, keep=0.3, policy=policy, partials=PartialStatistics(model, 1e-6))
    full, plain = given_by(case, course, replace(known, keep=1.0))
    found, stream = given_by(case, course, known)
    assert not found - full
    share = pairs_of(stream.metrics)[0] / pairs_of(plain.metrics)[0]
    assert share == pytest.approx(0.3, rel=0.15)
    kept, came = stream.metrics[0]["shed_recall"][""]
    assert kept / came == pytest.approx(found.total() / full.total(), abs=0.06)


def test_while_there_is_time_nothing_is_dropped() -> None:
    case = Case(CHAIN.within(30), rows_of(800))
    course = Course(Plan("eager"), tuple(t // 200 for t in range(800)), 4)
    for bound in ({"latency": 3600.0}, {"rows_per_second": 1e9}):
        found, stream = given_by(case, course, replace(SHED, **bound))  # type: ignore[arg-type]
        expected, _ = given_by(case, course, replace(SHED, keep=1.0))
        assert found == expected
        assert not any("dropped_pairs" in each for each in stream.metrics)


@pytest.mark.parametrize("policy", ["hspice", "pspice"])
@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, B, no(event("x", "kind = 'c'"))),
        seq(A, no(event("x", "kind = 'c'")), B),
        seq(A, no(seq(event("x", "kind = 'b'"), event("y", "kind = 'c'"))), B).where("x.x < y.x"),
    ],
)
def test_matches_that_wait_for_a_not_are_dropped_while_they_are_joined(
    policy: SheddingPolicy, pattern: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(pattern.within(8), rows_of(1_200))
    course = Course(Plan("eager"), tuple(t // 600 for t in range(1_200)), 2)
    timed = replace(SHED, latency=3600.0, policy=policy)
    full, _ = given_by(case, course, timed)
    monkeypatch.setattr(PartialShedder, "_share", lambda *_: 0.5)
    found, stream = given_by(case, course, timed)
    assert 0 < found.total() < full.total()
    assert not found - full
    assert max(each.get("waiting_matches", 0) for each in stream.metrics) > 0


def test_without_time_nothing_is_followed() -> None:
    case = Case(CHAIN.within(30), rows_of(5_000))
    course = Course(Plan("eager"), (0,) * 5_000, 1)
    found, stream = given_by(case, course, replace(SHED, latency=1e-6))
    assert not found
    assert stream.metrics[0]["pairs"] == 0
