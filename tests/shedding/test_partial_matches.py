"""What is learnt of partial matches is what a plain enumeration counts, and the share stays."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep.pattern import all_of, event, no, seq
from spark_cep.udfs.events.dropping import PAIR_BINS, WINDOW_PARTS
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan, PartialState, Plan
from spark_cep.udfs.shedding.partial_matches import learn_partials, record_partials
from spark_cep.udfs.shedding.passing import PRIOR_DRAWS
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep import Pattern
    from spark_cep.udfs.events.metrics import Metrics
    from spark_cep.udfs.program import DroppingRule
    from spark_cep.udfs.shedding.utility import SheddingPolicy

WINDOW = 100
A, B, C, D = (event(name, f"kind = {place}") for place, name in enumerate("abcd"))
CHAIN = seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(WINDOW)
POLICIES: tuple[SheddingPolicy, ...] = ("hspice", "pspice", "random-partials")


def ticks(pattern: Pattern, count: int, order: tuple[int, ...] = (0, 1, 2)) -> Prepared:
    """Rows of four kinds, none in the first window of sixteen, so that no match lies across the
    border of two blocks."""
    random = np.random.default_rng(11)
    t = np.sort(random.integers(0, 5 * count, count))
    t = t[t % (16 * WINDOW) >= WINDOW]
    columns = {"t": t, "kind": random.integers(0, 4, len(t)), "x": random.random(len(t))}
    prepared = prepare(pattern, columns)
    plan = Plan("lazy-chain", (BranchPlan(left_deep_shape(order), fixed=True),))
    return replace(prepared, program=replace(prepared.program, plan=plan))


def matched(prepared: Prepared, rule: DroppingRule | None) -> Metrics:
    step = advance_events(
        replace(prepared.program, dropping=rule), EventState(), prepared.table, None
    )
    for _ in step.matches:
        pass
    return step.metrics


# ---- by hand -------------------------------------------------------------------------------------


@dataclass
class ByHand:
    """For each state: by bin the rows offered and those that became part of a match, and the
    partial matches, those that complete, and the pairs that they cause."""

    offered: dict[PartialState, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    used: dict[PartialState, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    count: dict[PartialState, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    completes: dict[PartialState, Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    work: dict[PartialState, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))


@cache
def enumerated(order: tuple[int, ...]) -> ByHand:
    """Every partial match of the chain in this order, one row after the other."""
    prepared = ticks(CHAIN, 1_200, order)
    times = prepared.times().tolist()
    mask = prepared.table.column(prepared.program.mask).to_pylist()
    x = prepared.table.column(0).to_pylist()
    found = ByHand()

    def fits(rows: dict[int, int], slot: int, row: int) -> bool:
        """Whether a row is offered: order and window."""
        late = all(times[other] < times[row] for s, other in rows.items() if s < slot)
        early = all(times[row] < times[other] for s, other in rows.items() if s > slot)
        every = [times[row], *(times[other] for other in rows.values())]
        return late and early and max(every) - min(every) <= WINDOW

    def holds(rows: dict[int, int]) -> bool:
        return all(
            x[rows[slot]] < x[rows[slot + 1]]
            for slot in (0, 1)
            if slot in rows and slot + 1 in rows
        )

    def follow(rows: dict[int, int], place: int) -> tuple[int, int]:
        """The matches that come of a partial match, and the pairs that it causes."""
        if place == len(order):
            return 1, 0
        at = PartialState(0, frozenset(order[:place]), order[place])
        matches = pairs = 0
        first = min(times[other] for other in rows.values())
        for row, allowed in enumerate(mask):
            if not allowed >> order[place] & 1 or not fits(rows, order[place], row):
                continue
            pairs += 1
            part = (times[row] - first) * WINDOW_PARTS // WINDOW + WINDOW_PARTS
            part = min(max(part, 0), PAIR_BINS - 1)
            found.offered[at][part] += 1
            longer = {**rows, order[place]: row}
            if holds(longer):
                more, caused = step(at, longer, place)
                matches, pairs = matches + more, pairs + caused
                found.used[at][part] += more > 0
        return matches, pairs

    def step(at: PartialState, rows: dict[int, int], place: int) -> tuple[int, int]:
        """The same for what a row made, which is counted if it is no match."""
        matches, pairs = follow(rows, place + 1)
        if place + 1 < len(order):
            every = [times[other] for other in rows.values()]
            part = min((max(every) - min(every)) * WINDOW_PARTS // WINDOW, WINDOW_PARTS - 1)
            found.count[at][part] += 1
            found.completes[at][part] += matches > 0
            found.work[at][part] += pairs
        return matches, pairs

    begin = PartialState(0, frozenset(), order[0])
    for row, allowed in enumerate(mask):
        if allowed >> order[0] & 1:
            step(begin, {order[0]: row}, 0)
    return found


def smoothed(hits: Counter[int], count: Counter[int], place: int) -> float:
    mean = sum(hits.values()) / sum(count.values())
    return (hits[place] + PRIOR_DRAWS * mean) / (count[place] + PRIOR_DRAWS)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_rows_offered_are_ranked_by_the_share_that_is_in_matches(order: tuple[int, ...]) -> None:
    prepared, by_hand = ticks(CHAIN, 1_200, order), enumerated(order)
    model = learn_partials(prepared.program, prepared.table, "hspice")
    values = {
        (at, place): smoothed(by_hand.used[at], count, place)
        for at, count in by_hand.offered.items()
        for place in count
    }
    assert set(model.cells) == set(values)
    found = [values[cell] for cell in model.cells]
    assert found == pytest.approx(sorted(values.values(), reverse=True))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_partial_matches_are_ranked_by_completion_for_their_work(order: tuple[int, ...]) -> None:
    prepared, by_hand = ticks(CHAIN, 1_200, order), enumerated(order)
    model = learn_partials(prepared.program, prepared.table, "pspice")
    values = {
        (at, place): smoothed(by_hand.completes[at], count, place)
        / (smoothed(by_hand.work[at], count, place) + 1)
        for at, count in by_hand.count.items()
        for place in count
    }
    assert set(model.cells) == set(values)
    found = [values[cell] for cell in model.cells]
    assert found == pytest.approx(sorted(values.values(), reverse=True))


def test_what_is_recorded_is_what_the_engine_counts() -> None:
    prepared = ticks(CHAIN, 1_200)
    sample, metrics = record_partials(prepared.program, prepared.table), matched(prepared, None)
    assert len(sample.pairs[0]) == metrics.pairs
    assert len(sample.matches) == metrics.matches
    assert np.count_nonzero(~sample.is_whole) == metrics.partial_matches
    assert not sample.is_cut


def joined(metrics: Metrics) -> int:
    """The pairs of joins, without those that a NOT was tested on."""
    return sum(pairs for pairs, _ in metrics.nodes.values())


# ---- quotas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        CHAIN,
        all_of(A, B, C).where("a.x < b.x").within(WINDOW),
        seq(A, no(D), B, C).where("a.x < b.x", "d.x > a.x").within(WINDOW),
        seq(A, B.times("{1,3}"), C).where("b.x > a.x").within(WINDOW),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_share_of_the_pairs_stays_and_so_much_of_the_matches_as_was_told(
    pattern: Pattern, policy: SheddingPolicy
) -> None:
    prepared = ticks(pattern, 16_000)
    full = matched(prepared, None)
    model = learn_partials(prepared.program, prepared.table, policy)
    for share in (0.1, 0.3, 0.5, 0.8):
        kept = matched(prepared, model.rule(share, 0))
        assert joined(kept) / joined(full) == pytest.approx(share, rel=0.1)
        recall = model.recall(share)
        assert recall.value == pytest.approx(kept.matches / full.matches, rel=0.1, abs=0.02)
    assert model.recall(1.0).value == 1
    assert matched(prepared, model.rule(1.0, 0)).matches == full.matches
    nothing = matched(prepared, model.rule(0.0, 0))
    assert nothing.matches == nothing.pairs == 0


def test_too_many_pairs_are_looked_at_in_part_and_nothing_is_told() -> None:
    prepared = ticks(CHAIN, 1_200)
    model = learn_partials(prepared.program, prepared.table, "pspice", most=100)
    assert model.unknown == "the sample has more partial matches than can be looked at"
    assert model.recall(0.5).value is None
    kept = matched(prepared, model.rule(0.5, 0))
    assert 0 < kept.pairs < matched(prepared, None).pairs


def test_of_a_sample_without_a_match_nothing_is_told() -> None:
    pattern = seq(A, B, C).where("a.x < b.x", "b.x < c.x", "c.x > 2").within(WINDOW)
    prepared = ticks(pattern, 1_200)
    for policy in POLICIES:
        model = learn_partials(prepared.program, prepared.table, policy)
        assert model.recall(0.5).unknown == "only 0 matches in the sample"
        assert matched(prepared, model.rule(0.5, 0)).matches == 0


def test_rows_that_no_variable_accepts_give_a_rule_that_drops_nothing() -> None:
    prepared = ticks(CHAIN, 1_200)
    for policy in POLICIES:
        model = learn_partials(prepared.program, prepared.table.slice(0, 0), policy)
        metrics = matched(prepared, model.rule(0.5, 0))
        assert metrics.dropped_pairs == metrics.dropped_partials == 0
