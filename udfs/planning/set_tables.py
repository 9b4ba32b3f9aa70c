"""The numbers of the cost model for all sets of slots at once, as arrays indexed by set.

A dynamic program over sets of n slots needs 2^n cardinalities and up to 3^n joins: too many to
compute one by one. What holds for a set without lists and negations is a product, computed here for
all sets in the order in which `CardinalityEstimator` multiplies, so that both give the same number
to the last bit: a comparison that decided a plan is verified with the estimator. The other sets are
left to the estimator itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import factorial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from spark_cep.udfs.planning.combinatorics import bit_numbers
from spark_cep.udfs.planning.conditions import before_masks
from spark_cep.udfs.planning.cost_model import LARGEST_NUMBER, UNIT_PAIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.planning.conditions import ConditionModel
    from spark_cep.udfs.planning.cost_model import BranchModel, CardinalityEstimator, TimeEstimator

Array = npt.NDArray[Any]


# ---- sets and their parts ----------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    """All sets of k slots. For each set, one column for each way to join it from two parts: in
    `last` and `rest` a slot and the others, in `left` and `right` any two parts.

    The columns are in the order in which ties are decided: the highest slot comes last, so that
    equal slots stay in the order of the pattern, and left-deep shapes come first.
    """

    sets: Array
    last: Array
    rest: Array
    left: Array
    right: Array


@lru_cache(maxsize=16)
def set_sizes(size: int) -> Array:
    """The number of slots of every set of `size` slots."""
    return np.array([slots.bit_count() for slots in range(1 << size)])


@lru_cache(maxsize=16)
def levels(size: int) -> tuple[Level, ...]:
    """The sets of 2 slots, of 3, and so on to the set of all."""
    return tuple(_level(size, count) for count in range(2, size + 1))


def _level(size: int, count: int) -> Level:
    sets = np.flatnonzero(set_sizes(size) == count)
    members = np.array([list(bit_numbers(int(each))) for each in sets])
    last = members[:, ::-1]
    rest = sets[:, None] ^ (1 << last)
    chosen = sorted(range(1, (1 << count) - 1), key=lambda part: (-part.bit_count(), part))
    taken = np.array([[part >> slot & 1 for slot in range(count)] for part in chosen])
    left = (1 << members) @ taken.T
    return Level(sets, last, rest, left, sets[:, None] ^ left)


# ---- what does not depend on statistics --------------------------------------------------------


class SetModel:
    """A branch by sets of slots: which are plain, and which conditions apply.

    `is_plain`: sets whose cardinality is a product, without lists and decided negations.
    `contains`: for each condition that keeps combinations, the sets within which it is tested.
    """

    def __init__(self, model: BranchModel) -> None:
        self.size = model.size
        self.sets = np.arange(1 << model.size)
        self.model = model
        self.has = np.stack([(self.sets >> slot & 1).astype(bool) for slot in range(model.size)])
        before = [mask & model.all for mask in before_masks(model.branch)[: model.size]]
        after = [
            sum(1 << other for other in range(model.size) if before[other] >> slot & 1)
            for slot in range(model.size)
        ]
        self.extensions = self._count_extensions(after)
        self.has_list = (self.sets & model.lists) != 0
        self.decided = self._decided_negations()
        self.is_plain = ~self.has_list & (self.decided == 0)
        self.is_plain[0] = False
        once = [c for c in model.condition_models if c.keeps == "once"]
        self.contains = [(c.index, (self.sets & c.slots) == c.slots) for c in once]
        self.indexed = [c for c in model.condition_models if c.index_equalities]
        self._anchor_ranks = self._rank_anchors(before, after)
        self._split_anchors: dict[int, Array] = {}
        self._split_uses: dict[int, list[tuple[int, Array]]] = {}

    def _count_extensions(self, after: Sequence[int]) -> Array:
        """e(S) of every set: some element is the last one."""
        counts = np.zeros(len(self.sets))
        counts[0] = 1.0
        sizes = set_sizes(self.size)
        for count in range(1, self.size + 1):
            level = np.flatnonzero(sizes == count)
            for slot in range(self.size):
                mine = level[self.has[slot][level] & ((level & after[slot]) == 0)]
                counts[mine] += counts[mine ^ (1 << slot)]
        return counts

    def _decided_negations(self) -> Array:
        decided = np.zeros_like(self.sets)
        for number, negation in enumerate(self.model.negation_models):
            decided |= ((self.sets & negation.needs) == negation.needs).astype(np.int64) << number
        return decided

    def _rank_anchors(self, before: Sequence[int], after: Sequence[int]) -> Array:
        """For a set on the left, how well each slot serves as the anchor of a unit, as in
        `BranchModel.anchor`."""
        ranks = np.zeros((self.size, len(self.sets)), dtype=np.int64)
        for slot in range(self.size):
            sides = ((self.sets & before[slot]) != 0) * 1 + ((self.sets & after[slot]) != 0)
            is_single = 0 if self.model.lists >> slot & 1 else 1
            ranks[slot] = (2 * sides + is_single) * self.size + (self.size - 1 - slot)
        return ranks

    def split_anchors(self, number: int) -> Array:
        """The anchor of the right part, for each split of a level."""
        if number not in self._split_anchors:
            level = levels(self.size)[number]
            best = np.full(level.left.shape, -1)
            anchors = np.zeros_like(best)
            for slot in range(self.size):
                rank = np.where(level.right >> slot & 1, self._anchor_ranks[slot][level.left], -1)
                anchors[rank > best] = slot
                best = np.maximum(best, rank)
            self._split_anchors[number] = anchors
        return self._split_anchors[number]

    def split_uses(self, number: int) -> list[tuple[int, Array]]:
        """For each condition that can use an index, the splits of a level where it does."""
        if number not in self._split_uses:
            level = levels(self.size)[number]
            self._split_uses[number] = [
                (c.index, self.uses_index(c, level.left, level.right)) for c in self.indexed
            ]
        return self._split_uses[number]

    def uses_index(self, condition: ConditionModel, left: Array, right: Array) -> Array:
        """`BranchModel.uses_index` for arrays of sets."""
        uses: Array = np.zeros(right.shape, dtype=bool)
        is_slot = set_sizes(self.size)[right] == 1
        within = ((left | right) & condition.slots) == condition.slots
        for equality in condition.index_equalities:
            found = ((right >> equality.slot & 1) == 1) & ((equality.bound & ~left) == 0)
            if self.model.lists >> equality.slot & 1:
                found &= is_slot
            uses |= found
        uses &= within
        return uses


def set_model(model: BranchModel) -> SetModel:
    """The branch by sets of slots. It is made once."""
    if model.set_model is None:
        model.set_model = SetModel(model)
    return cast("SetModel", model.set_model)


# ---- seconds -----------------------------------------------------------------------------------


class JoinTable:
    """The seconds of joins under given statistics, equal to those of `TimeEstimator.join`."""

    def __init__(self, times: TimeEstimator) -> None:
        self._estimator: CardinalityEstimator = times.estimator
        self._times = times
        self._costs = times.costs
        self._sets = sets = set_model(times.estimator.model)
        self._kept = self._kept_shares()
        self._numbers = self._arrange()
        self.cardinalities = self._cardinalities()
        self._starts = np.array([times.estimator.start(slot) for slot in range(sets.size)])
        self._anchored = self._anchored_pairs()

    def _arrange(self) -> Array:
        """Combinations of every set that respect order and window, without conditions."""
        sets = self._sets
        sizes = set_sizes(sets.size)
        fewer = np.array([factorial(max(count - 1, 0)) for count in range(sets.size + 1)], float)
        number: Array = sets.extensions / fewer[sizes]
        for slot in range(sets.size):
            mine = sets.has[slot]
            number[mine] = np.minimum(number[mine] * self._estimator.rate(slot), LARGEST_NUMBER)
        return number

    def _kept_shares(self) -> Array | None:
        """`CardinalityEstimator.kept_share` of the conditions within every set; None where all
        conditions are independent, and numbers are multiplied by one after the other."""
        joint = self._estimator.estimates.joint
        if not joint:
            return None
        share = np.ones(len(self._sets.sets))
        most, contains = share.copy(), dict(self._sets.contains)
        for index, within in contains.items():
            share[within] *= self._estimator.selectivity(index)
            most[within] = np.minimum(most[within], self._estimator.selectivity(index))
        for pair, factor, both in self._estimator.joint_shares:
            if pair <= contains.keys():
                within = np.logical_and.reduce([contains[index] for index in pair])
                share[within] *= factor
                most[within] = np.minimum(most[within], both)
        return np.minimum(share, most)

    def _keep(self, numbers: Array) -> Array:
        """What the conditions within each set keep of these numbers, in the last axis by set."""
        if self._kept is not None:
            return numbers * self._kept
        for index, within in self._sets.contains:
            numbers[..., within] *= self._estimator.selectivity(index)
        return numbers

    def _cardinalities(self) -> Array:
        found = self._keep(self._numbers.copy())
        np.minimum(found, LARGEST_NUMBER, out=found)
        found[0] = 0.0
        others = ~self._sets.is_plain
        for slots in np.flatnonzero(others)[1 if others[0] else 0 :]:
            found[slots] = self._estimator.cardinality(int(slots))
        return found

    def _anchored_pairs(self) -> Array:
        """`CardinalityEstimator.anchored` for every slot and set of others; 0 for lists."""
        sets, estimator = self._sets, self._estimator
        slots = np.arange(sets.size)[:, None]
        both = sets.sets | 1 << slots
        found = self._keep(self._numbers[both])
        np.minimum(found, LARGEST_NUMBER, out=found)
        is_known = ~sets.has_list[both] & (sets.decided == 0)
        is_needed = ~sets.has & (sets.sets > 0) & ~(sets.model.lists >> slots & 1).astype(bool)
        for slot, left in np.argwhere(is_needed & ~is_known):
            found[slot, left] = estimator.anchored(int(left), int(slot))
        return found

    def slot_joins(self, number: int) -> Array:
        """For each set of a level and each slot of it, the seconds of joining the slot last."""
        level = levels(self._sets.size)[number]
        pairs = self._anchored[level.last, level.rest]
        unit = 1 << level.last
        for condition in self._sets.indexed:
            uses = self._sets.uses_index(condition, level.rest, unit)
            pairs = self._apply_index(pairs, condition.index, uses, level.rest)
        seconds = self._seconds(self._costs.pair, pairs, level.sets, level.rest, unit)
        if number == 0:
            seconds = seconds + self._costs.result * self._starts[level.last[:, ::-1]]
        return self._with_lists(seconds, level.rest, unit)

    def split_joins(self, number: int) -> Array:
        """For each set of a level and each split of it, the seconds of joining the two parts."""
        sets = self._sets
        level = levels(sets.size)[number]
        anchors = sets.split_anchors(number)
        pairs = self._anchored[anchors, level.left]
        units = self.cardinalities[level.right]
        is_join = set_sizes(sets.size)[level.right] > 1
        rates = np.array([self._estimator.rate(slot) for slot in range(sets.size)])[anchors]
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.minimum(pairs * units, LARGEST_NUMBER) / rates
        pairs = np.where(is_join, np.where(rates > 0, shared, 0.0), pairs)
        if sets.model.lists:
            by_list = is_join & ((sets.model.lists >> anchors & 1) == 1)
            if by_list.any():
                held = np.minimum(self.cardinalities[level.left] * units, LARGEST_NUMBER)
                pairs = np.where(by_list, held * self._list_scope(anchors, level.left), pairs)
        for index, uses in sets.split_uses(number):
            pairs = self._apply_index(pairs, index, uses, level.left)
        pair = np.where(is_join, self._costs.pair * UNIT_PAIR, self._costs.pair)
        seconds = self._seconds(pair, pairs, level.sets, level.left, level.right)
        for slot in range(sets.size):
            seconds[level.left == 1 << slot] += self._costs.result * self._starts[slot]
        seconds = np.where(is_join, seconds + self._costs.insert * units, seconds)
        return self._with_lists(seconds, level.left, level.right)

    def _apply_index(self, pairs: Array, index: int, uses: Array, left: Array) -> Array:
        """The pairs that an index leaves. The conditions on the left may have kept another share
        of its values."""
        found = pairs * self._estimator.selectivity(index)
        for other, within in self._sets.contains:
            factor = self._estimator.estimates.joint.get(frozenset({index, other}), 1.0)
            if factor != 1.0:
                found = np.where(within[left], found * factor, found)
        return np.where(uses, np.minimum(found, LARGEST_NUMBER), pairs)

    def _seconds(
        self, pair: float | Array, pairs: Array, sets: Array, left: Array, right: Array
    ) -> Array:
        pairs = np.minimum(pairs, LARGEST_NUMBER)
        partials = np.broadcast_to(self.cardinalities[sets][:, None], pairs.shape)
        if self._sets.model.negation_models:
            partials = self._undecided(partials.copy(), sets, left, right)
        seconds: Array = pair * pairs + self._costs.result * partials
        return seconds

    def _undecided(self, partials: Array, sets: Array, left: Array, right: Array) -> Array:
        """Joins that decide a negation make partial matches before it is tested."""
        decided = self._sets.decided
        inside = decided[left] | decided[right]
        for row, column in np.argwhere(inside != decided[sets][:, None]):
            parts = int(left[row, column]), int(right[row, column])
            partials[row, column] = self._estimator.results(*parts)
        return partials

    def _list_scope(self, anchors: Array, left: Array) -> Array:
        """The share of the window in which a list must lie, by which a unit is found."""
        sets = self._sets
        rows = sets.sets & ~sets.model.lists
        rows = np.where(rows == 0, sets.sets & -sets.sets, rows)[left]
        gaps = sets.extensions[rows | 1 << anchors] / sets.extensions[rows]
        scope: Array = gaps / set_sizes(sets.size)[rows]
        return scope

    def _with_lists(self, seconds: Array, left: Array, right: Array) -> Array:
        """The joins in which a list grows, from the estimator."""
        for slot in bit_numbers(self._sets.model.lists):
            for row, column in np.argwhere(right == 1 << slot):
                seconds[row, column] = self._times.join(int(left[row, column]), 1 << slot)
        return seconds


def join_table(times: TimeEstimator) -> JoinTable:
    """The table of these statistics. It is made once."""
    if times.join_table is None:
        times.join_table = JoinTable(times)
    return cast("JoinTable", times.join_table)
