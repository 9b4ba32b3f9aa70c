"""The generated streams of the experiments: what they promise, on small samples, without a JVM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.apam import NAMES, pattern, traced, waits
from benchmarks.pattern_sets import KINDS, STREAMS, Kind, Stream, workload
from benchmarks.programs import prepare
from benchmarks.streams import Laws, apam, drawn, stocks, traffic
from spark_cep.udfs.engine import State, advance
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import models
from spark_cep.udfs.planning.partition import Partition, partitions
from spark_cep.udfs.program import Estimates, Plan

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


def test_no_kind_of_the_traffic_stream_keeps_its_share_over_a_shift() -> None:
    shares = traffic(3_000, 8).shares
    assert len(shares) == 3
    assert shares[0].max() / shares[0].min() > 20
    assert (shares[1:] != shares[:-1]).all()


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
def test_every_pattern_set_has_a_program_and_a_plan_of_its_size(stream: Stream, kind: Kind) -> None:
    given = workload(stream, kind, 4, "lazy-chain", 4_000)
    branches = given.prepared.program.branches
    assert len(branches) == (3 if kind == "disjunction" else 1)
    assert {len(branch.slots) for branch in branches} == {4}
    assert {len(branch.negations) for branch in branches} == {int(kind == "negation")}
    lists = sum(slot.is_list for branch in branches for slot in branch.slots)
    assert lists == int(kind == "kleene")
    assert given.plan.branches is not None
    assert len(given.plan.branches) == len(branches)
    assert given.prepared.table.num_rows == 4_000


# ---- the virtual clock -------------------------------------------------------------------------


def test_an_event_waits_for_those_before_it() -> None:
    service, gaps = np.array([3.0, 1.0, 2.0, 1.0]), np.array([9.0, 1.0, 1.0, 10.0])
    # Arrivals at 9, 10, 11, 21; served from 9, 12, 13, 21 on.
    assert waits(service, gaps).tolist() == [0.0, 2.0, 2.0, 0.0]


def _partitions() -> tuple[Estimates, tuple[float, ...]]:
    selectivities = (0.4, 0.15, 0.3, 0.4)
    rates = dict.fromkeys(range(len(NAMES)), 16.0)
    return Estimates(rates, dict(enumerate(selectivities))), selectivities


@pytest.mark.parametrize("eager", range(len(NAMES) + 1))
def test_events_cause_in_one_advance_what_they_cause_when_they_come_one_by_one(eager: int) -> None:
    estimates, selectivities = _partitions()
    prepared = prepare(pattern(window=80), apam(200, selectivities))
    partition = partitions(models(prepared.program)[0], estimates, TYPICAL)[eager]
    trace, ends = traced(prepared, partition)
    pairs, results, matches = _one_by_one(prepared, partition)
    assert ends.sum() > 3
    assert trace.pairs.tolist() == pairs
    assert trace.results.tolist() == results
    assert ends.tolist() == [count > 0 for count in matches]


def _one_by_one(prepared, partition: Partition) -> tuple[list[int], list[int], list[int]]:  # type: ignore[no-untyped-def]
    program = replace(prepared.program, plan=Plan("hybrid", (partition.plan,)))
    state, pairs, results, matches = State(), [], [], []
    for t in range(prepared.table.num_rows):
        step = advance(program, state, prepared.table.slice(t, 1), t)
        matches.append(sum(len(found) for found in step.matches))
        state = step.state
        pairs.append(step.metrics.pairs)
        results.append(sum(made for _, made in step.metrics.nodes.values()))
    return pairs, results, matches
