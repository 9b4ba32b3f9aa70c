"""The score that Spark computes of a row is the one that Python computes, whatever its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pyspark.sql import functions as F

from spark_cep.expressions.shipment import Shipment
from spark_cep.spark import prepare
from spark_cep.spark.row_hashes import TIME, BlockHash, hashable_columns, tie_breaker
from spark_cep.spark.shedding import (
    DROPPED,
    SCORE,
    RowScoring,
    mark_below_cuts,
    mark_dropped,
    score_rows,
)
from spark_cep.spark.shedding_cuts import cuts_of
from spark_cep.spark.typing import type_of
from spark_cep.udfs.shedding.passing import (
    NAMED_KINDS,
    ORDERED_KINDS,
    Feature,
    PassTable,
    as_numbers,
    feature_of,
)
from spark_cep.udfs.shedding.quota import RowKind, row_thresholds
from spark_cep.udfs.shedding.utility import LEVELS, Role, Utilities, utilities_of
from spark_cep.udfs.values.arrow_values import to_single_array

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# SQL of the values of a column; NULL is added.
VALUES = {
    "TINYINT": ["-128", "0", "127"],
    "INT": ["-2147483648", "-1", "0", "1", "2147483647"],
    "BIGINT": [
        *("-9223372036854775808", "-9223372036854775807", "9007199254740993", "0"),
        *("9223372036854774783", "9223372036854775806", "9223372036854775807"),
    ],
    "FLOAT": ["'NaN'", "'-Infinity'", "-0.0", "0.1", "16777216", "'Infinity'"],
    "DOUBLE": ["'NaN'", "'-Infinity'", "-1.5", "-0.0", "0.0", "5e-324", "1e300", "'Infinity'"],
    "DECIMAL(10,2)": ["-99999999.99", "-0.01", "0", "0.29", "1.10"],
    "DECIMAL(18,4)": ["90071992547409.9301", "90071992547409.9302", "99999999999999.9999"],
    "DECIMAL(38,18)": ["12345678901234567890.123456789012345678", "0.299999999999999989", "-1"],
    "DATE": ["'0001-01-01'", "'1969-12-31'", "'1970-01-01'", "'9999-12-31'"],
    "TIMESTAMP": [
        *("'0001-01-01 00:00:00'", "'1500-02-03 04:05:06.000007'", "'1969-12-31 23:59:59.999999'"),
        *("'2024-05-01 12:00:00'", "'2024-05-01 12:00:00.000001'", "'9999-12-31 23:59:59'"),
    ],
    "TIMESTAMP_NTZ": [
        *("'0001-01-01 00:00:00'", "'1969-12-31 23:59:59.999999'", "'2024-05-01 12:00:00.000001'"),
        *("'2024-05-01 12:00:00'", "'9999-12-31 23:59:59'"),
    ],
    "BOOLEAN": ["TRUE", "FALSE"],
}  # fmt: skip
TEXTS = [
    "", " ", "a", "A", "it's", '"both"', "back\\slash", "\\", "\\n", "new\nline", "tab\t",
    "ünïcode", "日本", "😀", "%_", "${spark.app.name}", "${env:HOME}", "a:b", "?", "--", "/*",
    "x" * 300, "\0",
]  # fmt: skip


@pytest.fixture(params=["ansi", "not ansi", "escaped", "no substitution"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    name, value = {
        "ansi": ("spark.sql.ansi.enabled", "true"),
        "not ansi": ("spark.sql.ansi.enabled", "false"),
        "escaped": ("spark.sql.parser.escapedStringLiterals", "true"),
        "no substitution": ("spark.sql.variable.substitute", "false"),
    }[request.param]
    spark.conf.set(name, value)
    yield spark
    spark.conf.unset(name)


def masked(spark: SparkSession, sql_type: str) -> DataFrame:
    """Every value as a row that may be variable 0, one of them NULL."""
    rows = ", ".join(f"(CAST({value} AS {sql_type}))" for value in [*VALUES[sql_type], "NULL"])
    return spark.sql(f"SELECT x, 1 AS {prepare.MASK} FROM VALUES {rows} AS v(x)").coalesce(1)


def shipped(rows: DataFrame, names: Sequence[str]) -> tuple[Shipment, pa.Table]:
    shipment = Shipment(rows.columns)
    for name in names:
        shipment.column(name)
    return shipment, prepare.select_shipped(rows, shipment).df.toArrow()


def agrees(rows: DataFrame, shipment: Shipment, table: pa.Table, utilities: Utilities) -> list[int]:
    """The levels, after comparing them with Spark's."""
    mask = np.array([row[0] for row in rows.select(prepare.MASK).collect()], dtype=np.int64)
    how = RowScoring(shipment, utilities, ("x",), 0)
    found = score_rows(rows, how).select(F.floor(SCORE)).collect()
    levels: list[int] = utilities.levels(mask, table).tolist()
    assert [row[0] for row in found] == levels
    return levels


