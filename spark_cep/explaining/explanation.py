"""`explain` and `plan_of`: what runs where, in which order, and why.

A plan is plain data first (`to_dict`), and text, a page or a comparison with what was measured
second, so that machines and people read the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep import pattern as p
from spark_cep.errors import PlanError
from spark_cep.explaining import page, text
from spark_cep.explaining.analysis import analyses
from spark_cep.explaining.comparison import comparison
from spark_cep.explaining.records import records_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class MatchPlan:
    """The plan of one answer. The keys are those of `to_dict`. Notebooks show it as a picture."""

    facts: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: strings, numbers, lists and dicts."""
        copy: dict[str, Any] = json.loads(json.dumps(self.facts))
        return copy

    def to_html(self) -> str:
        """A page of its own: the drawn plan, and what it was chosen from."""
        return page.page([self.facts])

    def __str__(self) -> str:
        return "\n".join(text.lines(self.facts))

    def _repr_html_(self) -> str:
        return page.fragment(self.facts)


def plan_of(df: DataFrame) -> MatchPlan:
    """The plan behind a DataFrame that came out of `match_pattern`, or was derived from one."""
    found = records_of(df)
    if len(found) > 1:
        raise PlanError(
            f"{len(found)} patterns were matched for this DataFrame",
            hint="ask for the plan of the one that you mean; cep.explain(df) prints all",
        )
    return found[0].plan


def explain(df: DataFrame, mode: str = "text") -> None:
    """Prints the plan; `mode` is "text", "json", "html" or "analyze".

    "html" is a page to be written to a file; a notebook shows the same for `cep.plan_of(df)`.
    "analyze" runs the query, and prints what was measured beside what was estimated.
    """
    show = _MODES.get(mode)
    if show is None:
        raise PlanError(
            f"{mode!r} is no mode of explain", hint='use mode="text", "json", "html" or "analyze"'
        )
    sys.stdout.write(show(df) + "\n")


def _text(df: DataFrame) -> str:
    return "\n\n".join(str(record.plan) for record in records_of(df))


def _json(df: DataFrame) -> str:
    dicts = [record.plan.to_dict() for record in records_of(df)]
    whole = dicts[0] if len(dicts) == 1 else dicts
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _html(df: DataFrame) -> str:
    return page.page([record.plan.facts for record in records_of(df)])


def _analyze(df: DataFrame) -> str:
    return "\n\n".join("\n".join(comparison(each)) for each in analyses(df))


_MODES: Mapping[str, Callable[[DataFrame], str]] = {
    "text": _text,
    "json": _json,
    "html": _html,
    "analyze": _analyze,
}


def pattern_text(node: p.Node) -> str:
    """The pattern in one line.

    >>> pattern_text(p.seq("a", "!x", p.any_of("b+", "c{2,4}"), "d?").root)
    'SEQ(a, NOT x, OR(b+, c{2,4}), d?)'
    """
    if isinstance(node, p.Event):
        return node.name
    if isinstance(node, p.Not):
        return f"NOT {node.event.name}"
    if isinstance(node, p.Repeat | p.Optional):
        mark = "?" if isinstance(node, p.Optional) else _quantifier(node.low, node.high)
        return pattern_text(node.part) + mark
    name = {p.Seq: "SEQ", p.All: "AND", p.Any: "OR"}[type(node)]
    return f"{name}({', '.join(map(pattern_text, node.parts))})"


def pattern_parts(node: p.Node) -> dict[str, Any]:
    """The pattern's structure as plain data.

    >>> pattern_parts(p.seq("a", "!x").root)["parts"]
    [{'kind': 'event', 'variable': 'a'}, {'kind': 'not', 'variable': 'x'}]
    """
    if isinstance(node, p.Event):
        return {"kind": "event", "variable": node.name}
    if isinstance(node, p.Not):
        return {"kind": "not", "variable": node.event.name}
    parts = [pattern_parts(each) for each in p.children(node)]
    if isinstance(node, p.Repeat):
        return {"kind": "repeat", "parts": parts, "low": node.low, "high": node.high}
    names = {p.Seq: "seq", p.All: "all", p.Any: "any", p.Optional: "optional"}
    return {"kind": names[type(node)], "parts": parts}


def window_text(window: p.Within | None) -> str | None:
    """WITHIN as the user wrote it.

    >>> window_text(p.Within("10 minutes")), window_text(p.Within(events=5))
    ('10 minutes', '5 events')
    """
    if window is None:
        return None
    return f"{window.events} events" if window.duration is None else str(window.duration)


def _quantifier(low: int, high: int | None) -> str:
    if high is None:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"
