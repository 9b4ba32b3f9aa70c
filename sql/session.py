"""`cep.sql` and `cep.install`: statements with MATCH_RECOGNIZE, for a Spark session.

A statement without a clause goes to Spark unchanged, with its arguments; so does one that contains
the words only in comments, strings and names. No views are left behind: `composer` puts the matches
into the rest of the statement.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any

from spark_cep.api import match_pattern, match_window, prepare_query
from spark_cep.errors import PlanError
from spark_cep.remotes.sources import check_remotes, check_remotes_used, select_used_remotes
from spark_cep.row_patterns import RowPattern
from spark_cep.spark.metrics import records_of
from spark_cep.spark.source import is_setting_on, note_computed
from spark_cep.spark.typing import error_sentence, type_of
from spark_cep.spark.versions import is_dataframe, silence_spark
from spark_cep.sql.composer import QueryComposer, SessionFunctions, SparkQuery, match_clauses
from spark_cep.sql.kinds import (
    TemporaryView,
    check_not_permanent,
    check_single_statement,
    find_explain,
    read_temporary_view,
)
from spark_cep.sql.location import find_clauses
from spark_cep.sql.parameters import fill_template
from spark_cep.sql.pushdown import PUSHDOWN_CONF
from spark_cep.sql.spark_messages import restate_error
from spark_cep.sql.statement import Statement, UnterminatedTextError
from spark_cep.sql.window_query import find_window_selects
from spark_cep.udfs.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_cep.remote import Remote
    from spark_cep.sql.clause import Clause
    from spark_cep.sql.pushdown import KeyCondition
    from spark_cep.udfs.expressions import Type


_PATTERN_WORDS = re.compile(r"match_recognize|\bpattern\b", re.I)
_PLAN_SCHEMA = "plan string"
_INSTALLED = "_spark_cep_installed"
_REMOTES = "_spark_cep_remotes"


def sql(
    spark: SparkSession,
    text: str,
    /,
    args: Any = None,
    *,
    remotes: Mapping[str, Remote] | None = None,
    **kwargs: Any,
) -> DataFrame:
    """Runs a SQL statement that may contain MATCH_RECOGNIZE wherever a table may, or that is
    EXPLAIN PATTERN followed by a query. Any other statement goes to `spark.sql` unchanged.

    Args:
        spark: The session, classic or Connect.
        text: The statement.
        args: Values of parameters (`:name` or `?`), as for `spark.sql`.
        remotes: Remote data by the names that `remote('name', key)` uses, in addition to those
            that the session was installed with.
        **kwargs: Values of `{fields}` in the text, DataFrames included, as for `spark.sql`.

    Returns:
        The answer of the statement. EXPLAIN PATTERN gives the plan, a row for each line of text.

    Raises:
        PatternError: The clause, its pattern, a condition or a measure is wrong; the message has
            the line and the column.
        PlanError: A plan or a hint does not fit the pattern.

    Example:
        >>> import spark_cep as cep
        >>> ticks = spark.createDataFrame([(1, 90), (2, 80), (3, 95)], "minute int, price int")
        >>> cep.sql(spark, '''
        ...     SELECT * FROM {ticks} MATCH_RECOGNIZE (
        ...         ORDER BY minute
        ...         MEASURES LAST(down.price) AS bottom
        ...         PATTERN (down+ up)
        ...         DEFINE down AS price < PREV(price), up AS price > PREV(price)
        ...     )
        ... ''', ticks=ticks).collect()
        [Row(bottom=80)]
    """
    given = check_remotes(remotes)
    check_remotes_used(given, [text])
    sources = _installed_remotes(spark) | given
    own = _original_sql(spark)
    if not isinstance(text, str) or not _PATTERN_WORDS.search(text):
        return own(text, args, **kwargs)
    try:
        composer = _make_composer(spark, text, args, kwargs)
        found = find_clauses(composer.statement)
    except UnterminatedTextError:
        # Spark explains better what is wrong with the quotes of its language.
        return own(text, args, **kwargs)
    statement = composer.statement
    selects = find_window_selects(statement)
    shown = find_explain(statement)
    if not found and not selects and shown is None:
        return own(text, args, **kwargs)
    view = None
    if found or selects:
        view = read_temporary_view(statement)
        if view is None:
            check_not_permanent(statement)
        check_single_statement(statement)
    engine = SessionFunctions(
        functools.partial(_run_query, own),
        functools.partial(_match_used, sources),
        _filter_keys if _is_pushdown_on(spark) else None,
        functools.partial(_match_window_used, sources),
        error_sentence,
        silence_spark,
    )
    match_clauses(composer, found, engine, selects)
    if shown is not None:
        return _plan_rows(spark, _run_query(own, _query_from(composer, shown)))
    if view is not None:
        return _create_view(spark, _run_query(own, _query_from(composer, view.query)), view)
    # A projection has the analyzed plan below it. In the plan that Spark keeps of a statement the
    # clauses are names of views, and it would not find their observations after `collect`.
    try:
        return _run_query(own, composer.query([(0, len(statement.text))])).select("*")
    except Exception as problem:
        restate_error(problem, composer, is_connect=_is_connect(spark))
        raise


@public
def install(spark: SparkSession, *, remotes: Mapping[str, Remote] | None = None) -> None:
    """Lets `spark.sql` of a session take MATCH_RECOGNIZE and EXPLAIN PATTERN, as `cep.sql` does.

    Any other statement goes to Spark unchanged. Calling it again only adds remote data.

    Args:
        spark: The session, classic or Connect.
        remotes: Remote data by the names that `remote('name', key)` uses in statements. A name
            that was installed before is replaced.

    Returns:
        Nothing.

    Raises:
        PatternError: `remotes` is not a dict of names to `cep.Remote`.

    Example:
        >>> import spark_cep as cep
        >>> session = spark.newSession()
        >>> cep.install(session)
        >>> session.sql('''
        ...     SELECT * FROM VALUES (1, 90), (2, 80), (3, 95) AS ticks(minute, price)
        ...     MATCH_RECOGNIZE (
        ...         ORDER BY minute
        ...         MEASURES LAST(down.price) AS bottom
        ...         PATTERN (down+ up)
        ...         DEFINE down AS price < PREV(price), up AS price > PREV(price)
        ...     )
        ... ''').collect()
        [Row(bottom=80)]
    """
    vars(spark)[_REMOTES] = _installed_remotes(spark) | check_remotes(remotes)
    if _INSTALLED in vars(spark):
        return
    own = spark.sql

    @functools.wraps(own)
    def with_patterns(sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        return sql(spark, sqlQuery, args, **kwargs)

    vars(spark)[_INSTALLED] = own
    vars(spark)["sql"] = with_patterns


def _installed_remotes(spark: SparkSession) -> dict[str, Remote]:
    found: dict[str, Remote] = vars(spark).get(_REMOTES, {})
    return found


def _match_used(
    remotes: Mapping[str, Remote],
    df: DataFrame,
    pattern: Any,
    *,
    unused: frozenset[str] = frozenset(),
    computed: Mapping[str, str] | None = None,
    **options: Any,
) -> DataFrame:
    """match_pattern with the sources that a clause names, without measures that nobody reads. A
    mistake in one of those is reported all the same. `computed`: the texts of columns that the
    clause added to its input."""
    options["remotes"] = select_used_remotes(remotes, pattern, options)
    if unused and not df.isStreaming:
        prepare_query(df, pattern, **options)
        options["measures"] = _used_measures(pattern, options, unused)
    if computed:
        note_computed(df, computed)
    return match_pattern(df, pattern, **options)


def _match_window_used(
    remotes: Mapping[str, Remote], df: DataFrame, pattern: Any, **options: Any
) -> DataFrame:
    """match_window with the sources that a window names."""
    options["remotes"] = select_used_remotes(remotes, pattern, options)
    return match_window(df, pattern, **options)


def _used_measures(
    pattern: Any, options: Mapping[str, Any], unused: frozenset[str]
) -> dict[str, str] | None:
    """The measures that are read. An answer needs a column: without any, one measure stays."""
    measures: dict[str, str] = options["measures"]
    used = {name: text for name, text in measures.items() if name not in unused}
    if used or (isinstance(pattern, RowPattern) and options["partition_by"]):
        return used or None
    return dict([next(iter(measures.items()))])


def _is_pushdown_on(spark: SparkSession) -> bool:
    setting = str(spark.conf.get(PUSHDOWN_CONF, "on")).strip().lower()
    if setting not in ("on", "off"):
        raise PlanError(f"{PUSHDOWN_CONF} is {setting!r}", hint='set it to "on" or "off"')
    return setting == "on"


def _filter_keys(df: DataFrame, clause: Clause, conditions: Sequence[KeyCondition]) -> DataFrame:
    """The rows of a clause's input whose partitions the statement asks for.

    Not on a stream: its watermark would depend on fewer rows. Not with shedding: it would drop
    other rows.
    """
    if df.isStreaming or "shed" in clause.hints:
        return df
    types = _key_types(df)
    names = [each.text for each in clause.partition_by]
    is_exact = is_setting_on(df, "spark.sql.caseSensitive")
    for condition in conditions:
        is_known = not is_exact or condition.is_spelled(names)
        if is_known and condition.cannot_fail(lambda column: types.get(column.name.casefold())):
            df = df.filter(condition.sql())
    return df


def _key_types(df: DataFrame) -> dict[str, Type]:
    """The types of the columns that conditions may be moved to, by name. CHAR columns are not
    among them: Spark compares those with padding, which the answer's columns do not have."""
    found: dict[str, Type] = {}
    twice = set()
    for field in df.schema:
        name = field.name.casefold()
        if name in found or _CHAR_COLUMN in (field.metadata or {}):
            twice.add(name)
        found[name] = type_of(field.dataType)
    return {name: type_ for name, type_ in found.items() if name not in twice}


