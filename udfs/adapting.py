"""The detection-adaptation loop over the chunks of a bucket: match, look at what was seen, plan.

A plan made between two chunks is in force from the next one on. No match is lost or found twice:
a match is given in the advance that decides its latest row, and every advance finds all matches
that end in it, whatever the plan was before; what a plan keeps beside the events is found anew
from them when the plan changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING

from spark_cep.udfs.engine import State, advance
from spark_cep.udfs.metrics import Metrics
from spark_cep.udfs.planning.adaptation import Adapter
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import ADAPTABLE, generators, models, show
from spark_cep.udfs.planning.observed import Observed
from spark_cep.udfs.program import Estimates

if TYPE_CHECKING:
    from spark_cep.udfs.chunks import Chunk
    from spark_cep.udfs.engine import Advance
    from spark_cep.udfs.matching import Found
    from spark_cep.udfs.planning.adaptation import Swap
    from spark_cep.udfs.program import Program


class Adaptive:
    """Runs a program over chunks; `program` has the plan in force, `metrics` what was counted."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.metrics = Metrics()
        self._adapts = program.adaptation.kind != "off" and program.plan.kind in ADAPTABLE
        self._observed = Observed(program.estimates or Estimates({}))
        self._adapter: Adapter | None = None

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Advance, Found]]:
        """The matches of all chunks, each with the advance that has its events."""
        state, before = State(), None
        for chunk in chunks:
            if before is not None:
                self._learn(before, chunk)
            started = perf_counter_ns()
            if chunk.fresh:
                state = State()
            step = before = advance(self.program, state, chunk.table, chunk.horizon)
            state = step.state
            for found in step.matches:
                self.metrics.matching_us += (perf_counter_ns() - started) // 1000
                yield step, found
                started = perf_counter_ns()
            self.metrics.matching_us += (perf_counter_ns() - started) // 1000
            self.metrics.add(step.metrics)

    def _learn(self, step: Advance, chunk: Chunk) -> None:
        """What an advance has shown may change the plan of the next one."""
        if not self._adapts:
            return
        density = step.density()
        stretches = max(1, round(density.stretches))
        self._observed.add(density.candidates, stretches, step.metrics.conditions)
        if self._adapter is None:
            made = generators(self.program.plan.kind, models(self.program), TYPICAL)
            first = self.program.estimates or self._observed.estimates()
            self._adapter = Adapter(self.program.adaptation, made, first)
            self._follow()
        before = self._adapter.seconds
        swap = self._adapter.after(self._observed.estimates())
        self.metrics.plan_checks += 1
        self.metrics.planning_us += round((self._adapter.seconds - before) * 1e6)
        if swap is not None:
            self._follow()
            self.metrics.swaps.append(self._told(swap, chunk))

    def _follow(self) -> None:
        assert self._adapter is not None
        self.program = replace(self.program, plan=self._adapter.plan)

    def _told(self, swap: Swap, chunk: Chunk) -> dict[str, str]:
        names = [model.names for model in models(self.program)]
        return {
            "from": show(swap.before, names),
            "to": show(swap.after, names),
            "because": swap.because,
            "event_time": str(chunk.horizon if chunk.horizon is not None else "the last chunk"),
        }
