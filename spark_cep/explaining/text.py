"""The plan as text: one line a fact, labels in a column of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_cep.explaining import figures
from spark_cep.explaining.planned import rates, rejected, selectivities
from spark_cep.explaining.sections import run_where, summary

if TYPE_CHECKING:
    from spark_cep.explaining.planned import Facts


def lines(facts: Facts) -> Iterator[str]:
    yield f"Match #{facts['number']}: {facts['pattern']}"
    for label, text in summary(facts).rows:
        yield line(label, text)
    yield from _listed("rejected", _rejected(facts))
    yield from _listed("rates", _rates(facts))
    yield from _listed("keeps", _selectivities(facts))
    yield from _listed("holds", iter(facts.get("invariants") or []))
    for section in run_where(facts):
        yield section.title
        for label, text in section.rows:
            yield line(label, text)


def line(label: str, text: str) -> str:
    """
    >>> line("keys", "venue"), line("a_long_variable:", "any row")
    ('  keys      venue', '  a_long_variable: any row')
    """
    return f"  {label:<9} {text}"


def _rejected(facts: Facts) -> Iterator[str]:
    for name, cost, reason in rejected(facts):
        factor = figures.times(cost, facts.get("cost"))
        costs = f", ≈ {figures.amount(cost)} pairs" if cost is not None else ""
        yield f"{name}{costs}{f' ({factor})' if factor else ''}: {reason}"


def _rates(facts: Facts) -> Iterator[str]:
    found = ", ".join(f"{name} {figures.amount(rate)}" for name, rate in rates(facts).items())
    if found:
        source = facts["statistics"].get("source")
        yield f"{found} candidates in a window{f', from {source}' if source else ''}"


def _selectivities(facts: Facts) -> Iterator[str]:
    for text, share in selectivities(facts):
        kept = figures.UNKNOWN if share is None else f"{figures.amount(share)} of pairs"
        yield f"{kept}: {text}"


def _listed(label: str, texts: Iterator[str]) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield line("" if place else label, text)
