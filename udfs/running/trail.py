"""Every row that runs have taken, as a forest: what a run or a match consists of.

Under skip-till-next a list can hold hundreds of rows and runs split, so a run is only the node of
the row it took last; the rows before are its ancestors. `assemble` walks many tips upwards at
once and lays their rows out as partials, one set for each combination of list lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.joining.partials import Elements, Partials, Slots

if TYPE_CHECKING:
    from spark_cep.udfs.events import Positions
    from spark_cep.udfs.program import Slot


class Trail:
    """Nodes in order of creation, so a parent's number is below its children's.

    `accepted[node]` is the nearest node at or above it at which the pattern was complete, or -1.
    """

    def __init__(self) -> None:
        self.size = 0
        self._fields: dict[str, Positions] = {
            name: np.zeros(1024, dtype=np.int64)
            for name in ("parent", "variable", "row", "state", "accepted", "depth")
        }

    def add(
        self, parent: Positions, variable: int, row: Positions, state: int, *, accepts: bool
    ) -> Positions:
        """New nodes below `parent` (-1: a run begins)."""
        nodes = np.arange(self.size, self.size + len(row))
        self._reserve(self.size + len(row))
        above = np.where(parent >= 0, self["accepted"][parent], -1)
        self._fields["parent"][nodes] = parent
        self._fields["variable"][nodes] = variable
        self._fields["row"][nodes] = row
        self._fields["state"][nodes] = state
        self._fields["accepted"][nodes] = nodes if accepts else above
        self._fields["depth"][nodes] = 1 + np.where(parent >= 0, self["depth"][parent], 0)
        self.size += len(row)
        return nodes

    def __getitem__(self, name: str) -> Positions:
        return self._fields[name]

    def forget(self, size: int) -> None:
        """Drops the nodes added since the trail had this size."""
        self.size = size

    def accepted_above(self, nodes: Positions) -> Positions:
        """The nearest accepted node strictly above each node, or -1."""
        parent = self["parent"][nodes]
        return np.where(parent >= 0, self["accepted"][parent], -1)

    def _reserve(self, size: int) -> None:
        for name, values in self._fields.items():
            if size > len(values):
                grown = np.zeros(max(size, 2 * len(values)), dtype=np.int64)
                grown[: self.size] = values[: self.size]
                self._fields[name] = grown

    def rows(self, tips: Positions) -> tuple[Positions, Positions, Positions]:
        """All rows above and at each tip: (which tip, variable, row), earliest first."""
        owners, nodes = [], []
        owner, node = np.arange(len(tips)), tips
        while len(node):
            owners.append(owner)
            nodes.append(node)
            node = self["parent"][node]
            going = node >= 0
            owner, node = owner[going], node[going]
        if not nodes:
            return tips, tips, tips
        owner = np.concatenate(owners[::-1])
        node = np.concatenate(nodes[::-1])
        return owner, self["variable"][node], self["row"][node]


@dataclass(frozen=True)
class Assembled:
    """Tips of one shape: `which` of the tips asked for, laid out as partials over `slots`."""

    which: Positions
    partials: Partials
    slots: Slots


def assemble(
    trail: Trail, tips: Positions, slots: Sequence[Slot], only: frozenset[int] | None = None
) -> Iterator[Assembled]:
    """The rows of tips that fill the same variables, those of `slots`; with `only`, rows of these
    variables alone. An iteration counts when all the variables asked for have their row."""
    owner, variable, row = trail.rows(tips)
    earliest, latest = _extent(owner, row, len(tips))
    bound = {v for slot in slots for v in slot.variables if only is None or v in only}
    columns, lengths = {}, np.zeros((len(tips), max(bound, default=0) + 1), dtype=np.int64)
    for v in bound:
        mine = np.flatnonzero(variable == v)
        mine = mine[np.argsort(owner[mine], kind="stable")]
        columns[v] = (owner[mine], row[mine])
        lengths[:, v] = np.bincount(owner[mine], minlength=len(tips))
    for which in _alike(lengths):
        elements, bindings = {}, {}
        for number, slot in enumerate(slots):
            taken = {v: _matrix(columns[v], which, len(tips)) for v in slot.variables if v in bound}
            elements[number], bindings[number] = _filled(slot, taken)
        partials = Partials(bindings, earliest[which], latest[which])
        yield Assembled(which, partials, Slots(elements))


def _extent(owner: Positions, row: Positions, tips: int) -> tuple[Positions, Positions]:
    earliest = np.full(tips, np.iinfo(np.int64).max)
    latest = np.full(tips, -1)
    np.minimum.at(earliest, owner, row)
    np.maximum.at(latest, owner, row)
    return earliest, latest


def _alike(lengths: Positions) -> Iterator[Positions]:
    """Indices of equal rows."""
    if not len(lengths):
        return
    _, shape = np.unique(lengths, axis=0, return_inverse=True)
    order = np.argsort(shape, kind="stable")
    cuts = np.flatnonzero(np.diff(shape[order])) + 1
    yield from np.split(order, cuts)


def _matrix(
    column: tuple[Positions, Positions], which: Positions, tips: int
) -> npt.NDArray[np.int64]:
    """(tips, length): the rows of one variable, earliest first."""
    owner, row = column
    chosen = np.zeros(tips, dtype=np.bool_)
    chosen[which] = True
    # `which` ascends and so do the owners: the rows come out tip by tip.
    return row[chosen[owner]].reshape(len(which), -1)


def _filled(slot: Slot, taken: Mapping[int, Positions]) -> tuple[Elements, Positions]:
    if slot.body is None:
        rows = taken[slot.variables[0]]
        return Elements(slot), rows if slot.is_list else rows[:, 0]
    # A run may stand in the middle of an iteration, which is no element yet.
    length = min(rows.shape[1] for rows in taken.values())
    members = {v: rows[:, :length].ravel() for v, rows in taken.items()}
    first, last = members[min(members)], members[max(members)]
    count = len(next(iter(taken.values())))
    return Elements(slot, first, last, members), np.arange(count * length).reshape(count, length)
