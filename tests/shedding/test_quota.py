"""How many rows of each kind stay, and from which score on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep.udfs.shedding.quota import (
    KEEP_ALL,
    KEEP_NONE,
    LEVEL_PARTS,
    RowKind,
    ScoreCounts,
    kinds_of,
    kinds_together,
    levels_in_blocks,
    load_of,
    row_thresholds,
    share_quota,
    threshold_of,
    weights_of,
)
from spark_cep.udfs.shedding.utility import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_cep.udfs.shedding.utility import SheddingPolicy

many = settings(max_examples=300, deadline=None, derandomize=True, database=None)

KINDS = st.dictionaries(st.integers(1, 63), st.integers(0, 1000), min_size=1, max_size=8)
WEIGHTS = st.one_of(st.sampled_from([0.0, 1.0, 1e-12, 1e100]), st.floats(0, 1e6))


# ---- dealing -----------------------------------------------------------------------------------


@many
@given(KINDS, st.floats(0, 1), st.data())
def test_all_is_dealt_and_none_gets_more_than_it_has(
    rows: dict[int, int], share: float, data: st.DataObject
) -> None:
    weights = {kind: data.draw(WEIGHTS) for kind in rows}
    total = share * sum(rows.values())
    found = share_quota(total, rows, weights)
    assert found.keys() == rows.keys()
    assert sum(found.values()) == pytest.approx(total, abs=1e-6)
    assert all(0 <= found[kind] <= rows[kind] * (1 + 1e-12) for kind in rows)


@many
@given(KINDS, st.floats(0, 1), st.data())
def test_kinds_that_are_not_full_have_rows_by_their_weights(
    rows: dict[int, int], share: float, data: st.DataObject
) -> None:
    weights = {kind: data.draw(st.floats(0.1, 10)) for kind in rows}
    found = share_quota(share * sum(rows.values()), rows, weights)
    rates = [found[kind] / weights[kind] for kind in rows if found[kind] < rows[kind] * 0.999999]
    assert rates == pytest.approx(rates[:1] * len(rates))
    # A full one would have had more.
    full = [rows[kind] / weights[kind] for kind in rows if found[kind] >= rows[kind]]
    assert not rates or all(each <= rates[0] * 1.000001 for each in full)


def test_what_a_kind_leaves_of_its_part_goes_to_the_others() -> None:
    rows, even = {1: 10, 2: 40, 4: 100}, {1: 1.0, 2: 1.0, 4: 1.0}
    assert share_quota(60, rows, even) == {1: 10.0, 2: 25.0, 4: 25.0}
    assert share_quota(100, rows, even) == {1: 10.0, 2: 40.0, 4: 50.0}
    assert share_quota(30, rows, {1: 0.0, 2: 2.0, 4: 1.0}) == {1: 0.0, 2: 20.0, 4: 10.0}


def test_kinds_of_no_weight_share_what_the_others_leave() -> None:
    assert share_quota(60, {1: 10, 2: 40, 4: 100}, {1: 1.0, 2: 0.0, 4: 0.0}) == {
        1: 10.0,
        2: 25.0,
        4: 25.0,
    }
    assert share_quota(0, {1: 10}, {1: 1.0}) == {1: 0.0}
    assert share_quota(5, {}, {}) == {}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("random", {1: 30.0, 2: 10.0, 3: 20.0}),
        ("frequency", {1: 1.0, 2: 1.0, 3: 1.0}),
        # Z(T) * R(T); rows that may be both make the work of both.
        ("darling", {1: 30 * 2.0, 2: 10 * 5.0, 3: 20 * 7.0}),
    ],
)
def test_policies_weigh_kinds(policy: SheddingPolicy, expected: Mapping[int, float]) -> None:
    loads = {0: 2.0, 1: 5.0}
    assert weights_of(policy, {1: 30, 2: 10, 3: 20}, loads) == expected
    assert load_of(0b11, loads) == 7.0
    # One threshold for all kinds.
    assert weights_of("espice", {1: 30, 2: 10, 3: 20}, loads) is None


def test_the_papers_figure_4_deals_as_rows_come() -> None:
    # R = 2, 5, 5, events of like work, room for 12: the red lines, and not 4 each.
    rows = {1: 2000, 2: 5000, 4: 5000}
    weights = weights_of("darling", rows, {0: 1.0, 1: 1.0, 2: 1.0})
    assert share_quota(12, rows, weights) == pytest.approx({1: 2.0, 2: 5.0, 4: 5.0})


# ---- thresholds --------------------------------------------------------------------------------


@st.composite
def scores(draw: st.DrawFn) -> ScoreCounts:
    places = draw(st.sets(st.integers(0, LEVELS * LEVEL_PARTS - 1), min_size=1, max_size=30))
    counts = draw(st.lists(st.integers(1, 500), min_size=len(places), max_size=len(places)))
    return ScoreCounts(np.array(sorted(places)), np.array(counts))


@many
@given(scores(), st.floats(0, 1))
def test_so_many_scores_are_above_as_the_quota_says_within_one_part(
    found: ScoreCounts, share: float
) -> None:
    quota = share * found.rows
    threshold = threshold_of(found, quota)
    place = threshold * LEVEL_PARTS
    surely = found.counts[found.places >= place].sum()
    maybe = found.counts[(found.places < place) & (found.places + 1 > place)].sum()
    assert surely <= quota + 1e-9
    assert quota <= surely + maybe + 1e-9


@many
@given(st.integers(1, 5000), st.floats(0, 1), st.integers(0, LEVELS - 1))
def test_rows_of_one_level_are_cut_by_their_own_numbers(
    count: int, share: float, level: int
) -> None:
    own = (np.arange(count) + 0.5) / count
    places, counts = np.unique(((level + own) * LEVEL_PARTS).astype(np.int64), return_counts=True)
    threshold = threshold_of(ScoreCounts(places, counts), share * count)
    assert np.count_nonzero(level + own >= threshold) == pytest.approx(share * count, abs=1.5)


def test_all_and_none_stay_at_the_ends() -> None:
    found = ScoreCounts(np.array([0, LEVELS * LEVEL_PARTS - 1]), np.array([5, 5]))
    assert threshold_of(found, 10) == threshold_of(found, 11) == KEEP_ALL < -LEVELS
    assert threshold_of(found, 0) == KEEP_NONE
    assert LEVELS - 1 + np.nextafter(1, 0) < KEEP_NONE


def test_kinds_keep_their_quota_and_one_that_has_none_loses_all() -> None:
    every = {
        1: ScoreCounts(np.array([64]), np.array([10])),
        3: ScoreCounts(np.array([0]), np.array([4])),
    }
    assert kinds_of(every, {1: 5.0}) == (RowKind(1, 10, 5, 64.5 / 64), RowKind(3, 4, 0, KEEP_NONE))
    assert kinds_of(every, {1: 50.0, 3: 4.0}) == (
        RowKind(1, 10, 10, KEEP_ALL),
        RowKind(3, 4, 4, KEEP_ALL),
    )


def test_each_row_has_the_threshold_of_its_mask_and_an_unseen_kind_stays() -> None:
    kinds = [RowKind(3, 1, 1, 7.5), RowKind(1, 1, 1, 2.0)]
    found = row_thresholds(kinds, np.array([3, 1, 2, 0, 99, 1]))
    assert found.tolist() == [7.5, 2.0, KEEP_ALL, KEEP_ALL, KEEP_ALL, 2.0]
    assert row_thresholds((), np.array([1, 2])).tolist() == [KEEP_ALL, KEEP_ALL]


@many
@given(
    st.dictionaries(
        st.integers(1, 7), st.dictionaries(st.integers(-64_000, 63_999), st.integers(1, 50)),
        min_size=1, max_size=4,
    ),
    st.floats(0, 1),
)  # fmt: skip
def test_one_threshold_for_all_kinds_meets_the_quota(
    drawn: dict[int, dict[int, int]], share: float
) -> None:
    scores = {
        mask: ScoreCounts(np.array(sorted(of)), np.array([of[p] for p in sorted(of)]))
        for mask, of in drawn.items()
        if of
    }
    every = sum(one.rows for one in scores.values())
    kinds = kinds_together(scores, share * every)
    assert len({kind.threshold for kind in kinds}) <= 1
    kept = sum(scores[kind.mask].above(kind.threshold) for kind in kinds)
    assert kept == pytest.approx(share * every, abs=1e-3 * max(every, 1))
    assert all(abs(kind.kept - scores[kind.mask].above(kind.threshold)) <= 0.5 for kind in kinds)


def test_rows_of_other_blocks_rank_below_block_by_block() -> None:
    hashes = np.array([0.1, 0.1, 0.35, 0.35, 0.9])
    levels = levels_in_blocks(np.array([5, 900, 999, 0, 999]), hashes, 0.3)
    assert levels.tolist() == [5, 900, -351, -351, -901]
