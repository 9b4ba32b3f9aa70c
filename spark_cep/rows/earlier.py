"""Measures that use earlier measures of the same clause, as in a SELECT list of Spark.

The name of the earlier measure gives way to its text in parentheses, with its RUNNING and FINAL. A
column of the input, a variable or a subset of that name comes first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_cep.expressions.names import columns_of, is_lambda_argument, name_parts_of
from spark_cep.expressions.problems import EditedText, Problems
from spark_cep.expressions.syntax import SyntaxProblem
from spark_cep.rows.calls import parse_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_cep.expressions.syntax import Edit
    from spark_cep.rows.texts import RowScope


def expand_earlier_measures(
    measures: Sequence[tuple[str, str]], scope: RowScope
) -> list[tuple[str, str]]:
    """The measures, each over the input and the pattern alone."""
    known: dict[str, str] = {}
    found = []
    for name, text in measures:
        edits = list(_edits(text, known, scope)) if _mentions(text, known) else []
        expanded = EditedText.of(text, edits) if edits else text
        found.append((name, expanded))
        is_hidden = scope.names.matching(name) or scope.names.variable(name) is not None
        if not is_hidden:
            known.setdefault(name.casefold(), expanded)
    return found


def _mentions(text: str, known: Mapping[str, str]) -> bool:
    """Whether it may name one of them; most measures need not be parsed for this."""
    folded = text.casefold()
    return any(name in folded for name in known)


def _edits(text: str, known: Mapping[str, str], scope: RowScope) -> Iterator[Edit]:
    try:
        parsed = parse_calls(text, Problems(), in_define=False).parsed
    except SyntaxProblem:
        # It is reported where the measure is compiled.
        return
    for column in columns_of(parsed.root):
        first = name_parts_of(parsed, column)[0]
        wanted = known.get(first.name.casefold())
        if wanted is not None and not is_lambda_argument(column):
            yield first.place.start, first.place.end, f"({_on_one_line(wanted)})"


def _on_one_line(text: str) -> str:
    """A comment to the end of the line would hide the closing parenthesis."""
    return f"{text}\n" if re.search("--", text) else str(text)
