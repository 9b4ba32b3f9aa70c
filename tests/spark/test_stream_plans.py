"""What a stream keeps, on real triggers: chosen by its own load, the same answer, and said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import spark_cep as cep
from spark_cep import event, seq
from tests.spark.streams import LAST, Files, assert_same, drained, small

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TRIGGERS, ROWS, SECONDS = 6, 600, 10
# Pairs of a and b hardly ever fit; there are many c, each of which would look for them again.
NEAR = (
    seq(event("a", "kind = 'A'"), event("b", "kind = 'B'"), event("c", "kind = 'C'"))
    .where("abs(a.x - b.x) < 3", "b.x < c.x")
    .within(f"{5 * SECONDS} seconds")
)
MEASURES = {"a": "a.u", "b": "b.u", "c": "c.u"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder: Path = tmp_path_factory.mktemp("stream_plans")
    files, random, number = Files(folder / "rows"), np.random.default_rng(2), 0
    for trigger in range(TRIGGERS):
        times = np.sort(random.random(ROWS)) * SECONDS + trigger * SECONDS
        kinds = random.choice(list("ABC"), ROWS, p=[0.25, 0.25, 0.5])
        values = random.integers(0, 1000, ROWS)
        rows = zip(times.tolist(), kinds.tolist(), values.tolist(), strict=True)
        files.put([(t, 1, kind, x, number + n) for n, (t, kind, x) in enumerate(rows)])
        number += ROWS
    files.put([LAST])
    return files


def test_a_stream_chooses_what_it_keeps_by_its_own_load(spark: SparkSession, files: Files) -> None:
    with small(spark):
        options = {"order_by": "ts", "partition_by": "k", "measures": MEASURES}
        matches = cep.match_pattern(
            files.stream(spark), NEAR, plan="hybrid", optimize="latency", **options
        )
        told = cep.plan_of(matches).to_dict()
        given, query = drained(matches)
        wanted = cep.match_pattern(files.batch(spark), NEAR, **options)
        assert_same(given, wanted)
        assert given.count() > 1_000
    metrics = cep.streaming.metrics(query)
    swaps = [swap["to"] for each in metrics for swap in each["swaps"]]
    assert "a b | c" in swaps
    assert any(order.startswith("[a b]→c") for each in metrics for order in each["orders"])
    assert "each bucket divides the variables by its own counts" in told["reason"]
    assert told["optimize"] == "latency"
