"""`explain(mode="analyze")`: runs the query, and gives what was counted beside the plan's facts.

The answer is made once more with an observation of its own, for an observation keeps what it got
from the first action, and that may have stopped early. Only where an answer cannot be made again,
the counts of its first action are used, which is run now if there was none.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.errors import CepError, PlanError
from spark_cep.explaining.metering import observation_of, read
from spark_cep.explaining.records import Record, records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.explaining.counts import Counts
    from spark_cep.explaining.planned import Facts

# Spark tells observations shortly after the action has ended.
_WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class Analysis:
    """`counts` of a whole answer unless they say that they are not `complete`. `seconds`: how long
    the query ran; None: it had run before. `recall`: of a sample's matches, all of them and those
    that shedding leaves."""

    facts: Facts
    counts: Counts
    seconds: float | None
    recall: tuple[int, int] | None = None


def analyses(df: DataFrame) -> list[Analysis]:
    """One for each pattern that was matched for `df`, oldest first."""
    records = records_of(df)
    if any("stream" in record.plan.facts for record in records):
        raise PlanError(
            "a stream cannot be run once to be measured, as analyze does",
            hint="start the query, then cep.streaming.metrics(query) has what each trigger "
            "counted; cep.explain(df) has the plan",
        )
    return [_analysis(df, record) for record in records]


def _analysis(df: DataFrame, record: Record) -> Analysis:
    facts = record.plan.facts
    answer, observation = (df, observation_of(record)) if record.rerun is None else record.rerun()
    counts = read(observation, record.buckets)
    recall = None if record.recall is None else record.recall()
    if counts is not None:
        return Analysis(facts, counts, None, recall)
    seconds = _run(answer)
    counts = read(observation, record.buckets, wait_seconds=_WAIT_SECONDS)
    if counts is None:
        raise CepError(
            "Spark ran the query without the engine, so nothing was counted",
            hint="its optimizer does that where it sees that the input is empty",
        )
    return Analysis(facts, counts, seconds, recall)


def _run(df: DataFrame) -> float:
    """Computes every row and keeps none."""
    started = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started
