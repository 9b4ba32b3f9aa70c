"""What explain says of a stream besides the plan: when a match is given, and what is kept for it.

Both follow from the program alone, by the rules that the workers go by (`udfs/deciding.py`,
`udfs/rows/reach.py`), so they are known before the first row comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_cep.explaining.explanation import MatchPlan
from spark_cep.udfs.deciding import given_by, latest_waits, places_of_nots, reaches_twice
from spark_cep.udfs.program import Program
from spark_cep.udfs.rows.reach import back, stays

if TYPE_CHECKING:
    from spark_cep.udfs.rows.program import RowProgram


def of_stream(plan: MatchPlan, program: Program | RowProgram) -> MatchPlan:
    """The plan with the facts of a stream: `given` and `state`, each as a sentence."""
    window, rows = plan.facts["window"], program.limits.rows
    most = "" if rows is None else f"; at most {rows:,} of a key"
    if isinstance(program, Program):
        given, state = _given(program, window), _state(program, window)
    else:
        given, state = _decided(window), _undecided(program)
    return MatchPlan({**plan.facts, "stream": {"given": given, "state": f"{state}{most}"}})


def _given(program: Program, window: str | None) -> str:
    by = given_by(program)
    if by == "any":
        return "at once, whatever the order in which rows come"
    if by == "earliest":
        return f"when the watermark is {window} past its first row"
    if by == "start":
        latest = f", at the latest when the watermark is {window} past it" if window else ""
        return f"when no run from its first row can go on{latest}"
    if latest_waits(program):
        return f"when the watermark is {window} past its last row"
    return "when the watermark has passed its last row"


def _state(program: Program, window: str | None) -> str:
    assert window is not None or program.window is None
    from_start = given_by(program) == "start" and not places_of_nots(program) & {"start", "around"}
    from_where = "rows from a key's first start on that is not decided" if from_start else ""
    if window is None:
        return from_where or "all rows"
    twice = "twice " if reaches_twice(program) else ""
    if from_start:
        return f"{from_where}, none that the watermark is {window} past"
    return f"rows until the watermark is {twice}{window} past them"


def _undecided(program: RowProgram) -> str:
    searching = "rows of searches that are not decided"
    if not stays(program):
        return searching
    count = max(1, back(program))
    last = "last row" if count == 1 else f"last {count} rows"
    return f"{searching}, and for ever the {last} of every key"


def _decided(window: str | None) -> str:
    latest = f", at the latest when the watermark is {window} past its first row" if window else ""
    return f"when no later row can change it{latest}"
