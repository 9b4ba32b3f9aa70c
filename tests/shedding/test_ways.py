"""Which blocks and rows are chosen for a share, and that it is never worse than blocks alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cep import event, seq
from spark_cep.udfs.shedding.blocks import (
    block_hashes,
    cut_blocks,
    has_most_keys,
    stretches_of,
)
from spark_cep.udfs.shedding.learning import Way, choose_way
from spark_cep.udfs.shedding.matches import ALL_MATCHES, Recall
from spark_cep.udfs.shedding.utility import utilities_of
from tests.programs import Prepared, prepare

many = settings(max_examples=300, deadline=None, derandomize=True, database=None)
EVEN = utilities_of((), 1, 0)


def ways_of(kept: dict[float, float]) -> tuple[Way, ...]:
    found = [Way(1.0, EVEN, ALL_MATCHES, 1.0, 1.0)]
    for share in sorted(kept, reverse=True):
        recall = Recall(kept[share], kept[share] - 0.01, kept[share] + 0.01)
        found.append(Way(share, EVEN, recall, kept[share], share**2))
    return tuple(found)


SHARES = st.dictionaries(st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.7, 0.9]), st.floats(0, 1))


@many
@given(SHARES, st.floats(0.01, 0.99))
def test_what_is_expected_to_stay_is_never_below_the_share_of_the_rows(
    kept: dict[float, float], target: float
) -> None:
    found = choose_way("utility", ways_of(kept), target)
    assert found.recall.value is not None
    assert found.recall.value >= target - 1e-12
    blocks = max([target, *(target / s * r for s, r in kept.items() if s >= target)])
    points = sorted({**kept, 1.0: 1.0}.items())
    below = [point for point in points if point[0] < target]
    rows = float(np.interp(target, *zip(*points, strict=True))) if below else 0.0
    assert found.recall.value == pytest.approx(max(blocks, rows))
    assert 0 <= found.blocks <= 1
    assert found.work <= 1


def test_between_two_ways_the_rows_of_each_kind_are_between_theirs() -> None:
    """Of kind 2, none may go at 0.9: then few may go a little below that."""
    high = replace(ways_of({0.9: 1.0})[1], kept={1: 0.8, 2: 1.0})
    low = replace(ways_of({0.5: 0.95})[1], kept={1: 0.4, 2: 0.8})
    found = choose_way("utility", (ways_of({})[0], high, low), 0.8)
    assert found.blocks == 1
    assert found.kept == {1: pytest.approx(0.7), 2: pytest.approx(0.95)}
    assert found.recall.value == pytest.approx(0.9875)
    above = choose_way("utility", (ways_of({})[0], high, low), 0.96)
    assert above.kept == {1: pytest.approx(0.92), 2: 1.0}


def test_without_blocks_rows_alone_are_chosen() -> None:
    ways = ways_of({0.7: 0.9, 0.3: 0.1})
    assert choose_way("utility", ways, 0.3).blocks == pytest.approx(3 / 7)
    found = choose_way("utility", ways, 0.3, by_blocks=False)
    assert (found.blocks, found.recall.value) == (1.0, pytest.approx(0.1))


def test_keys_keep_blocks_alone_and_chance_has_figures_between_two_shares() -> None:
    keys = choose_way("keys", ways_of({}), 0.3)
    assert (keys.blocks, keys.recall.value) == (0.0, pytest.approx(0.3))
    found = choose_way("random", ways_of({0.5: 0.25, 0.3: 0.09}), 0.4)
    assert (found.blocks, found.recall.value) == (1.0, pytest.approx(0.17))


def test_all_and_nothing() -> None:
    for policy in ("utility", "keys", "darling", "random"):
        assert choose_way(policy, ways_of({0.5: 0.7}), 1.0).recall == ALL_MATCHES  # type: ignore[arg-type]
        assert choose_way(policy, ways_of({0.5: 0.7}), 0.0).recall.value == 0.0  # type: ignore[arg-type]


# ---- blocks ------------------------------------------------------------------------------------


def rows(count: int = 20_000, keys: int = 50) -> Prepared:
    random = np.random.default_rng(0)
    columns = {
        "t": np.arange(count),
        "kind": random.integers(0, 2, count),
        "k": random.integers(0, keys, count),
    }
    pattern = seq(event("a", "kind = 0"), event("b", "kind = 1")).within(10)
    return prepare(pattern, columns, partition_by=["k"])


def test_rows_of_a_block_have_one_hash_and_blocks_have_their_own() -> None:
    prepared = rows()
    hashes = block_hashes(prepared.program, prepared.table, 3)
    keys = prepared.table.column(prepared.program.keys[0]).to_numpy()
    blocks = keys * 1_000 + stretches_of(prepared.program, prepared.table, 32)
    of_block = {int(block): set(hashes[blocks == block]) for block in np.unique(blocks)}
    assert all(len(each) == 1 for each in of_block.values())
    assert len(set.union(*of_block.values())) == len(of_block) > 3_000
    assert np.mean(sorted(min(each) for each in of_block.values())) == pytest.approx(0.5, abs=0.03)
    other = block_hashes(prepared.program, prepared.table, 4)
    assert abs(np.corrcoef(hashes, other)[0, 1]) < 0.1


def test_the_hash_does_not_depend_on_the_other_rows() -> None:
    prepared = rows()
    hashes = block_hashes(prepared.program, prepared.table, 3)
    some = np.arange(0, prepared.table.num_rows, 7)
    part = prepared.table.take(pa.array(some))
    assert (block_hashes(prepared.program, part, 3) == hashes[some]).all()


@many
@given(st.lists(st.floats(0, 0.999), min_size=1, max_size=40), st.floats(0.01, 0.99))
def test_a_cut_between_blocks_is_the_nearest_to_the_share(
    hashes: list[float], share: float
) -> None:
    known = np.array(hashes)
    below = float(np.mean(known < cut_blocks(known, share)))
    others = [float(np.mean(known < each)) for each in [*hashes, 1.0]]
    assert abs(below - share) <= min(abs(each - share) for each in others) + 1e-12


def test_whether_rows_have_most_keys_is_told_by_those_seen_once() -> None:
    prepared = rows(20_000, 50)
    assert has_most_keys(prepared.program, prepared.table)
    # Of a hundred keys, five stretches of five of them: the others are hardly those.
    keys = prepared.table.column(prepared.program.keys[0]).to_numpy()
    few = prepared.table.filter(pa.array((keys < 5) & (np.arange(len(keys)) < 300)))
    assert not has_most_keys(prepared.program, few)
    assert has_most_keys(prepared.program, prepared.table.slice(0, 0))
