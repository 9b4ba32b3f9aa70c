"""Plans on streams: the automatic choice beside every plan that could be named, in pairs and time.

Twelve cells: four patterns, each with windows of 2, 10 and 100 triggers. One bucket without Spark:
the worker's own triggers over a store in memory, all contestants taking every trigger in turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.programs import prepare
from benchmarks.stream_windows import TICKS, Kept, stream_job
from spark_cep import event, seq
from spark_cep.udfs.planning.shapes import left_deep_shape
from spark_cep.udfs.program import Adaptation, BranchPlan, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_cep.pattern import Pattern

SEED = 16
ABC = (event("a", "kind = 0"), event("b", "kind = 1"), event("c", "kind = 2"))
WINDOWS = (2, 10, 100)
# Triggers that are measured, after as many as a window has.
MEASURED = 30


@dataclass(frozen=True)
class StreamWork:
    """`phases`: the shares of the kinds; those of the last phase follow those of the first in the
    middle of what is measured. `rows`: in a window."""

    conditions: tuple[str, ...]
    phases: tuple[tuple[float, float, float], ...]
    rows: int = 2_000

    def pattern(self, window: int) -> Pattern:
        return seq(*ABC).where(*self.conditions).within(window * TICKS)

    def columns(self, window: int, measured: int) -> Mapping[str, np.ndarray]:
        random, triggers = np.random.default_rng(SEED), window + measured
        count = self.rows // window * triggers
        times = np.sort(random.integers(0, triggers * TICKS, count))
        begin = (window + measured // 2) * TICKS
        kinds = [random.choice(3, count, p=shares) for shares in self.phases]
        return {
            "t": times,
            "kind": np.where(times < begin, kinds[0], kinds[-1]),
            "x": random.random(count),
            "y": random.random(count),
            "k": random.integers(0, 50, count),
        }


WORKS: Mapping[str, StreamWork] = {
    "correlated": StreamWork(
        ("a.x < b.x - 0.9", "b.x < c.x - 0.01"), ((0.4, 0.4, 0.2),)
    ),
    "few pairs fit": StreamWork(
        ("(a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) < 0.001", "b.x < c.x"),
        ((0.2, 0.2, 0.6),),
    ),
    "rates switch": StreamWork(
        ("a.x < b.x", "b.x < c.x - 0.5"), ((0.6, 0.38, 0.02), (0.02, 0.38, 0.6)), 1_000
    ),
    "tied by values": StreamWork(("a.k = b.k", "b.x < c.x - 0.9"), ((0.3, 0.3, 0.4),)),
}  # fmt: skip


def named_plans(slots: int = 3) -> Iterator[tuple[str, Plan]]:
    """Every order, and every group whose partial matches can be kept."""
    names = "abcdef"[:slots]
    for order in permutations(range(slots)):
        text = "→".join(names[slot] for slot in order)
        yield text, Plan("lazy-chain", (BranchPlan(left_deep_shape(order), fixed=True),))
    for size in range(2, slots):
        for eager in combinations(range(slots), size):
            rest = [slot for slot in reversed(range(slots)) if slot not in eager]
            shape = (left_deep_shape(rest), left_deep_shape(eager))
            text = f"{' '.join(names[s] for s in eager)} | {'→'.join(names[s] for s in rest)}"
            yield text, Plan("hybrid", (BranchPlan(shape, eager, fixed=True),))


@dataclass
class Total:
    """What the measured triggers of one contestant took."""

    pairs: int = 0
    seconds: float = 0.0
    matches: int = 0
    kept: int = 0
    swaps: list[str] = field(default_factory=list)
    orders: dict[str, int] = field(default_factory=dict)

    def add(self, metrics: Mapping[str, Any], seconds: float) -> None:
        self.pairs += metrics["pairs"]
        self.seconds += seconds
        self.matches += metrics["matches"]
        self.kept = max(self.kept, metrics["kept_partial_matches"])
        for order, pairs in metrics.get("orders", {}).items():
            self.orders[order] = self.orders.get(order, 0) + pairs


AUTOS: Mapping[str, Plan] = {"auto": Plan("lazy-chain"), "hybrid": Plan("hybrid")}


def measure_cell(
    work: StreamWork,
    window: int,
    measured: int = MEASURED,
    *,
    autos: Mapping[str, Plan] = AUTOS,
) -> dict[str, Total]:
    prepared = prepare(work.pattern(window), work.columns(window, measured))
    adaptation = Adaptation("invariants", to_tree=True, to_hybrid=True)
    racing = {
        name: Kept(stream_job(prepared, plan, Adaptation(), name)) for name, plan in named_plans()
    }
    racing |= {
        name: Kept(stream_job(prepared, plan, adaptation, name)) for name, plan in autos.items()
    }
    totals = {name: Total() for name in racing}
    bounds = np.searchsorted(prepared.times(), np.arange(window + measured + 1) * TICKS)
    for number in range(window + measured):
        rows = prepared.table.slice(bounds[number], bounds[number + 1] - bounds[number])
        for name, one in racing.items():
            started = time.perf_counter()
            one.trigger(number, rows)
            if number >= window:
                totals[name].add(one.metrics, time.perf_counter() - started)
    for name, one in racing.items():
        totals[name].swaps = one.swaps
    return totals
