"""MATCH_RECOGNIZE in Spark SQL, and SASE text in `sql.sase`.

Begin in `session`, the path of a statement. `statement` has its tokens, `location` finds clauses
and their inputs, `reader` makes a `clause` of each, `match_call` the call of `match_pattern`, and
`composer` puts the matches into the rest of the statement. `kinds` knows statements that need
special treatment, `parameters`, `literals` and `hints` read values, `messages` words errors in SQL.

This package is also the function: `cep.sql(spark, text)`. A function of that name in `spark_cep`
would be hidden as soon as somebody imports this package, so the package can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Callable(ModuleType):
    def __call__(
        self, spark: SparkSession, text: str, /, args: Any = None, **kwargs: Any
    ) -> DataFrame:
        """`spark.sql` that takes MATCH_RECOGNIZE; see `spark_cep.sql.session.sql`."""
        from spark_cep.sql.session import sql  # noqa: PLC0415 - it imports pyspark

        return sql(spark, text, args, **kwargs)


sys.modules[__name__].__class__ = _Callable
