"""What differs between the versions of Spark, from 3.5 on: one function for each difference.

Only this module knows versions. It asks whether PySpark has a name where that decides, so that
platforms with a Spark of their own are served by what they have, and loads newer names when a
function is called, so that it can be imported everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import InheritableThread, __version__
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas import types as arrow_types

from spark_cep.errors import CepError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import Observation, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import DataType, StructType
else:
    try:
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    except ImportError:
        # Spark 4.0 brought it. Before, `check_streams` refuses what would use it.
        StatefulProcessor = object

__all__ = [
    "ANALYSIS_ERRORS", "StatefulProcessor", "arrow_schema", "arrow_type", "check_dataframe",
    "check_streams", "collect_arrow", "error_text", "inheriting_thread", "integers_by_partition",
    "is_calendar_interval", "is_dataframe", "is_observed", "parse_version",
    "repartition_by_number", "silence_spark", "split_order",
]  # fmt: skip


def parse_version(text: str) -> tuple[int, int]:
    """The first two numbers of a version.

    >>> parse_version("4.0.1-amzn-0"), parse_version("3.5.9")
    ((4, 0), (3, 5))
    """
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


_FIRST = (3, 5)
_FIRST_WITH_STREAMS = (4, 0)

if parse_version(__version__) < _FIRST:
    raise CepError(
        f"spark-cep needs Spark 3.5 or newer; this is {__version__}",
        hint="pip install 'pyspark>=3.5', or use a newer release of the platform",
    )


# ---- streams -------------------------------------------------------------------------------------


def check_streams(df: DataFrame) -> None:
    """Refuses streams where Spark has no `transformWithStateInPandas`: it came in 4.0, for Connect
    in 4.1."""
    version = str(df.sparkSession.version)
    if parse_version(version) < _FIRST_WITH_STREAMS:
        raise PlanError(
            f"patterns on streams need Spark 4.0 or newer; this is {version}",
            hint="match in batches, for example with foreachBatch over rows that are complete, or "
            "use a newer Spark",
        )
    if not hasattr(df.groupBy(), "transformWithStateInPandas"):
        raise PlanError(
            "patterns on streams through Spark Connect need Spark 4.1 or newer; this is "
            f"{__version__}",
            hint="use a classic session, SparkSession.builder.master(...), or a newer Spark",
        )


# ---- Arrow ---------------------------------------------------------------------------------------


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Python workers give rows back. Timestamps are in UTC: since 4.2 by
    the argument `timezone`, before without being told."""
    return _in_utc(arrow_types.to_arrow_schema, schema)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The type of a column of `arrow_schema`."""
    return _in_utc(arrow_types.to_arrow_type, data_type)


def _in_utc(convert: Any, given: Any) -> Any:
    if "timezone" in convert.__code__.co_varnames:
        return convert(given, timezone="UTC")
    return convert(given)


def collect_arrow(df: DataFrame) -> pa.Table:
    """`DataFrame.toArrow`, which came in 4.0. Before, the JVM already gave Arrow batches to
    `toPandas`, none where there is no row."""
    if hasattr(df, "toArrow"):
        return df.toArrow()
    untyped: Any = df
    batches = untyped._collect_as_arrow()
    if batches:
        return pa.Table.from_batches(batches)
    return arrow_schema(df.schema).empty_table()


# ---- threads -------------------------------------------------------------------------------------


def inheriting_thread(session: SparkSession, run: Callable[[], None], name: str) -> Thread:
    """A thread whose jobs have the local properties of this one. 4.0 brought the argument
    `session`, which Connect needs."""
    untyped: Any = InheritableThread
    if "session" in inspect.signature(untyped.__init__).parameters:
        thread: Thread = untyped(target=run, session=session, name=name, daemon=True)
    else:
        thread = untyped(target=run, name=name, daemon=True)
    return thread


# ---- partitions by number ------------------------------------------------------------------------


def repartition_by_number(df: DataFrame, count: int, number: Column) -> DataFrame:
    """The row with `number` n, from 0 to `count` - 1, in partition n.

    `repartitionById` came in 4.1. Before, Spark can only hash, and a hash of the numbers leaves a
    third of the partitions empty. So each number is replaced by an integer that Spark hashes to
    it, from a table in the plan.
    """
    if hasattr(df, "repartitionById"):
        return df.repartitionById(count, number.cast("int"))
    table = ",".join(map(str, integers_by_partition(count)))
    hashed = F.element_at(F.expr(f"array({table})"), number.cast("int") + F.lit(1))
    return df.repartition(count, hashed)


def integers_by_partition(count: int) -> list[int]:
    """For each of `count` partitions an integer that `repartition` puts there, mostly the smallest.

    >>> integers_by_partition(4)
    [12, 6, 2, 0]
    """
    found = np.full(count, -1, dtype=np.int64)
    start = 0
    while (found < 0).any():
        # Twice the number that is expected to reach every partition, so that one round is enough.
        tried = np.arange(start, start + 2 * count * (count.bit_length() + 4), dtype=np.int64)
        places = _hash_integers(tried) % count
        # Backwards, so that of several integers for a partition the first stays.
        fresh = found[places] < 0
        found[places[fresh][::-1]] = tried[fresh][::-1]
        start = int(tried[-1]) + 1
    return [int(each) for each in found]


def _hash_integers(values: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    """Spark's hash of INTs, by which it partitions: Murmur3 with the seed 42, as signed numbers."""
    low = np.uint64(0xFFFFFFFF)

    def times(x: Any, factor: int) -> Any:
        return (x * np.uint64(factor)) & low

    def rotated(x: Any, bits: int) -> Any:
        return ((x << np.uint64(bits)) | (x >> np.uint64(32 - bits))) & low

    k = times(rotated(times(values.astype(np.uint64) & low, 0xCC9E2D51), 15), 0x1B873593)
    h = (times(rotated(np.uint64(42) ^ k, 13), 5) + np.uint64(0xE6546B64)) & low
    h = h ^ np.uint64(4)
    h = times(h ^ (h >> np.uint64(16)), 0x85EBCA6B)
    h = times(h ^ (h >> np.uint64(13)), 0xC2B2AE35)
    return (h ^ (h >> np.uint64(16))).astype(np.uint32).astype(np.int32).astype(np.int64)


