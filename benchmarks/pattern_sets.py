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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import erf
from typing import TYPE_CHECKING, Literal

import numpy as np

import spark_cep as cep
from benchmarks.programs import Prepared, prepare, run
from benchmarks.streams import TICKS_PER_EVENT, Laws, drawn, stocks, traffic
from spark_cep.udfs.planning.costs import TYPICAL
from spark_cep.udfs.planning.generate import Generator, generators, models, plan_from
from spark_cep.udfs.program import Estimates, Plan

if TYPE_CHECKING:
    from spark_cep.udfs.program import PlanKind, Program

Stream = Literal["traffic", "stocks"]
Kind = Literal["sequence", "negation", "conjunction", "kleene", "disjunction"]
STREAMS: tuple[Stream, ...] = ("traffic", "stocks")
KINDS: tuple[Kind, ...] = ("sequence", "negation", "conjunction", "kleene", "disjunction")
SIZES = (3, 4, 5, 6, 7, 8)
ATTRIBUTES = {"traffic": ("vehicles", "speed"), "stocks": ("diff",)}
# By how much a value must rise.
MARGIN = {"traffic": 0.75, "stocks": 0.0}
# Pairs an event, at most, of plans made for each law and of the plan made for the first one. With
# the former the engine's fixed costs are the smaller part; the latter ends in a few seconds.
RIGHT_PAIRS = 250.0
STATIC_PAIRS = 1_000.0
# Events in the longest window, and how many laws are looked at to find one.
LONGEST = 500
LAWS_LOOKED_AT = 6
TRIED_EVENTS = 5_000
LETTERS = "abcdefgh"


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
    few = {name: values[:0] for name, values in columns.items()}
    program = prepare(pattern(stream, kind, size, 1), few).program
    window = _window(program, laws, size, planner)
    while True:
        first = estimates(program, laws, 0, size, window)
        made = [each.make(first) for each in generators(planner, models(program), TYPICAL)]
        plan = plan_from(planner, made)
        prepared = prepare(pattern(stream, kind, size, window), columns)
        modelled = stream == "traffic" or kind == "kleene"
        if modelled or window > LONGEST * TICKS_PER_EVENT or _is_long(prepared, plan):
            return Workload(stream, kind, size, prepared, plan, first, window)
        window += window // 5


def _is_long(prepared: Prepared, plan: Plan) -> bool:
    """Conditions on one attribute keep less together than each by itself, so the stock stream's
    windows can be longer than the model finds. A few thousand events show how long. (Not with
    lists: there a window that is a little longer can be a thousand times as much work.)"""
    few = Prepared(prepared.program, prepared.table.slice(0, TRIED_EVENTS))
    return run(few, plan).metrics.pairs > RIGHT_PAIRS * TRIED_EVENTS


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
        return (
            cep.seq(*parts[:middle], blocker, *parts[middle:]).where(*rises, *against).within(window)
        )
    if kind == "kleene":
        parts[middle] = cep.event(f"{names[middle]}+", f"kind = {middle}")
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


def _window(program: Program, laws: Laws, size: int, planner: PlanKind) -> int:
    """In ticks; found by halving, as every plan takes more in a longer window."""
    makers = generators(planner, models(program), TYPICAL)
    some = np.unique(np.linspace(0, len(laws.lengths) - 1, LAWS_LOOKED_AT).astype(int))

    def fits(window: int) -> bool:
        known = [estimates(program, laws, law, size, window) for law in some]
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
    makers: Sequence[Generator], made_for: Sequence[Estimates], run_on: Sequence[Estimates]
) -> float:
    """Pairs in one window, on average, of plans made for some statistics and run on others."""
    return float(
        np.mean(
            [
                sum(maker.cost(maker.make(then).shape, now).pairs for maker in makers)
                for then, now in zip(made_for, run_on, strict=True)
            ]
        )
    )
