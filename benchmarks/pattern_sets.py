"""The five pattern sets of the adaptive-invariants paper over the generated streams.

For each size: a sequence, a sequence with one more event under NOT, a conjunction, a sequence with
one event under Kleene, and a disjunction of three sequences of that size. From each event to its
neighbour in the pattern a value must rise: `diff` of the stock stream; of the traffic stream
`vehicles` and `speed` by turns. So there no value is in two conditions, and selectivities do not
depend on what was tested before; in the stock stream they do, as in the paper's own patterns.

How much a pattern has to do grows by orders of magnitude with its size and its operators. So that
all can be measured on one stream, windows are as long as a number of pairs an event allows that
the right plan takes, and another one for the plan that stays what it was at first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import erf
from typing import TYPE_CHECKING, Literal

import numpy as np

import spark_cep as cep
from benchmarks.programs import Prepared, prepare, run
from benchmarks.streams import TICKS_PER_EVENT, Columns, Laws, drawn, stocks, traffic
from spark_cep.udfs.costs import TYPICAL_COSTS
from spark_cep.udfs.planning.planner import (
    PlanGenerator,
    assemble_plan,
    branch_models,
    generate_plans,
    plan_generators,
)
from spark_cep.udfs.program import Estimates, Plan

if TYPE_CHECKING:
    from spark_cep.udfs.program import PlanKind, PlannerName, Program

Stream = Literal["traffic", "stocks"]
Kind = Literal["sequence", "negation", "conjunction", "kleene", "disjunction"]
STREAMS: tuple[Stream, ...] = ("traffic", "stocks")
KINDS: tuple[Kind, ...] = ("sequence", "negation", "conjunction", "kleene", "disjunction")
SIZES = (3, 4, 5, 6, 7, 8)
ATTRIBUTES = {"traffic": ("vehicles", "speed"), "stocks": ("diff",)}
# By how much a value must rise. On the traffic stream 10 to 44 % of the pairs do.
MARGIN = {"traffic": 1.0, "stocks": 0.0}
# Pairs an event, at most, of plans made for each law and of the plan made for the first one. With
# the former the engine's fixed costs are the smaller part; the latter ends in a few seconds.
RIGHT_PAIRS = 200.0
STATIC_PAIRS = 800.0
# Events in the longest window; how much of a stream is tried to find one.
LONGEST = 1_000
LAWS_TRIED = 4
SLICE_EVENTS = 4_000
LONGEST_LIST = 3
LETTERS = "abcdefgh"


# The algorithms of the paper, as printed.
PRINTED: Mapping[PlanKind, PlannerName] = {"lazy-chain": "greedy", "zstream": "zstream"}


@dataclass(frozen=True)
class Workload:
    """A pattern over a stream. `plan`: made for the first law, of the kind that was asked for."""

    stream: Stream
    kind: Kind
    size: int
    prepared: Prepared
    plan: Plan
    estimates: Estimates
    window: int


def workload(stream: Stream, kind: Kind, size: int, planner: PlanKind, events: int) -> Workload:
    laws = laws_of(stream, kind, size, events)
    columns = drawn(laws)
    window = _Windows(stream, kind, size, planner, laws).fitting(columns)
    prepared = prepare(pattern(stream, kind, size, window), columns)
    prepared = replace(prepared, program=replace(prepared.program, planner=PRINTED[planner]))
    first = estimates(prepared.program, laws, 0, size, window)
    plan = _plan(prepared.program, planner, first)
    return Workload(stream, kind, size, prepared, plan, first, window)


def _plan(program: Program, planner: PlanKind, known: Estimates) -> Plan:
    models = branch_models(program)
    made = generate_plans(planner, models, known, TYPICAL_COSTS, PRINTED[planner])
    return assemble_plan(planner, made)


def laws_of(stream: Stream, kind: Kind, size: int, events: int) -> Laws:
    """A kind of event for each of the pattern's, and one for what is negated."""
    kinds = size + (kind == "negation")
    return traffic(events, kinds) if stream == "traffic" else stocks(events, kinds)


# ---- patterns ----------------------------------------------------------------------------------


def pattern(stream: Stream, kind: Kind, size: int, window: int) -> cep.Pattern:
    names = LETTERS[:size]
    parts = [cep.event(name, f"kind = {number}") for number, name in enumerate(names)]
    rises = list(_rises(stream, names))
    middle = size // 2
    if kind == "conjunction":
        return cep.all_of(*parts).where(*rises).within(window)
    if kind == "negation":
        blocker = cep.no(cep.event("x", f"kind = {size}"))
        against = _rises(stream, (names[middle - 1], "x"))
        whole = cep.seq(*parts[:middle], blocker, *parts[middle:])
        return whole.where(*rises, *against).within(window)
    if kind == "kleene":
        # At most so long: where the listed kind becomes frequent, all lists are 2^n under any plan.
        parts[middle] = cep.event(f"{names[middle]}{{1,{LONGEST_LIST}}}", f"kind = {middle}")
    if kind == "disjunction":
        sequences = [_rotated(stream, size, turn) for turn in range(3)]
        return cep.any_of(*sequences).within(window)
    return cep.seq(*parts).where(*rises).within(window)


def _rotated(stream: Stream, size: int, turn: int) -> cep.Pattern:
    """The sequence that begins a third of the kinds later with each turn."""
    names = [f"{letter}{turn + 1}" for letter in LETTERS[:size]]
    parts = [cep.event(name, f"kind = {kind_of(name, size)}") for name in names]
    return cep.seq(*parts).where(*_rises(stream, names))


