"""What a sample says: rates, what conditions keep, and whether what is rare is so everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep import Pattern, all_of, event, seq
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.program import Limits
from tests.programs import Prepared, prepare

if TYPE_CHECKING:
    from spark_cep.udfs.program import Estimates

A, B, C = (event(name, f"kind = {number}") for number, name in enumerate("abc"))
ROWS = 10_000


def prepared_of(pattern: Pattern, kinds: np.ndarray | None = None, **more: np.ndarray) -> Prepared:
    random = np.random.default_rng(5)
    columns = {
        "t": np.arange(ROWS),
        "kind": random.integers(0, 3, ROWS) if kinds is None else kinds,
        "x": random.random(ROWS),
        "n": random.integers(0, 10, ROWS),
    }
    return prepare(pattern, {**columns, **more})


def estimated(pattern: Pattern, kinds: np.ndarray | None = None, **more: np.ndarray) -> Estimates:
    prepared = prepared_of(pattern, kinds, **more)
    found = estimate_from_table(prepared.program, prepared.table)
    assert found is not None
    return found


def test_rates_are_candidates_in_a_window_of_a_key() -> None:
    found = estimated(seq(A, B, C).within(60))
    assert found.rates == pytest.approx({0: 20, 1: 20, 2: 20}, rel=0.05)
    assert found.windows == pytest.approx(ROWS / 60, rel=0.05)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("a.x < b.x", 0.5),
        ("a.x + 0.8 < b.x", 0.02),
        ("a.n = b.n", 0.1),
        ("a.n = b.n AND a.x < b.x", None),
        ("a.x < 2 * b.x", 0.75),
        ("a.x + 0.96 < b.x", 0.0008),
    ],
)
def test_selectivities_are_measured_on_pairs_in_scope(condition: str, kept: float | None) -> None:
    # A third variable keeps an equality from becoming a key.
    found = estimated(seq(A, B, C).where(condition).within(60)).selectivities
    if kept is None:
        assert found == pytest.approx({0: 0.1, 1: 0.5}, rel=0.3)
    else:
        assert found[0] == pytest.approx(kept, rel=0.4, abs=1e-6)


def test_what_is_never_true_is_not_thought_impossible() -> None:
    found = estimated(seq(A, B, C).where("a.x > b.x + 2").within(60)).selectivities
    assert 0 < found[0] < 1e-4


def test_order_and_window_hold_in_what_is_drawn() -> None:
    # x grows with time: of pairs in order all are rising, of pairs in any order a half.
    growing = {"x": np.arange(ROWS) / ROWS}
    rising = estimated(seq(A, B).where("a.x < b.x").within(60), **growing)
    assert rising.selectivities[0] > 0.99
    either = estimated(all_of(A, B).where("a.x < b.x").within(60), **growing)
    assert either.selectivities[0] == pytest.approx(0.5, rel=0.2)


def test_conditions_on_lists_are_of_single_elements() -> None:
    pattern = seq(A, event("b", "kind = 1").times("+")).where("b.x > a.x", "b.x > prev(b.x)")
    found = estimated(pattern.within(20)).selectivities
    assert found == pytest.approx({0: 0.5, 1: 0.5}, rel=0.25)


def test_what_reads_a_whole_list_is_not_measured() -> None:
    pattern = seq(A, event("b", "kind = 1").times("+")).where("sum(b.x) > a.x").within(20)
    assert estimated(pattern).selectivities == {}


def test_a_rare_variable_is_not_taken_for_impossible() -> None:
    kinds = np.zeros(ROWS, dtype=np.int64)
    kinds[::2] = 1
    rates = estimated(seq(A, B, C).within(60), kinds).rates
    assert 0 < rates[2] < 0.01


def test_rows_without_a_candidate_are_no_statistics() -> None:
    # A window of events ships every row.
    prepared = prepared_of(seq(A, B).within(events=60), np.full(ROWS, 2))
    assert prepared.table.num_rows == ROWS
    assert estimate_from_table(prepared.program, prepared.table) is None


def test_conditions_on_one_pair_are_measured_on_what_those_before_keep() -> None:
    pattern = seq(A, B).where("a.x < b.x", "b.x < a.x + 0.05").within(60)
    found = estimated(pattern).selectivities
    assert found[0] * found[1] == pytest.approx(0.05, rel=0.4)


def test_places_are_windows_by_themselves() -> None:
    kinds = np.repeat([0, 1], ROWS // 2)
    places = estimated(seq(A, B).within(100), kinds).places
    assert len(places) == 8
    assert {tuple(place.values()) for place in places} <= {(100.0, 0.0), (0.0, 100.0)}


def test_iterations_of_a_repeated_group_are_not_looked_for() -> None:
    prepared = prepared_of(seq(A, seq(B, C).times("+")).where("a.x < b.x", "b.x < c.x"))
    program = replace(prepared.program, limits=Limits(partial_matches=1))
    found = estimate_from_table(program, prepared.table)
    assert found is not None
    assert min(found.rates.values()) > 0
