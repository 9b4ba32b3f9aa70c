"""Rows dropped in front of a stream's engine: what is given is given without them too, and each
match once; nothing goes while there is room."""

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
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.cases import Case, has_two_readings
from tests.reference.assignments import TooMany
from tests.reference.matcher import Match, matches
from tests.strategies import cases
from tests.streaming.triggers import Course, Stream, courses, filled, followed

STEPS = 20_000
SHED = StreamSheddingSpec(None, None, None, "utility", 0.8, 0, 1)
PAIR = seq(event("a", "kind = 'a'"), event("b", "kind = 'b'"))


def rows_of(count: int, kinds: str = "ab") -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [
        {
            "t": t,
            "u": t,
            "k": 1,
            "x": int(random.integers(0, 9)),
            "f": 0.5,
            "kind": kinds[t % len(kinds)],
        }
        for t in range(count)
    ]


def given_by(case: Case, course: Course, shed: StreamSheddingSpec) -> tuple[Counter[Match], Stream]:
    stream = Stream(case, course.plan, shed=shed)
    found: Counter[Match] = Counter()
    for each in followed(case, course, stream):
        found += each.matches
    return found, stream


@settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(cases(), st.data())
def test_no_match_is_invented_and_none_comes_twice(case: Case, data: st.DataObject) -> None:
    assume(case.pattern.window is not None and case.pattern.window.events is None)
    course = data.draw(courses(case), label="course")
    policy = data.draw(st.sampled_from(["utility", "random", "frequency", "espice"]))
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


def test_of_each_trigger_the_share_stays() -> None:
    case = Case(PAIR.within(5), rows_of(400))
    course = Course(Plan("eager"), tuple(t // 100 for t in range(400)), 4)
    for policy in ("utility", "random", "frequency", "espice"):
        _, stream = given_by(case, course, replace(SHED, keep=0.3, policy=policy))
        kept = [sum(k for k, _ in each["shed"].values()) for each in stream.metrics[:4]]
        assert kept == [30, 30, 30, 30]


def test_rows_that_a_not_could_need_stay() -> None:
    pattern = seq("a", no(event("x", "kind = 'b'")), "c").within(5)
    case = Case(pattern, rows_of(60))
    course = Course(Plan("eager"), (0,) * 60, 1)
    found, stream = given_by(case, course, replace(SHED, keep=0.0))
    # Rows of kind b may be a, x or c: as x they are needed, so of them matches are left.
    assert found
    assert all(place % 2 for match in found for _, place in match)
    assert stream.metrics[0]["shed"] == {"a": [30, 30], "c": [30, 30]}


def test_while_there_is_room_nothing_goes_and_rows_are_only_counted() -> None:
    case = Case(PAIR.where("a.x < b.x").within(5), rows_of(400))
    course = Course(Plan("eager"), tuple(t // 100 for t in range(400)), 4)
    bounds = ({"keep": 1.0}, {"latency": 3600.0}, {"rows_per_second": 1e9})
    for bound in bounds:
        found, stream = given_by(case, course, replace(SHED, **bound))  # type: ignore[arg-type]
        expected, _ = given_by(case, course, replace(SHED, keep=1.0))
        assert found == expected
        assert found
        assert [each["shed"] for each in stream.metrics[:4]] == [{"a": [50, 0], "b": [50, 0]}] * 4
        assert {each["shed_recall"][""][0] for each in stream.metrics[:4]} == {100.0}


def test_without_time_everything_goes_that_may() -> None:
    case = Case(PAIR.within(5), rows_of(8000))
    course = Course(Plan("eager"), (0,) * 8000, 1)
    found, stream = given_by(case, course, replace(SHED, latency=1e-6))
    assert not found
    assert stream.metrics[0]["shed"] == {"a": [0, 4000], "b": [0, 4000]}
    assert stream.metrics[0]["shed_recall"][""] == [0.0, 8000]


def test_what_is_worth_most_stays() -> None:
    rows = rows_of(4000)
    case = Case(PAIR.where("b.x > a.x + 4").within(20), rows)
    course = Course(Plan("eager"), tuple(t // 1000 for t in range(4000)), 4)
    share = {}
    every, _ = given_by(case, course, replace(SHED, keep=1.0))
    for policy in ("utility", "random"):
        found, stream = given_by(case, course, replace(SHED, keep=0.4, policy=policy))
        assert not found - every
        share[policy] = found.total() / every.total()
        expected = sum(each["shed_recall"][""][0] for each in stream.metrics[1:4]) / 3000
        assert expected == pytest.approx(share[policy], abs=0.1)
    assert share["utility"] > 3 * share["random"]
