"""`spark-cep demo`: card fraud in generated payments, with the plan and the matches in seconds.

The pattern is written in Python, in the papers' language and in SQL. Every row is computed from its
number by arithmetic and hashing in Spark, so the same number of rows is the same data everywhere.
Each `CARDS_FOR_ONE_FRAUD`-th card is stolen once, among its honest payments.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import spark_cep as cep
from spark_cep.pattern import event, seq
from spark_cep.spark.session import start_local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ROWS = 500_000
FEWEST_ROWS = 1_000
ROWS_OF_A_CARD = 40
CARDS_FOR_ONE_FRAUD = 1_000
PRINTED_MATCHES = 10

FRAUD = (
    seq(
        event("a", "kind = 'refused'"),
        event("b", "kind = 'refused'"),
        event("c", "kind = 'confirmed'"),
        event("d", "kind = 'request'"),
        event("e", "kind = 'request' AND amount > 10000"),
    )
    .where("e.amount > 10 * d.amount")
    .within("5 minutes")
)
SASE = """
    SEQ(refused a, refused b, confirmed c, request d, request e)
    WHERE e.amount > d.amount * 10 ∧ e.amount > 10,000
    WITHIN 5 minutes
"""
SQL = """
    SELECT * FROM {payments} MATCH_RECOGNIZE (
      PARTITION BY card ORDER BY at
      MEASURES d.amount AS tried, e.amount AS taken
      PATTERN SEQ(a, b, c, d, e) WITHIN INTERVAL '5' MINUTES
      DEFINE a AS kind = 'refused', b AS kind = 'refused', c AS kind = 'confirmed',
             d AS kind = 'request',
             e AS kind = 'request' AND amount > 10000 AND amount > 10 * d.amount
    )
"""


@dataclass(frozen=True)
class FraudReport:
    """What the demo prints. `same`: the number of matches of the pattern in each other language."""

    matches: DataFrame
    rows: list[dict[str, object]]
    seconds: float
    same: dict[str, int]


def run_demo(*, rows: int, as_json: bool) -> None:
    """Runs the demo and prints the result: text for people, or one JSON object."""
    _print_progress("starting Spark")
    spark = start_local_session("spark-cep demo")
    try:
        payments = generate(spark, rows)
        started = time.perf_counter()
        _print_progress(f"looking for card fraud in {rows:,} generated payments")
        matches = find_fraud(payments)
        found = [row.asDict() for row in matches.orderBy("start", "card").collect()]
        seconds = time.perf_counter() - started
        _print_progress("matching the same pattern as SASE text and as SQL")
        same = {
            "SASE": find_fraud_in_sase(payments).count(),
            "SQL": find_fraud_in_sql(payments).count(),
        }
        _print_progress(f"done in {time.perf_counter() - started:.1f} s")
        show = _print_json if as_json else _print_text
        show(FraudReport(matches, found, seconds, same), rows)
    finally:
        spark.stop()


def find_fraud(payments: DataFrame) -> DataFrame:
    """Two refused codes, a confirmed one, a small payment and a large one, within five minutes."""
    return cep.match_pattern(
        payments,
        FRAUD,
        partition_by="card",
        order_by="at",
        measures={
            "start": "match_start",
            "seconds": "timestampdiff(SECOND, match_start, match_end)",
            "tried": "d.amount",
            "taken": "e.amount",
        },
    )


def find_fraud_in_sase(payments: DataFrame) -> DataFrame:
    """The same matches, by the pattern as SASE text."""
    fraud = cep.sase(SASE, type_column="kind")
    return cep.match_pattern(payments, fraud, partition_by="card", order_by="at")


def find_fraud_in_sql(payments: DataFrame) -> DataFrame:
    """The same matches, by the pattern in SQL."""
    return cep.sql(payments.sparkSession, SQL, payments=payments)


def generate(spark: SparkSession, rows: int) -> DataFrame:
    """`rows` payments in a day: honest ones, and five rows for each stolen card."""
    cards = max(1, rows // ROWS_OF_A_CARD)
    frauds = stolen_cards(rows)
    honest = spark.range(rows - 5 * frauds).selectExpr(
        f"CAST(pmod(xxhash64(id, 'card'), {cards}) AS INT) AS card",
        "timestamp_seconds(1767600000 + pmod(xxhash64(id, 'second'), 86400)) AS at",
        "pmod(xxhash64(id, 'kind'), 100) AS dice",
        "CAST(10 + pmod(xxhash64(id, 'amount'), 49000) / 100 AS DECIMAL(10, 2)) AS sum",
    )
    stolen = spark.range(frauds).selectExpr(
        f"CAST(id * {CARDS_FOR_ONE_FRAUD} AS INT) AS card",
        "1767600000 + pmod(xxhash64(id, 'fraud'), 86000) AS second",
        "stack(5, 0, 'refused', NULL, 40, 'refused', NULL, 75, 'confirmed', NULL, "
        "110, 'request', 1.99D, 200, 'request', 14000D) AS (later, kind, amount)",
    )
    return honest.selectExpr(
        "card",
        "at",
        "CASE WHEN dice < 3 THEN 'refused' WHEN dice < 50 THEN 'confirmed' ELSE 'request' END"
        " AS kind",
        "CASE WHEN dice >= 50 THEN sum END AS amount",
    ).unionByName(
        stolen.selectExpr(
            "card",
            "timestamp_seconds(second + later) AS at",
            "kind",
            "CAST(amount AS DECIMAL(10, 2)) AS amount",
        )
    )


def stolen_cards(rows: int) -> int:
    """The number of frauds that `generate` puts into `rows` rows."""
    return 1 + (max(1, rows // ROWS_OF_A_CARD) - 1) // CARDS_FOR_ONE_FRAUD


def _print_text(found: FraudReport, rows: int) -> None:
    cep.explain(found.matches)
    print(f"\n{len(found.rows)} matches in {rows:,} rows")
    print(f"{'card':>8}  {'start':<19}  {'seconds':>7}  {'tried':>8}  {'taken':>10}")
    for match in found.rows[:PRINTED_MATCHES]:
        print(
            f"{match['card']:>8}  {match['start']!s:<19}  {match['seconds']:>7}  "
            f"{match['tried']:>8}  {match['taken']:>10}"
        )
    if len(found.rows) > PRINTED_MATCHES:
        print(f"... and {len(found.rows) - PRINTED_MATCHES} more")
    for (language, count), text in zip(found.same.items(), (SASE, SQL), strict=True):
        print(f"\nThe same in {language}: {count} matches\n{text.rstrip()}")


def _print_json(found: FraudReport, rows: int) -> None:
    answer = {
        "rows": rows,
        "seconds": round(found.seconds, 3),
        "plan": cep.plan_of(found.matches).to_dict(),
        "matches": found.rows,
        "same": found.same,
    }
    print(json.dumps(answer, default=str))


def _print_progress(progress: str) -> None:
    print(f"spark-cep demo: {progress}", file=sys.stderr, flush=True)
