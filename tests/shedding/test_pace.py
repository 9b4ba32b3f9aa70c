"""How many rows there is time for."""

from __future__ import annotations

import pytest

from spark_cep.udfs.shedding.pace import (
    ENOUGH_ROWS,
    FEW_ROWS,
    FIXED_SECONDS,
    ROW_SECONDS,
    TriggerTimeModel,
)


def linear(share: float) -> float:
    return share


def test_what_a_row_takes_is_measured() -> None:
    pace = TriggerTimeModel(1, linear)
    pace.observe(10_000, 10_000, 1.0, FIXED_SECONDS + 10_000 * (ROW_SECONDS + 5e-6))
    assert pace.work == pytest.approx(5e-6)
    assert pace.seconds(20_000, 1.0, 1.0) == pytest.approx(
        FIXED_SECONDS + 20_000 * (ROW_SECONDS + 5e-6)
    )


def test_slower_is_believed_sooner_than_faster() -> None:
    pace = TriggerTimeModel(1, linear, work=10e-6, density=1.0, seen=1)
    pace.observe(10_000, 10_000, 1.0, FIXED_SECONDS + 10_000 * (ROW_SECONDS + 20e-6))
    slower = pace.work - 10e-6
    pace = TriggerTimeModel(1, linear)
    for row in (20e-6, 10e-6):
        pace.observe(10_000, 10_000, 1.0, FIXED_SECONDS + 10_000 * (ROW_SECONDS + row))
    faster = 20e-6 - pace.work
    assert slower > 2 * faster > 0


def test_a_few_rows_say_what_a_trigger_takes_without_any() -> None:
    pace = TriggerTimeModel(2, linear, work=1e-6)
    for _ in range(20):
        pace.observe(FEW_ROWS - 1, FEW_ROWS - 1, 1.0, 0.05)
    assert pace.work == 1e-6
    assert pace.fixed == pytest.approx(0.05, rel=0.1)


def test_small_triggers_say_together_what_a_row_takes() -> None:
    pace = TriggerTimeModel(1, linear, work=1.0)
    rows = ENOUGH_ROWS // 2
    pace.observe(rows, rows, 1.0, FIXED_SECONDS + rows * (ROW_SECONDS + 10e-6))
    assert pace.work == 1.0
    pace.observe(rows, rows, 1.0, FIXED_SECONDS + rows * (ROW_SECONDS + 20e-6))
    assert pace.work == pytest.approx(15e-6)


def test_a_slow_trigger_of_few_rows_says_little_after_many() -> None:
    pace = TriggerTimeModel(1, linear)
    pace.observe(50_000, 50_000, 1.0, FIXED_SECONDS + 50_000 * (ROW_SECONDS + 5e-6))
    for _ in range(3):
        pace.observe(300, 300, 1.0, FIXED_SECONDS)
    pace.observe(ENOUGH_ROWS, ENOUGH_ROWS, 1.0, 0.5)
    assert pace.work < 20e-6


def test_going_over_the_rows_before_again_is_no_work_of_new_rows() -> None:
    pace = TriggerTimeModel(1, linear)
    pace.observe(100_000, 100_000, 1.0, FIXED_SECONDS + 100_000 * (ROW_SECONDS + 5e-6))
    pace.observe(2_000, 2_000, 1.0, FIXED_SECONDS + 2_000 * (ROW_SECONDS + 5e-6) + 0.4)
    assert pace.work == pytest.approx(5e-6)
    assert pace.again == pytest.approx(0.4 / 0.5)
    assert pace.seconds(0, 1.0, 1.0) == pytest.approx(FIXED_SECONDS + 0.8 * (0.4 + 0.01))


def test_denser_rows_take_longer_by_the_power_of_the_other_slots() -> None:
    pace = TriggerTimeModel(3, linear, work=1e-6, density=1.0, seen=1)
    row = pace.seconds(100_000, 1.0, 1.0) - pace.fixed - 100_000 * ROW_SECONDS
    dense = pace.seconds(100_000, 1.0, 4.0) - pace.fixed - 100_000 * ROW_SECONDS
    sparse = pace.seconds(100_000, 1.0, 0.25) - pace.fixed - 100_000 * ROW_SECONDS
    assert dense == pytest.approx(64 * row)
    assert sparse == pytest.approx(row)


def test_the_share_fills_the_budget_and_all_stay_where_it_is_large_enough() -> None:
    pace = TriggerTimeModel(1, lambda share: share * share, work=10e-6, density=1.0, seen=1)
    whole = pace.seconds(100_000, 1.0, 1.0)
    assert pace.share(100_000, 1.0, whole) == 1.0
    share = pace.share(100_000, 1.0, whole / 2)
    assert pace.seconds(100_000, share, 1.0) == pytest.approx(whole / 2, rel=1e-3)
    assert pace.share(100_000, 1.0, 0.0) == pytest.approx(0.0, abs=1e-4)


def test_rows_that_take_next_to_nothing_stay_also_without_a_budget() -> None:
    pace = TriggerTimeModel(1, linear, work=1e-6, density=1.0, seen=1, fixed=0.5)
    assert pace.share(1000, 1.0, 0.0) == 1.0


def test_work_that_falls_faster_than_matches_is_seen_when_rows_are_dropped() -> None:
    pace = TriggerTimeModel(1, lambda share: share, least=lambda share: share**3)
    pace.observe(100_000, 100_000, 1.0, FIXED_SECONDS + 100_000 * (ROW_SECONDS + 10e-6))
    # As long as it was not seen, the bound counts.
    assert pace.part_of(0.5) == pytest.approx(0.5)
    for _ in range(6):
        pace.observe(100_000, 50_000, 1.0, FIXED_SECONDS + 50_000 * ROW_SECONDS + 0.15)
    assert pace.part_of(0.5) * pace.work == pytest.approx(1.5e-6, rel=0.1)
    assert pace.work == pytest.approx(10e-6, rel=0.2)
    # What was taken for ease is given up at once.
    pace.observe(100_000, 50_000, 1.0, FIXED_SECONDS + 50_000 * ROW_SECONDS + 0.5)
    assert pace.part_of(0.5) * pace.work == pytest.approx(5e-6, rel=0.2)


def test_what_triggers_took_longer_than_planned_is_kept_in_hand_for_a_while() -> None:
    pace = TriggerTimeModel(1, lambda share: share * share, work=10e-6, density=1.0, seen=1)
    at_first = pace.share(100_000, 1.0, 0.5)
    pace.observe(100_000, round(100_000 * at_first), 1.0, 1.2 * 0.5)
    assert pace.margin == pytest.approx(0.2, rel=0.01)
    share = pace.share(100_000, 1.0, 0.5)
    assert pace.seconds(100_000, share, 1.0) == pytest.approx(0.5 / 1.2, rel=0.01)
    for _ in range(20):
        share = pace.share(100_000, 1.0, 0.5)
        pace.observe(100_000, round(100_000 * share), 1.0, pace.seconds(100_000, share, 1.0))
    assert pace.margin < 0.05