def kind_of(name: str, size: int) -> int:
    """The kind of event that a variable stands for; `x` is the one that is negated.

    >>> [kind_of(name, 6) for name in ("a", "f", "x", "a1", "a2", "f3")]
    [0, 5, 6, 0, 2, 3]
    """
    if name == "x":
        return size
    turn = int(name[1:] or 1) - 1
    return (LETTERS.index(name[0]) + turn * (size // 3)) % size


def _rises(stream: Stream, names: Sequence[str]) -> Iterator[str]:
    attributes = ATTRIBUTES[stream]
    for number, (left, right) in enumerate(pairwise(names)):
        attribute = attributes[number % len(attributes)]
        yield f"{left}.{attribute} + {MARGIN[stream]:g} < {right}.{attribute}"


# ---- what is true of a law ---------------------------------------------------------------------


def estimates(program: Program, laws: Laws, law: int, size: int, window: int) -> Estimates:
    """The rates and selectivities that the stream is drawn from. A row's value is in several
    conditions at once, so that together they keep less than the product says."""
    kinds = [kind_of(variable.name, size) for variable in program.variables]
    per_window = window / TICKS_PER_EVENT
    rates = {v: float(laws.shares[law, kind]) * per_window for v, kind in enumerate(kinds)}
    by_name = {variable.name: kind for variable, kind in zip(program.variables, kinds, strict=True)}
    selectivities = {}
    for index, condition in enumerate(program.conditions):
        (low, attribute), margin, (high, _) = _read(condition.text)
        means = laws.means[attribute][law]
        # The difference of two normals with deviation 1 has deviation sqrt(2).
        distance = means[by_name[high]] - means[by_name[low]] - margin
        selectivities[index] = 0.5 * (1 + erf(distance / 2))
    return Estimates(rates, selectivities)


def _read(condition: str) -> tuple[list[str], float, list[str]]:
    """
    >>> _read("a.speed + 1.5 < b.speed")
    (['a', 'speed'], 1.5, ['b', 'speed'])
    """
    low, high = condition.split(" < ")
    value, margin = low.split(" + ")
    return value.split("."), float(margin), high.split(".")


# ---- windows -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Windows:
    """Finds how long a pattern's window may be: by the cost model, then by trying."""

    stream: Stream
    kind: Kind
    size: int
    planner: PlanKind
    laws: Laws

    def fitting(self, columns: Columns) -> int:
        """The model knows nothing of what a NOT looks at, and takes conditions as independent, so
        a few thousand events of some laws have the last word. (Longer than by the model only
        without lists: there a little longer can be a thousand times as much work.)"""
        window = self._by_model(columns)
        slices = list(self._slices(columns))
        if self._fits(window, slices, share=1.0):
            longest = window if self.kind == "kleene" else LONGEST * TICKS_PER_EVENT
            while window < longest and self._fits(window, slices, share=0.5):
                window += window // 8
            return window
        while not self._fits(window, slices, share=1.0):
            window -= window // 5
        return window

    def _fits(self, window: int, slices: Sequence[tuple[int, Columns]], share: float) -> bool:
        """Whether plans stay below `share` of the pairs that they may take."""
        static, right = [], []
        for law, columns in slices:
            prepared = prepare(pattern(self.stream, self.kind, self.size, window), columns)
            for made_for, pairs in ((0, static), (law, right)):
                known = estimates(prepared.program, self.laws, made_for, self.size, window)
                plan = _plan(prepared.program, self.planner, known)
                pairs.append(run(prepared, plan).metrics.pairs / SLICE_EVENTS)
        return np.mean(static) < share * STATIC_PAIRS and np.mean(right) < share * RIGHT_PAIRS

    def _slices(self, columns: Columns) -> Iterator[tuple[int, Columns]]:
        """Events of some laws, each with its number."""
        starts = np.cumsum(self.laws.lengths) - self.laws.lengths
        for law in self._some_laws():
            rows = slice(starts[law], starts[law] + SLICE_EVENTS)
            yield law, {name: values[rows] for name, values in columns.items()}

    def _some_laws(self) -> Sequence[int]:
        last = len(self.laws.lengths) - 1
        return sorted(set(np.linspace(0, last, LAWS_TRIED).astype(int).tolist()))

    def _by_model(self, columns: Columns) -> int:
        """In ticks; found by halving, as every plan takes more in a longer window."""
        few = {name: values[:0] for name, values in columns.items()}
        program = prepare(pattern(self.stream, self.kind, self.size, 1), few).program
        makers = plan_generators(
            self.planner, branch_models(program), TYPICAL_COSTS, PRINTED[self.planner]
        )

        def fits(window: int) -> bool:
            known = [
                estimates(program, self.laws, law, self.size, window) for law in self._some_laws()
            ]
            per_event = TICKS_PER_EVENT / window
            static = _plan_pairs(makers, known[:1] * len(known), known) * per_event
            right = _plan_pairs(makers, known, known) * per_event
            return static < STATIC_PAIRS and right < RIGHT_PAIRS

        low, high = TICKS_PER_EVENT, LONGEST * TICKS_PER_EVENT
        while high - low > low // 50:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def _plan_pairs(
    makers: Sequence[PlanGenerator], made_for: Sequence[Estimates], run_on: Sequence[Estimates]
) -> float:
    """Expected pairs in one window, on average, of plans made for some statistics and run on
    others."""
    return float(
        np.mean(
            [
                sum(maker.cost(maker.make(then), now).pairs for maker in makers)
                for then, now in zip(made_for, run_on, strict=True)
            ]
        )
    )
