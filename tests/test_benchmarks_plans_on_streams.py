"""The benchmarks of plans on streams at their smallest, without Spark.

What they measure is not looked at here: tiny inputs say nothing about speed.
"""

from __future__ import annotations

import doctest
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import stream_plans
from benchmarks.apam import NAMES, QUICK
from benchmarks.apam_triggers import AUTOS, measure, measured_rates
from benchmarks.apam_triggers import report as report_rates
from benchmarks.plans_on_streams import BEST, Ran, Trigger, write_work
from benchmarks.plans_on_streams import report as report_triggers
from benchmarks.stream_plans import AUTOS as STREAM_AUTOS
from benchmarks.stream_plans import WORKS, Recorded, measure_cell, measured_cells, report
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import BranchPlan

if TYPE_CHECKING:
    from pathlib import Path

SMALL = 60


@pytest.mark.parametrize("name", list(WORKS))
def test_all_plans_of_a_cell_find_the_same(name: str) -> None:
    totals = measure_cell(replace(WORKS[name], rows=SMALL), 3, 4)
    assert STREAM_AUTOS.keys() < totals.keys()
    assert len({total.matches for total in totals.values()}) == 1


@pytest.mark.parametrize("name", list(WORKS))
def test_a_named_order_takes_the_pairs_that_are_counted_for_it(name: str) -> None:
    work = replace(WORKS[name], rows=200)
    (cell,) = measured_cells({name: work}, {3: 5})
    for order, (at_hand, in_window) in cell.orders.items():
        assert in_window <= at_hand
        assert cell.totals[order].pairs == pytest.approx(at_hand, rel=0.02)


def test_pairs_of_an_order_are_those_of_nested_loops() -> None:
    work, window, measured = replace(WORKS["few pairs fit"], rows=40), 3, 2
    columns, expected = work.columns(window, measured), 0
    time, kind, x = (columns[name] for name in ("t", "kind", "x"))
    for number in range(6, 8):
        held = (time >= (number - window) * 1000) & (time < (number + 1) * 1000)
        a, b, c = (np.flatnonzero(held & (kind == slot)) for slot in range(3))
        for end in c[time[c] >= number * 1000]:
            near = [j for j in b if time[j] < time[end] <= time[j] + 3000]
            expected += len(near)
            fits = [j for j in near if x[j] < x[end]]
            expected += sum(
                time[i] < time[j] and time[end] - time[i] <= 3000 for i in a for j in fits
            )
    assert Recorded(work, window, measured, spare=0).pairs((2, 1, 0)) == expected


def test_the_table_of_the_cells_has_each_one() -> None:
    text, claims = report(
        measured_cells({"tied": replace(WORKS["tied by values"], rows=60)}, {3: 2})
    )
    assert "| tied " in text
    assert len(claims) == 4
    assert claims[0].holds
    assert doctest.testmod(stream_plans).attempted > 0


def test_a_file_is_a_trigger_and_files_follow_each_other(tmp_path: Path) -> None:
    write_work(replace(WORKS["correlated"], rows=100), tmp_path, triggers=4)
    files = sorted(tmp_path.iterdir(), key=lambda file: file.stat().st_mtime)
    times = [pq.read_table(file).column("ts").cast(pa.int64()).to_numpy() for file in files]
    assert len(times) == 4
    assert all(before.max() < after.min() for before, after in pairwise(times))


def test_the_report_of_triggers_compares_auto_with_the_named_plan() -> None:
    def ran(milliseconds: float, pairs: int) -> Ran:
        return Ran((Trigger(milliseconds, 7, pairs, 10, 99),) * 3, 1)

    names = ("auto", "best named", "pattern anew", "join by hand", "keeps rows")
    text, claims = report_triggers({"x": {name: ran(5.0, 10) for name in names}})
    assert all(f"| {name} " in text for name in names)
    assert all(claim.holds for claim in claims)
    slower = {name: ran(5.0 + 2 * (name == "auto"), 10) for name in names}
    _, claims = report_triggers({"x": slower})
    assert [claim.holds for claim in claims] == [True, True, True, False]
    assert BEST.keys() == WORKS.keys()


def test_all_plans_of_an_arrival_rate_find_the_same() -> None:
    lazy = BranchPlan(left_deep_shape(reversed(range(len(NAMES)))), fixed=True)
    found = measure(2, 100, lazy, measured=4)
    assert len({one.matches for one in found.values()}) == 1
    assert all(len(one.late) == 4 for one in found.values())
    assert all(late > 0 for one in found.values() for late in one.late)


def test_the_table_of_rates_has_the_virtual_clock_beside_triggers() -> None:
    sizes = replace(QUICK, events=4_000, seeds=1)
    rates = measured_rates([1], sizes, events=(50,), measured=3)
    text, claims = report_rates(rates)
    assert "virtual: eager" in text
    assert len(claims) == len(AUTOS)
    assert rates[0].virtual.keys() == {"eager", "lazy", "hybrid"}
