"""`explain` and `plan_of`: what runs where, in which order, and why.

A plan is plain data first (`to_dict`) and text second, so that machines and people read the same.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_cep import pattern as p
from spark_cep.answering.records import records_of
from spark_cep.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class MatchPlan:
    """The plan of one answer. The keys are those of `to_dict`."""

    facts: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: strings, numbers, lists and dicts."""
        copy: dict[str, Any] = json.loads(json.dumps(self.facts))
        return copy

    def __str__(self) -> str:
        return "\n".join(_lines(self.facts))


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
    """Prints the plan; `mode` is "text" or "json"."""
    if mode in {"html", "analyze"}:
        raise PlanError(
            f"explain(mode={mode!r}) is not available yet",
            hint='use mode="text" or "json"; cep.metrics(df) has the counts of an action',
        )
    if mode not in {"text", "json"}:
        raise PlanError(f"{mode!r} is no mode of explain", hint='use mode="text" or "json"')
    plans = [record.plan for record in records_of(df)]
    if mode == "text":
        sys.stdout.write("\n\n".join(map(str, plans)) + "\n")
        return
    dicts = [plan.to_dict() for plan in plans]
    whole = dicts[0] if len(dicts) == 1 else dicts
    sys.stdout.write(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


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


# ---- text --------------------------------------------------------------------------------------


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"Match #{facts['number']}: {facts['pattern']}"
    yield f"  strategy  {facts['strategy']}, {facts['consumption']}"
    yield f"  window    {facts['window'] or 'none'}"
    yield f"  keys      {_keys(facts)}"
    yield f"  order     {', '.join(facts['order_by'])}"
    yield f"  plan      {facts['plan']} {' → '.join(facts['order'])}"
    yield f"            {facts['reason']}"
    for each in facts["rejected"]:
        yield f"            rejected {each['plan']}: {each['reason']}"
    yield "Before, in Spark"
    for name, conditions in facts["before"]["candidates"].items():
        yield f"  {name}: {' AND '.join(conditions) if conditions else 'any row'}"
    yield from _each("  computes", facts["before"]["computed"])
    yield f"  ships     {', '.join(facts['before']['shipped'])}"
    yield f"  drops     {facts['before']['drops']}"
    count = facts["buckets"]["count"]
    yield f"  deals to  {count} bucket{'s' * (count != 1)}: {facts['buckets']['reason']}"
    yield f"  slices    {facts['slices']}"
    yield "Engine"
    yield from _each("  tests", facts["engine"]["conditions"])
    yield f"  limits    {', '.join(f'{k} {v:,}' for k, v in facts['limits'].items() if v)}"
    yield f"  adapts    {facts['adaptation']}"
    yield "After, in Spark"
    yield from _each("  tests", facts["after"]["conditions"])
    yield from _each("  gives", facts["after"]["columns"])


def _keys(facts: Mapping[str, Any]) -> str:
    inferred = [f"{each} (inferred)" for each in facts["inferred_keys"]]
    return ", ".join([*facts["partition_by"], *inferred]) or "none: one partition"


def _each(label: str, texts: Sequence[str]) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield f"{label if place == 0 else '':<11} {text}"
