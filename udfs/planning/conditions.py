"""The conditions and negations of a branch as the cost model sees them: by sets of slots.

Which slots a condition reads does not depend on the order in which they are bound, so neither does
the cost of a set of slots. Left out are conditions on variables that the branch does not bind, and
conditions within one iteration of a repeated group: the model of the group's body has those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from spark_cep.udfs.comparisons import as_equality
from spark_cep.udfs.expressions import FOLDS, cells_of

if TYPE_CHECKING:
    from spark_cep.udfs.program import Branch, Condition, Negation, Variable


@dataclass(frozen=True)
class IndexEquality:
    """An equality by which an index finds rows of `slot`, once the slots in `bound` are bound."""

    slot: int
    bound: int


@dataclass(frozen=True)
class ConditionModel:
    """A condition, identified by its `index` in the program. `slots` is the mask of those it reads.

    `keeps` says what it keeps a share of: combinations ("once"), the elements that a list may take
    ("each", and "prev" from the second element on), or finished lists ("complete"). `owner` is the
    list that is tested, unless it keeps combinations.
    """

    index: int
    slots: int
    keeps: Literal["once", "each", "prev", "complete"]
    owner: int = -1
    index_equalities: tuple[IndexEquality, ...] = ()


@dataclass(frozen=True)
class NegationModel:
    """A negation: a row of `variable` that meets `conditions` blocks a match, or with `group` an
    occurrence of it. It can be decided once the slots in `needs` are bound. `element` is its number
    in the partial order."""

    variable: int
    conditions: tuple[int, ...]
    needs: int
    element: int
    group: Branch | None = None


def slot_set(slots: Iterable[int]) -> int:
    """A set of slots as a bit mask."""
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask


# ---- conditions --------------------------------------------------------------------------------


def condition_models(
    branch: Branch, conditions: Sequence[Condition], variables: Sequence[Variable]
) -> tuple[ConditionModel, ...]:
    """The conditions that the branch's own rows must meet."""
    slot_of = {v: number for number, slot in enumerate(branch.slots) for v in slot.variables}

    def is_plain(variable: int) -> bool:
        return variable in slot_of and not branch.slots[slot_of[variable]].is_list

    models = []
    for index, condition in enumerate(conditions):
        if condition.variables <= slot_of.keys():
            model = _condition_model(branch, index, condition, slot_of)
            if model is not None:
                equalities = _index_equalities(branch, condition, slot_of, is_plain)
                models.append(replace(model, index_equalities=equalities))
    return tuple(models)


def _condition_model(
    branch: Branch, index: int, condition: Condition, slot_of: dict[int, int]
) -> ConditionModel | None:
    read = [(slot_of[cell.variable], cell.reading) for cell in cells_of(condition.expression)]
    slots = slot_set(slot for slot, _ in read)
    lists = {slot for slot, _ in read if branch.slots[slot].is_list}
    if any(reading != "each" and slot not in lists for slot, reading in read):
        # This branch is one iteration of a group; the condition is on the list of iterations.
        return None
    if any(reading in FOLDS for _, reading in read):
        owner = max(slot for slot, reading in read if reading in FOLDS)
        return ConditionModel(index, slots, "complete", owner)
    if any(reading == "prev" for _, reading in read):
        return ConditionModel(index, slots, "prev", max(slot for slot, r in read if r == "prev"))
    if not lists:
        return ConditionModel(index, slots, "once")
    owner = max(lists)
    if slots == 1 << owner and branch.slots[owner].is_group:
        return None
    return ConditionModel(index, slots, "each", owner)


def _index_equalities(
    branch: Branch,
    condition: Condition,
    slot_of: dict[int, int],
    is_plain: Callable[[int], bool],
) -> tuple[IndexEquality, ...]:
    equalities = []
    for variable in sorted(condition.variables):
        slot = slot_of[variable]
        equality = as_equality(condition, variable, is_plain)
        if not branch.slots[slot].is_group and equality is not None:
            bound = slot_set(slot_of[cell.variable] for cell in cells_of(equality.bound))
            equalities.append(IndexEquality(slot, bound))
    return tuple(equalities)


# ---- negations ---------------------------------------------------------------------------------


def negation_models(
    branch: Branch, conditions: Sequence[Condition], variables: Sequence[Variable]
) -> tuple[NegationModel, ...]:
    """The negations of the branch, numbered in the partial order after its slots."""
    slot_of = {v: number for number, slot in enumerate(branch.slots) for v in slot.variables}
    models = []
    for place, negation in enumerate(branch.negations):
        tests = [
            (index, condition)
            for index, condition in enumerate(conditions)
            if negation.variables & condition.variables
            and condition.variables - negation.variables <= slot_of.keys()
            # The model of the group has the conditions among its own variables.
            and not (negation.group and condition.variables <= negation.variables)
        ]
        read = {slot_of[v] for _, c in tests for v in c.variables if not variables[v].negated}
        needs = set(range(len(branch.slots)))
        if negation.place == "between":
            needs = read | {*negation.after, *negation.before} | _inner_slots(branch, negation)
        models.append(
            NegationModel(
                negation.variable,
                tuple(index for index, _ in tests),
                slot_set(needs),
                len(branch.slots) + place,
                negation.group,
            )
        )
    return tuple(models)


def _inner_slots(branch: Branch, negation: Negation) -> set[int]:
    """Slots whose rows may lie in the interval of the negation: these rows never block."""
    outside = {*negation.after, *negation.before}
    outside |= {s for s, other in branch.precedes if other in negation.after}
    outside |= {s for other, s in branch.precedes if other in negation.before}
    return set(range(len(branch.slots))) - outside


def before_masks(branch: Branch) -> list[int]:
    """The partial order: for each slot, then for each negation, the slots and negations that come
    before it."""
    count = len(branch.slots)
    before = [0] * (count + len(branch.negations))
    for earlier, later in branch.precedes:
        before[later] |= 1 << earlier
    for place, negation in enumerate(branch.negations):
        element = count + place
        before[element] = slot_set(negation.after)
        for slot in negation.after:
            before[element] |= before[slot]
        for slot in range(count):
            follows = slot_set(negation.before) & (before[slot] | 1 << slot)
            if follows:
                before[slot] |= 1 << element
    return before
