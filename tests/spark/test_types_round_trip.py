"""Every Spark type passes through a match unchanged, with NULLs beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_cep as cep
from spark_cep import event, seq

pytestmark = pytest.mark.spark

VALUES = {
    "bigint beyond a double": "9007199254740993L",
    "tinyint": "CAST(-128 AS TINYINT)",
    "boolean": "true",
    "float": "CAST(0.1 AS FLOAT)",
    "double nan": "double('NaN')",
    "decimal": "CAST('12345678901234567890.123456789012345678' AS DECIMAL(38, 18))",
    "string": "'grüß'",
    "collated string": "'Grüß' COLLATE UTF8_LCASE",
    "binary": "X'00FF'",
    "date in year 1": "DATE '0001-01-01'",
    "timestamp in year 1": "TIMESTAMP '0001-01-03 00:00:00.000001'",
    "timestamp in year 9999": "TIMESTAMP '9999-12-31 23:59:59.999999'",
    "timestamp without zone in year 1": "TIMESTAMP_NTZ '0001-01-01 00:00:00.000001'",
    "timestamp without zone in a gap of summer time": "TIMESTAMP_NTZ '2024-03-10 02:30:00'",
    "time": "TIME '12:30:01.123456'",
    "days": "INTERVAL '1 02:03:04.000005' DAY TO SECOND",
    "years": "INTERVAL '-3-2' YEAR TO MONTH",
    "years only": "INTERVAL '7' YEAR",
    "calendar interval": "make_interval(1, -2, 3, 4, 5, 6, -7.000008)",
    "array": "array(1L, NULL, 9007199254740993L)",
    "map": "map('a', 1, 'b', NULL)",
    "struct": "named_struct('a', 1, 'b', array(map(1, 'x')))",
    "struct with one name twice": "named_struct('a', 1, 'A', 2)",
    "struct of intervals": "named_struct('y', INTERVAL '5' MONTH, 'c', array(make_interval(1)))",
    "map of intervals": "map(INTERVAL '5' MONTH, make_interval(0, 0, 0, 1))",
    "variant": "parse_json('{\"a\": [1, null]}')",
    "array of variants": "array(parse_json('1'), NULL)",
    "void": "NULL",
    "geometry": "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
}

PAIR = seq(event("a", "kind = 'A'"), event("b+", "kind = 'B'")).within(10)


@pytest.fixture(autouse=True, scope="module")
def _zone_with_summer_time(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Row 1 has a value in every column x0, x1, ..., row 2 has NULL."""
    columns = [
        F.expr(f"CASE WHEN t = 1 THEN {expression} END AS x{place}")
        for place, expression in enumerate(VALUES.values())
    ]
    two = spark.sql("SELECT * FROM VALUES (1, 'A'), (2, 'B') AS rows(t, kind)")
    return two.select("t", "kind", *columns)


@pytest.fixture(scope="module")
def expected(rows: DataFrame) -> list[Row]:
    return texts(rows.orderBy("t"), "")


@pytest.fixture(scope="module")
def matches(rows: DataFrame) -> DataFrame:
    return cep.match_pattern(rows, PAIR, order_by="t")


@pytest.fixture(scope="module")
def structs(matches: DataFrame) -> tuple[Row, Row]:
    """The texts of the one match's `a`, and of the first of its `b`s."""
    return texts(matches, "a.")[0], texts(matches, "b[0].")[0]


@pytest.fixture(scope="module")
def events(rows: DataFrame) -> DataFrame:
    return cep.match_pattern(rows, PAIR, order_by="t", rows="all")


@pytest.fixture(scope="module")
def event_texts(events: DataFrame) -> list[Row]:
    return texts(events.orderBy("t"), "")


def texts(df: DataFrame, prefix: str) -> list[Row]:
    """Every x as text that shows every digit."""
    names = [f"x{place}" for place in range(len(VALUES))]
    xs = df.select(*[F.expr(f"{prefix}{name} AS {name}") for name in names])
    return xs.select(*[F.expr(text(xs, name)).alias(name) for name in names]).collect()


def text(df: DataFrame, name: str) -> str:
    kind = df.schema[name].dataType.simpleString()
    if "variant" in kind:
        return f"to_json({name})"
    if kind.startswith("geometry"):
        return f"hex(st_asbinary({name}))"
    return f"hex({name})" if kind == "binary" else f"CAST({name} AS STRING)"


PLACES = pytest.mark.parametrize("place", range(len(VALUES)), ids=VALUES.keys())


@PLACES
def test_a_value_and_a_null_survive_in_structs_and_in_lists(
    place: int, expected: list[Row], structs: tuple[Row, Row]
) -> None:
    assert structs[0][place] == expected[0][place]
    assert structs[1][place] is None


@PLACES
def test_a_value_and_a_null_survive_in_rows(
    place: int, expected: list[Row], event_texts: list[Row]
) -> None:
    assert [row[place] for row in event_texts] == [row[place] for row in expected]


def test_types_survive(rows: DataFrame, matches: DataFrame, events: DataFrame) -> None:
    wanted = rows.schema.simpleString()
    assert matches.schema["a"].dataType.simpleString() == wanted
    assert matches.schema["b"].dataType.simpleString() == f"array<{wanted}>"
    assert events.drop("match_id", "variable").schema.simpleString() == wanted


def test_a_user_defined_type_survives(spark: SparkSession) -> None:
    from pyspark.testing.objects import ExamplePoint

    df = spark.createDataFrame(
        [(1, "A", ExamplePoint(1.0, 2.0)), (2, "B", None)], ["t", "kind", "x"]
    )
    row = cep.match_pattern(df, PAIR, order_by="t").collect()[0]
    assert row["a"]["x"] == ExamplePoint(1.0, 2.0)
    assert row["b"][0]["x"] is None


def test_partition_columns_keep_their_types_and_values(spark: SparkSession) -> None:
    keys = {
        "years": "INTERVAL '-3-2' YEAR TO MONTH",
        "number": "CAST(1.5 AS DECIMAL(38, 18))",
        "list": "array(named_struct('a', 1))",
        "time": "TIMESTAMP '0001-01-03 00:00:00'",
        "bytes": "X'00FF'",
    }
    two = spark.sql("SELECT * FROM VALUES (1, 'A'), (2, 'B') AS rows(t, kind)")
    df = two.select("t", "kind", *[F.expr(text).alias(name) for name, text in keys.items()])
    found = cep.match_pattern(df, PAIR, order_by="t", partition_by=list(keys)).select(*keys)
    given = df.filter("t = 1").select(*keys)
    assert found.schema.simpleString() == given.schema.simpleString()
    assert found.selectExpr("to_json(struct(*))").collect() == (
        given.selectExpr("to_json(struct(*))").collect()
    )
