"""Executors and workers that die, and tasks that run twice, in the middle of a batch: the answer
and the counts are those of a quiet run.

A function in a condition strikes, once: it runs in the stage that matches. Two of the settings take
a minute or more, and run only in `make test-cluster`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster import Cluster, running_cluster, submit_command

if TYPE_CHECKING:
    from tests.spark.installing import Environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]
only_in_test_cluster = pytest.mark.skipif(
    not os.environ.get("SPARK_CEP_CLUSTER"), reason="takes minutes: make test-cluster"
)

PROGRAM = """
import glob, json, os, signal, sys, time
from pyspark import TaskContext
from pyspark.sql import SparkSession
import spark_cep as cep
from spark_cep import event, row_pattern, seq

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.cep.buckets", "6")
folder, *faults = sys.argv[1:]
rows = spark.range(0, 3000, 1, 4).selectExpr("id % 30 AS k", "id AS at", "(id * 7919) % 101 AS v")

def strike(fault):
    flag = os.path.join(folder, fault)
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        if fault.startswith("slow") and TaskContext.get().attemptNumber():
            open(f"{flag} copied", "w").close()
        return
    if fault.startswith("worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.startswith("executor"):
        with open(f"/proc/{os.getppid()}/stat") as file:  # of the daemon
            os.kill(int(file.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
        time.sleep(60)
    elif fault.startswith("shuffle"):
        for local in os.environ["SPARK_LOCAL_DIRS"].split(","):
            for name in glob.glob(f"{local}/**/shuffle_*", recursive=True):
                os.unlink(name)
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.startswith("slow"):
        time.sleep(20)

def answers(fault):
    def higher(a, b):
        if fault and "quiet" not in fault:
            strike(fault)
        return b > a + 30

    cep.udf(higher, returns="boolean", name="higher")
    pattern = seq(event("a", "v < 20"), event("b")).where("higher(a.v, b.v)").within(200)
    events = rows.match_pattern(pattern, partition_by="k", order_by="at")
    dip = row_pattern("down up+", define={"down": "v < PREV(v)", "up": "v > PREV(v)"})
    dips = rows.match_pattern(dip, partition_by="k", order_by="at", measures={"n": "count(up.*)"})
    found = {}
    # The matching stage is the last one, and one before a shuffle.
    if "again" in (fault or ""):
        counted = events.groupBy("k").count().collect()
        found["events"] = sorted([row.k, row["count"]] for row in counted)
    else:
        pairs = events.selectExpr("a.at AS a", "b.at AS b").collect()
        found["events"] = sorted([row.a, row.b] for row in pairs)
    found["rows"] = sorted([row.k, row.n] for row in dips.collect())
    numbers = cep.metrics(events)
    found["counts"] = [numbers[name] for name in ("rows", "matches", "complete")]
    return found

found = {fault: answers(fault) for fault in faults}
struck = sorted(os.listdir(folder))
print(json.dumps({"quiet": answers(None), "quiet again": answers("quiet again"), "struck": struck,
                  **found}))
"""


@pytest.fixture(scope="module")
def cluster(
    dependencies: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    path = f"{installed}:{dependencies}"
    with running_cluster(
        tmp_path_factory.mktemp("faults"), workers=2, cores=1, PYTHONPATH=path
    ) as c:
        yield c


SETTINGS = {
    "killed": ((), ("worker", "executor", "shuffle", "worker again", "executor again")),
    "twice": (
        ("spark.speculation=true", "spark.speculation.multiplier=1.1",
         "spark.speculation.quantile=0.1", "spark.speculation.minTaskRuntime=1s"),
        ("slow", "slow again"),
    ),
    "few, then more": (
        ("spark.dynamicAllocation.enabled=true",
         "spark.dynamicAllocation.shuffleTracking.enabled=true",
         "spark.dynamicAllocation.executorIdleTimeout=1s", "spark.dynamicAllocation.minExecutors=0",
         "spark.executor.cores=1"),
        ("executor",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(name, marks=[] if name == "killed" else [only_in_test_cluster])
        for name in SETTINGS
    ],
)
def test_faults_change_neither_answers_nor_counts(
    setting: str, cluster: Cluster, environment: Environment, installed: Path, tmp_path: Path
) -> None:
    options, faults = SETTINGS[setting]
    program, struck = tmp_path / "program.py", tmp_path / "struck"
    program.write_text(PROGRAM)
    struck.mkdir()
    submit = submit_command(cluster, *(f"--conf={each}" for each in options))
    answer = environment.run_command(
        *submit, program, struck, *faults, cwd=tmp_path, path=installed
    )
    copied = [f"{fault} copied" for fault in faults if fault.startswith("slow")]
    assert answer["struck"] == sorted([*faults, *copied])
    for fault in faults:
        expected = answer["quiet again" if "again" in fault else "quiet"]
        assert answer[fault] == expected, fault
    assert len(answer["quiet"]["events"]) > 100
    assert answer["quiet"]["counts"][2] is True
