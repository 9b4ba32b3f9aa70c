"""Running the detection-adaptation loop over a generated stream, and what is kept of a run.

Every decision function gets the same chunks of the same stream and begins with the same plan. Two
throughputs: *measured* is events by the seconds of the loop; *counted* is events by the seconds of
adapting and, for matching, by pairs, partial matches and events, each times what one was measured
to cost. So it leaves out what a call costs in Python, and the machine's other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.pattern_sets import Kind, Stream, Workload, workload
from benchmarks.programs import cut
from spark_cep.udfs.costs import measure_costs
from spark_cep.udfs.events.adaptive import AdaptiveEngine
from spark_cep.udfs.events.chunks import Chunk, cut_chunks

if TYPE_CHECKING:
    from spark_cep.udfs.program import Adaptation, PlanKind

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
    """One run. `seconds` of the whole loop; `planning`, of these, in statistics, D and A."""

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
    started = perf_counter()
    for _ in loop.run(pieces):
        pass
    seconds, found = perf_counter() - started, loop.metrics
    return Result(
        given.prepared.table.num_rows, found.pairs, found.partial_matches, found.matches,
        found.plan_checks, len(found.swaps), seconds, found.planning_us / 1e6,
    )  # fmt: skip


Methods = Mapping[str, "Adaptation"]


def run_cell(
    cell: Cell, events: int, methods: Methods, *, own_chunks: bool = False
) -> dict[str, Result]:
    given = workload(cell.stream, cell.kind, cell.size, cell.planner, events)
    results = {
        name: run_adaptive(given, each, own_chunks=own_chunks) for name, each in methods.items()
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
