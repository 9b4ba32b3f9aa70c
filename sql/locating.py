"""Errors of `match_pattern`, shown in the statement.

Texts that were handed on as excerpts are shown there already. A text with parameters in it is
another than the user wrote, so what is wrong in it is traced back; and what is wrong with an
option as a whole gets the place of its section.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_cep.compiling.problems import Place, Problem, Problems
from spark_cep.errors import CepError, PatternError
from spark_cep.sql.wording import in_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.sql.clause import Clause, Span
    from spark_cep.sql.derived import Derived
    from spark_cep.sql.statement import Statement


_CLASH = re.compile(r"the answer would have two columns called '(.*?)'")


def located(
    error: CepError, statement: Statement, clause: Clause, made: Sequence[Derived]
) -> CepError:
    """The error with places in what the user wrote."""
    given: Any = error.details.get("problems")
    problems: list[dict[str, Any]] = given or [{"message": error.message, "hint": error.hint}]
    found = Problems([_problem(each, _place(each, statement, clause, made)) for each in problems])
    if isinstance(error, PatternError):
        return found.error()
    only = found.found[0]
    return type(error)(only.described(), hint=only.hint, details=error.details)


def _problem(given: dict[str, Any], place: Place) -> Problem:
    hint = given.get("hint")
    return Problem(in_sql(given["message"]), place, None if hint is None else in_sql(hint))


def _place(
    problem: dict[str, Any], statement: Statement, clause: Clause, made: Sequence[Derived]
) -> Place:
    text = problem.get("text")
    if text is None:
        return statement.place(_section(problem["message"], clause))
    start = _offset(text, problem["line"], problem["column"])
    end = start + (problem.get("length") or 1)
    if text == statement.whole:
        return Place(text, start, end)
    for each in made:
        if text == each.text:
            return statement.place((each.source(start), each.source(max(start, end - 1)) + 1))
    if statement.text.count(text) == 1:
        begin = statement.text.index(text)
        return statement.place((begin + start, begin + end))
    return statement.place(_section(problem["message"], clause))


def _offset(text: str, line: int, column: int) -> int:
    """The character at a line and column, both counted from 1."""
    begin = 0
    for _ in range(line - 1):
        begin = text.index("\n", begin) + 1
    return begin + column - 1


def _section(message: str, clause: Clause) -> Span:
    """What a message about an option as a whole is about."""
    clash = _CLASH.match(message)
    if clash is not None:
        for each in clause.measures:
            if each.name.text == clash[1]:
                return each.name.span
    word = re.split(r"[ =(:]", message, maxsplit=1)[0].lower()
    spans: dict[str, Sequence[Span]] = {
        "within": [clause.within.span] if clause.within else [],
        "order_by": [each.span for each in clause.order_by],
        "partition_by": [each.span for each in clause.partition_by],
        "after_match": [clause.after_match.span] if clause.after_match else [],
    }
    known = spans.get(word) or _hinted(message, clause) or [clause.span]
    return known[0][0], known[-1][1]


def _hinted(message: str, clause: Clause) -> Sequence[Span]:
    is_about = any(re.search(rf"\b{name}\b", message) for name in clause.hints)
    return [clause.hint] if is_about and clause.hint else []
