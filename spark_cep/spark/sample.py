"""The sample: the first rows of a batch input, read in a few tasks and a bounded time.

    plan of the input -> first partitions -> a local relation -> the columns of a pattern

Reading never computes more than the partitions that it reads: where the plan shuffles, sorts or
aggregates, nothing is sampled. What was read is kept as a local relation, from which Spark's
optimizer computes the columns of each pattern without a job. Statistics affect the speed of a
query, never its answer, so a sample may be shared by all DataFrames with the same plan, and may be
as old as `MAX_AGE_SECONDS`.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from spark_cep.planner.statistics import (
    SAMPLE_ROWS,
    SECONDS_CONF,
    NoSample,
    Sample,
    summarize_sample,
)
from spark_cep.spark.selection import quote_column
from spark_cep.spark.source import input_bytes, is_spark_error, plan_text
from spark_cep.spark.versions import arrow_schema, collect_arrow, inheriting_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_cep.udfs.program import Program

_Result = TypeVar("_Result")

# Partitions that are read, first one, then more if these have few rows. Each is a task; the first
# partitions of a filtered table may be empty.
FIRST_PARTITIONS = 1
MORE_PARTITIONS = 5
MOST_PARTITIONS = 10
FEW_ROWS = 1_000

# Samples that a session keeps, and for how long.
MOST_TABLES = 32
MAX_AGE_SECONDS = 600.0


@dataclass(frozen=True)
class SampleRequest:
    """What a pattern wants to know of the first rows.

    `select` makes the columns for the statistics of `program` from rows of the input; `reads` are
    the expressions in it. `by_itself`: `select` leaves out rows or adds looked-up values, so its
    rows are read for this pattern alone. `key` identifies the pattern; None: it cannot be compared.
    """

    program: Program
    select: Callable[[DataFrame], DataFrame]
    reads: Sequence[str | Column]
    by_itself: bool = False
    key: Hashable | None = None


def take_sample(df: DataFrame, request: SampleRequest, seconds: float) -> Sample | NoSample:
    """A sample of the first rows of `df`, or the reason why there is none. Where Spark fails on it
    the call goes on without: it is lazy, and the action may never read the row that fails."""
    table = _table_of(df)
    known = table.samples.get(request.key)
    if known is not None:
        return known
    sample = _take(df, table, request, seconds)
    if request.key is not None:
        table.samples[request.key] = sample
    return sample


def _take(
    df: DataFrame, table: SampledTable, request: SampleRequest, seconds: float
) -> Sample | NoSample:
    try:
        found = run_bounded(df.sparkSession, seconds, lambda: _collect(df, table, request))
    except TimeoutError:
        refusal = NoSample(
            f"no sample: reading it takes longer than {seconds:g} s ({SECONDS_CONF})"
        )
    except Exception as problem:
        if not is_spark_error(problem):
            raise
        refusal = NoSample(f"no sample, for Spark failed on it ({type(problem).__name__})")
    else:
        if isinstance(found, NoSample):
            return found
        rows, complete = found
        return summarize_sample(request.program, rows, complete=complete)
    if table.rows is None and not request.by_itself:
        # Reading failed: the next pattern need not try again.
        table.rows = refusal
    return refusal


# ---- shared samples ------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstRows:
    """The first rows of the columns of a DataFrame, as a local relation. `complete`: it has no
    other rows."""

    df: DataFrame
    columns: frozenset[str]
    complete: bool


@dataclass
class SampledTable:
    """What is kept of a plan. `rows` None: nothing was read yet. `reads`: how often it was read,
    for patterns that need different columns."""

    taken: float = field(default_factory=time.monotonic)
    rows: FirstRows | NoSample | None = None
    reads: int = 0
    samples: dict[Hashable | None, Sample | NoSample] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_old(self) -> bool:
        return time.monotonic() - self.taken > MAX_AGE_SECONDS


_ATTRIBUTE = "_spark_cep_sampled"
_lock = threading.Lock()


def _table_of(df: DataFrame) -> SampledTable:
    """The table kept with this DataFrame, or else that of another DataFrame with the same plan over
    data of the same size."""
    kept: SampledTable | None = df.__dict__.get(_ATTRIBUTE)
    if kept is None or kept.is_old():
        kept = _table_of_plan(df)
        df.__dict__[_ATTRIBUTE] = kept
    return kept


def _table_of_plan(df: DataFrame) -> SampledTable:
    size = input_bytes(df)
    if size is None:
        # Whether the data is still the same cannot be seen.
        return SampledTable()
    key = df.semanticHash(), size, tuple(df.columns)
    with _lock:
        tables: OrderedDict[Any, SampledTable]
        tables = df.sparkSession.__dict__.setdefault(_ATTRIBUTE, OrderedDict())
        table = tables.get(key)
        if table is None or table.is_old():
            table = tables[key] = SampledTable()
        tables.move_to_end(key)
        while len(tables) > MOST_TABLES:
            tables.popitem(last=False)
        return table


def _collect(
    df: DataFrame, table: SampledTable, request: SampleRequest
) -> tuple[pa.Table, bool] | NoSample:
    """The columns of the request, and whether the input has no other rows."""
    if not request.by_itself:
        with table.lock:
            rows = _rows_with(df, table, _columns_read(df, request.reads))
        if isinstance(rows, NoSample):
            return rows
        try:
            columns = request.select(rows.df)
        except AnalysisException:
            # A Column may belong to `df` itself; it means nothing over other rows.
            pass
        else:
            return _collect_local(columns, rows.complete)
    own = _read_first_rows(request.select(df))
    return own if isinstance(own, NoSample) else _collect_local(own.df, own.complete)


def _rows_with(df: DataFrame, table: SampledTable, needed: Sequence[str]) -> FirstRows | NoSample:
    known = table.rows
    if isinstance(known, NoSample):
        return known
    if known is not None and known.columns.issuperset(needed):
        return known
    # Patterns over one table often need other columns each; the second one gets all small ones.
    small = [] if table.reads == 0 else [f.name for f in df.schema if _is_small(f.dataType)]
    wanted = {*needed, *small, *(known.columns if known is not None else ())}
    chosen = [quote_column(name) for name in df.columns if name in wanted]
    rows = _read_first_rows(df.select(*chosen))
    table.rows, table.reads = rows, table.reads + 1
    return rows


def _is_small(data_type: T.DataType) -> bool:
    return isinstance(
        data_type,
        T.NumericType | T.BooleanType | T.DateType | T.TimestampType | T.TimestampNTZType,
    )


_NAME = re.compile(r"`((?:[^`]|``)+)`|([^\W\d]\w*)")
_STAR = re.compile(r"[(,.]\s*\*")


def _columns_read(df: DataFrame, reads: Sequence[str | Column]) -> list[str]:
    """Columns of `df` that expressions may read: all whose names occur in their texts."""
    text = "\n".join(map(str, reads))
    if _STAR.search(text):
        return list(df.columns)
    names = {(word or quoted.replace("``", "`")).casefold() for quoted, word in _NAME.findall(text)}
    found = [name for name in df.columns if name.casefold() in names]
    return found or list(df.columns[:1])


# ---- plans that are not sampled ------------------------------------------------------------------

# Operators, in Spark's logical and physical plans, that compute everything below them before they
# give a row, or that run a job for one of their sides.
_BLOCKING = (
    (re.compile("CollectMetrics"), "an observation, which would observe the sample"),
    (re.compile("Aggregate|Pivot"), "an aggregate"),
    (re.compile("Join|CartesianProduct"), "a join"),
    (re.compile("Window"), "a window function"),
    (re.compile("Sort|TakeOrdered"), "a sort"),
    (re.compile("Distinct|Deduplicate"), "DISTINCT"),
    (re.compile("Intersect|Except"), "INTERSECT or EXCEPT"),
    (re.compile("Groups|TransformWithState"), "a function over groups"),
    (re.compile("Repartition|Rebalance|Exchange|Shuffle"), "a shuffle"),
    (re.compile("GlobalLimit|CollectLimit|Offset|Tail"), "a limit"),
    (re.compile("Subquery$|UnionLoop|RecursiveRelation|^CTERelation"), "a subquery"),
)
_OPERATOR = re.compile(
    r"^(?P<tree>[\s:|+\-]*)(?:\*\(\d+\) )?[*'!~]?(?P<name>[A-Za-z]\w*)(?P<rest>.*)"
)
_SUBQUERY = re.compile(r"(?:scalar-subquery|exists|list|lateral-subquery)#\d+ \[")
_CACHED = "InMemoryRelation"
_LITERAL = {"LocalRelation", "OneRowRelation"}


def find_blocking(plan: str, *, skip_cached: bool = False) -> str | None:
    """What in the text of a plan makes its first rows as costly as all of them.

    `skip_cached`: whether cached relations are in memory already, so that what they were computed
    by does not matter.

    >>> find_blocking("Project [k#1]" + chr(10) + "+- Aggregate [k#1], [k#1]")
    'an aggregate'
    >>> find_blocking("Filter (k#1 > 2)" + chr(10) + "+- Relation [k#1] parquet") is None
    True
    """
    cached_depth = None
    for line in plan.splitlines():
        found = _OPERATOR.match(line)
        if found is None:
            continue
        depth, name = len(found["tree"]), found["name"]
        if cached_depth is not None and depth > cached_depth:
            continue
        cached_depth = depth if skip_cached and name == _CACHED else None
        if name == "Repartition" and found["rest"].rstrip().endswith("false"):
            continue  # coalesce
        if _SUBQUERY.search(found["rest"]):
            return "a subquery"
        for operator, phrase in _BLOCKING:
            if operator.search(name):
                return phrase
    return None


def _behind(phrase: str) -> NoSample:
    return NoSample(f"no sample: the input is behind {phrase}")


# ---- reading -------------------------------------------------------------------------------------


def _read_first_rows(df: DataFrame) -> FirstRows | NoSample:
    columns = frozenset(df.columns)
    return _read_classic(df, columns) if hasattr(df, "_jdf") else _read_connect(df, columns)


def _read_connect(df: DataFrame, columns: frozenset[str]) -> FirstRows | NoSample:
    """The server runs a limit at the root on demand: one partition, then up to four times as many,
    until it has enough rows."""
    limited = df.limit(SAMPLE_ROWS)
    _, _, plan = plan_text(limited).partition("CollectLimit")
    blocking = find_blocking("\n".join(plan.splitlines()[1:]))
    if blocking is not None:
        return _behind(blocking)
    table = collect_arrow(limited)
    local = df.sparkSession.createDataFrame(table, schema=df.schema)
    return FirstRows(local, columns, table.num_rows < SAMPLE_ROWS)


def _read_classic(df: DataFrame, columns: frozenset[str]) -> FirstRows | NoSample:
    untyped: Any = df
    jvm, frame = untyped._sc._jvm, untyped._jdf
    # The analyzed plan is there already; only what is cached is looked up in it.
    plan = frame.queryExecution().withCachedData()
    text = str(plan)
    if _CACHED not in text and (phrase := find_blocking(text)) is not None:
        return _behind(phrase)
    leaves = _leaves(plan)
    cached = [leaf for name, leaf in leaves if name == _CACHED]
    is_loaded = all(leaf.cacheBuilder().isCachedColumnBuffersLoaded() for leaf in cached)
    phrase = find_blocking(text, skip_cached=is_loaded) or _find_shuffle(leaves)
    if phrase is not None:
        return _behind(phrase)
    limited = frame.limit(SAMPLE_ROWS)
    rows = jvm.java.util.ArrayList()
    if all(name in _LITERAL for name, _ in leaves) and _is_local(limited):
        rows.addAll(limited.collectAsList())
        partitions = read = 1
    else:
        # A root limit would go on until it has enough rows, over any number of empty partitions.
        per_partition = limited.queryExecution().analyzed().child()
        dataset = reduce(getattr, frame.getClass().getName().split("."), jvm)
        rdd = dataset.ofRows(frame.sparkSession(), per_partition).javaRDD()
        partitions, read = rdd.getNumPartitions(), 0
        for most in (FIRST_PARTITIONS, MORE_PARTITIONS, MOST_PARTITIONS):
            if read and rows.size() >= (SAMPLE_ROWS if most == MORE_PARTITIONS else FEW_ROWS):
                break
            _read_partitions(untyped._sc, rdd, range(read, min(most, partitions)), rows)
            read = min(most, partitions)
    complete = read == partitions and rows.size() < SAMPLE_ROWS
    if rows.isEmpty() and not complete:
        return NoSample(f"no sample: the first {read} of {partitions:,} partitions have no rows")
    first = rows.subList(0, min(rows.size(), SAMPLE_ROWS))
    local = frame.sparkSession().createDataFrame(first, frame.schema())
    make: Any = type(df)
    return FirstRows(make(local, df.sparkSession), columns, complete)


def _read_partitions(context: Any, rdd: Any, places: Sequence[int], rows: Any) -> None:
    if not places:
        return
    numbers = context._gateway.new_array(context._jvm.int, len(places))
    for place, number in enumerate(places):
        numbers[place] = number
    for part in rdd.collectPartitions(numbers):
        rows.addAll(part)


def _is_local(frame: Any) -> bool:
    """Whether Spark's optimizer computes the rows, so that no job is needed."""
    return str(frame.queryExecution().executedPlan().nodeName()).startswith("LocalTableScan")


