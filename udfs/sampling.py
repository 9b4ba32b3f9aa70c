"""What a sample of the input says: how many candidates, how close, and what conditions keep.

The driver reads a sample once, before it chooses a plan. Selectivities are measured on random
partial matches: a candidate of one slot, then for each other slot of the condition a candidate
drawn from its scope, so that order, window and key hold as they will when the engine asks. A
drawn match counts for as many as it was drawn from. Conditions with user functions are not
called, remote data is not fetched: both may be slow, and may need what only the workers have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.events import NEW, Events, without_null_times
from spark_cep.udfs.expressions import FOLDS, UserCall, cells, remotes
from spark_cep.udfs.joining.cases import Case
from spark_cep.udfs.joining.comparisons import cost
from spark_cep.udfs.joining.partials import Elements, Partials, Slots
from spark_cep.udfs.joining.pools import Pools
from spark_cep.udfs.joining.scope import scope
from spark_cep.udfs.joining.steps import Steps
from spark_cep.udfs.joining.walk import Walk
from spark_cep.udfs.matching import Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.rates import places
from spark_cep.udfs.values.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.program import Condition, Program

# A selectivity of 0.01 is then known to a third of itself; all conditions of a pattern take some
# milliseconds.
DRAWS = 1_000
SEED = 42
# Windows whose own best plan is compared with the one plan for all.
PLACES = 8


def estimates_of(program: Program, table: pa.Table) -> Estimates | None:
    """Rates and selectivities, by this table alone; None if it has no candidates."""
    events = Events(program, without_null_times(program, table))
    meter = Meter(events, program.limits, Metrics())
    density = events.density(meter.stretch)
    if not any(density.candidates.values()):
        return None
    # None in a sample is less than one, but not never.
    rates = {v: max(count, 0.5) / density.stretches for v, count in density.candidates.items()}
    status = np.full(events.size, NEW)
    matching = Matching(program, events, status, meter, Tally(ansi=program.ansi))
    selectivities: dict[int, float] = {}
    for number in range(len(program.branches)):
        walk = _walk(matching, number)
        for together in _together(program):
            if together[0] not in selectivities:
                selectivities |= _selectivities(walk, together)
    return Estimates(rates, selectivities, density.stretches, places(matching, PLACES))


def _walk(matching: Matching, number: int) -> Walk:
    """Nothing is drawn from repeated groups, so their iterations, of which there may be very many,
    are not found."""
    branch = matching.program.branches[number]
    slots = Slots({place: Elements(slot) for place, slot in enumerate(branch.slots)})
    steps = Steps(branch, matching.program, matching.program.conditions)
    return Walk(matching, number, steps, Pools(matching, slots, Case()), frozenset(slots.elements))


def _together(program: Program) -> Iterator[list[int]]:
    """Conditions on the same variables, by their place in the program, in the order in which the
    engine tests them: each is measured on what those before it keep."""
    sets = {condition.variables: None for condition in program.conditions}
    for variables in sets:
        alike = [n for n, c in enumerate(program.conditions) if c.variables == variables]
        yield sorted(alike, key=lambda place: cost(program.conditions[place]))


def _selectivities(walk: Walk, together: Sequence[int]) -> dict[int, float]:
    conditions = {place: walk.matching.program.conditions[place] for place in together}
    known = {p: c for p, c in conditions.items() if _can_be_drawn(walk, c)}
    if not known:
        return {}
    first = next(iter(known.values()))
    slots = sorted({walk.slots.of_variable[v] for v in first.variables})
    backward = {c.variable for each in known.values() for c in _looking_back(each)}
    lists = [slot for slot in slots if backward & set(walk.slot(slot).variables)]
    found = _drawn(walk, [*slots, *lists])
    if found is None:
        return {}
    partials, weights = found
    reader = walk.reader(partials)
    kept, selectivities = weights, {}
    for place, condition in known.items():
        held = kept * reader.holds(condition)
        # None or all of a few draws is not 0 or 1.
        least = 0.5 / max(int(np.count_nonzero(kept)), 1)
        total = float(kept.sum())
        share = float(held.sum()) / total if total else 0.5
        selectivities[place] = float(np.clip(share, least, 1 - least))
        kept = held
    return selectivities


def _can_be_drawn(walk: Walk, condition: Condition) -> bool:
    """Conditions on single rows of slots that this branch fills, without the user's functions."""
    slot_of = walk.slots.of_variable
    return (
        not any(isinstance(node, UserCall) for node in condition.expression.walk())
        and not remotes(condition.expression)
        and not any(cell.reading in FOLDS for cell in cells(condition.expression))
        and condition.variables <= slot_of.keys()
        and all(walk.slot(slot_of[v]).body is None for v in condition.variables)
    )


def _looking_back(condition: Condition) -> Iterator[Cell]:
    return (cell for cell in cells(condition.expression) if cell.reading == "prev")


def _drawn(walk: Walk, slots: Sequence[int]) -> tuple[Partials, npt.NDArray[np.float64]] | None:
    """Random partial matches of the slots, and what each stands for. A slot that comes twice is
    a list of two."""
    random = np.random.default_rng(SEED)
    pool = walk.pools.pool(slots[0]).elements
    if not len(pool):
        return None
    chosen = pool[random.integers(0, len(pool), DRAWS)]
    partials = _with(walk, Partials({}, chosen, chosen), slots[0], chosen)
    weights = np.ones(DRAWS)
    for number, slot in enumerate(slots[1:], 1):
        step = walk.steps.step(frozenset(slots[:number]) - {slot}, frozenset({slot}))
        candidates = walk.pools.pool(slot)
        ranges = candidates.find(scope(step, walk.matching.events, walk.slots, partials))
        counts = np.maximum(ranges.high - ranges.low, 0)
        there = np.flatnonzero(counts)
        if not len(there):
            return None
        place = ranges.low[there] + (random.random(len(there)) * counts[there]).astype(np.int64)
        weights = weights[there] * counts[there]
        partials = _with(walk, partials.take(there), slot, candidates.elements[place])
    return partials, weights


def _with(walk: Walk, partials: Partials, slot: int, rows: npt.NDArray[np.int64]) -> Partials:
    bound = rows[:, np.newaxis] if walk.slot(slot).is_list else rows
    if slot in partials.elements:
        bound = np.concatenate([partials.elements[slot], bound], axis=1)
    return Partials(
        {**partials.elements, slot: bound},
        np.minimum(partials.earliest, rows),
        np.maximum(partials.latest, rows),
    )
