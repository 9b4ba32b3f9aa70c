"""The page for users of other systems has what it promises; tests/spark runs its statements."""

from __future__ import annotations

import pytest

from tests.constructs import REFUSED, SHOWN_BY, STATEMENTS, constructs, constructs_that_are
from tests.migration import SYSTEMS, PastedStatement, pasted_statements
from tests.pages import changed


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_has_twelve_statements(system: str) -> None:
    numbers = [each.number for each in pasted_statements() if each.system == system]
    assert numbers == list(range(1, 13))


@pytest.mark.parametrize("statement", pasted_statements(), ids=lambda each: each.name)
def test_each_statement_has_an_answer_and_a_line(statement: PastedStatement) -> None:
    block = statement.block
    assert block.output or block.code.startswith("CREATE ")
    assert "\n" not in statement.note
    if block.changes is None:
        assert statement.note == "Runs unchanged."
    else:
        assert statement.note.startswith("Changed: ")


def test_a_change_replaces_lines() -> None:
    code = "SELECT a,\n  b\nFROM t\nLIMIT 1\n"
    changes = "-  b\n+  c,\n+  d\n-LIMIT 1\n"
    assert changed(code, changes) == "SELECT a,\n  c,\n  d\nFROM t\n"


def test_a_change_of_a_line_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="the code does not have these lines once"):
        changed("SELECT a\n", "-SELECT b\n+SELECT c\n")


def test_each_construct_that_works_is_shown_by_a_statement() -> None:
    names = {each.name for each in pasted_statements()} | STATEMENTS.keys()
    assert constructs_that_are("works") == SHOWN_BY.keys()
    assert {name for shown in SHOWN_BY.values() for name in shown} - names == set()
    assert STATEMENTS.keys() <= {name for shown in SHOWN_BY.values() for name in shown}


def test_each_construct_that_is_refused_has_a_statement() -> None:
    assert constructs_that_are("refused") == REFUSED.keys()


def test_a_construct_works_or_says_what_else() -> None:
    states = constructs().values()
    assert len(states) > 40
    wordings = ("works", "refused", "written ")
    assert [each for each in states if not each.startswith(wordings)] == []
