"""`cep.Remote`: where looked-up values come from, as the user says it.

Two kinds. A table is a DataFrame of keys and values: Spark joins it or the workers get it whole.
Everything else is fetched: a function from a batch of keys to their values, called in the workers.

Always holds: all that can be wrong by itself was said when the object was made, besides types in
DDL, which need a session. No repr shows what a function or a connection holds.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spark_cep.adapt import is_number
from spark_cep.cache import caching
from spark_cep.errors import PatternError
from spark_cep.expressions.problems import list_names, nearest_name
from spark_cep.expressions.windows import Within, window_of
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.public import public
from spark_cep.udfs.remote_spec import Caching, FetchPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_cep.udfs.sources.http_source import HttpMethod, HttpSource
    from spark_cep.udfs.sources.redis_source import RedisKind, RedisSource
    from spark_cep.udfs.sources.secrets import Secret
    from spark_cep.udfs.sources.sql_source import SqlSource


# --------------------------------------------------------------------------------------------------
# Whether a function can travel to the workers, and what in it cannot.
#
# It is pickled as Spark pickles it, before any job: what fails here would else fail in the first
# action, with a message about pickling that names no variable.
# --------------------------------------------------------------------------------------------------


def find_unpicklable(fn: object) -> str | None:
    """What keeps it from travelling, as a sentence's end; None if nothing does.

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
    """What a function reads from outside, and what an object has in it."""
    if inspect.isfunction(fn):
        read = inspect.getclosurevars(fn)
        yield from read.nonlocals.items()
        yield from read.globals.items()
        yield from zip(inspect.signature(fn).parameters, fn.__defaults__ or (), strict=False)
    elif inspect.ismethod(fn):
        yield from _held_values(fn.__self__)
    else:
        yield from vars(fn).items() if hasattr(fn, "__dict__") else ()


# --------------------------------------------------------------------------------------------------
# What the arguments of `cep.Remote` must be, said where they are given.
# --------------------------------------------------------------------------------------------------


__all__ = ["StrategyRequest", "caching"]

StrategyRequest = Literal["blocking", "cached", "post", "prefetch", "lazy", "hybrid", "auto"]

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


def check_table(
    df: Any, key: object, value: object
) -> tuple[tuple[str, ...], str | tuple[str, ...] | None]:
    """The key columns and what is the value, spelled as the table spells them."""
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
                hint="add the column that is to be looked up",
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
    """The table's own spelling."""
    columns: list[str] = df.columns
    found = [each for each in columns if each == name]
    found = found or [each for each in columns if each.casefold() == name.casefold()]
    if len(found) == 1:
        return found[0]
    if found:
        message = f"{name} is ambiguous: the remote table has {len(found)} columns of this name"
        raise PatternError(message, hint="rename one of them: df.withColumnRenamed(...)")
    meant = nearest_name(name, columns)
    hint = f"did you mean {meant}?" if meant else f"its columns are {list_names(columns)}"
    raise PatternError(f"the remote table has no column {name}", hint=hint)


def check_function(name: str, fn: object) -> None:
    """It must be one, and it must be able to travel to the workers."""
    if not callable(fn):
        raise PatternError(
            f"{name} takes a function, not {type(fn).__name__}",
            hint='cep.Remote.fetch(lambda keys: {key: ... for key in keys}, value_type="double")',
        )

    what = find_unpicklable(fn)
    if what is not None:
        raise PatternError(
            f"{name} cannot travel to the workers: {what}",
            hint="open connections and sessions inside the function, where it runs; hand it "
            "addresses and names only",
        )


def check_ddl(value_type: object) -> str:
    text = value_type if isinstance(value_type, str) else None
    if text is None and hasattr(value_type, "simpleString") and not isinstance(value_type, type):
        text = str(value_type.simpleString())
    if text is None or not text.strip():
        raise PatternError(
            f"value_type is {value_type!r}",
            hint='it is a type of Spark SQL: "double", "array<string>", '
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
    raise PatternError(f"{value!r} is no {what} of a remote", hint=f"{hint}there are {choices}")


def check_count(what: str, value: object, least: int = 1) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise PatternError(f"{what} is {value!r}", hint=f"{what} is a whole number, {least} or more")


def check_seconds(what: str, value: Any) -> float:
    """A duration as text, or a number of seconds."""
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
            hint=f'{what} is a time above 0: "10 seconds", or a number of seconds',
        )
    return found


# --------------------------------------------------------------------------------------------------
# Ready sources of remote data: Redis, SQL databases, services that answer in JSON.
#
# Each function checks what it is given on the driver and connects to nothing; the workers do, one
# client each. What a source needs is installed as an extra: `spark-cep[redis]`, `[sql]`, `[http]`.
# The timeout of a batch is here too, because only the client's own ends what hangs.
# --------------------------------------------------------------------------------------------------


ColumnNames = str | Sequence[str]

