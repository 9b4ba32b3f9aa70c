"""Limits on work: `Limits(seconds=)` and `Limits(pairs=)`, and the warnings without them.

Time is a counter here that each look at the clock moves on; one slow test has the real clock.
"""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.errors import LimitError, PatternError
from spark_cep.pattern import all_of, event, no, seq
from spark_cep.udfs.errors import WorkerError, parse_error
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.metrics import format_tree, format_window
from spark_cep.udfs.execution import event_engine, row_engine
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.expressions import BIGINT, Call, Type
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.program import Limits, Order, Plan, Window
from spark_cep.udfs.row_program import Skip
from spark_cep.udfs.rows import search
from spark_cep.udfs.task_clock import TICK_SECONDS, TaskClock, WorkReport
from tests.cases import Case
from tests.local import Pipeline, Setting
from tests.rows.gapped import gap_program
from tests.rows.programs import (
    answer,
    answer_and_metrics,
    compare,
    concat,
    current,
    last,
    number,
    plus,
    program,
    rows_of,
    star,
    v,
)
from tests.test_engine import kinds, pipeline, row, walked

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern
    from spark_cep.udfs.events.engine import EventAdvance

A, B, C = range(3)
Z = 4


@dataclass
class Time:
    """Moves on by `step` whenever somebody looks at it."""

    step: float = 0.0
    seconds: float = 0.0

    def __call__(self) -> float:
        self.seconds += self.step
        return self.seconds


def report() -> WorkReport:
    return WorkReport(
        "seq(a, b)", "partition key [7]", "a has 3 rows", "shorten WITHIN", {"key": [7]}
    )


# ---- the clock ---------------------------------------------------------------------------------


def test_the_clock_stands_still_while_the_answer_is_taken() -> None:
    time = Time()
    clock = TaskClock(now=time)

    def work() -> Any:
        for item in range(3):
            time.seconds += 1
            yield item
        time.seconds += 1
        return "done"

    results, taken = [], []

    def consume() -> Any:
        results.append((yield from clock.running(work())))

    for item in consume():
        taken.append(item)
        time.seconds += 100
    assert results == ["done"]
    assert taken == [0, 1, 2]
    assert clock.seconds == 4


def test_the_clock_is_due_a_few_times_a_second_and_when_the_limit_has_come() -> None:
    time = Time()
    clock = TaskClock(TICK_SECONDS * 1.5, now=time)
    assert not clock.is_due()
    time.seconds = TICK_SECONDS
    assert clock.is_due()
    assert clock.tick() == TICK_SECONDS
    clock.report(0.0, report)
    assert not clock.is_due()
    time.seconds = TICK_SECONDS * 1.5
    assert clock.is_due()
    assert clock.tick() == TICK_SECONDS * 0.5
    with pytest.raises(LimitError) as raised:
        clock.report(0.1, report)
    assert "seconds matching seq(a, b); the limit is" in raised.value.message
    assert raised.value.details["key"] == [7]
    assert raised.value.details["limit"] == "seconds"
    assert raised.value.details["allowed"] == TICK_SECONDS * 1.5


def test_a_warning_comes_after_a_minute_in_one_place_and_after_twice_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = TaskClock(now=Time(step=10))
    with caplog.at_level(logging.WARNING, "spark_cep"):
        for longest in range(0, 500, 10):
            clock.tick()
            clock.report(float(longest), report)
    seconds = [each.args[2] for each in caplog.records if isinstance(each.args, tuple)]
    assert seconds == ["60", "120", "240", "480"]
    assert clock.warnings == 4
    assert "partition key [7]" in caplog.text
    assert "shorten WITHIN" in caplog.text


def test_a_task_of_many_short_keys_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    rows = [row(t, "AB"[t % 2], k=k) for k in range(200) for t in range(4)]
    shipped = pipeline(seq(*kinds("a", "b")), rows, Setting(plan=Plan("lazy-chain"), block_pairs=4))
    clock = TaskClock(now=Time(step=0.2))
    with caplog.at_level(logging.WARNING, "spark_cep"):
        walked(advance_events(shipped.program, EventState(), shipped.table(0), clock=clock))
    assert clock.seconds > 60
    assert not caplog.records


