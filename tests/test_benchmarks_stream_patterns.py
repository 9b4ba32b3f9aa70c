"""The pieces of the benchmarks on streams, without Spark and at their smallest.

What they measure is not looked at here: tiny inputs say nothing about speed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.data import Stock
from benchmarks.stream_baselines import kept_by
from benchmarks.stream_latency import FILE_SECONDS, Sink, stamped, ticks
from benchmarks.stream_runs import WARMING, joined, steady, write_triggers
from benchmarks.stream_windows import WORKLOADS, long_window, measure
from spark_cep.udfs.execution.job import to_blob
from tests.memory_store import InMemoryStore

if TYPE_CHECKING:
    from pathlib import Path


def test_a_trigger_is_a_file_and_files_follow_each_other(tmp_path: Path) -> None:
    write_triggers(Stock(rows=50, keys=3), tmp_path, triggers=4)
    files = sorted(tmp_path.rglob("*.parquet"), key=lambda file: file.stat().st_mtime)
    times = [pq.read_table(file).column("ts").to_pylist() for file in files]
    assert [len(each) for each in times] == [50] * 4
    assert all(before[-1] < after[0] for before, after in pairwise(times))


def progress(ms: int, counts: tuple[int, ...] = ()) -> dict[str, object]:
    buckets = "\n".join(json.dumps({"matches": count, "swaps": []}) for count in counts)
    return {
        "durationMs": {"triggerExecution": ms, "addBatch": ms // 2},
        "observedMetrics": {"spark_cep_1": {"buckets": buckets}},
    }


def test_only_steady_triggers_count() -> None:
    ran = steady([*[progress(900)] * WARMING, progress(10), progress(30, (2, 3))])
    assert ran.milliseconds["triggerExecution"] == (10, 30)
    assert ran.median("addBatch") == 10
    assert ran.counted == {"matches": 5}
    assert joined([ran, ran]).milliseconds["triggerExecution"] == (10, 30, 10, 30)


def test_a_run_without_steady_triggers_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 4 triggers, this one had 4"):
        steady([progress(900)] * WARMING)


def test_the_baseline_drops_what_lies_a_window_behind() -> None:
    store = InMemoryStore()

    def keep(times: list[int], horizon: int) -> int:
        blobs = (to_blob(pa.table({"t": pa.array(times, pa.timestamp("us"))})),) if times else ()
        return kept_by(store).keep(store, blobs, "t", horizon)

    assert keep([1, 2, 3], 0) == 3
    assert keep([4, 5], 3) == 5
    assert keep([], 4) == 2
    assert keep([], 6) == 0
    assert store.blobs == {}


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_all_plans_of_a_long_window_find_the_same(name: str) -> None:
    work = replace(WORKLOADS[name], rows=12, values=3, shares=(0.25, 0.25, 0.25, 0.25))
    timed = measure(work, window=6, triggers=4)
    assert len({one.matches for one in timed.values()}) == 1


def test_the_table_of_the_long_window_has_each_plan() -> None:
    work = replace(WORKLOADS["all are tied by an equality"], rows=20, values=3)
    text, claims, figures = long_window(window=5, triggers=3, works={"tied": work})
    for plan in ("again", "lazy", "keeps a b", "keeps a b, a b c", "auto"):
        assert f"| {plan} " in text
    assert claims[0].holds
    json.dumps(figures)


def test_rows_arrive_in_the_order_of_their_times() -> None:
    rows = stamped(ticks(1_000, np.random.default_rng(1)), now=50.0)
    times = rows.column("ts").cast(pa.int64()).to_numpy()
    assert rows.num_rows == 100
    assert (np.diff(times) > 0).all()
    assert 50_000_000 - FILE_SECONDS * 1_000_000 <= times[0] < times[-1] < 50_000_000
    assert set(rows.column("arrived").to_pylist()) == {50_000_000}


def test_an_answer_is_as_late_as_it_is_seen_after_the_arrival() -> None:
    sink = Sink([(9.0, np.array([1])), (10.0, np.array([9_500_000, 9_900_000]))])
    found = sink.arrivals(since=9.5, until=11.0)
    assert found.late_ms.tolist() == pytest.approx([500, 100])
