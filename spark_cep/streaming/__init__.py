"""The same patterns on streams: `match_pattern` on a streaming DataFrame.

>>> from spark_cep.streaming import metrics
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_cep.streaming.progress import metrics

__all__ = ["metrics"]


def __getattr__(name: str) -> Any:
    # Workers import this package to find the processor and need no more of it.
    if name != "metrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spark_cep.streaming.progress import metrics  # noqa: PLC0415

    return metrics
