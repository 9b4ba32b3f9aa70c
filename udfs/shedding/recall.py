"""What shedding is expected to lose: the share of matches all of whose rows stay.

Random matches are drawn (`drawing.py`), conditions tested, and those that hold are looked at: how
many have kept rows only. A dropped row can only take matches away, so no other way to count them is
needed. Lists count as lists of one. Where next to no draw is a match, the product over the
variables stands in: the share of their worth that stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.drawing import can_be_drawn, drawn, looking_back, walk_of

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.joining.walk import Walk
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.shedding.utility import Utilities

DRAWS: Final = 50_000
# With fewer matches among the draws, their share says little.
ENOUGH: Final = 50

Flags = npt.NDArray[np.bool_]


def estimated_recall(
    matching: Matching, table: pa.Table, stays: Flags, utilities: Utilities
) -> float:
    """`stays`: which rows of the table, the one that `matching` was made of, are kept."""
    total = held = 0.0
    for number in range(len(matching.program.branches)):
        of_branch, weight = _of_branch(walk_of(matching, number), table, (stays, utilities))
        total += weight
        held += weight * of_branch
    return held / total if total else 1.0


def _of_branch(walk: Walk, table: pa.Table, shed: tuple[Flags, Utilities]) -> tuple[float, float]:
    """The recall of one branch, and what its matches weigh among those of all."""
    stays, utilities = shed
    slots = sorted(walk.slots.elements)
    plain = [slot for slot in slots if walk.slot(slot).body is None]
    found = drawn(walk, plain, DRAWS) if plain else None
    if found is None:
        return 1.0, 0.0
    partials, weights = found
    reader, holds = walk.reader(partials), np.ones(len(partials), dtype=np.bool_)
    for condition in walk.matching.program.conditions:
        if can_be_drawn(walk, condition) and not any(looking_back(condition)):
            holds &= reader.holds(condition)
    kept = np.ones(len(partials), dtype=np.bool_)
    for slot in plain:
        for rows in walk.slots.all_rows(slot, partials):
            kept &= stays[walk.matching.events.rows(rows[:, 0])]
    matches = weights * holds
    if np.count_nonzero(holds) >= ENOUGH:
        return float((matches * kept).sum() / matches.sum()), float(matches.mean())
    variables = [v for slot in slots for v in walk.slot(slot).variables]
    shares = [_worth_kept(v, walk.matching, table, (stays, utilities)) for v in variables]
    return float(np.prod(shares)), max(float(matches.mean()), 1e-9)


def _worth_kept(
    variable: int, matching: Matching, table: pa.Table, shed: tuple[Flags, Utilities]
) -> float:
    stays, utilities = shed
    is_candidate = np.zeros(table.num_rows, dtype=np.bool_)
    events = matching.events
    is_candidate[events.rows(np.flatnonzero(events.candidates(variable)))] = True
    worth = utilities.of_variable(variable, table) * is_candidate
    total = float(worth.sum())
    return float((worth * stays).sum()) / total if total else 1.0
