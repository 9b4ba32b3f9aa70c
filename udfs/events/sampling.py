"""Estimates from rows: rates of candidates and selectivities of conditions.

The driver reads a sample once, before it chooses a plan; a worker looks at the rows of its bucket.
Selectivities are measured on random partial matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.comparisons import evaluation_cost
from spark_cep.udfs.events.bucket_plans import window_rates
from spark_cep.udfs.events.candidates import AdvanceCase, SlotCandidates, find_scope
from spark_cep.udfs.events.context import AdvanceContext
from spark_cep.udfs.events.metrics import Meter, Metrics
from spark_cep.udfs.events.partials import BranchSlots, Partials, SlotElements
from spark_cep.udfs.events.steps import BranchSteps
from spark_cep.udfs.events.table import NEW, Events, drop_null_times
from spark_cep.udfs.events.walk import BranchWalk
from spark_cep.udfs.expressions import FOLDS, LIST_ENDS, UserCall, cells_of, remote_sources_of
from spark_cep.udfs.program import Estimates
from spark_cep.udfs.values.tally import ErrorTally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from spark_cep.udfs.events.table import Flags, Positions
    from spark_cep.udfs.expressions import Cell
    from spark_cep.udfs.program import Branch, Condition, Program


Weights = npt.NDArray[np.float64]

# Estimates a selectivity of 0.025 to within a seventh; with the larger number, one of 0.0015.
SAMPLE_DRAWS = 2_000
MAX_DRAWS = 16 * SAMPLE_DRAWS
# Partial matches that a condition should keep: its selectivity is then known to within a seventh.
ENOUGH_KEPT = 50
# With fewer, nothing is said about what another condition keeps of them.
LEAST_KEPT = 20
# Two conditions are dependent if they differ from independent ones by so many standard errors, and
# by this factor.
JOINT_ERRORS = 3.0
LEAST_JOINT_FACTOR = 1.25
# Pairs of conditions that are drawn for: all of a pattern with five variables.
MAX_JOINT_PAIRS = 24
# Number of windows whose own best plan is compared with the one plan for all.
SAMPLE_WINDOWS = 8


def estimate_from_table(program: Program, table: pa.Table) -> Estimates | None:
    """Rates and selectivities of a sample; None if it has no candidates."""
    return estimate_from_context(make_sample_context(program, table))


def make_sample_context(program: Program, table: pa.Table) -> AdvanceContext:
    """The rows of a sample as one advance, to draw from."""
    events = Events(program, drop_null_times(program, table))
    meter = Meter(events, program.limits, Metrics())
    status = np.full(events.size, NEW)
    return AdvanceContext(program, events, status, meter, ErrorTally(ansi=program.ansi))


def estimate_from_context(matching: AdvanceContext) -> Estimates | None:
    """Rates and selectivities of the rows of a context; None if it has no candidates."""
    density = matching.events.density(matching.meter.stretch)
    if not any(density.candidates.values()):
        return None
    # No candidate in a sample is counted as half a one, not as never.
    rates = {v: max(count, 0.5) / density.stretches for v, count in density.candidates.items()}
    places = window_rates(matching, SAMPLE_WINDOWS)
    drawn = measure_conditions(matching, np.random.default_rng(SAMPLING_SEED))
    shares = {place: each.value for place, each in drawn.shares.items()}
    errors = {place: each.error for place, each in drawn.shares.items()}
    return Estimates(rates, shares, density.stretches, places, drawn.joint, errors)


# ---- conditions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuredShare:
    """A share with its relative standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class MeasuredConditions:
    """What random partial matches say: the share that each condition keeps, and for pairs that are
    not independent the factor between what both keep and the product of their shares. `draws`: how
    many partial matches were drawn."""

    shares: Mapping[int, MeasuredShare]
    joint: Mapping[frozenset[int], float]
    draws: int


