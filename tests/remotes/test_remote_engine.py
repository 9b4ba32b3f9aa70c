"""The engine with remote data against brute force, on random patterns, rows and arrivals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from spark_cep.udfs.remote_spec import Caching, FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes.lookup import Lookup
from tests.remotes.looked_up import STRATEGIES, Looked, answer
from tests.remotes.scripted import Scripted
from tests.settings import in_advances, in_slices, whole
from tests.strategies import cases
from tests.test_differential import QUICK, agree, has_group_operator

if TYPE_CHECKING:
    from tests.cases import Case
    from tests.reference.matcher import Match


@st.composite
def looked(draw: st.DrawFn, case: Case, of: Any) -> Looked:
    strategies = tuple(draw(st.sampled_from(STRATEGIES)) for _ in range(3))
    return Looked(draw(of(case)), strategies, draw(st.integers(0, 99)), draw(st.booleans()))


def scripted(case: Case, looked: Looked) -> Counter[Match]:
    return answer(case, looked, partial(Scripted, forgets=looked.forgets))


@pytest.mark.parametrize("of", [whole, in_advances], ids=["whole", "in advances"])
def test_whenever_data_comes_the_answer_is_the_same(of: Any) -> None:
    agree(QUICK, cases(("any",)), lambda case: looked(case, of), run=scripted)


def test_runs_wait_for_their_data() -> None:
    agree(QUICK, cases(("next", "strict")), lambda case: looked(case, whole), run=scripted)


def test_consuming_comes_after_all_tests() -> None:
    drawn = cases(("any",), consuming=True)
    agree(QUICK, drawn, lambda case: looked(case, whole), run=scripted)


@pytest.mark.parametrize("of", [whole, in_advances], ids=["whole", "in advances"])
def test_negated_and_repeated_groups_look_up_like_single_variables(of: Any) -> None:
    drawn = cases(("any", "any", "next", "strict"), groups=True)
    agree(QUICK // 8, drawn, lambda case: looked(case, of), has_group_operator, scripted)


def test_time_slices_look_up_for_themselves() -> None:
    agree(
        QUICK,
        cases(("any",)),
        lambda case: looked(case, in_slices),
        lambda case: case.pattern.window is not None and case.pattern.window.events is None,
        scripted,
    )


# ---- the real lookup, with threads ---------------------------------------------------------------


def threaded(case: Case, looked: Looked) -> Counter[Match]:
    """Small caches of both policies, so that values are evicted and fetched again."""

    def lookup_of(remote: RemoteSpec, seed: int) -> Lookup:
        policy = "cost" if seed % 2 else "lru"
        caching = Caching(policy, (1, 60, 400, 1 << 20)[seed % 4])
        fetch_policy = FetchPolicy(batch=1 + seed % 3, in_flight=1 + seed % 4)
        return Lookup(replace(remote, caching=caching, fetch_policy=fetch_policy))

    try:
        return answer(case, looked, lookup_of)
    finally:
        for lookup in looked.seen:
            assert isinstance(lookup, Lookup)
            lookup.close()


@pytest.mark.parametrize("of", [whole, in_advances], ids=["whole", "in advances"])
def test_every_strategy_and_cache_gives_the_answer(of: Any) -> None:
    agree(QUICK, cases(("any", "any", "next")), lambda case: looked(case, of), run=threaded)
