"""Values in an SQL database, from the columns of a table or from a query, on SQLAlchemy.

Always holds: rows are assigned by the key that the database returns, not by their order; two rows
for one key are an error unless the value is an array of them. A key that comes back with another
type than it was sent with ends the batch, because otherwise every key would silently be missing.
"""

from __future__ import annotations

import importlib.util
import math
import re
from dataclasses import dataclass, field, replace
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from spark_cep.udfs.errors import CepError, PatternError, RemoteError
from spark_cep.udfs.sources import clients, secrets
from spark_cep.udfs.sources.clients import (
    ClientError,
    TransientError,
    attempt,
    require_library,
    show_key,
)
from spark_cep.udfs.sources.decoding import (
    DecodingError,
    from_json,
    is_list,
    make_decoder,
    to_plain_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.sources.secrets import Secret


# ---- transient and final failures ----------------------------------------------------------------
#
# Databases name failures by codes, once there is a connection: SQLSTATE classes, SQLite's names. A
# refused connection has only a message. What is not known to be transient is final: a wrong column
# fails again however often it is tried.


# Connection lost, transaction rolled back, out of resources, locked, shutting down, system, bug.
_TRANSIENT_STATES = ("08", "40", "53", "55", "57", "58", "XX")
_TRANSIENT_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_PROTOCOL")
_CREDENTIALS = re.compile(
    r"authentication failed|no password|access denied|login failed|role .* does not exist",
    re.IGNORECASE,
)
_FINAL = re.compile(
    r"permission denied|database .* does not exist|unknown database|not a database|"
    r"no pg_hba.conf entry",
    re.IGNORECASE,
)


def error_text(error: Exception) -> str:
    """The message of the database; that of SQLAlchemy has the statement, too."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0] or type(error).__name__


def is_refused_login(error: Exception) -> bool:
    return _CREDENTIALS.search(error_text(error)) is not None


def is_transient(error: Exception) -> bool:
    from sqlalchemy import exc  # noqa: PLC0415

    cause = getattr(error, "orig", None)
    state, name = getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorname", None)
    if state:
        return str(state).startswith(_TRANSIENT_STATES)
    if name:
        return str(name).startswith(_TRANSIENT_SQLITE)
    if _CREDENTIALS.search(error_text(error)) or _FINAL.search(error_text(error)):
        return False
    passing = (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.TimeoutError)
    is_broken = bool(getattr(error, "connection_invalidated", False))
    return is_broken or isinstance(error, (*passing, OSError))


# ---- connections ---------------------------------------------------------------------------------
#
# There is one pool for each source in a worker process. When a connection is made, it is set to
# read only and to give up a statement after the timeout. It is pinged before each use, so a
# database that was restarted costs no failed batch. Settings that a database does not have are left
# out; that nothing is ever committed holds everywhere.


# A connection is replaced at this age: firewalls silently drop idle ones.
_RECYCLE_S = 1800
# How many values one statement may bind, well below the limits of the databases.
_BOUND = {"postgresql": 30_000, "mysql": 30_000, "mariadb": 30_000, "sqlite": 30_000,
          "mssql": 2_000, "oracle": 1_000}  # fmt: skip
_BOUND_ELSEWHERE = 900
# Before SQLite 3.32.
_BOUND_OLD_SQLITE = 900
# Some parsers nest a condition `(a = ? AND b = ?) OR ...` as deep as it is long.
_DEEPEST_OR = 200
_TUPLES = frozenset({"postgresql", "sqlite", "mysql", "mariadb", "oracle"})


def dialect_of(url: str) -> Any:
    """The dialect of the database with its DBAPI driver, so that a missing one is an error on the
    Spark driver."""
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    problem = ""
    try:
        parsed = _parse_url(url)
        dialect = parsed.get_dialect()
    except NoSuchModuleError:
        problem = f"names a database that SQLAlchemy does not support: {parsed.drivername}"
    except ArgumentError:
        problem = "is not a database URL"
    if problem:
        raise PatternError(
            f"Remote.sql: {secrets.hide_secrets(url)} {problem}",
            hint="write postgresql+psycopg://user@host:5432/name, sqlite:////path/of/file, ...",
        )
    try:
        dialect.import_dbapi()
    except ImportError as error:
        raise PatternError(
            f"Remote.sql needs the database driver {dialect.driver}, which is not installed: "
            f"there is no module {error.name or dialect.driver}",
            hint="install it, on the workers' machines too; for PostgreSQL: pip install "
            "'psycopg[binary]'",
        ) from None
    if dialect.name == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise PatternError(
            "Remote.sql: an SQLite database in memory would be an empty one in each worker",
            hint="use a file that all workers can read, or Remote.table",
        )
    return dialect


def make_engine(url: Secret, password: Secret | None, timeout: float) -> Any:
    """The connection pool of a worker process. Nothing is connected yet."""
    from sqlalchemy import create_engine, event  # noqa: PLC0415

    parsed = _parse_url(secrets.read_secret(url, "url", quoted=True))
    if password is not None:
        parsed = parsed.set(password=secrets.read_secret(password, "password"))
    name = parsed.get_backend_name()
    if name == "sqlite":
        _check_file(parsed.database or "")
    made = create_engine(
        parsed,
        pool_pre_ping=True,
        pool_recycle=_RECYCLE_S,
        # As many connections as batches in flight; five are kept open.
        max_overflow=-1,
        hide_parameters=True,
        connect_args=_connect_arguments(name, parsed.get_driver_name(), timeout),
    )
    event.listen(made, "connect", lambda connection, _: _set_read_only(connection, name, timeout))
    return made


def keys_per_statement(dialect: Any, parts: int) -> int:
    """How many keys one statement can request."""
    bound = _BOUND.get(dialect.name, _BOUND_ELSEWHERE)
    if dialect.name == "sqlite" and dialect.dbapi.sqlite_version_info < (3, 32):
        bound = _BOUND_OLD_SQLITE
    keys = bound // parts
    return max(1, keys if parts == 1 or has_tuples(dialect) else min(keys, _DEEPEST_OR))


def has_tuples(dialect: Any) -> bool:
    """Whether the database supports `(a, b) IN ((1, 2), ...)`."""
    return dialect.name in _TUPLES


def _parse_url(url: str) -> Any:
    """The URL, with psycopg for PostgreSQL if it is installed and no other is named."""
    from sqlalchemy import make_url  # noqa: PLC0415

    parsed = make_url(url)
    if parsed.drivername == "postgresql" and importlib.util.find_spec("psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


def _check_file(path: str) -> None:
    # Otherwise SQLite would create an empty database there.
    if not path.startswith("file:") and not Path(path).exists():
        raise RemoteError(
            f"Remote.sql: this worker has no file {path}",
            hint="all workers must be able to read the database file",
        )


def _connect_arguments(name: str, driver: str, timeout: float) -> dict[str, Any]:
    if name == "sqlite":
        return {"timeout": timeout}
    if driver in ("psycopg", "psycopg2", "pymysql", "mysqldb"):
        return {"connect_timeout": max(2, math.ceil(timeout))}
    return {}


def _set_read_only(connection: Any, name: str, timeout: float) -> None:
    milliseconds = max(1, round(timeout * 1000))
    statements = {
        "postgresql": [
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            f"SET statement_timeout = {milliseconds}",
        ],
        "sqlite": ["PRAGMA query_only = ON"],
        "mysql": ["SET SESSION TRANSACTION READ ONLY"],
        "mariadb": ["SET SESSION TRANSACTION READ ONLY"],
    }.get(name, [])
    if statements:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        # Otherwise the settings would be rolled back with the transaction.
        connection.commit()


# ---- statements ----------------------------------------------------------------------------------
#
# The first columns of a statement are the parts of the key, the others the value. Keys are bound,
# never written into the text.


_KEYS = re.compile(r"(?<![:\w]):keys\b")
# An expanding parameter adds its own brackets.
_BRACKETED_KEYS = re.compile(r"\(\s*(:keys)\s*\)")
_READS_ONLY = re.compile(r"\s*(--[^\n]*\n\s*|/\*.*?\*/\s*)*\(*\s*(SELECT|WITH|VALUES|TABLE)\b",
                      re.IGNORECASE | re.DOTALL)  # fmt: skip


@dataclass(frozen=True)
class SqlRequest:
    """What to read: a table with its columns, or a query."""

    table: str | None
    key: tuple[str, ...]
    value: tuple[str, ...]
    query: str | None


def check_request(table: str | None, key: Any, value: Any, query: str | None) -> SqlRequest:
    """The checked arguments of `Remote.sql`. A single string is one column."""
    keys, values = _check_names(key, "key"), _check_names(value, "value")
    if (table is None) == (query is None):
        raise PatternError(
            "Remote.sql needs either a table or a query",
            hint='table="limits", key="org", value="max", or query="SELECT org, max FROM limits '
            'WHERE org IN :keys"',
        )
    if query is not None:
        _check_query(query, keys or values)
    elif not keys:
        raise PatternError(f"Remote.sql: key= is missing for the table {table}", hint='key="org"')
    return SqlRequest(table, keys, values, query)


def make_statement(request: SqlRequest, keys: list[Any], *, tuples: bool) -> Any:
    """The statement for these keys; `tuples`: the database compares several columns at once."""
    import sqlalchemy as sa  # noqa: PLC0415

    if request.query is not None:
        text = _BRACKETED_KEYS.sub(r"\1", request.query)
        return sa.text(text).bindparams(sa.bindparam("keys", value=keys, expanding=True))
    schema, _, name = (request.table or "").rpartition(".")
    names = (*request.key, *request.value)
    # A column may be both key and value, and is in the table once.
    source = sa.table(name, *map(_sql_column, dict.fromkeys(names)), schema=schema or None)
    by_key = [source.c[column] for column in request.key]
    values = [source.c[column] for column in request.value]
    return sa.select(*by_key, *values).where(_key_condition(by_key, keys, tuples=tuples))


def _sql_column(name: str) -> Any:
    import sqlalchemy as sa  # noqa: PLC0415

    return sa.column(name)


def _key_condition(columns: list[Any], keys: list[Any], *, tuples: bool) -> Any:
    import sqlalchemy as sa  # noqa: PLC0415

    if len(columns) == 1:
        return columns[0].in_(keys)
    if tuples:
        return sa.tuple_(*columns).in_(keys)
    return sa.or_(
        *(
            sa.and_(*(column == part for column, part in zip(columns, key, strict=True)))
            for key in keys
        )
    )


def _check_names(given: Any, what: str) -> tuple[str, ...]:
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PatternError(
            f"Remote.sql: {what}={given!r} is not a column or a list of columns",
            hint=f'{what}="org" or {what}=["org", "city"]',
        )
    return names


def _check_query(query: str, columns: tuple[str, ...]) -> None:
    if columns:
        raise PatternError(
            "Remote.sql: key= and value= are for a table, not for a query",
            hint="the query's first columns are the key, the others the value",
        )
    if not _KEYS.search(query):
        raise PatternError(
            "Remote.sql: the query has no :keys",
            hint="SELECT org, max FROM limits WHERE org IN :keys",
        )
    if not _READS_ONLY.match(query):
        raise PatternError("Remote.sql: the query is not a SELECT", hint="it can only read")


# ---- the source --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class SqlSource:
    """A batch function over a database. `many`: all rows of a key, as an array."""

    url: Secret
    request: SqlRequest
    many: bool = False
    password: Secret | None = None
    timeout: float = 10.0
    value: pa.DataType | None = None
    parts: int = 1
    identity: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        require_library("sqlalchemy", "sql", "Remote.sql")
        secrets.check_secret(self.url, "url")
        if isinstance(self.url, str) and not self.url.startswith("${"):
            dialect_of(self.url)
        if self.password is not None:
            secrets.check_password(self.password, self.url)

    def __repr__(self) -> str:
        request = self.request
        what = "a query"
        if request.table is not None:
            what = f"{request.table} by {', '.join(request.key)}"
        return f"sql at {secrets.hide_secrets(self.url)}, {what}"

    def scrub(self, text: str) -> str:
        """The text without the secrets of this source."""
        given = [*secrets.secrets_in_url(self.url), *([self.password] if self.password else [])]
        return secrets.scrub_secrets(text, given)

    def reading(self, value: pa.DataType, parts: int) -> SqlSource:
        """The source for values of this type and keys with `parts` parts."""
        if self.request.table is not None and len(self.request.key) != parts:
            raise PatternError(
                f"{self} has {len(self.request.key)} key columns, and remote(...) is called with "
                f"{parts}"
            )
        if self.many and not is_list(value):
            raise PatternError(
                f"{self}: many=True returns arrays, and the values are of type {value}",
                hint='use value_type="array<...>", or leave many out',
            )
        make_decoder(value)
        one = value.value_type if self.many else value
        request = self.request
        if request.table is not None and not request.value:
            request = replace(request, value=self._columns_of(one))
        return replace(self, request=request, value=value, parts=parts)

    def _columns_of(self, value: pa.DataType) -> tuple[str, ...]:
        if pa.types.is_struct(value):
            return tuple(value.field(i).name for i in range(value.num_fields))
        raise PatternError(f"{self}: value= is missing", hint='name the column: value="max"')

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """The values of the keys that the database has."""
        return attempt(lambda: self._values(keys), self._failure, "sql")

    def _values(self, keys: list[Any]) -> dict[Any, Any]:
        if self.value is None:
            raise RemoteError(f"{self} was called before it knows the type of its values")
        with clients.use_client(self.identity, self._connect, _dispose) as engine:
            return dict(self._decoded(self._fetch(engine, list(dict.fromkeys(keys)))))

    def _fetch(self, engine: Any, distinct: list[Any]) -> dict[Any, list[Any]]:
        """The rows of each key."""
        size = keys_per_statement(engine.dialect, self.parts)
        tuples = has_tuples(engine.dialect)
        found: dict[Any, list[Any]] = {}
        with engine.connect() as connection:
            for at in range(0, len(distinct), size):
                batch = distinct[at : at + size]
                result = connection.execute(make_statement(self.request, batch, tuples=tuples))
                for key, value in self._rows(result, batch):
                    found.setdefault(key, []).append(value)
        return found

    def _connect(self) -> Any:
        return make_engine(self.url, self.password, self.timeout)

    def _rows(self, result: Any, keys: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        names = list(result.keys())[self.parts :]
        if not names:
            raise RemoteError(
                f"{self}: the query has no column after the {self.parts} of the key",
                hint="SELECT key, value FROM ... WHERE key IN :keys",
            )
        requested = set(keys)
        for row in result:
            given = tuple(to_plain_value(part) for part in row[: self.parts])
            key = given[0] if self.parts == 1 else given
            if key in requested:
                yield key, self._value(names, row[self.parts :])
            else:
                self._check_types(given, keys[0])

    def _check_types(self, given: tuple[Any, ...], requested: Any) -> None:
        """Checks a row whose key was not requested. A database may find 'A' for 'a', which is
        another key in Spark and is skipped; a key of another type is an error of the query."""
        wanted = requested if isinstance(requested, tuple) else (requested,)
        for one, other in zip(given, wanted, strict=True):
            if _key_class(one) is not _key_class(other):
                raise RemoteError(
                    f"{self}: the database's key {show_key(one)} is a {type(one).__name__}, the "
                    f"pattern's {show_key(other)} a {type(other).__name__}",
                    hint="cast the key in remote(...) to the type of the column",
                )

    def _value(self, names: list[str], columns: Sequence[Any]) -> Any:
        value = self.value
        assert value is not None
        one = value.value_type if self.many else value
        if not pa.types.is_struct(one) or len(columns) == 1:
            return to_plain_value(columns[0])
        lower = {
            name.lower(): to_plain_value(column)
            for name, column in zip(names, columns, strict=True)
        }
        fields = [one.field(i).name for i in range(one.num_fields)]
        return {name: lower.get(name.lower()) for name in fields}

    def _decoded(self, found: dict[Any, list[Any]]) -> Iterator[tuple[Any, Any]]:
        for key, rows in found.items():
            value = self._one(key, rows)
            if value is not None:
                yield key, value

    def _one(self, key: Any, rows: list[Any]) -> Any:
        value = self.value
        assert value is not None
        if len(rows) > 1 and not self.many:
            return RemoteError(
                self.scrub(f"{self}: {len(rows)} rows have the key {show_key(key)}"),
                hint="use many=True for an array of all rows, or a query that selects one",
            )
        try:
            return make_decoder(value)(rows if self.many else _parse_json_text(rows[0], value))
        except DecodingError as error:
            return RemoteError(self.scrub(f"{self}: the value of {show_key(key)} {error}"))

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, CepError):
            return error
        text = self.scrub(f"{self}: {error_text(error)}")
        shown = f"{self}: {type(getattr(error, 'orig', None) or error).__name__}"
        if is_refused_login(error):
            clients.forget_client(self.identity)
            hint = "pass password=..., or write user and password in the URL"
            return ClientError(text, shown, hint)
        if is_transient(error):
            return TransientError(text, shown)
        is_misused = type(error).__name__ == "ProgrammingError"
        hint = "a key must have the type of its column: cast it in remote(...)"
        return ClientError(text, shown, hint if is_misused else None)


def _dispose(engine: Any) -> None:
    engine.dispose()


def _key_class(part: Any) -> type:
    return Number if isinstance(part, Number) else type(part)


def _parse_json_text(value: Any, type_: pa.DataType) -> Any:
    """The parsed text of a JSON column, which some databases return as text."""
    return from_json(value) if isinstance(value, str) and pa.types.is_nested(type_) else value
