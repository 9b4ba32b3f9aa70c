"""`cep.Remote`: where the values of `remote('name', key)` come from.

There are two kinds of sources. A table is a DataFrame of keys and values, which Spark joins or
broadcasts. Everything else is fetched: the workers call a function with a batch of keys.

Always holds: whatever is wrong with a source in itself raises a PatternError when the source is
made; only types in DDL are read later, because that needs a session. No repr shows what a function
or a connection holds.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spark_cep.adapt import is_number
from spark_cep.cache import check_cache
from spark_cep.errors import PatternError
from spark_cep.expressions.problems import list_names, nearest_name
from spark_cep.expressions.windows import Within, window_of
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.public import public
from spark_cep.udfs.remote_spec import Caching, FetchPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from spark_cep.udfs.sources.http_source import HttpMethod, HttpSource
    from spark_cep.udfs.sources.redis_source import RedisKind, RedisSource
    from spark_cep.udfs.sources.secrets import Secret
    from spark_cep.udfs.sources.sql_source import SqlSource


StrategyRequest = Literal["auto", "blocking", "cached", "post", "prefetch", "lazy", "hybrid"]
CacheRequest = Caching | Literal["auto"]
ErrorPolicy = Literal["fail", "null"]
Duration = str | float | timedelta
ColumnNames = str | Sequence[str]

STRATEGIES: tuple[StrategyRequest, ...] = (
    "auto",
    "blocking",
    "cached",
    "post",
    "prefetch",
    "lazy",
    "hybrid",
)
_EXAMPLE = 'cep.Remote.table(df, key="org", value="limit")'
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class RemoteTable:
    """A DataFrame as a source. `value`: a column, several columns as one struct, or None for all
    columns besides the key as one struct."""

    df: DataFrame = field(repr=False)
    key: tuple[str, ...]
    value: str | tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class RemoteFunction:
    """A function as a source. `value_type` is Spark DDL. `caching` None: chosen by the pattern."""

    fn: Callable[[list[Any]], Mapping[Any, Any]] = field(repr=False)
    value_type: str
    strategy: StrategyRequest = "auto"
    caching: Caching | None = None
    fetch_policy: FetchPolicy = field(default_factory=FetchPolicy)
    on_error: ErrorPolicy = "fail"
    ttl: float | None = None
    part_of: Callable[[Any], Any] | None = field(default=None, repr=False)
    prefetch_budget: float = 1.3
    max_wait: float | None = None
    show_errors: bool = False


@public
@dataclass(frozen=True, eq=False)
class Remote:
    """A source of remote data, for `remotes={"limits": ...}` of `match_pattern`.

    Conditions and measures look values up by the name that the source has there:
    `remote('limits', a.org)`. Make one with `Remote.table`, `Remote.fetch`, `Remote.redis`,
    `Remote.sql` or `Remote.http`.

    Args:
        source: what these constructors make.

    Example:
        >>> def limits(orgs):
        ...     return {org: 100.0 for org in orgs}
        >>> Remote.fetch(limits, "double")
        cep.Remote fetched by limits giving double
    """

    source: RemoteTable | RemoteFunction

    @property
    def is_table(self) -> bool:
        return isinstance(self.source, RemoteTable)

    def __repr__(self) -> str:
        if isinstance(self.source, RemoteTable):
            return f"cep.Remote.table(key={list(self.source.key)}, value={self.source.value!r})"
        return f"cep.Remote {self.described} giving {self.source.value_type}"

    @property
    def described(self) -> str:
        """The source in a few words, without secrets."""
        if isinstance(self.source, RemoteTable):
            return "table"
        fn = self.source.fn
        if getattr(fn, "scrub", None) is not None:
            return repr(fn)
        return f"fetched by {getattr(fn, '__name__', type(fn).__name__)}"

    @staticmethod
    def table(df: DataFrame, key: ColumnNames, value: ColumnNames | None = None) -> Remote:
        """Looks values up in a batch DataFrame.

        Args:
            df: keys and values. It is read when the query runs, and constant while it runs.
            key: the key column, or a list of them. Each key is in one row at most; a second row
                ends the query with an error.
            value: the value column, or a list of columns, which become a struct. Without it, all
                columns besides the key become a struct.

        Raises:
            PatternError: if `df` is a stream or no DataFrame, or has no such column.

        Example:
            >>> df = spark.createDataFrame([("acme", 100.0)], "org string, limit double")
            >>> Remote.table(df, key="org", value="limit")
            cep.Remote.table(key=['org'], value='limit')
        """
        return Remote(RemoteTable(df, *check_table(df, key, value)))

    @staticmethod
    def fetch(  # noqa: PLR0913 - the public signature
        fn: Callable[[list[Any]], Mapping[Any, Any]],
        value_type: str | DataType,
        *,
        strategy: StrategyRequest = "auto",
        cache: CacheRequest = "auto",
        timeout: Duration = "10 seconds",
        retries: int = 3,
        batch_size: int = 1000,
        max_in_flight: int = 4,
        on_error: ErrorPolicy = "fail",
        ttl: Duration | None = None,
        part_of: Callable[[Any], Any] | None = None,
        prefetch_budget: float = 1.3,
        max_wait: Duration | None = None,
        show_errors: bool = False,
    ) -> Remote:
        """Looks values up with a function of your own, which the workers call while they match.

        Args:
            fn: from a list of different keys to a dict of their values. Keys of several parts,
                `remote('routes', a.place, b.place)`, are tuples. A key that the dict leaves out
                has the value NULL. Several threads call the function at the same time. It is
                pickled, so open connections inside it.
            value_type: the type of the values, in Spark's DDL or as a DataType.
            strategy: when values are fetched. It changes the time that matching takes, never the
                answer. "blocking" waits for every value and keeps none; "cached" waits for every
                value and keeps it; "prefetch" also fetches keys that partial matches may need;
                "lazy" continues matching and tests the condition once the value has arrived;
                "hybrid" does both; "post" tests it on complete matches. "auto" chooses by how
                the pattern selects its rows.
            cache: how many bytes of values each worker process keeps: `cep.cache.lru`,
                `cep.cache.cost_based`, or "auto", which chooses between them.
            timeout: after this time a call counts as failed: text such as "10 seconds", a
                timedelta, or a number of seconds.
            retries: how often a failed call is repeated, with growing pauses.
            batch_size: the largest number of keys in one call.
            max_in_flight: how many calls a worker process makes at the same time.
            on_error: "fail" ends the query with a RemoteError when a needed value could not be
                fetched; "null" takes NULL as the value.
            ttl: on streams, values older than this are fetched again in the next trigger.
            part_of: from a key to the key of the whole that contains it. `fn` then takes keys of
                wholes and returns for each a dict of its parts, by their own full keys, and each
                whole is fetched once.
            prefetch_budget: how many keys may be fetched, as a multiple of those that matching
                needs. With 1.3 up to three keys in ten are fetched ahead of time in vain.
            max_wait: on streams, how long a trigger waits for values: what is undecided then is
                decided in a later trigger. Without it a trigger waits for every value.
            show_errors: whether errors quote the text of an exception that `fn` or a driver
                raised. Such a text may hold an address with its password or a value; without
                this an error names only the exception's type.

        Raises:
            PatternError: if an argument is wrong, or a function cannot be pickled.

        Example:
            >>> def limits(orgs):
            ...     return {org: 100.0 for org in orgs}
            >>> from spark_cep import cache
            >>> Remote.fetch(limits, "double", cache=cache.lru("16 MB"), timeout="2 seconds")
            cep.Remote fetched by limits giving double
        """
        check_function("fn", fn)
        if part_of is not None:
            check_function("part_of", part_of)
        return Remote(
            RemoteFunction(
                fn,
                check_ddl(value_type),
                check_one_of("strategy", strategy, STRATEGIES),
                check_cache(cache),
                FetchPolicy(
                    timeout=check_seconds("timeout", timeout),
                    retries=check_count("retries", retries, least=0),
                    batch=check_count("batch_size", batch_size),
                    in_flight=check_count("max_in_flight", max_in_flight),
                ),
                check_one_of("on_error", on_error, ("fail", "null")),
                None if ttl is None else check_seconds("ttl", ttl),
                part_of,
                check_factor("prefetch_budget", prefetch_budget),
                None if max_wait is None else check_seconds("max_wait", max_wait),
                check_flag("show_errors", show_errors),
            )
        )

    @staticmethod
    def redis(  # noqa: PLR0913 - the public signature
        url: Secret,
        key: str = "{}",
        *,
        value_type: str | DataType,
        kind: RedisKind = "auto",
        hash: str | None = None,
        password: Secret | None = None,
        strategy: StrategyRequest = "auto",
        cache: CacheRequest = "auto",
        timeout: Duration = "10 seconds",
        retries: int = 3,
        batch_size: int = 1000,
        max_in_flight: int = 4,
        on_error: ErrorPolicy = "fail",
        ttl: Duration | None = None,
        prefetch_budget: float = 1.3,
        max_wait: Duration | None = None,
        show_errors: bool = False,
    ) -> Remote:
        """Looks values up in Redis. Needs `pip install spark-cep[redis]`.

        Args:
            url: `redis://host:6379/0`, `rediss://...` for TLS, or `unix:///path`. As with every
                secret, `${NAME}` stands for an environment variable of the workers, and a
                function without arguments is called there.
            key: the template of a Redis key, such as "limit:{}", or "{0}:{1}" for two parts.
            value_type: the type of the values, in Spark's DDL or as a DataType.
            kind: what a Redis key holds: "string", "json", "hash", "set" or "list". "auto" reads
                hashes for structs, sets for arrays and strings otherwise.
            hash: the name of one hash that holds all values; `key` is then the template of a
                field.
            password: the password, if the URL has none.
            strategy, cache, timeout, retries, batch_size, max_in_flight: as in `Remote.fetch`.
            on_error, ttl, prefetch_budget, max_wait, show_errors: as in `Remote.fetch`.

        Raises:
            PatternError: if an argument is wrong or the extra is not installed.

        Example:
            >>> Remote.redis("redis://cache:6379/0", "limit:{}", value_type="double")
            cep.Remote redis at redis://cache:6379/0, key limit:{} giving double
        """
        seconds = check_seconds("timeout", timeout)
        source = make_redis_source(
            url, key, kind=kind, hash=hash, password=password, timeout=seconds
        )
        return Remote.fetch(
            source,
            value_type,
            strategy=strategy,
            cache=cache,
            timeout=seconds,
            retries=retries,
            batch_size=batch_size,
            max_in_flight=max_in_flight,
            on_error=on_error,
            ttl=ttl,
            prefetch_budget=prefetch_budget,
            max_wait=max_wait,
            show_errors=show_errors,
        )

    @staticmethod
    def sql(  # noqa: PLR0913 - the public signature
        url: Secret,
        table: str | None = None,
        *,
        value_type: str | DataType,
        key: ColumnNames | None = None,
        value: ColumnNames | None = None,
        query: str | None = None,
        many: bool = False,
        password: Secret | None = None,
        strategy: StrategyRequest = "auto",
        cache: CacheRequest = "auto",
        timeout: Duration = "10 seconds",
        retries: int = 3,
        batch_size: int = 1000,
        max_in_flight: int = 4,
        on_error: ErrorPolicy = "fail",
        ttl: Duration | None = None,
        prefetch_budget: float = 1.3,
        max_wait: Duration | None = None,
        show_errors: bool = False,
    ) -> Remote:
        """Looks values up in an SQL database. Needs `pip install spark-cep[sql]` and a driver.

        Give either `table` with `key` and `value`, or `query`.

        Args:
            url: an SQLAlchemy URL, such as `postgresql+psycopg://reader@db/shop`. `${NAME}` stands
                for an environment variable of the workers; a function is called there.
            table: the table of keys and values.
            value_type: the type of the values, in Spark's DDL or as a DataType.
            key: the key column of the table, or a list of them.
            value: the value column, or a list of columns, which become a struct.
            query: a SELECT with `IN :keys`. Its first columns are the key, the others the value.
            many: all rows of a key, as an array. Without it, a second row for a key is an error.
            password: the password, if the URL has none.
            strategy, cache, timeout, retries, batch_size, max_in_flight: as in `Remote.fetch`.
            on_error, ttl, prefetch_budget, max_wait, show_errors: as in `Remote.fetch`.

        Raises:
            PatternError: if an argument is wrong or the extra is not installed.

        Example:
            >>> url = "postgresql+psycopg://reader@db/shop"
            >>> Remote.sql(url, "limits", key="org", value="max", value_type="double")
            cep.Remote sql at postgresql+psycopg://db/shop, limits by org giving double
        """
        seconds = check_seconds("timeout", timeout)
        source = make_sql_source(
            url,
            table,
            key=key,
            value=value,
            query=query,
            many=many,
            password=password,
            timeout=seconds,
        )
        return Remote.fetch(
            source,
            value_type,
            strategy=strategy,
            cache=cache,
            timeout=seconds,
            retries=retries,
            batch_size=batch_size,
            max_in_flight=max_in_flight,
            on_error=on_error,
            ttl=ttl,
            prefetch_budget=prefetch_budget,
            max_wait=max_wait,
            show_errors=show_errors,
        )

    @staticmethod
    def http(  # noqa: PLR0913 - the public signature
        url: str,
        *,
        value_type: str | DataType,
        method: HttpMethod = "GET",
        path: str = "",
        key: ColumnNames | None = None,
        value: str = "",
        body: str | None = "keys",
        headers: Mapping[str, Secret] | None = None,
        concurrency: int = 8,
        max_bytes: int = 16 << 20,
        strategy: StrategyRequest = "auto",
        cache: CacheRequest = "auto",
        timeout: Duration = "10 seconds",
        retries: int = 3,
        batch_size: int = 1000,
        max_in_flight: int = 4,
        on_error: ErrorPolicy = "fail",
        ttl: Duration | None = None,
        prefetch_budget: float = 1.3,
        max_wait: Duration | None = None,
        show_errors: bool = False,
    ) -> Remote:
        """Looks values up in an HTTP service that answers in JSON. Needs
        `pip install spark-cep[http]`.

        Args:
            url: for a GET with `{}` where the key goes, quoted; for a POST without.
            value_type: the type of the values, in Spark's DDL or as a DataType.
            method: "GET" sends one request for each key, "POST" one for each batch of keys.
            path: where the value is in the answer, by fields and positions: "data.0.max". For a
                POST, where the object from keys to values is, or with `key` the array of objects.
            key: for a POST that returns an array of objects, their key field or fields.
            value: for a POST, the path of the value in each entry or object.
            body: for a POST, the field that holds the array of keys; None sends the array alone.
            headers: headers of every request. Their values are secrets: `${NAME}` stands for an
                environment variable of the workers, and a function is called there.
            concurrency: for a GET, how many requests a worker process makes at the same time.
            max_bytes: a larger answer is an error.
            strategy, cache, timeout, retries, batch_size, max_in_flight: as in `Remote.fetch`.
            on_error, ttl, prefetch_budget, max_wait, show_errors: as in `Remote.fetch`.

        Raises:
            PatternError: if an argument is wrong or the extra is not installed.

        Example:
            >>> url = "https://api.example.org/limits/{}"
            >>> Remote.http(url, path="data.max", value_type="double")
            cep.Remote http GET https://api.example.org/limits/{} giving double
        """
        seconds = check_seconds("timeout", timeout)
        source = make_http_source(
            url,
            method=method,
            path=path,
            key=key,
            value=value,
            body=body,
            headers=headers,
            concurrency=concurrency,
            max_bytes=max_bytes,
            timeout=seconds,
        )
        return Remote.fetch(
            source,
            value_type,
            strategy=strategy,
            cache=cache,
            timeout=seconds,
            retries=retries,
            batch_size=batch_size,
            max_in_flight=max_in_flight,
            on_error=on_error,
            ttl=ttl,
            prefetch_budget=prefetch_budget,
            max_wait=max_wait,
            show_errors=show_errors,
        )


# ---- ready-made sources ------------------------------------------------------------------------
#
# Each checks its arguments on the driver and connects to nothing. In the workers there is one
# client for each source.

# The client times out before the fetch does, so that the error is the client's, which names the
# cause. Only the client can end a request that hangs.
_CLIENT_SHARE = 0.9


def make_redis_source(  # noqa: PLR0913, the options of a source are its keywords
    url: Secret,
    key: str = "{}",
    *,
    kind: RedisKind = "auto",
    hash: str | None = None,
    password: Secret | None = None,
    timeout: float = 10.0,
) -> RedisSource:
    """The function behind `Remote.redis`.

    Example:
        >>> make_redis_source("redis://cache:6379/0", "limit:{}", password="${REDIS_PASSWORD}")
        redis at redis://cache:6379/0, key limit:{}
    """
    from spark_cep.udfs.sources.redis_source import RedisSource  # noqa: PLC0415

    _check_text(key, "key")
    return RedisSource(url, key, kind, hash, password, _client_timeout(timeout))


def make_sql_source(  # noqa: PLR0913, the options of a source are its keywords
    url: Secret,
    table: str | None = None,
    *,
    key: ColumnNames | None = None,
    value: ColumnNames | None = None,
    query: str | None = None,
    many: bool = False,
    password: Secret | None = None,
    timeout: float = 10.0,
) -> SqlSource:
    """The function behind `Remote.sql`.

    Example:
        >>> make_sql_source("postgresql+psycopg://reader@db/shop", "limits", key="org", value="max")
        sql at postgresql+psycopg://db/shop, limits by org
    """
    from spark_cep.udfs.sources.sql_source import SqlSource, check_request  # noqa: PLC0415

    return SqlSource(
        url, check_request(table, key, value, query), many, password, _client_timeout(timeout)
    )


def make_http_source(  # noqa: PLR0913, the options of a source are its keywords
    url: str,
    *,
    method: HttpMethod = "GET",
    path: str = "",
    key: ColumnNames | None = None,
    value: str = "",
    body: str | None = "keys",
    headers: Mapping[str, Secret] | None = None,
    concurrency: int = 8,
    max_bytes: int = 16 << 20,
    timeout: float = 10.0,
) -> HttpSource:
    """The function behind `Remote.http`.

    Example:
        >>> make_http_source("https://api.example.org/limits/{}", path="data.max")
        http GET https://api.example.org/limits/{}
    """
    from spark_cep.udfs.sources.http_source import HttpSource, JsonPaths  # noqa: PLC0415

    keys = (key,) if isinstance(key, str) else tuple(key or ())
    return HttpSource(
        url,
        method,
        JsonPaths(_split_path(path, "path"), keys, _split_path(value, "value")),
        body,
        tuple((headers or {}).items()),
        concurrency,
        max_bytes,
        _client_timeout(timeout),
    )


def _split_path(path: str, what: str) -> tuple[str, ...]:
    _check_text(path, what)
    return tuple(path.split(".")) if path else ()


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise PatternError(f"{what} must be text, not {text!r}")


def _client_timeout(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout <= 0:
        raise PatternError(
            f"timeout must be a number of seconds above 0, not {timeout!r}", hint="timeout=10"
        )
    return _CLIENT_SHARE * timeout


# ---- checks of arguments -----------------------------------------------------------------------


def check_table(
    df: Any, key: object, value: object
) -> tuple[tuple[str, ...], str | tuple[str, ...] | None]:
    """The key columns and the value, spelled as the table spells them."""
    if not hasattr(df, "sparkSession") or not hasattr(df, "mapInArrow"):
        raise PatternError(
            f"Remote.table takes a DataFrame, not {type(df).__name__}", hint=_EXAMPLE
        )
    if df.isStreaming:
        raise PatternError(
            "a remote table cannot be a stream: its values are constant during a query",
            hint="join the two streams before matching, or look values up with cep.Remote.fetch",
        )
    keys = tuple(_find_column(df, name) for name in _check_names("key", key))
    if not keys:
        raise PatternError("the remote table has no key", hint=_EXAMPLE)
    if value is None:
        rest = tuple(name for name in df.columns if name not in keys)
        if not rest:
            raise PatternError(
                "the remote table has no column besides its key",
                hint="add the column that remote(...) should return",
            )
        return keys, None
    if isinstance(value, str):
        return keys, _find_column(df, value)
    values = tuple(_find_column(df, name) for name in _check_names("value", value))
    if not values:
        raise PatternError("value names no column", hint=_EXAMPLE)
    return keys, values


def _check_names(what: str, value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        folded = [each.casefold() for each in value]
        if len(set(folded)) < len(folded):
            raise PatternError(f"{what} names a column twice: {list_names(value)}", hint=_EXAMPLE)
        return list(value)
    raise PatternError(
        f"{what} takes the name of a column or a list of names, not {value!r}", hint=_EXAMPLE
    )


def _find_column(df: Any, name: str) -> str:
    """The column in the table's own spelling."""
    columns: list[str] = df.columns
    found = [each for each in columns if each == name]
    found = found or [each for each in columns if each.casefold() == name.casefold()]
    if len(found) == 1:
        return found[0]
    if found:
        message = f"{name} is ambiguous: the remote table has {len(found)} columns with this name"
        raise PatternError(message, hint="rename one of them: df.withColumnRenamed(...)")
    meant = nearest_name(name, columns)
    hint = f"did you mean {meant}?" if meant else f"its columns are {list_names(columns)}"
    raise PatternError(f"the remote table has no column {name}", hint=hint)