# ---- event patterns ----------------------------------------------------------------------------

# Two windows of one key and one of another, which has most of the rows.
ROWS = [
    *(row(t, "ABC"[t % 3], x=t, k=1) for t in range(6)),
    *(row(100 + t, "ABC"[t % 3], x=t, k=7) for t in range(60)),
    *(row(200 + t, "ABC"[t % 3], x=t, k=7) for t in range(6)),
]


def step_of(
    pattern: Pattern, clock: TaskClock | None = None, setting: Setting | None = None, **limits: Any
) -> EventAdvance:
    setting = setting or Setting(plan=Plan("lazy-chain"), block_pairs=64)
    shipped = Pipeline(Case(pattern, ROWS, ("t", "u")), setting)
    changed = replace(shipped.program, limits=Limits(**limits))
    return advance_events(changed, EventState(), shipped.table(0), clock=clock)


def pattern_of(kind: str) -> Pattern:
    plain = seq(*kinds("a", "b", "c")).where("a.x < b.x", "b.x < c.x").within(99)
    return {
        "plain": plain,
        "list": seq(*kinds("a"), event("b{1,2}", "kind = 'B'"), *kinds("c")).within(99),
        "not": seq(*kinds("a"), no(event("b", "kind = 'B'")), *kinds("c"))
        .where("b.x > a.x + 100").within(99),
        "next": plain.strategy("skip till next match"),
        "strict": plain.strategy("strict"),
        "consume": plain.consumption("consume"),
    }[kind]  # fmt: skip


