"""What is known of a row because a variable was matched at it.

    DEFINE b AS payload RLIKE '^[0-9]+$'  MEASURES max(CAST(b.payload AS INT)) AS top

Spark computes the CAST as a column, on every row, and in ANSI mode it fails on rows that never
are `b`. Whoever asks for `b.payload` sees rows of `b` only, so it is computed where the conditions
that DEFINE b has on single rows are met, and is NULL elsewhere. A row that is read as `b` meets
them, so no answer changes. A variable without such conditions may be any row, and guards nothing.

Inside its own DEFINE a condition is guarded by what stands to its left in the text, as in WHERE
(see parts.py): to test the row is what it is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlglot import exp

from spark_cep.compiling.parts import row_part
from spark_cep.compiling.spans import SyntaxProblem
from spark_cep.udfs.expressions import BOOL

if TYPE_CHECKING:
    from spark_cep.compiling.rows.conjunct import RowConjunct
    from spark_cep.compiling.rows.texts import Row
    from spark_cep.compiling.rows.types import Types
    from spark_cep.udfs.rows.program import Variables

# A column of the input cannot fail.
_COLUMN = re.compile(r"\s*`(?:[^`]|``)+`\s*")


class Guarding:
    """`known`: by number of a variable, SQL over a row that holds at each of its rows."""

    def __init__(self, known: Mapping[int, str] | None = None) -> None:
        self._known = dict(known or {})

    def at(self, row: Row, text: str) -> str:
        """A text over a row, for who reads it at this row.

        >>> from spark_cep.compiling.rows.texts import Row
        >>> guarding = Guarding({1: "(x > 0)"})
        >>> guarding.at(Row("last", frozenset({1})), "1 / x")
        'CASE WHEN (x > 0) THEN 1 / x END'
        >>> guarding.at(Row("last", frozenset({1}), shift=-1), "1 / x")
        '1 / x'
        """
        return text if row.shift or row.anchor == "current" else self.among(row.variables, text)

    def among(self, variables: Variables, text: str) -> str:
        """The same for who goes through all rows of these variables; None: all rows."""
        if not variables or _COLUMN.fullmatch(text):
            return text
        known = [self._known.get(each) for each in sorted(variables)]
        if None in known:
            return text
        return f"CASE WHEN {' OR '.join(each for each in known if each)} THEN {text} END"


def guarding_of(conjuncts: Mapping[int, RowConjunct], types: Types) -> Guarding:
    """From the condition of each variable that has one."""
    found = {}
    for number, conjunct in conjuncts.items():
        texts = [text for text in _texts(conjunct) if types.of(text) == BOOL]
        if texts:
            found[number] = f"({' AND '.join(f'({text})' for text in texts)})"
    return Guarding(found)


def _texts(conjunct: RowConjunct) -> list[str]:
    """The conditions between ANDs that are about the row itself."""
    root = conjunct.node.unnest()
    found = []
    for node in root.flatten() if isinstance(root, exp.And) else [root]:
        try:
            part = row_part(conjunct, node)
        except SyntaxProblem:
            continue
        if part is not None and part.variable == 0:
            found.append(part.text)
    return found
