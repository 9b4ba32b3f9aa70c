"""The benchmarks of remote data: an engine on a virtual clock, and each program at its smallest.

What they measure is not looked at here, but that strategies agree, that the clock is right in
cases small enough to compute by hand, and that a difference would be noticed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import eires, remote_buckets, remote_delays, remote_runs
from benchmarks.remote_automaton import NOTHING, OWED, Class, has_room, owing
from benchmarks.remote_figures import Cell, behind, cells, latencies, not_first, ratios
from benchmarks.remote_runs import compare, contestants, run
from benchmarks.remote_services import ACCOUNTS, Sleeping, http_server, limit
from benchmarks.remote_source import MILLI, MILLI_GAP, Setting
from benchmarks.remote_streams import KEYS, Q1, Q1_PRINTED, Q2, Chain, Need, Query, Stream, stream

if TYPE_CHECKING:
    from pathlib import Path

A, B = 0, 1


# ---- the queries -------------------------------------------------------------------------------


def meets(chain: Chain, rows: Stream, events: tuple[int, ...], window: int) -> bool:
    """What Listing 2 says, event by event."""
    if events[-1] - events[0] > window:
        return False
    if any(rows.kind[event] != chain.kind(step) for step, event in enumerate(events)):
        return False
    if chain.same_id and len({rows.id[event] for event in events}) > 1:
        return False
    for each in chain.equals:
        own = rows.value(each.column)[events[each.step]]
        earlier = rows.value(each.earlier_column)[events[each.earlier]]
        if own % each.modulus != earlier % each.modulus:
            return False
    for need in chain.needs:
        answer = rows.answers[rows.keys(need.key)[events[need.key_step]]]
        if rows.value(need.value)[events[need.value_step]] % need.modulus != answer % need.modulus:
            return False
    return True


SHORT = Query(
    "short",
    (Chain("ABA", (), (Need(0, "v1", 1, "v1", 2), Need(1, "v2", 2, "v1", 2))),),
    dict.fromkeys(Q1.windows, 12),
)


def test_all_strategies_find_every_combination_that_the_query_describes() -> None:
    rows = stream("DS1", 120)
    chain = SHORT.chains[0]
    expected = {
        (0, *events)
        for first in range(120)
        for events in combinations(range(first, min(first + 13, 120)), 3)
        if events[0] == first and meets(chain, rows, events, 12)
    }
    assert expected
    found = compare(SHORT, "DS1", contestants(Setting("blocking", greedy=True)), 120)
    assert {frozenset(result.found) for result in found.values()} == {frozenset(expected)}


def test_without_greed_each_partial_match_takes_the_next_event_that_fits() -> None:
    rows = stream("DS1", 200)
    chain = SHORT.chains[0]
    expected = set()
    for first in np.flatnonzero(rows.kind == A).tolist():
        bound: tuple[int, ...] = (first,)
        for event in range(first + 1, min(first + 13, 200)):
            part = replace(
                chain, needs=tuple(need for need in chain.needs if need.step <= len(bound))
            )
            if len(bound) < 3 and meets(part, rows, (*bound, event), 12):
                bound = (*bound, event)
        if len(bound) == 3:
            expected.add((0, *bound))
    assert expected
    found = compare(SHORT, "DS1", contestants(Setting("blocking")), 200)
    assert {frozenset(result.found) for result in found.values()} == {frozenset(expected)}


@pytest.mark.parametrize("query", [Q1, Q1_PRINTED, Q2], ids=lambda query: query.name)
@pytest.mark.parametrize("greedy", [False, True], ids=["non-greedy", "greedy"])
def test_strategies_agree_when_delays_are_longer_than_the_window(
    query: Query, greedy: bool
) -> None:
    """Then conditions pile up, and more are owed than a partial match can hold."""
    base = Setting("blocking", greedy=greedy, delays=(0.5, 1.0), gap=1e-4, capacity=8)
    assert len(compare(query, "DS2", contestants(base), 500)) == 10


def test_a_strategy_that_finds_other_matches_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = remote_runs.run

    def wrong(query: Query, dataset: str, setting: Setting, events: int) -> remote_runs.Result:
        result = real(query, dataset, setting, events)  # type: ignore[arg-type]
        lost = setting.strategy == "lazy"
        return replace(result, found=frozenset()) if lost else result

    monkeypatch.setattr(remote_runs, "run", wrong)
    with pytest.raises(AssertionError, match="'lazy'"):
        compare(SHORT, "DS1", contestants(Setting("blocking")), 200)


# ---- the streams -------------------------------------------------------------------------------


def test_the_streams_have_the_distributions_of_table_2() -> None:
    even, skewed = stream("DS1", 40_000), stream("DS2", 40_000)
    assert np.bincount(even.v1, minlength=KEYS).max() < 60
    shares = np.bincount(skewed.v1, minlength=KEYS) / 40_000
    assert shares[0] == pytest.approx(2**1.01 * shares[1], rel=0.1)
    assert (stream("DS1", 50).v2 == stream("DS1", 50).v2).all()


# ---- what is owed ------------------------------------------------------------------------------


def test_an_element_is_owed_once_and_bad_if_it_was_ever_bad() -> None:
    nothing = np.full((1, OWED), NOTHING)
    good = owing(nothing, np.array([0]), np.array([False]))
    assert good[0].tolist() == [0, *[NOTHING] * (OWED - 1)]
    both = owing(good, np.array([0]), np.array([True]))
    assert both[0].tolist() == [1, *[NOTHING] * (OWED - 1)]
    assert owing(both, np.array([0]), np.array([False]))[0, 0] == 1


def test_there_is_room_for_what_is_owed_already() -> None:
    full = np.arange(OWED)[None] << 1
    assert has_room(full, np.array([OWED - 1])).tolist() == [True]
    assert has_room(full, np.array([OWED])).tolist() == [False]


def test_a_class_keeps_the_order_of_what_is_left() -> None:
    partial = Class(1)
    partial.add(np.arange(100)[:, None], np.full((100, OWED), NOTHING))
    assert partial.drop(np.arange(0, 100, 2))[:, 0].tolist() == list(range(0, 100, 2))
    assert partial.events[:, 0].tolist() == list(range(1, 100, 2))


# ---- the clock ---------------------------------------------------------------------------------


def test_who_waits_for_each_match_is_as_late_as_the_delay() -> None:
    """Events are a second apart and fetches take a millisecond: nothing queues up."""
    pair = Query(
        "pair", (Chain("AB", (), (Need(0, "v1", 1, "v1", 1),)),), dict.fromkeys(Q1.windows, 1)
    )
    base = Setting("blocking", delays=(1e-3, 1e-3), gap=1.0)
    late = run(pair, "DS1", base, 400)
    assert late.matches > 0
    assert late.latency[5] == pytest.approx(1e-3, rel=1e-3)
    assert late.latency[95] == pytest.approx(1e-3, rel=1e-3)
    ahead = run(pair, "DS1", replace(base, strategy="prefetch", ahead=0), 400)
    assert ahead.latency[95] < 1e-6
    assert ahead.counts["ahead"] > ahead.counts["ahead_used"] > 0


def test_a_lazy_engine_does_not_stand_still() -> None:
    base = Setting("lazy", delays=MILLI, gap=MILLI_GAP, further=8)
    lazy, waiting = (run(Q1, "DS1", each, 600) for each in (base, replace(base, further=0)))
    assert lazy.counts["waits"] == 0
    assert lazy.counts["postponed"] > 0
    assert waiting.counts["waits"] > 0
    assert waiting.counts["postponed"] == 0


def test_the_same_setting_gives_the_same_figures() -> None:
    first, second = (run(Q2, "DS2", Setting("hybrid", "cost"), 400) for _ in range(2))
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
    assert "bookkeeping" in not_first([slow])
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
    monkeypatch.setattr(eires, "QUICK", eires.Sizes(events=400, few=400))
    told = ["eires", "--quick", "--figures", str(tmp_path), "--json", str(tmp_path / "all.json")]
    monkeypatch.setattr("sys.argv", told)
    eires.main()
    said = capsys.readouterr().out
    assert all(f"Figure {number}" in said for number in range(5, 13))
    assert len(list(tmp_path.glob("eires-*.svg"))) == 8
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
