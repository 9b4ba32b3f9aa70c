"""What explain says besides the plan's picture, in named sections of labelled rows.

Text and page show the same sections: this is the one place that decides what is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.explaining import figures
from spark_cep.explaining.planned import title, unit
from spark_cep.explaining.remotes import remote_rows
from spark_cep.explaining.shedding import shed_rows

if TYPE_CHECKING:
    from spark_cep.explaining.planned import Facts


@dataclass(frozen=True)
class Section:
    """A row without a label goes on with the one before."""

    title: str
    rows: tuple[tuple[str, str], ...]


def summary(facts: Facts) -> Section:
    """What is matched, and the plan for it."""
    return Section("Plan", tuple(_summary(facts)))


def run_where(facts: Facts) -> tuple[Section, ...]:
    """What runs before the engine, in it, and after it; and what is looked up elsewhere."""
    remotes, shedding = facts.get("remotes") or [], facts.get("shedding")
    return (
        Section("Before, in Spark", tuple(_before(facts))),
        Section("Engine", tuple(_engine(facts))),
        Section("After, in Spark", tuple(_after(facts))),
        *([Section("Remote data", tuple(remote_rows(remotes)))] if remotes else []),
        *([Section("Shedding", tuple(shed_rows(shedding)))] if shedding else []),
    )


def _summary(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "strategy", f"{facts['strategy']}, {facts['consumption']}"
    yield "window", _window(facts)
    yield "keys", _keys(facts)
    yield "order", ", ".join(facts["order_by"])
    yield "plan", title(facts)
    yield "why", _why(facts.get("rung"), facts["reason"])
    if facts.get("cost") is not None:
        yield "costs", f"≈ {figures.amount(facts['cost'])} pairs{unit(facts)}"


def _window(facts: Facts) -> str:
    """A bare number is in the unit of the event time."""
    window = facts["window"]
    if window is None:
        return "none"
    is_number = set(window) <= set("0123456789.eE+-")
    return f"{window}, in the unit of {facts['order_by'][0]}" if is_number else str(window)


def _why(rung: str | None, reason: str) -> str:
    """
    >>> _why("cheapest", "fewest partial matches"), _why("forced", "forced by plan=")
    ('cheapest: fewest partial matches', 'forced by plan=')
    """
    return f"{rung}: {reason}" if rung and not reason.startswith(rung) else reason


def _before(facts: Facts) -> Iterator[tuple[str, str]]:
    before = facts["before"]
    for name, conditions in before["candidates"].items():
        yield f"{name}:", " AND ".join(conditions) if conditions else "any row"
    yield from _listed("computes", before["computed"])
    yield "ships", ", ".join(before["shipped"])
    yield "drops", before["drops"]
    count = facts["buckets"]["count"]
    yield "deals to", f"{count} bucket{'s' * (count != 1)}: {facts['buckets']['reason']}"
    yield "slices", facts["slices"]


def _engine(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from _listed("tests", facts["engine"]["conditions"])
    yield "limits", ", ".join(f"{k} {v:,}" for k, v in facts["limits"].items() if v) or "none"
    yield "adapts", facts["adaptation"]
    yield from _stream(facts)


def _stream(facts: Facts) -> Iterator[tuple[str, str]]:
    """When a match is given, and what is kept until then; of a batch there is nothing to say."""
    stream = facts.get("stream")
    if stream is not None:
        yield "given", stream["given"]
        yield "state", stream["state"]


def _after(facts: Facts) -> Iterator[tuple[str, str]]:
    yield from _listed("tests", facts["after"]["conditions"])
    yield from _listed("gives", facts["after"]["columns"])


def _keys(facts: Facts) -> str:
    inferred = [f"{each} (inferred)" for each in facts["inferred_keys"]]
    return ", ".join([*facts["partition_by"], *inferred]) or "none: one partition"


def _listed(label: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, text in enumerate(texts):
        yield "" if place else label, text
