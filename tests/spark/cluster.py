"""A Spark cluster of real processes on loopback: a master and workers, as spark-submit finds them.

The package from pip has all that is needed. Executors start with an empty home and without the
tests' PYTHONPATH, as on other machines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.services.process import Service

SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 120.0
_ANY_PORT = ("--port", "0", "--webui-port", "0")


class Cluster:
    """A standalone cluster; its processes are known by their ids alone."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        self._variables = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "HOME": str(folder / "home"),
            "PYTHONPATH": "",
            **variables,
        }
        (folder / "home").mkdir(parents=True)
        self._services: list[Service] = []
        self.url = ""

    def start(self, workers: int, cores: int) -> None:
        log = self.folder / "master.log"
        master = self._service(log, "master.Master", "--host", "127.0.0.1", *_ANY_PORT)
        master.start(lambda: "I have been elected leader" in _text(log), _START_SECONDS)
        found = re.search(r"spark://127\.0\.0\.1:\d+", _text(log))
        assert found is not None
        self.url = found.group()
        for number in range(workers):
            self.add_worker(number, cores)

    def add_worker(self, number: int, cores: int) -> Service:
        log = self.folder / f"worker-{number}.log"
        # Spark makes no second copy of a task on the host of the first. Only Linux has the address.
        host = f"127.0.0.{1 + number}" if sys.platform == "linux" else "127.0.0.1"
        worker = self._service(
            log, "worker.Worker", "--host", host, *_ANY_PORT, "--cores", str(cores),
            "--memory", "4g", "--work-dir", str(self.folder / f"work-{number}"), self.url,
        )  # fmt: skip
        worker.start(lambda: "Successfully registered with master" in _text(log), _START_SECONDS)
        return worker

    def _service(self, log: Path, name: str, *arguments: str) -> Service:
        settings = [f"{key}={value}" for key, value in self._variables.items()]
        program = f"org.apache.spark.deploy.{name}"
        service = Service(
            ["env", *settings, str(SPARK_HOME / "bin" / "spark-class"), program,
             *arguments],
            log,
        )  # fmt: skip
        self._services.append(service)
        return service

    def stop(self) -> None:
        for service in reversed(self._services):
            service.stop()

    def executor_logs(self) -> str:
        """What the executors of all applications so far wrote to their standard error."""
        return "\n".join(map(_text, sorted(self.folder.glob("work-*/*/*/stderr"))))


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def running_cluster(
    folder: Path, *, workers: int = 1, cores: int = 2, **variables: str
) -> Iterator[Cluster]:
    """A cluster that is stopped at the end. `variables`: of the executors' environment."""
    cluster = Cluster(folder, variables)
    try:
        cluster.start(workers, cores)
        yield cluster
    finally:
        cluster.stop()


def submit_command(cluster: Cluster, *arguments: str | Path) -> list[str]:
    """spark-submit to the cluster, from an environment where the driver is on loopback."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "1g",
        "spark.cores.max": "2",
    }
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    submit = SPARK_HOME / "bin" / "spark-submit"
    return [str(submit), "--master", cluster.url, *options, *map(str, arguments)]
