"""One Spark session for all tests that need a JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from tests.spark.installing import checkout, dependencies, environment, installed, wheel

__all__ = ["checkout", "dependencies", "environment", "installed", "wheel"]

SETTINGS = {
    # Two cores, so that partitions really run beside each other.
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    # A machine's host name need not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The default of 200 is a second of empty tasks in every shuffle.
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A busy machine is slow, and plans that tests expect come from samples.
    "spark.cep.sample.seconds": "120",
    # Timestamps in expected answers are written in UTC.
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def session() -> Iterator[SparkSession]:
    # Workers and driver must be one Python, whatever is first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("spark-cep tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session() as running:
        yield running


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Settings of the session for one test, by `conf[name] = value`."""
    before: dict[str, str | None] = {}

    class Settings(dict[str, str]):
        def __setitem__(self, name: str, value: str) -> None:
            before.setdefault(name, spark.conf.get(name, None))
            super().__setitem__(name, value)
            spark.conf.set(name, value)

    yield Settings()
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
