"""Cuts that pay: at changes of rates, in time and between slices; and every cut gives the matches
of one advance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_cep import Pattern, all_of, event, no, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.chunks import Chunk, cut_chunks
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.planning.planner import branch_models, generate_plans
from spark_cep.udfs.program import Adaptation, BranchPlan, Plan
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep.udfs.program import Program

MODULE = "spark_cep.udfs.events.chunks"
A, B, C = (event(name, f"kind = {number}") for number, name in enumerate("abc"))
STEEP = ("a.x < b.x - 0.9", "b.x < c.x - 0.9")
RARE_A, RARE_C = (0.2, 100, 100), (100, 100, 0.2)
ADAPTS = [Adaptation("invariants", distance="auto"), Adaptation("always")]


def columns(phases: Sequence[Sequence[float]], rows: int, keys: int = 1) -> dict[str, Any]:
    """So many rows of each phase, one a tick, with these shares of the kinds."""
    random = np.random.default_rng(1)
    kinds = [random.choice(3, size=rows, p=np.array(p) / sum(p)) for p in phases]
    size = rows * len(phases)
    return {
        "t": np.arange(size),
        "kind": np.concatenate(kinds),
        "x": random.random(size),
        "key": random.integers(0, keys, size),
    }


def planned(prepared: Prepared, adaptation: Adaptation, sample: int = 10_000) -> Program:
    """As the driver plans: from the first rows."""
    program = prepared.program
    estimates = estimate_from_table(program, prepared.table.slice(0, sample))
    assert estimates is not None
    made = generate_plans("lazy-chain", branch_models(program), estimates, TYPICAL_COSTS)
    plan = Plan("lazy-chain", tuple(BranchPlan(each.shape) for each in made))
    return replace(program, plan=plan, estimates=estimates, adaptation=adaptation)


def sliced(prepared: Prepared, length: int, window: int) -> Prepared:
    """As Spark slices: every row in its own slice, rows within a window of a slice in that too."""
    time = prepared.times()
    reach = [time // length, (time + window) // length, (time - window) // length]
    own, home = np.concatenate(reach), np.repeat([True, False, False], len(time))
    kept = np.flatnonzero(home | (own != np.tile(time // length, 3)))
    rows = pa.array(np.tile(np.arange(len(time)), 3)[kept])
    table = prepared.table.take(rows).append_column("slice", pa.array(own[kept]))
    table = table.append_column("home", pa.array(home[kept]))
    names = tuple(table.column_names)
    program = replace(
        prepared.program, columns=names, keys=(*prepared.program.keys, len(names) - 2),
        home=len(names) - 1,
    )  # fmt: skip
    return Prepared(program, table)


def found(program: Program, chunks: Sequence[Chunk]) -> tuple[Counter[tuple[Any, ...]], int]:
    """The matches by the event times of their rows, and the pairs that were tested for them."""
    loop = AdaptiveEngine(program)
    matches: Counter[tuple[Any, ...]] = Counter()
    for step, each in loop.run(chunks):
        times = [step.events.time[rows].tolist() for rows in each.rows.values()]
        matches.update(zip(*times, strict=True))
    return matches, loop.metrics.pairs


def at_phases(prepared: Prepared, rows: int) -> list[Chunk]:
    """The best cuts: where the phases change."""
    size = prepared.table.num_rows
    starts = range(0, size, rows)
    return [
        Chunk(
            prepared.table.slice(start, rows),
            None if start + rows >= size else start + rows - 1,
            has_changed=start > 0,
        )
        for start in starts
    ]


# ---- cuts that pay -----------------------------------------------------------------------------


def test_a_small_bucket_follows_rates_that_leave_those_of_the_sample() -> None:
    prepared = prepare(
        seq(A, B, C).where(*STEEP).within(200), columns([RARE_C, *4 * [RARE_A]], 10_000)
    )
    program = planned(prepared, ADAPTS[0])
    chunks = list(cut_chunks(program, prepared.table))
    assert 1 < len(chunks) <= 3
    whole, fixed = found(replace(program, adaptation=Adaptation()), [Chunk(prepared.table)])
    matches, pairs = found(program, chunks)
    assert matches == whole
    assert pairs < fixed / 27
    best = [prepared.table.slice(0, 10_000), prepared.table.slice(10_000)]
    ends = [Chunk(best[0], 9_999), Chunk(best[1], has_changed=True)]
    assert pairs < 1.1 * found(program, ends)[1]


@pytest.mark.parametrize("adaptation", ADAPTS)
def test_slices_are_cut_where_rates_change(adaptation: Adaptation) -> None:
    plain = prepare(
        seq(A, B, C).where(*STEEP).within(200), columns([(40, 40, 1), (1, 40, 40)], 41_600)
    )
    program = planned(plain, adaptation)
    prepared = sliced(plain, 3_200, 200)
    program = replace(
        prepared.program, plan=program.plan, estimates=program.estimates, adaptation=adaptation
    )
    chunks = list(cut_chunks(program, prepared.table))
    assert len(chunks) == 2
    assert all(chunk.fresh for chunk in chunks)
    whole, fixed = found(replace(program, adaptation=Adaptation()), [Chunk(prepared.table)])
    matches, pairs = found(program, chunks)
    assert matches == whole
    best = found(planned(plain, adaptation), at_phases(plain, 41_600))
    assert matches == best[0]
    assert pairs < 1.2 * best[1]
    assert pairs < fixed / 5


def test_a_task_that_lacks_slices_is_not_cut_for_that() -> None:
    plain = prepare(seq(A, B, C).where(*STEEP).within(200), columns([(40, 40, 1)], 80_000))
    program = planned(plain, ADAPTS[0])
    prepared = sliced(plain, 1_000, 200)
    slices = prepared.table.column("slice").to_numpy()
    some = prepared.table.take(pa.array(np.flatnonzero(slices * 7919 % 10 < 3)))
    program = replace(
        prepared.program, plan=program.plan, estimates=program.estimates, adaptation=ADAPTS[0]
    )
    assert len(list(cut_chunks(program, some))) == 1


def test_a_bucket_with_little_work_is_not_cut() -> None:
    prepared = prepare(seq(A, B, C).where(*STEEP).within(20), columns([RARE_C, RARE_A], 5_000))
    assert len(list(cut_chunks(planned(prepared, ADAPTS[0], 2_000), prepared.table))) == 1


def test_a_change_that_no_plan_gains_from_is_not_cut() -> None:
    prepared = prepare(
        seq(A, B, C).where(*STEEP).within(200), columns([(40, 40, 1), (80, 10, 1)], 25_000)
    )
    assert len(list(cut_chunks(planned(prepared, ADAPTS[0]), prepared.table))) == 1


def test_keys_are_counted_in_a_window_of_each() -> None:
    pattern = seq(A, B, C).where(*STEEP).within(5_000)
    prepared = prepare(
        pattern, columns([RARE_C, *4 * [RARE_A]], 10_000, keys=10), partition_by=["key"]
    )
    program = planned(prepared, ADAPTS[0])
    chunks = list(cut_chunks(program, prepared.table))
    assert len(chunks) == 2
    whole, fixed = found(replace(program, adaptation=Adaptation()), [Chunk(prepared.table)])
    matches, pairs = found(program, chunks)
    assert matches == whole
    assert pairs < fixed / 5


# ---- every cut gives the same matches ----------------------------------------------------------


PATTERNS: list[Pattern] = [
    seq(A, B, C).where("a.x < b.x"),
    seq(A, no(B), C).where("b.x < a.x"),
    all_of(A, B, C).where("a.x < c.x", "b.x < c.x"),
    seq(A, B, no(C)).where("a.x < b.x"),
]
SHARES = st.tuples(*3 * [st.sampled_from([1, 5, 40])])


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    st.sampled_from(PATTERNS),
    st.lists(SHARES, min_size=2, max_size=4),
    st.integers(1, 3),
    st.sampled_from([("slices", 3), ("slices", 12), ("time", 3), ("time", 12), ("events", 4)]),
)
def test_wherever_a_bucket_is_cut_it_has_the_matches_of_one_advance(
    pattern: Pattern, phases: list[tuple[int, ...]], keys: int, cut: tuple[str, int]
) -> None:
    by, window = cut
    assume(by != "events" or pattern is not PATTERNS[-1])  # NOT at the end needs a time
    ended = pattern.within(events=window) if by == "events" else pattern.within(window)
    prepared = prepare(ended, columns(phases, 200, keys), partition_by=["key"] if keys > 1 else [])
    program = planned(prepared, ADAPTS[0], 200)
    whole = found(replace(program, adaptation=Adaptation()), [Chunk(prepared.table)])[0]
    if by == "slices":
        prepared = sliced(prepared, 4 * window, window)
        program = replace(
            prepared.program,
            plan=program.plan,
            estimates=program.estimates,
            adaptation=ADAPTS[0],
        )
    free = {"ADVANCE_SECONDS": -1.0, "CLEAR_GAIN": 1e9, "PLANNING_SHARE": 1e9}
    with patch.multiple(MODULE, MIN_PROFILE_ROWS=1, CHUNK_ROWS=100, **free):
        chunks = list(cut_chunks(program, prepared.table))
    assert len(chunks) > 1
    assert sum(chunk.table.num_rows for chunk in chunks) == prepared.table.num_rows
    assert found(program, chunks)[0] == whole