def one(feature: Feature) -> Utilities:
    """Every bin has a share of its own."""
    shares = np.linspace(0.001, 1, feature.size)
    return utilities_of([PassTable(0, (0,), (feature,), shares, 0.5)], 1, 0)


@pytest.mark.parametrize("sql_type", VALUES)
def test_every_type_is_cut_alike_at_its_own_values(spark: SparkSession, sql_type: str) -> None:
    rows = masked(spark, sql_type)
    type_ = type_of(rows.schema["x"].dataType)
    shipment, table = shipped(rows, ["x"])
    features = []
    if type_.kind in ORDERED_KINDS:
        numbers, valid = as_numbers(table.column(0), type_)
        numbers = numbers if valid is None else numbers[valid]
        splits = np.unique(numbers[np.isfinite(numbers)])
        features.append(Feature(0, type_, splits=tuple(float(each) for each in splits)))
        features.append(Feature(0, type_, splits=(0.25, 1.0, 2.5, 3.0), period=3.5))
    if type_.kind in NAMED_KINDS:
        every = feature_of(0, type_, to_single_array(table.column(0)), 32, is_equal=True)
        assert every is not None
        features.append(every)
    assert features
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            levels = [agrees(rows, shipment, table, one(feature)) for feature in features]
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
        assert all(len(set(each)) > 1 for each in levels)


def test_texts_are_found_whatever_stands_in_them(session: SparkSession) -> None:
    rows = session.createDataFrame(
        [(text, 1) for text in [*TEXTS, "other", None]], ["x", prepare.MASK]
    )
    rows = rows.coalesce(1)
    shipment, table = shipped(rows, ["x"])
    type_ = type_of(rows.schema["x"].dataType)
    levels = agrees(rows, shipment, table, one(Feature(0, type_, values=tuple(TEXTS))))
    assert len(set(levels)) > len(TEXTS) - 3


def test_tables_of_many_columns_conditions_and_variables_agree(session: SparkSession) -> None:
    rows = session.range(0, 800, 1, 1).selectExpr(
        "CASE WHEN id % 11 > 0 THEN pmod(xxhash64(id, 1), 1000) / 100D END AS x",
        "CAST(pmod(xxhash64(id, 2), 1000) AS INT) AS y",
        "CASE WHEN id % 7 > 0 THEN char(65 + id % 5) END AS k",
        f"CAST(id % 8 AS TINYINT) AS {prepare.MASK}",
    )
    shipment, table = shipped(rows, ["x", "y", "k"])
    types = [type_of(rows.schema[name].dataType) for name in ("x", "y", "k")]
    made = [
        feature_of(place, type_, to_single_array(table.column(place)), 6, is_equal=place == 2)
        for place, type_ in enumerate(types)
    ]
    x, y, k = (feature for feature in made if feature is not None)
    random = np.random.default_rng(2)

    def table_of(variable: int, *features: Feature) -> PassTable:
        return PassTable(
            variable, (0,), features, random.random([f.size for f in features]) ** 4, 0.5
        )

    roles = (
        Role(0, (table_of(0, k, x), table_of(0, y)), 0.125),
        Role(1, (table_of(1, x, y, k),), 3.0),
        Role(0, (), 1e-3),
    )
    utilities = Utilities(roles, 0b11, 0b100, 0.9)
    mask = np.array([row[0] for row in rows.select(prepare.MASK).collect()], dtype=np.int64)
    found = (
        score_rows(rows, RowScoring(shipment, utilities, ("x", "y"), 0))
        .select(F.floor(SCORE))
        .collect()
    )
    may_be_shed = utilities.may_be_shed(mask)
    assert {int(each) for each in mask[may_be_shed]} == {1, 2, 3}
    levels = np.where(may_be_shed, utilities.levels(mask, table), -1)
    assert [-1 if row[0] is None else row[0] for row in found] == levels.tolist()
    assert len(set(levels.tolist())) > 50
    # What is dropped is the same, too.
    kinds = [RowKind(1, 1, 1, 400.0), RowKind(3, 1, 1, 1e9)]
    dropped = mark_dropped(score_rows(rows, RowScoring(shipment, utilities, ("x", "y"), 0)), kinds)
    expected = may_be_shed & (levels < row_thresholds(kinds, mask))
    assert [row[0] for row in dropped.select(DROPPED).collect()] == expected.tolist()


