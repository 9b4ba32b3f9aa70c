"""Connections to SQL databases that can only read.

One pool for each worker process and source. A connection is told once, when it is made, to read
only and to give up a statement after the timeout; each is pinged before it is used, so a database
that was restarted costs no failed batch. What a database does not know of this is left out: that
nothing is ever committed holds everywhere.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_cep.udfs.errors import PatternError, RemoteError
from spark_cep.udfs.sources import secrets

if TYPE_CHECKING:
    from spark_cep.udfs.sources.secrets import Secret

# A connection not used for so long is made anew: firewalls drop them in silence.
_RECYCLE_S = 1800
# How many values one statement may carry, far enough below the limits of the databases.
_BOUND = {"postgresql": 30_000, "mysql": 30_000, "mariadb": 30_000, "sqlite": 30_000,
          "mssql": 2_000, "oracle": 1_000}  # fmt: skip
_BOUND_ELSEWHERE = 900
# Before SQLite 3.32.
_BOUND_OLD_SQLITE = 900
# A condition `(a = ? AND b = ?) OR ...` is nested as deep as it is long in some parsers.
_DEEPEST_OR = 200
_TUPLES = frozenset({"postgresql", "sqlite", "mysql", "mariadb", "oracle"})


def dialect_of(url: str) -> Any:
    """The database's dialect, its driver included: what is missing is said on the driver."""
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    problem = ""
    try:
        parsed = _parsed(url)
        dialect = parsed.get_dialect()
    except NoSuchModuleError:
        problem = f"names a database that SQLAlchemy does not know: {parsed.drivername}"
    except ArgumentError:
        problem = "is not a database URL"
    if problem:
        raise PatternError(
            f"Remote.sql: {secrets.without_secrets(url)} {problem}",
            hint="write postgresql+psycopg://user@host:5432/name, sqlite:////path/of/file, ...",
        )
    try:
        dialect.import_dbapi()
    except ImportError as error:
        raise PatternError(
            f"Remote.sql needs the database driver {dialect.driver}, which is not installed: "
            f"{error}",
            hint="install it, on the workers' machines too; for PostgreSQL: pip install "
            "'psycopg[binary]'",
        ) from None
    if dialect.name == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise PatternError(
            "Remote.sql: a SQLite database in memory is another, empty one in each worker",
            hint="use a file that all workers have, or Remote.table",
        )
    return dialect


def engine(url: Secret, password: Secret | None, timeout: float) -> Any:
    """The pool of a worker process. Nothing is connected yet."""
    from sqlalchemy import create_engine, event  # noqa: PLC0415

    parsed = _parsed(secrets.read(url, "url", quoted=True))
    if password is not None:
        parsed = parsed.set(password=secrets.read(password, "password"))
    name = parsed.get_backend_name()
    if name == "sqlite":
        _check_file(parsed.database or "")
    made = create_engine(
        parsed,
        pool_pre_ping=True,
        pool_recycle=_RECYCLE_S,
        # As many as there are batches in flight; five are kept open.
        max_overflow=-1,
        hide_parameters=True,
        connect_args=_connect_arguments(name, parsed.get_driver_name(), timeout),
    )
    event.listen(made, "connect", lambda connection, _: _only_reading(connection, name, timeout))
    return made


def keys_a_statement(dialect: Any, parts: int) -> int:
    """How many keys one statement can ask for."""
    bound = _BOUND.get(dialect.name, _BOUND_ELSEWHERE)
    if dialect.name == "sqlite" and dialect.dbapi.sqlite_version_info < (3, 32):
        bound = _BOUND_OLD_SQLITE
    keys = bound // parts
    return max(1, keys if parts == 1 or has_tuples(dialect) else min(keys, _DEEPEST_OR))


def has_tuples(dialect: Any) -> bool:
    """Whether the database knows `(a, b) IN ((1, 2), ...)`."""
    return dialect.name in _TUPLES


def _parsed(url: str) -> Any:
    """The URL, with the driver that is there where PostgreSQL's is not named."""
    from sqlalchemy import make_url  # noqa: PLC0415

    parsed = make_url(url)
    if parsed.drivername == "postgresql" and importlib.util.find_spec("psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


def _check_file(path: str) -> None:
    # Else SQLite makes an empty database there.
    if not path.startswith("file:") and not Path(path).exists():
        raise RemoteError(
            f"Remote.sql: this worker has no file {path}", hint="all workers need the database"
        )


def _connect_arguments(name: str, driver: str, timeout: float) -> dict[str, Any]:
    if name == "sqlite":
        return {"timeout": timeout}
    if driver in ("psycopg", "psycopg2", "pymysql", "mysqldb"):
        return {"connect_timeout": max(2, math.ceil(timeout))}
    return {}


def _only_reading(connection: Any, name: str, timeout: float) -> None:
    milliseconds = max(1, round(timeout * 1000))
    told = {
        "postgresql": [
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            f"SET statement_timeout = {milliseconds}",
        ],
        "sqlite": ["PRAGMA query_only = ON"],
        "mysql": ["SET SESSION TRANSACTION READ ONLY"],
        "mariadb": ["SET SESSION TRANSACTION READ ONLY"],
    }.get(name, [])
    if told:
        cursor = connection.cursor()
        for statement in told:
            cursor.execute(statement)
        cursor.close()
        # A setting of a session is undone with the transaction that set it.
        connection.commit()
