"""What the row pattern benchmarks compare with and are held to, on rows checked by hand."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import row_data, row_plain
from benchmarks.row_patterns import chosen, rows_of, works
from benchmarks.row_works import Bound

# crime_sequence is there once for each size.
SUITE = {
    "scan", "partitions", "quantifier", "navigation", "nested_quantifier", "no_match",
    "optional_prefix", "selectivity_low", "selectivity_mid", "selectivity_high", "sessionize",
    "streak", "funnel_two_step", "funnel_three_step", "crime_alternation", "crime_repeats",
    "crime_sequence_2k", "extended_v", "aggregate_define", "bin_packing", "merge_ranges",
    "shoulders", "union_skip", "session_measures",
}  # fmt: skip


def given(**settings: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"names": [], "gaps": None, "scale": 1.0, "full": False, **settings}
    )


def test_moves_are_letters_and_the_first_row_has_none_before() -> None:
    assert row_plain.moves(np.array([3, 2, 2, 5])) == "NDSU"
    assert row_plain.moves(np.array([])) == ""


def test_matches_go_on_behind_one_another_unless_said_otherwise() -> None:
    assert list(row_plain.spans("a+b", "aabab")) == [(0, 3), (3, 5)]
    assert list(row_plain.spans("a+b", "aabab", row_plain.next_row)) == [(0, 3), (1, 3), (3, 5)]


def test_runs_give_rows_back_until_the_rest_fits() -> None:
    v = [1, 1, 1, 2]
    conditions: dict[str, row_plain.Condition] = {
        "b": lambda path, row: v[row] >= v[path["a"][-1]],
        "c": lambda path, row: row == len(path["a"]) + len(path["b"]),
    }
    found = row_plain.runs([("a", True), ("b", True), ("c", False)], conditions, range(4))
    assert found == {"a": [0, 1], "b": [2], "c": [3]}
    never: dict[str, row_plain.Condition] = {"b": lambda _path, _row: False}
    assert row_plain.runs([("a", True), ("b", False)], never, range(4)) is None


def test_a_row_is_the_same_however_many_follow_it() -> None:
    few, many = row_data.hundredths(100), row_data.hundredths(1_000)
    assert (few["v"] == many["v"][:100]).all()
    assert len(np.unique(many["v"])) == 100


def test_walks_are_in_cents_and_begin_anew_for_each_symbol() -> None:
    ticks = row_data.walks(5_000, 5)
    assert (np.round(ticks["price"], 2) == ticks["price"]).all()
    for symbol in range(5):
        prices = ticks["price"][ticks["symbol"] == symbol]
        assert prices[0] == 100
        assert np.abs(np.diff(prices)).max() < 0.2


@pytest.mark.parametrize(
    ("bound", "held", "missed"),
    [(Bound(ratio=1.2), 2.4, 2.41), (Bound(above=2), 3.9, 4.0), (Bound(seconds=3), 2.9, 3.0)],
)
def test_a_bound_is_held_against_the_floor_of_the_run(
    bound: Bound, held: float, missed: float
) -> None:
    assert bound.holds(2.0, held)
    assert not bound.holds(2.0, missed)


def test_there_are_all_works_and_large_gaps_only_by_name() -> None:
    every = works()
    assert every.keys() >= SUITE
    names = [work.name for work in chosen(given(), every)]
    assert "crime_sequence_20k" in names
    assert "crime_sequence_200k" not in names
    assert [work.name for work in chosen(given(names=["scan"]), every)] == ["scan"]


def test_small_works_are_not_scaled() -> None:
    every = works()
    assert rows_of(every["equal_rows"], given(scale=0.1)) == 5_000
    assert rows_of(every["scan"], given(scale=0.1)) == 200_000
    assert rows_of(every["streak"], given(full=True)) == 10_000_000
