"""Whether a stream keeps partial matches from one trigger to the next, and which.

APAM's partitions say which slots to evaluate as their events arrive, and what an event then costs
on average (`partition.py`). A stream adds what they leave out: what is kept lies in a state that
every trigger reads, cuts down to what is still open, and writes. So keeping pays where joins that
the final events would repeat are dear and leave little, and where a window is many triggers long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_cep.udfs.planning.partition import partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_cep.udfs.planning.costs import Costs
    from spark_cep.udfs.planning.model import BranchModel
    from spark_cep.udfs.program import BranchPlan, Estimates

# What one kept partial match takes in each trigger, whether anything comes of it or not.
KEEPING_SECONDS: Final = 2e-7


@dataclass(frozen=True)
class Way:
    """`seconds` a trigger; `held`: partial matches in the state. `plan.eager` is empty where
    nothing is kept."""

    plan: BranchPlan
    seconds: float
    held: float


def ways(model: BranchModel, estimates: Estimates, costs: Costs, share: float) -> list[Way]:
    """Every partition of the matching order; the first keeps nothing. `share`: how much of a
    window comes in a trigger."""
    figures = model.given(estimates)
    events = sum(
        estimates.rates.get(variable, 0.0)
        for slot in model.branch.slots
        for variable in slot.variables
    )
    found = []
    for partition in partitions(model, estimates, costs):
        if len(partition.eager) == 1:
            continue  # rows lie in the state anyway
        held = sum(figures.cardinality(bits) for bits in _prefixes(partition.eager))
        seconds = share * events * partition.service + KEEPING_SECONDS * held
        found.append(Way(partition.plan, estimates.windows * seconds, estimates.windows * held))
    return found


def _prefixes(eager: Sequence[int]) -> list[int]:
    """The sets of slots that are kept: every beginning of the group, of two slots or more.

    >>> _prefixes((0, 2, 3))
    [5, 13]
    """
    bits, found = 0, []
    for place, slot in enumerate(eager):
        bits |= 1 << slot
        if place:
            found.append(bits)
    return found
