"""What Spark knows of a DataFrame without running it: the size of its rows, the text of its plan.

Classic sessions are asked through the JVM, Connect sessions through what the client offers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_cep.expressions.byte_sizes import byte_size
from spark_cep.planner.layout import InputSize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# For a cluster that does not say how many cores it has.
UNKNOWN_CORES = 8

# Spark's estimate where it knows nothing (spark.sql.defaultSizeInBytes) is about this.
_UNKNOWN_BYTES = 1 << 60


def estimate_size(prepared: DataFrame, rows: int | None) -> InputSize:
    """Spark's estimate for the rows that will be shipped."""
    session = prepared.sparkSession
    bytes_ = None if rows is not None else _try_estimate_bytes(prepared)
    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or 200)
    return InputSize(bytes_, rows, count_cores(session), partitions)


def count_cores(session: SparkSession) -> int:
    """Cores of the cluster, as far as the session can tell."""
    context = getattr(session, "_sc", None)  # classic only
    if context is not None:
        return max(1, int(context.defaultParallelism))
    for name in ("spark.default.parallelism", "spark.cores.max"):
        value = session.conf.get(name, "") or ""
        if value.isdigit():
            return max(1, int(value))
    found = re.fullmatch(r"local\[(\d+).*\]", session.conf.get("spark.master", "") or "")
    return int(found[1]) if found else UNKNOWN_CORES


def plan_text(df: DataFrame, mode: str = "simple") -> str:
    """What `df.explain(mode)` would print. Spark explains few streams before they run, so a stream
    gives its analyzed plan."""
    untyped: Any = df
    if df.isStreaming:
        return _analyzed_plan_text(untyped)
    if not hasattr(untyped, "_jdf"):
        return str(untyped._explain_string(mode=mode))
    return str(untyped._sc._jvm.PythonSQLUtils.explainString(untyped._jdf.queryExecution(), mode))


def _analyzed_plan_text(df: Any) -> str:
    if hasattr(df, "_jdf"):
        return str(df._jdf.queryExecution().analyzed().toString())
    return str(df._plan.to_proto(df.sparkSession.client))


def parse_bytes(plan: str) -> int | None:
    """The estimate of the topmost operator in the text of `explain("cost")`.

    >>> parse_bytes("Filter (x), Statistics(sizeInBytes=7.8 KiB)")
    7987
    >>> parse_bytes("LogicalRDD, Statistics(sizeInBytes=8.0 EiB)") is None
    True
    """
    found = re.search(r"sizeInBytes=([^,)]+)", plan)
    size = None if found is None else byte_size(found[1])
    return None if size is None or size >= _UNKNOWN_BYTES else size


def _try_estimate_bytes(df: DataFrame) -> int | None:
    """The estimate, or None where Spark fails: its optimizer evaluates constants and small local
    data."""
    try:
        return _estimate_bytes(df)
    except Exception as problem:
        if not is_spark_error(problem):
            raise
        return None


def is_spark_error(problem: Exception) -> bool:
    """Whether Spark failed on the rows of the query. Such an error is left to the user's action,
    which may never read these rows. Compared by name, as a Connect client need not have py4j."""
    names = {each.__name__ for each in type(problem).__mro__}
    return bool(names & {"PySparkException", "Py4JJavaError"}) and "AnalysisException" not in names


def _estimate_bytes(df: DataFrame) -> int | None:
    if hasattr(df, "_jdf"):
        stats = df._jdf.queryExecution().optimizedPlan().stats()
        size = int(str(stats.sizeInBytes()))  # a Python int if it is small, else Scala's BigInt
        return None if size >= _UNKNOWN_BYTES else size
    return parse_bytes(plan_text(df, "cost"))
