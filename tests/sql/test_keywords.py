"""Every keyword of Spark is an ordinary name, as it is for Spark.

tests/fixtures/keywords.txt has what `SELECT keyword FROM sql_keywords()` gives in Spark 4.3. Spark
takes all of them unquoted as columns and aliases, except TRUE, FALSE and NULL
(tests/spark/test_names.py asks Spark).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlglot import exp

from spark_cep.events.compile import compile_pattern
from spark_cep.events.measures import compile_measures
from spark_cep.expressions.schema import ColumnInfo
from spark_cep.expressions.syntax import parse_expression
from spark_cep.rows.compile import compile_row_pattern
from spark_cep.sql.composer import QueryComposer, SessionFunctions, match_clauses
from spark_cep.sql.location import _NOT_AN_ALIAS, find_clauses
from spark_cep.sql.statement import Statement
from spark_cep.udfs.expressions import BIGINT, BOOL, Type
from tests.compiling import FakeShipment
from tests.fake_typer import FakeTyper
from tests.sql.recorded import Rows

if TYPE_CHECKING:
    from spark_cep.pattern import Pattern


class AnyType(FakeTyper):
    """Over a match every expression is BOOLEAN."""

    def of_match(
        self, expressions: Sequence[str], variables: Mapping[str, bool]
    ) -> list[Type | str]:
        return [BOOL for _ in expressions]


WORDS = (Path(__file__).parents[1] / "fixtures" / "keywords.txt").read_text().split()
CONSTANTS = {"true", "false", "null"}
# Spark itself reads `CASE not WHEN` and `not + 1` as the operator.
AMBIGUOUS = {"case", "not", "when", "distinct"}
NAMES = [word for word in WORDS if word not in CONSTANTS]
FORMS = (
    "{w}", "{w} > 1", "1 < {w}", "{w} * 2 - 1", "-{w}", "q > 1 AND {w} AND y", "NOT {w}", "({w})",
    "{w}.price > 1", "a.{w} > 1", "{w}.{w}", "f({w}, {w}.price)", "{w} IN (1, 2)", "{w} IS NULL",
    "{w} BETWEEN 1 AND {w}", "CAST({w} AS INT)", "{w}[0]", "count(DISTINCT {w})",
    "filter(q, {w} -> {w} > 1)", "LAST({w}.price) - PREV({w}, 2)", "q > {w}",
)  # fmt: skip
FURTHER_FORMS = (
    "{w} LIKE 'a'", "{w} + 1", "q > ({w} - 1) * {w}.price", "CASE {w} WHEN {w} THEN 1 END",
    "CASE WHEN {w} > 1 THEN {w} ELSE {w} END",
)  # fmt: skip


def tree(text: str, word: str) -> exp.Expr:
    """The tree with the word replaced by another name."""
    root = parse_expression(text, lambda name: name == word).root
    for each in root.find_all(exp.Identifier):
        each.set("quoted", False)
        if each.this == word:
            each.set("this", "zz")
    return root


@pytest.mark.parametrize("form", [*FORMS, *FURTHER_FORMS])
def test_a_keyword_is_read_as_any_other_name(form: str) -> None:
    words = [each for each in NAMES if form in FORMS or each not in AMBIGUOUS]
    expected = tree(form.format(w="zz"), "zz")
    assert [word for word in words if tree(form.format(w=word), word) != expected] == []


@pytest.mark.parametrize(
    "text",
    [
        "DATE '2024-01-01' < day", "INTERVAL '5' DAYS", "INTERVAL -5 DAYS", "NOT x", "NOT -x > 1",
        "CASE WHEN a THEN 1 END", "CASE x WHEN 1 THEN 2 ELSE 3 END", "CASE -x WHEN 1 THEN 2 END",
        "x IS NOT DISTINCT FROM y", "EXTRACT(YEAR FROM ts)", "trim(BOTH ' ' FROM x)", "count(*)",
        "count(DISTINCT x)", "CAST(x AS STRUCT<date: INT, map: MAP<INT, DATE>>)", "x NOT IN (1)",
        "left(x, 1) = right(y, 1)", "TIMESTAMP '2024-01-01 00:00:00'", "if(x, 1, 2)", "any(x)",
        "substring(x FROM 1 FOR 2)", "x IS TRUE AND y IS NULL", "(SELECT max(date) FROM t)",
        "count(*) FILTER (WHERE NOT x)", "sum(x) FILTER (WHERE -x > 1)",
    ],
)  # fmt: skip
def test_the_words_of_the_grammar_stay_words(text: str) -> None:
    names = parse_expression(text).root.find_all(exp.Identifier)
    assert not any(each.args["quoted"] for each in names)


def test_a_function_without_parentheses_is_a_column_if_there_is_one() -> None:
    assert isinstance(parse_expression("current_date").root, exp.CurrentDate)
    assert isinstance(parse_expression("current_date", lambda _: True).root, exp.Column)


# Directly behind PARTITION BY, `as` needs backticks: elsewhere that is a measure called by.
@pytest.mark.parametrize("word", [each for each in NAMES if each != "as"])
def test_a_keyword_is_a_variable_a_column_and_an_alias(word: str) -> None:
    infos = [ColumnInfo(word, BOOL), ColumnInfo("ts", BIGINT), ColumnInfo("n", BIGINT)]
    compiled = []

    def match(_: object, pattern: object, **options: object) -> Rows:
        compiled.append(
            compile_row_pattern(
                pattern,  # type: ignore[arg-type]
                infos,
                order_by=options["order_by"],
                partition_by=options["partition_by"],
                typer=FakeTyper(infos),
                shipment=FakeShipment(),
                time_zone="UTC",
                measures=tuple(options["measures"].items()),  # type: ignore[attr-defined]
                after_match=options["after_match"],  # type: ignore[arg-type]
            )
        )
        return Rows("matches")

    alias = "" if word.upper() in _NOT_AN_ALIAS else f"AS {word}"
    text = (
        f"SELECT * FROM t {alias} MATCH_RECOGNIZE (PARTITION BY {word} ORDER BY ts, {word} "
        f"MEASURES LAST({word}.n) AS {word}, {word}.{word} AS m1, count({word}) AS m2, "
        f"CLASSIFIER({word}) AS m3 AFTER MATCH SKIP TO LAST {word} "
        f"PATTERN (b {word}+ | c) SUBSET u = (b, {word}) "
        f"DEFINE {word} AS {word}.n > 1 AND NOT {word}.{word} AND {word}, b AS {word})"
    )
    statement = Statement(text)
    composer = QueryComposer(statement)
    session = SessionFunctions(lambda _: Rows("input"), match)
    match_clauses(composer, find_clauses(statement), session)
    (found,) = compiled
    assert [each.name for each in found.variables] == ["b", word, "c"]
    assert [each.name for each in found.measures] == [word, "m1", "m2", "m3"]


@pytest.mark.parametrize("word", [each for each in NAMES if each != "not"])
def test_a_keyword_is_a_variable_of_an_event_pattern(word: str) -> None:
    found: list[str] = []

    def match(_: object, pattern: Pattern, **options: object) -> Rows:
        infos = [ColumnInfo(word, BOOL), ColumnInfo("ts", BIGINT), ColumnInfo("n", BIGINT)]
        compiled = compile_pattern(
            pattern, infos, order_by="ts", partition_by=None, typer=FakeTyper(infos),
            shipment=FakeShipment(), time_zone="UTC",
        )  # fmt: skip
        measures: dict[str, str] = options["measures"]  # type: ignore[assignment]
        made = compile_measures(measures, compiled, infos, typer=AnyType(infos))
        found.extend(each.text for each in made.measures)
        return Rows("matches")

    text = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES {word}.n AS {word}, "
        f"sum(b.n) AS m1, {word}.{word} AS m2 PATTERN SEQ({word}, b+, c) WITHIN 5 "
        f"DEFINE {word} AS {word}, b AS {word}.n < b.n, c AS NOT {word}.{word} AND c.{word})"
    )
    statement = Statement(text)
    session = SessionFunctions(lambda _: Rows("input"), match)
    match_clauses(QueryComposer(statement), find_clauses(statement), session)
    assert (found[0], found[2]) == (f"`{word}`.`n`", f"`{word}`.`{word}`")
