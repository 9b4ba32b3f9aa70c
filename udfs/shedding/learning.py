"""What rows say of utilities and loads: the statistics that shedding goes by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_cep.udfs.planning.generate import generate, models, plan_from
from spark_cep.udfs.planning.model import plan_cost
from spark_cep.udfs.sampling import estimates_from, matching_of
from spark_cep.udfs.shedding.load import loads
from spark_cep.udfs.shedding.passing import tables_of
from spark_cep.udfs.shedding.utility import Utilities, utilities_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from spark_cep.udfs.expressions import Type
    from spark_cep.udfs.matching import Matching
    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.program import Estimates, Program
    from spark_cep.udfs.shedding.utility import Policy


@dataclass(frozen=True)
class Learnt:
    """`loads`: the work that a row of each variable makes (`load.py`). `matching`: of the rows
    that it was learnt from, to draw from."""

    utilities: Utilities
    loads: Mapping[int, float]
    estimates: Estimates | None
    matching: Matching


def learn(
    program: Program, table: pa.Table, policy: Policy, costs: Costs, keys: Sequence[Type] = ()
) -> Learnt:
    """From rows without NULL event times."""
    matching = matching_of(program, table)
    estimates = estimates_from(matching)
    tables = tables_of(matching, keys) if policy == "utility" and estimates is not None else ()
    work = {} if estimates is None else loads(models(program), program.plan, estimates, costs)
    return Learnt(utilities_of(tables, *roles(program)), work, estimates, matching)


def roles(program: Program) -> tuple[int, int]:
    """The positive variables as a bit mask, and those that a NOT looks for."""
    positive = sum(1 << v for v, each in enumerate(program.variables) if not each.negated)
    needed = sum(1 << v for v, each in enumerate(program.variables) if each.negated)
    return positive, needed


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
