"""The selectivities that a worker knows of its bucket, whatever plan it runs.

A plan changes what it measures: an engine tests a condition on what the conditions before it have
kept. So selectivities come from random partial matches of the bucket's own rows, with their
standard errors and with the factors between conditions that are not independent. Only conditions
that cannot be drawn for (functions of the user, remote data, folds of lists) are taken from the
tests that the engine made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.events.sampling import (
    MAX_DRAWS,
    SAMPLE_DRAWS,
    MeasuredShare,
    drawable_conditions,
    measure_conditions,
)
from spark_cep.udfs.planning.adaptation import SlidingStatistics
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.program import Program


# Drawing may take this share of the time spent matching.
DRAWING_SHARE: Final = 0.03
# The first look is short, and takes so many seconds: 2.5 ms measured for 3 to 5 variables. It may
# take a larger share, for a sample of other rows that misleads costs several times the work.
FIRST_DRAWS: Final = 500
# Of a condition that hardly keeps anything; a stream lives with its first plan for longer.
MAX_FIRST_DRAWS: Final = 1_000
MAX_STREAM_DRAWS: Final = 8_000
FIRST_SECONDS: Final = 2.5e-3
FIRST_SHARE: Final = 0.05
# A stream runs for long: it looks as soon as it has so many rows.
FIRST_ROWS: Final = 500
# The error of what was known before counts as this much larger at every draw.
FORGETTING: Final = 1.5
# A new value that differs by so many standard errors replaces the old one.
CHANGED_ERRORS: Final = 3.0
# The error of a value without one, such as the user's.
UNKNOWN_ERROR: Final = 1.0


class BucketSelectivities:
    """What is known of the conditions. `known`: before the first row was seen."""

    def __init__(self, program: Program, known: Estimates) -> None:
        self._program = program
        self._is_stream = program.adaptation.to_hybrid
        self._shares = {
            place: MeasuredShare(value, known.errors.get(place, UNKNOWN_ERROR))
            for place, value in known.selectivities.items()
        }
        self._joint = dict(known.joint)
        self._tested = SlidingStatistics(Estimates({}))
        self._drawable = drawable_conditions(program)
        self._drawn: set[int] = set()
        self._draws = 0
        self._drawing_seconds = self._matching_seconds = 0.0

    @property
    def is_known(self) -> bool:
        """Whether there is a figure for every condition that can be drawn for."""
        return self._drawable <= self._shares.keys()

    def add_tests(self, conditions: Mapping[int, tuple[int, int]], seconds: float) -> None:
        """Takes note of an advance: how often each condition was tested and kept, and the time."""
        self._tested.add({}, 0, conditions)
        self._matching_seconds += seconds
        for place, value in self._tested.estimates().selectivities.items():
            if place not in self._drawable:
                self._shares[place] = MeasuredShare(value, UNKNOWN_ERROR)

    def look(self, matching: AdvanceContext, expected: Callable[[], float]) -> bool:
        """Draws from these rows, if that is a small part of the seconds that matching has taken
        and is expected to take now; once in any case where there are enough rows of a stream,
        which will run for long. Returns whether it did."""
        if not self._drawable or not self._can_afford(matching.events.size, expected):
            return False
        started = perf_counter()
        quiet = replace(matching, tally=ErrorTally(ansi=self._program.ansi))
        random = np.random.default_rng(self._draws)
        most = MAX_STREAM_DRAWS if self._is_stream else MAX_FIRST_DRAWS
        counts = (SAMPLE_DRAWS, MAX_DRAWS) if self._draws else (FIRST_DRAWS, most)
        with np.errstate(all="ignore"):
            measured = measure_conditions(quiet, random, *counts)
        for place, share in measured.shares.items():
            is_known = place in self._drawn
            self._shares[place] = _combine(self._shares[place], share) if is_known else share
        self._drawn |= measured.shares.keys()
        self._joint = dict(measured.joint)
        self._draws += 1
        self._drawing_seconds += perf_counter() - started
        return True

    def _can_afford(self, rows: int, expected: Callable[[], float]) -> bool:
        seconds = self._matching_seconds
        if self._draws:
            each = self._drawing_seconds / self._draws
            return self._drawing_seconds + each <= DRAWING_SHARE * seconds
        if self._is_stream and rows >= FIRST_ROWS:
            return True
        affordable = FIRST_SECONDS / FIRST_SHARE
        return seconds >= affordable or seconds + expected() >= affordable

    def estimates(self, rates: Estimates) -> Estimates:
        """The estimates with these rates."""
        return replace(
            rates,
            selectivities={place: share.value for place, share in self._shares.items()},
            joint=self._joint,
            errors={place: self._shares[place].error for place in self._drawn},
        )

    # ---- between the triggers of a stream ------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "shares": [[place, each.value, each.error] for place, each in self._shares.items()],
            "drawn": sorted(self._drawn),
            "joint": [[*sorted(pair), factor] for pair, factor in self._joint.items()],
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Takes what `to_json` wrote; earlier releases wrote the shares alone."""
        for place, value, error in learnt.get("shares", ()):
            self._shares[int(place)] = MeasuredShare(float(value), float(error))
        for place, value in learnt.items():
            if place.isdigit():
                self._shares[int(place)] = MeasuredShare(float(value), UNKNOWN_ERROR)
        self._drawn |= {int(place) for place in learnt.get("drawn", ())}
        for one, other, factor in learnt.get("joint", ()):
            self._joint[frozenset({int(one), int(other)})] = float(factor)


def _combine(before: MeasuredShare, now: MeasuredShare) -> MeasuredShare:
    """Both measurements by their precision; the later one alone if they contradict each other."""
    old, new = before.value * before.error * FORGETTING, now.value * now.error
    if abs(before.value - now.value) > CHANGED_ERRORS * sqrt(old**2 + new**2):
        return now
    if not old or not new:
        return now
    total = old**2 + new**2
    value = before.value + old**2 / total * (now.value - before.value)
    return MeasuredShare(value, old * new / sqrt(total) / value)
