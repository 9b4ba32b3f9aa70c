"""`cep.streaming`: what belongs to streams only. `match_pattern` itself takes both kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_cep.spark.metrics import query_metrics as metrics

__all__ = ["metrics"]


def __getattr__(name: str) -> Any:
    # The function imports pyspark.sql, which workers do not need.
    if name != "metrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spark_cep.spark.metrics import query_metrics  # noqa: PLC0415

    return query_metrics
