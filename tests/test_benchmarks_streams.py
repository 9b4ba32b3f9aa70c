"""The generated streams of the experiments: what they promise, on small samples, without a JVM."""

from __future__ import annotations

import doctest
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import adaptive_runs, pattern_sets
from benchmarks.adaptive_runs import Cell, Result, run_cell
from benchmarks.apam import NAMES, Sizes, experiment, pattern
from benchmarks.comparison import BEHIND, not_first
from benchmarks.pattern_sets import (
    KINDS,
    STREAMS,
    Kind,
    Stream,
    estimates,
    laws_of,
    workload,
)
from benchmarks.programs import prepare, run
from benchmarks.streams import Laws, apam, drawn, stocks, traffic
from benchmarks.virtual_clock import traced, waits
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.planning.apam import apam_partitions
from spark_cep.udfs.planning.planner import branch_models
from spark_cep.udfs.program import Adaptation, Estimates, Plan

if TYPE_CHECKING:
    from benchmarks.programs import Prepared
    from spark_cep.udfs.planning.apam import ApamPartition
    from spark_cep.udfs.program import PlanKind
# ---- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("laws", [traffic(2_000, 4), stocks(2_000, 4)])
def test_a_stream_is_the_same_for_the_same_seed_and_in_the_order_of_time(laws: Laws) -> None:
    first, again, other = drawn(laws), drawn(laws), drawn(laws, seed=1)
    assert len(first["t"]) == 2_000
    assert (np.diff(first["t"]) >= 0).all()
    for name, values in first.items():
        assert (values == again[name]).all()
        assert (values != other[name]).any()


def test_shares_and_means_are_those_of_the_law() -> None:
    laws = Laws(
        np.array([40_000, 40_000]),
        np.array([[0.1, 0.9], [0.75, 0.25]]),
        {"x": np.array([[0.0, 2.0], [1.0, -1.0]])},
    )
    columns = drawn(laws)
    for law, rows in enumerate((slice(0, 40_000), slice(40_000, None))):
        kind, x = columns["kind"][rows], columns["x"][rows]
        for number in range(2):
            assert (kind == number).mean() == pytest.approx(laws.shares[law, number], abs=0.01)
            assert x[kind == number].mean() == pytest.approx(laws.means["x"][law, number], abs=0.06)


def test_what_is_rarest_in_the_traffic_stream_is_most_frequent_after_the_next_shift() -> None:
    shares = traffic(3_000, 8).shares
    assert len(shares) == 4
    for before, after in pairwise(shares):
        assert before.max() / before.min() == pytest.approx(50)
        assert after[before.argmin()] == after.max()
        assert after[before.argmax()] < 0.05 < before.max()


def test_shares_of_the_stock_stream_stay_close_and_are_never_still() -> None:
    shares = stocks(200_000, 8).shares
    assert np.median(shares.max(axis=1) / shares.min(axis=1)) < 4
    assert (shares[1:] != shares[:-1]).all()


def test_the_ranges_of_the_apam_stream_give_the_selectivities_that_were_asked_for() -> None:
    wanted = (0.3, 0.02)
    columns = apam(20_000, wanted)
    for number, selectivity in enumerate(wanted):
        values = columns[f"attr{number + 1}"]
        left, right = (values[columns["kind"] == kind][:2_000] for kind in (number, number + 1))
        assert (left[:, np.newaxis] < right).mean() == pytest.approx(selectivity, rel=0.15)


# ---- pattern sets ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", STREAMS)
def test_every_pattern_set_has_branches_of_its_size(stream: Stream, kind: Kind) -> None:
    columns = drawn(laws_of(stream, kind, 4, 100))
    branches = prepare(pattern_sets.pattern(stream, kind, 4, 1), columns).program.branches
    assert len(branches) == (3 if kind == "disjunction" else 1)
    assert {len(branch.slots) for branch in branches} == {4}
    assert {len(branch.negations) for branch in branches} == {int(kind == "negation")}
    lists = sum(slot.is_list for branch in branches for slot in branch.slots)
    assert lists == int(kind == "kleene")


@pytest.mark.parametrize("planner", ["lazy-chain", "zstream"])
def test_a_workload_begins_with_the_plan_for_its_first_law(planner: PlanKind) -> None:
    given = workload("traffic", "sequence", 3, planner, 20_000)
    rates = {
        variable.name: given.estimates.rates[number]
        for number, variable in enumerate(given.prepared.program.variables)
    }
    counted = np.bincount(drawn(laws_of("traffic", "sequence", 3, 20_000))["kind"][:5_000])
    assert counted / counted.sum() == pytest.approx(
        np.array(list(rates.values())) / sum(rates.values()), abs=0.02
    )
    assert given.plan.branches is not None
    assert all(branch.shape is not None for branch in given.plan.branches)
    assert run(given.prepared, given.plan).metrics.pairs < 2_000 * 20_000


