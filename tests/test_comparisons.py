"""Comparisons that may be tested on any row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_cep.expressions.comparisons import (
    cannot_fail,
    conjuncts_of,
    is_comparison,
    is_strict,
)
from spark_cep.expressions.syntax import parse_expression
from spark_cep.udfs.expressions import Type

if TYPE_CHECKING:
    from sqlglot import exp

TYPES = {
    "s": Type("string"),
    "t": Type("string"),
    "i": Type("int", 32),
    "l": Type("int", 64),
    "n": Type("decimal", precision=10, scale=2),
    "wide": Type("decimal", precision=38, scale=10),
    "f": Type("float", 64),
    "b": Type("bool"),
    "d": Type("date"),
    "ts": Type("timestamp"),
    "collated": Type("other"),
}


def parse(text: str) -> exp.Expr:
    return parse_expression(text).root


def is_safe(text: str, *, floats: bool = True) -> bool:
    node = parse(text)
    return is_comparison(node) and cannot_fail(
        node, lambda column: TYPES.get(column.name), floats=floats
    )


@pytest.mark.parametrize(
    "text",
    [
        "s = 'x'", "s == 'x'", "'x' <> s", "s != 'x'", "s IN ('x', NULL)", "s NOT IN ('x')",
        "s LIKE 'x%'", "s NOT LIKE 'x%'", "s IS NULL", "s IS NOT NULL", "s = t", "s = NULL",
        "i > -5", "i = 1.5", "l BETWEEN 1 AND 2", "n < 100", "f > 10", "b = TRUE", "b <=> false",
        "d >= DATE '2024-01-31'", "d >= '2024-01-31'", "ts < TIMESTAMP '2024-01-31 10:00:00'",
        "ts < DATE '2024-01-31'", "NOT (i = 1 OR (i = 2 AND s = 'x'))",
    ],
)  # fmt: skip
def test_a_comparison_of_columns_with_literals_is_safe(text: str) -> None:
    assert is_safe(text)


@pytest.mark.parametrize(
    "text",
    [
        # Casts of the column or of the literal that may fail.
        "s = 5", "i = 'x'", "i = '5'", "d = 'soon'", "d = '2024-02-30'", "ts = 'now'", "b = 1",
        "i = l", "d < ts", "d < TIMESTAMP '2024-01-31 10:00:00'", "wide = 1.5",
        "l = 1234567890123456789012", "CAST(s AS INT) = 5", "s = CAST('x' AS STRING)",
        # What fails by itself.
        r"s LIKE 'x\\'", "s LIKE 'x' ESCAPE '/'", "1 / i > 2", "s RLIKE '('",
        # What may differ from row to row, or is not known.
        "rand() < 0.5", "i > rand()", "f(s) = 'x'", "upper(s) = 'X'", "collated = 'x'",
        "unknown = 1", "x.s.t = 'x'", "1 = 1", "b", "NOT b", "i + 1 = 2", "i = (SELECT 1)",
        "i IN (SELECT 1)", "s = 'x' 'y'", "i = :p",
    ],
)  # fmt: skip
def test_everything_else_is_not(text: str) -> None:
    assert not is_safe(text)


def test_floating_point_numbers_may_be_excluded() -> None:
    assert is_safe("f > 1.5")
    assert not is_safe("f > 1.5 AND i > 1", floats=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s = 'x'", True), ("s <> 'x'", True), ("s IN ('x', NULL)", True), ("s <=> 'x'", False),
        ("s IS NULL", False), ("s IS NOT NULL", True), ("NOT s = 'x'", True),
        ("NOT s <=> 'x'", False), ("s = 'x' OR t = 'y'", True), ("s = 'x' OR t IS NULL", False),
        ("(s = 'x' AND t IS NULL) OR s = 'y'", True), ("NOT (s = 'x' AND t = 'y')", False),
    ],
)  # fmt: skip
def test_a_strict_condition_is_not_true_of_nulls(text: str, expected: bool) -> None:
    assert is_strict(parse(text)) == expected


def test_thousands_of_parts_are_no_problem() -> None:
    text = " OR ".join(f"i = {number}" for number in range(3_000))
    assert is_safe(text)
    assert is_strict(parse(text))


def test_conjuncts_are_in_the_order_written() -> None:
    found = [each.sql() for each in conjuncts_of(parse("i = 1 AND (i = 2 AND (i = 3 OR i = 4))"))]
    assert found == ["i = 1", "i = 2", "i = 3 OR i = 4"]
