"""The worth of rows, against the matches that they are in, counted one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep import all_of, any_of, event, seq
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import make_sample_context
from spark_cep.udfs.expressions import BIGINT
from spark_cep.udfs.shedding.learning import Choice, RowSample, learn_model, variable_masks
from spark_cep.udfs.shedding.quota import select_rows_by_kind
from spark_cep.udfs.shedding.worth import Messages, RowWorth, graphs_of
from tests.shedding.counted import counted_matches, share_kept
from tests.shedding.learned import prepared_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep import Pattern
    from spark_cep.udfs.expressions import Type
    from tests.programs import Prepared

A, B, C, D = (event(name, f"kind = {number}") for number, name in enumerate("abcd"))
ROWS = 6_000


def columns(rows: int = ROWS, kinds: int = 4) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {
        "t": np.arange(rows),
        "kind": random.integers(0, kinds, rows),
        "k": random.integers(0, 3, rows),
        "x": random.random(rows),
        "y": random.random(rows),
    }


def worth_of(prepared: Prepared, keys: Sequence[Type] = ()) -> tuple[RowWorth, np.ndarray]:
    """The worth, and flags of the rows that may be shed."""
    program, table = prepared.program, prepared.table
    mask = table.column(program.mask).to_numpy().astype(np.int64)
    _, needed = variable_masks(program)
    may_be_shed = (mask != 0) & (mask & needed == 0)
    graphs = graphs_of(make_sample_context(program, table), keys)
    return RowWorth(graphs, mask, may_be_shed), may_be_shed


def through_each_row(prepared: Prepared) -> np.ndarray:
    found = np.zeros(prepared.table.num_rows)
    for rows in counted_matches(prepared.program, prepared.table):
        np.add.at(found, rows.ravel(), 1)
    return found


RISING_LIST = (
    seq(A, event("b{1,3}", "kind = 1"), C)
    .where("b.x > prev(b.x)", "first(b.x) > a.x", "c.x > last(b.x)")
    .within(50)
)
CHAIN = seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(80)


@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, B).where("a.x + 0.5 < b.x").within(60),
        CHAIN,
        seq(A, B, C, D).where("a.x < b.x", "b.x < c.x", "c.x < d.x").within(90),
        seq(A, B, C).where("a.x < b.x", "b.y < c.y - 0.2").within(80),
        all_of(A, B, C).where("abs(a.x - b.x) < 0.2", "b.y < c.y").within(40),
        # No condition between b and the others, and none at all.
        seq(A, B, C).where("a.x < c.x - 0.5").within(60),
        seq(A, B).within(60),
        any_of(seq(A, B).where("a.x < b.x - 0.5"), seq(C, D).where("c.x < d.x")).within(60),
        seq(A, D.optional(), B).where("a.x < b.x", "d.x > a.x").within(40),
        seq(A, event("b{1,2}", "kind = 1")).where("b.x > a.x + 0.5").within(40),
        # Between the elements of a list, on its ends, between three variables.
        seq(A, event("b{2,3}", "kind = 1"), C).where("b.x > prev(b.x) + 0.2").within(40),
        seq(event("b{3}", "kind = 1")).where("b.x > prev(b.x)").within(60),
        seq(A, event("b{1,3}", "kind = 1")).where("first(b.x) > a.x + 0.5").within(25),
        seq(event("b{1,3}", "kind = 1"), C).where("last(b.x) > c.x + 0.5").within(25),
        seq(A, B, C).where("a.x + b.x < c.x").within(60),
    ],
)
def test_worth_is_the_number_of_matches_through_a_row(pattern: Pattern) -> None:
    prepared = prepared_of(pattern, columns())
    worth, _ = worth_of(prepared)
    expected, _ = worth.of_rows(np.ones(count_of(prepared), dtype=np.bool_))
    true = through_each_row(prepared)
    assert true.sum() > 5_000
    # Row by row chance decides; over rows of about equal worth it does not.
    order = np.argsort(expected)
    for part in np.array_split(order, 8):
        if true[part].mean() > 0.2 * true.mean():
            scale = true.sum() / expected.sum()
            assert scale * expected[part].mean() == pytest.approx(true[part].mean(), rel=0.3)


def test_conditions_that_close_a_cycle_count_one_condition_far() -> None:
    pattern = all_of(A, B, C).where("a.x < b.x", "b.x < c.x", "a.y < c.y").within(40)
    prepared = prepared_of(pattern, columns())
    worth, _ = worth_of(prepared)
    expected, _ = worth.of_rows(np.ones(count_of(prepared), dtype=np.bool_))
    true = through_each_row(prepared)
    best = np.argsort(expected)[-len(true) // 4 :]
    without = prepared_of(all_of(A, B, C).where("a.x < b.x", "b.x < c.x").within(40), columns())
    rest, _ = worth_of(without)
    blind = np.argsort(rest.of_rows(np.ones(count_of(prepared), dtype=np.bool_))[0])
    assert true[best].sum() > 1.05 * true[blind[-len(true) // 4 :]].sum()
    assert true[best].sum() > 0.5 * true.sum()


def count_of(prepared: Prepared) -> int:
    return int(prepared.table.num_rows)


def test_what_stays_decides_what_the_others_are_worth() -> None:
    prepared = prepared_of(CHAIN, columns())
    worth, _ = worth_of(prepared)
    kind = mask_kinds(prepared)
    every = np.ones(len(kind), dtype=np.bool_)
    no_b = kind != 1
    assert worth.matches(every) > 0 == worth.matches(no_b)
    assert worth.of_rows(no_b)[0][kind != 1].max() < 0.01 * worth.of_rows(every)[0].max()


def mask_kinds(prepared: Prepared) -> np.ndarray:
    mask = prepared.table.column(prepared.program.mask).to_numpy().astype(np.int64)
    return np.log2(np.maximum(mask, 1)).astype(np.int64)


@pytest.mark.parametrize(
    ("pattern", "gain"),
    [
        (seq(A, B, C, D).where("a.x < b.x", "b.x < c.x", "c.x < d.x").within(90), 8.0),
        (seq(A, B, C).where("a.x < b.x", "b.y < c.y - 0.2").within(80), 3.0),
        (seq(A, B, C).where("abs(a.x - b.x) < 0.1", "abs(b.x - c.x) < 0.1").within(90), 3.0),
        (RISING_LIST, 4.0),
        (seq(A, B, C).where("a.x + b.x < c.x").within(60), 4.0),
    ],
)
def test_thinning_meets_each_quota_and_keeps_more_than_chance(
    pattern: Pattern, gain: float
) -> None:
    prepared = prepared_of(pattern, columns())
    worth, may_be_shed = worth_of(prepared)
    matches = counted_matches(prepared.program, prepared.table)
    slots = len(prepared.program.branches[0].slots)
    for share, stays in worth.thin([0.8, 0.6, 0.4]):
        kept = np.count_nonzero(stays & may_be_shed)
        assert kept == round(share * np.count_nonzero(may_be_shed))
        assert stays[~may_be_shed].all()
        if share == 0.4:
            assert share_kept(matches, stays) > gain * share**slots


def test_rows_of_a_crowded_key_are_worth_more() -> None:
    known = columns()
    random = np.random.default_rng(1)
    known["k"] = random.choice(4, ROWS, p=[0.7, 0.1, 0.1, 0.1])
    prepared = prepared_of(CHAIN, known, partition_by=["k"])
    worth, _ = worth_of(prepared, [BIGINT])
    (_, stays), *_ = worth.thin([0.6])
    keys = prepared.table.column(prepared.program.keys[0]).to_numpy()
    assert stays[keys == 0].mean() > 2 * stays[keys != 0].mean()


def test_keys_that_are_alike_have_no_bins() -> None:
    prepared = prepared_of(CHAIN, columns(), partition_by=["k"])
    program = prepared.program
    graphs = graphs_of(make_sample_context(program, prepared.table), [BIGINT])
    assert not any(side.by_key for graph in graphs for e in graph.edges for side in e.sides)


# ---- rows to come --------------------------------------------------------------------------------


def test_values_beside_those_of_a_sample_are_worth_something() -> None:
    """A bin without a match in the sample has a part of what the bin beside it has."""
    prepared = prepared_of(seq(A, B).where("a.x + 0.5 < b.x").within(60), columns())
    graph = graphs_of(make_sample_context(prepared.program, prepared.table))[0]
    message = next(Messages(graph, np.ones(count_of(prepared), dtype=np.bool_)).to_variable(1))[2]
    # The lower half of the b has no partner. The last bin is that of NULL.
    outside = message[11:16]
    assert (np.diff(outside) > 0).all()
    assert outside[-1] > 0.2 * message[16]
    assert message[0] < 0.01 * message[16]


def test_rows_to_come_keep_matches_of_values_that_the_sample_hardly_had() -> None:
    """Matches need the outermost values, and those of a few windows are not those of the next."""
    random = np.random.default_rng(5)
    count = 24_000
    kind = random.choice(4, count, p=[0.36, 0.27, 0.2, 0.17])
    phase = 2 * np.pi * np.arange(count) / 3_000 + kind
    x = (8 - 6 * np.cos(phase)) * np.exp(0.15 * random.standard_normal(count))
    conditions = [f"{one}.x * 2.2 < {other}.x" for one, other in ("ab", "bc", "cd")]
    pattern = seq(A, B, C, D).where(*conditions).within(600)
    prepared = prepared_of(pattern, {"t": np.arange(count), "kind": kind, "x": x})
    learnt = learn_model(
        prepared.program, RowSample(prepared.table.slice(0, 700)), "utility", TYPICAL_COSTS
    )
    later = prepared.table.slice(4_000)
    mask = later.column(prepared.program.mask).to_numpy().astype(np.int64)
    matches = counted_matches(prepared.program, later)
    assert sum(len(each) for each in matches) > 300
    for share in (0.8, 0.6, 0.4):
        way = next(each for each in learnt.ways if each.share == share)
        levels = way.utilities.levels(mask, later)
        own = np.random.default_rng(0).random(len(mask))
        quotas = Choice(way.utilities, 1.0, way.recall, 1.0, way.kept).weights
        stays = select_rows_by_kind((mask, levels, own), share * len(mask), quotas)
        assert share_kept(matches, stays) > 0.98, share
