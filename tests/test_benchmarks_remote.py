"""The benchmarks of remote data: the library's engine on a virtual clock, and each program at its
smallest.

What they measure is not looked at here, but that strategies agree, that the clock is right in
cases small enough to compute by hand, and that a difference would be noticed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import eires, remote_buckets, remote_clock, remote_delays, remote_runs
from benchmarks.remote_clock import TimedLookup, VirtualClock, VirtualFetcher
from benchmarks.remote_figures import Cell, behind, cells, latencies, not_first, ratios
from benchmarks.remote_runs import Result, Setting, compare, contestants, digest, run
from benchmarks.remote_services import ACCOUNTS, Sleeping, http_server, limit
from benchmarks.remote_streams import (
    BUSHFIRE,
    CLUSTER,
    KEYS,
    Q1,
    Q1_LAST,
    Q1_PRINTED,
    Q2,
    Query,
    answer,
    stream,
)
from spark_cep.pattern import event, seq
from spark_cep.udfs.remote_spec import FetchPolicy, RemoteSpec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


# ---- the queries -------------------------------------------------------------------------------


SHORT = Query(
    "short",
    seq(event("a", "kind = 0"), event("b", "kind = 1"), event("c", "kind = 0")).where(
        "b.x = remote('values', a.v1)", "c.x = remote('values', b.v2)"
    ),
    (12, 12),
    2,
)
SIZE = 200
ROWS = {name: column.tolist() for name, column in stream("DS1", SIZE).items()}


def meets(events: tuple[int, ...]) -> bool:
    """What the query says of so many of its events."""
    kinds = tuple(ROWS["kind"][each] for each in events)
    if kinds != (0, 1, 0)[: len(events)] or events[-1] - events[0] > 12:
        return False
    needs = zip(events, events[1:], ("v1", "v2"), strict=False)
    return all(ROWS["x"][later] == answer(ROWS[key][earlier], 2) for earlier, later, key in needs)


def are_found(expected: Iterable[tuple[int, ...]], results: Iterable[Result]) -> bool:
    columns = np.array(sorted(expected)).T
    assert len(columns)
    number = digest(dict(enumerate(columns)), columns.shape[1])
    return all(each.found == number and each.matches == columns.shape[1] for each in results)


@pytest.mark.parametrize("trigger", [20, 1_000])
def test_all_strategies_find_every_combination_that_the_query_describes(trigger: int) -> None:
    expected = [
        (first, *others)
        for first in range(SIZE)
        for others in combinations(range(first + 1, min(first + 13, SIZE)), 2)
        if meets((first, *others))
    ]
    base = Setting("blocking", greedy=True, trigger=trigger)
    assert are_found(expected, compare(SHORT, "DS1", contestants(base), SIZE).values())


def test_without_greed_each_partial_match_takes_the_next_event_that_fits() -> None:
    expected = []
    for first in range(SIZE):
        bound: tuple[int, ...] = (first,)
        for each in range(first + 1, min(first + 13, SIZE)):
            if len(bound) < 3 and meets((*bound, each)):
                bound = (*bound, each)
        if len(bound) == 3 and meets(bound):
            expected.append(bound)
    base = Setting("blocking", trigger=50)
    assert are_found(expected, compare(SHORT, "DS1", contestants(base), SIZE).values())


def test_one_other_match_is_another_number() -> None:
    rows = {0: np.array([1, 2]), 1: np.array([3, 4])}
    assert digest(rows, 2) != digest({0: np.array([1, 2]), 1: np.array([4, 3])}, 2)
    assert digest(rows, 2) == digest({0: np.array([2, 1]), 1: np.array([4, 3])}, 2)


@pytest.mark.parametrize("query", [Q1, Q1_PRINTED, Q2], ids=lambda query: query.name)
@pytest.mark.parametrize("greedy", [False, True], ids=["non-greedy", "greedy"])
def test_strategies_agree_when_delays_are_longer_than_the_window(
    query: Query, greedy: bool
) -> None:
    base = Setting("blocking", greedy=greedy, delays=(0.5, 1.0), capacity=8, trigger=200)
    assert len(compare(query, "DS2", contestants(base), 500)) == 10


def test_a_strategy_that_finds_other_matches_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = remote_runs.run

    def wrong(query: Query, dataset: str, setting: Setting, events: int) -> Result:
        result = real(query, dataset, setting, events)
        lost = setting.strategy == "lazy"
        return replace(result, found=result.found + 1) if lost else result

    monkeypatch.setattr(remote_runs, "run", wrong)
    with pytest.raises(AssertionError, match="'lazy'"):
        compare(SHORT, "DS1", contestants(Setting("blocking", greedy=True)), SIZE)


# ---- the streams -------------------------------------------------------------------------------


def test_the_streams_have_the_distributions_of_table_2() -> None:
    even, skewed = stream("DS1", 40_000), stream("DS2", 40_000)
    assert np.bincount(even["v1"], minlength=KEYS).max() < 20
    shares = np.bincount(skewed["v1"], minlength=KEYS) / 40_000
    assert shares[0] == pytest.approx(2**1.01 * shares[1], rel=0.1)
    assert (stream("DS1", 50)["v2"] == stream("DS1", 50)["v2"]).all()


@pytest.mark.parametrize("query", [BUSHFIRE, CLUSTER], ids=lambda query: query.name)
def test_the_case_studies_have_matches(query: Query) -> None:
    assert run(query, "", Setting("hybrid", greedy=True), 6_000).matches > 0


# ---- the clock ---------------------------------------------------------------------------------


def lookup_of(in_flight: int, delay: float) -> TimedLookup:
    """A lookup whose own work takes no time."""
    policy = FetchPolicy(batch=1, in_flight=in_flight)
    remote = RemoteSpec(
        "values", lambda keys: dict.fromkeys(keys, 1.0), (pa.int64(),), pa.float64(),
        fetch_policy=policy,
    )  # fmt: skip
    return TimedLookup(remote, VirtualFetcher(remote, VirtualClock(), lambda _: delay))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADVANCE", "STEP", "PAIR", "PARTIAL", "TEST", "CALL", "ID"):
        monkeypatch.setattr(remote_clock, name, 0.0)


@pytest.mark.usefixtures("free")
def test_so_many_calls_are_under_way_at_once() -> None:
    lookup = lookup_of(5, 1e-3)
    ids = lookup.ids([pa.array(range(11))])
    lookup.wait(ids)
    assert lookup._time.now == pytest.approx(3e-3)
    assert lookup.metrics.waited_s == pytest.approx(3e-3)


@pytest.mark.usefixtures("free")
def test_calls_end_and_begin_while_the_engine_works() -> None:
    lookup = lookup_of(5, 1e-3)
    ids = lookup.ids([pa.array(range(11))])
    lookup.ask(ids)
    lookup._time.spend(2.5e-3)
    assert lookup.ready(ids).sum() == 10
    lookup.wait(ids)
    assert lookup._time.now == pytest.approx(3e-3)


@pytest.mark.usefixtures("free")
def test_a_match_that_waits_for_one_value_is_as_late_as_the_value() -> None:
    """Events are a second apart, each a trigger: nothing queues up."""
    pair = Query(
        "pair",
        seq(event("a", "kind = 0"), event("b", "kind = 1")).where("b.x = remote('values', b.v1)"),
        (1, 1),
        2,
    )
    setting = Setting("cached", greedy=True, delays=(1e-3, 1e-3), gap=1.0, trigger=1)
    late = run(pair, "DS1", setting, 300)
    assert late.matches > 0
    assert late.latency[95] == pytest.approx(1e-3)
    assert late.busy == pytest.approx(late.counts["keys"] * 1e-3 / 300, rel=0.2)


def test_what_the_engine_does_takes_time() -> None:
    setting = Setting("cached", greedy=True, delays=(0.0, 0.0), gap=1.0, trigger=500)
    result = run(Q1, "DS1", setting, 1_000)
    least = 2 * remote_clock.ADVANCE + remote_clock.PARTIAL * result.counts["partials"]
    assert least < 1_000 * result.service_s < 5 * least


def test_wrong_estimates_fetch_what_nobody_needs() -> None:
    base = Setting("prefetch", "cost", trigger=300)
    right, wrong = (run(Q1, "DS1", replace(base, noise=each), 3_000) for each in (0.0, 0.9))
    assert right.counts["prefetched"] > 0
    assert wrong.counts["wasted"] > right.counts["wasted"]
    assert wrong.found == right.found


def test_the_class_at_which_to_fetch_ahead_can_be_chosen() -> None:
    base = Setting("prefetch", greedy=True)
    some = [run(Q1_LAST, "DS1", replace(base, ahead=each), 2_000) for each in (1, 7, 8)]
    assert some[0] != some[1]
    # Before the first event nothing is known.
    assert some[2].counts["prefetched"] == 0


def test_the_same_setting_gives_the_same_figures() -> None:
    first, second = (run(Q2, "DS2", Setting("hybrid", "cost"), 1_000) for _ in range(2))
    assert first == second


# ---- what is said ------------------------------------------------------------------------------


def cell_of(**medians: float) -> Cell:
    result = run(SHORT, "DS1", Setting("blocking"), 60)
    runs = {
        name: replace(
            result, latency=dict.fromkeys(remote_runs.PERCENTILES, medians.get(name, 9.0))
        )
        for name in remote_runs.STRATEGIES
    }
    return Cell("Q1", "DS1", greedy=True, policy="cost", runs=runs)


def test_cells_in_which_hybrid_is_not_first_are_listed_with_a_reason() -> None:
    assert behind(cell_of(hybrid=1.0)) == []
    assert behind(cell_of(hybrid=1.0, prefetch=0.97)) == []
    slow = cell_of(hybrid=2.0, prefetch=1.0)
    assert behind(slow)[0] == (50, "prefetch", 2.0)
    assert "PFetch" in not_first([slow])
    assert "smaller sets" in not_first([slow])
    assert not_first([cell_of(hybrid=1.0)]) == "Hybrid is first in all cells."


def test_the_papers_ratios_stand_beside_ours() -> None:
    text = ratios([cell_of(hybrid=1.0, blocking=50.0)])
    assert "50 (111)" in text
    assert "9 (283)" in text


def test_a_comparison_has_a_cell_for_each_policy() -> None:
    found = cells("Q1", "DS1", compare(SHORT, "DS1", contestants(Setting("blocking")), 200))
    assert [cell.policy for cell in found] == ["cost", "lru"]
    assert latencies(found).count("BL1") == 1


# ---- the programs ------------------------------------------------------------------------------


def test_the_experiment_runs_and_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(eires, "QUICK", 200)
    for name in ("NOISE", "CACHES", "DELAYS", "WEIGHTS", "CLASSES"):
        monkeypatch.setattr(eires, name, getattr(eires, name)[:2])
    told = ["eires", "--quick", "--figures", str(tmp_path), "--json", str(tmp_path / "all.json")]
    monkeypatch.setattr("sys.argv", told)
    eires.main()
    said = capsys.readouterr().out
    assert all(f"Figure {number}" in said for number in range(5, 14))
    assert len(list(tmp_path.glob("eires-*.svg"))) == 9
    assert (tmp_path / "all.json").stat().st_size > 0


def test_all_strategies_answer_as_the_joined_query() -> None:
    size = remote_delays.Size(4_000, 1, (0.001,))
    lines = remote_delays.sleeping(size)
    assert {line.what for line in lines} == {"joined", *remote_runs.STRATEGIES}
    assert len({line.matches for line in lines}) == 1
    assert "sleeps 1 ms" in remote_delays.report(lines)
    assert len(remote_delays.claims(lines)) == 1


def test_the_http_server_gives_the_limits_of_accounts() -> None:
    httpx = pytest.importorskip("httpx")
    with http_server(0.0) as url:
        answer = httpx.post(url, json={"keys": [0, 5]}).json()
    assert answer == {"0": limit(0), "5": limit(5)}
    assert Sleeping(0.0)([5]) == {5: limit(5)}
    assert len({limit(account) for account in range(ACCOUNTS)}) == ACCOUNTS


# ---- buckets -----------------------------------------------------------------------------------


def test_buckets_that_take_turns_call_less_and_ask_for_the_same() -> None:
    size = (2, 0.002)
    lines = {
        name: remote_buckets.run("cached", name, buckets, trigger, size)
        for name, buckets, trigger in (
            ("one bucket", 1, remote_buckets.together),
            ("32 buckets", 4, remote_buckets.together),
            ("32 in line", 4, remote_buckets.in_line),
        )
    }
    assert lines["32 buckets"].keys == lines["32 in line"].keys > lines["one bucket"].keys
    assert lines["32 buckets"].calls <= lines["32 in line"].calls
    lines["32, no delay"] = replace(lines["one bucket"], what="32, no delay")
    assert "32 in line" in remote_buckets.report(list(lines.values()))
    assert len(remote_buckets.claims(list(lines.values()))) == 1
