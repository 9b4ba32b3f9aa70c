"""What a sample of the input says: how many candidates, how close, and what conditions keep.

The driver reads a sample once, before it chooses a plan. Selectivities are measured on random
partial matches: a candidate of one slot, then for each other slot of the condition a candidate
drawn from its scope, so that order, window and key hold as they will when the engine asks. A
drawn match counts for as many as it was drawn from. Conditions with user functions are not
called: they may be slow, and may need what only the workers have.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.any_match import BranchMatcher
from spark_cep.udfs.events import NEW, Events, without_null_times
from spark_cep.udfs.expressions import FOLDS, UserCall, cells
from spark_cep.udfs.matching import Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.partials import Partials
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.rates import scatter
from spark_cep.udfs.scope import scope
from spark_cep.udfs.values.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from spark_cep.udfs.program import Condition, Program
    from spark_cep.udfs.walk import Walk

# A selectivity of 0.01 is then known to a third of itself; all conditions of a pattern take some
# milliseconds.
DRAWS = 1_000
SEED = 42


def estimates_of(program: Program, table: pa.Table) -> Estimates | None:
    """Rates, selectivities and scatter, by this table alone; None if it has no candidates."""
    events = Events(program, without_null_times(program, table))
    meter = Meter(events, program.limits, Metrics())
    density = events.density(meter.stretch)
    if not density.stretches:
        return None
    # None in a sample is less than one, but not never.
    rates = {v: max(count, 0.5) / density.stretches for v, count in density.candidates.items()}
    status = np.full(events.size, NEW)
    matching = Matching(program, events, status, meter, Tally(ansi=program.ansi))
    selectivities: dict[int, float] = {}
    for number in range(len(program.branches)):
        matcher = BranchMatcher(matching, number)
        walk = matcher.walk({}, range(len(matcher.branch.slots)))
        for place, condition in enumerate(program.conditions):
            if place not in selectivities:
                found = _selectivity(walk, condition)
                if found is not None:
                    selectivities[place] = found
    scattered: dict[frozenset[int], float] = {}
    for branch in program.branches:
        pairs = map(frozenset, combinations(sorted(branch.filled()), 2))
        scattered |= scatter(matching, branch, pairs)
    return Estimates(rates, selectivities, density.stretches, scattered)


def _selectivity(walk: Walk, condition: Condition) -> float | None:
    if any(isinstance(node, UserCall) for node in condition.expression.walk()):
        return None
    if any(cell.reading in FOLDS for cell in cells(condition.expression)):
        return None
    if not condition.variables <= walk.slots.of_variable.keys():
        return None
    slots = sorted({walk.slots.of_variable[v] for v in condition.variables})
    if any(walk.slot(slot).body is not None for slot in slots):
        return None
    looks_back = any(cell.reading == "prev" for cell in cells(condition.expression))
    lists = [s for s in slots if walk.slot(s).is_list] if looks_back else []
    found = _drawn(walk, [*slots, *lists])
    if found is None:
        return None
    partials, weights = found
    held = walk.reader(partials).holds(condition)
    # None or all of a few draws is not 0 or 1.
    mean = float(weights[held].sum() / weights.sum())
    return float(np.clip(mean, 0.5 / len(held), 1 - 0.5 / len(held)))


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
