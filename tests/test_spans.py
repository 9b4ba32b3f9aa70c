"""Every node of an expression knows its own text."""

from __future__ import annotations

import pytest
from sqlglot import exp

from spark_cep.expressions.problems import Place
from spark_cep.expressions.syntax import SyntaxProblem, parse_expression


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("CASE WHEN a.x > 1 THEN 2 END = -b.y", exp.Case, "CASE WHEN a.x > 1 THEN 2 END"),
        ("CASE a.x WHEN 1 THEN 2 END = b.y", exp.Case, "CASE a.x WHEN 1 THEN 2 END"),
        ("b.y < if(a.x > 1, 2, 3)", exp.If, "if(a.x > 1, 2, 3)"),
        ("b.ts < a.ts + INTERVAL '5' MINUTES", exp.Interval, "INTERVAL '5' MINUTES"),
        ("b.ts < a.ts + INTERVAL 5 minutes", exp.Interval, "INTERVAL 5 minutes"),
        ("(a.x + 1) * 2 < b.x", exp.Mul, "(a.x + 1) * 2"),
        ("a.x IS NOT NULL OR b.x", exp.Not, "a.x IS NOT NULL"),
        ("b.x = 1 OR a.x NOT IN (1, (2))", exp.Not, "a.x NOT IN (1, (2))"),
        ("a.x::decimal(10, 2) < b.x", exp.TryCast, "a.x::decimal(10, 2)"),
        ("element_at(a.m, 'k') <=> b.z", exp.Anonymous, "element_at(a.m, 'k')"),
        ("a.m['k'].f = b.z", exp.Dot, "a.m['k'].f"),
        ("b.z = transform(a.arr, x -> x + a.y)", exp.Anonymous, "transform(a.arr, x -> x + a.y)"),
        ("a.x /* < */ + -- c\n 1 < b.x", exp.Add, "a.x /* < */ + -- c\n 1"),
        ("'é😀' = b.x AND upper(a.s) = 'Ü'", exp.Anonymous, "upper(a.s)"),
        ("DATE '2020-01-01' < a.d", exp.Cast, "DATE '2020-01-01'"),
        ("EXTRACT(YEAR FROM a.ts) = b.y", exp.Extract, "EXTRACT(YEAR FROM a.ts)"),
        ("timestampdiff(MINUTE, a.t, b.t) = 1", exp.Anonymous,
         "timestampdiff(MINUTE, a.t, b.t)"),
        ("b.x = 'it''s'", exp.Concat, "'it''s'"),
    ],
)  # fmt: skip
def test_a_node_is_cut_out_as_it_was_written(
    text: str, kind: type[exp.Expr], expected: str
) -> None:
    parsed = parse_expression(text)
    (node, *_) = parsed.root.find_all(kind)
    assert parsed.cut(node) == expected


def test_what_cannot_be_cut_exactly_is_refused() -> None:
    parsed = parse_expression("a.x NOT IN (1, 2)")
    inner = parsed.root.find(exp.In)
    assert inner is not None
    with pytest.raises(SyntaxProblem):
        parsed.cut(inner)


def test_calls_are_found_by_the_name_that_was_written() -> None:
    parsed = parse_expression(
        "RAND ( ) > a.count AND mean(a.x) IN (1) AND CAST(a.y AS DECIMAL(3)) > now()"
    )
    names = [name for name, _ in parsed.calls(parsed.root)]
    assert names == ["rand", "mean", "cast", "decimal", "now"]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("a.x b", "b"),
        ("a.x = b.x)", ")"),
        ("a.x AS y", "AS"),
        ("a.x;", ";"),
        ("SELECT 1", "SELECT"),
        ("a.x = `b", "`b"),
        ("a.x /* b", "/* b"),
        ("a.x\n = = b.x", "= b.x"),
    ],
)
def test_syntax_errors_say_where(text: str, marked: str) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse_expression(text)
    assert text[caught.value.place.start :].startswith(marked)


def test_places_count_lines_and_columns_from_one() -> None:
    place = Place("a\n\tbc d", 3, 5)
    assert place.line_and_column() == (2, 2)
    assert place.drawing() == "\tbc d\n\t^^"