def _leaves(plan: Any) -> list[tuple[str, Any]]:
    found = plan.collectLeaves()
    leaves = [found.apply(place) for place in range(found.size())]
    return [(str(leaf.nodeName()), leaf) for leaf in leaves]


def _find_shuffle(leaves: Sequence[tuple[str, Any]]) -> str | None:
    """Rows of an RDD may come out of a shuffle, which no plan shows."""
    rdds = [leaf.rdd() for name, leaf in leaves if name == "LogicalRDD"]
    return "a shuffle" if any("+-(" in str(rdd.toDebugString()) for rdd in rdds) else None


# ---- the columns of a pattern --------------------------------------------------------------------


# Exact integers, for types whose values Python could round or not represent.
_AS_INTEGER = {
    T.DateType: ("unix_date({})", pa.int32()),
    T.TimestampType: ("unix_micros({})", pa.int64()),
    T.TimestampNTZType: (
        "({} - TIMESTAMP_NTZ '1970-01-01 00:00:00') div INTERVAL '0.000001' SECOND",
        pa.int64(),
    ),
    T.DayTimeIntervalType: ("{} div INTERVAL '0.000001' SECOND", pa.int64()),
}
_PLAIN = (T.NumericType, T.StringType, T.BooleanType, T.BinaryType)


