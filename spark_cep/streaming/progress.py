"""What a running query has counted, trigger by trigger, from Spark's own progress.

Every bucket ends a trigger with one row of counts; a named observation takes them as they pass,
and Spark puts it into the query's progress.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from spark_cep.errors import CepError
from spark_cep.explaining.counts import from_text, merged, shown
from spark_cep.explaining.metering import counted_shed, noticed
from spark_cep.explaining.shedding import recall_of_rows
from spark_cep.udfs.output import STREAM_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_cep.explaining.counts import Counts

_NAME = "spark_cep_{}"


def counted(df: DataFrame, number: int) -> DataFrame:
    """`df` without its rows of counts, which the query's progress receives."""
    counts = F.expr("collect_list(metrics)").alias("buckets")
    return df.observe(_NAME.format(number), counts).filter("metrics IS NULL")


def told(df: DataFrame, number: int) -> DataFrame:
    """`df`, the counts beside whose rows the query's progress receives."""
    return noticed(df, f"{_NAME.format(number)}_before")


def told_shed(df: DataFrame, counts: Column, number: int) -> DataFrame:
    """`df`, the counts of whose rows the query's progress receives."""
    return counted_shed(df, counts, f"{_NAME.format(number)}_shed")


def metrics(query: StreamingQuery) -> list[dict[str, Any]]:
    """What each of the query's latest triggers counted, oldest first: `trigger` and `timestamp`
    as in Spark's progress, then the sums over all buckets: rows, matches, late_rows,
    expired_rows, state_rows, state_bytes, pairs and so on, and `swaps`, the changes of plan.

    Spark keeps the progress of the last 100 triggers, or as many as
    spark.sql.streaming.numRecentProgressUpdates says.
    """
    progress = [_plain(each) for each in query.recentProgress]
    found = list(_triggers(progress))
    if not found and any(each.get("observedMetrics") for each in progress):
        raise CepError(
            "this query has no pattern of spark-cep in it",
            hint="ask the query that df.match_pattern(...) or SQL with MATCH_RECOGNIZE went into",
        )
    return found


def _triggers(progress: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in progress:
        observed = each.get("observedMetrics") or {}
        texts = [
            text
            for name, row in observed.items()
            if name.startswith(_NAME.format(""))
            for text in _texts(row)
        ]
        if texts:
            buckets = [from_text(text) for text in texts]
            counts = merged(buckets)
            yield {
                "trigger": each["batchId"],
                "timestamp": each["timestamp"],
                **shown(
                    counts, of_rows=all("steps" in b or set(b) <= {"remotes"} for b in buckets)
                ),
                **{name: sum(int(b.get(name, 0)) for b in buckets) for name in STREAM_METRICS},
                **_shed(counts, buckets),
                "swaps": counts["swaps"],
            }


def _shed(counts: Counts, buckets: list[Counts]) -> dict[str, Any]:
    """Of a query that may shed: what that took, and what it is expected to leave of the matches
    of the trigger's rows. `shed` itself is among what every answer shows."""
    if "shed" not in counts:
        return {}
    return {
        "estimated_recall": recall_of_rows(counts.get("shed_recall", {})),
        "shedding_us": sum(int(each.get("shedding_us", 0)) for each in buckets),
    }


def _texts(row: Any) -> list[str]:
    """An observed row is a Row, or what JSON makes of one: a dict, or in Connect sessions its
    values and its schema apart."""
    values = row.asDict() if hasattr(row, "asDict") else row
    if "schema" in values:
        names = [each["name"] for each in values["schema"]["fields"]]
        values = dict(zip(names, values["values"], strict=True))
    return list(values.get("buckets") or [])


def _plain(progress: Any) -> Mapping[str, Any]:
    """Spark gives an object or a dict, by version and kind of session."""
    if isinstance(progress, dict):
        return progress
    found: dict[str, Any] = json.loads(progress.json)
    found["observedMetrics"] = dict(progress.observedMetrics)
    return found
