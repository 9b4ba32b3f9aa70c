"""What a user knows about the data and may say, instead of having the input sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Statistics:
    """`rates`: candidate rows of a variable, in any common unit. `selectivities`: the share of
    pairs of candidates that meet the conditions between two variables.

    Given statistics replace the sample: no job runs before the action.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rate in self.rates.items():
            if not rate >= 0:
                raise PlanError(
                    f"the rate of {name!r} is {rate!r}",
                    hint='rates are counts of candidate rows: cep.Statistics(rates={"a": 100})',
                )
        for pair, share in self.selectivities.items():
            if not 0 <= share <= 1:
                raise PlanError(
                    f"the selectivity of {pair!r} is {share!r}",
                    hint="a selectivity is a share between 0 and 1",
                )
