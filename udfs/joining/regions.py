"""Where a tree NFA starts: the empty partial match has no scope of its own, so each stretch of a
key's time chooses its start from its own counts.

A match belongs to the region in which its first row lies, so regions share no match: the starting
rows of a region are those that can be in a match that begins there, and its partial matches carry
the region's bounds. Rows near a border are started from twice; therefore neighbouring stretches
with the same choice are one region, and another start has to be clearly rarer to be chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.joining.scope import Range, blocks

if TYPE_CHECKING:
    from spark_cep.udfs.events import Positions
    from spark_cep.udfs.joining.walk import Walk

# Counts of a stretch and its neighbours have to be this many times apart, and this many, before
# a start changes: a border costs about one window's starting rows again.
CLEARLY = 2.0
AT_LEAST = 8.0


@dataclass(frozen=True)
class Starts:
    """Rows (or elements) of `slot` to start from, and for each where its match has to begin;
    `places` None: anywhere."""

    slot: int
    elements: Positions
    places: Range | None


def regions(walk: Walk) -> Iterator[Starts]:
    """All starts; every match is found from exactly one of them."""
    slots = sorted(walk.target)
    counts = np.stack([_counts(walk, slot) for slot in slots])
    overall = np.argsort(counts.sum(axis=1), kind="stable")
    stretch = walk.matching.meter.stretch
    first = np.flatnonzero(np.diff(stretch, prepend=-1))
    partition = walk.matching.events.partition.start[first]
    choice = _choice(counts[overall], partition)
    for place, number in enumerate(overall):
        mine = choice == place
        if mine.all():
            yield Starts(slots[number], walk.pools.pool(slots[number]).elements, None)
        elif mine.any():
            yield _starts(walk, slots[number], _merged(mine, first, partition, len(stretch)))


def _counts(walk: Walk, slot: int) -> npt.NDArray[np.float64]:
    elements = walk.pools.pool(slot).elements
    rows = walk.slots.elements[slot].first_row(elements)
    meter = walk.matching.meter
    counts = np.bincount(meter.stretch[rows], minlength=meter.stretches).astype(np.float64)
    return np.exp2(np.minimum(counts, 60)) if walk.slot(slot).is_list else counts


def _choice(counts: npt.NDArray[np.float64], partition: Positions) -> Positions:
    """For each stretch the first slot, rarest of all first, that none is clearly rarer than."""
    around = counts.copy()
    together = partition[1:] == partition[:-1]
    around[:, 1:] += np.where(together, counts[:, :-1], 0)
    around[:, :-1] += np.where(together, counts[:, 1:], 0)
    rare_enough = around <= CLEARLY * around.min(axis=0) + AT_LEAST
    chosen: Positions = np.argmax(rare_enough, axis=0)
    return chosen


def _merged(
    mine: npt.NDArray[np.bool_], first: Positions, partition: Positions, size: int
) -> Range:
    """Runs of stretches of one partition that chose the same, as positions."""
    begins = mine.copy()
    begins[1:] &= ~mine[:-1] | (partition[1:] != partition[:-1])
    ends = mine.copy()
    ends[:-1] &= ~mine[1:] | (partition[1:] != partition[:-1])
    stop = np.append(first[1:], size)
    return Range(first[begins], stop[ends])


def _starts(walk: Walk, slot: int, region: Range) -> Starts:
    pool, window = walk.pools.pool(slot), walk.matching.events.window
    reach = window.end[region.high - 1]
    if walk.steps.minimal == {slot}:
        reach = region.high
    found = [
        (number, place) for number, place in blocks(pool.find(Range(region.low, reach)), 1 << 20)
    ]
    number = np.concatenate([n for n, _ in found]) if found else np.zeros(0, dtype=np.int64)
    place = np.concatenate([p for _, p in found]) if found else np.zeros(0, dtype=np.int64)
    places = Range(region.low[number], region.high[number])
    return Starts(slot, pool.elements[place], places)
