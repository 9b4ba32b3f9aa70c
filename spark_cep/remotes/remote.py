"""`cep.Remote`: where looked-up values come from, as the user says it.

Two kinds. A table is a DataFrame of keys and values: Spark joins it or the workers get it whole.
Everything else is fetched: a function from a batch of keys to their values, called in the workers.

Always holds: all that can be wrong by itself was said when the object was made, besides types in
DDL, which need a session. No repr shows what a function or a connection holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from typing import Literal as Choice

from spark_cep.errors import PatternError
from spark_cep.remotes import checks
from spark_cep.udfs.remotes.spec import Caching, Patience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, eq=False)
class Table:
    """`value`: a column, several columns as one struct, or None: all that are no key as one."""

    df: DataFrame = field(repr=False)
    key: tuple[str, ...]
    value: str | tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class Fetched:
    """`value_type` is Spark DDL. `caching` None: as it fits the pattern."""

    fn: Callable[[list[Any]], Mapping[Any, Any]] = field(repr=False)
    value_type: str
    strategy: checks.Wish = "auto"
    caching: Caching | None = None
    patience: Patience = field(default_factory=Patience)
    on_error: Choice["fail", "null"] = "fail"
    ttl: float | None = None
    part_of: Callable[[Any], Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Remote:
    """Remote data. Made by `Remote.table`, `Remote.fetch`, `Remote.redis`, `Remote.sql` or
    `Remote.http`; given to match_pattern by a name, `remotes={"limits": ...}`, which conditions
    and measures use: `remote('limits', a.org)`."""

    source: Table | Fetched

    @property
    def is_table(self) -> bool:
        return isinstance(self.source, Table)

    def __repr__(self) -> str:
        if isinstance(self.source, Table):
            return f"cep.Remote.table(key={list(self.source.key)}, value={self.source.value!r})"
        return f"cep.Remote {self.described} giving {self.source.value_type}"

    @property
    def described(self) -> str:
        """What it is, in a word or a line without secrets."""
        if isinstance(self.source, Table):
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
        return Remote(Table(df, *checks.table(df, key, value)))

    @staticmethod
    def fetch(  # noqa: PLR0913 - the public signature
        fn: Callable[[list[Any]], Mapping[Any, Any]],
        value_type: str,
        *,
        strategy: checks.Wish = "auto",
        cache: Any = "auto",
        timeout: str | float = "10 seconds",
        retries: int = 3,
        batch_size: int = 1000,
        max_in_flight: int = 4,
        on_error: Choice["fail", "null"] = "fail",
        ttl: str | float | None = None,
        part_of: Callable[[Any], Any] | None = None,
    ) -> Remote:
        """What `fn` gives: from a list of different keys (tuples where there are several parts)
        a dict of their values; a key that it leaves out has none. It runs in the workers.

        `part_of` gives the key of the whole that a key is part of: `fn` then takes keys of wholes
        and gives for each a dict of its parts, and each whole is fetched once.
        """
        checks.function("fn", fn)
        if part_of is not None:
            checks.function("part_of", part_of)
        return Remote(
            Fetched(
                fn,
                checks.ddl(value_type),
                checks.one_of("strategy", strategy, checks.STRATEGIES),
                checks.caching(cache),
                Patience(
                    timeout=checks.seconds("timeout", timeout),
                    retries=checks.count("retries", retries, least=0),
                    batch=checks.count("batch_size", batch_size),
                    in_flight=checks.count("max_in_flight", max_in_flight),
                ),
                checks.one_of("on_error", on_error, ("fail", "null")),
                None if ttl is None else checks.seconds("ttl", ttl),
                part_of,
            )
        )

    @staticmethod
    def redis(url: Any, key: str = "{}", *, value_type: str, **options: Any) -> Remote:
        """Values in Redis; `key` is the pattern of its keys, `"limit:{}"`."""
        return _ready("redis", (url, key), value_type, options)

    @staticmethod
    def sql(url: Any, table: str | None = None, *, value_type: str, **options: Any) -> Remote:
        """Rows of a table, or of a query, in an SQL database."""
        return _ready("sql", (url, table), value_type, options)

    @staticmethod
    def http(url: str, *, value_type: str, **options: Any) -> Remote:
        """Values that an HTTP service gives as JSON."""
        return _ready("http", (url,), value_type, options)


# What `fetch` takes besides what the ready source takes. A ready source knows of no wholes.
_OF_FETCH = frozenset(
    {"strategy", "cache", "retries", "batch_size", "max_in_flight", "on_error", "ttl"}
)


def _ready(
    kind: str, arguments: tuple[Any, ...], value_type: str, options: Mapping[str, Any]
) -> Remote:
    """A fetch by a source that this library has."""
    from spark_cep.remotes import ready  # noqa: PLC0415 - its libraries are extras

    timeout = checks.seconds("timeout", options.get("timeout", "10 seconds"))
    own = {name: value for name, value in options.items() if name not in _OF_FETCH}
    if "part_of" in own:
        raise PatternError(
            f"Remote.{kind} has no part_of",
            hint="fetch wholes by a function of your own: cep.Remote.fetch(fn, ..., part_of=...)",
        )
    source = getattr(ready, kind)(*arguments, **(own | {"timeout": timeout}))
    given = {name: value for name, value in options.items() if name in _OF_FETCH}
    return Remote.fetch(source, value_type, timeout=timeout, **given)
