"""What the driver keeps of each answer, its plan and its metrics, and how they are read later.

Every bucket ends with one row of counts. An Observation collects these rows during the action, and
a filter removes them from the answer. The first action fills the Observation, and later ones leave
it as it is. If the first one stops early (`limit`, `take`), fewer buckets report than there are,
and `complete` is False.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from spark_cep.errors import CepError, PlanError
from spark_cep.explanation.comparison import Analysis
from spark_cep.explanation.counts import merge_counts, parse_counts, public_counts
from spark_cep.explanation.shedding import least_recall, trigger_recall
from spark_cep.spark.source import plan_text
from spark_cep.spark.versions import is_observed
from spark_cep.udfs.output import STREAM_METRICS
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

    from spark_cep.explanation.counts import CountMap
    from spark_cep.explanation.plan import MatchPlan


# ---- records of answers ------------------------------------------------------------------------

# The records of older answers are dropped. A record has a few kilobytes ...
MAX_RECORDS = 10_000
# ... unless it can make the answer again, which keeps the whole plan in Spark.
MAX_RERUNS = 100

_numbers = itertools.count(1)
_records: dict[int, AnswerRecord] = {}
_ATTRIBUTE = "_spark_cep_record"
_HINT = "give the DataFrame that match_pattern returned, or one derived from it"


@dataclass(frozen=True)
class AnswerRecord:
    """One answer. Its `number` is in the name of its function in Spark's plan, so the record is
    found from derived DataFrames too, in classic and Connect sessions.

    `observation` has its metrics once the first action has run; None for a stream, whose query has
    them. `rerun` makes the answer once more, with an empty observation. `recall`, where rows were
    shed, counts the matches of a sample and those that shedding leaves.
    """

    number: int
    plan: MatchPlan
    observation: AnswerObservations | None
    buckets: int | None
    rerun: Callable[[], tuple[DataFrame, AnswerObservations]] | None = None
    recall: Callable[[], tuple[int, int] | None] | None = None


def new_answer_number() -> int:
    return next(_numbers)


def keep_record(df: DataFrame, record: AnswerRecord) -> DataFrame:
    """Keeps the record, and also on the DataFrame itself, for as long as that lives."""
    _records[record.number] = record
    old = _records.get(record.number - MAX_RERUNS)
    if old is not None:
        _records[old.number] = replace(old, rerun=None, recall=None)
    while len(_records) > MAX_RECORDS:
        del _records[next(iter(_records))]
    setattr(df, _ATTRIBUTE, record)
    return df


def records_of(df: DataFrame) -> list[AnswerRecord]:
    """The records of all answers that a DataFrame was made from, oldest first; at least one."""
    own: Any = getattr(df, "__dict__", {}).get(_ATTRIBUTE)
    if own is not None:
        return [own]
    if not hasattr(df, "sparkSession") or not hasattr(df, "explain"):
        raise PlanError(f"{type(df).__name__} is not a DataFrame", hint=_HINT)
    # Answers that Spark has optimized away, as with limit(0), are still in the extended plan.
    found = _records_in_plan(plan_text(df)) or _records_in_plan(plan_text(df, "extended"))
    if not found:
        raise PlanError(
            "this DataFrame was not made by match_pattern in this Python process", hint=_HINT
        )
    return found


def _records_in_plan(plan: str) -> list[AnswerRecord]:
    numbers = {int(each) for each in re.findall(r"match_pattern\[[^\]]*#(\d+)\]", plan)}
    return [_records[number] for number in sorted(numbers) if number in _records]


# ---- metrics of batches ------------------------------------------------------------------------

_POLL_SECONDS = 0.02
# Spark fills observations shortly after the action has ended.
_SHORT_WAIT_SECONDS = 1.0
_LINE = "\n"


@public
def metrics(df: DataFrame) -> dict[str, Any]:
    """Returns what the engine counted in the first action on an answer.

    Nothing runs for it: the counts come with the answer. Those of a DataFrame that was derived
    from several answers are added up.

    Args:
        df: What `match_pattern` or a query with MATCH_RECOGNIZE returned, or a DataFrame derived
            from it, in the same Python process.

    Returns:
        Numbers by name: `rows`, `pairs`, `partial_matches`, `matches`, `matching_us` and so on;
        for row patterns `steps` in place of pairs. `complete` is False if the action did not read
        the whole answer (`limit`, `take`); the counts are then those of the part that was read.

    Raises:
        CepError: No action has run yet, or `df` is a stream, whose counts
            `cep.streaming.metrics(query)` returns.
        PlanError: `df` has no pattern in it.

    Example:
        >>> import spark_cep as cep
        >>> rows = spark.createDataFrame([("A", 1), ("B", 2)], "kind string, at int")
        >>> pattern = cep.seq(cep.event("a", "kind = 'A'"), cep.event("b", "kind = 'B'"))
        >>> matches = rows.match_pattern(pattern, order_by="at")
        >>> matches.count()
        1
        >>> counts = cep.metrics(matches)
        >>> counts["rows"], counts["matches"], counts["complete"]
        (2, 1, True)
    """
    records = records_of(df)
    found = [read_answer_counts(record) for record in records]
    of_rows = all(record.plan.facts.get("kind") == "row pattern" for record in records)
    numbers = public_counts(merge_counts(found), of_rows=of_rows)
    estimated = least_recall(record.plan.facts for record in records)
    return {**numbers, **estimated, "complete": all(each["complete"] for each in found)}


@dataclass(frozen=True)
class AnswerObservations:
    """The observations of an answer: of its buckets, of lookups before matching (`before`), and of
    the rows that are kept and dropped before matching (`shed`)."""

    answer: Observation
    before: Observation | None = None
    shed: Observation | None = None

    def __iter__(self) -> Iterator[Observation]:
        yield self.answer
        yield from (each for each in (self.before, self.shed) if each is not None)


def observe_lookups(df: DataFrame, observation: Observation | str) -> DataFrame:
    """`df` with an observation of the counts in its column `metrics`."""
    return df.observe(observation, _collected_counts())


def observe_shed(df: DataFrame, counts: Column, observation: Observation | str) -> DataFrame:
    """`df` with an observation of `counts` over its rows."""
    return df.observe(observation, counts.alias("buckets"))


def observe_answer(df: DataFrame, observation: Observation) -> DataFrame:
    """`df` without its rows of counts, which the observation collects.

    They are collected as text, one for each bucket: one aggregate costs a third of a sum for each
    count (0.07 against 0.2 microseconds a row).
    """
    return df.observe(observation, _collected_counts()).filter("metrics IS NULL")


def _collected_counts() -> Column:
    """The texts of all closing rows as the lines of one: Spark before 4.1 has no way to return an
    observed array through Connect. JSON has no line break in it."""
    return F.array_join(F.collect_list("metrics"), _LINE).alias("buckets")


def read_answer_counts(record: AnswerRecord) -> dict[str, Any]:
    """The merged counts of the first action on an answer, and `complete`."""
    found = read_observations(observation_of(record), record.buckets, _SHORT_WAIT_SECONDS)
    if found is None:
        raise CepError(
            "there are no metrics yet: no action has run on this answer",
            hint="run an action on the DataFrame that match_pattern returned, or on one derived "
            "from it in the same session, and call metrics after it",
        )
    return found


def observation_of(record: AnswerRecord) -> AnswerObservations:
    if record.observation is None:
        raise CepError(
            "the metrics of a stream are those of its query",
            hint="query = df.writeStream....start(), then cep.streaming.metrics(query)",
        )
    return record.observation


def read_observations(
    observation: AnswerObservations, buckets: int | None, wait_seconds: float = 0.0
) -> dict[str, Any] | None:
    """The merged counts of an observation; None if no action has finished after `wait_seconds`."""
    rows = [_observed_row(each, wait_seconds) for each in observation]
    if not rows[0]:
        return None
    texts = [_lines(row) for row in rows]
    every = (text for each in texts for text in each)
    reports = [parse_counts(text) for text in texts[0]]
    return {
        **merge_counts(map(parse_counts, every)),
        "buckets": sum("ended" in each for each in reports),
        "complete": has_read_all(reports, buckets),
    }


def has_read_all(counts: Sequence[CountMap], buckets: int | None) -> bool:
    """Whether an action read the answer of every bucket to its end. `buckets`: how many there are;
    None: Spark decided it.

    An action that stops early leaves out buckets, or ends them before their last row. Only `take`
    and actions like it leave some out, and these run one job after another; so if all buckets
    belong to one stage, and each that began has ended, there are no others.

    >>> has_read_all([{"begun": [7, 0, 0]}, {"ended": [7, 0, 0]}], None)
    True
    >>> has_read_all([{"begun": [7, 0, 0]}, {"begun": [7, 0, 1]}, {"ended": [7, 0, 0]}], None)
    False
    """
    begun = {tuple(each["begun"]) for each in counts if "begun" in each}
    ended = {tuple(each["ended"]) for each in counts if "ended" in each}
    if buckets is not None:
        return len(ended) == buckets
    return begun == ended and len({stage for stage, _, _ in ended}) == 1


def _lines(row: Mapping[str, Any]) -> list[str]:
    text = row.get("buckets")
    return str(text).split(_LINE) if text else []


def _observed_row(observation: Observation, wait_seconds: float) -> Mapping[str, Any]:
    """Empty while no action has finished."""
    until = time.monotonic() + wait_seconds
    while not is_observed(observation):
        if time.monotonic() >= until:
            return {}
        time.sleep(_POLL_SECONDS)
    return observation.get


# ---- explain(mode="analyze") -------------------------------------------------------------------

_WAIT_SECONDS = 10.0


def analyze_answers(df: DataFrame) -> list[Analysis]:
    """Runs the query of each pattern that was matched for `df`; oldest first.

    Each answer is made once more with a new observation, because the old one keeps the counts of
    the first action, which may have stopped early. If an answer cannot be made again, the counts of
    its first action are taken; it is run now if there was none.
    """
    records = records_of(df)
    if any("stream" in record.plan.facts for record in records):
        raise PlanError(
            'mode="analyze" runs a query to its end, which a stream does not have',
            hint="start the query, then cep.streaming.metrics(query) has the counts of each "
            "trigger; cep.explain(df) has the plan",
        )
    return [_analyze_record(df, record) for record in records]


def _analyze_record(df: DataFrame, record: AnswerRecord) -> Analysis:
    facts = record.plan.facts
    answer, observation = (df, observation_of(record)) if record.rerun is None else record.rerun()
    counts = read_observations(observation, record.buckets)
    recall = None if record.recall is None else record.recall()
    if counts is not None:
        return Analysis(facts, counts, None, recall)
    seconds = _run_query(answer)
    counts = read_observations(observation, record.buckets, wait_seconds=_WAIT_SECONDS)
    if counts is None:
        raise CepError(
            "Spark left the engine out of the query, so nothing was counted",
            hint="its optimizer does that when it knows that the input is empty",
        )
    return Analysis(facts, counts, seconds, recall)


def _run_query(df: DataFrame) -> float:
    """Computes every row and keeps none; returns the seconds that it took."""
    started = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


# ---- metrics of streams ------------------------------------------------------------------------

# Spark puts named observations into the progress of the query.
_OBSERVATION_NAME = "spark_cep_{}"


def observe_stream_answer(df: DataFrame, number: int) -> DataFrame:
    """`df` without its rows of counts, which go into the query's progress."""
    observed = df.observe(_OBSERVATION_NAME.format(number), _collected_counts())
    return observed.filter("metrics IS NULL")


