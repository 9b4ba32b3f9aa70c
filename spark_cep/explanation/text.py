"""The plan as sections of labelled rows, and as text: a line for each row.

The page shows the same sections. Rows appear only for facts that are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.explanation import numbers
from spark_cep.explanation.facts import (
    candidate_rates,
    condition_selectivities,
    cost_unit,
    plan_title,
    rejected_plans,
)
from spark_cep.explanation.remotes import remote_rows
from spark_cep.explanation.shedding import shedding_rows

if TYPE_CHECKING:
    from spark_cep.explanation.facts import PlanFacts


@dataclass(frozen=True)
class ReportSection:
    """A title and its rows, label and text. An empty label continues the row before."""

    title: str
    rows: tuple[tuple[str, str], ...]


def summary_section(facts: PlanFacts) -> ReportSection:
    """The pattern's options and the plan for it."""
    return ReportSection("Plan", tuple(_summary_rows(facts)))


def stage_sections(facts: PlanFacts) -> tuple[ReportSection, ...]:
    """What runs before, in and after the engine, then remote data and shedding if there are any."""
    remotes, shedding = facts.get("remotes") or [], facts.get("shedding")
    return (
        ReportSection("Before, in Spark", tuple(_before_rows(facts))),
        ReportSection("Engine", tuple(_engine_rows(facts))),
        ReportSection("After, in Spark", tuple(_after_rows(facts))),
        *([ReportSection("Remote data", tuple(remote_rows(remotes)))] if remotes else []),
        *([ReportSection("Shedding", tuple(shedding_rows(shedding)))] if shedding else []),
    )


_NO_ORDER = "none: rows come in no defined order, so the answer may differ from run to run"


def _summary_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    yield "strategy", f"{facts['strategy']}, {facts['consumption']}"
    yield "window", _window_text(facts)
    yield "keys", _keys_text(facts)
    yield "order", ", ".join(facts["order_by"]) or _NO_ORDER
    yield "plan", plan_title(facts)
    if facts.get("planner"):
        yield "planner", facts["planner"]
    yield "why", _reason_text(facts.get("rung"), facts["reason"])
    if facts.get("cost") is not None:
        yield "costs", f"≈ {numbers.format_amount(facts['cost'])} pairs{cost_unit(facts)}"


def _window_text(facts: PlanFacts) -> str:
    # A window without a unit is in that of the event time.
    window = facts["window"]
    if window is None:
        return "none"
    is_number = set(window) <= set("0123456789.eE+-")
    return f"{window}, in the unit of {facts['order_by'][0]}" if is_number else str(window)


def _reason_text(rung: str | None, reason: str) -> str:
    """
    >>> reasons = [("cheapest", "fewest partial matches"), ("forced", "forced by plan=")]
    >>> tuple(_reason_text(*each) for each in reasons)
    ('cheapest: fewest partial matches', 'forced by plan=')
    """
    return f"{rung}: {reason}" if rung and not reason.startswith(rung) else reason


def _before_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    before = facts["before"]
    for name, conditions in before["candidates"].items():
        yield f"{name}:", " AND ".join(conditions) if conditions else "any row"
    yield from _label_rows("computes", before["computed"])
    yield "ships", ", ".join(before["shipped"])
    yield from _payload_rows(facts)
    yield "drops", before["drops"]
    count, reason = facts["buckets"]["count"], facts["buckets"]["reason"]
    yield "buckets", reason if count is None else f"{count}: {reason}"
    yield "slices", facts["slices"]


def _payload_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    payload = facts.get("payload")
    if payload is not None:
        how = "joined to the matches" if payload["mode"] == "join" else "shipped"
        yield "payload", f"{how}: {payload['reason']}"


_OBJECTIVES = {
    "balanced": "balanced: latency while triggers keep up, else throughput",
    "latency": "latency: from the last event of a match to the match",
    "throughput": "throughput: the work of all triggers",
}


def _engine_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    yield from _label_rows("tests", facts["engine"]["conditions"])
    yield "limits", ", ".join(f"{k} {v:,}" for k, v in facts["limits"].items() if v) or "none"
    yield "adapts", facts["adaptation"]
    yield from _label_rows("shares", facts.get("shares") or [])
    if facts.get("optimize"):
        yield "optimizes", _OBJECTIVES[facts["optimize"]]
    yield from _stream_rows(facts)


def _stream_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    """When a stream emits a match, what it keeps, and the order that a trigger runs; nothing for a
    batch."""
    stream = facts.get("stream")
    if stream is not None:
        yield "emits", f"a match {stream['given']}"
        yield "state", stream["state"]
        for label in ("kept", "runs"):
            if stream.get(label):
                yield label, stream[label]


def _after_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    yield from _label_rows("tests", facts["after"]["conditions"])
    yield from _label_rows("columns", facts["after"]["columns"])


def _keys_text(facts: PlanFacts) -> str:
    inferred = [f"{each} (inferred)" for each in facts["inferred_keys"]]
    return ", ".join([*facts["partition_by"], *inferred]) or "none: one partition"


def _label_rows(label: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, text in enumerate(texts):
        yield "" if place else label, text


# ---- text --------------------------------------------------------------------------------------


def plan_lines(facts: PlanFacts) -> Iterator[str]:
    """The whole plan as lines of text, labels in a column of their own."""
    yield f"Match #{facts['number']}: {facts['pattern']}"
    for label, text in summary_section(facts).rows:
        yield format_line(label, text)
    yield from _label_lines("rejected", _rejected_lines(facts))
    yield from _label_lines("rates", _rate_lines(facts))
    yield from _label_lines("keeps", _selectivity_lines(facts))
    yield from _label_lines("holds", iter(facts.get("invariants") or []))
    for section in stage_sections(facts):
        yield section.title
        for label, text in section.rows:
            yield format_line(label, text)


def format_line(label: str, text: str) -> str:
    """
    >>> format_line("keys", "venue"), format_line("a_long_variable:", "any row")
    ('  keys      venue', '  a_long_variable: any row')
    """
    return f"  {label:<9} {text}"


def _rejected_lines(facts: PlanFacts) -> Iterator[str]:
    for name, cost, reason in rejected_plans(facts):
        factor = numbers.format_factor(cost, facts.get("cost"))
        costs = f", ≈ {numbers.format_amount(cost)} pairs" if cost is not None else ""
        yield f"{name}{costs}{f' ({factor})' if factor else ''}: {reason}"


def _rate_lines(facts: PlanFacts) -> Iterator[str]:
    rates = ", ".join(
        f"{name} {numbers.format_amount(rate)}" for name, rate in candidate_rates(facts).items()
    )
    if rates:
        source = facts["statistics"].get("source")
        yield f"{rates} candidates in a window{f', from {source}' if source else ''}"


def _selectivity_lines(facts: PlanFacts) -> Iterator[str]:
    for text, share in condition_selectivities(facts):
        kept = numbers.UNKNOWN if share is None else f"{numbers.format_amount(share)} of pairs"
        yield f"{kept}: {text}"


def _label_lines(label: str, texts: Iterator[str]) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield format_line("" if place else label, text)