def _collect_local(columns: DataFrame, complete: bool) -> tuple[pa.Table, bool] | NoSample:
    """Rows of a local relation. An expression that the optimizer leaves alone, as a function in
    Python, runs in one task."""
    untyped: Any = columns
    if not hasattr(untyped, "_jdf"):
        return collect_arrow(columns), complete
    schema = columns.schema
    is_plain = all(
        type(f.dataType) in _AS_INTEGER or isinstance(f.dataType, _PLAIN) for f in schema
    )
    ways = [_AS_INTEGER.get(type(field.dataType), ("{}", None)) for field in schema]
    if is_plain:
        named = zip(ways, schema.names, strict=True)
        untyped = columns.selectExpr(
            *[text.format(quote_column(name)) for (text, _), name in named]
        )
    is_local = _is_local(untyped._jdf)
    if not is_local:
        blocking = find_blocking(plan_text(untyped))
        if blocking is not None:
            return NoSample(f"no sample: the conditions have {blocking}")
        untyped = untyped.coalesce(1)
    if not is_plain:
        # Spark's own conversion runs a job.
        return collect_arrow(untyped.coalesce(1)), complete
    rows = untyped.collect()
    types = arrow_schema(schema).types
    values = zip(*rows, strict=True) if rows else [()] * len(types)
    arrays = [
        pa.array(column, type_) if integer is None else pa.array(column, integer).view(type_)
        for column, type_, (_, integer) in zip(values, types, ways, strict=True)
    ]
    return pa.table(dict(zip(schema.names, arrays, strict=True))), complete


