"""The Spark session that every benchmark runs in."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def start(cores: int = 2) -> SparkSession:
    """A local session. Everything but size and quiet is Spark's default, as users have it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("spark-cep benchmarks")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
