"""The share of matches that is told to stay, against those that stay in the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from spark_cep import all_of, any_of, event, no, seq
from spark_cep.shed import Shed
from spark_cep.spark.shedding import measure_recall
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.events.metrics import Meter
from spark_cep.udfs.shedding import matches
from spark_cep.udfs.shedding.learning import RowSample, learn_model
from tests.shedding.counted import counted_matches, share_kept
from tests.shedding.learned import looked, prepared_of

if TYPE_CHECKING:
    from spark_cep import Pattern
    from spark_cep.spark.shedding import SheddingAnalysis
    from tests.programs import Prepared

A, B, C, D = (event(name, f"kind = {number}") for number, name in enumerate("abcd"))
ROWS = 4_000


def prepared_rows(pattern: Pattern, rows: int = ROWS, seed: int = 8) -> Prepared:
    random = np.random.default_rng(seed)
    kind = random.integers(0, 4, rows)
    known = {"t": np.arange(rows), "kind": kind, "x": random.random(rows) + kind / 10}
    return prepared_of(pattern, known)


def seen(pattern: Pattern, how: Shed) -> SheddingAnalysis:
    prepared = prepared_rows(pattern)
    return looked(prepared.program, prepared.table, how)


def told(found: SheddingAnalysis) -> float:
    value = found.choice.recall.value
    assert value is not None
    return value


@pytest.mark.parametrize("policy", ["utility", "darling", "random"])
@pytest.mark.parametrize(
    "pattern",
    [
        seq(A, B).where("a.x + 0.3 < b.x").within(30),
        seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(30),
        all_of(A, B).where("abs(a.x - b.x) < 0.1").within(30),
        any_of(seq(A, B).where("a.x < b.x - 0.5"), seq(C, D)).within(30),
        seq(A, no(event("n", "kind = 2 AND x < 0.5")), B).where("a.x < b.x").within(30),
        seq(A, D.times("{1,2}")).where("a.x + 0.5 < d.x").within(12),
        seq(A, event("d{1,3}", "kind = 3")).where("d.x > prev(d.x)").within(20),
        seq(A, D.optional(), B).where("a.x < b.x").within(12),
        seq(D, seq(A, B).times("{1,2}")).within(12),
    ],
)  # fmt: skip
def test_what_is_told_to_stay_stays(pattern: Pattern, policy: str) -> None:
    found = seen(pattern, Shed(keep=0.5, policy=policy))  # type: ignore[arg-type]
    counted = measure_recall(found, found.kinds(0.5))
    assert counted is not None
    every, kept = counted
    assert every > 500
    recall = found.choice.recall
    assert recall.low - 0.02 <= kept / every <= recall.high + 0.02
    assert told(found) == pytest.approx(kept / every, abs=0.09)
    assert 0 < kept < every


def test_utility_keeps_more_than_the_others() -> None:
    pattern = seq(A, B, C).where("a.x < b.x", "b.x < c.x").within(60)
    prepared = prepared_rows(pattern)
    matches = counted_matches(prepared.program, prepared.table)
    for keep in (0.3, 0.5, 0.8):
        kept = {}
        for policy in ("utility", "keys", "darling", "random"):
            found = looked(prepared.program, prepared.table, Shed(keep=keep, policy=policy))  # type: ignore[arg-type]
            kept[policy] = share_kept(matches, found.stays(found.kinds(keep)))
        assert kept["utility"] >= max(kept.values()) - 0.03, (keep, kept)
        assert kept["random"] == pytest.approx(keep**3, abs=0.04)


def test_with_all_rows_all_stays() -> None:
    found = seen(seq(A, B).where("a.x < b.x").within(30), Shed(keep=1.0))
    assert (told(found), found.stays(found.kinds(1.0)).all()) == (1.0, True)


def test_where_no_match_is_found_nothing_is_told() -> None:
    pattern = seq(A, B).where("a.x > b.x + 5").within(30)
    for policy in ("darling", "random"):
        found = seen(pattern, Shed(keep=0.5, policy=policy))  # type: ignore[arg-type]
        assert found.choice.recall.value is None
        assert found.choice.recall.unknown == "no match in the sample"


def test_of_few_matches_nothing_is_told() -> None:
    found = seen(seq(A, B).where("b.x > a.x + 1.07").within(30), Shed(keep=0.5, policy="random"))
    assert found.choice.recall.value is None
    assert "matches in the sample" in found.choice.recall.unknown


# ---- the interval ------------------------------------------------------------------------------


def random_pattern(random: np.random.Generator) -> Pattern:
    """A sequence or a conjunction of 2 to 4 variables with conditions of chance."""
    count = int(random.integers(2, 5))
    parts = [A, B, C, D][:count]
    conditions = []
    for one, other in zip("abcd", "bcd", strict=False):
        if other not in "abcd"[:count] or random.random() < 0.15:
            continue
        kind = random.integers(0, 4)
        by = round(float(random.random()) / 2, 2)
        conditions.append(
            (
                f"{one}.x < {other}.x - {by}", f"{other}.x < {one}.x * {by + 0.5}",
                f"abs({one}.x - {other}.x) < {by + 0.05}", f"{one}.x + {other}.x > {by + 0.8}",
            )[kind]
        )  # fmt: skip
    made = seq(*parts) if random.random() < 0.7 else all_of(*parts)
    return (made.where(*conditions) if conditions else made).within(int(random.integers(12, 24)))


def test_the_interval_that_is_told_covers_the_truth() -> None:
    """Learned from a tenth of the rows, told of the others: of 200 random patterns in at least
    80 %."""
    random = np.random.default_rng(3)
    covered, told_of, known = 0, 200, 0
    for number in range(told_of):
        pattern, keep = random_pattern(random), float(random.choice([0.3, 0.5, 0.8]))
        policy = ("utility", "darling", "random")[number % 3]
        past = prepared_rows(pattern, 1_500, seed=number)
        learnt = learn_model(
            past.program,
            RowSample(past.table),
            policy,  # type: ignore[arg-type]
            TYPICAL_COSTS,
            keep,
        )
        recall = learnt.choose(keep, 4.0).recall
        if recall.value is None:
            continue
        later = prepared_rows(pattern, 6_000, seed=1_000 + number)
        shed = Shed(keep=keep, policy=policy)  # type: ignore[arg-type]
        found = looked(later.program, later.table, shed, model=learnt)
        kept = share_kept(
            counted_matches(later.program, later.table), found.stays(found.kinds(keep))
        )
        known += 1
        covered += recall.low - 0.005 <= kept <= recall.high + 0.005
    assert known > 150
    assert covered >= 0.8 * known, (covered, known)


def test_blocks_without_matches_are_searched_to_a_number_of_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs count while they are tested, not only when they have given a match."""
    tested = []
    count = Meter.count_pairs

    def count_pairs(meter: Meter, earliest: np.ndarray, pick: np.ndarray) -> None:
        tested.append(len(pick))
        count(meter, earliest, pick)

    monkeypatch.setattr(Meter, "count_pairs", count_pairs)
    never = seq(A, B, C, D).where("a.x < b.x", "b.x < c.x", "c.x + 9 < d.x").within(200)
    program, table = prepared_rows(never).program, prepared_rows(never).table
    with pytest.raises(LimitError):
        matches._matches_of(program, table, np.arange(table.num_rows), 20_000)
    assert sum(tested) < 60_000 + max(tested)
