"""Rows that wait for their remote values in front of the engine: late by any number of triggers,
with restarts in between, every match comes exactly once. The oracle is brute force over all rows.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import event, no, seq
from spark_cep.udfs.errors import WorkerError
from spark_cep.udfs.execution import state
from spark_cep.udfs.execution.delay import row_keys
from spark_cep.udfs.execution.job import NO_WATERMARK
from spark_cep.udfs.program import Plan
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes import lookup as lookups
from tests.cases import Case
from tests.random_cases import random_cases
from tests.reference.assignments import TooMany
from tests.reference.matcher import matches
from tests.remotes import looked_up as looked
from tests.remotes.looked_up import STRATEGIES, looked_up, sources
from tests.strategies import cases
from tests.streaming.triggers import FAR, Stream, courses, filled

if TYPE_CHECKING:
    from tests.reference.matcher import Match
    from tests.streaming.triggers import Course

MAX_WAIT = 0.003
MANY = FetchPolicy(batch=1, in_flight=1000, timeout=60.0)
_tokens = count()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    lookups.forget_lookups()
    state.forget_states()


class LateSource:
    """Every key has itself as its value, and an answer from some trigger on."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._trigger = 0
        self._changed = threading.Condition()

    def due(self, key: Any) -> int:
        return max(Random(f"{self._seed} {key}").randrange(-3, 5), 0)

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        with self._changed:
            self._changed.wait_for(lambda: all(self.due(key) <= self._trigger for key in keys))
        return {key: key for key in keys}

    def go_to(self, trigger: int) -> None:
        with self._changed:
            self._trigger = trigger
            self._changed.notify_all()


def late_stream(case: Case, plan: Plan, source: LateSource, strategies: Any, seed: int) -> Stream:
    stream = Stream(case, plan)
    program = stream.job.program
    remotes = tuple(
        replace(each, fetch=source, max_wait=MAX_WAIT, fetch_policy=MANY)
        for each in sources(strategies, f"delay {next(_tokens)}")
    )
    conditions = looked_up(program, Random(seed))  # type: ignore[arg-type]
    changed = replace(program, conditions=conditions, remotes=remotes)
    stream.job = replace(stream.job, program=changed)
    assert not row_keys(changed)[1]
    return stream


def given_late(
    case: Case, course: Course, stream: Stream, source: LateSource, restarts: frozenset[int]
) -> Counter[Match]:
    """All matches, of the triggers of a course and of those in which the last values come."""
    arrives = np.array([course.arrives[place] for place in stream.ids], dtype=np.int64)
    times = [case.rows[place]["t"] for place in stream.ids]
    horizon = NO_WATERMARK
    found: Counter[Match] = Counter()
    for trigger in range(course.triggers + 40):
        source.go_to(trigger)
        if trigger in course.forgets:
            state.forget_states()
        if trigger in restarts:
            state.forget_states()
            lookups.forget_lookups()
        later = [t for t, a in zip(times, arrives, strict=True) if a > trigger and t is not None]
        horizon = max(horizon, min(later) - 1 - course.lag if later else NO_WATERMARK)
        horizon = FAR if trigger >= course.triggers else horizon
        found += stream.trigger(np.flatnonzero(arrives == trigger), horizon)
        if trigger >= course.triggers + 5 and not stream.metrics[-1]["delayed_rows"]:
            return found
    raise AssertionError("rows are still delayed")


@pytest.mark.parametrize("selection", ["any", "next"])
def test_every_match_comes_once_however_late_its_values_are(
    selection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looked, "COMPUTED", {})
    delayed = []

    @random_cases(30)
    @given(cases((selection,)), st.data())
    def compare(case: Case, data: st.DataObject) -> None:
        assume(case.pattern.window is not None and case.pattern.window.events is None)
        course = data.draw(courses(case), label="course")
        restarts = data.draw(st.frozensets(st.integers(1, 6), max_size=2), label="restarts")
        allowed = [s for s in STRATEGIES if s != "blocking"]
        strategies = [data.draw(st.sampled_from(allowed)) for _ in range(3)]
        try:
            wanted = matches(case.pattern, case.rows, order_by=case.order_by,
                             partition_by=case.partition_by, steps=20_000)  # fmt: skip
        except TooMany:
            assume(False)
        seed = data.draw(st.integers(0, 99))
        source = LateSource(seed)
        stream = late_stream(case, course.plan, source, strategies, seed)
        try:
            found = given_late(case, course, stream, source, restarts)
            assert filled(found) == filled(Counter(wanted))
        finally:
            source.go_to(99)
        delayed.append(sum(each["delayed_rows"] for each in stream.metrics))

    compare()
    assert sum(delayed) > 0


# ---- by hand -------------------------------------------------------------------------------------