@dataclass(frozen=True)
class _ConditionGroup:
    """The conditions on one set of variables, as places in the program, in the order in which the
    engine tests them, and the partial matches that all of them kept."""

    places: tuple[int, ...]
    slots: frozenset[int]
    shares: Mapping[int, MeasuredShare]
    kept: Partials
    weights: Weights
    draws: int

    @property
    def share(self) -> MeasuredShare:
        value = prod(each.value for each in self.shares.values())
        return MeasuredShare(value, sqrt(sum(each.error**2 for each in self.shares.values())))


def measure_conditions(
    matching: AdvanceContext,
    random: np.random.Generator,
    draws: int = SAMPLE_DRAWS,
    most: int = MAX_DRAWS,
) -> MeasuredConditions:
    """The selectivities of a program's conditions on `draws` random partial matches of these rows,
    on `most` where hardly any is kept.

    They do not depend on any plan: an engine tests a condition on what the conditions before it
    have kept, which says nothing about another order if the two are not independent."""
    shares: dict[int, MeasuredShare] = {}
    joint: dict[frozenset[int], float] = {}
    drawn = 0
    for number in range(len(matching.program.branches)):
        walk = make_sampling_walk(matching, number)
        groups = [
            group
            for together in _groups_to_measure(walk, shares)
            if (group := _measure_group(walk, together, random, (draws, most))) is not None
        ]
        for group in groups:
            shares = {**group.shares, **shares}
        pairs = _dependent_pairs([group.slots for group in groups])
        joint = {**_measure_joint(walk, groups, pairs, random, draws), **joint}
        drawn += sum(group.draws for group in groups) + draws * len(pairs)
    return MeasuredConditions(shares, joint, drawn)


def count_parts(program: Program) -> int:
    """The groups of conditions and the pairs of groups that are drawn for, at least one."""
    parts = 0
    for branch in program.branches:
        slot_of = {
            variable: place
            for place, slot in enumerate(branch.slots)
            for variable in slot.variables
        }
        groups = {
            frozenset(slot_of[variable] for variable in condition.variables)
            for condition in program.conditions
            if _can_draw(branch, condition)
        }
        parts += len(groups) + len(_dependent_pairs(list(groups)))
    return max(parts, 1)


def _dependent_pairs(slots: Sequence[frozenset[int]]) -> list[tuple[int, int]]:
    """Of groups with these slots those pairs, as places, that may be dependent: they have a slot
    in common."""
    pairs = [
        (one, other)
        for one, mine in enumerate(slots)
        for other in range(one + 1, len(slots))
        if mine & slots[other] and mine != slots[other]
    ]
    return pairs[:MAX_JOINT_PAIRS]


def _groups_to_measure(
    walk: BranchWalk, known: Mapping[int, MeasuredShare]
) -> Iterator[Sequence[int]]:
    """The groups of conditions of a branch that no branch before it has, and those that have a
    variable in common with one of them, as the two may be dependent."""
    every = walk.matching.program.conditions
    mine = [
        each
        for each in _group_conditions(walk.matching.program)
        if any(can_sample(walk, every[place]) for place in each)
    ]
    new = [each for each in mine if not known.keys() & set(each)]
    variables = frozenset[int]().union(*(every[each[0]].variables for each in new))
    return (each for each in mine if every[each[0]].variables & variables)


def _group_conditions(program: Program) -> Iterator[list[int]]:
    """Groups of conditions on the same variables, as places in the program, in the order in which
    the engine tests them: each is measured on what those before it keep."""
    sets = {condition.variables: None for condition in program.conditions}
    for variables in sets:
        alike = [n for n, c in enumerate(program.conditions) if c.variables == variables]
        yield sorted(alike, key=lambda place: evaluation_cost(program.conditions[place]))


