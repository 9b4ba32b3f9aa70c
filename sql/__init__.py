"""MATCH_RECOGNIZE in Spark SQL, and SASE text in `sql.sase`.

Begin in `session`, the path of a statement. `statement` has its tokens, `location` finds clauses
and their inputs, `reader` makes a `clause` of each, `match_call` the call of `match_pattern`, and
`composer` puts the matches into the rest of the statement. `vendors` and `subqueries` rewrite texts
of a clause, `inputs` has the query of what it matches, `pushdown` finds what may be done in front
of it. `windows` finds windows with row patterns, `selects` the SELECT around them, and
`window_query` makes the queries of which it is then composed. `kinds` knows statements that need
special treatment, `parameters` and `hints` read values, `messages` words errors in SQL;
`misspellings` and `advice` say what was meant.

The package is also the function `cep.sql(spark, text)`: a function of that name in `spark_cep`
would be replaced as soon as this package is imported. `help(spark_cep.sql.session.sql)` documents
the call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from spark_cep.remote import Remote


class _Callable(ModuleType):
    def __call__(
        self,
        spark: SparkSession,
        text: str,
        /,
        args: Any = None,
        *,
        remotes: Mapping[str, Remote] | None = None,
        **kwargs: Any,
    ) -> DataFrame:
        """Runs a statement that may contain MATCH_RECOGNIZE; see `spark_cep.sql.session.sql`."""
        from spark_cep.sql.session import sql  # noqa: PLC0415 - it imports pyspark

        return sql(spark, text, args, remotes=remotes, **kwargs)


sys.modules[__name__].__class__ = _Callable
