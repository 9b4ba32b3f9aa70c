"""Which failures of a database may pass.

Databases say it in codes, where they have a connection to say it on: SQLSTATE classes, SQLite's
names. A refused connection has only a text. What is not known to pass is final: a wrong column
fails again however often it is asked.
"""

from __future__ import annotations

import re

# Connection lost, transaction rolled back, no room, locked, shutting down, the system, a bug.
_PASSING_STATES = ("08", "40", "53", "55", "57", "58", "XX")
_PASSING_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_PROTOCOL")
_CREDENTIALS = re.compile(
    r"authentication failed|no password|access denied|login failed|role .* does not exist",
    re.IGNORECASE,
)
_FINAL = re.compile(
    r"permission denied|database .* does not exist|unknown database|not a database|"
    r"no pg_hba.conf entry",
    re.IGNORECASE,
)


def text_of(error: Exception) -> str:
    """The database's own words: those of SQLAlchemy have the statement, too."""
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0] or type(error).__name__


def is_refused_login(error: Exception) -> bool:
    return _CREDENTIALS.search(text_of(error)) is not None


def may_pass(error: Exception) -> bool:
    from sqlalchemy import exc  # noqa: PLC0415

    cause = getattr(error, "orig", None)
    state, name = getattr(cause, "sqlstate", None), getattr(cause, "sqlite_errorname", None)
    if state:
        return str(state).startswith(_PASSING_STATES)
    if name:
        return str(name).startswith(_PASSING_SQLITE)
    if _CREDENTIALS.search(text_of(error)) or _FINAL.search(text_of(error)):
        return False
    passing = (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.TimeoutError)
    is_broken = bool(getattr(error, "connection_invalidated", False))
    return is_broken or isinstance(error, (*passing, OSError))