def _measure_group(
    walk: BranchWalk,
    together: Sequence[int],
    random: np.random.Generator,
    counts: tuple[int, int],
) -> _ConditionGroup | None:
    """More is drawn where hardly anything was kept. `counts`: of draws, at first and at most."""
    every = walk.matching.program.conditions
    conditions = {place: every[place] for place in together if can_sample(walk, every[place])}
    if not conditions:
        return None
    first = next(iter(conditions.values()))
    slots = sorted({walk.slots.of_variable[v] for v in first.variables})
    backward = {c.variable for each in conditions.values() for c in previous_cells(each)}
    lists = [slot for slot in slots if backward & set(walk.slot(slot).variables)]
    draws, most = counts
    total = 0
    while True:
        total += draws
        drawn = draw_partials(walk, [*slots, *lists], draws, random)
        if drawn is None:
            return None
        shares, kept, weights = _apply_conditions(walk, conditions, *drawn)
        if len(kept) >= ENOUGH_KEPT or draws == most:
            known = tuple(conditions), frozenset(slots), shares, kept, weights
            return _ConditionGroup(*known, total)
        draws = min(2 * draws * ENOUGH_KEPT // max(len(kept), 1), most)


def _apply_conditions(
    walk: BranchWalk, conditions: Mapping[int, Condition], partials: Partials, weights: Weights
) -> tuple[dict[int, MeasuredShare], Partials, Weights]:
    """The share that each condition keeps of what those before it kept, and what all keep."""
    reader = walk.reader(partials)
    kept, shares = weights, {}
    for place, condition in conditions.items():
        held = reader.holds(condition)
        shares[place] = _weighted_share(held, kept)
        kept = kept * held
    some = kept > 0
    return shares, partials.take(some), kept[some]


def _weighted_share(held: Flags, weights: Weights) -> MeasuredShare:
    total = float(weights.sum())
    if not total:
        return MeasuredShare(0.5, 1.0)
    value = float(weights @ held) / total
    spread = float(np.sqrt(np.square(weights * (held - value)).sum())) / total
    # A few draws of which none or all are kept do not prove 0 or 1.
    least = 0.5 / max(int(np.count_nonzero(weights)), 1)
    value = min(max(value, least), 1 - least)
    return MeasuredShare(value, max(spread, least) / value)


def _measure_joint(
    walk: BranchWalk,
    groups: Sequence[_ConditionGroup],
    pairs: Iterable[tuple[int, int]],
    random: np.random.Generator,
    draws: int,
) -> dict[frozenset[int], float]:
    """For these pairs of groups: by how much the second keeps another share of what the first has
    kept than it keeps of everything."""
    joint = {}
    for pair in pairs:
        # The rarer condition comes first where enough was kept: the other share is then known well.
        both = (groups[place] for place in pair)
        first, second = sorted(both, key=lambda group: group.share.value)
        if len(first.kept) < ENOUGH_KEPT:
            first, second = second, first
        factor = _joint_factor(walk, (first, second), random, draws)
        if factor is not None:
            joint[frozenset({first.places[0], second.places[0]})] = factor
    return joint


def _joint_factor(
    walk: BranchWalk,
    groups: tuple[_ConditionGroup, _ConditionGroup],
    random: np.random.Generator,
    draws: int,
) -> float | None:
    """None if the two may well be independent, or hardly anything is known."""
    first, second = groups
    if len(first.kept) < LEAST_KEPT:
        return None
    share = first.weights / first.weights.sum()
    chosen = random.choice(len(share), draws, p=share)
    partials, weights = first.kept.take(chosen), np.ones(draws)
    for slot in sorted(second.slots - first.slots):
        extended = _extend_drawn(walk, (partials, weights), slot, random)
        if extended is None:
            return None
        partials, weights = extended
    every = walk.matching.program.conditions
    shares, _, _ = _apply_conditions(
        walk, {place: every[place] for place in second.places}, partials, weights
    )
    value, expected = prod(each.value for each in shares.values()), second.share
    # What is drawn again from a few is not known better than those few show.
    few = 1 / float(np.square(share).sum())
    chance = sqrt(expected.value * (1 - expected.value) / few)
    unsure = JOINT_ERRORS * sqrt(chance**2 + (expected.error * expected.value) ** 2)
    factor = max(value, 0.5 / few) / expected.value
    if abs(value - expected.value) <= unsure or abs(log(factor)) < log(LEAST_JOINT_FACTOR):
        return None
    return factor


# ---- random partial matches ----------------------------------------------------------------------


SAMPLING_SEED = 42


def make_sampling_walk(matching: AdvanceContext, number: int) -> BranchWalk:
    """A walk to draw partial matches of a branch with.

    Nothing is drawn from repeated groups, so their iterations, which may be very many, are not
    found.
    """
    branch = matching.program.branches[number]
    slots = BranchSlots({place: SlotElements(slot) for place, slot in enumerate(branch.slots)})
    steps = BranchSteps(branch, matching.program, matching.program.conditions)
    return BranchWalk(
        matching,
        number,
        steps,
        SlotCandidates(matching, slots, AdvanceCase()),
        frozenset(slots.elements),
    )


def can_sample(walk: BranchWalk, condition: Condition, *, ends: bool = False) -> bool:
    """Whether a condition reads single rows of slots that this branch fills, without user functions
    or remote data: these may be slow, and may need what only the workers have. `ends`: the first or
    the last element of a list will do, which a list of one element has."""
    branch = walk.matching.program.branches[walk.branch]
    return _can_draw(branch, condition, FOLDS - LIST_ENDS if ends else FOLDS)


def drawable_conditions(program: Program) -> frozenset[int]:
    """The conditions, as places in the program, that some branch has random partial matches for."""
    return frozenset(
        place
        for place, condition in enumerate(program.conditions)
        if any(_can_draw(branch, condition) for branch in program.branches)
    )


def _can_draw(branch: Branch, condition: Condition, folds: frozenset[str] = FOLDS) -> bool:
    slot_of = {variable: slot for slot in branch.slots for variable in slot.variables}
    return (
        not any(isinstance(node, UserCall) for node in condition.expression.walk())
        and not remote_sources_of(condition.expression)
        and not any(cell.reading in folds for cell in cells_of(condition.expression))
        and condition.variables <= slot_of.keys()
        and not any(slot_of[v].is_group for v in condition.variables)
    )


def previous_cells(condition: Condition) -> Iterator[Cell]:
    return (cell for cell in cells_of(condition.expression) if cell.reading == "prev")


def draw_partials(
    walk: BranchWalk,
    slots: Sequence[int],
    count: int,
    random: np.random.Generator | None = None,
) -> tuple[Partials, Weights] | None:
    """`count` random partial matches of the slots (fewer where a scope is empty), with weights.

    A candidate of the first slot is drawn, then for each other slot one from its scope. So order,
    window and key hold as they will in the engine, and a partial match weighs as many as it was
    drawn from. A slot that occurs twice gets a list of two.
    """
    random = np.random.default_rng(SAMPLING_SEED) if random is None else random
    pool = walk.pools.pool(slots[0]).elements
    if not len(pool):
        return None
    # One of each of `count` equal parts: in order, so that their scopes are looked up side by side
    # in memory.
    parts = (np.arange(count) + random.random(count)) * (len(pool) / count)
    chosen = pool[parts.astype(np.int64)]
    partials = _bind_rows(walk, Partials({}, chosen, chosen), slots[0], chosen)
    drawn: tuple[Partials, Weights] | None = (partials, np.ones(count))
    for slot in slots[1:]:
        drawn = None if drawn is None else _extend_drawn(walk, drawn, slot, random)
    return drawn


@dataclass(frozen=True)
class DrawnStep:
    """Random partial matches at one step of a branch, with a candidate of that step. `weights`: how
    many of those that the step tests each stands for; `holds`: those that pass."""

    partials: Partials
    weights: Weights
    holds: Flags


# With fewer partial matches that pass a step, it is drawn once more, so many times as often.
ENOUGH_PASSING = 500
MORE_DRAWS = 8


def draw_steps(walk: BranchWalk, slots: Sequence[int], count: int) -> Iterator[DrawnStep]:
    """Random partial matches of the slots, slot by slot in this order, `count` at each step or,
    where few pass, more.

    Those that pass the conditions of a step go on, each as often as its weight asks (sequential
    Monte Carlo). So there are as many at the last step as at the first, however selective the
    conditions are. It ends early if none passes."""
    random = np.random.default_rng(SAMPLING_SEED)
    pool = walk.pools.pool(slots[0]).elements
    if not len(pool):
        return
    first = _bind_rows(walk, Partials({}, pool, pool), slots[0], pool)
    step = _test_step(walk, slots[:1], first, np.ones(len(pool)))
    yield step
    for place in range(1, len(slots)):
        before = step
        for draws in (count, MORE_DRAWS * count):
            drawn = _resample(before, draws, random)
            drawn = drawn and _extend_drawn(walk, drawn, slots[place], random)
            if drawn is None:
                return
            step = _test_step(walk, slots[: place + 1], *drawn)
            if np.count_nonzero(step.holds) >= ENOUGH_PASSING:
                break
        yield step


def _test_step(
    walk: BranchWalk, slots: Sequence[int], partials: Partials, weights: Weights
) -> DrawnStep:
    """With the conditions that the last one of the slots makes complete."""
    new = set(walk.slot(slots[-1]).variables)
    bound = {variable for slot in slots for variable in walk.slot(slot).variables}
    reader, holds = walk.reader(partials), np.ones(len(partials), dtype=np.bool_)
    for condition in walk.matching.program.conditions:
        is_complete = condition.variables <= bound and bool(condition.variables & new)
        if is_complete and can_sample(walk, condition) and not any(previous_cells(condition)):
            holds &= reader.holds(condition)
    return DrawnStep(partials, weights, holds)


def _resample(
    step: DrawnStep, count: int, random: np.random.Generator
) -> tuple[Partials, Weights] | None:
    """`count` of those that passed, each as often as its weight asks."""
    passed = np.cumsum(step.weights * step.holds)
    if not passed[-1]:
        return None
    each = (np.arange(count) + random.random()) * (passed[-1] / count)
    places = np.minimum(np.searchsorted(passed, each, side="right"), len(passed) - 1)
    return step.partials.take(places), np.full(count, passed[-1] / count)


def _extend_drawn(
    walk: BranchWalk, drawn: tuple[Partials, Weights], slot: int, random: np.random.Generator
) -> tuple[Partials, Weights] | None:
    """The same with a random candidate of one more slot."""
    partials, weights = drawn
    step = walk.steps.step(frozenset(partials.elements) - {slot}, frozenset({slot}))
    candidates = walk.pools.pool(slot)
    ranges = candidates.find(find_scope(step, walk.matching.events, walk.slots, partials))
    counts = np.maximum(ranges.high - ranges.low, 0)
    some = np.flatnonzero(counts)
    if not len(some):
        return None
    place = ranges.low[some] + (random.random(len(some)) * counts[some]).astype(np.int64)
    bound = _bind_rows(walk, partials.take(some), slot, candidates.elements[place])
    return bound, weights[some] * counts[some]


def _bind_rows(walk: BranchWalk, partials: Partials, slot: int, rows: Positions) -> Partials:
    bound = rows[:, np.newaxis] if walk.slot(slot).is_list else rows
    if slot in partials.elements:
        bound = np.concatenate([partials.elements[slot], bound], axis=1)
    return Partials(
        {**partials.elements, slot: bound},
        np.minimum(partials.earliest, rows),
        np.maximum(partials.latest, rows),
    )
