"""Prices that fell by a tenth and came back, in SQL.

A dip is a row pattern: a first price, falling prices, rising ones up to the first again. What
counts as a dip is said where it is looked for: DEFINE reads the match so far, so `back` waits until
the price is what it was at the start. The clause stands where a table does, so its answer is
joined to the names of the companies like any other table.

Run it with `python examples/v_shapes.py`.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep

DIPS = """
    SELECT c.name, d.since, d.bottom_at, d.till, d.before, d.bottom, d.minutes
    FROM prices MATCH_RECOGNIZE (
      PARTITION BY symbol ORDER BY at
      MEASURES top.at AS since, LAST(fall.at) AS bottom_at, back.at AS till,
               top.price AS before, LAST(fall.price) AS bottom,
               timestampdiff(MINUTE, top.at, back.at) AS minutes
      AFTER MATCH SKIP TO LAST back
      PATTERN (top fall+ rise* back)
      WITHIN INTERVAL '2' HOURS
      DEFINE fall AS price < PREV(price),
             rise AS price > PREV(price) AND price < top.price,
             back AS price > PREV(price) AND price >= top.price
                     AND LAST(fall.price) <= 0.9 * top.price
    ) AS d
    JOIN companies c ON c.symbol = d.symbol
"""

NAMES = {"ACM": "Acme", "BRD": "Bird & Co", "CLY": "Clay Works"}
OPENING = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
MINUTES = 390


def prices(spark: SparkSession) -> DataFrame:
    """One trading day: a price a minute, which keeps its direction more often than not."""
    chance = random.Random(2016)
    rows = []
    for symbol in NAMES:
        price, step = 100.0, 1
        for minute in range(MINUTES):
            step = step if chance.random() < 0.75 else -step
            price += step * chance.uniform(0.2, 3)
            rows.append((symbol, OPENING + timedelta(minutes=minute), round(price, 2)))
    return spark.createDataFrame(rows, "symbol string, at timestamp, price double")


def main(spark: SparkSession) -> DataFrame:
    cep.install(spark)  # from now on spark.sql takes MATCH_RECOGNIZE
    prices(spark).createOrReplaceTempView("prices")
    companies = spark.createDataFrame(list(NAMES.items()), "symbol string, name string")
    companies.createOrReplaceTempView("companies")
    dips = spark.sql(DIPS)
    cep.explain(dips)
    dips.orderBy("since").show(truncate=False)
    return dips


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("V shapes")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
