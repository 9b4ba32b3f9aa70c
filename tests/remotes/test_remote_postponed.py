"""What strategies may differ in: when keys are requested. Not which ones are needed, which partial
matches are made, and where a limit is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.programs import prepare
from spark_cep.pattern import event, seq
from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.program import Limits, Plan
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec
from spark_cep.udfs.remotes.lookup import Lookup
from tests.remotes.looked_up import STRATEGIES
from tests.remotes.simulated import Simulated, Source, failing

if TYPE_CHECKING:
    from spark_cep.udfs.remote_spec import FetchStrategy

LATE = [each for each in STRATEGIES if each not in ("blocking", "cached")]
PLANS: dict[str, Plan] = {"eager": Plan("eager"), "tree": Plan("tree")}


@dataclass(frozen=True)
class Outcome:
    """`matches` None: a limit was reached."""

    matches: int | None
    keys: list[Any]
    metrics: Metrics
    waited_s: float = 0.0


def rows(count: int, accounts: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {
        "t": np.arange(count),
        "kind": random.integers(0, 3, count),
        "price": random.random(count),
        "account": random.integers(0, accounts, count),
    }


class Spread(Source):
    """A limit between 0 and 1 for each account."""

    def __call__(self, keys: list[int]) -> Mapping[int, float]:
        self.calls.append(keys)
        return {key: key * 7_919 % 1_000 / 1_000 for key in keys}


def run(  # noqa: PLR0913 - what a case varies
    strategy: FetchStrategy,
    conditions: Sequence[str],
    columns: Mapping[str, np.ndarray],
    *,
    window: int,
    limits: Limits | None = None,
    plan: Plan = PLANS["eager"],
    selection: Any = "skip till any match",
    consumption: Any = "reuse",
    batch: int = 100,
) -> Outcome:
    """a, b, c by kind, with values that arrive only while matching waits."""
    source = Spread()
    fetch_policy = FetchPolicy(batch=batch)
    remote = RemoteSpec(
        "limits", source, (pa.int64(),), pa.float64(), strategy, fetch_policy=fetch_policy
    )
    variables = [event(name, f"kind = {kind}") for kind, name in enumerate("abc")]
    pattern = seq(*variables).where(*conditions).within(window)
    pattern = pattern.strategy(selection).consumption(consumption)
    prepared = prepare(pattern, columns, remotes={"limits": remote})
    program = replace(prepared.program, plan=plan)
    program = program if limits is None else replace(program, limits=limits)
    lookup = Lookup(remote, Simulated(remote, source))
    try:
        step = advance_events(program, EventState(), prepared.table, lookups=(lookup,))
        matches = sum(len(found) for found in step.matches)
    except LimitError:
        return Outcome(None, source.asked_for, Metrics())
    return Outcome(matches, source.asked_for, step.metrics, lookup.metrics.waited_s)


# Few a have a b that meets the first condition, so few keys of a are needed.
RARE = ("b.price < a.price * 0.0002", "c.price > remote('limits', a.account)")
RARE_NOW = ("b.price < a.price * 0.0002", "b.price < remote('limits', a.account)")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("conditions", [RARE, RARE_NOW], ids=["two steps ahead", "next step"])
@pytest.mark.parametrize("strategy", LATE)
def test_keys_that_are_seldom_needed_are_not_fetched_ahead(
    strategy: FetchStrategy, conditions: Sequence[str], plan: str
) -> None:
    columns = rows(30_000, 1_000_000)
    needed = run("cached", conditions, columns, window=200, plan=PLANS[plan])
    found = run(strategy, conditions, columns, window=200, plan=PLANS[plan])
    assert found.matches == needed.matches
    assert 20 < len(needed.keys) < 300
    if strategy != "post":
        assert set(needed.keys) <= set(found.keys)
    assert len(found.keys) <= 1.3 * len(needed.keys)


def test_keys_that_are_mostly_needed_are_fetched_before_their_need() -> None:
    columns = rows(6_000, 1_000_000)
    conditions = ("a.price < b.price", "c.price > remote('limits', a.account)")
    cached, hybrid = (
        run(strategy, conditions, columns, window=30) for strategy in ("cached", "hybrid")
    )
    assert hybrid.matches == cached.matches
    assert len(hybrid.keys) <= 1.3 * len(cached.keys)
    prefetch = run("prefetch", conditions, columns, window=30)
    assert prefetch.metrics.partial_matches == cached.metrics.partial_matches


SELECTIVE = (
    "a.price < b.price", "b.price < remote('limits', a.account) * 0.01", "c.price > b.price",
)  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_a_limit_ends_every_strategy_alike(plan: str) -> None:
    columns = rows(3_000, 200)

    def outcome(strategy: FetchStrategy, most: int) -> Outcome:
        limits = Limits(partial_matches=most)
        return run(strategy, SELECTIVE, columns, window=900, limits=limits, plan=PLANS[plan])

    cached = outcome("cached", 1_000_000)
    peak = cached.metrics.peak_partial_matches
    assert cached.matches
    for strategy in STRATEGIES:
        assert outcome(strategy, peak).matches == cached.matches, strategy
        assert outcome(strategy, peak - 1).matches is None, strategy


@pytest.mark.parametrize("strategy", ["lazy", "hybrid"])
def test_postponing_makes_no_partial_match_that_fails(strategy: FetchStrategy) -> None:
    columns = rows(3_000, 200)
    cached, late = (run(each, SELECTIVE, columns, window=900) for each in ("cached", strategy))
    assert late.metrics.partial_matches == cached.metrics.partial_matches
    assert late.metrics.pairs == cached.metrics.pairs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_fails_one_condition_needs_no_key_of_the_next(strategy: FetchStrategy) -> None:
    columns = {
        "t": np.arange(4),
        "kind": np.array([0, 1, 1, 2]),
        "price": np.array([0.1, 0.2, 0.3, 0.4]),
        "account": np.array([1, 2, 3, 4]),
    }
    first, second = Source({1: 0.25}), Source({3: 0.0})
    second.answers = [failing()] if strategy == "post" else []
    conditions = (
        "b.price > remote('first', a.account)", "c.price > remote('second', b.account)",
    )  # fmt: skip
    remotes = {
        name: RemoteSpec(name, source, (pa.int64(),), pa.float64(), strategy)
        for name, source in (("first", first), ("second", second))
    }
    variables = [event(name, f"kind = {kind}") for kind, name in enumerate("abc")]
    prepared = prepare(seq(*variables).where(*conditions).within(10), columns, remotes=remotes)
    sources = {"first": first, "second": second}
    lookups = tuple(
        Lookup(remote, Simulated(remote, sources[remote.name]))
        for remote in prepared.program.remotes
    )
    step = advance_events(prepared.program, EventState(), prepared.table, lookups=lookups)
    assert sum(len(found) for found in step.matches) == 1
    if strategy != "post":
        assert second.asked_for == [3]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("strategy", ["lazy", "hybrid"])
def test_a_source_that_has_enough_to_do_is_not_asked_for_what_no_row_can_follow(
    strategy: FetchStrategy, plan: str
) -> None:
    columns = rows(3_000, 1_000_000)
    conditions = (*SELECTIVE[:2], "c.price > b.price + 0.9")

    def outcome(strategy: FetchStrategy, limits: Limits) -> Outcome:
        return run(
            strategy, conditions, columns, window=100, limits=limits, plan=PLANS[plan], batch=2
        )

    cached = outcome("cached", Limits())
    found = outcome(strategy, Limits())
    assert found.matches == cached.matches
    assert len(found.keys) < (0.7 if plan == "eager" else 1.0) * len(cached.keys)
    peak = cached.metrics.peak_partial_matches
    for most, matches in ((peak, cached.matches), (peak - 1, None)):
        limits = Limits(partial_matches=most)
        assert outcome("cached", limits).matches == matches
        assert outcome(strategy, limits).matches == matches


# ---- runs and consumption ------------------------------------------------------------------------


SELECTIONS = (
    ("skip till next match", "reuse"), ("skip till next match", "consume"),
    ("strict", "reuse"), ("skip till any match", "consume"),
)  # fmt: skip


@pytest.mark.parametrize("strategy", ["prefetch", "lazy", "hybrid"])
@pytest.mark.parametrize(("selection", "consumption"), SELECTIONS)
def test_runs_need_the_same_keys_make_the_same_rounds_and_reach_the_same_limits(
    selection: str, consumption: str, strategy: FetchStrategy
) -> None:
    columns = rows(4_000, 1_000_000)
    conditions = (
        "b.price > a.price", "b.price > remote('limits', a.account)",
        "c.price > remote('limits', b.account)",
    )  # fmt: skip

    def outcome(strategy: FetchStrategy, limits: Limits) -> Outcome:
        return run(
            strategy, conditions, columns, window=30, limits=limits, selection=selection,
            consumption=consumption,
        )  # fmt: skip

    cached = outcome("cached", Limits())
    found = outcome(strategy, Limits())
    assert cached.matches
    assert found.matches == cached.matches
    assert len(found.keys) <= 1.3 * len(cached.keys)
    if selection != "skip till any match":
        assert set(found.keys) >= set(cached.keys)
        counts = ("pairs", "partial_matches", "peak_partial_matches")
        assert [getattr(found.metrics, each) for each in counts] == [
            getattr(cached.metrics, each) for each in counts
        ]
    limits = Limits(partial_matches=cached.metrics.peak_partial_matches - 1)
    assert outcome("cached", limits).matches is None
    assert outcome(strategy, limits).matches is None


def test_runs_go_on_while_others_wait() -> None:
    columns = rows(4_000, 1_000_000)
    conditions = (
        "b.price > remote('limits', a.account)", "c.price > remote('limits', b.account)",
    )  # fmt: skip
    cached, lazy = (
        run(strategy, conditions, columns, window=30, selection="skip till next match")
        for strategy in ("cached", "lazy")
    )
    assert lazy.matches == cached.matches
    assert lazy.waited_s < cached.waited_s
