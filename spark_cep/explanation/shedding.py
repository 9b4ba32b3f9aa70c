"""What explain shows of shedding: the bound, what stays and why, and what that loses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spark_cep.explanation.counts import cut_counts
from spark_cep.udfs.output import DROPPING_METRICS
from spark_cep.udfs.shedding.quota import KEEP_NONE
from spark_cep.udfs.shedding.utility import LEVELS

# How many kinds of rows are listed.
_LISTED_UTILITIES = 12


def least_recall(plans: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """The least expected recall of these plans, of batches that are shed; None if one is not known.

    >>> least_recall([{"shedding": {"estimated_recall": 0.4}}, {"shedding": None}])
    {'estimated_recall': 0.4}
    >>> least_recall([{"shedding": {"estimated_recall": None}}]), least_recall([{}])
    ({'estimated_recall': None}, {})
    """
    shed = [facts.get("shedding") or {} for facts in plans]
    found = [each["estimated_recall"] for each in shed if "estimated_recall" in each]
    if not found:
        return {}
    return {"estimated_recall": None if None in found else min(found)}


def trigger_recall(recalls: Mapping[str, Sequence[float]]) -> float | None:
    """The expected recall of a trigger, over all buckets; None if it is not known.

    >>> trigger_recall({"": [30.0, 40.0]}), trigger_recall({}), trigger_recall({"unknown": [0, 9]})
    (0.75, 1.0, None)
    """
    if "unknown" in recalls:
        return None
    kept, every = recalls.get("", (0.0, 0.0))
    return kept / every if every else 1.0


# ---- explain -----------------------------------------------------------------------------------


def shedding_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The rows of the section on shedding."""
    if "where" in facts:
        yield "asked", f"{facts['asked']}, by {facts['policy']}"
        yield "where", facts["where"]
        yield from _dropping_rows(facts)
        yield from _utility_rows(facts)
        return
    yield "asked", f"{facts['asked']}, by {facts['policy']}"
    if facts["share"] >= 1:
        yield "stays", f"all rows: {facts['reason']}"
        return
    yield "stays", f"{format_percent(facts['share'])}: {facts['reason']}"
    yield "recall", f"{_recall_text(facts)}, estimated on {facts['looked_at']}"
    if facts["blocks"]:
        yield "blocks", facts["blocks"]
    yield from _dropping_rows(facts)
    yield "dealt", facts["dealt"]
    is_exact = facts.get("counted", True)
    for kind in facts["kinds"][:_LISTED_UTILITIES]:
        yield f"{', '.join(kind['variables'])}:", _kept_text(kind, is_exact=is_exact)
    more = len(facts["kinds"]) - _LISTED_UTILITIES
    if more > 0:
        yield "", f"and {more} other kinds of rows"
    yield from _utility_rows(facts)
    if "cost" in facts:
        yield "costs", _cost_text(facts["cost"])


def _cost_text(cost: Mapping[str, float]) -> str:
    spent, saved = format_seconds(cost["spent"]), format_seconds(cost["saved"])
    more = "" if cost["spent"] <= cost["saved"] else ", which is less"
    return f"choosing is expected to take {spent}, and to save {saved} of moving and matching{more}"


def format_seconds(seconds: float) -> str:
    """
    >>> format_seconds(12.345), format_seconds(0.4), format_seconds(0.0004)
    ('12 s', '0.4 s', 'less than 0.1 s')
    """
    least = 0.1
    return f"less than {least} s" if seconds < least else f"{float(f'{seconds:.2g}'):g} s"