@pytest.mark.parametrize(
    ("sql_type", "blocks"),
    [("DOUBLE", 1.0), ("DOUBLE", 0.6), ("DOUBLE", 0.0), ("DECIMAL(10,2)", 0.6), ("TIMESTAMP", 0.6)],
)
def test_cuts_drop_the_rows_whose_score_is_below_the_threshold(
    spark: SparkSession, sql_type: str, blocks: float
) -> None:
    values = ", ".join(f"CAST({value} AS {sql_type})" for value in [*VALUES[sql_type], "NULL"])
    rows = spark.range(0, 4000, 1, 1).selectExpr(
        f"element_at(array({values}), 1 + CAST(id % {len(VALUES[sql_type]) + 1} AS INT)) AS x",
        "pmod(xxhash64(id), 1000) / 10D AS y",
        f"CAST(pmod(xxhash64(id, 2), 16) AS TINYINT) AS {prepare.MASK}",
    )
    shipment, table = shipped(rows, ["x", "y"])
    numbers, valid = as_numbers(table.column(0), type_of(rows.schema["x"].dataType))
    numbers = numbers if valid is None else numbers[valid]
    splits = [float(each) for each in np.unique(numbers[np.isfinite(numbers)])]
    random = np.random.default_rng(4)

    def table_of(variable: int, place: int, splits: Sequence[float]) -> PassTable:
        type_ = type_of(rows.schema["xy"[place]].dataType)
        feature = Feature(place, type_, splits=tuple(splits))
        return PassTable(variable, (0,), (feature,), random.random(feature.size) ** 4, 0.5)

    # The kinds: two tables of a column, one of another one, none, and rows that a NOT needs.
    tables = table_of(0, 0, splits), table_of(0, 0, splits[1::2])
    roles = (Role(0, tables), Role(1, (table_of(1, 1, (20, 50, 80)),), 0.5), Role(2, (), 0.2))
    utilities = Utilities(roles, 0b111, 0b1000, 0.9)
    block = BlockHash(F.col("y"), f"CAST({TIME} AS BIGINT)", (F.col("x"),), 7)
    how = RowScoring(shipment, utilities, ("x", "y"), 0, blocks, block)
    scores = score_rows(rows, how)
    known = sorted(row[0] for row in scores.select(SCORE).collect() if row[0] is not None)
    for level in (known[len(known) // 3], known[-1] - 1e-9, -300.25):
        kinds = [RowKind(1, 1, 1, level), RowKind(2, 1, 1, level), RowKind(4, 1, 1, level + 50)]
        kinds += [RowKind(5, 1, 1, level)]
        cuts = cuts_of(utilities, kinds)
        assert cuts is not None
        found = mark_below_cuts(rows, how, kinds, cuts)
        expected = mark_dropped(scores, kinds)
        assert found.columns == expected.columns
        assert found.select(DROPPED).collect() == expected.select(DROPPED).collect()
    # A row that may be two variables by two columns has no cut.
    assert cuts_of(utilities, [RowKind(3, 1, 1, 0.5)]) is None


def test_a_rows_own_number_is_even_and_hangs_on_seed_and_values(spark: SparkSession) -> None:
    rows = spark.range(0, 20_000, 1, 2).selectExpr("id", "CAST(id AS STRING) AS `a b.c`")
    columns = hashable_columns(rows.schema)
    numbers = np.array([row[0] for row in rows.select(tie_breaker(columns, 5)).collect()])
    others = np.array([row[0] for row in rows.select(tie_breaker(columns, 6)).collect()])
    counts = np.histogram(numbers, 10, (0, 1))[0]
    assert counts.sum() == 20_000
    # Five standard deviations.
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(1800)
    assert abs(np.corrcoef(numbers, others)[0, 1]) < 0.04
    assert len(np.unique(numbers)) == 20_000


def test_columns_that_spark_cannot_hash_are_left_out(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 1 AS i, 'x' AS s, map(1, 2) AS m, array(map(1, 2)) AS am,"
        " named_struct('m', map(1, 2)) AS sm, named_struct('a', 1) AS st, array(1) AS a,"
        " DATE '2024-01-01' AS d, X'00' AS bin,"
        " INTERVAL '1' DAY AS day, INTERVAL '1' MONTH AS month, make_interval(1) AS span,"
        " parse_json('1') AS v, array(parse_json('1')) AS av, CAST(NULL AS VOID) AS n,"
        " 1.5BD AS dec, 'x' COLLATE UTF8_LCASE AS c, TIMESTAMP_NTZ '2024-01-01 00:00:00' AS ntz"
    )
    columns = hashable_columns(rows.schema)
    assert set(rows.columns) - set(columns) >= {"m", "am", "sm", "v", "av"}
    assert {"i", "s", "st", "a", "d", "bin", "dec", "c", "ntz", "day", "month"} <= set(columns)
    assert 0 <= rows.select(tie_breaker(columns, 0)).first()[0] < 1  # type: ignore[index]


def test_the_best_score_is_below_the_threshold_of_a_kind_that_keeps_none(
    spark: SparkSession,
) -> None:
    rows = spark.range(3).selectExpr("id AS x", f"1 AS {prepare.MASK}")
    shipment, _ = shipped(rows, ["x"])
    how = RowScoring(shipment, utilities_of((), 1, 0), ("x",), 0)
    assert all(0 <= row[0] < 1 for row in score_rows(rows, how).select(SCORE).collect())
    dropped = mark_dropped(score_rows(rows, how), [RowKind(1, 3, 0, float(LEVELS + 1))])
    assert [row[0] for row in dropped.select(DROPPED).collect()] == [True] * 3
