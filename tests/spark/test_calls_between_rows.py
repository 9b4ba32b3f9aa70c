"""Python functions, lambda functions and structs between rows of a match, in patterns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep.expressions.user_functions import _REGISTERED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = """
    (1, 'a', 10.00BD, 1.5D, DATE '2024-01-31', ARRAY('b', 'ab'), STRUCT('x' AS city, 1 AS no)),
    (2, 'ab', 20.00BD, 2.5D, DATE '2024-02-29', ARRAY('x'), STRUCT('y' AS city, 2 AS no)),
    (3, 'b', 15.00BD, DOUBLE('NaN'), DATE '2024-03-31', ARRAY(), STRUCT('x' AS city, 1 AS no)),
    (4, 'abc', 40.00BD, 9D, DATE '2024-05-01', NULL, NULL),
    (5, NULL, NULL, NULL, NULL, ARRAY('a', NULL), STRUCT('y' AS city, NULL AS no))
"""


@pytest.fixture
def rows(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sql(
        f"SELECT * FROM VALUES {ROWS} AS t(id, k, p, x, d, tags, loc)"
    ).createOrReplaceTempView("calls")
    spark.udf.register("total", lambda a, b: None if a is None or b is None else a + b, "int")
    spark.udf.register("joined", lambda a, b: f"{a}-{b}")
    spark.udf.register("later", lambda a, b: a and b and max(a, b) + timedelta(days=1), "date")
    spark.udf.register("times", lambda a, b: a and b and a * b / 3, "decimal(12,3)")
    spark.udf.register("wrong", lambda a, b: "5", "int")
    spark.udf.register("listed", lambda a, b: [*(a or []), b], "array<string>")
    spark.udf.register("moment", lambda a, b: a and datetime(a.year, b, 1, 2, 3), "timestamp_ntz")

    def product(a, b):  # type: ignore[no-untyped-def]
        return a * b

    product.__annotations__ = {"a": pd.Series, "b": pd.Series, "return": pd.Series}
    spark.udf.register("product", F.pandas_udf(product, "double"))  # type: ignore[call-overload, unused-ignore]
    return spark


CONDITIONS = (
    "total(a.id, b.id) > 5",
    "joined(a.k, b.k) IN ('a-b', 'b-None', 'None-5')",
    "later(a.d, b.d) = DATE '2024-04-01'",
    "times(a.p, b.p) > 150.5",
    "wrong(a.id, b.id) IS NULL",
    "size(listed(a.tags, b.k)) > 2",
    "product(a.x, b.x) > 3",
    "moment(a.d, b.id) < TIMESTAMP_NTZ '2024-04-01 00:00:00'",
    "exists(a.tags, t -> t = b.k)",
    "exists(a.tags, t -> t LIKE b.k || '%') OR forall(b.tags, t -> t > a.k)",
    "aggregate(a.tags, 0, (n, t) -> n + length(concat(t, b.k))) > 3",
    "a.loc = b.loc",
    "a.loc.city = b.loc.city",
    "struct(a.loc.city, b.id) IN (struct('x', 3), struct('y', 5))",
    "named_struct('c', a.loc.city, 'n', b.id).n > 3",
    "hash(a.k, b.k) % 2 = 0",
    "map(a.id, a.k, -b.id, b.k)[-4] = 'abc'",
    "format_string('%s/%05.1f', a.k, b.x - a.x) = 'a/001.0'",
    "format_string('%X/%X', a.id, b.loc.no) = '1/NULL'",
    "a.loc IN (b.loc, NULL)",
    "a.loc BETWEEN b.loc AND struct('z', b.id)",
    "nullif(a.loc, b.loc) IS NULL",
    "equal_null(a.loc, b.loc)",
    "format_number(a.x / b.id + 0.1D, 18) = '0.850000000000000000'",
    "from_unixtime(a.id - b.id + 9223372036854775807, 'yyyy') IN ('1969', '1970')",
    "format_number((a.x - b.x) * 0 + 1e22D / 3, 3) LIKE '3,333,333,333,333,333,_00,000.000'",
)


def test_patterns_with_calls_take_the_rows_that_a_join_takes(rows: SparkSession) -> None:
    clauses = [
        # Any row as a, then any later row as b that satisfies the condition, the nearest first.
        f"SELECT {number} AS n, m.* FROM calls MATCH_RECOGNIZE (ORDER BY id "
        "MEASURES a.id AS f, b.id AS l AFTER MATCH SKIP TO NEXT ROW "
        f"PATTERN (a z*? b) DEFINE b AS {condition}) AS m"
        for number, condition in enumerate(CONDITIONS)
    ]
    found = cep.sql(rows, " UNION ALL ".join(clauses)).collect()
    joined = " UNION ALL ".join(
        f"SELECT {number} AS n, a.id AS f, min(b.id) AS l FROM calls a JOIN calls b "
        f"ON a.id < b.id AND ({condition}) GROUP BY a.id"
        for number, condition in enumerate(CONDITIONS)
        if number != 7
    )
    expected = rows.sql(joined).collect()
    assert sorted(tuple(row) for row in found if row[0] != 7) == sorted(map(tuple, expected))
    assert {row[0] for row in expected} == set(range(len(CONDITIONS))) - {7}
    assert [tuple(row) for row in found if row[0] == 7] == [(7, 1, 2), (7, 2, 3)]


def test_a_cep_udf_is_called_for_rows_of_a_match(rows: SparkSession) -> None:
    known = dict(_REGISTERED)
    cep.udf(lambda a, b: (a - b).abs() < 6, returns="boolean", name="near_to")
    try:
        found = cep.sql(
            rows,
            "SELECT * FROM calls MATCH_RECOGNIZE (ORDER BY id MEASURES a.id AS f, b.id AS l "
            "AFTER MATCH SKIP TO NEXT ROW PATTERN (a z*? b) "
            "DEFINE b AS near_to(CAST(a.p AS DOUBLE), CAST(p AS DOUBLE)) AND upper(k) <> a.k)",
        ).collect()
    finally:
        _REGISTERED.clear()
        _REGISTERED.update(known)
    assert sorted(map(tuple, found)) == [(1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("bytes_of(a.k, k) IS NULL", "type is int"),
        ("failing(a.k, k) IS NULL", "failing failed: ZeroDivisionError"),
    ],
)
def test_what_a_function_returns_wrongly_is_an_error_with_its_name(
    rows: SparkSession, condition: str, message: str
) -> None:
    rows.udf.register("bytes_of", lambda a, b: [a], "int")
    rows.udf.register("failing", lambda a, b: 1 // 0, "int")
    df = cep.sql(
        rows,
        "SELECT * FROM calls MATCH_RECOGNIZE (ORDER BY id MEASURES a.id AS f PATTERN (a b) "
        f"DEFINE b AS {condition})",
    )
    with pytest.raises(Exception, match=message):
        df.collect()


@pytest.mark.parametrize(
    ("condition", "message", "hint"),
    [
        ("array_sort(a.tags, (l, r) -> length(l) - length(r) + id)[0] = 'b'", "array_sort()", ""),
        ("to_json(struct(a.k, id)) = k", "to_json()", "struct(a.x, y)"),
        ("date_format(date_add(a.d, id), 'uuuu') = '2024'", "the format 'uuuu'", ""),
        ("format_number(a.x + id, '#.#') = '1'", "format_number()", ""),
        ("array(a.p) = array(CAST(id AS DECIMAL(5, 3)))", "DECIMAL(5,3)", ""),
        ("random_value(a.k, k) = 1", "is not deterministic", ""),
        ("exists(a.tags, t -> PREV(k || t) = k)", "PREV cannot contain the argument", "PREV(kind)"),
    ],
)
def test_what_stays_refused_names_its_replacement(
    rows: SparkSession, condition: str, message: str, hint: str
) -> None:
    random = F.udf(lambda a, b: 1, "int").asNondeterministic()
    rows.udf.register("random_value", random)
    with pytest.raises(cep.PatternError) as caught:
        cep.sql(
            rows,
            "SELECT * FROM calls MATCH_RECOGNIZE (ORDER BY id MEASURES a.id AS f PATTERN (a b) "
            f"DEFINE b AS {condition})",
        )
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_calls_between_rows_are_the_same_over_a_stream(rows: SparkSession, tmp_path: Any) -> None:
    from pyspark.sql import types as T

    schema = T.StructType(
        [
            T.StructField("g", T.StringType()),
            T.StructField("ts", T.TimestampType()),
            T.StructField("n", T.IntegerType()),
            T.StructField("tags", T.ArrayType(T.IntegerType())),
        ]
    )
    begin = datetime(2024, 1, 1)
    data = [("g", begin + timedelta(minutes=n), n, [n + 1, n + 2]) for n in range(12)]
    text = (
        "SELECT * FROM {df} MATCH_RECOGNIZE (PARTITION BY g ORDER BY ts "
        "MEASURES a.n AS f, b.n AS l PATTERN (a z{0,3} b) WITHIN INTERVAL '5' MINUTES DEFINE b AS "
        "exists(a.tags, t -> t = n) AND total(a.n, n) > 2 AND hash(a.n, n) IS NOT NULL)"
    )
    batch = rows.createDataFrame(data, schema)
    expected = sorted(map(tuple, cep.sql(rows, text, df=batch).collect()))
    assert expected
    batch.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = rows.readStream.schema(schema).parquet(str(tmp_path / "in"))
    stream = stream.withWatermark("ts", "0 seconds")
    query = (
        cep.sql(rows, text, df=stream)
        .writeStream.format("memory")
        .queryName("calls_out")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    found = sorted(map(tuple, rows.table("calls_out").collect()))
    assert found
    assert found == expected[: len(found)]


def test_decimals_and_dates_are_those_of_sparks_workers(rows: SparkSession) -> None:
    rows.udf.register("seen", lambda *given: repr(given))
    values = "10.50BD, DATE '0999-12-31', TIMESTAMP_NTZ '2024-02-29 01:02:03.25', 7Y, TRUE"
    text = f"seen({values}, n, m)"
    (row,) = rows.sql(
        f"SELECT {text} AS seen FROM VALUES (1.5F, ARRAY(1.20BD, NULL)) t(n, m)"
    ).collect()
    assert repr(Decimal("10.50")) in row.seen
    assert repr(date(999, 12, 31)) in row.seen
    df = rows.sql(
        "SELECT 1 AS id, 1.5F AS n, ARRAY(1.20BD, NULL) AS m UNION ALL "
        "SELECT 2, 1.5F, ARRAY(1.20BD, NULL)"
    )
    found = cep.sql(
        rows,
        "SELECT * FROM {df} MATCH_RECOGNIZE (ORDER BY id MEASURES b.id AS l PATTERN (a b) "
        f"DEFINE b AS seen({values}, a.n, m) = :seen)",
        args={"seen": row.seen},
        df=df,
    ).collect()
    assert [each.l for each in found] == [2]
