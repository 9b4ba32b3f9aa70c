"""Event patterns and MATCH_RECOGNIZE for Spark DataFrames.

Names are loaded on first use: Spark's Python workers import this package to find the engine, and
the driver's modules would slow their start. No module here has the name of a public function
(`explain` is in api.py): importing the module would replace the function.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from spark_cep import alias as _alias
from spark_cep import checkout as _checkout

if TYPE_CHECKING:
    from spark_cep import adapt, cache, plans, streaming
    from spark_cep.api import explain, match_pattern, plan_of
    from spark_cep.errors import (
        CepError,
        LimitError,
        PatternError,
        PatternWarning,
        PlanError,
        RemoteError,
        error_of,
    )
    from spark_cep.expressions.user_functions import udf
    from spark_cep.pattern import Pattern, all_of, any_of, event, no, seq
    from spark_cep.remote import Remote
    from spark_cep.row_patterns import RowPattern, row_pattern
    from spark_cep.shed import Shed
    from spark_cep.spark.metrics import metrics
    from spark_cep.sql.sase.query import sase
    from spark_cep.sql.session import install, sql
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Limits

__version__ = "0.1.0"

# The module that defines each public name; None: the name is a module itself.
_HOMES = {
    "CepError": "errors",
    "LimitError": "errors",
    "Limits": "udfs.program",
    "Pattern": "pattern",
    "PatternError": "errors",
    "PatternWarning": "errors",
    "PlanError": "errors",
    "Remote": "remote",
    "RemoteError": "errors",
    "RowPattern": "row_patterns",
    "Shed": "shed",
    "Statistics": "statistics",
    "adapt": None,
    "all_of": "pattern",
    "any_of": "pattern",
    "cache": None,
    "error_of": "errors",
    "event": "pattern",
    "explain": "api",
    "install": "sql.session",
    "match_pattern": "api",
    "metrics": "spark.metrics",
    "no": "pattern",
    "plan_of": "api",
    "plans": None,
    "row_pattern": "row_patterns",
    "sase": "sql.sase.query",
    "seq": "pattern",
    "sql": None,
    "streaming": None,
    "udf": "expressions.user_functions",
}

__all__ = [
    "CepError",
    "LimitError",
    "Limits",
    "Pattern",
    "PatternError",
    "PatternWarning",
    "PlanError",
    "Remote",
    "RemoteError",
    "RowPattern",
    "Shed",
    "Statistics",
    "adapt",
    "all_of",
    "any_of",
    "cache",
    "error_of",
    "event",
    "explain",
    "install",
    "match_pattern",
    "metrics",
    "no",
    "plan_of",
    "plans",
    "row_pattern",
    "sase",
    "seq",
    "sql",
    "streaming",
    "udf",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home is None:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_checkout.install()
_alias.install_alias()
