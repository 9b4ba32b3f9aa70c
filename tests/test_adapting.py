"""The loop of a worker: where a bucket is cut, what the plan is before each chunk, and that all
of it gives the matches of one advance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_cep import Pattern, event, seq
from spark_cep.udfs.events import adaptive as loop_module
from spark_cep.udfs.events import chunks as chunks_module
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.chunks import Chunk, cut_chunks
from spark_cep.udfs.events.table import Events
from spark_cep.udfs.program import Adaptation, BranchPlan, Estimates, Plan
from tests.programs import Prepared, prepare

RISING = (
    seq(event("a", "kind = 0"), event("b", "kind = 1"), event("c", "kind = 2"))
    .where("a.x < b.x", "b.x < c.x")
    .within(50)
)
INVARIANTS = Adaptation("invariants", distance=0.1)


@pytest.fixture(autouse=True)
def _every_bucket_is_worth_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "REPLANNING_SECONDS", 0.0)


def stream(*phases: Sequence[float], rows: int = 20_000, seed: int = 1) -> Prepared:
    """So many rows of each phase, one a tick, with these shares of the kinds 0, 1 and 2."""
    return prepare(RISING, columns(*phases, rows=rows, seed=seed))


def columns(*phases: Sequence[float], rows: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    kinds = [random.choice(3, size=rows, p=np.array(p) / sum(p)) for p in phases]
    size = rows * len(phases)
    return {"t": np.arange(size), "kind": np.concatenate(kinds), "x": random.random(size)}


def loop(prepared: Prepared, adaptation: Adaptation, **changes: object) -> AdaptiveEngine:
    program = replace(prepared.program, plan=Plan("lazy-chain"), adaptation=adaptation)
    return AdaptiveEngine(replace(program, **changes))  # type: ignore[arg-type]


def matches(adaptive: AdaptiveEngine, pieces: Sequence[Chunk]) -> Counter[tuple[int, ...]]:
    """By event time, which is different in every row."""
    found: Counter[tuple[int, ...]] = Counter()
    for step, each in adaptive.run(pieces):
        times = [step.events.time[each.rows[v]].tolist() for v in (0, 1, 2)]
        found.update(zip(*times, strict=True))
    return found


def cuts(prepared: Prepared, adaptation: Adaptation = INVARIANTS) -> list[Chunk]:
    program = replace(prepared.program, plan=Plan("lazy-chain"), adaptation=adaptation)
    return list(cut_chunks(program, prepared.table))


def test_a_moment_beyond_those_of_python_is_told_as_a_number() -> None:
    times = pa.table({"t": pa.array([0, 1 << 60], pa.timestamp("us"))})
    events: Any = SimpleNamespace(
        table=times, permutation=[0, 1], program=SimpleNamespace(orders=[SimpleNamespace(column=0)])
    )
    assert str(Events.start_of(events, 0)) == "1970-01-01 00:00:00"
    assert Events.start_of(events, 1) == 1 << 60


# ---- where a bucket is cut ---------------------------------------------------------------------


def test_a_bucket_whose_rates_hold_still_is_one_chunk() -> None:
    assert len(cuts(stream((20, 20, 1), rows=60_000))) == 1


def test_a_chunk_ends_where_a_rate_changes() -> None:
    found = cuts(stream((20, 20, 1), (1, 20, 20)))
    assert found[0].table.num_rows == pytest.approx(20_000, rel=0.1)
    assert found[0].horizon == pytest.approx(20_000, rel=0.1)
    assert found[-1].horizon is None
    assert sum(chunk.table.num_rows for chunk in found) == 40_000


def test_a_plan_that_stays_as_it_is_needs_no_cut() -> None:
    assert len(cuts(stream((20, 20, 1), (1, 20, 20)), Adaptation())) == 1


def test_chunks_double_so_that_a_long_bucket_costs_few_advances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 5_000)
    sizes = [chunk.table.num_rows for chunk in cuts(stream((3, 2, 1), rows=80_000))]
    assert sum(sizes) == 80_000
    assert sizes[:3] == pytest.approx([5_000, 10_000, 20_000], rel=0.3)


def test_rows_without_a_time_are_in_some_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 5_000)
    prepared = stream((3, 2, 1))
    place = prepared.program.orders[0].column
    time = prepared.table.column(place).to_numpy()
    some = pa.array(time, mask=time % 7 == 0)
    table = prepared.table.set_column(place, prepared.table.field(place), some)
    found = cuts(replace(prepared, table=table))
    assert len(found) > 1
    assert sum(chunk.table.num_rows for chunk in found) == table.num_rows


@pytest.mark.parametrize("least", [2, 3])
def test_chunks_give_the_matches_of_one_advance(
    monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 1_500)
    prepared = stream((9, 9, 1), (1, 9, 9), rows=6_000)
    pieces = cuts(prepared)
    assert len(pieces) > least
    whole = matches(loop(prepared, Adaptation()), [Chunk(prepared.table)])
    for adaptation in (INVARIANTS, Adaptation("always"), Adaptation("threshold")):
        assert matches(loop(prepared, adaptation), pieces) == whole
    assert len(whole) > 1_000


def test_chunks_of_slices_give_the_matches_of_one_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 2_000)
    prepared = _sliced(stream((9, 9, 1), rows=12_000))
    pieces = cuts(prepared)
    assert len(pieces) > 1
    assert all(chunk.fresh for chunk in pieces)
    whole = matches(loop(prepared, Adaptation()), [Chunk(prepared.table)])
    assert matches(loop(prepared, INVARIANTS), pieces) == whole
    assert matches(loop(stream((9, 9, 1), rows=12_000), INVARIANTS), [
        Chunk(stream((9, 9, 1), rows=12_000).table)
    ]) == whole  # fmt: skip


def _sliced(prepared: Prepared, length: int = 800, window: int = 50) -> Prepared:
    """As Spark slices: every row in its own slice, the last rows of each also in the next."""
    time = prepared.times()
    own = np.concatenate([time // length, (time + window) // length])
    home = np.repeat([True, False], len(time))
    kept = np.flatnonzero(home | (own != np.tile(time // length, 2)))
    rows = pa.array(np.tile(np.arange(len(time)), 2)[kept])
    table = prepared.table.take(rows).append_column("slice", pa.array(own[kept]))
    table = table.append_column("home", pa.array(home[kept]))
    names = tuple(table.column_names)
    program = replace(
        prepared.program, columns=names, keys=(*prepared.program.keys, len(names) - 2),
        home=len(names) - 1,
    )  # fmt: skip
    return Prepared(program, table)


# ---- the plan before each chunk ----------------------------------------------------------------


def test_the_plan_follows_the_rates_of_what_comes() -> None:
    prepared = stream((20, 20, 1), (1, 20, 20))
    adaptive = loop(prepared, INVARIANTS)
    pieces = cuts(prepared)
    matches(adaptive, pieces)
    assert [(s["from"], s["to"]) for s in adaptive.metrics.swaps] == [("c→b→a", "a→b→c")]
    assert adaptive.metrics.plan_checks == len(pieces)
    assert 0 < adaptive.metrics.planning_us < adaptive.metrics.matching_us


def test_a_sample_that_misled_is_corrected_before_the_first_match() -> None:
    prepared = stream((1, 20, 20))
    wrong = Estimates({0: 20.0, 1: 20.0, 2: 1.0}, {}, 100.0)
    shipped = Plan("lazy-chain", (BranchPlan(((2, 1), 0)),))
    adaptive = loop(prepared, INVARIANTS, estimates=wrong, plan=shipped)
    matches(adaptive, [Chunk(prepared.table)])
    assert [(s["from"], s["to"]) for s in adaptive.metrics.swaps] == [("c→b→a", "a→b→c")]
    told = loop(prepared, Adaptation(), estimates=wrong, plan=Plan("eager"))
    matches(told, [Chunk(prepared.table)])
    assert adaptive.metrics.pairs == told.metrics.pairs


def test_a_bucket_with_hardly_any_work_keeps_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "REPLANNING_SECONDS", 1.0)
    prepared = stream((1, 20, 20))
    plan = Plan("lazy-chain", (BranchPlan(((2, 1), 0)),))
    adaptive = loop(prepared, INVARIANTS, plan=plan)
    matches(adaptive, [Chunk(prepared.table)])
    assert adaptive.metrics.swaps == []


def test_a_plan_is_not_changed_where_adapting_is_off() -> None:
    prepared = stream((20, 20, 1), (1, 20, 20))
    adaptive = loop(prepared, Adaptation())
    matches(adaptive, cuts(prepared))
    assert adaptive.metrics.swaps == []
    assert adaptive.metrics.plan_checks == 0


def test_where_the_rare_variable_changes_within_a_chunk_each_partial_match_chooses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "SECONDS_PER_WINDOW", 1e-9)
    # Every 500 ticks another kind is rare: too short for a chunk of its own.
    phases = [(40, 40, 1), (1, 40, 40)] * 10
    prepared = stream(*phases, rows=500)
    adaptive = loop(prepared, replace(INVARIANTS, to_tree=True))
    whole = matches(adaptive, [Chunk(prepared.table)])
    assert [s["to"] for s in adaptive.metrics.swaps] == ["tree"]
    fixed = loop(prepared, INVARIANTS)
    assert matches(fixed, [Chunk(prepared.table)]) == whole
    assert adaptive.metrics.pairs < 0.6 * fixed.metrics.pairs


@pytest.mark.parametrize("pattern", [RISING, seq("a").within(3)])
def test_an_empty_bucket_matches_nothing(pattern: Pattern) -> None:
    prepared = prepare(pattern, columns((1, 1, 1), rows=0, seed=1))
    assert list(loop(prepared, INVARIANTS).run([Chunk(prepared.table)])) == []
