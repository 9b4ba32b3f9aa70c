"""Matches that wait for the watermark: kept in the state or found when they are certain, every
trigger gives the same. The oracle is the other way, which `test_triggers` compares with brute
force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_cep.pattern import Pattern, all_of, any_of, event, no, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events import adaptive
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.engine import EventState
from spark_cep.udfs.events.waiting import (
    KEEPING_SHARE,
    MOST_WAITING,
    PAUSE_ADVANCES,
    WaitingChoice,
    can_keep_matches,
)
from spark_cep.udfs.planning import streams
from spark_cep.udfs.program import Adaptation, BranchPlan, Plan, StreamLoad
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.cases import Case
from tests.local import EAGER, Pipeline, Setting
from tests.programs import prepare
from tests.random_cases import random_cases
from tests.strategies import cases
from tests.streaming.triggers import Stream, courses, filled, followed
from tests.test_negated_groups import negated_groups, timed

if TYPE_CHECKING:
    from collections import Counter

    from tests.reference.matcher import Match
    from tests.streaming.triggers import Course

A, B, C = (event(name, f"kind = '{name.upper()}'") for name in "abc")
BS = event("b+", "kind = 'B'")
D = event("d", "x > 1")
X, Y = event("x", "x = 3"), event("y", "x = 0 AND kind = 'C'")
SHAPES = (
    seq(A, no(X), B),
    seq(A, no(X), B, C.optional()),
    seq(no(X), A, BS),
    seq(A, BS, no(X)),
    seq(A, no(X), BS, no(Y)),
    seq(no(X), A, C, no(Y)),
    all_of(A, no(X), BS),
    all_of(C, seq(A, no(X), B)),
    seq(A, any_of(seq(no(X), B), C), no(Y)),
    any_of(seq(A, no(X), B), C),
    # Without B and C both ways fill the same variables, and one covers the other.
    seq(A, any_of(seq(no(X), B.optional()), seq(no(Y), C.optional())), D),
)
CONDITIONS = ("a.x < b.x", "a.x = x.x", "x.x >= a.x", "x.x > b.x", "y.x <> a.x", "a.x <= b.x")
Limits = Sequence[int | None]


@st.composite
def shaped(draw: st.DrawFn) -> Case:
    pattern: Pattern = draw(st.sampled_from(SHAPES)).within(draw(st.sampled_from([3, 4, 6])))
    texts = draw(st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True))
    words = repr(pattern)
    texts = [t for t in texts if all(f"'{n}'" in words or f"{n}." not in t for n in "abxy")]
    row = st.tuples(st.integers(0, 6), st.sampled_from("AABBC"), st.integers(0, 3))
    count = draw(st.sampled_from([14, 12, 10, 6]))
    drawn = draw(st.lists(row, min_size=count, max_size=count))
    return Case(pattern.where(*texts).strategy("skip till any match"), timed(*drawn))


def keeps(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    """`limits`: the most matches that wait after each trigger."""
    left = list(limits)

    def limit(_choice: object, _load: object, *, is_kept: bool) -> int | None:
        del is_kept
        return left.pop(0) if left else None

    monkeypatch.setattr(adaptive.WaitingChoice, "limit", limit)


def answers(
    monkeypatch: pytest.MonkeyPatch, case: Case, course: Course, limits: Limits
) -> tuple[list[Counter[Match]], int]:
    """The matches of each trigger, and how many waited."""
    keeps(monkeypatch, limits)
    stream = Stream(case, course.plan, adapts=course.adapts)
    given = [filled(given.matches) for given in followed(case, course, stream)]
    return given, sum(each["waiting_matches"] for each in stream.metrics)


def agree(
    monkeypatch: pytest.MonkeyPatch,
    examples: int,
    drawn: st.SearchStrategy[Case],
    limits: st.SearchStrategy[int | None],
    *,
    adapts: bool = False,
) -> None:
    waited = 0

    @random_cases(examples)
    @given(drawn, st.data())
    def compare(case: Case, data: st.DataObject) -> None:
        nonlocal waited
        assume(can_keep_matches(Pipeline(case, Setting(EAGER)).program))
        course = replace(data.draw(courses(case), label="course"), adapts=adapts)
        count = course.triggers + 1
        most = data.draw(st.lists(limits, min_size=count, max_size=count), label="limits")
        expected, none = answers(monkeypatch, case, course, [])
        found, some = answers(monkeypatch, case, course, most)
        assert (found, none) == (expected, 0)
        waited += some

    compare()
    assert waited > examples // 2


# ---- by hand -----------------------------------------------------------------------------------

ABC, BOTH_ENDS = seq(A, no(X), B, C).within(9), seq(no(X), A, C, no(Y)).within(5)
LAZY = Plan("lazy-chain")
AB_KEPT = Plan("hybrid", (BranchPlan(((0, 1), 2), (0, 1)),))
ALL = MOST_WAITING


@pytest.mark.parametrize(
    ("pattern", "plan", "triggers", "expected"),
    [
        # The row of the NOT comes between the group and the row that completes the match.
        (ABC, AB_KEPT, [("A1 B3", 0, ALL), ("X2", 0, ALL), ("C4", 4, ALL)], (0, 0, 0)),
        (ABC, LAZY, [("A1 B3 C4", 0, ALL), ("X2", 3, ALL), ("", 4, ALL)], (0, 0, 0)),
        (ABC, LAZY, [("A1 B3 C4", 0, ALL), ("", 3, ALL), ("", 4, ALL)], (0, 0, 1)),
        # Groups of all rows are not those of the rows up to the horizon.
        (ABC, AB_KEPT, [("A1 B3", 0, ALL), ("", 3, None), ("C4", 4, None)], (0, 0, 1)),
        (ABC, AB_KEPT, [("A1 B3 C5", 0, 0), ("", 5, None)], (0, 1)),
        (ABC, AB_KEPT, [("A1 B3", 3, None), ("C5", 4, ALL), ("", 5, ALL)], (0, 0, 1)),
        # The match was given, and its first row is still there for the NOT before others.
        (BOTH_ENDS, LAZY, [("A1 C3", 6, None), ("", 6, ALL), ("", 9, ALL)], (1, 0, 0)),
        (BOTH_ENDS, LAZY, [("A1 C3", 5, None), ("", 6, ALL), ("", 9, None)], (0, 1, 0)),
    ],
)
def test_what_each_trigger_gives(
    monkeypatch: pytest.MonkeyPatch,
    pattern: Pattern,
    plan: Plan,
    triggers: list[tuple[str, int, int | None]],
    expected: tuple[int, ...],
) -> None:
    """A trigger is rows like "A1 B3", kind and time, the horizon, and the most that may wait."""
    keeps(monkeypatch, [most for _, _, most in triggers])
    texts = [(text, at) for at, (rows, _, _) in enumerate(triggers) for text in rows.split()]
    kinds = timed(*[(int(t[1:]), t[0], 3 if t[0] == "X" else 1) for t, _ in texts])
    stream = Stream(Case(pattern.strategy("skip till any match"), kinds), plan)
    arrives = np.array([at for _, at in texts])
    found = [
        sum(stream.trigger(np.flatnonzero(arrives == at), horizon).values())
        for at, (_, horizon, _) in enumerate(triggers)
    ]
    assert tuple(found) == expected


# ---- which trigger does the work ---------------------------------------------------------------

BOUNDED = StreamSheddingSpec(None, 600.0, None, "random", 0.8, 0, 1)
HEAVY_ROWS = 300


@pytest.mark.parametrize(
    "pattern",
    [seq(A, no(X), B, C), seq(no(X), A, B, C), seq(A, B, C, no(X))],
    ids=["between", "before", "after"],
)
def test_under_a_latency_bound_a_light_trigger_does_none_of_the_work_of_a_heavy_one(
    pattern: Pattern,
) -> None:
    random = np.random.default_rng(0)
    times = np.sort(random.integers(0, 100, HEAVY_ROWS)).tolist()
    # Few rows are a NOT's.
    values = random.choice(4, HEAVY_ROWS, p=(0.33, 0.33, 0.32, 0.02)).tolist()
    heavy = [(t, str(random.choice(list("ABC"))), x) for t, x in zip(times, values, strict=True)]
    case = Case(
        pattern.where("a.x < b.x").within(20).strategy("skip till any match"),
        timed(*heavy, *[(130, "A", 0)] * 3, (260, "X", 3)),
    )
    pairs, matches = [], []
    for shed in (None, BOUNDED):
        stream = Stream(case, LAZY, shed=shed)
        parts = np.split(np.arange(len(case.rows)), [HEAVY_ROWS, HEAVY_ROWS + 3])
        horizons = zip(parts, (-1, 129, 259), strict=True)
        matches.append([stream.trigger(rows, horizon) for rows, horizon in horizons])
        pairs.append([each["pairs"] for each in stream.metrics])
    put_off, on_arrival = pairs
    assert matches[0] == matches[1]
    assert sum(matches[0][1].values()) > HEAVY_ROWS
    assert put_off[0] == 0
    assert put_off[1] > 10 * HEAVY_ROWS
    assert on_arrival[0] <= 1.1 * sum(put_off)
    assert on_arrival[1:] == [0, 0]


# ---- where keeping pays ------------------------------------------------------------------------


def chosen(*, is_wanted: bool = False, **changes: Any) -> WaitingChoice:
    program = Pipeline(Case(ABC.strategy("skip till any match"), []), Setting(EAGER)).program
    program = replace(program, adaptation=Adaptation("invariants", to_hybrid=True))
    return WaitingChoice(replace(program, **changes), is_wanted=is_wanted)


IDLE, BUSY = StreamLoad(100.0), StreamLoad(100.0, {}, is_idle=False)


def test_matches_are_kept_for_a_part_of_the_work_that_finds_them() -> None:
    choice = chosen()
    # Of a bucket of which nothing is known, what it has kept stays.
    assert choice.limit(IDLE, is_kept=False) is None
    assert choice.limit(IDLE, is_kept=True) == MOST_WAITING
    limits = []
    for pairs in (10_000, 1_000_000, 4_000_000):
        for _ in range(20):
            # The watermark passes the rows of a trigger in one without rows.
            choice.add(100, 0, overflows=False)
            choice.add(0, pairs, overflows=False)
        limits.append(choice.limit(IDLE, is_kept=False))
    assert limits[0] is None
    assert limits[1] is not None
    assert limits[2] is not None
    seconds = 4_000_000 * TYPICAL_COSTS.pair
    assert limits[1] < limits[2] <= KEEPING_SHARE * seconds / streams.KEEPING_SECONDS
    assert choice.limit(BUSY, is_kept=True) is None


def test_nothing_is_kept_where_only_the_sum_of_the_work_counts() -> None:
    for changes in ({"optimize": "throughput"}, {"adaptation": Adaptation()}):
        choice = chosen(**changes)
        choice.add(100, 10**9, overflows=False)
        choice.add(100, 10**9, overflows=False)
        assert choice.limit(IDLE, is_kept=True) is None


def test_after_an_overflow_it_is_tried_again_more_and_more_rarely() -> None:
    choice = chosen(is_wanted=True)
    pauses = []
    for _ in range(3):
        choice.add(1, 1, overflows=True)
        pauses.append(0)
        while choice.limit(IDLE, is_kept=False) is None:
            pauses[-1] += 1
    assert pauses == [PAUSE_ADVANCES, 2 * PAUSE_ADVANCES, 4 * PAUSE_ADVANCES]


def test_auto_keeps_matches_where_much_is_tested_for_few() -> None:
    kinds = [event(name, f"kind = {n}") for n, name in enumerate("abc")]
    pattern = seq(kinds[0], no(event("x", "kind = 3")), kinds[1], kinds[2])
    pattern = pattern.where("(a.x * 7 + b.x * 13 + c.x) % 4000 = 0").within(2000)
    found = {}
    for optimize in ("latency", "throughput"):
        engine, state, given = None, EventState(), []
        for number in range(8):
            random = np.random.default_rng(number)
            made = prepare(
                pattern,
                {
                    "t": np.sort(random.integers(number * 1000, (number + 1) * 1000, 500)),
                    "kind": random.choice(4, 500, p=(0.33, 0.33, 0.33, 0.01)),
                    "x": random.integers(0, 1000, 500),
                },
            )
            adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
            program = replace(
                made.program, plan=Plan("lazy-chain"), adaptation=adaptation, optimize=optimize
            )
            engine = engine or AdaptiveEngine(program)
            # A trigger with rows, and one that Spark adds when the watermark has moved.
            for table, horizon in (
                (made.table, number * 1000 - 1),
                (made.table.slice(0, 0), number * 1000 + 998),
            ):
                before = engine.metrics.pairs
                step = engine.step(state, table, horizon)
                count = sum(len(each) for each in engine.matches(step))
                state = step.state
                given.append((count, engine.metrics.pairs - before))
        found[optimize] = given, state.waiting
    (kept, waiting), (put_off, none) = found["latency"], found["throughput"]
    assert waiting is not None
    assert none is None
    assert [count for count, _ in kept] == [count for count, _ in put_off]
    assert sum(count for count, _ in kept) > 100
    # From the fourth trigger with rows on these have all the pairs, otherwise hardly any.
    assert sum(pairs for _, pairs in kept[7::2]) == 0
    late = [sum(pairs for _, pairs in put_off[begin::2]) for begin in (6, 7)]
    assert late[0] < 0.01 * late[1]


# ---- random ------------------------------------------------------------------------------------

KEPT = st.just(MOST_WAITING)
CHANGING = st.sampled_from([MOST_WAITING, MOST_WAITING, None, 0, 1, 3])


def test_kept_matches_are_given_in_the_trigger_that_makes_them_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agree(monkeypatch, 60, shaped(), KEPT)


def test_keeping_may_begin_and_end_with_every_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    agree(monkeypatch, 80, shaped(), CHANGING)


def test_nots_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    agree(monkeypatch, 40, negated_groups(), CHANGING)


def test_random_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    agree(monkeypatch, 40, cases(("any",)), CHANGING)


def test_groups_are_kept_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "REPLANNING_SECONDS", 0.0)
    monkeypatch.setattr(adaptive, "MAX_NEW_SHARE", 1.0)
    monkeypatch.setattr(adaptive, "CLEAR_GAIN", 1.0)
    monkeypatch.setattr(streams, "KEEPING_SECONDS", 0.0)
    monkeypatch.setattr(streams, "PREFIX_SECONDS", 0.0)
    agree(monkeypatch, 80, shaped(), CHANGING, adapts=True)
