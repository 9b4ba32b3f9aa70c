"""How many rows there is time for."""

from __future__ import annotations

import pytest

from spark_cep.udfs.shedding.pace import ENOUGH_ROWS, FIXED_SECONDS, ROW_SECONDS, Pace


def linear(share: float) -> float:
    return share


def test_what_a_row_takes_is_measured() -> None:
    pace = Pace(1, linear)
    pace.saw(10_000, 10_000, 1.0, FIXED_SECONDS + 10_000 * (ROW_SECONDS + 5e-6))
    assert pace.work == pytest.approx(5e-6)
    assert pace.seconds(20_000, 1.0, 1.0) == pytest.approx(
        FIXED_SECONDS + 20_000 * (ROW_SECONDS + 5e-6)
    )


def test_slower_is_believed_sooner_than_faster() -> None:
    pace = Pace(1, linear, work=10e-6, density=1.0, seen=1)
    pace.saw(10_000, 10_000, 1.0, FIXED_SECONDS + 10_000 * (ROW_SECONDS + 20e-6))
    slower = pace.work - 10e-6
    pace = Pace(1, linear, work=20e-6, density=1.0, seen=1)
    pace.saw(10_000, 10_000, 1.0, FIXED_SECONDS + 10_000 * (ROW_SECONDS + 10e-6))
    faster = 20e-6 - pace.work
    assert slower > 2 * faster > 0


def test_small_triggers_say_what_a_trigger_takes_not_what_a_row_takes() -> None:
    pace = Pace(2, linear, work=1e-6)
    for _ in range(20):
        pace.saw(ENOUGH_ROWS - 1, ENOUGH_ROWS - 1, 1.0, 0.05)
    assert pace.work == 1e-6
    assert pace.fixed == pytest.approx(0.05, rel=0.1)


def test_denser_rows_take_longer_by_the_power_of_the_other_slots() -> None:
    pace = Pace(3, linear, work=1e-6, density=1.0, seen=1)
    row = pace.seconds(100_000, 1.0, 1.0) - pace.fixed - 100_000 * ROW_SECONDS
    dense = pace.seconds(100_000, 1.0, 4.0) - pace.fixed - 100_000 * ROW_SECONDS
    sparse = pace.seconds(100_000, 1.0, 0.25) - pace.fixed - 100_000 * ROW_SECONDS
    assert dense == pytest.approx(64 * row)
    assert sparse == pytest.approx(row)


def test_the_share_fills_the_budget_and_all_stay_where_it_is_large_enough() -> None:
    pace = Pace(1, lambda share: share * share, work=10e-6, density=1.0, seen=1)
    whole = pace.seconds(100_000, 1.0, 1.0)
    assert pace.share(100_000, 1.0, whole) == 1.0
    share = pace.share(100_000, 1.0, whole / 2)
    assert pace.seconds(100_000, share, 1.0) == pytest.approx(whole / 2, rel=1e-3)
    assert pace.share(100_000, 1.0, 0.0) == pytest.approx(0.0, abs=1e-4)


def test_rows_that_take_next_to_nothing_stay_also_without_a_budget() -> None:
    pace = Pace(1, linear, work=1e-6, density=1.0, seen=1, fixed=0.5)
    assert pace.share(1000, 1.0, 0.0) == 1.0
