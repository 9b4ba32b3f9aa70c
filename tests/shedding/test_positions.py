"""eSPICE: rows go by the share of their variable and position that was in matches."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.pattern import event, seq
from spark_cep.shed import Shed
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.shedding.passing import PRIOR_DRAWS, Feature
from spark_cep.udfs.shedding.positions import POSITIONS
from tests.programs import Prepared, prepare
from tests.shedding.counted import counted_matches, share_kept
from tests.shedding.learned import looked

A, B, C = (event(name, f"kind = {place}") for place, name in enumerate("abc"))
CHAIN = seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(100)


def ticks(count: int = 3_000, *, follows_clock: bool = False) -> Prepared:
    """Rows of three kinds, none in the first window of sixteen, so that no match lies across the
    border of two blocks. Where the values follow the clock, those of b are low but in the fourth
    fifth of a window."""
    random = np.random.default_rng(3)
    t = np.sort(random.integers(0, 10 * count, count))
    t = t[t % 1600 >= 100]
    count = len(t)
    x = random.random(count)
    kind = random.integers(0, 3, count)
    if follows_clock:
        x = np.where((kind == 1) & (t % 100 // 20 != 3), 0.02, x)
    return prepare(CHAIN, {"t": t, "kind": kind, "x": x})


def shares_by_hand(prepared: Prepared, variable: int) -> list[float]:
    """Of the rows at each position, as a plain loop counts them."""
    program, table = prepared.program, prepared.table
    times = prepared.times().tolist()
    mask = table.column(program.mask).to_pylist()
    used = {int(row) for found in counted_matches(program, table) for row in found[:, variable]}
    rows, hits = Counter[int](), Counter[int]()
    for row, time in enumerate(times):
        if mask[row] >> variable & 1:
            position = time % 100 * POSITIONS // 100
            rows[position] += 1
            hits[position] += row in used
    mean = sum(hits.values()) / sum(rows.values())
    return [
        (hits[each] + PRIOR_DRAWS * mean) / (rows[each] + PRIOR_DRAWS) for each in range(POSITIONS)
    ]


@pytest.mark.parametrize("follows_clock", [False, True])
def test_utility_is_the_share_of_such_rows_that_were_in_matches(follows_clock: bool) -> None:
    prepared = ticks(follows_clock=follows_clock)
    found = looked(prepared.program, prepared.table, Shed(keep=0.4, policy="espice"))
    tables = found.choice.utilities.tables
    assert [table.variable for table in tables] == [0, 1, 2]
    for table in tables:
        expected = shares_by_hand(prepared, table.variable)
        # Shares are rounded to three digits.
        assert table.shares[:POSITIONS] == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("keep", [0.1, 0.4, 0.8])
def test_the_quota_stays_and_nothing_of_less_utility_than_what_goes(keep: float) -> None:
    prepared = ticks()
    found = looked(prepared.program, prepared.table, Shed(keep=keep, policy="espice"))
    stays = found.stays(found.kinds(keep))
    # Ties are broken by other random numbers than they were counted by.
    assert stays.mean() == pytest.approx(keep, abs=0.01)
    mask = column_to_numpy(prepared.table.column(prepared.program.mask)).astype(np.int64)
    levels = found.choice.utilities.levels(mask, prepared.table)
    assert levels[stays].min() >= levels[~stays].max()


def test_where_matches_follow_the_clock_more_of_them_stay_than_by_chance() -> None:
    prepared = ticks(follows_clock=True)
    matches = counted_matches(prepared.program, prepared.table)

    def kept(policy: str) -> float:
        found = looked(prepared.program, prepared.table, Shed(keep=0.5, policy=policy))  # type: ignore[arg-type]
        return share_kept(matches, found.stays(found.kinds(0.5)))

    assert kept("espice") > 2 * kept("random") > 0


def test_the_same_rows_in_another_order_are_worth_the_same() -> None:
    prepared = ticks()
    shuffled = prepared.table.take(
        pa.array(np.random.default_rng(1).permutation(prepared.table.num_rows))
    )
    how = Shed(keep=0.4, policy="espice")
    one, other = (
        looked(prepared.program, table, how).choice.utilities.tables
        for table in (prepared.table, shuffled)
    )
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.shares == theirs.shares).all()


def test_positions_before_the_epoch_and_without_a_number() -> None:
    splits = tuple(10.0 * part / 4 for part in range(1, 4))
    feature = Feature(0, Type("float"), splits, period=10.0)
    times = [0.0, 9.9, 10.0, -0.1, -10.0, 12.5, float("inf"), None]
    assert feature.bins(pa.array(times)).tolist() == [0, 3, 0, 3, 0, 1, 3, 4]
