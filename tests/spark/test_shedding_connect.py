"""Shedding through Spark Connect, in a process of its own: it needs a server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = '''
import contextlib, io, json, re
import spark_cep as cep
from spark_cep import Shed, event, seq
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "4")
df = spark.range(4000).selectExpr(
    "CAST(id AS INT) AS t", "substr('AAB', CAST(1 + pmod(xxhash64(id), 3) AS INT), 1) AS kind",
    "pmod(xxhash64(id, 1), 1000) / 1000D AS x", "CAST(id % 2 AS STRING) AS k",
)
a, b = event("a", "kind = 'A'"), event("b", "kind = 'B'")
pattern = seq(a, b).where("a.x + 0.5 < b.x").within(40)
options = {"order_by": "t", "partition_by": "k"}

def pairs(matches):
    return sorted(map(tuple, matches.selectExpr("a.t", "b.t").collect()))

full = pairs(df.match_pattern(pattern, **options))
matches = df.match_pattern(pattern, shed=Shed(keep=0.3), **options)
found = pairs(matches)
out = {"full": len(full), "found": len(found), "is_part": set(found) <= set(full)}
out["metrics"] = cep.metrics(matches)
again = df.repartition(3).match_pattern(pattern, shed=Shed(keep=0.3), **options)
out["again"] = pairs(again) == found
out["name"] = matches._explain_string()
roomy = df.match_pattern(pattern, shed=Shed(latency="1 hour"), **options)
out["roomy"] = "shed" in roomy._explain_string(), pairs(roomy) == full
with contextlib.redirect_stdout(io.StringIO()) as printed:
    cep.explain(matches, mode="analyze")
out["analyzed"] = printed.getvalue()
how = Shed(keep=0.5, policy="hspice")
by_state = df.match_pattern(pattern, shed=how, **options)
some = pairs(by_state)
out["by_state"] = 0 < len(some) < len(full) and set(some) <= set(full)
out["dropped_pairs"] = cep.metrics(by_state)["dropped_pairs"]
df.createOrReplaceTempView("ticks")
hinted = cep.sql(spark, """
    SELECT * FROM ticks MATCH_RECOGNIZE (
      PARTITION BY k ORDER BY t
      MEASURES a.t AS first, b.t AS second
      PATTERN SEQ(a, b) WITHIN 40
      DEFINE a AS kind = 'A', b AS kind = 'B' AND a.x + 0.5 < b.x
    ) /*+ shed(keep => 0.5, policy => 'hspice') */
""")
out["hinted"] = sorted(map(tuple, hinted.selectExpr("first", "second").collect())) == some
try:
    df.match_pattern(pattern.strategy("strict"), shed=Shed(keep=0.3), **options)
except cep.PlanError as problem:
    out["refusal"] = problem.message
spark.stop()
print("RESULT " + json.dumps(out))
'''


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=300,
    )
    results = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, run.stderr[-4000:]
    answer: dict[str, object] = json.loads(results[0].removeprefix("RESULT "))
    return answer


def test_a_part_of_the_answer_stays_and_the_same_one_each_time(found: dict[str, object]) -> None:
    assert found["is_part"]
    assert found["again"]
    assert 0 < int(str(found["found"])) < int(str(found["full"]))


def test_partial_matches_are_dropped_by_name_and_by_hint(found: dict[str, object]) -> None:
    assert found["by_state"]
    assert int(str(found["dropped_pairs"])) > 0
    assert found["hinted"]


def test_metrics_and_the_plans_name_say_so(found: dict[str, object]) -> None:
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    kept = sum(each["kept"] for each in metrics["shed"].values())
    assert kept == pytest.approx(0.3 * 4000, rel=0.02)
    assert metrics["estimated_recall"] == pytest.approx(
        int(str(found["found"])) / int(str(found["full"])), abs=0.08
    )
    assert "shed to 30% by utility" in str(found["name"])


def test_analyze_measures_the_recall(found: dict[str, object]) -> None:
    assert f"of {found['full']:,} matches of a sample" in str(found["analyzed"])


def test_with_room_for_all_nothing_is_shed(found: dict[str, object]) -> None:
    assert found["roomy"] == [False, True]


def test_refusals_are_the_same(found: dict[str, object]) -> None:
    assert "shed= cannot be used with the strategy 'strict'" in str(found["refusal"])
