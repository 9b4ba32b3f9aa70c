"""Values in a SQL database, a table's columns or what a query gives, on SQLAlchemy.

Always holds: rows are told apart by the key that the database gives back, not by their order; two
rows for one key are an error unless the value is an array of them. A key that comes back in
another type than it was asked with ends the batch, since all would be missed in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Number
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from spark_cep.udfs.errors import CepError, PatternError, RemoteError
from spark_cep.udfs.sources import clients, secrets, sql_engine, sql_failure, sql_statement
from spark_cep.udfs.sources.decoding import MisfitError, decoder, from_json, is_list, plain
from spark_cep.udfs.sources.failing import PassingFailure, attempt, need_library, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.sources.secrets import Secret
    from spark_cep.udfs.sources.sql_statement import Asking


@dataclass(frozen=True, repr=False)
class SqlSource:
    """A batch function over a database. `many`: all rows of a key, as an array."""

    url: Secret
    asked: Asking
    many: bool = False
    password: Secret | None = None
    timeout: float = 10.0
    value: pa.DataType | None = None
    parts: int = 1
    identity: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        need_library("sqlalchemy", "sql", "Remote.sql")
        secrets.check_secret(self.url, "url")
        if isinstance(self.url, str) and not self.url.startswith("${"):
            sql_engine.dialect_of(self.url)
        if self.password is not None:
            secrets.check_password(self.password, self.url)

    def __repr__(self) -> str:
        asked = self.asked
        what = "a query" if asked.table is None else f"{asked.table} by {', '.join(asked.key)}"
        return f"sql at {secrets.without_secrets(self.url)}, {what}"

    def scrub(self, text: str) -> str:
        """The text without this source's secrets."""
        given = [*secrets.of_url(self.url), *([self.password] if self.password else [])]
        return secrets.scrub(text, given)

    def reading(self, value: pa.DataType, parts: int) -> SqlSource:
        """The source for values of this type and keys of so many parts."""
        if self.asked.table is not None and len(self.asked.key) != parts:
            raise PatternError(
                f"{self} has {len(self.asked.key)} key columns, and remote(...) is called with "
                f"{parts}"
            )
        if self.many and not is_list(value):
            raise PatternError(
                f"{self}: many rows a key are an array, and the values are of type {value}",
                hint='value_type="array<...>", or leave many out',
            )
        decoder(value)
        one = value.value_type if self.many else value
        asked = self.asked
        if asked.table is not None and not asked.value:
            asked = replace(asked, value=self._columns_of(one))
        return replace(self, asked=asked, value=value, parts=parts)

    def _columns_of(self, value: pa.DataType) -> tuple[str, ...]:
        if pa.types.is_struct(value):
            return tuple(value.field(i).name for i in range(value.num_fields))
        raise PatternError(f"{self}: which column is the value?", hint='value="max"')

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """The values of the keys that the database has."""
        return attempt(lambda: self._values(keys), self._failure, "sql")

    def _values(self, keys: list[Any]) -> dict[Any, Any]:
        if self.value is None:
            raise RemoteError(f"{self} was called before it was told the type of its values")
        with clients.using(self.identity, self._connect, _close) as engine:
            return dict(self._decoded(self._found(engine, list(dict.fromkeys(keys)))))

    def _found(self, engine: Any, distinct: list[Any]) -> dict[Any, list[Any]]:
        """The rows of each key."""
        size = sql_engine.keys_a_statement(engine.dialect, self.parts)
        tuples = sql_engine.has_tuples(engine.dialect)
        found: dict[Any, list[Any]] = {}
        with engine.connect() as connection:
            for at in range(0, len(distinct), size):
                asked = distinct[at : at + size]
                result = connection.execute(
                    sql_statement.statement(self.asked, asked, tuples=tuples)
                )
                for key, value in self._rows(result, asked):
                    found.setdefault(key, []).append(value)
        return found

    def _connect(self) -> Any:
        return sql_engine.engine(self.url, self.password, self.timeout)

    def _rows(self, result: Any, keys: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        names = list(result.keys())[self.parts :]
        if not names:
            raise RemoteError(
                f"{self}: the query gives no column behind the {self.parts} of the key",
                hint="SELECT key, value FROM ... WHERE key IN :keys",
            )
        asked = set(keys)
        for row in result:
            given = tuple(plain(part) for part in row[: self.parts])
            key = given[0] if self.parts == 1 else given
            if key in asked:
                yield key, self._value(names, row[self.parts :])
            else:
                self._check_types(given, keys[0])

    def _check_types(self, given: tuple[Any, ...], asked: Any) -> None:
        """A row that nobody asked for: a database may find 'A' where 'a' was asked, which in
        Spark is another key; but a key of another type is the user's mistake."""
        wanted = asked if isinstance(asked, tuple) else (asked,)
        for one, other in zip(given, wanted, strict=True):
            if _sort_of(one) is not _sort_of(other):
                raise RemoteError(
                    f"{self}: the database's key {shown(one)} is a {type(one).__name__}, the "
                    f"pattern's {shown(other)} a {type(other).__name__}",
                    hint="cast the key in remote(...) to the type of the column",
                )

    def _value(self, names: list[str], columns: Sequence[Any]) -> Any:
        value = self.value
        assert value is not None
        one = value.value_type if self.many else value
        if not pa.types.is_struct(one) or len(columns) == 1:
            return plain(columns[0])
        lower = {name.lower(): plain(column) for name, column in zip(names, columns, strict=True)}
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
                self.scrub(f"{self}: {len(rows)} rows have the key {shown(key)}"),
                hint="many=True takes all, as an array; or write a query that takes one",
            )
        try:
            return decoder(value)(rows if self.many else _from_text(rows[0], value))
        except MisfitError as error:
            return RemoteError(self.scrub(f"{self}: the value of {shown(key)} {error}"))

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, CepError):
            return error
        text = self.scrub(f"{self}: {sql_failure.text_of(error)}")
        if sql_failure.is_refused_login(error):
            clients.forget(self.identity)
            return RemoteError(text, hint="give password=..., or user and password in the URL")
        if sql_failure.may_pass(error):
            return PassingFailure(text)
        is_misused = type(error).__name__ == "ProgrammingError"
        hint = "a key must have the type of its column: cast it in remote(...)"
        return RemoteError(text, hint=hint if is_misused else None)


def _close(engine: Any) -> None:
    engine.dispose()


def _sort_of(part: Any) -> type:
    return Number if isinstance(part, Number) else type(part)


def _from_text(value: Any, type_: pa.DataType) -> Any:
    """A column of JSON, which some databases give as text."""
    return from_json(value) if isinstance(value, str) and pa.types.is_nested(type_) else value