def check_function(name: str, fn: object) -> None:
    """Refuses anything but a function, and a function that cannot be sent to the workers: it would
    fail in the first action, with a message about pickling that names no variable."""
    if not callable(fn):
        raise PatternError(
            f"{name} takes a function, not {type(fn).__name__}",
            hint='cep.Remote.fetch(lambda keys: {key: ... for key in keys}, value_type="double")',
        )
    what = find_unpicklable(fn)
    if what is not None:
        raise PatternError(
            f"{name} cannot be sent to the workers: {what}",
            hint="open connections and sessions inside the function, and let it refer to "
            "addresses and names only",
        )


def check_ddl(value_type: object) -> str:
    text = value_type if isinstance(value_type, str) else None
    if text is None and hasattr(value_type, "simpleString") and not isinstance(value_type, type):
        text = str(value_type.simpleString())
    if text is None or not text.strip():
        raise PatternError(
            f"value_type is {value_type!r}",
            hint='write a type of Spark SQL: "double", "array<string>", '
            '"struct<max: double, region: string>"',
        )
    return text.strip()


def check_one_of(what: str, value: Any, known: Collection[_T]) -> _T:
    for each in known:
        if isinstance(value, str) and each == value:
            return each
    names = [str(each) for each in known]
    meant = nearest_name(value, names) if isinstance(value, str) else None
    hint = f'did you mean "{meant}"? ' if meant else ""
    choices = ", ".join(f'"{each}"' for each in names)
    raise PatternError(f"{what} is {value!r}", hint=f"{hint}use one of {choices}")


