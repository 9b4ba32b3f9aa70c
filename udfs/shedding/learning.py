"""What rows say of utilities and loads: the statistics that shedding goes by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from spark_cep.udfs.events import numbers
from spark_cep.udfs.planning.generate import generate, models, plan_from
from spark_cep.udfs.planning.model import plan_cost
from spark_cep.udfs.sampling import estimates_from, matching_of
from spark_cep.udfs.shedding.arrays import Rows, staying_by_kind
from spark_cep.udfs.shedding.drift import filled
from spark_cep.udfs.shedding.load import loads
from spark_cep.udfs.shedding.passing import tables_of
from spark_cep.udfs.shedding.recall import Drawn
from spark_cep.udfs.shedding.spec import Known
from spark_cep.udfs.shedding.utility import Utilities, utilities_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.program import Estimates, Program
    from spark_cep.udfs.shedding.utility import Policy

# A match on its way back to Spark, in the worker and beyond: of a stream's trigger with many.
MATCH_SECONDS: Final = 0.5e-6
# Powers of the work that quotas may be dealt by, and the shares of rows at which they are tried.
LEANINGS: Final = (1.0, 0.5, 0.0)
TRIED_SHARES: Final = (0.2, 0.5)
# By how much drawn matches have to speak against the paper's quotas.
CLEARLY: Final = 1.05


@dataclass(frozen=True)
class Learnt:
    """`loads`: the work that a row of each variable makes (`load.py`), to the power of `leaning`:
    what quotas are dealt by. `drawn`: matches of the rows that it was learnt from."""

    utilities: Utilities
    loads: Mapping[int, float]
    leaning: float
    estimates: Estimates | None
    drawn: Drawn


@dataclass(frozen=True)
class Sampled:
    """Rows that are learnt from, without NULL event times. `thinned`: of how many rows each is
    one, where there were too many in a stretch of time."""

    table: pa.Table
    thinned: float = 1.0

    def estimates(self, found: Estimates | None) -> Estimates | None:
        """What these rows say of all the rows they are from."""
        if found is None or self.thinned <= 1:
            return found
        rates = {v: rate * self.thinned for v, rate in found.rates.items()}
        return replace(found, rates=rates, places=())


def learn(
    program: Program, sampled: Sampled, policy: Policy, costs: Costs, keys: Sequence[Type] = ()
) -> Learnt:
    """What rows are worth, and what work they make."""
    table = sampled.table
    matching = matching_of(program, table)
    estimates = sampled.estimates(estimates_from(matching))
    tables = tables_of(matching, keys) if policy == "utility" and estimates is not None else ()
    work = {} if estimates is None else loads(models(program), program.plan, estimates, costs)
    utilities = utilities_of(tables, *roles(program))
    drawn = Drawn(matching, table, utilities)
    leaning = 1.0
    if policy == "utility" and work:
        leaning = _leaning(_Sorted(program, table, utilities), work, drawn)
    return Learnt(utilities, _eased(work, leaning), leaning, estimates, drawn)


@dataclass(frozen=True)
class _Sorted:
    """The rows of a table in their levels, to be asked which of them stay."""

    program: Program
    table: pa.Table
    utilities: Utilities

    @cached_property
    def _rows(self) -> tuple[npt.NDArray[np.int64], Rows]:
        mask = numbers(self.table.column(self.program.mask)).astype(np.int64)
        here = np.flatnonzero(self.utilities.may_be_shed(mask))
        levels = self.utilities.levels(mask[here], self.table.take(pa.array(here)))
        return here, (mask[here], levels, np.random.default_rng(0).random(len(here)))

    def staying(
        self, policy: Policy, share: float, loads: Mapping[int, float]
    ) -> npt.NDArray[np.bool_]:
        here, rows = self._rows
        kept = np.ones(self.table.num_rows, dtype=np.bool_)
        kept[here] = staying_by_kind(policy, rows, share * len(here), loads)
        return kept


def _leaning(rows: _Sorted, loads: Mapping[int, float], drawn: Drawn) -> float:
    """How much of the work counts when quotas are dealt: all of it, as in the paper, unless drawn
    matches clearly say that more of them is left with less."""
    recalls = {
        each: sum(
            drawn.recall(rows.staying("utility", share, _eased(loads, each)))
            for share in TRIED_SHARES
        )
        for each in LEANINGS
    }
    best = max(LEANINGS, key=lambda each: (recalls[each], each))
    return best if recalls[best] > CLEARLY * recalls[1.0] else 1.0


def _eased(loads: Mapping[int, float], leaning: float) -> dict[int, float]:
    return {v: load**leaning for v, load in loads.items()}


def known_of(
    program: Program, sampled: Sampled, learnt: Learnt, policy: Policy, costs: Costs
) -> Known:
    """What a stream's workers go by, of what rows said."""
    utilities, table = learnt.utilities, sampled.table
    rows_ = _Sorted(program, table, utilities)
    curve = learnt.drawn.curve(lambda share: rows_.staying(policy, share, learnt.loads))
    rows = max(table.num_rows * sampled.thinned, 1.0)
    seconds = seconds_of(program, learnt.estimates, costs) / rows
    in_bins = filled(utilities, table, program.mask)
    depth = depth_of(program, learnt.estimates, costs)
    return Known(utilities, learnt.loads, curve, seconds, in_bins, depth)


def roles(program: Program) -> tuple[int, int]:
    """The positive variables as a bit mask, and those that a NOT looks for."""
    positive = sum(1 << v for v, each in enumerate(program.variables) if not each.negated)
    needed = sum(1 << v for v, each in enumerate(program.variables) if each.negated)
    return positive, needed


def seconds_of(program: Program, estimates: Estimates | None, costs: Costs) -> float:
    """What matching and the answer are expected to take."""
    return work_of(program, estimates, costs) + matches_of(program, estimates) * MATCH_SECONDS


def depth_of(program: Program, estimates: Estimates | None, costs: Costs) -> float:
    """Where the work is. With half of the rows matches are fewer by the power of all slots, the
    work by that of the slots whose joins make it: the latter as a part of the former, 1 if the last
    join is all of it."""
    positive, _ = roles(program)
    if estimates is None:
        return 1.0
    half = replace(
        estimates,
        rates={v: rate / (1 + (positive >> v & 1)) for v, rate in estimates.rates.items()},
    )
    matches = matches_of(program, estimates), matches_of(program, half)
    seconds = seconds_of(program, estimates, costs), seconds_of(program, half, costs)
    if not 0 < matches[1] < matches[0] or not 0 < seconds[1] < seconds[0]:
        return 1.0
    return min(log(seconds[0] / seconds[1]) / log(matches[0] / matches[1]), 1.0)


def matches_of(program: Program, estimates: Estimates | None) -> float:
    """How many matches are expected."""
    if estimates is None:
        return 0.0
    found = (model.given(estimates).cardinality(model.all) for model in models(program))
    return sum(found) * estimates.windows


def work_of(program: Program, estimates: Estimates | None, costs: Costs) -> float:
    """Seconds that matching is expected to take, by the cheapest chains."""
    if estimates is None:
        return 0.0
    branches = models(program)
    plan = plan_from("lazy-chain", generate("lazy-chain", branches, estimates, costs))
    assert plan.branches is not None
    shapes = zip(branches, plan.branches, strict=True)
    return sum(
        plan_cost(model, each.shape, estimates, costs).time
        for model, each in shapes
        if each.shape is not None
    )
