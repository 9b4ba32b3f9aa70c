"""Running the detection-adaptation loop over a generated stream, and what is kept of a run.

Every decision function gets the same chunks of the same stream and begins with the same plan. Two
throughputs: *measured* is events by the seconds of matching and planning; *counted* has pairs and
partial matches in the place of the seconds of matching, each times what one was measured to cost.
So it leaves out what a call costs in Python, and the machine's other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks.pattern_sets import Kind, Stream, Workload, workload
from benchmarks.programs import cut
from spark_cep.udfs.adapting import Adaptive
from spark_cep.udfs.chunks import Chunk
from spark_cep.udfs.planning.costs import measured

if TYPE_CHECKING:
    from spark_cep.udfs.program import Adaptation, PlanKind

# At least ten windows: what lies within a window of a chunk's end is looked at twice.
CHUNK_EVENTS = 5_000


@dataclass(frozen=True)
class Cell:
    """What one pattern is: a stream, a planner, a pattern set and a size."""

    stream: Stream
    planner: PlanKind
    kind: Kind
    size: int


@dataclass(frozen=True)
class Result:
    """One run. `planning` and `matching` in seconds; `planning` is the time in D and A."""

    events: int
    pairs: int
    partials: int
    matches: int
    swaps: int
    matching: float
    planning: float

    @property
    def measured(self) -> float:
        return self.events / (self.matching + self.planning)

    @property
    def counted(self) -> float:
        costs = measured()
        work = self.pairs * costs.pair + self.partials * costs.result
        return self.events / (work + self.planning)

    @property
    def overhead(self) -> float:
        """The share of the running time that went into D and A."""
        return self.planning / (self.matching + self.planning)


Results = Mapping[Cell, Mapping[str, Result]]


# ---- running -----------------------------------------------------------------------------------


def run_adaptive(given: Workload, adaptation: Adaptation) -> Result:
    """The loop over the whole stream."""
    program = replace(
        given.prepared.program, plan=given.plan, estimates=given.estimates, adaptation=adaptation
    )
    loop = Adaptive(program)
    chunks = [Chunk(rows, horizon) for rows, horizon in cut(given.prepared, CHUNK_EVENTS)]
    for _ in loop.run(chunks):
        pass
    found = loop.metrics
    return Result(
        given.prepared.table.num_rows, found.pairs, found.partial_matches, found.matches,
        len(found.swaps), found.matching_us / 1e6, found.planning_us / 1e6,
    )  # fmt: skip


def run_cell(cell: Cell, events: int, adaptations: Mapping[str, Adaptation]) -> dict[str, Result]:
    given = workload(cell.stream, cell.kind, cell.size, cell.planner, events)
    results = {name: run_adaptive(given, each) for name, each in adaptations.items()}
    matches = {name: each.matches for name, each in results.items()}
    if len(set(matches.values())) > 1:
        raise AssertionError(f"{cell}: the methods do not agree on the matches: {matches}")
    return results


def run_all(
    cells: Sequence[Cell], events: int, wanted: Callable[[Cell], Mapping[str, Adaptation]]
) -> dict[Cell, dict[str, Result]]:
    """One process a core: the loop uses one."""
    with ProcessPoolExecutor() as pool:
        running = [pool.submit(run_cell, cell, events, wanted(cell)) for cell in cells]
        return {cell: each.result() for cell, each in zip(cells, running, strict=True)}
