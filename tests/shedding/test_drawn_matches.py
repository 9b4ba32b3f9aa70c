"""Matches that are drawn, where there are too many to count, against those that are counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_cep import Pattern, all_of, any_of, event, no, seq
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.sampling import draw_steps, make_sample_context, make_sampling_walk
from spark_cep.udfs.program import BranchPlan, Plan
from spark_cep.udfs.shedding.matches import MatchSample, sample_matches
from tests.programs import Prepared, prepare
from tests.shedding.counted import counted_matches, share_kept

A, B, C, D = (event(name, f"kind = {number}") for number, name in enumerate("abcd"))
ROWS = 3_000
CHAIN = seq(A, B, C, D).where("a.x < b.x", "b.x < c.x", "c.x < d.x").within(120)
SELECTIVE = seq(A, B, C).where("a.x + 0.9 < b.x", "abs(c.x - b.x) < 0.01").within(400)
PATTERNS = [
    CHAIN,
    SELECTIVE,
    all_of(A, B, C).where("abs(a.x - b.x) < 0.2", "b.x < c.x").within(60),
    any_of(seq(A, B).where("a.x < b.x - 0.3"), seq(C, D).where("c.x < d.x - 0.6")).within(90),
    seq(A, no(event("n", "kind = 2")), B).where("a.x < b.x").within(40),
]


def prepared_of(pattern: Pattern, rows: int = ROWS) -> Prepared:
    random = np.random.default_rng(4)
    kind, x = random.integers(0, 4, rows), random.random(rows)
    return prepare(pattern, {"t": np.arange(rows), "kind": kind, "x": x})


def sampled(prepared: Prepared, pairs: int) -> MatchSample:
    matching = make_sample_context(prepared.program, prepared.table)
    orders = [list(range(len(branch.slots))) for branch in prepared.program.branches]
    return sample_matches(matching, orders, pairs)


def some(prepared: Prepared) -> list[np.ndarray]:
    """Flags of rows that stay: by chance, and the upper ones by value."""
    rows = prepared.table.num_rows
    x = next(each for each in prepared.table.columns if each.type == "double")
    values = x.to_numpy()
    return [np.random.default_rng(1).random(rows) < 0.7, values > 0.3]


@pytest.mark.parametrize("pattern", [CHAIN, SELECTIVE, PATTERNS[2]])
def test_steps_have_as_many_partial_matches_as_there_are(pattern: Pattern) -> None:
    """The weights are numbers of partial matches: of all that are tested, and that pass."""
    prepared = prepared_of(pattern)
    matching = make_sample_context(prepared.program, prepared.table)
    steps = list(draw_steps(make_sampling_walk(matching, 0), range(3), 20_000))
    assert len(steps) == 3
    for place, step in enumerate(steps[1:], start=2):
        made = (all_of if pattern is PATTERNS[2] else seq)(*[A, B, C][:place])
        conditions = [
            each for each in pattern.conditions if all(f"{v}." not in each for v in "abcd"[place:])
        ]
        assert pattern.window is not None
        made = made.where(*conditions).within(pattern.window.duration)
        part = prepared_of(made)
        true = sum(len(each) for each in counted_matches(part.program, part.table))
        drawn = float(step.weights[step.holds].sum())
        assert drawn == pytest.approx(true, rel=0.12), place


@pytest.mark.parametrize("pattern", PATTERNS[:4])
def test_drawn_matches_are_as_those_that_are_counted(pattern: Pattern) -> None:
    prepared = prepared_of(pattern)
    drawn = sampled(prepared, 1)
    assert drawn.searched.all()
    true = counted_matches(prepared.program, prepared.table)
    assert drawn.total == pytest.approx(sum(len(each) for each in true), rel=0.15)
    for stays in some(prepared):
        share = drawn.share(stays)
        assert share == pytest.approx(share_kept(true, stays), abs=0.06)


@pytest.mark.parametrize("pairs", [1, 10_000_000])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_work_that_remains_is_that_of_the_engine(pattern: Pattern, pairs: int) -> None:
    """By pairs, of drawn partial matches and of blocks that are matched."""
    prepared = prepared_of(pattern)
    branches = []
    for branch in prepared.program.branches:
        shape = 0
        for slot in range(1, len(branch.slots)):
            shape = (shape, slot)  # type: ignore[assignment]
        branches.append(BranchPlan(shape))
    program = replace(prepared.program, plan=Plan("lazy-chain", tuple(branches)))
    found = sampled(Prepared(program, prepared.table), pairs)

    def tested(stays: np.ndarray) -> int:
        kept = prepared.table.filter(stays)
        step = advance_events(program, EventState(), kept, None)
        assert list(step.matches)
        return step.metrics.pairs

    every = np.ones(prepared.table.num_rows, dtype=np.bool_)
    whole = found.work(every)
    assert whole
    # A NOT is no step of the draws.
    tolerance = 0.12 if pattern is PATTERNS[4] and pairs == 1 else 0.05
    for stays in some(prepared):
        part = found.work(stays)
        assert part is not None
        assert part / whole == pytest.approx(tested(stays) / tested(every), abs=tolerance)


def test_a_match_that_was_drawn_twice_counts_once() -> None:
    few = seq(A, B).where("a.x + 0.99 < b.x").within(100)
    prepared = prepared_of(few)
    true = sum(len(each) for each in counted_matches(prepared.program, prepared.table))
    drawn = sampled(prepared, 1)
    assert 0 < drawn.count <= true < 40
    assert drawn.total == pytest.approx(true, rel=0.3)