# ---- bounded in time -----------------------------------------------------------------------------


def run_bounded(session: SparkSession, seconds: float, work: Callable[[], _Result]) -> _Result:
    """The result of `work`, or TimeoutError after some seconds; the jobs of `work` are cancelled
    then. It runs in a thread of its own, so the caller's job group and tags stay as they are and
    the work has them too."""
    tag = f"spark-cep-sample-{uuid.uuid4().hex}"
    results: list[_Result] = []
    problems: list[BaseException] = []
    cancel = _canceller(session, tag)

    def run() -> None:
        try:
            _tag_jobs(session, tag)
            results.append(work())
        except BaseException as problem:  # raised again in the caller's thread
            problems.append(problem)

    thread = inheriting_thread(session, run, tag)
    thread.start()
    try:
        thread.join(seconds)
    except BaseException:
        cancel()
        raise
    if problems:
        raise problems[0]
    if not results:
        cancel()
        raise TimeoutError
    return results[0]


def _tag_jobs(session: SparkSession, tag: str) -> None:
    context: Any = getattr(session, "_sc", None)
    if context is None:
        session.addTag(tag)
    else:
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)


def _canceller(session: SparkSession, tag: str) -> Callable[[], object]:
    context: Any = getattr(session, "_sc", None)
    return lambda: session.interruptTag(tag) if context is None else context.cancelJobsWithTag(tag)
