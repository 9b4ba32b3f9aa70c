"""What shedding learns from rows: utilities, loads, and how recall depends on what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events.sampling import (
    estimate_from_context,
    estimate_from_table,
    make_sample_context,
)
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.planning.combinatorics import bit_numbers
from spark_cep.udfs.planning.cost_model import plan_cost, shape_slot_set
from spark_cep.udfs.planning.planner import assemble_plan, branch_models, generate_plans
from spark_cep.udfs.shedding.blocks import STRETCHES
from spark_cep.udfs.shedding.matches import ALL_MATCHES, MOST_PAIRS, Recall, sample_matches
from spark_cep.udfs.shedding.passing import BinnedRows, tables_of
from spark_cep.udfs.shedding.positions import position_tables
from spark_cep.udfs.shedding.quota import number_kinds, select_rows_by_kind, weights_of
from spark_cep.udfs.shedding.utility import SheddingStatistics, count_bins, utilities_of
from spark_cep.udfs.shedding.worth import EDGE_DRAWS, RowWorth, graphs_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.events.context import AdvanceContext
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.planning.cost_model import BranchModel, CardinalityEstimator
    from spark_cep.udfs.program import Estimates, Plan, Program, Shape
    from spark_cep.udfs.shedding.matches import MatchSample
    from spark_cep.udfs.shedding.passing import PassTable
    from spark_cep.udfs.shedding.utility import SheddingPolicy, Utilities

    Flags = npt.NDArray[np.bool_]


# ---- loads: DARLING's Z(T), Equations 5 to 10, for any plan --------------------------------------
#
# A plan is a binary tree of joins; a chain is the left-deep one. PM(N), the partial matches that
# node N holds at a time (Eq. 10), comes from `CardinalityEstimator.cardinality`, which also knows
# order, window, lists and negations. It counts what is made while one window passes: with k slots k
# times what lies in a window, because each of the k rows may be the earliest of a partial match
# that begins in it. A new event of type T adds to every node on its path to the root
#
#     PM(N, T) = SEL(N) * PM(son on the path, T) * PM(other son)                        (Eqs. 8, 9)
#
# and since PM(leaf, T) is SEL(leaf) and PM(leaf) is R * w * SEL(leaf), that is PM(N) / (R * w):
# each event of T has an equal part of the node's partial matches. A new partial match of N is
# tested with those of its peer, the other son of its parent, by the parent's conditions (Eqs. 5,
# 6), made and removed again (Eq. 7).
#
# A list counts with the number of lists that its rows form. The paper counts all 2^R subsets; the
# estimator counts those that the quantifier and the conditions on elements leave.


_CAP = 1e100


def estimate_loads(
    models: Sequence[BranchModel], plan: Plan, estimates: Estimates, costs: OperationCosts
) -> dict[int, float]:
    """The seconds of work that one row of each positive variable causes, over all branches. For a
    plan without a shape (a tree NFA), the best chain is used."""
    chains: Sequence[Shape | None] | None = None
    found: dict[int, float] = {}
    for number, model in enumerate(models):
        shape = plan.branches[number].shape if plan.branches is not None else None
        if shape is None:
            if chains is None:
                chains = [
                    each.shape for each in generate_plans("lazy-chain", models, estimates, costs)
                ]
            shape = chains[number]
        assert shape is not None
        for slot, seconds in estimate_slot_loads(model.estimator(estimates), shape, costs).items():
            for variable in model.branch.slots[slot].variables:
                found[variable] = min(found.get(variable, 0.0) + seconds, _CAP)
    return found


def estimate_slot_loads(
    figures: CardinalityEstimator, shape: Shape, costs: OperationCosts
) -> dict[int, float]:
    """Z(T) of each slot of one branch."""
    nodes = tuple(_join_nodes(figures, shape, peer=0, parent_conditions=0))
    return {
        slot: min(
            sum(_node_load(figures, node, slot, costs) for node in nodes if node[0] >> slot & 1),
            _CAP,
        )
        for slot in bit_numbers(shape_slot_set(shape))
    }


# A node: its slots, those of its peer, and the number of conditions of its parent.
_JoinNode = tuple[int, int, int]


def _join_nodes(
    figures: CardinalityEstimator, shape: Shape, *, peer: int, parent_conditions: int
) -> Iterator[_JoinNode]:
    own = shape_slot_set(shape)
    yield own, peer, parent_conditions
    if isinstance(shape, int):
        return
    left, right = shape_slot_set(shape[0]), shape_slot_set(shape[1])
    # Order and window count as one more condition.
    here = 1 + sum(bool(a.slots & left and a.slots & right) for a in figures.model.within(own))
    yield from _join_nodes(figures, shape[0], peer=right, parent_conditions=here)
    yield from _join_nodes(figures, shape[1], peer=left, parent_conditions=here)


def _node_load(
    figures: CardinalityEstimator, node: _JoinNode, slot: int, costs: OperationCosts
) -> float:
    own, peer, conditions = node
    rate = figures.rate(slot)
    if rate <= 0:
        return 0.0
    made = min(_held_partials(figures, own) / rate, _CAP)
    peers = min(_held_partials(figures, peer), _CAP) if peer else 0.0
    # T_RC is making a partial match, T_BI inserting and removing it.
    return min(made * (conditions * costs.pair * peers + costs.result + costs.insert), _CAP)


def _held_partials(figures: CardinalityEstimator, slots: int) -> float:
    """PM(N). If all slots are lists, only the first element is bound to the window."""
    plain = slots & ~figures.model.lists
    return figures.cardinality(slots) / max(plain.bit_count(), 1)


# ---- ways to shed --------------------------------------------------------------------------------


# The shares of rows for which there is a way to shed.
SHARES: Final = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
# The shares at which the work that remains is estimated; 1 takes all of it.
WORK_SHARES: Final = (0.7, 0.5, 0.3, 0.1)


@dataclass(frozen=True)
class Way:
    """How rows are chosen if this `share` of them stays, and what that leaves: the `recall`, the
    part of the matches expected to stay (`drawn`, where that is not known), and of the `work`.
    `kept`: the share of each kind of rows, by mask; without it all kinds have one threshold."""

    share: float
    utilities: Utilities
    recall: Recall
    drawn: float
    work: float
    kept: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What stays for a target: of the rows in this share of the `blocks` those of highest utility,
    then those of other blocks, block by block. The utility alone decides if `blocks` is 1, the
    blocks alone if it is 0."""

    utilities: Utilities
    blocks: float
    recall: Recall
    work: float
    kept: Mapping[int, float] = field(default_factory=dict)

    def weights(self, rows: Mapping[int, int]) -> dict[int, float] | None:
        """The weights of the kinds of rows in the quota; None for one threshold for all."""
        if not self.kept:
            return None
        return {mask: count * self.kept.get(mask, 1.0) for mask, count in rows.items()}


