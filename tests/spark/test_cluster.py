"""Ways to bring the package to the executors of a real cluster: each gives the right answer.

None of them lets an executor compile, as each takes the compiled matcher along. Executors have the
libraries that the package needs, and nothing of this checkout.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.process import Service, free_port
from tests.spark.cluster import Cluster, running_cluster, submit_command
from tests.spark.installing import Environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession
import spark_cep
from spark_cep import event, row_pattern, seq

spark = SparkSession.builder.getOrCreate()
if "ARTIFACT" in os.environ:
    spark.addArtifacts(os.environ["ARTIFACT"], pyfile=True)
rows = spark.createDataFrame(
    [("k" + str(at % 2), at, at // 2 % 3) for at in range(12)], "k string, at int, v int"
)
rise = seq(event("a", "v = 0"), event("b", "v = 2")).consumption("consume")
how = {"partition_by": "k", "order_by": "at", "measures": {"last": "b.at"}}
dip = row_pattern("down up+", define={"down": "v < PREV(v)", "up": "v > PREV(v)"})
counts = {"n": "count(up.*)", "total": "sum(up.v)"}
matches = rows.match_pattern(dip, partition_by="k", order_by="at", measures=counts)

def home(batches):
    import spark_cep.udfs, sys
    for frame in batches:
        yield frame.assign(k=spark_cep.udfs.__file__, v=int("numba" in sys.modules))

found = rows.mapInPandas(home, rows.schema).collect()
print(json.dumps({
    "events": sorted(row.last for row in rows.match_pattern(rise, **how).collect()),
    "rows": sorted([row.k, row.n, row.total] for row in matches.collect()),
    "matched": spark_cep.metrics(matches)["matches"],
    "homes": sorted({row.k for row in found}),
    "driver": [name for name in ("numba", "llvmlite", "py4j") if name in sys.modules],
}))
"""
HOME = "/spark_cep/udfs/__init__.py"
ANSWER = {"events": [4, 5, 10, 11], "rows": [["k0", 2, 3], ["k1", 2, 3]], "matched": 2}


@pytest.fixture(scope="module")
def cluster(dependencies: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, PYTHONPATH=str(dependencies)) as running:
        yield running


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def check(answer: dict[str, Any], cluster: Cluster, home: str) -> None:
    (found,) = answer.pop("homes")
    assert found.endswith(home)
    loaded = answer.pop("driver")
    assert "numba" not in loaded
    assert "llvmlite" not in loaded
    assert answer == ANSWER
    assert "compiling the matcher" not in cluster.executor_logs()


def test_a_wheel_that_is_installed_on_the_executors(
    cluster: Cluster, environment: Environment, installed: Path, program: Path
) -> None:
    (libraries,) = environment.folder.glob("lib/python*/site-packages")
    shutil.copytree(installed, libraries, dirs_exist_ok=True)
    answer = environment.run_command(*submit_command(cluster), program, cwd=program.parent)
    check(answer, cluster, str(libraries) + HOME)


def test_a_zip_by_py_files(
    cluster: Cluster, environment: Environment, wheel: Path, program: Path
) -> None:
    archive = shutil.copy(wheel, program.parent / "spark_cep.zip")
    submit = submit_command(cluster, "--py-files", archive)
    answer = environment.run_command(*submit, program, cwd=program.parent)
    check(answer, cluster, "spark_cep.zip" + HOME)


def test_an_archive_of_a_virtual_environment(
    cluster: Cluster, environment: Environment, installed: Path, program: Path, tmp_path: Path
) -> None:
    # As venv-pack makes it, but for the libraries, which are large: these are found by PYTHONPATH.
    packed = tmp_path / "packed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", packed], check=True)
    (libraries,) = packed.glob("lib/python*/site-packages")
    shutil.copytree(installed, libraries, dirs_exist_ok=True)
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as archive:
        archive.add(packed, ".")
    submit = submit_command(cluster, f"--conf=spark.archives={archive.name}#environment")
    answer = environment.run_command(
        *submit, program, cwd=tmp_path, path=installed, PYSPARK_PYTHON="./environment/bin/python"
    )
    check(answer, cluster, f"environment/{libraries.relative_to(packed)}{HOME}")


@pytest.fixture
def thin(environment: Environment, installed: Path) -> Environment:
    """What pip installs with pyspark-client: no JVM, no py4j; and no numba."""
    folder = environment.folder / "thin"
    folder.mkdir()
    left_out = ("py4j", "numba", "llvmlite", "pyspark")
    for path in environment.dependencies.iterdir():
        if not path.name.startswith(left_out):
            (folder / path.name).symlink_to(path)
    pyspark = (environment.dependencies / "pyspark").resolve()
    (folder / "pyspark").mkdir()
    for path in pyspark.iterdir():
        if path.name not in {"jars", "bin", "sbin", "core"}:
            (folder / "pyspark" / path.name).symlink_to(path)
    return Environment(environment.folder, folder)


def test_an_artifact_of_a_thin_connect_client(
    cluster: Cluster, environment: Environment, thin: Environment, wheel: Path, program: Path
) -> None:
    archive = shutil.copy(wheel, program.parent / "spark_cep.zip")
    port, log = free_port(), program.parent / "server.log"
    submit = submit_command(
        cluster, f"--conf=spark.connect.grpc.binding.port={port}",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    )  # fmt: skip
    variables = {
        "PYSPARK_PYTHON": str(environment.python),
        "PYTHONPATH": str(environment.dependencies),
    }
    server = Service(["env", *(f"{k}={v}" for k, v in variables.items()), *submit], log)
    server.start(lambda: "Spark Connect server started" in log.read_text(), 120)
    try:
        answer = thin.run_command(
            thin.python, program, cwd=program.parent, path=archive,
            SPARK_REMOTE=f"sc://127.0.0.1:{port}", ARTIFACT=str(archive),
        )  # fmt: skip
    finally:
        server.stop()
    assert "py4j" not in answer["driver"], json.dumps(answer)
    check(answer, cluster, "spark_cep.zip" + HOME)
