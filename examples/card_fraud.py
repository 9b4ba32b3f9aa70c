"""A card number that somebody guessed the code of.

Pattern 1 of "DARLING: Data-Aware Load Shedding in Complex Event Processing Systems" (Chapnik,
Kolchinsky, Schuster; VLDB 2021): two refused codes, then a right one, a small payment to see
whether it works, and a large one. There it is written

    SEQ(CvvRefused1 a, CvvRefused2 b, CvvConfirmed c, SmallTransReq d, BigTransReq e)
    WHERE (e.amount > d.amount * 10) ^ (e.amount > 10,000)
      ^ (a.cardID = b.cardID = c.cardID = d.cardID = e.cardID)
    WITHIN 5 minutes

Run it with `python examples/card_fraud.py`.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

import spark_cep as cep
from spark_cep import event, seq

FRAUD = (
    seq(
        event("a", "kind = 'cvv refused'"),
        event("b", "kind = 'cvv refused'"),
        event("c", "kind = 'cvv confirmed'"),
        event("d", "kind = 'request'"),
        event("e", "kind = 'request' AND amount > 10000"),
    )
    .where("e.amount > d.amount * 10")
    .within("5 minutes")
)

MORNING = datetime(2021, 11, 1, 6, 0, tzinfo=UTC)
CARDS, PAYMENTS = 400, 8
STOLEN = frozenset({11, 205, 333})


def payments(spark: SparkSession) -> DataFrame:
    """A day of honest payments, some with a mistyped code, and three stolen cards."""
    chance = random.Random(2021)
    rows: list[tuple[int, datetime, str, float | None]] = []

    def happens(card: int, at: datetime, kind: str, amount: float | None = None) -> None:
        rows.append((card, at, kind, amount))

    for card in range(CARDS):
        for _ in range(PAYMENTS):
            at = MORNING + timedelta(seconds=chance.randrange(16 * 3600))
            if chance.random() < 0.05:
                happens(card, at - timedelta(seconds=40), "cvv refused")
            happens(card, at - timedelta(seconds=20), "cvv confirmed")
            happens(card, at, "request", round(chance.lognormvariate(3.5, 1), 2))
    for card in sorted(STOLEN):
        at = MORNING + timedelta(seconds=chance.randrange(16 * 3600))
        happens(card, at, "cvv refused")
        happens(card, at + timedelta(seconds=15), "cvv refused")
        happens(card, at + timedelta(seconds=40), "cvv confirmed")
        happens(card, at + timedelta(seconds=70), "request", 1.99)
        happens(card, at + timedelta(seconds=130), "request", 10_000 + 1_000.0 * card)
    return spark.createDataFrame(rows, "card int, at timestamp, kind string, amount double")


def main(spark: SparkSession) -> DataFrame:
    matches = payments(spark).match_pattern(
        FRAUD,
        partition_by="card",
        order_by="at",
        measures={"tested": "d.amount", "taken": "e.amount", "from": "match_start", "to": "e.at"},
    )
    cep.explain(matches)
    matches.orderBy("from").show(truncate=False)
    return matches


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("card fraud")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    main(session)
    session.stop()
