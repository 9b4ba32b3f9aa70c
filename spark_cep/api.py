"""`match_pattern`, and what explains its answer: `explain` and `plan_of`.

    check options -> compile -> Query -> run_batch or run_stream

A call is lazy: besides what a plan needs to know of the data (a sample of a bounded number of
rows, the looks of `shed=`), no Spark job runs. All user mistakes are reported before any job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from spark_cep.errors import PlanError
from spark_cep.explanation import page
from spark_cep.explanation.comparison import comparison_lines
from spark_cep.options import MatchRequest, check_options, check_pattern, check_row_options
from spark_cep.row_patterns import RowPattern
from spark_cep.spark.batch import run_batch
from spark_cep.spark.event_query import prepare_event_query
from spark_cep.spark.keys import with_partition_columns
from spark_cep.spark.metrics import analyze_answers, records_of
from spark_cep.spark.row_query import prepare_row_query
from spark_cep.spark.source import read_source
from spark_cep.spark.stream import run_stream
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from spark_cep.explanation.plan import MatchPlan
    from spark_cep.pattern import Pattern
    from spark_cep.spark.query import Query
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Limits


@public
def plan_of(df: DataFrame) -> MatchPlan:
    """The plan behind a DataFrame that came out of `match_pattern`, or was derived from one."""
    found = records_of(df)
    if len(found) > 1:
        raise PlanError(
            f"{len(found)} patterns were matched for this DataFrame",
            hint="ask for the plan of the one that you mean; cep.explain(df) prints all",
        )
    return found[0].plan


@public
def explain(df: DataFrame, mode: str = "text") -> None:
    """Prints the plan; `mode` is "text", "json", "html" or "analyze".

    "html" is a page to be written to a file; a notebook shows the same for `cep.plan_of(df)`.
    "analyze" runs the query, and prints what was measured beside what was estimated.
    """
    show = _MODES.get(mode)
    if show is None:
        raise PlanError(
            f"{mode!r} is no mode of explain", hint='use mode="text", "json", "html" or "analyze"'
        )
    sys.stdout.write(show(df) + "\n")


def _explain_text(df: DataFrame) -> str:
    return "\n\n".join(str(record.plan) for record in records_of(df))


def _explain_json(df: DataFrame) -> str:
    dicts = [record.plan.to_dict() for record in records_of(df)]
    whole = dicts[0] if len(dicts) == 1 else dicts
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _explain_html(df: DataFrame) -> str:
    return page.render_page([record.plan.facts for record in records_of(df)])


def _explain_analyze(df: DataFrame) -> str:
    return "\n\n".join("\n".join(comparison_lines(each)) for each in analyze_answers(df))


_MODES: Mapping[str, Callable[[DataFrame], str]] = {
    "text": _explain_text,
    "json": _explain_json,
    "html": _explain_html,
    "analyze": _explain_analyze,
}


@public
def match_pattern(  # noqa: PLR0913 - the public signature
    df: DataFrame,
    pattern: Pattern | RowPattern,
    *,
    order_by: str | Column | Sequence[str | Column] | None = None,
    partition_by: str | Column | Sequence[str | Column] | None = None,
    measures: Mapping[str, str] | None = None,
    rows: str = "one",
    after_match: str | None = None,
    plan: Any = "auto",
    statistics: Statistics | None = None,
    adapt: Any = "invariants",
    remotes: Mapping[str, Any] | None = None,
    shed: Any = None,
    limits: Limits | None = None,
) -> DataFrame:
    """The matches of a pattern in the rows of `df`.

    Of an event pattern one row for each match: the partition columns, a struct for each positive
    variable (an array of structs for a Kleene variable, NULL for one that the match leaves
    unfilled), `match_start` and `match_end`. `measures` gives expressions over the variables
    instead of the structs, `rows="all"` one row for each matched event.

    `partition_by` takes names and Columns. A Column that is more than a reference is added to the
    input under its own name, as by `df.withColumn`.

    Of a row pattern what MATCH_RECOGNIZE gives: the partition columns and the measures; with
    `rows="all"` and its forms a row for each matched row, all its columns included.
    """
    query: Query
    if isinstance(pattern, RowPattern):
        row_options = check_row_options(
            rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
            after_match=after_match, remotes=remotes, shed=shed,
        )  # fmt: skip
        source, keys = with_partition_columns(read_source(df), partition_by)
        query = prepare_row_query(
            source, pattern, row_options, order_by=order_by, partition_by=keys
        )
    else:
        pattern = check_pattern(pattern)
        options = check_options(
            rows=rows, measures=measures, plan=plan, statistics=statistics, limits=limits,
            after_match=after_match, adapt=adapt, remotes=remotes, shed=shed,
        )  # fmt: skip
        source, keys = with_partition_columns(read_source(df), partition_by)
        query = prepare_event_query(source, MatchRequest(pattern, options, order_by, keys))
    return run_stream(query) if source.is_streaming else run_batch(query)
