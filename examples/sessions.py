"""Clicks put into sessions: a visit ends where nothing is clicked for half an hour.

The row pattern says what a session is, and ALL ROWS gives every click back with what is known of
its session: which one it is, how far into it the click came (RUNNING), and how long it became
(FINAL). What follows is Spark's: here the sessions that looked at the price and did not order.

Run it with `python examples/sessions.py`.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import row_pattern

SESSION = row_pattern("first more*", define={"more": "at - PREV(at) <= INTERVAL '30' MINUTES"})

PAGES = ("home", "search", "product", "price", "order")
MORNING = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
VISITORS = 300


def clicks(spark: SparkSession) -> DataFrame:
    """A day of visitors who come back now and then."""
    chance = random.Random(7)
    rows = []
    for visitor in range(VISITORS):
        at = MORNING + timedelta(seconds=chance.randrange(7_200))
        for _ in range(chance.randrange(1, 40)):
            rows.append((visitor, at, chance.choice(PAGES)))
            is_break = chance.random() < 0.15
            at += timedelta(
                seconds=chance.randrange(1_500, 18_000) if is_break else chance.randrange(3, 900)
            )
    return spark.createDataFrame(rows, "visitor int, at timestamp, page string")


def main(spark: SparkSession) -> DataFrame:
    sessions = clicks(spark).match_pattern(
        SESSION,
        partition_by="visitor",
        order_by="at",
        measures={
            "session": "MATCH_NUMBER()",
            "click": "count(*)",
            "clicks": "FINAL count(*)",
            "minutes": "timestampdiff(MINUTE, FIRST(at), FINAL LAST(at))",
        },
        rows="all",
    )
    cep.explain(sessions)
    sessions.where("clicks >= 3").orderBy("visitor", "at").show(10, truncate=False)
    undecided = (
        sessions.groupBy("visitor", "session")
        .agg(F.collect_set("page").alias("pages"), F.max("clicks").alias("clicks"))
        .where("array_contains(pages, 'price') AND NOT array_contains(pages, 'order')")
    )
    print(f"sessions that saw the price and did not order: {undecided.count()}")
    return sessions


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("sessions")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
