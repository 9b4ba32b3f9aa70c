"""The input DataFrame, read without running it: its columns, the settings of its session, the size
of its rows and the text of its plan.

Classic sessions answer through the JVM, Connect sessions through what the client offers.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from spark_cep.errors import PatternError
from spark_cep.expressions.byte_sizes import byte_size
from spark_cep.expressions.schema import HIDDEN_PREFIX, ColumnInfo
from spark_cep.planner.layout import InputSize
from spark_cep.spark.typing import type_of
from spark_cep.spark.versions import check_dataframe
from spark_cep.udfs.canonical import sql_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from spark_cep.udfs.canonical import Data


# ---- the input -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceFrame:
    """A DataFrame whose column names are all different. `computed`: what the columns are that were
    added to the user's input, for the state of a stream."""

    df: DataFrame
    columns: tuple[ColumnInfo, ...]
    case_sensitive: bool
    computed: Mapping[str, Data] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """The columns that an answer may show."""
        names = (column.name for column in self.columns)
        return tuple(name for name in names if not name.startswith(HIDDEN_PREFIX))

    @property
    def is_streaming(self) -> bool:
        return bool(self.df.isStreaming)

    def setting(self, name: str, default: str = "") -> str:
        """A setting of the session, also one that Spark itself does not know."""
        return str(self.df.sparkSession.conf.get(name, default) or default)

    def is_on(self, name: str) -> bool:
        return is_setting_on(self.df, name)


def read_source(df: DataFrame) -> SourceFrame:
    """Refuses two columns of one name, which no pattern could tell apart."""
    check_dataframe(df)
    schema = df.schema
    case_sensitive = is_setting_on(df, "spark.sql.caseSensitive")
    folded = schema.names if case_sensitive else [name.casefold() for name in schema.names]
    twice = [name for name, count in Counter(folded).items() if count > 1]
    if twice:
        raise PatternError(
            f"the input has more than one column called {twice[0]!r}",
            hint="rename or drop all but one before matching, for example after a join",
        )
    columns = tuple(ColumnInfo(field.name, type_of(field.dataType)) for field in schema)
    return SourceFrame(df, columns, case_sensitive, df.__dict__.get(_COMPUTED, {}))


_COMPUTED = "_spark_cep_computed"


def note_computed(df: DataFrame, texts: Mapping[str, str]) -> None:
    """Notes the SQL texts of columns that a statement added to its input."""
    df.__dict__[_COMPUTED] = {name: sql_text(text) for name, text in texts.items()}


def is_setting_on(df: DataFrame, name: str) -> bool:
    """A boolean setting of Spark, in any spelling that it takes; its default is Spark's, which
    changes between versions."""
    return str(df.sparkSession.conf.get(name)).strip().lower() == "true"


_ADAPTIVE = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")

# For a cluster that does not say how many cores it has.
UNKNOWN_CORES = 8

# Spark's estimate where it knows nothing (spark.sql.defaultSizeInBytes) is about this.
_UNKNOWN_BYTES = 1 << 60


def estimate_size(prepared: DataFrame, rows: int | None, source: DataFrame) -> InputSize:
    """What is known of the rows of `prepared`, which are made from those of `source`, without
    reading any."""
    session = prepared.sparkSession
    partitions = shuffle_partitions(session)
    is_adaptive = all(is_setting_on(prepared, name) for name in _ADAPTIVE)
    bytes_ = None if rows is not None else input_bytes(source)
    bytes_of_row = _ROW_OVERHEAD + row_bytes(prepared.schema)
    return InputSize(bytes_, rows, _expected_cores(session), partitions, is_adaptive, bytes_of_row)


def shuffle_partitions(session: SparkSession) -> int:
    """Some runtimes set it to `auto`, and choose it while a query runs."""
    setting = str(session.conf.get("spark.sql.shuffle.partitions"))
    return int(setting) if setting.isdigit() else 200


def _expected_cores(session: SparkSession) -> int:
    """Cores that a query will have. With dynamic allocation there may be none at first."""
    is_elastic = session.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    return max(count_cores(session), UNKNOWN_CORES if is_elastic else 1)


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


def estimate_bytes(df: DataFrame) -> int | None:
    """Spark's estimate of the rows of `df`, by which it broadcasts tables."""
    return _unless_spark_fails(_estimate_bytes, df)


_BYTES = "_spark_cep_bytes"


def input_bytes(df: DataFrame) -> int | None:
    """What the tables and files that `df` reads are together; None if that is unknown. Kept with
    `df`."""
    if _BYTES not in df.__dict__:
        df.__dict__[_BYTES] = _unless_spark_fails(_leaf_bytes, df)
    found: int | None = df.__dict__[_BYTES]
    return found


def _unless_spark_fails(read: Callable[[DataFrame], int | None], df: DataFrame) -> int | None:
    """None where Spark fails: its optimizer evaluates constants and small local data."""
    try:
        return read(df)
    except Exception as problem:
        if not is_spark_error(problem):
            raise
        return None


# Spark's `defaultSize` of types, by which it estimates rows; 8 where nothing is here.
_TYPE_BYTES: dict[type[T.DataType], int] = {
    T.BooleanType: 1, T.ByteType: 1, T.ShortType: 2, T.IntegerType: 4, T.FloatType: 4,
    T.DateType: 4, T.StringType: 20, T.BinaryType: 100,
}  # fmt: skip
_ROW_OVERHEAD = 8


def row_bytes(fields: Iterable[T.StructField]) -> int:
    """What a row of these fields has, as Spark estimates it by their types."""
    return sum(_type_bytes(field.dataType) for field in fields)


def _type_bytes(data_type: T.DataType) -> int:
    if isinstance(data_type, T.ArrayType):
        return _type_bytes(data_type.elementType)
    if isinstance(data_type, T.MapType):
        return _type_bytes(data_type.keyType) + _type_bytes(data_type.valueType)
    if isinstance(data_type, T.StructType):
        return sum(_type_bytes(field.dataType) for field in data_type)
    if isinstance(data_type, T.DecimalType):
        return 8 if data_type.precision <= _LONG_DIGITS else 16
    return _TYPE_BYTES.get(type(data_type), 8)


# A decimal of up to so many digits is stored as a long.
_LONG_DIGITS = 18


def is_spark_error(problem: Exception) -> bool:
    """Whether Spark failed on the rows of the query. Such an error is left to the user's action,
    which may never read these rows. Compared by name, as a Connect client need not have py4j."""
    names = {each.__name__ for each in type(problem).__mro__}
    return bool(names & {"PySparkException", "Py4JJavaError"}) and "AnalysisException" not in names


def _leaf_bytes(df: DataFrame) -> int | None:
    if not hasattr(df, "_jdf"):
        return parse_leaf_bytes(plan_text(df, "cost"))
    leaves = df._jdf.queryExecution().optimizedPlan().collectLeaves()
    sizes = [_statistics_bytes(leaves.apply(place)) for place in range(leaves.size())]
    return None if not sizes or max(sizes) >= _UNKNOWN_BYTES else sum(sizes)


def _estimate_bytes(df: DataFrame) -> int | None:
    if not hasattr(df, "_jdf"):
        return parse_bytes(plan_text(df, "cost"))
    size = _statistics_bytes(df._jdf.queryExecution().optimizedPlan())
    return None if size >= _UNKNOWN_BYTES else size


def _statistics_bytes(plan: Any) -> int:
    return int(str(plan.stats().sizeInBytes()))  # a Python int if it is small, else Scala's BigInt
