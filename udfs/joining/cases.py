"""The disjoint cases that one advance's matches fall into, by which of their rows are new.

A match is given in one advance, and what decides in which is the status of its rows: that of its
latest row, of its earliest, or that it has a new one at all. "Some slot is new" is no condition
on one slot; split by the first slot for which it holds, it is. So each case says of every slot
what its rows have to be, and the walk looks only at candidates that can be it.

Rules are sets of statuses, as bits: `1 << NEW | 1 << OLD`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_cep.udfs.events import AHEAD, NEW, OLD

ANY: Final = 1 << OLD | 1 << NEW | 1 << AHEAD
KNOWN: Final = 1 << OLD | 1 << NEW
IS_OLD: Final = 1 << OLD
IS_NEW: Final = 1 << NEW
IS_AHEAD: Final = 1 << AHEAD


@dataclass(frozen=True)
class Rule:
    """What the rows of a slot may be: every one of them, the first, the last, and at least one."""

    every: int = KNOWN
    first: int = ANY
    last: int = ANY
    some: int = ANY

    @property
    def of_one_row(self) -> int:
        return self.every & self.first & self.last & self.some

    @property
    def looks_inside(self) -> bool:
        return self.some != ANY or self.every != ANY

    @property
    def looks_at_lists(self) -> bool:
        """Whether it asks more than `every`, which single elements have shown."""
        return (self.first, self.last, self.some) != (ANY, ANY, ANY)


@dataclass(frozen=True)
class Case:
    """`slot`: the one whose rows are the reason for this case, so usually the fewest."""

    rules: Mapping[int, Rule] = field(default_factory=dict)
    others: Rule = field(default_factory=Rule)
    slot: int | None = None

    def rule(self, slot: int) -> Rule:
        return self.rules.get(slot, self.others)


def by_latest(maximal: Sequence[int], *, has_old: bool) -> Iterator[Case]:
    """The latest row is new: some slot that may hold it ends in a new row."""
    for turn, slot in enumerate(maximal):
        if turn and not has_old:
            return
        before = dict.fromkeys(maximal[:turn], Rule(every=IS_OLD))
        yield Case({**before, slot: Rule(last=IS_NEW)}, slot=slot)


def by_any(slots: int, maximal: Sequence[int]) -> Iterator[Case]:
    """Some row is new, wherever it lies: the latest or, where rows came late, one before."""
    for turn, slot in enumerate(maximal):
        before = dict.fromkeys(maximal[:turn], Rule(last=IS_OLD))
        yield Case({**before, slot: Rule(last=IS_NEW)}, slot=slot)
    ends_old = dict.fromkeys(maximal, Rule(last=IS_OLD))
    for slot in range(slots):
        rules = {**ends_old, **dict.fromkeys(range(slot), Rule(every=IS_OLD))}
        last = IS_OLD if slot in maximal else ANY
        yield Case({**rules, slot: Rule(last=last, some=IS_NEW)}, slot=slot)


def by_earliest(minimal: Sequence[int]) -> Iterator[Case]:
    """The earliest row is new, and the others are that or lie ahead."""
    later = IS_NEW | IS_AHEAD
    for turn, slot in enumerate(minimal):
        before = dict.fromkeys(minimal[:turn], Rule(every=IS_AHEAD))
        rules = {**before, slot: Rule(every=later, first=IS_NEW)}
        yield Case(rules, Rule(every=later), slot=slot)
