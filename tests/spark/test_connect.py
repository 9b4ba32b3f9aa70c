"""The same through Spark Connect, in a process of its own: it needs a server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import json
import spark_cep as cep
from spark_cep import event, seq
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "4")
spark.conf.set("spark.cep.sample.seconds", "120")
df = spark.range(200).selectExpr(
    "id % 2 AS k", "CAST(id AS INT) AS t",
    "CASE WHEN id % 7 < 2 THEN 'A' WHEN id % 5 = 0 THEN 'B' ELSE 'C' END AS kind",
    "CASE WHEN id % 3 = 0 THEN INTERVAL '5' MONTH END AS x",
)
pattern = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within(10)
options = {"order_by": "t", "partition_by": "k"}
out = {}
matches = df.match_pattern(pattern, **options)
try:
    cep.metrics(matches)
except cep.CepError as problem:
    out["before"] = problem.message
out["pairs"] = sorted(map(tuple, matches.selectExpr("a.t", "b.t").collect()))
out["metrics"] = cep.metrics(matches)
from pyspark.sql import functions as F
by_column = []
for key in (F.col("k"), df.k, (F.col("k") + 1).alias("key")):
    other = df.match_pattern(pattern, order_by=F.col("t"), partition_by=key)
    found = sorted(map(tuple, other.selectExpr("a.t", "b.t").collect()))
    by_column.append([other.columns[0], found == out["pairs"]])
out["by column"] = by_column
try:
    df.match_pattern(pattern, order_by="t", partition_by=(F.col("k") + 1).alias("k"))
except cep.PatternError as problem:
    out["clash"] = problem.message
out["plan"] = cep.plan_of(matches.filter("k = 1")).to_dict()["order"]
import contextlib, io
fresh = df.match_pattern(pattern, **options)
with contextlib.redirect_stdout(io.StringIO()) as printed:
    cep.explain(fresh, mode="analyze")
out["analyzed"] = printed.getvalue()
out["text"] = matches._explain_string()
texts = matches.selectExpr("coalesce(CAST(a.x AS STRING), '-')").distinct()
out["x"] = sorted(row[0] for row in texts.collect())
plans = {
    "eager": "eager",
    "chain": cep.plans.chain("b", "a"),
    "tree": "tree",
    "join": cep.plans.join(("b", "a")),
    "hybrid": cep.plans.hybrid(eager=["a"], lazy=["b"]),
}
for name, plan in plans.items():
    other = df.match_pattern(pattern, plan=plan, **options)
    out[str(name)] = sorted(map(tuple, other.selectExpr("a.t", "b.t").collect())) == out["pairs"]
spark.conf.set("spark.cep.slices", "on")
spark.conf.set("spark.cep.buckets", "3")
cut = df.match_pattern(pattern, **options)
out["slices"] = sorted(map(tuple, cut.selectExpr("a.t", "b.t").collect())) == out["pairs"]
rows = df.match_pattern(pattern, rows="all", **options)
out["rows"] = rows.count()
limited = df.match_pattern(pattern, limits=cep.Limits(seconds=1e-6), **options)
try:
    limited.count()
except Exception as problem:
    error = cep.error_of(problem)
    out["limit"] = [type(error).__name__, error.details["limit"], len(error.details["key"])]
try:
    df.match_pattern(pattern, order_by="nope")
except cep.PatternError as problem:
    out["refusal"] = problem.message
from pyspark.sql import functions as F
down = df.match_pattern(pattern, order_by=["t", F.col("k").desc()])
out["directed"] = down.count() == df.match_pattern(pattern, order_by=["t", "k DESC"]).count()
literal = seq(event("a", F.col("kind") != "rand()"), event("b", "kind = 'B'")).within(10)
out["literal"] = df.match_pattern(literal, order_by="t").count() > 0
for name, order, first in (("descends", F.col("t").desc(), "a"),
                           ("chance", "t", event("a", (F.rand() > 0.5) & F.expr("kind = 'A'")))):
    try:
        df.match_pattern(seq(first, "b"), order_by=order)
    except cep.PatternError as problem:
        out[name] = problem.message
from tests.spark.jobs import count_jobs
def why(df):
    return cep.plan_of(df).to_dict()["reason"]
large = spark.range(0, 300_000, 1, 300).selectExpr(
    "id % 2 AS k", "CAST(id AS INT) AS t", "substr('ABC', id % 3 + 1, 1) AS kind",
    "timestamp_micros(id) AS ts", "CAST(id AS DECIMAL(20, 2)) AS d",
)
with count_jobs() as ran:
    out["sampled"] = why(large.match_pattern(pattern, **options))
out["tasks"] = ran.tasks
with count_jobs() as ran:
    for number in range(3):
        other = seq(event("a", f"kind = 'C' AND t > {number}"), event("b", "kind = 'B'")).within(10)
        out["shared"] = why(large.select("*").match_pattern(other, **options))
out["again"] = len(ran)
with count_jobs() as ran:
    maxima = large.groupBy("k", "kind").agg(F.max("t").alias("t"))
    out["behind"] = why(maxima.match_pattern(pattern, **options))
out["refused"] = len(ran)
with count_jobs() as ran:
    out["cut"] = why(large.limit(50).match_pattern(pattern, **options))
out["cut_tasks"] = ran.tasks
spark.conf.set("spark.cep.sample.seconds", "0.001")
tags = spark.getTags()
out["late"] = why(large.filter("t > 7").match_pattern(pattern, **options))
out["tags"] = tags == spark.getTags()
spark.stop()
print("RESULT " + json.dumps(out))
"""


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


