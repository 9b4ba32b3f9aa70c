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
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.events.sampling import (
    MAX_DRAWS,
    SAMPLE_DRAWS,
    MeasuredShare,
    count_parts,
    drawable_conditions,
    measure_conditions,
)
from spark_cep.udfs.planning.adaptation import SlidingStatistics
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.events.metrics import Metrics
    from spark_cep.udfs.program import Plan, Program


# Drawing may take this share of the work, and this one where the engine's own tests keep another
# share than before, which says that the rows have changed.
DRAWING_SHARE: Final = 0.005
SUSPICIOUS_SHARE: Final = 0.03
SUSPICIOUS_FACTOR: Final = 1.5
# Tests that such a share is taken from.
SUSPICIOUS_TESTS: Final = 1_000
# The first look is short, and may take a larger share: a sample of other rows that misleads costs
# several times the work.
FIRST_SHARE: Final = 0.05
FIRST_DRAWS: Final = 500
# Of a condition that hardly keeps anything; a stream lives with its first plan for longer.
MAX_FIRST_DRAWS: Final = 1_000
MAX_STREAM_DRAWS: Final = 8_000
# What a look takes: for each part (a set of variables with conditions, or two that may be
# dependent), and for each draw of a part. Work has the prices of the query's plan, and looks
# these: what else a worker's machine does has no part in the plans that it makes.
PART_SECONDS: Final = 0.6e-3
DRAW_SECONDS: Final = 0.16e-6
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
        self._parts = count_parts(program)
        self._drawn: set[int] = set()
        self._looks = 0
        # Seconds of work and of looks, by their prices.
        self._work = self._spent = 0.0
        # The share that each condition kept in the latest advance, and the plan that it ran.
        self._kept: dict[int, float] = {}
        self._plan: Plan | None = None
        self._is_suspicious = False

    @property
    def is_known(self) -> bool:
        """Whether there is a figure for every condition that can be drawn for."""
        return self._drawable <= self._shares.keys()

    def add_advance(self, step: Metrics, plan: Plan) -> None:
        """Takes note of an advance with this plan: its work, and how often each condition was
        tested and kept."""
        costs = self._program.costs or TYPICAL_COSTS
        self._work += step.pairs * costs.pair + step.partial_matches * costs.result
        self._work += step.rows * costs.insert
        if tests := {p: each for p, each in step.conditions.items() if p not in self._drawable}:
            self._tested.add({}, 0, tests)
            for place, value in self._tested.estimates().selectivities.items():
                self._shares[place] = MeasuredShare(value, UNKNOWN_ERROR)
        kept = {
            place: max(kept, 1) / tested
            for place, (tested, kept) in step.conditions.items()
            if tested >= SUSPICIOUS_TESTS
        }
        if plan == self._plan:
            both = kept.keys() & self._kept.keys()
            factors = (kept[place] / self._kept[place] for place in both)
            self._is_suspicious |= any(
                not 1 / SUSPICIOUS_FACTOR < factor < SUSPICIOUS_FACTOR for factor in factors
            )
        self._kept, self._plan = kept, plan

    def look(self, matching: AdvanceContext, expected: Callable[[], float]) -> bool:
        """Draws from these rows, if that is a small part of the work so far and, for the first
        look, of the seconds that are `expected` now; once in any case where there are enough rows
        of a stream, which will run for long. Returns whether it did."""
        counts = self._affordable_draws(matching.events.size, expected) if self._drawable else None
        if counts is None:
            return False
        quiet = replace(matching, tally=ErrorTally(ansi=self._program.ansi))
        random = np.random.default_rng(self._looks)
        with np.errstate(all="ignore"):
            measured = measure_conditions(quiet, random, *counts)
        for place, share in measured.shares.items():
            is_known = place in self._drawn
            self._shares[place] = _combine(self._shares[place], share) if is_known else share
        self._drawn |= measured.shares.keys()
        self._joint = dict(measured.joint)
        self._looks += 1
        self._spent += self._parts * PART_SECONDS + measured.draws * DRAW_SECONDS
        self._is_suspicious = False
        return True

    def _affordable_draws(self, rows: int, expected: Callable[[], float]) -> tuple[int, int] | None:
        """The draws for each part, at first and at most."""
        if self._looks:
            share = SUSPICIOUS_SHARE if self._is_suspicious else DRAWING_SHARE
            draws = self._draws_for(share * self._work - self._spent)
            if draws < FIRST_DRAWS:
                return None
            return min(draws, SAMPLE_DRAWS), min(draws, MAX_DRAWS)
        if self._is_stream and rows >= FIRST_ROWS:
            return FIRST_DRAWS, MAX_STREAM_DRAWS
        least = self._parts * (PART_SECONDS + FIRST_DRAWS * DRAW_SECONDS)
        work = self._work
        if FIRST_SHARE * work < least:
            work += expected()
        if FIRST_SHARE * work < least:
            return None
        draws = self._draws_for(DRAWING_SHARE * work)
        first = min(max(draws, FIRST_DRAWS), SAMPLE_DRAWS)
        return first, min(max(draws, MAX_FIRST_DRAWS), MAX_DRAWS)

    def _draws_for(self, seconds: float) -> int:
        """The draws for each part that so many seconds pay."""
        return max(0, int((seconds / self._parts - PART_SECONDS) / DRAW_SECONDS))

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
            "looks": [self._looks, self._work, self._spent],
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
        self._looks, self._work, self._spent = learnt.get("looks", (0, 0.0, 0.0))


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
