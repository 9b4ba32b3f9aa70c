"""Who wrote SQL is told what to write in SQL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spark_cep.errors import CepError
from spark_cep.options import check_row_options
from spark_cep.sql.composer import QueryComposer, SessionFunctions, match_clauses
from spark_cep.sql.location import find_clauses
from spark_cep.sql.statement import Statement
from tests.rows.compiling import compiled
from tests.sql.recorded import Recorded

PYTHON = re.compile(r"\w=[\"'{\[\w]|\bdf\.|\bcep\.|\.within|_by\b|after_match|match_pattern")


def _compile(_: Any, pattern: Any, **options: Any) -> None:
    """What match_pattern checks without Spark."""
    given = {key: options.pop(key, None) for key in ("limits", "statistics")}
    plan = options.pop("plan", "auto")
    check_row_options(
        rows=options["rows"], measures=options["measures"], after_match=options["after_match"],
        plan=plan, **given,
    )  # fmt: skip
    measures = options.pop("measures") or {}
    compiled(pattern, measures=measures, **options)


def refusal(clause: str) -> dict[str, Any]:
    text = f"SELECT *\nFROM ticks MATCH_RECOGNIZE ({clause}"
    text += "" if clause.endswith("*/") else ")"
    statement = Statement(text)
    with pytest.raises(CepError) as caught:
        match_clauses(
            QueryComposer(statement, None),
            find_clauses(statement),
            SessionFunctions(Recorded().sql, _compile),
        )
    return {"message": str(caught.value), "hint": caught.value.hint or ""}


@pytest.mark.parametrize(
    ("clause", "said", "at"),
    [
        ("ORDER BY nope PATTERN (a)", "ORDER BY: the input has no column nope", "nope"),
        ("ORDER BY ts NULLS PATTERN (a)", "write ORDER BY ts, or ORDER BY ts, id DESC", "NULLS"),
        ("PARTITION BY nope PATTERN (a)", "PARTITION BY: the input has no column", "nope"),
        ("AFTER MATCH SKIP PAST ROW PATTERN (a)", "not a valid AFTER MATCH SKIP", "SKIP"),
        ("AFTER MATCH SKIP TO x PATTERN (a)", "AFTER MATCH SKIP names x", "x PATTERN"),
        (
            "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (a {- a -})",
            "or write ALL ROWS PER MATCH without WITH UNMATCHED ROWS",
            "{-",
        ),
        ("ORDER BY ts PATTERN (a) WITHIN 5", "write INTERVAL '5' SECONDS", "5)"),
        ("ORDER BY ts PATTERN (a) WITHIN INTERVAL 2 MONTH", "INTERVAL '30' DAYS", "INTERVAL"),
        (
            "ORDER BY qty PATTERN (a) WITHIN 5 MINUTES",
            "in the unit of the column: WITHIN 10",
            "5 MIN",
        ),
        ("MEASURES 1 AS x PATTERN (a) WITHIN 5", "ORDER BY is missing", "MATCH_REC"),
        ("PATTERN (a) DEFINE a AS rand() > 0", "FROM (SELECT *, rand() AS x FROM t)", "rand"),
        ("PATTERN (a)) /*+ plan('eager') */", "write plan('walk'), from", "plan('eager')"),
        ("PATTERN (a)) /*+ matches(0) */", "above 0: /*+ matches(1000000) */", " matches(0)"),
    ],
)
def test_messages_speak_sql(clause: str, said: str, at: str) -> None:
    found = refusal(clause)
    whole = f"{found['message']} {found['hint']}"
    assert said in whole
    line, carets = re.findall(r"\n    (.*)\n    ( *\^+)", whole)[0]
    assert line[carets.index("^") :].startswith(at)
    assert PYTHON.search(whole) is None