# ---- errors and logs -----------------------------------------------------------------------------


def _analysis_errors() -> tuple[type[Exception], ...]:
    """What Spark's analyzer raises. Some exceptions of the JVM, such as that for the name of an
    unknown collation, are not converted; a Connect client may have no py4j."""
    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JJavaError


ANALYSIS_ERRORS = _analysis_errors()


def error_text(problem: Exception) -> str:
    """The message of an error. `getMessage` came in 4.0; before, the text of a JVM error may have
    the stack trace of the JVM behind it, and its `desc` has not."""
    if hasattr(problem, "getMessage"):
        return str(problem.getMessage() or problem)
    return str(getattr(problem, "desc", None) or problem)


@contextmanager
def silence_spark() -> Iterator[None]:
    """Since 4.0 PySpark logs every failed analysis to the console."""
    try:
        from pyspark.logger import PySparkLogger  # noqa: PLC0415
    except ImportError:
        yield
        return
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    # Not logging.getLogger: it would put plain loggers in their place, which PySpark cannot use.
    loggers = [PySparkLogger.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


# ---- observations --------------------------------------------------------------------------------


def is_observed(observation: Observation) -> bool:
    """Whether an action has filled the observation: `get` of a classic session waits for one. The
    first releases of 3.5 have no future to ask, only a private field."""
    java = getattr(observation, "_jo", None)
    if java is None:
        return True
    if "future" in dir(java):
        return bool(java.future().isCompleted())
    field = java.getClass().getDeclaredField("metrics")
    field.setAccessible(True)
    return bool(field.get(java).isDefined())


# ---- DataFrames and columns ----------------------------------------------------------------------


def is_dataframe(value: object) -> bool:
    """Since 4.0 the DataFrames of classic and Connect sessions have one class above them."""
    return isinstance(value, DataFrame)


def check_dataframe(df: object) -> None:
    """Refuses Spark Connect before 4.0, whose DataFrames and Columns are not those of PySpark."""
    if not is_dataframe(df) and type(df).__module__.startswith("pyspark.sql.connect"):
        raise PlanError(
            f"patterns through Spark Connect need Spark 4.0 or newer; this is {__version__}",
            hint="use a classic session, SparkSession.builder.master(...), or a newer Spark",
        )


def split_order(session: SparkSession, column: Column) -> tuple[Column, bool, bool] | None:
    """The parts of a sort order, `F.col("x").desc()`: what is sorted, whether it descends, whether
    NULLs come first; None for a plain column.

    They are private in Spark. Connect keeps them in Python; a classic column of 4.0 and newer has
    a node, an older one the expression of the optimizer.
    """
    untyped: Any = column
    if "_jc" in vars(column):
        jvm: Any = getattr(session, "_jvm")  # noqa: B009 - classic only
        is_node = parse_version(session.version) >= (4, 0)
        node = untyped._jc.node() if is_node else untyped._jc.expr()
        if node.getClass().getSimpleName() != "SortOrder":
            return None
        direction = node.sortDirection() if is_node else node.direction()
        child = type(untyped)(jvm.org.apache.spark.sql.Column(node.child()))
        return child, "Descending" in str(direction), "NullsFirst" in str(node.nullOrdering())
    order = untyped._expr
    if type(order).__name__ != "SortOrder":
        return None
    return type(untyped)(order._child), not order._ascending, bool(order._nullsFirst)


# ---- types ---------------------------------------------------------------------------------------


def is_calendar_interval(data_type: DataType) -> bool:
    """`CalendarIntervalType` came in 4.0; before, PySpark cannot read the schema of such rows."""
    return data_type.typeName() == "interval"
