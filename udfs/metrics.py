"""What the engine counts while it works, and the limits that end it.

Counts of partial matches and matches are kept for each *stretch*: a partition key and a
window-long piece of its time: what an automaton would hold there. It does not depend on how keys
were dealt to buckets. A time slice counts for itself, so where an input is sliced, matches that
begin in the copied window before a slice count apart from those of the slice before.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from spark_cep.udfs.errors import LimitError
from spark_cep.udfs.output import PEAKS

if TYPE_CHECKING:
    from spark_cep.udfs.events import Events, Positions
    from spark_cep.udfs.program import Limits


@dataclass
class Metrics:
    """Sums over a bucket, except the peaks; the names are those of `output.METRICS`."""

    rows: int = 0
    pairs: int = 0
    partial_matches: int = 0
    peak_partial_matches: int = 0
    buffered_events: int = 0
    matches: int = 0
    condition_errors: int = 0
    ignored_rows: int = 0

    def add(self, other: Metrics) -> None:
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            combined = max(mine, theirs) if each.name in PEAKS else mine + theirs
            setattr(self, each.name, combined)


class Meter:
    """Counts for one set of events and holds the limits."""

    def __init__(self, events: Events, limits: Limits, metrics: Metrics) -> None:
        self.metrics = metrics
        self._events = events
        self._limits = limits
        self._stretch = events.stretch()
        stretches = int(self._stretch[-1]) + 1 if events.size else 0
        self._partials = np.zeros(stretches, dtype=np.int64)
        self._matches = np.zeros(stretches, dtype=np.int64)

    def pairs(self, count: int) -> None:
        self.metrics.pairs += count

    def partials(self, earliest: Positions) -> None:
        """New partial matches, by the position of their earliest row."""
        if not len(earliest):
            return
        self.metrics.partial_matches += len(earliest)
        peak = self._count(
            self._partials, earliest, self._limits.partial_matches, "partial matches"
        )
        self.metrics.peak_partial_matches = max(self.metrics.peak_partial_matches, peak)

    def matches(self, earliest: Positions) -> None:
        if len(earliest):
            self.metrics.matches += len(earliest)
            self._count(self._matches, earliest, self._limits.matches, "matches")

    def _count(self, counts: Positions, earliest: Positions, limit: int | None, what: str) -> int:
        stretch = self._stretch[earliest]
        first = int(stretch.min())
        found = np.bincount(stretch - first)
        here = counts[first : first + len(found)]
        here += found
        worst = int(here.argmax())
        if limit is not None and here[worst] > limit:
            self._exceeded(first + worst, int(here[worst]), limit, what)
        return int(here[worst])

    def _exceeded(self, stretch: int, count: int, limit: int, what: str) -> None:
        position = int(np.searchsorted(self._stretch, stretch))
        key = self._events.key_of(position)
        start = self._events.start_of(position)
        where = f"partition key {key!r}" if key else "the only partition (no partition_by)"
        option = what.replace(" ", "_")
        within = "" if self._events.program.window is None else " that begin within one window"
        raise LimitError(
            f"{where} has {count:,} {what}{within}, from {start} on; the limit is {limit:,}",
            hint="shorten WITHIN, add conditions or a partition key, bound Kleene parts "
            f'("b{{1,3}}"), or raise it: limits=cep.Limits({option}={limit * 10})',
            details={
                "key": key, "limit": option, "allowed": limit, "reached": count,
                "partial_matches": int(self._partials[stretch]),
                "matches": int(self._matches[stretch]),
                "pairs": self.metrics.pairs,
            },
        )  # fmt: skip
