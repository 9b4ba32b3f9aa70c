"""Partial matches as columns, and the elements that fill their slots.

A set of partial matches has one integer column for each bound slot. An *element* is what fills a
slot once: a row, or one match of a repeated group's body. A plain slot holds one element number
a partial, a list slot a matrix: in one set all lists of a slot have the same length, because the
chain extends lists in lockstep. So nothing here is ragged, and a set is cut with one `take`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from spark_cep.udfs.events import Flags, Positions
    from spark_cep.udfs.program import Slot


@dataclass(frozen=True)
class Partials:
    """`elements[slot]` is (n,), for a list slot (n, length); `earliest` and `latest` are the
    positions of the first and last row bound so far. Where a walk starts differently from place
    to place, the first row of the match has to lie in [floor, ceiling). `waiting` has a bit for
    each condition that was not tested yet, for want of remote data."""

    elements: Mapping[int, Positions]
    earliest: Positions
    latest: Positions
    floor: Positions | None = None
    ceiling: Positions | None = None
    waiting: Positions | None = None

    def __len__(self) -> int:
        return len(self.earliest)

    def take(self, index: Positions | Flags) -> Partials:
        return Partials(
            {slot: bound[index] for slot, bound in self.elements.items()},
            self.earliest[index],
            self.latest[index],
            None if self.floor is None else self.floor[index],
            None if self.ceiling is None else self.ceiling[index],
            None if self.waiting is None else self.waiting[index],
        )

    def still(self, waiting: Positions) -> Partials:
        """With conditions beside those that they wait for already."""
        more = waiting if self.waiting is None else self.waiting | waiting
        return replace(self, waiting=more)

    def shape(self) -> tuple[tuple[int, int], ...]:
        """The slots bound and the length of their lists; sets of one shape can be put together."""
        return tuple(
            (slot, bound.shape[1] if bound.ndim == 2 else 0)
            for slot, bound in sorted(self.elements.items())
        )


def together(sets: Iterable[Partials]) -> list[Partials]:
    """The same partial matches in as few sets as there are shapes."""
    shapes: dict[tuple[tuple[int, int], ...], list[Partials]] = {}
    for each in sets:
        if len(each):
            shapes.setdefault(each.shape(), []).append(each)
    return [_concatenated(alike) for alike in shapes.values()]


def _concatenated(alike: list[Partials]) -> Partials:
    if len(alike) == 1:
        return alike[0]
    return Partials(
        {s: np.concatenate([each.elements[s] for each in alike]) for s in alike[0].elements},
        np.concatenate([each.earliest for each in alike]),
        np.concatenate([each.latest for each in alike]),
    )


@dataclass(frozen=True)
class Elements:
    """What may fill a slot. For a slot of one variable an element's number is its row's
    position and `members` is None; a group's elements are rows of `members`, sorted by `first`.
    """

    slot: Slot
    first: Positions | None = None
    last: Positions | None = None
    members: Mapping[int, Positions] | None = None

    def first_row(self, elements: Positions) -> Positions:
        return elements if self.first is None else self.first[elements]

    def last_row(self, elements: Positions) -> Positions:
        return elements if self.last is None else self.last[elements]

    def rows(self, variable: int, elements: Positions) -> Positions:
        return elements if self.members is None else self.members[variable][elements]


class Slots:
    """The elements of every slot of a branch; answers where a partial's slot begins and ends."""

    def __init__(self, elements: Mapping[int, Elements]) -> None:
        self.elements = elements
        self.of_variable = {
            variable: slot
            for slot, filled in elements.items()
            for variable in filled.slot.variables
        }

    def first(self, slot: int, partials: Partials) -> Positions:
        bound = partials.elements[slot]
        return self.elements[slot].first_row(bound[:, 0] if bound.ndim == 2 else bound)

    def last(self, slot: int, partials: Partials) -> Positions:
        bound = partials.elements[slot]
        return self.elements[slot].last_row(bound[:, -1] if bound.ndim == 2 else bound)

    def rows(self, variable: int, partials: Partials) -> Positions:
        """The rows bound to a variable, (n,) or (n, length)."""
        slot = self.of_variable[variable]
        return self.elements[slot].rows(variable, partials.elements[slot])

    def all_rows(self, slot: int, partials: Partials) -> list[npt.NDArray[np.int64]]:
        """The rows of a slot, one (n, length) matrix a member."""
        bound = partials.elements[slot]
        matrix = bound if bound.ndim == 2 else bound[:, np.newaxis]
        filled = self.elements[slot]
        return [filled.rows(variable, matrix) for variable in filled.slot.variables]
