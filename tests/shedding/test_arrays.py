"""The utility arrays: exactly the quota stays, the highest levels first."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_cep.udfs.shedding.quota import select_rows, select_rows_by_kind, tie_breakers, weights_of
from spark_cep.udfs.shedding.utility import LEVELS

LEVEL_LISTS = st.lists(st.integers(0, LEVELS - 1) | st.integers(0, 3), max_size=60)


@given(LEVEL_LISTS, st.integers(-2, 70))
def test_the_quota_stays_and_no_level_below_one_that_goes(levels: list[int], quota: int) -> None:
    found, own = np.array(levels, dtype=np.int64), tie_breakers(np.arange(len(levels)), 0)
    stays = select_rows(found, own, quota)
    assert stays.sum() == min(max(quota, 0), len(levels))
    score = found + own
    if stays.any() and not stays.all():
        assert score[stays].min() >= score[~stays].max()


def test_kinds_lose_by_the_policy() -> None:
    mask = np.repeat([1, 2], [30, 90])
    rows = (mask, np.zeros(120, dtype=np.int64), tie_breakers(np.arange(120), 0))
    kept = {
        policy: tuple(
            int(select_rows_by_kind(rows, 40, weights)[mask == kind].sum()) for kind in (1, 2)
        )
        for policy in ("darling", "random", "frequency")
        for weights in [partial(weights_of, policy, loads={0: 3.0, 1: 1.0})]
    }
    # 30 * 3 and 90 * 1 of work are equal parts; a third of all rows; as many of each kind.
    assert kept == {"darling": (20, 20), "random": (10, 30), "frequency": (20, 20)}


def test_a_rows_own_number_hangs_on_its_time_and_the_seed() -> None:
    times = np.arange(10_000)
    one, other = tie_breakers(times, 1), tie_breakers(times, 2)
    assert (tie_breakers(times[::-1], 1)[::-1] == one).all()
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.05
    assert np.allclose(np.quantile(one, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)
    fractions = tie_breakers(times / 7, 1)
    assert len(np.unique(fractions)) == len(times)