def observe_stream_lookups(df: DataFrame, number: int) -> DataFrame:
    """`df`; the counts in its column `metrics` go into the query's progress."""
    return observe_lookups(df, f"{_OBSERVATION_NAME.format(number)}_before")


def observe_stream_shed(df: DataFrame, counts: Column, number: int) -> DataFrame:
    """`df`; `counts` over its rows go into the query's progress."""
    return observe_shed(df, counts, f"{_OBSERVATION_NAME.format(number)}_shed")


def query_metrics(query: StreamingQuery) -> list[dict[str, Any]]:
    """Returns what the latest triggers of a streaming query counted, oldest first.

    Spark keeps the progress of the last 100 triggers, or as many as
    spark.sql.streaming.numRecentProgressUpdates says.

    Args:
        query: The running or finished query that a match was written by.

    Returns:
        A dict for each trigger: `trigger` and `timestamp` as in Spark's progress, then the sums
        over all buckets, `rows`, `matches`, `late_rows`, `expired_rows`, `state_rows`,
        `state_bytes`, `pairs` and so on, `orders`, the orders that ran with the pairs of each,
        and `swaps`, the changes of plan.

    Raises:
        CepError: The query has no pattern in it.

    Example:
        >>> import tempfile, time
        >>> import spark_cep as cep
        >>> source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        >>> pattern = cep.seq("a", "b").within("1 second")
        >>> matches = source.withWatermark("timestamp", "1 second").match_pattern(
        ...     pattern, order_by=["timestamp", "value"]
        ... )
        >>> query = (
        ...     matches.writeStream.format("noop").outputMode("append")
        ...     .option("checkpointLocation", tempfile.mkdtemp())
        ...     .trigger(once=True).start()
        ... )
        >>> query.awaitTermination()
        >>> "late_rows" in cep.streaming.metrics(query)[0]
        True
    """
    progress = [_plain_progress(each) for each in query.recentProgress]
    found = list(_trigger_metrics(progress))
    if not found and any(each.get("observedMetrics") for each in progress):
        raise CepError(
            "no pattern of spark-cep is matched in this query",
            hint="give the query that writes what df.match_pattern(...) or SQL returned",
        )
    return found


