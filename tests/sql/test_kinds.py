"""What a statement does with its query."""

from __future__ import annotations

import pytest

from spark_cep.errors import PatternError
from spark_cep.sql.kinds import (
    TemporaryView,
    check_not_permanent,
    check_single_statement,
    read_temporary_view,
)
from spark_cep.sql.statement import Statement

QUERY = "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (a))"


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("CREATE TEMP VIEW v AS ", TemporaryView("v", False, False, (), 5)),
        ("create or replace temporary view `a b` as ", TemporaryView("`a b`", True, False, (), 7)),
        ("CREATE GLOBAL TEMPORARY VIEW v AS ", TemporaryView("v", False, True, (), 6)),
        (
            "CREATE TEMP VIEW v (x COMMENT 'it', `y z`) COMMENT 'c' AS ",
            TemporaryView("v", False, False, (("x", "it"), ("y z", None)), 14),
        ),
        ("CREATE TABLE v AS ", None),
        ("CREATE VIEW v AS ", None),
        ("", None),
    ],
)
def test_temporary_views_are_made_from_the_query(text: str, view: TemporaryView | None) -> None:
    assert read_temporary_view(Statement(text + QUERY)) == view


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TEMP VIEW IF NOT EXISTS v AS ", "does not take IF NOT EXISTS"),
        ("CREATE TEMP VIEW s.v AS ", "cannot be qualified"),
        ("CREATE TEMP VIEW v USING csv ", "expected AS and a query"),
    ],
)
def test_views_that_cannot_be_made(text: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        read_temporary_view(Statement(text + QUERY))


@pytest.mark.parametrize(
    "text",
    [
        "CREATE VIEW v AS ",
        "CREATE OR REPLACE VIEW IF NOT EXISTS v (x) AS ",
        "ALTER VIEW v AS ",
        "CREATE MATERIALIZED VIEW v AS ",
        "CREATE FUNCTION f() RETURNS TABLE RETURN ",
        "CACHE TABLE v AS ",
        "BEGIN ",
    ],
)
def test_statements_that_keep_their_text_are_refused(text: str) -> None:
    statement = Statement(text + QUERY)
    with pytest.raises(PatternError, match="cannot contain MATCH_RECOGNIZE") as caught:
        check_not_permanent(statement)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE view AS ",
        "CREATE TABLE t USING parquet TBLPROPERTIES ('view' = 'x') AS SELECT view FROM ",
        "INSERT INTO view ",
    ],
)
def test_statements_that_run_their_query_are_not(text: str) -> None:
    statement = Statement(text + QUERY)
    check_not_permanent(statement)


def test_a_second_statement_is_refused() -> None:
    check_single_statement(Statement(f"{QUERY};; -- ; the end"))
    with pytest.raises(PatternError, match=r"second statement after this one\n  at line 2"):
        check_single_statement(Statement(f"{QUERY};\nSELECT ';'"))
