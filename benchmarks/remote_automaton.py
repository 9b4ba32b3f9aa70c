"""Partial matches of an automaton that takes events one by one, a class for each state.

A class holds its partial matches as columns: the events bound so far, and what is *owed*, the
remote elements whose condition was postponed. An owed element is encoded with whether it will turn
out bad: the runs know every answer beforehand, but look at that bit only once the element is here.

Always holds: a partial match owes an element at most once; if it is bad for one reason it is bad.
With skip-till-next a partial match that was extended on trust stays, owing that the condition
turns out false. So every strategy ends with the same matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.remote_streams import Chain, Stream

# More than these postponed conditions at once, and the engine waits for one of them.
OWED = 6
NOTHING = -1


class Class:
    """The partial matches with `bound` events, in the order in which they were made."""

    def __init__(self, bound: int) -> None:
        self.size = 0
        self._events = np.empty((64, bound), np.int64)
        self._owed = np.full((64, OWED), NOTHING, np.int64)

    @property
    def events(self) -> np.ndarray:
        return self._events[: self.size]

    @property
    def owed(self) -> np.ndarray:
        return self._owed[: self.size]

    def add(self, events: np.ndarray, owed: np.ndarray) -> None:
        size = self.size + len(events)
        while size > len(self._events):
            self._events = np.concatenate([self._events, np.empty_like(self._events)])
            self._owed = np.concatenate([self._owed, np.full_like(self._owed, NOTHING)])
        self._events[self.size : size] = events
        self._owed[self.size : size] = owed
        self.size = size

    def drop(self, rows: np.ndarray) -> np.ndarray:
        """The events of the dropped rows."""
        keep = np.ones(self.size, np.bool_)
        keep[rows] = False
        dropped: np.ndarray = self.events[~keep]
        kept = int(keep.sum())
        self._events[:kept] = self.events[keep]
        self._owed[:kept] = self.owed[keep]
        self.size = kept
        return dropped


def owing(owed: np.ndarray, keys: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """What rows owe with one more element each. There has to be room (`has_room`)."""
    owed = owed.copy()
    same = owed >> 1 == keys[:, None]
    known = same.any(axis=1)
    free = np.where(known, same.argmax(axis=1), (owed == NOTHING).argmax(axis=1))
    rows = np.arange(len(owed))
    before = np.where(known, owed[rows, free] & 1, 0)
    owed[rows, free] = keys << 1 | (bad | (before == 1))
    return owed


def has_room(owed: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """NOTHING >> 1 is -1, which is no key."""
    room: np.ndarray = ((owed == NOTHING) | (owed >> 1 == keys[:, None])).any(axis=1)
    return room


@dataclass(frozen=True)
class Automaton:
    """One sequence over one stream: which partial matches an event may extend, as far as the
    events alone say, and what the remote conditions need and answer."""

    chain: Chain
    stream: Stream
    window: int

    def candidates(self, events: np.ndarray, step: int, event: int) -> np.ndarray:
        """Rows of the class before `step` that the event could extend."""
        stream = self.stream
        meets = events[:, 0] >= event - self.window
        if self.chain.same_id:
            meets &= stream.id[events[:, 0]] == stream.id[event]
        for each in self.chain.equals:
            if each.step == step:
                earlier = stream.value(each.earlier_column)[events[:, each.earlier]]
                value = stream.value(each.column)[event] % each.modulus
                meets &= earlier % each.modulus == value
        return np.flatnonzero(meets)

    def need(self, step: int) -> int | None:
        """Which remote condition is tested when `step` is bound."""
        places = [i for i, need in enumerate(self.chain.needs) if need.step == step]
        return places[0] if places else None

    def keys(self, need: int, events: np.ndarray) -> np.ndarray:
        """Of partial matches that have bound the key's step."""
        of = self.chain.needs[need]
        keys: np.ndarray = self.stream.keys(of.key)[events[:, of.key_step]]
        return keys

    def holds(self, need: int, events: np.ndarray) -> np.ndarray:
        of = self.chain.needs[need]
        values = self.stream.value(of.value)[events[:, of.value_step]]
        holds: np.ndarray = values % of.modulus == (
            self.stream.answers[self.keys(need, events)] % of.modulus
        )
        return holds


def extended(events: np.ndarray, event: int) -> np.ndarray:
    longer = np.empty((len(events), events.shape[1] + 1), np.int64)
    longer[:, :-1] = events
    longer[:, -1] = event
    return longer