def choose_way(
    policy: SheddingPolicy, ways: Sequence[Way], target: float, *, by_blocks: bool = True
) -> Choice:
    """How to keep a target share of the rows. Whole blocks lose matches in proportion, rows of
    little worth lose less than that: some of the blocks and the best rows within them may keep
    more than either alone. Without `by_blocks` there are too few blocks to choose among."""
    if target >= 1:
        return Choice(ways[0].utilities, 1.0, ALL_MATCHES, 1.0)
    if target <= 0:
        return Choice(ways[0].utilities, 1.0, Recall(0.0, 0.0, 0.0), 0.0)
    if not takes_blocks(policy):
        return _between(ways, target)
    able = [way for way in ways if way.share >= target]
    best = _best_way(able)
    below = next((way for way in ways if way.share < target), None)
    if below is not None and policy == "utility":
        rows = _of_best_rows(below, able[-1], target)
        if rows.drawn > best.drawn * target / best.share:
            return Choice(rows.utilities, 1.0, rows.recall, rows.work, rows.kept)
    if not by_blocks and policy == "utility" and len(able) > 1:
        best = able[-1]
        recall = best.recall.times(target / best.share)
        return Choice(best.utilities, 1.0, recall, best.work, best.kept)
    part = target / best.share
    # If all rows of a block stay, the hash alone decides.
    blocks = 0.0 if best.share == 1 else part
    recall, work = best.recall.times(part), part * best.work
    return Choice(best.utilities, blocks, recall, work, best.kept)


