"""Names as Spark takes them, Spark's messages with the user's names, and patterns without order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, ParseException

import spark_cep as cep
from spark_cep.sql.session import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WORDS = (Path(__file__).parents[1] / "fixtures" / "keywords.txt").read_text().split()
# Those that begin a statement or an expression of their own.
STARTS = {"show", "call", "explain", "execute", "if", "else", "any", "all", "values", "drop"}
SAMPLE = sorted({*WORDS[::9], *STARTS} - {"true", "false", "null"})
TICKS = "(SELECT id AS n, timestamp_seconds(id) AS ts, id % 3 AS price FROM range(6))"
CLAUSE = "MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS m PATTERN (a b+))"


def test_spark_takes_every_keyword_as_a_name_that_we_take(spark: SparkSession) -> None:
    for word in WORDS:
        if word not in {"true", "false", "null"}:
            named = spark.range(1).selectExpr(f"id AS `{word}`")
            assert named.selectExpr(f"{word} * 2 AS {word}").columns == [word]


def test_keywords_are_variables_columns_and_aliases(spark: SparkSession) -> None:
    """All in one statement: as many columns and variables as the sample has words."""
    columns = ", ".join(f"id + {at} AS {word}" for at, word in enumerate(SAMPLE))
    rows = f"(SELECT id AS n, {columns} FROM range({len(SAMPLE) + 1}))"
    measures = ", ".join(f"{word}.{word} AS {word}" for word in SAMPLE)
    define = ", ".join(f"{word} AS {word} >= PREV(n) AND {word}.n >= 0" for word in SAMPLE)
    (row,) = sql(
        spark,
        f"SELECT * FROM {rows} MATCH_RECOGNIZE (ORDER BY n MEASURES {measures} "
        f"PATTERN (zz {' '.join(SAMPLE)}) DEFINE {define})",
    ).collect()
    assert list(row) == [1 + 2 * at for at in range(len(SAMPLE))]


def test_a_column_with_the_name_of_a_variable_is_counted(spark: SparkSession) -> None:
    (row,) = sql(
        spark,
        "SELECT * FROM VALUES (1, true), (2, false), (3, true), (4, false) t(id, buy) "
        "MATCH_RECOGNIZE (ORDER BY id MEASURES count(buy) AS m, count(buy.*) AS k, (buy) AS last "
        "PATTERN ((buy sell)+) DEFINE buy AS buy AND count(buy) > 0, sell AS NOT buy)",
    ).collect()
    assert tuple(row) == (4, 2, False)


def test_a_function_without_parentheses_may_be_a_column(spark: SparkSession) -> None:
    (row,) = sql(
        spark,
        "SELECT * FROM (SELECT id AS n, id * 2 AS current_date FROM range(3)) MATCH_RECOGNIZE ("
        "ORDER BY n MEASURES sum(current_date) AS s PATTERN (a b+) "
        "DEFINE b AS current_date > PREV(n))",
    ).collect()
    assert row.s == 6


def test_the_field_of_a_struct_with_the_name_of_a_variable(spark: SparkSession) -> None:
    (row,) = sql(
        spark,
        "SELECT * FROM (SELECT id AS n, struct(id AS city) AS a FROM range(3)) MATCH_RECOGNIZE ("
        "ORDER BY n MEASURES (a).city AS last, a.a.city AS first PATTERN (a b+) "
        "DEFINE b AS (a).city > 0)",
    ).collect()
    assert tuple(row) == (2, 0)


# ---- messages of Spark ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said", "word"),
    [
        (f"SELECT m\nFROM {TICKS} {CLAUSE}\n WHERE zz > 1", "zz", "zz"),
        (f"SELECT * FROM {TICKS} {CLAUSE}, {TICKS} {CLAUSE} z WHERE m > 1", "MATCH_REC", "m > 1"),
        (f"SELECT * FROM {TICKS} {CLAUSE} WHERE foo(m)", "foo", "foo"),
    ],
)
def test_an_analysis_error_has_the_users_names_and_places(
    spark: SparkSession, text: str, said: str, word: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        sql(spark, text)
    message = str(raised.value)
    before = text[: text.rindex(word)]
    line, position = before.count("\n") + 1, len(before) - before.rfind("\n") - 1
    assert said in message
    assert "_pyspark" not in message
    assert f"line {line} pos {position}" in message


def test_a_syntax_error_behind_the_clause_shows_the_statement(spark: SparkSession) -> None:
    text = f"SELECT * FROM {TICKS} {CLAUSE} WHERE m >"
    with pytest.raises(ParseException) as raised:
        sql(spark, text)
    assert "_pyspark" not in str(raised.value)
    assert text in str(raised.value)


def test_an_error_of_the_jvm_that_pyspark_does_not_convert(spark: SparkSession) -> None:
    text = "SELECT * FROM {} MATCH_RECOGNIZE (ORDER BY ts MEASURES {} AS m PATTERN (a))"
    with pytest.raises(cep.PatternError) as raised:
        sql(spark, text.format(TICKS, "string(LAST(n)) COLLATE nowhere"))
    assert "nowhere" in str(raised.value)
    assert "\tat " not in str(raised.value)


# ---- no order ------------------------------------------------------------------------------------


def test_a_row_pattern_without_an_order_warns_and_explains(spark: SparkSession) -> None:
    text = f"SELECT * FROM {TICKS} MATCH_RECOGNIZE (MEASURES count(*) AS m PATTERN (a+))"
    with pytest.warns(cep.PatternWarning, match="no ORDER BY") as warned:
        found = sql(spark, text)
    ours = [each.filename for each in warned if each.category is cep.PatternWarning]
    assert ours == [__file__]
    assert "order     none: rows come in no defined order" in str(cep.plan_of(found))
    assert found.collect()[0].m == 6


def test_a_measure_that_nothing_names_does_not_warn_twice(spark: SparkSession) -> None:
    clause = "MATCH_RECOGNIZE (MEASURES count(*) AS m, LAST(n) AS k PATTERN (a+))"
    with pytest.warns(cep.PatternWarning) as warned:
        sql(spark, f"SELECT m FROM {TICKS} {clause}")
    assert [each.category for each in warned].count(cep.PatternWarning) == 1
