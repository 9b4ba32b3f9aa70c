"""The Spark session that every benchmark runs in."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def start(cores: int = 2, *, fresh_workers: bool = False) -> SparkSession:
    """A local session. Everything but size and quiet is Spark's default, as users have it.

    `fresh_workers`: no Python worker does two tasks.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("spark-cep benchmarks")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.worker.reuse", str(not fresh_workers).lower())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
