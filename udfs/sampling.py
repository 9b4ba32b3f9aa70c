"""What a sample of the input says: how many candidates, how close, and what conditions keep.

The driver reads a sample once, before it chooses a plan. Selectivities are measured on random
partial matches (`drawing.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.drawing import can_be_drawn, drawn, looking_back, walk_of
from spark_cep.udfs.events import NEW, Events, without_null_times
from spark_cep.udfs.joining.comparisons import cost
from spark_cep.udfs.matching import Matching
from spark_cep.udfs.metrics import Meter, Metrics
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.rates import places
from spark_cep.udfs.values.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from spark_cep.udfs.joining.walk import Walk
    from spark_cep.udfs.program import Program

# A selectivity of 0.01 is then known to a third of itself; all conditions of a pattern take some
# milliseconds.
DRAWS = 1_000
# Windows whose own best plan is compared with the one plan for all.
PLACES = 8


def estimates_of(program: Program, table: pa.Table) -> Estimates | None:
    """Rates and selectivities, by this table alone; None if it has no candidates."""
    return estimates_from(matching_of(program, table))


def matching_of(program: Program, table: pa.Table) -> Matching:
    """A sample's rows as those of one advance, to draw from."""
    events = Events(program, without_null_times(program, table))
    meter = Meter(events, program.limits, Metrics())
    status = np.full(events.size, NEW)
    return Matching(program, events, status, meter, Tally(ansi=program.ansi))


def estimates_from(matching: Matching) -> Estimates | None:
    """The same of rows that are drawn from already."""
    program = matching.program
    density = matching.events.density(matching.meter.stretch)
    if not any(density.candidates.values()):
        return None
    # None in a sample is less than one, but not never.
    rates = {v: max(count, 0.5) / density.stretches for v, count in density.candidates.items()}
    selectivities: dict[int, float] = {}
    for number in range(len(program.branches)):
        walk = walk_of(matching, number)
        for together in _together(program):
            if together[0] not in selectivities:
                selectivities |= _selectivities(walk, together)
    return Estimates(rates, selectivities, density.stretches, places(matching, PLACES))


def _together(program: Program) -> Iterator[list[int]]:
    """Conditions on the same variables, by their place in the program, in the order in which the
    engine tests them: each is measured on what those before it keep."""
    sets = {condition.variables: None for condition in program.conditions}
    for variables in sets:
        alike = [n for n, c in enumerate(program.conditions) if c.variables == variables]
        yield sorted(alike, key=lambda place: cost(program.conditions[place]))


def _selectivities(walk: Walk, together: Sequence[int]) -> dict[int, float]:
    conditions = {place: walk.matching.program.conditions[place] for place in together}
    known = {p: c for p, c in conditions.items() if can_be_drawn(walk, c)}
    if not known:
        return {}
    first = next(iter(known.values()))
    slots = sorted({walk.slots.of_variable[v] for v in first.variables})
    backward = {c.variable for each in known.values() for c in looking_back(each)}
    lists = [slot for slot in slots if backward & set(walk.slot(slot).variables)]
    found = drawn(walk, [*slots, *lists], DRAWS)
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
