"""What the engine does beside giving the answer: how much it looks at, what it keeps, when it
stops."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.errors import LimitError, PatternError
from spark_cep.pattern import Pattern, event, no, seq
from spark_cep.udfs.canonical import event_program, fingerprint
from spark_cep.udfs.errors import WorkerError, parse_error
from spark_cep.udfs.events import engine
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.execution.worker import run
from spark_cep.udfs.output import EventOutput, Field
from spark_cep.udfs.program import BranchPlan, Limits, Plan
from spark_cep.udfs.remote_spec import RemoteSpec
from tests.cases import Case
from tests.local import Pipeline, Setting
from tests.programs import prepare

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import MatchSet
    from spark_cep.udfs.events.engine import EventAdvance
    from spark_cep.udfs.program import Program

LAZY = Setting(plan=Plan("lazy-chain"))


def row(t: int, kind: str, x: int = 0, k: int = 1) -> dict[str, object]:
    return {"t": t, "u": 100 * k + t, "k": k, "x": x, "f": 0.0, "kind": kind}


def kinds(*names: str) -> list[Pattern]:
    return [event(name, f"kind = '{name.upper()}'") for name in names]


def pipeline(pattern: Pattern, rows: list[dict[str, object]], setting: Setting = LAZY) -> Pipeline:
    return Pipeline(Case(pattern, rows), setting)


def walked(step: EventAdvance) -> list[MatchSet]:
    return list(step.matches)


def pairs(pattern: Pattern, rows: list[dict[str, object]], setting: Setting = LAZY) -> int:
    shipped = pipeline(pattern, rows, setting)
    step = advance_events(shipped.program, EventState(), shipped.table(0))
    walked(step)
    return step.metrics.pairs


# ---- how much is looked at ---------------------------------------------------------------------

MANY_A_ONE_C = [*(row(t, "A", x=t % 5) for t in range(50)), row(50, "C", x=3)]


def test_the_lazy_chain_looks_at_fewer_pairs_than_the_eager_one() -> None:
    rows = [row(t, "ABC"[(t % 7 == 0) + (t % 49 == 0)]) for t in range(98)]
    pattern = seq(*kinds("a", "b", "c")).within(60)
    assert pairs(pattern, rows) < pairs(pattern, rows, Setting(plan=Plan("eager"))) / 2


def test_an_equality_is_looked_up_not_tried() -> None:
    pattern = seq(*kinds("a", "c"))
    assert pairs(pattern, MANY_A_ONE_C) == 50
    assert pairs(pattern.where("a.x = c.x"), MANY_A_ONE_C) == 10


@pytest.mark.parametrize(
    "bound", ["c.t <= a.t + 5", "a.t >= c.t - 5", "c.t - a.t <= 5", "5 >= c.t - a.t"]
)
def test_a_bound_on_the_time_between_two_variables_narrows_the_scope(bound: str) -> None:
    assert pairs(seq(*kinds("a", "c")).where(bound), MANY_A_ONE_C) == 5


def test_a_walk_begins_at_what_is_new_where_that_is_little() -> None:
    # The plan binds c last; one c is new.
    rows = [row(t, "ABC"[t % 3], x=t // 3) for t in range(300)]
    pattern = seq(*kinds("a", "b", "c")).where("b.x = c.x").within(300)
    plan = Plan("lazy-chain", (BranchPlan(((0, 1), 2)),))
    shipped = pipeline(pattern, rows, Setting(plan=plan))
    first = advance_events(shipped.program, EventState(), shipped.table(0).slice(0, 299), 298)
    walked(first)
    second = advance_events(shipped.program, first.state, shipped.table(0).slice(299), 299)
    walked(second)
    assert first.metrics.pairs > 4_000
    assert second.metrics.pairs < first.metrics.pairs / 10


# ---- limits ------------------------------------------------------------------------------------


def limited(program: Program, **limits: int) -> Program:
    return replace(program, limits=Limits(**limits))


def test_too_many_partial_matches_name_the_key_and_the_counts() -> None:
    rows = [row(t, "B", k=7) for t in range(40)]
    shipped = pipeline(seq(event("b+", "kind = 'B'")), rows)
    step = advance_events(
        limited(shipped.program, partial_matches=1000), EventState(), shipped.table(0)
    )
    with pytest.raises(
        LimitError, match=r"partition key \[7\] has .* partial matches, from 0 on"
    ) as caught:
        walked(step)
    assert caught.value.details["key"] == [7]
    assert caught.value.details["reached"] > 1000  # type: ignore[operator]
    assert "cep.Limits(partial_matches=" in str(caught.value.hint)


def test_too_many_matches_are_counted_for_each_key_and_window() -> None:
    # Ten windows of 5 matches each: 50 in all, but never more than 5 at once.
    rows = [row(100 * w + t, "AB"[t == 5]) for w in range(10) for t in range(6)]
    shipped = pipeline(seq(*kinds("a", "b")).within(50), rows)
    assert (
        len(
            walked(
                advance_events(limited(shipped.program, matches=5), EventState(), shipped.table(0))
            )
        )
        > 0
    )
    step = advance_events(limited(shipped.program, matches=4), EventState(), shipped.table(0))
    with pytest.raises(LimitError, match="5 matches that begin within one window"):
        walked(step)


def test_an_error_leaves_the_worker_as_text_that_gives_it_back() -> None:
    rows = [row(t, "B", k=7) for t in range(40)]
    shipped = pipeline(seq(event("b+", "kind = 'B'")), rows)
    program = limited(shipped.program, partial_matches=1000)
    output = EventOutput("all", program.orders[0].column, row=(Field(0, "t"),))
    with pytest.raises(WorkerError) as caught:
        list(run(program, output, iter(shipped.table(0).to_batches()), bucket=0))
    error = parse_error(f"Traceback (most recent call last):\n{caught.value}\nJava stack")
    assert isinstance(error, LimitError)
    assert error.details["key"] == [7]


def test_consuming_refuses_tied_order_keys() -> None:
    pattern = seq(*kinds("a", "b")).consumption("consume")
    shipped = pipeline(pattern, [row(1, "A"), row(1, "B"), row(2, "B")])
    with pytest.raises(PatternError, match="equal order keys at 1"):
        walked(advance_events(shipped.program, EventState(), shipped.table(0)))


@pytest.mark.parametrize("chunk", [1, 3, 1_000])
def test_matches_are_taken_in_order_however_many_are_tried_at_once(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_TAKEN_AT_ONCE", chunk)
    random = np.random.default_rng(chunk)
    for _ in range(50):
        lengths = random.integers(1, 4, 20)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = random.integers(0, 25, offsets[-1])
        ranked = random.permutation(20)
        used = random.random(25) < 0.1
        expected, busy = [], set(np.flatnonzero(used))
        for match in ranked:
            needed = set(rows[offsets[match] : offsets[match + 1]])
            if not needed & busy:
                busy |= needed
                expected.append(match)
        taken = np.zeros(20, np.bool_)
        engine._take_in_order(ranked, (rows, offsets), used, taken)
        assert np.flatnonzero(taken).tolist() == sorted(expected)
        assert np.flatnonzero(used).tolist() == sorted(busy)


# ---- what is kept ------------------------------------------------------------------------------


def kept(pattern: Pattern, horizon: int) -> int:
    rows = [row(t, "AB"[t % 2]) for t in range(100)]
    shipped = pipeline(pattern, rows)
    step = advance_events(shipped.program, EventState(), shipped.table(0), horizon)
    walked(step)
    assert step.state.events is not None
    return int(step.state.events.num_rows)


def test_the_state_keeps_one_window_of_events() -> None:
    assert kept(seq(*kinds("a", "b")).within(10), horizon=99) == 10


def test_a_trailing_not_keeps_the_window_that_is_awaited() -> None:
    pattern = seq(*kinds("a", "b"), event("!c", "kind = 'C'")).within(10)
    assert kept(pattern, horizon=99) == 10


def test_nots_at_both_ends_keep_the_window_before_it_too() -> None:
    pattern = seq(event("!d", "kind = 'D'"), *kinds("a", "b"), event("!c", "kind = 'C'"))
    assert kept(pattern.within(10), horizon=99) == 20


def test_runs_keep_rows_from_the_first_start_that_is_open() -> None:
    # Every a finds its b in the next row, so at an even row nothing is open but that row.
    pattern = seq(*kinds("a", "b")).within(10).strategy("skip till next match")
    assert kept(pattern, horizon=99) == 0
    assert kept(pattern, horizon=98) == 1 + 1


def test_rows_beyond_the_horizon_wait_where_a_row_before_them_could_matter() -> None:
    pattern = seq(*kinds("a"), event("!c", "kind = 'C'"), *kinds("b")).within(10)
    assert kept(pattern, horizon=49) == 10 + 50


# ---- the horizon and the fingerprint ------------------------------------------------------------


@pytest.mark.parametrize(("after", "count"), [(event("b", "kind = 1"), 1), (no("b"), 0)])
def test_a_row_after_the_horizon_whose_distance_rounds_to_the_window_is_in_it(
    after: Pattern, count: int
) -> None:
    times = np.array([-1e6, 1e-12])
    pattern = seq(event("a", "kind = 0"), after).within(1_000_000)
    prepared = prepare(pattern, {"t": times, "kind": np.array([0, 1])})
    first = advance_events(prepared.program, EventState(), prepared.table.slice(0, 1), 0.0)
    found = walked(first)
    found += walked(advance_events(prepared.program, first.state, prepared.table.slice(1), None))
    assert sum(len(each) for each in found) == count


def fingerprint_of(program: Program) -> str:
    return fingerprint(event_program(program))


def test_of_a_remote_source_only_what_conditions_say_is_in_the_fingerprint() -> None:
    program = pipeline(seq(*kinds("a", "b")).within(10), [row(1, "A")]).program
    remote = RemoteSpec("limits", len, (pa.string(),), pa.float64(), token="one")  # type: ignore[arg-type]
    asking = replace(program, remotes=(remote,))
    other = replace(remote, fetch=max, strategy="hybrid", token="two", ttl=1.0)  # type: ignore[arg-type]
    assert fingerprint_of(replace(program, remotes=(other,))) == fingerprint_of(asking)
    assert fingerprint_of(asking) != fingerprint_of(program)
    wider = replace(remote, value=pa.string())
    assert fingerprint_of(replace(program, remotes=(wider,))) != fingerprint_of(asking)


def test_a_change_of_plan_or_limits_keeps_the_fingerprint() -> None:
    program = pipeline(seq(*kinds("a", "b")).within(10), [row(1, "A")]).program
    changed = replace(program, plan=Plan("eager"), limits=Limits(matches=3), block_pairs=7)
    assert fingerprint_of(changed) == fingerprint_of(program)


@pytest.mark.parametrize(
    "pattern",
    [
        seq(*kinds("a", "b")).within(10),
        seq(*kinds("a"), no(seq(*kinds("c", "d"))), *kinds("b")).within(10),
    ],
)
def test_an_advance_is_freed_when_nothing_refers_to_it(pattern: Pattern) -> None:
    """A cycle would keep its rows until Python collects it, while the next one needs the memory."""
    random = np.random.default_rng(1)
    columns = {"t": np.arange(60), "kind": random.choice(list("ABCD"), 60)}
    prepared = prepare(pattern, columns)
    gc.collect()
    gc.disable()
    try:
        step = advance_events(prepared.program, EventState(), prepared.table)
        assert sum(len(matches) for matches in step.matches)
        events = weakref.ref(step.events)
        del step
        assert events() is None
    finally:
        gc.enable()
