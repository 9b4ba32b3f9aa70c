"""Three stocks in rising order within four hours.

Figure 1 of "Lazy Evaluation Methods for Detecting Complex Events" (Kolchinsky, Sharfman, Schuster;
DEBS 2015). There the pattern is written

    PATTERN SEQ(E a, E b, E c)
    WHERE (a.ticker = MSFT) AND (b.ticker = GOOG) AND (c.ticker = AAPL)
      AND (a.price < b.price) AND (b.price < c.price)
    WITHIN 4 hours

Run it with `python examples/stock_sequence.py`.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep
from spark_cep import event, seq

RISING = (
    seq(
        event("a", "ticker = 'MSFT'"),
        event("b", "ticker = 'GOOG'"),
        event("c", "ticker = 'AAPL'"),
    )
    .where("a.price < b.price", "b.price < c.price")
    .within("4 hours")
)

# MSFT is quoted often and AAPL rarely, which is why a lazy plan starts with AAPL.
QUOTES = {"MSFT": 300, "GOOG": 60, "AAPL": 6, "IBM": 200}
OPENING = datetime(2015, 6, 29, 9, 30, tzinfo=UTC)
TRADING_SECONDS = 6 * 3600 + 1800


def quotes(spark: SparkSession) -> DataFrame:
    """One trading day: every stock starts near 100 and wanders."""
    chance = random.Random(2015)
    rows = []
    for ticker, count in QUOTES.items():
        price = chance.gauss(100, 1)
        for second in sorted(chance.sample(range(TRADING_SECONDS), count)):
            price += chance.gauss(0, 0.4)
            rows.append((ticker, OPENING + timedelta(seconds=second), round(price, 2)))
    return spark.createDataFrame(rows, "ticker string, ts timestamp, price double")


def main(spark: SparkSession) -> DataFrame:
    matches = quotes(spark).match_pattern(
        RISING,
        order_by="ts",
        measures={
            "msft": "a.price",
            "goog": "b.price",
            "aapl": "c.price",
            "gain": "round(c.price - a.price, 2)",
            "from": "match_start",
            "to": "match_end",
        },
    )
    cep.explain(matches)
    matches.orderBy("from", "to", "goog").show(10, truncate=False)
    return matches


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("stock sequence")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
