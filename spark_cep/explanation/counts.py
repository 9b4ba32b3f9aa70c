"""Merges the counts of buckets into those of an answer.

The counts of a bucket are the JSON text that `udfs/output.py` describes. Merged counts have the
same shape and can be merged again in any order: numbers and pairs of numbers are added up, of
peaks the largest is taken, orders are sorted by their pairs and swaps by event time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_cep.udfs.output import (
    DEADLINE_METRICS,
    DROPPING_METRICS,
    ENGINE_METRICS,
    LATENCY_METRICS,
    PEAK_METRICS,
    PLANNING_METRICS,
    RANGE_METRICS,
    ROW_METRICS,
    SPILL_METRICS,
)
from spark_cep.udfs.remote_spec import LookupMetrics

CountMap = Mapping[str, Any]


def parse_counts(text: str) -> CountMap:
    counts: CountMap = json.loads(text)
    return counts


def merge_counts(counts: Iterable[CountMap]) -> dict[str, Any]:
    """The merged counts, with every key. A key of row patterns, of spilled rows or of a deadline is
    there if one of `counts` has it.

    >>> found = merge_counts([{"pairs": 2, "nodes": {"0:0": [2, 1]}}, {"nodes": {"0:0": [3, 3]}}])
    >>> found["pairs"], found["matches"], found["nodes"], found["swaps"]
    (2, 0, {'0:0': [5, 4]}, [])
    """
    every = list(counts)
    numbers = {
        name: _fold_count(name, [int(each.get(name, 0)) for each in every])
        for name in (*ENGINE_METRICS, *PLANNING_METRICS)
    }
    rare = (
        *(*SPILL_METRICS, *RANGE_METRICS),
        *(*DEADLINE_METRICS, *DROPPING_METRICS, *LATENCY_METRICS),
    )
    for name in (*ROW_METRICS, *rare):
        if name not in numbers and any(name in each for each in every):
            numbers[name] = _fold_count(name, [int(each.get(name, 0)) for each in every])
    remotes = _merge_remotes([each.get("remotes", {}) for each in every])
    shed = {
        name: found
        for name in ("shed", "shed_recall")
        if (found := _add_up([each.get(name, {}) for each in every]))
    }
    candidates = _add_up([_as_lists(each.get("candidates", {})) for each in every])
    orders = _add_up([_as_lists(each.get("orders", {})) for each in every])
    return {
        **numbers,
        "conditions": _add_up([each.get("conditions", {}) for each in every]),
        "candidates": {key: value[0] for key, value in candidates.items()},
        "nodes": _add_up([each.get("nodes", {}) for each in every]),
        "orders": {
            order: pairs for order, (pairs,) in sorted(orders.items(), key=lambda each: -each[1][0])
        },
        "swaps": sorted(
            (swap for each in every for swap in each.get("swaps", [])),
            key=lambda swap: _event_time_key(str(swap.get("event_time", ""))),
        ),
        **({"remotes": remotes} if remotes else {}),
        **shed,
    }


def public_counts(counts: CountMap, *, of_rows: bool = False) -> dict[str, Any]:
    """What `cep.metrics` returns for merged counts; `of_rows`: those of row patterns only."""
    rows = {name: int(counts.get(name, 0)) for name in ROW_METRICS if of_rows or name in counts}
    remotes = {"remotes": counts["remotes"]} if "remotes" in counts else {}
    shed = {"shed": _shed_by_variable(counts["shed"])} if "shed" in counts else {}
    spilled = {
        name: int(counts[name]) for name in (*SPILL_METRICS, *RANGE_METRICS) if name in counts
    }
    if of_rows:
        return {**rows, **spilled, **remotes}
    numbers = {name: int(counts[name]) for name in (*ENGINE_METRICS, *PLANNING_METRICS)}
    cut = cut_counts(counts)
    dropped = {name: int(counts[name]) for name in DROPPING_METRICS if name in counts}
    swaps = {"plan_swaps": len(counts["swaps"])}
    return {**numbers, **swaps, **rows, **spilled, **remotes, **shed, **dropped, **cut}


def cut_counts(counts: CountMap) -> dict[str, Any]:
    """What a deadline left, if there was one; `left_share` of all rows and kept partial matches
    with which matching began.

    >>> cut_counts({"cut": 1, "left": 30, "starts": 120}), cut_counts({})
    ({'cut': 1, 'left': 30, 'left_share': 0.25}, {})
    """
    if "cut" not in counts:
        return {}
    cut, left, begun = (int(counts[name]) for name in DEADLINE_METRICS)
    return {"cut": cut, "left": left, "left_share": left / begun if begun else float(cut > 0)}


def _shed_by_variable(shed: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
    return {name: {"kept": kept, "dropped": dropped} for name, (kept, dropped) in shed.items()}


def _merge_remotes(counts: Iterable[Mapping[str, CountMap]]) -> dict[str, dict[str, Any]]:
    """The counts of lookups by the name of the source, sorted."""
    total: dict[str, LookupMetrics] = {}
    for each in counts:
        for name, counted in each.items():
            total.setdefault(name, LookupMetrics()).add(LookupMetrics.from_dict(counted))
    return {name: total[name].to_dict() for name in sorted(total)}


def _event_time_key(text: str) -> tuple[float, str]:
    """A sort key: event times are numbers as text, or text that sorts as it is."""
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def _fold_count(name: str, values: list[int]) -> int:
    return max(values, default=0) if name in PEAK_METRICS else sum(values)


def _as_lists(numbers: Mapping[str, int]) -> dict[str, list[int]]:
    return {key: [value] for key, value in numbers.items()}


def _add_up(maps: Iterable[Mapping[str, list[int]]]) -> dict[str, list[int]]:
    """Adds up lists of numbers under equal keys, element by element. Keys are sorted by the numbers
    in them: 9 before 10."""
    total: dict[str, list[int]] = {}
    for each in maps:
        for key, values in each.items():
            before = total.get(key, [0] * len(values))
            total[key] = [mine + theirs for mine, theirs in zip(before, values, strict=True)]
    return {key: total[key] for key in sorted(total, key=_number_key)}


def _number_key(key: str) -> list[int]:
    return [int(part) for part in key.replace(":", ",").split(",") if part.isdigit()]