def _of_best_rows(below: Way, above: Way, share: float) -> Way:
    """The rows of highest utility that are this share, by the nearer one of two ways. How many rows
    of each kind stay is between both: of a rare kind, none may be worth dropping."""
    part = (share - below.share) / (above.share - below.share)

    def between(low: float, high: float) -> float:
        return low + part * (high - low)

    near = above if part > 0.5 and above.share < 1 else below  # noqa: PLR2004
    drawn, work = between(below.drawn, above.drawn), between(below.work, above.work)
    kept = {kind: between(low, above.kept.get(kind, 1.0)) for kind, low in below.kept.items()}
    recall = below.recall.toward(above.recall, part)
    return Way(share, near.utilities, recall, drawn, work, kept)


def _best_way(ways: Sequence[Way]) -> Way:
    """The one that keeps most matches for the rows that it keeps."""
    return max(ways, key=lambda way: (way.drawn / way.share, -way.share))


def takes_blocks(policy: SheddingPolicy) -> bool:
    """Whether a policy keeps blocks of rows, and within them the best of all kinds. The others
    divide the rows among the kinds first."""
    return policy in ("utility", "keys")


def _between(ways: Sequence[Way], target: float) -> Choice:
    """The nearest way, with figures between the two next to the target."""
    shares = np.array([0.0, *(way.share for way in reversed(ways))])

    def value(of: Callable[[Way], float]) -> float:
        return float(np.interp(target, shares, [0.0, *(of(way) for way in reversed(ways))]))

    unknown = next((way.recall for way in ways if way.recall.value is None), None)
    recall = unknown or Recall(
        value(lambda way: way.recall.value or 0.0),
        value(lambda way: way.recall.low),
        value(lambda way: way.recall.high),
    )
    return Choice(ways[0].utilities, 1.0, recall, value(lambda way: way.work))


# ---- learning ----------------------------------------------------------------------------------


# The time of a match on its way back to Spark, measured in a trigger with many matches.
MATCH_SECONDS: Final = 0.5e-6


@dataclass(frozen=True)
class SheddingModel:
    """What rows showed: the `ways` to shed, the one that keeps most rows first, and `matches` of
    the sample. `loads`: the load of a row of each variable (`estimate_loads`). `stretch`: the
    length of a block in windows."""

    policy: SheddingPolicy
    ways: tuple[Way, ...]
    loads: Mapping[int, float]
    estimates: Estimates | None
    matches: MatchSample
    stretch: int

    def choose(self, target: float, times: float = 1.0) -> Choice:
        """How to keep a target share. `times`: how many times the rows of the sample there are, of
        which more are shared more evenly by a hash of their blocks."""
        found = choose_way(self.policy, self.ways, target)
        if found.blocks == 1 or found.recall.value is None:
            return found
        spread = self.matches.spread(found.blocks or target, times, self.stretch)
        return replace(found, recall=found.recall.widen(spread))


@dataclass(frozen=True)
class Effort:
    """How much learning may cost: the `pairs` that matching a sample may test, and the `draws` for
    each condition between two variables."""

    pairs: int = MOST_PAIRS
    draws: int = EDGE_DRAWS


