"""More prices than there is time for: the rises that are kept when most rows are dropped.

The first query template of "DARLING: Data-Aware Load Shedding in Complex Event Processing Systems"
(Chapnik, Kolchinsky, Schuster; PVLDB 15(3), 2022): three shares one after the other, the volume of
each a multiple of the one before.

    SEQ(S1, S2, S3) WHERE S2.volume > S1.volume * C AND S3.volume > S2.volume * C WITHIN 60 minutes

Three of ten rows stay. Dropped by chance, they would leave three in a hundred matches. `cep.Shed`
drops those that have the least chance to be in one.

Run it with `python examples/overload.py`.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq

ROWS, FACTOR = 60_000, 2
RISING = (
    seq(event("s1", "share = 'MSFT'"), event("s2", "share = 'GOOG'"), event("s3", "share = 'AAPL'"))
    .where(f"s2.volume > s1.volume * {FACTOR}", f"s3.volume > s2.volume * {FACTOR}")
    .within("60 minutes")
)


def trades(spark: SparkSession) -> DataFrame:
    """A trade every 20 seconds on each of ten venues, volumes log-normal."""
    uniform = "(pmod(xxhash64(id, '{}'), 1000000) + 0.5) / 1000000"
    normal = f"sqrt(-2 * ln({uniform.format('u')})) * cos(2 * pi() * {uniform.format('v')})"
    return spark.range(ROWS).select(
        F.expr("timestamp_seconds(1609459200 + id DIV 10 * 20)").alias("at"),
        F.expr("id % 10").alias("venue"),
        F.expr("element_at(array('MSFT', 'GOOG', 'AAPL'), cast(pmod(xxhash64(id), 3) AS int) + 1)")
        .alias("share"),
        F.expr(f"round(1000 * exp({normal}))").alias("volume"),
    )  # fmt: skip


def main(spark: SparkSession) -> dict[str, float]:
    """The share of the matches that each policy keeps."""
    rows = trades(spark).cache()

    def found(shed: cep.Shed | None = None) -> DataFrame:
        return rows.match_pattern(
            RISING,
            partition_by="venue",
            order_by="at",
            measures={"volume": "s3.volume"},
            shed=shed,
        )

    every = found().count()
    print(f"all rows: {every:,} matches")
    shares = {}
    for policy in ("random", "frequency", "utility"):
        matches = found(cep.Shed(keep=0.3, policy=policy))  # type: ignore[arg-type]
        shares[policy] = matches.count() / every
        expected = cep.metrics(matches)["estimated_recall"]
        print(f"3 of 10 rows by {policy}: {shares[policy]:.1%} of them, {expected:.1%} expected")
    cep.explain(matches)
    return shares


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what runs this
    builder = SparkSession.builder.appName("overload")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    main(session)
    session.stop()
