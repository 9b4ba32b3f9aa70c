"""What shedding learns from rows: utilities, loads, and how recall depends on what stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events.sampling import estimate_from_context, make_sample_context
from spark_cep.udfs.events.table import column_to_numpy
from spark_cep.udfs.planning.combinatorics import bit_numbers
from spark_cep.udfs.planning.cost_model import plan_cost, shape_slot_set
from spark_cep.udfs.planning.planner import assemble_plan, branch_models, generate_plans
from spark_cep.udfs.shedding.passing import tables_of
from spark_cep.udfs.shedding.quota import LeveledRows, RecallEstimator, select_rows_by_kind
from spark_cep.udfs.shedding.utility import SheddingStatistics, Utilities, count_bins, utilities_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from spark_cep.udfs.costs import OperationCosts
    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.planning.cost_model import BranchModel, CardinalityEstimator
    from spark_cep.udfs.program import Estimates, Plan, Program, Shape
    from spark_cep.udfs.shedding.utility import SheddingPolicy


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


# ---- learning ----------------------------------------------------------------------------------

# The time of a match on its way back to Spark, measured in a trigger with many matches.
MATCH_SECONDS: Final = 0.5e-6
# The powers of the load that may weigh quotas, and the shares of rows at which they are tried.
LOAD_POWERS: Final = (1.0, 0.5, 0.0)
TRIAL_SHARES: Final = (0.2, 0.5)
# How much better the recall on drawn matches must be to deviate from the paper's quotas.
CLEAR_GAIN: Final = 1.05


@dataclass(frozen=True)
class SheddingModel:
    """What rows showed. `loads`: the load of a row of each variable (`estimate_loads`) to the power
    `load_power`, which weighs the quotas. `drawn`: matches drawn from the rows."""

    utilities: Utilities
    loads: Mapping[int, float]
    load_power: float
    estimates: Estimates | None
    drawn: RecallEstimator


@dataclass(frozen=True)
class RowSample:
    """Rows to learn from, without NULL event times. `row_weight`: how many rows each represents, if
    there were too many in a stretch of time."""

    table: pa.Table
    row_weight: float = 1.0

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
    keys: Sequence[Type] = (),
) -> SheddingModel:
    """Learns utilities and loads from rows. `keys`: the types of the program's keys, if utilities
    may depend on them."""
    table = sampled.table
    matching = make_sample_context(program, table)
    estimates = sampled.estimates(estimate_from_context(matching))
    tables = tables_of(matching, keys) if policy == "utility" and estimates is not None else ()
    work = (
        {}
        if estimates is None
        else estimate_loads(branch_models(program), program.plan, estimates, costs)
    )
    utilities = utilities_of(tables, *variable_masks(program))
    drawn = RecallEstimator(matching, table, utilities)
    load_power = 1.0
    if policy == "utility" and work:
        load_power = _choose_power(_RowLevels(program, table, utilities), work, drawn)
    return SheddingModel(utilities, _apply_power(work, load_power), load_power, estimates, drawn)


@dataclass(frozen=True)
class _RowLevels:
    """The rows of a table with their levels, to select from at several shares."""

    program: Program
    table: pa.Table
    utilities: Utilities

    @cached_property
    def _rows(self) -> tuple[npt.NDArray[np.int64], LeveledRows]:
        mask = column_to_numpy(self.table.column(self.program.mask)).astype(np.int64)
        here = np.flatnonzero(self.utilities.may_be_shed(mask))
        levels = self.utilities.levels(mask[here], self.table.take(pa.array(here)))
        return here, (mask[here], levels, np.random.default_rng(0).random(len(here)))

    def staying(
        self, policy: SheddingPolicy, share: float, loads: Mapping[int, float]
    ) -> npt.NDArray[np.bool_]:
        here, rows = self._rows
        kept = np.ones(self.table.num_rows, dtype=np.bool_)
        kept[here] = select_rows_by_kind(policy, rows, share * len(here), loads)
        return kept


def _choose_power(rows: _RowLevels, loads: Mapping[int, float], drawn: RecallEstimator) -> float:
    """The power of the load that weighs quotas: 1, as in the paper, unless the recall on drawn
    matches is clearly better with less."""
    recalls = {
        each: sum(
            drawn.recall(rows.staying("utility", share, _apply_power(loads, each)))
            for share in TRIAL_SHARES
        )
        for each in LOAD_POWERS
    }
    best = max(LOAD_POWERS, key=lambda each: (recalls[each], each))
    return best if recalls[best] > CLEAR_GAIN * recalls[1.0] else 1.0


def _apply_power(loads: Mapping[int, float], load_power: float) -> dict[int, float]:
    return {v: load**load_power for v, load in loads.items()}


def statistics_of(
    program: Program,
    sampled: RowSample,
    learnt: SheddingModel,
    policy: SheddingPolicy,
    costs: OperationCosts,
) -> SheddingStatistics:
    """What the workers of a stream need of what was learnt."""
    utilities, table = learnt.utilities, sampled.table
    rows_ = _RowLevels(program, table, utilities)
    curve = learnt.drawn.curve(lambda share: rows_.staying(policy, share, learnt.loads))
    rows = max(table.num_rows * sampled.row_weight, 1.0)
    seconds = estimate_seconds(program, learnt.estimates, costs) / rows
    in_bins = count_bins(utilities, table, program.mask)
    depth = estimate_depth(program, learnt.estimates, costs)
    return SheddingStatistics(utilities, learnt.loads, curve, seconds, in_bins, depth)


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


def estimate_depth(program: Program, estimates: Estimates | None, costs: OperationCosts) -> float:
    """How the work falls with the matches. With half of the rows, the matches fall by the power of
    all slots, and the work by that of the slots whose joins cause it. Returns the ratio of the
    powers: 1 if the last join is all of the work."""
    positive, _ = variable_masks(program)
    if estimates is None:
        return 1.0
    half = replace(
        estimates,
        rates={v: rate / (1 + (positive >> v & 1)) for v, rate in estimates.rates.items()},
    )
    matches = estimate_matches(program, estimates), estimate_matches(program, half)
    seconds = estimate_seconds(program, estimates, costs), estimate_seconds(program, half, costs)
    if not 0 < matches[1] < matches[0] or not 0 < seconds[1] < seconds[0]:
        return 1.0
    return min(log(seconds[0] / seconds[1]) / log(matches[0] / matches[1]), 1.0)


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
