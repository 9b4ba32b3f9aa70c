"""Matching that is stopped: what is given by then is part of the full answer, and no trigger gives
what it would not have given.

The clock counts how often it is asked, so that a deadline can pass between any two blocks. What the
engine gives without a deadline is the oracle; it is compared with brute force elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import event, no, seq
from spark_cep.udfs.events.deadline import (
    BLOCK_SECONDS,
    FIRST_BLOCK_PAIRS,
    LEAST_BLOCK_PAIRS,
    Deadline,
    DeadlinePassed,
)
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.partials import Partials
from spark_cep.udfs.events.walk import WalkTask
from spark_cep.udfs.execution.job import TriggerInput, to_blob
from spark_cep.udfs.execution.shedding import (
    StageBound,
    begin_task,
    forget_stages,
    shed_rows,
    task_deadline,
)
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.program import Plan
from spark_cep.udfs.shedding.pace import note_arrival
from spark_cep.udfs.shedding.shedder import get_shedder
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.cases import Case, has_two_readings
from tests.local import Pipeline, Setting
from tests.random_cases import random_cases
from tests.settings import in_advances, whole
from tests.strategies import cases
from tests.streaming.triggers import Course, Stream, courses, filled, followed

if TYPE_CHECKING:
    from tests.reference.matcher import Match

EXAMPLES = 60
# More matches than this take long without showing more.
MOST_MATCHES = 3_000


class Ticks:
    """A clock that goes on whenever it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.step = 1.0
        self._now = 0.0

    def __call__(self) -> float:
        self.asked += 1
        self._now += self.step
        return self._now


@dataclass(frozen=True)
class Advance:
    """What one advance gave, and left in the state."""

    matches: Counter[Match]
    state: EventState
    deadline: Deadline | None
    ticks: int


def by_advance(
    shipped: Pipeline,
    setting: Setting,
    ticks: Callable[[int], float] | None,
    most_waiting: int | None = None,
) -> list[Advance]:
    """`ticks`: when each advance is stopped; None: there are no deadlines. `most_waiting`: so many
    matches may wait in the state for a NOT."""
    advances: list[Advance] = []
    state = EventState()
    for place, horizon in enumerate((*setting.horizons, None)):
        program = shipped.program if place == 0 else shipped.later
        clock = Ticks()
        deadline = None if ticks is None else Deadline(ticks(place), clock)
        step = advance_events(
            program,
            state,
            shipped.table(place),
            horizon,
            deadline=deadline,
            most_waiting=most_waiting,
        )
        found: Counter[Match] = Counter()
        for matches in step.matches:
            found.update(shipped.read(step.events.table, step.events.rows, matches))
            assume(found.total() < MOST_MATCHES)
        state = step.state
        advances.append(Advance(found, state, deadline, clock.asked))
    return advances


# ---- any pattern, any plan -------------------------------------------------------------------


@pytest.mark.parametrize("settings_of", [whole, in_advances])
@pytest.mark.parametrize("groups", [False, True])
def test_a_cut_only_takes_matches_away(
    settings_of: Callable[[Case], st.SearchStrategy[Setting]], groups: bool
) -> None:
    seen: Counter[str] = Counter()

    @random_cases(EXAMPLES)
    @given(cases(("any",), groups=groups), st.data())
    def holds(case: Case, data: st.DataObject) -> None:
        setting = data.draw(settings_of(case), label="setting")
        setting = replace(setting, block_pairs=min(setting.block_pairs, 8))
        shipped = Pipeline(case, setting)
        most = data.draw(st.sampled_from([None, 1000]), label="most waiting")
        every = by_advance(shipped, setting, None, most)
        unhurried = by_advance(shipped, setting, lambda _: inf, most)
        for full, same in zip(every, unhurried, strict=True):
            assert same.matches == full.matches
            assert kept(same.state) == kept(full.state)
            assert same.deadline is not None
            assert not same.deadline.is_cut
        ticks = [data.draw(st.integers(1, each.ticks + 1), label="ticks") for each in unhurried]
        cut = by_advance(shipped, setting, lambda place: ticks[place], most)
        for mine, full in zip(cut, every, strict=True):
            assert not mine.matches - full.matches
            assert rows_of(mine.state) == rows_of(full.state)
            assert mine.deadline is not None
            assert 0 <= mine.deadline.left <= mine.deadline.begun
            lost = full.matches.total() - mine.matches.total()
            if most is None and not keeps_groups(setting):
                assert mine.deadline.is_cut or not lost
            seen["with matches"] += bool(full.matches)
            seen["lost some"] += lost > 0
            seen["lost some, found some"] += 0 < lost < full.matches.total()

    holds()
    assert seen["with matches"] > EXAMPLES / 10
    assert seen["lost some"] > seen["with matches"] / 4
    assert seen["lost some, found some"]


