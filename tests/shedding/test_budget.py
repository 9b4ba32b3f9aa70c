"""A bucket's part of the time that a trigger has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_cep.udfs.execution.job import to_blob
from spark_cep.udfs.shedding.pace import (
    LEAST_SPARK_SECONDS,
    SPARK_SECONDS,
    TimeBudget,
    TriggerArrival,
    note_arrival,
    read_arrival,
)

LATENCY, SAFETY = 2.0, 0.8
WHOLE = LATENCY * SAFETY - SPARK_SECONDS


def test_buckets_share_what_is_left_by_their_rows() -> None:
    budget = TimeBudget(LATENCY, SAFETY, parallel=1)
    arrival = TriggerArrival(100.0, 1000)
    assert budget.seconds("1", arrival, 250, 100.0) == pytest.approx(WHOLE / 4)
    budget.ended(250, 100.2)
    # 750 rows are left, and 0.2 seconds are over.
    assert budget.seconds("1", arrival, 250, 100.2) == pytest.approx((WHOLE - 0.2) / 3)
    budget.ended(250, 100.2)
    assert budget.seconds("1", arrival, 500, 100.2) == pytest.approx(WHOLE - 0.2)


def test_so_many_buckets_at_a_time_as_there_are_workers() -> None:
    budget = TimeBudget(LATENCY, SAFETY, parallel=2)
    arrival = TriggerArrival(100.0, 1000)
    assert budget.seconds("1", arrival, 250, 100.0) == pytest.approx(WHOLE / 2)
    budget.ended(250, 100.0)
    # The other worker has done as much.
    assert budget.seconds("1", arrival, 250, 100.0) == pytest.approx(WHOLE)


def test_no_bucket_has_more_than_what_is_left_nor_less_than_nothing() -> None:
    budget = TimeBudget(LATENCY, SAFETY, parallel=8)
    assert budget.seconds("1", TriggerArrival(100.0, 10), 900, 100.0) == pytest.approx(WHOLE)
    assert budget.seconds("1", TriggerArrival(100.0, 10), 900, 103.0) == 0.0


def test_what_spark_needs_between_triggers_is_seen() -> None:
    budget = TimeBudget(LATENCY, SAFETY, parallel=1)
    budget.seconds("1", TriggerArrival(100.0, 10), 10, 100.0)
    budget.ended(10, 101.0)
    budget.seconds("2", TriggerArrival(101.25, 10), 10, 101.3)
    assert budget.spark_seconds == pytest.approx(0.25)
    budget.ended(10, 102.0)
    # A pause between triggers is none of Spark's work.
    budget.seconds("3", TriggerArrival(160.0, 10), 10, 160.0)
    assert budget.spark_seconds == pytest.approx(0.25)
    budget.ended(10, 161.0)
    budget.seconds("4", TriggerArrival(161.001, 10), 10, 161.0)
    assert budget.spark_seconds == LEAST_SPARK_SECONDS


def test_spark_is_reckoned_with_a_quarter_of_the_bound_at_most() -> None:
    budget = TimeBudget(8.0, SAFETY, parallel=1)
    for trigger, began in enumerate((100.0, 160.0, 161.5)):
        budget.seconds(str(trigger), TriggerArrival(began, 10), 10, began)
        budget.ended(10, began + 0.5)
        expected = (SPARK_SECONDS, 2.0, 1.0)[trigger]
        assert budget.spark_seconds == pytest.approx(expected)


def test_what_tasks_note_comes_with_the_blobs() -> None:
    rows = pa.table({"t": [1, 2, 3]})
    blobs = [
        to_blob(note_arrival(5.0)(rows)),
        to_blob(note_arrival(4.5)(rows.slice(0, 2))),
        to_blob(rows),
    ]
    assert read_arrival(blobs) == TriggerArrival(4.5, 5)
    assert read_arrival([to_blob(rows)]) is None
    assert read_arrival([]) is None
