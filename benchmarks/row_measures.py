"""The eighty measures of the work session_measures: what is in the JSON of a session's events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import row_plain as plain

if TYPE_CHECKING:
    from benchmarks.row_data import Columns

_VARIABLES = ("view", "engage", "stage", "suppress", "escalate")
_SCORE = "CAST(get_json_object({v}.payload, '$.score') AS INT)"
_OF_VARIABLE = {
    "n_{v}": "count({v}.i)",
    "first_{v}": "FIRST({v}.i)",
    "last_{v}": "LAST({v}.i)",
    "score_{v}": f"coalesce(sum({_SCORE}), 0)",
    "least_{v}": f"min({_SCORE})",
    "most_{v}": f"max({_SCORE})",
    "mean_{v}": f"avg({_SCORE})",
    "page_{v}": "get_json_object(LAST({v}.payload), '$.page')",
    "entry_{v}": "get_json_object(FIRST({v}.payload), '$.page')",
    "ms_{v}": "CAST(get_json_object(LAST({v}.payload), '$.ms') AS BIGINT)",
    "first_ms_{v}": "CAST(get_json_object(FIRST({v}.payload), '$.ms') AS BIGINT)",
    "took_{v}": "LAST({v}.i) - FIRST({v}.i)",
    "pages_{v}": "count(DISTINCT get_json_object({v}.payload, '$.page'))",
    "has_{v}": "count({v}.i) > 0",
    "second_{v}": "FIRST({v}.i, 1)",
}
_OF_ALL = {
    "number": "MATCH_NUMBER()",
    "ended": "CLASSIFIER()",
    "events": "count(*)",
    "since": "FIRST(i)",
    "till": "LAST(i)",
}
SESSION_MEASURES = ",\n".join(
    [f"{text} AS {name}" for name, text in _OF_ALL.items()]
    + [
        f"{text.format(v=v)} AS {name.format(v=v)}"
        for v in _VARIABLES
        for name, text in _OF_VARIABLE.items()
    ]
)


def session_numbers(columns: Columns) -> tuple[int, ...]:
    """Sessions, their events, and the scores of their views and engagements."""
    names = {"view": "v", "engage": "e", "stage": "t", "suppress": "t", "escalate": "t"}
    sessions = events = scores = 0
    for rows in plain.partitions(columns, "visitor"):
        kinds = plain.letters(columns["kind"][rows], names)
        for start, end in plain.spans("ve*t*", kinds):
            sessions, events = sessions + 1, events + end - start
            scores += sum(
                json.loads(columns["payload"][rows[at]])["score"]
                for at in range(start, end)
                if kinds[at] in "ve"
            )
    return sessions, events, scores
