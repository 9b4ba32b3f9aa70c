"""Which rows shedding learns from: the same ones whatever was guessed, stored or cut off before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from spark_cep.spark.row_hashes import numbers_of, shares_of
from spark_cep.spark.shedding_sample import (
    SAMPLE_ROWS,
    Bounds,
    DrawnRows,
    ReadRows,
    choose_rows,
    meets_quota,
    needed_draws,
)

WANTED = 20_000


@dataclass
class Input:
    """Rows in stretches of these sizes, read as tasks read them: `most` of one read, after which
    nothing is known of the others."""

    sizes: np.ndarray
    most: int = 1_000_000
    reads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(len(self.sizes))
        count = int(self.sizes.sum())
        self.stretch = np.repeat(random.random(len(self.sizes)), self.sizes)
        self.hashes = random.integers(-(2**63), 2**63, count)
        self.order = random.permutation(count)

    def read(self, bounds: Bounds) -> ReadRows:
        numbers = numbers_of(self.hashes)
        here = (self.stretch <= bounds.stretch) & (numbers < bounds.thin)
        found = self.order[(here | (numbers < bounds.number))[self.order]]
        self.reads.append(len(found))
        below = Bounds(1.0, 1.0) if bounds.all_rows else bounds
        if len(found) >= self.most:
            found, below = found[: self.most], Bounds(0.0, 0.0)
        table = pa.table({"row": found})
        return ReadRows(table, self.hashes[found], self.stretch[found], {}, below)


def rows(each: ReadRows | DrawnRows) -> set[int]:
    return set(each.table.column("row").to_pylist())


INPUTS = {
    "few": np.full(100, 30),
    "many stretches": np.full(20_000, 25),
    "long stretches": np.full(200, 2_000),
    "two stretches": np.array([200_000, 150_000]),
    "skewed": (300_000 / np.arange(1, 300)).astype(int),
    "one row each": np.full(150_000, 1),
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_first_guess_does_not_change_what_is_chosen(name: str) -> None:
    sizes = INPUTS[name]
    expected = None
    for guess in (1.0, 0.3, 0.01, 1e-6):
        each = Input(sizes)
        found = choose_rows(each.read, Bounds(guess, guess), WANTED)
        drawn, chosen, asked = rows(found[0]), rows(found[1]), found[2]
        assert len(drawn) == min(WANTED, sizes.sum())
        assert 0 < len(chosen) <= 3 * SAMPLE_ROWS
        assert asked.stretch > 0
        assert expected in (None, (drawn, chosen))
        expected = drawn, chosen
        assert len(each.reads) <= (1 if guess == 1 and sum(sizes) < each.most else 4)


def test_a_guess_that_is_near_needs_one_read() -> None:
    each = Input(INPUTS["many stretches"])
    choose_rows(each.read, Bounds(0.2, 0.1), WANTED)
    assert len(each.reads) == 1
    assert each.reads[0] < 160_000


@pytest.mark.parametrize("name", INPUTS)
def test_more_rows_than_may_come_are_not_read_twice_as_many(name: str) -> None:
    sizes = INPUTS[name]
    expected = choose_rows(Input(sizes).read, Bounds(1.0, 1.0), WANTED)
    each = Input(sizes, most=160_000)
    found = choose_rows(each.read, Bounds(1.0, 1.0), WANTED)
    assert [rows(found[0]), rows(found[1])] == [rows(expected[0]), rows(expected[1])]
    assert min(each.reads) < each.most


def test_stretches_are_whole_unless_they_are_huge() -> None:
    each = Input(INPUTS["long stretches"])
    _, chosen, asked = choose_rows(each.read, Bounds(1.0, 1.0), WANTED)
    assert asked.thin == 1
    _, counts = np.unique(chosen.stretch, return_counts=True)
    assert set(counts) == {2_000}
    assert SAMPLE_ROWS / 2 < len(chosen.hashes) < 2 * SAMPLE_ROWS
    for wanted in (WANTED, 2_000):
        each = Input(INPUTS["two stretches"])
        drawn, chosen, asked = choose_rows(each.read, Bounds(0.2, 0.2), wanted)
        assert len(np.unique(chosen.stretch)) == 1 + (wanted == WANTED)
        if wanted == WANTED:
            # What was drawn of them is enough.
            assert rows(chosen) <= rows(drawn)
        else:
            assert len(chosen.hashes) == pytest.approx(1.5 * SAMPLE_ROWS, rel=0.1)
        assert asked.thin < 1


def test_both_numbers_of_a_hash_are_even_and_independent() -> None:
    hashes = np.random.default_rng(0).integers(-(2**63), 2**63, 100_000)
    one, other = shares_of(hashes), numbers_of(hashes)
    for each in (one, other):
        assert 0 <= each.min() < each.max() < 1
        assert abs(float(each.mean()) - 0.5) < 0.005
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.015


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_thresholds_of_as_many_draws_as_are_needed_meet_the_quota(share: float) -> None:
    random = np.random.default_rng(1)
    count = needed_draws(share)
    missed = []
    for _ in range(60):
        draws = random.random(count)
        threshold = np.quantile(draws, 1 - share)
        missed.append(abs((1 - threshold) / share - 1))
    assert max(missed) < 0.01
    drawn = DrawnRows(pa.table({"x": np.zeros(count)}), random.random(count), {}, 0.05)
    assert meets_quota(drawn, share)
    assert not meets_quota(drawn.take(np.arange(count) < count // 2), share / 2)


def test_rows_without_a_difference_count_as_one() -> None:
    own = np.repeat(np.random.default_rng(0).random(10_000), 10)
    drawn = DrawnRows(pa.table({"x": own}), own, {}, 0.05)
    assert not meets_quota(drawn, 0.5)
    assert meets_quota(DrawnRows(drawn.table, own, {}, 1.0), 0.5)
