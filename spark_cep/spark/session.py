"""The Spark session of the command line: all cores of this machine, nothing on the network."""

from __future__ import annotations

import os
import sys

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession


class SparkStartError(Exception):
    """Spark could not be started; the text says what to do."""


def start_local_session(name: str) -> SparkSession:
    """A session in this process; raises SparkUnavailable."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = (
            SparkSession.builder.master("local[*]")
            .appName(name)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    except (PySparkRuntimeError, OSError) as problem:
        raise SparkStartError(
            "Spark could not start; it needs Java 17 or newer on the PATH or in JAVA_HOME "
            f"(on Debian: apt install openjdk-17-jre-headless). Spark says: {problem}"
        ) from problem
    spark.sparkContext.setLogLevel("ERROR")
    return spark
