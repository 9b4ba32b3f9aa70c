"""What shedding is expected to lose: the share of matches all of whose rows stay.

Random matches are drawn (`drawing.py`), conditions tested, and those that hold are looked at: how
many have kept rows only. A dropped row can only take matches away, so no other way to count them is
needed. Lists count as lists of one. Where next to no draw is a match, the product over the
variables stands in: the share of their worth that stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.drawing import can_be_drawn, drawn, looking_back, walk_of

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_cep.udfs.joining.walk import Walk
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.shedding.utility import Utilities

DRAWS: Final = 30_000
# With fewer matches among the draws, their share says little.
ENOUGH: Final = 50
# A curve has a point for each tenth.
POINTS: Final = 11

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Branch:
    """Drawn matches of one branch: for each of its slots the rows of the table, and what each match
    stands for, 0 where a condition does not hold. `variables`: one for each slot. `grouped`: those
    of repeated groups, of which nothing is drawn: the worth of theirs that stays stands in."""

    rows: tuple[npt.NDArray[np.int64], ...]
    matches: Numbers
    variables: tuple[int, ...]
    grouped: tuple[int, ...]


class Drawn:
    """Matches drawn once, to be asked what is left of them. `matching` was made of `table`."""

    def __init__(self, matching: Matching, table: pa.Table, utilities: Utilities) -> None:
        self._matching = matching
        self._table = table
        self._utilities = utilities

    @cached_property
    def _branches(self) -> list[_Branch]:
        numbers = range(len(self._matching.program.branches))
        found = (_drawn(walk_of(self._matching, number)) for number in numbers)
        return [each for each in found if each is not None]

    def recall(self, stays: Flags) -> float:
        """`stays`: which rows of the table are kept."""
        total = held = 0.0
        for branch in self._branches:
            weight = max(float(branch.matches.mean()), 1e-9)
            total += weight
            held += weight * self._of_branch(branch, stays)
        return held / total if total else 1.0

    def curve(self, stays: Callable[[float], Flags]) -> tuple[float, ...]:
        """The recall of each share of the rows, 0 to 1. It never falls."""
        shares = np.linspace(0, 1, POINTS)[1:-1]
        found = [0.0, *(self.recall(stays(float(share))) for share in shares), 1.0]
        return tuple(float(each) for each in np.maximum.accumulate(found))

    def _of_branch(self, branch: _Branch, stays: Flags) -> float:
        grouped = self._worths_kept(branch.grouped, stays)
        if np.count_nonzero(branch.matches) >= ENOUGH:
            kept = np.logical_and.reduce([stays[rows] for rows in branch.rows])
            return grouped * float((branch.matches * kept).sum() / branch.matches.sum())
        return grouped * self._worths_kept(branch.variables, stays)

    def _worths_kept(self, variables: tuple[int, ...], stays: Flags) -> float:
        return float(np.prod([self._worth_kept(v, stays) for v in variables]))

    def _worth_kept(self, variable: int, stays: Flags) -> float:
        events = self._matching.events
        is_candidate = np.zeros(self._table.num_rows, dtype=np.bool_)
        is_candidate[events.rows(np.flatnonzero(events.candidates(variable)))] = True
        worth = self._utilities.of_variable(variable, self._table) * is_candidate
        total = float(worth.sum())
        return float((worth * stays).sum()) / total if total else 1.0


def _drawn(walk: Walk) -> _Branch | None:
    every = sorted(walk.slots.elements)
    slots = [slot for slot in every if walk.slot(slot).body is None]
    grouped = tuple(v for slot in every if slot not in slots for v in walk.slot(slot).variables)
    if not slots:
        return _Branch((), np.zeros(1), (), grouped)
    found = drawn(walk, slots, DRAWS)
    if found is None:
        return None
    partials, weights = found
    reader, holds = walk.reader(partials), np.ones(len(partials), dtype=np.bool_)
    for condition in walk.matching.program.conditions:
        if can_be_drawn(walk, condition) and not any(looking_back(condition)):
            holds &= reader.holds(condition)
    rows = tuple(
        walk.matching.events.rows(each[:, 0])
        for slot in slots
        for each in walk.slots.all_rows(slot, partials)
    )
    variables = tuple(v for slot in slots for v in walk.slot(slot).variables)
    return _Branch(rows, weights * holds, variables, grouped)
