"""What a stream needs that a batch does not, checked before the query is started."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spark_cep.errors import CepError, PatternError, PlanError
from spark_cep.spark.report import strip_quotes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

    from spark_cep.events.compiled import CompiledPattern
    from spark_cep.udfs.program import Limits, Window


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_WATERMARK = "spark.watermarkDelayMs"


def check_watermark(time: StructField | None, order_by: str) -> None:
    """`time`: the first order column as it is shipped; `order_by`: what the user calls it."""
    if time is None:
        raise PatternError(
            "a stream is ordered by its event time, and the pattern has no order_by",
            hint="order_by a TIMESTAMP column that has a watermark",
        )
    order_by = strip_quotes(order_by)
    if time.dataType.typeName() != "timestamp":
        raise PatternError(
            f"a stream is ordered by its event time, and {order_by!r} is "
            f"{_type_text(time.dataType)}",
            hint="order_by a TIMESTAMP column that has a watermark",
        )
    if _WATERMARK not in (time.metadata or {}):
        name = order_by if order_by.isidentifier() else "ts"
        raise PatternError(
            f"the stream has no watermark on {order_by!r}, so no match would ever be final",
            hint=f'df.withWatermark("{name}", "10 seconds") says how late rows may arrive; '
            "order_by that column itself, not an expression over it",
        )


def check_bounded(window: Window | None, limits: Limits) -> None:
    if window is None and limits.rows is None:
        raise PatternError(
            "without WITHIN the stream would have to keep every row forever",
            hint='give the pattern a window, .within("10 minutes"), or limit the rows of a '
            "partition key: limits=cep.Limits(rows=100_000) ends the query where one has more",
        )


def check_consumption(compiled: CompiledPattern) -> None:
    """Refuses a pattern of which every match depends on rows that may still arrive."""
    if compiled.window is None and compiled.consumption == "consume" and compiled.strategy != "any":
        raise PatternError(
            "on a stream no match of this pattern would ever be final: it consumes events, takes "
            "the next row that fits, and has no WITHIN after which no row fits any more",
            hint='give it a window, .within("10 minutes"), or let events be reused',
        )


def check_decidable(why_not: str | None, limits: Limits) -> None:
    """`why_not`: why a search of a row pattern may never end."""
    if why_not is None or (limits.rows is not None and not why_not.startswith("$")):
        return
    if why_not.startswith("$"):
        raise PatternError(why_not, hint="leave out the anchor, or match in batches")
    raise PatternError(
        f"on a stream a search could wait forever: {why_not}",
        hint='bound it: .within("10 minutes"), a quantifier with an end such as b{1,100}, or '
        "limits=cep.Limits(rows=100_000), which ends the query where a partition key has more",
    )


def prepare_session(df: DataFrame) -> None:
    """Sets the state store that Spark's stateful Python operator needs."""
    if find_spec("google.protobuf") is None:
        raise PlanError(
            "patterns on streams need the package protobuf, which Spark needs to read their state",
            hint="pip install 'spark-cep[streaming]' on the driver and the workers",
        )
    conf: Any = df.sparkSession.conf
    if conf.get(_PROVIDER, "") == _ROCKS_DB:
        return
    try:
        conf.set(_PROVIDER, _ROCKS_DB)
    except Exception as problem:
        raise CepError(
            "patterns on streams need Spark's RocksDB state store, and this session does not "
            f"allow to set it: {problem}",
            hint=f"start the session with {_PROVIDER}={_ROCKS_DB}",
        ) from None


def _type_text(type_: DataType) -> str:
    return str(type_.simpleString()).upper()
