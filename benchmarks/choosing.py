"""The driver's way from a program to its plan, without Spark: a sample of the first rows, then
the choice; and the worker's, from its rows to matches. All that knows how plans are chosen is
here; benchmarks only ask.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from benchmarks.programs import Run
from spark_cep.adapt import adaptation
from spark_cep.planner.choice import PlanChoice, PlanFacts, choose_plan
from spark_cep.planner.statistics import SAMPLE_ROWS
from spark_cep.plans import read_plan_request
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.chunks import cut_chunks
from spark_cep.udfs.events.sampling import estimate_from_table
from spark_cep.udfs.program import Adaptation

if TYPE_CHECKING:
    import pyarrow as pa

    from benchmarks.programs import Prepared
    from spark_cep.udfs.program import Estimates, PlanKind, Program

AUTO = "auto"
FORCED: tuple[PlanKind, ...] = ("eager", "lazy-chain", "tree", "zstream", "hybrid")


def planned(prepared: Prepared, plan: str) -> tuple[Prepared, PlanChoice]:
    """The program as the driver ships it for `plan=`, and the choice. What a forced kind leaves
    open is decided by the sample as well, and adapts as it does in the product."""
    choice = _choice(prepared.program, _sampled(prepared.program, prepared.table), plan)
    policy = replace(adaptation("invariants"), to_tree=plan == AUTO)
    program = replace(
        prepared.program,
        plan=choice.plan,
        estimates=choice.estimates,
        adaptation=policy if choice.adapts else Adaptation(),
        costs=choice.costs,
    )
    return replace(prepared, program=program), choice


def work(prepared: Prepared) -> Run:
    """What a worker does with a bucket, up to the answer's rows, in processor time."""
    program, table = prepared.program, prepared.table
    started = process_time()
    matching = AdaptiveEngine(program)
    for _ in matching.run(cut_chunks(program, table)):
        pass
    return Run(matching.metrics, process_time() - started)


def choice_seconds(program: Program, estimates: Estimates) -> float:
    """What choosing takes when the statistics are given."""
    started = perf_counter()
    _choice(program, estimates, AUTO)
    return perf_counter() - started


def _sampled(program: Program, table: pa.Table) -> Estimates | None:
    return estimate_from_table(program, table.slice(0, SAMPLE_ROWS))


def _choice(program: Program, estimates: Estimates | None, plan: str) -> PlanChoice:
    return choose_plan(
        PlanFacts(
            program.variables,
            program.strategy,
            read_plan_request(plan),
            program.branches,
            program.conditions,
            estimates,
        )
    )
