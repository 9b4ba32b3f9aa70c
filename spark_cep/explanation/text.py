"""What explain says besides the plan's picture, in named sections of labelled rows.

Text and page show the same sections: this is the one place that decides what is said.
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
    """A row without a label goes on with the one before."""

    title: str
    rows: tuple[tuple[str, str], ...]


def summary_section(facts: PlanFacts) -> ReportSection:
    """What is matched, and the plan for it."""
    return ReportSection("Plan", tuple(_summary_rows(facts)))


def stage_sections(facts: PlanFacts) -> tuple[ReportSection, ...]:
    """What runs before the engine, in it, and after it; and what is looked up elsewhere."""
    remotes, shedding = facts.get("remotes") or [], facts.get("shedding")
    return (
        ReportSection("Before, in Spark", tuple(_before_rows(facts))),
        ReportSection("Engine", tuple(_engine_rows(facts))),
        ReportSection("After, in Spark", tuple(_after_rows(facts))),
        *([ReportSection("Remote data", tuple(remote_rows(remotes)))] if remotes else []),
        *([ReportSection("Shedding", tuple(shedding_rows(shedding)))] if shedding else []),
    )


def _summary_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    yield "strategy", f"{facts['strategy']}, {facts['consumption']}"
    yield "window", _window_text(facts)
    yield "keys", _keys_text(facts)
    yield "order", ", ".join(facts["order_by"])
    yield "plan", plan_title(facts)
    yield "why", _reason_text(facts.get("rung"), facts["reason"])
    if facts.get("cost") is not None:
        yield "costs", f"≈ {numbers.format_amount(facts['cost'])} pairs{cost_unit(facts)}"


def _window_text(facts: PlanFacts) -> str:
    """A bare number is in the unit of the event time."""
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
    yield "drops", before["drops"]
    count = facts["buckets"]["count"]
    yield "deals to", f"{count} bucket{'s' * (count != 1)}: {facts['buckets']['reason']}"
    yield "slices", facts["slices"]


def _engine_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    yield from _label_rows("tests", facts["engine"]["conditions"])
    yield "limits", ", ".join(f"{k} {v:,}" for k, v in facts["limits"].items() if v) or "none"
    yield "adapts", facts["adaptation"]
    yield from _stream_rows(facts)


def _stream_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    """When a match is given, and what is kept until then; of a batch there is nothing to say."""
    stream = facts.get("stream")
    if stream is not None:
        yield "given", stream["given"]
        yield "state", stream["state"]


def _after_rows(facts: PlanFacts) -> Iterator[tuple[str, str]]:
    yield from _label_rows("tests", facts["after"]["conditions"])
    yield from _label_rows("gives", facts["after"]["columns"])


def _keys_text(facts: PlanFacts) -> str:
    inferred = [f"{each} (inferred)" for each in facts["inferred_keys"]]
    return ", ".join([*facts["partition_by"], *inferred]) or "none: one partition"


def _label_rows(label: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, text in enumerate(texts):
        yield "" if place else label, text


# --------------------------------------------------------------------------------------------------
# The plan as text: one line a fact, labels in a column of their own.
# --------------------------------------------------------------------------------------------------


def plan_lines(facts: PlanFacts) -> Iterator[str]:
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
    found = ", ".join(
        f"{name} {numbers.format_amount(rate)}" for name, rate in candidate_rates(facts).items()
    )
    if found:
        source = facts["statistics"].get("source")
        yield f"{found} candidates in a window{f', from {source}' if source else ''}"


def _selectivity_lines(facts: PlanFacts) -> Iterator[str]:
    for text, share in condition_selectivities(facts):
        kept = numbers.UNKNOWN if share is None else f"{numbers.format_amount(share)} of pairs"
        yield f"{kept}: {text}"


def _label_lines(label: str, texts: Iterator[str]) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield format_line("" if place else label, text)