def rows_of(state: EventState) -> tuple[float | None, str]:
    """The rows and their flags. As text, because NaN differs from itself."""
    return state.horizon, "" if state.events is None else str(state.events.to_pylist())


def kept(state: EventState) -> tuple[tuple[float | None, str], str]:
    """The rows, and the partial matches of groups."""
    return rows_of(state), repr([(each.group, each.rows) for each in state.kept])


def keeps_groups(setting: Setting) -> bool:
    """Whether a partial match that was lost in one advance may be missed in the next."""
    plans = (setting.plan, setting.later_plan or setting.plan)
    return bool(setting.horizons) and any(
        plan.kind == "eager" or any(len(each.eager) > 1 for each in plan.branches or ())
        for plan in plans
    )


# ---- triggers of a stream --------------------------------------------------------------------

BOUND = StreamSheddingSpec(None, 1.5, None, "utility", 0.8, 0, 1)


def streamed(case: Case, course: Course, slow: Set[int]) -> tuple[Counter[Match], Stream]:
    """`slow`: the triggers in which time goes by."""
    stream = Stream(case, course.plan, adapts=course.adapts, shed=BOUND)
    clock = Ticks()
    get_shedder(stream.job.token, BOUND, stream.job.program).clock = clock
    found: Counter[Match] = Counter()
    triggers = followed(case, course, stream)
    for trigger in range(course.triggers + 1):
        clock.step = 0.2 if trigger in slow else 0.0
        found += next(triggers).matches
    return filled(found), stream


