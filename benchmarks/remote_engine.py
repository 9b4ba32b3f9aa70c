"""An engine on a virtual clock that takes events one by one and waits for remote data, or not.

What an event causes is counted and takes what it was measured to cost; a fetch takes its delay.
While the engine waits, events queue up. A match is detected when its last condition is known; its
latency counts from the arrival of its last event.

- `blocking` waits for each partial match by itself, `cached` and `prefetch` for what is not here,
  one after the other; `post` fetches for complete matches, all that a match needs at once.
- `lazy` and `hybrid` go on along the classes where that pays (`remote_source.Source.goes_on`),
  else they wait for all that is missing at once. A complete match waits aside, not the engine.

Always holds: which matches are found does not depend on the clock (`remote_automaton.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.remote_automaton import NOTHING, OWED, Automaton, Class, extended, has_room, owing
from benchmarks.remote_decisions import CLASSES
from benchmarks.remote_matches import Aside, Matches
from benchmarks.remote_source import Source, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.remote_streams import Need

# Seconds, measured on one core of an AMD EPYC (`udfs/planning/costs.py` measures them) and fixed,
# so that figures are repeatable: testing an event with a partial match, or a remote condition;
# making a partial match; dropping one.
CHECK = 6.4e-9
TEST = 6.4e-9
MAKE = 39e-9
DROP = 4e-9


@dataclass
class Counts:
    """Of one run."""

    checked: int = 0
    made: int = 0
    dropped: int = 0
    tested: int = 0
    postponed: int = 0
    waits: int = 0
    waited_s: float = 0.0
    peak: int = 0


class Engine:
    """One sequence of a query. Several share a `Source`, whose clock is that of all."""

    def __init__(self, automaton: Automaton, source: Source, number: int) -> None:
        self.automaton = automaton
        self.source = source
        self.greedy = source.setting.greedy
        self.strategy = source.setting.strategy
        self.postpones = self.strategy in ("lazy", "hybrid")
        self.base = number * CLASSES
        self.counts = Counts()
        self.matches = Matches()
        self.aside = Aside()
        self.last = len(automaton.chain.kinds)
        self.classes = [Class(bound) for bound in range(1, self.last)]
        self.steps = {
            kind: [s for s in reversed(range(self.last)) if automaton.chain.kind(s) == kind]
            for kind in range(4)
        }

    def take(self, event: int, kind: int) -> None:
        for step in self.steps[kind]:
            self._bind(event, step)

    def arrived(self, key: int, at: float) -> None:
        found = self.aside.arrived(key)
        if found:
            self.matches.add(np.array(found), np.full(len(found), at))

    def _bind(self, event: int, step: int) -> None:
        """Tries the event with all partial matches that could go on with it."""
        if step == 0:
            self._extend(None, np.zeros(1, np.int64), event, step)
            return
        partial = self.classes[step - 1]
        rows = self._candidates(partial, event, step)
        if len(rows) and self.strategy == "post" and step + 1 == self.last:
            self._select(partial, rows, event)
        elif len(rows):
            self._extend(partial, rows, event, step)

    def _candidates(self, partial: Class, event: int, step: int) -> np.ndarray:
        source = self.source
        self._expire(partial, step, event)
        if self.postpones:
            self._test_owed(partial, step)
        self.counts.checked += partial.size
        source.spend(CHECK * partial.size)
        rows = self.automaton.candidates(partial.events, step, event)
        source.decisions.seen(self.base + step, partial.size, len(rows), source.now)
        return self._settled(partial, rows, step) if self.postpones else rows

    def _extend(self, partial: Class | None, rows: np.ndarray, event: int, step: int) -> None:
        """Binds the event to these rows, if the condition of this step holds or is postponed."""
        if partial is None:
            events, owed = np.array([[event]]), np.full((1, OWED), NOTHING, np.int64)
        else:
            events, owed = extended(partial.events[rows], event), partial.owed[rows]
        times = np.full(len(rows), self.source.now)
        holds = known = np.ones(len(rows), np.bool_)
        need = self.automaton.need(step)
        if need is not None:
            keys, holds = self.automaton.keys(need, events), self.automaton.holds(need, events)
            of = self.automaton.chain.needs[need]
            if of.key_step == step:
                self.source.needed(keys, self._wanted(of, step), 0)
            known, times = self._known(keys, owed, step)
            self._count_tests(int(known.sum()))
            unknown = np.flatnonzero(~known)
            self.counts.postponed += len(unknown)
            if not self.greedy and partial is not None:
                partial.owed[rows[unknown]] = owing(owed[unknown], keys[unknown], holds[unknown])
            owed[unknown] = owing(owed[unknown], keys[unknown], ~holds[unknown])
        goes_on = holds | ~known
        self._make(events[goes_on], owed[goes_on], step, times[goes_on])
        if not self.greedy and partial is not None:
            self._drop(partial, rows[holds & known], step)
        self.counts.peak = max(self.counts.peak, sum(each.size for each in self.classes))

    def _count_tests(self, count: int) -> None:
        self.counts.tested += count
        self.source.spend(TEST * count)

    # ---- what is known -------------------------------------------------------------------------

    def _known(
        self, keys: np.ndarray, owed: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of which rows the condition of this step can be tested now, and when it was known."""
        source = self.source
        everything = np.ones(len(keys), np.bool_)
        strategy = self.strategy
        if strategy == "blocking":
            return everything, source.fetch_each(keys, self.counts)
        if strategy in ("cached", "prefetch"):
            return everything, source.have_each(keys, self.base + step, self.counts)
        if strategy == "post":
            known = ~has_room(owed, keys)
            times = np.full(len(keys), source.now)
            times[known] = source.fetch_each(keys[known], self.counts)
            return known, times
        known = source.here(keys, self.base + step)
        missing = np.flatnonzero(~known)
        if not len(missing):
            pass
        elif not self._goes_on(step, step + 1):
            source.wait(keys[missing], self.counts)
            known = everything
        else:
            source.ask(keys[missing])
            full = missing[~has_room(owed[missing], keys[missing])]
            source.wait(keys[full], self.counts)
            known[full] = True
        return known, np.full(len(keys), source.now)

    def _test_owed(self, partial: Class, step: int) -> None:
        """Tests the postponed conditions whose elements are here; drops what fails."""
        rows = np.flatnonzero((partial.owed != NOTHING).any(axis=1))
        if len(rows):
            self._drop(partial, self._failed(partial, rows), step)

    def _failed(self, partial: Class, rows: np.ndarray) -> np.ndarray:
        """Of rows that owe something, those that fail; the others owe less."""
        owed = partial.owed[rows]
        here = self.source.here_owed(owed >> 1)
        self._count_tests(int(here.sum()))
        partial.owed[rows] = np.where(here, NOTHING, owed)
        failed: np.ndarray = rows[(here & ((owed & 1) == 1)).any(axis=1)]
        return failed

    def _settled(self, partial: Class, rows: np.ndarray, step: int) -> np.ndarray:
        """Candidates that may go on: nothing is missing, or postponing still pays, or they are
        waited for and did not fail."""
        owed = partial.owed[rows]
        missing = owed[owed != NOTHING] >> 1
        if not len(missing):
            return rows
        if self._goes_on(self.automaton.chain.needs[0].step, step + 1):
            self.source.ask(missing)
            return rows
        self.source.wait(missing, self.counts)
        failed = self._failed(partial, rows[(owed != NOTHING).any(axis=1)])
        self._drop(partial, failed, step)
        kept = np.setdiff1d(rows, failed, assume_unique=True)
        return kept - np.searchsorted(failed, kept)

    def _goes_on(self, level: int, target: int) -> bool:
        return self.source.goes_on(self.base + level, self.base + target, self.base + self.last)

    def _select(self, partial: Class, rows: np.ndarray, event: int) -> None:
        """`post`: fetches for each match that the events alone complete, all of it at once."""
        step, source = self.last - 1, self.source
        events, owed = extended(partial.events[rows], event), partial.owed[rows]
        goes_on = ((owed == NOTHING) | ((owed & 1) == 0)).all(axis=1)
        keys = owed >> 1
        need = self.automaton.need(step)
        if need is not None:
            keys = np.column_stack([keys, self.automaton.keys(need, events)])
        times = source.fetch_together(keys, self.counts)
        self._count_tests(keys.size)
        partial.owed[rows] = NOTHING
        doomed = rows[~goes_on]
        if need is not None:
            goes_on &= self.automaton.holds(need, events)
        found = rows[goes_on]
        self._make(events[goes_on], np.full((len(found), OWED), NOTHING), step, times[goes_on])
        self._drop(partial, doomed if self.greedy else np.union1d(doomed, found), step)

    # ---- partial matches come and go -----------------------------------------------------------

    def _make(self, events: np.ndarray, owed: np.ndarray, step: int, times: np.ndarray) -> None:
        if not len(events):
            return
        self.counts.made += len(events)
        self.source.spend(MAKE * len(events))
        if step + 1 < self.last:
            self.classes[step].add(events, owed)
            self._announce(events, step + 1, 1)
            return
        waits = (owed != NOTHING).any(axis=1)
        self.matches.add(events[~waits], times[~waits] + MAKE * len(events))
        if waits.any():
            self.aside.add(events[waits], owed[waits])
            # An owed element may have been here, and gone since it was asked for.
            keys = np.unique(owed[waits][owed[waits] != NOTHING] >> 1)
            self.source.ask(keys)
            for key in keys[self.source.here_owed(keys)].tolist():
                self.arrived(key, self.source.now)

    def _drop(self, partial: Class, rows: np.ndarray, step: int) -> None:
        if len(rows):
            self.counts.dropped += len(rows)
            self.source.spend(DROP * len(rows))
            self._announce(partial.drop(rows), step, -1)

    def _expire(self, partial: Class, step: int, event: int) -> None:
        rows = np.flatnonzero(partial.events[:, 0] < event - self.automaton.window)
        self._drop(partial, rows, step)

    def _announce(self, events: np.ndarray, bound: int, change: int) -> None:
        """That these partial matches begin, or cease, to need their elements."""
        for place, need in enumerate(self.automaton.chain.needs):
            if need.key_step < bound <= need.step:
                keys = self.automaton.keys(place, events)
                self.source.needed(keys, self._wanted(need, bound), change)

    def _wanted(self, need: Need, bound: int) -> Wanted:
        holders = range(self.base + need.key_step + 1, self.base + need.step)
        return Wanted(self.base + bound, self.base + need.step, holders)


def take_turns(engines: Sequence[Engine], source: Source, kinds: np.ndarray) -> np.ndarray:
    """Feeds all events; says for how long each kept the engine."""
    took = np.empty(len(kinds))
    for event, kind in enumerate(kinds.tolist()):
        source.begin(event)
        begun = source.now
        for engine in engines:
            engine.take(event, kind)
        source.end()
        took[event] = source.now - begun
    source.finish()
    return took
