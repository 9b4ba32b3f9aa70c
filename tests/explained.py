"""Facts of explain, made by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Shape = Any


def facts(kind: str, names: Sequence[str], shape: Shape = None, **others: Any) -> dict[str, Any]:
    """A plan of `kind` over variables in pattern order. Rates and costs grow along the pattern."""
    return {
        "number": 7,
        "pattern": f"SEQ({', '.join(names)})",
        "strategy": "skip till any match",
        "consumption": "reuse",
        "window": "10 minutes",
        "partition_by": ["venue"],
        "inferred_keys": [],
        "order_by": ["ts"],
        "plan": kind,
        "shown": "→".join(names),
        "order": list(names),
        "rung": "cheapest",
        "reason": "it has the lowest estimated cost",
        "cost": 1.2e6,
        "rejected": [
            {"plan": "eager", "shown": "a→b→c", "cost": 4.1e7, "reason": "binds a, b early"},
            {"plan": "tree", "shown": "", "cost": None, "reason": "needs a scope"},
        ],
        "statistics": {
            "source": "a sample of 24,000 rows",
            "rates": {name: 10.0 * (place + 1) for place, name in enumerate(names)},
            "selectivities": [
                {"condition": f"{left}.price < {right}.price", "selectivity": 0.25}
                for left, right in pairwise(names)
            ],
            "windows": 60.0,
        },
        "branches": [branch(names, shape)],
        "invariants": [f"r({names[0]}) < r({names[-1]})"],
        "adaptation": "between advances, by invariants",
        "before": {
            "candidates": {name: [f"ticker = '{name.upper()}'"] for name in names},
            "computed": [],
            "shipped": ["ts", "candidates"],
            "drops": "rows that no variable accepts",
        },
        "buckets": {"count": 4, "reason": "two a core"},
        "slices": "none: there is a key",
        "engine": {"conditions": [f"{names[0]}.price < {names[-1]}.price"]},
        "limits": {"partial_matches": 20_000_000, "matches": 100_000_000},
        "after": {"conditions": [], "columns": ["venue", *names]},
        **others,
    }


def branch(names: Sequence[str], shape: Shape = None, eager: Sequence[str] = ()) -> dict[str, Any]:
    """A branch, with a node for each join of its shape."""
    return {
        "variables": list(names),
        "shape": shape,
        "eager": list(eager),
        "nodes": [] if shape is None else nodes(shape, names),
    }


def chain(*names: str) -> Shape:
    """The shape that binds one after another."""
    shape: Shape = names[0]
    for name in names[1:]:
        shape = [shape, name]
    return shape


def nodes(shape: Shape, names: Sequence[str], *, starts: bool = True) -> list[Mapping[str, Any]]:
    """The steps of a plan: one for the start of each unit, one for each join."""
    if isinstance(shape, str):
        return [node([shape], [shape], names)] if starts else []
    left, right = shape
    before = [*nodes(left, names), *nodes(right, names, starts=False)]
    return [*before, node(leaves(right), leaves(shape), names)]


def node(binds: list[str], bound: list[str], names: Sequence[str]) -> Mapping[str, Any]:
    starts = binds == bound
    slots = ",".join(str(each) for each in sorted(names.index(name) for name in bound))
    return {
        "binds": binds,
        "key": f"0:{slots}",
        "pairs": 0.0 if starts else 1000.0 * len(bound),
        "partials": 100.0 * len(bound),
        "conditions": [] if starts else [f"{binds[0]}.price < 3 * {bound[0]}.price"],
    }


def leaves(shape: Shape) -> list[str]:
    return [shape] if isinstance(shape, str) else [n for part in shape for n in leaves(part)]
