"""Functions between rows of a match against Spark: alone, and in patterns through SQL."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import spark_cep as cep
from spark_cep.expressions.conditions import TypeMismatch
from spark_cep.udfs.expressions import Type
from spark_cep.udfs.functions import fdlibm
from spark_cep.udfs.functions.float_texts import float_text
from spark_cep.udfs.functions.registry import FUNCTIONS, Binding
from tests.fixtures import functions
from tests.function_calls import ERROR, evaluate, same
from tests.function_cases import GROUPS, SETTINGS
from tests.test_functions import ULPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    on, zone = SETTINGS[request.param]
    spark.conf.set("spark.sql.ansi.enabled", str(on).lower())
    spark.conf.set("spark.sql.session.timeZone", zone)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(("ansi", "setting"), [(s, s) for s in SETTINGS], indirect=["ansi"])
@pytest.mark.usefixtures("ansi")
def test_functions_give_what_this_spark_gives_for_every_pair_of_rows(
    spark: SparkSession, setting: str
) -> None:
    df = functions.rows(spark)
    made = functions.translator(df, setting)
    failing = {case.text for case in functions.cases(setting) if ERROR in case.expected}
    translated = []
    for group, texts in GROUPS.items():
        for text in texts:
            try:
                each = made.translate(text)
            except TypeMismatch:
                continue  # older versions of Spark lack functions
            if text not in failing:
                translated.append((group, each))
    table = functions.shipped(df, made)
    answers = functions.answers(functions.pairs_of(df), [each.spark for _, each in translated])
    wrong = [
        (each.text, pair, expected, value)
        for (group, each), results in zip(translated, answers, strict=True)
        for pair, (expected, value) in enumerate(
            zip(results, evaluate(each.expression, table, ansi=SETTINGS[setting][0]), strict=True)
        )
        if not same(expected, value, ULPS.get(group, 0))
    ]
    assert not wrong[:10]
    assert len(translated) > 250


def test_logarithms_and_powers_have_the_digits_of_strict_math(spark: SparkSession) -> None:
    generator = np.random.default_rng(7)
    x = np.exp(generator.uniform(-300, 300, 3000))
    y = generator.uniform(-30, 30, 3000)
    df = spark.createDataFrame(list(zip(x.tolist(), y.tolist(), strict=True)), "x double, y double")
    columns = "x", "y", "ln(x)", "log10(x)", "exp(y)", "pow(x, y)", "pow(exp(y), 1 / y)"
    wrong = [
        tuple(row)
        for row in df.selectExpr(*columns).collect()
        if tuple(row[2:])
        != (
            fdlibm.log(row[0]),
            fdlibm.log10(row[0]),
            fdlibm.exp(row[1]),
            fdlibm.power(row[0], row[1]),
            fdlibm.power(fdlibm.exp(row[1]), 1 / row[1]),
        )
    ]
    assert not wrong[:5]


def test_floats_are_printed_as_this_java_prints_them(spark: SparkSession) -> None:
    probe = "CAST(5.684341886080802E-14D AS STRING) = '5.684341886080802E-14'"
    shortest = spark.sql(f"SELECT {probe}").first()[0]  # type: ignore[index]
    generator = np.random.default_rng(3)
    raw = generator.integers(0, 1 << 63, 3000, dtype=np.uint64).view(np.float64)
    numbers = [
        *raw[np.isfinite(raw)].tolist(),
        *[2.0**n for n in range(-1074, 1024, 7)],
        *[float(10**n) for n in range(23)],
        *generator.uniform(0, 1e8, 500).tolist(),
        *np.round(generator.uniform(0, 1e3, 500), 2).tolist(),
    ]
    df = spark.createDataFrame([(each,) for each in numbers], "x double")
    wrong = [
        tuple(row)
        for row in df.selectExpr("x", "string(x)", "float(x)", "string(float(x))").collect()
        if row[1] != float_text(row[0], 64, shortest=shortest)
        or row[3] != float_text(row[2], 32, shortest=shortest)
    ]
    assert not wrong[:5]


def test_upper_and_lower_case_are_those_of_spark(spark: SparkSession) -> None:
    every = [chr(n) for n in range(1, 0x2FFF) if not chr(n).isspace()]
    every += ["ΑΣ", "ΑΣ ΑΣ.", "ß", "ﬁx", "İi", "ǆx", "aΣb"]
    df = spark.createDataFrame([(each,) for each in every], "x string")
    wrong = [
        (hex(ord(row[0][0])), *row)
        for row in df.selectExpr("x", "upper(x)", "lower(x)").collect()
        if (row[1], row[2]) != (_apply("upper", row[0]), _apply("lower", row[0]))
        and not _is_newer(row[1] + row[2])
    ]
    assert not wrong


def _is_newer(text: str) -> bool:
    """Whether the Unicode of this Python does not have one of the letters yet."""
    return any(unicodedata.category(each) == "Cn" for each in text)


def _apply(name: str, text: str) -> Any:
    string = Type("string")
    return FUNCTIONS[name].bind(Binding((string,), string, ansi=True))(text)


# ---- in patterns -------------------------------------------------------------------------------


ROWS = """
    (1, 'a', 10.00BD, 1.5D, DATE '2024-01-31', ARRAY('b', 'ab'), 'b'),
    (2, 'ab', 20.00BD, 2.5D, DATE '2024-02-29', ARRAY('x'), 'a'),
    (3, 'b', 15.00BD, 0.5D, DATE '2024-03-31', ARRAY(), 'c'),
    (4, 'abc', 40.00BD, 9D, DATE '2024-05-01', NULL, 'ab'),
    (5, NULL, NULL, NULL, NULL, ARRAY('a', NULL), 'a')
