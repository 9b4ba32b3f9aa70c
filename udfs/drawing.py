"""Random partial matches: a candidate of one slot, then for each other slot one from its scope.

So order, window and key hold as they will when the engine asks, and a drawn match stands for as
many as it was drawn from. Conditions with user functions are not called for it, remote data is not
fetched: both may be slow, and may need what only the workers have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.expressions import FOLDS, UserCall, cells, remotes
from spark_cep.udfs.joining.cases import Case
from spark_cep.udfs.joining.partials import Elements, Partials, Slots
from spark_cep.udfs.joining.pools import Pools
from spark_cep.udfs.joining.scope import scope
from spark_cep.udfs.joining.steps import Steps
from spark_cep.udfs.joining.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.program import Condition

SEED = 42


def walk_of(matching: Matching, number: int) -> Walk:
    """What matches of a branch are drawn with. Nothing is drawn from repeated groups, so their
    iterations, of which there may be very many, are not found."""
    branch = matching.program.branches[number]
    slots = Slots({place: Elements(slot) for place, slot in enumerate(branch.slots)})
    steps = Steps(branch, matching.program, matching.program.conditions)
    return Walk(matching, number, steps, Pools(matching, slots, Case()), frozenset(slots.elements))


def can_be_drawn(walk: Walk, condition: Condition) -> bool:
    """Conditions on single rows of slots that this branch fills, without the user's functions."""
    slot_of = walk.slots.of_variable
    return (
        not any(isinstance(node, UserCall) for node in condition.expression.walk())
        and not remotes(condition.expression)
        and not any(cell.reading in FOLDS for cell in cells(condition.expression))
        and condition.variables <= slot_of.keys()
        and all(walk.slot(slot_of[v]).body is None for v in condition.variables)
    )


def looking_back(condition: Condition) -> Iterator[Cell]:
    return (cell for cell in cells(condition.expression) if cell.reading == "prev")


def drawn(
    walk: Walk, slots: Sequence[int], count: int
) -> tuple[Partials, npt.NDArray[np.float64]] | None:
    """So many random partial matches of the slots (fewer where a scope is empty), and what each
    stands for. They begin with the first slot; one that comes twice is a list of two."""
    random = np.random.default_rng(SEED)
    pool = walk.pools.pool(slots[0]).elements
    if not len(pool):
        return None
    chosen = pool[random.integers(0, len(pool), count)]
    partials = _with(walk, Partials({}, chosen, chosen), slots[0], chosen)
    weights = np.ones(count)
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
