"""The plan that `explain` prints and `plan_of` returns: what runs where, in which order, and why.

A plan is plain data. Text, page and the comparison with measurements are made from that data
only, so people and programs read the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep import pattern as p
from spark_cep.explanation import page, text

if TYPE_CHECKING:
    from spark_cep.expressions.windows import Within


@dataclass(frozen=True)
class MatchPlan:
    """The plan for one pattern: what `plan_of` returns. Notebooks show it as a picture."""

    facts: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as plain data: strings, numbers, lists and dicts."""
        copy: dict[str, Any] = json.loads(json.dumps(self.facts))
        return copy

    def to_html(self) -> str:
        """Returns a page with the plan drawn and the statistics that it was chosen from."""
        return page.render_page([self.facts])

    def __str__(self) -> str:
        return "\n".join(text.plan_lines(self.facts))

    def _repr_html_(self) -> str:
        return page.render_fragment(self.facts)


def pattern_text(node: p.EventPatternNode) -> str:
    """The pattern in one line.

    >>> pattern_text(p.seq("a", "!x", p.any_of("b+", "c{2,4}"), "d?").root)
    'SEQ(a, NOT x, OR(b+, c{2,4}), d?)'
    """
    if isinstance(node, p.Event):
        return node.name
    if isinstance(node, p.NoEvent):
        return f"NOT {node.event.name}"
    if isinstance(node, p.NoGroup):
        return f"NOT {pattern_text(node.part)}"
    if isinstance(node, p.Repeat | p.OptionalPart):
        mark = "?" if isinstance(node, p.OptionalPart) else _quantifier_text(node.low, node.high)
        return pattern_text(node.part) + mark
    name = {p.Seq: "SEQ", p.AllOf: "AND", p.AnyOf: "OR"}[type(node)]
    return f"{name}({', '.join(map(pattern_text, node.parts))})"


def pattern_parts(node: p.EventPatternNode) -> dict[str, Any]:
    """The pattern's structure as plain data.

    >>> pattern_parts(p.seq("a", "!x").root)["parts"]
    [{'kind': 'event', 'variable': 'a'}, {'kind': 'not', 'variable': 'x'}]
    """
    if isinstance(node, p.Event):
        return {"kind": "event", "variable": node.name}
    if isinstance(node, p.NoEvent):
        return {"kind": "not", "variable": node.event.name}
    if isinstance(node, p.NoGroup):
        inside = [event.name for event, _ in p.iter_events(node.part)]
        return {"kind": "not", "text": pattern_text(node.part), "variables": inside}
    parts = [pattern_parts(each) for each in p.children(node)]
    if isinstance(node, p.Repeat):
        return {"kind": "repeat", "parts": parts, "low": node.low, "high": node.high}
    names = {p.Seq: "seq", p.AllOf: "all", p.AnyOf: "any", p.OptionalPart: "optional"}
    return {"kind": names[type(node)], "parts": parts}


def window_text(window: Within | None) -> str | None:
    """The window as the user wrote it.

    >>> from spark_cep.expressions.windows import Within
    >>> window_text(Within("10 minutes")), window_text(Within(events=5))
    ('10 minutes', '5 events')
    """
    if window is None:
        return None
    return f"{window.events} events" if window.duration is None else str(window.duration)


def _quantifier_text(low: int, high: int | None) -> str:
    if high is None:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"