ROWS = [
    {"t": 0, "k": 1, "x": 1, "f": 0.0, "kind": "A", "u": 0},
    {"t": 1, "k": 1, "x": 2, "f": 0.0, "kind": "A", "u": 1},
    {"t": 2, "k": 1, "x": 0, "f": 0.0, "kind": "B", "u": 2},
    {"t": 3, "k": 1, "x": 0, "f": 0.0, "kind": "B", "u": 3},
    {"t": 9, "k": 1, "x": 0, "f": 0.0, "kind": "Z", "u": 4},
]
A, B = event("a", "kind = 'A'"), event("b", "kind = 'B'")


class Chosen:
    """Answers but for some keys, which it has from `release` on."""

    def __init__(self, *late: int) -> None:
        self.late = set(late)
        self.go = threading.Event()
        self.calls: list[int] = []

    def __call__(self, keys: list[int]) -> dict[int, int]:
        self.calls += keys
        if self.late & set(keys):
            self.go.wait(30)
        return {key: 0 for key in keys}


def stream_of(source: Any, pattern: Any, **more: Any) -> Stream:
    from tests.remotes.test_remote_streams import BIGINT, Call, RemoteCall

    case = Case(pattern.where("a.x <= b.t").within(5), ROWS, order_by=("t",), partition_by=("k",))
    stream = Stream(case, Plan("eager"))
    program = stream.job.program
    changed = []
    for condition in program.conditions:
        compared = condition.expression
        assert isinstance(compared, Call)
        cell, other = compared.arguments
        looked_up_x = RemoteCall(0, (cell,), BIGINT)
        expression = replace(compared, arguments=(looked_up_x, other))
        changed.append(replace(condition, expression=expression))
    options = {"max_wait": 0.3, "fetch_policy": MANY, **more}
    remote = RemoteSpec(
        "r", source, (pa.int64(),), pa.int64(), "cached", token=f"delay {next(_tokens)}", **options
    )
    stream.job = replace(
        stream.job, program=replace(program, conditions=tuple(changed), remotes=(remote,))
    )
    return stream


def rows(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("restarts", [False, True])
def test_only_the_matches_of_a_late_value_come_later(restarts: bool) -> None:
    source = Chosen(1)
    stream = stream_of(source, seq(A, B))
    assert sum(stream.trigger(rows(0, 1, 2), NO_WATERMARK).values()) == 1
    assert stream.metrics[-1]["delayed_rows"] == 1
    if restarts:
        state.forget_states()
        lookups.forget_lookups()
    # In time for the window of the row that is delayed, though the watermark is behind it.
    assert sum(stream.trigger(rows(3), 8).values()) == 1
    assert stream.metrics[-1]["delayed_rows"] == 1
    source.go.set()
    assert sum(stream.trigger(rows(), 8).values()) == 2
    assert stream.metrics[-1]["delayed_rows"] == 0
    assert stream.store.blobs.keys() & {-3} == set()
    assert sum(stream.trigger(rows(), FAR).values()) == 0


def test_a_not_waits_as_long_as_a_row_is_delayed() -> None:
    source = Chosen(1)
    stream = stream_of(source, seq(A, B, no(event("n", "kind = 'C'"))))
    assert not stream.trigger(rows(0, 1, 2), NO_WATERMARK)
    assert not stream.trigger(rows(4), 8)
    source.go.set()
    assert sum(stream.trigger(rows(), 8).values()) == 2


def test_rows_that_were_late_stay_late_while_others_are_delayed() -> None:
    source = Chosen(1)
    stream = stream_of(source, seq(A, B))
    stream.trigger(rows(0, 1), NO_WATERMARK)
    stream.trigger(rows(), 2)
    assert not stream.trigger(rows(2), 2)
    assert stream.metrics[-1]["late_rows"] == 1
    source.go.set()
    assert not stream.trigger(rows(), FAR)


def test_a_key_that_fails_is_decided() -> None:
    def broken(keys: list[int]) -> dict[int, int]:
        raise ValueError("no")

    failing = replace(MANY, retries=0)
    stream = stream_of(broken, seq(A, B), fetch_policy=failing, max_wait=5.0)
    with pytest.raises(WorkerError, match="could not fetch"):
        stream.trigger(rows(0, 2), NO_WATERMARK)
    stream = stream_of(broken, seq(A, B), fetch_policy=failing, max_wait=5.0, on_error="null")
    assert not stream.trigger(rows(0, 2), NO_WATERMARK)
    assert stream.metrics[-1]["delayed_rows"] == 0


def test_rows_that_are_delayed_come_also_when_the_query_waits_for_nothing_any_more() -> None:
    source = Chosen(1)
    stream = stream_of(source, seq(A, B))
    assert not stream.trigger(rows(0, 2), NO_WATERMARK)
    assert stream.store.kept is not None
    assert stream.store.kept[4] == 4
    state.forget_states()
    lookups.forget_lookups()
    source.go.set()
    program = stream.job.program
    patient = tuple(replace(each, max_wait=None) for each in program.remotes)  # type: ignore[union-attr]
    stream.job = replace(stream.job, program=replace(program, remotes=patient))  # type: ignore[type-var]
    assert sum(stream.trigger(rows(3), 1).values()) == 2
    assert stream.metrics[-1]["delayed_rows"] == 0
    assert stream.store.kept[4] == 2