# On a stream, learning takes time of a trigger, or makes it longer.
STREAM_PAIRS: Final = 1_000_000
LEAST_STREAM_DRAWS: Final = 15_000
STREAM_DRAWS_OF_ROW: Final = 2


def stream_effort(rows: int) -> Effort:
    """How much learning from so many rows of a stream may cost."""
    draws = max(LEAST_STREAM_DRAWS, STREAM_DRAWS_OF_ROW * rows)
    return Effort(STREAM_PAIRS, min(draws, EDGE_DRAWS))


@dataclass(frozen=True)
class RowSample:
    """Rows to learn from, without NULL event times. `row_weight`: how many rows each represents, if
    there were too many in a stretch of time. `blocks`: the hash of each row's block, where Spark
    computed it, and `stretch`, the length of a block in windows. `keys`: the types of the program's
    keys, if the worth of a row may depend on its key. `own`: the rows' tie-breakers.
    `effort`: what learning from them may cost."""

    table: pa.Table
    row_weight: float = 1.0
    blocks: npt.NDArray[np.float64] | None = None
    keys: Sequence[Type] = ()
    stretch: int = STRETCHES[0]
    own: npt.NDArray[np.float64] | None = None
    effort: Effort = Effort()

    def estimates(self, found: Estimates | None) -> Estimates | None:
        """The estimates scaled to the rows that the sample was taken from."""
        if found is None or self.row_weight <= 1:
            return found
        rates = {v: rate * self.row_weight for v, rate in found.rates.items()}
        return replace(found, rates=rates, places=())


def learn_model(
    program: Program,
    sampled: RowSample,
    policy: SheddingPolicy,
    costs: OperationCosts,
    wanted: float | None = None,
) -> SheddingModel:
    """Learns from rows. `wanted`: the share of them that will stay, if that is known; then there
    are only the ways that may be chosen for it."""
    table = sampled.table
    matching = make_sample_context(program, table)
    estimates = sampled.estimates(estimate_from_context(matching))
    loads = (
        {}
        if estimates is None
        else estimate_loads(branch_models(program), program.plan, estimates, costs)
    )
    expected = estimate_work(program, estimates, costs) / costs.pair
    orders = _orders_of(program, estimates, costs)
    matches = sample_matches(matching, orders, sampled.effort.pairs, expected)
    rows = _LearntRows(program, matching, sampled, estimates, loads, matches, costs)
    made = [] if estimates is None else rows.ways(policy, wanted)
    every = Way(1.0, utilities_of((), *variable_masks(program)), ALL_MATCHES, 1.0, 1.0)
    if made and not takes_blocks(policy):
        every = replace(every, utilities=made[0].utilities)
    return SheddingModel(policy, (every, *made), loads, estimates, matches, sampled.stretch)


def _orders_of(
    program: Program, estimates: Estimates | None, costs: OperationCosts
) -> list[list[int]]:
    """The order in which the slots of each branch are joined, of a tree from left to right."""
    known = program.plan.branches or (None,) * len(program.branches)
    shapes = [None if each is None else each.shape for each in known]
    if None in shapes and estimates is not None:
        models = branch_models(program)
        best = (each.shape for each in generate_plans("lazy-chain", models, estimates, costs))
        shapes = [known or found for known, found in zip(shapes, best, strict=True)]
    return [
        list(range(len(branch.slots))) if shape is None else list(_slots_in(shape))
        for branch, shape in zip(program.branches, shapes, strict=True)
    ]


def _slots_in(shape: Shape) -> Iterator[int]:
    if isinstance(shape, int):
        yield shape
    else:
        for side in shape:
            yield from _slots_in(side)


def _shares_for(policy: SheddingPolicy, wanted: float | None) -> list[float]:
    """The shares for which ways are made, descending. Where blocks are chosen, more rows of fewer
    blocks may be better than the share that is wanted, and fewer rows never are."""
    if wanted is None or not 0 < wanted < 1:
        return list(SHARES)
    more = SHARES if takes_blocks(policy) else ()
    return sorted({wanted, *(share for share in more if share > wanted)}, reverse=True)