def expected_pairs() -> list[list[int]]:
    def kind(t: int) -> str:
        return "A" if t % 7 < 2 else "B" if t % 5 == 0 else "C"

    return [
        [a, b]
        for a in range(200)
        for b in range(a + 1, min(a + 11, 200))
        if kind(a) == "A" and kind(b) == "B" and a % 2 == b % 2
    ]


def test_the_answer_is_right(found: dict[str, object]) -> None:
    assert found["pairs"] == expected_pairs()


def test_a_key_may_be_a_column(found: dict[str, object]) -> None:
    assert found["by column"] == [["k", True], ["k", True], ["key", True]]
    assert "has the name of a column of the input" in str(found["clash"])


def test_plans_and_slices_do_not_change_it(found: dict[str, object]) -> None:
    assert all(found[name] for name in ("eager", "chain", "tree", "join", "hybrid"))
    assert found["slices"]


def test_rows_has_two_for_each_pair(found: dict[str, object]) -> None:
    assert found["rows"] == 2 * len(expected_pairs())


def test_metrics_arrive_with_the_first_action(found: dict[str, object]) -> None:
    assert "no action has run" in str(found["before"])
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["matches"] == len(expected_pairs())
    assert metrics["complete"]


def test_analyze_runs_the_query_and_counts(found: dict[str, object]) -> None:
    (line,) = [each for each in str(found["analyzed"]).splitlines() if "  matches " in each]
    assert str(len(expected_pairs())) in line.split()
    assert "  ran       in " in str(found["analyzed"])


def test_the_plan_is_found_from_what_was_made_of_the_answer(found: dict[str, object]) -> None:
    assert sorted(found["plan"]) == ["a", "b"]  # type: ignore[call-overload]
    assert "match_pattern[lazy-chain b→a, within 10, est. " in str(found["text"])
    assert "pairs (" in str(found["text"])


def test_types_that_need_carriers_come_back(found: dict[str, object]) -> None:
    assert found["x"] == ["-", "INTERVAL '5' MONTH"]


def test_refusals_are_the_same(found: dict[str, object]) -> None:
    assert "nope" in str(found["refusal"])


def test_a_limit_of_time_arrives_as_the_library_s_error(found: dict[str, object]) -> None:
    assert found["limit"] == ["LimitError", "seconds", 1]


def test_columns_are_read_as_in_a_classic_session(found: dict[str, object]) -> None:
    assert found["directed"]
    assert found["literal"]
    assert "must be ascending" in str(found["descends"])
    assert "is not deterministic" in str(found["chance"])


def test_the_sample_is_a_few_tasks_and_is_shared(found: dict[str, object]) -> None:
    assert "the input's first 5,000 rows" in str(found["sampled"])
    assert int(str(found["tasks"])) <= 9
    assert "the input's first 5,000 rows" in str(found["shared"])
    assert found["again"] == 0


def test_plans_that_compute_everything_are_not_sampled(found: dict[str, object]) -> None:
    assert "the input is behind an aggregate" in str(found["behind"])
    assert found["refused"] == 0


def test_a_limit_at_the_root_is_sampled_on_demand(found: dict[str, object]) -> None:
    assert "the input's 50 rows" in str(found["cut"])
    assert int(str(found["cut_tasks"])) <= 2


def test_a_sample_is_bounded_in_time(found: dict[str, object]) -> None:
    assert "no sample: reading it takes longer than 0.001 s" in str(found["late"])
    assert found["tags"]
