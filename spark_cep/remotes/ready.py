"""Ready sources of remote data: Redis, SQL databases, services that answer in JSON.

Each function checks what it is given on the driver and connects to nothing; the workers do, one
client each. What a source needs is installed as an extra: `spark-cep[redis]`, `[sql]`, `[http]`.
The timeout of a batch is here too, because only the client's own ends what hangs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spark_cep.errors import PatternError

if TYPE_CHECKING:
    from spark_cep.udfs.sources.http_source import HttpSource, Method
    from spark_cep.udfs.sources.redis_source import Kind, RedisSource
    from spark_cep.udfs.sources.secrets import Secret
    from spark_cep.udfs.sources.sql_source import SqlSource

Names = str | Sequence[str]

# So much of the remote's timeout is the client's, which then ends first and says why.
_OF_TIMEOUT = 0.9


def redis(  # noqa: PLR0913, the options of a source are its keywords
    url: Secret,
    key: str = "{}",
    *,
    kind: Kind = "auto",
    hash: str | None = None,
    password: Secret | None = None,
    timeout: float = 10.0,
) -> RedisSource:
    """Values in Redis. `key`: the template of their keys, `"limit:{}"`, or with `hash`, that of
    the fields of one hash. `kind`: what the keys hold; "auto": hashes for structs, sets for
    arrays, else texts.

    >>> redis("redis://cache:6379/0", "limit:{}", password="${REDIS_PASSWORD}")
    redis at redis://cache:6379/0, key limit:{}
    """
    from spark_cep.udfs.sources.redis_source import RedisSource  # noqa: PLC0415

    _check_text(key, "key")
    return RedisSource(url, key, kind, hash, password, _own_timeout(timeout))


def sql(  # noqa: PLR0913, the options of a source are its keywords
    url: Secret,
    table: str | None = None,
    *,
    key: Names | None = None,
    value: Names | None = None,
    query: str | None = None,
    many: bool = False,
    password: Secret | None = None,
    timeout: float = 10.0,
) -> SqlSource:
    """Values in a SQL database: columns of a table, several of them as a struct, or the rows of a
    query with `IN :keys`, whose first columns are the key. `many`: all rows of a key, as an array.

    >>> sql("postgresql+psycopg://reader@db/shop", "limits", key="org", value="max")
    sql at postgresql+psycopg://db/shop, limits by org
    """
    from spark_cep.udfs.sources.sql_source import SqlSource  # noqa: PLC0415
    from spark_cep.udfs.sources.sql_statement import asking  # noqa: PLC0415

    return SqlSource(url, asking(table, key, value, query), many, password, _own_timeout(timeout))


def http(  # noqa: PLR0913, the options of a source are its keywords
    url: str,
    *,
    method: Method = "GET",
    path: str = "",
    key: Names | None = None,
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

    >>> http("https://api.example.org/limits/{}", path="data.max")
    http GET https://api.example.org/limits/{}
    """
    from spark_cep.udfs.sources.http_source import Answer, HttpSource  # noqa: PLC0415

    keys = (key,) if isinstance(key, str) else tuple(key or ())
    return HttpSource(
        url,
        method,
        Answer(_steps(path, "path"), keys, _steps(value, "value")),
        body,
        tuple((headers or {}).items()),
        concurrency,
        max_bytes,
        _own_timeout(timeout),
    )


def _steps(path: str, what: str) -> tuple[str, ...]:
    _check_text(path, what)
    return tuple(path.split(".")) if path else ()


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise PatternError(f"{what} is no text: {text!r}")


def _own_timeout(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout <= 0:
        raise PatternError(f"timeout is no number of seconds: {timeout!r}", hint="timeout=10")
    return _OF_TIMEOUT * timeout
