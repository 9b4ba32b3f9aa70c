"""Estimates from a sample of the input: rates of candidates and selectivities of conditions.

The driver reads a sample once, before it chooses a plan. Selectivities are measured on random
partial matches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.comparisons import evaluation_cost
from spark_cep.udfs.events.bucket_plans import window_rates
from spark_cep.udfs.events.candidates import AdvanceCase, SlotCandidates, find_scope
from spark_cep.udfs.events.context import AdvanceContext
from spark_cep.udfs.events.metrics import Meter, Metrics
from spark_cep.udfs.events.partials import BranchSlots, Partials, SlotElements
from spark_cep.udfs.events.steps import BranchSteps
from spark_cep.udfs.events.table import NEW, Events, drop_null_times
from spark_cep.udfs.events.walk import BranchWalk
from spark_cep.udfs.expressions import FOLDS, UserCall, cells_of, remote_sources_of
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from spark_cep.udfs.events.table import Positions
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.program import Condition, Program


# Estimates a selectivity of 0.01 to within a third; all conditions of a pattern take some
# milliseconds.
SAMPLE_DRAWS = 1_000
# Number of windows whose own best plan is compared with the one plan for all.
SAMPLE_WINDOWS = 8


def estimate_from_table(program: Program, table: pa.Table) -> Estimates | None:
    """Rates and selectivities of a sample; None if it has no candidates."""
    return estimate_from_context(make_sample_context(program, table))


def make_sample_context(program: Program, table: pa.Table) -> AdvanceContext:
    """The rows of a sample as one advance, to draw from."""
    events = Events(program, drop_null_times(program, table))
    meter = Meter(events, program.limits, Metrics())
    status = np.full(events.size, NEW)
    return AdvanceContext(program, events, status, meter, ErrorTally(ansi=program.ansi))


def estimate_from_context(matching: AdvanceContext) -> Estimates | None:
    """Rates and selectivities of the rows of a context; None if it has no candidates."""
    program = matching.program
    density = matching.events.density(matching.meter.stretch)
    if not any(density.candidates.values()):
        return None
    # No candidate in a sample is counted as half a one, not as never.
    rates = {v: max(count, 0.5) / density.stretches for v, count in density.candidates.items()}
    selectivities: dict[int, float] = {}
    for number in range(len(program.branches)):
        walk = make_sampling_walk(matching, number)
        for together in _group_conditions(program):
            if together[0] not in selectivities:
                selectivities |= _measure_selectivities(walk, together)
    return Estimates(
        rates, selectivities, density.stretches, window_rates(matching, SAMPLE_WINDOWS)
    )


def _group_conditions(program: Program) -> Iterator[list[int]]:
    """Groups of conditions on the same variables, as places in the program, in the order in which
    the engine tests them: each is measured on what those before it keep."""
    sets = {condition.variables: None for condition in program.conditions}
    for variables in sets:
        alike = [n for n, c in enumerate(program.conditions) if c.variables == variables]
        yield sorted(alike, key=lambda place: evaluation_cost(program.conditions[place]))


def _measure_selectivities(walk: BranchWalk, together: Sequence[int]) -> dict[int, float]:
    conditions = {place: walk.matching.program.conditions[place] for place in together}
    sampled = {p: c for p, c in conditions.items() if can_sample(walk, c)}
    if not sampled:
        return {}
    first = next(iter(sampled.values()))
    slots = sorted({walk.slots.of_variable[v] for v in first.variables})
    backward = {c.variable for each in sampled.values() for c in previous_cells(each)}
    lists = [slot for slot in slots if backward & set(walk.slot(slot).variables)]
    drawn = draw_partials(walk, [*slots, *lists], SAMPLE_DRAWS)
    if drawn is None:
        return {}
    partials, weights = drawn
    reader = walk.reader(partials)
    kept, selectivities = weights, {}
    for place, condition in sampled.items():
        held = kept * reader.holds(condition)
        # A few draws of which none or all are kept do not prove 0 or 1.
        least = 0.5 / max(int(np.count_nonzero(kept)), 1)
        total = float(kept.sum())
        share = float(held.sum()) / total if total else 0.5
        selectivities[place] = float(np.clip(share, least, 1 - least))
        kept = held
    return selectivities


# ---- random partial matches ----------------------------------------------------------------------


SAMPLING_SEED = 42


def make_sampling_walk(matching: AdvanceContext, number: int) -> BranchWalk:
    """A walk to draw partial matches of a branch with.

    Nothing is drawn from repeated groups, so their iterations, which may be very many, are not
    found.
    """
    branch = matching.program.branches[number]
    slots = BranchSlots({place: SlotElements(slot) for place, slot in enumerate(branch.slots)})
    steps = BranchSteps(branch, matching.program, matching.program.conditions)
    return BranchWalk(
        matching,
        number,
        steps,
        SlotCandidates(matching, slots, AdvanceCase()),
        frozenset(slots.elements),
    )


def can_sample(walk: BranchWalk, condition: Condition) -> bool:
    """Whether a condition reads single rows of slots that this branch fills, without user functions
    or remote data: these may be slow, and may need what only the workers have."""
    slot_of = walk.slots.of_variable
    return (
        not any(isinstance(node, UserCall) for node in condition.expression.walk())
        and not remote_sources_of(condition.expression)
        and not any(cell.reading in FOLDS for cell in cells_of(condition.expression))
        and condition.variables <= slot_of.keys()
        and all(walk.slot(slot_of[v]).body is None for v in condition.variables)
    )


def previous_cells(condition: Condition) -> Iterator[Cell]:
    return (cell for cell in cells_of(condition.expression) if cell.reading == "prev")


def draw_partials(
    walk: BranchWalk, slots: Sequence[int], count: int
) -> tuple[Partials, npt.NDArray[np.float64]] | None:
    """`count` random partial matches of the slots (fewer where a scope is empty), with weights.

    A candidate of the first slot is drawn, then for each other slot one from its scope. So order,
    window and key hold as they will in the engine, and a partial match weighs as many as it was
    drawn from. A slot that occurs twice gets a list of two.
    """
    random = np.random.default_rng(SAMPLING_SEED)
    pool = walk.pools.pool(slots[0]).elements
    if not len(pool):
        return None
    chosen = pool[random.integers(0, len(pool), count)]
    partials = _bind_rows(walk, Partials({}, chosen, chosen), slots[0], chosen)
    weights = np.ones(count)
    for number, slot in enumerate(slots[1:], 1):
        step = walk.steps.step(frozenset(slots[:number]) - {slot}, frozenset({slot}))
        candidates = walk.pools.pool(slot)
        ranges = candidates.find(find_scope(step, walk.matching.events, walk.slots, partials))
        counts = np.maximum(ranges.high - ranges.low, 0)
        some = np.flatnonzero(counts)
        if not len(some):
            return None
        place = ranges.low[some] + (random.random(len(some)) * counts[some]).astype(np.int64)
        weights = weights[some] * counts[some]
        partials = _bind_rows(walk, partials.take(some), slot, candidates.elements[place])
    return partials, weights


def _bind_rows(walk: BranchWalk, partials: Partials, slot: int, rows: Positions) -> Partials:
    bound = rows[:, np.newaxis] if walk.slot(slot).is_list else rows
    if slot in partials.elements:
        bound = np.concatenate([partials.elements[slot], bound], axis=1)
    return Partials(
        {**partials.elements, slot: bound},
        np.minimum(partials.earliest, rows),
        np.maximum(partials.latest, rows),
    )
