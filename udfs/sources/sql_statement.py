"""The statement that asks a database for a batch of keys.

Always holds: its first columns are the parts of the key, those after it the value; the keys are
bound, never written into the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from spark_cep.udfs.errors import PatternError

_KEYS = re.compile(r"(?<![:\w]):keys\b")
# An expanding parameter brings its own brackets.
_BRACKETED = re.compile(r"\(\s*(:keys)\s*\)")
_READING = re.compile(r"\s*(--[^\n]*\n\s*|/\*.*?\*/\s*)*\(*\s*(SELECT|WITH|VALUES|TABLE)\b",
                      re.IGNORECASE | re.DOTALL)  # fmt: skip


@dataclass(frozen=True)
class Asking:
    """A table with its columns, or a query."""

    table: str | None
    key: tuple[str, ...]
    value: tuple[str, ...]
    query: str | None


def asking(table: str | None, key: Any, value: Any, query: str | None) -> Asking:
    """What the user gave, checked; names without brackets are one name."""
    keys, values = _names(key, "key"), _names(value, "value")
    if (table is None) == (query is None):
        raise PatternError(
            "Remote.sql needs a table or a query, not both or neither",
            hint='table="limits", key="org", value="max", or query="SELECT org, max FROM limits '
            'WHERE org IN :keys"',
        )
    if query is not None:
        _check_query(query, keys or values)
    elif not keys:
        raise PatternError(f"Remote.sql: table {table} without key=", hint='key="org"')
    return Asking(table, keys, values, query)


def statement(asked: Asking, keys: list[Any], *, tuples: bool) -> Any:
    """The statement for these keys; `tuples`: the database compares several columns at once."""
    import sqlalchemy as sa  # noqa: PLC0415

    if asked.query is not None:
        text = _BRACKETED.sub(r"\1", asked.query)
        return sa.text(text).bindparams(sa.bindparam("keys", value=keys, expanding=True))
    schema, _, name = (asked.table or "").rpartition(".")
    names = (*asked.key, *asked.value)
    # A column may be both key and value, and stands in the table once.
    source = sa.table(name, *map(_column, dict.fromkeys(names)), schema=schema or None)
    by_key = [source.c[column] for column in asked.key]
    values = [source.c[column] for column in asked.value]
    return sa.select(*by_key, *values).where(_among(by_key, keys, tuples=tuples))


def _column(name: str) -> Any:
    import sqlalchemy as sa  # noqa: PLC0415

    return sa.column(name)


def _among(columns: list[Any], keys: list[Any], *, tuples: bool) -> Any:
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


def _names(given: Any, what: str) -> tuple[str, ...]:
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
            "Remote.sql: key= and value= are of a table, and there is a query",
            hint="the query's first columns are the key, the others the value",
        )
    if not _KEYS.search(query):
        raise PatternError(
            "Remote.sql: the query has no :keys",
            hint="SELECT org, max FROM limits WHERE org IN :keys",
        )
    if not _READING.match(query):
        raise PatternError("Remote.sql: the query is no SELECT", hint="it can only read")
