"""The benchmarks of load shedding: streams, arrivals, the simulated clock, and who keeps what.

What they measure is not looked at here, but that a case small enough to compute by hand comes out
right, and that a wrong answer would be noticed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import darling, shed_bounds, shed_streams, shed_triggers, shedding
from benchmarks.data import Stock
from benchmarks.shed_figures import (
    Cell,
    Outcome,
    ahead_claims,
    averaged,
    bound_claims,
    cell,
    latencies,
    shares,
)
from benchmarks.shed_queries import QUERIES, Query
from benchmarks.shed_runs import BOUND, NEVER, Peaks, Run, overloaded, run, with_warming, work_of
from benchmarks.shed_streams import BALL, BALL_HERTZ, PLAYER_HERTZ, SECOND, bus, soccer, stock
from spark_cep.udfs.shedding.pace import SPARK_SECONDS

# As its default, with so few rows that a test takes a second.
SMALL = replace(QUERIES["Q1A"], rows=3_000, factor=1.5, window=20 * 60 * SECOND)


# ---- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [stock(500, 4), soccer(500, 3), bus(500, 4)])
def test_no_two_rows_have_the_same_event_time(columns: dict[str, np.ndarray]) -> None:
    assert (np.diff(columns["t"]) > 0).all()
    assert columns["i"].tolist() == list(range(500))
    assert all(np.isfinite(values).all() for values in columns.values())


def test_symbols_have_levels_of_their_own_and_one_update_a_minute() -> None:
    columns = stock(20_000, 4)
    minutes = columns["t"][-1] / (60 * SECOND)
    for symbol in range(4):
        assert np.count_nonzero(columns["kind"] == symbol) == pytest.approx(minutes, rel=0.01)
    logs = [np.log(columns["volume"][columns["kind"] == symbol]) for symbol in range(4)]
    assert logs[1].mean() - logs[0].mean() == pytest.approx(0.8, abs=0.2)
    assert logs[2].std() == pytest.approx(0.9, abs=0.1)


def test_the_ball_is_read_more_often_and_moves_faster_than_players() -> None:
    columns = soccer(20_000, 3)
    seconds = columns["t"][-1] / SECOND
    kinds = np.bincount(columns["kind"])
    assert kinds[BALL] == pytest.approx(BALL_HERTZ * seconds, rel=0.02)
    assert kinds[0] == pytest.approx(PLAYER_HERTZ * seconds, rel=0.02)
    is_ball = columns["kind"] == BALL
    assert columns["v"][is_ball].mean() > 2 * columns["v"][~is_ball].mean()


def test_later_lines_report_less_often() -> None:
    kinds = np.bincount(bus(20_000, 4)["kind"])
    assert (kinds[:-1] > 1.2 * kinds[1:]).all()


@pytest.mark.parametrize("name", QUERIES)
def test_every_template_compiles_and_its_chain_binds_every_event(name: str) -> None:
    work = work_of(replace(QUERIES[name], rows=600))
    slots = work.prepared.program.branches[0].slots
    assert sorted(work.order) == list(range(len(slots)))


# ---- arrivals ----------------------------------------------------------------------------------


def test_peaks_have_the_papers_shares_at_a_thousand_times_the_rate() -> None:
    gaps = np.diff(Peaks(seconds=30.0).arrivals(10_000))
    fast = gaps < gaps.max() / 500
    assert np.count_nonzero(fast) / 10_000 == pytest.approx(0.7, abs=0.001)
    starts = np.flatnonzero(np.diff(fast.astype(int)) == 1)
    ends = np.flatnonzero(np.diff(fast.astype(int)) == -1)
    assert (ends - starts).tolist() == pytest.approx([3000, 1000, 2000, 1000], abs=2)
    assert gaps.max() / gaps.min() == pytest.approx(1000)


def test_warm_rows_come_before_all_others() -> None:
    arrivals = with_warming(np.array([1.0, 2.0]), 4, seconds=8.0)
    assert arrivals.tolist() == [0.0, 2.0, 4.0, 6.0, 9.0, 10.0]


def test_an_overload_of_70_per_cent_is_what_a_third_of_the_work_fits_into() -> None:
    work = work_of(SMALL)
    arrivals = overloaded(work, 1e-3, 70)[work.warm :]
    per_second = 1 / np.diff(arrivals).mean()
    planned = BOUND * 0.8
    possible = (planned - SPARK_SECONDS) / 1e-3 / planned
    assert possible / per_second == pytest.approx(0.3)


# ---- runs --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full() -> Run:
    work = work_of(SMALL)
    return run(work, np.linspace(0, 4.0, work.rows), "none")


def test_matches_are_those_that_the_query_describes(full: Run) -> None:
    """Counted event by event over the rows that are not there to warm up."""
    columns = SMALL.columns()
    t, kind, volume = (columns[name].tolist() for name in ("t", "kind", "volume"))
    ways = [0] * len(t)
    # Sequences that end in a row of each type, by the row that they began with.
    began: list[dict[int, int]] = [{} for _ in t]
    for row in range(len(t)):
        if kind[row] == 0:
            began[row] = {row: 1}
        for before in range(row - 1, -1, -1):
            if t[row] - t[before] > SMALL.window:
                break
            if kind[before] == kind[row] - 1 and volume[row] > SMALL.factor * volume[before]:
                for first, count in began[before].items():
                    if t[row] - t[first] <= SMALL.window:
                        began[row][first] = began[row].get(first, 0) + count
        ways[row] = sum(began[row].values()) if kind[row] == 3 else 0
    assert len(full.found) == sum(ways[work_of(SMALL).warm :])
    assert len(full.found) > 100


def test_a_trigger_begins_when_the_one_before_has_ended_and_takes_what_has_come(full: Run) -> None:
    for one, other in zip(full.triggers, full.triggers[1:], strict=False):
        assert other.began >= one.began + one.seconds - 1e-9
        assert one.seconds > SPARK_SECONDS
    assert sum(each.rows for each in full.triggers) == work_of(SMALL).rows


def test_no_match_is_seen_before_its_last_row_has_come(full: Run) -> None:
    assert full.latency.min() > SPARK_SECONDS
    assert full.latency.max() < 3 * full.longest


def test_with_a_bound_that_is_never_reached_nothing_is_dropped(full: Run) -> None:
    work = work_of(SMALL)
    found = run(work, np.linspace(0, 4.0, work.rows), "utility", NEVER)
    assert found.share_of(full) == 1.0
    assert not any(each.dropped for each in found.triggers)


def test_without_time_rows_are_dropped_and_no_match_is_invented() -> None:
    work = work_of(replace(QUERIES["Q1A"], rows=8_000))
    arrivals = with_warming(np.full(work.rows - work.warm, 0.1), work.warm)
    everything, found = run(work, arrivals, "none"), run(work, arrivals, "random", 0.51)
    assert sum(each.dropped for each in found.triggers) > 100
    assert found.share_of(everything) < 0.9


def test_an_invented_match_and_one_found_twice_are_noticed(full: Run) -> None:
    wrong = replace(full, found=np.append(full.found, np.uint64(7)))
    with pytest.raises(AssertionError, match="do not give"):
        wrong.share_of(full)
    twice = replace(full, found=np.append(full.found, full.found[0]))
    with pytest.raises(AssertionError, match="twice"):
        twice.share_of(full)


# ---- what is told ------------------------------------------------------------------------------


def told(query: Query, **by_how: tuple[float, float]) -> Cell:
    """Of each policy the share and the longest trigger after the first one."""
    outcomes = {
        how: Outcome(share, share, 0.5, 0.9, 1.0, later, 0.0)
        for how, (share, later) in by_how.items()
    }
    return Cell(query.name, "window", 9.0, 9.0, 1.0, 10, 10, 1.0, outcomes)  # type: ignore[arg-type]


def test_claims_say_where_utility_is_behind_or_late() -> None:
    good = told(
        SMALL, none=(1, 9), utility=(0.9, 1.4), keys=(0.4, 1), darling=(0.2, 1), random=(0.3, 1)
    )
    late = told(
        SMALL, none=(1, 9), utility=(0.2, 1.6), keys=(0.3, 1), darling=(0.2, 1), random=(0.3, 1)
    )
    assert all(claim.holds for claim in [*bound_claims([good]), *ahead_claims([good])])
    bound, first = bound_claims([good, late])
    assert (bound.holds, first.holds) == (False, True)
    assert "1.60 s" in bound.figures
    keys, darling, random = ahead_claims([good, late])
    assert (keys.holds, darling.holds, random.holds) == (False, True, False)
    assert good.ratio("random") == pytest.approx(3.0)


def test_rows_at_random_keep_the_matches_whose_rows_all_stay(full: Run) -> None:
    """A half of the rows of each trigger, against the same dealt out a hundred times."""
    ends = np.cumsum([each.rows for each in full.triggers])
    shares = np.where(np.arange(len(ends)) % 2, 0.5, 1.0)
    halved = replace(
        full,
        triggers=tuple(
            replace(each, kept_share=share)
            for each, share in zip(full.triggers, shares, strict=True)
        ),
    )
    random = np.random.default_rng(0)
    of_row = np.repeat(shares, np.diff(ends, prepend=0))
    drawn = [
        np.logical_and.reduceat((random.random(len(of_row)) < of_row)[full.members], full.starts)
        for _ in range(100)
    ]
    assert full.by_chance(halved) == pytest.approx(np.mean(drawn), rel=0.1)
    assert full.by_chance(full) == 1.0


def test_the_game_is_real_or_has_its_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (shed_streams.GAME, Path("nowhere")):
        monkeypatch.setattr(shed_streams, "GAME", path)
        columns = shed_streams.game(50_000)
        assert len(columns["t"]) == 50_000
        assert (np.diff(columns["t"]) > 0).all()
        assert columns["t"][-1] == pytest.approx(21.36 * SECOND, rel=0.01)
        is_ball = columns["kind"] == BALL
        assert np.count_nonzero(is_ball) == 41_551
        assert columns["x"][is_ball].mean() == pytest.approx(-7.159, abs=0.01)
        assert columns["v"][~is_ball].mean() == pytest.approx(0.121, rel=0.05)


def test_more_conditions_are_each_looser() -> None:
    query = QUERIES["Q1A"].with_length(7)
    assert (query.length, query.window) == (7, QUERIES["Q1A"].window)
    assert query.factor**6 == pytest.approx(QUERIES["Q1A"].factor ** 3, rel=0.01)
    assert QUERIES["Q1A"].with_length(3).factor == QUERIES["Q1A"].factor
    assert QUERIES["Q2B"].with_length(8).bound > QUERIES["Q2B"].bound
    assert QUERIES["Q4B"].with_length(8) == QUERIES["Q4B"]


def test_the_table_of_bounds_has_a_row_for_each_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells.json"
    arguments = ["--quick", "--templates", "Q1A", "--lengths", "3", "--policies", "random"]
    shed_bounds.main([*arguments, "--json", str(file), "--figures", str(tmp_path)])
    assert [each["shape"] for each in json.loads(file.read_text())] == ["peaks", "continuous"]
    assert "at most one trigger in a hundred" in capsys.readouterr().out


def test_a_missed_bound_counts_also_where_the_process_did_not_run() -> None:
    work = work_of(replace(SMALL, rows=1_000))
    ran = run(work, np.linspace(0, 1.0, work.rows), "none")
    one, other = (
        replace(ran.triggers[-1], seconds=seconds, processor_seconds=busy)
        for seconds, busy in ((2.0, 1.9), (3.0, 0.2))
    )
    found = shed_bounds.outcome(replace(ran, triggers=(*ran.triggers[:-1], one, other)), ran, work)
    assert (found.late, found.missed, found.unscheduled) == (2, 2, 1)
    assert found.longest == 3.0


def test_figures_have_the_cells_of_the_paper_and_means_over_seeds(tmp_path: Path) -> None:
    every = darling.tasks(darling.PARTS, range(3), ("utility",), darling.FULL)
    assert len({(each.dataset, each.what, each.at) for each in every}) == 46
    assert {each.at for each in every if each.what == "length"} == set(range(3, 9))
    few = darling.tasks(("peaks", "cost"), range(2), ("random",), darling.QUICK)
    of_stock = [each for each in few if each.dataset == "stock" and each.at in {1.0, 3}]
    found = [darling.measure(each) for each in of_stock]
    cells = averaged([each for each in found if isinstance(each, Cell)])
    assert len(cells) == 2
    cost = [each for each in found if isinstance(each, darling.Overhead)]
    assert len(cost) == 2
    darling.draw_all(cells, cost, tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {
        f"darling-{number}{letter}.svg" for number in (6, 7, 8, 10) for letter in "ab"
    }


@pytest.mark.parametrize("shape", ["peaks", "continuous"])
def test_each_row_comes_in_one_of_sparks_triggers(shape: str) -> None:
    assert sum(shed_triggers.trigger_shares(shape)) == pytest.approx(1.0)


def test_a_cell_has_all_policies_and_its_tables_a_row() -> None:
    work = work_of(replace(SMALL, rows=1_500))
    found = cell(("Q1A", "window", 80.0), work, np.linspace(0, 2.0, work.rows))
    assert found.outcomes["none"].share == 1.0
    for text in (shares([found]), latencies([found])):
        assert len(text.splitlines()) == 3
        assert "Q1A, window 80" in text


def test_the_files_of_the_spark_benchmark_hold_all_rows_once(tmp_path: object) -> None:
    found = shedding.trigger_shares()
    assert sum(found) == pytest.approx(1.0)
    assert [share for share in found if share >= 0.1] == [0.3, 0.1, 0.2, 0.1]
    assert shedding.Run(tmp_path, 1, 0.1).scaled(Stock(1_000, 3)).rows == 100  # type: ignore[arg-type]