def test_a_stream_that_is_cut_gives_each_match_once_or_not_at_all() -> None:
    seen: Counter[str] = Counter()

    @random_cases(EXAMPLES // 2)
    @given(cases(("any",)), st.data())
    def holds(case: Case, data: st.DataObject) -> None:
        assume(case.pattern.window is not None)
        course = replace(data.draw(courses(case), label="course"), adapts=data.draw(st.booleans()))
        every, unhurried = streamed(case, course, frozenset())
        assume(1 < every.total() < MOST_MATCHES)
        slow = data.draw(st.sets(st.integers(0, course.triggers), min_size=1), label="slow")
        found, stream = streamed(case, course, slow)
        if has_two_readings(case.pattern.root):
            every, found = Counter(set(every)), Counter(set(found))
        assert not found - every
        assert not any(each["cut"] for each in unhurried.metrics)
        cuts = sum(each["cut"] for each in stream.metrics)
        assert cuts or found == every
        assert [each["state_rows"] for each in stream.metrics] == [
            each["state_rows"] for each in unhurried.metrics
        ]
        seen["cut"] += cuts > 0
        seen["lost some, found some"] += 0 < found.total() < every.total()

    holds()
    assert seen["cut"] > EXAMPLES / 10
    assert seen["lost some, found some"] > EXAMPLES / 40


# ---- by hand -----------------------------------------------------------------------------------

A, B = event("a", "kind = 'A'"), event("b", "kind = 'B'")


def rows_of_kinds(kinds: str) -> list[dict[str, object]]:
    return [
        {"t": t, "u": t, "k": 1, "x": 0, "f": 0.0, "kind": kind} for t, kind in enumerate(kinds)
    ]


def test_the_rest_is_counted_by_the_rows_with_which_matching_begins() -> None:
    pipeline = Pipeline(Case(seq(A, B).within(99), rows_of_kinds("AB" * 40)), Setting())
    deadline = Deadline(0.0, Ticks())
    step = advance_events(pipeline.program, EventState(), pipeline.table(0), deadline=deadline)
    assert not list(step.matches)
    assert deadline.to_dict() == {"cut": 1, "left": 40, "starts": 40}
    assert deadline.left_share == 1.0


def test_nothing_is_cut_where_there_is_nothing_to_do() -> None:
    pipeline = Pipeline(Case(seq(A, B).within(99), rows_of_kinds("B" * 5)), Setting())
    deadline = Deadline(0.0, Ticks())
    step = advance_events(pipeline.program, EventState(), pipeline.table(0), deadline=deadline)
    assert not list(step.matches)
    assert deadline.to_dict() == {"cut": 0, "left": 0, "starts": 0}


def test_a_match_that_a_not_did_not_clear_is_not_given() -> None:
    """The occurrences of a negated group are found by a walk of its own: without all of them, more
    would match."""
    absent = no(seq(event("x", "kind = 'C'"), event("y", "kind = 'C'")))
    pattern = seq(A, absent, B).where("y.x > x.x", "y.x < b.x")
    rows = rows_of_kinds("ACCCCCCCCB")
    for row in rows:
        row["x"] = row["t"]
    pipeline = Pipeline(Case(pattern.within(99), rows), Setting(block_pairs=1))
    asked = Ticks()
    step = advance_events(
        pipeline.program, EventState(), pipeline.table(0), deadline=Deadline(inf, asked)
    )
    assert not list(step.matches)
    for ticks in range(1, asked.asked + 1):
        deadline = Deadline(ticks, Ticks())
        step = advance_events(pipeline.program, EventState(), pipeline.table(0), deadline=deadline)
        assert not list(step.matches)


class SetClock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_walk_may_start_from_no_row() -> None:
    none = np.zeros(0, dtype=np.int64)
    task = WalkTask(Partials({0: none}, none, none), frozenset({0}))

    def run(starts: Iterator[WalkTask]) -> Iterator[Partials]:
        return (each.partials for each in starts)

    deadline = Deadline(1e9, Ticks())
    given = list(deadline.walk(iter([task]), run, lambda: 0))
    assert [len(each) for each in given] == [0]
    assert (deadline.is_cut, deadline.begun, deadline.left) == (False, 0, 0)


def test_blocks_become_as_small_as_slow_conditions_need() -> None:
    clock = SetClock()
    deadline = Deadline(inf, clock)
    for _ in range(20):
        deadline.check()
        pairs = deadline.block_pairs(1 << 17)
        clock.now += pairs * 1e-5
        deadline.count_tested(pairs)
    assert deadline.block_pairs(1 << 17) == pytest.approx(BLOCK_SECONDS / 1e-5, rel=0.01)
    for seconds, expected in ((1.0, LEAST_BLOCK_PAIRS), (1e-9, 1 << 17)):
        for _ in range(20):
            deadline.check()
            clock.now += deadline.block_pairs(1 << 17) * seconds
            deadline.count_tested(deadline.block_pairs(1 << 17))
        assert deadline.block_pairs(1 << 17) == expected


def test_a_block_of_a_few_pairs_says_nothing_of_large_ones() -> None:
    clock = SetClock()
    deadline = Deadline(inf, clock)
    for _ in range(20):
        deadline.check()
        clock.now += 5e-5
        deadline.count_tested(10)
    assert deadline.block_pairs(1 << 17) == FIRST_BLOCK_PAIRS


def test_a_passed_deadline_stays_passed() -> None:
    clock = SetClock()
    deadline = Deadline(1.0, clock)
    clock.now = 1.0
    with pytest.raises(DeadlinePassed):
        deadline.check()
    clock.now = 0.0
    assert deadline.has_passed()


def test_a_deadline_leaves_time_for_what_comes_after_matching() -> None:
    row = {"t": 1, "u": 1, "k": 1, "x": 1, "f": 0.5, "kind": "a"}
    case = Case(seq("a", "b").within(5), [row])
    stream = Stream(case, Plan("eager"), shed=replace(BOUND, latency=2.0))
    shedder = get_shedder(stream.job.token, stream.job.shed, stream.job.program)  # type: ignore[arg-type]
    shedder.clock = SetClock()
    rows = stream._table
    seconds = []
    for tail in (0.0, 0.3, 0.1, 9.0):
        shedder.observe_tail(tail)
        blob = to_blob(note_arrival(shedder.clock())(rows))
        shedding = shed_rows(stream.job, TriggerInput(0, (blob,), -1, number=str(tail)), rows)
        seconds.append(shedding._stops_at - shedder.clock())
    # 1.2 s are for matching, an eighth longer; less is believed slowly, and a half always stays.
    assert seconds == pytest.approx([1.35, 1.05, 1.35 - 0.24, 0.675])


# ---- tasks of a batch ------------------------------------------------------------------------


@pytest.fixture
def stage() -> Iterator[str]:
    forget_stages()
    yield "1"
    forget_stages()


def seconds_of(bound: StageBound, rows: int | None, clock: SetClock) -> float:
    """How long a task with so many rows may match from now on."""
    deadline = task_deadline(bound, rows, clock)
    began = clock.now
    while not deadline.has_passed():
        clock.now += 0.01
    found, clock.now = clock.now - began, began
    return round(found, 1)


def test_tasks_of_a_batch_share_the_bound_by_their_rows(stage: str) -> None:
    bound, clock = StageBound(8.0, 1000, 2, stage), SetClock()
    # Two at a time: each worker has half of the rows, one task after the other.
    assert seconds_of(bound, 250, clock) == 4.0
    clock.now = 4.0
    assert seconds_of(bound, 250, clock) == 4.0
    # Another stage begins anew.
    assert seconds_of(replace(bound, stage="2"), 500, clock) == 8.0


def test_a_task_that_was_done_early_leaves_its_time_to_the_next(stage: str) -> None:
    bound, clock = StageBound(8.0, 1000, 1, stage), SetClock()
    assert seconds_of(bound, 500, clock) == 4.0
    clock.now = 1.0
    assert seconds_of(bound, 250, clock) == 3.5


def test_reading_the_rows_counts_and_no_task_has_more_than_what_is_left(stage: str) -> None:
    bound, clock = StageBound(8.0, 100, 2, stage), SetClock()
    begin_task(stage, 0.0)
    clock.now = 3.0
    assert seconds_of(bound, 5000, clock) == 5.0
    assert seconds_of(bound, None, clock) == 5.0
    clock.now = 9.0
    assert seconds_of(bound, 10, clock) == 0.0


def test_a_batch_without_time_gives_no_match_and_says_what_it_left(stage: str) -> None:
    pipeline = Pipeline(Case(seq(A, B).within(99), rows_of_kinds("AB" * 40)), Setting())
    output = EventOutput("all", pipeline.program.orders[0].column, row=(Field(pipeline.row, "u"),))

    def matched(bound: StageBound | None) -> tuple[int, dict[str, Any]]:
        batches = pipeline.table(0).to_batches()
        *answer, counts = run(pipeline.program, output, batches, 0, bound=bound)
        return sum(each.num_rows for each in answer), json.loads(counts["metrics"][0].as_py())

    rows, metrics = matched(None)
    assert rows == 40 * 41
    assert "cut" not in metrics
    rows, metrics = matched(StageBound(1e-9, 80, 1, stage))
    assert rows == 0
    assert (metrics["cut"], metrics["left"], metrics["starts"]) == (1, 80, 80)
    forget_stages()
    rows, metrics = matched(StageBound(1e9, 80, 1, stage))
    assert rows == 40 * 41
    assert (metrics["cut"], metrics["left"]) == (0, 0)