@dataclass(frozen=True)
class _ChosenRows:
    """The rows of a sample that stay at a share, and the `expected` part of the matches."""

    share: float
    utilities: Utilities
    stays: Flags
    kept: Mapping[int, float] = field(default_factory=dict)
    expected: float = 0.0


@dataclass(frozen=True)
class _LearntRows:
    """The rows of a sample, from which some are chosen."""

    program: Program
    matching: AdvanceContext
    sampled: RowSample
    estimates: Estimates | None
    loads: Mapping[int, float]
    matches: MatchSample
    costs: OperationCosts

    def ways(self, policy: SheddingPolicy, wanted: float | None) -> list[Way]:
        """The ways to shed, or those that may be chosen for a share that is `wanted`."""
        shares = _shares_for(policy, wanted)
        if policy == "keys":
            return []
        if policy == "utility":
            chosen = list(self._by_worth(shares))
        else:
            tables = self._tables(policy)
            utilities = utilities_of(tables, *variable_masks(self.program))
            chosen = []
            for share in shares:
                weights = partial(weights_of, policy, loads=self.loads)
                stays = self._stays(utilities, share, weights)
                chosen.append(_ChosenRows(share, utilities, stays))
        found = []
        for each in chosen:
            known = self.matches.share(each.stays) if self.matches.is_enough else each.expected
            recall = self.matches.recall(each.stays)
            found.append(Way(each.share, each.utilities, recall, known or 0.0, 1.0, each.kept))
        looked_at = WORK_SHARES if wanted not in shares else (_best_way(found).share,)
        works = self._works({c.share: c.stays for c in chosen if c.share in looked_at})
        return [replace(way, work=works(way.share)) for way in found]

    def _tables(self, policy: SheddingPolicy) -> Sequence[PassTable]:
        if policy == "espice":
            return position_tables(self.program, self.matching.events.table, self.matches)
        return tables_of(self.matching) if policy == "darling" else ()

    def _by_worth(self, shares: Sequence[float]) -> Iterator[_ChosenRows]:
        graphs = graphs_of(self.matching, self.sampled.keys, self.sampled.effort.draws)
        worth = RowWorth(graphs, self._mask, self._may_be_shed, self._totals())
        known = self.matches.is_enough
        every = 0.0 if known else worth.matches(np.ones(len(self._mask), dtype=np.bool_))
        for share, thinned in worth.thin(shares):
            utilities = worth.utilities(thinned, *variable_masks(self.program))
            kept = self._kept(thinned)
            expected = worth.matches(thinned) / every if every else share
            # What stays by the score, which knows bins and levels and no rounds.
            choice = Choice(utilities, 1.0, ALL_MATCHES, 1.0, kept)
            stays = self._stays(utilities, share, choice.weights)
            yield _ChosenRows(share, utilities, stays, kept, expected)

    def _kept(self, stays: Flags) -> dict[int, float]:
        """The share of each kind of rows that stays."""
        kinds, place, counts = number_kinds(self._mask[self._may_be_shed])
        kept = np.bincount(place, stays[self._may_be_shed], len(kinds)) / counts
        return {int(kind): float(share) for kind, share in zip(kinds, kept, strict=True)}

    def _totals(self) -> list[float]:
        """The expected matches of each branch."""
        if self.estimates is None:
            return []
        models = branch_models(self.program)
        return [model.estimator(self.estimates).cardinality(model.all) for model in models]

    def _stays(
        self,
        utilities: Utilities,
        share: float,
        weights: Callable[[Mapping[int, int]], Mapping[int, float] | None],
    ) -> Flags:
        here = np.flatnonzero(self._may_be_shed)
        mask = self._mask[here]
        levels = utilities.levels(mask, self._sheddable)
        own = np.random.default_rng(0).random(len(here))
        stays = np.ones(len(self._mask), dtype=np.bool_)
        stays[here] = select_rows_by_kind((mask, levels, own), share * len(here), weights)
        return stays

    def _works(self, stays: Mapping[float, Flags]) -> Callable[[float], float]:
        """The part of the work that remains at a share, of the rows that stay there."""
        shares, parts = [0.0], [0.0]
        every = self._work(np.ones(len(self._mask), dtype=np.bool_))
        for share in sorted(stays):
            if every > 0:
                shares.append(share)
                parts.append(max(min(self._work(stays[share]) / every, 1.0), parts[-1]))
        shares, parts = [*shares, 1.0], [*parts, 1.0]
        return lambda share: float(np.interp(share, shares, parts))

    def _work(self, stays: Flags) -> float:
        """The seconds of matching if these rows stay: by the pairs that the sample has then, or,
        where no pairs may be tested, of their own selectivities."""
        pairs = self.matches.work(stays)
        if pairs is not None:
            kept = self.matches.share(stays) or 0.0
            return pairs * self.costs.pair + kept * self.matches.total * MATCH_SECONDS
        return estimate_seconds(self.program, self._estimates(stays), self.costs)

    def _estimates(self, stays: Flags) -> Estimates | None:
        kept = self.sampled.table.filter(pa.array(stays))
        if not kept.num_rows:
            return None
        return self.sampled.estimates(estimate_from_table(self.program, kept))

    @cached_property
    def _mask(self) -> npt.NDArray[np.int64]:
        column = self.sampled.table.column(self.program.mask)
        return np.asarray(column_to_numpy(column).astype(np.int64))

    @cached_property
    def _sheddable(self) -> BinnedRows:
        return BinnedRows(self.sampled.table).take(np.flatnonzero(self._may_be_shed))

    @cached_property
    def _may_be_shed(self) -> Flags:
        _, needed = variable_masks(self.program)
        return np.asarray((self._mask != 0) & (self._mask & needed == 0))