def _trigger_metrics(progress: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in progress:
        observed = each.get("observedMetrics") or {}
        texts = [
            text
            for name, row in observed.items()
            if name.startswith(_OBSERVATION_NAME.format(""))
            for text in _bucket_texts(row)
        ]
        if texts:
            buckets = [parse_counts(text) for text in texts]
            counts = merge_counts(buckets)
            yield {
                "trigger": each["batchId"],
                "timestamp": each["timestamp"],
                **public_counts(
                    counts, of_rows=all("steps" in b or set(b) <= {"remotes"} for b in buckets)
                ),
                **{name: sum(int(b.get(name, 0)) for b in buckets) for name in STREAM_METRICS},
                **_shedding_metrics(counts, buckets),
                **_latency_metrics(counts, each),
                "orders": counts["orders"],
                "swaps": counts["swaps"],
            }


def _shedding_metrics(counts: CountMap, buckets: list[CountMap]) -> dict[str, Any]:
    """For a query that may shed: the time for it, and the share of the trigger's matches that is
    expected to be left. The counts of rows, `shed`, are among those of every answer."""
    if "shed" not in counts:
        return {}
    return {
        "estimated_recall": trigger_recall(counts.get("shed_recall", {})),
        "shedding_us": sum(int(each.get("shedding_us", 0)) for each in buckets),
    }


def _latency_metrics(counts: CountMap, progress: Mapping[str, Any]) -> dict[str, Any]:
    """For a query with a bound: the seconds of the trigger, and whether it took longer. Workers
    know when their rows were packed and when they were done, and Spark how long the whole trigger
    took; where it says so, that counts."""
    if "bound_us" not in counts:
        return {}
    whole = (progress.get("durationMs") or {}).get("triggerExecution", 0)
    seconds = max(int(counts["latency_us"]) / 1e6, int(whole) / 1e3)
    return {"latency": seconds, "missed": int(seconds > int(counts["bound_us"]) / 1e6)}


def _bucket_texts(row: Any) -> list[str]:
    """The texts in an observed row: a Row, or from JSON a dict, which in Connect sessions has
    values and schema separately."""
    values = row.asDict() if hasattr(row, "asDict") else row
    if "schema" in values:
        names = [each["name"] for each in values["schema"]["fields"]]
        values = dict(zip(names, values["values"], strict=True))
    return _lines(values)


def _plain_progress(progress: Any) -> Mapping[str, Any]:
    """The progress as a dict; Spark returns an object or a dict, by version and kind of session."""
    if isinstance(progress, dict):
        return progress
    found: dict[str, Any] = json.loads(progress.json)
    found["observedMetrics"] = dict(progress.observedMetrics)
    return found
