"""AFTER MATCH SKIP: where the search for the next match begins.

Whether a skip goes nowhere is known only for the match that it follows, so that is the engine's
to say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_cep.compiling.problems import Place, Problems
from spark_cep.compiling.rows.tokens import unquoted
from spark_cep.udfs.rows.program import Skip

if TYPE_CHECKING:
    from spark_cep.compiling.rows.variables import RowVariables

_NAME = r'[^\W\d]\w*|"(?:[^"]|"")+"|`(?:[^`]|``)+`'
_SKIP = re.compile(
    rf"\s*(?:AFTER\s+MATCH\s+)?SKIP\s+(?:(?P<past>PAST\s+LAST\s+ROW)|TO\s+(?P<next>NEXT\s+ROW)|"
    rf"TO\s+(?:(?P<end>FIRST|LAST)\s+)?(?P<name>{_NAME}))\s*",
    re.I,
)
_HINT = "write SKIP PAST LAST ROW, SKIP TO NEXT ROW, SKIP TO FIRST b or SKIP TO LAST b"


def skip_of(text: str | None, variables: RowVariables, problems: Problems) -> Skip:
    """What the text says; past the last row if there is none.

    >>> from spark_cep.compiling.rows.variables import RowVariables
    >>> skip_of("skip to first b", RowVariables(("A", "B")), Problems())
    Skip(kind='first', variables=frozenset({1}))
    """
    if text is None:
        return Skip()
    found = _SKIP.fullmatch(text)
    if found is None:
        problems.add("after_match cannot be read", Place.whole(text), hint=_HINT)
        return Skip()
    if found["past"] or found["next"]:
        return Skip("past last row" if found["past"] else "next row")
    name = unquoted(found["name"])
    rows = variables.rows_of(name)
    if rows is None:
        problems.add(
            f"after_match names {name}, which the pattern does not have",
            Place(text, found.start("name"), found.end("name")),
            hint=variables.meant(name),
        )
        return Skip()
    return Skip("first" if (found["end"] or "").upper() == "FIRST" else "last", rows)
