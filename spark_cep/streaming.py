"""The same patterns on streams: `match_pattern` on a streaming DataFrame.

>>> from spark_cep.streaming import metrics
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_cep.spark.metrics import query_metrics as metrics

__all__ = ["metrics"]


def __getattr__(name: str) -> Any:
    # pyspark is imported only when it is needed.
    if name != "metrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spark_cep.spark.metrics import query_metrics  # noqa: PLC0415

    return query_metrics
