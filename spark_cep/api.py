"""`match_pattern`, and what explains its answer: `explain` and `plan_of`.

    check options -> compile -> Query -> run_batch or run_stream

A call is lazy: besides what a plan needs to know of the data (a sample of a bounded number of
rows, the looks of `shed=`), no Spark job runs. All user mistakes are reported before any job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from spark_cep.errors import PlanError, warn_user
from spark_cep.explanation import page
from spark_cep.explanation.comparison import comparison_lines
from spark_cep.options import MatchRequest, check_options, check_pattern, check_row_options
from spark_cep.row_patterns import RowPattern
from spark_cep.spark.batch import run_batch
from spark_cep.spark.event_query import prepare_event_query
from spark_cep.spark.keys import with_partition_columns
from spark_cep.spark.metrics import analyze_answers, records_of
from spark_cep.spark.row_query import RowQuery, prepare_row_query
from spark_cep.spark.source import read_source
from spark_cep.spark.stream import run_stream
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from spark_cep.adapt import AdaptOption
    from spark_cep.explanation.plan import MatchPlan
    from spark_cep.pattern import Pattern
    from spark_cep.plans import PlanOption
    from spark_cep.remote import Remote
    from spark_cep.rows.windows import WindowRequest
    from spark_cep.shed import Shed
    from spark_cep.spark.query import Query
    from spark_cep.statistics import Statistics
    from spark_cep.udfs.program import Limits, Objective, PlannerName


@public
def plan_of(df: DataFrame) -> MatchPlan:
    """Returns the plan by which a DataFrame's matches are found.

    Args:
        df: What `match_pattern` or a query with MATCH_RECOGNIZE returned, or a DataFrame derived
            from it, in the same Python process.

    Returns:
        The plan. `str(plan)` is the text of `explain`, `plan.to_dict()` the same as plain data,
        and `plan.to_html()` a page with the plan drawn, which notebooks show by themselves.

    Raises:
        PlanError: `df` has no pattern in it, or several.

    Example:
        >>> import spark_cep as cep
        >>> rows = spark.createDataFrame([("A", 1), ("B", 2)], "kind string, at int")
        >>> pattern = cep.seq(cep.event("a", "kind = 'A'"), cep.event("b", "kind = 'B'"))
        >>> matches = rows.match_pattern(pattern, order_by="at", plan="eager")
        >>> cep.plan_of(matches).to_dict()["order"]
        ['a', 'b']
    """
    found = records_of(df)
    if len(found) > 1:
        raise PlanError(
            f"{len(found)} patterns were matched for this DataFrame",
            hint="call plan_of on the DataFrame of one of them; cep.explain(df) prints all plans",
        )
    return found[0].plan


@public
def explain(df: DataFrame, mode: Literal["text", "json", "html", "analyze"] = "text") -> None:
    """Prints the plan of every pattern that was matched for a DataFrame.

    Args:
        df: What `match_pattern` or a query with MATCH_RECOGNIZE returned, or a DataFrame derived
            from it, in the same Python process.
        mode: "text" prints the plan for people, "json" the same as JSON (a list if there are
            several plans), "html" a page to write to a file. "analyze" runs the query and prints
            what was measured beside what was estimated.

    Returns:
        Nothing; the plan goes to standard output.

    Raises:
        PlanError: `df` has no pattern in it, or `mode` does not exist, or is "analyze" for a
            stream.

    Example:
        >>> import spark_cep as cep
        >>> rows = spark.createDataFrame([("A", 1), ("B", 2)], "kind string, at int")
        >>> pattern = cep.seq(cep.event("a", "kind = 'A'"), cep.event("b", "kind = 'B'"))
        >>> matches = rows.match_pattern(pattern, order_by="at", plan="eager")
        >>> cep.explain(matches)  # doctest: +ELLIPSIS
        Match #...: SEQ(a, b)
          strategy  skip till any match, reuse
          window    none
        ...
    """
    show = _MODES.get(mode)
    if show is None:
        raise PlanError(
            f"{mode!r} is not a mode of explain",
            hint='use mode="text", "json", "html" or "analyze"',
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
    rows: Literal["one", "all", "all omit empty", "all with unmatched"] = "one",
    after_match: str | None = None,
    plan: PlanOption = "auto",
    planner: PlannerName = "dp",
    optimize: Objective = "balanced",
    statistics: Statistics | None = None,
    adapt: AdaptOption = "invariants",
    remotes: Mapping[str, Remote] | None = None,
    shed: Shed | None = None,
    limits: Limits | None = None,
) -> DataFrame:
    """Finds the matches of a pattern in the rows of a DataFrame.

    The call is lazy: it checks every argument and may read a sample of `df` to choose a plan; the
    matches are computed when an action runs. `df` may be a stream. After `import spark_cep` the
    function is also a method of every DataFrame: `df.match_pattern(pattern, ...)`.

    Args:
        df: The events, a row each.
        pattern: An event pattern, from `seq`, `all_of`, `any_of`, `event` or `sase`, or a row
            pattern, from `row_pattern`.
        order_by: The column or columns that order the rows. The first is the event time: a
            timestamp, a date or a number, ascending. The others break ties.
        partition_by: The column or columns whose values a match has in common. A Column that is
            an expression is added to the input under its own name, as by `df.withColumn`. Without
            it the whole input is one partition.
        measures: The columns of the answer by name, as Spark SQL over the variables of the
            pattern: `{"gain": "c.price - a.price"}`.
        rows: "one" gives a row for each match. "all" gives a row for each matched row, with all
            its columns; for a row pattern also one for each empty match, which "all omit empty"
            leaves out. "all with unmatched", for row patterns, adds the rows of no match.
        after_match: For row patterns: where the search goes on after a match,
            "SKIP PAST LAST ROW" (the default), "SKIP TO NEXT ROW" or "SKIP TO [FIRST | LAST] x".
        plan: How matches are found; it never changes the answer. For an event pattern "auto",
            "eager", "lazy-chain", "tree", "zstream", "hybrid", or a plan made by `cep.plans`. For
            a row pattern "auto", "walk" or "gaps".
        planner: For event patterns, what decides the order or the joins of a plan: "dp", exact
            dynamic programs, or an algorithm of the papers, "greedy", "zstream" or "local-search".
        optimize: For event patterns on streams, what the choice of kept partial matches makes
            small: "latency", the time from the last event of a match to the match; "throughput",
            the work of all triggers; "balanced", the first while triggers keep up.
        statistics: What is known about the data, for the choice of a plan. Without it batch
            queries read a sample, and streams begin with an order that supposes nothing.
        adapt: When an event pattern's plan is made anew while the query runs: "invariants",
            "threshold", "always", "off", or a policy made by `cep.adapt`.
        remotes: Remote data by the names that conditions and measures use:
            `{"limits": cep.Remote.table(...)}` for `remote('limits', a.org)`.
        shed: For event patterns: how many rows may be dropped to keep up with the input.
        limits: Counts and times at which the query ends with a LimitError.

    Returns:
        For an event pattern with `rows="one"`: the partition columns and the measures. Without
        `measures`: the partition columns, a struct for each positive variable (an array of structs
        for a repeated one, NULL for one that the match does not fill), `match_start` and
        `match_end`, the event times of the earliest and the latest event. With `rows="all"`:
        `match_id`, `variable` and the columns of `df`.

        For a row pattern what MATCH_RECOGNIZE gives: the partition columns and the measures for
        each match or, with the other values of `rows`, all columns of `df` and the measures for
        each row.

        A row pattern without `order_by` gives a PatternWarning: its rows have no defined order.

    Raises:
        PatternError: The pattern, a condition, a measure or another argument is wrong.
        PlanError: The plan, the statistics or the settings do not fit the pattern.
        LimitError: From an action: the query reached one of its `limits`.
        RemoteError: From an action: remote data could not be fetched.

    Example:
        >>> import spark_cep as cep
        >>> from spark_cep import event, row_pattern, seq
        >>> ticks = spark.createDataFrame(
        ...     [("MSFT", 1, 90), ("GOOG", 2, 80), ("GOOG", 3, 95), ("AAPL", 4, 99)],
        ...     "ticker string, minute int, price int",
        ... )
        >>> rally = (
        ...     seq(
        ...         event("a", "ticker = 'MSFT'"),
        ...         event("b", "ticker = 'GOOG'"),
        ...         event("c", "ticker = 'AAPL'"),
        ...     )
        ...     .where("a.price < b.price", "b.price < c.price")
        ...     .within(10)
        ... )
        >>> gains = {"bought": "b.minute", "gain": "c.price - b.price"}
        >>> ticks.match_pattern(rally, order_by="minute", measures=gains).show()
        +------+----+
        |bought|gain|
        +------+----+
        |     3|   4|
        +------+----+
        <BLANKLINE>
        >>> falls_and_rises = {"down": "price < PREV(price)", "up": "price > PREV(price)"}
        >>> dip = row_pattern("down up", falls_and_rises)
        >>> bottom = {"bottom": "down.price"}
        >>> cep.match_pattern(ticks, dip, order_by="minute", measures=bottom).collect()
        [Row(bottom=80)]
    """
    query = prepare_query(
        df, pattern, order_by=order_by, partition_by=partition_by, measures=measures, rows=rows,
        after_match=after_match, plan=plan, planner=planner, optimize=optimize,
        statistics=statistics, adapt=adapt, remotes=remotes, shed=shed, limits=limits,
    )  # fmt: skip
    if query.source.is_streaming:
        return run_stream(query)
    if isinstance(query, RowQuery) and not query.compiled.orders:
        warn_user(
            "the row pattern has no ORDER BY: its rows come in no defined order, so the answer may "
            "differ from run to run"
        )
    return run_batch(query)


def match_window(  # noqa: PLR0913 - the options of match_pattern
    df: DataFrame,
    pattern: RowPattern,
    *,
    window: WindowRequest,
    order_by: object = None,
    partition_by: object = None,
    measures: object = None,
    after_match: object = None,
    remotes: object = None,
) -> DataFrame:
    """The rows of `df` with the measures of a row pattern in a window frame of SQL. `df` is no
    stream."""
    options = check_row_options(
        rows="one", measures=measures, plan="auto", statistics=None, limits=None,
        after_match=after_match, remotes=remotes,
    )  # fmt: skip
    options = replace(options, rows="each row", window=window)
    source, keys = with_partition_columns(read_source(df), partition_by)
    query = prepare_row_query(source, pattern, options, order_by=order_by, partition_by=keys)
    return run_batch(query)


def prepare_query(  # noqa: PLR0913 - the options of match_pattern
    df: DataFrame,
    pattern: object,
    *,
    order_by: object = None,
    partition_by: object = None,
    measures: object = None,
    rows: object = "one",
    after_match: object = None,
    plan: object = "auto",
    planner: object = "dp",
    optimize: object = "balanced",
    statistics: object = None,
    adapt: object = "invariants",
    remotes: object = None,
    shed: object = None,
    limits: object = None,
) -> Query:
    """The query of a call of `match_pattern`: its arguments are checked, nothing has run."""
    if isinstance(pattern, RowPattern):
        row_options = check_row_options(
            rows=rows, measures=measures, plan=plan, planner=planner, optimize=optimize,
            statistics=statistics, limits=limits, after_match=after_match, remotes=remotes,
            shed=shed,
        )  # fmt: skip
        source, keys = with_partition_columns(read_source(df), partition_by)
        return prepare_row_query(source, pattern, row_options, order_by=order_by, partition_by=keys)
    pattern = check_pattern(pattern)
    options = check_options(
        rows=rows, measures=measures, plan=plan, planner=planner, optimize=optimize,
        statistics=statistics, limits=limits, after_match=after_match, adapt=adapt,
        remotes=remotes, shed=shed,
    )  # fmt: skip
    source, keys = with_partition_columns(read_source(df), partition_by)
    return prepare_event_query(source, MatchRequest(pattern, options, order_by, keys))
