"""Spark's analyzer as the compiler sees it: types, sentences, constants, and no job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from spark_cep.spark.typing import SparkTyper
from spark_cep.udfs.expressions import Constant, Type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT 1 AS i, CAST(1 AS DECIMAL(9, 2)) AS d, 'x' AS s, TIMESTAMP '2024-01-01' AS ts,"
        " 'x' COLLATE UTF8_LCASE AS c"
    )


def test_types_of_expressions_over_a_row(df: DataFrame) -> None:
    expressions = ["i", "d * 2", "upper(s)", "ts", "c", "array(i)", F.col("i") > 0]
    assert SparkTyper(df).of_row(expressions) == [
        Type("int", 32),
        Type("decimal", precision=11, scale=2),
        Type("string"),
        Type("timestamp"),
        Type("other"),
        Type("other"),
        Type("bool"),
    ]


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("nope + 1", "`nope` cannot be resolved"),
        ("s + ts", "due to data type mismatch"),
        ("i +", "Syntax error"),
        ("sum(i)", "an aggregate function has no place"),
        ("explode(array(i))", "generator is not supported"),
        ("no_such_function(i)", "no_such_function"),
    ],
)
def test_a_wrong_expression_gets_a_sentence_and_the_others_their_types(
    df: DataFrame, capfd: pytest.CaptureFixture[str], expression: str, sentence: str
) -> None:
    good, bad = SparkTyper(df).of_row(["i", expression])
    assert good == Type("int", 32)
    assert isinstance(bad, str)
    assert sentence in bad
    assert "SQLSTATE" not in bad
    assert "\n" not in bad
    # PySpark would log the failure to the console.
    assert "ERROR" not in capfd.readouterr().err


def test_types_of_expressions_over_a_match(df: DataFrame) -> None:
    typer = SparkTyper(df, order="ts", partition=["s"])
    found = typer.of_match(
        ["a.i + b[0].i", "size(b)", "match_end - match_start", "s", "b.i"], {"a": False, "b": True}
    )
    assert found == [
        Type("int", 32), Type("int", 32), Type("interval"), Type("string"), Type("other"),
    ]  # fmt: skip


CONSTANTS = {
    "1 + 1": Constant(2, Type("int", 32)),
    "-1.50": Constant(-150, Type("decimal", precision=3, scale=2)),
    "0.00": Constant(0, Type("decimal", precision=2, scale=2)),
    "1e300D": Constant(1e300, Type("float", 64)),
    "'it''s'": Constant("it's", Type("string")),
    "X'00FF'": Constant(b"\x00\xff", Type("binary")),
    "DATE '0001-01-01'": Constant(-719162, Type("date")),
    "TIMESTAMP '1970-01-01 00:00:01.000001Z'": Constant(1_000_001, Type("timestamp")),
    "TIMESTAMP_NTZ '1969-12-31 23:59:59'": Constant(-1_000_000, Type("timestamp_ntz")),
    "INTERVAL '1 00:00:01' DAY TO SECOND": Constant(86_401_000_000, Type("interval")),
    "INTERVAL '7' YEAR": Constant(84, Type("months")),
    "INTERVAL '-3-2' YEAR TO MONTH": Constant(-38, Type("months")),
    "CAST(NULL AS DATE)": Constant(None, Type("date")),
    "true": Constant(True, Type("bool")),
}


def test_constants_are_exact_and_start_no_job(spark: SparkSession, df: DataFrame) -> None:
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    assert SparkTyper(df).constants(list(CONSTANTS)) == list(CONSTANTS.values())
    assert set(tracker.getJobIdsForGroup(None)) == before


def test_a_constant_that_fails_gets_a_sentence_and_the_others_their_values(df: DataFrame) -> None:
    found = SparkTyper(df).constants(["1", "1 / 0", "CAST('x' AS INT)", "array(1)", "2"])
    assert [found[0], found[4]] == [Constant(1, Type("int", 32)), Constant(2, Type("int", 32))]
    assert "Division by zero" in str(found[1])
    assert "cannot be cast" in str(found[2])
    assert "array<int> cannot be used here" in str(found[3])
