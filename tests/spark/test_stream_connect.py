"""Streams through Spark Connect, in a process of their own: it needs a server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import spark_cep as cep
from spark_cep.udfs.canonical import spark_column
from spark_cep import event, no, row_pattern, seq
from tests.spark.streams import LAST, SETTINGS, Files, as_json, drained

spark = SparkSession.builder.remote("local[2]").getOrCreate()
for name, value in SETTINGS.items():
    spark.conf.set(name, value)
spark.conf.set("spark.sql.session.timeZone", "UTC")
folder = Path(sys.argv[1])
files = Files(folder / "in")
kinds = "ABACBABBAC" * 3
rows = [(t, t % 2, kinds[t], t * 7 % 5, t) for t in range(30)]
for part in (rows[:12:2] + rows[1:12:2], rows[12:], [LAST]):
    files.put(part)
options = {"partition_by": "k", "order_by": "ts"}
pair = seq(event("a", "kind = 'A'"), event("b", "kind = 'B'")).within("5 seconds")
patterns = {
    "any": (pair, {}),
    "not": (seq("a", "b", no(event("n", "kind = 'C'"))).where("a.x < b.x").within("3 seconds"), {}),
    "rows": (row_pattern("s d{1,3}", define={"d": "x < PREV(x)"}).within("9 seconds"),
             {"measures": {"n": "MATCH_NUMBER()", "low": "LAST(d.x)"}}),
}
out = {}
for name, (pattern, more) in patterns.items():
    given, query = drained(files.stream(spark).match_pattern(pattern, **options, **more))
    wanted = files.batch(spark).match_pattern(pattern, **options, **more)
    found = [as_json(each.filter("k <> 999")) for each in (given, wanted)]
    out[name] = [len(found[1]), found[0] == found[1]]
    counts = cep.streaming.metrics(query)
    out["metrics " + name] = [sum(c["rows"] for c in counts), sum(c["matches"] for c in counts)]
files.stream(spark).createOrReplaceTempView("ticks")
text = ("SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
        "MEASURES b.x - a.x AS gain PATTERN SEQ(a, b) WITHIN INTERVAL '5' SECONDS "
        "DEFINE a AS kind = 'A', b AS kind = 'B')")
given, _ = drained(cep.sql(spark, text))
out["sql"] = given.count()
try:
    spark.readStream.schema(files.columns).parquet(str(files.folder)).match_pattern(pair, **options)
except cep.PatternError as problem:
    out["refusal"] = problem.message

def run(pattern):
    matches = files.stream(spark).match_pattern(pattern, **options)
    writer = matches.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        query.awaitTermination()
    except Exception as failure:
        out["raised"] = getattr(cep.error_of(failure), "message", repr(failure)[:2000])
    held = query.exception()
    out["held"] = held and getattr(cep.error_of(held), "message", repr(held)[:2000])

def form(name):
    return spark_column(str(F.exists("a", lambda t: F.exists(name, lambda o: o < t))))

out["forms"] = [form("b") == form("b"), form("b") == form("c")]
run(pair)
out["held before"] = out["held"]
files.put([LAST])
run(pair.within("6 seconds"))
spark.stop()
print("RESULT " + json.dumps(out))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = Path(tmp_path_factory.mktemp("connect"))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
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


@pytest.mark.parametrize("kind", ["any", "not", "rows"])
def test_a_stream_gives_the_answer_of_a_batch(found: dict[str, object], kind: str) -> None:
    matches, same = found[kind]  # type: ignore[misc]
    assert matches > 2
    assert same


def test_triggers_are_counted(found: dict[str, object]) -> None:
    assert found["metrics any"][1] == found["any"][0] == found["sql"]  # type: ignore[index]


def test_refusals_are_the_same(found: dict[str, object]) -> None:
    assert "no watermark on 'ts'" in str(found["refusal"])


def test_an_old_checkpoint_is_refused_through_the_query_and_what_it_raises(
    found: dict[str, object],
) -> None:
    assert found["held before"] is None
    assert "another pattern" in str(found["raised"])
    assert "another pattern" in str(found["held"])


def test_a_column_is_known_by_its_text_whatever_its_lambda_variables_are_numbered(
    found: dict[str, object],
) -> None:
    assert found["forms"] == [True, False]