def check_count(what: str, value: object, least: int = 1) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise PatternError(
        f"{what} is {value!r}", hint=f"{what} must be a whole number, {least} or more"
    )


def check_factor(what: str, value: Any) -> float:
    if is_number(value) and math.isfinite(value) and value >= 1:
        return float(value)
    raise PatternError(f"{what} is {value!r}", hint=f"{what} must be a number, 1 or more: 1.3")


def check_flag(what: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise PatternError(f"{what} is {value!r}", hint=f"{what} is True or False")


def check_seconds(what: str, value: Any) -> float:
    """The seconds of a duration as text, of a timedelta or of a number."""
    found = math.nan
    if is_number(value):
        found = float(value)
    elif isinstance(value, str | timedelta):
        try:
            found = window_of(Within(value), Type("timestamp")).size / 1_000_000
        except PatternError:
            found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise PatternError(
            f"{what} is {value!r}",
            hint=f'{what} must be a time above 0: "10 seconds", or a number of seconds',
        )
    return found


def find_unpicklable(fn: object) -> str | None:
    """Why cloudpickle, which Spark uses, cannot pickle a function; None if it can.

    Example:
        >>> import threading
        >>> lock = threading.Lock()
        >>> find_unpicklable(lambda keys: lock.acquire())
        'lock (a lock) cannot be pickled'
    """
    if _is_picklable(fn):
        return None
    for name, value in _held_values(fn):
        if not _is_picklable(value):
            return f"{name} (a {type(value).__name__}) cannot be pickled"
    return f"{getattr(fn, '__name__', type(fn).__name__)} cannot be pickled"


def _is_picklable(value: object) -> bool:
    from pyspark import cloudpickle  # noqa: PLC0415 - public values load no pyspark

    try:
        cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    except Exception:  # whatever a __reduce__ raises
        return False
    return True


def _held_values(fn: Any) -> Iterator[tuple[str, Any]]:
    """The outside values that a function reads, or the attributes of an object."""
    if inspect.isfunction(fn):
        read = inspect.getclosurevars(fn)
        yield from read.nonlocals.items()
        yield from read.globals.items()
        yield from zip(inspect.signature(fn).parameters, fn.__defaults__ or (), strict=False)
    elif inspect.ismethod(fn):
        yield from _held_values(fn.__self__)
    else:
        yield from vars(fn).items() if hasattr(fn, "__dict__") else ()
