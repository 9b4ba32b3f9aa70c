"""Running the detection-adaptation loop over a generated stream, and what is kept of a run.

Every decision function gets the same chunks of the same stream and begins with the same plan. Two
throughputs: *measured* is events by the processor time of the loop; *counted* is events by that of
adapting and, for matching, by pairs, partial matches and events, each times what one was measured
to cost. So it leaves out what a call costs in Python. Neither counts the machine's other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import process_time, thread_time
from typing import TYPE_CHECKING

from benchmarks.pattern_sets import Kind, Stream, Workload, workload
from benchmarks.programs import cut
from spark_cep.udfs.costs import TYPICAL_COSTS, measure_costs
from spark_cep.udfs.events import adaptive
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.bucket_plans import estimate_rates
from spark_cep.udfs.events.chunks import Chunk, cut_chunks
from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.metrics import Metrics
from spark_cep.udfs.planning.adaptation import Adapter, SlidingStatistics
from spark_cep.udfs.planning.planner import branch_models, plan_generators
from spark_cep.udfs.task_clock import TaskClock

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.program import Adaptation, BranchPlan, Estimates, PlanKind

# At least twenty windows: what lies within a window of a chunk's end is looked at twice.
CHUNK_EVENTS = 20_000


@dataclass(frozen=True)
class Cell:
    """What one pattern is: a stream, a planner, a pattern set and a size."""

    stream: Stream
    planner: PlanKind
    kind: Kind
    size: int


@dataclass(frozen=True)
class Result:
    """One run. `seconds`, of processor time, of the whole loop; `planning`, of these, in
    statistics, D and A."""

    events: int
    pairs: int
    partials: int
    matches: int
    checks: int
    swaps: int
    seconds: float
    planning: float

    @property
    def measured(self) -> float:
        return self.events / self.seconds

    @property
    def counted(self) -> float:
        costs = measure_costs()
        work = self.pairs * costs.pair + self.partials * costs.result + self.events * costs.insert
        return self.events / (work + self.planning)

    @property
    def overhead(self) -> float:
        """The share of the running time that went into adapting."""
        return self.planning / self.seconds


Results = Mapping[Cell, Mapping[str, Result]]


# ---- running -----------------------------------------------------------------------------------


@contextmanager
def engine_clock(clock: Callable[[], float]) -> Iterator[None]:
    """The engine takes the time that its planning takes from this clock."""
    real = adaptive.perf_counter
    adaptive.perf_counter = clock
    try:
        yield
    finally:
        adaptive.perf_counter = real


def run_adaptive(given: Workload, adaptation: Adaptation, *, own_chunks: bool = False) -> Result:
    """The loop over the whole stream. `own_chunks`: cut as the engine cuts a bucket, which is
    where rates change and else in much larger pieces."""
    program = replace(
        given.prepared.program, plan=given.plan, estimates=given.estimates, adaptation=adaptation
    )
    if own_chunks:
        pieces = list(cut_chunks(program, given.prepared.table))
    else:
        pieces = [Chunk(rows, horizon) for rows, horizon in cut(given.prepared, CHUNK_EVENTS)]
    loop = AdaptiveEngine(program)
    started = process_time()
    with engine_clock(thread_time):
        for _ in loop.run(pieces):
            pass
    seconds, found = process_time() - started, loop.metrics
    return Result(
        given.prepared.table.num_rows, found.pairs, found.partial_matches, found.matches,
        found.plan_checks, len(found.swaps), seconds, found.planning_us / 1e6,
    )  # fmt: skip


def run_on_past(given: Workload, adaptation: Adaptation) -> Result:
    """The loop as the paper has it (Algorithm 1): after each chunk the statistics of that chunk are
    checked, and a new plan is for the chunks to come. Rates are those of the latest chunk."""
    program = replace(given.prepared.program, plan=given.plan, estimates=given.estimates)
    models = branch_models(program)
    made = plan_generators(given.plan.kind, models, TYPICAL_COSTS, program.planner)
    loop = Adapter(adaptation, made, given.estimates)
    observed = SlidingStatistics(given.estimates, advances=1)
    state, metrics, planning = EventState(), Metrics(), 0.0
    counted: list[Estimates] = []

    def planned(matching: AdvanceContext) -> Sequence[BranchPlan]:
        start = process_time()
        counted.append(estimate_rates(matching, {}))
        nonlocal planning
        planning += process_time() - start
        return loop.plan.branches or ()

    pieces = cut(given.prepared, CHUNK_EVENTS)
    started = process_time()
    for rows, horizon in pieces:
        step = advance_events(
            program, state, rows, horizon, planner=planned, clock=TaskClock(program.limits.seconds)
        )
        for _ in step.matches:
            pass
        state = step.state
        metrics.add(step.metrics)
        start = process_time()
        windows = counted[-1].windows
        counts = {v: round(rate * windows) for v, rate in counted[-1].rates.items()}
        observed.add(counts, round(windows), step.metrics.conditions)
        loop.after(observed.estimates())
        planning += process_time() - start
    seconds = process_time() - started
    return Result(
        given.prepared.table.num_rows, metrics.pairs, metrics.partial_matches, metrics.matches,
        loop.checks, len(loop.swaps), seconds, planning,
    )  # fmt: skip


Methods = Mapping[str, "Adaptation"]
# The methods on past statistics have this behind their names.
PAST = ", past"


def run_cell(
    cell: Cell, events: int, methods: Methods, *, own_chunks: bool = False
) -> dict[str, Result]:
    given = workload(cell.stream, cell.kind, cell.size, cell.planner, events)
    results = {
        name: run_on_past(given, each)
        if name.endswith(PAST)
        else run_adaptive(given, each, own_chunks=own_chunks)
        for name, each in methods.items()
    }
    matches = {name: each.matches for name, each in results.items()}
    if len(set(matches.values())) > 1:
        raise AssertionError(f"{cell}: the methods do not agree on the matches: {matches}")
    return results


def run_all(
    cells: Sequence[Cell],
    events: int,
    methods: Callable[[Cell], Methods],
    *,
    own_chunks: bool = False,
) -> dict[Cell, dict[str, Result]]:
    """One process a core: the loop uses one."""
    with ProcessPoolExecutor() as pool:
        running = [
            pool.submit(run_cell, cell, events, methods(cell), own_chunks=own_chunks)
            for cell in cells
        ]
        return {cell: each.result() for cell, each in zip(cells, running, strict=True)}
