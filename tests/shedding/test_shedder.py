"""When a worker learns what rows are worth, and what it does with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep.pattern import event, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.shedding.learning import RowSample, learn_model, statistics_of
from spark_cep.udfs.shedding.pace import TriggerArrival
from spark_cep.udfs.shedding.shedder import (
    IDLE_LEARNING_SHARE,
    LEAST_ROWS_UNDER_LOAD,
    MANY_ROWS,
    Admission,
    Shedder,
)
from spark_cep.udfs.shedding.utility import StreamSheddingSpec
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    import pyarrow as pa

PATTERN = seq(event("a", "kind = 0"), event("b", "kind = 1")).where("b.x > a.x + 1").within(50)
KEEP = StreamSheddingSpec(0.3, None, None, "utility", 0.8, 0, 1)
LATENCY = replace(KEEP, keep=None, latency=10.0)


def rows(count: int, *, begin: int = 0, middle: float = 0.0, seed: int = 0) -> Prepared:
    random = np.random.default_rng(seed)
    columns = {
        "t": np.arange(begin, begin + count),
        "kind": np.arange(count) % 2,
        "x": random.normal(middle, 1.0, count),
    }
    return prepare(PATTERN, columns)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def shedder(spec: StreamSheddingSpec, clock: Clock | None = None) -> Shedder:
    return Shedder(spec, rows(10).program, clock or Clock())


def come(each: Shedder, table: pa.Table, trigger: int, seconds: float = 0.0) -> Admission:
    """A trigger of the only bucket, which takes so long."""
    assert isinstance(each.clock, Clock)
    turn = each.turn(
        0, str(trigger), TriggerArrival(each.clock.now, table.num_rows), table.num_rows
    )
    admitted = each.admit(turn, table)
    each.clock.now += seconds
    each.record(turn, admitted, seconds)
    each.learn_if_idle(turn, seconds)
    return admitted


def mean_worth(each: Shedder, table: pa.Table, variable: int) -> float:
    """Of the rows as one variable, relative to the mean of those that it was learnt from."""
    assert each.known is not None
    roles = each.known.ways[1].utilities.roles
    role = next(role for role in roles if role.variable == variable)
    return float(role.of_rows(table).mean() / role.scale)


def test_too_few_rows_are_not_learnt_from_and_then_any_rows_go() -> None:
    each = shedder(replace(KEEP, policy="darling"))
    admitted = come(each, rows(LEAST_ROWS_UNDER_LOAD - 100).table, 1)
    assert each.known is None
    assert admitted.shed == {"a": [60, 140], "b": [60, 140]}
    assert admitted.recall is None
    each = shedder(KEEP)
    assert sum(kept for kept, _ in come(each, rows(400).table, 1).shed.values()) == 120


def test_rows_of_several_triggers_are_learnt_from_together() -> None:
    each = shedder(KEEP)
    come(each, rows(LEAST_ROWS_UNDER_LOAD // 2).table, 1)
    assert each.known is None
    come(each, rows(LEAST_ROWS_UNDER_LOAD // 2, begin=500, seed=1).table, 2)
    assert each.known is not None


def test_what_was_learnt_decides_what_stays() -> None:
    each = shedder(KEEP)
    come(each, rows(4000).table, 1)
    prepared = rows(4000, begin=4000, seed=1)
    admitted = come(each, prepared.table, 2)
    column = prepared.program.conditions[0].expression.children()[0].column  # type: ignore[attr-defined]
    kind = np.arange(4000) % 2
    stays = np.isin(prepared.table.column(0).to_numpy(), admitted.rows.column(0).to_numpy())
    values = prepared.table.column(column).to_numpy(zero_copy_only=False)
    # Of the b the highest, of the a the lowest.
    assert values[(kind == 1) & stays].min() > np.quantile(values[(kind == 1)], 0.45)
    assert admitted.recall > 0.3  # at random 0.09


def test_it_is_learnt_once_while_values_stay_what_they_were() -> None:
    each = shedder(KEEP)
    for trigger in range(1, 9):
        come(each, rows(5000, begin=5000 * trigger, seed=trigger).table, trigger)
    assert each.learnings <= 3


def test_what_has_drifted_is_learnt_again() -> None:
    clock = Clock()
    each = shedder(replace(KEEP, keep=1.0), clock)
    for trigger in range(1, 5):
        come(each, rows(20_000, begin=20_000 * trigger, seed=trigger).table, trigger)
        clock.now += 100.0
    before = each.learnings
    moved = rows(20_000, begin=200_000, middle=5.0, seed=7)
    assert mean_worth(each, moved.table, 1) > 1.5
    come(each, moved.table, 5)
    assert each.learnings == before + 1
    assert mean_worth(each, moved.table, 1) == pytest.approx(1.0, abs=0.1)


def test_learning_takes_little_of_the_time_in_which_nothing_has_to_be_dropped() -> None:
    """Values that drift all the time are not learnt all the time."""
    clock = Clock()
    each = shedder(replace(KEEP, keep=1.0), clock)

    def learn(_: pa.Table) -> None:
        Shedder._learn_from(each, _)
        clock.now += 0.1

    each._learn_from = learn  # type: ignore[method-assign]
    for trigger in range(1, 201):
        clock.now += 0.5
        moved = rows(4_000, begin=20_000 * trigger, middle=5.0 * (trigger % 2), seed=trigger)
        come(each, moved.table, trigger)
    most = IDLE_LEARNING_SHARE * (clock.now - 1000.0)
    assert 0.5 * most < 0.1 * each.learnings <= most


def test_a_history_is_known_from_the_first_row_on() -> None:
    past = rows(20_000)
    rows_of_the_past = RowSample(past.table)
    learnt = learn_model(past.program, rows_of_the_past, "utility", TYPICAL_COSTS)
    known = statistics_of(past.program, rows_of_the_past, learnt, TYPICAL_COSTS)
    each = shedder(replace(KEEP, known=known))
    admitted = come(each, rows(200, begin=20_000, seed=1).table, 1)
    assert each.learnings == 0
    assert admitted.recall > 0.3  # at random 0.09
    # Values that differ from the history's are noticed, too.
    come(each, rows(2000, begin=30_000, middle=5.0).table, 2)
    assert each.learnings == 1


def test_learning_waits_for_time() -> None:
    each = shedder(LATENCY)
    come(each, rows(MANY_ROWS - 1).table, 1, seconds=7.5)
    assert each.learnings == 0
    come(each, rows(MANY_ROWS - 1, begin=MANY_ROWS).table, 2, seconds=0.1)
    assert each.learnings == 1


def test_a_first_trigger_with_many_rows_is_learnt_from_before_it_is_begun() -> None:
    each = shedder(LATENCY)
    turn = each.turn(0, "1", TriggerArrival(1000.0, MANY_ROWS), MANY_ROWS)
    each.admit(turn, rows(MANY_ROWS).table)
    assert each.learnings == 1


def test_the_bound_holds_when_a_row_takes_ten_times_as_long_as_before() -> None:
    """Not in the trigger in which that begins, nor in the one that shows what dropping rows saves,
    but from the next one on."""
    clock = Clock()
    each = shedder(LATENCY, clock)
    seconds = 0.0
    for trigger in range(1, 12):
        table = rows(200_000, begin=200_000 * trigger, seed=trigger).table
        row = 10e-6 if trigger < 5 else 100e-6
        turn = each.turn(0, str(trigger), TriggerArrival(clock.now, table.num_rows), table.num_rows)
        admitted = each.admit(turn, table)
        share = admitted.rows.num_rows / table.num_rows
        part = max(each.work_part(share), share**2)
        seconds = 0.003 + admitted.rows.num_rows * 1.5e-6 + table.num_rows * row * part
        clock.now += seconds
        each.record(turn, admitted, seconds)
        if trigger < 5:
            assert share == 1.0
        if trigger > 6:
            assert seconds < 8.0
            assert share < 0.8
    assert seconds > 4.0


def test_rows_a_second_are_those_since_the_trigger_before() -> None:
    clock = Clock()
    each = shedder(replace(KEEP, keep=None, rows_per_second=100.0), clock)
    kept = []
    for trigger, pause in enumerate((0.0, 2.0, 5.0), 1):
        clock.now += pause
        kept.append(come(each, rows(1000, begin=1000 * trigger).table, trigger).rows.num_rows)
    assert kept == [100, 200, 500]


def test_a_full_trigger_without_much_time_is_learnt_from_by_few_rows() -> None:
    sizes = []
    for latency in (100.0, 0.6):
        each = shedder(replace(LATENCY, latency=latency))
        turn = each.turn(0, "1", TriggerArrival(1000.0, 4 * MANY_ROWS), 4 * MANY_ROWS)
        each.admit(turn, rows(4 * MANY_ROWS).table)
        assert each.learnings == 1
        sizes.append(each._learnt_rows)
    assert sizes[0] == 4 * MANY_ROWS
    assert sizes[1] == LEAST_ROWS_UNDER_LOAD


def test_learning_again_under_load_needs_the_time_that_it_took_before() -> None:
    learnings = []
    for seconds in (1.0, 9.0):
        each = shedder(LATENCY)
        come(each, rows(MANY_ROWS).table, 1, seconds=0.1)
        each.learning_seconds = seconds
        before = each.learnings
        # So many rows that some have to go, in values that were never there.
        assert isinstance(each.clock, Clock)
        each.clock.now += 100.0
        each._time_model(0).work = 1.0
        come(each, rows(MANY_ROWS, begin=MANY_ROWS, middle=9.0).table, 2, seconds=7.0)
        learnings.append(each.learnings - before)
    assert learnings == [1, 0]
