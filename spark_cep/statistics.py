"""What a user knows about the data and may say, instead of having the input sampled."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING

from spark_cep.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Statistics:
    """`rates`: how many candidate rows of each variable one window of one key has; only their
    proportions matter for an order. `selectivities`: the share of pairs of candidates that meet
    the conditions between two variables; of one variable, `("a", "a")`, the share of its
    candidates that count.

    Given rates replace the sample: no job runs before the action. Selectivities that are not
    given are measured on the sample, or taken as a half for each condition.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rate in self.rates.items():
            if not _is_number(rate) or not rate >= 0:
                raise PlanError(
                    f"the rate of {name!r} is {rate!r}",
                    hint='rates are counts of candidate rows: cep.Statistics(rates={"a": 100})',
                )
        for pair, share in self.selectivities.items():
            if not isinstance(pair, tuple) or [type(name) for name in pair] != [str, str]:
                raise PlanError(
                    f"{pair!r} is no pair of variables",
                    hint='cep.Statistics(selectivities={("a", "b"): 0.1})',
                )
            if not _is_number(share) or not 0 <= share <= 1:
                raise PlanError(
                    f"the selectivity of {pair!r} is {share!r}",
                    hint="a selectivity is a share between 0 and 1",
                )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