def _dropping_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What goes, where it is not rows."""
    if "drops" in facts:
        yield "drops", facts["drops"]


def _utility_rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for place, each in enumerate(facts["utility"]):
        yield ("" if place else "by"), _table_text(each, facts["policy"])
    if facts["never"]:
        yield "never", f"rows that NOT {', NOT '.join(facts['never'])} needs"


def _kept_text(kind: Mapping[str, Any], *, is_exact: bool) -> str:
    kept, rows = (_count_text(kind[name], is_exact=is_exact) for name in ("kept", "rows"))
    if kind["threshold"] >= KEEP_NONE:
        return f"none of {rows} rows"
    if kind["kept"] >= kind["rows"]:
        return f"all {rows} rows"
    if kind["threshold"] < 0:
        return f"{kept} of {rows} rows, block by block"
    return f"{kept} of {rows} rows, from level {kind['threshold']:,.1f} of {LEVELS:,}"


def _count_text(count: int, *, is_exact: bool) -> str:
    return f"{count:,}" if is_exact else f"≈ {float(f'{count:.3g}'):,.0f}"


def _table_text(each: Mapping[str, Any], policy: str) -> str:
    by_key = ", by key" if each["by_key"] else ""
    shares = f"{each['least']:.2g} to {each['most']:.2g}"
    if policy == "darling":
        mean = f"{each['mean']:.2g} on average"
        return f"{each['variable']} passes {each['condition']}: {shares}, {mean}{by_key}"
    if policy == "espice":
        mean = f"{each['mean']:.2g} on average"
        return f"{each['variable']} by its position: {shares} are in matches, {mean}"
    condition = each["condition"] or "the rows in its window"
    return f"{each['variable']} by {condition}: {shares} times the mean worth{by_key}"


def _recall_text(facts: Mapping[str, Any]) -> str:
    if facts["estimated_recall"] is None:
        return f"unknown: {facts['recall_unknown']}"
    low, high = (format_percent(each) for each in facts["recall_interval"])
    return f"≈ {format_percent(facts['estimated_recall'])} of the matches ({low} to {high})"


def format_percent(share: float) -> str:
    """
    >>> format_percent(0.3), format_percent(0.0712)
    ('30%', '7.12%')
    """
    return f"{100 * share:.3g}%"


# ---- analyze -----------------------------------------------------------------------------------


def measured_shedding_rows(
    facts: Mapping[str, Any],
    counts: Mapping[str, Any],
    recall: tuple[int, int] | None,
) -> Iterator[tuple[str, str]]:
    """What was counted, and the recall measured on a sample beside the estimate."""
    if facts["share"] >= 1:
        yield "dropped", "nothing"
        return
    if "drops" in facts:
        pairs, partials = (int(counts.get(name, 0)) for name in DROPPING_METRICS)
        what = (
            f"{pairs:,} pairs" if facts["policy"] == "hspice" else f"{partials:,} partial matches"
        )
        yield "dropped", f"{what}; {counts['pairs']:,} pairs were tested"
    for name, (kept, dropped) in counts.get("shed", {}).items():
        every = kept + dropped
        share = f" ({format_percent(kept / every)})" if every else ""
        yield f"{name}:", f"{kept:,} of {every:,} rows stayed{share}"
    estimated = f"estimated {_recall_text(facts)}"
    if recall is None:
        yield "recall", f"{estimated}; the sample has too many matches to count them"
    elif not recall[0]:
        yield "recall", f"{estimated}; the sample has no match to count"
    else:
        found, kept = recall
        share = format_percent(kept / found)
        yield "recall", f"{share}: {kept:,} of {found:,} matches of a sample; {estimated}"


def deadline_rows(counts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What matching left at its deadline, if it had one.

    >>> list(deadline_rows({"cut": 2, "left": 30, "starts": 120}))
    [('deadline', 'passed in 2 buckets: 25% of the work was left')]
    >>> list(deadline_rows({"cut": 0, "left": 0, "starts": 120})), list(deadline_rows({}))
    ([('deadline', 'not reached')], [])
    """
    found = cut_counts(counts)
    if not found:
        return
    if not found["cut"]:
        yield "deadline", "not reached"
        return
    buckets = f"{found['cut']:,} bucket{'s' * (found['cut'] != 1)}"
    yield (
        "deadline",
        f"passed in {buckets}: {format_percent(found['left_share'])} of the work was left",
    )