KINDS = ["plain", "list", "not", "next", "strict", "consume"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_takes_too_long_ends_with_the_key_the_window_and_its_rows(kind: str) -> None:
    pattern = pattern_of(kind)
    limit = 10.0
    with pytest.raises(LimitError) as raised:
        walked(step_of(pattern, TaskClock(limit, now=Time(step=3.0))))
    error = raised.value
    assert error.details["limit"] == "seconds"
    assert error.details["allowed"] == limit
    assert limit <= error.details["reached"] < limit + 9  # type: ignore[operator]
    assert "cep.Limits(seconds=100)" in str(error.hint)


def test_the_message_says_what_explains_the_time() -> None:
    with pytest.raises(LimitError) as raised:
        walked(step_of(pattern_of("plain"), TaskClock(50.0, now=Time(step=1.0))))
    error = raised.value
    assert error.details["key"] == [7]
    assert error.details["rows"] == {"a": 20, "b": 20, "c": 20}
    assert error.details["start"] == "100"
    assert "matching seq(a, b, c); the limit is 50. It spent" in error.message
    assert "on partition key [7], in the window of 99 from 100 on: a has 20 rows" in error.message
    assert "pairs were tested by the task" in error.message
    assert "shorten WITHIN" in str(error.hint)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", ["eager", "lazy-chain", "tree", "zstream"])
def test_limits_that_are_not_reached_change_nothing(kind: str, plan: Any) -> None:
    def given(step: EventAdvance) -> Counter[Any]:
        return Counter(
            tuple((v, tuple(r[n].ravel().tolist())) for v, r in sorted(found.rows.items()))
            for found in walked(step)
            for n in range(len(found))
        )

    pattern, setting = pattern_of(kind), Setting(plan=Plan(plan), block_pairs=16)
    wanted = given(step_of(pattern, setting=setting))
    found = step_of(pattern, setting=setting, seconds=1e9, pairs=10**12, matches=10**9)
    assert given(found) == wanted
    assert sum(wanted.values()) > 0
    slow = step_of(pattern, TaskClock(1e9, now=Time(step=1.0)), setting, pairs=10**12)
    assert given(slow) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_limited_for_each_key_and_window(kind: str) -> None:
    pattern = pattern_of(kind)
    free = step_of(pattern)
    walked(free)
    total = free.metrics.pairs
    walked(step_of(pattern, pairs=total))
    with pytest.raises(
        LimitError, match=r"partition key \[7\] has .* pairs of a partial match"
    ) as e:
        walked(step_of(pattern, pairs=total // 8))
    assert e.value.details["limit"] == "pairs"
    assert e.value.details["rows"] == {v: 20 for v in e.value.details["rows"]}  # type: ignore[attr-defined]
    assert total // 8 < e.value.details["reached"] <= total  # type: ignore[operator]
    assert f"cep.Limits(pairs={total // 8 * 10})" in str(e.value.hint)


def test_windows_that_each_stay_below_the_limit_of_pairs_pass() -> None:
    # An a and five b in each of ten windows: 50 pairs in all, but never more than 5 in one.
    rows = [row(100 * w + t, "AB"[t > 0]) for w in range(10) for t in range(6)]
    shipped = pipeline(seq(*kinds("a", "b")).within(50), rows)

    def run_with(pairs: int) -> EventAdvance:
        changed = replace(shipped.program, limits=Limits(pairs=pairs))
        step = advance_events(changed, EventState(), shipped.table(0))
        walked(step)
        return step

    assert run_with(5).metrics.pairs == 50
    with pytest.raises(LimitError, match="has 5 pairs of a partial match and a row that begin"):
        run_with(4)


def test_the_error_leaves_the_worker_as_text_that_gives_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped = pipeline(seq(*kinds("a", "b")), ROWS)
    limited = replace(shipped.program, limits=Limits(seconds=5))
    monkeypatch.setattr(
        event_engine,
        "TaskClock",
        lambda limit, stopped: TaskClock(limit, now=Time(step=3.0), stopped=stopped),
    )
    output = EventOutput("all", limited.orders[0].column, row=(Field(0, "t"),))
    with pytest.raises(WorkerError) as caught:
        list(run(limited, output, iter(shipped.table(0).to_batches()), bucket=0))
    error = parse_error(f"Traceback:\n{caught.value}\nJava stack")
    assert isinstance(error, LimitError)
    assert error.details["limit"] == "seconds"
    assert error.details["key"] == [7]


# ---- row patterns ------------------------------------------------------------------------------


def never_ends(**limits: Any) -> Any:
    """Tries every way to divide the rows of a partition between A and B."""
    differs = compare(">", Call("-", (current(), last([A])), BIGINT), number(1000))
    return program(concat(plus(v(A)), plus(v(B)), v(C)), {C: differs}, limits=Limits(**limits))


def ticking(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    monkeypatch.setattr(search, "CALL_STEPS", 10)
    monkeypatch.setattr(
        row_engine,
        "TaskClock",
        lambda limit, stopped: TaskClock(limit, now=Time(step=step), stopped=stopped),
    )


def test_a_search_that_only_goes_forward_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, step=1.0)
    with pytest.raises(WorkerError) as raised:
        answer(program(plus(v(A)), limits=Limits(seconds=3)), rows_of(*[1] * 1000))
    error = parse_error(str(raised.value))
    assert isinstance(error, LimitError)
    assert error.details["limit"] == "seconds"
    assert error.details["row"] == 0
    assert error.details["rows"]["A"] < 100  # type: ignore[index]


def test_a_search_that_takes_too_long_names_key_row_and_repetitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticking(monkeypatch, 1.0)
    rows = [*rows_of(1, key=2), *rows_of(*range(40), key=3)]
    with pytest.raises(WorkerError) as raised:
        answer(never_ends(seconds=60), rows)
    error = parse_error(str(raised.value))
    assert isinstance(error, LimitError)
    assert error.details["limit"] == "seconds"
    assert error.details["key"] == [3]
    assert error.details["steps"] > 100  # type: ignore[operator]
    assert set(error.details["rows"]) <= {"A", "B"}  # type: ignore[call-overload]
    assert "partition key [3], now in the search for a match that begins at row" in error.message
    assert (
        "steps of the matcher in a partition of 40 rows; the path under test has A" in error.message
    )
    assert "bound the repetitions" in str(error.hint)


def test_a_search_without_a_limit_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticking(monkeypatch, 1.0)
    with caplog.at_level(logging.WARNING, "spark_cep"):
        _, metrics = answer_and_metrics(never_ends(), rows_of(*range(40), key=3))
    assert len(caplog.records) >= 1
    assert "matching the row pattern of A, B, C" in caplog.text
    assert metrics["slow_tasks"] == 1
    assert metrics["longest_task_us"] > 60_000_000


def test_joins_over_gaps_take_no_longer_either(monkeypatch: pytest.MonkeyPatch) -> None:
    ticking(monkeypatch, 1.0)
    never = compare(">", Call("-", (current(), last([A])), BIGINT), number(100))
    case = gap_program(concat(v(A), star(v(Z)), v(B)), {B: never}, skip=Skip("next row"))
    case = replace(case, matcher="gaps")
    rows = [row for key in (6, 7) for row in rows_of(*[1, 2] * (10 if key == 6 else 100), key=key)]
    assert answer(replace(case, limits=Limits(seconds=1e6)), rows) == []
    with pytest.raises(WorkerError) as raised:
        answer(replace(case, limits=Limits(seconds=4)), rows)
    error = parse_error(str(raised.value))
    assert isinstance(error, LimitError)
    assert error.details["limit"] == "seconds"
    assert error.details["key"] == [7]


# ---- the option --------------------------------------------------------------------------------


def test_seconds_may_have_a_fraction_and_pairs_may_not() -> None:
    limits = Limits(seconds=0.5, pairs=3)
    assert (limits.seconds, limits.pairs) == (0.5, 3)
    assert pickle.loads(pickle.dumps(limits)) == limits
    for wrong in (0, -1.0, float("nan"), float("inf"), "60", True):
        with pytest.raises(PatternError, match="the limit seconds") as raised:
            Limits(seconds=wrong)  # type: ignore[arg-type]
        assert "a number above 0: cep.Limits(seconds=600), or None" in str(raised.value.hint)


def test_patterns_and_windows_are_named_as_they_are_written() -> None:
    nested = seq(
        "a",
        event("b+", "kind = 'B'"),
        no("x"),
        event("c{2,3}", "kind = 'C'"),
        no(seq("y", all_of("v", "w"))),
        "d",
    ).within(5)
    made = pipeline(nested, [row(1, "A")]).program
    assert format_tree(made, made.tree) == (
        "seq(a, b+, no(x), c{2,3}, no(seq(y, all_of(v, w))), d)"
    )
    for kind, size, wanted in (
        ("timestamp", 600_000_000, "10 minutes"),
        ("timestamp", 1_500_000, "1,500 milliseconds"),
        ("timestamp", 3_600_000_000, "1 hour"),
        ("date", 7, "7 days"),
        ("int", 1000, "1,000"),
    ):
        changed = replace(made, window=Window("time", size), orders=(Order(0, Type(kind)),))  # type: ignore[arg-type]
        assert format_window(changed) == wanted
    assert format_window(replace(made, window=Window("events", 20))) == "20 rows"


# ---- the real clock ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["skip till any match", "skip till next match"])
def test_a_window_of_a_million_candidates_ends_soon_after_the_limit(strategy: Any) -> None:
    pattern = seq(*kinds("a", "b")).where("a.x > b.x").within(10**9).strategy(strategy)
    shipped = pipeline(pattern, [row(1, "A")])
    size = 1_000_000
    table = shipped.table(0)
    values = np.random.default_rng(7).integers(0, 1000, size)
    values[1::2] += 1000  # no row of b lies below one of a, so each start searches to the end
    columns = {
        field.name: pa.array(values).cast(field.type)
        if pa.types.is_integer(field.type)
        else pa.nulls(size, field.type)
        for field in table.schema
    }
    for place, column in (
        *((key, np.zeros(size, np.int64)) for key in shipped.program.keys),
        (shipped.program.orders[0].column, np.arange(size)),
        (shipped.program.mask, 1 + np.arange(size) % 2),
    ):
        name = shipped.program.columns[place]
        columns[name] = pa.array(column).cast(table.schema.field(name).type)
    changed = replace(shipped.program, limits=Limits(seconds=2, partial_matches=None, matches=None))
    started = perf_counter()
    with pytest.raises(LimitError, match="the limit is 2") as raised:
        for _ in advance_events(changed, EventState(), pa.table(columns)).matches:
            pass
    assert 2 <= perf_counter() - started < 10
    assert raised.value.details["rows"] == {"a": size // 2, "b": size // 2}