# So much of the remote's timeout is the client's, which then ends first and says why.
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
    """Values in Redis. `key`: the template of their keys, `"limit:{}"`, or with `hash`, that of
    the fields of one hash. `kind`: what the keys hold; "auto": hashes for structs, sets for
    arrays, else texts.

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
    """Values in a SQL database: columns of a table, several of them as a struct, or the rows of a
    query with `IN :keys`, whose first columns are the key. `many`: all rows of a key, as an array.

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
    """Values from a service that answers in JSON: a GET for each key, at most `concurrency` at
    once in a worker, or a POST for each batch. `path`: where the value stands in the answer, as
    in "data.0.max"; for a POST, where an object from keys to values stands, or an array of
    objects with the fields `key` and the value at `value`.

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
        raise PatternError(f"{what} is no text: {text!r}")


def _client_timeout(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout <= 0:
        raise PatternError(f"timeout is no number of seconds: {timeout!r}", hint="timeout=10")
    return _CLIENT_SHARE * timeout


@dataclass(frozen=True, eq=False)
class RemoteTable:
    """`value`: a column, several columns as one struct, or None: all that are no key as one."""

    df: DataFrame = field(repr=False)
    key: tuple[str, ...]
    value: str | tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class RemoteFunction:
    """`value_type` is Spark DDL. `caching` None: as it fits the pattern."""

    fn: Callable[[list[Any]], Mapping[Any, Any]] = field(repr=False)
    value_type: str
    strategy: StrategyRequest = "auto"
    caching: Caching | None = None
    patience: FetchPolicy = field(default_factory=FetchPolicy)
    on_error: Literal["fail", "null"] = "fail"
    ttl: float | None = None
    part_of: Callable[[Any], Any] | None = field(default=None, repr=False)


@public
@dataclass(frozen=True, eq=False)
class Remote:
    """Remote data. Made by `Remote.table`, `Remote.fetch`, `Remote.redis`, `Remote.sql` or
    `Remote.http`; given to match_pattern by a name, `remotes={"limits": ...}`, which conditions
    and measures use: `remote('limits', a.org)`."""

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
        """What it is, in a word or a line without secrets."""
        if isinstance(self.source, RemoteTable):
            return "table"
        fn = self.source.fn
        if getattr(fn, "scrub", None) is not None:
            return repr(fn)
        return f"fetched by {getattr(fn, '__name__', type(fn).__name__)}"

    @staticmethod
    def table(
        df: DataFrame, key: str | Sequence[str], value: str | Sequence[str] | None = None
    ) -> Remote:
        """The rows of a DataFrame, by the columns `key`. Each key is in one row at most."""
        return Remote(RemoteTable(df, *check_table(df, key, value)))

    @staticmethod
    def fetch(  # noqa: PLR0913 - the public signature
        fn: Callable[[list[Any]], Mapping[Any, Any]],
        value_type: str,
        *,
        strategy: StrategyRequest = "auto",
        cache: Any = "auto",
        timeout: str | float = "10 seconds",
        retries: int = 3,
        batch_size: int = 1000,
        max_in_flight: int = 4,
        on_error: Literal["fail", "null"] = "fail",
        ttl: str | float | None = None,
        part_of: Callable[[Any], Any] | None = None,
    ) -> Remote:
        """What `fn` gives: from a list of different keys (tuples where there are several parts)
        a dict of their values; a key that it leaves out has none. It runs in the workers.

        `part_of` gives the key of the whole that a key is part of: `fn` then takes keys of wholes
        and gives for each a dict of its parts, and each whole is fetched once.
        """
        check_function("fn", fn)
        if part_of is not None:
            check_function("part_of", part_of)
        return Remote(
            RemoteFunction(
                fn,
                check_ddl(value_type),
                check_one_of("strategy", strategy, STRATEGIES),
                caching(cache),
                FetchPolicy(
                    timeout=check_seconds("timeout", timeout),
                    retries=check_count("retries", retries, least=0),
                    batch=check_count("batch_size", batch_size),
                    in_flight=check_count("max_in_flight", max_in_flight),
                ),
                check_one_of("on_error", on_error, ("fail", "null")),
                None if ttl is None else check_seconds("ttl", ttl),
                part_of,
            )
        )

    @staticmethod
    def redis(url: Any, key: str = "{}", *, value_type: str, **options: Any) -> Remote:
        """Values in Redis; `key` is the pattern of its keys, `"limit:{}"`."""
        return _make_source_remote("redis", (url, key), value_type, options)

    @staticmethod
    def sql(url: Any, table: str | None = None, *, value_type: str, **options: Any) -> Remote:
        """Rows of a table, or of a query, in an SQL database."""
        return _make_source_remote("sql", (url, table), value_type, options)

    @staticmethod
    def http(url: str, *, value_type: str, **options: Any) -> Remote:
        """Values that an HTTP service gives as JSON."""
        return _make_source_remote("http", (url,), value_type, options)


# What `fetch` takes besides what the ready source takes. A ready source knows of no wholes.
_FETCH_OPTIONS = frozenset(
    {"strategy", "cache", "retries", "batch_size", "max_in_flight", "on_error", "ttl"}
)

_SOURCE_MAKERS: Mapping[str, Callable[..., Any]] = {
    "redis": make_redis_source,
    "sql": make_sql_source,
    "http": make_http_source,
}


def _make_source_remote(
    kind: str, arguments: tuple[Any, ...], value_type: str, options: Mapping[str, Any]
) -> Remote:
    """A fetch by a source that this library has."""
    timeout = check_seconds("timeout", options.get("timeout", "10 seconds"))
    own = {name: value for name, value in options.items() if name not in _FETCH_OPTIONS}
    if "part_of" in own:
        raise PatternError(
            f"Remote.{kind} has no part_of",
            hint="fetch wholes by a function of your own: cep.Remote.fetch(fn, ..., part_of=...)",
        )
    source = _SOURCE_MAKERS[kind](*arguments, **(own | {"timeout": timeout}))
    given = {name: value for name, value in options.items() if name in _FETCH_OPTIONS}
    return Remote.fetch(source, value_type, timeout=timeout, **given)