def test_true_selectivities_are_those_of_the_pairs() -> None:
    laws = laws_of("traffic", "sequence", 3, 40_000)
    columns = drawn(laws)
    program = prepare(pattern_sets.pattern("traffic", "sequence", 3, 1_000), columns).program
    found = estimates(program, laws, 0, 3, 1_000)
    first = {name: values[:10_000] for name, values in columns.items()}
    low, high = (first["vehicles"][first["kind"] == kind][:500] for kind in (0, 1))
    kept = (low[:, np.newaxis] + 1.0 < high).mean()
    assert program.conditions[0].text == "a.vehicles + 1 < b.vehicles"
    assert found.selectivities[0] == pytest.approx(kept, abs=0.05)


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(pattern_sets).failed == 0
    assert doctest.testmod(pattern_sets).attempted > 1


# ---- decision functions ------------------------------------------------------------------------


def test_every_decision_function_gives_the_same_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive_runs, "CHUNK_EVENTS", 1_000)
    methods = {
        "static": Adaptation("off"),
        "always": Adaptation("always"),
        "threshold": Adaptation("threshold", threshold=0.2),
        "invariants": Adaptation("invariants", distance=0.0),
    }
    cell = Cell("traffic", "lazy-chain", "sequence", 3)
    results = run_cell(cell, 8_000, methods)
    assert len({result.matches for result in results.values()}) == 1
    assert results["static"].matches > 0
    assert results["static"].swaps == results["static"].checks == 0
    assert results["always"].swaps > 0
    assert results["always"].pairs < results["static"].pairs
    own = run_cell(cell, 8_000, {"invariants": methods["invariants"]}, own_chunks=True)
    assert own["invariants"].matches == results["static"].matches


def _result(pairs: int, planning: float) -> Result:
    return Result(1_000, pairs, 0, 1, 1, 1, seconds=1.0, planning=planning)


def test_a_cell_in_which_invariants_are_not_first_says_why() -> None:
    mine = _result(100_000, 0.0)
    slower_checks = {"always": mine, "invariants": _result(100_000, 0.01)}
    worse_plan = {"always": mine, "invariants": _result(200_000, 0.0)}
    as_good = {"always": mine, "invariants": _result(100_500, 0.0)}
    cells = [Cell("stocks", "zstream", "sequence", size) for size in (3, 4, 5)]
    found = not_first(dict(zip(cells, (slower_checks, worse_plan, as_good), strict=True)))
    why = BEHIND.index("why")
    assert [row[why] for row in found] == ["time of checks", "plans"]


# ---- the virtual clock -------------------------------------------------------------------------


def test_an_event_waits_for_those_before_it() -> None:
    service, gaps = np.array([3.0, 1.0, 2.0, 1.0]), np.array([9.0, 1.0, 1.0, 10.0])
    # Arrivals at 9, 10, 11, 21; served from 9, 12, 13, 21 on.
    assert waits(service, gaps).tolist() == [0.0, 2.0, 2.0, 0.0]


def test_idle_servers_favour_the_eager_plan_and_busy_ones_a_fast_one() -> None:
    found = experiment(1, Sizes(events=4_000, seeds=1, between=0), TYPICAL_COSTS)
    gaps = [np.ones(4_000)]
    idle, busy = found.point(1, 1.0, gaps), found.point(2, 2 / found.least_service, gaps)
    assert idle.chosen == found.eager == "ABCDE/"
    assert idle.utilization < 0.001
    assert busy.utilization > 1
    assert {latency.waiting for latency in idle.latency.values()} == {0.0}
    assert idle.best == found.eager
    assert busy.chosen != found.eager
    assert busy.ratio(found.eager, busy.chosen) > 1


@pytest.mark.parametrize("eager", range(len(NAMES) + 1))
def test_events_cause_in_one_advance_what_they_cause_when_they_come_one_by_one(eager: int) -> None:
    selectivities = (0.4, 0.15, 0.3, 0.4)
    rates = dict.fromkeys(range(len(NAMES)), 16.0)
    known = Estimates(rates, dict(enumerate(selectivities)))
    prepared = prepare(pattern(window=80), apam(200, selectivities))
    partition = apam_partitions(branch_models(prepared.program)[0], known, TYPICAL_COSTS)[eager]
    trace, ends = traced(prepared, partition.plan)
    pairs, results, matches = _one_by_one(prepared, partition)
    assert ends.sum() > 3
    assert trace.pairs.tolist() == pairs
    assert trace.results.tolist() == results
    assert ends.tolist() == [count > 0 for count in matches]


def _one_by_one(
    prepared: Prepared, partition: ApamPartition
) -> tuple[list[int], list[int], list[int]]:
    """Pairs, results and matches of each event in an advance of its own."""
    program = replace(prepared.program, plan=Plan("hybrid", (replace(partition.plan, fixed=True),)))
    state, pairs, results, matches = EventState(), [], [], []
    for t in range(prepared.table.num_rows):
        step = advance_events(program, state, prepared.table.slice(t, 1), t)
        matches.append(sum(len(found) for found in step.matches))
        state = step.state
        pairs.append(step.metrics.pairs)
        results.append(sum(made for _, made in step.metrics.nodes.values()))
    return pairs, results, matches