_CHAR_COLUMN = "__CHAR_VARCHAR_TYPE_STRING"


def _original_sql(spark: SparkSession) -> Callable[..., DataFrame]:
    """The session's own `sql`."""
    own: Callable[..., DataFrame] = vars(spark).get(_INSTALLED, spark.sql)
    return own


def _run_query(own: Callable[..., DataFrame], query: SparkQuery) -> DataFrame:
    return own(query.text, query.args, **query.frames)


def _query_from(composer: QueryComposer, first: int) -> SparkQuery:
    """The statement from a token on."""
    tokens, text = composer.statement.tokens, composer.statement.text
    start = tokens[first].start if first < len(tokens) else len(text)
    return composer.query([(start, len(text))])


def _make_composer(
    spark: SparkSession, text: str, args: Any, kwargs: dict[str, Any]
) -> QueryComposer:
    if not kwargs:
        return QueryComposer(Statement(text), args)
    made = fill_template(
        text,
        kwargs,
        is_dataframe,
        lambda field: str(_field_formatter(spark).format(field, **kwargs)),
    )
    composer = QueryComposer(Statement(made.text.text, made.text), args)
    for span, df in made.frames:
        composer.replace(span, df)
    return composer


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _field_formatter(spark: SparkSession) -> Any:
    """The formatter of `spark.sql` fields; each kind of session has its own."""
    home = "pyspark.sql.connect" if _is_connect(spark) else "pyspark.sql"
    return importlib.import_module(f"{home}.sql_formatter").SQLStringFormatter(spark)


def _plan_rows(spark: SparkSession, df: DataFrame) -> DataFrame:
    """What `cep.explain` prints, one row for each line."""
    try:
        records = records_of(df)
    except PlanError:
        raise PlanError(
            "EXPLAIN PATTERN: the query matches no pattern",
            hint="write a query with MATCH_RECOGNIZE, or over a temporary view created with it",
        ) from None
    lines = "\n\n".join(str(record.plan) for record in records).split("\n")
    return spark.createDataFrame([(line,) for line in lines], _PLAN_SCHEMA)


def _create_view(spark: SparkSession, df: DataFrame, view: TemporaryView) -> DataFrame:
    """Makes a view of the query's DataFrame, so that its text is not parsed again."""
    if view.columns:
        df = df.toDF(*[name for name, _ in view.columns])
        for name, comment in view.columns:
            if comment is not None:
                df = df.withMetadata(name, {"comment": comment})
    kind = "Global" if view.is_global else ""
    getattr(df, f"create{'OrReplace' if view.replaces else ''}{kind}TempView")(view.name)
    return spark.createDataFrame([], "struct<>")
