"""Remote.sql against PostgreSQL and SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_cep.errors import PatternError, RemoteError
from spark_cep.remote import make_sql_source
from spark_cep.udfs.sources.sql_source import SqlSource

if TYPE_CHECKING:
    from tests.services.postgres_service import Postgres

TABLES = [
    "CREATE TABLE limits (org VARCHAR(20), city VARCHAR(20), max NUMERIC(8,2), day DATE)",
    "INSERT INTO limits VALUES ('a', 'ulm', 1.5, '2024-01-31'), ('b', 'rom', NULL, NULL),"
    " ('c', 'ulm', 3, NULL), ('c', 'rom', 4, NULL)",
    'CREATE TABLE numbers (id INTEGER, "a value" INTEGER)',
    "INSERT INTO numbers VALUES " + ", ".join(f"({i}, {i * i})" for i in range(3000)),
]
Database = Callable[..., SqlSource]


@pytest.fixture(scope="session")
def postgres_tables(postgres: Postgres) -> str:
    postgres.execute(*TABLES)
    return postgres.url()


@pytest.fixture(scope="session")
def sqlite_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sqlite") / "limits.db"
    connection = sqlite3.connect(path)
    for statement in TABLES:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    url = request.getfixturevalue(f"{request.param}_tables")

    def made(value: pa.DataType, parts: int = 1, /, **options: Any) -> SqlSource:
        return make_sql_source(url, **options).reading(value, parts)

    return made


def test_a_column_of_a_table(database: Database) -> None:
    fetch = database(pa.float64(), table="limits", key="org", value="max")
    assert fetch(["a", "b", "z"]) == {"a": 1.5}


def test_several_columns_are_a_struct(database: Database) -> None:
    type_ = pa.struct([("day", pa.date32()), ("max", pa.decimal128(8, 2))])
    fetch = database(type_, table="limits", key="org", value=["max", "day"])
    assert fetch(["a", "b"]) == {
        "a": {"day": date(2024, 1, 31), "max": Decimal("1.50")},
        "b": {"day": None, "max": None},
    }
    assert database(type_, table="limits", key="org")(["a"]).keys() == {"a"}


def test_composite_keys(database: Database) -> None:
    fetch = database(pa.float64(), 2, table="limits", key=["org", "city"], value="max")
    assert fetch([("c", "rom"), ("c", "ulm"), ("a", "rom")]) == {
        ("c", "rom"): 4.0,
        ("c", "ulm"): 3.0,
    }


def test_many_rows_a_key_are_an_array_if_asked_for(database: Database) -> None:
    fetch = database(pa.list_(pa.string()), table="limits", key="org", value="city", many=True)
    found = fetch(["a", "c", "z"])
    assert {key: sorted(value) for key, value in found.items()} == {
        "a": ["ulm"],
        "c": ["rom", "ulm"],
    }
    single = database(pa.float64(), table="limits", key="org", value="max")
    found = single(["a", "c"])
    assert found["a"] == 1.5
    assert isinstance(found["c"], RemoteError)
    assert "2 rows have the key 'c'" in found["c"].message


@pytest.mark.parametrize("place", [":keys", "(:keys)", "( :keys )"])
def test_a_query_with_its_keys(database: Database, place: str) -> None:
    text = f"SELECT org, SUM(max) FROM limits WHERE org IN {place} GROUP BY org"
    assert database(pa.float64(), query=text)(["a", "c"]) == {"a": 1.5, "c": 7.0}


def test_a_query_with_composite_keys(database: Database) -> None:
    text = "SELECT org, city, max FROM limits WHERE (org, city) IN :keys"
    assert database(pa.float64(), 2, query=text)([("c", "rom"), ("x", "y")]) == {("c", "rom"): 4.0}


def test_more_keys_than_a_statement_takes_are_asked_in_several(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_cep.udfs.sources import sql_source

    monkeypatch.setattr(sql_source, "_BOUND", {"sqlite": 900, "postgresql": 900})
    fetch = database(pa.int64(), table="numbers", key="id", value="a value")
    assert fetch(list(range(5000))) == {i: i * i for i in range(3000)}


def test_tens_of_thousands_of_keys(database: Database) -> None:
    fetch = database(pa.int64(), table="numbers", key="id", value="a value")
    assert len(fetch(list(range(70_000)))) == 3000


def test_databases_without_tuples_get_the_columns_one_by_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_cep.udfs.sources import sql_source

    monkeypatch.setattr(sql_source, "_TUPLES", frozenset())
    fetch = database(pa.float64(), 2, table="limits", key=["org", "city"], value="max")
    keys = [("c", "rom"), *((str(i), "x") for i in range(1000))]
    assert fetch(keys) == {("c", "rom"): 4.0}


def test_keys_are_values_and_never_text_of_the_statement(database: Database) -> None:
    fetch = database(pa.float64(), table="limits", key="org", value="max")
    assert fetch(["a' OR '1'='1", "'); DROP TABLE limits; --", "a"]) == {"a": 1.5}


def test_a_database_is_only_read(postgres_tables: str, sqlite_tables: str) -> None:
    text = (
        "WITH gone AS (DELETE FROM limits RETURNING org) SELECT org, 1 FROM gone WHERE org IN :keys"
    )
    with pytest.raises(RemoteError, match="read-only transaction"):
        make_sql_source(postgres_tables, query=text).reading(pa.int64(), 1)(["a"])
    fetch = make_sql_source(sqlite_tables, "limits", key="org", value="max").reading(
        pa.float64(), 1
    )
    assert fetch(["a"])
    with (
        fetch._connect().connect() as connection,
        pytest.raises(Exception, match="readonly database"),
    ):
        connection.exec_driver_sql("DELETE FROM limits")


def test_a_key_of_another_type_is_an_error_and_not_a_missing_value(database: Database) -> None:
    fetch = database(pa.int64(), table="numbers", key="id", value="a value")
    with pytest.raises(RemoteError, match=r"the database's key 5 is a int|operator does not exist"):
        fetch(["5"])


def test_threads_share_one_pool(database: Database) -> None:
    fetch = database(pa.int64(), table="numbers", key="id", value="a value")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(fetch, [[i, i + 1] for i in range(100)]))
    assert found == [{i: i * i, i + 1: (i + 1) ** 2} for i in range(100)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "nowhere", "key": "org", "value": "max"}, "nowhere"),
        ({"table": "limits", "key": "org", "value": "minimum"}, "minimum"),
        ({"query": "SELECT org FROM limits WHERE org IN :keys"}, "has no column after"),
        ({"query": "SELECT org, max FROM limits WHERE org IN :keys ORDER"}, "syntax error"),
    ],
)
def test_what_only_the_database_knows_to_be_wrong_is_final(
    database: Database, options: dict[str, Any], message: str
) -> None:
    fetch = database(pa.float64(), **options)
    with pytest.raises(RemoteError) as found:
        fetch(["a"])
    assert message in str(found.value) or "incomplete input" in str(found.value)
    assert "SELECT" not in str(found.value.message)


def test_a_value_of_another_type_is_the_failure_of_its_key(database: Database) -> None:
    found = database(pa.float64(), table="limits", key="org", value="city")(["a"])
    assert isinstance(found["a"], RemoteError)
    assert "the value of 'a' is not a number, but a text of 3" in found["a"].message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs either a table or a query"),
        ({"table": "t", "query": "SELECT 1"}, "needs either a table or a query"),
        ({"table": "t"}, "key= is missing"),
        ({"table": "t", "key": []}, "is not a column"),
        ({"query": "SELECT 1"}, "no :keys"),
        ({"query": "SELECT x::keys FROM t"}, "no :keys"),
        ({"query": "DELETE FROM t WHERE a IN :keys"}, "is not a SELECT"),
        ({"query": "SELECT a, b FROM t WHERE a IN :keys", "key": "a"}, "not for a query"),
    ],
)
def test_what_is_written_wrongly_is_said_on_the_driver(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PatternError, match=message):
        make_sql_source("sqlite:////tmp/x.db", **options)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("limits.db", "is not a database URL"),
        ("nosuch://x/y", "does not support: nosuch"),
        ("sqlite://", "in memory"),
        ("mysql+pymysql://root:hunter2@x/y", "needs the database driver pymysql"),
    ],
)
def test_urls_are_checked_on_the_driver(url: str, message: str) -> None:
    with pytest.raises(PatternError, match=message) as found:
        make_sql_source(url, "t", key="a", value="b")
    assert "hunter2" not in str(found.value)


def test_postgres_without_a_driver_named_takes_the_one_that_is_there(postgres_tables: str) -> None:
    url = postgres_tables.replace("+psycopg", "")
    fetch = make_sql_source(url, "public.limits", key="org", value="max").reading(pa.float64(), 1)
    assert fetch(["a"]) == {"a": 1.5}


def test_a_file_that_a_worker_lacks_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    fetch = make_sql_source(f"sqlite:///{path}", "limits", key="a", value="b").reading(
        pa.int64(), 1
    )
    with pytest.raises(RemoteError, match="no file"):
        fetch([1])
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "type_", "parts", "message"),
    [
        ({"key": "a", "value": "b"}, pa.int64(), 2, "called with 2"),
        ({"key": "a"}, pa.int64(), 1, "value= is missing"),
        ({"key": "a", "value": "b", "many": True}, pa.int64(), 1, "many=True returns arrays"),
    ],
)
def test_what_does_not_fit_the_pattern_is_said_on_the_driver(
    options: dict[str, Any], type_: pa.DataType, parts: int, message: str
) -> None:
    with pytest.raises(PatternError, match=message):
        make_sql_source("sqlite:////tmp/x.db", "t", **options).reading(type_, parts)
