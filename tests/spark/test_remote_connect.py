"""Remote data through Spark Connect, in a process of its own: it needs a server of its own."""

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
spark.conf.set("spark.sql.shuffle.partitions", "2")
rows = spark.sql(
    "SELECT * FROM VALUES (1, 'o1', 'rome', 20.0D), (2, 'o1', 'oslo', 30.0D), "
    "(3, 'o2', 'rome', 15.0D), (4, NULL, 'oslo', 99.0D) AS t(ts, org, loc, vol)"
)
table = spark.sql("VALUES ('o1', 25.0D, array('rome')), ('o2', 10.0D, array()) AS t(o, max, p)")
limits = {"o1": 25.0, "o2": 10.0}
fetched = cep.Remote.fetch(lambda keys: {k: limits[k] for k in keys if k in limits}, "double")
joined = cep.Remote.table(table, "o")
pair = cep.Remote.table(spark.sql("VALUES ('o1', 'oslo', 1) AS t(o, l, v)"), ["o", "l"], "v")
seconds = seq("a", "b").within(10)

def found(text, **remotes):
    answer = rows.match_pattern(
        seconds.where(text), order_by="ts", measures={"a": "a.ts", "b": "b.ts"}, remotes=remotes
    )
    return sorted(map(tuple, answer.collect()))

out = {
    "joined": found("b.vol > remote('l', a.org).max", l=joined),
    "member": found("b.loc NOT IN remote('l', a.org).p", l=joined),
    "fetched": found("b.vol > remote('l', a.org)", l=fetched),
    "local": found("remote('l', a.org, b.loc) = 1", l=pair),
    "before": found("round(remote('l', a.org)) = 25 AND b.ts = a.ts + 1", l=fetched),
}
for name, text, remote in (
    ("type", "b.vol > remote('l', a.org)", cep.Remote.fetch(lambda keys: {}, "dubble")),
    ("key", "b.vol > remote('l', array(a.org)).max", joined),
):
    try:
        found(text, l=remote)
    except cep.PatternError as problem:
        out[name] = problem.message
spark.stop()
print("RESULT " + json.dumps(out))
"""


def test_remote_data_is_looked_up_through_connect() -> None:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert "RESULT " in run.stdout, run.stderr[-3000:]
    out = json.loads(run.stdout.partition("RESULT ")[2].splitlines()[0])
    assert out["joined"] == out["fetched"] == [[1, 2], [1, 4], [2, 4], [3, 4]]
    assert out["member"] == [[1, 2], [1, 4], [2, 4], [3, 4]]
    assert out["local"] == [[1, 2], [1, 4], [2, 4]]
    assert out["before"] == [[1, 2], [2, 3]]
    assert "value_type of the remote 'l', 'dubble'" in out["type"]
    assert "its key column o is STRING" in out["key"]
