"""What a check of the invariants takes, beside evaluating them and making the plan.

    python -m benchmarks.invariant_checks

Sequences with a condition between neighbours, under every planner. The shortest of several runs;
rates change a little from check to check, so nothing is known from the check before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.pattern_sets import pattern
from benchmarks.programs import prepare
from benchmarks.reporting import table
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.planning.adaptation import Adapter
from spark_cep.udfs.planning.invariants import first_violation, select_invariants
from spark_cep.udfs.planning.planner import branch_models, plan_generators
from spark_cep.udfs.program import Adaptation, Estimates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.planning.cost_model import BranchModel
    from spark_cep.udfs.program import PlanKind, PlannerName

SIZES = (3, 5, 8)
PLANNERS: tuple[tuple[PlanKind, PlannerName], ...] = (
    ("lazy-chain", "greedy"),
    ("lazy-chain", "dp"),
    ("zstream", "dp"),
    ("zstream", "zstream"),
)
RUNS = 40
# Far from where the planner would decide otherwise.
DISTANCE = 0.5


def shortest(work: Callable[[Estimates], object], given: Sequence[Estimates]) -> float:
    """Microseconds."""
    found = []
    for estimates in given:
        start = perf_counter()
        work(estimates)
        found.append(perf_counter() - start)
    return 1e6 * min(found)


def branch_of(size: int) -> BranchModel:
    columns = {"t": np.arange(0), "kind": np.arange(0), "diff": np.zeros(0)}
    prepared = prepare(pattern("stocks", "sequence", size, 100), columns)
    return branch_models(prepared.program)[0]


def nearly(estimates: Estimates) -> list[Estimates]:
    random = np.random.default_rng(1)
    return [
        replace(
            estimates,
            rates={v: rate * random.uniform(0.999, 1.001) for v, rate in estimates.rates.items()},
        )
        for _ in range(RUNS)
    ]


def row(size: int, kind: PlanKind, planner: PlannerName, k: int | None) -> list[object]:
    model = branch_of(size)
    random = np.random.default_rng(size)
    then = Estimates(
        {v: float(random.uniform(1, 50)) for v in range(size)},
        {index: float(random.uniform(0.1, 0.9)) for index in range(size - 1)},
    )
    maker = plan_generators(kind, [model], TYPICAL_COSTS, planner)[0]
    made = maker.make(then)
    invariants = select_invariants(made, k, then)
    loop = Adapter(Adaptation("invariants", k=k, distance=DISTANCE), [maker], then)
    for again in nearly(then)[:3]:
        loop.after(again)
    evaluated = shortest(lambda now: first_violation(invariants, now, DISTANCE), nearly(then))
    return [
        size, planner, "order" if kind == "lazy-chain" else "tree", "all" if k is None else k,
        len(invariants), shortest(loop.after, nearly(then)), evaluated,
        shortest(maker.make, nearly(then)),
    ]  # fmt: skip


def main() -> None:
    head = ["size", "planner", "plan", "k", "invariants", "check, µs", "evaluated, µs", "plan, µs"]
    rows = [
        row(size, kind, planner, k)
        for kind, planner in PLANNERS
        for size in SIZES
        for k in (1, None)
    ]
    print(table(head, rows))


if __name__ == "__main__":
    main()
