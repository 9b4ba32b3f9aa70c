"""Values looked up beside rows, by a stage of its own: no row changes, and keys are asked once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_cep as cep
from spark_cep.expressions.remote_calls import LookupRequest
from spark_cep.spark.lookups import MetricsSink, RemoteSources, add_lookups
from spark_cep.spark.metrics import observe_lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def rows_of(df: DataFrame, columns: str) -> list[Any]:
    return [tuple(row) for row in df.orderBy("id").select(*columns.split()).collect()]


def sources(spark: SparkSession, **remotes: cep.Remote) -> RemoteSources:
    return RemoteSources(remotes, spark)


def named(remote: str, *keys: str, column: str = "v") -> LookupRequest:
    return LookupRequest(remote, keys, column)


def test_a_row_keeps_all_it_had_and_gets_the_value(spark: SparkSession) -> None:
    df = spark.sql(
        """SELECT id, concat('k', id % 3) AS k, INTERVAL '3' MONTH AS ym, map('a', id) AS m,
        make_interval(0, 1, 0, int(id)) AS calendar, struct(id AS x, id + 1 AS X) AS twice,
        CAST(id AS DECIMAL(38, 3)) AS d, TIMESTAMP_NTZ '0001-01-01 00:00:00' AS ntz,
        CASE WHEN id % 2 = 0 THEN array(id, NULL) END AS xs, 'what' AS metrics
        FROM range(50)"""
    )
    remote = cep.Remote.fetch(lambda keys: {k: len(k) for k in keys if k != "k2"}, "int")
    given = sources(spark, lengths=remote)
    found = add_lookups(df, [named("lengths", "k")], given)
    assert found.drop("v").schema.simpleString() == df.schema.simpleString()
    texts = [f"CAST({column} AS STRING)" for column in df.columns]
    assert found.selectExpr(*texts).exceptAll(df.selectExpr(*texts)).count() == 0
    assert {row[0]: row[1] for row in rows_of(found, "k v")} == {"k0": 2, "k1": 2, "k2": None}


def test_a_key_with_a_null_is_not_asked_for(spark: SparkSession) -> None:
    def fetch(keys: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], str]:
        assert all(None not in key for key in keys)
        return {key: f"{key[0]}{key[1]}" for key in keys}

    df = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, NULL), (3, 'a'), (NULL, 'b') t(id, k)")
    given = sources(spark, texts=cep.Remote.fetch(fetch, "string"))
    found = add_lookups(df, [named("texts", "id", "k")], given)
    assert rows_of(found, "v") == [(None,), ("1a",), (None,), ("3a",)]


def test_each_key_is_asked_for_once_whoever_asks(spark: SparkSession) -> None:
    from pyspark.sql import Observation

    df = spark.range(0, 30_000, 1, 1).selectExpr("id", "int(id % 10) AS a", "id % 20 AS b")
    remote = cep.Remote.fetch(lambda keys: {k: [k, -k] for k in keys}, "array<bigint>")
    wanted = [named("twice", "a", column="x"), named("twice", "b", column="y")]
    told = Observation()
    counts = MetricsSink(lambda found: observe_lookups(found, told))
    found = add_lookups(df, wanted, sources(spark, twice=remote), counts)
    assert found.where("x[0] = a AND y[1] = -b").count() == 30_000
    assert '"keys": 20' in told.get["buckets"]


def test_types_of_values_arrive_as_they_were_declared(spark: SparkSession) -> None:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    value = {
        "day": date(2026, 1, 2), "at": datetime(2026, 1, 2, 3, tzinfo=UTC), "d": Decimal("1.50"),
        "xs": ["a", None], "b": b"\x00", "at most": 1.5,
    }  # fmt: skip
    ddl = (
        "struct<day: date, at: timestamp, d: decimal(5,2), xs: array<string>, b: binary, "
        "`at most`: float>"
    )
    remote = cep.Remote.fetch(lambda keys: dict.fromkeys(keys, value), ddl)
    found = add_lookups(spark.range(1), [named("all", "id")], sources(spark, all=remote))
    assert found.schema["v"].dataType.simpleString().startswith("struct<day:date,at:timestamp")
    shown = found.selectExpr(
        "v.day = DATE'2026-01-02' AND v.at = TIMESTAMP'2026-01-02 03:00:00' AND v.d = 1.5 AND "
        "v.xs <=> array('a', NULL) AND v.b = X'00' AND v.`at most` = 1.5"
    )
    assert shown.first()[0]


def test_tables_stand_beside_fetches(spark: SparkSession) -> None:
    table = spark.sql("SELECT * FROM VALUES (1, 'one'), (2, 'two') t(n, name)")
    given = sources(
        spark,
        names=cep.Remote.table(table, "n", "name"),
        squares=cep.Remote.fetch(lambda keys: {k: k * k for k in keys}, "bigint"),
    )
    wanted = [named("names", "id", column="name"), named("squares", "id", column="square")]
    found = add_lookups(spark.range(1, 4), wanted, given)
    assert rows_of(found, "name square") == [("one", 1), ("two", 4), (None, 9)]


def test_a_failed_fetch_is_a_remote_error_or_null(spark: SparkSession) -> None:
    def fails(keys: Sequence[int]) -> Mapping[int, float]:
        raise OSError("the service is away")

    def remote(on_error: Any) -> RemoteSources:
        made = cep.Remote.fetch(fails, "double", retries=0, on_error=on_error)
        return sources(spark, limits=made)

    wanted = [named("limits", "id")]
    with pytest.raises(Exception, match="1 attempt: OSError") as raised:
        add_lookups(spark.range(2), wanted, remote("fail")).collect()
    assert isinstance(cep.error_of(raised.value), cep.RemoteError)
    found = add_lookups(spark.range(2), wanted, remote("null"))
    assert rows_of(found, "v") == [(None,), (None,)]


def test_a_limit_ends_the_calls(spark: SparkSession, conf: dict[str, str], tmp_path: Path) -> None:
    noted = str(tmp_path / "calls")

    def fetch(keys: Sequence[int]) -> Mapping[int, float]:
        with open(noted, "a") as file:
            file.write("x")
        time.sleep(0.02)
        return {key: float(key) for key in keys}

    def calls() -> int:
        return Path(noted).stat().st_size

    made = cep.Remote.fetch(fetch, "double", batch_size=1, max_in_flight=2)
    conf["spark.sql.execution.arrow.maxRecordsPerBatch"] = "10"
    # Spark hands on what fills its buffer, so rows are wide.
    rows = spark.range(0, 500, 1, 1).selectExpr("id", "repeat('x', 20000) AS wide")
    found = add_lookups(rows, [named("limits", "id")], sources(spark, limits=made))
    assert len(found.limit(1).collect()) == 1
    time.sleep(1.0)  # a worker notices that nobody reads when it hands on its next batch
    settled = calls()
    time.sleep(1.0)
    assert calls() == settled < 400


def test_keys_that_are_no_plain_values_are_refused(spark: SparkSession) -> None:
    given = sources(spark, limits=cep.Remote.fetch(lambda keys: {}, "double"))
    with pytest.raises(cep.PatternError, match="a key of the remote 'limits' is of type array"):
        add_lookups(spark.range(1), [named("limits", "array(id)")], given)
    with pytest.raises(cep.PatternError, match="with 1 keys and with 2"):
        add_lookups(spark.range(1), [named("limits", "id"), named("limits", "id", "id")], given)