"""
CONDITIONS = (
    "round(b.p / a.p, 2) > 1.5",
    "concat(a.k, b.k) = 'aab'",
    "b.k || a.k LIKE '%ba%'",
    "b.k LIKE a.k || '%'",
    "b.k NOT LIKE a.k || '%' AND b.id > 1",
    "b.k RLIKE concat('^', a.k)",
    "array_contains(a.tags, b.k)",
    "NOT array_contains(a.tags, b.g)",
    "add_months(a.d, 1) = last_day(b.d)",
    "months_between(b.d, a.d) >= 1.5",
    "year(date_add(a.d, b.id * 300)) > 2026",
    "pow(b.x, a.x) > 2 OR ln(b.x / a.x) > 0",
    "levenshtein(b.k, a.k) = 1",
    "b.d - a.d > INTERVAL '40' DAY OR b.d > a.d + INTERVAL 2 MONTHS",
    "CASE WHEN b.id > 2 THEN upper(concat(a.k, b.k)) ELSE b.k END LIKE '%B'",
    "size(array_intersect(a.tags, array(b.k, b.g))) = 1",
    "CAST(a.id + b.id AS STRING) RLIKE '^[3-5]$'",
    "substring(b.k, 1, length(a.k)) = a.k",
    "try_divide(b.p, a.x - 1.5) IS NULL",
)


def test_patterns_with_functions_take_the_rows_that_a_join_takes(spark: SparkSession) -> None:
    names = "id, k, p, x, d, tags, g"
    spark.sql(f"SELECT * FROM VALUES {ROWS} AS t({names})").createOrReplaceTempView("fn_rows")
    clauses = []
    for number, condition in enumerate(CONDITIONS):
        # Any row as a, then any later row as b that satisfies the condition, the nearest first.
        define = condition.replace("b.", "")
        clauses.append(
            f"SELECT {number} AS n, m.* FROM fn_rows MATCH_RECOGNIZE (ORDER BY id "
            "MEASURES a.id AS f, b.id AS l AFTER MATCH SKIP TO NEXT ROW "
            f"PATTERN (a z*? b) DEFINE b AS {define}) AS m"
        )
    found = cep.sql(spark, " UNION ALL ".join(clauses)).collect()
    joined = " UNION ALL ".join(
        f"SELECT {number} AS n, a.id AS f, min(b.id) AS l FROM fn_rows a JOIN fn_rows b "
        f"ON a.id < b.id AND ({condition}) GROUP BY a.id"
        for number, condition in enumerate(CONDITIONS)
    )
    expected = spark.sql(joined).collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, expected))
    assert {row[0] for row in expected} >= set(range(len(CONDITIONS))) - {6}


def test_a_function_that_depends_on_each_row_before_is_tested_row_by_row(
    spark: SparkSession,
) -> None:
    spark.sql(f"SELECT * FROM VALUES {ROWS} AS t(id, k, p, x, d, tags, g)").createOrReplaceTempView(
        "fn_rows"
    )
    df = cep.sql(
        spark,
        "SELECT * FROM fn_rows MATCH_RECOGNIZE (ORDER BY id MEASURES count(*) AS n, a.id AS f "
        "PATTERN (a b*) DEFINE b AS round(p / LAST(b.p, 1), 1) > 1 OR LAST(b.p, 1) IS NULL)",
    )
    # 20 is the first b; 15 / 20 is 0.8, so the match ends. 40 is the first b of the next.
    assert sorted(map(tuple, df.collect())) == [(1, 5), (2, 1), (2, 3)]
    assert cep.metrics(df)["asked"] > 0


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("array_sort(a.tags, (t, u) -> id)[0] = k", "does not compute array_sort()"),
        ("round(a.p, id) > 1", "foldable"),
        ("k RLIKE a.k AND regexp_replace(concat(a.k, k), 'a++', '') = ''", "possessive"),
        ("no_such_function(a.k, k) = 1", "no_such_function"),
        ("to_json(struct(a.k, k)) = k", "does not compute to_json() over several rows"),
    ],
)
def test_what_stays_refused_is_refused_before_any_job(
    spark: SparkSession, condition: str, message: str
) -> None:
    spark.sql(f"SELECT * FROM VALUES {ROWS} AS t(id, k, p, x, d, tags, g)").createOrReplaceTempView(
        "fn_rows"
    )
    with pytest.raises(cep.PatternError) as caught:
        cep.sql(
            spark,
            "SELECT * FROM fn_rows MATCH_RECOGNIZE (ORDER BY id MEASURES a.id AS f PATTERN (a b) "
            f"DEFINE b AS {condition})",
        )
    assert message in str(caught.value)
