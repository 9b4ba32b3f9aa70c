"""The share of matches that is expected to stay, against those that stay in the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep import all_of, any_of, event, no, seq
from spark_cep.shed import Shed
from spark_cep.spark.shedding import measure_recall
from tests.shedding.learned import looked, prepared_of

if TYPE_CHECKING:
    from spark_cep import Pattern
    from spark_cep.spark.shedding import SheddingAnalysis

A, B, C, D = (event(name, f"kind = {number}") for number, name in enumerate("abcd"))
ROWS = 4_000


def seen(pattern: Pattern, how: Shed) -> SheddingAnalysis:
    random = np.random.default_rng(8)
    kind = random.integers(0, 4, ROWS)
    known = {"t": np.arange(ROWS), "kind": kind, "x": random.random(ROWS) + kind / 10}
    prepared = prepared_of(pattern, known)
    return looked(prepared.program, prepared.table, how)


@pytest.mark.parametrize("policy", ["utility", "random"])
@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, B).where("a.x + 0.3 < b.x").within(30),
        seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(30),
        all_of(A, B).where("abs(a.x - b.x) < 0.1").within(30),
        any_of(seq(A, B).where("a.x < b.x - 0.5"), seq(C, D)).within(30),
        seq(A, no(event("n", "kind = 2 AND x < 0.5")), B).where("a.x < b.x").within(30),
        seq(A, D.times("{1,2}")).where("a.x + 0.5 < d.x").within(12),
        seq(A, D.optional(), B).where("a.x < b.x").within(12),
    ],
)  # fmt: skip
def test_what_is_expected_to_stay_stays(pattern: Pattern, policy: str) -> None:
    found = seen(pattern, Shed(keep=0.5, policy=policy))  # type: ignore[arg-type]
    kinds = found.kinds(0.5)
    counted = measure_recall(found, kinds)
    assert counted is not None
    every, kept = counted
    assert every > 500
    # A list of two loses more than the list of one that is drawn.
    assert found.recall(kinds) == pytest.approx(kept / every, abs=0.12)
    assert 0 < kept < every


def test_utility_is_expected_to_keep_more_than_chance() -> None:
    pattern = seq(A, B).where("a.x + 0.5 < b.x").within(30)
    by_utility = seen(pattern, Shed(keep=0.4))
    by_chance = seen(pattern, Shed(keep=0.4, policy="random"))
    chance = by_chance.recall(by_chance.kinds(0.4))
    assert chance == pytest.approx(0.16, abs=0.03)
    assert by_utility.recall(by_utility.kinds(0.4)) > 3 * chance


def test_with_all_rows_all_stays_and_with_none_nothing() -> None:
    found = seen(seq(A, B).where("a.x < b.x").within(30), Shed(keep=0.5))
    assert found.recall(found.kinds(1.0)) == 1
    assert found.recall(found.kinds(0.0)) == 0


def test_where_no_draw_is_a_match_worth_stands_in() -> None:
    found = seen(seq(A, B).where("a.x > b.x + 5").within(30), Shed(keep=0.5, policy="random"))
    assert found.recall(found.kinds(0.5)) == pytest.approx(0.25, abs=0.05)


def test_repeated_groups_lose_matches_too() -> None:
    found = seen(seq(A, B).times("+").within(12), Shed(keep=0.3, policy="random"))
    kinds = found.kinds(0.3)
    assert found.recall(kinds) < 0.2
    found = seen(seq(D, seq(A, B).times("+")).within(12), Shed(keep=0.3, policy="random"))
    assert found.recall(found.kinds(0.3)) < 0.1