def statistics_of(
    program: Program, sampled: RowSample, learnt: SheddingModel, costs: OperationCosts
) -> SheddingStatistics:
    """What the workers of a stream need of what was learnt."""
    rows = max(sampled.table.num_rows * sampled.row_weight, 1.0)
    seconds = estimate_seconds(program, learnt.estimates, costs) / rows
    found = SheddingStatistics(learnt.ways, learnt.loads, seconds, ())
    return replace(found, filled=count_bins(found.utilities, sampled.table, program.mask))


def variable_masks(program: Program) -> tuple[int, int]:
    """The positive variables and those of a NOT, as bit masks."""
    positive = sum(1 << v for v, each in enumerate(program.variables) if not each.negated)
    needed = sum(1 << v for v, each in enumerate(program.variables) if each.negated)
    return positive, needed


def estimate_seconds(program: Program, estimates: Estimates | None, costs: OperationCosts) -> float:
    """The expected seconds of matching and of returning the matches."""
    return (
        estimate_work(program, estimates, costs)
        + estimate_matches(program, estimates) * MATCH_SECONDS
    )


def estimate_matches(program: Program, estimates: Estimates | None) -> float:
    """The expected number of matches."""
    if estimates is None:
        return 0.0
    found = (model.estimator(estimates).cardinality(model.all) for model in branch_models(program))
    return sum(found) * estimates.windows


def estimate_work(program: Program, estimates: Estimates | None, costs: OperationCosts) -> float:
    """The expected seconds of matching, by the cheapest chains."""
    if estimates is None:
        return 0.0
    branches = branch_models(program)
    plan = assemble_plan("lazy-chain", generate_plans("lazy-chain", branches, estimates, costs))
    assert plan.branches is not None
    shapes = zip(branches, plan.branches, strict=True)
    return sum(
        plan_cost(model, each.shape, estimates, costs).time
        for model, each in shapes
        if each.shape is not None
    )
