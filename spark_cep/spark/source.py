"""The input DataFrame, read without running it: its columns, the settings of its session, the size
of
its rows, the text of its plan; and the sample of its first rows.

Classic sessions answer through the JVM, Connect sessions through what the client offers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PatternError
from spark_cep.expressions.byte_sizes import byte_size
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.planner.layout import InputSize
from spark_cep.planner.statistics import NoSample, Sample, summarize_sample
from spark_cep.spark.typing import type_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from spark_cep.udfs.program import Program


# ---- the input -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceFrame:
    """A DataFrame whose column names are all different."""

    df: DataFrame
    columns: tuple[ColumnInfo, ...]
    case_sensitive: bool

    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def is_streaming(self) -> bool:
        return bool(self.df.isStreaming)

    def setting(self, name: str, default: str = "") -> str:
        """A setting of the session, also one that Spark itself does not know."""
        return str(self.df.sparkSession.conf.get(name, default) or default)

    def is_on(self, name: str, default: str) -> bool:
        return is_setting_on(self.df, name, default)


def read_source(df: DataFrame) -> SourceFrame:
    """Refuses two columns of one name, which no pattern could tell apart."""
    schema = df.schema
    case_sensitive = is_setting_on(df, "spark.sql.caseSensitive", "false")
    folded = schema.names if case_sensitive else [name.casefold() for name in schema.names]
    twice = [name for name, count in Counter(folded).items() if count > 1]
    if twice:
        raise PatternError(
            f"the input has more than one column called {twice[0]!r}",
            hint="rename or drop all but one before matching, for example after a join",
        )
    columns = tuple(ColumnInfo(field.name, type_of(field.dataType)) for field in schema)
    return SourceFrame(df, columns, case_sensitive)


def is_setting_on(df: DataFrame, name: str, default: str) -> bool:
    """A boolean setting of the session, in any spelling that Spark takes."""
    return str(df.sparkSession.conf.get(name, default)).strip().lower() == "true"


# For a cluster that does not say how many cores it has.
UNKNOWN_CORES = 8

# Spark's estimate where it knows nothing (spark.sql.defaultSizeInBytes) is about this.
_UNKNOWN_BYTES = 1 << 60


def estimate_size(prepared: DataFrame, rows: int | None) -> InputSize:
    """What is known of the rows that will be shipped, without reading any."""
    session = prepared.sparkSession
    partitions = shuffle_partitions(str(session.conf.get("spark.sql.shuffle.partitions", "")))
    is_adaptive = is_setting_on(prepared, "spark.sql.adaptive.enabled", "true") and is_setting_on(
        prepared, "spark.sql.adaptive.coalescePartitions.enabled", "true"
    )
    bytes_ = None if rows is not None else _try_estimate_bytes(prepared)
    row_bytes = sum(_value_bytes(field.dataType) for field in prepared.schema)
    return InputSize(bytes_, rows, count_cores(session), partitions, is_adaptive, max(1, row_bytes))


def shuffle_partitions(setting: str) -> int:
    """
    >>> shuffle_partitions("64"), shuffle_partitions("auto")  # some runtimes choose it
    (64, 200)
    """
    return int(setting) if setting.isdigit() else 200


_FIXED_BYTES = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "float": 4, "date": 4}
_TEXT_BYTES = 20  # as Spark estimates it
_NESTED_BYTES = 100


def _value_bytes(data_type: DataType) -> int:
    """The bytes of a value, roughly."""
    name = data_type.typeName()
    if name in {"string", "binary"}:
        return _TEXT_BYTES
    if name in {"array", "map", "struct", "variant"}:
        return _NESTED_BYTES
    return _FIXED_BYTES.get(name, 8)


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


def parse_leaf_bytes(plan: str) -> int | None:
    """The estimates of all leaves in the text of `explain("cost")`, added up. Those of joins above
    them are products, and no measure of anything.

    >>> join = "Join Inner, Statistics(sizeInBytes=8.0 TiB)"
    >>> left = ":- Filter (x), Statistics(sizeInBytes=7.8 KiB)"
    >>> leaf = ":  +- Relation [x] parquet, Statistics(sizeInBytes=3.0 KiB)"
    >>> right = "+- Relation [y] parquet, Statistics(sizeInBytes=1.0 KiB)"
    >>> parse_leaf_bytes("\\n".join([join, left, leaf, right]))
    4096
    >>> parse_leaf_bytes("LogicalRDD, Statistics(sizeInBytes=8.0 EiB)") is None
    True
    """
    sizes = []
    lines = [line for line in plan.splitlines() if "Statistics(sizeInBytes=" in line]
    depths = [len(re.match(r"[\s:+-]*", line)[0]) for line in lines]  # type: ignore[index]
    for place, line in enumerate(lines):
        is_leaf = place + 1 == len(lines) or depths[place + 1] <= depths[place]
        if is_leaf:
            found = re.search(r"sizeInBytes=([^,)]+)", line)
            size = None if found is None else byte_size(found[1])
            if size is None or size >= _UNKNOWN_BYTES:
                return None
            sizes.append(size)
    return sum(sizes) if sizes else None


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
    if not hasattr(df, "_jdf"):
        return parse_leaf_bytes(plan_text(df, "cost"))
    leaves = df._jdf.queryExecution().optimizedPlan().collectLeaves()
    # A Python int if it is small, else Scala's BigInt.
    sizes = [int(str(leaves.apply(n).stats().sizeInBytes())) for n in range(leaves.size())]
    return None if not sizes or max(sizes) >= _UNKNOWN_BYTES else sum(sizes)


# ---- the sample ----------------------------------------------------------------------------------

# The first rows of the input are taken before any filter, so even a pattern that nothing matches
# reads no more of it. Over files and tables Spark then reads no further; behind a sort or an
# aggregate it may have to read all of the input to get them.


_ATTRIBUTE = "_spark_cep_samples"


def take_sample(
    df: DataFrame, key: Hashable | None, rows: Callable[[], DataFrame], program: Program
) -> Sample | NoSample:
    """A sample, if Spark can compute the rows. Where it fails, the call goes on without one: it is
    lazy, and the action may never read the row that fails.

    `rows` gives the needed columns of the input's first rows. `key` identifies what they are made
    of: the sample is kept with `df` under it, so that the same pattern reads nothing again. None:
    two samples cannot be compared.
    """
    kept: dict[Any, Sample] = df.__dict__.setdefault(_ATTRIBUTE, {})
    if key is not None and key in kept:
        return kept[key]
    try:
        table = rows().toArrow()
    except Exception as problem:
        if not is_spark_error(problem):
            raise
        return NoSample(f"no sample, for Spark failed on it ({type(problem).__name__})")
    sample = summarize_sample(program, table)
    if key is not None:
        kept[key] = sample
    return sample
