"""Latency on a virtual clock: what each event causes, in seconds, behind a queue.

The engine runs a plan once over all events and says which event causes how many pairs and results
(`WorkTrace`); times what those were measured to cost, that is the event's service time. Arrivals
are
Poisson, one server takes events in turn. So the figures are those of an engine that takes events
one by one, without what a call costs in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.events.engine import EventState, advance_events
from spark_cep.udfs.events.metrics import WorkTrace
from spark_cep.udfs.program import Plan

if TYPE_CHECKING:
    from benchmarks.programs import Prepared
    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.program import BranchPlan


# ---- service times -----------------------------------------------------------------------------


@dataclass
class Arrivals(WorkTrace):
    """What each event causes in an engine that takes events one by one. `final`: the events that
    a merge begins with.

    In one advance over all events a merge also meets partial matches of the eager group that end
    after its final event, and drops them. One by one they would not have been there yet, so such
    pairs are nobody's work: those of a join whose latest row is not the final event.
    """

    final: np.ndarray

    def add(self, pairs: np.ndarray | None, results: np.ndarray | None) -> None:
        # Only joins say what they tried before what they found.
        if pairs is not None and results is None:
            pairs = pairs[self.final[pairs]]
        super().add(pairs, results)


def traced(prepared: Prepared, plan: BranchPlan) -> tuple[Arrivals, np.ndarray]:
    """One run of a plan for a sequence whose last variable is the last one of the program: what
    each event causes, and whether it ends a match."""
    program = replace(prepared.program, plan=Plan("hybrid", (plan,)))
    step = advance_events(program, EventState(), prepared.table)
    size = step.events.size
    final = step.events.candidates(len(program.variables) - 1)
    # In one advance over everything no pair is tried before a match is asked for.
    trace = Arrivals(np.zeros(size, np.int64), np.zeros(size, np.int64), final)
    step.meter.trace = trace
    ends = np.zeros(size, dtype=np.bool_)
    for found in step.matches:
        ends[found.latest] = True
    return trace, ends


@dataclass(frozen=True)
class Work:
    """Seconds of service of each event, and which events end a match."""

    service: np.ndarray
    ends: np.ndarray


def worked(prepared: Prepared, plan: BranchPlan, costs: OperationCosts) -> Work:
    trace, ends = traced(prepared, plan)
    # Every event is put into a buffer, whichever group it is in.
    service = costs.insert + costs.pair * trace.pairs + costs.result * trace.results
    return Work(service, ends)


# ---- the queue ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latency:
    """Means over true final events, in seconds: waiting in the queue, then being served."""

    waiting: float
    service: float

    @property
    def total(self) -> float:
        return self.waiting + self.service


def waits(service: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """How long each event waits for one server that takes them in turn, by Lindley's recursion:
    what it waits is what the one before waited and took, less the gap, and never below 0."""
    level = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    waiting: np.ndarray = level - np.minimum.accumulate(level)
    return waiting


def latency(works: Sequence[Work], gaps: Sequence[np.ndarray]) -> Latency:
    """Over the second halves of all streams; the first ones are for warming up."""
    waiting, service = [], []
    for work, between in zip(works, gaps, strict=True):
        final = work.ends.copy()
        final[: len(final) // 2] = False
        waiting.append(waits(work.service, between)[final].mean())
        service.append(work.service[final].mean())
    return Latency(float(np.mean(waiting)), float(np.mean(service)))
