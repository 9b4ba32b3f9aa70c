"""Messages of Spark about a statement, with the names and the positions that the user wrote."""

from __future__ import annotations

import pytest

from spark_cep.sql.composer import QueryComposer
from spark_cep.sql.location import find_clauses
from spark_cep.sql.spark_messages import restate, restate_error
from spark_cep.sql.statement import Statement

CLAUSE = "MATCH_RECOGNIZE (ORDER BY ts PATTERN (a b+))"
TEXT = f"SELECT m\nFROM ticks {CLAUSE}\n JOIN ticks {CLAUSE} AS z WHERE m > 1"
VIEW = "_pyspark_" + "0123456789abcdef" * 2


def composed(text: str) -> QueryComposer:
    composer = QueryComposer(Statement(text))
    for each in find_clauses(composer.statement):
        composer.replace(each.span, "matches")
    return composer


def rendered(text: str, view: str = VIEW) -> str:
    """The text that Spark is given."""
    return text.replace(f"ticks {CLAUSE}", view)


def test_a_position_behind_a_clause_that_touches_a_word() -> None:
    text = "SELECT 1 FROM{}z WHERE m > 1"
    given, written = text.format(f" {VIEW} "), text.format(f"(SELECT 2){CLAUSE}")
    found = restate(f"no. line 1 pos {given.rindex('m >')}", composed(written))
    assert found.startswith(f"no. line 1 pos {written.rindex('m >')}")


@pytest.mark.parametrize("is_connect", [False, True])
@pytest.mark.parametrize("word", ["m\n", "JOIN", "AS z", "WHERE", "m > 1"])
def test_a_position_is_the_one_in_the_statement(word: str, is_connect: bool) -> None:
    view = VIEW.replace("_pyspark_", "_pyspark_connect_temp_view_") if is_connect else VIEW

    def position(text: str) -> str:
        before = text[: text.rindex(word)]
        return f"line {before.count(chr(10)) + 1} pos {len(before) - before.rfind(chr(10)) - 1}"

    said = f"[X] no. SQLSTATE: 1; {position(rendered(TEXT, view))}"
    found = restate(said, composed(TEXT), is_connect=is_connect)
    assert found == f"[X] no. SQLSTATE: 1; {position(TEXT)}"


def test_a_generated_name_is_the_clause() -> None:
    said = f"`m` could be: [`{VIEW}`.`m`, `z`.`m`]. SQLSTATE: 1; line 1 pos 7"
    error = ValueError(f"{said};\n'Project ['m]\n")
    restate_error(error, composed(TEXT))
    assert str(error) == "`m` could be: [MATCH_RECOGNIZE.`m`, `z`.`m`]. SQLSTATE: 1; line 1 pos 7"
    assert "at line 2, column 6 and line 3, column 7" in error.__notes__[0]


def test_the_text_of_a_syntax_error_is_the_users() -> None:
    text = f"SELECT * FROM ticks {CLAUSE} WHERE m >"
    at = len(rendered(text)) - 1
    said = f"\n[P] Syntax error. (line 1, pos {at})\n\n== SQL ==\n{rendered(text)}\n----^^^\n"
    found = restate(said, composed(text))
    assert VIEW not in found
    assert f"(line 1, pos {len(text) - 1})" in found
    assert found.endswith(f"== SQL ==\n{text}\n{' ' * (len(text) - 1)}^\n")


def test_an_error_without_a_generated_name_has_no_note() -> None:
    error = ValueError("no such column; line 1 pos 7")
    restate_error(error, composed(TEXT))
    assert not hasattr(error, "__notes__")


def test_a_word_beside_the_clause_is_no_part_of_the_generated_name() -> None:
    clause = "(SELECT 1)MATCH_RECOGNIZE (PATTERN (a))"
    text = f"SELECT m.n FROM{clause}m WHERE x > 1"
    composer = composed(text)
    query = composer.query([(0, len(text))])
    assert query.text == text.replace(clause, " {cep_0} ")
    given = query.text.replace("{cep_0}", VIEW)
    found = restate(f"no x; line 1 pos {given.index('x >')}", composer)
    assert found == f"no x; line 1 pos {text.index('x >')}"
