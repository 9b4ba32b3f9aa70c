"""How dense rows lie in event time, whichever triggers brought them."""

from __future__ import annotations

import numpy as np
import pytest

from spark_cep.udfs.shedding.pace import RowDensity


def test_triggers_shorter_than_a_window_are_as_dense_as_one_that_is_longer() -> None:
    times = np.arange(0, 10_000, 10)
    one = RowDensity(1000.0).density(times)
    assert one == pytest.approx(0.1, rel=0.01)
    crowd = RowDensity(1000.0)
    for piece in np.array_split(times, 40):
        found = crowd.density(piece)
    assert found == pytest.approx(one, rel=0.05)


def test_a_window_that_is_not_full_yet_has_few_rows() -> None:
    crowd = RowDensity(1000.0)
    assert crowd.density(np.arange(0, 100, 10)) == pytest.approx(0.01)
    assert crowd.density(np.arange(100, 200, 10)) == pytest.approx(0.02)


def test_rows_of_long_ago_do_not_count() -> None:
    crowd = RowDensity(100.0)
    crowd.density(np.arange(1000))
    assert crowd.density(np.arange(5000, 5200, 10)) == pytest.approx(0.1, rel=0.1)


def test_times_that_are_none_are_no_rows() -> None:
    crowd = RowDensity(10.0)
    assert crowd.density(np.array([], dtype=np.int64)) == 0.0
    assert crowd.density(np.array([np.nan, 1.0, 2.0])) == pytest.approx(0.2)
